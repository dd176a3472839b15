"""Other values a parameter could have, to see what it does."""

from collections.abc import Iterator, Mapping
from typing import Any

from mlstack.model.prototype import Param, schema_types

INVENTED_KEY = "mlstacktrial"
"""What is added to a map to see where it goes: nobody else's key."""
_STRINGS = ("trial", "trial-1", "/trial", "trial/trial:1", "1", "10Gi", "https://trial.example", "30099")


def values(param: Param, current: Any) -> Iterator[Any]:
    """Give values that differ from the current one, likely ones first.

    Not all of them are valid: whoever tries them checks first.
    """
    yield from _of_schema(param.schema, current)
    yield from param.examples
    if param.has_default:
        yield param.default
    yield None


def _of_schema(schema: Mapping[str, Any], current: Any) -> Iterator[Any]:
    yield from schema.get("enum") or ()
    for branch in (*(schema.get("anyOf") or ()), *(schema.get("oneOf") or ())):
        yield from _of_schema(branch, current)
    types = schema_types(schema)
    if "boolean" in types:
        yield not current
    if types & {"integer", "number"}:
        yield from _numbers(schema, current)
    if "string" in types:
        if isinstance(current, str) and current:
            yield from (f"{current}x", f"{current}1", f"x{current}", f"{current}/x", current[:-1])
        yield from _STRINGS
    if "array" in types:
        yield from _lists(schema, current)
    if "object" in types:
        now = dict(current) if isinstance(current, Mapping) else {}
        if now:
            yield {}
        candidates: tuple[Any, ...] = ("trial", 1, {})
        for inner in candidates:
            yield {**now, INVENTED_KEY: inner}


def _numbers(schema: Mapping[str, Any], current: Any) -> Iterator[Any]:
    base = current if isinstance(current, int | float) and not isinstance(current, bool) else 0
    yield from (base + 1, base - 1, base + 2)
    for bound in ("minimum", "maximum"):
        if isinstance(schema.get(bound), int | float):
            yield schema[bound]


def _lists(schema: Mapping[str, Any], current: Any) -> Iterator[Any]:
    now = list(current) if isinstance(current, list) else []
    item = schema.get("items")
    for value in _of_schema(item if isinstance(item, Mapping) else {"type": "string"}, None):
        yield [*now, value]
    if now:
        yield now[:-1]
