"""Find the objects of an environment by their marks, over every kind there is: a repair, not the rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, Protocol

import mlstack
from mlstack.clock import Clock
from mlstack.deploy import inventory as applyset
from mlstack.deploy import inventory as membership
from mlstack.deploy import inventory as pruning
from mlstack.deploy import inventory as stored
from mlstack.deploy.changes import Change
from mlstack.deploy.inventory import Inventory, Member
from mlstack.errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    MlstackError,
    ObjectNotFoundError,
    TransientError,
)
from mlstack.events import OnEvent, RunEvent, silent
from mlstack.kube import parallel
from mlstack.kube.client import Applied, Cluster, ObjectRef
from mlstack.kube.retrying import RetryingClient
from mlstack.objects import kube_object
from mlstack.objects.kinds import Kind, Kinds
from mlstack.objects.kube_object import Identity

# --- Find the objects of an environment by their marks, over every kind there is: a repair, not the
# rule

# Kinds that no app brings, or whose objects only controllers write; some of them there are very many of.
_LEFT_OUT = frozenset(
    {("", "Event"), ("events.k8s.io", "Event"), ("", "Node"), ("discovery.k8s.io", "EndpointSlice")}
)

_NAMED = 8  # kinds that a note names; who has one namespace may list hardly any


def members_by_labels(cluster: Cluster, inventory: Inventory) -> tuple[tuple[Member, ...], tuple[str, ...]]:
    """Give the members that carry our marks and are ours by their field manager, and what could not be seen.

    Marks alone do not make a member: controllers copy labels to what they make (a Service's to its
    Endpoints). Objects of a set with another ID belong to the same environment in another namespace.

    Args:
        cluster: where to look; nothing is written.
        inventory: whose members are looked for.
    """
    items, notes = labelled_objects(cluster, inventory)
    members = [member_of(item) for item in items if is_ours(item, inventory)]
    return tuple({member.identity: member for member in members}.values()), notes


def labelled_objects(
    cluster: Cluster, inventory: Inventory
) -> tuple[tuple[Mapping[str, Any], ...], tuple[str, ...]]:
    """Give the metadata of every object with our marks, whoever set them, and what could not be seen."""
    query = kube_object.selector(app=inventory.app, environment=inventory.environment)

    def look(kind: Kind) -> Sequence[Mapping[str, Any]]:
        return _items(cluster, kind, f"{query},{kube_object.COMPONENT_LABEL}", inventory.namespace)

    items, unseen = _gathered(list(_kinds(cluster)), look)
    return items, (f"{unseen}: such objects may be missed",) if unseen else ()


def namespace_contents(cluster: Cluster, namespace: str) -> tuple[tuple[Mapping[str, Any], ...], str]:
    """Give the metadata of all that a namespace holds but Events and Leases, and what may not be listed.

    Args:
        cluster: where to look; nothing is written.
        namespace: name of the namespace.
    """

    def look(kind: Kind) -> Sequence[Mapping[str, Any]]:
        return cluster.list(kind.api_version, kind.kind, namespace=namespace, metadata_only=True).items

    kinds = [kind for kind in _kinds(cluster) if kind.namespaced and kind.kind != "Lease"]
    return _gathered(kinds, look)


def _gathered(
    kinds: Sequence[Kind], look: Callable[[Kind], Sequence[Mapping[str, Any]]]
) -> tuple[tuple[Mapping[str, Any], ...], str]:
    """Give the objects of many kinds, and which kinds may not be listed."""
    found: dict[str, Mapping[str, Any]] = {}
    unseen: list[str] = []
    for kind, items in zip(kinds, parallel.run(look, kinds), strict=True):
        if isinstance(items, MlstackError):
            if isinstance(items, ForbiddenError):
                unseen.append(kind.kind)
            elif not isinstance(items, ObjectNotFoundError | InvalidError):
                raise items
            continue
        for item in items:  # an object may be served by two groups; what is only computed has no UID
            if item["metadata"].get("uid"):
                found.setdefault(item["metadata"]["uid"], item)
    return tuple(found.values()), f"no right to list {_listed(sorted(unseen))}" if unseen else ""


def _listed(kinds: Sequence[str]) -> str:
    more = f" and {len(kinds) - _NAMED} more kinds" if len(kinds) > _NAMED else ""
    return f"{', '.join(kinds[:_NAMED])}{more}"


def _kinds(cluster: Cluster) -> Iterator[Kind]:
    seen = set(_LEFT_OUT)
    for kind in cluster.kinds():
        if (kind.group, kind.kind) not in seen:
            seen.add((kind.group, kind.kind))
            yield kind


def _items(cluster: Cluster, kind: Kind, query: str, namespace: str) -> Sequence[Mapping[str, Any]]:
    try:
        return cluster.list(kind.api_version, kind.kind, labels=query, metadata_only=True).items
    except ForbiddenError:
        if not kind.namespaced:
            raise
    # Who may not look everywhere may still look here.
    return cluster.list(
        kind.api_version, kind.kind, namespace=namespace, labels=query, metadata_only=True
    ).items


def is_ours(live: Mapping[str, Any], inventory: Inventory) -> bool:
    """Tell whether an object was applied by us, for this environment."""
    owned = live["metadata"].get("ownerReferences")
    return not owned and pruning.is_applied_by_us(live) and not pruning.whose(live, inventory)


def member_of(live: Mapping[str, Any]) -> Member:
    """Give a live object as a member."""
    metadata = live["metadata"]
    identity = Identity(
        kube_object.group_of(str(live["apiVersion"])),
        str(live["kind"]),
        str(metadata.get("namespace") or ""),
        str(metadata["name"]),
    )
    component = str((metadata.get("labels") or {}).get(kube_object.COMPONENT_LABEL, ""))
    return Member(
        identity=identity, api_version=str(live["apiVersion"]), component=component, uid=str(metadata["uid"])
    )


# --- Which members of an inventory are there now, by as few requests as will do ---

Live = Mapping[str, Any]
_Group = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True)
class InventoryLookup:
    """What was found of some members.

    Attributes:
        members: the members, each in an API version that the server has.
        live: those that are there; metadata alone is sure to be in it.
        hidden: those whose kind the server cannot answer for now, though it may have them.
    """

    members: tuple[Member, ...]
    live: Mapping[Identity, Live]
    hidden: frozenset[Identity] = frozenset()


def lookup(cluster: Cluster, members: Iterable[Member]) -> InventoryLookup:
    """Look for members; a kind that the server has no more, or in another scope, has no such objects.

    Raises:
        ClusterError: a member could not be asked for.
    """
    kinds = cluster.kinds()
    asked = [replace(one, api_version=_served(one, kinds)) for one in members]
    unserved = [one for one in asked if not one.api_version]
    found = _look(cluster, [one for one in asked if one.api_version])
    return InventoryLookup(members=tuple(asked), live=found, hidden=_hidden(cluster, unserved))


def _served(member: Member, kinds: Kinds) -> str:
    """Give the API version to ask for a member in; none where the server has no such kind in its scope."""
    identity = member.identity
    same = kinds.lookup(member.api_version, identity.kind)
    others = (kind for kind in kinds.of_group(identity.group) if kind.kind == identity.kind)
    found = (kind for kind in ([same] if same else others) if kind.namespaced == bool(identity.namespace))
    return next((kind.api_version for kind in found), "")


def _look(cluster: Cluster, members: Sequence[Member]) -> dict[Identity, Live]:
    groups: dict[_Group, list[Member]] = {}
    for one in members:
        groups.setdefault((one.api_version, one.identity.kind, one.identity.namespace), []).append(one)
    tasks = [
        task
        for group in groups.values()
        for task in ([group] if len(group) >= parallel.LIST_FROM else [[one] for one in group])
    ]

    def ask(task: list[Member]) -> list[Live]:
        if len(task) > 1:
            try:
                return _surveyed(cluster, task)
            except ForbiddenError:  # who may not list may still ask for each
                pass
        return [live for one in task if (live := cluster.get(ref_of(one))) is not None]

    results = parallel.whole(parallel.run(ask, tasks))
    wanted = {ref_of(one): one.identity for one in members}
    lives = [live for result in results for live in result]
    return {wanted[ref]: live for live in lives if (ref := ObjectRef.of(live)) in wanted}


def _surveyed(cluster: Cluster, group: Sequence[Member]) -> list[Live]:
    first = group[0]
    namespace = first.identity.namespace or None
    try:
        return list(
            cluster.list(
                first.api_version, first.identity.kind, namespace=namespace, metadata_only=True
            ).items
        )
    except ObjectNotFoundError:
        return []


def _hidden(cluster: Cluster, unserved: Sequence[Member]) -> frozenset[Identity]:
    """Give those of a group that another server answers for: it may only be down."""
    if not unserved:
        return frozenset()
    try:
        services = cluster.list("apiregistration.k8s.io/v1", "APIService").items
    except (ObjectNotFoundError, ForbiddenError):
        return frozenset()
    elsewhere = {
        (item.get("spec") or {}).get("group") for item in services if (item.get("spec") or {}).get("service")
    }
    return frozenset(one.identity for one in unserved if one.identity.group in elsewhere)


def ref_of(member: Member) -> ObjectRef:
    """Give the address of a member."""
    identity = member.identity
    return ObjectRef(member.api_version, identity.kind, identity.namespace, identity.name)


# --- Webhooks and policies before the records of an environment: waited for, and named when they
# refuse

WEBHOOK_S = 120.0
"""How long a webhook is waited for: it starts as its pod does, with an image to be pulled."""

_API = "admissionregistration.k8s.io/v1"
_KINDS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
_WEBHOOK = re.compile(r'admission webhook [`"]([^`"]+)[`"](?: denied the request)?:? ?')
_EXEMPT = f"let it pass what has the label {kube_object.MANAGED_BY_LABEL}={kube_object.MANAGER}"


def patient(cluster: Cluster, *, clock: Clock, on_event: OnEvent, timeout_s: float = inf) -> Cluster:
    """Give a cluster whose webhooks are waited for while they start, as with any other object."""
    return RetryingClient(
        cluster,
        clock=clock,
        told=lambda text: on_event(RunEvent("waiting", None, text)),
        answered=True,
        webhook_s=WEBHOOK_S,
        timeout_s=timeout_s,
        still=lambda text: on_event(RunEvent("still", None, text)),
    )


@dataclass(frozen=True, kw_only=True)
class Record:
    """Something that mlstack keeps of an environment.

    Attributes:
        ref: its address.
        what: what it is: `inventory`, `lock`.
        app: name of the app.
        environment: name of the environment.
    """

    ref: ObjectRef
    what: str
    app: str
    environment: str

    @contextmanager
    def explained(self, cluster: Cluster, *, so: str) -> Iterator[None]:
        """Say plainly that a record is what was refused, by which webhook, and what to do.

        Args:
            cluster: where the webhook is looked up.
            so: what follows from it for the run.

        Raises:
            ClusterError: what was raised inside, in better words.
        """
        try:
            yield
        except (ForbiddenError, InvalidError, TransientError) as error:
            webhook = _WEBHOOK.search(error.message)
            if webhook is None and not _is_policy(error):
                raise
            said = error.message.removeprefix(f"`{self.ref}`: ").removeprefix(f"`{self.ref}` is refused: ")
            who, hint = "a policy of the cluster", f"{_EXEMPT}, then run the command again"
            if webhook is not None:
                found = self._configuration(cluster, webhook[1])
                who, hint = f"admission webhook `{webhook[1]}`{_place(found)}", self._hint(error, found)
                said = said.replace(webhook[0], "", 1)
            is_silent = isinstance(error, TransientError)
            why = f"cannot be written: {who} {said}" if is_silent else f"is refused by {who}: {said}"
            error.message = f"the {self.what} of environment `{self.environment}`, `{self.ref}`, {why}; {so}"
            error.hint, error.args = hint, (error.message,)
            raise

    def _configuration(self, cluster: Cluster, webhook: str) -> Mapping[str, Any] | None:
        """Give the configuration of a webhook, None if nobody may look."""
        with suppress(ClusterError):
            for kind in _KINDS:
                for found in cluster.list(_API, kind).items:
                    if any(one.get("name") == webhook for one in found.get("webhooks") or ()):
                        return found
        return None

    def _hint(self, error: ClusterError, found: Mapping[str, Any] | None) -> str:
        again = "then run the command again"
        if isinstance(error, TransientError) and found is None:
            return f"see that the service behind the webhook runs, or {_EXEMPT} (objectSelector), {again}"
        if found is None or not self._is_own(found):
            wait = "wait until its service runs, or " if isinstance(error, TransientError) else ""
            return f"{wait}{_EXEMPT} (objectSelector), {again}"
        name = f"{found['kind'].lower()} {found['metadata']['name']}"
        return (
            f"it is a webhook of this environment: {_EXEMPT} (objectSelector); to get on now, take it away:"
            f" kubectl delete {name}; the next apply sets it up again"
        )

    def _is_own(self, found: Mapping[str, Any]) -> bool:
        marks = kube_object.marks(app=self.app, environment=self.environment, component="")
        labels = found["metadata"].get("labels") or {}
        return all(
            labels.get(key) == marks[key] for key in (kube_object.APP_LABEL, kube_object.ENVIRONMENT_LABEL)
        )


def _is_policy(error: ClusterError) -> bool:
    return "ValidatingAdmissionPolicy" in error.message or (
        isinstance(error, ForbiddenError) and error.why == "policy"
    )


def _place(found: Mapping[str, Any] | None) -> str:
    return f" ({found['kind']} `{found['metadata']['name']}`)" if found is not None else ""


# --- The inventory of an environment in its cluster: read, written, removed, found again if it is
# lost


class Ended(Protocol):
    """What has to be known of a run that has ended, well or not."""

    @property
    def cluster(self) -> Cluster:
        """Give the cluster it wrote to."""

    @property
    def records(self) -> Cluster:
        """Give the same cluster, patient with webhooks that start."""

    @property
    def outcomes(self) -> Mapping[Identity, RunEvent]:
        """Give the event that ended each object."""

    @property
    def written(self) -> Mapping[Identity, Mapping[str, Any]]:
        """Give the objects that were written, as the server answered."""


_ATTEMPTS = 20  # a server that refuses one write of two is asked about that often once in a million runs
_TIMES = 3  # a reader may meet a writer that has just put other parts in place of those that were named


def load(cluster: Cluster, *, app: str, environment: str, namespace: str) -> Inventory:
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
            raise stored.DamagedInventoryError("a part of it is missing")
        return replace(found, members=stored.decode(parent, parts))
    except stored.NewerError as newer:
        raise ClusterError(
            f"the inventory `{_ref(found, found.name)}` was written by a newer mlstack (format {newer})",
            hint="use that version, or a later one",
        ) from newer
    except stored.DamagedInventoryError as fault:
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


def has_moved(cluster: Cluster, inventory: Inventory) -> bool:
    """Tell whether somebody wrote the inventory since it was read.

    Raises:
        ClusterError: the cluster cannot be asked.
    """
    live = cluster.get(_ref(inventory, inventory.name))
    metadata = live["metadata"] if live is not None else {}
    now = (str(metadata.get("uid") or ""), str(metadata.get("resourceVersion") or ""))
    return now != (inventory.uid, inventory.version)


def load_or_find(cluster: Cluster, *, app: str, environment: str, namespace: str) -> Inventory:
    """Read the inventory of an environment; where there is none, find its objects by their marks.

    Raises:
        ClusterError: as `read`.
    """
    found = load(cluster, app=app, environment=environment, namespace=namespace)
    return found if found.exists else find_by_labels(cluster, found)


def find_by_labels(cluster: Cluster, missing: Inventory) -> Inventory:
    """Give an inventory that is not in the cluster as the marks on the objects tell it.

    Raises:
        ClusterError: the cluster cannot be asked.
    """
    return _rebuilt(cluster, missing, "there is no inventory")


def elsewhere(cluster: Cluster, inventory: Inventory) -> tuple[str, ...]:
    """Give the other namespaces in which the same environment keeps an inventory, as far as one may look."""
    query = (
        f"{kube_object.selector(app=inventory.app, environment=inventory.environment)},{applyset.ID_LABEL}"
    )
    try:
        found = cluster.list("v1", "ConfigMap", labels=query, metadata_only=True).items
    except ForbiddenError:
        return ()
    return tuple(sorted({str(item["metadata"]["namespace"]) for item in found} - {inventory.namespace}))


def other_environments(cluster: Cluster, inventory: Inventory) -> tuple[str, ...]:
    """Give other environments of the app with an inventory in the same namespace, as labels name them."""
    query = f"{kube_object.APP_LABEL}={inventory.app},{applyset.ID_LABEL}"
    try:
        found = cluster.list(
            "v1", "ConfigMap", namespace=inventory.namespace, labels=query, metadata_only=True
        ).items
    except ForbiddenError:
        return ()
    names = {str(item["metadata"]["labels"].get(kube_object.ENVIRONMENT_LABEL, "")) for item in found}
    return tuple(sorted(names - {kube_object.label_of(inventory.environment)}))


def _rebuilt(cluster: Cluster, empty: Inventory, why: str) -> Inventory:
    members, notes = members_by_labels(cluster, empty)
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
    parent, parts = stored.encode(new, version=mlstack.__version__, kinds=kinds)
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


def grow(
    cluster: Cluster, inventory: Inventory, changes: Sequence[Change], *, on_event: OnEvent = silent
) -> Inventory:
    """Keep the union of an inventory and what a run is about to write; comes before its first write.

    Raises:
        ConflictError: somebody else changed it since it was read.
    """
    with _record(inventory).explained(cluster, so="nothing was written"):
        return write(cluster, inventory, membership.grown(inventory, changes), on_event=on_event)


def shrink(
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
    made = membership.shrunk(inventory, changes, written=run.written, gone=gone | set(forgotten))
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
            now = load(cluster, app=new.app, environment=new.environment, namespace=new.namespace)
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
        return cluster.apply(document, manager=applyset.APPLYSET_MANAGER)
    except ConflictError as error:
        if not error.conflicts:
            raise
        who = ", ".join(f"`{name}`" for name in error.managers)
        text = f"`{ObjectRef.of(document)}` was changed by {who}: set right again"
        on_event(RunEvent("warning", None, text))
        return cluster.apply(document, manager=applyset.APPLYSET_MANAGER, force=True)


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
