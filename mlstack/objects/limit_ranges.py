"""LimitRanges: what they write into the containers of a namespace, and which pods they refuse.

As the API server does it (plugin/pkg/admission/limitranger): containers that say nothing get defaults, then
each container and the pod as a whole have to keep within what the ranges allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mlstack.objects.resources import amount, amounts, limits, quantity, requests, written


def rules_of(obj: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Give the rules of a LimitRange, each with the defaults that follow from its bounds."""
    return tuple(map(_whole, (obj.get("spec") or {}).get("limits") or ()))


def _whole(rule: Mapping[str, Any]) -> Mapping[str, Any]:
    if rule.get("type") != "Container":
        return rule
    default = {**(rule.get("max") or {}), **(rule.get("default") or {})}
    asked = {**(rule.get("min") or {}), **default, **(rule.get("defaultRequest") or {})}
    return {**rule, "default": default, "defaultRequest": asked}


def with_defaults(spec: Mapping[str, Any], rules: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Give a pod with what LimitRanges write into it."""
    lists = {name: list(spec[name]) for name in ("initContainers", "containers") if spec.get(name)}
    for rule in rules:
        if rule.get("type") == "Container":
            lists = {name: [_filled(row, rule) for row in rows] for name, rows in lists.items()}
    return {**spec, **lists}


def _filled(container: Mapping[str, Any], rule: Mapping[str, Any]) -> Mapping[str, Any]:
    resources = container.get("resources") or {}
    most = {**rule["default"], **(resources.get("limits") or {})}
    # What has a limit of its own and no request requests its limit.
    asked = {**rule["defaultRequest"], **(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {**container, "resources": {**resources, "limits": most, "requests": asked}}


def refusal(spec: Mapping[str, Any], rules: Iterable[Mapping[str, Any]]) -> str:
    """Say in the API server's words why a pod that has its defaults is refused, empty where it is not."""
    return next((text for rule in rules for text in _refusals(spec, rule)), "")


def _refusals(spec: Mapping[str, Any], rule: Mapping[str, Any]) -> Iterator[str]:
    kind = rule.get("type")
    if kind == "Pod":
        yield from _outside(requests(spec), limits(spec), rule)
    elif kind == "Container":
        for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
            resources = container.get("resources") or {}
            yield from _outside(amounts(resources.get("requests")), amounts(resources.get("limits")), rule)


def _outside(asked: Mapping[str, int], most: Mapping[str, int], rule: Mapping[str, Any]) -> Iterator[str]:
    kind = rule.get("type")
    for name, text in (rule.get("min") or {}).items():
        words = f"minimum {name} usage per {kind} is {text}"
        if name not in asked:
            yield f"{words}.  No request is specified"
        elif asked[name] < amount(name, str(text)):
            yield f"{words}, but request is {written(name, asked[name])}"
    for name, text in (rule.get("max") or {}).items():
        words = f"maximum {name} usage per {kind} is {text}"
        if name not in most:
            yield f"{words}.  No limit is specified"
        elif most[name] > amount(name, str(text)):
            yield f"{words}, but limit is {written(name, most[name])}"
    for name, text in (rule.get("maxLimitRequestRatio") or {}).items():
        ratio = most.get(name, 0) / asked[name] if asked.get(name) else 0.0
        if ratio > float(quantity(text) or 0):
            yield f"{name} max limit to request ratio per {kind} is {text}, but provided ratio is {ratio:f}"
