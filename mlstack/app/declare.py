"""A file kind said once: a dataclass whose fields carry key, schema and help gives its schema and writer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, field, fields
from functools import cached_property
from typing import Any

from mlstack.dataclass import dataclass

# Shapes of values, as JSON Schema has them.
TEXT = {"type": "string"}
WORD = {"type": "string", "minLength": 1}
MAP = {"type": "object"}
FLAG = {"type": "boolean"}
NAME = {"type": "string", "pattern": "^[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?$"}
SHORT_NAME = {**NAME, "maxLength": 63}
VERSION = {"type": "string", "pattern": "^[0-9a-zA-Z]([-_.+a-zA-Z0-9]*[0-9a-zA-Z])?$"}
NAMESPACE = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
ENVIRONMENT = "^[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?(/[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?)*$"
PACKAGE = {"type": "string", "pattern": r"^[^/@\s]+/[^/@\s]+(@[^/@\s]+)?$"}
_RANGE = {
    **TEXT,
    "description": "A version, or a range: `^1.2`, `~1.2`, `1.x`, `>=1.0 <2`; any when left out.",
}
REQUIREMENT = {
    "type": ["string", "object"],
    "pattern": PACKAGE["pattern"],
    "required": ["name"],
    "additionalProperties": False,
    "properties": {"name": PACKAGE, "version": _RANGE},
}
DIGEST = {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}
_LABEL_KEY = "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
_OWN_LABELS = r"^(mlstack\.dev/.*|app\.kubernetes\.io/(managed-by|part-of))$"
_LABEL_VALUE = "^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
LABELS = {
    "type": "object",
    "propertyNames": {"pattern": _LABEL_KEY},
    "patternProperties": {_OWN_LABELS: {"not": {}}},
    "additionalProperties": {"type": ["string", "null"], "maxLength": 63, "pattern": _LABEL_VALUE},
}
ANNOTATIONS = {
    "type": "object",
    "propertyNames": {"pattern": _LABEL_KEY},
    "additionalProperties": {"type": ["string", "null"]},
}
SIGNATURE = {"type": "string", "pattern": "^[A-Za-z0-9+/]+=*$"}


def list_of(items: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Give the shape of a list."""
    return {"type": "array", "items": items, **more}


@dataclass(frozen=True, kw_only=True)
class FileKey:
    """One key of a file."""

    name: str  # as the file spells it
    field: str  # as the dataclass spells it
    shape: Mapping[str, Any]  # its schema, but for that of the maps in it
    required: bool
    default: Any
    record: type | None = None  # what the map, or each map of the list, is read as
    by: str = ""  # the field that the maps of the list are kept under; a tuple without it
    # takes a `FieldReader` and the key's name, where the schema alone does not say how to read it
    reader: Callable[[Any, str], Any] | None = None

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """Give its schema; schemas are made when somebody asks for them, most commands do not."""
        if self.record is None:
            return self.shape
        inner = record_schema(self.record)
        if self.shape["type"] == "array":
            return {**self.shape, "items": {**inner, **self.shape.get("items", {})}}
        return {"type": inner.pop("type"), "additionalProperties": False, **self.shape, **inner}


def key(schema: Mapping[str, Any], help: str = "", **more: Any) -> Any:
    """Declare a field of a dataclass as a key of its file, described by `help`.

    `name` (the field's in camel case without it), `required` and `reader` are as in `FileKey`; the rest goes
    to `dataclasses.field`.
    """
    facts = {word: more.pop(word) for word in ("name", "required", "reader") if word in more}
    described = {**schema, "description": help} if help else schema
    return field(metadata={"shape": described, **facts}, **more)


def records(kind: type, help: str = "", **more: Any) -> Any:
    """Declare a list of maps, each of them read as `kind`; `more` as of `key`, and words of the schema.

    With `by` they are kept as a mapping by that field.
    """
    words = {word: more.pop(word) for word in ("minItems", "items") if word in more}
    described = {"description": help} if help else {}
    facts = {word: more.pop(word) for word in ("name", "required", "reader", "by") if word in more}
    shape = {"type": "array", **described, **words}
    return field(metadata={"shape": shape, "record": kind, **facts}, **more)


def record(kind: type, help: str, **more: Any) -> Any:
    """Declare a map that is read as `kind`; None when it is not there."""
    return field(metadata={"shape": {"type": "object", "description": help}, "record": kind}, **more)


_KEYS: dict[type, tuple[FileKey, ...]] = {}


def keys_of(kind: type) -> tuple[FileKey, ...]:
    """Give the keys that a dataclass declares, in their order."""
    if kind not in _KEYS:
        keys = []
        for declared in fields(kind):
            if declared.metadata:
                first, *rest = declared.name.split("_")
                name = first + "".join(map(str.capitalize, rest))
                default = "" if declared.default is MISSING else declared.default
                facts = {"name": name, "required": False, **declared.metadata}
                keys.append(FileKey(field=declared.name, default=default, **facts))
        _KEYS[kind] = tuple(keys)
    return _KEYS[kind]


def record_schema(kind: type) -> dict[str, Any]:
    """Give the JSON Schema of a map."""
    keys = keys_of(kind)
    required = [key.name for key in keys if key.required]
    head: dict[str, Any] = {"type": "object", **({"required": required} if required else {})}
    return {**head, "additionalProperties": False, "properties": {key.name: key.schema for key in keys}}


def file_schema(kind: type, name: str, api_version: str, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Give the JSON Schema of a file of the kind `name`; the dataclass gives its description."""
    inner = record_schema(kind)
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
    content: dict[str, Any] = {}
    for key in keys_of(type(value)):
        inner = getattr(value, key.field)
        if key.name not in always and (inner == key.default or inner in ((), {})):
            continue
        if key.by:
            inner = tuple(inner.values())
        if isinstance(inner, tuple):
            content[key.name] = [
                to_map(entry) if key.record is not None else getattr(entry, "entry", entry) for entry in inner
            ]  # a requirement of a package has an `entry`
        elif key.record is not None:
            content[key.name] = to_map(inner)
        else:
            content[key.name] = dict(inner) if isinstance(inner, Mapping) else inner
    return content
