"""Carry out Changes along the graph of what needs what; whatever happens, what was done is kept and told."""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from threading import Event as Flag
from threading import Lock
from typing import Any

from mlstack.cluster.api import Cluster
from mlstack.cluster.patient import PatientCluster
from mlstack.engine import parallel
from mlstack.engine.records.admission import patient
from mlstack.engine.waiting.gates import Gates, TermsOf
from mlstack.engine.writing.crossing import Crossing
from mlstack.engine.writing.schedule import Schedule
from mlstack.engine.writing.send import Again
from mlstack.engine.writing.stopping import EndedClock, StoppedClock
from mlstack.engine.writing.wait import DeletionWatcher, Steps
from mlstack.engine.writing.write import Writer
from mlstack.errors import MlstackError, NotReadyError
from mlstack.model import order
from mlstack.model.clock import Clock
from mlstack.model.diff import Change
from mlstack.model.events import Event, EventKind, OnEvent
from mlstack.model.graph import Bond, Depends, Gate, Graph, Node
from mlstack.model.objects import Identity, KubeObject
from mlstack.model.readiness.terms import Standing, Terms, terms_of
from mlstack.model.readyrules import ReadyRules

_DONE: Mapping[str, EventKind] = {"create": "created", "update": "updated", "recreate": "recreated"}
_APPLY: frozenset[Bond] = frozenset({"user", "needs"})
# What could not be deleted may need all that was written before it: a controller to clear its finalizers.
_DELETE: frozenset[Bond] = frozenset({"user", "needs", "wave"})


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
        self.outcomes: dict[Identity, Event] = {}
        self.written: dict[Identity, Mapping[str, Any]] = {}
        self.standings: dict[Identity, Standing] = {}
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
        self._cluster = PatientCluster(
            cluster,
            clock=self._clock,
            told=lambda text: self._say("waiting", None, text),
            answered=True,
            timeout_s=self._limit_s,
            still=lambda text: self._say("still", None, text),
        )
        self._writer = Writer(
            self._cluster, clock=self._clock, say=self._say, again=self._again, timeout_s=self._limit_s
        )
        self._gates = Gates(
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
        binding: frozenset[Bond],
    ) -> None:
        by_identity = {change.identity: change for change in changes}
        crossing = Crossing(graph, by_identity, self._gates) if binding == _APPLY else None

        def do(node: Node) -> Steps:
            if isinstance(node, Gate):
                if crossing is not None and crossing.waits(node):
                    crossing.wait(node)
            elif by_identity[node].writes:
                yield from work(by_identity[node])
            else:
                self._idle(by_identity[node])

        def is_idle(node: Node) -> bool:
            if isinstance(node, Gate):
                return crossing is None or not crossing.waits(node)
            return not by_identity[node].writes

        def skipped(node: Node, why: str) -> None:
            if not isinstance(node, Gate):
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

    def skip(self, change: Change, kind: EventKind, text: str) -> None:
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

    def _end(self, kind: EventKind, change: Change, text: str) -> None:
        event = Event(kind, change.identity, text)
        with self._lock:
            if not self._closed:
                self._begun.pop(change.identity, None)
                self.outcomes[change.identity] = event
                self._on_event(event)

    def _say(self, kind: EventKind, identity: Identity | None, text: str) -> None:
        self.tell(Event(kind, identity, text))

    def tell(self, event: Event) -> None:
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

    def __enter__(self) -> "_Failure":
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
    if isinstance(after, Gate) and after.kind == "component" and not isinstance(node, Gate):
        return f"depends on {after}, where `{node}` {end}"
    return f"depends on {node if isinstance(node, Gate) else f'`{node}`'}, which {end}"


def _because_still_there(node: Node, end: str, after: Node) -> str:
    return f"`{node}`, which goes before it, {'was not deleted' if end == 'failed' else end}"
