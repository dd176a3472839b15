"""Whether the nodes and quotas of a cluster have room for what is rendered: as a snapshot of it says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from mlstack.objects.kube_object import KubeObject
from mlstack.objects.pods import PodTemplate, templates
from mlstack.validate.formats import Fault, quantity

Amounts = Mapping[str, Any]
_OUT_OF_QUOTA = ("requests.", "limits.")


def too_large(objects: Sequence[KubeObject], nodes: Sequence[Amounts]) -> Iterator[Fault]:
    """Warn of pods that no node has room for, even an empty one; `nodes` are what each shape can give."""
    if not nodes:
        return
    for obj in objects:
        for template in templates(obj):
            asked = _asked(template)
            if any(_fits(asked, node) for node in nodes):
                continue
            for resource, amount in sorted(asked.items()):
                most = max((_amount(node.get(resource)) for node in nodes), default=Decimal(0))
                if amount > most:
                    text = f"a pod asks for {_plain(amount)} {resource}, no node has more than {_plain(most)}"
                    yield _warning(obj, template, text)
                    break
            else:
                what = ", ".join(f"{_plain(amount)} {name}" for name, amount in sorted(asked.items()))
                yield _warning(obj, template, f"a pod asks for {what}, which no node has together")


def over_quota(
    objects: Sequence[KubeObject], quotas: Sequence[Mapping[str, Any]], namespace: str
) -> Iterator[Fault]:
    """Warn where all pods of a namespace together ask for more than a quota gives."""
    total: dict[str, Decimal] = defaultdict(Decimal)
    for obj in objects:
        for template in templates(obj) if obj.namespace == namespace else ():
            total["pods"] += template.replicas
            for resource, amount in _asked(template).items():
                total[f"requests.{resource}"] += amount * template.replicas
    for quota in quotas:
        for name, hard in sorted((quota.get("hard") or {}).items()):
            key = name if name == "pods" or name.startswith(_OUT_OF_QUOTA) else f"requests.{name}"
            if total.get(key, Decimal(0)) > _amount(hard):
                yield Fault(
                    component="",
                    object=f"ResourceQuota {namespace}/{quota.get('name')}",
                    path=f"spec.hard.{name}",
                    message=f"all pods together ask for {_plain(total[key])}, the quota gives {hard}",
                    severity="warning",
                )


def _asked(template: PodTemplate) -> dict[str, Decimal]:
    return {
        name: sum((_amount(text) for text in texts.split()), Decimal(0))
        for name, texts in template.requests().items()
    }


def _fits(asked: Mapping[str, Decimal], node: Amounts) -> bool:
    return all(amount <= _amount(node.get(resource)) for resource, amount in asked.items())


def _amount(value: Any) -> Decimal:
    return quantity(value) or Decimal(0) if value is not None else Decimal(0)


def _plain(amount: Decimal) -> str:
    """Write an amount as people do: `0.5`, `8`, `64Gi`."""
    for unit, power in (("Ti", 4), ("Gi", 3), ("Mi", 2)):
        if amount and amount % Decimal(1024) ** power == 0:
            return f"{amount / Decimal(1024) ** power:f}{unit}"
    return f"{amount.normalize():f}"


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
