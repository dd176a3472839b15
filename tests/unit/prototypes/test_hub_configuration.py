"""The hub's configuration file, run as JupyterHub runs it, with the values that kubeflow-core renders.

What JupyterHub and KubeSpawner make of it is seen in `tests/cluster/test_hub.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support import examples

LOGIN_SECRET = {"password": "correct horse\n", "client-id": "hub", "client-secret": "s3cret\n"}


class Section(dict[str, Any]):
    """A section of a traitlets configuration: attributes are options."""

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


class Config(dict[str, Section]):
    """A traitlets configuration: sections come into being when they are named."""

    def __getattr__(self, name: str) -> Section:
        return self.setdefault(name, Section())


Configure = Callable[..., Config]


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """Give a function that renders kubeflow-core with parameters and loads the configuration of its hub."""
    monkeypatch.setenv("POD_NAMESPACE", "of-the-pod")

    def load(**params: Any) -> Config:
        data = config_map(tmp_path / "app", params)
        values = json.loads(data["hub.json"])
        values["login"]["secretDir"] = str(tmp_path)
        for key, text in {**LOGIN_SECRET, "hub.json": json.dumps(values)}.items():
            (tmp_path / key).write_text(text)
        file = tmp_path / "jupyterhub_config.py"
        config = Config()
        names = {"get_config": lambda: config, "__file__": str(file)}
        exec(compile(data["jupyterhub_config.py"], file, "exec"), names)
        return config

    return load


def config_map(root: Path, params: Mapping[str, Any]) -> Mapping[str, str]:
    """Render the hub of kubeflow-core and give the content of `jupyterhub-config`."""
    hub_alone = {"installCrds": False, "installOperator": False}
    state = examples.render_one(root, "kubeflow/core/kubeflow-core", {**hub_alone, **params})
    data: Mapping[str, str] = next(e.data["data"] for e in state.objects if e.name == "jupyterhub-config")
    return data


def test_hub_and_proxy_find_each_other_and_notebooks_find_the_hub(configure: Configure) -> None:
    hub = configure(namespace="kubeflow")
    assert hub.JupyterHub.hub_connect_url == "http://tf-hub-0.kubeflow:8081"
    assert hub.JupyterHub.bind_url == "http://:8000"
    assert hub.ConfigurableHTTPProxy == {"should_start": False, "api_url": "http://127.0.0.1:8001"}
    assert hub.JupyterHub.cleanup_servers is False


def test_state_lies_on_the_hubs_volume(configure: Configure) -> None:
    hub = configure().JupyterHub
    assert hub.db_url == "sqlite:////srv/jupyterhub/jupyterhub.sqlite"
    assert hub.cookie_secret_file == "/srv/jupyterhub/cookie_secret"


def test_a_notebook_gets_home_image_and_guarantees(configure: Configure) -> None:
    spawner = configure(storageClass="fast", notebookStorage="3Gi", notebookMemory="2Gi").KubeSpawner
    assert spawner.namespace == "of-the-pod"
    assert spawner.image == "quay.io/jupyter/tensorflow-notebook:2026-08-07"
    assert (spawner.cpu_guarantee, spawner.mem_guarantee) == (0.5, "2G")
    assert (spawner.storage_capacity, spawner.storage_class) == ("3Gi", "fast")
    assert spawner.volume_mounts == [{"name": "home", "mountPath": "/home/jovyan"}]
    assert spawner.delete_pvc is False
    assert spawner.common_labels["app"] != "tf-hub"
    assert not {"uid", "gid"} & spawner.keys()


def test_without_a_mount_there_is_no_claim(configure: Configure) -> None:
    spawner = configure(jupyterNotebookPVCMount="", notebookUid=1000, notebookGid=100).KubeSpawner
    assert not {"storage_pvc_ensure", "pvc_name_template", "storage_class"} & spawner.keys()
    assert (spawner.volumes, spawner.volume_mounts) == ([], [])
    assert (spawner.uid, spawner.gid) == (1000, 100)


@pytest.mark.parametrize(("uid", "is_ordinary"), [(-1, True), (1000, True), (0, False)])
def test_a_notebook_of_root_is_not_held_to_be_an_ordinary_user(
    configure: Configure, uid: int, is_ordinary: bool
) -> None:
    security = configure(notebookUid=uid).KubeSpawner.container_security_context
    assert {"runAsNonRoot", "capabilities"} <= security.keys() if is_ordinary else len(security) == 2


def test_disks_and_credentials_are_mounted(configure: Configure) -> None:
    spawner = configure(disks="data,more", gcpSecretName="user-gcp-sa").KubeSpawner
    assert {mount["mountPath"] for mount in spawner.volume_mounts} == {
        *("/home/jovyan", "/mnt/data", "/mnt/more", "/secret/gcp-credentials")
    }
    assert {volume["name"] for volume in spawner.volumes} == {m["name"] for m in spawner.volume_mounts}
    assert spawner.environment == {"GOOGLE_APPLICATION_CREDENTIALS": "/secret/gcp-credentials/key.json"}


def test_the_form_offers_images_and_gpus(configure: Configure) -> None:
    gke = {"cloud": "gke", "accelerator": "nvidia-l4"}
    (profile,) = configure(
        notebookImages="a:1,b:1", notebookImage="b:1", notebookGpus=2, **gke
    ).KubeSpawner.profile_list
    image, gpu = profile["profile_options"]["image"], profile["profile_options"]["gpu"]
    offered = {choice["display_name"]: choice["default"] for choice in image["choices"].values()}
    assert offered == {"a:1": False, "b:1": True}
    assert gpu["choices"]["g2"]["kubespawner_override"] == {
        "extra_resource_limits": {"nvidia.com/gpu": "2"},
        "node_selector": {"cloud.google.com/gke-accelerator": "nvidia-l4"},
    }
    assert gpu["choices"]["g0"]["default"]


def test_the_default_image_is_always_among_the_choices(configure: Configure) -> None:
    (profile,) = configure(notebookImages=["a:1"], notebookImage="b:1").KubeSpawner.profile_list
    choices = profile["profile_options"]["image"]["choices"].values()
    assert [choice["kubespawner_override"]["image"] for choice in choices] == ["b:1", "a:1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("login", "everyone"),
    [
        ({}, True),
        ({"jupyterHubAuthenticator": "null"}, True),
        ({"jupyterHubAllowedUsers": ["ada"]}, False),
        ({"jupyterHubAuthenticator": "shared-password", "jupyterHubAuthSecret": "s"}, True),
        ({"jupyterHubAuthenticator": "native"}, False),
        ({"jupyterHubAuthenticator": "firstuse"}, False),
        ({"jupyterHubAuthenticator": "github", "jupyterHubAuthSecret": "s"}, False),
        ({"jupyterHubAuthenticator": "google", "jupyterHubAuthSecret": "s"}, False),
    ],
    ids=str,
)
def test_only_two_logins_let_everyone_in(configure: Configure, login: dict[str, Any], everyone: bool) -> None:
    assert configure(**login).Authenticator.allow_all is everyone


def test_named_users_and_admins_get_in(configure: Configure) -> None:
    login = configure(jupyterHubAllowedUsers="ada,grace", jupyterHubAdminUsers="ada").Authenticator
    assert (login.allowed_users, login.admin_users) == ({"ada", "grace"}, {"ada"})


def test_the_shared_password_comes_from_the_secret(configure: Configure) -> None:
    hub = configure(jupyterHubAuthenticator="shared-password", jupyterHubAuthSecret="s")
    assert hub.SharedPasswordAuthenticator == {"user_password": "correct horse", "admin_password": ""}


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ({"jupyterHubPublicUrl": "https://hub.example.org/"}, "https://hub.example.org/hub/oauth_callback"),
        ({"ingressHost": "h.example.org"}, "http://h.example.org/hub/oauth_callback"),
        ({"ingressHost": "h.example.org", "tlsSecret": "t"}, "https://h.example.org/hub/oauth_callback"),
        ({"ingressHost": "*.example.org"}, None),
        ({}, None),
    ],
    ids=["given", "ingress", "ingress with TLS", "ingress of many hosts", "guessed by the hub"],
)
def test_oauth_knows_its_client_and_its_way_back(
    configure: Configure, address: dict[str, Any], expected: str | None
) -> None:
    oauth = configure(
        jupyterHubAuthenticator="github", jupyterHubAuthSecret="s", **address
    ).GitHubOAuthenticator
    assert (oauth.client_id, oauth.client_secret) == ("hub", "s3cret")
    assert oauth.get("oauth_callback_url") == expected


def test_generic_oauth_names_its_service(configure: Configure) -> None:
    service = {"authorize_url": "https://l/a", "token_url": "https://l/t", "userdata_url": "https://l/u"}
    hub = configure(
        jupyterHubAuthenticator="generic-oauth",
        jupyterHubAuthSecret="s",
        jupyterHubOauth={**service, "username_claim": "email", "scope": ["openid"]},
    )
    assert service.items() <= hub.GenericOAuthenticator.items()
    assert (hub.GenericOAuthenticator.username_claim, hub.GenericOAuthenticator.scope) == (
        "email",
        ["openid"],
    )


def test_the_file_is_the_same_for_everyone(tmp_path: Path) -> None:
    first = config_map(tmp_path / "one", {})
    other = config_map(
        tmp_path / "other", {"jupyterHubAuthenticator": "native", "disks": ["d"], "namespace": "n"}
    )
    assert first["jupyterhub_config.py"] == other["jupyterhub_config.py"]
    assert first["hub.json"] != other["hub.json"]
