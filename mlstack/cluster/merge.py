"""The arithmetic of server-side apply on plain values: field sets, merge, comparison, removal.

Follows sigs.k8s.io/structured-merge-diff, which the API server uses; values are never changed in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mlstack.cluster import fields
from mlstack.cluster.fields import Path, Paths
from mlstack.cluster.shapes import OPEN, Shape


class KeyFault(ValueError):
    """An item of a keyed list cannot be named; the message says why, `path` where."""

    def __init__(self, path: Path, message: str) -> None:
        """Hold the place and the reason."""
        super().__init__(message)
        self.path = path


@dataclass
class Comparison:
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
            below = (*path, fields.field(name))
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
            below = (*path, fields.field(name))
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


def compare(old: Any, new: Any, shape: Shape) -> Comparison:
    """Say what was added, modified and removed between two values; containers count as fields too."""
    found = Comparison()
    _compare(old, new, shape, (), found)
    return found


def _compare(old: Any, new: Any, shape: Shape, path: Path, found: Comparison) -> None:
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


def _compare_leaf(old: Any, new: Any, path: Path, found: Comparison) -> None:
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
        return {fields.field(name): (inner, shape.at(name) or OPEN) for name, inner in value.items()}
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
            name: prune(inner, shape.at(name) or OPEN, *_below(fields.field(name), dropped, kept))
            for name, inner in value.items()
            if not _goes(fields.field(name), dropped, kept, by_name=shape.is_field(name))
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
    return tuple(fields.below(paths, element) for paths in sets)


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
        return fields.member(item)
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
    return fields.key(values)
