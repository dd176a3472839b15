"""Run a real JupyterHub with its proxy beside a test cluster, as programs outside of it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, Request, build_opener, urlopen

from tests.controlplane.recipes import Programs
from tests.support import broom
from tests.support.cluster import TestCluster, User
from tests.support.processes import Program, free_port

_WRAPPER = Path(__file__).with_name("hub_wrapper.py")
_TOKEN = "token-of-the-test-service"
_PROXY_TOKEN = "token-of-the-proxy"


class HubRefusedError(Exception):
    """The hub answered with an error.

    Attributes:
        status: the HTTP status.
    """

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status} {body}")
        self.status = status


class Hub:
    """A running JupyterHub; `stop` it before its cluster.

    It loads the configuration under test as it is (with the files beside it), then overrides what depends on
    the place: addresses, the proxy's, where its database lies. Notebook pods are made by KubeSpawner in the
    cluster; nothing runs in them, so they never answer and their servers stay "pending".

    Attributes:
        url: what a browser would open: the proxy.
    """

    def __init__(
        self,
        cluster: TestCluster,
        programs: Programs,
        config: Path,
        *,
        namespace: str,
        user: User | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare a hub; `start` starts it.

        Args:
            cluster: where notebooks are made.
            programs: where the programs are.
            config: the `jupyterhub_config.py`.
            namespace: where the hub believes to be (`POD_NAMESPACE`).
            user: whose rights it has in the cluster (default: the admin).
            env: further variables, such as those of the hub's container.
        """
        self._directory = Path(tempfile.mkdtemp(prefix="mlstack-hub-"))
        self._sweeper = broom.sweep_after_us(self._directory)
        proxy, hub, api = (free_port() for _ in range(3))
        self.url = f"http://127.0.0.1:{proxy}"
        settings = {
            "config": str(config),
            "state": str(self._directory),
            "proxyPort": proxy,
            "hubPort": hub,
            "apiPort": api,
            "token": _TOKEN,
        }
        (self._directory / "wrapper.json").write_text(json.dumps(settings))
        wrapper = self._directory / "wrapper.py"
        wrapper.write_text(_WRAPPER.read_text())
        # Its parser, made anew in every process, took half of a hub's start; nobody asks for it here.
        (self._directory / "rfc3987_syntax.py").write_text("raise ImportError")
        login = cluster.write_kubeconfig(self._directory / "kubeconfig", user, namespace=namespace)
        variables = {
            **(env or {}),
            "CONFIGPROXY_AUTH_TOKEN": _PROXY_TOKEN,
            "KUBECONFIG": str(login),
            "POD_NAMESPACE": namespace,
            "PYTHONPYCACHEPREFIX": "",  # its packages are compiled where they lie
        }
        self._proxy = Program(
            "proxy",
            [programs.node, programs.hub_proxy, *_proxy_flags(proxy, hub, api)],
            log=self._directory / "proxy.log",
            env=variables,
            cwd=self._directory,
        )
        self._hub = Program(
            "hub",
            [programs.hub_python, "-m", "jupyterhub", "--config", wrapper],
            log=self._directory / "hub.log",
            env=variables,
            cwd=self._directory,
        )

    def start(self) -> None:
        """Start proxy and hub and wait until the hub answers through the proxy.

        Raises:
            AssertionError: one ended or did not answer in time; the message has the end of its log.
        """
        self._proxy.start()
        self._proxy.wait_until(self._proxy_answers, what="an answer")
        self._hub.start()
        self._hub.wait_until(self._is_healthy, what="health", timeout_s=120)

    def restart(self) -> None:
        """Kill the hub, start it again and wait for it; the proxy lives on."""
        self._hub.kill()
        self._hub.start()
        self._hub.wait_until(self._is_healthy, what="health", timeout_s=120)

    def stop(self) -> None:
        """Kill both and remove their files; notebooks stay in the cluster."""
        self._hub.kill()
        self._proxy.kill()
        self._sweeper.communicate()

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Ask the hub's API, as a service that may manage users and servers.

        Args:
            method: GET, POST, DELETE …
            path: what follows `/hub/api`.
            body: sent as JSON.

        Raises:
            HubRefusedError: the hub's answer is an error.
        """
        request = Request(
            f"{self.url}/hub/api{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {_TOKEN}", "Content-Type": "application/json"},
        )
        try:
            with urlopen(request, timeout=60) as response:
                text = response.read()
        except HTTPError as error:
            with error:
                raise HubRefusedError(error.code, error.read().decode()) from error
        return json.loads(text) if text else None

    def spawn(self, user: str, options: Mapping[str, Any] | None = None) -> None:
        """Make the user known to the hub and ask for their notebook.

        The pod comes soon after; when it cannot be made, the log says why.

        Args:
            user: name of the user.
            options: the choices of the spawn form: profile, image and so on.
        """
        try:
            self.request("POST", f"/users/{user}", {})
        except HubRefusedError as error:
            if error.status != 409:  # known already
                raise
        self.request("POST", f"/users/{user}/server", options or {})

    def login(self, user: str, password: str) -> bool:
        """Say whether the hub lets somebody in who fills its login form so."""
        cookies = CookieJar()
        browser = build_opener(HTTPCookieProcessor(cookies))
        page = f"{self.url}/hub/login"
        with browser.open(page, timeout=60):
            token = next(cookie.value for cookie in cookies if cookie.name == "_xsrf")
        form = urlencode({"_xsrf": token, "username": user, "password": password})
        try:
            with browser.open(f"{page}?next=/hub/token", form.encode(), timeout=60) as response:
                return bool(urlsplit(response.url).path == "/hub/token")
        except HTTPError as error:
            error.close()
            return False

    def log(self) -> str:
        """Give the end of what the hub printed."""
        return self._hub.log_tail(200)

    def wait_until_logged(self, text: str) -> None:
        """Wait until the hub has printed this text."""
        self._hub.wait_until(
            lambda: text in self._hub.log.read_text(errors="replace"), what=f"`{text}` in the log"
        )

    def _proxy_answers(self) -> bool:
        return _status(self.url) is not None

    def _is_healthy(self) -> bool:
        return _status(f"{self.url}/hub/health") == 200


def _proxy_flags(proxy: int, hub: int, api: int) -> list[str]:
    return [
        "--ip=127.0.0.1",
        f"--port={proxy}",
        "--api-ip=127.0.0.1",
        f"--api-port={api}",
        f"--default-target=http://127.0.0.1:{hub}",
        f"--error-target=http://127.0.0.1:{hub}/hub/error",
    ]


def _status(url: str) -> int | None:
    """Give the HTTP status that comes back, or None where nothing answers."""
    try:
        with urlopen(url, timeout=10) as response:
            return int(response.status)
    except HTTPError as error:
        error.close()
        return error.code
    except (URLError, OSError):
        return None
