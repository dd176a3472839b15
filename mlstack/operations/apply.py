"""`apply`: work out what would change, and after the question carry out exactly that.

Plan files and rollbacks are rare: what they need is imported when they come.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mlstack.cluster.api import Opener
from mlstack.engine.deployment import Deployment, propose
from mlstack.engine.target import Target, reach
from mlstack.errors import MlstackError
from mlstack.model.clock import Clock
from mlstack.model.events import OnEvent, silent
from mlstack.model.options import ApplyOptions
from mlstack.model.report import RunResult

if TYPE_CHECKING:
    from mlstack.engine.rollback import KnownGood, Retreat

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


def compute_planned(
    file: Path, target: Target, *, opener: Opener, options: ApplyOptions = _USUAL
) -> Deployment:
    """Work out what an apply of a plan file would do: what was approved, or nothing.

    Args:
        file: the plan file.
        target: the app directory; of the rest another context and parameters that the file may not hold.
        opener: opens a cluster by its context.
        options: how it is to be done; what decides what happens is taken from the file.

    Raises:
        ConfigError: the file is damaged or another app's, or files of the app have changed since.
        WrongClusterError: another cluster answers.
        ConflictError: something would be done that the file does not hold, as the cluster has moved since.
    """
    from mlstack.engine import approving
    from mlstack.files import planfile

    approval = planfile.read(file)
    planned = approving.target_of(approval, target)
    state = planned.desired()
    approving.refuse_moved_files(approval, planned, where=str(file))
    reached = reach(planned, opener, state=state)
    approving.refuse_moved_cluster(approval, reached.identity, context=reached.place.context)
    what = f"apply of the plan of {approval.created}"
    found = propose(reached, approving.options_of(approval, options), what=what)
    approving.refuse_moved_objects(approval, found, where=str(file))
    return found


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


def known_good(plan: Deployment, *, clock: Clock) -> KnownGood | None:
    """Give what an apply may go back to without a question, before it begins; None if nothing.

    Raises:
        ClusterError: the cluster cannot be asked, or the last revision that worked is damaged.
    """
    from mlstack.engine import rollback

    return rollback.known_good(plan, clock=clock)


def retreat(failed: Deployment, error: MlstackError, *, known: KnownGood | None, clock: Clock) -> Retreat:
    """Work out how to go back after a failed apply; its proposal is carried out by `execute`.

    Args:
        failed: the apply.
        error: what ended it.
        known: what `known_good` gave before it began.
        clock: tells the time.

    Raises:
        ClusterError: the cluster cannot be asked, or refuses what was there before.
    """
    from mlstack.engine import rollback

    return rollback.retreat(failed, error, known=known, clock=clock)
