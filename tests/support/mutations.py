"""Every way to spoil an object by one step: each field removed, emptied, nulled or given another type."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[str | int, ...]

_VALUES = {"text": "Some Text", "number": 7, "negative": -7, "null": None, "list": ["a"], "map": {"a": "b"}}
_VALUES |= {"empty": ""}
_KEPT = frozenset({("apiVersion",), ("kind",), ("metadata",), ("metadata", "name")})


def mutations(data: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the name of each step and the spoilt object; the identity stays."""
    for path in _paths(data, ()):
        if not path or path in _KEPT:
            continue
        where = ".".join(str(key) for key in path)
        for name, value in _VALUES.items():
            spoilt, place = _copied(data, path)
            place[path[-1]] = value
            yield f"{where} {name}", spoilt
        spoilt, place = _copied(data, path)
        if isinstance(place[path[-1]], dict):
            place[path[-1]]["bogusField"] = 1
            yield f"{where} unknown field", spoilt
        spoilt, place = _copied(data, path)
        del place[path[-1]]
        yield f"{where} removed", spoilt


def _paths(value: Any, path: Path) -> Iterator[Path]:
    yield path
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _paths(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _paths(inner, (*path, index))


def _copied(data: Mapping[str, Any], path: Path) -> tuple[dict[str, Any], Any]:
    spoilt: dict[str, Any] = copy.deepcopy(dict(data))
    place: Any = spoilt
    for key in path[:-1]:
        place = place[key]
    return spoilt, place
