"""What a comparison is going to ask, as far as that is known before: asked at once, not one by one."""

from collections.abc import Sequence
from typing import TypeVar

from mlstack.cluster.ahead import AheadCluster, soon
from mlstack.cluster.api import ObjectRef
from mlstack.engine.comparing.known import large_groups
from mlstack.engine.comparing.scalers import AUTOSCALER
from mlstack.engine.comparing.surroundings import namespaces_of
from mlstack.model.inventory import Inventory
from mlstack.model.kinds import Kinds
from mlstack.model.objects import DesiredState
from mlstack.model.scaling import SCALABLE

T = TypeVar("T")

_MOST = 8  # of one sort; more are asked for side by side when they are needed


def foresee(cluster: AheadCluster, state: DesiredState, inventory: Inventory) -> None:
    """Ask for the inventory, the namespaces, and lists of what there are many of.

    Args:
        cluster: who is asked.
        state: what is wanted.
        inventory: the environment's, not read yet.
    """
    known = Kinds.builtin()
    cluster.foresee_get(ObjectRef("v1", "ConfigMap", inventory.namespace, inventory.name))
    for name in _some(namespaces_of(state.objects, state)):
        cluster.foresee_get(ObjectRef("v1", "Namespace", "", name))
    for api_version, kind, namespace in _some(large_groups(state.objects)):
        if known.lookup(api_version, kind):  # the server may have others elsewhere
            cluster.foresee_list(api_version, kind, namespace=namespace or None, metadata_only=True)


def foresee_creation(cluster: AheadCluster, state: DesiredState) -> None:
    """Ask for what a first deploy needs beyond that: the kinds, and autoscalers of workloads."""
    soon(cluster.kinds)  # whoever asks meanwhile waits for this answer
    scaled = {found.namespace for found in state.objects if (found.group, found.kind) in SCALABLE}
    for namespace in _some(sorted(scaled)):
        cluster.foresee_list(*AUTOSCALER, namespace=namespace)


def _some(sorts: Sequence[T]) -> Sequence[T]:
    return sorts[:_MOST]
