"""What `diff` shows and what it leaves out, and any two environments side by side, on real API servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlstack.deploy.changes import ChangeReport
from mlstack.deploy.compare import read_side
from mlstack.errors import InvalidError
from mlstack.operations.history import CompareResult, compare_environments
from tests.support.cluster import TestCluster
from tests.support.deploying import Stack, config_map, deployment, secret

pytestmark = pytest.mark.cluster

PATCH = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: gke}\n"


@pytest.fixture
def elsewhere(minikube: TestCluster, namespace: str) -> Iterator[str]:
    """Another namespace of minikube."""
    name = f"{namespace}-more"
    minikube.kubectl("create", "namespace", name)
    yield name
    minikube.kubectl("delete", "namespace", name, "--wait=false")


def many() -> list[dict[str, Any]]:
    """Objects whose fields the server defaults and writes in its own way."""
    resources = {"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": {"memory": "1.5Gi"}}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "name": "main"}]},
    }
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    }
    return [config_map(a="1"), secret(password="hush"), service, role, deployment(resources=resources)]


def look(stack: Stack, left: str, right: str, **facts: Any) -> CompareResult:
    return compare_environments(stack.target(**facts), read_side(left), read_side(right), opener=stack.opener)


def different(found: Any) -> dict[str, str]:
    return {row.name: row.action for row in found.objects if row.action != "unchanged"}


def test_objects_without_namespace_and_in_others_are_included(
    stack: Stack, minikube: TestCluster, namespace: str, elsewhere: str
) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"role-{namespace}"},
        "rules": [],
    }
    far = {**config_map("far", a="1"), "metadata": {"name": "far", "namespace": elsewhere}}
    stack.write("web", role, far)
    assert different(stack.diff()) == {f"role-{namespace}": "create", "far": "create"}
    stack.apply()
    try:
        assert stack.diff().ok
        minikube.kubectl("patch", "configmap", "far", "-n", elsewhere, "-p", '{"data": {"a": "2"}}')
        assert different(stack.diff()) == {"far": "update"}
    finally:
        minikube.kubectl("delete", "clusterrole", f"role-{namespace}", "--ignore-not-found")


def test_what_a_prune_would_delete_is_shown_and_filtered_by_component(stack: Stack) -> None:
    stack.write("web", config_map("kept"), config_map("gone"))
    stack.write("other", config_map("other"), config_map("too"))
    stack.apply()
    stack.write("web", config_map("kept"))
    stack.write("other", config_map("other"))
    found = stack.diff()
    assert different(found) == {"gone": "delete", "too": "delete"}
    assert found.counts == {"delete": 2, "unchanged": 2}
    assert not found.ok
    assert different(stack.diff(components=["web"])) == {"gone": "delete"}
    assert different(stack.diff(components=["other"])) == {"too": "delete"}


def test_other_apps_never_appear(stack: Stack, minikube: TestCluster, namespace: str, tmp_path: Path) -> None:
    neighbour = Stack(tmp_path / "neighbour", namespace=namespace, opener=stack.opener, name="neighbour")
    neighbour.write("web", config_map("theirs"))
    neighbour.apply()
    minikube.kubectl("create", "configmap", "nobodys", "-n", namespace)
    stack.write("web", config_map("ours"))
    stack.apply()
    stack.write("web", config_map("ours", a="2"))
    assert {row.name for row in stack.diff().objects} == {"ours"}
    assert look(stack, "remote:minikube", "local:minikube").counts == {"update": 1}


def test_values_of_secrets_are_masked(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    stack.write("web", secret(password="hush-hush"))
    stack.apply()
    stack.write("web", secret(password="loud-loud"))
    told = repr(stack.diff()) + repr(look(stack, "remote:minikube", "local:minikube"))
    words = ("hush", "loud", "aHVzaC", "bG91ZC")
    assert not any(word in told for word in words)
    assert "data.password" in told


def test_two_clusters_with_the_same_are_equal(stack: Stack) -> None:
    stack.write("web", *many())
    stack.apply("minikube")
    stack.apply("gke")
    sides = [f"{where}:{name}" for where in ("local", "remote") for name in ("minikube", "gke")]
    unequal = [(left, right) for left in sides for right in sides if not look(stack, left, right).ok]
    assert unequal == []


def test_a_difference_is_seen_from_every_side(stack: Stack, gke: TestCluster, namespace: str) -> None:
    stack.write("web", *many())
    stack.write_text("environments/gke/patches/web.yaml", PATCH)
    stack.apply("minikube")
    stack.apply("gke")
    for left in ("local:minikube", "remote:minikube"):
        for right in ("local:gke", "remote:gke"):
            found = look(stack, left, right)
            (row,) = (row for row in found.objects if row.action != "unchanged")
            assert [(one.path, one.old, one.new) for one in row.fields] == [("data.a", "1", "gke")], right
    scale = json.dumps({"spec": {"replicas": 3}})
    gke.kubectl("patch", "deployment", "web", "-n", namespace, "-p", scale)
    assert different(look(stack, "local:gke", "remote:gke")) == {"web": "update"}


def test_comparing_writes_nothing(stack: Stack, gke: TestCluster, namespace: str) -> None:
    stack.write("web", config_map(a="1"))
    stack.apply("gke")
    where = f"/api/v1/namespaces/{namespace}/configmaps"
    before = gke.request("GET", where)["items"]
    stack.write("web", config_map(a="2"), config_map("new"))
    look(stack, "local:minikube", "remote:gke")
    look(stack, "remote:minikube", "remote:gke")
    stack.diff("gke")
    assert gke.request("GET", where)["items"] == before


def test_one_object_that_is_not_valid_hides_nothing(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.write("a", config_map("fine", a="1"), deployment())
    stack.apply()
    twice = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    wrong = {**config_map("wrong"), "data": {"a": 1}}
    stack.write("a", config_map("fine", a="2"), deployment(env=twice), wrong)
    with pytest.raises(InvalidError) as caught:
        stack.diff()
    report = caught.value.partial
    assert isinstance(report, ChangeReport)
    found = {row.name: row for row in report.objects}
    assert [(one.path, one.new) for one in found["fine"].fields] == [("data.a", "2")]
    assert "duplicate entries" in found["web"].refused[0]
    assert "expected" in found["wrong"].refused[0]
    with pytest.raises(InvalidError) as caught:
        stack.apply()
    assert "Deployment" in caught.value.message and "wrong" in caught.value.message
    stack.write("a", config_map("fine", a="2"), deployment(), wrong)
    with pytest.raises(InvalidError, match="wrong"):  # new, and asked about all the same
        stack.apply()
    live = minikube.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/fine")
    assert live["data"] == {"a": "1"}
