"""What objects of a run depend on outside of it: it has to be there before anything is written."""

from collections.abc import Sequence

from mlstack.cluster.api import Cluster, ObjectRef
from mlstack.errors import ConfigError, ForbiddenError
from mlstack.model.dependencies import DEPENDS_ON, outside
from mlstack.model.kinds import Kind, Kinds
from mlstack.model.objects import Identity, KubeObject


def refuse_absent_targets(wanted: Sequence[KubeObject], cluster: Cluster) -> None:
    """Raise if an annotation names an object that is neither in the run nor in the cluster.

    Raises:
        ConfigError: naming the object and what it depends on.
    """
    for found, target in outside(wanted):
        if not _is_there(target, found, cluster):
            raise ConfigError(
                f"`{found.identity}` depends on `{target}`, which is neither in this run nor in the cluster",
                where=str(found.source) if found.source else f"component {found.component}",
                hint=f"see its annotation `{DEPENDS_ON}`: group `{target.group}`, kind `{target.kind}`",
            )


def _is_there(target: Identity, found: KubeObject, cluster: Cluster) -> bool:
    kind = _kind(target, Kinds.builtin()) or _kind(target, cluster.kinds())
    if kind is None:
        return False
    namespace = (target.namespace or found.namespace) if kind.namespaced else ""
    try:
        return cluster.get(ObjectRef(kind.api_version, kind.kind, namespace, target.name)) is not None
    except ForbiddenError:  # whoever may not look cannot be told
        return True


def _kind(target: Identity, kinds: Kinds) -> Kind | None:
    return next((one for one in kinds.of_group(target.group) if one.kind == target.kind), None)
