"""Sets of fields as `metadata.managedFields` writes them: who owns what, and what differs there.

A tree maps `f:name` (map key), `k:{…}` (list item by its keys), `v:…` (item of a set), `i:0` (index) to
trees; an empty tree, and `.` inside one, say that the thing itself is owned. See the Kubernetes page
"Server-Side Apply" and KEP-555.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal, NamedTuple

from mlstack.dataclass import Record
from mlstack.errors import ConfigError
from mlstack.objects.kube_object import MANAGER, KubeObject

Tree = Mapping[str, Any]
FieldPath = tuple[str, ...]

_SELF = "."


class _Missing:
    """Tells an absent field from one that is null."""


MISSING = _Missing()


class FieldChange(Record):
    """One field that differs."""

    path: str  # the field as people write it: `spec.template.spec.containers[main].image`.
    action: Literal["added", "removed", "changed"]  # whether the field appears, goes or gets another value.
    old: Any = None  # value in the cluster, None if the field is added.
    new: Any = None  # value that is wanted, None if the field is removed.

    @property
    def reversed(self) -> FieldChange:
        """Give the change as it is seen from the other side."""
        actions: Mapping[str, Literal["added", "removed"]] = {"added": "removed", "removed": "added"}
        action = actions.get(self.action, self.action)
        return FieldChange(path=self.path, action=action, old=self.new, new=self.old)


class Owner(NamedTuple):
    """A field manager as the API server tells it from others, its API version aside."""

    manager: str
    operation: str = "Update"  # or `Apply`
    subresource: str = ""  # `scale` or `status` if it writes through one

    def __str__(self) -> str:
        """Write the manager as people read it."""
        how = f" (through `{self.subresource}`)" if self.subresource else ""
        return f"`{self.manager}`{how}"


OURS = Owner(MANAGER, "Apply")


class ManagedFieldsEntry(Record):
    """What one manager has in `managedFields`."""

    owner: Owner
    tree: Tree  # the fields it owns
    time: str = ""  # when it last took or left one, as the server writes it; empty if that is not known


def raw_entries(data: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Give the field managers of a live object as the server writes them, one for each API version."""
    return (data.get("metadata") or {}).get("managedFields") or ()


def owner_of(raw: Mapping[str, Any]) -> Owner:
    """Give whose entry it is."""
    return Owner(*(str(raw.get(name) or "") for name in Owner._fields))


def entries(data: Mapping[str, Any]) -> tuple[ManagedFieldsEntry, ...]:
    """Read the field managers of a live object; entries of one manager are merged."""
    merged: dict[Owner, ManagedFieldsEntry] = {}
    for raw in raw_entries(data):
        owner, tree, time = owner_of(raw), raw.get("fieldsV1") or {}, str(raw.get("time") or "")
        if owner in merged:
            tree, time = union(merged[owner].tree, tree), max(merged[owner].time, time)
        merged[owner] = ManagedFieldsEntry(owner=owner, tree=tree, time=time)
    return tuple(merged.values())


def owned(data: Mapping[str, Any], manager: str = MANAGER) -> Tree:
    """Give the fields a manager has applied; empty if it never did."""
    return next((entry.tree for entry in entries(data) if entry.owner == (manager, "Apply", "")), {})


def union(one: Tree, other: Tree) -> dict[str, Any]:
    """Give the fields of both trees."""
    if bool(one) != bool(other):
        # A leaf beside a branch: the thing itself is owned as well as some of its fields.
        return {_SELF: {}, **(one or other)}
    result = dict(one)
    for key, tree in other.items():
        result[key] = union(result[key], tree) if key in result else tree
    return result


def union_all(trees: Iterable[Tree]) -> Tree:
    """Give the fields of all trees; an empty one is none, not a leaf."""
    whole: Tree = {}
    for tree in trees:
        whole = union(whole, tree) if whole and tree else whole or tree
    return whole


def minus(one: Tree, other: Tree) -> dict[str, Any]:
    """Give the fields of one tree that the other has not."""
    result: dict[str, Any] = {}
    for key, tree in one.items():
        if key not in other or not (tree or _is_member(other[key])):
            result[key] = tree
        elif tree and (rest := minus(tree, other[key] or {_SELF: {}})):
            result[key] = rest
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


def part(tree: Tree, path: FieldPath) -> tuple[Tree | None, Tree]:
    """Part what a tree has of a field and all in it from the rest; None if it has nothing of it."""
    if path[0] not in tree:
        return None, tree
    taken, rest = part(tree[path[0]], path[1:]) if path[1:] else (tree[path[0]], {})
    if taken is None:
        return None, tree
    others = {key: inner for key, inner in tree.items() if key != path[0]}
    return {path[0]: taken}, {**others, path[0]: rest} if rest else others


def branch(tree: Tree, path: FieldPath) -> Tree | None:
    """Give what a tree has in a field, empty for the field as a whole; None if it has nothing of it."""
    for key in path:
        if key not in tree:
            return None
        tree = tree[key]
    return tree


def depth(tree: Tree, path: FieldPath) -> int:
    """Give how far down a tree owns a field: itself or something in it, or around it as a whole; or 0."""
    for length, key in enumerate(path, 1):
        if key not in tree:
            return 0
        tree = tree[key]
        if not tree:  # the thing as a whole is owned, with all it holds
            return length
    return len(path)


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


def compare(live: Any, desired: Any, tree: Tree) -> Iterator[FieldChange]:
    """Tell in which of the tree's fields two objects differ; everything else is ignored."""
    return (change for _, change in located(live, desired, tree))


def located(
    live: Any, desired: Any, tree: Tree, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], FieldChange]]:
    """Tell in which of the tree's fields two objects differ, each with its path as keys of the tree."""
    if (live is MISSING and desired is MISSING) or not (tree or path):
        return
    if live is MISSING:
        yield path, FieldChange(path=path_text(path), action="added", new=project(desired, tree))
    elif desired is MISSING:
        yield path, FieldChange(path=path_text(path), action="removed", old=project(live, tree))
    elif not tree or not any(
        isinstance(live, kind) and isinstance(desired, kind) for kind in (Mapping, list)
    ):
        if live != desired:
            yield path, FieldChange(path=path_text(path), action="changed", old=live, new=desired)
    else:
        for key, inner in tree.items():
            if key != _SELF:
                yield from located(take_step(live, key), take_step(desired, key), inner, (*path, key))


def take_step(value: Any, key: str) -> Any:
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
    items = (item for item in value if isinstance(item, Mapping))
    return next((item for item in items if all(item.get(name) == sought[name] for name in sought)), MISSING)


def project(value: Any, tree: Tree) -> Any:
    """Give only those parts of a value that the tree names; the whole value for a leaf."""
    inner = {key: below for key, below in tree.items() if key != _SELF}
    if not inner or not isinstance(value, Mapping | list):
        return value
    parts = [(key, take_step(value, key)) for key in inner]
    named = [(key.partition(":")[2], project(part, inner[key])) for key, part in parts if part is not MISSING]
    return dict(named) if isinstance(value, Mapping) else [part for _, part in named]


def tree_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """Give a tree of everything an object says; lists count as one field each."""
    return {f"f:{key}": tree_of(value) if isinstance(value, Mapping) else {} for key, value in data.items()}


# --- cut fields out of what is sent, or give them another value, along the paths of a field tree -------


def cut(data: Mapping[str, Any], paths: Iterable[FieldPath]) -> dict[str, Any]:
    """Give a copy without these fields.

    What a cut leaves empty goes too: an empty map would own the whole map. An item of a keyed list keeps its
    keys, which say which item it is. Paths that lead nowhere change nothing.
    """
    result: Any = data
    for path in paths:
        result = _cut(result, path)
    return dict(result)


def _cut(value: Any, path: FieldPath) -> Any:
    step, rest = path[0], path[1:]
    if step.startswith("f:"):
        name = step[2:]
        if not isinstance(value, Mapping) or name not in value:
            return value
        remainder = _cut(value[name], rest) if rest else MISSING
        if remainder is value[name]:
            return value
        if remainder is MISSING or remainder in ({}, []):
            return {key: inner for key, inner in value.items() if key != name}
        return {**value, name: remainder}
    index = item_place(value, step) if isinstance(value, list) else None
    if index is None:
        return value
    if not rest:
        return [*value[:index], *value[index + 1 :]]
    if step.startswith("k:") and len(rest) == 1 and rest[0][2:] in json.loads(step[2:]):
        return value
    remainder = _cut(value[index], rest)
    return value if remainder is value[index] else [*value[:index], remainder, *value[index + 1 :]]


def item_place(value: Sequence[Any], step: str) -> int | None:
    """Find the item of a list that a step of a tree names.

    A key that an item does not say has its default (the protocol of a port), so it may be this item.
    """
    kind, _, rest = step.partition(":")
    sought = json.loads(rest)
    if kind == "i":
        return sought if sought < len(value) else None
    if kind == "v":
        return next((index for index, item in enumerate(value) if item == sought), None)
    for least in (len(sought), 1):
        for index, item in enumerate(value):
            said = [name for name in sought if isinstance(item, Mapping) and name in item]
            if len(said) >= least and all(item[name] == sought[name] for name in said):
                return index
    return None


def removals(data: Mapping[str, Any], paths: Iterable[FieldPath]) -> tuple[Mapping[str, Any], ...]:
    """Give the JSON patch that takes fields out of an object; none of them lies in another.

    It fails where an item of a list stands in another place meanwhile; what else changes does not matter.
    """
    located: list[list[tuple[str | int, Mapping[str, Any]]]] = []
    for path in paths:
        value: Any = data
        steps: list[
            tuple[str | int, Mapping[str, Any]]
        ] = []  # and by what an item is known: by its keys, or itself
        for step in path:
            index = None if step.startswith("f:") else item_place(value, step)
            if index is None:
                steps.append((step[2:], {}))
                value = value[step[2:]]
                continue
            value = value[index]
            keys = json.loads(step[2:]) if step.startswith("k:") else {}
            steps.append(
                (index, {name: value[name] for name in keys if name in value} if keys else {"": value})
            )
        located.append(steps)
    located.sort(key=lambda steps: [(isinstance(token, str), token) for token, _ in steps], reverse=True)
    tests = {
        _pointer(steps[: depth + 1], name): value
        for steps in located
        for depth, (_, keys) in enumerate(steps)
        for name, value in keys.items()
    }
    return (
        *({"op": "test", "path": path, "value": value} for path, value in tests.items()),
        *({"op": "remove", "path": _pointer(steps)} for steps in located),
    )


def _pointer(steps: Sequence[tuple[str | int, Any]], *names: str) -> str:
    tokens = [*(str(token) for token, _ in steps), *filter(None, names)]
    return "".join(f"/{token.replace('~', '~0').replace('/', '~1')}" for token in tokens)


def put(value: Any, path: FieldPath, desired: Any) -> Any:
    """Give a copy in which a field has another value; what lies on the way is made."""
    if not path:
        return desired
    step, rest = path[0], path[1:]
    if step.startswith("f:"):
        inner = value if isinstance(value, Mapping) else {}
        return {**inner, step[2:]: put(inner.get(step[2:]), rest, desired)}
    items = list(value) if isinstance(value, list) else []
    index = item_place(items, step)
    if index is None:
        fresh = json.loads(step[2:]) if step.startswith("k:") else desired
        return [*items, put(fresh, rest, desired)]
    items[index] = put(items[index], rest, desired)
    return items


def value_at(data: Any, path: FieldPath) -> Any:
    """Give the value of a field, `MISSING` if it is not there."""
    for step in path:
        data = take_step(data, step)
        if data is MISSING:
            return MISSING
    return data


def says(data: Any, path: FieldPath) -> bool:
    """Tell whether an object as it is written has a field; keys of a list item that it leaves out fit."""
    for step in path:
        if isinstance(data, list) and not step.startswith("f:"):
            index = item_place(data, step)
            data = MISSING if index is None else data[index]
        else:
            data = take_step(data, step)
        if data is MISSING:
            return False
    return True


# --- paths of fields as people write them: `spec.template.spec.containers[main].image` -----------------

_STEP = r'\.?(?P<name>[^.\[\],"\s]+)|\[(?P<inner>"(?:[^"\\]|\\.)*"|[^\[\]]*)\]'
_ITEM = r'(?:\[(?:"(?:[^"\\]|\\.)*"|[^\[\]]*)\]|[^,\[])+'
ANY = "*"


class FieldPattern(Record):
    """Names a field and everything below it."""

    text: str  # as a person wrote it
    steps: tuple[str, ...]  # the names on the way; `*` stands for any one

    def covers(self, path: Sequence[str]) -> bool:
        """Tell whether a path of a field tree (`f:spec`, `k:{…}`) is this field or lies in it."""
        if len(path) < len(self.steps):
            return False
        return all(
            step == ANY or step in _spellings(part) for step, part in zip(self.steps, path, strict=False)
        )


def read(text: str) -> FieldPattern:
    """Read one path.

    Names follow each other with dots; items of lists stand in brackets by their key (`[main]`, `[80,TCP]`),
    as do names with dots or slashes (`["a.b/c"]`); `*` is any name or item.

    Raises:
        ValueError: it is no path.
    """
    steps, position, cleaned = [], 0, text.strip().removeprefix(".")
    while match := re.compile(_STEP).match(cleaned, position):
        inner = (match["inner"] or "").strip()
        steps.append(match["name"] or (str(json.loads(inner)) if inner.startswith('"') else inner))
        position = match.end()
    if not steps or position < len(cleaned) or "" in steps:
        raise ValueError(f"`{text.strip()}` is no path of a field")
    return FieldPattern(text=cleaned, steps=tuple(steps))


def read_list(text: str) -> tuple[FieldPattern, ...]:
    """Read paths with commas between them.

    Raises:
        ValueError: one of them is no path.
    """
    return tuple(read(part) for part in re.findall(_ITEM, text) if part.strip())


FORCE_FIELDS = "mlstack.dev/force-fields"
IGNORE_FIELDS = "mlstack.dev/ignore-fields"


def annotated(manifest: KubeObject, annotation: str) -> tuple[FieldPattern, ...]:
    """Read the fields that an annotation of an object names.

    Raises:
        ConfigError: it holds no paths.
    """
    text = manifest.annotations.get(annotation)
    try:
        return read_list(str(text)) if text else ()
    except ValueError as error:
        raise ConfigError(
            f"annotation `{annotation}` of `{manifest.identity}`: {error}",
            where=str(manifest.source) if manifest.source else f"component {manifest.component}",
            hint="write paths as a diff does, with commas between: spec.replicas, data.mode",
        ) from error


def _spellings(part: str) -> Iterator[str]:
    kind, _, rest = part.partition(":")
    if kind == "k":
        keys = json.loads(rest)
        yield ",".join(str(value) for value in keys.values())
        yield ",".join(f"{name}={value}" for name, value in keys.items())
    elif kind == "v":
        yield str(json.loads(rest))
    if kind != "k":
        yield rest


# --- field managers: who writes to objects in a cluster, and which of them stand for people ------------

HANDOVER = f"{MANAGER}-handover"
"""Holds a field between us, who let go of it, and the autoscaler that has not written it yet."""

BEFORE_FIRST_APPLY = "before-first-apply"
"""The server's name for whoever wrote before it kept books: people and programs alike."""

AUTOSCALING = Owner("kube-controller-manager", subresource="scale")
"""The HorizontalPodAutoscaler: what it set is ours again when its object goes."""

# Tools that leave an object alone once they wrote it. Never `kubectl-rollout`: its annotation would go, and
# with that all pods restart.
ADOPTABLE = frozenset(
    {
        Owner("kubectl-client-side-apply"),
        Owner("kubectl-create"),
        Owner("kubectl", "Apply"),
        Owner("helm", "Apply"),
        Owner("helm"),
        Owner(BEFORE_FIRST_APPLY),
    }
)

# Field managers that stand for a person at a keyboard (or for us): what they set by hand is put back to
# what the files say. Everything else is a program that would set its value again (an autoscaler, an
# operator, another deployer) and keeps its fields. Browsers send their own name (Rancher, Lens, Headlamp).
# Name, operation (empty for both) and subresources through which it may have written (None for any).
_PERSONS_TOOLS: tuple[tuple[str, str, tuple[str, ...] | None], ...] = (
    (re.escape(MANAGER), "", None),
    (re.escape(HANDOVER), "Apply", None),
    (r"kubectl(-.*)?|kubectx|kubens|kubecolor|oc|k9s|k9s\..*|stern", "", ("", "scale")),
    (r"Lens|OpenLens|Freelens|node-fetch|Headlamp|headlamp|octant|dashboard|Mozilla|rancher-ui", "", None),
    (BEFORE_FIRST_APPLY, "Update", ("",)),
)


def is_persons_tool(owner: Owner) -> bool:
    """Tell whether a manager stands for a person (or for us)."""
    return any(
        re.fullmatch(name, owner.manager) is not None
        and operation in ("", owner.operation)
        and (subresources is None or owner.subresource in subresources)
        for name, operation, subresources in _PERSONS_TOOLS
    )


def adoptable(live: Mapping[str, Any]) -> tuple[Owner, ...]:
    """Give the tools that applied a live object and from which it can be taken over."""
    return tuple(entry.owner for entry in entries(live) if entry.owner in ADOPTABLE)


# --- merge patches (RFC 7396) and JSON patches (RFC 6902), as the API server takes them ---


def merge_patch(value: Any, patch: Any) -> Any:
    """Lay a merge patch (RFC 7396) over a value: maps merge, null removes, the rest replaces."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(value) if isinstance(value, Mapping) else {}
    for name, inner in patch.items():
        if inner is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), inner)
    return merged


class PatchFault(ValueError):
    """A JSON patch does not fit: a `test` failed, or a path is not there."""


def json_patch(value: Any, operations: Sequence[Mapping[str, Any]]) -> Any:
    """Give a value after the operations of a JSON patch (RFC 6902), one after the other.

    Raises:
        PatchFault: one of them does not fit.
    """
    import jsonpatch

    patched = deepcopy(value)
    for operation in operations:
        try:
            patched = jsonpatch.apply_patch(patched, [deepcopy(dict(operation))], in_place=True)
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError, KeyError) as error:
            raise PatchFault(f"{operation.get('op')} {operation.get('path')}") from error
    return patched
