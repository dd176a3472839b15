"""The objects of a memory cluster: versions, what happened in order, selectors, and what collects garbage."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import Any

from mlstack.dataclass import Record, dataclass
from mlstack.objects.kube_object import Identity

Obj = dict[str, Any]


def copied(value: Any) -> Any:
    """Copy a plain value all the way down; `copy.deepcopy`, which takes any, needs five times as long."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


class StoreChange(Record):
    """One write: the object before and after, None where it was not or is no more."""

    version: int
    key: Identity
    old: Obj | None
    new: Obj | None


@dataclass
class ObjectStore:
    """Objects by key, never changed in place; every write gets the next version."""

    objects: dict[Identity, Obj] = field(default_factory=dict)
    version: int = 0  # of the last write
    # The writes since `oldest`: a watch can go on from that version or a later one.
    log: list[StoreChange] = field(default_factory=list)
    oldest: int = 0

    def copy(self) -> ObjectStore:
        """Give a store that can be written to without changing this one; its log begins now."""
        return replace(self, objects=dict(self.objects), log=[])

    def get(self, key: Identity) -> Obj | None:
        """Give an object, None where there is none."""
        return self.objects.get(key)

    def of_kind(self, group: str, kind: str, namespace: str | None = None) -> list[tuple[Identity, Obj]]:
        """Give the objects of a kind in the order of their names."""
        keys = (key for key in self.objects if key.kind == kind and key.group == group)
        return [(key, self.objects[key]) for key in sorted(keys) if namespace in (None, key.namespace)]

    def put(self, key: Identity, obj: Mapping[str, Any]) -> Obj:
        """Store an object under the next version and give it."""
        self.version += 1
        new: Obj = copied(with_metadata(obj, resourceVersion=str(self.version)))
        self.log.append(StoreChange(version=self.version, key=key, old=self.objects.get(key), new=new))
        self.objects[key] = new
        return new

    def remove(self, key: Identity) -> None:
        """Remove an object: its last state is logged under the next version."""
        self.version += 1
        gone = with_metadata(self.objects.pop(key), resourceVersion=str(self.version))
        self.log.append(StoreChange(version=self.version, key=key, old=gone, new=None))

    def compact(self) -> None:
        """Forget what happened so far: watches from before now have expired."""
        self.log.clear()
        self.oldest = self.version


def with_metadata(obj: Mapping[str, Any], **changes: Any) -> Obj:
    """Give an object with other metadata; what is None or empty goes."""
    metadata = {**obj["metadata"], **changes}
    for name, value in changes.items():
        if value in (None, []):
            del metadata[name]
    return {**obj, "metadata": metadata}


# --- label and field selectors as kubectl and the API server take them ---

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
    requirements, position = [], 0
    while position < len(selector):
        match = _REQUIREMENT.match(selector, position)
        if match is None or match.end() == position:
            raise ValueError(f"`{selector}` is no label selector")
        requirements.append(match)
        position = match.end()
    return lambda obj: all(
        _meets(match, (obj.get("metadata") or {}).get("labels") or {}) for match in requirements
    )


def _meets(requirement: re.Match[str], labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement["key"])
    if requirement["not"]:
        return requirement["absent"] not in labels
    if requirement["op"]:
        return (value == requirement["value"]) is (requirement["op"] != "!=")
    if requirement["set"]:
        values = {part.strip() for part in requirement["values"].split(",")}
        return (value in values) is (requirement["set"] == "in")
    return requirement["key"] in labels


def by_fields(selector: str) -> Matches:
    """Read a field selector: `metadata.name=x,status.phase!=Running`; an empty one takes all.

    Raises:
        ValueError: it is none.
    """
    requirements = [part.partition("=") for part in selector.split(",") if part]
    for path, operator, value in requirements:
        if not operator:
            raise ValueError(f"`{path}{value}` is no field selector")
    return lambda obj: all(
        (_text(obj, path.rstrip("!").split(".")) == value.removeprefix("=")) is not path.endswith("!")
        for path, _, value in requirements
    )


def _text(obj: Any, names: list[str]) -> str:
    for name in names:
        obj = obj.get(name) if isinstance(obj, Mapping) else None
    return "" if obj is None else str(obj)


# --- the controllers that every cluster has: owners and owned, finalizers, namespaces, definitions ---
# They run to their end after each write; a real cluster needs a moment.

CRD = ("apiextensions.k8s.io", "CustomResourceDefinition")
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"

_CRD_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_NAMESPACE = ("", "Namespace")
_ENDLESS = 10_000


def run_controllers(store: ObjectStore, *, now: str) -> None:
    """Do all that the controllers have to do; `now` is the time as the server writes it."""
    for _ in range(_ENDLESS):
        before = store.version
        _establish(store, now)
        _empty_namespaces(store, now)
        _empty_definitions(store, now)
        _serve_owners(store, now)
        _collect_orphans(store, now)
        _remove_finished(store)
        if store.version == before:
            return
    raise AssertionError("the controllers of the memory cluster never come to rest")


def concerns_controllers(change: StoreChange) -> bool:
    """Say whether a write may give the controllers anything to do."""
    new = change.new
    if new is None or is_going(new) or (change.key.group, change.key.kind) == CRD:
        return True
    return change.old is None and bool(new["metadata"].get("ownerReferences"))


def mark_deleted(obj: Obj, *, now: str, finalizer: str = "") -> Obj:
    """Mark an object as going; it stays while it has finalizers."""
    finalizers = _finalizers(obj)
    if finalizer and finalizer not in finalizers:
        finalizers.append(finalizer)
    obj = with_metadata(obj, finalizers=finalizers)
    if is_going(obj):
        return obj
    metadata = obj["metadata"]
    counted = {"generation": metadata["generation"] + 1} if "generation" in metadata else {}
    return with_metadata(obj, deletionTimestamp=now, deletionGracePeriodSeconds=0, **counted)


def is_going(obj: Mapping[str, Any]) -> bool:
    """Say whether an object has been deleted and waits for finalizers."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def _finalizers(obj: Mapping[str, Any]) -> list[str]:
    return list(obj["metadata"].get("finalizers") or ())


def _owner_refs(obj: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(obj["metadata"].get("ownerReferences") or ())


def _owned_by(store: ObjectStore, owner: Obj) -> list[Identity]:
    uid = owner["metadata"]["uid"]
    return [
        key
        for key, obj in sorted(store.objects.items())
        if any(ref.get("uid") == uid for ref in _owner_refs(obj))
    ]


def _drop_finalizer(store: ObjectStore, key: Identity, finalizer: str) -> None:
    obj = store.objects[key]
    store.put(key, with_metadata(obj, finalizers=[name for name in _finalizers(obj) if name != finalizer]))


def _delete_all(store: ObjectStore, keys: Iterable[Identity], now: str) -> None:
    """Delete objects: those without finalizers are gone at once."""
    for key in [key for key in sorted(keys) if not is_going(store.objects[key])]:
        if _finalizers(store.objects[key]):
            store.put(key, mark_deleted(store.objects[key], now=now))
        else:
            store.remove(key)


def _establish(store: ObjectStore, now: str) -> None:
    """Accept the names of new definitions and establish them."""
    for key, crd in store.of_kind(*CRD):
        rows = (crd.get("status") or {}).get("conditions") or ()
        if any(row["type"] == "Established" for row in rows):
            continue
        conditions = [
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ]
        status = {
            "conditions": [
                {"type": kind, "status": "True", "reason": reason, "message": text, "lastTransitionTime": now}
                for kind, reason, text in conditions
            ],
            "acceptedNames": crd["spec"]["names"],
            "storedVersions": [row["name"] for row in crd["spec"]["versions"] if row.get("storage")],
        }
        kept = with_metadata(crd, finalizers=[*_finalizers(crd), _CRD_FINALIZER])
        store.put(key, {**kept, "status": status})


def _empty_namespaces(store: ObjectStore, now: str) -> None:
    for key, namespace in store.of_kind(*_NAMESPACE):
        if is_going(namespace):
            inside = [inner for inner in store.objects if inner.namespace == key.name]
            _delete_all(store, inside, now)
            if not inside:
                store.remove(key)


def _empty_definitions(store: ObjectStore, now: str) -> None:
    for key, crd in store.of_kind(*CRD):
        if is_going(crd) and _CRD_FINALIZER in _finalizers(crd):
            group, kind = crd["spec"]["group"], crd["spec"]["names"]["kind"]
            instances = [inner for inner, _ in store.of_kind(group, kind)]
            _delete_all(store, instances, now)
            if not instances:
                _drop_finalizer(store, key, _CRD_FINALIZER)


def _serve_owners(store: ObjectStore, now: str) -> None:
    """Do what a deleted owner asked for: let its objects go first, or stay without it."""
    for key, owner in sorted(store.objects.items()):
        if not is_going(owner) or key not in store.objects:
            continue
        uid, owned = owner["metadata"]["uid"], _owned_by(store, owner)
        if FOREGROUND in _finalizers(owner):
            blocking = [
                inner
                for inner in owned
                for ref in _owner_refs(store.objects[inner])
                if ref.get("uid") == uid and ref.get("blockOwnerDeletion")
            ]
            for inner in blocking:
                obj = store.objects[inner]
                if not is_going(obj) and _owned_by(store, obj):
                    store.put(inner, mark_deleted(obj, now=now, finalizer=FOREGROUND))
                else:
                    _delete_all(store, [inner], now)
            if not blocking:
                _drop_finalizer(store, key, FOREGROUND)
        elif ORPHAN in _finalizers(owner):
            for inner in owned:
                obj = store.objects[inner]
                left = [ref for ref in _owner_refs(obj) if ref.get("uid") != uid]
                store.put(inner, with_metadata(obj, ownerReferences=left))
            _drop_finalizer(store, key, ORPHAN)


def _collect_orphans(store: ObjectStore, now: str) -> None:
    """Delete what has owners of which none is there."""
    uids = {obj["metadata"]["uid"] for obj in store.objects.values()}
    lost = [
        key
        for key, obj in store.objects.items()
        if (refs := _owner_refs(obj)) and not any(ref.get("uid") in uids for ref in refs)
    ]
    _delete_all(store, lost, now)


def _remove_finished(store: ObjectStore) -> None:
    for key, obj in sorted(store.objects.items()):
        if is_going(obj) and not _finalizers(obj) and (key.group, key.kind) != _NAMESPACE:
            store.remove(key)
