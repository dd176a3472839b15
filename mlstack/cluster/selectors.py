"""Label and field selectors as kubectl and the API server take them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Matches = Callable[[Mapping[str, Any]], bool]

_REQUIREMENT = re.compile(
    r"\s*(?:(?P<not>!)\s*(?P<absent>[^\s,=!()]+)"
    r"|(?P<key>[^\s,=!()]+)\s*(?:(?P<op>==|=|!=)\s*(?P<value>[^\s,()]*)"
    r"|\s(?P<set>in|notin)\s*\((?P<values>[^)]*)\))?)\s*(?:,|$)"
)


def by_labels(selector: str) -> Matches:
    """Read a label selector: `a=b,c!=d,e in (f,g),h notin (i),j,!k`; an empty one takes all.

    Raises:
        ValueError: it is none.
    """
    tests = _requirements(selector)
    return lambda obj: all(test(_labels(obj)) for test in tests)


def by_fields(selector: str) -> Matches:
    """Read a field selector: `metadata.name=x,status.phase!=Running`; an empty one takes all.

    Raises:
        ValueError: it is none.
    """
    tests = [_field_test(part) for part in selector.split(",") if part]
    return lambda obj: all(test(obj) for test in tests)


def _labels(obj: Mapping[str, Any]) -> Mapping[str, str]:
    return (obj.get("metadata") or {}).get("labels") or {}


def _requirements(selector: str) -> list[Callable[[Mapping[str, str]], bool]]:
    tests, position = [], 0
    while position < len(selector):
        found = _REQUIREMENT.match(selector, position)
        if found is None or found.end() == position:
            raise ValueError(f"`{selector}` is no label selector")
        tests.append(_label_test(found))
        position = found.end()
    return tests


def _label_test(found: re.Match[str]) -> Callable[[Mapping[str, str]], bool]:
    key, absent, value = found["key"], found["absent"], found["value"]
    if found["not"]:
        return lambda labels: absent not in labels
    if found["op"] == "!=":
        return lambda labels: labels.get(key) != value
    if found["op"]:
        return lambda labels: labels.get(key) == value
    if found["set"]:
        values = {part.strip() for part in found["values"].split(",")}
        wanted = found["set"] == "in"
        return lambda labels: (labels.get(key) in values) is wanted
    return lambda labels: key in labels


def _field_test(part: str) -> Matches:
    path, operator, value = part.partition("=")
    if not operator:
        raise ValueError(f"`{part}` is no field selector")
    negated = path.endswith("!")
    names = path.rstrip("!").split(".")
    wanted = value.removeprefix("=")
    return lambda obj: (_text(obj, names) == wanted) is not negated


def _text(obj: Any, names: list[str]) -> str:
    for name in names:
        obj = obj.get(name) if isinstance(obj, Mapping) else None
    return "" if obj is None else str(obj)
