"""Field managers: who owns which fields of an object, and what a write does to that.

Follows k8s.io/apimachinery's fieldmanager: an apply owns exactly what it sends and loses what it no longer
sends; any other write (an Update) takes the fields whose values it changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlstack.cluster import fields, merge
from mlstack.cluster.fields import NOTHING, Paths
from mlstack.cluster.shapes import Shape
from mlstack.errors import FieldConflict

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
class Writer:
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
class Entry:
    """What one writer owns.

    Attributes:
        writer: who.
        paths: the fields.
        time: when it last changed something; None where it never did.
    """

    writer: Writer
    paths: Paths
    time: str | None


def entries_of(obj: Mapping[str, Any] | None) -> tuple[Entry, ...]:
    """Read the managed fields of an object."""
    listed = ((obj or {}).get("metadata") or {}).get("managedFields") or ()
    return tuple(
        Entry(
            writer=Writer(
                manager=str(item.get("manager") or ""),
                operation=str(item["operation"]),
                api_version=str(item.get("apiVersion") or ""),
                subresource=str(item.get("subresource") or ""),
            ),
            paths=fields.from_v1(item.get("fieldsV1") or {}),
            time=item.get("time"),
        )
        for item in listed
        if item.get("operation")
    )


def with_entries(obj: Mapping[str, Any], entries: Iterable[Entry]) -> dict[str, Any]:
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
    writer: Writer,
    force: bool,
    now: str,
) -> tuple[dict[str, Any], tuple[Entry, ...]]:
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
    owned = merge.field_set(wanted, shape)
    mine = Entry(writer=writer, paths=owned - _NEVER_OWNED, time=previous.time if previous else None)
    entries[writer.identity] = mine
    merged = merge.merge(old, wanted, shape)
    kept = owned.union(*(entry.paths for entry in entries.values()))
    new = merge.prune(merged, shape, previous.paths if previous else NOTHING, kept)
    others = _others(old, new, shape, entries, writer, force=force)
    if not merge.same(old, new):
        mine = replace(mine, time=now)
    return new, (*others, mine)


def update(
    before: Mapping[str, Any],
    new: Mapping[str, Any],
    shape: Shape,
    *,
    writer: Writer,
    now: str,
    listed: tuple[Entry, ...] | None,
) -> tuple[Entry, ...]:
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
    found = merge.compare(before, new, shape)
    changed = frozenset(found.added | found.modified) - _NEVER_OWNED
    previous = entries.get(writer.identity)
    others = _others(before, new, shape, entries, writer, force=True)
    if previous is not None:
        previous = replace(previous, paths=previous.paths - found.removed)
    if not changed:
        return (*others, previous) if previous is not None else tuple(others)
    owned = changed | (previous.paths if previous is not None else NOTHING)
    return (*others, Entry(writer=writer, paths=owned, time=now))


def without_entries(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Give an object without its managed fields."""
    if "metadata" not in obj:
        return dict(obj)
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata}


def _before_first_apply(
    old: Mapping[str, Any], shape: Shape, writer: Writer, now: str
) -> dict[tuple[str, str, str, str], Entry]:
    first = Writer(manager=BEFORE_FIRST_APPLY, operation="Update", api_version=writer.api_version)
    added = frozenset(merge.compare({}, old, shape).added) - _NEVER_OWNED
    return {first.identity: Entry(writer=first, paths=added, time=now)}


def _others(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    shape: Shape,
    entries: Mapping[tuple[str, str, str, str], Entry],
    writer: Writer,
    *,
    force: bool,
) -> list[Entry]:
    """Give what the others still own after a change; without force they may lose nothing to it."""
    found = merge.compare(old, new, shape)
    taken = frozenset(found.added | found.modified)
    others = [entry for identity, entry in entries.items() if identity != writer.identity]
    conflicts = [
        FieldConflict(
            manager=entry.writer.manager, path=fields.spell(path), subresource=entry.writer.subresource
        )
        for entry in sorted(others, key=_order)
        for path in sorted(entry.paths & taken)
    ]
    if conflicts and not force:
        raise OwnershipConflict(conflicts)
    lost = taken | found.removed
    return [replace(entry, paths=entry.paths - lost) for entry in others]


def _written(entry: Entry) -> dict[str, Any]:
    writer = entry.writer
    return {
        "manager": writer.manager,
        "operation": writer.operation,
        "apiVersion": writer.api_version,
        **({"time": entry.time} if entry.time else {}),
        "fieldsType": "FieldsV1",
        "fieldsV1": fields.to_v1(entry.paths),
        **({"subresource": writer.subresource} if writer.subresource else {}),
    }


def _order(entry: Entry) -> tuple[str, ...]:
    writer = entry.writer
    return writer.operation, entry.time or "", writer.manager, writer.api_version, writer.subresource
