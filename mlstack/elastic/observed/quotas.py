"""ResourceQuotas: what they leave a namespace, and which priority classes they grant it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mlstack.elastic.observed.amounts import Amounts, amount, limits, requests
from mlstack.elastic.observed.nodes import version

Scope = tuple[str, str, frozenset[str]]
"""Name of a scope, operator, values."""

# By these names alone, or with `requests.` before them; extended resources have the prefix always.
_PLAIN = ("cpu", "memory", "ephemeral-storage")
_PREFIXES = ("requests.", "limits.")
_BEST_EFFORT = ("cpu", "memory")


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotaFacts:
    """What is known of a ResourceQuota.

    Attributes:
        key: `namespace/name`.
        uid: its UID.
        version: resource version of the object.
        hard: what the namespace may have in all, as its controller has taken note of it.
        used: what it has.
        scopes: which pods count; all of them have to hold.
    """

    key: str
    uid: str
    version: int
    hard: Amounts
    used: Amounts
    scopes: tuple[Scope, ...]

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


def parse(obj: Mapping[str, Any]) -> QuotaFacts:
    """Read a ResourceQuota."""
    metadata, wanted, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    return QuotaFacts(
        key=f"{metadata.get('namespace')}/{metadata['name']}",
        uid=str(metadata.get("uid") or ""),
        version=version(metadata),
        hard=_amounts(status.get("hard") or wanted.get("hard")),
        used=_amounts(status.get("used")),
        scopes=tuple(_scopes(wanted)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Excess:
    """A quota that leaves too little.

    Attributes:
        text: which, and how much it lacks.
        is_for_good: whether it would be too small with nothing used of it.
    """

    text: str
    is_for_good: bool


def excess(
    quotas: Iterable[QuotaFacts], pods: Iterable[tuple[Mapping[str, Any], int]], others: Amounts
) -> Excess | None:
    """Give the first quota that leaves too little for all these objects together, None where none does.

    One pod alone is weighed by the API server; it does not know that others of the gang follow.

    Args:
        quotas: of the namespace.
        pods: pods as the API server would take them, each with how many of it there are to be.
        others: further objects by the name that quotas have for their number.
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
