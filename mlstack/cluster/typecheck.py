"""Whether a value fits its schema, and the faults in the API server's words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from mlstack.cluster import fields, merge
from mlstack.cluster.fields import Path
from mlstack.cluster.shapes import OPEN, Shape
from mlstack.errors import Cause

_EXPECTED = {
    "string": "string",
    "boolean": "boolean",
    "integer": "numeric (int or float)",
    "number": "numeric (int or float)",
}

# Required in the published schemas because the server always writes them; nobody has to give them.
_ALWAYS_WRITTEN = frozenset({"rules", "serviceName"})


def typed_faults(value: Any, shape: Shape, path: Path = ()) -> Iterator[str]:
    """Say what server-side apply cannot read: unknown fields, wrong types, nameless or double items."""
    if value is None or shape.is_open:
        return
    kind = shape.schema.get("type") or ("object" if shape.has_fields else "")
    if shape.is_int_or_string:
        if isinstance(value, bool | Mapping | list):
            yield _fault(path, f"expected string, got {_shown(value)}")
    elif kind == "object":
        yield from _map_faults(value, shape, path)
    elif kind == "array":
        yield from _list_faults(value, shape, path)
    elif not _is_scalar(value, kind):
        yield _fault(path, f"expected {_EXPECTED[kind]}, got {_shown(value)}")


def _map_faults(value: Any, shape: Shape, path: Path) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield _fault(path, f"expected map, got {_shown(value)}")
        return
    for name, inner in value.items():
        below = (*path, fields.field(name))
        found = shape.at(name)
        if found is None:
            yield _fault(below, "field not declared in schema")
        else:
            yield from typed_faults(inner, found, below)


def _list_faults(value: Any, shape: Shape, path: Path) -> Iterator[str]:
    if not isinstance(value, list):
        yield _fault(path, f"expected list, got {_shown(value)}")
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        element = f"i:{index}"
        if shape.list_type != "atomic":
            try:
                element = merge.element_of(item, shape, path)
            except merge.KeyFault as fault:
                yield _fault((*path, element), f"element {index}: {fault}")
                continue
            if element in seen:
                yield _fault(path, f"duplicate entries for key {fields.spell((element,))}")
            seen.add(element)
        yield from typed_faults(item, shape.items, (*path, element))


def _is_scalar(value: Any, kind: str) -> bool:
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in ("integer", "number"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return kind != "string" or isinstance(value, str)


def _fault(path: Path, message: str) -> str:
    return f"{fields.spell(path)}: {message}"


def _shown(value: Any) -> str:
    return f"&value.valueUnstructured{{Value:{value}}}"


def rule_faults(value: Any, shape: Shape, path: str = "") -> Iterator[Cause]:
    """Say what validation refuses: missing fields, nulls, values out of range; CEL is not evaluated."""
    if isinstance(value, Mapping):
        for name in shape.schema.get("required") or ():
            if value.get(name) is None and name not in _ALWAYS_WRITTEN:
                yield Cause(field=_joined(path, name), reason="FieldValueRequired", message="Required value")
        for name, inner in value.items():
            if name not in _ALWAYS_WRITTEN:
                yield from rule_faults(inner, shape.at(name) or OPEN, _joined(path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from rule_faults(item, shape.items, f"{path}[{index}]")
    elif value is None and not (shape.is_open or shape.schema.get("nullable")):
        kind = shape.schema.get("type") or "object"
        yield Cause(field=path, reason="FieldValueTypeInvalid", message=f'must be of type {kind}: "null"')
        return
    for message in _value_faults(value, shape.schema):
        yield Cause(field=path, reason="FieldValueInvalid", message=message)


def _value_faults(value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield "Unsupported value: supported values: " + ", ".join(f'"{one}"' for one in schema["enum"])
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            yield f"should be greater than or equal to {schema['minimum']}"
        if value > schema.get("maximum", value):
            yield f"should be less than or equal to {schema['maximum']}"
    if isinstance(value, str):
        if not re.search(schema.get("pattern", ""), value):
            yield f"should match '{schema['pattern']}'"
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            yield "has a length that is not allowed"
    if isinstance(value, list) and not schema.get("minItems", 0) <= len(value) <= schema.get(
        "maxItems", len(value)
    ):
        yield "has a number of items that is not allowed"


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
