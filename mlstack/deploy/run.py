"""Run a graph of work: each node as soon as what it depends on is done, many at a time."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from threading import Event, Lock
from threading import Event as Flag
from typing import Any

from mlstack.app.app import ReadyRules
from mlstack.clock import Clock
from mlstack.deploy.changes import Change
from mlstack.deploy.inventory_store import patient
from mlstack.deploy.wait import Barriers, DeletionWatcher, Gone, Steps, TermsOf, Then
from mlstack.deploy.write import Again, ObjectWriter
from mlstack.errors import ForbiddenError, LockedError, MlstackError, NotReadyError, UnreachableError
from mlstack.events import OnEvent, RunEvent, RunEventKind
from mlstack.kube import parallel
from mlstack.kube.client import Cluster
from mlstack.kube.parallel import GRACE_S, WORKERS
from mlstack.kube.retrying import RetryingClient
from mlstack.objects import order
from mlstack.objects.kube_object import Identity, KubeObject
from mlstack.objects.order import Barrier, Dependency, Depends, Graph, Node
from mlstack.readiness.terms import ReadinessState, Terms, terms_of

# --- Run a graph of work: each node as soon as what it depends on is done, many at a time ---

_MOST_WAITERS = 64
# Whoever is done finds the next one waiting, not this thread still looking for it.
_AHEAD = 2 * WORKERS
_STOPPED = "stopped while waiting"


class Schedule:
    """One way through a graph.

    Args:
        graph: what comes after what.
        work: does one node in steps; several at once.
        wait: calls back once an object is gone; what waits for that takes no thread.
        skipped: told which node is not done, and why.
        is_idle: tells nodes whose work takes no time; they are done at once, where they stand.
        because: gives the reason to skip a node: what it depends on, how that ended, the node itself.
        binding: the bonds along which a failure skips what comes after.
        stopped: set when nothing more is to be begun.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        work: Callable[[Node], Steps],
        wait: Callable[[Gone, Then], None],
        skipped: Callable[[Node, str], None],
        is_idle: Callable[[Node], bool],
        because: Callable[[Node, str, Node], str],
        binding: frozenset[Dependency],
        stopped: Event,
    ) -> None:
        """Begin with nothing done."""
        self._graph, self._work, self._skipped, self._is_idle = graph, work, skipped, is_idle
        self._wait = wait
        self._because, self._binding, self._stopped = because, binding, stopped
        self._numbers = {node: number for number, node in enumerate(graph.nodes)}
        self._open = {node: len(graph.before[node]) for node in graph.nodes}
        self._behind: dict[Node, list[Node]] = {node: [] for node in graph.nodes}
        for node, needed in graph.before.items():
            for one in needed:
                self._behind[one].append(node)
        self._next = [number for number, node in enumerate(graph.nodes) if not self._open[node]]
        heapq.heapify(self._next)
        self._news: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._parked: dict[Node, Steps] = {}
        self._running: set[Node] = set()
        self._working: set[Node] = set()
        self._writing = 0
        self._ends: dict[Node, str] = {}
        self._handed_on: dict[Node, str] = {}
        self.failures: list[MlstackError] = []

    def run(self) -> None:
        """Do everything that can be done; what failed is in `failures`.

        Raises:
            MlstackError: nothing can go on: no server, no credentials, no lock. What had begun was finished.
            KeyboardInterrupt: likewise; what had begun got `GRACE_S` to end.
        """
        gates = sum(isinstance(node, Barrier) and not self._is_idle(node) for node in self._graph.nodes)
        self._writers = ThreadPoolExecutor(max_workers=WORKERS, thread_name_prefix="mlstack-write")
        self._waiters = ThreadPoolExecutor(
            max_workers=min(gates, _MOST_WAITERS) or 1, thread_name_prefix="mlstack-wait"
        )
        interrupted = False
        try:
            while self._begin():
                self._news.get()()
        except BaseException as error:  # whatever it is, the others must not go on
            self._stopped.set()
            interrupted = isinstance(error, KeyboardInterrupt)
            if interrupted:
                self._shut(wait=False)
                self._await_ends()
            raise
        finally:
            if not interrupted:
                self._shut(wait=True)
            self._abandon()

    def _shut(self, *, wait: bool) -> None:
        for pool in (self._writers, self._waiters):
            pool.shutdown(wait=wait, cancel_futures=True)

    def _await_ends(self) -> None:
        """Give what has begun some time to end, even if a person interrupted while it was handed over."""
        deadline = time.monotonic() + GRACE_S
        while self._working and (left_s := deadline - time.monotonic()) > 0:
            with suppress(Empty):
                self._news.get(timeout=left_s)

    def _abandon(self) -> None:
        """End what still waits for an object to be gone."""
        for steps in list(self._parked.values()):
            with suppress(MlstackError, StopIteration):
                steps.throw(MlstackError(_STOPPED))

    def _begin(self) -> bool:
        """Begin what can be begun; tell whether anything is under way."""
        while self._next and self._writing < _AHEAD:
            node = self._graph.nodes[heapq.heappop(self._next)]
            why = self._reason_to_skip(node)
            if why:
                self._skip(node, why)
                self._release(node)
            elif self._is_idle(node):
                for _ in self._work(node):
                    raise AssertionError(f"{node} waits for a deletion although it is idle")
                self._release(node)
            else:
                self._running.add(node)
                self._hand_over(node)
        return bool(self._running)

    def _hand_over(self, node: Node, error: MlstackError | None = None) -> None:
        """Let a thread do the next step of a node."""
        self._writing += not isinstance(node, Barrier)
        pool = self._waiters if isinstance(node, Barrier) else self._writers
        pool.submit(self._attempt, node, error)

    def _attempt(self, node: Node, error: MlstackError | None) -> None:
        self._working.add(node)
        try:
            steps = self._parked.pop(node, None)
            if self._stopped.is_set():
                error = MlstackError(_STOPPED if steps is not None else "not begun")
                if steps is None:
                    raise error
            steps = steps or self._work(node)
            gone = next(steps) if error is None else steps.throw(error)
            if self._stopped.is_set():
                steps.throw(MlstackError(_STOPPED))
            self._parked[node] = steps
            news = partial(self._park, node, gone)
        except StopIteration:
            news = partial(self._end, node, None)
        except MlstackError as failed:
            news = partial(self._end, node, failed)
        except BaseException as fault:
            news = partial(self._end, node, _Fault(fault))
        self._working.discard(node)
        self._news.put(news)

    def _park(self, node: Node, gone: Gone) -> None:
        """Let a node wait for an object to be gone, and go on with others."""
        self._writing -= not isinstance(node, Barrier)
        self._wait(gone, lambda error: self._news.put(partial(self._hand_over, node, error)))

    def _end(self, node: Node, error: MlstackError | None) -> None:
        self._running.discard(node)
        self._writing -= not isinstance(node, Barrier)
        if isinstance(error, _Fault):
            raise error.fault
        if error is not None and _ends_everything(error):
            raise error
        if error is not None:
            self.failures.append(error)
            self._ends[node] = "is not ready" if isinstance(node, Barrier) else "failed"
        self._release(node)

    def _release(self, node: Node) -> None:
        for after in self._behind[node]:
            self._open[after] -= 1
            if not self._open[after]:
                heapq.heappush(self._next, self._numbers[after])

    def _reason_to_skip(self, node: Node) -> str:
        """Say which of the things a node depends on is not done, nothing if it can be done."""
        for one, bond in self._graph.before[node].items():
            if bond in self._binding and one in self._ends:
                return self._handed_on.get(one) or self._because(one, self._ends[one], node)
        return ""

    def _skip(self, node: Node, why: str) -> None:
        self._ends[node] = "was skipped"
        if isinstance(node, Barrier):  # nobody knows it by name
            self._handed_on[node] = why
        self._skipped(node, why)


class _Fault(MlstackError):
    """A bug of ours, on its way from a worker to the caller."""

    def __init__(self, fault: BaseException) -> None:
        super().__init__(str(fault))
        self.fault = fault


def _ends_everything(error: MlstackError) -> bool:
    """Tell whether no other object can fare better."""
    if isinstance(error, ForbiddenError):
        return error.why == "credentials"
    return isinstance(error, UnreachableError | LockedError)


# --- Which gates of a graph a run waits at, and what for ---


class BarrierCrossing:
    """Knows for one run which gates are waited at, and waits there."""

    def __init__(self, graph: Graph, changes: Mapping[Identity, Change], gates: Barriers) -> None:
        self._changes, self._gates = changes, gates
        self._behind: dict[Node, list[Identity]] = {}
        for node in graph.objects:
            for one in graph.before[node]:
                self._behind.setdefault(one, []).append(node)

    def waits(self, gate: Barrier) -> bool:
        """Tell whether anything behind a gate is written for which it matters."""
        return gate.kind != "wave" and bool(self._concerned(gate))

    def wait(self, gate: Barrier) -> None:
        """Return when the gate may be passed.

        Raises:
            NotReadyError: it may not in time, or never.
        """
        members = _wanted(self._changes[one] for one in gate.members if one in self._changes)
        if members:
            self._gates.ready(str(gate), members)
        if gate.kind == "endpoint" and gate.about is not None:
            self._gates.endpoint(gate.about, _wanted(self._concerned(gate)))

    def _concerned(self, gate: Barrier) -> list[Change]:
        behind = [self._changes[one] for one in self._behind.get(gate, ())]
        # A webhook that is there already is asked now, whether its Service answers or not.
        new = ("create", "recreate")
        return [one for one in behind if one.writes and (gate.kind != "endpoint" or one.action in new)]


def _wanted(changes: Iterable[Change]) -> list[KubeObject]:
    return [one.desired for one in changes if one.desired is not None and one.action != "missing"]


# --- Clocks on which nobody waits any longer once a run is stopped ---


class StoppedClock:
    """A clock on which nobody can wait any more once the run is stopped."""

    def __init__(self, clock: Clock, stopped: Event) -> None:
        self._clock, self._stopped = clock, stopped

    def now_s(self) -> float:
        """Give the time in seconds since 1970."""
        return self._clock.now_s()

    def sleep(self, seconds: float) -> None:
        """Let time pass, unless the run is stopped."""
        if self._stopped.is_set():
            raise MlstackError("stopped while waiting")
        self._clock.sleep(seconds)


class EndedClock(StoppedClock):
    """A clock that does not even tell the time once the run is stopped: it ends what only looks."""

    def now_s(self) -> float:
        """Give the time in seconds since 1970, unless the run is stopped."""
        if self._stopped.is_set():
            raise MlstackError("stopped while waiting")
        return super().now_s()


# --- Carry out Changes along the graph of what needs what; whatever happens, what was done is kept
# and told

_DONE: Mapping[str, RunEventKind] = {"create": "created", "update": "updated", "recreate": "recreated"}
_APPLY: frozenset[Dependency] = frozenset({"user", "needs"})
# What could not be deleted may need all that was written before it: a controller to clear its finalizers.
_DELETE: frozenset[Dependency] = frozenset({"user", "needs", "wave"})


class Run:
    """One run over a cluster: does changes and remembers how each ended.

    Args:
        cluster: where to write.
        on_event: told about each object, by one thread at a time.
        clock: for waits.
        again: looks at an object that moved since its change was worked out.
        terms: on what terms an object is waited for where others depend on it.
        rules: the app's own readiness rules.
        secrets: texts that must stand in no reason.
        timeout_s: how long anything is waited for at most; None for what is usual for each thing.

    Attributes:
        outcomes: the event that ended each object.
        written: what the server answered for each object that was written.
        standings: how the objects stood when the wait for them ended.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        on_event: OnEvent,
        clock: Clock,
        again: Again | None = None,
        terms: TermsOf | None = None,
        rules: ReadyRules | None = None,
        secrets: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> None:
        """Begin with nothing done."""
        self.outcomes: dict[Identity, RunEvent] = {}
        self.written: dict[Identity, Mapping[str, Any]] = {}
        self.standings: dict[Identity, ReadinessState] = {}
        self._begun: dict[Identity, Change] = {}
        self._timeout_s = timeout_s
        self._closed, self._rules, self._secrets = False, rules, secrets
        self._on_event, self._lock, self._again = on_event, Lock(), again
        self._stopped = Flag()
        self._clock, self._terms = StoppedClock(clock, self._stopped), terms or _usual_terms
        self.use(cluster)

    @property
    def cluster(self) -> Cluster:
        """Give the cluster this run writes to."""
        return self._cluster

    @property
    def records(self) -> Cluster:
        """Give the cluster for what is kept of the environment: webhooks that start are waited for."""
        return patient(self._cluster, clock=self._clock, on_event=self.tell, timeout_s=self._limit_s)

    @property
    def _limit_s(self) -> float:
        return inf if self._timeout_s is None else self._timeout_s

    def use(self, cluster: Cluster) -> None:
        """Write through another view of the cluster from now on, as one that a lock fences."""
        self._cluster = RetryingClient(
            cluster,
            clock=self._clock,
            told=lambda text: self._say("waiting", None, text),
            answered=True,
            timeout_s=self._limit_s,
            still=lambda text: self._say("still", None, text),
        )
        self._writer = ObjectWriter(
            self._cluster, clock=self._clock, say=self._say, again=self._again, timeout_s=self._limit_s
        )
        self._gates = Barriers(
            self._cluster,
            clock=EndedClock(self._clock, self._stopped),
            on_event=self.tell,
            terms=self._terms,
            rules=self._rules,
            secrets=self._secrets,
        )

    def apply(self, changes: Sequence[Change], *, depends: Depends | None = None) -> None:
        """Write what is wanted, each object as soon as what it depends on is done.

        Args:
            changes: what is to be done; what this run has done already is left out.
            depends: for each component all components it depends on.

        Raises:
            MlstackError: objects failed, and what depends on them was skipped; all the others were done.
        """
        left = [change for change in changes if change.identity not in self.outcomes]
        graph = order.graph([change.subject for change in left], depends)
        self._go(graph, left, self._write, _APPLY)

    def delete(
        self,
        changes: Sequence[Change],
        *,
        depends: Depends | None = None,
        grace_period_s: int | None = None,
        wait: bool = True,
    ) -> None:
        """Delete in reverse order; what depends on an object is gone before it goes.

        Args:
            changes: what is to be done.
            depends: for each component all components it depends on.
            grace_period_s: time that pods get to end, in seconds; None for their own.
            wait: go on with what comes after an object only once that is gone.

        Raises:
            MlstackError: as `apply`.
        """

        def delete(change: Change) -> Steps:
            return self._delete(change, grace_period_s, wait=wait)

        graph = order.graph([change.subject for change in changes], depends, strict=False)
        self._go(graph.reversed(), changes, delete, _DELETE)

    def _go(
        self,
        graph: Graph,
        changes: Sequence[Change],
        work: Callable[[Change], Steps],
        binding: frozenset[Dependency],
    ) -> None:
        by_identity = {change.identity: change for change in changes}
        crossing = BarrierCrossing(graph, by_identity, self._gates) if binding == _APPLY else None

        def do(node: Node) -> Steps:
            if isinstance(node, Barrier):
                if crossing is not None and crossing.waits(node):
                    crossing.wait(node)
            elif by_identity[node].writes:
                yield from work(by_identity[node])
            else:
                self._idle(by_identity[node])

        def is_idle(node: Node) -> bool:
            if isinstance(node, Barrier):
                return crossing is None or not crossing.waits(node)
            return not by_identity[node].writes

        def skipped(node: Node, why: str) -> None:
            if not isinstance(node, Barrier):
                self._end("skipped", by_identity[node], why)

        deletions = DeletionWatcher(
            self._cluster, clock=self._clock, on_event=self.tell, timeout_s=self._timeout_s
        )
        schedule = Schedule(
            graph,
            work=do,
            wait=deletions.wait,
            skipped=skipped,
            is_idle=is_idle,
            because=_because if binding == _APPLY else _because_still_there,
            binding=binding,
            stopped=self._stopped,
        )
        try:
            schedule.run()
        except KeyboardInterrupt:
            self._close()
            raise
        finally:
            deletions.close()
        if schedule.failures:
            raise _together(schedule.failures)

    def skip(self, change: Change, kind: RunEventKind, text: str) -> None:
        """Tell the end of a change that needs nothing done."""
        self._end(kind, change, text)

    def _idle(self, change: Change) -> None:
        self._end("unchanged" if change.action == "unchanged" else "kept", change, change.reason)

    def _write(self, change: Change) -> Steps:
        with _Failure(self, change) as failure:
            applied = yield from self._writer.write(change, failure.reached)
        self.written[change.identity] = applied.object
        for text in applied.warnings:
            self._say("warning", change.identity, text)
        self._end(_DONE.get(change.action, "unchanged"), change, "; ".join(change.notes))

    def _delete(self, change: Change, grace_period_s: int | None, *, wait: bool) -> Steps:
        with _Failure(self, change):
            end = yield from self._writer.delete(change, grace_period_s=grace_period_s, wait=wait)
        self._end(end.outcome, change, end.text)

    def _close(self) -> None:
        """Tell of what was under way when a person interrupted; what comes later is not heard any more."""
        for change in list(self._begun.values()):
            self.failed(change, "interrupted before the API server answered")
        with self._lock:
            self._closed = True

    def _end(self, kind: RunEventKind, change: Change, text: str) -> None:
        event = RunEvent(kind, change.identity, text)
        with self._lock:
            if not self._closed:
                self._begun.pop(change.identity, None)
                self.outcomes[change.identity] = event
                self._on_event(event)

    def _say(self, kind: RunEventKind, identity: Identity | None, text: str) -> None:
        self.tell(RunEvent(kind, identity, text))

    def tell(self, event: RunEvent) -> None:
        """Tell of something, unless a person has ended the run; one thread at a time."""
        with self._lock:
            if not self._closed:
                self._on_event(event)

    def begin(self, change: Change) -> None:
        """Remember that a change is under way."""
        self._begun[change.identity] = change

    def failed(self, change: Change, why: str) -> None:
        """Remember that a change could not be made."""
        self._end("failed", change, why)


class _Failure:
    """Records the failure of one change on its way out, and how far it had come."""

    def __init__(self, run: Run, change: Change) -> None:
        self._run, self._change = run, change
        self._so_far = ""

    def reached(self, so_far: str) -> None:
        """Take note of how far the change came."""
        self._so_far = so_far

    def __enter__(self) -> _Failure:
        self._run.begin(self._change)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, MlstackError):
            if error.where is None and self._change.component:
                error.where = f"component {self._change.component}"
            text = error.message.removeprefix(f"`{self._change.identity}`: ")  # its line begins with the name
            self._run.failed(self._change, self._so_far + text)
        elif isinstance(error, KeyboardInterrupt) and self._so_far:
            self._run.failed(self._change, f"{self._so_far}interrupted")


def _together(failures: Sequence[MlstackError]) -> MlstackError:
    """Make one error of all failures; refusals of the cluster say more than what was not ready in time."""
    ordered = sorted(failures, key=lambda one: isinstance(one, NotReadyError))
    joined = parallel.together(ordered)
    places = sorted({one.where for one in failures if one.where})
    joined.where = ", ".join(places) or None
    return joined


def _usual_terms(found: KubeObject) -> Terms:
    return terms_of(found, wait_for_jobs=True)


def _because(node: Node, end: str, after: Node) -> str:
    if isinstance(after, Barrier) and after.kind == "component" and not isinstance(node, Barrier):
        return f"depends on {after}, where `{node}` {end}"
    return f"depends on {node if isinstance(node, Barrier) else f'`{node}`'}, which {end}"


def _because_still_there(node: Node, end: str, after: Node) -> str:
    return f"`{node}`, which goes before it, {'was not deleted' if end == 'failed' else end}"
