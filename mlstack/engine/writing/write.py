"""Make one change in a cluster, through everything that passes: webhooks that start, objects that go."""

from collections.abc import Callable
from typing import TypeVar

from mlstack.cluster.api import Applied, Cluster, ObjectRef, Propagation
from mlstack.engine.records.admission import WEBHOOK_S
from mlstack.engine.writing import renew
from mlstack.engine.writing.send import Again, Sender
from mlstack.engine.writing.wait import GONE_S, instances_held, until_established, until_gone
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
from mlstack.model.events import EventKind
from mlstack.model.kinds import kinds_of_crd
from mlstack.model.objects import Identity

T = TypeVar("T")
Say = Callable[[EventKind, Identity, str], None]

# Right after a definition is established, one of several API servers may not serve its kind yet.
KIND_S = 30.0
# Others write the same object, or something before the API server says so: it passes.
CONFLICT_S = 60.0
# An API server takes a moment to check objects by what their definition has become.
SCHEMA_S = 5.0

# An empty namespace takes 6 s to go, one with pods a minute.
NAMESPACE_GONE_S = 90.0

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


class Writer:
    """Makes changes, one a call; safe to use from several threads.

    Args:
        cluster: where to write.
        clock: for waits.
        say: told what is waited for.
        again: looks at an object that moved since its change was worked out.
    """

    def __init__(self, cluster: Cluster, *, clock: Clock, say: Say, again: Again | None = None) -> None:
        """Hold the parts."""
        self._cluster, self._clock, self._say = cluster, clock, say
        self._sender = Sender(cluster, again=again)
        self._redefined: set[tuple[str, str]] = set()

    def write(self, change: Change, reached: Callable[[str], None]) -> Applied:
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
            self._take_away(change, ref)
            reached("was deleted and is not made anew yet: ")
        elif change.action == "create" and change.live_uid:
            self._say("waiting", change.identity, "is being deleted; until it is gone")
        if change.action in ("recreate", "create") and change.live_uid:
            self._until_free(ref, change.live_uid)
        applied = self._written(change, ref)
        reached("")
        if change.identity.kind == "CustomResourceDefinition":
            until_established(self._cluster, ref, clock=self._clock)
            if change.action == "update" and change.desired:
                kinds = kinds_of_crd(change.desired.data)
                self._redefined |= {(kind.group, kind.kind) for kind in kinds}
        return applied

    def delete(self, change: Change, *, grace_period_s: int | None, wait: bool = True) -> bool:
        """Delete an object, as a rule wait until it is gone, and tell whether it was there.

        Raises:
            MlstackError: it cannot be deleted, or does not go.
        """
        ref = ref_of(change)

        def delete() -> None:
            try:
                self._cluster.delete(
                    ref, propagation="Foreground", uid=change.live_uid or None, grace_period_s=grace_period_s
                )
            except ConflictError as error:
                if change.live_uid and not self._is_there(ref, change.live_uid):
                    raise ObjectNotFoundError(error.message) from error  # another one has its name now
                raise

        try:
            self._persist(change, delete)
        except ObjectNotFoundError:
            return False
        if wait:
            self._until_gone(ref, change.live_uid)
        return True

    def _until_free(self, ref: ObjectRef, uid: str) -> None:
        """Return when an object that is being deleted has left its name to another one."""
        try:
            self._until_gone(ref, uid)
        except NotReadyError as error:
            message = f"`{ref}` is being deleted and {error.message.removeprefix(f'`{ref}` ')}"
            raise ForbiddenError(
                message, why="terminating", hint=f"kubectl get {_address(ref)} -o yaml"
            ) from error

    def _until_gone(self, ref: ObjectRef, uid: str) -> None:
        timeout_s = NAMESPACE_GONE_S if ref.kind == "Namespace" else GONE_S
        try:
            until_gone(self._cluster, ref, uid, clock=self._clock, timeout_s=timeout_s)
        except NotReadyError as error:
            held = instances_held(self._cluster, ref)
            if held:
                error.message += f"; {held}"
                error.args = (error.message,)
            raise

    def _is_there(self, ref: ObjectRef, uid: str) -> bool:
        live = self._cluster.get(ref)
        return live is not None and live["metadata"].get("uid") == uid

    def _take_away(self, change: Change, ref: ObjectRef) -> None:
        pods = renew.old_pods(self._cluster, change)
        self._end(change, ref, change.live_uid, renew.propagation(change))
        until_gone(self._cluster, ref, change.live_uid, clock=self._clock)
        for pod in pods:
            self._end(change, pod.ref, pod.uid, "Background")
        for pod in pods:
            until_gone(self._cluster, pod.ref, pod.uid, clock=self._clock)

    def _end(self, change: Change, ref: ObjectRef, uid: str, propagation: Propagation) -> None:
        def delete() -> None:
            try:
                self._cluster.delete(ref, propagation=propagation, uid=uid)
            except ObjectNotFoundError:  # somebody was quicker, or an answer of the server was lost
                return

        self._persist(change, delete)

    def _written(self, change: Change, ref: ObjectRef) -> Applied:
        """Write, and once more if the object was being deleted: what is written to such an object is lost."""
        applied = self._persist(change, lambda: self._sender.send(change))
        metadata = applied.object.get("metadata") or {}
        if not metadata.get("deletionTimestamp"):
            return applied
        self._say("waiting", change.identity, "is being deleted by somebody; until it is gone")
        self._until_free(ref, str(metadata["uid"]))
        desired = {} if change.desired is None else change.desired.data
        return self._persist(change, lambda: self._cluster.apply(desired))

    def _persist(self, change: Change, ask: Callable[[], T]) -> T:
        """Ask until there is an answer that stays."""
        begun, pause, said = self._clock.now_s(), _FIRST_PAUSE_S, ""
        while True:
            try:
                return ask()
            except MlstackError as error:
                patience_s = self._schema_s(change, error) or _patience_s(error)
                if self._clock.now_s() - begun >= patience_s:
                    raise
                if error.message != said:
                    said = error.message
                    self._say("waiting", change.identity, said.removeprefix(f"`{change.identity}`: "))
            self._clock.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _schema_s(self, change: Change, error: MlstackError) -> float:
        """Give how long the server may go on checking an object by its definition as it was."""
        is_redefined = (change.identity.group, change.identity.kind) in self._redefined
        return SCHEMA_S if is_redefined and isinstance(error, InvalidError) else 0.0


def _address(ref: ObjectRef) -> str:
    place = f" -n {ref.namespace}" if ref.namespace else ""
    return f"{ref.kind.lower()} {ref.name}{place}"


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
