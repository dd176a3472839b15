"""Any two environments side by side: files or clusters."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.deploy.changes import ObjectChange
from mlstack.deploy.compare import read_side
from mlstack.errors import NotFoundError, UsageError
from mlstack.kube.client import ObjectRef
from mlstack.operations.history import CompareResult, compare_environments
from mlstack.testing.cluster import MemoryCluster
from tests.support.deploying import Stack, config_map, deployment

PATCH = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: gke}\n"


@pytest.fixture
def two(stack: Stack) -> Stack:
    """An app whose environments differ in one value and in their namespaces."""
    stack.write("web", config_map(a="1", b="1"), deployment(replicas=2))
    stack.write_text("environments/gke/patches/web.yaml", PATCH)
    text = "apiVersion: mlstack.dev/v1\nkind: Environment\ncontext: gke\nnamespace: prod\n"
    stack.write_text("environments/gke/environment.yaml", text)
    return stack


def look(stack: Stack, left: str, right: str, **facts: Any) -> CompareResult:
    sides = read_side(left), read_side(right)
    return compare_environments(stack.target(**facts), *sides, opener=stack.opener)


def different(found: CompareResult) -> dict[str, ObjectChange]:
    return {row.object: row for row in found.objects if row.action != "unchanged"}


def values(row: ObjectChange) -> list[tuple[str, Any, Any]]:
    return [(one.path, one.old, one.new) for one in row.fields]


def test_files_are_compared_without_a_cluster(two: Stack) -> None:
    two.opener = lambda context: pytest.fail(f"asked {context}")
    found = different(look(two, "minikube", "local:gke"))
    assert found.keys() == {"ConfigMap prod/settings"}
    assert values(found["ConfigMap prod/settings"]) == [("data.a", "1", "gke")]


def test_an_environment_is_equal_to_itself(two: Stack) -> None:
    assert look(two, "local:gke", "local:gke").ok
    two.apply("gke")
    assert look(two, "remote:gke", "remote:gke").ok
    assert look(two, "remote:gke", "local:gke").ok
    assert look(two, "local:gke", "remote:gke").ok


def test_clusters_are_compared_by_what_we_own_there(two: Stack, clusters: dict[str, MemoryCluster]) -> None:
    two.apply("minikube")
    two.apply("gke")
    clusters["gke"].patch(
        ObjectRef("apps/v1", "Deployment", "prod", "web"),
        {"spec": {"replicas": 2, "paused": True}},
        manager="kubectl-edit",
    )
    found = different(look(two, "remote:minikube", "remote:gke"))
    assert found.keys() == {"ConfigMap prod/settings"}


def test_files_are_compared_with_another_cluster_by_a_dry_run_there(two: Stack) -> None:
    two.apply("gke")
    found = different(look(two, "local:minikube", "remote:gke"))
    assert values(found["ConfigMap prod/settings"]) == [("data.a", "1", "gke")]
    turned = different(look(two, "remote:gke", "local:minikube"))
    assert values(turned["ConfigMap prod/settings"]) == [("data.a", "gke", "1")]
    assert found.keys() == turned.keys() == {"ConfigMap prod/settings"}


def test_objects_on_one_side_alone_are_told(two: Stack) -> None:
    two.apply("minikube")
    two.write("more", config_map("more"))
    (row,) = different(look(two, "remote:minikube", "local:minikube")).values()
    assert (row.name, row.action) == ("more", "create")
    (row,) = different(look(two, "local:minikube", "remote:minikube")).values()
    assert (row.name, row.action) == ("more", "delete")


def test_components_filter_both_sides(two: Stack) -> None:
    two.write("more", config_map("more"))
    two.apply("minikube")
    two.apply("gke")
    found = look(two, "remote:minikube", "remote:gke", components=["more"])
    assert found.ok
    found = look(two, "local:minikube", "remote:gke", components=["more"])
    assert {row.name for row in found.objects} == {"more"}


def test_comparing_writes_nothing(two: Stack, clusters: dict[str, MemoryCluster]) -> None:
    two.apply("gke")
    before = clusters["gke"].list("v1", "ConfigMap").resource_version
    look(two, "local:minikube", "remote:gke")
    look(two, "remote:minikube", "remote:gke")
    assert clusters["gke"].list("v1", "ConfigMap").resource_version == before


@pytest.mark.parametrize("word", ["live:gke", "remote:", ":gke"])
def test_what_is_no_side_is_refused(word: str) -> None:
    with pytest.raises(UsageError):
        read_side(word)


def test_an_unknown_environment_is_not_found(two: Stack) -> None:
    with pytest.raises(NotFoundError):
        look(two, "local:minikube", "local:gek")
