"""Make one change in a cluster, through everything that passes: webhooks that start, objects that go."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Literal, TypeVar

from mlstack.cluster.api import Applied, Cluster, ObjectRef, Propagation
from mlstack.engine.records.admission import WEBHOOK_S
from mlstack.engine.writing import renew
from mlstack.engine.writing.send import Again, Sender
from mlstack.engine.writing.wait import ESTABLISHED_S, GONE_S, Gone, is_same, until_established
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
from mlstack.model.clock import Clock
from mlstack.model.diff import Change
from mlstack.model.events import STILL_S, EventKind
from mlstack.model.kinds import kinds_of_crd
from mlstack.model.objects import Identity
from mlstack.model.obstacles import obstacles, own_finalizers

T = TypeVar("T")
Say = Callable[[EventKind, Identity, str], None]

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


class Writer:
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
        pods = renew.old_pods(self._cluster, change)
        if self._end(change, ref, change.live_uid, renew.propagation(change)):
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
