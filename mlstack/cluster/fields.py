"""Sets of fields as `managedFields` writes them (FieldsV1), and the same as sets of paths.

A path is a tuple of FieldsV1's own elements: `f:spec`, `k:{"name":"main"}` (an item of a keyed list),
`v:"x"` (a member of a set). Set algebra is then Python's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

Path = tuple[str, ...]
Paths = frozenset[Path]
FieldsV1 = dict[str, Any]

NOTHING: Paths = frozenset()


def field(name: str) -> str:
    """Give the element of a named field or map key."""
    return f"f:{name}"


def key(values: Mapping[str, Any]) -> str:
    """Give the element of a keyed list's item."""
    return f"k:{_json(dict(sorted(values.items())))}"


def member(value: Any) -> str:
    """Give the element of a set's member."""
    return f"v:{_json(value)}"


def to_v1(paths: Iterable[Path]) -> FieldsV1:
    """Write paths as FieldsV1: `.` marks a path that has others below it, keys are sorted."""
    tree: FieldsV1 = {}
    for path in sorted(paths):
        node = tree
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}
    return _without_lone_dots(tree)


def from_v1(fields: Mapping[str, Any]) -> Paths:
    """Read FieldsV1."""
    return frozenset(_walk(fields, ()))


def spell(path: Path) -> str:
    """Write a path as the API server does in messages: `.spec.ports[port=80,protocol="TCP"].targetPort`."""
    return "".join(_spell(element) for element in path)


def below(paths: Iterable[Path], element: str) -> Paths:
    """Give the paths under one element, without it; the element itself is the empty path."""
    return frozenset(path[1:] for path in paths if path and path[0] == element)


def _walk(fields: Mapping[str, Any], path: Path) -> Iterable[Path]:
    for element, inner in fields.items():
        if element == ".":
            yield path
        elif inner:
            yield from _walk(inner, (*path, element))
        else:
            yield (*path, element)


def _without_lone_dots(tree: FieldsV1) -> FieldsV1:
    return {
        element: {} if set(inner) == {"."} else _without_lone_dots(inner) for element, inner in tree.items()
    }


def _spell(element: str) -> str:
    kind, text = element[:2], element[2:]
    if kind == "f:":
        return f".{text}"
    if kind == "k:":
        pairs = ",".join(f"{name}={_json(value)}" for name, value in json.loads(text).items())
        return f"[{pairs}]"
    return f"[{text}]" if kind == "i:" else f"[={text}]"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
