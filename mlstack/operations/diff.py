"""`diff`: what `apply` would change, as a server-side dry run says."""

from collections.abc import Sequence

from mlstack.cluster.api import Opener
from mlstack.engine import desired, guard
from mlstack.engine.observe import observe
from mlstack.files.appdir import AppDir
from mlstack.model.overrides import Overrides
from mlstack.model.report import ChangeReport, report
from mlstack.templating import CodeStore

_NONE = Overrides()


def diff(
    app: AppDir,
    environment: str,
    *,
    opener: Opener,
    components: Sequence[str] = (),
    overrides: Overrides = _NONE,
    store: CodeStore | None = None,
    context: str | None = None,
    namespace: str | None = None,
) -> ChangeReport:
    """Compare an environment with its cluster; nothing is written.

    Args:
        app: the app directory.
        environment: name of the environment.
        opener: opens a cluster by its context.
        components: only these components and modules.
        overrides: parameters for this run.
        store: keeps compiled templates and passed parameter sets.
        context: another kubectl context, for this run.
        namespace: another namespace, for this run.

    Returns:
        The changes; `ok` if there are none.

    Raises:
        ConfigError: a file, parameter or template is wrong.
        ClusterError: the cluster cannot be asked, is another one, or refuses an object.
    """
    place = desired.place(app, environment, context=context, namespace=namespace)
    state = desired.load(
        app, environment, components=components, overrides=overrides, store=store, namespace=namespace
    )
    cluster = opener(place.context)
    identity = guard.check_cluster(place, cluster)
    return report(observe(state, cluster, environment=place, identity=identity, check_new=True))
