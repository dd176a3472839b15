"""A real JupyterHub spawns notebooks in the test clusters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.conftest import StartHub
from tests.support.cluster import TestCluster

pytestmark = pytest.mark.cluster

_CONFIG = """
import json, os
from pathlib import Path

values = json.loads(Path(__file__).with_name("hub.json").read_text())
c = get_config()
c.JupyterHub.hub_connect_url = values["hubConnect"]
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
c.JupyterHub.cleanup_servers = False
c.Authenticator.allow_all = True
c.DummyAuthenticator.password = "secret"
c.KubeSpawner.namespace = os.environ["POD_NAMESPACE"]
c.KubeSpawner.image = values["image"]
c.KubeSpawner.storage_pvc_ensure = True
c.KubeSpawner.storage_capacity = "1Gi"
c.KubeSpawner.pvc_name_template = "claim-{user_server}"
c.KubeSpawner.volumes = [{"name": "home", "persistentVolumeClaim": {"claimName": "{pvc_name}"}}]
c.KubeSpawner.volume_mounts = [{"name": "home", "mountPath": "/home/jovyan"}]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A small configuration that takes its values from a file beside it."""
    values = {"image": "notebook:1", "hubConnect": "http://tf-hub-0.kubeflow:8081"}
    (tmp_path / "hub.json").write_text(json.dumps(values))
    path = tmp_path / "jupyterhub_config.py"
    path.write_text(_CONFIG)
    return path


def test_hub_lets_in_who_knows_the_password_and_survives_a_restart(
    minikube: TestCluster, namespace: str, config: Path, start_hub: StartHub
) -> None:
    hub = start_hub(minikube, config, namespace=namespace)
    assert hub.login("eve", "secret")
    hub.restart()
    assert [user["name"] for user in hub.request("GET", "/users")] == ["eve"]
    assert not hub.login("eve", "wrong")


def test_hub_with_few_rights_says_what_it_may_not_do(
    gke: TestCluster, namespace: str, config: Path, start_hub: StartHub
) -> None:
    events = [{"apiGroups": [""], "resources": ["events", "pods"], "verbs": ["list", "watch"]}]
    user = gke.create_user(f"hub-{namespace}", events, namespace=namespace)
    hub = start_hub(gke, config, namespace=namespace, user=user)
    hub.spawn("ada")
    hub.wait_until_logged(f'"{user.name}\\" cannot create resource \\"persistentvolumeclaims\\"')
    assert gke.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"] == []
