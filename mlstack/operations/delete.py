"""`delete`: find what an environment has in its cluster, and after the question take it away."""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from mlstack.cluster.api import Cluster, Opener
from mlstack.engine import rights
from mlstack.engine.proposal import Proposal
from mlstack.engine.records import inventory as inventories
from mlstack.engine.records import recording
from mlstack.engine.records.history import History
from mlstack.engine.removing.remains import Remains, find
from mlstack.engine.target import Target
from mlstack.engine.writing.execute import Run
from mlstack.errors import ClusterError, MlstackError, OutdatedError, UnreachableError
from mlstack.model.clock import Clock
from mlstack.model.events import Event, OnEvent, silent
from mlstack.model.objects import Identity
from mlstack.model.pruning import Spare
from mlstack.model.report import RunKind, RunResult

_USUAL = Spare()


@dataclass(frozen=True, kw_only=True)
class DeletePlan(Proposal):
    """What one delete would do, each change a `delete`, or `kept` with the reason.

    Attributes:
        remains: what there is to take away.
        grace_period_s: time that pods get to end, None for their own.
        wait: whether the run goes on until everything is gone.
    """

    result_kind: ClassVar[RunKind] = "DeleteResult"

    remains: Remains
    grace_period_s: int | None
    wait: bool

    @property
    def writes(self) -> bool:
        """Tell whether anything is sent: what the environment keeps of itself in the cluster goes as well."""
        return bool(self.changes.writes or self.remains.forgotten) or self.remains.inventory.exists

    def run(self, run: Run, *, clock: Clock, on_event: OnEvent) -> None:
        """Delete, then settle what the environment keeps of itself in the cluster."""
        inventory, changes = self.remains.inventory, self.changes.changes
        if self.writes and inventories.moved(run.cluster, inventory):
            raise OutdatedError(
                f"environment `{self.environment}` was deployed since this was shown",
                hint="nothing was deleted; run the command again to see what is there now",
            )
        settle = partial(inventories.settle, run, inventory, changes, on_event=on_event)
        removed = partial(
            recording.record_removal,
            self.remains.reached,
            self.changes,
            run.outcomes,
            clock=clock,
            on_event=run.tell,
        )
        try:
            run.delete(
                changes, depends=self.changes.depends, grace_period_s=self.grace_period_s, wait=self.wait
            )
        except KeyboardInterrupt as stop:
            recording.before_leaving(partial(removed, error=stop))
            raise
        except UnreachableError:
            raise
        except MlstackError:
            with suppress(ClusterError):  # it still lists everything that is there
                settle(in_vain=True)
            raise
        namespace = run.outcomes.get(Identity("", "Namespace", "", self.place.namespace), _KEPT)
        if namespace.kind in ("deleted", "terminating"):
            return  # with everything that was kept in it
        left = settle(forgotten=self.remains.forgotten)
        if self.remains.reached.selective:
            removed()
        else:
            inventories.remove(run.cluster, left)
            self._forget(run.cluster, clock=clock, on_event=on_event)

    def _forget(self, cluster: Cluster, *, clock: Clock, on_event: OnEvent) -> None:
        try:
            History.of(self.changes.app, self.place, cluster, clock=clock).forget()
        except ClusterError as error:  # what was asked for is done
            on_event(Event("note", None, f"the history stays: {error.message}"))


_KEPT = Event("kept", None)


def compute(
    target: Target,
    *,
    opener: Opener,
    spare: Spare = _USUAL,
    grace_period_s: int | None = None,
    wait: bool = True,
    dry_run: bool = False,
    timeout_s: float | None = None,
    lock_timeout_s: float | None = None,
) -> DeletePlan:
    """Find what would be deleted; nothing is.

    Args:
        target: what to delete, and where.
        opener: opens a cluster by its context.
        spare: kinds that are kept.
        grace_period_s: time that pods get to end, in seconds; None for their own.
        wait: go on until everything is gone.
        dry_run: make a plan that deletes nothing when carried out.
        timeout_s: how long anything is waited for; None goes on as long as anything goes now and then.
        lock_timeout_s: how long to wait for another run on the environment; None for 30 s in `timeout_s`.

    Raises:
        ConfigError: the environment's own file is wrong.
        NotFoundError: neither the files nor the cluster know a component.
        ClusterError: the cluster cannot be asked or is another one.
    """
    remains = find(target, opener, spare=spare)
    plan = DeletePlan(
        changes=remains.changes,
        place=remains.reached.place,
        cluster=remains.reached.cluster,
        remains=remains,
        grace_period_s=grace_period_s,
        wait=wait,
        dry_run=dry_run,
        holder=target.holder,
        lock_timeout_s=lock_timeout_s,
        timeout_s=timeout_s,
    )
    if plan.writes and not dry_run:
        changes = remains.changes
        rights.check(plan.cluster, plan.place, changes.app, changes.changes, remains.inventory)
    return plan


def execute(plan: DeletePlan, *, clock: Clock, on_event: OnEvent = silent) -> RunResult:
    """Delete what the plan says, last wave first.

    Args:
        plan: what was confirmed.
        clock: for waits.
        on_event: told about every object as it goes.

    Raises:
        MlstackError: an object could not be deleted; `partial` holds what was done.
        Interrupted: a person stopped the run; `partial` as well.
    """
    return plan.carry_out(
        lambda run: plan.run(run, clock=clock, on_event=on_event), clock=clock, on_event=on_event
    )
