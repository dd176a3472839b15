"""Which workloads an autoscaler scales, and which field holds their number."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mlstack.model.objects import Identity, KubeObject, group_of

SCALABLE = frozenset(
    {("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "ReplicaSet"), ("", "ReplicationController")}
)
REPLICAS = ("f:spec", "f:replicas")


@dataclass(frozen=True, kw_only=True)
class Autoscaler:
    """An autoscaler and what it scales.

    Attributes:
        name: how people name it: `HorizontalPodAutoscaler web`.
        target: the workload.
    """

    name: str
    target: Identity


def autoscaler(data: Mapping[str, Any]) -> Autoscaler | None:
    """Read what an object scales: a HorizontalPodAutoscaler, or a ScaledObject of KEDA.

    Deployment is what KEDA scales where the kind is not said.
    """
    kind, group = str(data.get("kind", "")), group_of(str(data.get("apiVersion", "")))
    if (group, kind) not in (("autoscaling", "HorizontalPodAutoscaler"), ("keda.sh", "ScaledObject")):
        return None
    found = (data.get("spec") or {}).get("scaleTargetRef") or {}
    if not isinstance(found, Mapping) or not found.get("name"):
        return None
    metadata = data.get("metadata") or {}
    keda = group == "keda.sh"
    version = str(found.get("apiVersion") or ("apps/v1" if keda else ""))
    target = Identity(
        group_of(version),
        str(found.get("kind") or ("Deployment" if keda else "")),
        str(metadata.get("namespace") or ""),
        str(found["name"]),
    )
    return Autoscaler(name=f"{kind} {metadata.get('name', '')}", target=target)


def autoscalers(objects: Iterable[KubeObject]) -> dict[Identity, Autoscaler]:
    """Give the autoscalers among some objects by what they scale."""
    found = (autoscaler(one.data) for one in objects)
    return {one.target: one for one in found if one is not None}


def replicas_path(definition: Mapping[str, Any] | None, version: str) -> tuple[str, ...]:
    """Give the field that a custom resource's scale subresource writes, empty if it has none.

    Args:
        definition: the CustomResourceDefinition, None where it is not known.
        version: the version the object is written in.
    """
    for row in ((definition or {}).get("spec") or {}).get("versions") or ():
        if row.get("name") == version:
            path = ((row.get("subresources") or {}).get("scale") or {}).get("specReplicasPath") or ""
            return tuple(f"f:{name}" for name in path.strip(".").split(".") if name)
    return ()
