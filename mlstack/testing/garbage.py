"""The controllers that every cluster has: owners and owned, finalizers, namespaces, definitions.

They run to their end after each write to a memory cluster; a real cluster needs a moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mlstack.testing.store import Key, Obj, ObjectStore, StoreChange, with_metadata

CRD = ("apiextensions.k8s.io", "CustomResourceDefinition")
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"

_CRD_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
_NAMESPACE = ("", "Namespace")
_ENDLESS = 10_000


def run(store: ObjectStore, *, now: str) -> None:
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


def concerns(change: StoreChange) -> bool:
    """Say whether a write may give the controllers anything to do."""
    new = change.new
    if new is None or is_going(new) or change.key.of_kind == CRD:
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


def _owned_by(store: ObjectStore, owner: Obj) -> list[Key]:
    uid = owner["metadata"]["uid"]
    return [
        key
        for key, obj in sorted(store.objects.items())
        if any(ref.get("uid") == uid for ref in _owner_refs(obj))
    ]


def _drop_finalizer(store: ObjectStore, key: Key, finalizer: str) -> None:
    obj = store.objects[key]
    store.put(key, with_metadata(obj, finalizers=[name for name in _finalizers(obj) if name != finalizer]))


def _delete_all(store: ObjectStore, keys: Iterable[Key], now: str) -> None:
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
        if is_going(obj) and not _finalizers(obj) and key.of_kind != _NAMESPACE:
            store.remove(key)
