"""What does not go on a real control plane: named with its finalizer, in time, wherever one looks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from mlstack.yaml import write
from tests.support.builders import write_tree
from tests.support.cluster import TestCluster
from tests.support.deploying import config_map, crd, deployment
from tests.support.shell import Shell

pytestmark = pytest.mark.cluster

HOLD = "example.org/hold"
ENVIRONMENT = "apiVersion: mlstack.dev/v1\nkind: Environment\ncontext: minikube\nnamespace: {}\n"


CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "disk"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
}


@pytest.fixture
def shell(tmp_path: Path, kubeconfig: Path, namespace: str) -> Iterator[Shell]:
    """An app of a Deployment and two ConfigMaps in components of their own."""
    tree = {
        "app.yaml": "apiVersion: mlstack.dev/v1\nkind: App\nname: demo\n",
        "components/other.yaml": write.to_yaml_documents([config_map("other")]),
        "components/held.yaml": write.to_yaml_documents([config_map("held")]),
        "components/web.yaml": write.to_yaml_documents([deployment("web")]),
        "environments/prod/environment.yaml": ENVIRONMENT.format(namespace),
    }
    with closing(Shell(root=write_tree(tmp_path / "app", tree), kubeconfig=kubeconfig)) as person:
        yield person


@contextmanager
def held(cluster: TestCluster, path: str) -> Iterator[None]:
    """Hold an object by a finalizer, and let it go at the end."""

    def patch(finalizers: list[str] | None) -> None:
        body: dict[str, Any] = {"metadata": {"finalizers": finalizers}}
        cluster.request("PATCH", path, body, content_type="application/merge-patch+json")

    patch([HOLD])
    try:
        yield
    finally:
        patch(None)
        cluster.wait_until_gone(path)


def in_time(shell: Shell, *words: str) -> tuple[int, str, str]:
    """Run a command with a limit of 5 s, to which a busy machine adds some."""
    begun_s = time.monotonic()
    code, ran = shell.run(*words, "--timeout", "5s")
    assert time.monotonic() - begun_s < 30
    return code, ran.out, ran.err


def test_a_surplus_object_that_is_held_is_terminating(
    shell: Shell, minikube: TestCluster, namespace: str
) -> None:
    assert shell.run("apply", "prod", "--no-wait")[0] == 0
    (shell.root / "components/held.yaml").unlink()
    with held(minikube, f"/api/v1/namespaces/{namespace}/configmaps/held"):
        code, _, err = in_time(shell, "apply", "prod", "--yes", "-c", "other")
        assert code == 0  # the component that brought it was not selected
        code, _, err = in_time(shell, "apply", "prod", "--yes")
        assert (code, f"within 5 s; its finalizers are still there: {HOLD}" in err) == (7, True)
        code, ran = shell.run("status", "prod")
        assert (code, "not everything works" in ran.out) == (1, True)
        told = f"terminating ConfigMap {namespace}/held (of component held): its finalizers are still there"
        assert f"{told}: {HOLD}" in " ".join(ran.out.split())
        code, ran = shell.run("apply", "prod", "--yes", "--no-wait", "-o", "json")
        assert (code, json.loads(ran.out)["counts"]["terminating"]) == (0, 1)
    assert shell.run("status", "prod", "--watch", "--timeout", "60s")[0] == 0


def test_a_pod_that_holds_its_deployment_is_named(
    shell: Shell, minikube: TestCluster, namespace: str
) -> None:
    assert shell.run("apply", "prod")[0] == 0
    pod = minikube.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"][0]["metadata"]["name"]
    with held(minikube, f"/api/v1/namespaces/{namespace}/pods/{pod}"):
        code, out, err = in_time(shell, "delete", "prod", "--yes")
        assert (code, f"held by Pod {namespace}/{pod} ({HOLD})" in err) == (7, True)
        assert f"failed    Deployment {namespace}/web: was not gone within 5 s" in out
    assert shell.run("delete", "prod", "--yes")[0] == 0


def test_an_environment_whose_namespace_goes_does_not_work(
    shell: Shell, minikube: TestCluster, namespace: str
) -> None:
    assert shell.run("apply", "prod", "-c", "other,held")[0] == 0
    assert shell.run("status", "prod", "-c", "held")[0] == 0
    path = f"/api/v1/namespaces/{namespace}/configmaps/foreign"
    body = {"metadata": {"name": "foreign"}}
    minikube.request("POST", path.rpartition("/")[0], body)
    with held(minikube, path):
        minikube.kubectl("delete", "namespace", namespace, "--wait=false")
        minikube.wait_for(
            f"/api/v1/namespaces/{namespace}", lambda found: HOLD in json.dumps(found.get("status"))
        )
        code, ran = shell.run("status", "prod", "-c", "held")
        said = " ".join(ran.out.split())
        assert (code, f"namespace `{namespace}` is terminating" in said, HOLD in said) == (1, True, True)
        code, _, err = in_time(shell, "apply", "prod", "--yes")
        assert (code, f"`Namespace {namespace}`: is being deleted" in err, HOLD in err) == (7, True, True)


def test_foreign_objects_of_a_definition_are_named_before_it_goes(
    shell: Shell, minikube: TestCluster, namespace: str
) -> None:
    group = f"{namespace}.example.com"
    lamp = {"apiVersion": f"{group}/v1", "kind": "Lamp", "metadata": {"name": "ours"}}
    objects = [crd("lamps", "Lamp", group=group), lamp]
    write_tree(shell.root, {"components/lamps.yaml": write.to_yaml_documents(objects)})
    assert shell.run("apply", "prod", "-c", "lamps")[0] == 0
    theirs = {**lamp, "metadata": {"name": "theirs", "namespace": "default"}}
    minikube.kubectl("apply", "-f", "-", input=json.dumps(theirs))
    told = f"with definition `lamps.{group}` go 1 Lamp of all namespaces: default/theirs"
    for words, expected in ((("--dry-run",), 0), ((), 2)):
        code, ran = shell.run("delete", "prod", "--crds", *words)
        assert (code, told in " ".join(ran.err.split())) == (expected, True)
    assert shell.run("delete", "prod", "--crds", "--yes")[0] == 0


def test_a_namespace_goes_only_with_what_may_go(shell: Shell, minikube: TestCluster, namespace: str) -> None:
    own = f"{namespace}-own"
    kept = config_map("held")
    kept["metadata"]["annotations"] = {"mlstack.dev/prune": "false"}
    write_tree(
        shell.root,
        {
            "components/held.yaml": write.to_yaml_documents([kept]),
            "components/disk.yaml": write.to_yaml_documents([CLAIM]),
            "environments/prod/environment.yaml": ENVIRONMENT.format(own),
        },
    )
    assert shell.run("apply", "prod")[0] == 0
    for words in (("--dry-run",), ("--yes",)):
        code, ran = shell.run("delete", "prod", "--namespaces", *words)
        assert (code, "--claims --foreign" in ran.err) == (2, True)
        lines = [line.split(":")[0] for line in ran.err.splitlines() if line.startswith("  ")]
        assert lines == [f"  ConfigMap {own}/held", f"  PersistentVolumeClaim {own}/disk"]
    minikube.request("POST", f"/api/v1/namespaces/{own}/configmaps", {"metadata": {"name": "foreign"}})
    code, ran = shell.run("delete", "prod", "--namespaces", "--claims", "--yes")
    assert (code, f"ConfigMap {own}/foreign: was not made by mlstack" in ran.err) == (2, True)
    code, ran = shell.run("delete", "prod", "--namespaces", "--claims", "--foreign", "--yes")
    assert (code, f"1 objects besides: ConfigMap {own}/foreign" in ran.err) == (0, True)
    assert minikube.find(f"/api/v1/namespaces/{own}") is None
