"""The controller as it runs: watches wake it, a lease lets it write, each pass does what is left to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from mlstack.elastic.controller.cache import BUDGET, SERVICE, ClusterCache
from mlstack.elastic.controller.informer import Informer
from mlstack.elastic.controller.leader import DURATION_S, LeaderElector, NotLeadingError
from mlstack.elastic.controller.reconciler import Pass, Reconciler
from mlstack.elastic.controller.requeue import TICK_MS, RequeuePolicy
from mlstack.elastic.controller.state import Backoff
from mlstack.elastic.facts import JOB_LABEL
from mlstack.elastic.snapshot import PolicyConfig, PriorityGrants
from mlstack.elastic.training_job import API_VERSION, KIND
from mlstack.errors import (
    ClusterError,
    LockedError,
    MlstackError,
    NotFoundError,
    NotReadyError,
    ObjectNotFoundError,
)
from mlstack.kube.client import Cluster
from mlstack.kube.lease import Lease
from mlstack.kube.retrying import FencedClient
from mlstack.kube.watch import Listed, WatchSource

LEASE_NAME = "mlstack-elastic"
LEASE_NAMESPACE = "mlstack-system"

WRITERS = 8
"""Writes at once: with 20 ms each this is more than an API server of two cores takes."""

# While nothing is due the loop looks so often whether it leads, and more often while it waits to.
_GLANCE_S = 1.0
_SHORT_GLANCE_S = 0.2
_TROUBLE_MS = (1_000, 30_000)
_DEAF_GLANCE_S = 0.1
# While a watch is broken nothing is decided, since half of the news may be missing; but not for ever.
_DEAF_S = 30.0
_PATIENCE_S = 1.0  # others have to be looked after while an admission webhook takes its time


@dataclass(frozen=True, kw_only=True)
class ControllerSettings:
    """How a controller is run: what people may set on its command line."""

    policy: PolicyConfig = field(default_factory=PolicyConfig)
    grants: PriorityGrants = field(default_factory=PriorityGrants)
    namespaces: tuple[str, ...] = ()  # where jobs are looked after; empty for everywhere
    identity: str  # name of this process; no other has it
    # Tells whether another process certainly runs no more, by its name.
    is_gone: Callable[[str], bool] = lambda name: False
    lease_namespace: str = LEASE_NAMESPACE
    lease_name: str = LEASE_NAME
    tick_ms: int = TICK_MS  # longest time between two passes
    is_dry: bool = False  # work everything out, write nothing, lead nobody


class LoopClock(Protocol):
    """Tells two times."""

    def now_s(self) -> float:
        """Give the seconds since 1970."""
        ...

    def monotonic_s(self) -> float:
        """Give a time that never goes back, in seconds."""
        ...


class Observer(Protocol):
    """Is told how the controller fares, for logs, metrics and probes."""

    def observe_loop(self, *, is_leading: bool, is_synced: bool) -> None:
        """Take note that the loop goes round."""
        ...

    def observe_pass(self, done: Pass, *, seconds: float) -> None:
        """Take note of a pass."""
        ...

    def observe_failure(self, error: Exception) -> None:
        """Take note of a pass that failed."""
        ...


def sources(namespaces: Sequence[str]) -> tuple[WatchSource, ...]:
    """Give what is watched: jobs and their own where they are looked after, nodes and pods everywhere.

    Pods of other namespaces take room too.
    """
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


class SyncedCache:
    """A cache with the informer that feeds it."""

    def __init__(self, cluster: Cluster, settings: ControllerSettings, clock: LoopClock) -> None:
        watched = sources(settings.namespaces)
        self.cache = ClusterCache(settings.grants)
        self.informer = Informer(cluster, watched, clock.monotonic_s)
        self.missing = set(watched)  # what has not been listed in full yet
        self._clock = clock

    @property
    def is_synced(self) -> bool:
        """Tell whether everything there is has been told once."""
        return not self.missing

    def update(self, *, timeout_s: float) -> bool:
        """Take in what has happened, waiting so long for something; says whether anything changed."""
        has_changed = False
        for news in self.informer.news(timeout_s=timeout_s):
            if isinstance(news, Listed):
                source, was_missing = news.source, news.source in self.missing
                self.missing.discard(source)
                keys = {f"{ref.namespace}/{ref.name}" if ref.namespace else ref.name for ref in news.refs}
                has_gone = self.cache.retain(source.kind, keys, news.version, namespace=source.namespace)
                has_changed |= has_gone or was_missing
            else:
                has_changed |= self.cache.handle(news)
        return has_changed

    def wait_until_synced(self, *, timeout_s: float) -> None:
        """Return once everything there is has been told.

        Raises:
            NotFoundError: the cluster has no training jobs.
            NotReadyError: the time is up.
            MlstackError: a watch cannot begin.
        """
        until_s = self._clock.monotonic_s() + timeout_s
        while not self.is_synced:
            self.update(timeout_s=0.2)
            if errors := self.informer.errors():
                if any(map(_is_undefined, errors)):
                    raise no_training_jobs() from errors[0]
                raise errors[0]
            if self._clock.monotonic_s() > until_s:
                kinds = ", ".join(sorted({source.kind for source in self.missing}))
                raise NotReadyError(f"the cluster did not list {kinds} within {timeout_s:.0f} s")


class Controller:
    """Looks after training jobs until it is told to stop.

    Args:
        cluster: the cluster; it should fail rather than wait, since a write must not come late.
        settings: how it is run.
        clock: tells the time.
        log: told in one line what happens to the controller itself.
        observer: told how it fares.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ControllerSettings,
        *,
        clock: LoopClock,
        log: Callable[[str], None],
        observer: Observer | None = None,
    ) -> None:
        self._cluster, self._settings, self._clock, self._log = cluster, settings, clock, log
        self._observer = observer
        self._trouble = Backoff(*_TROUBLE_MS)
        self._watch_errors: set[str] = set()
        self._deaf_since_s: float | None = None
        lease = Lease(
            cluster=cluster,
            namespace=settings.lease_namespace,
            name=settings.lease_name,
            holder=settings.identity,
            now_s=clock.now_s,
            duration_s=DURATION_S,
        )
        self._elector = LeaderElector(lease, clock.monotonic_s, log, settings.is_gone)

    def run(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Go on until `is_over`, or until an exception such as KeyboardInterrupt; then free the lease."""
        requeue = RequeuePolicy(tick_ms=self._settings.tick_ms)
        reconciler: Reconciler | None = None
        with self._running() as (synced, writers, askers):
            if not self._settings.is_dry:
                self._elector.start()
            while not is_over():
                if synced.update(timeout_s=self._pause_s(synced, requeue, reconciler)):
                    requeue.changed(self._now_ms())
                self._report_watches(synced.informer.errors())
                is_leading = self._settings.is_dry or self._elector.is_leading
                if self._observer is not None:
                    self._observer.observe_loop(is_leading=is_leading, is_synced=synced.is_synced)
                if not (is_leading and synced.is_synced):
                    reconciler = None
                elif reconciler is None:
                    # What another leader did meanwhile is known; what this one remembered is out of date.
                    reconciler = self._reconciler(synced, writers, askers)
                    requeue = RequeuePolicy(tick_ms=self._settings.tick_ms)
                is_held = self._is_held(synced)
                if reconciler is not None and requeue.is_due(self._now_ms()) and not is_held:
                    self._pass(reconciler, requeue)

    def once(self, *, timeout_s: float = 60.0) -> Pass:
        """Do one pass as the leader, and free the lease.

        Raises:
            LockedError: another controller leads.
            NotFoundError: the cluster has no training jobs.
            NotReadyError: the cluster did not tell all there is in time.
            ClusterError: the cluster does not answer or refuses.
        """
        with self._running() as (synced, writers, askers):
            synced.wait_until_synced(timeout_s=timeout_s)
            if not self._settings.is_dry:
                self._elector.attempt()
                if not self._elector.is_leading:
                    raise self._elector.error or LockedError(
                        "another controller leads", hint="it does the work; `mlstack elastic plan` only looks"
                    )
            return self._reconciler(synced, writers, askers).reconcile(self._now_ms())

    @contextmanager
    def _running(self) -> Iterator[tuple[SyncedCache, ThreadPoolExecutor, ThreadPoolExecutor]]:
        """Give what it knows, what writes and what asks; at the end all stops, and the lease is free.

        What asks may wait for a server while what writes does not.
        """
        synced = SyncedCache(self._cluster, self._settings, self._clock)
        synced.informer.start()
        writers = ThreadPoolExecutor(WRITERS, thread_name_prefix="write")
        askers = ThreadPoolExecutor(WRITERS, thread_name_prefix="ask")
        try:
            yield synced, writers, askers
        finally:
            synced.informer.stop()
            self._elector.stop()
            for pool in (writers, askers):
                pool.shutdown(wait=False, cancel_futures=True)

    def _reconciler(
        self, synced: SyncedCache, writers: ThreadPoolExecutor, askers: ThreadPoolExecutor
    ) -> Reconciler:
        return Reconciler(
            FencedClient(self._cluster, self._elector.check, lambda ref: None),
            synced.cache,
            self._settings.policy,
            transitions=lambda: self._elector.transitions,
            run=lambda works: _run_in(writers, works, timeout_s=None),
            ask=lambda works: _run_in(askers, works, timeout_s=_PATIENCE_S),
            instance=self._settings.identity,
            is_dry=self._settings.is_dry,
            monotonic_s=self._clock.monotonic_s,
        )

    def _pass(self, reconciler: Reconciler, requeue: RequeuePolicy) -> None:
        now_ms, begun_s = self._now_ms(), self._clock.monotonic_s()
        try:
            done = reconciler.reconcile(now_ms)
        except NotLeadingError:
            requeue.started(now_ms)
        except ClusterError as error:
            self._trouble.fail(now_ms)
            if self._observer is not None:
                self._observer.observe_failure(error)
            self._log(f"{error.message}; trying again")
            requeue.started(self._trouble.until_ms - requeue.tick_ms)
        else:
            requeue.started(now_ms, done.next_ms)
            if self._observer is not None:
                self._observer.observe_pass(done, seconds=self._clock.monotonic_s() - begun_s)
            for action, refusal in done.refused:
                self._log(f"{action} refused: {refusal}")

    def _report_watches(self, errors: Sequence[MlstackError]) -> None:
        """Say which watches do not go on, each once."""
        texts = {str(error) for error in errors}
        for text in sorted(texts - self._watch_errors):
            self._log(f"a watch does not go on: {text}")
        if self._watch_errors and not texts:
            self._log("all watches go on")
        self._watch_errors = texts

    def _is_held(self, synced: SyncedCache) -> bool:
        """Tell whether a pass had better wait until a watch that broke off is back."""
        if not synced.informer.is_deaf:
            self._deaf_since_s = None
            return False
        if self._deaf_since_s is None:
            self._deaf_since_s = self._clock.monotonic_s()
        return self._clock.monotonic_s() - self._deaf_since_s < _DEAF_S

    def _pause_s(self, synced: SyncedCache, requeue: RequeuePolicy, reconciler: Reconciler | None) -> float:
        if reconciler is None or not synced.is_synced:
            return _SHORT_GLANCE_S
        least_s = _DEAF_GLANCE_S if self._deaf_since_s is not None else 0.0
        return min(_GLANCE_S, max(least_s, (requeue.next_ms() - self._now_ms()) / 1000))

    def _now_ms(self) -> int:
        return round(self._clock.now_s() * 1000)


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


def _is_undefined(error: MlstackError) -> bool:
    return isinstance(error, ObjectNotFoundError) and error.what == "kind" and f"`{KIND}`" in error.message
