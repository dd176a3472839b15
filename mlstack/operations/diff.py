"""`diff`: what `apply` would change, as a server-side dry run says."""

from mlstack.cluster.api import Opener
from mlstack.engine.comparison import compare
from mlstack.engine.target import Target, reach
from mlstack.model.options import ApplyOptions
from mlstack.model.report import ChangeReport, report

_ASKING = ApplyOptions(dry_run=True)


def diff(target: Target, *, opener: Opener) -> ChangeReport:
    """Compare an environment with its cluster; nothing is written.

    Args:
        target: what to compare.
        opener: opens a cluster by its context.

    Returns:
        The changes; `ok` if there are none.

    Raises:
        ConfigError: a file, parameter or template is wrong.
        ClusterError: the cluster cannot be asked, is another one, or refuses an object.
    """
    found = compare(reach(target, opener), _ASKING)
    return report(found.changes)
