"""What an environment remembers on real API servers: history, rollback, rollback on failure."""

from __future__ import annotations

import random
import re
import signal
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mlstack.operations.status import show_revision
from tests.support.cluster import TestCluster
from tests.support.controlplane import ControlPlane
from tests.support.deploying import Stack, config_map, crd, deployment, opener_of, path, secret
from tests.support.shell import Shell
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster


def secrets(cluster: TestCluster, namespace: str) -> list[str]:
    items = cluster.request("GET", f"/api/v1/namespaces/{namespace}/secrets")["items"]
    return sorted(item["metadata"]["name"] for item in items if item["type"] == "mlstack.dev/history")


def claim(size: str = "1Gi") -> dict[str, Any]:
    """Build a volume claim."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}


def incompressible(name: str, seed: int) -> dict[str, Any]:
    """Build a ConfigMap of 700 kB that no compression makes smaller than 350 kB."""
    return config_map(name, noise=random.Random(seed).randbytes(350_000).hex())


def test_what_was_applied_comes_back_and_what_came_later_goes_but_for_claims(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.write("web", config_map(a="1"), deployment(), secret(token="one"))
    stack.apply(who="ada@laptop")
    stack.write(
        "web", config_map(a="2"), config_map("later"), deployment(replicas=2), secret(token="two"), claim()
    )
    stack.apply(who="bob@desk")
    uid = minikube.request("GET", path(namespace, "persistentvolumeclaims", "data"))["metadata"]["uid"]

    stack.rollback(who="ada@laptop")

    assert minikube.request("GET", path(namespace, "configmaps", "settings"))["data"] == {"a": "1"}
    assert minikube.request("GET", path(namespace, "deployments", "web"))["spec"]["replicas"] == 1
    minikube.wait_until_gone(path(namespace, "configmaps", "later"))
    metadata = minikube.request("GET", path(namespace, "persistentvolumeclaims", "data"))["metadata"]
    assert metadata["uid"] == uid
    assert "deletionTimestamp" not in metadata
    rows = [(revision.number, revision.who, revision.what, revision.result) for revision in stack.revisions()]
    assert rows == [
        (3, "ada@laptop", "rollback to 1", "done"),
        (2, "bob@desk", "apply", "done"),
        (1, "ada@laptop", "apply", "done"),
    ]
    assert secrets(minikube, namespace) == [f"mlstack-demo.minikube.r{number}" for number in (1, 2, 3)]


def test_a_set_larger_than_a_secret_is_kept_and_comes_back(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.deploy("big", *(incompressible(f"big-{number}", number) for number in range(5)))
    name = "mlstack-demo.minikube.r1"
    assert secrets(minikube, namespace) == [name, f"{name}.2", f"{name}.3"]
    stack.deploy("big", *(incompressible(f"big-{number}", number + 100) for number in range(5)))
    stack.rollback(1)
    noise = minikube.request("GET", path(namespace, "configmaps", "big-3"))["data"]["noise"]
    assert noise == incompressible("big-3", 3)["data"]["noise"]


def test_a_run_killed_while_it_writes_its_revision_leaves_nothing_behind(
    stack: Stack, minikube: TestCluster, namespace: str, kubeconfig: Path
) -> None:
    shell = Shell(root=stack.root, kubeconfig=kubeconfig)
    for seed in range(2):
        stack.write("big", *(incompressible(f"big-{number}", 10 * seed + number) for number in range(4)))
        there = secrets(minikube, namespace)
        killed = shell.start("apply", "minikube", "--yes")
        begun = partial(_more_secrets, minikube, namespace, len(there))
        wait_until(begun, what="the first Secret of a revision", timeout_s=60)
        killed.kill()
        offered = [revision.number for revision in stack.revisions()]
        status, ran = shell.run("apply", "minikube", "--yes")
        assert status == 0, ran.err
        newest = stack.revisions()[0]
        assert newest.number >= max(offered, default=0)
        objects = show_revision(stack.target(), opener=stack.opener).objects
        noise = {obj.manifest["metadata"]["name"]: obj.manifest["data"]["noise"] for obj in objects}
        assert noise["big-3"] == incompressible("big-3", 10 * seed + 3)["data"]["noise"]
        assert len(secrets(minikube, namespace)) == sum(revision.parts for revision in stack.revisions())


def _more_secrets(cluster: TestCluster, namespace: str, there: int) -> bool | None:
    return len(secrets(cluster, namespace)) > there or None


def test_a_run_ended_by_a_signal_says_in_the_history_how_far_it_came(
    stack: Stack, kubeconfig: Path, minikube: TestCluster, namespace: str
) -> None:
    with closing(Shell(root=stack.root, kubeconfig=kubeconfig)) as shell:
        stack.write("web", *(config_map(f"c{at:03}", a="1") for at in range(200)))
        started = shell.start("apply", "minikube", "--yes")
        started.wait_for_lines(5)
        started.interrupt(signal.SIGTERM)
        assert started.end() == 143
        code, listed = shell.run("history", "minikube")
        assert code == 0
        match = re.search(r"interrupted: (\d+) of 200 changes", listed.out)
        assert match is not None, listed.out
        assert 5 <= int(match[1]) < 200
        assert shell.run("apply", "minikube", "--yes")[0] == 0
        assert [revision.result for revision in stack.revisions()] == ["done", "interrupted"]
        held = path(namespace, "configmaps", "c100")
        minikube.request("PATCH", held, {"metadata": {"finalizers": ["example.com/held"]}})
        deleting = shell.start("delete", "minikube", "--yes")
        minikube.wait_for(held, lambda live: live["metadata"].get("deletionTimestamp"))
        deleting.interrupt(signal.SIGTERM)
        assert deleting.end() == 143
        assert (stack.revisions()[0].what, stack.revisions()[0].result) == ("delete", "interrupted")
        minikube.request("PATCH", held, {"metadata": {"finalizers": None}})
        assert shell.run("delete", "minikube", "--yes")[0] == 0


def test_who_may_not_write_secrets_still_applies_and_is_told(
    stack: Stack, control_plane: ControlPlane, minikube: TestCluster, namespace: str, tmp_path: Path
) -> None:
    verbs = ["get", "list", "watch", "create", "patch", "update", "delete"]
    rules = [
        {"apiGroups": [""], "resources": ["configmaps", "pods", "events"], "verbs": verbs},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs},
    ]
    user = minikube.create_user("no-secrets", rules, namespace=namespace)
    config = minikube.write_kubeconfig(tmp_path / "no-secrets", user)
    stack.opener = opener_of(config)
    stack.write("web", config_map(a="1"))
    assert stack.apply().ok
    note = next(note for note in stack.notes if "history" in note)
    assert "secrets" in note
    assert minikube.find(path(namespace, "configmaps", "settings")) is not None


@pytest.mark.parametrize(("result", "code"), [("not ready", 7), ("failed", 6)])
def test_the_command_goes_back_by_itself_and_still_fails(
    stack: Stack, minikube: TestCluster, namespace: str, kubeconfig: Path, result: str, code: int
) -> None:
    shell = Shell(root=stack.root, kubeconfig=kubeconfig)
    stack.write("web", config_map(a="1"), deployment())
    status, ran = shell.run("apply", "minikube")
    assert status == 0, ran.err
    web, refused = deployment(replicas=2), []
    if result == "failed":  # new definitions are not tried before
        refused = [{**crd(group=f"{namespace}.broken.org"), "nonsense": 1}]
    else:
        web["spec"]["template"]["metadata"]["annotations"] = {"mlstack.dev/test-waiting": "ImagePullBackOff"}
    stack.write("web", config_map(a="2"), web, config_map("later"), claim(), *refused)
    status, ran = shell.run("apply", "minikube", "--yes", "--timeout=5s", "--on-failure=rollback")
    assert status == code, ran.err
    assert "rolling back to revision 1" in ran.err
    assert f"PersistentVolumeClaim {namespace}/data stays: volume claims are kept" in ran.err
    assert minikube.request("GET", path(namespace, "configmaps", "settings"))["data"] == {"a": "1"}
    assert minikube.request("GET", path(namespace, "deployments", "web"))["spec"]["replicas"] == 1
    minikube.wait_until_gone(path(namespace, "configmaps", "later"))
    assert minikube.find(path(namespace, "persistentvolumeclaims", "data")) is not None
    status, ran = shell.run("history", "minikube", "-o", "name")
    assert (status, ran.out.split()) == (0, ["3", "2", "1"])
    assert [revision.result for revision in stack.revisions()] == ["done", result, "done"]


def test_a_definition_loses_fields_again_only_where_that_is_allowed(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    group = f"{namespace}.example.com"

    def write(**spec: str) -> None:
        definition = crd("lamps", "Lamp", group=group)
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        types = {name: {"type": "string"} for name in spec}
        schema["properties"]["spec"] = {"type": "object", "properties": types}
        lamp = {"apiVersion": f"{group}/v1", "kind": "Lamp", "metadata": {"name": "one"}, "spec": spec}
        stack.write("lamps", definition, lamp)

    def fields() -> set[str]:
        address = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/lamps.{group}"
        version = minikube.request("GET", address)["spec"]["versions"][0]
        return set(version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"])

    write(size="large")
    stack.apply()
    write(size="large", color="red")
    stack.apply()
    stack.rollback(1)
    assert fields() == {"size", "color"}
    stack.rollback(1, allow_destructive=True)
    assert fields() == {"size"}
    lamp = minikube.request("GET", f"/apis/{group}/v1/namespaces/{namespace}/lamps/one")
    assert lamp["spec"] == {"size": "large"}
    minikube.kubectl("delete", "crd", f"lamps.{group}", "--wait=false")
