"""List items that a person put in the place of ours, so that both together are not valid.

Who changes the port of a Service from 80 to 81 by hand makes another item of it, since the port is its key:
server-side apply would add ours beside it. Where the server refuses that, the person's items become ours
and go.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mlstack.errors import Cause
from mlstack.model import fields, payload
from mlstack.model.adoption import Patch, entries_patch, our_entry
from mlstack.model.fieldmanagers import Owner, is_persons_tool, owner_of
from mlstack.model.fields import MISSING, Tree
from mlstack.model.objects import MANAGER
from mlstack.model.payload import Path

_OURS = Owner(manager=MANAGER, operation="Apply")


def displaced(
    live: Mapping[str, Any], wanted: Mapping[str, Any], causes: Iterable[Cause]
) -> tuple[Path, ...]:
    """Give the items of people's tools that are to go for ours to be valid; none if it is not about them.

    Args:
        live: the object as it is.
        wanted: what we want to send; the server takes it where nothing is.
        causes: why it does not take it here.
    """
    found = tuple(dict.fromkeys(path for entry in _persons(live) for path in _strange(entry.tree, wanted)))
    lists = {fields.path_text(path[:-1]) for path in found}
    named = [cause.field for cause in causes]
    about = all(any(field.startswith(f"{name}[") for name in lists) for field in named)
    return found if named and about else ()


def _persons(live: Mapping[str, Any]) -> Iterator[fields.Entry]:
    for entry in fields.entries(live):
        owner = owner_of(entry)
        if owner != _OURS and is_persons_tool(owner):
            yield entry


def _strange(tree: Tree, wanted: Mapping[str, Any]) -> Iterator[Path]:
    """Give the items in a tree that stand in a list of ours and are not in it."""
    for path in fields.paths(tree):
        stands_in_ours = path[-1].startswith("k:") and isinstance(payload.value_at(wanted, path[:-1]), list)
        if stands_in_ours and payload.value_at(wanted, path) is MISSING:
            yield path


def take_items(
    live: Mapping[str, Any], items: Iterable[Path], *, api_version: str, after: Patch = ()
) -> Patch:
    """Give the patch that makes items or other fields ours, so that an apply without them removes them.

    Args:
        live: the object as it is.
        items: their paths.
        api_version: API version we write the object in.
        after: a patch of the field managers that is to be done as well.
    """
    paths = tuple(items)
    entries = after[-1]["value"] if after else (live.get("metadata") or {}).get("managedFields") or ()
    mine: Tree = fields.owned({"metadata": {"managedFields": entries}}, MANAGER)
    others = []
    for raw in entries:
        tree = raw.get("fieldsV1") or {}
        if (raw.get("manager"), raw.get("operation")) == (MANAGER, "Apply") and not raw.get("subresource"):
            continue
        for path in paths:
            below = _below(tree, path)
            if below is not None:
                mine, tree = fields.union(mine, _tree(path, below)), _cut(tree, path)
        if tree:
            others.append({**raw, "fieldsV1": tree})
    return entries_patch(live, [our_entry(mine, api_version=api_version), *others])


def _below(tree: Tree, path: Path) -> Tree | None:
    for step in path:
        if step not in tree:
            return None
        tree = tree[step]
    return tree


def _tree(path: Path, below: Tree) -> Tree:
    return {path[0]: _tree(path[1:], below)} if path else below


def _cut(tree: Tree, path: Path) -> dict[str, Any]:
    """Take a branch out of a tree, and what is empty without it."""
    if len(path) == 1:
        return {key: inner for key, inner in tree.items() if key != path[0]}
    inner = _cut(tree[path[0]], path[1:])
    rest = {key: value for key, value in tree.items() if key != path[0]}
    return {**rest, path[0]: inner} if inner else rest
