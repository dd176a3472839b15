"""The controllers that every cluster has: owners and owned, finalizers, namespaces, definitions.

They run to their end after each write to a memory cluster; a real cluster needs a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mlstack.cluster.store import Change, Key, Obj, Store

CRD = ("apiextensions.k8s.io", "CustomResourceDefinition")
CRD_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"

_ENDLESS = 10_000


def run(store: Store, *, now: str) -> None:
    """Do all that the controllers have to do.

    Args:
        store: the objects; written to.
        now: the time, as the server writes it.
    """
    controllers: tuple[Callable[[Store, str], bool], ...] = (
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


def concerns(change: Change) -> bool:
    """Say whether a write may give the controllers anything to do."""
    new = change.new
    if new is None or is_going(new) or change.key.of_kind == CRD:
        return True
    return change.old is None and bool(new["metadata"].get("ownerReferences"))


def mark_deleted(store: Store, key: Key, *, now: str, finalizer: str = "") -> Obj:
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


def owned_by(store: Store, uid: str) -> list[Key]:
    """Give the objects that name an owner, in order."""
    return [
        key
        for key, obj in sorted(store.objects.items())
        if any(ref.get("uid") == uid for ref in obj["metadata"].get("ownerReferences") or ())
    ]


def _establish(store: Store, now: str) -> bool:
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


def _empty_namespaces(store: Store, now: str) -> bool:
    moved = False
    for key, namespace in list(store.of_kind("", "Namespace")):
        if is_going(namespace):
            inside = [inner for inner in store.objects if inner.namespace == key.name]
            moved |= _delete_all(store, inside, now)
            if not inside:
                store.remove(key)
                moved = True
    return moved


def _empty_definitions(store: Store, now: str) -> bool:
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


def _delete_all(store: Store, keys: list[Key], now: str) -> bool:
    fresh = [key for key in sorted(keys) if not is_going(store.objects[key])]
    for key in fresh:
        delete_now(store, key, now=now)
    return bool(fresh)


def delete_now(store: Store, key: Key, *, now: str) -> None:
    """Delete an object: it is gone at once unless it has finalizers."""
    if store.objects[key]["metadata"].get("finalizers"):
        store.put(key, mark_deleted(store, key, now=now))
    else:
        store.remove(key)


def _serve_owners(store: Store, now: str) -> bool:
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


def _delete_first(store: Store, keys: list[Key], now: str) -> bool:
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


def _collect_orphans(store: Store, now: str) -> bool:
    """Delete what has owners of which none is there."""
    uids = {obj["metadata"]["uid"] for obj in store.objects.values()}
    lost = [
        key
        for key, obj in store.objects.items()
        if (references := obj["metadata"].get("ownerReferences"))
        and not any(ref.get("uid") in uids for ref in references)
    ]
    return _delete_all(store, lost, now)


def _remove_finished(store: Store, now: str) -> bool:
    del now
    finished = list(_finished(store))
    for key in finished:
        store.remove(key)
    return bool(finished)


def _finished(store: Store) -> Iterator[Key]:
    for key, obj in sorted(store.objects.items()):
        if is_going(obj) and not obj["metadata"].get("finalizers") and key.of_kind != ("", "Namespace"):
            yield key


def _drop_finalizer(store: Store, key: Key, finalizer: str) -> None:
    obj = store.objects[key]
    metadata = dict(obj["metadata"])
    left = [name for name in metadata.pop("finalizers") if name != finalizer]
    store.put(key, {**obj, "metadata": {**metadata, **({"finalizers": left} if left else {})}})
