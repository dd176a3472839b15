"""Writing objects that move between the plan and the write: compare and swap, and a second look."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mlstack.deploy.changes import Change
from mlstack.deploy.write import CONFLICT_S, ObjectWriter
from mlstack.errors import ConflictError, OutdatedError
from mlstack.events import silent
from mlstack.kube.client import Applied, ObjectRef
from mlstack.objects.kube_object import KubeObject
from mlstack.operations import deploy
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.counted import Counted
from tests.support.deploying import Stack, VirtualClock, config_map

REF = ObjectRef("v1", "ConfigMap", "default", "settings")


class Restless(MemoryCluster):
    """A cluster in which an object moves before each write to it, once it is told to."""

    moves = False

    def apply(self, obj: Mapping[str, Any], **options: Any) -> Applied:
        if self.moves and not options.get("dry_run") and obj["metadata"]["name"] == "settings":
            live = self.get(REF) or {"metadata": {}}
            number = int((live["metadata"].get("annotations") or {}).get("n", "0"))
            self.patch(REF, {"metadata": {"annotations": {"n": str(number + 1)}}}, manager="busy")
        return super().apply(obj, **options)


@pytest.fixture
def cluster() -> Restless:
    return Restless(load_schemas("1.36"), clock=VirtualClock())


@pytest.fixture
def counted(cluster: Restless) -> Counted:
    return Counted(cluster)


@pytest.fixture
def stack(tmp_path: Path, counted: Counted) -> Stack:
    made = Stack(
        tmp_path / "app",
        namespace="default",
        opener=lambda context: counted,  # type: ignore[arg-type,return-value]
        clock=VirtualClock(),
    )
    made.write("a", config_map(a="1"))
    made.apply()
    made.write("a", config_map(a="2"))
    return made


def data_of(cluster: MemoryCluster) -> dict[str, str]:
    live = cluster.get(REF)
    assert live is not None
    found: dict[str, str] = live["data"]
    return found


def test_a_second_look_goes_on_with_the_version_of_now(stack: Stack, cluster: Restless) -> None:
    plan = stack.plan()
    cluster.patch(REF, {"data": {"x": "y"}}, manager="operator")
    assert deploy.apply(plan, clock=stack.clock).ok
    assert data_of(cluster) == {"a": "2", "x": "y"}


def test_a_second_look_at_something_else_is_refused(stack: Stack, cluster: Restless) -> None:
    plan = stack.plan()
    cluster.patch(REF, {"data": {"a": "9"}}, manager="kubectl-edit")
    with pytest.raises(OutdatedError, match="changed since it was shown"):
        deploy.apply(plan, clock=stack.clock)
    assert data_of(cluster) == {"a": "9"}


def test_an_object_that_keeps_moving_is_given_up(stack: Stack, cluster: Restless) -> None:
    plan = stack.plan()
    cluster.moves = True
    begun_s = stack.clock.now_s()
    with pytest.raises(ConflictError, match="changes faster than it can be written"):
        deploy.apply(plan, clock=stack.clock)
    assert stack.clock.now_s() - begun_s >= CONFLICT_S


def test_what_somebody_else_brought_about_is_not_written(stack: Stack, cluster: Restless) -> None:
    first, second = stack.plan(), stack.plan()
    assert deploy.apply(first, clock=stack.clock).counts == {"updated": 1}
    version = cluster.get(REF)
    assert deploy.apply(second, clock=stack.clock).ok
    assert cluster.get(REF) == version


def test_a_moved_object_without_a_second_look_is_an_error(cluster: Restless) -> None:
    wanted = KubeObject(
        data={**config_map(a="2"), "metadata": {"name": "settings", "namespace": "default"}}, component="a"
    )
    live = cluster.apply(wanted.data).object
    change = Change(
        identity=wanted.identity,
        component="a",
        action="update",
        api_version="v1",
        desired=wanted,
        live_uid=live["metadata"]["uid"],
        live_version="1",
    )
    writer = ObjectWriter(cluster, clock=VirtualClock(), tell=silent)
    with pytest.raises(ConflictError):
        next(writer.write(change))


def test_a_creation_takes_nothing_from_others(stack: Stack, cluster: Restless) -> None:
    stack.write("b", config_map("other", a="ours"))
    plan = stack.plan()
    other = {**config_map("other", a="theirs"), "metadata": {"name": "other", "namespace": "default"}}
    cluster.create(other, manager="other")
    with pytest.raises(ConflictError) as caught:
        deploy.apply(plan, clock=stack.clock)
    assert caught.value.managers == ("other",)
