"""The objects of a memory cluster, their versions, and what happened to them in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

# --- The objects of a memory cluster, their versions, and what happened to them in order ---

Obj = dict[str, Any]


def copied(value: Any) -> Any:
    """Copy a plain value all the way down; `copy.deepcopy`, which takes any, needs five times as long."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


@dataclass(frozen=True, order=True)
class Key:
    """What makes an object itself; the version of its API is no part of it."""

    group: str
    kind: str
    namespace: str
    name: str

    @property
    def of_kind(self) -> tuple[str, str]:
        """Give group and kind."""
        return self.group, self.kind


@dataclass(frozen=True, kw_only=True)
class StoreChange:
    """One write: the object before and after, None where it was not or is no more."""

    version: int
    key: Key
    old: Obj | None
    new: Obj | None


@dataclass
class ObjectStore:
    """Objects by key; every write gets the next version.

    Attributes:
        objects: what there is; never changed in place.
        version: of the last write.
        log: the writes since `oldest`.
        oldest: a watch can go on from this version or a later one.
    """

    objects: dict[Key, Obj] = field(default_factory=dict)
    version: int = 0
    log: list[StoreChange] = field(default_factory=list)
    oldest: int = 0

    def copy(self) -> ObjectStore:
        """Give a store that can be written to without changing this one; its log begins now."""
        return replace(self, objects=dict(self.objects), log=[])

    def get(self, key: Key) -> Obj | None:
        """Give an object, None where there is none."""
        return self.objects.get(key)

    def of_kind(self, group: str, kind: str, namespace: str | None = None) -> Iterator[tuple[Key, Obj]]:
        """Go through the objects of a kind in the order of their names."""
        found = (key for key in self.objects if key.of_kind == (group, kind))
        for key in sorted(key for key in found if namespace in (None, key.namespace)):
            yield key, self.objects[key]

    def put(self, key: Key, obj: Mapping[str, Any]) -> Obj:
        """Store an object under the next version and give it."""
        self.version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self.version)}
        new: Obj = copied({**obj, "metadata": metadata})
        self.log.append(StoreChange(version=self.version, key=key, old=self.objects.get(key), new=new))
        self.objects[key] = new
        return new

    def remove(self, key: Key) -> Obj:
        """Remove an object and give it as it was, under the next version."""
        self.version += 1
        old = self.objects.pop(key)
        gone = {**old, "metadata": {**old["metadata"], "resourceVersion": str(self.version)}}
        self.log.append(StoreChange(version=self.version, key=key, old=gone, new=None))
        return gone

    def compact(self) -> None:
        """Forget what happened so far: watches from before now have expired."""
        self.log.clear()
        self.oldest = self.version


# --- Label and field selectors as kubectl and the API server take them ---

Matches = Callable[[Mapping[str, Any]], bool]

_REQUIREMENT = re.compile(
    r"\s*(?:(?P<not>!)\s*(?P<absent>[^\s,=!()]+)"
    r"|(?P<key>[^\s,=!()]+)\s*(?:(?P<op>==|=|!=)\s*(?P<value>[^\s,()]*)"
    r"|\s(?P<set>in|notin)\s*\((?P<values>[^)]*)\))?)\s*(?:,|$)"
)


def by_labels(selector: str) -> Matches:
    """Read a label selector: `a=b,c!=d,e in (f,g),h notin (i),j,!k`; an empty one takes all.

    Raises:
        ValueError: it is none.
    """
    tests = _requirements(selector)
    return lambda obj: all(test(_labels(obj)) for test in tests)


def by_fields(selector: str) -> Matches:
    """Read a field selector: `metadata.name=x,status.phase!=Running`; an empty one takes all.

    Raises:
        ValueError: it is none.
    """
    tests = [_field_test(part) for part in selector.split(",") if part]
    return lambda obj: all(test(obj) for test in tests)


def _labels(obj: Mapping[str, Any]) -> Mapping[str, str]:
    return (obj.get("metadata") or {}).get("labels") or {}


def _requirements(selector: str) -> list[Callable[[Mapping[str, str]], bool]]:
    tests, position = [], 0
    while position < len(selector):
        found = _REQUIREMENT.match(selector, position)
        if found is None or found.end() == position:
            raise ValueError(f"`{selector}` is no label selector")
        tests.append(_label_test(found))
        position = found.end()
    return tests


def _label_test(found: re.Match[str]) -> Callable[[Mapping[str, str]], bool]:
    key, absent, value = found["key"], found["absent"], found["value"]
    if found["not"]:
        return lambda labels: absent not in labels
    if found["op"] == "!=":
        return lambda labels: labels.get(key) != value
    if found["op"]:
        return lambda labels: labels.get(key) == value
    if found["set"]:
        values = {part.strip() for part in found["values"].split(",")}
        wanted = found["set"] == "in"
        return lambda labels: (labels.get(key) in values) is wanted
    return lambda labels: key in labels


def _field_test(part: str) -> Matches:
    path, operator, value = part.partition("=")
    if not operator:
        raise ValueError(f"`{part}` is no field selector")
    negated = path.endswith("!")
    names = path.rstrip("!").split(".")
    wanted = value.removeprefix("=")
    return lambda obj: (_text(obj, names) == wanted) is not negated


def _text(obj: Any, names: list[str]) -> str:
    for name in names:
        obj = obj.get(name) if isinstance(obj, Mapping) else None
    return "" if obj is None else str(obj)


# --- The controllers that every cluster has: owners and owned, finalizers, namespaces, definitions ---
# They run to their end after each write to a memory cluster; a real cluster needs a moment.

CRD = ("apiextensions.k8s.io", "CustomResourceDefinition")
CRD_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"

_ENDLESS = 10_000


def run(store: ObjectStore, *, now: str) -> None:
    """Do all that the controllers have to do.

    Args:
        store: the objects; written to.
        now: the time, as the server writes it.
    """
    controllers: tuple[Callable[[ObjectStore, str], bool], ...] = (
        _establish,
        _empty_namespaces,
        _empty_definitions,
        _serve_owners,
        _collect_orphans,
        _remove_finished,
    )
    for _ in range(_ENDLESS):
        if not any([controller(store, now) for controller in controllers]):
            return
    raise AssertionError("the controllers of the memory cluster never come to rest")


def concerns(change: StoreChange) -> bool:
    """Say whether a write may give the controllers anything to do."""
    new = change.new
    if new is None or is_going(new) or change.key.of_kind == CRD:
        return True
    return change.old is None and bool(new["metadata"].get("ownerReferences"))


def mark_deleted(store: ObjectStore, key: Key, *, now: str, finalizer: str = "") -> Obj:
    """Mark an object as going; it stays while it has finalizers."""
    obj = store.objects[key]
    metadata = dict(obj["metadata"])
    finalizers = list(metadata.get("finalizers") or [])
    if finalizer and finalizer not in finalizers:
        finalizers.append(finalizer)
    if finalizers:
        metadata["finalizers"] = finalizers
    if "deletionTimestamp" not in metadata:
        metadata |= {"deletionTimestamp": now, "deletionGracePeriodSeconds": 0}
        if "generation" in metadata:
            metadata["generation"] += 1
    return {**obj, "metadata": metadata}


def is_going(obj: Mapping[str, Any]) -> bool:
    """Say whether an object has been deleted and waits for finalizers."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def owned_by(store: ObjectStore, uid: str) -> list[Key]:
    """Give the objects that name an owner, in order."""
    return [
        key
        for key, obj in sorted(store.objects.items())
        if any(ref.get("uid") == uid for ref in obj["metadata"].get("ownerReferences") or ())
    ]


def _establish(store: ObjectStore, now: str) -> bool:
    """Accept the names of new definitions and establish them."""
    moved = False
    for key, crd in list(store.of_kind(*CRD)):
        known = {row["type"] for row in (crd.get("status") or {}).get("conditions") or ()}
        if "Established" in known:
            continue
        rows = [
            _condition("NamesAccepted", "NoConflicts", "no conflicts found", now),
            _condition("Established", "InitialNamesAccepted", "the initial names have been accepted", now),
        ]
        stored = [version["name"] for version in crd["spec"]["versions"] if version.get("storage")]
        status = {
            "conditions": rows,
            "acceptedNames": crd["spec"]["names"],
            "storedVersions": stored,
        }
        metadata = dict(crd["metadata"])
        metadata["finalizers"] = [*(metadata.get("finalizers") or []), CRD_FINALIZER]
        store.put(key, {**crd, "metadata": metadata, "status": status})
        moved = True
    return moved


def _condition(kind: str, reason: str, message: str, now: str) -> dict[str, str]:
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }


def _empty_namespaces(store: ObjectStore, now: str) -> bool:
    moved = False
    for key, namespace in list(store.of_kind("", "Namespace")):
        if is_going(namespace):
            inside = [inner for inner in store.objects if inner.namespace == key.name]
            moved |= _delete_all(store, inside, now)
            if not inside:
                store.remove(key)
                moved = True
    return moved


def _empty_definitions(store: ObjectStore, now: str) -> bool:
    moved = False
    for key, crd in list(store.of_kind(*CRD)):
        if is_going(crd) and CRD_FINALIZER in (crd["metadata"].get("finalizers") or ()):
            spec = crd["spec"]
            instances = [inner for inner, _ in store.of_kind(spec["group"], spec["names"]["kind"])]
            moved |= _delete_all(store, instances, now)
            if not instances:
                _drop_finalizer(store, key, CRD_FINALIZER)
                moved = True
    return moved


def _delete_all(store: ObjectStore, keys: list[Key], now: str) -> bool:
    fresh = [key for key in sorted(keys) if not is_going(store.objects[key])]
    for key in fresh:
        delete_now(store, key, now=now)
    return bool(fresh)


def delete_now(store: ObjectStore, key: Key, *, now: str) -> None:
    """Delete an object: it is gone at once unless it has finalizers."""
    if store.objects[key]["metadata"].get("finalizers"):
        store.put(key, mark_deleted(store, key, now=now))
    else:
        store.remove(key)


def _serve_owners(store: ObjectStore, now: str) -> bool:
    """Do what a deleted owner asked for: let its objects go first, or stay without it."""
    moved = False
    for key, owner in sorted(store.objects.items()):
        finalizers = owner["metadata"].get("finalizers") or ()
        uid = owner["metadata"]["uid"]
        if not is_going(owner) or key not in store.objects:
            continue
        if FOREGROUND in finalizers:
            blocking = [inner for inner in owned_by(store, uid) if _blocks(store.objects[inner], uid)]
            moved |= _delete_first(store, blocking, now)
            if not blocking:
                _drop_finalizer(store, key, FOREGROUND)
                moved = True
        elif ORPHAN in finalizers:
            for inner in owned_by(store, uid):
                store.put(inner, _without_owner(store.objects[inner], uid))
            _drop_finalizer(store, key, ORPHAN)
            moved = True
    return moved


def _delete_first(store: ObjectStore, keys: list[Key], now: str) -> bool:
    fresh = [key for key in keys if not is_going(store.objects[key])]
    for key in fresh:
        if owned_by(store, store.objects[key]["metadata"]["uid"]):
            store.put(key, mark_deleted(store, key, now=now, finalizer=FOREGROUND))
        else:
            delete_now(store, key, now=now)
    return bool(fresh)


def _blocks(obj: Mapping[str, Any], uid: str) -> bool:
    return any(
        ref.get("uid") == uid and ref.get("blockOwnerDeletion")
        for ref in obj["metadata"].get("ownerReferences") or ()
    )


def _without_owner(obj: Obj, uid: str) -> Obj:
    metadata = dict(obj["metadata"])
    left = [ref for ref in metadata.pop("ownerReferences") if ref.get("uid") != uid]
    return {**obj, "metadata": {**metadata, **({"ownerReferences": left} if left else {})}}


def _collect_orphans(store: ObjectStore, now: str) -> bool:
    """Delete what has owners of which none is there."""
    uids = {obj["metadata"]["uid"] for obj in store.objects.values()}
    lost = [
        key
        for key, obj in store.objects.items()
        if (references := obj["metadata"].get("ownerReferences"))
        and not any(ref.get("uid") in uids for ref in references)
    ]
    return _delete_all(store, lost, now)


def _remove_finished(store: ObjectStore, now: str) -> bool:
    del now
    finished = list(_finished(store))
    for key in finished:
        store.remove(key)
    return bool(finished)


def _finished(store: ObjectStore) -> Iterator[Key]:
    for key, obj in sorted(store.objects.items()):
        if is_going(obj) and not obj["metadata"].get("finalizers") and key.of_kind != ("", "Namespace"):
            yield key


def _drop_finalizer(store: ObjectStore, key: Key, finalizer: str) -> None:
    obj = store.objects[key]
    metadata = dict(obj["metadata"])
    left = [name for name in metadata.pop("finalizers") if name != finalizer]
    store.put(key, {**obj, "metadata": {**metadata, **({"finalizers": left} if left else {})}})
