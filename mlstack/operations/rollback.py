"""`rollback`: work out how to go back to an earlier revision, and after the question do exactly that."""

from mlstack.cluster.api import Opener
from mlstack.engine.deployment import Deployment
from mlstack.engine.rollback import propose_rollback
from mlstack.engine.target import Target
from mlstack.model.clock import Clock
from mlstack.model.events import OnEvent, silent
from mlstack.model.options import ApplyOptions
from mlstack.model.report import RunResult

_USUAL = ApplyOptions()


def compute(
    target: Target,
    number: int | None = None,
    *,
    opener: Opener,
    clock: Clock,
    options: ApplyOptions = _USUAL,
) -> Deployment:
    """Work out what going back would do; nothing is written.

    Args:
        target: the environment; its files need not render.
        number: the revision; None for the newest before the last one that worked.
        opener: opens a cluster by its context.
        clock: tells the time.
        options: how it is to be done.

    Raises:
        NotFoundError: there is no such revision, or none before the newest.
        ClusterError: the cluster cannot be asked, is another one, or refuses an object.
    """
    return propose_rollback(target, opener, number=number, options=options, clock=clock)


def execute(plan: Deployment, *, clock: Clock, on_event: OnEvent = silent) -> RunResult:
    """Carry out what was worked out; it becomes a revision of its own.

    Args:
        plan: what was confirmed.
        clock: for waits.
        on_event: told about every object as it is done.

    Raises:
        MlstackError: an object failed; `partial` holds what was done.
        Interrupted: a person stopped the run; `partial` as well.
    """
    return plan.run(clock=clock, on_event=on_event)
