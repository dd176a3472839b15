"""When the controller looks again: soon after something happened, and now and then in any case."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from mlstack.elastic.controller.cache import ClusterCache
from mlstack.elastic.controller.informer import Informer, News
from mlstack.elastic.controller.jobs import BUDGET, SERVICE
from mlstack.elastic.controller.leader import DURATION_S, LeaderElector, NotLeadingError
from mlstack.elastic.controller.memory import Backoff
from mlstack.elastic.controller.reconciler import Pass, Reconciler
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
from mlstack.kube.client import Cluster, WatchEvent
from mlstack.kube.lease import Lease
from mlstack.kube.retrying import FencedClient
from mlstack.kube.watch import Listed, WatchSource

# --- When the controller looks again: soon after something happened, and now and then in any case ---

DEBOUNCE_MS = 1_000
TICK_MS = 5_000


@dataclass(kw_only=True)
class RequeuePolicy:
    """Says when the next pass is due; the same rule on a real clock and on a simulated one."""

    debounce_ms: int = DEBOUNCE_MS  # how long news are gathered, from the first of them
    tick_ms: int = TICK_MS  # longest time between two passes
    _heard_ms: int | None = None
    _passed_ms: int | None = None
    _due_ms: int | None = None

    def heard(self, now_ms: int) -> None:
        """Note that something happened."""
        if self._heard_ms is None:
            self._heard_ms = now_ms

    def passed(self, now_ms: int, due_ms: int | None = None) -> None:
        """Note that a pass has begun, with all that was heard before it."""
        self._heard_ms, self._passed_ms, self._due_ms = None, now_ms, due_ms

    def next_ms(self) -> int:
        """Give when the next pass is due: 0, which is at once, before the first."""
        if self._passed_ms is None:
            return 0
        due = [self._passed_ms + self.tick_ms]
        if self._heard_ms is not None:
            due.append(self._heard_ms + self.debounce_ms)
        if self._due_ms is not None:
            due.append(max(self._due_ms, self._passed_ms + 1))
        return min(due)

    def is_due(self, now_ms: int) -> bool:
        """Tell whether a pass is due."""
        return now_ms >= self.next_ms()


# --- How a controller is run: what people may set on its command line ---

LEASE_NAME = "mlstack-elastic"
LEASE_NAMESPACE = "mlstack-system"


@dataclass(frozen=True, kw_only=True)
class ControllerSettings:
    """How a controller is run."""

    policy: PolicyConfig = field(default_factory=PolicyConfig)  # settings of the policy
    grants: PriorityGrants = field(default_factory=PriorityGrants)  # which priorities jobs may have
    namespaces: tuple[str, ...] = ()  # where jobs are looked after; empty for everywhere
    identity: str  # name of this process; no other has it
    # tells whether another process certainly runs no more, by its name
    is_gone: Callable[[str], bool] = lambda name: False
    lease_namespace: str = LEASE_NAMESPACE  # where the Lease is
    lease_name: str = LEASE_NAME  # name of the Lease
    tick_ms: int = TICK_MS  # longest time between two passes
    is_dry: bool = False  # work everything out, write nothing, lead nobody


# --- The controller as it runs: watches wake it, a lease lets it write, each pass does what is left
# to do

WRITERS = 8
"""Writes at once: with 20 ms each this is more than an API server of two cores takes."""

# While nothing is due the loop looks so often whether it leads, and more often while it waits to.
_GLANCE_S = 1.0
_SHORT_GLANCE_S = 0.2
_FIRST_PAUSE_MS = 1_000
_LONGEST_PAUSE_MS = 30_000
_DEAF_GLANCE_S = 0.1
# While a watch is broken nothing is decided, since half of the news may be missing; but not for ever.
_DEAF_S = 30.0
_AROUND = (SERVICE, BUDGET, ("apps/v1", "StatefulSet"))
_PATIENCE_S = 1.0  # others have to be looked after while an admission webhook takes its time


class LoopClock(Protocol):
    """Tells two times."""

    def now_s(self) -> float:
        """Give the seconds since 1970."""
        ...

    def monotonic_s(self) -> float:
        """Give a time that never goes back, in seconds."""
        ...


class Watcher(Protocol):
    """Is told how the controller fares, for metrics and probes."""

    def looked(self, *, is_leading: bool, is_synced: bool) -> None:
        """Take note that the loop goes round."""
        ...

    def passed(self, found: Pass, *, seconds: float) -> None:
        """Take note of a pass."""
        ...

    def failed(self, error: Exception) -> None:
        """Take note of a pass that failed."""
        ...


@dataclass
class Nobody:
    """Is told and does nothing."""

    def looked(self, *, is_leading: bool, is_synced: bool) -> None:
        """Take no note."""

    def passed(self, found: Pass, *, seconds: float) -> None:
        """Take no note."""

    def failed(self, error: Exception) -> None:
        """Take no note."""


def sources(namespaces: Sequence[str]) -> tuple[WatchSource, ...]:
    """Give what is watched: jobs and their own where they are looked after, nodes and pods everywhere.

    Pods of other namespaces take room too.
    """
    places: Sequence[str | None] = namespaces or (None,)
    return (
        WatchSource("scheduling.k8s.io/v1", "PriorityClass"),
        WatchSource("v1", "Node"),
        *(WatchSource(*kind, place, JOB_LABEL) for kind in _AROUND for place in places),
        *(WatchSource("v1", "ResourceQuota", place) for place in places),
        *(WatchSource(API_VERSION, KIND, place) for place in places),
        WatchSource("v1", "Pod"),
    )


@dataclass
class Knowledge:
    """The world with what feeds it."""

    listener: Informer  # the watches
    world: ClusterCache = field(default_factory=ClusterCache)  # what they told
    missing: set[WatchSource] = field(default_factory=set)  # what has not been told in full yet

    @classmethod
    def of(cls, cluster: Cluster, settings: ControllerSettings, clock: LoopClock) -> Knowledge:
        """Begin to watch."""
        wanted = sources(settings.namespaces)
        listener = Informer(cluster, wanted, clock.monotonic_s)
        found = cls(listener, ClusterCache(settings.grants), set(wanted))
        found.listener.start()
        return found

    @property
    def is_synced(self) -> bool:
        """Tell whether everything there is has been told once."""
        return not self.missing

    def learn(self, *, timeout_s: float) -> bool:
        """Take in what has happened, waiting so long for something; says whether there was any news."""
        return any([self._hear(news) for news in self.listener.news(timeout_s=timeout_s)])

    def _hear(self, news: News) -> bool:
        if isinstance(news, WatchEvent):
            return self.world.hear(news)
        return self._heard_all(news)

    def _heard_all(self, listed: Listed) -> bool:
        was_missing = listed.source in self.missing
        self.missing.discard(listed.source)
        source = listed.source
        keys = frozenset(f"{ref.namespace}/{ref.name}" if ref.namespace else ref.name for ref in listed.refs)
        is_news = self.world.keep(source.kind, keys, listed.version, namespace=source.namespace)
        return is_news or was_missing


class Pools(NamedTuple):
    """Threads of a controller: what asks may wait for a server while what writes does not."""

    writing: ThreadPoolExecutor
    asking: ThreadPoolExecutor


class Controller:
    """Looks after training jobs until it is told to stop."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ControllerSettings,
        *,
        clock: LoopClock,
        told: Callable[[str], None],
        watcher: Watcher | None = None,
    ) -> None:
        self._cluster, self._settings, self._clock, self._told = cluster, settings, clock, told
        self._watcher = watcher or Nobody()
        self._trouble = Backoff(_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS)
        self._complaints: set[str] = set()
        self._deaf_since_s: float | None = None
        lease = Lease(
            cluster=cluster,
            namespace=settings.lease_namespace,
            name=settings.lease_name,
            holder=settings.identity,
            now_s=clock.now_s,
            duration_s=DURATION_S,
        )
        self._leadership = LeaderElector(lease, clock.monotonic_s, told, settings.is_gone)

    def run(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Go on until `is_over`, or until an exception such as KeyboardInterrupt; then free the lease."""
        pace = RequeuePolicy(tick_ms=self._settings.tick_ms)
        reconciler: Reconciler | None = None
        with self._at_work() as (known, pools):
            if not self._settings.is_dry:
                self._leadership.start()
            while not is_over():
                if known.learn(timeout_s=self._patience_s(known, pace, reconciler)):
                    pace.heard(self._now_ms())
                self._complain(known.listener.errors())
                is_leading = self._settings.is_dry or self._leadership.is_leading
                self._watcher.looked(is_leading=is_leading, is_synced=known.is_synced)
                if not (is_leading and known.is_synced):
                    reconciler = None
                elif reconciler is None:
                    # What another leader did meanwhile is known; what this one remembered is out of date.
                    reconciler, pace = (
                        self._reconciler(known, pools),
                        RequeuePolicy(tick_ms=self._settings.tick_ms),
                    )
                is_held = self._is_held(known)
                if reconciler is not None and pace.is_due(self._now_ms()) and not is_held:
                    self._pass(reconciler, pace)

    def once(self, *, timeout_s: float = 60.0) -> Pass:
        """Do one pass as the leader, and free the lease.

        Raises:
            LockedError: another controller leads.
            NotFoundError: the cluster has no training jobs.
            NotReadyError: the cluster did not tell all there is in time.
            ClusterError: the cluster does not answer or refuses.
        """
        with self._at_work() as (known, pools):
            wait_until_synced(known, self._clock, timeout_s=timeout_s)
            if not self._settings.is_dry:
                self._leadership.attempt()
                if not self._leadership.is_leading:
                    raise self._leadership.error or LockedError(
                        "another controller leads", hint="it does the work; `mlstack elastic plan` only looks"
                    )
            return self._reconciler(known, pools).step(self._now_ms())

    @contextmanager
    def _at_work(self) -> Iterator[tuple[Knowledge, Pools]]:
        """Give what it knows, what writes and asks for it; at the end all stops, and the lease is free."""
        known = Knowledge.of(self._cluster, self._settings, self._clock)
        pools = Pools(
            writing=ThreadPoolExecutor(WRITERS, thread_name_prefix="write"),
            asking=ThreadPoolExecutor(WRITERS, thread_name_prefix="ask"),
        )
        try:
            yield known, pools
        finally:
            known.listener.stop()
            self._leadership.stop()
            for pool in pools:
                pool.shutdown(wait=False, cancel_futures=True)

    def _reconciler(self, known: Knowledge, pools: Pools) -> Reconciler:
        def side_by_side(works: Sequence[Callable[[], None]]) -> None:
            futures = [pools.writing.submit(work) for work in works]
            wait(futures)
            for future in futures:
                future.result()

        def for_a_moment(works: Sequence[Callable[[], None]]) -> None:
            futures = [pools.asking.submit(work) for work in works]
            for future in wait(futures, timeout=_PATIENCE_S).done:
                future.result()

        return Reconciler(
            FencedClient(self._cluster, self._leadership.check, lambda ref: None),
            known.world,
            self._settings.policy,
            transitions=lambda: self._leadership.transitions,
            run=side_by_side,
            ask=for_a_moment,
            instance=self._settings.identity,
            is_dry=self._settings.is_dry,
            monotonic_s=self._clock.monotonic_s,
        )

    def _pass(self, reconciler: Reconciler, pace: RequeuePolicy) -> None:
        now_ms = self._now_ms()
        begun_s = self._clock.monotonic_s()
        try:
            found = reconciler.step(now_ms)
        except NotLeadingError:
            pace.passed(now_ms)
        except ClusterError as error:
            self._trouble.fail(now_ms)
            self._watcher.failed(error)
            self._told(f"{error.message}; trying again")
            pace.passed(self._trouble.until_ms - pace.tick_ms)
        else:
            pace.passed(now_ms, found.next_ms)
            self._watcher.passed(found, seconds=self._clock.monotonic_s() - begun_s)
            for refused in found.refused:
                self._told(f"{refused.action} refused: {refused.error}")

    def _complain(self, errors: Sequence[MlstackError]) -> None:
        """Say which watches do not go on, each once."""
        texts = {str(error) for error in errors}
        for text in sorted(texts - self._complaints):
            self._told(f"a watch does not go on: {text}")
        if self._complaints and not texts:
            self._told("all watches go on")
        self._complaints = texts

    def _is_held(self, known: Knowledge) -> bool:
        """Tell whether a pass had better wait until a watch that broke off is back."""
        if not known.listener.is_deaf:
            self._deaf_since_s = None
            return False
        if self._deaf_since_s is None:
            self._deaf_since_s = self._clock.monotonic_s()
        return self._clock.monotonic_s() - self._deaf_since_s < _DEAF_S

    def _patience_s(self, known: Knowledge, pace: RequeuePolicy, reconciler: Reconciler | None) -> float:
        if reconciler is None or not known.is_synced:
            return _SHORT_GLANCE_S
        least_s = _DEAF_GLANCE_S if self._deaf_since_s is not None else 0.0
        return min(_GLANCE_S, max(least_s, (pace.next_ms() - self._now_ms()) / 1000))

    def _now_ms(self) -> int:
        return round(self._clock.now_s() * 1000)


def wait_until_synced(known: Knowledge, clock: LoopClock, *, timeout_s: float) -> None:
    """Return once everything there is has been told.

    Raises:
        NotFoundError: the cluster has no training jobs.
        NotReadyError: the time is up.
        MlstackError: a watch cannot begin.
    """
    until_s = clock.monotonic_s() + timeout_s
    while not known.is_synced:
        known.learn(timeout_s=0.2)
        errors: list[MlstackError] = known.listener.errors()
        if errors:
            if any(map(_is_undefined, errors)):
                raise no_training_jobs() from errors[0]
            raise errors[0]
        if clock.monotonic_s() > until_s:
            missing = ", ".join(sorted({source.kind for source in known.missing}))
            raise NotReadyError(f"the cluster did not list {missing} within {timeout_s:.0f} s")


def no_training_jobs() -> NotFoundError:
    """Give what is said of a cluster without their definition."""
    return NotFoundError(
        "the cluster has no training jobs: the definition of their kind is not there",
        hint="mlstack generate elastic-controller NAME, then mlstack apply ENV",
    )


def _is_undefined(error: MlstackError) -> bool:
    return isinstance(error, ObjectNotFoundError) and error.what == "kind" and f"`{KIND}`" in error.message
