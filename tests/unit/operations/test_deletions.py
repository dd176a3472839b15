"""Waiting for deletions: a wave is sent whole, a time limit holds for each, what holds them is named."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from mlstack.deploy.changes import Interrupted
from mlstack.deploy.target import Holder
from mlstack.errors import ForbiddenError, LockedError, MlstackError, NotReadyError
from mlstack.kube.client import ObjectRef
from mlstack.operations import status
from mlstack.testing.cluster import MemoryCluster
from tests.support.deploying import Stack, VirtualClock, config_map, deployment, existing

pytestmark = pytest.mark.slow

Clusters = dict[str, MemoryCluster]
COUNT = 50


def held(data: Mapping[str, Any]) -> dict[str, Any]:
    """Give an object that goes only once its finalizer is taken away."""
    return {**data, "metadata": {**data["metadata"], "finalizers": ["example.com/hold"]}}


class Acting(VirtualClock):
    """A clock on which something else happens while time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.act: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.act()


@pytest.fixture
def cluster(stack: Stack, clusters: Clusters) -> MemoryCluster:
    stack.clock = Acting()
    return clusters["minikube"]


def going(cluster: MemoryCluster) -> list[ObjectRef]:
    """Give what is being deleted."""
    kinds = (("v1", "ConfigMap"), ("apps/v1", "Deployment"))
    items = (item for kind in kinds for item in cluster.list(*kind).items)
    return [ObjectRef.of(item) for item in items if item["metadata"].get("deletionTimestamp")]


def release(cluster: MemoryCluster, at_least: int = 1) -> None:
    """Take the finalizers away once so many objects wait for that."""
    refs = going(cluster)
    if len(refs) >= at_least:
        for ref in refs:
            cluster.patch(ref, {"metadata": {"finalizers": None}})


@pytest.fixture
def many(stack: Stack, cluster: MemoryCluster) -> Stack:
    """An app that was applied with so many held objects that no thread is left to wait for each."""
    stack.deploy("a", config_map("other"), *(held(config_map(f"m{number}")) for number in range(COUNT)))
    stack.clock.act = lambda: release(cluster, COUNT)
    return stack


def test_all_deletions_of_a_wave_are_sent_before_any_is_waited_for(many: Stack) -> None:
    assert many.delete().counts == {"deleted": COUNT + 1}


def test_so_are_those_of_what_the_files_no_longer_bring(many: Stack) -> None:
    many.write("a", config_map("other"))
    assert many.apply(wait=True, allow_large_prune=True).counts == {"deleted": COUNT, "unchanged": 1}


def selecting(name: str, label: str) -> dict[str, Any]:
    """Give a held Deployment that is made anew when its label changes."""
    data = held(deployment(name))
    data["metadata"]["annotations"] = {"mlstack.dev/recreate": "true"}
    data["spec"]["selector"] = {"matchLabels": {"app": label}}
    data["spec"]["template"]["metadata"] = {"labels": {"app": label}}
    return data


def test_so_are_those_of_what_is_made_anew(stack: Stack, cluster: MemoryCluster) -> None:
    names = [f"w{number}" for number in range(COUNT)]
    stack.deploy("a", *(selecting(name, "old") for name in names))
    stack.clock.act = lambda: release(cluster, COUNT)
    stack.write("a", *(selecting(name, "new") for name in names))
    assert stack.apply().counts == {"recreated": COUNT}


def limited(stack: Stack, run: Callable[[], object]) -> NotReadyError:
    """Give the error of a run that its time limit of 10 s ends."""
    begun_s = stack.clock.now_s()
    with pytest.raises(NotReadyError) as caught:
        run()
    assert 10 <= stack.clock.now_s() - begun_s < 13
    return caught.value


@pytest.fixture
def stuck(stack: Stack, cluster: MemoryCluster) -> Stack:
    """An app that was applied with one object that a finalizer holds, and another."""
    stack.deploy("a", held(deployment("stuck")), config_map("other"))
    return stack


HELD = "`Deployment ml/stuck`: was not gone within 10 s; its finalizers are still there: example.com/hold"


def test_a_recreation_ends_in_time_and_says_how_far_it_came(stuck: Stack) -> None:
    stuck.write("a", selecting("stuck", "new"), config_map("other"))
    assert limited(stuck, lambda: stuck.apply(timeout_s=10)).message == HELD


def test_what_goes_already_ends_the_wait_in_time(stuck: Stack, cluster: MemoryCluster) -> None:
    cluster.delete(ObjectRef("apps/v1", "Deployment", "ml", "stuck"))
    error = limited(stuck, lambda: stuck.apply(timeout_s=10))
    assert error.message == HELD.replace("was not gone", "is being deleted and was not gone")


def test_a_lock_is_waited_for_no_longer_than_anything_else(stuck: Stack, cluster: MemoryCluster) -> None:
    stuck.clock.act = lambda: None
    stuck.write("a", config_map("other", a="2"), held(deployment("stuck")))
    plan_of_other = stuck.plan(holder=Holder(name="ada@laptop/1/x"))
    begun: list[float] = []

    def while_locked() -> None:
        if not begun:
            begun.append(stuck.clock.now_s())
            with pytest.raises(LockedError):
                stuck.apply(holder=Holder(name="grace@ci/2/y"), timeout_s=10)

    apply_of = cluster.apply

    def applied(obj: Mapping[str, Any], **options: Any) -> Any:
        if obj["metadata"]["name"] == "other" and not options.get("dry_run"):
            while_locked()
        return apply_of(obj, **options)

    cluster.apply = applied  # type: ignore[method-assign]
    from mlstack.operations import deploy

    deploy.apply(plan_of_other, clock=stuck.clock)
    assert stuck.clock.now_s() - begun[0] < 13


def test_without_a_time_the_wait_goes_on_as_long_as_something_goes(
    many: Stack, cluster: MemoryCluster
) -> None:
    def release_one() -> None:
        if many.clock.now_s() - released[-1] >= 100:
            released.append(many.clock.now_s())
            cluster.patch(going(cluster)[0], {"metadata": {"finalizers": None}})

    released = [many.clock.now_s()]
    many.clock.act = release_one
    assert many.delete().counts == {"deleted": COUNT + 1}


def test_who_does_not_wait_does_not_wait_for_surplus_objects_either(stuck: Stack) -> None:
    stuck.write("a", config_map("other"))
    before_s = stuck.clock.now_s()
    assert stuck.apply().counts == {"terminating": 1, "unchanged": 1}
    assert stuck.clock.now_s() == before_s


def test_what_holds_an_object_below_is_named(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", deployment("web"))
    owner = existing(cluster, ObjectRef("apps/v1", "Deployment", "ml", "web"))
    reference = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "web",
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": True,
    }
    metadata = {"name": "web-1", "namespace": "ml", "ownerReferences": [reference]}
    spec = {"containers": [{"name": "main", "image": "web:1"}]}
    cluster.create(held({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
    with pytest.raises(MlstackError, match=r"held by Pod ml/web-1 \(example\.com/hold\)"):
        stack.delete(timeout_s=10)


STUCK = ("Deployment ml/stuck", True, "its finalizers are still there: example.com/hold")


def test_a_surplus_object_that_is_held_is_terminating_until_it_is_gone(
    stuck: Stack, cluster: MemoryCluster
) -> None:
    stuck.write("a", config_map("other"))
    stuck.apply()
    result = stuck.status()
    assert [(row.object, row.is_terminating, row.reason) for row in result.left_over] == [STUCK]
    assert not result.ok
    again = stuck.plan().changes.changes[-1]
    assert (again.action, again.reason.partition("; ")[2]) == (
        "delete",
        f"it is being deleted already, and {STUCK[2]}",
    )
    release(cluster)
    assert (stuck.status().ok, stuck.status().left_over) == (True, ())


def test_watching_ends_once_what_was_going_is_gone(stuck: Stack, cluster: MemoryCluster) -> None:
    stuck.write("a", config_map("other"))
    stuck.apply()
    begun_s = stuck.clock.now_s()

    def act() -> None:
        if stuck.clock.now_s() - begun_s > 20:
            release(cluster)

    stuck.clock.act = act
    target, states = stuck.target(), list[bool]()
    last = status.watch(
        target, opener=stuck.opener, clock=stuck.clock, on_change=lambda result: states.append(result.ok)
    )
    assert (last.ok, states[0], last.left_over) == (True, False, ())
    assert 20 < stuck.clock.now_s() - begun_s < 30


def test_an_environment_whose_namespace_goes_does_not_work(stuck: Stack, cluster: MemoryCluster) -> None:
    stuck.write("a", config_map("other"))
    stuck.apply(prune=False)
    assert stuck.status().ok
    existing(cluster, ObjectRef("v1", "Namespace", "", "ml"))
    get = cluster.get

    def going(ref: ObjectRef) -> Any:
        obj = get(ref)
        if obj is not None and ref.kind == "Namespace":
            obj["metadata"]["deletionTimestamp"] = "2026-11-22T00:00:00Z"
            remaining = {"type": "NamespaceFinalizersRemaining", "status": "True", "message": "held by x/y"}
            obj["status"] = {"phase": "Terminating", "conditions": [remaining]}
        return obj

    cluster.get = going  # type: ignore[method-assign]
    result = stuck.status()
    assert not result.ok
    assert result.notes == ("namespace `ml` is terminating, and all that it holds goes with it: held by x/y",)


def test_who_cannot_watch_asks(stuck: Stack, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def watch(*words: Any, **options: Any) -> Any:
        raise ForbiddenError("no right to watch", why="rights")

    monkeypatch.setattr(cluster, "watch", watch)
    begun_s = stuck.clock.now_s()
    stuck.clock.act = lambda: release(cluster) if stuck.clock.now_s() - begun_s > 20 else None
    assert stuck.delete().counts == {"deleted": 2}
    assert 20 < stuck.clock.now_s() - begun_s < 25


def test_many_that_do_not_go_are_told_together_and_each_by_its_name(many: Stack) -> None:
    many.clock.act = lambda: None
    with pytest.raises(NotReadyError) as caught:
        many.delete(timeout_s=10)
    first, second = caught.value.message.splitlines()
    assert first == f"{COUNT} objects did not get there in time"
    assert second.endswith(
        f"and {COUNT - 3} more: was not gone within 10 s; its finalizers are still there: example.com/hold"
    )
    failed = [row for row in caught.value.partial.objects if row.outcome == "failed"]  # type: ignore[attr-defined]
    assert len(failed) == COUNT and all("example.com/hold" in row.text for row in failed)


def test_an_interruption_ends_the_wait(stuck: Stack, cluster: MemoryCluster) -> None:
    def interrupt() -> None:
        stuck.clock.act = lambda: None
        signal.raise_signal(signal.SIGINT)

    stuck.clock.act = interrupt
    begun_s = time.monotonic()
    with pytest.raises(Interrupted) as caught:
        stuck.delete()
    assert time.monotonic() - begun_s < 4
    rows = {row.name: (row.outcome, row.text) for row in caught.value.partial.objects}
    assert rows["stuck"] == ("failed", "stopped while waiting")
    assert stuck.status().left_over == ()
    assert stuck.apply(timeout_s=10, create=False).ok
