"""A real JupyterHub, with the configuration and the rights that kubeflow-core renders, spawns notebooks."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, Request, build_opener, urlopen

import pytest

from mlstack.render import render
from mlstack.yaml import write
from tests.cluster.conftest import StartHub
from tests.controlplane.recipes import Programs
from tests.support import examples
from tests.support.api import Json
from tests.support.cluster import TestCluster
from tests.support.jupyterhub import Hub

pytestmark = pytest.mark.cluster

Deploy = Callable[..., Hub]
HUB_ALONE = {"installOperator": False, "installCrds": False}
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.fixture
def deploy(tmp_path: Path, gke: TestCluster, namespace: str, start_hub: StartHub) -> Deploy:
    """Give a function that applies kubeflow-core to a namespace for restricted pods and starts its hub there.

    The hub runs outside of the cluster, with its files where the test puts them, as the rendered account.
    """

    def make(secret: Mapping[str, str] | None = None, *, also: str = "", **params: Any) -> Hub:
        gke.api.request("PATCH", f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": RESTRICTED}})
        components = {"core": ("kubeflow/core/kubeflow-core", {**HUB_ALONE, **params})}
        app = examples.write_app(tmp_path / "app", components)
        objects = render.load(app, "gke", namespace=namespace).objects
        text = write.to_yaml_documents(obj.data for obj in objects)
        gke.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", input=text)
        config = gke.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/jupyterhub-config")["data"]
        file = write_files(tmp_path / "etc", config, secret or {}, also)
        user = gke.service_account(namespace, "jupyter-hub")
        return start_hub(gke, file, namespace=namespace, user=user)

    return make


def write_files(folder: Path, config: Mapping[str, str], secret: Mapping[str, str], also: str) -> Path:
    """Lay the ConfigMap and the login's Secret out as the pod would see them; give the configuration file."""
    values = json.loads(config["hub.json"])
    values["login"]["secretDir"] = str(folder)
    values["stateDir"] = str(folder)
    file = folder / "jupyterhub_config.py"
    folder.mkdir()
    for name, text in {**config, "hub.json": json.dumps(values), **secret}.items():
        (folder / name).write_text(text)
    if also:
        file.write_text(f"{file.read_text()}\n{also}\n")
    return file


def spawned(cluster: TestCluster, namespace: str, hub: Hub, user: str = "ada", **options: Any) -> Json:
    """Ask for somebody's notebook and give its pod once it runs."""
    hub.spawn(user, options)
    path = f"/api/v1/namespaces/{namespace}/pods/jupyter-{user}"
    return cluster.wait_for(path, lambda pod: pod["status"]["phase"] == "Running", timeout_s=60)


def test_a_notebook_has_the_claim_image_and_guarantees_asked_for(
    gke: TestCluster, namespace: str, deploy: Deploy
) -> None:
    hub = deploy(
        notebookImage="registry.example.org/team/notebook:1",
        notebookStorage="3Gi",
        notebookCpu=0.25,
        notebookMemory="512M",
        storageClass="standard-rwo",
        notebookUid=1000,
        notebookGid=100,
    )
    pod = spawned(gke, namespace, hub)
    (container,) = pod["spec"]["containers"]
    claim = gke.request("GET", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/claim-ada")
    assert container["image"] == "registry.example.org/team/notebook:1"
    assert container["resources"]["requests"] == {"cpu": "250m", "memory": "536870912"}
    assert claim["spec"]["resources"]["requests"] == {"storage": "3Gi"}
    assert claim["spec"]["storageClassName"] == "standard-rwo"
    assert {item["mountPath"]: item["name"] for item in container["volumeMounts"]} == {"/home/jovyan": "home"}
    assert pod["spec"]["volumes"] == [{"name": "home", "persistentVolumeClaim": {"claimName": "claim-ada"}}]
    assert pod["spec"]["securityContext"] == {"fsGroup": 100}
    assert (container["securityContext"]["runAsUser"], container["securityContext"]["runAsGroup"]) == (
        1000,
        100,
    )
    assert pod["spec"].get("automountServiceAccountToken") is False


def test_the_form_gives_another_image_and_gpus(gke: TestCluster, namespace: str, deploy: Deploy) -> None:
    hub = deploy(notebookGpus=2, disks="datasets", gcpSecretName="user-gcp-sa")
    gke.request("POST", f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": "user-gcp-sa"}})
    gke.request("POST", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", claim_named("datasets"))
    pod = spawned(gke, namespace, hub, profile="notebook", image="i2", gpu="g2")
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "quay.io/jupyter/pytorch-notebook:2026-08-07"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert pod["spec"]["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {
        *("/home/jovyan", "/mnt/datasets", "/secret/gcp-credentials")
    }


def test_a_notebook_without_a_home_has_no_claim(gke: TestCluster, namespace: str, deploy: Deploy) -> None:
    pod = spawned(gke, namespace, deploy(jupyterNotebookPVCMount="", useJupyterLabAsDefault=False))
    assert pod["spec"].get("volumes", []) == []
    assert gke.request("GET", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims")["items"] == []


def test_a_notebook_finds_the_hub_and_its_home_outlives_it_and_its_user(
    gke: TestCluster, namespace: str, deploy: Deploy
) -> None:
    hub = deploy()
    for _ in range(2):
        pod = spawned(gke, namespace, hub)
        hub.request("DELETE", "/users/ada/server")
        gke.wait_until_gone(f"/api/v1/namespaces/{namespace}/pods/jupyter-ada")
    environment = {entry["name"]: entry.get("value") for entry in pod["spec"]["containers"][0]["env"]}
    assert environment["JUPYTERHUB_API_URL"] == f"http://tf-hub-0.{namespace}:8081/hub/api"
    assert environment["JUPYTERHUB_DEFAULT_URL"] == "/lab"
    for name in ("tf-hub-0", "tf-hub-lb"):  # it is no hub itself
        selector = gke.request("GET", f"/api/v1/namespaces/{namespace}/services/{name}")["spec"]["selector"]
        assert not selector.items() <= pod["metadata"]["labels"].items()
    hub.request("DELETE", "/users/ada")
    assert gke.find(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/claim-ada")
    assert "orbidden" not in hub.log()


def test_everyone_logs_in_with_dummy_but_not_once_users_are_named(deploy: Deploy) -> None:
    hub = deploy(jupyterHubAllowedUsers=["ada"])
    assert hub.login("ada", "anything")
    assert not hub.login("eve", "anything")


def test_a_shared_password_is_asked_for(deploy: Deploy) -> None:
    secret = {"password": "correct horse battery"}
    hub = deploy(secret, jupyterHubAuthenticator="shared-password", jupyterHubAuthSecret="hub-password")
    assert hub.login("ada", "correct horse battery")
    assert not hub.login("ada", "wrong")


CLIENT = {"client-id": "hub", "client-secret": "secret"}
SERVICE = {f"{what}_url": f"http://127.0.0.1:9/{what}" for what in ("authorize", "token", "userdata")}
OTHERS: Mapping[str, Mapping[str, Any]] = {
    "native": {"jupyterHubAdminUsers": ["ada"]},
    "firstuse": {"jupyterHubAllowedUsers": ["ada"]},
    "github": {"jupyterHubAuthSecret": "s", "jupyterHubPublicUrl": "https://hub.example.org"},
    "google": {"jupyterHubAuthSecret": "s", "ingressHost": "hub.example.org"},
    "generic-oauth": {"jupyterHubAuthSecret": "s", "jupyterHubOauth": SERVICE},
}


@pytest.mark.parametrize("login", OTHERS)
def test_a_hub_starts_with_every_other_login_and_lets_nobody_else_in(login: str, deploy: Deploy) -> None:
    hub = deploy(CLIENT, jupyterHubAuthenticator=login, **OTHERS[login])
    with urlopen(f"{hub.url}/hub/login", timeout=60) as page:
        assert page.status == 200
    assert not hub.login("eve", "anything at all")


IAP = {"jupyterHubAuthenticator": "iap", "iapAudience": "/projects/1/global/backendServices/2"}
SIGN = """
import json, sys, time
from pathlib import Path
import jwt
from cryptography.hazmat.primitives.asymmetric import ec

ours, forger = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(ours.public_key()))
Path(sys.argv[1]).write_text(json.dumps({"keys": [{**public, "kid": "k", "alg": "ES256", "use": "sig"}]}))


def token(key, audience, issuer="https://cloud.google.com/iap"):
    claims = {"aud": audience, "iss": issuer, "email": "ada@example.org", "exp": time.time() + 600}
    return jwt.encode(claims, key, "ES256", headers={"kid": "k"})


audience = sys.argv[2]
print(json.dumps({
    "good": token(ours, audience),
    "foreign audience": token(ours, "/projects/9/global/backendServices/9"),
    "foreign issuer": token(ours, audience, "https://accounts.google.com"),
    "forged": token(forger, audience),
    "no token": "",
}))
"""


def test_the_identity_aware_proxy_is_believed_only_with_its_signature(
    tmp_path: Path, programs: Programs, deploy: Deploy
) -> None:
    served = tmp_path / "served"
    served.mkdir()
    command = [str(programs.hub_python), "-c", SIGN, str(served / "keys.json"), IAP["iapAudience"]]
    tokens = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    with web_server(served) as address:
        also = f"get_config().IapAuthenticator.keys_url = '{address}/keys.json'"
        hub = deploy(also=also, jupyterHubAllowedUsers=["ada@example.org"], **IAP)
        codes = {name: status_of_login(hub, token) for name, token in tokens.items()}
    assert codes == {name: 200 if name == "good" else 401 for name in tokens}


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def web_server(folder: Path) -> Iterator[str]:
    """Serve a folder on loopback and give its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def status_of_login(hub: Hub, token: str) -> int:
    """Open the hub as a browser behind the proxy would, and give the status of where that ends."""
    browser = build_opener(HTTPCookieProcessor())
    plain = {"X-Goog-Authenticated-User-Email": "accounts.google.com:ada@example.org"}
    request = Request(f"{hub.url}/hub/token", headers={**plain, "X-Goog-IAP-JWT-Assertion": token})
    try:
        with browser.open(request, timeout=60) as answer:
            return int(answer.status)
    except HTTPError as error:
        error.close()
        return error.code


def claim_named(name: str) -> Json:
    """Give a small claim."""
    resources = {"requests": {"storage": "1Gi"}}
    return {"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources}}
