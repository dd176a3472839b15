"""What objects take of a cluster: pods, what they request and may take, GPUs, storage, load balancers.

Amounts are by name: `pods`, `requests.cpu` (thousandths of a core), `requests.memory` (bytes), `limits.…`,
`storage.CLASS` (bytes; no class is the cluster's own), `gpus.PRODUCT` (pieces) and `loadbalancers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from mlstack.dataclass import dataclass
from mlstack.objects.kube_object import Identity, KubeObject
from mlstack.objects.references import PodTemplate, scaled_workload, templates
from mlstack.objects.resources import Amounts, amount, is_gpu, is_host_port, limits, requests, total
from mlstack.readiness import ml as ml  # registers its rules, and those of training
from mlstack.readiness.assess import ODD
from mlstack.readiness.rule import PODS, UNCOUNTED, key_of, number

# Labels that say which GPU a pod asks for: of GKE, NVIDIA's feature discovery, Karpenter on AWS, AKS.
_PRODUCTS = (
    "cloud.google.com/gke-accelerator",
    "nvidia.com/gpu.product",
    "karpenter.k8s.aws/instance-gpu-name",
    "kubernetes.azure.com/accelerator",
)
_ANY = "any product"


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """What objects take: at first, and at least and at most where controllers scale them."""

    now: Amounts = field(default_factory=dict)
    least: Amounts = field(default_factory=dict)
    most: Amounts = field(default_factory=dict)
    per_node: Amounts = field(default_factory=dict)  # what comes on top for each node of the cluster
    uncounted: tuple[str, ...] = ()  # objects that make pods nobody can count beforehand

    def __sub__(self, other: Footprint) -> dict[str, int]:
        """Give by how much it is more at first than another, by amount; what is the same is left out."""
        names = {**self.now, **other.now}
        change = {name: self.now.get(name, 0) - other.now.get(name, 0) for name in names}
        return {name: value for name, value in change.items() if value}


def footprint(objects: Sequence[KubeObject]) -> Footprint:
    """Add up what objects take together; odd ones, which the API server refuses, are not counted."""
    scaled = dict(scaled_between(objects))
    parts: dict[str, list[Amounts]] = {"now": [], "least": [], "most": [], "per_node": []}
    uncounted = []
    for obj in objects:
        try:
            rows = None if key_of(obj.data) in UNCOUNTED else list(_taken(obj, scaled.get(obj.identity)))
        except ODD:
            rows = None
        if rows is None:
            uncounted.append(str(obj.identity))
        for name, amounts in rows or ():
            parts[name].append(amounts)
    sums = {name: total(*rows) for name, rows in parts.items()}
    return Footprint(
        **{name: {key: value for key, value in row.items() if value} for name, row in sums.items()},
        uncounted=tuple(uncounted),
    )


def _taken(obj: KubeObject, scaled: tuple[int, int] | None) -> Iterator[tuple[str, Amounts]]:
    """Give what an object takes, each part under the field of a Footprint that it counts in."""
    own, claims = _others(obj), _claims(obj)
    yield from (("now", own), ("least", own), ("most", own))
    for template in pods_of(obj):
        pod = {**_of_pod(template.spec), **claims}
        if template.is_per_node:
            yield "per_node", pod
            continue
        first = template.replicas
        least = first if template.least is None else template.least
        most = first if template.most is None else template.most
        if scaled is not None:
            least, most = scaled
            first = min(max(first, least), most)
        for name, count in (("now", first), ("least", least), ("most", most)):
            yield name, {key: value * count for key, value in pod.items()}


def pods_of(obj: KubeObject) -> tuple[PodTemplate, ...]:
    """Give the pods that an object makes, by its kind's rule, else by the templates that stand in it."""
    rule = PODS.get(key_of(obj.data))
    return templates(obj) if rule is None else tuple(rule(obj.data.get("spec") or {}))


def _of_pod(spec: Mapping[str, Any]) -> dict[str, int]:
    asked = {name: value for name, value in requests(spec).items() if not is_host_port(name)}
    count = {"pods": asked.pop("pods")}
    gpus = sum(value for name, value in asked.items() if is_gpu(name))
    selectors = {**_required(spec), **(spec.get("nodeSelector") or {})}
    product = next((str(selectors[label]) for label in _PRODUCTS if label in selectors), _ANY)
    return {
        **count,
        **{f"requests.{name}": value for name, value in asked.items()},
        **{f"limits.{name}": value for name, value in limits(spec).items()},
        **({f"gpus.{product}": gpus} if gpus else {}),
    }


def _required(spec: Mapping[str, Any]) -> dict[str, str]:
    """Give the labels that node affinity asks for with one value."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms")
    rows = [row for term in (terms or ())[:1] for row in term.get("matchExpressions") or ()]
    return {
        str(row.get("key")): str(row["values"][0])
        for row in rows
        if row.get("operator") == "In" and len(row.get("values") or ()) == 1
    }


def _others(obj: KubeObject) -> dict[str, int]:
    """Give what an object takes itself: a claim its storage, a Service its load balancer."""
    spec = obj.data.get("spec") or {}
    if obj.group == "" and obj.kind == "PersistentVolumeClaim":
        return _claim(spec)
    if obj.group == "" and obj.kind == "Service" and spec.get("type") == "LoadBalancer":
        return {"loadbalancers": 1}
    return {}


def _claims(obj: KubeObject) -> dict[str, int]:
    """Give the storage of each pod of a StatefulSet."""
    if (obj.group, obj.kind) != ("apps", "StatefulSet"):
        return {}
    return total(
        *(_claim(row.get("spec") or {}) for row in obj.data["spec"].get("volumeClaimTemplates") or ())
    )


def _claim(spec: Mapping[str, Any]) -> dict[str, int]:
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    return {f"storage.{spec.get('storageClassName') or ''}": amount("storage", str(size))} if size else {}


def scaled_between(objects: Iterable[KubeObject]) -> Iterator[tuple[Identity, tuple[int, int]]]:
    """Give between which counts HorizontalPodAutoscalers of the objects hold which workloads."""
    for obj in objects:
        if obj.kind == "HorizontalPodAutoscaler" and (workload := scaled_workload(obj.data)) is not None:
            most = obj.data["spec"].get("maxReplicas")
            if isinstance(most, int):
                yield workload, (number(obj.data["spec"], "minReplicas", 1), most)
