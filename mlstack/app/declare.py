"""A file kind said once: a dataclass whose fields carry key, schema and help gives schema and writer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any


@dataclass(frozen=True, kw_only=True)
class FileKey:
    """One key of a file."""

    name: str  # as the file spells it
    field: str  # as the dataclass spells it
    schema: Mapping[str, Any]
    required: bool
    default: Any
    record: type | None = None  # what the map, or each map of the list, is read as
    reader: str = ""  # method of FieldReader, where the schema alone does not say how to read it


def key(schema: Mapping[str, Any], help: str = "", **more: Any) -> Any:
    """Declare a field of a dataclass as a key of its file, described by `help`.

    `name` (the field's in camel case without it), `required` and `reader` are as in `Key`; the rest goes to
    `dataclasses.field`.
    """
    facts = {word: more.pop(word) for word in ("name", "required", "reader") if word in more}
    described = {**schema, "description": help} if help else schema
    return field(metadata={"schema": described, **facts}, **more)


def records(kind: type, help: str = "", **more: Any) -> Any:
    """Declare a list of maps, each of them read as `kind`."""
    schema: dict[str, Any] = {"type": "array", "description": help, "items": record_schema(kind)}
    return field(
        metadata={"schema": {word: value for word, value in schema.items() if value}, "record": kind}, **more
    )


def record(kind: type, help: str, **more: Any) -> Any:
    """Declare a map that is read as `kind`; None when it is not there."""
    inner = record_schema(kind)
    schema = {"type": inner.pop("type"), "additionalProperties": False, "description": help, **inner}
    return field(metadata={"schema": schema, "record": kind}, **more)


def keys_of(kind: type) -> tuple[FileKey, ...]:
    """Give the keys that a dataclass declares, in their order."""
    keys = []
    for declared in fields(kind):
        facts = dict(declared.metadata)
        if facts:
            default = "" if declared.default is MISSING else declared.default
            facts = {"name": _camel_case(declared.name), "required": False, **facts}
            keys.append(FileKey(field=declared.name, default=default, **facts))
    return tuple(keys)


def key_names(kind: type) -> tuple[str, ...]:
    """Give the names of these keys as a file spells them."""
    return tuple(key.name for key in keys_of(kind))


def record_schema(kind: type) -> dict[str, Any]:
    """Give the JSON Schema of a map."""
    keys = keys_of(kind)
    required = [key.name for key in keys if key.required]
    head: dict[str, Any] = {"type": "object", **({"required": required} if required else {})}
    return {**head, "additionalProperties": False, "properties": {key.name: key.schema for key in keys}}


def file_schema(kind: type, api_version: str, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Give the JSON Schema of a file; the dataclass gives its kind and description."""
    inner, name = record_schema(kind), kind.__name__
    types = {"apiVersion": {"const": api_version}, "kind": {"const": name}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://mlstack.dev/schemas/v1/{name}.json",
        "title": name,
        "description": kind.__doc__,
        "type": "object",
        "required": [*types, *inner.get("required", ())],
        "additionalProperties": False,
        "properties": {**types, **inner["properties"]},
        **({"$defs": definitions} if definitions else {}),
    }


def to_map(value: Any, always: Collection[str] = ()) -> dict[str, Any]:
    """Write a declared value as its file has it; a key with its default is left out unless in `always`."""
    content = {}
    for key in keys_of(type(value)):
        inner = getattr(value, key.field)
        if key.name in always or (inner != key.default and inner not in ((), {})):
            content[key.name] = _plain(inner, key)
    return content


def _plain(value: Any, key: FileKey) -> Any:
    if key.record is not None:
        return [to_map(entry) for entry in value] if isinstance(value, tuple) else to_map(value)
    return list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))
