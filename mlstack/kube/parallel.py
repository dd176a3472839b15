"""Work at the same time: for many items, ahead of its need, watches of kinds; and a Lease to be alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import field, replace
from datetime import datetime
from threading import Condition, Event, Thread
from typing import Any, TypeVar

from mlstack.clock import micro_time
from mlstack.dataclass import Record, dataclass
from mlstack.errors import (
    ClusterError,
    ConflictError,
    MlstackError,
    NotReadyError,
    ObjectNotFoundError,
    UnreachableError,
    WatchExpiredError,
)
from mlstack.kube.client import Cluster, ObjectRef, WatchEvent
from mlstack.names import listed

T = TypeVar("T")
R = TypeVar("R")

# Measured against a local API server and at 10 ms of round trip: more threads give nothing.
WORKERS = 16
LIST_FROM = 5
"""From so many objects of one kind and namespace on, one list is cheaper than asking for each."""
GRACE_S = 5.0
"""How long a person who interrupts waits for requests that are under way: long for a server that answers."""


def run(work: Callable[[T], R], items: Sequence[T]) -> list[R | MlstackError]:
    """Do `work` for every item, in several threads, and give results or errors in the order of the items.

    Nothing more is begun once the server stops answering (UnreachableError), or after an interrupt: what had
    begun then gets `GRACE_S` to end, and a second one ends that too.
    """
    stop = Event()

    def attempt(item: T) -> R | MlstackError:
        if stop.is_set():
            return MlstackError("not begun")
        try:
            return work(item)
        except UnreachableError:
            stop.set()
            raise
        except MlstackError as error:
            return error

    if len(items) <= 1:
        return [attempt(item) for item in items]
    pool = ThreadPoolExecutor(max_workers=min(WORKERS, len(items)), thread_name_prefix="mlstack")
    futures: list[Future[R | MlstackError]] = []
    try:
        for item in items:
            futures.append(pool.submit(attempt, item))
        for future in as_completed(futures):
            future.result()
    except BaseException as error:  # whatever it is, the others must not go on
        stop.set()
        is_interrupt = isinstance(error, KeyboardInterrupt)
        pool.shutdown(wait=not is_interrupt, cancel_futures=True)
        if is_interrupt:
            wait([future for future in futures if not future.cancelled()], timeout=GRACE_S)
        raise
    pool.shutdown()
    return [future.result() for future in futures]


def whole(results: Sequence[R | MlstackError]) -> list[R]:
    """Give results that all came; else all their errors are raised as one."""
    if failures := [result for result in results if isinstance(result, MlstackError)]:
        raise together(failures)
    return [result for result in results if not isinstance(result, MlstackError)]


def together(errors: Sequence[MlstackError]) -> MlstackError:
    """Make one error of several: the first one's kind, all places, and what is said of whom, each once."""
    first = errors[0]
    if len(errors) == 1:
        return first
    subjects: dict[str, list[str]] = {}
    for error in errors:
        name, colon, text = error.message.partition(": ") if error.message.startswith("`") else ("", "", "")
        names = subjects.setdefault(text or error.message, [])
        names += [name.removesuffix(" is refused")] if colon else []
    ended = "did not get there in time" if isinstance(first, NotReadyError) else "were refused"
    lines = [f"{len(errors)} objects {ended}"]
    for text, names in subjects.items():
        lines.append(f"  {listed(names)}: {text}" if names else f"  {text}")
    hints = list(dict.fromkeys(error.hint for error in errors if error.hint))
    joined = MlstackError.__new__(type(first))
    joined.__dict__.update(first.__dict__)
    joined.message, joined.hint = "\n".join(lines), "\n      ".join(hints) or None
    joined.where = ", ".join(dict.fromkeys(error.where for error in errors if error.where)) or None
    return joined


PendingResult = Callable[..., T]
"""Waits so many seconds at most for the end of some work (TimeoutError), and gives its result or raises."""


def prefetch(work: Callable[[], T]) -> PendingResult[T]:
    """Begin work in a thread of its own; what is given waits for its end and gives its result, or raises.

    The thread does not hold up the end of the process, should nobody wait for it: a server may be silent.
    """
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # whoever waits gets it, whatever it is
            result.set_exception(error)

    Thread(target=run, name="mlstack-ahead", daemon=True).start()
    return result.result


# --- following kinds: list, watch, go on where a watch broke off, list anew once that is forgotten ---
# After a restart of an API server every watch ends like that.

# How long the server keeps one watch open: then it is taken up again, so that no thread lives for ever.
WATCH_S = 30.0
# Events that come together are given together.
_TOGETHER_S = 0.1


@dataclass(frozen=True)
class WatchSource:
    """What one watch is about: a kind, in one `namespace` or in all (None), narrowed by a label selector."""

    api_version: str
    kind: str
    namespace: str | None = None
    labels: str = ""
    metadata_only: bool = False


class Listed(Record):
    """Word that everything there is has been told: nothing but `refs` is left of what was told before."""

    source: WatchSource
    refs: frozenset[ObjectRef]
    version: str


class Reflector:
    """Follows a kind over many watches, none of which lasts for ever.

    `version` is the place from which the next watch goes on; empty where it begins with a list.
    """

    def __init__(self, cluster: Cluster, source: WatchSource) -> None:
        self._cluster, self._source = cluster, source
        self.version = ""

    def watch(self, timeout_s: float) -> Iterator[WatchEvent | Listed]:
        """Watch once, from where the last watch ended; lists first where that is nowhere or forgotten.

        Gives every event, and `Listed` in place of the bookmark that ends a list. The iterator ends when the
        time is up, the connection breaks or the server forgot the place: call it again, after a pause.

        Raises:
            ClusterError: the cluster does not answer or refuses.
        """
        refs: set[ObjectRef] | None = None if self.version else set()
        asked = vars(self._source)
        events = self._cluster.watch(**asked, resource_version=self.version, timeout_s=timeout_s)
        try:
            for event in events:
                if refs is not None and event.is_initial_end:
                    self.version = event.resource_version
                    yield Listed(source=self._source, refs=frozenset(refs), version=self.version)
                    refs = None
                    continue
                # Before its end a list has no version from which a watch could go on.
                if refs is None:
                    self.version = event.resource_version or self.version
                elif event.type != "BOOKMARK":
                    refs.add(ObjectRef.of(event.object))
                yield event
        except WatchExpiredError:
            self.version = ""


@dataclass
class _Stream:
    """One watch as it goes on; the thread writes, others read under its lock."""

    source: WatchSource
    # What is there, as far as it is needed to tell that it is gone.
    known: dict[ObjectRef, dict[str, Any]] = field(default_factory=dict)
    has_listed: bool = False
    is_idle: bool = False
    error: MlstackError | None = None


class ResourceWatcher:
    """Many watches, each in a thread, as one stream of events; those that end rest until they are resumed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._streams: dict[WatchSource, _Stream] = {}
        self._events: list[WatchEvent] = []
        self._changed = Condition()
        self._closed = False

    def open(self, source: WatchSource) -> None:
        """Begin to watch, unless that goes on already."""
        with self._changed:
            if source in self._streams or self._closed:
                return
            stream = self._streams[source] = _Stream(source)
        Thread(target=self._follow, args=(stream,), name=f"watch {source.kind}", daemon=True).start()

    def collect(self, *, timeout_s: float) -> list[WatchEvent]:
        """Give what has happened; wait for it so long, or until no watch is open any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._all_idle(), timeout=timeout_s)
            self._changed.wait_for(self._all_idle, timeout=_TOGETHER_S)
            events, self._events = self._events, []
            return events

    @property
    def is_idle(self) -> bool:
        """Tell whether no watch is open: nothing can be heard before they are taken up again."""
        with self._changed:
            return self._all_idle()

    def resume(self) -> None:
        """Take up the watches that have ended."""
        with self._changed:
            for stream in self._streams.values():
                stream.is_idle = False
            self._changed.notify_all()

    def has_listed(self, source: WatchSource) -> bool:
        """Tell whether everything there is has been told once."""
        with self._changed:
            return source in self._streams and self._streams[source].has_listed

    def error(self, source: WatchSource) -> MlstackError | None:
        """Give what keeps a watch from going on."""
        with self._changed:
            return self._streams[source].error if source in self._streams else None

    def errors(self) -> list[MlstackError]:
        """Give what keeps watches from going on."""
        with self._changed:
            return [stream.error for stream in self._streams.values() if stream.error is not None]

    def close(self) -> None:
        """Hear nothing more; threads end with their watches."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _all_idle(self) -> bool:
        return all(stream.is_idle for stream in self._streams.values())

    def _follow(self, stream: _Stream) -> None:
        reflector = Reflector(self._cluster, stream.source)
        while True:
            error: MlstackError | None = None
            try:
                for event in reflector.watch(WATCH_S):
                    if self._closed:
                        return
                    self._take(stream, event)
            except MlstackError as fault:
                error = fault
            except Exception as fault:  # a fault of ours must not end in silence: a thread has no caller
                error = MlstackError(f"watch of {stream.source.kind}: {fault!r}")
            with self._changed:
                stream.is_idle, stream.error = True, error
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._closed or not stream.is_idle)
                if self._closed:
                    return

    def _take(self, stream: _Stream, event: WatchEvent | Listed) -> None:
        with self._changed:
            if isinstance(event, Listed):
                for ref in [ref for ref in stream.known if ref not in event.refs]:
                    self._events.append(WatchEvent(type="DELETED", object=stream.known.pop(ref)))
                stream.has_listed, stream.error = True, None
            elif event.type != "BOOKMARK":
                ref = ObjectRef.of(event.object)
                stream.known.pop(ref, None)
                if event.type != "DELETED":
                    stream.known[ref] = {
                        key: event.object.get(key) for key in ("apiVersion", "kind", "metadata")
                    }
                self._events.append(event)
            self._changed.notify_all()


# --- a Lease in the cluster that one process at a time holds: taken, renewed, released, taken over ---
# Every write is a compare-and-swap, so two that try at once never both succeed. Whether a Lease has expired
# is told by the API server's own clock, from the times it notes beside field managers: the clocks of two
# machines may differ by more than a Lease lasts.

_LEASE = "coordination.k8s.io/v1"
LEASE_S = 15


class Term(Record):
    """A Lease as somebody holds it; times are seconds since 1970."""

    holder: str
    acquired_s: float  # since when, by the holder's clock
    renewed_s: float  # when the server last saw the holder
    duration_s: int  # how long it lasts after that
    transitions: int  # how often it went to another holder
    uid: str
    version: str
    before: Term | None = field(default=None, compare=False)  # from whom it was taken over unreleased

    def left_s(self, now_s: float) -> float:
        """Give how many seconds it still lasts; the server's times are whole seconds."""
        return min(self.renewed_s + self.duration_s + 1 - now_s, self.duration_s)


class HeldError(Exception):
    """Raised when somebody else holds a Lease, which lasts for `left_s` if it is not renewed."""

    def __init__(self, term: Term, left_s: float) -> None:
        super().__init__(term.holder)
        self.term, self.left_s = term, left_s


class LostError(Exception):
    """Raised when a Lease that was held is held no more; `term` is how it is now, None if it is gone."""

    def __init__(self, term: Term | None) -> None:
        super().__init__(term.holder if term else "gone")
        self.term = term


class Lease(Record):
    """One Lease, and who wants to hold it."""

    cluster: Cluster
    namespace: str
    name: str
    holder: str  # who we are; no other process may have the same name
    now_s: Callable[[], float]  # seconds since 1970
    duration_s: int = LEASE_S  # how long it lasts after each renewal
    labels: Mapping[str, str] | None = None

    @property
    def ref(self) -> ObjectRef:
        """Give the address of the Lease."""
        return ObjectRef(_LEASE, "Lease", self.namespace, self.name)

    def read(self) -> Term | None:
        """Give the Lease as it is, None if nobody holds it."""
        live = self.cluster.get(self.ref)
        return _term(live) if live is not None and _holder(live) else None

    def take(self, *, is_gone: Callable[[str], bool] = lambda name: False) -> Term:
        """Take the Lease if it is free or has expired.

        Args:
            is_gone: tells whether a holder certainly runs no more, so that its Lease need not expire.

        Raises:
            HeldError: somebody else holds it.
            ClusterError: the cluster does not answer or refuses; without the namespace an
                ObjectNotFoundError.
        """
        while True:
            try:
                return _term(self.cluster.create(self._written(None)).object)
            except ConflictError:  # there is one already
                live = self.cluster.get(self.ref)
            if live is None:
                continue
            held = _holder(live) not in ("", self.holder) and not is_gone(_holder(live))
            left_s = self._left_s(live) if held else 0.0
            if left_s > 0:
                raise HeldError(_term(live), left_s)
            try:
                taken = self.cluster.replace(self._written(live)).object
            except (ConflictError, ObjectNotFoundError):  # somebody else was faster
                continue
            foreign = _holder(live) not in ("", self.holder)
            return replace(_term(taken), before=_term(live) if foreign else None)

    def renew(self, term: Term) -> Term:
        """Say that we are still here; a LostError says that somebody else has it, or that it was deleted."""
        while True:
            live = self.cluster.get(self.ref)
            if live is None or _holder(live) != self.holder or live["metadata"]["uid"] != term.uid:
                raise LostError(_term(live) if live is not None and _holder(live) else None)
            try:
                return _term(self.cluster.replace(self._written(live)).object)
            except (ConflictError, ObjectNotFoundError):
                continue

    def release(self, term: Term) -> None:
        """Delete the Lease if it is still ours."""
        version = term.version
        while True:
            try:
                self.cluster.delete(
                    self.ref, propagation="Background", uid=term.uid, resource_version=version
                )
            except ObjectNotFoundError:
                return
            except ConflictError:  # it was renewed in between, or somebody else has it
                live = self.cluster.get(self.ref)
                if live is None or _holder(live) != term.holder or live["metadata"]["uid"] != term.uid:
                    return
                version = str(live["metadata"]["resourceVersion"])
            else:
                return

    def left_s(self) -> float:
        """Give how many seconds the Lease lasts if it is not renewed; 0 where it is free."""
        live = self.cluster.get(self.ref)
        return 0.0 if live is None or not _holder(live) else max(0.0, self._left_s(live))

    def _left_s(self, live: Mapping[str, Any]) -> float:
        """Tell by the server's clock how long a Lease lasts; asks it by a write that does nothing."""
        try:
            dry = self.cluster.replace(self._written(live), dry_run=True).object
        except (ConflictError, ObjectNotFoundError):  # it was just renewed or released
            return _term(live).duration_s
        except ClusterError:
            return _term(live).left_s(self.now_s())
        return _term(live).left_s(_noted_s(dry) or self.now_s())

    def _written(self, live: Mapping[str, Any] | None) -> dict[str, Any]:
        """Give the Lease as it is when we hold it."""
        now = micro_time(self.now_s())
        spec = dict((live or {}).get("spec") or {})
        ours = spec.get("holderIdentity") == self.holder
        labels = {"labels": dict(self.labels)} if self.labels else {}
        new = {"namespace": self.namespace, "name": self.name, **labels}
        metadata = dict(live["metadata"]) if live is not None else new
        metadata.pop("managedFields", None)
        acquired = {} if ours else {"acquireTime": now}
        transitions = int(spec.get("leaseTransitions") or 0) + (live is not None and not ours)
        return {
            "apiVersion": _LEASE,
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                **spec,
                **acquired,
                "holderIdentity": self.holder,
                "leaseDurationSeconds": self.duration_s,
                "leaseTransitions": transitions,
                "renewTime": now,
            },
        }


def _term(live: Mapping[str, Any]) -> Term:
    spec, metadata = live.get("spec") or {}, live["metadata"]
    renewed_s = _seconds(spec.get("renewTime")) or _seconds(metadata.get("creationTimestamp")) or 0.0
    return Term(
        holder=_holder(live),
        acquired_s=_seconds(spec.get("acquireTime")) or renewed_s,
        renewed_s=_noted_s(live) or renewed_s,
        duration_s=int(spec.get("leaseDurationSeconds") or LEASE_S),
        transitions=int(spec.get("leaseTransitions") or 0),
        uid=str(metadata["uid"]),
        version=str(metadata["resourceVersion"]),
    )


def _holder(live: Mapping[str, Any]) -> str:
    return str((live.get("spec") or {}).get("holderIdentity") or "")


def _noted_s(live: Mapping[str, Any]) -> float | None:
    """Give the latest time that the server noted beside a field manager."""
    noted = [_seconds(entry.get("time")) for entry in live["metadata"].get("managedFields") or ()]
    return max((time_s for time_s in noted if time_s is not None), default=None)


def _seconds(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else None
    except ValueError:
        return None
