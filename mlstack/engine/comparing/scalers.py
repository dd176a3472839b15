"""Which workloads of a run an autoscaler scales: one that the run brings, or one in the cluster."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any

from mlstack.cluster.api import Cluster, ObjectRef
from mlstack.errors import ForbiddenError, ObjectNotFoundError
from mlstack.model import scaling
from mlstack.model.objects import Identity, KubeObject
from mlstack.model.scaling import REPLICAS, SCALABLE, Autoscaler

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
        self._brought = scaling.autoscalers(brought)
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
        return scaling.replicas_path(self._definition(found), found.version)

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
                found = list(zip(map(scaling.autoscaler, items), going, strict=True))
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
