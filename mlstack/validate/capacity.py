"""Whether the nodes and quotas of a cluster have room for what is rendered: as a snapshot of it says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mlstack.objects.kube_object import KubeObject
from mlstack.objects.pods import PodTemplate, templates
from mlstack.objects.resources import Amounts, amount, amounts, is_host_port, requests, written
from mlstack.validate.formats import Fault

_OUT_OF_QUOTA = ("requests.", "limits.")


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
    """Warn where all pods of a namespace together ask for more than a quota gives."""
    total: dict[str, int] = defaultdict(int)
    for obj in objects:
        for template in templates(obj) if obj.namespace == namespace else ():
            total["pods"] += template.replicas
            for resource, value in _asked(template).items():
                total[f"requests.{resource}"] += value * template.replicas
    for quota in quotas:
        for name, hard in sorted((quota.get("hard") or {}).items()):
            key = name if name == "pods" or name.startswith(_OUT_OF_QUOTA) else f"requests.{name}"
            resource = key.removeprefix("requests.").removeprefix("limits.")
            asked = total.get(key, 0)
            if asked > amount(resource, str(hard)):
                yield Fault(
                    component="",
                    object=f"ResourceQuota {namespace}/{quota.get('name')}",
                    path=f"spec.hard.{name}",
                    message=f"all pods together ask for {written(resource, asked)}, the quota gives {hard}",
                    severity="warning",
                )


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
