"""Values of parameters: what a typed text or a file's value means, and how two layers' values merge."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mlstack.model.prototype import Param

Path = tuple[str | int, ...]

_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
# What Kubernetes can hold; longer ones stay text and fail the schema.
_INTEGERS = range(-(2**63), 2**63)
_NUMBER = re.compile(r"[+-]?([0-9]{1,30}(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_STRUCTURED = ("array", "object")
_NULLS = {"null": None, '"null"': "null", "'null'": "null"}


def split_path(text: str) -> tuple[str, ...]:
    r"""Split a dotted key; `\.` is a dot inside a key (`nodeSelector.cloud\.google\.com/pool`)."""
    parts = re.split(r"(?<!\\)\.", text)
    return tuple(part.replace("\\.", ".") for part in parts)


def join_path(path: Sequence[str | int]) -> str:
    """Write a dotted key that `split_path` reads back."""
    return ".".join(str(part).replace(".", "\\.") for part in path)


def coerce(param: Param, value: Any) -> Any:
    """Give the value that `value` means for this parameter; a value that fits no type stays as it is.

    The string `null` means unset where the schema takes no string, as in values files of old; there strings
    become booleans and numbers too. They become lists where it is `csv`, maps where it is `kv`.
    """
    if not isinstance(value, str):
        return value
    if value == "null" and param.types and "string" not in param.types:
        return None
    if value in param.value_aliases:
        return param.value_aliases[value]
    if param.format == "csv":
        return [part.strip() for part in value.split(",") if part.strip()]
    if param.format == "kv":
        return _pairs(value)
    return _typed(param.types, value)


def _pairs(text: str) -> Any:
    """Read `k=v,k2=v2`; text of another shape is given back for the schema to refuse."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all("=" in part for part in parts):
        return text
    return {key.strip(): value.strip() for key, _, value in (part.partition("=") for part in parts)}


def _typed(types: frozenset[str], text: str) -> Any:
    if "string" in types:
        return text
    if "boolean" in types and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if types & {"integer", "number"} and _INTEGER.fullmatch(text) and int(text) in _INTEGERS:
        return int(text)
    if "number" in types and _NUMBER.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text


def parse_text(
    param: Param | None, text: str, *, as_string: bool = False, read: Callable[[str], Any] | None = None
) -> Any:
    """Give the value that a person typed, by the parameter's declared type.

    Text that fits no declared type is given back: the schema's message is better than one from here.
    `null` takes the value away; the text of that name is `"null"`, with its quotes.

    Args:
        param: the declared parameter; None where nothing is declared, which goes by YAML's rules.
        text: as typed; may start with `-`, may be empty.
        as_string: keep the text as a string whatever the type.
        read: reads structured text (YAML); JSON alone without it.
    """
    if as_string:
        return text
    if param is None or not param.types:
        return _by_yaml(text, read or _read_json)
    if "string" in param.types and text in _NULLS:
        return _NULLS[text]
    opens = text.lstrip()[:1]
    wants_structure = param.format is not None or bool(param.types & set(_STRUCTURED))
    if wants_structure and (opens in ("[", "{") or (param.format is None and "string" not in param.types)):
        value = _read(text, read or _read_json)
        if isinstance(value, list | dict) or (value is None and text.strip() == "null"):
            return value
    return coerce(param, text)


def _by_yaml(text: str, read: Callable[[str], Any]) -> Any:
    value = _read(text, read)
    if isinstance(value, list | dict) and text.lstrip()[:1] not in ("[", "{"):
        return text
    return text if text == "" else value


def _read(text: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(text)
    except ValueError:
        return text


def _read_json(text: str) -> Any:
    return json.loads(text)


def inner_param(param: Param, path: Sequence[str | int]) -> Param | None:
    """Give what is declared for a place inside a parameter's value, or None where nothing is."""
    schema: Any = param.schema
    for part in path:
        schema = _inner_schema(schema, part)
        if not isinstance(schema, Mapping):
            return None
    return param if not path else replace(param, schema=schema, format=None, value_aliases={})


def _inner_schema(schema: Mapping[str, Any], part: str | int) -> Any:
    properties = schema.get("properties", {})
    if part in properties:
        return properties[part]
    inner = schema.get("items") if str(part).isdigit() and "items" in schema else None
    return inner or schema.get("additionalProperties")


def merge(lower: Any, upper: Any, schema: Mapping[str, Any] | None = None) -> Any:
    """Lay `upper` over `lower`: maps merge, null removes, lists replace (or append by `x-merge: append`)."""
    schema = schema if isinstance(schema, Mapping) else {}
    if isinstance(upper, list) and isinstance(lower, list) and schema.get("x-merge") == "append":
        return [*lower, *upper]
    if not isinstance(upper, Mapping):
        return upper
    merged = dict(lower) if isinstance(lower, Mapping) else {}
    for key, value in upper.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value, _inner_schema(schema, key))
    return merged


def refused_characters(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Find the strings that no Kubernetes object can carry: control characters and lone surrogates.

    Tab, line feed, carriage return and next line are fine.

    Yields:
        Path below `value` and the character as `U+0000`.
    """
    if isinstance(value, str):
        match = _REFUSED.search(value)
        if match:
            yield path, f"U+{ord(match.group()):04X}"
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from refused_characters(key, (*path, _shown(key)))
            yield from refused_characters(inner, (*path, _shown(key)))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from refused_characters(inner, (*path, index))


_REFUSED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")


def _shown(key: Any) -> str:
    return _REFUSED.sub("?", str(key))
