"""What was worked out and waits for a yes: what a person confirms, and carrying out exactly that."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlstack.cluster.api import Cluster
from mlstack.engine.execute import Run
from mlstack.errors import MlstackError
from mlstack.model import report
from mlstack.model.app import Environment
from mlstack.model.clock import Clock
from mlstack.model.diff import Action, Changes
from mlstack.model.events import Event, EventKind, OnEvent
from mlstack.model.objects import Identity
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
    """

    result_kind: ClassVar[RunKind] = "ApplyResult"

    changes: Changes
    place: Environment
    cluster: Cluster
    dry_run: bool

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

    def carry_out(self, work: Callable[[Run], None], *, clock: Clock, on_event: OnEvent) -> RunResult:
        """Do the changes; a dry run only tells how each would end.

        Args:
            work: what of a run does them.
            clock: for waits.
            on_event: told about every object as it is done.

        Raises:
            MlstackError: an object failed; `partial` holds what was done.
            Interrupted: a person stopped the run; `partial` as well.
        """
        if self.dry_run:
            return self._pretended(on_event)
        for note in self.changes.notes:
            on_event(Event("note", None, note))
        run = Run(self.cluster, on_event=on_event, clock=clock)
        try:
            work(run)
        except MlstackError as error:
            error.partial = self._result(run.outcomes)
            raise
        except KeyboardInterrupt as stop:
            raise report.Interrupted(self._result(run.outcomes)) from stop
        return self._result(run.outcomes)

    def _result(self, outcomes: Mapping[Identity, Event]) -> RunResult:
        return report.run_result(self.changes, outcomes, kind=self.result_kind, dry_run=self.dry_run)

    def _pretended(self, on_event: OnEvent) -> RunResult:
        ends = {
            change.identity: Event(
                _OUTCOMES.get(change.action, "kept"),
                change.identity,
                change.reason or "; ".join(change.notes),
            )
            for change in self.changes.changes
        }
        for end in ends.values():
            on_event(end)
        return self._result(ends)
