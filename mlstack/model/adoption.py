"""Take over objects that another tool applied: whose entries become ours, and what then goes."""

from collections.abc import Mapping, Sequence
from typing import Any

from mlstack.model import fields
from mlstack.model.fieldmanagers import Owner, owner_of
from mlstack.model.fields import Tree
from mlstack.model.objects import MANAGER

# Tools that leave an object alone once they wrote it. Never `kubectl-rollout`: its annotation would go, and
# with that all pods restart.
ADOPTABLE: frozenset[Owner] = frozenset(
    {
        Owner(manager="kubectl-client-side-apply", operation="Update"),
        Owner(manager="kubectl-create", operation="Update"),
        Owner(manager="kubectl", operation="Apply"),
        Owner(manager="helm", operation="Apply"),
        Owner(manager="helm", operation="Update"),
        Owner(manager="before-first-apply", operation="Update"),
    }
)

# The server gives these values itself and keeps them when nobody owns them any more.
_ALLOCATED = ("spec.clusterIP", "spec.ipFamil", "spec.healthCheckNodePort", "spec.volumeName")

Patch = tuple[Mapping[str, Any], ...]


def adoptable(live: Mapping[str, Any]) -> tuple[fields.Entry, ...]:
    """Give the entries of a live object that can be taken over."""
    return tuple(entry for entry in fields.entries(live) if owner_of(entry) in ADOPTABLE)


def going(live: Mapping[str, Any], ours: Tree, *, spare: Sequence[tuple[str, ...]] = ()) -> Tree:
    """Give the fields that would belong to nobody after a take-over and an apply.

    Args:
        live: the object as it is.
        ours: what we will own.
        spare: fields that are not taken over.
    """
    taken: Tree = {}
    kept: Tree = ours
    for entry in fields.entries(live):
        if owner_of(entry) in ADOPTABLE:
            taken = fields.union(taken, entry.tree) if taken else entry.tree
        elif entry.key != (MANAGER, "Apply", ""):
            kept = fields.union(kept, entry.tree) if kept else entry.tree
    return _without(fields.minus(taken, kept), spare)


def is_allocated(path: str) -> bool:
    """Tell whether the server gave a field its value."""
    return path.startswith(_ALLOCATED) or path.endswith(".nodePort") or "controller-uid" in path


def take_over(live: Mapping[str, Any], *, api_version: str, spare: Sequence[tuple[str, ...]] = ()) -> Patch:
    """Give the patch that makes the entries of other tools ours; it changes nothing else.

    Args:
        live: the object as it is.
        api_version: API version we write it in.
        spare: fields that are not taken although their owner is: the number of replicas would go to 1.
    """
    tree: Tree = {}
    others = []
    for raw in _raw(live):
        owner = _owner(raw)
        if owner in ADOPTABLE or owner == Owner(manager=MANAGER, operation="Apply"):
            found = raw.get("fieldsV1") or {}
            tree = fields.union(tree, found) if tree else found
        else:
            others.append(raw)
    return entries_patch(live, [our_entry(_without(tree, spare), api_version=api_version), *others])


def our_entry(tree: Tree, *, api_version: str) -> Mapping[str, Any]:
    """Write down that we have applied these fields."""
    return {
        "manager": MANAGER,
        "operation": "Apply",
        "apiVersion": api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": tree,
    }


def reversioned(live: Mapping[str, Any], *, api_version: str) -> Patch:
    """Give the patch that writes every entry of another version of our group down in this version.

    A definition that drops a version leaves entries behind which no apply can read any more.
    """
    return entries_patch(live, [{**raw, "apiVersion": api_version} for raw in _raw(live)])


def _raw(live: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return (live.get("metadata") or {}).get("managedFields") or ()


def _owner(raw: Mapping[str, Any]) -> Owner:
    return Owner(
        manager=str(raw.get("manager", "")),
        operation=str(raw.get("operation", "")),
        subresource=str(raw.get("subresource") or ""),
    )


def _without(tree: Tree, paths: Sequence[tuple[str, ...]]) -> Tree:
    for path in paths:
        tree = fields.minus(tree, _tree(path))
    return tree


def _tree(path: tuple[str, ...]) -> dict[str, Any]:
    return {path[0]: _tree(path[1:])} if path else {}


def entries_patch(live: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> Patch:
    """Give the patch that replaces all field managers of an object in just this version."""
    return (
        {"op": "test", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
        {"op": "replace", "path": "/metadata/managedFields", "value": list(entries)},
    )
