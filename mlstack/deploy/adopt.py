"""Take over objects that another tool applied: whose entries become ours, and what then goes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from mlstack.deploy import replacement
from mlstack.deploy.conflicts import ConflictPolicy, ConflictResolution, Lost
from mlstack.errors import Cause, ConflictError, ForbiddenError, InvalidError, MlstackError
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.objects import managed_fields
from mlstack.objects.kube_object import MANAGER, KubeObject
from mlstack.objects.managed_fields import (
    BEFORE_FIRST_APPLY,
    HANDOVER,
    MISSING,
    FieldChange,
    Owner,
    Path,
    Tree,
    is_persons_tool,
    owner_of,
)

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


def adoptable(live: Mapping[str, Any]) -> tuple[managed_fields.ManagedFieldsEntry, ...]:
    """Give the entries of a live object that can be taken over."""
    return tuple(entry for entry in managed_fields.entries(live) if owner_of(entry) in ADOPTABLE)


def going(live: Mapping[str, Any], ours: Tree, *, spare: Sequence[tuple[str, ...]] = ()) -> Tree:
    """Give the fields that would belong to nobody after a take-over and an apply."""
    taken: Tree = {}
    kept: Tree = ours
    for entry in managed_fields.entries(live):
        if owner_of(entry) in ADOPTABLE:
            taken = managed_fields.union(taken, entry.tree) if taken else entry.tree
        elif entry.key != (MANAGER, "Apply", ""):
            kept = managed_fields.union(kept, entry.tree) if kept else entry.tree
    return _without(managed_fields.minus(taken, kept), spare)


def is_allocated(path: str) -> bool:
    """Tell whether the server gave a field its value."""
    return path.startswith(_ALLOCATED) or path.endswith(".nodePort") or "controller-uid" in path


def take_over(live: Mapping[str, Any], *, api_version: str, spare: Sequence[tuple[str, ...]] = ()) -> Patch:
    """Give the patch that makes the entries of other tools ours; it changes nothing else."""
    tree: Tree = {}
    others = []
    for raw in _raw(live):
        owner = _owner(raw)
        if owner in ADOPTABLE or owner == Owner(manager=MANAGER, operation="Apply"):
            found = raw.get("fieldsV1") or {}
            tree = managed_fields.union(tree, found) if tree else found
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


def _without(tree: Tree, paths: Iterable[Path]) -> Tree:
    for path in paths:
        tree = managed_fields.minus(tree, managed_fields.tree_along([path]))
    return tree


def entries_patch(live: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> Patch:
    """Give the patch that replaces all field managers of an object in just this version."""
    return (
        {"op": "test", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
        {"op": "replace", "path": "/metadata/managedFields", "value": list(entries)},
    )


# --- Ask the server what it would make of an object that is new ---

_NEW_UID = "(UID of the new object)"


def as_new(cluster: Cluster, data: Mapping[str, Any], live: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Give what a creation would make of an object that exists; None if the server refuses it.

    The name of a definition is fixed, so it is always refused.
    """
    answer = attempt(cluster, data, live)
    return None if isinstance(answer, MlstackError) else answer


def attempt(
    cluster: Cluster, data: Mapping[str, Any], live: Mapping[str, Any]
) -> Mapping[str, Any] | MlstackError:
    """Give what a creation would make of an object, or what the server has against it.

    It is asked about under another name. In the answer stand its own name, and the live object's UID and
    addresses where the server puts those of the new one, so that only true differences are left.
    """
    name = str(data["metadata"]["name"])
    other = f"{name[:40]}-mlstack-probe"
    copy = {**data, "metadata": {**data["metadata"], "name": other}}
    try:
        try:
            answer = cluster.apply(copy, dry_run=True).object
        except InvalidError as error:
            if other not in repr((error.message, error.causes)):
                raise
            answer = cluster.apply(_labelled(copy, name, other), dry_run=True).object  # its labels name it
    except MlstackError as error:  # whatever speaks against the copy, the caller knows what to make of it
        return _renamed(error, other, name)
    uids = str(answer["metadata"]["uid"]), str(live["metadata"]["uid"])
    owned = managed_fields.paths(managed_fields.owned(live, MANAGER))
    chosen = [path for path in owned if is_allocated(managed_fields.path_text(path))]
    unsaid = [path for path in chosen if not managed_fields.says(data, path)]
    return managed_fields.cut(_as_itself(answer, live, (other, name), uids), unsaid)


def _labelled(value: Any, name: str, other: str, *, inside: bool = False) -> Any:
    """Give an object whose labels and selectors say another name where they said its own."""
    if isinstance(value, Mapping):
        return {
            key: _labelled(inner, name, other, inside=inside or key in ("labels", "matchLabels"))
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_labelled(inner, name, other, inside=inside) for inner in value]
    return other if inside and value == name else value


def _as_itself(value: Any, live: Any, names: tuple[str, str], uids: tuple[str, str]) -> Any:
    """Put an object's own name and UID where the server put those of a copy."""
    if isinstance(value, Mapping):
        beside = live if isinstance(live, Mapping) else {}
        return {key: _as_itself(inner, beside.get(key), names, uids) for key, inner in value.items()}
    if isinstance(value, list):
        others = live if isinstance(live, list) and len(live) == len(value) else [None] * len(value)
        return [_as_itself(inner, one, names, uids) for inner, one in zip(value, others, strict=True)]
    if not isinstance(value, str):
        return value
    uid = uids[1] if isinstance(live, str) and uids[1] in live else _NEW_UID
    return value.replace(*names).replace(uids[0], uid)


def _renamed(error: MlstackError, other: str, name: str) -> MlstackError:
    """Give an error that speaks of the object, not of its copy."""
    error.message = error.message.replace(other, name)
    if isinstance(error, InvalidError):
        error.causes = tuple(
            replace(cause, message=cause.message.replace(other, name)) for cause in error.causes
        )
    return error


# --- List items that a person put in the place of ours, so that both together are not valid ---
# Who changes the port of a Service from 80 to 81 by hand makes another item of it, since the port is its key:
# server-side apply would add ours beside it. Where the server refuses that, the person's items become ours
# and go.

_OURS = Owner(manager=MANAGER, operation="Apply")


def displaced(
    live: Mapping[str, Any], wanted: Mapping[str, Any], causes: Iterable[Cause]
) -> tuple[Path, ...]:
    """Give the items of people's tools that are to go for ours to be valid; none if it is not about them."""
    owners = ((entry, owner_of(entry)) for entry in managed_fields.entries(live))
    persons = [entry for entry, owner in owners if owner != _OURS and is_persons_tool(owner)]
    items = tuple(dict.fromkeys(path for entry in persons for path in _displacing(entry.tree, wanted)))
    lists = {managed_fields.path_text(path[:-1]) for path in items}
    named = [cause.field for cause in causes]
    about = all(any(field.startswith(f"{name}[") for name in lists) for field in named)
    return items if named and about else ()


def _displacing(tree: Tree, wanted: Mapping[str, Any]) -> Iterator[Path]:
    """Give the items in a tree that stand in a list of ours and are not in it."""
    for path in managed_fields.paths(tree):
        outer = managed_fields.value_at(wanted, path[:-1])
        is_absent = managed_fields.value_at(wanted, path) is MISSING
        if path[-1].startswith("k:") and isinstance(outer, list) and is_absent:
            yield path


def take_items(
    live: Mapping[str, Any], items: Iterable[Path], *, api_version: str, after: Patch = ()
) -> Patch:
    """Give the patch that makes items or other fields ours, so that an apply without them removes them."""
    paths = tuple(items)
    entries = after[-1]["value"] if after else (live.get("metadata") or {}).get("managedFields") or ()
    mine: Tree = managed_fields.owned({"metadata": {"managedFields": entries}}, MANAGER)
    others = []
    for raw in entries:
        tree = raw.get("fieldsV1") or {}
        if (raw.get("manager"), raw.get("operation")) == (MANAGER, "Apply") and not raw.get("subresource"):
            continue
        for path in paths:
            below = _below(tree, path)
            if below is not None:
                mine, tree = managed_fields.union(mine, _field_tree(path, below)), _cut(tree, path)
        if tree:
            others.append({**raw, "fieldsV1": tree})
    return entries_patch(live, [our_entry(mine, api_version=api_version), *others])


def _below(tree: Tree, path: Path) -> Tree | None:
    for step in path:
        if step not in tree:
            return None
        tree = tree[step]
    return tree


def _field_tree(path: Path, below: Tree) -> Tree:
    return {path[0]: _field_tree(path[1:], below)} if path else below


def _cut(tree: Tree, path: Path) -> dict[str, Any]:
    """Take a branch out of a tree, and what is empty without it."""
    if len(path) == 1:
        return {key: inner for key, inner in tree.items() if key != path[0]}
    inner = _cut(tree[path[0]], path[1:])
    rest = {key: value for key, value in tree.items() if key != path[0]}
    return {**rest, path[0]: inner} if inner else rest


# --- Fields of others that no file has: those that our files once set, and those that people's
# tools added
# Who changes a value that we applied becomes its owner, and an apply without the field then leaves it. What
# was applied before tells such fields from those that others added themselves: of these a person's go too,
# and a program's stay.

_LABELS = frozenset({("f:metadata", "f:labels"), ("f:metadata", "f:annotations")})


@dataclass(frozen=True, kw_only=True)
class RemovedFields:
    """What becomes of fields that were ours and that we do not want any more."""

    taken: tuple[Lost, ...] = ()  # they become ours once more, and go
    left: tuple[Lost, ...] = ()  # they stay with others

    @property
    def paths(self) -> tuple[Path, ...]:
        """Give the fields that go, each once."""
        return _paths(self.taken)

    def out_of(self, found: Iterable[Lost]) -> tuple[Lost, ...]:
        """Give what there is beside these fields."""
        known = {*self.all_paths}
        return _only(found, lambda path: path not in known)

    @property
    def all_paths(self) -> tuple[Path, ...]:
        """Give the fields that go and those that stay, each once."""
        return _paths((*self.taken, *self.left))


def strange(
    forced: Mapping[str, Any], wanted: Mapping[str, Any], *, metadata_only: bool = False
) -> tuple[Lost, ...]:
    """Give the fields that would stay although we do not want them, by who owns them."""
    ours = managed_fields.owned(forced, MANAGER)

    def stays(path: Path) -> bool:
        is_there = metadata_only or managed_fields.value_at(forced, path) is not MISSING
        return is_there and not managed_fields.says(wanted, path)

    found = (
        Lost(owner=owner_of(entry), paths=tuple(path for path in _theirs(entry.tree, ours) if stays(path)))
        for entry in managed_fields.entries(forced)
        if entry.manager != HANDOVER and entry.key != (MANAGER, "Apply", "") and entry.subresource != "status"
    )
    return tuple(one for one in found if one.paths)


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
    found: Sequence[Lost],
    live: Mapping[str, Any],
    applied: Sequence[Mapping[str, Any]],
    policy: ConflictPolicy,
    *,
    spare: Iterable[Path] = (),
) -> RemovedFields:
    """Tell what becomes of those fields of others that were ours.

    A field goes if everybody who owns it has to give way to us. What a program owns stays with it, and what
    a tool applied with the value that we gave too, until it is taken over from that tool.
    """
    now = set(managed_fields.paths(managed_fields.owned(live, MANAGER)))
    stay = {*spare}

    def keeps(owner: Owner, path: Path) -> bool:
        beside_us = path in now and owner in ADOPTABLE - policy.adopted and not policy.forced
        return beside_us or policy.taker(owner, path) == "theirs"

    held = [path for loss in found for path in loss.paths if keeps(loss.owner, path)]

    def was_ours(path: Path) -> bool:
        known = path in now or any(managed_fields.says(one, path) for one in applied)
        return known and not policy.ignored(path)

    def goes(path: Path) -> bool:
        return path not in stay and not any(one[: len(path)] == path for one in held)

    return RemovedFields(
        taken=_only(found, lambda path: was_ours(path) and goes(path)),
        left=_only(found, lambda path: was_ours(path) and not goes(path)),
    )


def foreign(
    found: Sequence[Lost],
    policy: ConflictPolicy,
    *,
    spare: Iterable[Path] = (),
    makers: Collection[Owner] = (),
) -> RemovedFields:
    """Tell what becomes of fields that people's tools set and that were never ours.

    A field stays that a program owns as well, that lies in something of a program's or holds such.
    """
    mine = [loss for loss in by_people(found) if loss.owner not in policy.adopted | {*makers}]
    kept = {path for loss in mine for path in loss.paths if policy.keeps(loss.owner, path)}
    others = [loss for loss in found if not is_persons_tool(loss.owner) or loss.owner in makers]
    held = {path for loss in others if loss.owner not in policy.adopted for path in loss.paths}
    held |= {path for loss in mine for path in loss.paths if loss.owner.subresource == "scale"} | {*spare}

    def stays(path: Path) -> bool:
        return any(path[: len(one)] == one or one[: len(path)] == path for one in held)

    mine = list(_only(mine, lambda path: path not in kept))
    return RemovedFields(taken=_only(mine, lambda path: not stays(path)), left=_only(mine, stays))


def by_people(found: Iterable[Lost], *, labels: bool = False) -> tuple[Lost, ...]:
    """Give what people's tools own among fields of others: labels and annotations, or all else.

    What people label belongs to them; what the server allocates and a status are no content.
    """

    def is_meant(path: Path) -> bool:
        if any(pair in _LABELS for pair in pairwise(path)):
            return labels
        return not labels and path[0] != "f:status" and not is_allocated(managed_fields.path_text(path))

    persons = (
        loss for loss in found if is_persons_tool(loss.owner) and loss.owner.manager != BEFORE_FIRST_APPLY
    )
    return _only(persons, is_meant)


def widened(live: Mapping[str, Any], wanted: Mapping[str, Any], paths: Sequence[Path]) -> tuple[Path, ...]:
    """Give instead of fields the map or list that holds nothing else, as long as it is no program's either.

    A person who sets a field makes what it lies in: left behind empty, that may mean something else.
    """
    after = managed_fields.cut(live, paths)
    programs = [entry.tree for entry in managed_fields.entries(live) if not is_persons_tool(owner_of(entry))]

    def around(path: Path) -> Path:
        outer = path[:-1]
        if (
            not outer
            or managed_fields.value_at(after, outer) is not MISSING
            or managed_fields.says(wanted, outer)
        ):
            return path
        return path if any(managed_fields.has(tree, outer) for tree in programs) else around(outer)

    found = {around(path) for path in paths}
    return tuple(sorted(one for one in found if not any(one[:length] in found for length in range(len(one)))))


def _only(found: Iterable[Lost], chosen: Callable[[Path], bool]) -> tuple[Lost, ...]:
    parts = (replace(loss, paths=tuple(path for path in loss.paths if chosen(path))) for loss in found)
    return tuple(part for part in parts if part.paths)


def _paths(found: Iterable[Lost]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(path for loss in found for path in loss.paths))


# --- Taking over: all of the tool that applied an object before (`--adopt`), or what people added
# to it

_NAMED = 4  # a note, not a list: a diff with `--adopt` has them all


def goes(
    cluster: Cluster,
    live: Mapping[str, Any],
    resolution: ConflictResolution,
    data: Mapping[str, Any],
    *,
    spare: Sequence[managed_fields.Path] = (),
) -> tuple[FieldChange, ...]:
    """Tell what changes in an object when fields that other tools applied, and we do not, belong to us.

    No dry run can show it, since their owners cannot be changed in one. The fields are those that nobody
    would own; many of them are defaults, which come back with their values: a new object shows which.
    """
    wanted = [path for loss in resolution.left for path in loss.paths]
    ours = managed_fields.owned(resolution.forced.object, MANAGER)
    return without(cluster, live, data, going(live, ours, spare=[*spare, *wanted]))


def without(
    cluster: Cluster, live: Mapping[str, Any], data: Mapping[str, Any], tree: managed_fields.Tree
) -> tuple[FieldChange, ...]:
    """Tell what changes in an object when nobody owns some fields any more; defaults come back."""
    if not tree:
        return ()
    paths = list(managed_fields.paths(tree))
    after = managed_fields.cut(live, paths)
    fresh = as_new(cluster, data, live)
    for path in paths:
        value = MISSING if path[-1].startswith("k:") else managed_fields.value_at(fresh or {}, path)
        after = after if value is MISSING else managed_fields.put(after, path, value)
    return tuple(found for found in managed_fields.compare(live, after, tree) if not is_allocated(found.path))


@dataclass(frozen=True, kw_only=True)
class Removal:
    """What it means that fields which people's tools set go."""

    paths: tuple[managed_fields.Path, ...] = ()  # the fields, with the maps and lists that hold nothing else
    after: Mapping[str, Any] = field(default_factory=dict)  # the object without them
    changed: tuple[FieldChange, ...] = ()  # what changes; nothing where the server gives the same values
    fault: InvalidError | None = None  # why they cannot go while the object exists


def removal(
    cluster: Cluster, wanted: KubeObject, live: Mapping[str, Any], found: Sequence[managed_fields.Path]
) -> Removal:
    """Ask the server what an object is without some fields: defaults and webhooks have their say.

    Raises:
        ConflictError: the object changed meanwhile.
    """
    found = [path for path in found if managed_fields.value_at(live, path) is not MISSING]
    if not found:
        return Removal()
    paths, fault = widened(live, wanted.data, found), None
    try:
        test = {"op": "test", "path": "/metadata/uid", "value": live["metadata"]["uid"]}
        patch = (test, *managed_fields.removals(live, paths))
        after = cluster.patch(ObjectRef.of(wanted.data), patch, kind="json", dry_run=True).object
    except InvalidError as error:
        if not error.causes:
            raise ConflictError(error.message) from error
        after, fault = (
            managed_fields.cut(live, paths),
            error if replacement.says_fixed(error.causes) else None,
        )
    except ForbiddenError:  # as a policy says; the write will tell
        after = managed_fields.cut(live, paths)
    changed = tuple(managed_fields.compare(live, after, managed_fields.tree_along(found)))
    return Removal(paths=paths, after=after, changed=changed, fault=fault if changed else None)


def describe(live: Mapping[str, Any], gone: tuple[FieldChange, ...], *, adopt: bool) -> Iterator[str]:
    """Say in one line from whom an object is taken over, or what that would do; nothing if from nobody."""
    owners = sorted({str(owner_of(entry)) for entry in adoptable(live)})
    if not owners:
        return
    release = (live["metadata"].get("annotations") or {}).get("meta.helm.sh/release-name")
    who = " and ".join(owners) + (f" (Helm release `{release}`)" if release else "")
    if adopt:
        yield f"takes over what {who} applied"
        return
    paths = [f"`{found.path}`" for found in gone]
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    would = f"would remove {', '.join(paths[:_NAMED])}{more}" if paths else "would change no value"
    yield f"was applied by {who}, what only that set stays; taking it over with --adopt {would}"
