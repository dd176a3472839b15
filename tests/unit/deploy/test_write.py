"""Writing one object: through everything that passes, in the version that was looked at."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import pytest

from mlstack.deploy.changes import Change, silent
from mlstack.deploy.write import CONFLICT_S, GONE_S, KIND_S, WEBHOOK_S, DeletionWatcher, Gone, ObjectWriter
from mlstack.errors import (
    ConflictError,
    FieldConflict,
    ForbiddenError,
    InvalidError,
    MlstackError,
    NotReadyError,
    ObjectNotFoundError,
    OutdatedError,
    TransientError,
)
from mlstack.kube.client import Applied, ObjectRef
from mlstack.objects.kube_object import KubeObject
from mlstack.operations import deploy
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.counted import Counted
from tests.support.deploying import Stack, VirtualClock, config_map, crd, existing

Result = TypeVar("Result")
REF = ObjectRef("v1", "ConfigMap", "ml", "settings")


class Flaky(MemoryCluster):
    """A cluster whose writes fail as told before they succeed."""

    def __init__(self, *errors: MlstackError) -> None:
        super().__init__(load_schemas("1.36"))
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
        self.left = list(errors)
        self.on_delete: Callable[[], None] = lambda: None

    def apply(self, obj: Mapping[str, Any], **options: Any) -> Applied:
        if self.left:
            raise self.left.pop(0)
        return super().apply(obj, **options)

    def delete(self, ref: ObjectRef, **options: Any) -> dict[str, Any] | None:
        self.on_delete()
        return super().delete(ref, **options)


def settings(**data: str) -> KubeObject:
    obj = config_map(**data)
    return KubeObject(data={**obj, "metadata": {**obj["metadata"], "namespace": "ml"}}, component="a")


def change(action: Any = "create", **facts: Any) -> Change:
    wanted = settings(a="1")
    return Change(
        identity=wanted.identity,
        component="a",
        action=action,
        api_version="v1",
        desired=None if action == "delete" else wanted,
        **facts,
    )


class RecordingWriter:
    """Writes changes to a cluster and keeps what is told."""

    def __init__(self, cluster: MemoryCluster, clock: VirtualClock | None = None) -> None:
        self.cluster, self.clock = cluster, clock or VirtualClock(0)
        self.messages: list[str] = []
        self.inner = ObjectWriter(
            cluster, clock=self.clock, tell=lambda event: self.messages.append(f"{event.kind}: {event.text}")
        )

    def write(self, change: Change) -> Applied:
        return self.go(self.inner.write(change))

    def delete(self, change: Change) -> str:
        return self.go(self.inner.delete(change))[0]

    def go(self, steps: Generator[Gone, None, Result]) -> Result:
        """Do all steps of a change."""
        watcher = DeletionWatcher(self.cluster, clock=self.clock, on_event=silent, timeout_s=None)
        answers: SimpleQueue[MlstackError | None] = SimpleQueue()
        try:
            gone = next(steps)
            while True:
                watcher.wait(gone, answers.put)
                error = answers.get(timeout=10)
                gone = next(steps) if error is None else steps.throw(error)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # the exception forgets the type
        finally:
            watcher.close()


KIND = ObjectNotFoundError("`ConfigMap ml/settings`: the cluster does not know this kind", what="kind")
WEBHOOK = TransientError("webhook `a` does not answer", webhook="a")


@pytest.mark.parametrize(
    "error",
    [
        KIND,
        WEBHOOK,
        ConflictError("changed in the meantime"),
        ForbiddenError("the definition is terminating", why="terminating"),
    ],
    ids=["kind", "webhook", "moved", "definition"],
)
def test_what_passes_is_waited_for_and_told_once(error: MlstackError) -> None:
    writer = RecordingWriter(Flaky(error, error, error))
    assert writer.write(change()).created
    assert writer.messages == [f"waiting: {error.message.removeprefix('`ConfigMap ml/settings`: ')}"]


def definition(action: Any) -> Change:
    obj = KubeObject(data=crd(group="ex.com"), component="a")
    return Change(
        identity=obj.identity,
        component="a",
        api_version="apiextensions.k8s.io/v1",
        action=action,
        desired=obj,
    )


@pytest.mark.parametrize(("action", "passes"), [("update", True), ("create", False)])
def test_a_new_schema_is_given_a_moment(action: Any, passes: bool) -> None:
    cluster = Flaky()
    writer = RecordingWriter(cluster)
    writer.write(definition("create"))
    if action == "update":
        live = existing(cluster, ObjectRef.of(crd(group="ex.com")))
        writer.write(replace(definition("update"), live_uid=live["metadata"]["uid"]))
    cluster.left = [InvalidError("field not declared in schema")] * 3
    data = {"apiVersion": "ex.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "ml"}}
    widget = KubeObject(data=data, component="a")
    creation = replace(change(), identity=widget.identity, desired=widget, api_version="ex.com/v1")
    if passes:
        assert writer.write(creation).created
        return
    with pytest.raises(InvalidError):
        writer.write(creation)


@pytest.mark.parametrize(
    ("error", "limit_s"),
    [(KIND, KIND_S), (WEBHOOK, WEBHOOK_S), (ConflictError("moved"), CONFLICT_S)],
    ids=["kind", "webhook", "moved"],
)
def test_waiting_for_it_ends(error: MlstackError, limit_s: float) -> None:
    writer = RecordingWriter(Flaky(*[error] * 1000))
    with pytest.raises(type(error)):
        writer.write(change())
    assert limit_s <= writer.clock.now_s() < limit_s + 2


@pytest.mark.parametrize(
    "error",
    [
        InvalidError("the manifest is wrong"),
        ObjectNotFoundError("no namespace", what="namespace"),
        ForbiddenError("exceeded quota", why="quota"),
        ForbiddenError("namespace `ml` is being deleted", why="terminating"),
        ConflictError("others own it", conflicts=[FieldConflict(manager="hpa", path=".spec")]),
        OutdatedError("changed since it was shown"),
    ],
    ids=["invalid", "namespace", "quota", "terminating", "owned", "outdated"],
)
def test_what_does_not_pass_fails_at_once(error: MlstackError) -> None:
    writer = RecordingWriter(Flaky(error))
    with pytest.raises(type(error)):
        writer.write(change())
    assert writer.clock.now_s() == 0


class Releasing(VirtualClock):
    """A clock with which the object loses its finalizers after a second."""

    def __init__(self, cluster: MemoryCluster) -> None:
        super().__init__(0)
        self._cluster = cluster

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.now_s() > 1 and (self._cluster.get(REF) or {"metadata": {}})["metadata"].get("finalizers"):
            self._cluster.patch(REF, {"metadata": {"finalizers": None}})


def test_an_end_that_no_watch_tells_of_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Flaky()
    held = {**settings().data, "metadata": {**settings().metadata, "finalizers": ["ex.com/hold"]}}
    uid = cluster.apply(held).object["metadata"]["uid"]
    monkeypatch.setattr(cluster, "watch", lambda *address, **options: iter(()))
    writer = RecordingWriter(cluster, Releasing(cluster))
    assert writer.delete(change("delete", live_uid=uid)) == "deleted"
    assert writer.clock.now_s() < 20


def test_what_is_written_to_an_object_that_goes_is_written_again_when_it_is_gone() -> None:
    cluster = Flaky()
    cluster.apply({**settings().data, "metadata": {**settings().metadata, "finalizers": ["ex.com/hold"]}})
    old = cluster.delete(REF)
    assert old is not None

    writer = RecordingWriter(cluster, Releasing(cluster))
    applied = writer.write(change("update", live_uid=old["metadata"]["uid"]))
    assert applied.object["metadata"]["uid"] != old["metadata"]["uid"]
    assert (cluster.get(REF) or {})["data"] == {"a": "1"}
    assert writer.messages == ["waiting: is being deleted by somebody; until it is gone"]


def test_a_recreation_says_how_far_it_came() -> None:
    cluster = Flaky()
    uid = cluster.apply(settings().data).object["metadata"]["uid"]
    cluster.left = [InvalidError("no")]
    writer = RecordingWriter(cluster)
    with pytest.raises(InvalidError):
        writer.write(change("recreate", live_uid=uid))
    assert list(writer.inner.progress.values()) == ["was deleted and is not made anew yet: "]
    assert cluster.get(REF) is None


def test_deletion_tells_whether_there_was_anything() -> None:
    cluster = Flaky()
    uid = cluster.apply(settings().data).object["metadata"]["uid"]
    writer = RecordingWriter(cluster)
    assert writer.delete(change("delete", live_uid=uid)) == "deleted"
    assert writer.delete(change("delete", live_uid=uid)) == "gone"


def test_another_object_of_the_same_name_is_left_alone() -> None:
    cluster = Flaky()
    cluster.apply(settings().data)
    writer = RecordingWriter(cluster)
    assert writer.delete(change("delete", live_uid="another")) == "gone"
    assert cluster.get(REF) is not None
    assert writer.clock.now_s() == 0


def test_what_does_not_go_is_told_with_what_holds_it() -> None:
    cluster = Flaky()
    held = {**settings().data, "metadata": {**settings().metadata, "finalizers": ["ex.com/hold"]}}
    uid = cluster.apply(held).object["metadata"]["uid"]
    writer = RecordingWriter(cluster)
    with pytest.raises(NotReadyError, match=r"finalizers are still there: ex\.com/hold"):
        writer.delete(change("delete", live_uid=uid))
    assert writer.clock.now_s() >= GONE_S


SETTINGS = ObjectRef("v1", "ConfigMap", "default", "settings")


class Restless(MemoryCluster):
    """A cluster in which an object moves before each write to it, once it is told to."""

    moves = False

    def apply(self, obj: Mapping[str, Any], **options: Any) -> Applied:
        if self.moves and not options.get("dry_run") and obj["metadata"]["name"] == "settings":
            live = self.get(SETTINGS) or {"metadata": {}}
            number = int((live["metadata"].get("annotations") or {}).get("n", "0"))
            self.patch(SETTINGS, {"metadata": {"annotations": {"n": str(number + 1)}}}, manager="busy")
        return super().apply(obj, **options)


@pytest.fixture
def cluster() -> Restless:
    return Restless(load_schemas("1.36"), clock=VirtualClock())


@pytest.fixture
def counted(cluster: Restless) -> Counted:
    return Counted(cluster)


@pytest.fixture
def stack(tmp_path: Path, counted: Counted) -> Stack:
    stack = Stack(
        tmp_path / "app",
        namespace="default",
        opener=lambda context: counted,  # type: ignore[arg-type,return-value]
        clock=VirtualClock(),
    )
    stack.write("a", config_map(a="1"))
    stack.apply()
    stack.write("a", config_map(a="2"))
    return stack


def data_of(cluster: MemoryCluster) -> dict[str, str]:
    live = existing(cluster, SETTINGS)
    data: dict[str, str] = live["data"]
    return data


def test_a_second_look_goes_on_with_the_version_of_now(stack: Stack, cluster: Restless) -> None:
    plan = stack.plan()
    cluster.patch(SETTINGS, {"data": {"x": "y"}}, manager="operator")
    assert deploy.apply(plan, clock=stack.clock).ok
    assert data_of(cluster) == {"a": "2", "x": "y"}


def test_a_second_look_at_something_else_is_refused(stack: Stack, cluster: Restless) -> None:
    plan = stack.plan()
    cluster.patch(SETTINGS, {"data": {"a": "9"}}, manager="kubectl-edit")
    with pytest.raises(OutdatedError, match="changed since it was shown"):
        deploy.apply(plan, clock=stack.clock)
    assert data_of(cluster) == {"a": "9"}


@pytest.mark.slow
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
    version = cluster.get(SETTINGS)
    assert deploy.apply(second, clock=stack.clock).ok
    assert cluster.get(SETTINGS) == version


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
