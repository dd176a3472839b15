"""Patches of an environment, laid over what a component renders.

A partial object is a merge patch (RFC 7396), in which lists replace. A document of kind Patch says what it
is: a merge patch, a strategic one, in which items of lists are told apart by their keys, or a JSON patch
(RFC 6902). `$patch: delete` beside an object's kind takes the object out, in either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, NoReturn

from mlstack.app.document import kind_of
from mlstack.app.params import at, merge
from mlstack.dataclass import Record
from mlstack.errors import ConfigError, NotFoundError
from mlstack.names import nearest
from mlstack.objects.kube_object import Schema, Schemas, group_of, items_of, list_type_of
from mlstack.objects.managed_fields import MISSING, PatchFault, json_patch
from mlstack.yaml.read import KeyPath
from mlstack.yaml.write import same

SchemaOf = Callable[[Mapping[str, Any]], tuple[Schema | None, Schemas | None]]
"""Gives the schema of an object, and what follows its references."""
_FIXED = ("apiVersion", "kind")
_DIRECTIVE, _RETAIN = "$patch", "$retainKeys"
_FROM_LIST, _ORDER = "$deleteFromPrimitiveList/", "$setElementOrder/"


class Patch(Record):
    """A change of the objects that a target names, and the place it was written at."""

    target: Mapping[str, Any]  # kind, and apiVersion, name and namespace where they are given
    change: Any  # a partial object, or the operations of a JSON patch
    type: str = "merge"  # merge, strategic or json
    # Of lists whose schema has none, by dotted path.
    merge_keys: Mapping[str, str] = field(default_factory=dict)
    where: str  # file:line
    places: Mapping[KeyPath, str] = field(default_factory=dict)  # file:line of each part of the object

    @property
    def deletes(self) -> bool:
        """Tell whether the objects themselves are left out, as `kustomize build` understands it."""
        return isinstance(self.change, Mapping) and self.change.get(_DIRECTIVE) == "delete"

    def matches(self, data: Mapping[str, Any]) -> bool:
        """Tell whether an object is meant: group, kind, name and namespace, as far as they are given."""
        metadata, target = data.get("metadata") or {}, self.target
        its = (group_of(str(data.get("apiVersion", ""))), metadata.get("name"), metadata.get("namespace"))
        group = group_of(str(target["apiVersion"])) if target.get("apiVersion") else None
        asked = (group, target.get("name"), target.get("namespace"))
        same = all(wish is None or wish == fact for wish, fact in zip(asked, its, strict=True))
        return same and target["kind"] == data.get("kind")


def read_patch(value: Any, *, where: str, places: Mapping[KeyPath, str] | None = None) -> Patch:
    """Read a document of a patch file; `places` has the `file:line` of each part of it.

    Raises:
        ConfigError: it does not say which object it changes.
    """
    places = places or {}
    if kind_of(value) == "Patch":
        return Patch(
            target=value["target"],
            change=value["patch"],
            type=value.get("type", "merge"),
            merge_keys=value.get("mergeKeys", {}),
            where=where,
            places=_places(value["patch"], places),
        )
    metadata: Any = value.get("metadata") if isinstance(value, Mapping) else None
    named = isinstance(metadata, Mapping) and isinstance(metadata.get("name"), str)
    if not named or not all(isinstance(value.get(key), str) for key in _FIXED):
        hint = "or a document of `kind: Patch` with `target` and `patch`: mlstack schema Patch"
        raise ConfigError("a patch needs `apiVersion`, `kind` and `metadata.name`", where=where, hint=hint)
    target = {key: value[key] for key in _FIXED} | {key: metadata.get(key) for key in ("name", "namespace")}
    return Patch(target=target, change=value, where=where, places=places)


def _places(change: Any, places: Mapping[KeyPath, str]) -> dict[KeyPath, str]:
    """Give the places of what a change sets, by the path in it; of an operation by that in the object."""
    inside = {path[1:]: place for path, place in places.items() if path[:1] == ("patch",)}
    if not isinstance(change, list):
        return inside
    result: dict[KeyPath, str] = {}
    for number, operation in enumerate(change):
        if operation["op"] not in ("remove", "test"):
            target = [int(part) if part.isdigit() else part for part in _pointer(operation.get("path", ""))]
            target = [part for part in target if part != "-"]  # the list alone leads to who lengthened it
            own = {path: place for path, place in inside.items() if path[:1] == (number,)}
            result |= {(*target, *path[2:]): own[path] for path in own if path[1:2] in ((), ("value",))}
    return result


def _pointer(text: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in str(text).split("/")[1:]]


def patched(
    objects: Sequence[Mapping[str, Any]],
    patches: Sequence[Patch],
    schema_of: SchemaOf = lambda _: (None, None),
) -> list[Mapping[str, Any] | None]:
    """Lay patches over what a component renders, in their order; None is in the place of what one deletes.

    Raises:
        NotFoundError: a patch changes an object that is not there.
        ConfigError: a patch does not fit the object, or would make another one of it.
    """
    result: list[Mapping[str, Any] | None] = list(objects)
    for number, patch in enumerate(patches):
        matching = [(place, data) for place, data in enumerate(result) if data and patch.matches(data)]
        if not matching:
            raise _no_object(patch, objects, patches[:number])
        for place, data in matching:
            result[place] = None if patch.deletes else _changed(data, patch, schema_of)
    return result


def placed(
    data: Mapping[str, Any], places: Mapping[KeyPath, str], patches: Sequence[Patch], schema_of: SchemaOf
) -> Mapping[KeyPath, str]:
    """Give the `file:line` of each part that an object has under patches; items of lists may have moved."""
    for patch in (patch for patch in patches if patch.matches(data)):
        after = _changed(data, patch, schema_of)
        kept = {new: places[old] for old, new in _followed(data, after) if old in places}
        own = [(path, path) for path in patch.places]
        if patch.type != "json":  # a map that it changes in part is not its own
            led = ((old, new) for old, new in _followed(patch.change, after) if old in patch.places)
            own = [(old, new) for old, new in led if same(at(patch.change, old), at(after, new))]
        places = kept | {new: patch.places[old] for old, new in own}
        data = after
    return places


def _followed(
    part: Any, whole: Any, old: KeyPath = (), new: KeyPath = ()
) -> Iterator[tuple[KeyPath, KeyPath]]:
    """Give the paths in a value, and where they lead in what was made of it; lists are matched by content."""
    yield old, new
    for step, inner in items_of(part):
        target = step
        if isinstance(whole, list):
            named = {"name": inner["name"]} if isinstance(inner, Mapping) and "name" in inner else inner
            alike = (n for wish in (inner, named) for n, item in enumerate(whole) if _holds(item, wish))
            target = next(alike, len(whole))
        if (there := at(whole, (target,))) is not None:
            yield from _followed(inner, there, (*old, step), (*new, target))


def _holds(value: Any, part: Any) -> bool:
    if isinstance(part, Mapping) and isinstance(value, Mapping):
        return all(_holds(value.get(key), part[key]) for key in part if not str(key).startswith("$"))
    return (isinstance(part, list) and isinstance(value, list)) or same(value, part)


def _no_object(patch: Patch, objects: Sequence[Mapping[str, Any]], earlier: Sequence[Patch]) -> NotFoundError:
    target = f"{patch.target['kind']} {patch.target.get('name') or ''}".rstrip()
    rendered = [data for data in objects if patch.matches(data)]
    if rendered:
        deleting = next(other for other in earlier if other.deletes and other.matches(rendered[0]))
        message, hint = f"`{target}` is already deleted by {deleting.where}", "remove one of the two patches"
        return NotFoundError(message, hint=hint, where=patch.where)
    names = [f"{data.get('kind')} {(data.get('metadata') or {}).get('name')}" for data in objects]
    message = f"the component renders no `{target}` to patch"
    return NotFoundError(message, near=nearest(target, names), where=patch.where)


def _changed(data: Mapping[str, Any], patch: Patch, schema_of: SchemaOf) -> Mapping[str, Any]:
    changed: Any
    if patch.type == "json":
        try:
            changed = json_patch(data, patch.change)
        except PatchFault as fault:
            message = f"the JSON patch does not fit {_identity(data)}: {fault}"
            path = "a path is a JSON pointer: /spec/replicas, /metadata/annotations/a~1b"
            hint = f"mlstack render ENV -c COMPONENT shows what it is laid over; {path}"
            raise ConfigError(message, where=patch.where, hint=hint) from fault
    elif patch.type == "strategic":
        schema, schemas = schema_of(data)
        changed = _Strategic(patch, schemas).merged(data, patch.change, schema, ())
    else:
        _refuse_directives(patch, patch.change)
        changed = merge(data, patch.change)
    if not isinstance(changed, Mapping) or _identity(changed) != _identity(data):
        message = f"a patch cannot make another object of {_identity(data)}"
        raise ConfigError(message, where=patch.where, hint="leave its kind, name and namespace alone")
    return changed


def _refuse_directives(patch: Patch, change: Any, path: KeyPath = ()) -> None:
    """Refuse what a merge patch would write into the object as if it were a field."""
    for key, value in items_of(change):
        if isinstance(key, str) and (key in (_DIRECTIVE, _RETAIN) or key.startswith((_FROM_LIST, _ORDER))):
            message = f"`{'.'.join(map(str, (*path, key)))}` is a directive of strategic patches"
            hint = "a document of `kind: Patch` with `target`, `type: strategic` and `patch` has them"
            raise ConfigError(message, where=patch.where, hint=f"{hint}: mlstack schema Patch")
        _refuse_directives(patch, value, (*path, key))


def _identity(data: Mapping[str, Any]) -> str:
    metadata = data.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    space = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"`{data.get('apiVersion')} {data.get('kind')} {space}{metadata.get('name')}`"


class _Strategic:
    """Merges by the list types of a schema, by named keys, or by `name` where all items have one."""

    def __init__(self, patch: Patch, schemas: Schemas | None) -> None:
        self._patch, self._schemas = patch, schemas

    def merged(self, lower: Any, upper: Any, schema: Schema | None, path: KeyPath) -> Any:
        """Lay a part of a patch over a part of an object; None where it is deleted."""
        if isinstance(upper, list):
            return self._list(lower if isinstance(lower, list) else [], upper, schema, path)
        if not isinstance(upper, Mapping):
            return upper
        directive = upper.get(_DIRECTIVE, "merge")
        content = {key: value for key, value in upper.items() if key != _DIRECTIVE}
        if directive == "delete":
            return None
        if directive == "replace":
            return content
        if directive != "merge":
            self._refuse(path, f"`{_DIRECTIVE}: {directive}` is none of merge, replace and delete")
        below: Mapping[str, Any] = lower if isinstance(lower, Mapping) else {}
        result = self._retained(below, content, path)
        for key, value in content.items():
            name = key.partition("/")[2]
            if key.startswith("$") and not isinstance(value, list):
                self._refuse((*path, key), "must be a list of values")
            if key.startswith(_FROM_LIST) and isinstance(result.get(name), list):
                result[name] = [item for item in result[name] if item not in value]
            elif key.startswith("$") and not key.startswith((_FROM_LIST, _ORDER, _RETAIN)):
                self._refuse(path, f"the directive `{key}` is not understood")
            if key.startswith("$"):
                continue
            inner = self.merged(result.get(key), value, self._inner(schema, key), (*path, key))
            if inner is None:
                result.pop(key, None)
            else:
                result[key] = inner
        for key in (key for key in content if key.startswith(_ORDER)):
            name, order = key.removeprefix(_ORDER), content[key]
            if isinstance(result.get(name), list):
                before = below.get(name) if isinstance(below.get(name), list) else []
                keys = self._keys(order, result[name], self._inner(schema, name), (*path, name))
                result[name] = _in_order(result[name], order, before or [], keys or ())
        return result

    def _retained(
        self, lower: Mapping[str, Any], content: Mapping[str, Any], path: KeyPath
    ) -> dict[str, Any]:
        """Give what is left of a map where a patch says which keys it is to have."""
        kept = content.get(_RETAIN)
        if not isinstance(kept, list):
            return dict(lower)
        for key in content:
            if not key.startswith("$") and key not in kept:
                self._refuse((*path, key), f"is set, and not among `{_RETAIN}`")
        return {key: value for key, value in lower.items() if key in kept}

    def _inner(self, schema: Schema | None, key: str) -> Schema | None:
        if schema is None:
            return None
        inner = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
        if not isinstance(inner, Mapping):
            return None
        resolved = self._schemas.resolve(inner) if self._schemas is not None else inner
        # The list type stands beside the reference.
        return {**resolved, **{name: value for name, value in inner.items() if name != "$ref"}}

    def _list(self, lower: list[Any], upper: list[Any], schema: Schema | None, path: KeyPath) -> list[Any]:
        if any(isinstance(item, Mapping) and item.get(_DIRECTIVE) == "replace" for item in upper):
            return [item for item in upper if not (isinstance(item, Mapping) and _DIRECTIVE in item)]
        keys = self._keys(lower, upper, schema, path)
        if keys is None:
            return upper
        if not keys:
            return _in_order([*lower, *(item for item in upper if item not in lower)], upper, lower, ())
        items = self._inner({"properties": {"items": (schema or {}).get("items")}}, "items")
        result = list(lower)
        for item in upper:
            given = {key: item[key] for key in keys if isinstance(item, Mapping) and key in item}
            if not given:
                self._refuse(path, f"an item needs `{keys[0]}`, by which it is told from the others")
            same = [place for place, other in enumerate(result) if _has(other, given)]
            inner = self.merged(result[same[0]] if same else {}, item, items, path)
            if inner is None:
                result = [other for place, other in enumerate(result) if place not in same]
            elif same:
                result[same[0]] = inner
            else:
                result.append(inner)
        return _in_order(result, upper, lower, keys)

    def _keys(
        self, lower: list[Any], upper: list[Any], schema: Schema | None, path: KeyPath
    ) -> tuple[str, ...] | None:
        """Give the keys of a list's items, none for a set of values; None for a list that is replaced."""
        if named := self._patch.merge_keys.get(".".join(map(str, path))):
            return (named,)
        if schema is not None and "x-kubernetes-list-type" in schema:
            kind = list_type_of(schema)
            return kind.keys if kind.type == "map" else () if kind.type == "set" else None
        if self._schemas is not None or not any(isinstance(item, Mapping) for item in (*lower, *upper)):
            return None
        if all(isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in (*lower, *upper)):
            return ("name",)
        self._refuse(path, "nothing says by which key items of the list are told apart")

    def _refuse(self, path: KeyPath, message: str) -> NoReturn:
        text = ".".join(map(str, path))
        hint = f"mergeKeys: {{{text}: KEY}}, `{_DIRECTIVE}: replace` in an item, or `type: json`"
        raise ConfigError(f"`{text}`: {message}", where=self._patch.where, hint=hint)


def _in_order(items: list[Any], order: list[Any], before: list[Any], keys: Sequence[str]) -> list[Any]:
    """Give the items of a list as an API server orders them.

    Those that a patch names come in its order; each of the others before the first of them that it was in
    front of (`mergeSortedSlice` of k8s.io/apimachinery).
    """

    def place(item: Any, among: list[Any]) -> int:
        same = (
            number
            for number, other in enumerate(among)
            if (_has(item, {key: other[key] for key in keys if key in other}) if keys else item == other)
        )
        return next(same, -1)

    named = sorted((item for item in items if place(item, order) >= 0), key=lambda item: place(item, order))
    result: list[Any] = []
    for other in (item for item in items if place(item, order) < 0):
        while named and not 0 <= place(other, before) < place(named[0], before):
            result.append(named.pop(0))
        result.append(other)
    return [*result, *named]


def _has(item: Any, given: Mapping[str, Any]) -> bool:
    """Tell whether an item of a list has these keys; the one that has a default may be left out."""
    return isinstance(item, Mapping) and all(
        item.get(key, "TCP" if key == "protocol" else None) == value for key, value in given.items()
    )


# --- where two objects differ, and the patch from one to the other ---


def differing(first: Any, second: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any, Any]]:
    """Give the paths at which two values differ, and what stands there, `MISSING` where nothing does.

    Items of lists are matched by place where the lists are as long, by name where all have one; of items that
    only the second list has the first is given.
    """
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for key in {**first, **second}:
            yield from differing(first.get(key, MISSING), second.get(key, MISSING), (*path, key))
    elif isinstance(first, list) and isinstance(second, list) and (pairs := _item_pairs(first, second)):
        for place, item, other in pairs:
            yield from differing(item, other, (*path, place))
    elif not same(first, second):
        yield path, first, second


def _item_pairs(first: list[Any], second: list[Any]) -> list[tuple[int, Any, Any]]:
    if len(first) == len(second):
        return [(place, *pair) for place, pair in enumerate(zip(first, second, strict=True))]
    if not all(isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in (*first, *second)):
        return []
    by_name = {item["name"]: item for item in second}
    names = {item["name"] for item in first}
    kept = [(place, item, by_name.get(item["name"], MISSING)) for place, item in enumerate(first)]
    return kept + [(len(first), MISSING, item) for name, item in by_name.items() if name not in names][:1]


def object_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Give the patch of an object that leads to another version of it; None if they are equal."""
    if not (change := difference(before, after)):
        return None
    own = {key: before["metadata"][key] for key in ("name", "namespace") if key in before["metadata"]}
    head = {key: after[key] for key in ("apiVersion", "kind")}
    metadata = own | dict(change.get("metadata", {}))
    return {**head, "metadata": metadata} | change | {"metadata": metadata}


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Give the JSON merge patch that leads from one map to another; empty if they are equal."""
    patch: dict[str, Any] = {}
    for key in {**before, **after}:
        old, new = before.get(key, MISSING), after.get(key)
        if key not in after or not same(old, new):
            if isinstance(old, Mapping) and isinstance(new, Mapping):
                new = difference(old, new)
            patch[key] = new
    return patch
