"""Whose fields a forced apply would take, and who is to have them.

The API server's answer to a forced dry run already holds the conflicts: what another manager owned
before and no longer owns in the answer is what we would take, so no message has to be parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from mlstack.app.app import ConflictRule
from mlstack.dataclass import Record
from mlstack.deploy.changes import with_uid
from mlstack.deploy.replacement import dry_run_copy, is_allocated, says_fixed
from mlstack.errors import Cause, ConflictError, FieldConflict, ForbiddenError, InvalidError, MlstackError
from mlstack.kube.client import Applied, Cluster, ObjectRef
from mlstack.names import listed
from mlstack.objects import managed_fields
from mlstack.objects.kube_object import MANAGER, Data, KubeObject
from mlstack.objects.managed_fields import (
    ADOPTABLE,
    BEFORE_FIRST_APPLY,
    FORCE_FIELDS,
    HANDOVER,
    MISSING,
    OURS,
    FieldChange,
    FieldPath,
    FieldPattern,
    Owner,
    Tree,
    adoptable,
    is_persons_tool,
    owned,
    owner_of,
    path_text,
    paths,
    raw_entries,
    value_at,
)

OwnedField = tuple[Owner, FieldPath]
"""A field of a live object, and a manager that owns it."""

_ROUNDS = 4  # a cut may show what lay below it; more than one further round was never needed
_NAMED = 8  # a person reads no longer line; `-o json` of kubectl has them all


class ConflictPolicy(Record):
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

    def takes(self, owner: Owner, path: FieldPath) -> bool:
        """Tell whether we get a field that a manager would lose to us."""
        if self.is_forced(path) or self.is_ignored(path):
            return self.is_forced(path)
        for rule in self.rules:
            if rule.speaks_of(owner.manager, path):
                return rule.take == "ours"
        return owner in self.adopted or self.forced or is_persons_tool(owner)

    def is_forced(self, path: FieldPath) -> bool:
        """Tell whether a field is ours whoever owns it."""
        return any(pattern.covers(path) for pattern in self.force)

    def is_ignored(self, path: FieldPath) -> bool:
        """Tell whether a field is to be left as it is, even where nobody else owns it."""
        return any(pattern.covers(path) for pattern in self.ignore) and not self.is_forced(path)


def lost(live: Data, forced: Data) -> list[OwnedField]:
    """Give the fields each manager loses by a forced apply, from the server's answer to a dry run of it."""
    ours = managed_fields.owned(forced)
    # A controller may drop fields of its own between our two readings: those went to nobody.
    return [(owner, path) for owner, path in _gone(live, forced) if managed_fields.depth(ours, path)]


def lost_items(live: Data, forced: Data) -> list[OwnedField]:
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


def empty_maps(live: Data, data: Data, gone: Iterable[FieldPath], policy: ConflictPolicy) -> list[OwnedField]:
    """Give the empty maps of a payload that stay a program's once what others put into them is gone.

    While something is in them nobody loses them; afterwards they would be ours for one apply, no longer.
    """
    above = {path[:length] for path in gone for length in range(1, len(path) + 1)}
    empty = {path for path in above if value_at(data, path) == {}}
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


class ConflictResolution(Record):
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
            faults = "; ".join(map(str, error.causes)) or error.message
            raise _cannot_leave(manifest, left, f"without them the object is not valid: {faults}") from error
        losses = lost(live, forced.object)
        kept = [(owner, path) for owner, path in losses if not policy.takes(owner, path)]
        fitting = managed_fields.cut(payload, [path for _, path in kept])
        fitting = _without_ignored(fitting, live, forced.object, policy)
        owners = {owner for owner, path in kept if not policy.is_ignored(path)}
        left += [(owner, path) for owner, path in kept if owner in owners]
        if fitting == payload and not kept:
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


def is_owned(tree: Tree, path: FieldPath) -> bool:
    """Tell whether a tree has a field, or a list or map that it is part of and that is one value."""
    is_around = 0 < managed_fields.depth(tree, path) < len(path)
    below = managed_fields.branch(tree, path)
    return is_around or below == {} or "." in (below or {})


def _cannot_leave(manifest: KubeObject, left: Sequence[OwnedField], why: str) -> ConflictError:
    fields = (
        f"{', '.join(f'`{name}`' for name in names)} to {owner}"
        for owner, names in _names_by_owner(left).items()
    )
    return ConflictError(
        f"`{manifest.identity}` cannot leave {'; '.join(fields)}: {why}",
        conflicts=tuple(
            FieldConflict(manager=owner.manager, path=path_text(path), subresource=owner.subresource)
            for owner, path in left
        ),
        where=f"component {manifest.component}",
        hint=f"take the fields with --force-conflicts, or with the annotation `{FORCE_FIELDS}`"
        " on the object; or let that program go",
    )


# --- fields of others that become ours, by patches of `managedFields` which change nothing else ---

JsonPatch = tuple[Data, ...]


def own(
    live: Data,
    *,
    api_version: str,
    adopt: bool = False,
    paths: Sequence[FieldPath] = (),
    spare: Sequence[FieldPath] = (),
) -> JsonPatch:
    """Give the patch that makes fields ours, so that an apply without them removes them.

    With `adopt` that is all that tools applied from which objects can be taken over, but for `spare`;
    `paths` are taken whoever owns them. The patch is for just this version of the object.
    """
    trees: list[Tree] = []
    others = []
    for raw in raw_entries(live):
        owner, tree = owner_of(raw), raw.get("fieldsV1") or {}
        if owner == OURS or (adopt and owner in ADOPTABLE):
            trees.append(tree)
            continue
        for path in paths:
            part, tree = managed_fields.part(tree, path)
            trees += [part] if part else []
        if tree:
            others.append({**raw, "fieldsV1": tree})
    ours = _without(managed_fields.union_all(trees), spare if adopt else ())
    entry = {"manager": MANAGER, "operation": "Apply", "apiVersion": api_version}
    return entries_patch(live, [{**entry, "fieldsType": "FieldsV1", "fieldsV1": ours}, *others])


def entries_patch(live: Data, entries: Sequence[Data]) -> JsonPatch:
    """Give the patch that replaces all field managers of an object in just this version."""
    return (
        {"op": "test", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
        {"op": "replace", "path": "/metadata/managedFields", "value": list(entries)},
    )


def _without(tree: Tree, paths: Iterable[FieldPath]) -> Tree:
    for path in paths:
        tree = managed_fields.minus(tree, managed_fields.tree_along([path]))
    return tree


# --- taking over what another tool applied (`--adopt`) ---

_ADOPTED_NAMED = 4  # a note, not a list: a diff with `--adopt` has them all


def gone_by_adoption(
    cluster: Cluster, live: Data, resolution: ConflictResolution, data: Data, spare: Sequence[FieldPath]
) -> tuple[FieldChange, ...]:
    """Tell what changes in an object when fields that other tools applied, and we do not, belong to us.

    No dry run can show it, since their owners cannot be changed in one. The fields are those that nobody
    would own; many of them are defaults, which come back with their values: a new object shows which.
    """
    entries = managed_fields.entries(live)
    adoptable_tree = managed_fields.union_all(entry.tree for entry in entries if entry.owner in ADOPTABLE)
    others = [entry.tree for entry in entries if entry.owner not in ADOPTABLE and entry.owner != OURS]
    kept = managed_fields.union_all([managed_fields.owned(resolution.forced.object), *others])
    left = [path for _, path in resolution.left]
    tree = _without(managed_fields.minus(adoptable_tree, kept), [*spare, *left])
    return changed_without(cluster, live, data, tree)


def changed_without(cluster: Cluster, live: Data, data: Data, tree: Tree) -> tuple[FieldChange, ...]:
    """Tell what changes in an object when nobody owns some fields any more; defaults come back."""
    if not tree:
        return ()
    paths = list(managed_fields.paths(tree))
    after, copy = managed_fields.cut(live, paths), dry_run_copy(cluster, data, live)
    for path in paths:
        default = MISSING
        if not path[-1].startswith("k:") and not isinstance(copy, MlstackError):
            default = value_at(copy, path)
        after = after if default is MISSING else managed_fields.put(after, path, default)
    changes = managed_fields.compare(live, after, tree)
    return tuple(change for change in changes if not is_allocated(change.path))


def adoption_note(live: Data, gone: Sequence[FieldChange], *, adopt: bool) -> Iterator[str]:
    """Say in one line from whom an object is taken over, or what that would do; nothing if from nobody."""
    owners = sorted({str(owner) for owner in adoptable(live)})
    if not owners:
        return
    release = (live["metadata"].get("annotations") or {}).get("meta.helm.sh/release-name")
    who = " and ".join(owners) + (f" (Helm release `{release}`)" if release else "")
    if adopt:
        yield f"takes over what {who} applied"
        return
    paths = [f"`{change.path}`" for change in gone]
    would = f"would remove {listed(paths, _ADOPTED_NAMED)}" if paths else "would change no value"
    yield f"was applied by {who}, what only that set stays; taking it over with --adopt {would}"


# --- list items that a person put in the place of ours, so that both together are not valid ---


def displaced_items(live: Data, data: Data, causes: Iterable[Cause]) -> tuple[FieldPath, ...]:
    """Give the items of people's tools that are to go for ours to be valid; none if it is not about them.

    Who changes the port of a Service from 80 to 81 by hand makes another item of it, since the port is its
    key: server-side apply would add ours beside it.
    """
    items = dict.fromkeys(
        path
        for entry in managed_fields.entries(live)
        if entry.owner != OURS and is_persons_tool(entry.owner)
        for path in managed_fields.paths(entry.tree)
        if path[-1].startswith("k:") and isinstance(value_at(data, path[:-1]), list)
        if value_at(data, path) is MISSING
    )
    lists = tuple(f"{path_text(path[:-1])}[" for path in items)
    named = [cause.field for cause in causes]
    return tuple(items) if named and all(field.startswith(lists) for field in named) else ()


# --- fields of others that no file has: our files once set them, or people's tools did ---
# Who changes a value that we applied becomes its owner, and an apply without the field then leaves it. What
# was applied before tells such fields from those that others added themselves: of these a person's go too,
# and a program's stay.

_LABELS = frozenset({("f:metadata", "f:labels"), ("f:metadata", "f:annotations")})
_Parted = tuple[list[OwnedField], list[OwnedField]]


def fields_of_no_file(forced: Data, data: Data, *, metadata_only: bool = False) -> list[OwnedField]:
    """Give the fields that would stay in an object although its manifest does not have them."""
    ours = managed_fields.owned(forced)
    return [
        (entry.owner, path)
        for entry in managed_fields.entries(forced)
        if entry.owner.manager != HANDOVER and entry.owner != OURS and entry.owner.subresource != "status"
        for path in _theirs(entry.tree, ours)
        if metadata_only or value_at(forced, path) is not MISSING
        if not managed_fields.says(data, path)
    ]


def _theirs(tree: Tree, ours: Tree, path: FieldPath = ()) -> Iterator[FieldPath]:
    """Give the values and whole list items of a tree that are in no way ours."""
    for key, inner in tree.items():
        mine, here = ours.get(key), (*path, key)
        if key == ".":
            continue
        if mine is None and (not inner or (key.startswith("k:") and "." in inner)):
            yield here
        else:  # where ours is a leaf and theirs is none, we set an empty map, and they filled it
            yield from _theirs(inner, mine or {}, here)


def dropped_fields(
    fields: Sequence[OwnedField],
    live: Data,
    applied: Sequence[Data],
    policy: ConflictPolicy,
    *,
    spare: Collection[FieldPath] = (),
) -> _Parted:
    """Give those fields of others that were ours: what goes, and what stays.

    A field goes if everybody who owns it has to give way to us. What a program owns stays with it, and what
    a tool applied with the value that we gave too, until it is taken over from that tool.
    """
    now = set(managed_fields.paths(managed_fields.owned(live)))

    def was_ours(path: FieldPath) -> bool:
        is_ours = path in now or any(managed_fields.says(data, path) for data in applied)
        return is_ours and not policy.is_ignored(path)

    def keeps(owner: Owner, path: FieldPath) -> bool:
        beside_us = path in now and owner in ADOPTABLE - policy.adopted and not policy.forced
        return beside_us or not policy.takes(owner, path)

    held = [path for owner, path in fields if keeps(owner, path)]
    return _parted(
        [(owner, path) for owner, path in fields if was_ours(path)],
        lambda path: path in spare or any(other[: len(path)] == path for other in held),
    )


def foreign(
    fields: Sequence[OwnedField],
    policy: ConflictPolicy,
    *,
    spare: Iterable[FieldPath] = (),
    makers: Collection[Owner] = (),
) -> _Parted:
    """Give those fields that people's tools set and that were never ours: what goes, and what stays.

    A field stays that a program owns as well, that lies in something of a program's or holds such.
    """
    tools = policy.adopted | {*makers}
    people = [(owner, path) for owner, path in by_people(fields) if owner not in tools]
    kept = {
        path
        for owner, path in people
        if not policy.is_forced(path) and (policy.keep_foreign or not policy.takes(owner, path))
    }
    held = {path for owner, path in people if owner.subresource == "scale"} | {*spare}
    for owner, path in fields:
        if (not is_persons_tool(owner) or owner in makers) and owner not in policy.adopted:
            held.add(path)
    return _parted(
        [(owner, path) for owner, path in people if path not in kept],
        lambda path: any(path[: len(other)] == other or other[: len(path)] == path for other in held),
    )


def _parted(fields: Sequence[OwnedField], stays: Callable[[FieldPath], bool]) -> _Parted:
    staying = {path for _, path in fields if stays(path)}
    going = [(owner, path) for owner, path in fields if path not in staying]
    return going, [(owner, path) for owner, path in fields if path in staying]


def by_people(fields: Iterable[OwnedField], *, labels: bool = False) -> list[OwnedField]:
    """Give what people's tools own among fields of others: labels and annotations, or all else.

    What people label belongs to them; what the server allocates and a status are no content.
    """

    def is_meant(path: FieldPath) -> bool:
        if any(pair in _LABELS for pair in pairwise(path)):
            return labels
        return not labels and path[0] != "f:status" and not is_allocated(path_text(path))

    return [
        (owner, path)
        for owner, path in fields
        if is_persons_tool(owner) and owner.manager != BEFORE_FIRST_APPLY and is_meant(path)
    ]


def without(
    cluster: Cluster, manifest: KubeObject, live: Data, paths: Sequence[FieldPath]
) -> tuple[Data, InvalidError | None]:
    """Ask the server what an object is without some fields, and why they cannot go while it exists, if so.

    Defaults and webhooks have their say.
    """
    test = {"op": "test", "path": "/metadata/uid", "value": live["metadata"]["uid"]}
    patch = (test, *managed_fields.removals(live, paths))
    try:
        return cluster.patch(ObjectRef.of(manifest.data), patch, kind="json", dry_run=True).object, None
    except InvalidError as error:
        if not error.causes:
            raise ConflictError(error.message) from error
        return managed_fields.cut(live, paths), error if says_fixed(error) else None
    except ForbiddenError:  # as a policy says; the write will tell
        return managed_fields.cut(live, paths), None


def widened(live: Data, data: Data, paths: Sequence[FieldPath]) -> tuple[FieldPath, ...]:
    """Give instead of fields the map or list that holds nothing else, as long as it is no program's either.

    A person who sets a field makes what it lies in: left behind empty, that may mean something else.
    """
    after = managed_fields.cut(live, paths)
    programs = [entry.tree for entry in managed_fields.entries(live) if not is_persons_tool(entry.owner)]

    def around(path: FieldPath) -> FieldPath:
        outer = path[:-1]
        stays = not outer or value_at(after, outer) is not MISSING or managed_fields.says(data, outer)
        is_programs = any(managed_fields.branch(tree, outer) is not None for tree in programs)
        return path if stays or is_programs else around(outer)

    wide = {around(path) for path in paths}
    return tuple(sorted(path for path in wide if not any(path[:end] in wide for end in range(len(path)))))
