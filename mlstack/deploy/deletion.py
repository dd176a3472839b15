"""Wait until objects are gone, and say what holds those that are being deleted."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from threading import Condition, Thread
from typing import Any

from mlstack.clock import Clock
from mlstack.dataclass import dataclass
from mlstack.errors import ClusterError, MlstackError, NotReadyError
from mlstack.events import STILL_S, OnEvent, RunEvent, listed
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, ObjectRef, backoff
from mlstack.kube.watch import ResourceWatcher, WatchSource
from mlstack.objects.kube_object import Identity, group_of, kinds_of_crd
from mlstack.readiness.evaluate import kinds_below

# So long may nothing at all go where nobody chose a time: pods have 30 s to end unless they ask for more.
GONE_S = 120.0
# An empty namespace takes 6 s to go, one with pods a minute.
NAMESPACE_GONE_S = 90.0
# Objects that hold another: more than these are counted, not listed.
_NAMED = 5
_PAUSES_S = (0.05, 1.0)  # where nothing can be heard: the first and the longest
# How long news are collected before time is looked at.
_TICK_S = 0.25
# How often a watch that ended is taken up again, and an object asked for that no watch tells of.
_AGAIN_S = 1.0

# The API server says these of a namespace or definition in words that name what is left.
_TELLING = (
    "NamespaceFinalizersRemaining",
    "NamespaceContentRemaining",
    "NamespaceDeletionContentFailure",
    "NamespaceDeletionDiscoveryFailure",
    "NamespaceDeletionGroupVersionParsingFailure",
    "Terminating",
)
# Those of the garbage collector and of built-in controllers go by themselves once all else has gone.
_OWN = frozenset({"foregroundDeletion", "orphan", "kubernetes", "customresourcecleanup.apiextensions.k8s.io"})


def obstacles(live: Mapping[str, Any]) -> str:
    """Say what an object still waits for, empty if nothing shows."""
    texts, named = [], own_finalizers(live)
    if named:
        texts.append(f"its finalizers are still there: {', '.join(named)}")
    elif "foregroundDeletion" in ((live.get("metadata") or {}).get("finalizers") or ()):
        texts.append("what it owns is still there")
    for condition in (live.get("status") or {}).get("conditions") or ():
        if condition.get("type") in _TELLING and condition.get("status") == "True":
            texts.append(" ".join(str(condition.get("message") or condition.get("reason") or "").split()))
    return "; ".join(texts)


def own_finalizers(live: Mapping[str, Any]) -> list[str]:
    """Give the finalizers of an object that do not go by themselves."""
    finalizers = (live.get("metadata") or {}).get("finalizers") or ()
    return [str(name) for name in finalizers if name not in _OWN]


@dataclass(frozen=True)
class Gone:
    """What a change waits for before it goes on: that this very object is not there any more."""

    ref: ObjectRef
    uid: str


Steps = Generator[Gone, None, None]
"""The work of one change; between two steps an object has to be gone."""
Then = Callable[[MlstackError | None], None]


@dataclass
class _Awaited:
    gone: Gone
    then: Then
    source: WatchSource
    since_s: float
    asked_s: float = 0.0

    @property
    def identity(self) -> Identity:
        ref = self.gone.ref
        return Identity(group_of(ref.api_version), ref.kind, ref.namespace, ref.name)


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

    def wait(self, gone: Gone, then: Then) -> None:
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
        left = [awaited for awaited in waiting if self._is_waiting(awaited)]
        self._ask([awaited for awaited in left if self._is_doubtful(awaited, listed_before, now_s)], now_s)
        moved_s = self._moved_s if self._timeout_s is None else 0.0
        self._end_late(
            [
                awaited
                for awaited in left
                if self._is_waiting(awaited)
                and now_s - max(awaited.since_s, moved_s) >= self._limit_s(awaited)
            ]
        )
        if now_s - self._told_s >= STILL_S:
            self._told_s = now_s
            self._tell([awaited for awaited in left if self._is_waiting(awaited)])

    def _is_doubtful(self, awaited: _Awaited, listed_before: set[WatchSource], now_s: float) -> bool:
        """Tell whether no watch speaks of an object: it was gone before, or may not be watched."""
        if now_s - awaited.asked_s < _AGAIN_S:
            return False
        if self._feed.error(awaited.source) is not None:
            return True
        return awaited.source in listed_before and self._uids.get(awaited.gone.ref) != awaited.gone.uid

    def _ask(self, doubtful: list[_Awaited], now_s: float) -> None:
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
        if len(left) == 1:
            self._on_event(RunEvent("still", left[0].identity, f"until it is gone{reason}"))
            return
        names = listed([str(awaited.identity) for awaited in left])
        self._on_event(RunEvent("still", None, f"until {len(left)} objects are gone: {names}{reason}"))

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
        """Let time pass where nothing can be heard, and take up watches that have ended."""
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


def is_same(live: Mapping[str, Any], uid: str) -> bool:
    """Tell whether an object is the very one, and not another of the same name."""
    return (live.get("metadata") or {}).get("uid") == uid


_Items = Callable[[str, str, str | None], tuple[Mapping[str, Any], ...]]


def _held_below(live: Mapping[str, Any], items: _Items) -> str:
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
            below = [item for item in around if owners & _owner_uids(item)]
            owners |= {str(item["metadata"].get("uid")) for item in below}
    held = [
        f"{ObjectRef.of(item)} ({', '.join(own_finalizers(item))})" for item in below if own_finalizers(item)
    ]
    return f"held by {listed(held, most=_NAMED)}" if held else ""


def _owner_uids(live: Mapping[str, Any]) -> set[str]:
    return {str(owner.get("uid")) for owner in live["metadata"].get("ownerReferences") or ()}
