"""Sets of fields as `metadata.managedFields` writes them: who owns what, and what differs there.

A tree maps `f:name` (map key), `k:{…}` (list item by its keys), `v:…` (item of a set), `i:0` (index) to
trees; an empty tree, and `.` inside one, say that the thing itself is owned. See the Kubernetes page
"Server-Side Apply" and KEP-555.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Tree = Mapping[str, Any]

_SELF = "."


class _Missing:
    """Tells an absent field from one that is null."""

    def __repr__(self) -> str:
        return "absent"


MISSING = _Missing()


@dataclass(frozen=True, kw_only=True)
class FieldChange:
    """One field that differs.

    Attributes:
        path: the field as people write it: `spec.template.spec.containers[main].image`.
        action: whether the field appears, goes or gets another value.
        old: value in the cluster, None if the field is added.
        new: value that is wanted, None if the field is removed.
    """

    path: str
    action: Literal["added", "removed", "changed"]
    old: Any = None
    new: Any = None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One manager's line in `managedFields`.

    Attributes:
        manager: its name.
        operation: `Apply` or `Update`.
        subresource: `scale` or `status` if it wrote through one.
        tree: the fields it owns.
        time: when it last took or left one, as the server writes it; empty if that is not known.
    """

    manager: str
    operation: str
    subresource: str
    tree: Tree
    time: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Give what the API server tells managers apart by, the API version aside."""
        return self.manager, self.operation, self.subresource


def entries(data: Mapping[str, Any]) -> tuple[Entry, ...]:
    """Read the field managers of a live object; entries of one manager are merged."""
    merged: dict[tuple[str, str, str], Tree] = {}
    times: dict[tuple[str, str, str], str] = {}
    for found in (data.get("metadata") or {}).get("managedFields") or ():
        key = (
            str(found.get("manager", "")),
            str(found.get("operation", "")),
            str(found.get("subresource") or ""),
        )
        tree = found.get("fieldsV1") or {}
        merged[key] = union(merged[key], tree) if key in merged else tree
        times[key] = max(times.get(key, ""), str(found.get("time") or ""))
    return tuple(
        Entry(manager=key[0], operation=key[1], subresource=key[2], tree=tree, time=times[key])
        for key, tree in merged.items()
    )


def owned(data: Mapping[str, Any], manager: str) -> Tree:
    """Give the fields a manager has applied; empty if it never did."""
    for entry in entries(data):
        if entry.key == (manager, "Apply", ""):
            return entry.tree
    return {}


def union(one: Tree, other: Tree) -> dict[str, Any]:
    """Give the fields of both trees."""
    if bool(one) != bool(other):
        # A leaf beside a branch: the thing itself is owned as well as some of its fields.
        return {_SELF: {}, **(one or other)}
    result = dict(one)
    for key, tree in other.items():
        result[key] = union(result[key], tree) if key in result else tree
    return result


def minus(one: Tree, other: Tree) -> dict[str, Any]:
    """Give the fields of one tree that the other has not."""
    result: dict[str, Any] = {}
    for key, tree in one.items():
        if key not in other:
            result[key] = tree
        elif not tree:
            if not _is_member(other[key]):
                result[key] = tree
        else:
            against = {_SELF: {}} if not other[key] else other[key]
            left = minus(tree, against)
            if left:
                result[key] = left
    return result


def _is_member(tree: Tree) -> bool:
    return not tree or _SELF in tree


def paths(tree: Tree) -> Iterator[tuple[str, ...]]:
    """Give the path of each field in the tree, as the keys of the tree."""
    for key, inner in tree.items():
        if key == _SELF:
            continue
        if _is_member(inner):
            yield (key,)
        for rest in paths(inner):
            yield (key, *rest)


def has(tree: Tree, path: Sequence[str]) -> bool:
    """Tell whether a tree owns a field, or something in it."""
    for key in path:
        if key not in tree:
            return False
        tree = tree[key]
    return True


def tree_along(paths: Iterable[Sequence[str]]) -> dict[str, Any]:
    """Give the tree that owns these fields and no others."""
    tree: dict[str, Any] = {}
    for path in paths:
        inner = tree
        for key in path:
            inner = inner.setdefault(key, {})
    return tree


def path_text(path: Sequence[str]) -> str:
    """Write a path as people do: `spec.ports[80,TCP].targetPort`."""
    return "".join(step_text(step) for step in path).removeprefix(".")


def step_text(step: str) -> str:
    """Write one step of a path as people do, with the dot or bracket it begins with."""
    kind, _, rest = step.partition(":")
    if kind == "f":
        return f'["{rest}"]' if "." in rest or "/" in rest else f".{rest}"
    if kind == "k":
        return f"[{','.join(str(value) for value in json.loads(rest).values())}]"
    return f"[{rest}]"


def compare(live: Any, wanted: Any, tree: Tree) -> Iterator[FieldChange]:
    """Tell in which of the tree's fields two objects differ; everything else is ignored."""
    for _, change in located(live, wanted, tree):
        yield change


def located(
    live: Any, wanted: Any, tree: Tree, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], FieldChange]]:
    """Tell in which of the tree's fields two objects differ, each with its path as keys of the tree."""
    if (live is MISSING and wanted is MISSING) or not (tree or path):
        return
    if live is MISSING:
        yield path, FieldChange(path=path_text(path), action="added", new=project(wanted, tree))
    elif wanted is MISSING:
        yield path, FieldChange(path=path_text(path), action="removed", old=project(live, tree))
    elif not tree or not _same_shape(live, wanted):
        if live != wanted:
            yield path, FieldChange(path=path_text(path), action="changed", old=live, new=wanted)
    else:
        for key, inner in tree.items():
            if key != _SELF:
                yield from located(step(live, key), step(wanted, key), inner, (*path, key))


def _same_shape(one: Any, other: Any) -> bool:
    return any(isinstance(one, shape) and isinstance(other, shape) for shape in (Mapping, list))


def step(value: Any, key: str) -> Any:
    """Go one step of a tree down into a value."""
    kind, _, rest = key.partition(":")
    if kind == "f":
        return value.get(rest, MISSING) if isinstance(value, Mapping) else MISSING
    if not isinstance(value, list):
        return MISSING
    if kind == "i":
        return value[int(rest)] if int(rest) < len(value) else MISSING
    sought = json.loads(rest)
    if kind == "v":
        return sought if sought in value else MISSING
    return next((item for item in value if _has_keys(item, sought)), MISSING)


def _has_keys(item: Any, keys: Mapping[str, Any]) -> bool:
    return isinstance(item, Mapping) and all(item.get(name) == value for name, value in keys.items())


def project(value: Any, tree: Tree) -> Any:
    """Give only those parts of a value that the tree names; the whole value for a leaf."""
    inner = {key: below for key, below in tree.items() if key != _SELF}
    if not inner or not isinstance(value, Mapping | list):
        return value
    steps = [(key, step(value, key)) for key in inner]
    kept = [(key, project(found, inner[key])) for key, found in steps if found is not MISSING]
    if isinstance(value, Mapping):
        return {key.partition(":")[2]: found for key, found in kept}
    return [found for _, found in kept]


def tree_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """Give a tree of everything an object says; lists count as one field each."""
    return {f"f:{key}": tree_of(value) if isinstance(value, Mapping) else {} for key, value in data.items()}
