"""What does not go on a real control plane: named with its finalizer, in time, wherever one looks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from mlstack.yaml import write
from tests.support.builders import write_tree
from tests.support.cluster import TestCluster
from tests.support.deploying import config_map, deployment
from tests.support.shell import Shell

pytestmark = pytest.mark.cluster

HOLD = "example.org/hold"
ENVIRONMENT = "apiVersion: mlstack.dev/v1\nkind: Environment\ncontext: minikube\nnamespace: {}\n"


@pytest.fixture
def shell(tmp_path: Path, kubeconfig: Path, namespace: str) -> Iterator[Shell]:
    """An app of a Deployment and two ConfigMaps in components of their own."""
    tree = {
        "app.yaml": "apiVersion: mlstack.dev/v1\nkind: App\nname: demo\n",
        "components/other.yaml": write.to_yaml_documents([config_map("other")]),
        "components/held.yaml": write.to_yaml_documents([config_map("held")]),
        "components/web.yaml": write.to_yaml_documents(
            [deployment("web", envFrom=[{"configMapRef": {"name": "other"}}])]
        ),
        "environments/prod/environment.yaml": ENVIRONMENT.format(namespace),
    }
    with closing(Shell(root=write_tree(tmp_path / "app", tree), kubeconfig=kubeconfig)) as person:
        yield person


@contextmanager
def held(cluster: TestCluster, path: str) -> Iterator[None]:
    """Hold an object by a finalizer, and let it go at the end."""

    def patch(finalizers: list[str] | None) -> None:
        cluster.request("PATCH", path, {"metadata": {"finalizers": finalizers}})

    patch([HOLD])
    try:
        yield
    finally:
        patch(None)
        cluster.wait_until_gone(path)


def in_time(shell: Shell, *words: str) -> tuple[int, str, str]:
    """Run a command with a limit of 10 s, to which a busy machine adds some; else it takes two minutes."""
    begun_s = time.monotonic()
    code, ran = shell.run(*words, "--timeout", "10s")
    assert time.monotonic() - begun_s < 80
    return code, ran.out, ran.err


def test_a_pod_that_holds_its_deployment_is_named(
    shell: Shell, minikube: TestCluster, namespace: str
) -> None:
    assert shell.run("apply", "prod")[0] == 0
    pod = minikube.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"][0]["metadata"]["name"]
    with held(minikube, f"/api/v1/namespaces/{namespace}/pods/{pod}"):
        code, out, err = in_time(shell, "delete", "prod", "--yes")
        assert (code, f"held by Pod {namespace}/{pod} ({HOLD})" in err) == (7, True)
        assert f"failed    Deployment {namespace}/web: was not gone within 10 s" in out
        reason = f"/other: `Deployment {namespace}/web`, which goes before it, was not deleted"
        assert reason in " ".join(out.split())
        assert minikube.find(f"/api/v1/namespaces/{namespace}/configmaps/other") is not None
    assert shell.run("delete", "prod", "--yes")[0] == 0


def test_an_environment_whose_namespace_goes_does_not_work(
    shell: Shell, minikube: TestCluster, namespace: str
) -> None:
    assert shell.run("apply", "prod", "-c", "other,held")[0] == 0
    assert shell.run("status", "prod", "-c", "held")[0] == 0
    path = f"/api/v1/namespaces/{namespace}/configmaps/foreign"
    minikube.request("POST", path.rpartition("/")[0], {"metadata": {"name": "foreign"}})
    with held(minikube, path):
        minikube.kubectl("delete", "namespace", namespace, "--wait=false")
        minikube.wait_for(
            f"/api/v1/namespaces/{namespace}", lambda live: HOLD in json.dumps(live.get("status"))
        )
        code, ran = shell.run("status", "prod", "-c", "held")
        text = " ".join(ran.out.split())
        assert (code, f"namespace `{namespace}` is terminating" in text, HOLD in text) == (1, True, True)
        code, _, err = in_time(shell, "apply", "prod", "--yes")
        named = f"`Namespace {namespace}`: is being deleted"
        assert (code, named in err, HOLD in err) == (7, True, True), err


def test_what_is_in_every_namespace_does_not_keep_one_and_what_is_of_others_does(
    shell: Shell, minikube: TestCluster, namespace: str
) -> None:
    own = f"{namespace}-own"
    write_tree(shell.root, {"environments/prod/environment.yaml": ENVIRONMENT.format(own)})
    assert shell.run("apply", "prod")[0] == 0
    minikube.request("POST", f"/api/v1/namespaces/{own}/configmaps", {"metadata": {"name": "foreign"}})
    code, ran = shell.run("delete", "prod", "--namespaces", "--yes")
    lines = [line for line in ran.err.splitlines() if line.startswith("  ")]
    assert (code, lines) == (2, [f"  ConfigMap {own}/foreign: was not made by mlstack"])
    code, ran = shell.run("delete", "prod", "--namespaces", "--foreign", "--yes")
    assert (code, f"1 objects besides: ConfigMap {own}/foreign" in ran.err) == (0, True)
    assert minikube.find(f"/api/v1/namespaces/{own}") is None
