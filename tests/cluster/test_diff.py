"""What `diff` shows and what it leaves out, and any two environments side by side, on real API servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mlstack.deploy.compare import read_side
from mlstack.operations.status import CompareResult, compare_environments
from tests.support.cluster import TestCluster
from tests.support.deploying import Stack, config_map, deployment, secret

pytestmark = pytest.mark.cluster


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


def different(result: Any) -> dict[str, str]:
    return {row.name: row.action for row in result.objects if row.action != "unchanged"}


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


def test_two_clusters_with_the_same_are_equal(stack: Stack) -> None:
    stack.write("web", *many())
    stack.apply("minikube")
    stack.apply("gke")
    sides = [f"{where}:{name}" for where in ("local", "remote") for name in ("minikube", "gke")]
    unequal = [(left, right) for left in sides for right in sides if not look(stack, left, right).ok]
    assert unequal == []
