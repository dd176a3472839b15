"""Which workloads an autoscaler scales, and which field holds their number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from mlstack.errors import ForbiddenError, ObjectNotFoundError
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.objects.kube_object import Identity, KubeObject, group_of

# --- Which workloads an autoscaler scales, and which field holds their number ---

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


# --- Which workloads of a run an autoscaler scales: one that the run brings, or one in the cluster ---

Labels = Mapping[str, str]

AUTOSCALER = ("autoscaling/v2", "HorizontalPodAutoscaler")
_LISTED = (AUTOSCALER, ("keda.sh/v1alpha1", "ScaledObject"))


class Scalers:
    """Finds the autoscaler of a workload.

    Args:
        brought: every object of the run.
        cluster: where to look for others; asked once a namespace, and only if somebody asks.
        going: tells by its labels of an object that is not brought whether the run will delete it.
    """

    def __init__(
        self, brought: Sequence[KubeObject], cluster: Cluster, *, going: Callable[[Labels], bool]
    ) -> None:
        """Read what the run brings; nothing is asked."""
        self._cluster, self._lock, self._going = cluster, Lock(), going
        self._brought = autoscalers(brought)
        self._definitions = {
            found.name: found.data for found in brought if found.kind == "CustomResourceDefinition"
        }
        self._unlisted: set[str] = set()
        self._live: dict[str, tuple[dict[Identity, Autoscaler], dict[Identity, Autoscaler]]] = {}

    def brought(self, found: KubeObject) -> Autoscaler | None:
        """Give the autoscaler that the run itself brings for a workload."""
        return self._brought.get(found.identity)

    def live(self, found: KubeObject) -> Autoscaler | None:
        """Give the autoscaler that the cluster has for a workload, and will have after the run."""
        return self._listed(found.namespace)[0].get(found.identity)

    def loses(self, found: KubeObject) -> bool:
        """Tell whether the run takes the autoscaler of a workload away."""
        return found.identity in self._listed(found.namespace)[1]

    def has_none(self, found: KubeObject) -> bool:
        """Tell whether nothing scales a workload after the run; false where one may not look."""
        stays = self.brought(found) or self.live(found)
        return stays is None and found.namespace not in self._unlisted

    def path(self, found: KubeObject) -> tuple[str, ...]:
        """Give the field that holds a workload's number; empty for kinds that cannot be scaled."""
        if (found.group, found.kind) in SCALABLE:
            return REPLICAS
        if self._brought.get(found.identity) is None:
            return ()
        return replicas_path(self._definition(found), found.version)

    def _definition(self, found: KubeObject) -> Mapping[str, Any] | None:
        kind = self._cluster.kinds().lookup(found.api_version, found.kind)
        name = f"{kind.plural}.{found.group}" if kind else ""
        known = [self._definitions[name]] if name in self._definitions else []
        for data in [*known, *([] if known else self._definitions.values())]:
            if data["spec"]["group"] == found.group and data["spec"]["names"]["kind"] == found.kind:
                return data
        try:
            ref = ObjectRef("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name)
            return self._cluster.get(ref) if name else None
        except ForbiddenError:  # then the number is taken for an ordinary field
            return None

    def _listed(self, namespace: str) -> tuple[dict[Identity, Autoscaler], dict[Identity, Autoscaler]]:
        """Give by their targets the autoscalers that stay, and those that go."""
        with self._lock:
            if namespace not in self._live:
                items = list(self._list(namespace))
                going = [self._going(item["metadata"].get("labels") or {}) for item in items]
                found = list(zip(map(autoscaler, items), going, strict=True))
                stay, go = (
                    {one.target: one for one, goes in found if one and goes is side} for side in (False, True)
                )
                self._live[namespace] = (stay, go)
            return self._live[namespace]

    def _list(self, namespace: str) -> Iterator[Mapping[str, Any]]:
        for api_version, kind in _LISTED:
            if api_version.startswith("keda") and not self._cluster.kinds().lookup(api_version, kind):
                continue
            try:
                yield from self._cluster.list(api_version, kind, namespace=namespace).items
            except ObjectNotFoundError:
                continue
            except ForbiddenError:  # conflicts show whom the number belongs to
                self._unlisted.add(namespace)
