"""Carry out changes: one loop over what nothing blocks any more, many at a time; what was done is kept."""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from graphlib import TopologicalSorter
from math import inf
from queue import Empty, SimpleQueue
from threading import Event, Lock
from typing import Any

from mlstack.clock import Clock
from mlstack.dataclass import Record
from mlstack.deploy.changes import OUTCOMES, Change, OnEvent, RunEvent, RunEventKind
from mlstack.deploy.live import DiffContext
from mlstack.deploy.wait import Barriers
from mlstack.deploy.write import WEBHOOK_S, DeletionWatcher, Gone, ObjectWriter, Steps
from mlstack.errors import ForbiddenError, LockedError, MlstackError, NotReadyError, UnreachableError
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, GuardedClient, Patience
from mlstack.kube.parallel import GRACE_S, WORKERS
from mlstack.objects import order
from mlstack.objects.kube_object import Identity, KubeObject
from mlstack.objects.order import Barrier, Dependency, Depends, Graph, GraphNode
from mlstack.readiness.rule import ReadinessState

_MOST_WAITERS = 64
_BINDING: frozenset[Dependency] = frozenset({"user", "needs"})
# Whoever is done finds the next one waiting, not this thread still looking for it.
_AHEAD = 2 * WORKERS
_STOPPED = "stopped while waiting"


class Run:
    """One run over a cluster: does changes and remembers how each ended.

    `outcomes` are the events that ended objects, `written` what the server answered for those that were
    written, `standings` how they stood when the wait for them ended. `context` serves to diff objects again
    that moved since their change was worked out; texts of `secrets` stand in no reason; `timeout_s` is how
    long anything is waited for at most, None for what is usual for each thing; with `fail_fast` nothing is
    begun any more once an object has failed. `on_event` is told about each object, by one thread at a time.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        clock: Clock,
        on_event: OnEvent,
        context: DiffContext | None = None,
        secrets: Sequence[str] = (),
        timeout_s: float | None = None,
        fail_fast: bool = False,
    ) -> None:
        self.outcomes: dict[Identity, RunEvent] = {}
        self.written: dict[Identity, Mapping[str, Any]] = {}
        self.standings: dict[Identity, ReadinessState] = {}
        self.stopped = Event()
        self._begun: dict[Identity, Change] = {}
        self._on_event, self._lock, self._closed = on_event, Lock(), False
        self.clock, self._clock = clock, _StoppedClock(clock, self.stopped)
        self._context, self._timeout_s = context, timeout_s
        self._limit_s = inf if timeout_s is None else timeout_s
        self._secrets, self._fail_fast = secrets, fail_fast
        # For what is done without the lock, or after somebody has ended the run.
        self.unfenced = self._patient(cluster, clock, webhook_s=WEBHOOK_S)
        self.use(cluster)

    def use(self, cluster: Cluster) -> None:
        """Write through another view of the cluster from now on, as one that a lock fences."""
        self.cluster = self._patient(cluster, self._clock)
        context = replace(self._context, cluster=self.cluster) if self._context else None
        self.writer = ObjectWriter(
            self.cluster, clock=self._clock, tell=self.tell, context=context, timeout_s=self._limit_s
        )
        resolved = self._context.resolved if self._context else None
        self.barriers = Barriers(
            cluster=self.cluster,
            clock=_StoppedClock(self._clock, self.stopped, ends=True),
            on_event=self.tell,
            timeout_s=self._timeout_s,
            component_s=resolved.state.timeouts if resolved else None,
            rules=resolved.rules if resolved else None,
            secrets=self._secrets,
        )

    @property
    def records(self) -> Cluster:
        """Give the cluster for what is kept of the environment: webhooks that start are waited for."""
        return self._patient(self.cluster, self._clock, webhook_s=WEBHOOK_S)

    def _patient(self, cluster: Cluster, clock: Clock, *, webhook_s: float = 0.0) -> Cluster:
        """Give a cluster that is waited for while it does not answer, no longer than for anything else."""
        patience = Patience(
            clock,
            lambda text: self.tell(RunEvent("pending", None, text)),
            answered=True,
            webhook_s=webhook_s,
            timeout_s=self._limit_s,
            remind=lambda text: self.tell(RunEvent("still", None, text)),
        )
        return GuardedClient(cluster, patience=patience)

    def left(self, changes: Sequence[Change]) -> list[Change]:
        """Give those of some changes that are not done yet."""
        return [change for change in changes if change.identity not in self.outcomes]

    def apply(self, changes: Sequence[Change], depends: Depends | None = None) -> None:
        """Write what is wanted, each object as soon as what it depends on is done; what is done is left out.

        Raises:
            MlstackError: objects failed, and what depends on them was skipped; all the others were done.
        """
        left = self.left(changes)
        self._go(Work(self, order.graph([change.subject for change in left], depends), left))

    def delete(
        self,
        changes: Sequence[Change],
        depends: Depends | None = None,
        *,
        grace_period_s: int | None = None,
        wait: bool = True,
    ) -> None:
        """Delete in reverse order; what depends on an object is gone before it goes.

        Without `wait` the run goes on with what comes after an object before that is gone.

        Raises:
            MlstackError: as `apply`.
        """
        left = self.left(changes)
        graph = order.graph([change.subject for change in left], depends, strict=False).reversed()
        self._go(Work(self, graph, left, deletes=True, grace_period_s=grace_period_s, wait=wait))

    def _go(self, work: Work) -> None:
        deletions = DeletionWatcher(
            self.cluster, clock=self._clock, on_event=self.tell, timeout_s=self._timeout_s
        )
        schedule = Schedule(work.graph, work, deletions, self.stopped, fail_fast=self._fail_fast)
        try:
            schedule.run()
        except KeyboardInterrupt:
            for change in list(self._begun.values()):
                self.end("failed", change, "interrupted before the API server answered")
            with self._lock:  # what comes later is not heard any more
                self._closed = True
            raise
        finally:
            deletions.close()
        if schedule.failures:  # refusals of the cluster say more than what was not ready in time
            failures = sorted(schedule.failures, key=lambda error: isinstance(error, NotReadyError))
            joined = parallel.together(failures)
            joined.where = ", ".join(sorted({error.where for error in failures if error.where})) or None
            raise joined

    def begin(self, change: Change) -> None:
        """Remember that a change is under way."""
        self._begun[change.identity] = change

    def end(self, kind: RunEventKind, change: Change, text: str) -> None:
        """Remember how a change ended, and tell of it."""
        event = RunEvent(kind, change.identity, text)
        with self._lock:
            if not self._closed:
                self._begun.pop(change.identity, None)
                self.outcomes[change.identity] = event
                self._on_event(event)

    def fail(self, change: Change, error: BaseException) -> None:
        """Remember the failure of a change, and how far it had come."""
        progress = self.writer.progress.get(change.identity, "")
        if isinstance(error, MlstackError):
            if error.where is None and change.component:
                error.where = f"component {change.component}"
            name = f"`{change.identity}`"  # its line begins with it
            text = error.message.removeprefix(f"{name}: ").removeprefix(f"{name} ")
            self.end("failed", change, progress + text)
        elif isinstance(error, KeyboardInterrupt) and progress:
            self.end("failed", change, f"{progress}interrupted")

    def tell(self, event: RunEvent) -> None:
        """Tell of something, unless a person has ended the run; one thread at a time."""
        with self._lock:
            if not self._closed:
                self._on_event(event)


# --- what is done at the nodes of a graph, by several threads at once ---


class Work:
    """Writes or deletes objects; waits at the barriers behind which any object is written."""

    def __init__(
        self,
        run: Run,
        graph: Graph,
        changes: Sequence[Change],
        *,
        deletes: bool = False,
        grace_period_s: int | None = None,
        wait: bool = True,
    ) -> None:
        self.graph = graph
        self._run, self._changes = run, {change.identity: change for change in changes}
        self._deletes, self._grace_period_s, self._wait = deletes, grace_period_s, wait
        # A failure skips what comes after it along these. What could not be deleted may need all that was
        # written before it: a controller to clear its finalizers.
        self.binding = _BINDING | {"wave"} if deletes else _BINDING
        self._behind: dict[GraphNode, list[Change]] = {}
        for node in graph.objects if not deletes else ():
            for before in graph.before[node]:
                self._behind.setdefault(before, []).append(self._changes[node])

    def is_idle(self, node: GraphNode) -> bool:
        """Tell whether a node takes no time: it is done at once, where it stands."""
        if isinstance(node, Barrier):
            return node.kind == "wave" or not self._concerned(node)
        return not self._changes[node].writes

    def steps(self, node: GraphNode) -> Steps:
        """Do one node; between two steps an object has to be gone, which takes no thread."""
        run = self._run
        if isinstance(node, Barrier):
            members = [self._changes[key] for key in node.members if key in self._changes]
            if not self.is_idle(node) and (objects := _applied(members)):
                run.barriers.ready(str(node), objects)
            if not self.is_idle(node) and node.kind == "endpoint" and node.about is not None:
                run.barriers.endpoint(node.about, _applied(self._concerned(node)))
            return
        change = self._changes[node]
        if not change.writes:
            run.end("unchanged" if change.action == "unchanged" else "kept", change, change.reason)
            return
        run.begin(change)
        try:
            if self._deletes:
                ended, text = yield from run.writer.delete(
                    change, grace_period_s=self._grace_period_s, wait=self._wait
                )
                run.end(ended, change, text)
                return
            applied = yield from run.writer.write(change)
        except BaseException as error:
            run.fail(change, error)
            raise
        run.written[node] = applied.object
        for text in applied.warnings:
            run.tell(RunEvent("warning", node, text))
        run.end(OUTCOMES.get(change.action, "unchanged"), change, "; ".join(change.notes))

    def skip(self, node: GraphNode, why: str) -> None:
        """Take note that a node is not done."""
        if not isinstance(node, Barrier):
            self._run.end("skipped", self._changes[node], why)

    def because(self, node: GraphNode, end: str, after: GraphNode) -> str:
        """Give the reason to skip `after`: what it depends on, and how that ended."""
        if self._deletes:
            return f"`{node}`, which goes before it, {'was not deleted' if end == 'failed' else end}"
        if isinstance(after, Barrier) and after.kind == "component" and not isinstance(node, Barrier):
            return f"depends on {after}, where `{node}` {end}"
        return f"depends on {node if isinstance(node, Barrier) else f'`{node}`'}, which {end}"

    def _concerned(self, barrier: Barrier) -> list[Change]:
        # A webhook that is there already is asked now, whether its Service answers or not.
        is_endpoint = barrier.kind == "endpoint"
        return [
            change
            for change in self._behind.get(barrier, ())
            if change.writes and (not is_endpoint or change.action in ("create", "recreate"))
        ]


def _applied(changes: Sequence[Change]) -> list[KubeObject]:
    return [change.desired for change in changes if change.desired is not None and change.action != "missing"]


# --- the loop ---


class _News(Record):
    """What became of a node: it ended (well, or with an error), waits for an object, or may go on."""

    node: GraphNode
    gone: Gone | None = None
    error: BaseException | None = None
    goes_on: bool = False
    ends_all: bool = False


class Schedule:
    """One way through a graph; what failed is in `failures`, and nothing is begun once `stopped` is set.

    What does not depend on a failure is done all the same, but for `fail_fast`.
    """

    def __init__(
        self, graph: Graph, work: Work, deletions: DeletionWatcher, stopped: Event, *, fail_fast: bool = False
    ) -> None:
        self._graph, self._work, self._deletions, self._stopped = graph, work, deletions, stopped
        self._fail_fast = fail_fast
        self._numbers = {node: number for number, node in enumerate(graph.nodes)}
        self._sorter = TopologicalSorter(graph.before)
        self._sorter.prepare()
        self._next: list[int] = []  # what nothing blocks
        self._news: SimpleQueue[_News] = SimpleQueue()
        self._parked: dict[GraphNode, Steps] = {}
        self._running: set[GraphNode] = set()
        self._working: set[GraphNode] = set()
        self._writing = 0
        self._ends: dict[GraphNode, str] = {}
        self._handed_on: dict[GraphNode, str] = {}
        self.failures: list[MlstackError] = []

    def run(self) -> None:
        """Do everything that can be done.

        Raises:
            MlstackError: nothing can go on: no server, no credentials, no lock. What had begun was finished.
            KeyboardInterrupt: likewise; what had begun got `GRACE_S` to end.
        """
        slow = sum(isinstance(node, Barrier) and not self._work.is_idle(node) for node in self._numbers)
        self._writers = ThreadPoolExecutor(WORKERS, thread_name_prefix="mlstack-write")
        self._waiters = ThreadPoolExecutor(min(slow, _MOST_WAITERS) or 1, thread_name_prefix="mlstack-wait")
        interrupted = False
        try:
            while self._begin():
                self._take(self._news.get())
        except BaseException as error:  # whatever it is, the others must not go on
            self._stopped.set()
            interrupted = isinstance(error, KeyboardInterrupt)
            if interrupted:
                self._shut(wait=False)
                # What has begun gets time to end, even if a person interrupted while it was handed over.
                deadline = time.monotonic() + GRACE_S
                while self._working and (left_s := deadline - time.monotonic()) > 0:
                    with suppress(Empty):
                        self._news.get(timeout=left_s)
            raise
        finally:
            if not interrupted:
                self._shut(wait=True)
            for steps in list(self._parked.values()):  # what still waits for an object to be gone
                with suppress(MlstackError, StopIteration):
                    steps.throw(MlstackError(_STOPPED))

    def _shut(self, *, wait: bool) -> None:
        for pool in (self._writers, self._waiters):
            pool.shutdown(wait=wait, cancel_futures=True)

    def _begin(self) -> bool:
        """Begin what nothing blocks; tell whether anything is under way."""
        while self._writing < _AHEAD:
            for node in self._sorter.get_ready():
                heapq.heappush(self._next, self._numbers[node])
            if not self._next:
                break
            node = self._graph.nodes[heapq.heappop(self._next)]
            needed = [other for other, bond in self._graph.before[node].items() if bond in self._work.binding]
            failed = next((before for before in needed if before in self._ends), None)
            if failed is not None or (self._fail_fast and self.failures):
                why = "another object failed before"
                if failed is not None:
                    why = self._handed_on.get(failed) or self._work.because(failed, self._ends[failed], node)
                self._ends[node] = "was skipped"
                if isinstance(node, Barrier):  # nobody knows it by name
                    self._handed_on[node] = why
                self._work.skip(node, why)
                self._sorter.done(node)
            elif self._work.is_idle(node):
                for _ in self._work.steps(node):
                    raise AssertionError(f"{node} waits for a deletion although it is idle")
                self._sorter.done(node)
            else:
                self._running.add(node)
                self._hand_over(node)
        return bool(self._running)

    def _hand_over(self, node: GraphNode, error: MlstackError | None = None) -> None:
        self._writing += not isinstance(node, Barrier)
        pool = self._waiters if isinstance(node, Barrier) else self._writers
        pool.submit(self._attempt, node, error)

    def _attempt(self, node: GraphNode, error: MlstackError | None) -> None:
        self._working.add(node)
        try:
            steps = self._parked.pop(node, None)
            if self._stopped.is_set():
                error = MlstackError(_STOPPED if steps is not None else "not begun")
                if steps is None:
                    raise error
            steps = steps or self._work.steps(node)
            gone = next(steps) if error is None else steps.throw(error)
            if self._stopped.is_set():
                steps.throw(MlstackError(_STOPPED))
            self._parked[node] = steps
            news = _News(node=node, gone=gone)
        except StopIteration:
            news = _News(node=node)
        except BaseException as failed:
            is_login = isinstance(failed, ForbiddenError) and failed.why == "credentials"
            ends_all = is_login or isinstance(failed, UnreachableError | LockedError)
            news = _News(node=node, error=failed, ends_all=ends_all)
        self._working.discard(node)
        self._news.put(news)
        if news.ends_all:  # this thread begins no other one
            self._stopped.set()

    def _take(self, news: _News) -> None:
        node, error = news.node, news.error
        if news.goes_on:
            self._hand_over(node, error if isinstance(error, MlstackError) else None)
            return
        self._writing -= not isinstance(node, Barrier)
        if news.gone is not None:  # others go on meanwhile
            put = self._news.put
            self._deletions.wait(news.gone, lambda late: put(_News(node=node, error=late, goes_on=True)))
            return
        self._running.discard(node)
        if error is not None:
            if news.ends_all or not isinstance(error, MlstackError):  # no other object can fare better
                raise error
            self.failures.append(error)
            self._ends[node] = "is not ready" if isinstance(node, Barrier) else "failed"
        self._sorter.done(node)


class _StoppedClock:
    """A clock on which nobody waits any more once the run is stopped; with `ends` nobody reads it either."""

    def __init__(self, clock: Clock, stopped: Event, *, ends: bool = False) -> None:
        self._clock, self._stopped, self._ends = clock, stopped, ends

    def now_s(self) -> float:
        if self._ends and self._stopped.is_set():
            raise MlstackError(_STOPPED)
        return self._clock.now_s()

    def sleep(self, seconds: float) -> None:
        if self._stopped.is_set():
            raise MlstackError(_STOPPED)
        self._clock.sleep(seconds)
