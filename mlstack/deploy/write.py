"""Write one object as it was approved: compare and swap, and look again where it moved meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Literal, TypeVar

from mlstack.clock import Clock
from mlstack.deploy.changes import Change, what_moved
from mlstack.deploy.conflicts import with_uid
from mlstack.deploy.inventory_store import WEBHOOK_S
from mlstack.deploy.wait import (
    ESTABLISHED_S,
    GONE_S,
    Gone,
    is_same,
    obstacles,
    own_finalizers,
    until_established,
)
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
from mlstack.events import STILL_S, RunEventKind
from mlstack.kube.client import Applied, Cluster, ObjectRef, Propagation
from mlstack.objects.kinds import kinds_of_crd
from mlstack.objects.kube_object import Identity
from mlstack.objects.managed_fields import HANDOVER

# --- Write one object as it was approved: compare and swap, and look again where it moved meanwhile ---

Again = Callable[[Change], Change]
"""Looks at an object once more and gives the change that would be made of it now."""

# Controllers write the status of a busy object several times a second, each from another version.
_TIMES = 20


class Sender:
    """Writes changes to a cluster.

    Args:
        cluster: where to write.
        again: looks at an object that moved since its change was worked out; without it such a write fails.
    """

    def __init__(self, cluster: Cluster, *, again: Again | None = None) -> None:
        """Hold the parts."""
        self._cluster, self._again = cluster, again

    def send(self, change: Change) -> Applied:
        """Write what a change says; nothing is taken that was not looked at before.

        Raises:
            OutdatedError: the object changed since it was shown.
        ConflictError: others made it meanwhile.
            ClusterError: the server refuses it.
        """
        if change.action in ("create", "recreate"):
            return self._create(change)
        for _ in range(_TIMES):
            try:
                return self._update(change)
            except _MovedError as moved:
                change = self._approved(change, moved.error)
            if not change.writes:
                return Applied(object=change.seen or {})
        raise ConflictError(f"`{change.identity}` changes faster than it can be written")

    def _create(self, change: Change) -> Applied:
        data = _desired(change)
        applied = self._cluster.apply(data)
        if not change.handover:
            return applied
        try:
            self._cluster.apply(change.handover, manager=HANDOVER)
            return self._cluster.apply(with_uid(_payload(change), applied.object["metadata"]["uid"]))
        except ConflictError:  # the autoscaler was quicker and has its field already
            return applied

    def _update(self, change: Change) -> Applied:
        version = change.live_version
        try:
            if change.prepare:
                version = _version(self._prepare(change))
            if change.handover:
                wanted = with_uid(change.handover, change.live_uid, version)
                version = _version(self._cluster.apply(wanted, manager=HANDOVER).object)
            payload = with_uid(_payload(change), change.live_uid, version)
            return self._cluster.apply(payload, force=True)
        except ConflictError as error:
            raise _MovedError(error) from error
        except InvalidError as error:
            if any(cause.field == "metadata.uid" for cause in error.causes):
                raise _MovedError(error) from error
            raise

    def _prepare(self, change: Change) -> Mapping[str, Any]:
        identity = change.identity
        ref = ObjectRef(change.api_version, identity.kind, identity.namespace, identity.name)
        try:
            return self._cluster.patch(ref, change.prepare, kind="json").object
        except InvalidError as error:
            if error.causes:
                raise
            raise _MovedError(error) from error  # its test of the version failed

    def _approved(self, change: Change, moved: MlstackError) -> Change:
        """Look again; only what was approved goes on."""
        if self._again is None:
            raise moved
        now = self._again(change)
        if now.digest == change.digest or _is_done(change, now):
            return now
        raise OutdatedError(
            f"`{change.identity}` changed since it was shown: {what_moved(change, now)}",
            where=f"component {change.component}" if change.component else None,
            hint="nothing of it was written; look at the difference and apply again",
        ) from moved


def _is_done(change: Change, now: Change) -> bool:
    """Tell whether somebody brought about meanwhile what was approved."""
    same = now.action == "unchanged" and now.live_uid == change.live_uid
    return same and set(now.left) <= set(change.left)


class _MovedError(Exception):
    """The object is not in the version that the change was computed from."""

    def __init__(self, error: MlstackError) -> None:
        super().__init__(error.message)
        self.error = error


def _desired(change: Change) -> Mapping[str, Any]:
    if change.desired is None:
        raise ValueError(f"nothing to write for {change.identity}")
    return change.desired.data


def _payload(change: Change) -> Mapping[str, Any]:
    return _desired(change) if change.payload is None else change.payload


def _version(live: Mapping[str, Any]) -> str:
    return str(live["metadata"]["resourceVersion"])


# --- Take away an object that is to be made anew, without what it must leave behind ---
# A StatefulSet may own its claims (`persistentVolumeClaimRetentionPolicy`) and would take them with it, so it
# goes alone. The new one adopts its pods; they end only where the new one could not.

# Pods keep these from their start: others would stand in the way of the new set's.
_OF_PODS = ("selector", "serviceName")


@dataclass(frozen=True)
class OldPod:
    """A pod that has to end before its set is made anew."""

    ref: ObjectRef
    uid: str


def propagation(change: Change) -> Propagation:
    """Tell what becomes of what an object owns when it is taken away to be made anew."""
    return "Orphan" if _is_stateful_set(change.identity) else "Foreground"


def old_pods(cluster: Cluster, change: Change) -> tuple[OldPod, ...]:
    """Give the pods that the new object could not adopt; to be asked before the old one goes.

    Raises:
        ClusterError: the cluster cannot be asked.
    """
    identity, desired = change.identity, change.desired
    if not _is_stateful_set(identity) or desired is None:
        return ()
    live = cluster.get(ObjectRef(change.api_version, identity.kind, identity.namespace, identity.name))
    if live is None or _kept_by_pods(live) == _kept_by_pods(desired.data):
        return ()
    pods = cluster.list("v1", "Pod", namespace=identity.namespace, metadata_only=True).items
    return tuple(
        OldPod(
            ObjectRef("v1", "Pod", identity.namespace, str(pod["metadata"]["name"])), pod["metadata"]["uid"]
        )
        for pod in pods
        if any(one.get("uid") == change.live_uid for one in pod["metadata"].get("ownerReferences") or ())
    )


def _is_stateful_set(identity: Identity) -> bool:
    return (identity.group, identity.kind) == ("apps", "StatefulSet")


def _kept_by_pods(data: Mapping[str, Any]) -> list[Any]:
    spec = data.get("spec") or {}
    return [spec.get(name) for name in _OF_PODS]


# --- Make one change in a cluster, through everything that passes: webhooks that start, objects
# that go

T = TypeVar("T")
Say = Callable[[RunEventKind, Identity, str], None]

# Right after a definition is established, one of several API servers may not serve its kind yet.
KIND_S = 30.0
# Others write the same object, or something before the API server says so: it passes.
CONFLICT_S = 60.0
# An API server takes a moment to check objects by what their definition has become.
SCHEMA_S = 5.0

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


@dataclass(frozen=True)
class Deleted:
    """How a deletion ended: it is gone or goes by itself, was gone, or is held by somebody's finalizer."""

    outcome: Literal["deleted", "gone", "terminating"]
    text: str = ""


class ObjectWriter:
    """Makes changes, each in steps between which an object has to be gone; safe to use from several threads.

    Args:
        cluster: where to write.
        clock: for waits.
        say: told what is waited for.
        again: looks at an object that moved since its change was worked out.
        timeout_s: how long anything is waited for at most.
    """

    def __init__(
        self, cluster: Cluster, *, clock: Clock, say: Say, again: Again | None = None, timeout_s: float = inf
    ) -> None:
        """Hold the parts."""
        self._cluster, self._clock, self._say = cluster, clock, say
        self._timeout_s = timeout_s
        self._sender = Sender(cluster, again=again)
        self._redefined: set[tuple[str, str]] = set()

    def write(self, change: Change, reached: Callable[[str], None]) -> Generator[Gone, None, Applied]:
        """Bring an object about; what is in the way, because it is being deleted, is waited for.

        Args:
            change: a creation, update or recreation.
            reached: told how far it came, for the message should it go no further.

        Raises:
            MlstackError: the object cannot be written.
        """
        ref = ref_of(change)
        if change.action == "recreate":
            self._say("waiting", change.identity, "until the old one is gone")
            yield from self._take_away(change, ref)
            reached("was deleted and is not made anew yet: ")
        elif change.action == "create" and change.live_uid:
            self._say("waiting", change.identity, "is being deleted; until it is gone")
            yield from _free(ref, change.live_uid)
        applied = yield from self._written(change, ref)
        reached("")
        if change.identity.kind == "CustomResourceDefinition":
            until_established(
                self._cluster,
                ref,
                clock=self._clock,
                timeout_s=min(ESTABLISHED_S, self._timeout_s),
                still=lambda: self._say("still", change.identity, "until the API server serves it"),
            )
            if change.action == "update" and change.desired:
                kinds = kinds_of_crd(change.desired.data)
                self._redefined |= {(kind.group, kind.kind) for kind in kinds}
        return applied

    def delete(
        self, change: Change, *, grace_period_s: int | None, wait: bool = True
    ) -> Generator[Gone, None, Deleted]:
        """Delete an object, as a rule wait until it is gone, and tell how that ended.

        Raises:
            MlstackError: it cannot be deleted, or does not go.
        """
        ref = ref_of(change)

        def delete() -> Mapping[str, Any] | None:
            try:
                return self._cluster.delete(
                    ref, propagation="Foreground", uid=change.live_uid or None, grace_period_s=grace_period_s
                )
            except ConflictError as error:
                if change.live_uid and not self._is_there(ref, change.live_uid):
                    raise ObjectNotFoundError(error.message) from error  # another one has its name now
                raise

        try:
            left = self._persist(change, delete)
        except ObjectNotFoundError:
            return Deleted("gone", "was gone already")
        if left is None:
            return Deleted("deleted")
        if wait:
            yield Gone(ref, str(left["metadata"]["uid"]))
        elif own_finalizers(left):  # the garbage collector's go by themselves
            return Deleted("terminating", obstacles(left))
        return Deleted("deleted")

    def _is_there(self, ref: ObjectRef, uid: str) -> bool:
        live = self._cluster.get(ref)
        return live is not None and is_same(live, uid)

    def _take_away(self, change: Change, ref: ObjectRef) -> Generator[Gone, None, None]:
        pods = old_pods(self._cluster, change)
        if self._end(change, ref, change.live_uid, propagation(change)):
            yield Gone(ref, change.live_uid)
        left = [pod for pod in pods if self._end(change, pod.ref, pod.uid, "Background")]
        for pod in left:
            yield Gone(pod.ref, pod.uid)

    def _end(self, change: Change, ref: ObjectRef, uid: str, propagation: Propagation) -> bool:
        """Delete an object and tell whether it is still there."""

        def delete() -> bool:
            try:
                return self._cluster.delete(ref, propagation=propagation, uid=uid) is not None
            except ObjectNotFoundError:  # somebody was quicker, or an answer of the server was lost
                return False

        return self._persist(change, delete)

    def _written(self, change: Change, ref: ObjectRef) -> Generator[Gone, None, Applied]:
        """Write, and once more if the object was being deleted: what is written to such an object is lost."""
        applied = self._persist(change, lambda: self._sender.send(change))
        metadata = applied.object.get("metadata") or {}
        if not metadata.get("deletionTimestamp"):
            return applied
        self._say("waiting", change.identity, "is being deleted by somebody; until it is gone")
        yield from _free(ref, str(metadata["uid"]))
        desired = {} if change.desired is None else change.desired.data
        return self._persist(change, lambda: self._cluster.apply(desired))

    def _persist(self, change: Change, ask: Callable[[], T]) -> T:
        """Ask until there is an answer that stays."""
        begun = told_s = self._clock.now_s()
        pause, said = _FIRST_PAUSE_S, ""
        while True:
            try:
                return ask()
            except MlstackError as error:
                patience_s = min(self._schema_s(change, error) or _patience_s(error), self._timeout_s)
                now_s = self._clock.now_s()
                if now_s - begun >= patience_s:
                    raise
                is_due = now_s - told_s >= STILL_S
                if error.message != said or is_due:
                    said, told_s = error.message, now_s
                    text = said.removeprefix(f"`{change.identity}`: ")
                    self._say("still" if is_due else "waiting", change.identity, text)
            self._clock.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _schema_s(self, change: Change, error: MlstackError) -> float:
        """Give how long the server may go on checking an object by its definition as it was."""
        is_redefined = (change.identity.group, change.identity.kind) in self._redefined
        return SCHEMA_S if is_redefined and isinstance(error, InvalidError) else 0.0


def _free(ref: ObjectRef, uid: str) -> Generator[Gone, None, None]:
    """Return when an object that is being deleted has left its name to another one."""
    try:
        yield Gone(ref, uid)
    except NotReadyError as error:
        error.message = f"`{ref}`: is being deleted and {error.message.removeprefix(f'`{ref}`: ')}"
        error.args = (error.message,)
        raise


def ref_of(change: Change) -> ObjectRef:
    """Give the address of a change's object."""
    identity = change.identity
    return ObjectRef(change.api_version, identity.kind, identity.namespace, identity.name)


def _patience_s(error: MlstackError) -> float:
    """Give how long an error is worth another try, 0 if it will not pass."""
    if isinstance(error, TransientError):
        return WEBHOOK_S if error.webhook else 0.0  # all others were waited for already
    if isinstance(error, ObjectNotFoundError):
        return KIND_S if error.what == "kind" else 0.0
    if isinstance(error, ConflictError):
        return 0.0 if error.conflicts or isinstance(error, OutdatedError) else CONFLICT_S
    if isinstance(error, ForbiddenError) and error.why == "terminating":
        return GONE_S if "definition" in error.message else 0.0
    return 0.0
