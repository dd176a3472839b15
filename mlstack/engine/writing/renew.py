"""Take away an object that is to be made anew, without what it must leave behind.

A StatefulSet may own its claims (`persistentVolumeClaimRetentionPolicy`) and would take them with it, so it
goes alone. The new one adopts its pods; they end only where the new one could not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlstack.cluster.api import Cluster, ObjectRef, Propagation
from mlstack.model.diff import Change
from mlstack.model.objects import Identity

# Pods keep these from their start: others would stand in the way of the new set's.
_OF_PODS = ("selector", "serviceName")


@dataclass(frozen=True)
class OldPod:
    """A pod that has to end before its set is made anew."""

    ref: ObjectRef
    uid: str


def propagation(change: Change) -> Propagation:
    """Tell what becomes of what an object owns when it is taken away to be made anew."""
    return "Orphan" if _is_stateful_set(change.identity) else "Foreground"


def old_pods(cluster: Cluster, change: Change) -> tuple[OldPod, ...]:
    """Give the pods that the new object could not adopt; to be asked before the old one goes.

    Raises:
        ClusterError: the cluster cannot be asked.
    """
    identity, desired = change.identity, change.desired
    if not _is_stateful_set(identity) or desired is None:
        return ()
    live = cluster.get(ObjectRef(change.api_version, identity.kind, identity.namespace, identity.name))
    if live is None or _kept_by_pods(live) == _kept_by_pods(desired.data):
        return ()
    pods = cluster.list("v1", "Pod", namespace=identity.namespace, metadata_only=True).items
    return tuple(
        OldPod(
            ObjectRef("v1", "Pod", identity.namespace, str(pod["metadata"]["name"])), pod["metadata"]["uid"]
        )
        for pod in pods
        if any(one.get("uid") == change.live_uid for one in pod["metadata"].get("ownerReferences") or ())
    )


def _is_stateful_set(identity: Identity) -> bool:
    return (identity.group, identity.kind) == ("apps", "StatefulSet")


def _kept_by_pods(data: Mapping[str, Any]) -> list[Any]:
    spec = data.get("spec") or {}
    return [spec.get(name) for name in _OF_PODS]
