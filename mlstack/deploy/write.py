"""Write one object as it was approved: compare and swap, through everything that passes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, Literal, TypeVar

from mlstack.clock import Clock
from mlstack.deploy.changes import Change, what_moved, with_uid
from mlstack.deploy.deletion import GONE_S, Gone, is_same, obstacles, own_finalizers
from mlstack.deploy.diff import diff_object
from mlstack.deploy.inventory_store import WEBHOOK_S, ref_of
from mlstack.deploy.live import DiffContext
from mlstack.deploy.wait import ESTABLISHED_S, until_established
from mlstack.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    MlstackError,
    NotReadyError,
    ObjectNotFoundError,
    OutdatedError,
    TransientError,
)
from mlstack.events import STILL_S, OnEvent, RunEvent
from mlstack.kube.client import Applied, Cluster, ObjectRef, Propagation, backoff
from mlstack.objects.kube_object import Identity, kinds_of_crd
from mlstack.objects.managed_fields import HANDOVER

T = TypeVar("T")
Ended = Literal["deleted", "gone", "terminating"]
"""It is gone or goes by itself, was gone already, or is held by somebody's finalizer."""

# Right after a definition is established, one of several API servers may not serve its kind yet.
KIND_S = 30.0
# Others write the same object, or something before the API server says so: it passes.
CONFLICT_S = 60.0
# An API server takes a moment to check objects by what their definition has become.
SCHEMA_S = 5.0
# Controllers write the status of a busy object several times a second, each from another version.
_TIMES = 20


class ObjectWriter:
    """Makes changes, each in steps between which an object has to be gone; safe to use from several threads.

    `progress` holds how far a change came, for the message should it go no further. `context` serves to diff
    an object again that moved since its change was worked out; without it such a write fails.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        clock: Clock,
        tell: OnEvent,
        context: DiffContext | None = None,
        timeout_s: float = inf,
    ) -> None:
        self._cluster, self._clock, self._tell = cluster, clock, tell
        self._context, self._timeout_s = context, timeout_s
        self._redefined: set[tuple[str, str]] = set()
        self.progress: dict[Identity, str] = {}

    # --- what is wanted ---

    def write(self, change: Change) -> Generator[Gone, None, Applied]:
        """Bring an object about; what is in the way, because it is being deleted, is waited for.

        Raises:
            OutdatedError: the object changed since it was shown.
            MlstackError: the object cannot be written.
        """
        ref, identity = ref_of(change), change.identity
        if change.action == "recreate":
            self._tell(RunEvent("waiting", identity, "until the old one is gone"))
            yield from self._take_away(change, ref)
            self.progress[identity] = "was deleted and is not made anew yet: "
        elif change.action == "create" and change.live_uid:
            self._tell(RunEvent("waiting", identity, "is being deleted; until it is gone"))
            yield from _name_free(ref, change.live_uid)
        send = self._create if change.action in ("create", "recreate") else self._update
        applied = self._persist(change, partial(send, change))
        metadata = applied.object.get("metadata") or {}
        if metadata.get("deletionTimestamp"):  # what is written to such an object is lost
            self._tell(RunEvent("waiting", identity, "is being deleted by somebody; until it is gone"))
            yield from _name_free(ref, str(metadata["uid"]))
            applied = self._persist(change, partial(self._cluster.apply, change.subject.data))
        self.progress.pop(identity, None)
        if identity.kind == "CustomResourceDefinition":
            timeout_s = min(ESTABLISHED_S, self._timeout_s)
            until_established(self._cluster, ref, clock=self._clock, timeout_s=timeout_s, on_event=self._tell)
            if change.action == "update":  # for objects of one that changed there is some patience now
                self._redefined |= {(kind.group, kind.kind) for kind in kinds_of_crd(change.subject.data)}
        return applied

    def _create(self, change: Change) -> Applied:
        applied = self._cluster.apply(change.subject.data)
        if not change.handover:
            return applied
        try:
            self._cluster.apply(change.handover, manager=HANDOVER)
            return self._cluster.apply(with_uid(_payload(change), applied.object["metadata"]["uid"]))
        except ConflictError:  # the autoscaler was quicker and has its field already
            return applied

    def _update(self, change: Change) -> Applied:
        """Write to the very version that a change was computed from, owners and hand-over first.

        An object that moved is looked at again; nothing is taken that was not looked at before.
        """
        for _ in range(_TIMES):
            version = change.live_version
            try:
                if change.prepare:
                    version = _version(self._prepare(change))
                if change.handover:
                    held = with_uid(change.handover, change.live_uid, version)
                    version = _version(self._cluster.apply(held, manager=HANDOVER))
                return self._cluster.apply(with_uid(_payload(change), change.live_uid, version), force=True)
            except ConflictError as error:
                change = self._look_again(change, error)
            except InvalidError as error:
                if not any(cause.field == "metadata.uid" for cause in error.causes):
                    raise
                change = self._look_again(change, error)
            if not change.writes:
                return Applied(object=change.live_metadata or {})
        raise ConflictError(f"`{change.identity}` changes faster than it can be written")

    def _prepare(self, change: Change) -> Applied:
        try:
            return self._cluster.patch(ref_of(change), change.prepare, kind="json")
        except InvalidError as error:
            if error.causes:
                raise
            raise ConflictError(error.message) from error  # its test of the version failed

    def _look_again(self, change: Change, moved: MlstackError) -> Change:
        """Diff an object again; only what was approved goes on."""
        if self._context is None or change.desired is None:
            raise moved
        now = diff_object(self._context, change.desired)
        # Somebody may have brought about meanwhile what was approved.
        is_same = now.action == "unchanged" and now.live_uid == change.live_uid
        if now.digest == change.digest or (is_same and set(now.left) <= set(change.left)):
            return now
        raise OutdatedError(
            f"`{change.identity}` changed since it was shown: {what_moved(change, now)}",
            where=f"component {change.component}" if change.component else None,
            hint="nothing of it was written; look at the difference and apply again",
        ) from moved

    # --- what goes ---

    def delete(
        self, change: Change, *, grace_period_s: int | None = None, wait: bool = True
    ) -> Generator[Gone, None, tuple[Ended, str]]:
        """Delete an object, as a rule wait until it is gone, and tell how that ended.

        Raises:
            MlstackError: it cannot be deleted, or does not go.
        """
        ref = ref_of(change)
        try:
            left = self._persist(change, partial(self._delete, ref, change.live_uid, grace_period_s))
        except ObjectNotFoundError:
            return "gone", "was gone already"
        if left is None:
            return "deleted", ""
        if wait:
            yield Gone(ref, str(left["metadata"]["uid"]))
        elif own_finalizers(left):  # the garbage collector's go by themselves
            return "terminating", obstacles(left)
        return "deleted", ""

    def _delete(self, ref: ObjectRef, uid: str, grace_period_s: int | None) -> Mapping[str, Any] | None:
        try:
            return self._cluster.delete(
                ref, propagation="Foreground", uid=uid or None, grace_period_s=grace_period_s
            )
        except ConflictError as error:
            live = self._cluster.get(ref) if uid else None
            if uid and (live is None or not is_same(live, uid)):
                raise ObjectNotFoundError(error.message) from error  # another one has its name now
            raise

    def _take_away(self, change: Change, ref: ObjectRef) -> Generator[Gone, None, None]:
        """Delete an object that is to be made anew, without what it must leave behind.

        A StatefulSet may own its claims (`persistentVolumeClaimRetentionPolicy`) and would take them with
        it, so it goes alone. The new one adopts its pods; they end only where the new one could not.
        """
        propagation: Propagation = "Foreground"
        pods: Sequence[Mapping[str, Any]] = ()
        if (change.identity.group, change.identity.kind) == ("apps", "StatefulSet"):
            propagation = "Orphan"
            live, namespace = self._cluster.get(ref), change.identity.namespace
            if live is not None and _kept_by_pods(live) != _kept_by_pods(change.subject.data):
                pods = self._cluster.list("v1", "Pod", namespace=namespace, metadata_only=True).items
        own = [pod["metadata"] for pod in pods if change.live_uid in _owner_uids(pod)]
        ends = [Gone(ObjectRef("v1", "Pod", ref.namespace, str(pod["name"])), pod["uid"]) for pod in own]
        if self._persist(change, partial(self._begin_end, ref, change.live_uid, propagation)):
            yield Gone(ref, change.live_uid)
        yield from [
            pod
            for pod in ends
            if self._persist(change, partial(self._begin_end, pod.ref, pod.uid, "Background"))
        ]

    def _begin_end(self, ref: ObjectRef, uid: str, propagation: Propagation) -> bool:
        """Delete an object and tell whether it is still there."""
        try:
            return self._cluster.delete(ref, propagation=propagation, uid=uid) is not None
        except ObjectNotFoundError:  # somebody was quicker, or an answer of the server was lost
            return False

    # --- what passes ---

    def _persist(self, change: Change, ask: Callable[[], T]) -> T:
        """Ask until there is an answer that stays."""
        begun_s = told_s = self._clock.now_s()
        said = ""
        for pause_s in backoff(0.05, 1.0):
            try:
                return ask()
            except MlstackError as error:
                patience_s = min(self._patience_s(change, error), self._timeout_s)
                now_s = self._clock.now_s()
                if now_s - begun_s >= patience_s:
                    raise
                is_due = now_s - told_s >= STILL_S
                if error.message != said or is_due:
                    said, told_s = error.message, now_s
                    text = said.removeprefix(f"`{change.identity}`: ")
                    self._tell(RunEvent("still" if is_due else "waiting", change.identity, text))
            self._clock.sleep(pause_s)
        raise AssertionError("pauses have no end")

    def _patience_s(self, change: Change, error: MlstackError) -> float:
        """Give how long an error is worth another try, 0 if it will not pass."""
        match error:
            case InvalidError():  # perhaps checked by the definition as it was
                is_redefined = (change.identity.group, change.identity.kind) in self._redefined
                return SCHEMA_S if is_redefined else 0.0
            case TransientError():
                return WEBHOOK_S if error.webhook else 0.0  # all others were waited for already
            case ObjectNotFoundError():
                return KIND_S if error.what == "kind" else 0.0
            case ConflictError():
                return 0.0 if error.conflicts or isinstance(error, OutdatedError) else CONFLICT_S
            case ForbiddenError(why="terminating"):
                return GONE_S if "definition" in error.message else 0.0
        return 0.0


def _payload(change: Change) -> Mapping[str, Any]:
    return change.subject.data if change.payload is None else change.payload


def _version(applied: Applied) -> str:
    return str(applied.object["metadata"]["resourceVersion"])


def _owner_uids(live: Mapping[str, Any]) -> list[Any]:
    return [owner.get("uid") for owner in live["metadata"].get("ownerReferences") or ()]


def _kept_by_pods(data: Mapping[str, Any]) -> list[Any]:
    """Give what pods keep from their start: others would stand in the way of the new set's."""
    spec = data.get("spec") or {}
    return [spec.get(name) for name in ("selector", "serviceName")]


def _name_free(ref: ObjectRef, uid: str) -> Generator[Gone, None, None]:
    """Return when an object that is being deleted has left its name to another one."""
    try:
        yield Gone(ref, uid)
    except NotReadyError as error:
        error.message = f"`{ref}`: is being deleted and {error.message.removeprefix(f'`{ref}`: ')}"
        error.args = (error.message,)
        raise
