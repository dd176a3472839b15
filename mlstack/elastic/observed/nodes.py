"""A Node object, parsed: whether it takes pods, and how much of what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlstack.elastic.observed.amounts import Amounts, amounts, is_device
from mlstack.elastic.observed.placement import Place, blocking


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFacts:
    """What is known of a node.

    Attributes:
        place: name, labels and taints.
        allocatable: what pods may request of it.
        devices: what device plug-ins brought to it, by its capacity: also while a plug-in is not there.
        takes_pods: whether it is Ready, not cordoned and not being deleted.
        version: resource version of the object.
        uid: UID of the object.
    """

    place: Place
    allocatable: Amounts
    devices: Amounts
    takes_pods: bool
    version: int
    uid: str


def parse(obj: Mapping[str, Any]) -> NodeFacts:
    """Read a Node."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    spec = obj.get("spec") or {}
    ready = any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )
    allocatable = amounts(status.get("allocatable") or status.get("capacity"))
    capacity = amounts(status.get("capacity"))
    return NodeFacts(
        place=Place(metadata["name"], metadata.get("labels") or {}, blocking(spec.get("taints"))),
        allocatable=allocatable,
        devices={name: n for name, n in {**allocatable, **capacity}.items() if n and is_device(name)},
        takes_pods=ready and not spec.get("unschedulable") and not metadata.get("deletionTimestamp"),
        version=version(metadata),
        uid=str(metadata.get("uid") or ""),
    )


def version(metadata: Mapping[str, Any]) -> int:
    """Read a resource version as a number, 0 where it is none; they grow with every write."""
    text = str(metadata.get("resourceVersion") or "")
    return int(text) if text.isdigit() else 0
