"""Fields of others that become ours: those of tools that are taken over, and those that are to go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import pairwise

from mlstack.deploy.conflicts import ConflictPolicy, ConflictResolution, OwnedField
from mlstack.deploy.replacement import dry_run_copy, is_allocated, says_fixed
from mlstack.errors import Cause, ConflictError, ForbiddenError, InvalidError, MlstackError
from mlstack.events import listed
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.objects import managed_fields
from mlstack.objects.kube_object import MANAGER, Data, KubeObject
from mlstack.objects.managed_fields import (
    ADOPTABLE,
    BEFORE_FIRST_APPLY,
    HANDOVER,
    MISSING,
    OURS,
    FieldChange,
    Owner,
    Path,
    Tree,
    adoptable,
    is_persons_tool,
    owner_of,
    path_text,
    raw_entries,
    value_at,
)

Patch = tuple[Data, ...]

# --- whose the fields are: patches of `managedFields`, which change nothing else ---


def own(
    live: Data,
    *,
    api_version: str,
    adopt: bool = False,
    paths: Sequence[Path] = (),
    spare: Sequence[Path] = (),
) -> Patch:
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


def entries_patch(live: Data, entries: Sequence[Data]) -> Patch:
    """Give the patch that replaces all field managers of an object in just this version."""
    return (
        {"op": "test", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
        {"op": "replace", "path": "/metadata/managedFields", "value": list(entries)},
    )


def _without(tree: Tree, paths: Iterable[Path]) -> Tree:
    for path in paths:
        tree = managed_fields.minus(tree, managed_fields.tree_along([path]))
    return tree


# --- taking over what another tool applied (`--adopt`) ---

_NAMED = 4  # a note, not a list: a diff with `--adopt` has them all


def gone_by_adoption(
    cluster: Cluster, live: Data, resolution: ConflictResolution, data: Data, spare: Sequence[Path]
) -> tuple[FieldChange, ...]:
    """Tell what changes in an object when fields that other tools applied, and we do not, belong to us.

    No dry run can show it, since their owners cannot be changed in one. The fields are those that nobody
    would own; many of them are defaults, which come back with their values: a new object shows which.
    """
    entries = managed_fields.entries(live)
    theirs = managed_fields.union_all(entry.tree for entry in entries if entry.owner in ADOPTABLE)
    others = [entry.tree for entry in entries if entry.owner not in ADOPTABLE and entry.owner != OURS]
    kept = managed_fields.union_all([managed_fields.owned(resolution.forced.object), *others])
    left = [path for _, path in resolution.left]
    tree = _without(managed_fields.minus(theirs, kept), [*spare, *left])
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
    would = f"would remove {listed(paths, _NAMED)}" if paths else "would change no value"
    yield f"was applied by {who}, what only that set stays; taking it over with --adopt {would}"


# --- list items that a person put in the place of ours, so that both together are not valid ---


def displaced(live: Data, data: Data, causes: Iterable[Cause]) -> tuple[Path, ...]:
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


def _theirs(tree: Tree, ours: Tree, path: Path = ()) -> Iterator[Path]:
    """Give the values and whole list items of a tree that are in no way ours."""
    for key, inner in tree.items():
        mine, here = ours.get(key), (*path, key)
        if key == ".":
            continue
        if mine is None and (not inner or (key.startswith("k:") and "." in inner)):
            yield here
        else:  # where ours is a leaf and theirs is none, we set an empty map, and they filled it
            yield from _theirs(inner, mine or {}, here)


def dropped(
    fields: Sequence[OwnedField],
    live: Data,
    applied: Sequence[Data],
    policy: ConflictPolicy,
    *,
    spare: Collection[Path] = (),
) -> _Parted:
    """Give those fields of others that were ours: what goes, and what stays.

    A field goes if everybody who owns it has to give way to us. What a program owns stays with it, and what
    a tool applied with the value that we gave too, until it is taken over from that tool.
    """
    now = set(managed_fields.paths(managed_fields.owned(live)))

    def was_ours(path: Path) -> bool:
        known = path in now or any(managed_fields.says(data, path) for data in applied)
        return known and not policy.is_ignored(path)

    def keeps(owner: Owner, path: Path) -> bool:
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
    spare: Iterable[Path] = (),
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


def _parted(fields: Sequence[OwnedField], stays: Callable[[Path], bool]) -> _Parted:
    staying = {path for _, path in fields if stays(path)}
    going = [(owner, path) for owner, path in fields if path not in staying]
    return going, [(owner, path) for owner, path in fields if path in staying]


def by_people(fields: Iterable[OwnedField], *, labels: bool = False) -> list[OwnedField]:
    """Give what people's tools own among fields of others: labels and annotations, or all else.

    What people label belongs to them; what the server allocates and a status are no content.
    """

    def is_meant(path: Path) -> bool:
        if any(pair in _LABELS for pair in pairwise(path)):
            return labels
        return not labels and path[0] != "f:status" and not is_allocated(path_text(path))

    return [
        (owner, path)
        for owner, path in fields
        if is_persons_tool(owner) and owner.manager != BEFORE_FIRST_APPLY and is_meant(path)
    ]


def without(
    cluster: Cluster, manifest: KubeObject, live: Data, paths: Sequence[Path]
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
        return managed_fields.cut(live, paths), error if says_fixed(error.causes) else None
    except ForbiddenError:  # as a policy says; the write will tell
        return managed_fields.cut(live, paths), None


def widened(live: Data, data: Data, paths: Sequence[Path]) -> tuple[Path, ...]:
    """Give instead of fields the map or list that holds nothing else, as long as it is no program's either.

    A person who sets a field makes what it lies in: left behind empty, that may mean something else.
    """
    after = managed_fields.cut(live, paths)
    programs = [entry.tree for entry in managed_fields.entries(live) if not is_persons_tool(entry.owner)]

    def around(path: Path) -> Path:
        outer = path[:-1]
        if not outer or value_at(after, outer) is not MISSING or managed_fields.says(data, outer):
            return path
        return (
            path
            if any(managed_fields.branch(tree, outer) is not None for tree in programs)
            else around(outer)
        )

    wide = {around(path) for path in paths}
    return tuple(sorted(path for path in wide if not any(path[:end] in wide for end in range(len(path)))))
