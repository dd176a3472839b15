"""Whose fields a forced apply would take, and who is to have them.

The API server's answer to a forced dry run already holds the conflicts: what another manager owned
before and no longer owns in the answer is what we would take, so no message has to be parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mlstack.app.app import ConflictRule
from mlstack.dataclass import dataclass
from mlstack.deploy.changes import with_uid
from mlstack.errors import ConflictError, FieldConflict, InvalidError
from mlstack.events import listed
from mlstack.kube.client import Applied, Cluster
from mlstack.objects import managed_fields
from mlstack.objects.kube_object import Data, KubeObject
from mlstack.objects.managed_fields import (
    FORCE_FIELDS,
    MISSING,
    OURS,
    FieldPattern,
    Owner,
    Path,
    Tree,
    is_persons_tool,
    owned,
    path_text,
    paths,
    value_at,
)

OwnedField = tuple[Owner, Path]
"""A field of a live object, and a manager that owns it."""

_ROUNDS = 4  # a cut may show what lay below it; more than one further round was never needed
_NAMED = 8  # a person reads no longer line; `-o json` of kubectl has them all


@dataclass(frozen=True, kw_only=True)
class ConflictPolicy:
    """Who is to have the fields of one object that others own as well.

    The first that speaks decides: the object's own annotations, the app's rules in their order, managers
    that are taken over, `--force-conflicts`, the table of people's tools.
    """

    force: tuple[FieldPattern, ...] = ()  # ours whoever owns them
    ignore: tuple[FieldPattern, ...] = ()  # left as they are in the cluster
    rules: tuple[ConflictRule, ...] = ()
    adopted: frozenset[Owner] = frozenset()  # managers whose fields become ours
    forced: bool = False  # everything else is ours
    keep_foreign: bool = False  # fields that only people's tools set stay

    def takes(self, owner: Owner, path: Path) -> bool:
        """Tell whether we get a field that a manager would lose to us."""
        if self.is_forced(path) or self.is_ignored(path):
            return self.is_forced(path)
        for rule in self.rules:
            if rule.speaks_of(owner.manager, path):
                return rule.take == "ours"
        return owner in self.adopted or self.forced or is_persons_tool(owner)

    def is_forced(self, path: Path) -> bool:
        """Tell whether a field is ours whoever owns it."""
        return any(pattern.covers(path) for pattern in self.force)

    def is_ignored(self, path: Path) -> bool:
        """Tell whether a field is to be left as it is, even where nobody else owns it."""
        return any(pattern.covers(path) for pattern in self.ignore) and not self.is_forced(path)


def lost(live: Data, forced: Data) -> list[OwnedField]:
    """Give the fields each manager loses by a forced apply, from the server's answer to a dry run of it."""
    ours = managed_fields.owned(forced)
    # A controller may drop fields of its own between our two readings: those went to nobody.
    return [(owner, path) for owner, path in _gone(live, forced) if managed_fields.depth(ours, path)]


def swept(live: Data, forced: Data) -> list[OwnedField]:
    """Give the fields others lose because they lie in something of ours that goes, as an item of a list."""
    going = set(paths(owned(live))) - set(paths(owned(forced)))
    return [
        (owner, path)
        for owner, path in _gone(live, forced)
        if any(path[: len(mine)] == mine for mine in going)
    ]


def _gone(live: Data, forced: Data) -> Iterator[OwnedField]:
    """Give of everybody but us what they own in one object and not in the other."""
    after = {entry.owner: entry.tree for entry in managed_fields.entries(forced)}
    for entry in managed_fields.entries(live):
        if entry.owner != OURS:
            for path in paths(managed_fields.minus(entry.tree, after.get(entry.owner, {}))):
                yield entry.owner, path


def emptied(live: Data, payload: Data, gone: Iterable[Path], policy: ConflictPolicy) -> list[OwnedField]:
    """Give the empty maps of a payload that stay a program's once what others put into them is gone.

    While something is in them nobody loses them; afterwards they would be ours for one apply, no longer.
    """
    above = {path[:length] for path in gone for length in range(1, len(path) + 1)}
    empty = {path for path in above if value_at(payload, path) == {}}
    return [
        (entry.owner, path)
        for entry in (managed_fields.entries(live) if empty else ())
        for path in sorted(empty)
        if managed_fields.branch(entry.tree, path) == {}
        if entry.owner != OURS and not policy.takes(entry.owner, path)
    ]


# --- what a person reads of it ---

TAKEN = "takes {fields} back from {owner}"
LEFT = "leaves {fields} to {owner}"
SWEPT = "removes {fields} of {owner} with what it is part of"
DROPPED = "removes {fields}, which {owner} changed and the files no longer have"
FOREIGN = "removes {fields}, which {owner} set{when} and no file has (--keep-foreign-fields keeps that)"


def notes(text: str, owned: Iterable[OwnedField], live: Data) -> Iterator[str]:
    """Say in one line a manager what becomes of its fields; `when` is the time of its last write."""
    times = {entry.owner: entry.time for entry in managed_fields.entries(live)}
    for owner, names in _names_by_owner(owned).items():
        fields = listed([f"`{name}`" for name in names], _NAMED)
        time = times.get(owner, "")
        when = f" at {time.replace('T', ' ').removesuffix('Z')} UTC" if time else ""
        yield text.format(fields=fields, owner=owner, when=when)


def _names_by_owner(fields: Iterable[OwnedField]) -> dict[Owner, list[str]]:
    names: dict[Owner, list[str]] = {}
    for owner, path in fields:
        names.setdefault(owner, []).append(path_text(path))
    return names


# --- asking the server, again until nobody loses a field who is to keep it ---


@dataclass(frozen=True, kw_only=True)
class ConflictResolution:
    """What is to be sent, and what the server would make of it."""

    payload: Data  # without the fields that others keep
    forced: Applied  # the answer to the forced dry run of it
    taken: list[OwnedField]
    left: list[OwnedField]  # but for what our own files tell to ignore


def resolve(
    cluster: Cluster, manifest: KubeObject, data: Data, live: Data, policy: ConflictPolicy
) -> ConflictResolution:
    """Find what can be sent of `data` without taking what others are to keep; nothing is written."""
    left: list[OwnedField] = []
    payload = dict(data)
    for _ in range(_ROUNDS):
        try:
            forced = cluster.apply(with_uid(payload, live["metadata"]["uid"]), force=True, dry_run=True)
        except InvalidError as error:
            if not left:
                raise
            said = "; ".join(f"`{cause.field}` {cause.message}" for cause in error.causes) or error.message
            raise _cannot_leave(manifest, left, f"without them the object is not valid: {said}") from error
        losses = lost(live, forced.object)
        theirs = [(owner, path) for owner, path in losses if not policy.takes(owner, path)]
        fitting = managed_fields.cut(payload, [path for _, path in theirs])
        fitting = _without_ignored(fitting, live, forced.object, policy)
        owners = {owner for owner, path in theirs if not policy.is_ignored(path)}
        left += [(owner, path) for owner, path in theirs if owner in owners]
        if fitting == payload and not theirs:
            return ConflictResolution(payload=payload, forced=forced, taken=losses, left=left)
        if fitting == payload:
            break
        payload = fitting
    raise _cannot_leave(manifest, left, "they are part of something else that this app sets")


def _without_ignored(
    data: dict[str, Any], live: Data, forced: Data, policy: ConflictPolicy
) -> dict[str, Any]:
    """Leave fields as they are that nobody is to change.

    Where others own the field too, or we do not, it is left out. Where we alone own it, leaving it out
    would remove it: the live value is sent.
    """
    if not policy.ignore:
        return data
    ours = set(paths(owned(live)))
    trees = [entry.tree for entry in managed_fields.entries(live) if entry.owner != OURS]
    for path in sorted(ours | set(paths(owned(forced)))):
        if not policy.is_ignored(path):
            continue
        value = value_at(live, path)
        if path not in ours or value is MISSING or any(is_owned(tree, path) for tree in trees):
            data = managed_fields.cut(data, [path])
        elif not path[-1].startswith("k:"):
            data = managed_fields.put(data, path, value)
    return data


def is_owned(tree: Tree, path: Path) -> bool:
    """Tell whether a tree has a field, or a list or map that it is part of and that is one value."""
    is_around = 0 < managed_fields.depth(tree, path) < len(path)
    below = managed_fields.branch(tree, path)
    return is_around or below == {} or "." in (below or {})


def _cannot_leave(manifest: KubeObject, left: Sequence[OwnedField], why: str) -> ConflictError:
    what = (
        f"{', '.join(f'`{name}`' for name in names)} to {owner}"
        for owner, names in _names_by_owner(left).items()
    )
    return ConflictError(
        f"`{manifest.identity}` cannot leave {'; '.join(what)}: {why}",
        conflicts=tuple(
            FieldConflict(manager=owner.manager, path=path_text(path), subresource=owner.subresource)
            for owner, path in left
        ),
        where=f"component {manifest.component}",
        hint=f"take the fields with --force-conflicts, or with the annotation `{FORCE_FIELDS}`"
        " on the object; or let that program go",
    )
