"""`diff`: what `apply` would change, as a server-side dry run says."""

from mlstack.cluster.api import Opener
from mlstack.engine import rights
from mlstack.engine.comparing import refusals
from mlstack.engine.comparison import compare
from mlstack.engine.target import Target, reach
from mlstack.model.options import ApplyOptions
from mlstack.model.report import ChangeReport, report

_USUAL = ApplyOptions(dry_run=True)


def diff(target: Target, *, opener: Opener, options: ApplyOptions = _USUAL) -> ChangeReport:
    """Compare an environment with its cluster; nothing is written.

    Args:
        target: what to compare.
        opener: opens a cluster by its context.
        options: of the apply that is asked about, a dry run.

    Returns:
        The changes; `ok` if there are none.

    Raises:
        ConfigError: a file, parameter or template is wrong.
        ClusterError: the cluster cannot be asked, is another one, or refuses an object; in the last case
            `partial` is the report.
    """
    reached = reach(target, opener)
    with rights.explaining(reached, writing=False):
        found = compare(reached, options)
    result = report(found.changes)
    fault = refusals.unanswered(found.changes.changes)
    if fault is not None:
        fault.partial = result
        raise fault
    return result
