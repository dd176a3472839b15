"""`delete`: find what an environment has in its cluster, and after the question take it away."""

from dataclasses import dataclass
from typing import ClassVar

from mlstack.cluster.api import Opener
from mlstack.engine.lock import WAIT_S
from mlstack.engine.proposal import Proposal
from mlstack.engine.remains import Spare, find
from mlstack.engine.target import Target, reach
from mlstack.model.clock import Clock
from mlstack.model.events import OnEvent, silent
from mlstack.model.report import RunKind, RunResult

_USUAL = Spare()


@dataclass(frozen=True, kw_only=True)
class DeletePlan(Proposal):
    """What one delete would do, each change a `delete`, or `kept` with the reason.

    Attributes:
        grace_period_s: time that pods get to end, None for their own.
    """

    result_kind: ClassVar[RunKind] = "DeleteResult"

    grace_period_s: int | None


def compute(
    target: Target,
    *,
    opener: Opener,
    spare: Spare = _USUAL,
    grace_period_s: int | None = None,
    dry_run: bool = False,
    lock_timeout_s: float = WAIT_S,
) -> DeletePlan:
    """Find what would be deleted; nothing is.

    Args:
        target: what to delete, and where.
        opener: opens a cluster by its context.
        spare: kinds that are kept.
        grace_period_s: time that pods get to end, in seconds; None for their own.
        dry_run: make a plan that deletes nothing when carried out.
        lock_timeout_s: how long to wait for another run on the environment.

    Raises:
        ConfigError: a file, parameter or template is wrong.
        ClusterError: the cluster cannot be asked or is another one.
    """
    reached = reach(target, opener)
    return DeletePlan(
        changes=find(reached, spare=spare),
        place=reached.place,
        cluster=reached.cluster,
        grace_period_s=grace_period_s,
        dry_run=dry_run,
        holder=target.holder,
        lock_timeout_s=lock_timeout_s,
    )


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
        lambda run: run.delete(plan.changes.changes, grace_period_s=plan.grace_period_s),
        clock=clock,
        on_event=on_event,
    )
