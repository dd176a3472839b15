"""Words for what a JSON Schema refuses: `must be 1 to 64, got 0`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mlstack.model.prototype import json_type, schema_types

_LONGEST_VALUE = 60
_ARTICLES = {
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "boolean": "true or false",
    "array": "a list",
    "object": "a map",
    "null": "null",
}
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def expectation(keyword: str, schema: Mapping[str, Any], value: Any, *, unit: str = "") -> str:
    """Say what was expected where `keyword` of `schema` refused `value`, and what was seen.

    Args:
        keyword: the keyword that refused.
        schema: the schema it stands in.
        value: what was refused.
        unit: what a number counts.
    """
    if keyword in _BOUNDS:
        return f"must be {_bounds(schema, unit)}, got {shown(value)}"
    if keyword in ("anyOf", "oneOf"):
        types = sorted(schema_types(schema))
        return (
            f"must be {_types(types)}, got {described(value)}"
            if types
            else f"does not fit, got {shown(value)}"
        )
    word = _WORDS.get(keyword)
    return word(schema[keyword], value) if word else f"does not fit `{keyword}`, got {shown(value)}"


def _bounds(schema: Mapping[str, Any], unit: str) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f"{low} to {_counted(high, unit)}" if low != high else _counted(low, unit)
    parts = [
        f"{word} {_counted(bound, unit)}"
        for word, bound in (("at least", low), ("more than", above), ("at most", high), ("less than", below))
        if bound is not None
    ]
    return " and ".join(parts)


def _counted(number: Any, unit: str) -> str:
    """Write a number with its unit, which is given in the plural: `1 GPU`, `2 GPUs`, `1 retry`."""
    if number == 1:
        unit = f"{unit[:-3]}y" if unit.endswith("ies") else unit.removesuffix("s")
    return f"{number} {unit}" if unit else str(number)


def _types(names: Sequence[str]) -> str:
    return " or ".join(_ARTICLES.get(name, name) for name in names)


def _type(expected: Any, value: Any) -> str:
    names = [expected] if isinstance(expected, str) else list(expected)
    quotes = ": put it in quotes" if names == ["string"] and isinstance(value, int | float) else ""
    return f"must be {_types(names)}, got {described(value)}{quotes}"


def _enum(expected: Any, value: Any) -> str:
    return f"must be one of {', '.join(f'`{_plain(each)}`' for each in expected)}, got {shown(value)}"


def _size(word: str, of: str) -> Any:
    def say(expected: Any, value: Any) -> str:
        if expected == 1 and word == "at least":
            return "must not be empty"
        return f"must have {word} {expected} {of}, got {len(value)}"

    return say


_WORDS: Mapping[str, Any] = {
    "type": _type,
    "enum": _enum,
    "const": lambda expected, value: f"must be `{_plain(expected)}`, got {shown(value)}",
    "pattern": lambda expected, value: f"must match `{expected}`, got {shown(value)}",
    "minLength": _size("at least", "characters"),
    "maxLength": _size("at most", "characters"),
    "minItems": _size("at least", "entries"),
    "maxItems": _size("at most", "entries"),
    "minProperties": _size("at least", "keys"),
    "maxProperties": _size("at most", "keys"),
    "multipleOf": lambda expected, value: f"must be a multiple of {expected}, got {shown(value)}",
    "uniqueItems": lambda _expected, value: f"must not hold anything twice, got {shown(value)}",
    "not": lambda _expected, value: f"must not be {shown(value)}",
}


def described(value: Any) -> str:
    """Show a value; maps and lists by their type alone, strings in quotes so that `"1"` is no number."""
    if isinstance(value, Mapping | list):
        return _ARTICLES[json_type(value)]
    return shown(value)


def shown(value: Any) -> str:
    """Show a value shortly, as JSON."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def suggestion(keyword: str, schema: Mapping[str, Any], value: Any) -> str:
    """Give a value that would pass, to put into a hint; `VALUE` when none can be told."""
    if keyword in ("minimum", "maximum"):
        return str(schema[keyword])
    if keyword == "enum":
        return _nearest_choice(schema["enum"], value)
    if "default" in schema and isinstance(schema["default"], str | int | float):
        return _typed_word(schema["default"])
    for example in schema.get("examples", ()):
        if isinstance(example, str | int | float):
            return _typed_word(example)
    if keyword == "type" and isinstance(schema.get("minimum"), int):
        return str(schema["minimum"])
    return "VALUE"


def _nearest_choice(choices: Sequence[Any], value: Any) -> str:
    from mlstack.model.names import nearest

    words = [_typed_word(choice) for choice in choices]
    return nearest(str(value), words) or next((word for word in words if word != '""'), words[0])


def _typed_word(value: Any) -> str:
    """Write a value as one would type it in a shell."""
    if isinstance(value, bool) or not isinstance(value, str):
        return json.dumps(value)
    return (
        value
        if value and all(c.isalnum() or c in "-_./:@%+=," for c in value)
        else f"'{value}'"
        if value
        else '""'
    )
