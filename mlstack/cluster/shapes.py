"""What server-side apply must know of a value: struct, map, list (by which keys) or scalar.

Shapes are read from the compact schemas of the built-in kinds and from the schemas of
CustomResourceDefinitions; a value without a schema shows its shape itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]
Resolve = Callable[[Schema], Schema]

_KEY_DEFAULTS = {"protocol": "TCP"}
"""The one key of a built-in list that has a default; the compact schemas leave defaults out."""


@dataclass(frozen=True)
class Shape:
    """The shape of one value.

    Attributes:
        schema: its schema; references are followed by `resolve`.
        resolve: gives the schema that a reference names, any other schema as it is.
    """

    schema: Schema
    resolve: Resolve

    @property
    def is_open(self) -> bool:
        """Say whether anything may stand here: the value then shows its own shape."""
        return not self.schema.get("type") and not self.has_fields and not self.is_int_or_string

    @property
    def is_int_or_string(self) -> bool:
        """Say whether a number or a text may stand here."""
        return bool(self.schema.get("x-kubernetes-int-or-string")) or self.schema.get("format") == "quantity"

    @property
    def has_fields(self) -> bool:
        """Say whether this is a struct: its fields have names."""
        return "properties" in self.schema

    @property
    def keeps_unknown(self) -> bool:
        """Say whether fields that have no schema are kept."""
        return bool(self.schema.get("x-kubernetes-preserve-unknown-fields")) or (
            not self.has_fields and "additionalProperties" not in self.schema
        )

    @property
    def is_atomic(self) -> bool:
        """Say whether a map or struct has one owner as a whole."""
        return self.schema.get("x-kubernetes-map-type") == "atomic"

    @property
    def list_type(self) -> str:
        """Give `map`, `set` or `atomic`."""
        return str(self.schema.get("x-kubernetes-list-type") or "atomic")

    @property
    def keys(self) -> tuple[str, ...]:
        """Give the fields that together name an item of a `map` list."""
        return tuple(self.schema.get("x-kubernetes-list-map-keys") or ())

    @property
    def items(self) -> Shape:
        """Give the shape of a list's items."""
        return self._of(self.schema.get("items") or {})

    def is_field(self, name: str) -> bool:
        """Say whether this is a field of a struct, not a key of a map."""
        return name in (self.schema.get("properties") or {})

    def at(self, name: str) -> Shape | None:
        """Give the shape of a field or map value, None where there is no such field."""
        properties = self.schema.get("properties") or {}
        if name in properties:
            return self._of(properties[name])
        inner = self.schema.get("additionalProperties")
        if isinstance(inner, Mapping):
            return self._of(inner)
        return OPEN if self.keeps_unknown else None

    def key_default(self, name: str) -> Any:
        """Give the default of a list key, None if it must be given."""
        found = self.items.at(name)
        declared = found.schema.get("default") if found is not None else None
        return declared if declared is not None else _KEY_DEFAULTS.get(name)

    def _of(self, schema: Schema) -> Shape:
        return Shape(self.resolve(schema), self.resolve)


OPEN = Shape({}, lambda schema: schema)
"""The shape of a value nobody described: maps merge, lists are replaced whole."""


def custom_root(schema: Schema, metadata: Shape) -> Shape:
    """Give the shape of a custom resource's objects from the schema in its definition."""
    reference = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"$metadata": True},
    }
    whole = {**schema, "type": "object", "properties": {**(schema.get("properties") or {}), **reference}}

    def resolve(inner: Schema) -> Schema:
        return metadata.schema if "$metadata" in inner else metadata.resolve(inner)

    return Shape(whole, resolve)
