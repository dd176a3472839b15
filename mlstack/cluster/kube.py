"""The only door to the `kubernetes` library: reads the kubeconfig, authenticates, lends its connection pool.

The library is imported on first use (it costs a quarter of a second). Requests themselves are `remote`'s;
logins of fixed credentials are opened by `direct`, without the library.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlstack.cluster.pooled import Pooled
from mlstack.cluster.remote import RemoteCluster
from mlstack.cluster.tls import ca_fingerprint, socket_options, tls_context
from mlstack.cluster.transport import AGENT, READ_TIMEOUT_S, Transport
from mlstack.cluster.wire import CONNECTIONS, Sent
from mlstack.errors import ClusterError, ForbiddenError, NotFoundError
from mlstack.model import proxies
from mlstack.model.login import impersonation
from mlstack.model.names import nearest

_PROVIDER_CA = "idp-certificate-authority"
_SERVICE_ACCOUNT_CA = Path("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")


def connect(
    context: str = "", *, kubeconfig: str | None = None, read_timeout_s: float = READ_TIMEOUT_S
) -> RemoteCluster:
    """Prepare to speak to the cluster of a kubectl context; nothing is sent yet.

    Args:
        context: name of the context; empty for the current one, or, without any kubeconfig, for the service
            account of the pod this runs in.
        kubeconfig: one or more files, separated as in `KUBECONFIG`; None for what kubectl takes.
        read_timeout_s: how long the server may stay silent in one request, in seconds.

    Raises:
        NotFoundError: no kubeconfig, or no such context in it.
        ForbiddenError: a credential plug-in fails.
        ClusterError: the kubeconfig or a file it names cannot be used.
    """
    in_pod = not context and _is_in_pod(kubeconfig)
    login = _PodLogin() if in_pod else _Login(context, kubeconfig)
    settings = login.settings()
    if not str(settings.host).startswith(("http://", "https://")):
        raise _no_address(login.label)
    transport = Transport(
        Pooled(_pool(settings, login.label), settings.host),
        settings.host,
        label=login.label,
        credentials=_Headers(login, settings),
        read_timeout_s=read_timeout_s,
    )
    ca_file = settings.ssl_ca_cert if settings.verify_ssl else None
    return RemoteCluster(transport, ca=_fingerprint(ca_file, login.label))


_NO_FILE = "File does not exist: "  # the library's word
_PROVIDERS = ("gcp", "oidc")  # the library takes others for nobody's credentials
_LETTER = re.compile(r"^(?!\s*(#|---\s*$|\s*$))", re.MULTILINE)
_QUOTED = re.compile(rb"%([0-9A-Fa-f]{2})")
_LOOK = "kubectl config view shows what it holds"


def _no_address(label: str) -> ClusterError:
    return ClusterError(
        f"{label} has no address of an API server that begins with https://",
        hint="set `server` of its cluster in the kubeconfig",
    )


class _Login:
    """One context of a kubeconfig: finds its parts, runs its credential plug-in."""

    def __init__(self, context: str, kubeconfig: str | None) -> None:
        self._files = _files(kubeconfig)
        self._merged = _merged(self._files)
        self.context = context or self._current()
        self.label = f"context `{self.context}`"
        self._user = self._part("users", str(self._chosen().get("user") or ""), "user")
        cluster = self._part("clusters", str(self._chosen().get("cluster") or ""), "cluster")
        if not isinstance(cluster.get("server", ""), str):
            raise _no_address(self.label)
        self._proxy = cluster.get("proxy-url")
        self.impersonation = self._impersonation()
        self._lent: dict[str, Any] = {}

    @property
    def can_renew(self) -> bool:
        """Say whether asking again can give other credentials: a plug-in, a provider, a token file."""
        return any(key in self._user for key in ("exec", "auth-provider", "tokenFile"))

    def settings(self) -> Any:
        """Let the library read addresses, certificates and credentials: its `Configuration`."""
        from kubernetes.client import Configuration
        from kubernetes.config import kube_config

        library: Any = kube_config
        settings: Any = Configuration()
        provider = self._user.get("auth-provider")
        if provider and provider.get("name") not in _PROVIDERS:
            raise self._unusable(ValueError("auth-provider"))
        with self._verified_provider(), _logged_errors() as said:
            try:
                library.KubeConfigLoader(
                    config_dict=self._merged.config,
                    active_context=self.context,
                    config_base_path=None,
                    config_persister=self._save,
                ).load_and_set(settings)
            except Exception as error:
                # The library lets through whatever its parsers raise; its texts may quote the file, tokens
                # included, so only the kind of fault is told.
                raise self._unusable(error) from None
        if "exec" in self._user and not (settings.api_key or settings.cert_file):
            raise self._plugin_failed(" ".join(said))
        if self._user.get("tokenFile"):
            settings.api_key = {"BearerToken": f"Bearer {self._token()}"}
            settings.refresh_api_key_hook = None  # it would put back what the library read
        _take_proxy(settings, self._proxy)
        return settings

    def _token(self) -> str:
        """Read the token of a file without the blanks around it; it counts before one in the kubeconfig."""
        entry = next(one for one in self._entries("users") if one.value.get("user") is self._user)
        file = Path(entry.path).parent / self._user["tokenFile"]
        try:
            token: str = file.read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            raise self._unusable(error) from None
        if not token:
            raise ClusterError(
                f"the token file of {self.label} is empty: {file}",
                where=self._files,
                hint="log in to the cluster again, so that a token is written to it",
            )
        return token

    def _impersonation(self) -> dict[str, tuple[str, ...]]:
        try:
            return impersonation(self._user)
        except ValueError:
            raise ClusterError(
                f"{self.label} does not say clearly as whom to act",
                where=self._files,
                hint="`as` of its user is a name, `as-groups` a list of names",
            ) from None

    def _chosen(self) -> Mapping[str, Any]:
        known = {str(entry.value["name"]): entry.value for entry in self._entries("contexts")}
        if self.context not in known:
            raise NotFoundError(
                f"the kubeconfig has no context `{self.context}`; it has "
                + (", ".join(f"`{name}`" for name in sorted(known)) or "none"),
                near=(near := nearest(self.context, known)),
                where=self._files,
                hint=None if near else "kubectl config get-contexts; --context NAME takes another one",
            )
        found: Mapping[str, Any] = known[self.context].get("context") or {}
        return found

    def _current(self) -> str:
        current = self._merged.config.value.get("current-context")
        if not current:
            raise NotFoundError(
                "the kubeconfig has no current context",
                where=self._files,
                hint="kubectl config use-context NAME; `kubectl config get-contexts` lists them",
            )
        return str(current)

    def _part(self, section: str, name: str, what: str) -> Mapping[str, Any]:
        known = {str(entry.value.get("name")): entry.value for entry in self._entries(section)}
        if name and name not in known:
            raise ClusterError(
                f"{self.label} names the {what} `{name}`, which the kubeconfig does not have",
                where=self._files,
                hint=_LOOK,
            )
        found: Mapping[str, Any] = known.get(name, {}).get(what) or {}
        return found

    def _entries(self, section: str) -> list[Any]:
        return list(self._merged.config.value.get(section) or [])

    @contextmanager
    def _verified_provider(self) -> Iterator[None]:
        """Make the library verify an OIDC provider that brings no CA: it would trust anybody otherwise."""
        provider = (self._user.get("auth-provider") or {}).get("config")
        if isinstance(provider, dict) and not any(key.startswith(_PROVIDER_CA) for key in provider):
            import certifi

            provider[_PROVIDER_CA] = ssl.get_default_verify_paths().cafile or certifi.where()
            self._lent = provider
        try:
            yield
        finally:
            self._take_back()

    def _save(self) -> None:
        """Keep refreshed tokens in the kubeconfig, as kubectl does."""
        self._take_back()
        self._merged.save_changes()

    def _take_back(self) -> None:
        self._lent.pop(_PROVIDER_CA, None)
        self._lent = {}

    def _unusable(self, error: Exception) -> ClusterError:
        provider = self._user.get("auth-provider")
        missing = str(error).removeprefix(_NO_FILE) if str(error).startswith(_NO_FILE) else None
        hint = f"kubectl --context {self.context} version shows whether kubectl can use them"
        if isinstance(error, OSError) and error.filename:
            text = f"{self.label} needs the file {error.filename}: {(error.strerror or '').lower()}"
        elif missing:
            text = f"{self.label} needs the file {missing}: no such file"
        elif isinstance(provider, Mapping):
            name = provider.get("name")
            text = f"the credentials of {self.label} come from auth-provider `{name}`, which cannot be used"
            hint = "get its credentials anew, with the credential plug-in that kubectl takes today"
        else:
            text = f"the credentials or certificates of {self.label} cannot be used"
        return ClusterError(text, where=self._files, hint=hint)

    def _plugin_failed(self, said: str) -> ForbiddenError:
        plugin = self._user["exec"] or {}
        if "'NoneType'" in said:  # on a terminal the library looks for words that the person has read already
            said = "see what it says above"
        return ForbiddenError(
            f"the credential plug-in `{plugin.get('command')}` of {self.label} fails: "
            f"{said[:300] or 'its answer has no token'}",
            why="credentials",
            where=self._files,
            hint=str(plugin.get("installHint") or "").strip()
            or f"install it or log in with it again, then try: kubectl --context {self.context} version",
        )


class _PodLogin:
    """The service account of the pod this runs in."""

    context = ""
    label = "this pod's service account"
    can_renew = True
    impersonation: Mapping[str, tuple[str, ...]] = {}

    def settings(self) -> Any:
        """Let the library read the account's token and certificate: its `Configuration`."""
        from kubernetes import config
        from kubernetes.client import Configuration

        library: Any = config
        settings = Configuration()
        try:
            library.load_incluster_config(client_configuration=settings)
        except library.ConfigException as error:
            raise ClusterError(f"{self.label} cannot be used: {error}") from error
        _take_proxy(settings, None)
        return settings


def _files(kubeconfig: str | None) -> str:
    """Give the kubeconfig files as kubectl finds them (the library reads KUBECONFIG only when imported)."""
    return kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"


def _is_in_pod(kubeconfig: str | None) -> bool:
    files = _files(kubeconfig).split(os.pathsep)
    has_kubeconfig = any(Path(name).expanduser().exists() for name in files if name)
    return _SERVICE_ACCOUNT_CA.exists() and not has_kubeconfig


def _merged(files: str) -> Any:
    """Read the kubeconfig files with the library's own merger.

    Raises:
        NotFoundError: there is none.
        ClusterError: one cannot be read.
    """
    from kubernetes.config import kube_config

    library: Any = kube_config
    try:
        merger = library.KubeConfigMerger(_written(files))
        found = None if merger.config is None else merger.config.value
        if found is not None:
            _refuse_nameless(found)
    except Exception as error:
        # As above: YAML errors quote the line, which may hold a token. A mark only gives the line's number.
        mark = getattr(error, "problem_mark", None)
        place = f"{mark.name}:{mark.line + 1}" if mark is not None else files
        reason = (error.strerror or "").lower() if isinstance(error, OSError) else "it is not a kubeconfig"
        raise ClusterError(f"the kubeconfig cannot be read: {reason}", where=place, hint=_LOOK) from None
    if found is None:
        raise NotFoundError(
            f"there is no kubeconfig at {files}",
            hint="set KUBECONFIG, or let your cluster write one: minikube start, "
            "gcloud container clusters get-credentials NAME",
        )
    return merger


def _written(files: str) -> str:
    """Leave out files in which nothing stands, as kubectl does; the library takes them for faults."""
    named = [Path(name).expanduser() for name in files.split(os.pathsep) if name]
    return os.pathsep.join(
        str(file)
        for file in named
        if not file.is_file() or _LETTER.search(file.read_text("utf-8", "replace"))
    )


def _refuse_nameless(found: Mapping[str, Any]) -> None:
    for section in ("contexts", "clusters", "users"):
        for entry in found.get(section) or ():
            if not entry.value["name"]:
                raise ValueError(section)


@contextmanager
def _logged_errors() -> Iterator[list[str]]:
    """Collect what the library says to the root logger: of a failing plug-in it tells nobody else."""
    said: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield said
    finally:
        root.removeHandler(handler)


class _Headers:
    """Gives the headers of a login, renewed when they expire or are refused."""

    def __init__(self, login: _Login | _PodLogin, settings: Any) -> None:
        self._login = login
        self._settings = settings

    def __call__(self, *, refresh: bool) -> Sent | None:
        if refresh:
            if not self._login.can_renew:
                return None
            self._settings = self._login.settings()
        auth = self._settings.auth_settings().values()
        return {
            "User-Agent": AGENT,
            **{
                str(item["key"]): str(item["value"])
                for item in auth
                if item["in"] == "header" and item["value"]
            },
            **self._login.impersonation,
        }


def _take_proxy(settings: Any, url: Any) -> None:
    """Set the proxy as kubectl does: the context's for every server, else that of the environment.

    The library asks the proxy even for this machine, takes ALL_PROXY too, and says no password.
    """
    from urllib3.util import make_headers, parse_url

    settings.proxy = url or proxies.between(settings.host, os.environ)
    settings.no_proxy = ""
    said = parse_url(settings.proxy).auth if settings.proxy else None
    settings.proxy_headers = make_headers(proxy_basic_auth=_unquoted(said)) if said else None


def _unquoted(text: str) -> str:
    return _QUOTED.sub(lambda found: bytes.fromhex(found[1].decode()), text.encode()).decode(
        "utf-8", "replace"
    )


def _pool(settings: Any, label: str) -> Any:
    """Make the library's connection pool, with one TLS context for all connections.

    Left alone, urllib3 reads the certificates anew for each connection (60 ms each).
    """
    from kubernetes.client.rest import RESTClientObject
    from urllib3 import disable_warnings
    from urllib3.exceptions import InsecureRequestWarning, LocationParseError

    if settings.proxy and not str(settings.proxy).lower().startswith(("http://", "https://")):
        raise ClusterError(
            f"{label} is reached through a proxy that mlstack does not speak to: only http:// and https://",
            hint="set `proxy-url` of its cluster, or HTTPS_PROXY",
        )
    settings.connection_pool_maxsize = CONNECTIONS
    settings.socket_options = socket_options()
    try:
        pool = RESTClientObject(settings).pool_manager
        context = tls_context(
            ca_file=settings.ssl_ca_cert,
            cert_file=settings.cert_file,
            key_file=settings.key_file,
            verify=settings.verify_ssl,
        )
    except (OSError, ValueError, LocationParseError) as error:
        said = getattr(error, "strerror", None) or type(error).__name__
        reason = said.partition(" (_ssl")[0].rpartition("] ")[2]
        raise ClusterError(
            f"the certificates or the proxy of {label} cannot be used: {reason}", hint=_LOOK
        ) from error
    for key in ("ca_certs", "ca_cert_data", "cert_file", "key_file"):
        pool.connection_pool_kw.pop(key, None)
    if str(settings.host).startswith("https://"):
        pool.connection_pool_kw["ssl_context"] = context
    if not settings.verify_ssl:
        disable_warnings(InsecureRequestWarning)
    return pool


def _fingerprint(ca_file: str | None, label: str) -> str | None:
    try:
        return ca_fingerprint(ca_file)
    except (OSError, ValueError) as error:
        raise ClusterError(f"the CA certificate of {label} cannot be read", hint=_LOOK) from error
