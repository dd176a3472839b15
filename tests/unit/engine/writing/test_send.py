"""Writing one object: compare and swap, a second look, hand-overs."""

from dataclasses import replace
from typing import Any

import pytest

from mlstack.deploy.changes import Change
from mlstack.deploy.write import Sender
from mlstack.errors import ConflictError, OutdatedError
from mlstack.kube.client import ObjectRef
from mlstack.objects.kube_object import KubeObject
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.counted import Counted
from tests.support.deploying import VirtualClock, config_map

REF = ObjectRef("v1", "ConfigMap", "default", "settings")


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(load_schemas("1.36"), clock=VirtualClock())


def wanted(**data: str) -> KubeObject:
    found = config_map(**data)
    return KubeObject(
        data={**found, "metadata": {**found["metadata"], "namespace": "default"}}, component="a"
    )


def update(cluster: MemoryCluster, desired: KubeObject, **facts: Any) -> Change:
    live = cluster.get(REF)
    assert live is not None
    return Change(
        identity=desired.identity,
        component="a",
        action="update",
        api_version="v1",
        desired=desired,
        live_uid=live["metadata"]["uid"],
        live_version=live["metadata"]["resourceVersion"],
        **facts,
    )


def data_of(cluster: MemoryCluster) -> dict[str, str]:
    live = cluster.get(REF)
    assert live is not None
    found: dict[str, str] = live["data"]
    return found


def test_a_moved_object_without_a_second_look_is_an_error(cluster: MemoryCluster) -> None:
    cluster.apply(wanted(a="1").data)
    change = update(cluster, wanted(a="2"))
    cluster.patch(REF, {"data": {"x": "y"}}, manager="other")
    with pytest.raises(ConflictError):
        Sender(cluster).send(change)
    assert data_of(cluster) == {"a": "1", "x": "y"}


def test_a_second_look_goes_on_with_the_version_of_now(cluster: MemoryCluster) -> None:
    cluster.apply(wanted(a="1").data)
    change = update(cluster, wanted(a="2"), fingerprint="f")
    cluster.patch(REF, {"data": {"x": "y"}}, manager="other")
    sender = Sender(cluster, again=lambda one: update(cluster, wanted(a="2"), fingerprint="f"))
    assert sender.send(change).object["data"] == {"a": "2", "x": "y"}


def test_a_second_look_at_something_else_is_refused(cluster: MemoryCluster) -> None:
    cluster.apply(wanted(a="1").data)
    change = update(cluster, wanted(a="2"), fingerprint="f")
    cluster.patch(REF, {"data": {"a": "9"}}, manager="other")
    sender = Sender(cluster, again=lambda one: update(cluster, wanted(a="2"), fingerprint="g"))
    with pytest.raises(OutdatedError, match="changed since it was shown"):
        sender.send(change)
    assert data_of(cluster) == {"a": "9"}


def test_an_object_that_keeps_moving_is_given_up(cluster: MemoryCluster) -> None:
    cluster.apply(wanted(a="1").data)
    change = update(cluster, wanted(a="2"))
    with pytest.raises(ConflictError, match="changes faster than it can be written"):
        Sender(cluster, again=lambda one: replace(change, live_version="1")).send(
            replace(change, live_version="1")
        )


def test_what_somebody_else_brought_about_is_not_written(cluster: MemoryCluster) -> None:
    cluster.apply(wanted(a="1").data)
    change = update(cluster, wanted(a="2"))
    cluster.patch(REF, {"data": {"a": "2"}}, manager="other")
    counted = Counted(cluster)
    seen = {"metadata": {"name": "settings"}}
    done = replace(change, action="unchanged", writes=False, seen=seen)
    assert Sender(counted, again=lambda one: done).send(change).object == seen
    assert counted.written == ["settings"]  # the attempt that met another version


def test_a_patch_of_owners_that_comes_too_late_is_looked_at_again(cluster: MemoryCluster) -> None:
    cluster.apply(wanted(a="1").data)
    stale = ({"op": "test", "path": "/metadata/resourceVersion", "value": "0"},)
    change = update(cluster, wanted(a="2"), prepare=stale)
    sender = Sender(cluster, again=lambda one: update(cluster, wanted(a="2")))
    assert sender.send(change).object["data"] == {"a": "2"}


def test_a_creation_takes_nothing_from_others(cluster: MemoryCluster) -> None:
    cluster.create(wanted(a="theirs").data, manager="other")
    desired = wanted(a="ours")
    change = Change(identity=desired.identity, component="a", action="create", desired=desired)
    with pytest.raises(ConflictError) as caught:
        Sender(cluster).send(change)
    assert caught.value.managers == ("other",)
