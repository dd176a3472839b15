"""What was worked out and waits for a yes: what a person confirms, and carrying out exactly that."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

from mlstack.cluster.api import Cluster, ObjectRef
from mlstack.engine import parallel
from mlstack.engine.records import lock as locking
from mlstack.engine.records.lock import LastingLock
from mlstack.engine.waiting.gates import TermsOf
from mlstack.engine.waiting.logs import hidden
from mlstack.engine.writing.execute import Run
from mlstack.engine.writing.send import Again
from mlstack.errors import ForbiddenError, MlstackError, ObjectNotFoundError
from mlstack.model import report
from mlstack.model.app import Environment
from mlstack.model.clock import Clock
from mlstack.model.diff import Action, Change, Changes
from mlstack.model.events import Event, EventKind, OnEvent
from mlstack.model.holder import Holder
from mlstack.model.objects import Identity
from mlstack.model.readiness.terms import Standing
from mlstack.model.readyrules import ReadyRules
from mlstack.model.report import ChangeReport, RunKind, RunResult

_OUTCOMES: Mapping[Action, EventKind] = {
    "create": "created",
    "update": "updated",
    "recreate": "recreated",
    "delete": "deleted",
    "unchanged": "unchanged",
}


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What one run would do.

    Attributes:
        changes: one change an object.
        place: the environment as it is used by this run.
        cluster: where the changes go.
        dry_run: write nothing.
        holder: who takes the environment's lock.
        lock_timeout_s: how long to wait for another run that holds it; None for 30 s, within `timeout_s`.
        timeout_s: how long anything is waited for at most, the lock too; None for what is usual.
        lock: what holds the lock over this run and others; None holds it for this run alone.
    """

    result_kind: ClassVar[RunKind] = "ApplyResult"

    changes: Changes
    place: Environment
    cluster: Cluster
    dry_run: bool
    holder: Holder = field(default_factory=Holder)
    lock_timeout_s: float | None = None
    timeout_s: float | None = None
    lock: LastingLock | None = None

    @property
    def report(self) -> ChangeReport:
        """Give what a person confirms."""
        return report.report(self.changes)

    @property
    def environment(self) -> str:
        """Give the name of the environment."""
        return self.place.name

    @property
    def protected(self) -> bool:
        """Tell whether the environment wants every change confirmed."""
        return self.place.protected

    @property
    def destructive(self) -> bool:
        """Tell whether anything is deleted, if only to be made anew."""
        return self.changes.destructive

    @property
    def changes_existing(self) -> bool:
        """Tell whether anything that exists changes or goes."""
        return self.changes.changes_existing

    @property
    def writes(self) -> bool:
        """Tell whether anything is sent, so that the environment has to be locked."""
        return bool(self.changes.writes)

    @property
    def again(self) -> Again | None:
        """Give what looks at an object that moved since its change was worked out."""
        return None

    @property
    def terms(self) -> TermsOf | None:
        """Give on what terms an object is waited for where others depend on it; None for the usual ones."""
        return None

    @property
    def rules(self) -> ReadyRules | None:
        """Give the app's own readiness rules; None where nothing is waited for."""
        return None

    def carry_out(self, work: Callable[[Run], None], *, clock: Clock, on_event: OnEvent) -> RunResult:
        """Do the changes while the environment is locked; a dry run only tells how each would end.

        Args:
            work: what of a run does them.
            clock: for waits.
            on_event: told about every object as it is done.

        Raises:
            LockedError: another run holds the lock.
            MlstackError: an object failed; `partial` holds what was done.
            Interrupted: a person stopped the run; `partial` as well.
        """
        if self.dry_run:
            return self._pretended(on_event)
        for note in self.changes.notes:
            on_event(Event("note", None, note))
        run = Run(
            self.cluster,
            on_event=on_event,
            clock=clock,
            again=self.again,
            terms=self.terms,
            rules=self.rules,
            secrets=hidden([change.subject for change in self.changes.changes], self.changes.secrets),
            timeout_s=self.timeout_s,
        )
        try:
            self.cluster.expect(min(parallel.WORKERS, len(self.changes.writes)))
            run.apply(self._namespace())
            with self._locked(clock, on_event) as cluster:
                run.use(cluster)
                work(run)
        except MlstackError as error:
            error.partial = self._result(run.outcomes, run.standings)
            raise
        except KeyboardInterrupt as stop:
            raise report.Interrupted(self._result(run.outcomes, run.standings)) from stop
        return self._result(run.outcomes, run.standings)

    def left(self, run: Run) -> tuple[Change, ...]:
        """Give the changes that a run has not done yet."""
        return tuple(change for change in self.changes.changes if change.identity not in run.outcomes)

    def _namespace(self) -> tuple[Change, ...]:
        """Give the creation of the environment's namespace: the lock lives in it."""
        wanted = Identity("", "Namespace", "", self.place.namespace)
        found = (change for change in self.changes.writes if change.action == "create")
        return tuple(change for change in found if change.identity == wanted)

    @contextmanager
    def _locked(self, clock: Clock, on_event: OnEvent) -> Iterator[Cluster]:
        """Give the cluster to write to, fenced by the lock unless there is nothing to write or to lock."""
        if not self.writes:
            locking.tidy(self.cluster, self.place, self.changes.app, holder=self.holder, clock=clock)
        if not self.writes:
            yield self.cluster
            return
        lock = locking.held(
            self.cluster,
            self.place,
            self.changes.app,
            holder=self.holder,
            clock=clock,
            on_event=on_event,
            timeout_s=self._lock_s,
        )
        with ExitStack() as stack:
            yield self._entered(lock, stack)

    @property
    def _lock_s(self) -> float:
        if self.lock_timeout_s is not None:
            return self.lock_timeout_s
        return locking.WAIT_S if self.timeout_s is None else min(locking.WAIT_S, self.timeout_s)

    def _entered(self, lock: AbstractContextManager[Cluster], stack: ExitStack) -> Cluster:
        """Give the cluster to write to, with the lock held; without it if its namespace is not there."""
        try:
            return stack.enter_context(lock) if self.lock is None else self.lock.cluster(lock)
        except (ObjectNotFoundError, ForbiddenError):
            if self._has_namespace():
                raise
            return self.cluster

    def _has_namespace(self) -> bool:
        try:
            live = self.cluster.get(ObjectRef("v1", "Namespace", "", self.place.namespace))
        except ForbiddenError:  # whoever may work in one namespace only may not read namespaces
            return True
        return live is not None and not live["metadata"].get("deletionTimestamp")

    def _result(
        self, outcomes: Mapping[Identity, Event], standings: Mapping[Identity, Standing] | None = None
    ) -> RunResult:
        return report.run_result(
            self.changes, outcomes, standings=standings, kind=self.result_kind, dry_run=self.dry_run
        )

    def _pretended(self, on_event: OnEvent) -> RunResult:
        ends = {
            change.identity: Event(
                _OUTCOMES.get(change.action, "kept"),
                change.identity,
                change.reason or "; ".join(change.notes),
            )
            for change in self.changes.changes
        }
        for note in self.changes.notes:
            on_event(Event("note", None, note))
        for end in ends.values():
            on_event(end)
        return self._result(ends)
