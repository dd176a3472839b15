"""What pods request and nodes have, as integers (thousandths of a core, bytes, pieces)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from math import ceil
from typing import Any

Amounts = Mapping[str, int]

_QUANTITY = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
_DECIMAL = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_MAX_EXPONENT = 1000


def quantity(value: Any) -> Decimal | None:
    """Read a Kubernetes quantity (`500m`, `1.5Gi`, `2`), None where it is none."""
    match = _QUANTITY.fullmatch(str(value))
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not match:
        return None
    number, unit = Decimal(match[1]), match[2] or ""
    if unit in _BINARY:
        return number * Decimal(1024) ** _BINARY[unit]
    exponent = _DECIMAL[unit] if unit in _DECIMAL else int(unit[1:])
    return number.scaleb(exponent) if abs(exponent) <= _MAX_EXPONENT else None


@lru_cache(maxsize=8192)
def amount(resource: str, text: str) -> int:
    """Read a quantity of a resource, rounded up; what is no quantity counts as nothing."""
    number = quantity(text) or 0
    return ceil(number * 1000) if resource == "cpu" else ceil(number)


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
    asked = total(_of_pod(spec, "limits", "requests"), amounts(spec.get("overhead")))
    return {**{name: value for name, value in asked.items() if value}, **_host_ports(spec), "pods": 1}


def limits(spec: Mapping[str, Any]) -> dict[str, int]:
    """Give the most that a pod may take, as far as its containers have limits."""
    overhead = amounts(spec.get("overhead"))
    return {name: value + overhead.get(name, 0) for name, value in _of_pod(spec, "limits").items() if value}


def _of_pod(spec: Mapping[str, Any], *kinds: str) -> dict[str, int]:
    """Add up what the containers of a pod have of these kinds; of one resource the last kind counts."""

    def read(holder: Mapping[str, Any]) -> dict[str, int]:
        resources = holder.get("resources") or {}
        return amounts({name: value for kind in kinds for name, value in (resources.get(kind) or {}).items()})

    sidecars: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        beside = total(sidecars, read(container))
        most = _most(most, beside)
        if container.get("restartPolicy") == "Always":
            sidecars = beside
    running = total(*map(read, spec.get("containers") or ()), sidecars)
    return {**_most(running, most), **read(spec)}


def is_device(resource: str) -> bool:
    """Tell resources of device plug-ins, as GPUs: whole pieces, of which a pod has as many as it asks for."""
    return "/" in resource and "kubernetes.io/" not in resource


def _host_ports(spec: Mapping[str, Any]) -> dict[str, int]:
    """Give the ports that a pod takes of its node: on the node's network all that its containers name.

    Of one address (`hostIP`) or of all is the same here: jobs serve on all of them.
    """
    sidecars = [
        container
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    ]
    ports: dict[str, int] = {}
    for container in (*(spec.get("containers") or ()), *sidecars):
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (port.get("containerPort") if spec.get("hostNetwork") else None)
            if number:
                ports[host_port(number, port.get("protocol") or "TCP")] = 1
    return ports


def total(*parts: Amounts) -> dict[str, int]:
    """Add amounts up by name."""
    amounts_by_name: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            amounts_by_name[name] = amounts_by_name.get(name, 0) + value
    return amounts_by_name


def _most(one: Amounts, other: Amounts) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def is_gpu(resource: str) -> bool:
    """Tell whether a resource is a GPU, or a part of one."""
    return resource.endswith("/gpu") or "/mig-" in resource


def written(resource: str, value: int) -> str:
    """Write an amount as people do: `0.5`, `8`, `64Gi`; of a port of the node its words."""
    if resource == "cpu":
        return f"{value / 1000:g}"
    if is_host_port(resource):
        return port_words(resource, value)
    if resource in ("memory", "ephemeral-storage", "storage") or resource.startswith("hugepages-"):
        for unit, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20)):
            if value >= size:
                return f"{value / size:.4g}{unit}"
    return str(value)


# --- ports of nodes as resources: one name for each port and protocol, and how people read it ---

_HOST_PORT = "hostport:"


def host_port(number: int, protocol: str) -> str:
    """Name a port of a node among resources: `hostport:7164:TCP`."""
    return f"{_HOST_PORT}{number}:{protocol}"


def is_host_port(resource: str) -> bool:
    """Tell whether a resource is a port of the node: each node has one of it, unsaid."""
    return resource.startswith(_HOST_PORT)


def port_words(resource: str, pieces: int) -> str:
    """Write so many of a port as people read it: `host port 7164/TCP`, `3 host ports 7164/TCP`."""
    number, _, protocol = resource.removeprefix(_HOST_PORT).partition(":")
    return f"{'host port' if pieces == 1 else f'{pieces} host ports'} {number}/{protocol}"
