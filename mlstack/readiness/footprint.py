"""What objects take of a cluster: pods, what they request and may take, GPUs, storage, load balancers.

Amounts are by name: `pods`, `requests.cpu` (thousandths of a core), `requests.memory` (bytes), `limits.…`,
`storage.CLASS` (bytes; no class is the cluster's own), `gpus.PRODUCT` (pieces) and `loadbalancers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlstack.objects.kube_object import Identity, KubeObject, group_of
from mlstack.objects.pods import PodTemplate, templates
from mlstack.objects.resources import Amounts, amount, is_gpu, limits, requests
from mlstack.readiness import ml as ml  # registers its rules, and those of training
from mlstack.readiness.rule import PODS, UNCOUNTED, key_of

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
    """Add up what objects take together."""
    scaled = dict(_scaled(objects))
    parts: dict[str, list[Amounts]] = {"now": [], "least": [], "most": [], "per_node": []}
    uncounted = []
    for obj in objects:
        if key_of(obj.data) in UNCOUNTED:
            uncounted.append(str(obj.identity))
            continue
        others = _others(obj)
        for name in ("now", "least", "most"):
            parts[name].append(others)
        for template in pods_of(obj):
            one = _of_pod(template.spec)
            if template.is_per_node:
                parts["per_node"].append(one)
                continue
            first = template.replicas
            least = first if template.least is None else template.least
            most = first if template.most is None else template.most
            if obj.identity in scaled:
                least, most = scaled[obj.identity]
                first = min(max(first, least), most)
            for name, count in (("now", first), ("least", least), ("most", most)):
                claims = _claims(obj)
                parts[name].append({key: value * count for key, value in (one | claims).items()})
    return Footprint(**{name: _sum(rows) for name, rows in parts.items()}, uncounted=tuple(uncounted))


def pods_of(obj: KubeObject) -> tuple[PodTemplate, ...]:
    """Give the pods that an object makes, by its kind's rule, else by the templates that stand in it."""
    rule = PODS.get(key_of(obj.data))
    return templates(obj) if rule is None else tuple(rule(obj.data.get("spec") or {}))


def _of_pod(spec: Mapping[str, Any]) -> dict[str, int]:
    asked = {name: value for name, value in requests(spec).items() if not name.startswith("hostport:")}
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
    return _sum(_claim(row.get("spec") or {}) for row in obj.data["spec"].get("volumeClaimTemplates") or ())


def _claim(spec: Mapping[str, Any]) -> dict[str, int]:
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    return {f"storage.{spec.get('storageClassName') or ''}": amount("storage", str(size))} if size else {}


def _scaled(objects: Iterable[KubeObject]) -> Iterator[tuple[Identity, tuple[int, int]]]:
    """Give between which counts autoscalers of the objects hold which workloads."""
    for obj in objects:
        spec = obj.data.get("spec") or {}
        target, least, most = spec.get("scaleTargetRef"), spec.get("minReplicas", 1), spec.get("maxReplicas")
        if obj.kind == "HorizontalPodAutoscaler" and isinstance(target, Mapping) and isinstance(most, int):
            group, name = group_of(str(target.get("apiVersion") or "")), str(target.get("name"))
            yield Identity(group, str(target.get("kind")), obj.namespace, name), (least, most)


def _sum(parts: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return {name: value for name, value in total.items() if value}
