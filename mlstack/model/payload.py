"""Take fields out of what is sent, or give them another value, along the paths of a field tree."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mlstack.model import fields
from mlstack.model.fields import MISSING

Path = tuple[str, ...]


def cut(data: Mapping[str, Any], paths: Iterable[Path]) -> dict[str, Any]:
    """Give a copy without these fields.

    What a cut leaves empty goes too: an empty map would own the whole map. An item of a keyed list keeps its
    keys, which say which item it is. Paths that lead nowhere change nothing.
    """
    result: Any = data
    for path in paths:
        result = _cut(result, path)
    return dict(result)


def _cut(value: Any, path: Path) -> Any:
    step, rest = path[0], path[1:]
    if step.startswith("f:") and isinstance(value, Mapping):
        return _cut_named(value, step[2:], rest)
    if isinstance(value, list) and not step.startswith("f:"):
        return _cut_item(value, step, rest)
    return value


def _cut_named(value: Mapping[str, Any], name: str, rest: Path) -> Any:
    if name not in value:
        return value
    left = _cut(value[name], rest) if rest else MISSING
    if left is value[name]:
        return value
    if left is MISSING or left in ({}, []):
        return {key: inner for key, inner in value.items() if key != name}
    return {**value, name: left}


def _cut_item(value: list[Any], step: str, rest: Path) -> Any:
    place = item_place(value, step)
    if place is None:
        return value
    if not rest:
        return [*value[:place], *value[place + 1 :]]
    if step.startswith("k:") and len(rest) == 1 and rest[0][2:] in json.loads(step[2:]):
        return value
    left = _cut(value[place], rest)
    return value if left is value[place] else [*value[:place], left, *value[place + 1 :]]


def item_place(value: Sequence[Any], step: str) -> int | None:
    """Find the item of a list that a step of a tree names.

    A key that an item does not say has its default (the protocol of a port), so it may be this item.
    """
    kind, _, rest = step.partition(":")
    sought = json.loads(rest)
    if kind == "i":
        return sought if sought < len(value) else None
    if kind == "v":
        return next((place for place, item in enumerate(value) if item == sought), None)
    for said in (True, False):
        for place, item in enumerate(value):
            if isinstance(item, Mapping) and _is_item(item, sought, said=said):
                return place
    return None


def _is_item(item: Mapping[str, Any], keys: Mapping[str, Any], *, said: bool) -> bool:
    known = [name for name in keys if name in item]
    if not known or (said and len(known) < len(keys)):
        return False
    return all(item[name] == keys[name] for name in known)


def removals(data: Mapping[str, Any], paths: Iterable[Path]) -> tuple[Mapping[str, Any], ...]:
    """Give the JSON patch that takes fields out of an object; none of them lies in another.

    It fails where an item of a list stands in another place meanwhile; what else changes does not matter.
    """
    found = [list(_places(data, path)) for path in paths]
    found.sort(key=lambda places: [(isinstance(token, str), token) for token, _ in places], reverse=True)
    tests = {
        _pointer(places[: depth + 1], name): value
        for places in found
        for depth, (_, keys) in enumerate(places)
        for name, value in keys.items()
    }
    return (
        *({"op": "test", "path": path, "value": value} for path, value in tests.items()),
        *({"op": "remove", "path": _pointer(places)} for places in found),
    )


_Place = tuple[str | int, Mapping[str, Any]]


def _places(data: Any, path: Path) -> Iterator[_Place]:
    """Give name or index of each step, and by what to know an item: its keys, or itself under no name."""
    value = data
    for step in path:
        place = None if step.startswith("f:") else item_place(value, step)
        if place is None:
            yield step[2:], {}
            value = value[step[2:]]
            continue
        value = value[place]
        keys = json.loads(step[2:]) if step.startswith("k:") else {}
        yield place, {name: value[name] for name in keys if name in value} if keys else {"": value}


def _pointer(places: Sequence[_Place], *names: str) -> str:
    tokens = [*(str(token) for token, _ in places), *filter(None, names)]
    return "".join(f"/{token.replace('~', '~0').replace('/', '~1')}" for token in tokens)


def put(data: Mapping[str, Any], path: Path, wanted: Any) -> dict[str, Any]:
    """Give a copy in which a field has another value; what lies on the way is made."""
    return dict(_put(data, path, wanted))


def _put(value: Any, path: Path, wanted: Any) -> Any:
    if not path:
        return wanted
    step, rest = path[0], path[1:]
    if step.startswith("f:"):
        inner = value if isinstance(value, Mapping) else {}
        return {**inner, step[2:]: _put(inner.get(step[2:]), rest, wanted)}
    items = list(value) if isinstance(value, list) else []
    place = item_place(items, step)
    if place is None:
        fresh = json.loads(step[2:]) if step.startswith("k:") else wanted
        return [*items, _put(fresh, rest, wanted)]
    items[place] = _put(items[place], rest, wanted)
    return items


def value_at(data: Any, path: Path) -> Any:
    """Give the value of a field, `MISSING` if it is not there."""
    value = data
    for step in path:
        value = fields.step(value, step)
        if value is MISSING:
            return MISSING
    return value


def says(data: Any, path: Path) -> bool:
    """Tell whether an object as it is written has a field; keys of a list item that it leaves out fit."""
    value = data
    for step in path:
        if isinstance(value, list) and not step.startswith("f:"):
            place = item_place(value, step)
            value = MISSING if place is None else value[place]
        else:
            value = fields.step(value, step)
        if value is MISSING:
            return False
    return True
