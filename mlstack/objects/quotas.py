"""ResourceQuotas: what they leave a namespace, and which priority classes they grant it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from mlstack.dataclass import dataclass
from mlstack.objects.resources import Amounts, amount, limits, requests, written

Scope = tuple[str, str, frozenset[str]]
"""Name of a scope, operator, values."""


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
        named = [values for *scope, values in self.scopes if scope == ["PriorityClass", "In"]]
        return frozenset[str]().union(*named)


def parse_quota(obj: Mapping[str, Any]) -> QuotaFacts:
    """Read a ResourceQuota."""
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    scopes: list[Scope] = [(str(name), "Exists", frozenset()) for name in spec.get("scopes") or ()]
    for row in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        values = frozenset(map(str, row.get("values") or ()))
        scopes.append((str(row.get("scopeName") or ""), str(row.get("operator") or ""), values))
    hard, used = (
        {str(name): amount(_resource(name), str(value)) for name, value in (quantities or {}).items()}
        for quantities in (status.get("hard") or spec.get("hard"), status.get("used"))
    )
    return QuotaFacts(
        key=f"{metadata.get('namespace')}/{metadata['name']}",
        uid=str(metadata.get("uid") or ""),
        version=int(version) if (version := str(metadata.get("resourceVersion") or "")).isdigit() else 0,
        hard=hard,
        used=used,
        scopes=tuple(scopes),
    )


def _resource(name: str) -> str:
    """Give the resource that an entry of a quota is about: `cpu` for `requests.cpu`."""
    return name.removeprefix("requests.").removeprefix("limits.")


class Excess(NamedTuple):
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
    for quota in sorted(quotas, key=lambda quota: quota.key):
        needed = usage_in(quota, weighed, others)
        short = exceeded(quota, needed)
        if short:
            text = (
                f"exceeded quota: {quota.key.rpartition('/')[2]}, for the whole gang: {lack(quota, needed)}"
            )
            return Excess(text, is_for_good=any(needed[name] > quota.hard[name] for name in short))
    return None


def usage_in(
    quota: QuotaFacts, pods: Iterable[tuple[Mapping[str, Any], int]], others: Amounts
) -> dict[str, int]:
    """Give what pods, by specification and number, and other objects count for in a quota."""
    needed = {} if quota.scopes else dict(others)
    for spec, count in pods:
        if all(_is_in(scope, spec) for scope in quota.scopes):
            for name, value in _usage(spec).items():
                needed[name] = needed.get(name, 0) + count * value
    return needed


def exceeded(quota: QuotaFacts, needed: Amounts) -> list[str]:
    """Give the entries of a quota that leave less than is needed."""
    return [
        name
        for name, hard in sorted(quota.hard.items())
        if needed.get(name, 0) > 0 and quota.used.get(name, 0) + needed[name] > hard
    ]


def lack(quota: QuotaFacts, needed: Amounts) -> str:
    """Say of each entry of a quota that leaves too little how much is needed and used."""
    return "; ".join(_lack(quota, name, needed[name]) for name in exceeded(quota, needed))


def _lack(quota: QuotaFacts, name: str, value: int) -> str:
    more, used, hard = (
        written(_resource(name), amount) for amount in (value, quota.used.get(name, 0), quota.hard[name])
    )
    return f"{name}: {more} more, {used} of {hard} used"


def _usage(spec: Mapping[str, Any]) -> dict[str, int]:
    """Give what a pod uses up, by all the names that quotas have for it (pkg/quota/v1/evaluator/core).

    Some stand alone too, without `requests.` before them; extended resources have the prefix always.
    """
    usage = {"pods": 1, "count/pods": 1, **{f"limits.{name}": value for name, value in limits(spec).items()}}
    for name, value in requests(spec).items():
        if name in ("cpu", "memory", "ephemeral-storage") or name.startswith("hugepages-"):
            usage[name] = value
        if name != "pods":
            usage[f"requests.{name}"] = value
    return usage


def _is_in(scope: Scope, spec: Mapping[str, Any]) -> bool:
    """Tell whether a pod counts in a scope; in one that nobody here knows none does."""
    name, operator, values = scope
    if name == "PriorityClass":
        has_class = str(spec.get("priorityClassName") or "")
        answers = {"In": has_class in values, "NotIn": has_class not in values, "Exists": bool(has_class)}
        return answers.get(operator, not has_class)
    asked = (*requests(spec).items(), *limits(spec).items())
    is_best_effort = not any(value for resource, value in asked if resource in ("cpu", "memory"))
    is_bounded = spec.get("activeDeadlineSeconds") is not None
    return {
        "Terminating": is_bounded,
        "NotTerminating": not is_bounded,
        "BestEffort": is_best_effort,
        "NotBestEffort": not is_best_effort,
    }.get(name, False)
