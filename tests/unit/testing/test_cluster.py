"""The memory cluster keeps the contract of clusters; beyond it: fixed identities, expiry, patches."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest

from mlstack.errors import ForbiddenError, InvalidError, WatchExpiredError
from mlstack.kube.client import Cluster, GuardedClient, ObjectRef
from mlstack.objects.managed_fields import PatchFault, json_patch, merge_patch
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.cluster_contract import ClusterContract, config_map, deployment


class TestMemoryCluster(ClusterContract):
    @pytest.fixture
    def cluster(self) -> Cluster:
        return MemoryCluster(load_schemas("1.36"))

    @pytest.fixture
    def namespace(self, cluster: Cluster) -> str:
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "contract"}})
        return "contract"


class TestFencedCluster(TestMemoryCluster):
    """Whoever may write sees no fence."""

    @pytest.fixture
    def cluster(self) -> Cluster:
        inner = MemoryCluster(load_schemas("1.36"))
        return GuardedClient(inner, fence=lambda verb, written: None)


def memory(name: str = "memory", version: str = "1.36") -> MemoryCluster:
    return MemoryCluster(load_schemas(version), name=name, clock=lambda: 1_700_000_000.0)


def test_the_same_writes_give_the_same_objects() -> None:
    first, other = memory().apply(config_map("default", x="1")), memory().apply(config_map("default", x="1"))
    assert first == other
    assert first.object["metadata"]["creationTimestamp"] == "2023-11-14T22:13:20Z"


def test_clusters_of_other_names_are_other_clusters() -> None:
    assert memory("a").identity() != memory("b").identity()


def test_a_watch_from_before_a_compaction_has_expired() -> None:
    cluster = memory()
    before = cluster.list("v1", "ConfigMap").resource_version
    cluster.apply(config_map("default", x="1"))
    cluster.compact()
    with pytest.raises(WatchExpiredError):
        list(cluster.watch("v1", "ConfigMap", resource_version=before, timeout_s=1))
    now = cluster.list("v1", "ConfigMap").resource_version
    assert list(cluster.watch("v1", "ConfigMap", resource_version=now, timeout_s=1)) == []


def test_what_others_write_while_a_watch_is_idle_is_told() -> None:
    cluster = memory()
    pending = iter("ab")

    def act() -> None:
        name = next(pending, "")
        if name:
            cluster.apply(config_map("default", name, x="1"))

    cluster.on_idle = act
    names = [event.object["metadata"].get("name") for event in cluster.watch("v1", "ConfigMap", timeout_s=1)]
    assert names == [None, "a", "b"]


def test_objects_that_were_given_can_be_changed_without_harm() -> None:
    cluster = memory()
    wanted = config_map("default", x="1")
    applied: Any = cluster.apply(wanted).object
    applied["data"]["x"] = "changed"
    wanted["data"]["x"] = "changed"
    live = cluster.get(ObjectRef.of(wanted))
    assert live is not None
    assert live["data"] == {"x": "1"}


def test_each_kubernetes_version_has_its_own_kinds() -> None:
    old, new = memory(version="1.30").kinds(), memory(version="1.37").kinds()
    name = ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy")
    assert old.lookup(*name) is None
    assert new.lookup(*name) is not None


def test_a_namespace_that_is_held_takes_nothing_new() -> None:
    cluster = memory()
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "going"}}
    cluster.apply(space)
    held = config_map("going", x="1")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    cluster.apply(held)
    cluster.delete(ObjectRef.of(space))
    with pytest.raises(ForbiddenError) as caught:
        cluster.apply(config_map("going", "b", x="1"))
    assert caught.value.why == "terminating"
    cluster.patch(ObjectRef.of(held), {"metadata": {"finalizers": None}})
    assert cluster.get(ObjectRef.of(space)) is None


@pytest.mark.parametrize(
    ("kind", "before", "after", "field"),
    [
        ("Job", {"template": 1}, {"template": 2}, "spec.template"),
        ("StatefulSet", {"serviceName": "a"}, {"serviceName": "b"}, "spec"),
    ],
)
def test_fields_that_cannot_change_are_told_apart(
    kind: str, before: dict[str, Any], after: dict[str, Any], field: str
) -> None:
    cluster = memory()

    def workload(values: dict[str, Any]) -> dict[str, Any]:
        spec = dict(deployment("default")["spec"])
        image = f"example.com/web:{values.get('template', 1)}"
        pod = {**spec["template"]["spec"], "containers": [{"name": "main", "image": image}]}
        if kind == "Job":
            content: dict[str, Any] = {"template": {"spec": {**pod, "restartPolicy": "Never"}}}
        else:
            content = {"selector": spec["selector"], "template": spec["template"], **values}
        return {
            "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
            "kind": kind,
            "metadata": {"name": "w", "namespace": "default"},
            "spec": content,
        }

    cluster.apply(workload(before))
    with pytest.raises(InvalidError) as caught:
        cluster.apply(workload(after))
    assert [cause.field for cause in caught.value.causes] == [field]


def test_a_patch_must_be_of_the_kind_it_says() -> None:
    cluster = memory()
    ref = ObjectRef.of(cluster.apply(config_map("default", x="1")).object)
    with pytest.raises(InvalidError):
        cluster.patch(ref, {"data": {}}, kind="json")


def test_many_threads_can_write() -> None:
    cluster = memory()

    def write(name: str) -> None:
        for number in range(20):
            cluster.apply(config_map("default", f"{name}{number}", x="1"))

    threads = [Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    versions = [item["metadata"]["resourceVersion"] for item in cluster.list("v1", "ConfigMap").items]
    assert len(versions) == len(set(versions)) == 80


# --- patches ---


@pytest.mark.parametrize(
    ("value", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ],
)
def test_merge_patches_of_the_rfc(value: Any, patch: Any, result: Any) -> None:
    assert merge_patch(value, patch) == result


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 2},
        {"op": "remove", "path": "/b"},
        {"op": "replace", "path": "/b", "value": 1},
        {"op": "add", "path": "/b/c", "value": 1},
        {"op": "add", "path": "/l/7", "value": 1},
        {"op": "add", "path": "a", "value": 1},
        {"op": "frob", "path": "/a"},
        {"op": "add", "path": "/a"},
    ],
)
def test_an_operation_that_does_not_fit_is_a_fault(operation: dict[str, Any]) -> None:
    with pytest.raises(PatchFault):
        json_patch({"a": 1, "l": []}, [operation])


def test_the_original_stays_as_it_is() -> None:
    value = {"a": {"b": [1]}}
    json_patch(value, [{"op": "add", "path": "/a/b/-", "value": 2}, {"op": "remove", "path": "/a/b/0"}])
    merge_patch(value, {"a": {"b": None}})
    assert value == {"a": {"b": [1]}}
