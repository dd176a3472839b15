"""`render`: the objects of an environment, without a cluster."""

from collections.abc import Sequence

from mlstack.engine import desired
from mlstack.files.appdir import AppDir
from mlstack.model.objects import DesiredState
from mlstack.model.overrides import Overrides
from mlstack.templating import CodeStore

_NONE = Overrides()


def render(
    app: AppDir,
    environment: str,
    *,
    components: Sequence[str] = (),
    overrides: Overrides = _NONE,
    store: CodeStore | None = None,
) -> DesiredState:
    """Give the objects that `apply` would send, in its order.

    Args:
        app: the app directory.
        environment: name of the environment.
        components: only these components and modules; none means all that the environment deploys.
        overrides: parameters for this run.
        store: keeps compiled templates and passed parameter sets.

    Raises:
        ConfigError: a file, parameter or template is wrong.
        NotFoundError: no such environment, component or prototype.
    """
    return desired.load(app, environment, components=components, overrides=overrides, store=store)
