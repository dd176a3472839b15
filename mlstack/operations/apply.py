"""`apply`: work out what would change, and after the question carry out exactly that."""

from mlstack.cluster.api import Opener
from mlstack.engine.deployment import Deployment, propose
from mlstack.engine.rollback import Retreat
from mlstack.engine.rollback import retreat as work_out
from mlstack.engine.target import Target, reach
from mlstack.errors import MlstackError
from mlstack.model.clock import Clock
from mlstack.model.events import OnEvent, silent
from mlstack.model.options import ApplyOptions
from mlstack.model.report import RunResult

_USUAL = ApplyOptions()


def compute(target: Target, *, opener: Opener, options: ApplyOptions = _USUAL) -> Deployment:
    """Work out what an apply would do; nothing is written.

    Args:
        target: what to deploy, and where.
        opener: opens a cluster by its context.
        options: how it is to be done.

    Raises:
        ConfigError: a file, parameter or template is wrong, or nothing would be deployed.
        ClusterError: the cluster cannot be asked, is another one, or refuses an object.
    """
    return propose(reach(target, opener), options)


def execute(plan: Deployment, *, clock: Clock, on_event: OnEvent = silent) -> RunResult:
    """Carry out what was worked out.

    Args:
        plan: what was confirmed.
        clock: for waits.
        on_event: told about every object as it is done.

    Raises:
        MlstackError: an object failed; `partial` holds what was done.
        Interrupted: a person stopped the run; `partial` as well.
    """
    return plan.run(clock=clock, on_event=on_event)


def retreat(failed: Deployment, error: MlstackError, *, clock: Clock) -> Retreat:
    """Work out how to go back after a failed apply; its proposal is carried out by `execute`.

    Args:
        failed: the apply.
        error: what ended it.
        clock: tells the time.

    Raises:
        ClusterError: the cluster cannot be asked, or refuses what was there before.
    """
    return work_out(failed, error, clock=clock)
