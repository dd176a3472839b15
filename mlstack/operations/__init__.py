"""The use cases: functions of an app directory or a target that give one immutable result; none prints.

Each calls the rooms below in order; none calls another. `components`, `environment` and `overrides` are
as of `render.load` wherever they stand, `opener` opens the cluster of a context.

All raise what `mlstack.errors` has for it: `NotFoundError` for a name that is not there (with the nearest),
`UsageError` for what was asked for and cannot be, `ParamError` for a value that does not fit, `ConfigError`
for a file that is wrong or cannot be written, `RegistryError` and `ClusterError` for who does not answer or
refuses. Nothing of the app is changed then.
"""

from mlstack.app import layout


def written_by(where: str) -> str:
    """Tell by its place what wrote a field of an object: `patch`, `manifest` or `template`."""
    if "/patches/" in where and where.startswith(f"{layout.ENVIRONMENTS}/"):
        return "patch"
    return "manifest" if where.startswith(f"{layout.COMPONENTS}/") else "template"
