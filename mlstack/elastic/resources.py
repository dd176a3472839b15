"""What pods request and nodes have, as integers (thousandths of a core, bytes, pieces); what quotas leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Any

from mlstack.elastic import snapshot
from mlstack.elastic.snapshot import Vector
from mlstack.validate.formats import quantity

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
                found[snapshot.key(number, port.get("protocol") or "TCP")] = 1
    return found


def _sum(parts: Iterable[Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return total


def _most(one: Amounts, other: Amounts) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


# --- ResourceQuotas: what they leave a namespace, and which priority classes they grant it ---

Scope = tuple[str, str, frozenset[str]]
"""Name of a scope, operator, values."""

# By these names alone, or with `requests.` before them; extended resources have the prefix always.
_PLAIN = ("cpu", "memory", "ephemeral-storage")
_PREFIXES = ("requests.", "limits.")
_BEST_EFFORT = ("cpu", "memory")


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotaFacts:
    """What is known of a ResourceQuota."""

    key: str  # `namespace/name`
    uid: str
    version: int
    hard: Amounts  # what the namespace may have in all, as its controller has taken note of it
    used: Amounts  # what it has
    scopes: tuple[Scope, ...]  # which pods count; all of them have to hold

    @property
    def namespace(self) -> str:
        """Give its namespace."""
        return self.key.partition("/")[0]

    @property
    def classes(self) -> frozenset[str]:
        """Give the priority classes that it names and leaves something for: the namespace may use them."""
        if not any(self.hard.values()):
            return frozenset()
        found = [values for name, how, values in self.scopes if (name, how) == ("PriorityClass", "In")]
        return frozenset[str]().union(*found)


def parse_quota(obj: Mapping[str, Any]) -> QuotaFacts:
    """Read a ResourceQuota."""
    metadata, wanted, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    return QuotaFacts(
        key=f"{metadata.get('namespace')}/{metadata['name']}",
        uid=str(metadata.get("uid") or ""),
        version=int(version) if (version := str(metadata.get("resourceVersion") or "")).isdigit() else 0,
        hard=_amounts(status.get("hard") or wanted.get("hard")),
        used=_amounts(status.get("used")),
        scopes=tuple(_scopes(wanted)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Excess:
    """A quota that leaves too little."""

    text: str  # which, and how much it lacks
    is_for_good: bool  # whether it would be too small with nothing used of it


def excess(
    quotas: Iterable[QuotaFacts], pods: Iterable[tuple[Mapping[str, Any], int]], others: Amounts
) -> Excess | None:
    """Give the first quota that leaves too little for all these objects together, None where none does.

    One pod alone is weighed by the API server; it does not know that others of the gang follow.
    """
    weighed = [(pod.get("spec") or {}, count) for pod, count in pods]
    for quota in sorted(quotas, key=lambda each: each.key):
        needed = {} if quota.scopes else dict(others)
        for spec, count in weighed:
            for name, value in _usage(spec).items() if _counts(quota, spec) else ():
                needed[name] = needed.get(name, 0) + count * value
        short = [
            name
            for name, hard in sorted(quota.hard.items())
            if needed.get(name) and quota.used.get(name, 0) + needed[name] > hard
        ]
        if short:
            lacks = "; ".join(_lack(quota, name, needed[name]) for name in short)
            text = f"exceeded quota: {quota.key.rpartition('/')[2]}, for the whole gang: {lacks}"
            return Excess(text=text, is_for_good=any(needed[name] > quota.hard[name] for name in short))
    return None


def _lack(quota: QuotaFacts, name: str, value: int) -> str:
    used, hard = quota.used.get(name, 0), quota.hard[name]
    return f"{name}: {_written(name, value)} more, {_written(name, used)} of {_written(name, hard)} used"


def _usage(spec: Mapping[str, Any]) -> dict[str, int]:
    """Give what a pod uses up, by all the names that quotas have for it (pkg/quota/v1/evaluator/core)."""
    wanted = requests(spec)
    found = {f"requests.{name}": value for name, value in wanted.items() if name != "pods"}
    found |= {
        name: value for name, value in wanted.items() if name in _PLAIN or name.startswith("hugepages-")
    }
    found |= {f"limits.{name}": value for name, value in limits(spec).items()}
    return {**found, "pods": 1, "count/pods": 1}


def _counts(quota: QuotaFacts, spec: Mapping[str, Any]) -> bool:
    """Tell whether a pod counts for a quota; one with a scope that nobody here knows counts nothing."""
    return all(_is_in(scope, spec) for scope in quota.scopes)


def _is_in(scope: Scope, spec: Mapping[str, Any]) -> bool:
    name, how, values = scope
    is_best_effort = not any(
        amounts.get(each) for amounts in (requests(spec), limits(spec)) for each in _BEST_EFFORT
    )
    if name == "PriorityClass":
        has_class = str(spec.get("priorityClassName") or "")
        answers = {"In": has_class in values, "NotIn": has_class not in values, "Exists": bool(has_class)}
        return answers.get(how, not has_class)
    return {
        "Terminating": spec.get("activeDeadlineSeconds") is not None,
        "NotTerminating": spec.get("activeDeadlineSeconds") is None,
        "BestEffort": is_best_effort,
        "NotBestEffort": not is_best_effort,
    }.get(name, False)


def _scopes(wanted: Mapping[str, Any]) -> Iterator[Scope]:
    for name in wanted.get("scopes") or ():
        yield str(name), "Exists", frozenset()
    for one in (wanted.get("scopeSelector") or {}).get("matchExpressions") or ():
        values = frozenset(map(str, one.get("values") or ()))
        yield str(one.get("scopeName") or ""), str(one.get("operator") or ""), values


def _amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    return {str(name): amount(_resource(name), str(value)) for name, value in (quantities or {}).items()}


def _resource(name: str) -> str:
    """Give the resource that an entry of a quota is about: `cpu` for `requests.cpu`."""
    return next((name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)), name)


def _written(name: str, value: int) -> str:
    if _resource(name) == "cpu":
        return f"{value / 1000:g}"
    is_bytes = _resource(name) in ("memory", "ephemeral-storage") and value >= 2**20
    return f"{value / 2**20:g}Mi" if is_bytes else str(value)
