"""One deploy of an environment: work out what would change, then carry out exactly that."""

from dataclasses import dataclass
from functools import partial

from mlstack.engine import guard, recording
from mlstack.engine.execute import Run
from mlstack.engine.observe import observe
from mlstack.engine.proposal import Proposal
from mlstack.engine.target import Reached
from mlstack.errors import MlstackError
from mlstack.model.app import ClusterIdentity
from mlstack.model.clock import Clock
from mlstack.model.events import Event, OnEvent
from mlstack.model.options import ApplyOptions
from mlstack.model.report import RunResult


@dataclass(frozen=True, kw_only=True)
class Deployment(Proposal):
    """What one deploy would do, ready to be confirmed and carried out.

    Attributes:
        reached: what is wanted, and where.
        options: how it is to be done.
        pin: identity that the environment is bound to before the first write, None if it is bound already.
        what: the run in a few words, for the history.
    """

    reached: Reached
    options: ApplyOptions
    pin: ClusterIdentity | None
    what: str

    def run(self, *, clock: Clock, on_event: OnEvent) -> RunResult:
        """Carry the deploy out; a dry run only tells how each object would end.

        Args:
            clock: for waits.
            on_event: told about every object as it is done.

        Raises:
            MlstackError: an object failed; `partial` holds what was done.
            Interrupted: a person stopped the run; `partial` as well.
        """
        if self.pin is not None and not self.dry_run:
            self.reached.target.app.pin_identity(self.environment, self.pin)
            who = guard.describe(self.pin)
            on_event(
                Event("note", None, f"environment `{self.environment}` is now bound to this cluster ({who})")
            )
        return self.carry_out(
            lambda run: self._recorded(run, clock=clock, on_event=on_event), clock=clock, on_event=on_event
        )

    def _recorded(self, run: Run, *, clock: Clock, on_event: OnEvent) -> None:
        """Do the steps and write them into the history, however they end."""
        record = partial(
            recording.record, self.reached, self.changes, what=self.what, clock=clock, on_event=on_event
        )
        try:
            self._steps(run)
        except MlstackError as error:
            record(run.outcomes, error=error)
            raise
        record(run.outcomes, error=None)

    def _steps(self, run: Run) -> None:
        run.apply(self.left(run))


def propose(reached: Reached, options: ApplyOptions, *, what: str = "") -> Deployment:
    """Work out what a deploy would do; nothing is written.

    Args:
        reached: what is wanted, and where.
        options: how it is to be done.
        what: the run in a few words, for the history; empty for an apply.

    Raises:
        ConfigError: nothing would be deployed.
        ClusterError: the cluster cannot be asked or refuses an object.
    """
    guard.refuse_empty(reached.state)
    changes = observe(reached, create=options.create, check_new=options.dry_run)
    place, identity = reached.place, reached.identity
    fresh = place.cluster is None and reached.target.context is None and guard.is_known(identity)
    return Deployment(
        changes=changes,
        place=place,
        cluster=reached.cluster,
        dry_run=options.dry_run,
        reached=reached,
        options=options,
        pin=identity if fresh else None,
        what=what or recording.of(reached.target, "apply"),
        holder=reached.target.holder,
        lock_timeout_s=options.lock_timeout_s,
    )
