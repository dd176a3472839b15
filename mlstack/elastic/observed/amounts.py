"""What pods request and nodes have, as integers: thousandths of a core, bytes, whole pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from math import ceil
from typing import Any

from mlstack.elastic import hostports
from mlstack.elastic.snapshot import Vector
from mlstack.model.validation.formats import quantity

Amounts = Mapping[str, int]

BASIC = ("cpu", "memory", "pods")
"""Resources that every vector has, in this order; others follow by name."""


@lru_cache(maxsize=8192)
def amount(resource: str, text: str) -> int:
    """Read a quantity of a resource, rounded up; what is no quantity counts as nothing."""
    found = quantity(text)
    if found is None:
        return 0
    return ceil(found * 1000) if resource == "cpu" else ceil(found)


def amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    """Read quantities by resource."""
    return {name: amount(name, str(value)) for name, value in (quantities or {}).items()}


def requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """Give what the scheduler reserves for a pod, itself (`pods`) included.

    Containers and sidecars (init containers that are always restarted) add up; each other init container runs
    alone beside the sidecars that were started before it, so that the most of these counts; overhead comes on
    top. Requests of the pod as a whole replace the sum. See Kubernetes' pages on init containers, sidecars
    and pod overhead. A port of the node is a thing that each node has one of.
    """
    total = _sum((_of_pod(spec, _container), amounts(spec.get("overhead"))))
    return {**{name: value for name, value in total.items() if value}, **_host_ports(spec), "pods": 1}


def limits(spec: Mapping[str, Any]) -> dict[str, int]:
    """Give the most that a pod may take, as far as its containers have limits."""
    overhead = amounts(spec.get("overhead"))
    found = _of_pod(spec, _limits)
    return {name: value + overhead.get(name, 0) for name, value in found.items() if value}


def _of_pod(spec: Mapping[str, Any], read: Callable[[Mapping[str, Any]], Amounts]) -> dict[str, int]:
    """Add up what is read of each container of a pod."""
    running = _sum(map(read, spec.get("containers") or ()))
    sidecars: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        wanted = read(container)
        if container.get("restartPolicy") == "Always":
            sidecars = _sum((sidecars, wanted))
            most = _most(most, sidecars)
        else:
            most = _most(most, _sum((sidecars, wanted)))
    total = _most(_sum((running, sidecars)), most)
    return {**total, **read(spec)}


def is_device(resource: str) -> bool:
    """Tell resources of device plug-ins, as GPUs: whole pieces, of which a pod has as many as it asks for."""
    return "/" in resource and "kubernetes.io/" not in resource


def vector(wanted: Amounts, resources: Sequence[str]) -> Vector:
    """Put amounts into the order of a snapshot's resources."""
    return tuple(wanted.get(name, 0) for name in resources)


@lru_cache(maxsize=65536)
def time_ms(text: str) -> int:
    """Read a time as the API server writes it, in milliseconds since 1970; 0 for none."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000) if text else 0
    except ValueError:
        return 0


def _container(spec: Mapping[str, Any]) -> dict[str, int]:
    """Give the requests of a container; where there are none its limits count, as the API server has it."""
    resources = spec.get("resources") or {}
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _limits(spec: Mapping[str, Any]) -> dict[str, int]:
    return amounts((spec.get("resources") or {}).get("limits"))


def _host_ports(spec: Mapping[str, Any]) -> dict[str, int]:
    """Give the ports that a pod takes of its node: on the node's network all that its containers name.

    Of one address (`hostIP`) or of all is the same here: jobs serve on all of them.
    """
    sidecars = [one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"]
    found: dict[str, int] = {}
    for container in (*(spec.get("containers") or ()), *sidecars):
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (port.get("containerPort") if spec.get("hostNetwork") else None)
            if number:
                found[hostports.key(number, port.get("protocol") or "TCP")] = 1
    return found


def _sum(parts: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return total


def _most(one: Amounts, other: Amounts) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}
