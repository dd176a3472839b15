"""`diff`: what `apply` would change, as a server-side dry run says."""

from mlstack.cluster.api import Opener
from mlstack.engine.observe import observe
from mlstack.engine.target import Target, reach
from mlstack.model.report import ChangeReport, report


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
    return report(observe(reach(target, opener), check_new=True))
