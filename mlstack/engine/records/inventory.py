"""The inventory of an environment in its cluster: read, written, removed, found again if it is lost."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import mlstack
from mlstack.cluster.api import Applied, Cluster, ObjectRef
from mlstack.engine.records import scan
from mlstack.engine.records.admission import Record
from mlstack.errors import ClusterError, ConflictError, ForbiddenError, ObjectNotFoundError
from mlstack.model import applyset, membership, objects, stored
from mlstack.model.diff import Change
from mlstack.model.events import Event, OnEvent, silent
from mlstack.model.inventory import Inventory
from mlstack.model.objects import Identity


class Ended(Protocol):
    """What has to be known of a run that has ended, well or not."""

    @property
    def cluster(self) -> Cluster:
        """Give the cluster it wrote to."""

    @property
    def records(self) -> Cluster:
        """Give the same cluster, patient with webhooks that start."""

    @property
    def outcomes(self) -> Mapping[Identity, Event]:
        """Give the event that ended each object."""

    @property
    def written(self) -> Mapping[Identity, Mapping[str, Any]]:
        """Give the objects that were written, as the server answered."""


_ATTEMPTS = 20  # a server that refuses one write of two is asked about that often once in a million runs
_TIMES = 3  # a reader may meet a writer that has just put other parts in place of those that were named


def read(cluster: Cluster, *, app: str, environment: str, namespace: str) -> Inventory:
    """Read the inventory of an environment; one without a version if there is none.

    A damaged one is rebuilt from the marks on the objects, and its notes say so.

    Raises:
        ClusterError: the ConfigMap of its name is another tool's or another environment's.
    """
    empty = Inventory(app=app, environment=environment, namespace=namespace)
    parent, parts = _fetched(cluster, empty)
    if parent is None:
        return empty
    metadata, names = parent["metadata"], stored.part_names(parent)
    found = replace(empty, version=metadata["resourceVersion"], uid=metadata["uid"], parts=names)
    try:
        if len(parts) < len(names):
            raise stored.DamagedError("a part of it is missing")
        return replace(found, members=stored.members(parent, parts))
    except stored.NewerError as newer:
        raise ClusterError(
            f"the inventory `{_ref(found, found.name)}` was written by a newer mlstack (format {newer})",
            hint="use that version, or a later one",
        ) from newer
    except stored.DamagedError as fault:
        return _rebuilt(cluster, found, f"the inventory `{_ref(found, found.name)}` is damaged ({fault})")


_Found = tuple[Mapping[str, Any] | None, Sequence[Mapping[str, Any]]]


def _fetched(cluster: Cluster, empty: Inventory) -> _Found:
    found: _Found = (None, ())
    for _ in range(_TIMES):
        parent = cluster.get(_ref(empty, empty.name))
        if parent is None:
            return None, ()
        _check(parent, empty)
        names = stored.part_names(parent)
        parts = [part for name in names if (part := cluster.get(_ref(empty, name))) is not None]
        found = parent, parts
        if len(parts) == len(names):
            break
    return found


def moved(cluster: Cluster, inventory: Inventory) -> bool:
    """Tell whether somebody wrote the inventory since it was read.

    Raises:
        ClusterError: the cluster cannot be asked.
    """
    live = cluster.get(_ref(inventory, inventory.name))
    metadata = live["metadata"] if live is not None else {}
    now = (str(metadata.get("uid") or ""), str(metadata.get("resourceVersion") or ""))
    return now != (inventory.uid, inventory.version)


def known(cluster: Cluster, *, app: str, environment: str, namespace: str) -> Inventory:
    """Read the inventory of an environment; where there is none, find its objects by their marks.

    Raises:
        ClusterError: as `read`.
    """
    found = read(cluster, app=app, environment=environment, namespace=namespace)
    return found if found.exists else found_again(cluster, found)


def found_again(cluster: Cluster, missing: Inventory) -> Inventory:
    """Give an inventory that is not in the cluster as the marks on the objects tell it.

    Raises:
        ClusterError: the cluster cannot be asked.
    """
    return _rebuilt(cluster, missing, "there is no inventory")


def elsewhere(cluster: Cluster, inventory: Inventory) -> tuple[str, ...]:
    """Give the other namespaces in which the same environment keeps an inventory, as far as one may look."""
    query = f"{objects.selector(app=inventory.app, environment=inventory.environment)},{applyset.ID_LABEL}"
    try:
        found = cluster.list("v1", "ConfigMap", labels=query, metadata_only=True).items
    except ForbiddenError:
        return ()
    return tuple(sorted({str(item["metadata"]["namespace"]) for item in found} - {inventory.namespace}))


def of_others(cluster: Cluster, inventory: Inventory) -> tuple[str, ...]:
    """Give other environments of the app with an inventory in the same namespace, as labels name them."""
    query = f"{objects.APP_LABEL}={inventory.app},{applyset.ID_LABEL}"
    try:
        found = cluster.list(
            "v1", "ConfigMap", namespace=inventory.namespace, labels=query, metadata_only=True
        ).items
    except ForbiddenError:
        return ()
    names = {str(item["metadata"]["labels"].get(objects.ENVIRONMENT_LABEL, "")) for item in found}
    return tuple(sorted(names - {objects.label_of(inventory.environment)}))


def _rebuilt(cluster: Cluster, empty: Inventory, why: str) -> Inventory:
    members, notes = scan.scan(cluster, empty)
    if not members and not empty.exists:
        return replace(empty, notes=tuple(notes))
    said = f"{why}: {len(members)} object{'s' * (len(members) != 1)} found by their labels"
    return replace(empty, members={one.identity: one for one in members}, notes=(said, *notes))


def _check(parent: Mapping[str, Any], inventory: Inventory) -> None:
    applyset.check_parent(parent, inventory.id)
    if not stored.belongs_to(parent, app=inventory.app, environment=inventory.environment):
        raise ClusterError(
            f"`{_ref(inventory, inventory.name)}` is the inventory of another app or environment",
            hint="give one of the two apps another name or namespace",
        )


def write(
    cluster: Cluster, old: Inventory, new: Inventory, *, on_event: OnEvent = silent, refresh: bool = False
) -> Inventory:
    """Keep an inventory in the cluster; nothing is sent if it holds what the old one held.

    Args:
        cluster: where it is kept.
        old: as it was read or written last.
        new: what it is to hold.
        on_event: told when another tool's hold on a field had to be broken.
        refresh: ask for the kinds of the server anew: definitions have come or gone.

    Returns:
        The new one with the version it has now.

    Raises:
        ConflictError: somebody else changed it since it was read.
    """
    if not needs_writing(old, new):
        return replace(new, version=old.version, uid=old.uid, parts=old.parts)
    kinds = cluster.kinds(refresh=refresh)
    parent, parts = stored.documents(new, version=mlstack.__version__, kinds=kinds)
    for part in parts:
        _forced(cluster, part, on_event)
    live = _sent(cluster, old, new, parent, on_event)["metadata"]
    names = tuple(str(part["metadata"]["name"]) for part in parts)
    if old.parts or names:
        _drop_parts(cluster, new, keep=names)
    return replace(new, version=live["resourceVersion"], uid=live["uid"], parts=names, notes=())


def needs_writing(old: Inventory, new: Inventory) -> bool:
    """Tell whether the cluster does not hold an inventory as it should be."""
    if not old.exists:
        return bool(new.members)
    return dict(old.members) != dict(new.members) or bool(old.notes)


def widen(
    cluster: Cluster, inventory: Inventory, changes: Sequence[Change], *, on_event: OnEvent = silent
) -> Inventory:
    """Keep the union of an inventory and what a run is about to write; comes before its first write.

    Raises:
        ConflictError: somebody else changed it since it was read.
    """
    with _record(inventory).explained(cluster, so="nothing was written"):
        return write(cluster, inventory, membership.widened(inventory, changes), on_event=on_event)


def settle(
    run: Ended,
    inventory: Inventory,
    changes: Sequence[Change],
    *,
    forgotten: Collection[Identity] = (),
    in_vain: bool = False,
    on_event: OnEvent = silent,
) -> Inventory:
    """Keep what a run did, however far it came: hashes of what was written, less what is known to be gone.

    Args:
        run: the run.
        inventory: as it was written last.
        changes: what was to be done.
        forgotten: members that are not there any more, or are another's.
        in_vain: whether the run failed, so that no webhook is waited for.
        on_event: told when another tool's hold on a field had to be broken.

    Raises:
        ConflictError: somebody else changed it since it was written.
    """
    gone = {key for key, event in run.outcomes.items() if event.kind in ("deleted", "gone")}
    made = membership.settled(inventory, changes, written=run.written, gone=gone | set(forgotten))
    defined = any(key.kind == "CustomResourceDefinition" for key in (*run.written, *gone))
    cluster = run.cluster if in_vain else run.records
    with _record(inventory).explained(cluster, so="all the rest of this run is done"):
        return write(cluster, inventory, made, on_event=on_event, refresh=defined)


def remove(cluster: Cluster, inventory: Inventory) -> None:
    """Take an inventory out of the cluster, unless it still lists something.

    Raises:
        ConflictError: somebody else changed it since it was read.
    """
    if inventory.members or not inventory.exists:
        return
    _gone(
        lambda: cluster.delete(
            _ref(inventory, inventory.name),
            propagation="Background",
            uid=inventory.uid,
            resource_version=inventory.version,
        )
    )
    _drop_parts(cluster, inventory, keep=())


def _sent(
    cluster: Cluster, old: Inventory, new: Inventory, parent: dict[str, Any], on_event: OnEvent
) -> Mapping[str, Any]:
    """Write the parent; see through refusals that mean nothing, as when an answer of the server was lost.

    Raises:
        ConflictError: somebody else changed the members.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return _forced(cluster, _only(parent, old), on_event).object
        except ConflictError:
            now = read(cluster, app=new.app, environment=new.environment, namespace=new.namespace)
            if now.exists and now.members == new.members:
                return {"metadata": {"uid": now.uid, "resourceVersion": now.version}}
            if attempt + 1 == _ATTEMPTS or now.exists != old.exists or now.members != old.members:
                raise
            old = now
    raise AssertionError("the last attempt returns or raises")


def _only(parent: dict[str, Any], old: Inventory) -> dict[str, Any]:
    """Make a write one to the very version that was read."""
    if not old.exists:
        return parent
    return {
        **parent,
        "metadata": {**parent["metadata"], "uid": old.uid, "resourceVersion": old.version},
    }


def _forced(cluster: Cluster, document: Mapping[str, Any], on_event: OnEvent) -> Applied:
    """Write, and take fields that others have laid hold on: the inventory has one owner."""
    try:
        return cluster.apply(document, manager=applyset.MANAGER)
    except ConflictError as error:
        if not error.conflicts:
            raise
        who = ", ".join(f"`{name}`" for name in error.managers)
        text = f"`{ObjectRef.of(document)}` was changed by {who}: set right again"
        on_event(Event("warning", None, text))
        return cluster.apply(document, manager=applyset.MANAGER, force=True)


def _drop_parts(cluster: Cluster, inventory: Inventory, *, keep: Sequence[str]) -> None:
    """Delete parts that no parent names, those of killed runs included."""
    for name in _part_names(cluster, inventory):
        if name not in keep:
            _gone(partial(cluster.delete, _ref(inventory, name), propagation="Background"))


def _part_names(cluster: Cluster, inventory: Inventory) -> Iterable[str]:
    listing = cluster.list(
        "v1", "ConfigMap", namespace=inventory.namespace, labels=stored.PART_LABEL, metadata_only=True
    )
    names = (str(item["metadata"]["name"]) for item in listing.items)
    return [name for name in names if name.startswith(f"{inventory.name}.i")]


def _gone(delete: Callable[[], object]) -> None:
    try:
        delete()
    except ObjectNotFoundError:  # what is to be gone is gone
        return


def _record(inventory: Inventory) -> Record:
    ref = _ref(inventory, inventory.name)
    return Record(ref=ref, what="inventory", app=inventory.app, environment=inventory.environment)


def _ref(inventory: Inventory, name: str) -> ObjectRef:
    return ObjectRef("v1", "ConfigMap", inventory.namespace, name)
