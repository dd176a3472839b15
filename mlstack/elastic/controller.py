"""The controller as it runs: watches wake it, a lease lets it write, each pass does what is left to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import field
from queue import Empty, Queue
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Literal

from mlstack.clock import backoff
from mlstack.dataclass import Record, dataclass
from mlstack.elastic.cache import BUDGET, SERVICE, ClusterCache
from mlstack.elastic.reconciler import Pass, Reconciler
from mlstack.elastic.snapshot import PolicyConfig, PriorityGrants
from mlstack.elastic.state import Backoff
from mlstack.elastic.training_job import API_VERSION, JOB_LABEL, KIND
from mlstack.errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    LockedError,
    MlstackError,
    NotFoundError,
    NotReadyError,
    UsageError,
)
from mlstack.kube.client import Cluster, GuardedClient, WatchEvent
from mlstack.kube.parallel import HeldError, Lease, Listed, LostError, Reflector, Term, WatchSource

if TYPE_CHECKING:
    from mlstack.elastic.metrics import Metrics

LEASE_NAME = "mlstack-elastic"
LEASE_NAMESPACE = "mlstack-system"
DEBOUNCE_MS = 1_000
TICK_MS = 5_000

# While nothing is due the loop looks so often whether it leads, more often while it waits or is deaf.
_GLANCE_S, _SHORT_GLANCE_S, _DEAF_GLANCE_S = 1.0, 0.2, 0.1
_TROUBLE_MS = (1_000, 30_000)
# While a watch is broken nothing is decided, since half of the news may be missing; but not for ever.
_DEAF_S = 30.0
_WRITERS = 8  # writes at once: with 20 ms each this is more than an API server of two cores takes
_PATIENCE_S = 1.0  # others have to be looked after while an admission webhook takes its time


class ControllerSettings(Record):
    """How a controller is run: what people may set on its command line."""

    policy: PolicyConfig = field(default_factory=PolicyConfig)
    grants: PriorityGrants = field(default_factory=PriorityGrants)
    namespaces: tuple[str, ...] = ()  # where jobs are looked after; empty for everywhere
    identity: str  # name of this process; no other has it
    is_gone: Callable[[str], bool] = lambda name: False  # whether that process certainly runs no more
    lease_namespace: str = LEASE_NAMESPACE
    lease_name: str = LEASE_NAME
    tick_ms: int = TICK_MS  # longest time between two passes
    is_dry: bool = False  # work everything out, write nothing, lead nobody
    log_level: Literal["error", "info", "debug"] = "error"  # what of each pass is said: events, writes too


# --- when the next pass is due ---


@dataclass(kw_only=True)
class RequeuePolicy:
    """Says when the next pass is due; the same rule on a real clock and on a simulated one."""

    tick_ms: int = TICK_MS  # longest time between two passes
    next_ms: int = 0  # when the next is due, at once before the first

    def changed(self, now_ms: int) -> None:
        """Note that something happened; changes are gathered for a second, from the first of them."""
        self.next_ms = min(self.next_ms, now_ms + DEBOUNCE_MS)

    def started(self, now_ms: int, due_ms: int | None = None) -> None:
        """Note that a pass has begun, and when something known falls due (a back-off, a limit of time)."""
        latest_ms = now_ms + self.tick_ms
        self.next_ms = latest_ms if due_ms is None else min(latest_ms, max(due_ms, now_ms + 1))


# --- leadership ---

_RENEW_S = 10.0  # a steady controller writes this alone, and so once in ten seconds
_RETRY_S = 2.0
# So long after a renewal was asked for nobody else can hold it; two seconds are for slow requests.
_SURE_S = 13.0


class NotLeadingError(Exception):
    """Raised instead of a write by a controller that does not lead, or may not lead any more."""


class LeaderElector:
    """Wants to lead, leads, and stands back."""

    def __init__(
        self,
        lease: Lease,
        monotonic_s: Callable[[], float],
        log: Callable[[str], None],
        is_gone: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self._lease, self._monotonic_s, self._log, self._is_gone = lease, monotonic_s, log, is_gone
        self._lock, self._closed = Lock(), Event()
        self._thread: Thread | None = None
        self._term: Term | None = None
        self._sure_until_s = 0.0
        self._other: tuple[str, float] = ("", 0.0)  # version of another's lease, and since when it is that
        self._reported, self._leader = "", ""
        # What kept the lease from being asked for the last time, None where it was held or is ours.
        self.error: ClusterError | None = None

    def start(self) -> None:
        """Begin to stand for election, in a thread."""
        self._thread = Thread(target=self._elect, name="lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stand back: nothing is written any more, and the lease is free at once."""
        self._closed.set()
        with self._lock:
            term, self._term = self._term, None
        if self._thread is not None:
            self._thread.join(_RETRY_S)
        if term is not None:
            self._free(term)

    @property
    def is_leading(self) -> bool:
        """Tell whether the lease is ours for certain."""
        with self._lock:
            return self._term is not None and self._monotonic_s() < self._sure_until_s

    @property
    def transitions(self) -> int | None:
        """Give how often the lease has changed hands, None while it is not ours."""
        with self._lock:
            return self._term.transitions if self._term is not None else None

    def check(self) -> None:
        """Raise NotLeadingError where the lease is not ours for certain."""
        if not self.is_leading:
            raise NotLeadingError("this controller does not lead")

    def attempt(self) -> float:
        """Take or renew the lease once; gives the seconds until the next attempt."""
        asked_s = self._monotonic_s()
        try:
            if self._term is None:
                return self._try_to_take(asked_s)
            self._hold(self._lease.renew(self._term), asked_s)
        except HeldError as error:
            return self._stand_by(error.term.holder)
        except LostError as error:
            went = f"went to {error.term.holder}" if error.term else "was deleted"
            return self._lose(f"the lease {went}")
        except ClusterError as error:
            if self._term is None:
                self.error = error
            elif self._monotonic_s() >= self._sure_until_s:
                return self._lose("the lease could not be renewed in time")
            return _RETRY_S
        return _RENEW_S

    def report(self) -> None:
        """Say what keeps the lease from being asked for, once while it lasts: for those that go on trying."""
        before, self._reported = self._reported, str(self.error or "")
        if self._reported not in ("", before):
            self._log(f"the lease cannot be had: {self._reported}")

    def _elect(self) -> None:
        pause_s = 0.0
        while not self._closed.wait(pause_s):
            try:
                pause_s = self.attempt()
                self.report()
            except Exception as error:  # a thread has no caller: say it, and try again
                self._log(f"lease: {error!r}")
                pause_s = _RETRY_S

    def _try_to_take(self, asked_s: float) -> float:
        """Look at the lease, and take it when it is free or nobody has renewed it for as long as it lasts."""
        held, holder = self._lease.read(), self._lease.holder
        if held is not None and held.holder != holder and not self._is_gone(held.holder):
            if self._other[0] != held.version:
                self._other = (held.version, asked_s)
            if asked_s - self._other[1] < held.duration_s:
                return self._stand_by(held.holder)
        term = self._lease.take(is_gone=self._is_gone)
        if self._closed.is_set():
            self._free(term)
            return _RETRY_S
        self._hold(term, asked_s)
        before = f" after {term.before.holder}" if term.before else ""
        self._log(f"{holder} leads{before} (transition {term.transitions})")
        return _RENEW_S

    def _hold(self, term: Term, asked_s: float) -> None:
        with self._lock:
            if not self._closed.is_set():
                self._term, self._sure_until_s = term, asked_s + _SURE_S
        self._leader, self.error = "", None

    def _lose(self, why: str) -> float:
        with self._lock:
            self._term = None
        self._other = ("", 0.0)
        self._log(f"{self._lease.holder} does not lead any more: {why}")
        return _RETRY_S

    def _stand_by(self, holder: str) -> float:
        """Say who has the lease and where it is, once for each holder."""
        self.error = None
        if holder != self._leader:
            self._leader, ref = holder, self._lease.ref
            self._log(f"{self._lease.holder} stands by: {holder} has the Lease `{ref.namespace}/{ref.name}`")
        return _RETRY_S

    def _free(self, term: Term) -> None:
        """Let the next one lead at once; the Lease stays, or its transitions would be counted anew."""
        cluster, ref = self._lease.cluster, self._lease.ref
        try:
            live = cluster.get(ref)
            if live is None or live["metadata"]["uid"] != term.uid:
                return
            spec = dict(live.get("spec") or {})
            if spec.pop("holderIdentity", None) == term.holder:
                cluster.replace({**live, "spec": spec})
        except (ClusterError, ConflictError) as error:
            self._log(f"the lease was not released: {error}")


def find_lease_namespace(cluster: Cluster, name: str, *, default: str, log: Callable[[str], None]) -> str:
    """Give the namespace of the Lease of this name that is there, else the default.

    Two controllers whose Leases are in different namespaces would both lead. Raises UsageError where there
    are several, ClusterError where the cluster does not answer.
    """
    try:
        fields = f"metadata.name={name}"
        listing = cluster.list("coordination.k8s.io/v1", "Lease", fields=fields, metadata_only=True)
    except ForbiddenError:
        log(
            f"the Lease is `{default}/{name}`: no right to list Leases of all namespaces. "
            "With one elsewhere, another controller leads beside this one: see `--lease-namespace`"
        )
        return default
    namespaces = sorted(str(lease["metadata"]["namespace"]) for lease in listing.items)
    if len(namespaces) > 1:
        refs = ", ".join(f"`{namespace}/{name}`" for namespace in namespaces)
        hint = f"say which is meant: --lease-namespace {namespaces[0]}; delete those that no controller uses"
        raise UsageError(f"there are several Leases of controllers: {refs}", hint=hint)
    return namespaces[0] if namespaces else default


# --- watches in threads of their own, for the one thread that has the cache ---

_RESYNC_S = 600.0  # so often everything is listed anew: what was missed costs no more than this
_WATCH_S = 120.0  # how long the server keeps one watch open
# A watch that goes on where it was, and of which nothing is heard for so long, has nothing to tell.
_QUIET_S = 1.0
_PAUSES_S = (0.5, 10.0)
# A list of many pods must not stand in memory as a whole: the watch waits for the reader.
_QUEUED = 2_000


def sources(namespaces: Sequence[str]) -> tuple[WatchSource, ...]:
    """Give what is watched: jobs and their own where they are looked after, nodes and pods everywhere."""
    places: Sequence[str | None] = namespaces or (None,)
    companions = (SERVICE, BUDGET, ("apps/v1", "StatefulSet"))
    return (
        WatchSource("scheduling.k8s.io/v1", "PriorityClass"),
        WatchSource("v1", "Node"),
        *(WatchSource(*kind, place, JOB_LABEL) for kind in companions for place in places),
        *(WatchSource("v1", "ResourceQuota", place) for place in places),
        *(WatchSource(API_VERSION, KIND, place) for place in places),
        WatchSource("v1", "Pod"),
    )


class Informer:
    """Follows some kinds of objects and feeds a cache.

    A watch that breaks goes on where it was, after a pause that doubles up to 10 s; where the server no
    longer has that version, and every ten minutes, everything is listed again.
    """

    def __init__(
        self,
        cluster: Cluster,
        cache: ClusterCache,
        sources: Sequence[WatchSource],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._cluster, self._cache, self._sources = cluster, cache, sources
        self._monotonic_s = monotonic_s
        self._queue: Queue[WatchEvent | Listed] = Queue(_QUEUED)
        self._closed = Event()
        self._errors: dict[WatchSource, MlstackError] = {}
        self._broken: dict[WatchSource, float | None] = {}
        self.missing = set(sources)  # what has not been listed in full yet

    def start(self) -> None:
        """Begin."""
        for source in self._sources:
            name = f"watch {source.kind}"
            Thread(target=self._follow, args=(source,), name=name, daemon=True).start()

    def stop(self) -> None:
        """Hear nothing more; threads end with their watches."""
        self._closed.set()

    def errors(self) -> list[MlstackError]:
        """Give what keeps watches from going on."""
        return list(self._errors.values())

    def is_deaf(self) -> bool:
        """Tell whether something may have happened that was not heard: a watch broke off and is not back."""
        now_s, resumed = self._monotonic_s(), list(self._broken.values())
        return any(resumed_s is None or now_s - resumed_s < _QUIET_S for resumed_s in resumed)

    def update(self, *, timeout_s: float) -> bool:
        """Take in what has happened, waiting so long for something; says whether anything changed."""
        has_changed = False
        try:
            event = self._queue.get(timeout=max(0.0, timeout_s))
            while True:
                has_changed |= self._take(event)
                event = self._queue.get_nowait()
        except Empty:
            return has_changed

    def _take(self, event: WatchEvent | Listed) -> bool:
        if not isinstance(event, Listed):
            return self._cache.handle(event)
        source, was_missing = event.source, event.source in self.missing
        self.missing.discard(source)
        keys = {f"{ref.namespace}/{ref.name}" if ref.namespace else ref.name for ref in event.refs}
        return self._cache.retain(source.kind, keys, event.version, namespace=source.namespace) or was_missing

    def _follow(self, source: WatchSource) -> None:
        reflector, listed_s = Reflector(self._cluster, source), self._monotonic_s()
        pauses = backoff(*_PAUSES_S)
        while not self._closed.is_set():
            begun_s = self._monotonic_s()
            if not reflector.version or begun_s - listed_s >= _RESYNC_S:
                reflector.version, listed_s = "", begun_s
            elif source in self._broken:
                self._broken[source] = begun_s
            try:
                for event in reflector.watch(_WATCH_S):
                    if self._closed.is_set():
                        return
                    if isinstance(event, Listed) or event.type != "BOOKMARK":
                        self._queue.put(event)
                    pauses = backoff(*_PAUSES_S)
                    self._errors.pop(source, None)
                    if reflector.version:
                        self._broken.pop(source, None)
                if not reflector.version:  # it was forgotten, or the list was cut off
                    self._broken[source] = None
            except MlstackError as error:
                self._errors[source], self._broken[source] = error, None
            except Exception as error:  # a fault of ours must not end in silence: a thread has no caller
                self._errors[source] = MlstackError(f"watch of {source.kind}: {error!r}")
                self._broken[source] = None
            if self._monotonic_s() - begun_s < _PAUSES_S[1]:
                self._closed.wait(next(pauses))


# --- the loop ---


class Controller:
    """Looks after training jobs until told to stop; its client had better fail than write late."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ControllerSettings,
        *,
        log: Callable[[str], None],
        metrics: Metrics | None = None,
        now_s: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._settings, self._log, self._metrics = cluster, settings, log, metrics
        self._now_s, self._monotonic_s = now_s, monotonic_s
        self._cache = ClusterCache(settings.grants)
        self._informer = Informer(cluster, self._cache, sources(settings.namespaces), monotonic_s)
        self._requeue = RequeuePolicy(tick_ms=settings.tick_ms)
        self._reconciler: Reconciler | None = None
        # What asks may wait for a server while what writes does not.
        self._writers = ThreadPoolExecutor(_WRITERS, thread_name_prefix="write")
        self._askers = ThreadPoolExecutor(_WRITERS, thread_name_prefix="ask")
        self._trouble = Backoff(*_TROUBLE_MS)
        self._watch_errors: set[str] = set()
        self._deaf_since_s: float | None = None
        lease = Lease(
            cluster=cluster,
            namespace=settings.lease_namespace,
            name=settings.lease_name,
            holder=settings.identity,
            now_s=now_s,
        )
        self._elector = LeaderElector(lease, monotonic_s, log, settings.is_gone)

    def run(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Go on until `is_over`, or until an exception such as KeyboardInterrupt; then free the lease."""
        try:
            self._informer.start()
            if not self._settings.is_dry:
                self._elector.start()
            while not is_over():
                self._turn()
        finally:
            self._stop()

    def once(self, *, timeout_s: float = 60.0) -> Pass:
        """Do one pass as the leader, and free the lease.

        Raises:
            LockedError: another controller leads.
            NotFoundError: the cluster has no training jobs.
            NotReadyError: the cluster did not tell all there is in time.
            ClusterError: the cluster does not answer or refuses.
        """
        until_s = self._monotonic_s() + timeout_s
        try:
            self._informer.start()
            while self._informer.missing:
                self._informer.update(timeout_s=0.2)
                if errors := self._informer.errors():
                    undefined = [error.message for error in errors if getattr(error, "what", "") == "kind"]
                    if any(f"`{KIND}`" in text for text in undefined):
                        raise no_training_jobs() from errors[0]
                    raise errors[0]
                if self._monotonic_s() > until_s:
                    kinds = ", ".join(sorted({source.kind for source in self._informer.missing}))
                    raise NotReadyError(f"the cluster did not list {kinds} within {timeout_s:.0f} s")
            if not self._settings.is_dry:
                self._elector.attempt()
                if not self._elector.is_leading:
                    raise self._elector.error or LockedError(
                        "another controller leads", hint="it does the work; `mlstack elastic plan` only looks"
                    )
            return self._new_reconciler().reconcile(self._now_ms())
        finally:
            self._stop()

    def _stop(self) -> None:
        self._informer.stop()
        self._elector.stop()
        for pool in (self._writers, self._askers):
            pool.shutdown(wait=False, cancel_futures=True)

    def _turn(self) -> None:
        if self._informer.update(timeout_s=self._pause_s()):
            self._requeue.changed(self._now_ms())
        self._report_watches()
        is_leading, is_synced = self._settings.is_dry or self._elector.is_leading, not self._informer.missing
        if self._metrics is not None:
            self._metrics.observe_loop(is_leading=is_leading, is_synced=is_synced)
        if not (is_leading and is_synced):
            self._reconciler = None
        elif self._reconciler is None:
            # What another leader did meanwhile is known; what this one remembered is out of date.
            self._reconciler = self._new_reconciler()
            self._requeue = RequeuePolicy(tick_ms=self._settings.tick_ms)
            self._deaf_since_s = None  # a server that was away for long has not had its time to be heard
        now_s = self._monotonic_s()
        if not self._informer.is_deaf():
            self._deaf_since_s = None
        elif self._deaf_since_s is None:
            self._deaf_since_s = now_s
        is_held = self._deaf_since_s is not None and now_s - self._deaf_since_s < _DEAF_S
        is_early = 0 < self._requeue.next_ms - self._now_ms() <= self._requeue.tick_ms + _TROUBLE_MS[1]
        if self._reconciler is not None and not (is_early or is_held):
            self._pass(self._reconciler)

    def _pause_s(self) -> float:
        if self._reconciler is None or self._informer.missing:
            return _SHORT_GLANCE_S
        least_s = _DEAF_GLANCE_S if self._deaf_since_s is not None else 0.0
        return min(_GLANCE_S, max(least_s, (self._requeue.next_ms - self._now_ms()) / 1000))

    def _report_watches(self) -> None:
        texts = {str(error) for error in self._informer.errors()}
        for text in sorted(texts - self._watch_errors):
            self._log(f"a watch does not go on: {text}")
        if self._watch_errors and not texts:
            self._log("all watches go on")
        self._watch_errors = texts

    def _new_reconciler(self) -> Reconciler:
        return Reconciler(
            GuardedClient(self._cluster, fence=lambda verb, written: self._elector.check()),
            self._cache,
            self._settings.policy,
            transitions=lambda: self._elector.transitions,
            run=lambda works: _run_in(self._writers, works, timeout_s=None),
            ask=lambda works: _run_in(self._askers, works, timeout_s=_PATIENCE_S),
            instance=self._settings.identity,
            is_dry=self._settings.is_dry,
            monotonic_s=self._monotonic_s,
        )

    def _pass(self, reconciler: Reconciler) -> None:
        now_ms, begun_s = self._now_ms(), self._monotonic_s()
        try:
            done = reconciler.reconcile(now_ms)
        except NotLeadingError:
            self._requeue.started(now_ms)
            return
        except ClusterError as error:
            self._trouble.fail(now_ms)
            if self._metrics is not None:
                self._metrics.observe_failure(error)
            self._log(f"{error.message}; trying again")
            self._requeue.started(self._trouble.until_ms - self._requeue.tick_ms)
            return
        self._requeue.started(now_ms, min(done.due, default=None))
        if self._metrics is not None:
            self._metrics.observe_pass(done, seconds=self._monotonic_s() - begun_s)
        level, lines = self._settings.log_level, list[str]()
        if level != "error":
            lines += [f"{event.job} {event.reason}: {event.text}" for event in done.events]
        lines += map(str, done.actions if level == "debug" else ())
        for line in (*lines, *(f"{action} refused: {refusal}" for action, refusal in done.refused)):
            self._log(line)

    def _now_ms(self) -> int:
        return round(self._now_s() * 1000)


def _run_in(
    pool: ThreadPoolExecutor, works: Sequence[Callable[[], None]], *, timeout_s: float | None
) -> None:
    """Run work side by side; what is not done in time goes on."""
    futures = [pool.submit(work) for work in works]
    done = wait(futures, timeout=timeout_s).done
    for future in futures:
        if future in done:
            future.result()


def no_training_jobs() -> NotFoundError:
    """Give what is said of a cluster without their definition."""
    return NotFoundError(
        "the cluster has no training jobs: the definition of their kind is not there",
        hint="mlstack generate elastic-controller NAME, then mlstack apply ENV",
    )
