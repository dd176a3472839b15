"""Whether the nodes and quotas of a cluster have room for what is rendered: as a snapshot of it says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mlstack.objects.kube_object import KubeObject, plural_of
from mlstack.objects.references import PodTemplate, templates
from mlstack.objects.resources import Amounts, amount, amounts, is_host_port, limits, requests, written
from mlstack.validate.formats import Fault

_REQUESTS = ("cpu", "memory", "ephemeral-storage")  # as quotas may say `requests.cpu`, and so on


def too_large(objects: Sequence[KubeObject], nodes: Sequence[Mapping[str, Any]]) -> Iterator[Fault]:
    """Warn of pods that no node has room for, even an empty one; `nodes` are what each shape can give."""
    if not nodes:
        return
    shapes = [amounts(node) for node in nodes]
    for obj in objects:
        for template in templates(obj):
            asked = _asked(template)
            if any(_fits(asked, shape) for shape in shapes):
                continue
            for resource, value in sorted(asked.items()):
                most = max(shape.get(resource, 0) for shape in shapes)
                if value > most:
                    more, less = written(resource, value), written(resource, most)
                    text = f"a pod asks for {more} {resource}, no node has more than {less}"
                    yield _warning(obj, template, text)
                    break
            else:
                what = ", ".join(f"{written(name, value)} {name}" for name, value in sorted(asked.items()))
                yield _warning(obj, template, f"a pod asks for {what}, which no node has together")


def over_quota(
    objects: Sequence[KubeObject], quotas: Sequence[Mapping[str, Any]], namespace: str
) -> Iterator[Fault]:
    """Warn where all objects of a namespace together are or ask for more than a quota gives.

    Requests and limits of pods, storage (of each class too), and counts of objects, in the words of
    https://kubernetes.io/docs/concepts/policy/resource-quotas/.
    """
    total: Counter[str] = Counter()
    for obj in objects:
        if obj.namespace == namespace:
            total.update(_counts(obj))
    for quota in quotas:
        for name, hard in sorted((quota.get("hard") or {}).items()):
            resource = name.rpartition("requests.")[2].removeprefix("limits.")
            asked = total[f"requests.{name}" if name in _REQUESTS else name]
            if asked > amount(resource, str(hard)):
                verb = "ask for" if f"requests.{resource}" in total or name.startswith("limits.") else "are"
                amount_asked = f"{written(resource, asked)} {resource}"
                yield Fault(
                    component="",
                    object=f"ResourceQuota {namespace}/{quota.get('name')}",
                    path=f"spec.hard.{name}",
                    message=f"all together {verb} {amount_asked}, the quota gives {hard}",
                    severity="warning",
                )


def _counts(obj: KubeObject) -> Counter[str]:
    """Give how much of what quotas count an object is, and asks for with its pods and claims."""
    plural, spec = plural_of(obj.kind), obj.data.get("spec") or {}
    counts = Counter({f"count/{plural}.{obj.group}".rstrip("."): 1})
    pods = templates(obj)
    for template in pods:
        counts["pods"] += template.replicas
        parts = {"requests": _asked(template), "limits": limits(template.spec)}
        for kind, amounts_of_pod in parts.items():
            counts.update(
                {f"{kind}.{name}": value * template.replicas for name, value in amounts_of_pod.items()}
            )
    if not obj.group and obj.kind != "Pod":
        counts[plural] += 1
    if (obj.group, obj.kind) == ("", "Service") and spec.get("type") in ("NodePort", "LoadBalancer"):
        counts["services.loadbalancers"] += spec["type"] == "LoadBalancer"
        counts["services.nodeports"] += len(spec.get("ports") or ())
    claims = [spec] if (obj.group, obj.kind) == ("", "PersistentVolumeClaim") else []
    claims += [claim.get("spec") or {} for claim in spec.get("volumeClaimTemplates") or ()]
    replicas = pods[0].replicas if pods else 1
    for claim in claims:
        asked = amounts((claim.get("resources") or {}).get("requests")).get("storage", 0) * replicas
        of_class = f"{claim.get('storageClassName')}.storageclass.storage.k8s.io/"
        for prefix in ("", of_class):
            counts[f"{prefix}requests.storage"] += asked
            if prefix or obj.kind == "StatefulSet":
                counts[f"{prefix}persistentvolumeclaims"] += replicas
    return counts


def _asked(template: PodTemplate) -> Amounts:
    """Give what a pod asks of its node; every empty node has room for its ports."""
    return {
        name: value
        for name, value in requests(template.spec).items()
        if name != "pods" and not is_host_port(name)
    }


def _fits(asked: Amounts, node: Amounts) -> bool:
    return all(value <= node.get(resource, 0) for resource, value in asked.items())


def _warning(obj: KubeObject, template: PodTemplate, message: str) -> Fault:
    role = f" ({template.role})" if template.role else ""
    return Fault(
        component=obj.component,
        object=str(obj.identity),
        path="",
        message=f"{message}{role}",
        where=str(obj.source) if obj.source else None,
        severity="warning",
    )
