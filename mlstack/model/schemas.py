"""The schemas of the built-in kinds of one Kubernetes version, each decoded when it is first asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, KeysView, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]

_ROOT_MARK = '{"gvk":'


@dataclass(frozen=True)
class ListType:
    """How server-side apply merges a list.

    Attributes:
        type: `map` (items are told apart by `keys`), `set` (by their value) or `atomic` (replaced whole).
        keys: the fields that together name an item of a `map` list.
    """

    type: str
    keys: tuple[str, ...] = ()


ATOMIC = ListType("atomic")


class Schemas:
    """The definitions of one Kubernetes version.

    Args:
        text: lines of definition name, minor versions (`30-33,35-37`) and JSON, separated by tabs.
        minor: the Kubernetes version, 36 for 1.36.
    """

    def __init__(self, text: str, *, minor: int) -> None:
        """Find the lines of this version; nothing is decoded yet."""
        self.minor = minor
        self._lines: dict[str, str] = {}
        self._decoded: dict[str, Schema] = {}
        self._roots: dict[tuple[str, str, str], str] = {}
        for line in text.splitlines():
            name, runs, encoded = line.split("\t", 2)
            if _covers(runs, minor):
                self._lines[name] = encoded
                if encoded.startswith(_ROOT_MARK):
                    gvk, _, _ = encoded[len(_ROOT_MARK) :].partition("]")
                    group, version, kind = json.loads(f"{gvk}]")
                    self._roots[group, version, kind] = name

    @property
    def version(self) -> str:
        """Give the Kubernetes version as people write it: `1.36`."""
        return f"1.{self.minor}"

    def names(self) -> KeysView[str]:
        """Give the names of all definitions."""
        return self._lines.keys()

    def definition(self, name: str) -> Schema:
        """Decode one definition; an unknown name is an open schema."""
        if name not in self._decoded:
            self._decoded[name] = json.loads(self._lines.get(name, "{}"))
        return self._decoded[name]

    def root(self, group: str, version: str, kind: str) -> Schema | None:
        """Give the schema of a kind's objects, None where this Kubernetes does not have it."""
        name = self._roots.get((group, version, kind))
        return None if name is None else self.definition(name)

    def resolve(self, schema: Schema) -> Schema:
        """Follow the reference of a schema, if it is one."""
        return self.definition(schema["$ref"]) if "$ref" in schema else schema

    def at(self, group: str, version: str, kind: str, path: Iterable[str | int]) -> Schema | None:
        """Give the schema of a field, None where there is no such field.

        Args:
            group: API group, empty for the core group.
            version: version within the group.
            kind: kind of the object.
            path: field names and map keys; integers stand for the items of a list and may be left out.
        """
        schema = self.root(group, version, kind)
        for key in path:
            if schema is None:
                return None
            if not isinstance(key, int) and "items" in schema:
                schema = self.resolve(schema["items"])
            schema = self._step(schema, key)
        return schema

    def _step(self, schema: Schema, key: str | int) -> Schema | None:
        if isinstance(key, int):
            inner = schema.get("items")
        else:
            inner = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
        return self.resolve(inner) if isinstance(inner, Mapping) else None

    def list_type(self, group: str, version: str, kind: str, path: Sequence[str | int]) -> ListType:
        """Say how the list at `path` is merged; what is not declared otherwise is atomic."""
        schema = self.at(group, version, kind, path)
        return ATOMIC if schema is None else list_type_of(schema)


def list_type_of(schema: Schema) -> ListType:
    """Read the list type of a schema, built-in or of a CustomResourceDefinition."""
    return ListType(
        schema.get("x-kubernetes-list-type", "atomic"), tuple(schema.get("x-kubernetes-list-map-keys", ()))
    )


def _covers(runs: str, minor: int) -> bool:
    bounds = (run.split("-") for run in runs.split(","))
    return any(int(first) <= minor <= int(last) for first, last in bounds)
