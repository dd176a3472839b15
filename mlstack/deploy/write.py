"""One object written as it was approved, or deleted and gone: compare and swap, through all that passes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from threading import Condition, Thread
from typing import Any, Literal, TypeVar

from mlstack.clock import STILL_S, Clock, backoff
from mlstack.dataclass import dataclass
from mlstack.deploy.changes import Change, OnEvent, RunEvent, what_moved, with_uid
from mlstack.deploy.inventory import ref_of
from mlstack.deploy.live import DiffContext
from mlstack.deploy.plan import diff_object
from mlstack.deploy.wait import DEAF_S, ESTABLISHED_S, is_same, obstacles, own_finalizers, until_established
from mlstack.errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    MlstackError,
    NotReadyError,
    ObjectNotFoundError,
    OutdatedError,
    TransientError,
)
from mlstack.kube import parallel
from mlstack.kube.client import Applied, Cluster, ObjectRef, Propagation
from mlstack.kube.parallel import ResourceWatcher, WatchSource
from mlstack.names import listed
from mlstack.objects.kube_object import Identity, kinds_of_crd
from mlstack.objects.managed_fields import HANDOVER
from mlstack.readiness.rule import kinds_below

# --- one object, as it was approved: compare and swap, through everything that passes ---

T = TypeVar("T")
Ended = Literal["deleted", "gone", "terminating"]
"""It is gone or goes by itself, was gone already, or is held by somebody's finalizer."""

WEBHOOK_S = 120.0
"""How long a webhook is waited for: it starts as its pod does, with an image to be pulled."""
# Right after a definition is established, one of several API servers may not serve its kind yet.
KIND_S = 30.0
# Others write the same object, or something before the API server says so: it passes.
CONFLICT_S = 60.0
# An API server takes a moment to check objects by what their definition has become.
SCHEMA_S = 5.0
# No object has this version, so that a write for it makes one or is a conflict.
_NO_VERSION = "1"
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
        """Write what is not there; what somebody made meanwhile is written to unless it is another's."""
        try:
            applied = self._cluster.apply(with_uid(change.subject.data, "", _NO_VERSION))
        except ConflictError as error:
            self._cluster.kinds(refresh=True)  # its own may have come a moment ago
            now = self._look_again(change, error)
            if not now.writes:
                return Applied(object=now.live_metadata or {}, warnings=now.notes)
            applied = self._cluster.apply(change.subject.data)
        if not change.handover:
            return applied
        try:
            self._cluster.apply(change.handover, manager=HANDOVER)
            return self._cluster.apply(with_uid(change.sent, applied.object["metadata"]["uid"]))
        except ConflictError:  # the autoscaler was quicker and has its field already
            return applied

    def _update(self, change: Change) -> Applied:
        """Write to the very version that a change was computed from, owners and hand-over first."""
        for _ in range(_TIMES):
            version = change.live_version
            try:
                if change.prepare:
                    version = _version(self._prepare(change))
                if change.handover:
                    held = with_uid(change.handover, change.live_uid, version)
                    version = _version(self._cluster.apply(held, manager=HANDOVER))
                return self._cluster.apply(with_uid(change.sent, change.live_uid, version), force=True)
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
        """Diff an object again; only what was approved goes on, or makes an object that is nobody else's."""
        if self._context is None or change.desired is None:
            raise moved
        now = diff_object(self._context, change.desired)
        # Somebody may have brought about meanwhile what was approved.
        is_same = now.action == "unchanged" and now.live_uid == change.live_uid
        is_made = change.action in ("create", "recreate") and now.refusal is None
        if now.digest == change.digest or is_made or (is_same and set(now.left) <= set(change.left)):
            return now
        raise OutdatedError(
            f"`{change.identity}` changed since it was shown: {what_moved(change, now)}",
            hint="nothing of it was written; look at the difference and apply again",
        ) from moved

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
        """Delete an object that is to be made anew, without what it must leave behind."""
        # A StatefulSet may own its claims (`persistentVolumeClaimRetentionPolicy`) and would take them with
        # it, so it goes alone. The new one adopts its pods; they end only where the new one could not.
        propagation: Propagation = "Foreground"
        pods: Sequence[Mapping[str, Any]] = ()
        if (change.identity.group, change.identity.kind) == ("apps", "StatefulSet"):
            propagation = "Orphan"
            live, namespace = self._cluster.get(ref), change.identity.namespace
            if live is not None and _kept_by_pods(live) != _kept_by_pods(change.subject.data):
                pods = self._cluster.list("v1", "Pod", namespace=namespace, metadata_only=True).items
        owned = [
            pod["metadata"]
            for pod in pods
            if any(o.get("uid") == change.live_uid for o in pod["metadata"].get("ownerReferences") or ())
        ]
        ends = [Gone(ObjectRef("v1", "Pod", ref.namespace, str(pod["name"])), pod["uid"]) for pod in owned]
        if self._persist(change, partial(self._begin_end, ref, change.live_uid, propagation)):
            yield Gone(ref, change.live_uid)
        yield from [
            pod
            for pod in ends
            if self._persist(change, partial(self._begin_end, pod.ref, pod.uid, "Background"))
        ]

    def _begin_end(self, ref: ObjectRef, uid: str, propagation: Propagation) -> bool:
        try:
            return self._cluster.delete(ref, propagation=propagation, uid=uid) is not None
        except ObjectNotFoundError:  # somebody was quicker, or an answer of the server was lost
            return False

    def _persist(self, change: Change, ask: Callable[[], T]) -> T:
        begun_s = told_s = self._clock.now_s()
        message, pauses = "", backoff(0.05, 1.0)
        while True:
            try:
                return ask()
            except MlstackError as error:
                patience_s = min(self._patience_s(change, error), self._timeout_s)
                now_s = self._clock.now_s()
                if now_s - begun_s >= patience_s:
                    raise
                is_due = now_s - told_s >= STILL_S
                if error.message != message or is_due:
                    message, told_s = error.message, now_s
                    text = message.removeprefix(f"`{change.identity}`: ")
                    self._tell(RunEvent("still" if is_due else "waiting", change.identity, text))
            self._clock.sleep(next(pauses))

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


def _version(applied: Applied) -> str:
    return str(applied.object["metadata"]["resourceVersion"])


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
        raise


# --- until objects are gone, and what holds those that are being deleted ---

# So long may nothing at all go where nobody chose a time: pods have 30 s to end unless they ask for more.
GONE_S = 120.0
# An empty namespace takes 6 s to go, one with pods a minute.
NAMESPACE_GONE_S = 90.0
# Objects that hold another: more than these are counted, not listed.
_HOLDERS_NAMED = 5
_PAUSES_S = (0.05, 1.0)  # where nothing can be heard: the first and the longest
# How long news are collected before time is looked at.
_TICK_S = 0.25
# How often a watch that ended is taken up again, and an object asked for that no watch tells of.
_AGAIN_S = 1.0


@dataclass(frozen=True)
class Gone:
    """What a change waits for before it goes on: that this very object is not there any more."""

    ref: ObjectRef
    uid: str


Steps = Generator[Gone, None, None]
"""The work of one change; between two steps an object has to be gone."""


@dataclass
class _Awaited:
    gone: Gone
    then: Callable[[MlstackError | None], None]
    source: WatchSource
    since_s: float
    asked_s: float = 0.0


class DeletionWatcher:
    """Waits for any number of objects to be gone: one watch a kind and namespace, one thread for all."""

    def __init__(self, cluster: Cluster, *, clock: Clock, on_event: OnEvent, timeout_s: float | None) -> None:
        self._cluster, self._clock, self._on_event = cluster, clock, on_event
        self._timeout_s, self._feed = timeout_s, ResourceWatcher(cluster)
        self._changed, self._closed = Condition(), False
        self._waiting: dict[ObjectRef, _Awaited] = {}
        self._uids: dict[ObjectRef, str] = {}
        self._moved_s = self._told_s = self._resumed_s = clock.now_s()
        self._pauses = backoff(*_PAUSES_S)
        self._thread: Thread | None = None

    def wait(self, gone: Gone, then: Callable[[MlstackError | None], None]) -> None:
        """Call `then` once an object is gone, with the reason if it is not in time; from another thread."""
        ref = gone.ref
        source = WatchSource(ref.api_version, ref.kind, ref.namespace or None, metadata_only=True)
        with self._changed:
            now_s = self._clock.now_s()
            if not self._waiting:
                self._moved_s = self._told_s = now_s
            self._waiting[ref] = _Awaited(gone, then, source, now_s)
            self._feed.open(source)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="mlstack-deletions", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """Wait for nothing more; nobody is called any more."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        self._feed.close()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                waiting = list(self._waiting.values())
            try:
                self._look(waiting)
                self._pass_time()
            except Exception as error:  # a fault of ours must not end in silence: a thread has no caller
                fault = MlstackError(f"watch of deletions: {error!r}")
                for awaited in waiting:
                    self._end(awaited, error if isinstance(error, MlstackError) else fault)

    def _look(self, waiting: list[_Awaited]) -> None:
        """Take what happened, and end what is over."""
        sources = {awaited.source for awaited in waiting}
        listed_before = {source for source in sources if self._feed.has_listed(source)}
        for event in self._feed.collect(timeout_s=_TICK_S):
            ref, uid = ObjectRef.of(event.object), str(event.object["metadata"].get("uid"))
            is_there = event.type != "DELETED"
            if is_there:
                self._uids[ref] = uid
            else:
                self._uids.pop(ref, None)
            awaited = self._waiting.get(ref)
            if awaited is not None and (uid != awaited.gone.uid) == is_there:
                self._end(awaited, None)
        now_s = self._clock.now_s()
        waiting = [awaited for awaited in waiting if self._is_waiting(awaited)]
        self._ask(waiting, listed_before, now_s)
        waiting = [awaited for awaited in waiting if self._is_waiting(awaited)]
        moved_s = self._moved_s if self._timeout_s is None else 0.0
        late = [row for row in waiting if now_s - max(row.since_s, moved_s) >= self._limit_s(row)]
        self._end_late(late)
        if now_s - self._told_s >= STILL_S:
            self._told_s = now_s
            self._tell([awaited for awaited in waiting if self._is_waiting(awaited)])

    def _ask(self, waiting: list[_Awaited], listed_before: set[WatchSource], now_s: float) -> None:
        doubtful = [
            awaited
            for awaited in waiting
            if now_s - awaited.asked_s >= _AGAIN_S
            if self._feed.error(awaited.source) is not None
            or (
                self._uids.get(awaited.gone.ref) != awaited.gone.uid
                and (awaited.source in listed_before or now_s - awaited.since_s >= DEAF_S)
            )
        ]
        lives = parallel.run(lambda awaited: self._cluster.get(awaited.gone.ref), doubtful)
        for awaited, live in zip(doubtful, lives, strict=True):
            awaited.asked_s = now_s
            if isinstance(live, MlstackError):
                self._end(awaited, live)
            elif live is None or not is_same(live, awaited.gone.uid):
                self._end(awaited, None)

    def _limit_s(self, awaited: _Awaited) -> float:
        if self._timeout_s is not None:
            return self._timeout_s
        return NAMESPACE_GONE_S if awaited.gone.ref.kind == "Namespace" else GONE_S

    def _end_late(self, late: list[_Awaited]) -> None:
        for awaited, held in zip(late, holders(self._cluster, [item.gone for item in late]), strict=True):
            if held is None:
                self._end(awaited, None)
                continue
            ref = awaited.gone.ref
            text = f"`{ref}`: was not gone within {self._limit_s(awaited):.0f} s{f'; {held}' if held else ''}"
            place = f" -n {ref.namespace}" if ref.namespace else ""
            hint = f"kubectl get {ref.kind.lower()} {ref.name}{place} -o yaml"
            self._end(awaited, NotReadyError(text, hint=hint))

    def _tell(self, left: list[_Awaited]) -> None:
        """Say what is waited for: an end that is far away looks like one that never comes."""
        if not left:
            return
        held = holders(self._cluster, [left[0].gone])[0]
        reason = f": {held}" if held else ""
        keys = [awaited.gone.ref.identity for awaited in left]
        if len(keys) == 1:
            self._on_event(RunEvent("still", keys[0], f"until it is gone{reason}"))
            return
        text = f"until {len(keys)} objects are gone: {listed([*map(str, keys)])}{reason}"
        self._on_event(RunEvent("still", None, text))

    def _is_waiting(self, awaited: _Awaited) -> bool:
        return self._waiting.get(awaited.gone.ref) is awaited

    def _end(self, awaited: _Awaited, error: MlstackError | None) -> None:
        with self._changed:
            if not self._is_waiting(awaited):
                return
            del self._waiting[awaited.gone.ref]
            self._moved_s, self._pauses = self._clock.now_s(), backoff(*_PAUSES_S)
        awaited.then(error)

    def _pass_time(self) -> None:
        with self._changed:
            if not self._waiting:
                return
        if self._feed.is_idle:
            self._clock.sleep(next(self._pauses))
        elif self._clock.now_s() - self._resumed_s < _AGAIN_S:
            return
        self._resumed_s = self._clock.now_s()
        self._feed.resume()


def holders(cluster: Cluster, going: Iterable[Gone]) -> list[str | None]:
    """Say of objects that are being deleted what holds each: finalizers, its own or below it.

    None stands for one that is gone, an empty text for nothing that shows.
    """
    asked = list(going)
    lists: dict[tuple[str, str, str | None], tuple[Mapping[str, Any], ...]] = {}

    def items(api_version: str, kind: str, namespace: str | None) -> tuple[Mapping[str, Any], ...]:
        key = (api_version, kind, namespace)
        if key not in lists:
            try:
                lists[key] = cluster.list(api_version, kind, namespace=namespace, metadata_only=True).items
            except ClusterError:  # a remark is no reason to fail
                lists[key] = ()
        return lists[key]

    texts: list[str | None] = []
    lives = parallel.run(lambda gone: cluster.get(gone.ref), asked)
    for gone, live in zip(asked, lives, strict=True):
        if isinstance(live, MlstackError):  # nobody can tell
            texts.append("")
        elif live is None or not is_same(live, gone.uid):
            texts.append(None)
        else:
            texts.append("; ".join(filter(None, (obstacles(live), _held_below(live, items)))))
    return texts


def _held_below(
    live: Mapping[str, Any], items: Callable[[str, str, str | None], tuple[Mapping[str, Any], ...]]
) -> str:
    """Name the objects that keep a definition or an owner from going, with their finalizers."""
    kinds, metadata, below = kinds_of_crd(live), live["metadata"], list[Mapping[str, Any]]()
    if kinds:
        below = list(items(kinds[-1].api_version, kinds[-1].kind, None))
    elif "foregroundDeletion" in (metadata.get("finalizers") or ()):
        namespace = str(metadata.get("namespace") or "") or None
        around = [item for kind in kinds_below([live]) for item in items(*kind, namespace)]
        owners, before = {str(metadata.get("uid"))}, -1
        while len(below) != before:  # what belongs to it, and to what belongs to it
            before = len(below)
            below = [
                item
                for item in around
                if any(str(o.get("uid")) in owners for o in item["metadata"].get("ownerReferences") or ())
            ]
            owners |= {str(item["metadata"].get("uid")) for item in below}
    named = [(item, ", ".join(own_finalizers(item))) for item in below]
    held = [f"{ObjectRef.of(item)} ({finalizers})" for item, finalizers in named if finalizers]
    return f"held by {listed(held, most=_HOLDERS_NAMED)}" if held else ""
