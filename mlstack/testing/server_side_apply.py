"""Sets of fields as `managedFields` writes them (FieldsV1), and the same as sets of paths.

A path is a tuple of FieldsV1's own elements: `f:spec`, `k:{"name":"main"}` (an item of a keyed list),
`v:"x"` (a member of a set). Set algebra is then Python's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mlstack.errors import FieldConflict

# --- Sets of fields as `managedFields` writes them (FieldsV1), and the same as sets of paths ---
# A path is a tuple of FieldsV1's own elements: `f:spec`, `k:{"name":"main"}` (an item of a keyed list),
# `v:"x"` (a member of a set). Set algebra is then Python's.

Path = tuple[str, ...]
Paths = frozenset[Path]
FieldsV1 = dict[str, Any]

NOTHING: Paths = frozenset()


def field_of(name: str) -> str:
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


# --- What server-side apply must know of a value: struct, map, list (by which keys) or scalar ---
# Shapes are read from the compact schemas of the built-in kinds and from the schemas of
# CustomResourceDefinitions; a value without a schema shows its shape itself.

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


# --- The arithmetic of server-side apply on plain values: field sets, merge, comparison, removal ---
# Follows sigs.k8s.io/structured-merge-diff, which the API server uses; values are never changed in place.


class KeyFault(ValueError):
    """An item of a keyed list cannot be named; the message says why, `path` where."""

    def __init__(self, path: Path, message: str) -> None:
        """Hold the place and the reason."""
        super().__init__(message)
        self.path = path


@dataclass
class FieldComparison:
    """How one value differs from another, as sets of paths."""

    added: set[Path] = field(default_factory=set)
    modified: set[Path] = field(default_factory=set)
    removed: set[Path] = field(default_factory=set)


class _Missing:
    """Stands for no value at all, as null is one."""


_MISSING = _Missing()


def same(one: Any, other: Any) -> bool:
    """Say whether two JSON values are equal; true is not 1, and 1 is 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    is_number = isinstance(one, int | float) and isinstance(other, int | float)
    return bool(one == other) and (is_number or type(one) is type(other))


def field_set(value: Any, shape: Shape) -> Paths:
    """Give the fields that applying a value owns."""
    return frozenset(_owned(value, shape, ()))


def _owned(value: Any, shape: Shape, path: Path) -> Iterator[Path]:
    if _is_map(value, shape):
        if shape.is_atomic:
            yield path
            return
        for name, inner in value.items():
            below = (*path, field_of(name))
            yield from _owned(inner, shape.at(name) or OPEN, below)
            if inner is None or inner == {} or not shape.is_field(name):
                yield below
    elif _is_keyed_list(value, shape):
        for element, item in _items(value, shape, path):
            below = (*path, element)
            yield from _owned(item, shape.items, below)
            yield below
    elif not (isinstance(value, list | Mapping | None) and _is_granular(value, shape)):
        yield path


def merge(live: Any, wanted: Any, shape: Shape, path: Path = ()) -> Any:
    """Lay a wanted value over a live one: maps and keyed lists merge, the rest is replaced."""
    if _is_map(wanted, shape) and _is_map(live, shape) and not shape.is_atomic:
        merged = dict(live)
        for name, inner in wanted.items():
            below = (*path, field_of(name))
            merged[name] = merge(live.get(name), inner, shape.at(name) or OPEN, below)
        return merged
    if _is_keyed_list(wanted, shape) and _is_keyed_list(live, shape):
        return list(_merged_items(live, wanted, shape, path))
    if wanted is None and live and _is_granular(live, shape):
        return live
    return wanted


def _merged_items(live: list[Any], wanted: list[Any], shape: Shape, path: Path) -> Iterator[Any]:
    """Merge two keyed lists: the wanted order wins, live items of others keep their neighbours."""
    left, right = dict(_items(live, shape, path)), dict(_items(wanted, shape, path))
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
        yield merge(left.get(element), item, shape.items, (*path, element)) if element in left else item
    yield from (left[element] for element in waiting if element not in right)


def compare(old: Any, new: Any, shape: Shape) -> FieldComparison:
    """Say what was added, modified and removed between two values; containers count as fields too."""
    found = FieldComparison()
    _compare(old, new, shape, (), found)
    return found


def _compare(old: Any, new: Any, shape: Shape, path: Path, found: FieldComparison) -> None:
    olds, news = _parts(old, shape, path), _parts(new, shape, path)
    if olds is None or news is None or not (olds or news):
        _compare_leaf(old, new, path, found)
        return
    for element in dict.fromkeys((*olds, *news)):
        old_inner, _ = olds.get(element, (_MISSING, OPEN))
        new_inner, _ = news.get(element, (_MISSING, OPEN))
        inner = (olds.get(element) or news[element])[1]
        _compare(old_inner, new_inner, inner, (*path, element), found)
    if path and (old is _MISSING or new is _MISSING):
        (found.added if old is _MISSING else found.removed).add(path)


def _compare_leaf(old: Any, new: Any, path: Path, found: FieldComparison) -> None:
    if old is _MISSING and new is _MISSING:
        return
    if old is _MISSING:
        found.added.add(path)
    elif new is _MISSING:
        found.removed.add(path)
    elif not same(old, new):
        found.modified.add(path)


def _parts(value: Any, shape: Shape, path: Path) -> dict[str, tuple[Any, Shape]] | None:
    """Give what a value consists of by path element, None for a leaf."""
    if value is _MISSING or value is None:
        return {}
    if _is_map(value, shape) and not shape.is_atomic:
        return {field_of(name): (inner, shape.at(name) or OPEN) for name, inner in value.items()}
    if _is_keyed_list(value, shape):
        return {element: (item, shape.items) for element, item in _items(value, shape, path)}
    return None


def prune(value: Any, shape: Shape, dropped: Paths, kept: Paths) -> Any:
    """Remove the fields in `dropped` that are not in `kept`.

    A field of a struct counts as in a set when anything below it is; an item of a list or a key of a map
    only when it is itself. What nobody owns stays, unless it lies in something that goes.

    Args:
        value: the merged value.
        shape: its shape.
        dropped: the fields the manager owned before.
        kept: the fields that any manager owns now.
    """
    if not dropped or value is None:
        return value
    if _is_map(value, shape) and not shape.is_atomic:
        left = {
            name: prune(inner, shape.at(name) or OPEN, *_below(field_of(name), dropped, kept))
            for name, inner in value.items()
            if not _goes(field_of(name), dropped, kept, by_name=shape.is_field(name))
        }
        return left if left or not value else None
    if _is_keyed_list(value, shape):
        items = [
            prune(item, shape.items, *_below(element, dropped, kept))
            for element, item in _items(value, shape, ())
            if not _goes(element, dropped, kept, by_name=False)
        ]
        return items if items or not value else None
    return value


def _goes(element: str, dropped: Paths, kept: Paths, *, by_name: bool) -> bool:
    def is_in(paths: Paths) -> bool:
        return any(path[:1] == (element,) and (by_name or len(path) == 1) for path in paths)

    return is_in(dropped) and not is_in(kept)


def _below(element: str, *sets: Paths) -> tuple[Paths, ...]:
    return tuple(below(paths, element) for paths in sets)


def _is_map(value: Any, shape: Shape) -> bool:
    return isinstance(value, Mapping) and shape.schema.get("type") != "array"


def _is_keyed_list(value: Any, shape: Shape) -> bool:
    return isinstance(value, list) and shape.list_type in ("map", "set")


def _is_granular(value: Any, shape: Shape) -> bool:
    if isinstance(value, list):
        return shape.list_type in ("map", "set")
    return isinstance(value, Mapping) and not shape.is_atomic


def _items(values: Iterable[Any], shape: Shape, path: Path) -> Iterator[tuple[str, Any]]:
    """Give the items of a keyed list or set with their names."""
    for item in values:
        yield element_of(item, shape, path), item


def element_of(item: Any, shape: Shape, path: Path) -> str:
    """Name an item of a keyed list or set.

    Raises:
        KeyFault: a key is missing, or the item is no map.
    """
    if shape.list_type == "set":
        return member(item)
    if not isinstance(item, Mapping):
        kind = "a null element" if item is None else "non-map elements"
        raise KeyFault(path, f"associative list with keys may not have {kind}")
    values = {name: item.get(name, shape.key_default(name)) for name in shape.keys}
    for name, value in values.items():
        if value is None:
            raise KeyFault(
                path,
                f'associative list with keys has an element that omits key field "{name}" '
                "(and doesn't have default value)",
            )
    return key(values)


# --- Field managers: who owns which fields of an object, and what a write does to that ---
# Follows k8s.io/apimachinery's fieldmanager: an apply owns exactly what it sends and loses what it no longer
# sends; any other write (an Update) takes the fields whose values it changes.

BEFORE_FIRST_APPLY = "before-first-apply"

_NEVER_OWNED = frozenset(
    {("f:apiVersion",), ("f:kind",), ("f:metadata",)}
    | {
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "generation",
            "managedFields",
            "resourceVersion",
        )
    }
)


class OwnershipConflict(Exception):
    """Others own fields that an apply would change."""

    def __init__(self, conflicts: Sequence[FieldConflict]) -> None:
        """Hold the fields and their owners."""
        super().__init__(f"{len(conflicts)} conflicts")
        self.conflicts = tuple(conflicts)


@dataclass(frozen=True, kw_only=True)
class FieldWriter:
    """Who writes, and how.

    Attributes:
        manager: name of the field manager.
        operation: `Apply` or `Update`.
        api_version: the version the fields are in.
        subresource: `status` or `scale`, empty for the object itself.
    """

    manager: str
    operation: str
    api_version: str
    subresource: str = ""

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Give what tells entries apart: an applier is the same in any version."""
        version = "" if self.operation == "Apply" else self.api_version
        return self.manager, self.operation, version, self.subresource


@dataclass(frozen=True, kw_only=True)
class AppliedEntry:
    """What one writer owns.

    Attributes:
        writer: who.
        paths: the fields.
        time: when it last changed something; None where it never did.
    """

    writer: FieldWriter
    paths: Paths
    time: str | None


def entries_of(obj: Mapping[str, Any] | None) -> tuple[AppliedEntry, ...]:
    """Read the managed fields of an object."""
    listed = ((obj or {}).get("metadata") or {}).get("managedFields") or ()
    return tuple(
        AppliedEntry(
            writer=FieldWriter(
                manager=str(item.get("manager") or ""),
                operation=str(item["operation"]),
                api_version=str(item.get("apiVersion") or ""),
                subresource=str(item.get("subresource") or ""),
            ),
            paths=from_v1(item.get("fieldsV1") or {}),
            time=item.get("time"),
        )
        for item in listed
        if item.get("operation")
    )


def with_entries(obj: Mapping[str, Any], entries: Iterable[AppliedEntry]) -> dict[str, Any]:
    """Give an object with these managed fields, in the server's order."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    written = [_written(entry) for entry in sorted(entries, key=_order) if entry.paths]
    if written:
        metadata["managedFields"] = written
    return {**obj, "metadata": metadata}


def apply(
    live: Mapping[str, Any] | None,
    wanted: Mapping[str, Any],
    shape: Shape,
    *,
    writer: FieldWriter,
    force: bool,
    now: str,
) -> tuple[dict[str, Any], tuple[AppliedEntry, ...]]:
    """Lay what a manager wants over a live object.

    Args:
        live: the object as it is, None to create it.
        wanted: the fields the manager wants.
        shape: of the kind.
        writer: the manager.
        force: take fields of others.
        now: time for the entries, as the server writes it.

    Returns:
        The object without managed fields, and who owns what in it.

    Raises:
        OwnershipConflict: others own fields whose values would change.
        KeyFault: an item of a keyed list cannot be named.
    """
    old = without_entries(live or {})
    entries = {entry.writer.identity: entry for entry in entries_of(live)}
    if live is not None and not entries:
        entries = _before_first_apply(old, shape, writer, now)
    previous = entries.get(writer.identity)
    owned = field_set(wanted, shape)
    mine = AppliedEntry(writer=writer, paths=owned - _NEVER_OWNED, time=previous.time if previous else None)
    entries[writer.identity] = mine
    merged = merge(old, wanted, shape)
    kept = owned.union(*(entry.paths for entry in entries.values()))
    new = prune(merged, shape, previous.paths if previous else NOTHING, kept)
    others = _others(old, new, shape, entries, writer, force=force)
    if not same(old, new):
        mine = replace(mine, time=now)
    return new, (*others, mine)


def update(
    before: Mapping[str, Any],
    new: Mapping[str, Any],
    shape: Shape,
    *,
    writer: FieldWriter,
    now: str,
    listed: tuple[AppliedEntry, ...] | None,
) -> tuple[AppliedEntry, ...]:
    """Say who owns what after an object was written whole, or in part by a patch.

    Args:
        before: the object as it was; what an object of its kind always has, if it is created.
        new: the object after.
        shape: of the kind.
        writer: who wrote.
        now: time for the entries.
        listed: who owned what, None where ownership is not recorded.
    """
    if listed is None:
        return ()
    entries = {entry.writer.identity: entry for entry in listed}
    before = without_entries(before)
    found = compare(before, new, shape)
    changed = frozenset(found.added | found.modified) - _NEVER_OWNED
    previous = entries.get(writer.identity)
    others = _others(before, new, shape, entries, writer, force=True)
    if previous is not None:
        previous = replace(previous, paths=previous.paths - found.removed)
    if not changed:
        return (*others, previous) if previous is not None else tuple(others)
    owned = changed | (previous.paths if previous is not None else NOTHING)
    return (*others, AppliedEntry(writer=writer, paths=owned, time=now))


def without_entries(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Give an object without its managed fields."""
    if "metadata" not in obj:
        return dict(obj)
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata}


def _before_first_apply(
    old: Mapping[str, Any], shape: Shape, writer: FieldWriter, now: str
) -> dict[tuple[str, str, str, str], AppliedEntry]:
    first = FieldWriter(manager=BEFORE_FIRST_APPLY, operation="Update", api_version=writer.api_version)
    added = frozenset(compare({}, old, shape).added) - _NEVER_OWNED
    return {first.identity: AppliedEntry(writer=first, paths=added, time=now)}


def _others(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    shape: Shape,
    entries: Mapping[tuple[str, str, str, str], AppliedEntry],
    writer: FieldWriter,
    *,
    force: bool,
) -> list[AppliedEntry]:
    """Give what the others still own after a change; without force they may lose nothing to it."""
    found = compare(old, new, shape)
    taken = frozenset(found.added | found.modified)
    others = [entry for identity, entry in entries.items() if identity != writer.identity]
    conflicts = [
        FieldConflict(manager=entry.writer.manager, path=spell(path), subresource=entry.writer.subresource)
        for entry in sorted(others, key=_order)
        for path in sorted(entry.paths & taken)
    ]
    if conflicts and not force:
        raise OwnershipConflict(conflicts)
    lost = taken | found.removed
    return [replace(entry, paths=entry.paths - lost) for entry in others]


def _written(entry: AppliedEntry) -> dict[str, Any]:
    writer = entry.writer
    return {
        "manager": writer.manager,
        "operation": writer.operation,
        "apiVersion": writer.api_version,
        **({"time": entry.time} if entry.time else {}),
        "fieldsType": "FieldsV1",
        "fieldsV1": to_v1(entry.paths),
        **({"subresource": writer.subresource} if writer.subresource else {}),
    }


def _order(entry: AppliedEntry) -> tuple[str, ...]:
    writer = entry.writer
    return writer.operation, entry.time or "", writer.manager, writer.api_version, writer.subresource
