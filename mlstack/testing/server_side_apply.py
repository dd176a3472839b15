"""Server-side apply on plain values: field sets, shapes, merge, comparison, removal, field managers.

A path is a tuple of FieldsV1's own elements: `f:spec`, `k:{"name":"main"}` (an item of a keyed list),
`v:"x"` (a member of a set). Set algebra is then Python's. Values are never changed in place. Follows
sigs.k8s.io/structured-merge-diff and the field managers of k8s.io/apimachinery, which the API server uses.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from mlstack.dataclass import Record, dataclass
from mlstack.errors import FieldConflict
from mlstack.objects import managed_fields
from mlstack.objects.kube_object import Schema
from mlstack.objects.managed_fields import FieldPath
from mlstack.testing.store import with_metadata
from mlstack.yaml.write import same

# --- sets of fields as `managedFields` writes them (FieldsV1), and the same as sets of paths ---

Paths = frozenset[FieldPath]
FieldsV1 = dict[str, Any]

NOTHING: Paths = frozenset()


def field_of(name: str) -> str:
    """Give the element of a named field or map key."""
    return f"f:{name}"


def key(values: Mapping[str, Any]) -> str:
    """Give the element of a keyed list's item."""
    return f"k:{_json(dict(sorted(values.items())))}"


def to_v1(paths: Iterable[FieldPath]) -> FieldsV1:
    """Write paths as FieldsV1: `.` marks a path that has others below it, keys are sorted."""
    tree: FieldsV1 = {}
    owned = frozenset(paths)
    for path in sorted(owned):
        node = tree
        for depth, element in enumerate(path, 1):
            node = node.setdefault(element, {})
            if path[:depth] in owned and depth < len(path):
                node["."] = {}
    return tree


def spell(path: FieldPath) -> str:
    """Write a path as the API server does in messages: `.spec.ports[port=80,protocol="TCP"].targetPort`."""
    return "".join(map(_spell, path))


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


# --- what server-side apply must know of a value: struct, map, list (by which keys) or scalar ---
# Shapes are read from the compact schemas of the built-in kinds and from the schemas of
# CustomResourceDefinitions; a value without a schema shows its shape itself.

_KEY_DEFAULTS = {"protocol": "TCP"}
"""The one key of a built-in list that has a default; the compact schemas leave defaults out."""


class KeyFault(ValueError):
    """An item of a keyed list cannot be named; the message says why."""


@dataclass(frozen=True)
class Shape:
    """The shape of one value."""

    schema: Schema
    resolve: Callable[[Schema], Schema]  # gives the schema that a reference names, any other as it is

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
    def is_keyed(self) -> bool:
        """Say whether the items of this list are owned one by one."""
        return self.schema.get("x-kubernetes-list-type") in ("map", "set")

    @property
    def items(self) -> Shape:
        """Give the shape of a list's items."""
        return self._of(self.schema.get("items") or {})

    def is_field(self, name: str) -> bool:
        """Say whether this is a field of a struct, not a key of a map."""
        return name in (self.schema.get("properties") or {})

    def at(self, name: str) -> Shape | None:
        """Give the shape of a field or map value, None where there is no such field."""
        if self.is_field(name):
            return self._of(self.schema["properties"][name])
        extra = self.schema.get("additionalProperties")
        if isinstance(extra, Mapping):
            return self._of(extra)
        is_described = self.has_fields or "additionalProperties" in self.schema
        return None if is_described and not self.schema.get("x-kubernetes-preserve-unknown-fields") else OPEN

    def _of(self, schema: Schema) -> Shape:
        return Shape(self.resolve(schema), self.resolve)

    def is_granular_map(self, value: Any) -> bool:
        """Say whether a value is a map whose fields are owned one by one."""
        is_map = isinstance(value, Mapping) and self.schema.get("type") != "array"
        return is_map and self.schema.get("x-kubernetes-map-type") != "atomic"

    def is_granular(self, value: Any) -> bool:
        """Say whether parts of a value are owned one by one."""
        return self.is_granular_map(value) or (isinstance(value, list) and self.is_keyed)

    def parts(self, value: Any) -> dict[str, tuple[Any, Shape]]:
        """Give what a granular value consists of, by path element; a KeyFault if it has no name."""
        if isinstance(value, list):
            return {self.element_of(item): (item, self.items) for item in value}
        return {field_of(name): (inner, self.at(name) or OPEN) for name, inner in value.items()}

    def element_of(self, item: Any) -> str:
        """Name an item of a keyed list or set; a KeyFault where a key is missing, or it is no map."""
        if self.schema.get("x-kubernetes-list-type") == "set":
            return f"v:{_json(item)}"
        if not isinstance(item, Mapping):
            kind = "a null element" if item is None else "non-map elements"
            raise KeyFault(f"associative list with keys may not have {kind}")
        values = {}
        for name in self.schema.get("x-kubernetes-list-map-keys") or ():
            values[name] = item.get(name, self._key_default(name))
            if values[name] is None:
                raise KeyFault(
                    f'associative list with keys has an element that omits key field "{name}" '
                    "(and doesn't have default value)"
                )
        return key(values)

    def _key_default(self, name: str) -> Any:
        declared = self.items.at(name)
        default = declared.schema.get("default") if declared is not None else None
        return default if default is not None else _KEY_DEFAULTS.get(name)


OPEN = Shape({}, lambda schema: schema)
"""The shape of a value nobody described: maps merge, lists are replaced whole."""


def custom_root(schema: Schema, metadata: Shape) -> Shape:
    """Give the shape of a custom resource's objects from the schema in its definition."""
    text = {"type": "string"}
    reference = {"apiVersion": text, "kind": text, "metadata": {"$metadata": True}}
    whole = {**schema, "type": "object", "properties": {**(schema.get("properties") or {}), **reference}}
    return Shape(whole, lambda inner: metadata.schema if "$metadata" in inner else metadata.resolve(inner))


# --- the arithmetic on values ---

_MISSING = object()


def field_set(value: Any, shape: Shape) -> Paths:
    """Give the fields that applying a value owns."""
    return frozenset(_owned(value, shape, ()))


def _owned(value: Any, shape: Shape, path: FieldPath) -> Iterator[FieldPath]:
    if not shape.is_granular(value):
        yield path
        return
    is_list = isinstance(value, list)
    for element, (inner, below) in shape.parts(value).items():
        yield from _owned(inner, below, (*path, element))
        if is_list or inner is None or inner == {} or not shape.is_field(element[2:]):
            yield (*path, element)


def merge(live: Any, desired: Any, shape: Shape) -> Any:
    """Lay a wanted value over a live one: maps and keyed lists merge, the rest is replaced."""
    if shape.is_granular_map(desired) and shape.is_granular_map(live):
        laid = {name: merge(live.get(name), inner, shape.at(name) or OPEN) for name, inner in desired.items()}
        return {**live, **laid}
    if isinstance(desired, list) and isinstance(live, list) and shape.is_keyed:
        return list(_merged_items(live, desired, shape))
    if desired is None and live and shape.is_granular(live):
        return live
    return desired


def _merged_items(live: list[Any], desired: list[Any], shape: Shape) -> Iterator[Any]:
    """Merge two keyed lists: the wanted order wins, live items of others keep their neighbours."""
    left = {shape.element_of(item): item for item in live}
    right = {shape.element_of(item): item for item in desired}
    waiting, shared = list(left), [element for element in right if element in left]
    given: set[str] = set()
    for element, item in right.items():
        while waiting and waiting[0] != element:
            first = waiting[0]
            if first not in right:
                yield left[first]
            elif first not in given and shared and first == shared[0]:
                break
            waiting.pop(0)
        if waiting and waiting[0] == element:
            waiting.pop(0)
        given.add(element)
        if shared and shared[0] == element:
            shared.pop(0)
        yield merge(left[element], item, shape.items) if element in left else item
    yield from (left[element] for element in waiting if element not in right)


class FieldComparison(NamedTuple):
    """How one value differs from another, as sets of paths."""

    added: Paths
    modified: Paths
    removed: Paths


def compare(old: Any, new: Any, shape: Shape) -> FieldComparison:
    """Say what was added, modified and removed between two values; containers count as fields too."""
    paths: dict[str, set[FieldPath]] = {kind: set() for kind in FieldComparison._fields}
    for kind, path in _differences(old, new, shape, ()):
        paths[kind].add(path)
    return FieldComparison(*map(frozenset, paths.values()))


def _differences(old: Any, new: Any, shape: Shape, path: FieldPath) -> Iterator[tuple[str, FieldPath]]:
    olds, news = _parts(old, shape), _parts(new, shape)
    if (olds and news is not None) or (news and olds is not None):
        missing = (_MISSING, OPEN)
        for element in dict.fromkeys((*(olds or ()), *(news or ()))):
            old_inner, old_shape = (olds or {}).get(element, missing)
            new_inner, new_shape = (news or {}).get(element, missing)
            below = new_shape if old_inner is _MISSING else old_shape
            yield from _differences(old_inner, new_inner, below, (*path, element))
        if not path or (old is not _MISSING and new is not _MISSING):
            return
    if old is _MISSING or new is _MISSING:
        if old is not new:
            yield ("added" if old is _MISSING else "removed"), path
    elif not same(old, new):
        yield "modified", path


def _parts(value: Any, shape: Shape) -> dict[str, tuple[Any, Shape]] | None:
    """Give what a value consists of, None for a leaf."""
    if value is _MISSING or value is None:
        return {}
    return shape.parts(value) if shape.is_granular(value) else None


def prune(value: Any, shape: Shape, dropped: Paths, kept: Paths) -> Any:
    """Remove the fields in `dropped` that are not in `kept`.

    A field of a struct counts as in a set when anything below it is; an item of a list or a key of a map
    only when it is itself. What nobody owns stays, unless it lies in something that goes.

    `dropped` is what the manager owned before, `kept` what any manager owns now.
    """
    if not dropped or value is None or not shape.is_granular(value):
        return value
    is_list = isinstance(value, list)
    left = {}
    for element, (inner, below) in shape.parts(value).items():
        dropped_below = frozenset(path[1:] for path in dropped if path[:1] == (element,))
        kept_below = frozenset(path[1:] for path in kept if path[:1] == (element,))
        by_name = not is_list and shape.is_field(element[2:])
        goes = bool(dropped_below) if by_name else () in dropped_below
        stays = bool(kept_below) if by_name else () in kept_below
        if not goes or stays:
            left[element] = prune(inner, below, dropped_below, kept_below)
    if value and not left:
        return None
    return list(left.values()) if is_list else {element[2:]: inner for element, inner in left.items()}


# --- field managers: who owns which fields of an object, and what a write does to that ---
# An apply owns exactly what it sends and loses what it no longer sends; any other write (an Update) takes the
# fields whose values it changes.

_NEVER_OWNED = frozenset(
    {("f:apiVersion",), ("f:kind",), ("f:metadata",)}
    | {("f:metadata", f"f:{name}") for name in ("name", "namespace", "creationTimestamp", "selfLink")}
    | {("f:metadata", f"f:{name}") for name in ("uid", "generation", "managedFields", "resourceVersion")}
)


class OwnershipConflict(Exception):
    """Others own fields that an apply would change."""

    def __init__(self, conflicts: Sequence[FieldConflict]) -> None:
        super().__init__(f"{len(conflicts)} conflicts")
        self.conflicts = tuple(conflicts)


class FieldWriter(NamedTuple):
    """Who writes, and how."""

    manager: str
    operation: str  # `Apply` or `Update`
    api_version: str  # the version the fields are in
    subresource: str = ""  # `status` or `scale`, empty for the object itself

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Give what tells entries apart: an applier is the same in any version."""
        version = "" if self.operation == "Apply" else self.api_version
        return self.manager, self.operation, version, self.subresource


class AppliedEntry(Record):
    """What one writer owns."""

    writer: FieldWriter
    paths: Paths
    time: str | None  # when it last changed something; None where it never did


Entries = tuple[AppliedEntry, ...]


def entries_of(rows: Iterable[Mapping[str, Any]]) -> Entries:
    """Read managed fields."""
    entries: dict[tuple[str, str, str, str], AppliedEntry] = {}
    for row in rows:
        if row.get("operation"):
            names = ("manager", "operation", "apiVersion", "subresource")
            writer = FieldWriter(*(str(row.get(name) or "") for name in names))
            paths = frozenset(managed_fields.paths(row.get("fieldsV1") or {}))
            entries[writer.identity] = AppliedEntry(writer=writer, paths=paths, time=row.get("time"))
    return tuple(entries.values())


def managed_fields_of(entries: Entries) -> list[dict[str, Any]]:
    """Write managed fields, in the server's order."""
    return [
        {
            "manager": entry.writer.manager,
            "operation": entry.writer.operation,
            "apiVersion": entry.writer.api_version,
            **({"time": entry.time} if entry.time else {}),
            "fieldsType": "FieldsV1",
            "fieldsV1": to_v1(entry.paths),
            **({"subresource": entry.writer.subresource} if entry.writer.subresource else {}),
        }
        for entry in sorted(entries, key=_order)
        if entry.paths
    ]


def _order(entry: AppliedEntry) -> tuple[str, ...]:
    writer = entry.writer
    return writer.operation, entry.time or "", writer.manager, writer.api_version, writer.subresource


def apply(
    live: Mapping[str, Any] | None,
    desired: Mapping[str, Any],
    shape: Shape,
    *,
    writer: FieldWriter,
    force: bool,
    now: str,
) -> tuple[dict[str, Any], Entries]:
    """Lay what a manager wants over a live object; gives it without managed fields, and who owns what."""
    old = with_metadata(live, managedFields=None) if live else {}
    entries = entries_of(((live or {}).get("metadata") or {}).get("managedFields") or ())
    if live is not None and not entries:
        first = FieldWriter(managed_fields.BEFORE_FIRST_APPLY, "Update", writer.api_version)
        added = compare({}, old, shape).added - _NEVER_OWNED
        entries = (AppliedEntry(writer=first, paths=added, time=now),)
    previous = _entry_of(entries, writer)
    owned = field_set(desired, shape)
    kept = owned.union(*(entry.paths for entry in entries if entry is not previous))
    dropped = previous.paths if previous else NOTHING
    new = prune(merge(old, desired, shape), shape, dropped, kept)
    time = previous.time if previous else None
    mine = AppliedEntry(writer=writer, paths=owned - _NEVER_OWNED, time=time if same(old, new) else now)
    return new, (*_others(compare(old, new, shape), entries, writer, force=force), mine)


def update(
    before: Mapping[str, Any],
    new: Mapping[str, Any],
    shape: Shape,
    *,
    writer: FieldWriter,
    now: str,
    listed: Entries,
) -> Entries:
    """Say who owns what after an object was written whole or by a patch; `listed` says who did before."""
    difference = compare(with_metadata(before, managedFields=None), new, shape)
    others = _others(difference, listed, writer, force=True)
    changed = (difference.added | difference.modified) - _NEVER_OWNED
    previous = _entry_of(listed, writer)
    paths = previous.paths - difference.removed if previous else NOTHING
    if changed:
        return (*others, AppliedEntry(writer=writer, paths=changed | paths, time=now))
    return (*others, replace(previous, paths=paths)) if previous else others


def _entry_of(entries: Entries, writer: FieldWriter) -> AppliedEntry | None:
    return next((entry for entry in entries if entry.writer.identity == writer.identity), None)


def _others(difference: FieldComparison, entries: Entries, writer: FieldWriter, *, force: bool) -> Entries:
    """Give what the others still own after a change; without force they may lose nothing to it."""
    taken = difference.added | difference.modified
    others = [entry for entry in entries if entry.writer.identity != writer.identity]
    conflicts = [
        FieldConflict(manager=entry.writer.manager, path=spell(path), subresource=entry.writer.subresource)
        for entry in sorted(others, key=_order)
        for path in sorted(entry.paths & taken)
    ]
    if conflicts and not force:
        raise OwnershipConflict(conflicts)
    lost = taken | difference.removed
    return tuple(replace(entry, paths=entry.paths - lost) for entry in others)
