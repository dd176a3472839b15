"""The inventory of an environment in its cluster: read, grown, shrunk, and found by labels if it is lost."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import inf
from typing import Any

import mlstack
from mlstack.clock import Clock
from mlstack.deploy import inventory as values
from mlstack.deploy.changes import Change
from mlstack.deploy.inventory import APPLYSET_MANAGER, ID_LABEL, PART_LABEL, Inventory, Member
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
from mlstack.kube.client import Applied, Cluster, GuardedClient, ObjectRef, Patience
from mlstack.objects import kube_object
from mlstack.objects.kube_object import Identity, Kind, KubeObject

Live = Mapping[str, Any]

_ATTEMPTS = 20  # a server that refuses one write of two is asked about that often once in a million runs
_READS = 3  # a reader may meet a writer that has just put other parts in place of those that were named


# --- load ---


def load(cluster: Cluster, *, app: str, environment: str, namespace: str) -> Inventory:
    """Read the inventory of an environment; one without a version if there is none.

    A damaged one is rebuilt from the marks on the objects, and its notes say so.

    Raises:
        ClusterError: the ConfigMap of its name is another tool's or another environment's.
    """
    empty = Inventory(app=app, environment=environment, namespace=namespace)
    ref, parent = _ref(empty, empty.name), dict[str, Any]()
    for _ in range(_READS):
        live = cluster.get(ref)
        if live is None:
            return empty
        parent = live
        values.check_parent(parent, empty.id)
        if not values.belongs_to(parent, app=app, environment=environment):
            raise ClusterError(
                f"`{ref}` is the inventory of another app or environment",
                hint="give one of the two apps another name or namespace",
            )
        names = values.part_names(parent)
        parts = [part for name in names if (part := cluster.get(_ref(empty, name))) is not None]
        if len(parts) == len(names):
            break
    metadata = parent["metadata"]
    inventory = replace(empty, version=metadata["resourceVersion"], uid=metadata["uid"], parts=names)
    try:
        if len(parts) < len(names):
            raise values.DamagedInventoryError("a part of it is missing")
        return replace(inventory, members=values.decode(parent, parts))
    except values.NewerError as newer:
        raise ClusterError(
            f"the inventory `{ref}` was written by a newer mlstack (format {newer})",
            hint="use that version, or a later one",
        ) from newer
    except values.DamagedInventoryError as fault:
        return find_by_labels(cluster, inventory, why=f"the inventory `{ref}` is damaged ({fault})")


def load_or_find(cluster: Cluster, *, app: str, environment: str, namespace: str) -> Inventory:
    """Read the inventory of an environment; where there is none, find its objects by their marks."""
    inventory = load(cluster, app=app, environment=environment, namespace=namespace)
    return inventory if inventory.exists else find_by_labels(cluster, inventory)


def has_moved(cluster: Cluster, inventory: Inventory) -> bool:
    """Tell whether somebody wrote the inventory since it was read."""
    live = cluster.get(_ref(inventory, inventory.name))
    metadata = live["metadata"] if live is not None else {}
    now = (str(metadata.get("uid") or ""), str(metadata.get("resourceVersion") or ""))
    return now != (inventory.uid, inventory.version)


def other_namespaces(cluster: Cluster, inventory: Inventory) -> tuple[str, ...]:
    """Give the other namespaces in which the same environment keeps an inventory, as far as one may look."""
    labels = kube_object.selector(app=inventory.app, environment=inventory.environment)
    items = _inventories(cluster, labels, namespace=None)
    return tuple(sorted({str(item["metadata"]["namespace"]) for item in items} - {inventory.namespace}))


def other_environments(cluster: Cluster, inventory: Inventory) -> tuple[str, ...]:
    """Give other environments of the app with an inventory in the same namespace, as labels name them."""
    items = _inventories(cluster, f"{kube_object.APP_LABEL}={inventory.app}", namespace=inventory.namespace)
    names = {str(item["metadata"]["labels"].get(kube_object.ENVIRONMENT_LABEL, "")) for item in items}
    return tuple(sorted(names - {kube_object.label_of(inventory.environment)}))


def _inventories(cluster: Cluster, labels: str, *, namespace: str | None) -> Sequence[Live]:
    labels = f"{labels},{ID_LABEL}"
    try:
        return cluster.list("v1", "ConfigMap", namespace=namespace, labels=labels, metadata_only=True).items
    except ForbiddenError:
        return ()


def _ref(inventory: Inventory, name: str) -> ObjectRef:
    return ObjectRef("v1", "ConfigMap", inventory.namespace, name)


# --- write ---


def grow(
    cluster: Cluster, inventory: Inventory, changes: Sequence[Change], *, on_event: OnEvent = silent
) -> Inventory:
    """Keep the union of an inventory and what a run is about to write; comes before its first write.

    Raises:
        ConflictError: somebody else changed it since it was read.
    """
    with explained(cluster, inventory, so="nothing was written"):
        return write(cluster, inventory, values.grown(inventory, changes), on_event=on_event)


def shrink(
    cluster: Cluster,
    inventory: Inventory,
    changes: Sequence[Change],
    *,
    written: Mapping[Identity, Live],
    gone: Collection[Identity],
    on_event: OnEvent = silent,
) -> Inventory:
    """Keep what a run did, however far it came: hashes of what was written, less what is known to be gone.

    `inventory` is as it was grown, `gone` are members that are not there any more, or are another's. For a
    run that failed, `cluster` is one that waits for no webhook.

    Raises:
        ConflictError: somebody else changed it since it was written.
    """
    left = values.shrunk(inventory, changes, written=written, gone=gone)
    has_new_kinds = any(key.kind == "CustomResourceDefinition" for key in (*written, *gone))
    with explained(cluster, inventory, so="all the rest of this run is done"):
        return write(cluster, inventory, left, on_event=on_event, refresh=has_new_kinds)


def needs_writing(old: Inventory, new: Inventory) -> bool:
    """Tell whether the cluster does not hold an inventory as it should be."""
    if not old.exists:
        return bool(new.members)
    return dict(old.members) != dict(new.members) or bool(old.notes)


def write(
    cluster: Cluster, old: Inventory, new: Inventory, *, on_event: OnEvent = silent, refresh: bool = False
) -> Inventory:
    """Keep an inventory in the cluster; nothing is sent if it holds what the old one held.

    `old` is as it was read or written last; `on_event` is told when another tool's hold on a field had to be
    broken; `refresh` asks for the kinds of the server anew, as definitions have come or gone. Gives the new
    one with the version it has now.

    Raises:
        ConflictError: somebody else changed it since it was read.
    """
    if not needs_writing(old, new):
        return replace(new, version=old.version, uid=old.uid, parts=old.parts)
    parent, parts = values.encode(new, version=mlstack.__version__, kinds=cluster.kinds(refresh=refresh))
    for part in parts:
        _apply(cluster, part, on_event)
    live = _write_parent(cluster, old, new, parent, on_event)["metadata"]
    names = tuple(str(part["metadata"]["name"]) for part in parts)
    if old.parts or names:
        _delete_parts(cluster, new, keep=names)
    return replace(new, version=live["resourceVersion"], uid=live["uid"], parts=names, notes=())


def _write_parent(
    cluster: Cluster, old: Inventory, new: Inventory, parent: dict[str, Any], on_event: OnEvent
) -> Live:
    """Write the parent; see through refusals that mean nothing, as when an answer of the server was lost."""
    for attempt in range(_ATTEMPTS):
        read = {"uid": old.uid, "resourceVersion": old.version} if old.exists else {}
        try:
            return _apply(cluster, {**parent, "metadata": {**parent["metadata"], **read}}, on_event).object
        except ConflictError:
            now = load(cluster, app=new.app, environment=new.environment, namespace=new.namespace)
            if now.exists and now.members == new.members:
                return {"metadata": {"uid": now.uid, "resourceVersion": now.version}}
            if attempt + 1 == _ATTEMPTS or now.exists != old.exists or now.members != old.members:
                raise
            old = now
    raise AssertionError("the last attempt returns or raises")


def _apply(cluster: Cluster, document: Live, on_event: OnEvent) -> Applied:
    """Write, and take fields that others have laid hold on: the inventory has one owner."""
    try:
        return cluster.apply(document, manager=APPLYSET_MANAGER)
    except ConflictError as error:
        if not error.conflicts:
            raise
        managers = ", ".join(f"`{name}`" for name in error.managers)
        text = f"`{ObjectRef.of(document)}` was changed by {managers}: set right again"
        on_event(RunEvent("warning", None, text))
        return cluster.apply(document, manager=APPLYSET_MANAGER, force=True)


def remove(cluster: Cluster, inventory: Inventory) -> None:
    """Take an inventory out of the cluster, unless it still lists something.

    Raises:
        ConflictError: somebody else changed it since it was read.
    """
    if inventory.members or not inventory.exists:
        return
    ref = _ref(inventory, inventory.name)
    with suppress(ObjectNotFoundError):
        cluster.delete(ref, propagation="Background", uid=inventory.uid, resource_version=inventory.version)
    _delete_parts(cluster, inventory, keep=())


def _delete_parts(cluster: Cluster, inventory: Inventory, *, keep: Sequence[str]) -> None:
    """Delete parts that no parent names, those of killed runs included."""
    namespace = inventory.namespace
    parts = cluster.list("v1", "ConfigMap", namespace=namespace, labels=PART_LABEL, metadata_only=True)
    for name in [str(item["metadata"]["name"]) for item in parts.items]:
        if name.startswith(f"{inventory.name}.i") and name not in keep:
            with suppress(ObjectNotFoundError):
                cluster.delete(_ref(inventory, name), propagation="Background")


# --- lookup: which members are there now, by as few requests as will do ---


Lookup = tuple[tuple[Member, ...], Mapping[Identity, Live], frozenset[Identity]]


def lookup(cluster: Cluster, members: Iterable[Member]) -> Lookup:
    """Look for members; a kind that the server has no more, or in another scope, has no such objects.

    Gives the members, each in an API version that the server has; those objects that are there, of which
    metadata alone is sure to be known; and those whose kind the server cannot answer for now.

    Raises:
        ClusterError: a member could not be asked for.
    """
    kinds, asked = cluster.kinds(), list[Member]()
    for member in members:
        key = member.identity
        same = kinds.lookup(member.api_version, key.kind)
        others = (kind for kind in kinds.of_group(key.group) if kind.kind == key.kind)
        in_scope = (kind for kind in ([same] if same else others) if kind.namespaced == bool(key.namespace))
        asked.append(replace(member, api_version=next((kind.api_version for kind in in_scope), "")))
    live = _fetch_live(cluster, [member for member in asked if member.api_version])
    unserved = [member for member in asked if not member.api_version]
    return tuple(asked), live, _hidden(cluster, unserved)


def _fetch_live(cluster: Cluster, members: Sequence[Member]) -> dict[Identity, Live]:
    groups: dict[tuple[str, str, str], list[Member]] = {}
    for member in members:
        identity = member.identity
        groups.setdefault((member.api_version, identity.kind, identity.namespace), []).append(member)
    tasks = [
        task
        for group in groups.values()
        for task in ([group] if len(group) >= parallel.LIST_FROM else [[member] for member in group])
    ]

    def fetch(task: list[Member]) -> Sequence[Live]:
        version, key = task[0].api_version, task[0].identity
        if len(task) > 1:
            try:
                namespace = key.namespace or None
                return cluster.list(version, key.kind, namespace=namespace, metadata_only=True).items
            except ObjectNotFoundError:
                return ()
            except ForbiddenError:  # who may not list may still ask for each
                pass
        return [live for member in task if (live := cluster.get(ref_of(member))) is not None]

    identities = {ref_of(member): member.identity for member in members}
    lives = [live for result in parallel.whole(parallel.run(fetch, tasks)) for live in result]
    return {identities[ref]: live for live in lives if (ref := ObjectRef.of(live)) in identities}


def _hidden(cluster: Cluster, unserved: Sequence[Member]) -> frozenset[Identity]:
    """Give those of a group that another server answers for: it may only be down."""
    if not unserved:
        return frozenset()
    try:
        services = cluster.list("apiregistration.k8s.io/v1", "APIService").items
    except (ObjectNotFoundError, ForbiddenError):
        return frozenset()
    specs = (item.get("spec") or {} for item in services)
    groups = {spec.get("group") for spec in specs if spec.get("service")}
    return frozenset(member.identity for member in unserved if member.identity.group in groups)


def ref_of(subject: Member | Change) -> ObjectRef:
    """Give the address of a member, or of a change's object."""
    identity = subject.identity
    return ObjectRef(subject.api_version, identity.kind, identity.namespace, identity.name)


# --- by labels, over every kind there is: a repair, not the rule ---

# Kinds that no app brings, or whose objects only controllers write; some of them there are very many of.
_LEFT_OUT = frozenset(
    {("", "Event"), ("events.k8s.io", "Event"), ("", "Node"), ("discovery.k8s.io", "EndpointSlice")}
)
_NAMED = 8  # kinds that a note names; who has one namespace may list hardly any


def find_by_labels(cluster: Cluster, missing: Inventory, *, why: str = "there is no inventory") -> Inventory:
    """Give an inventory that is lost as the marks on the objects tell it; its notes say `why` it was lost.

    Raises:
        ClusterError: the cluster cannot be asked.
    """
    members, notes = members_by_labels(cluster, missing)
    if members or missing.exists:
        count = f"{len(members)} object{'s' * (len(members) != 1)}"
        notes = (f"{why}: {count} found by their labels", *notes)
    return replace(missing.with_members(members), notes=notes)


def members_by_labels(cluster: Cluster, inventory: Inventory) -> tuple[tuple[Member, ...], tuple[str, ...]]:
    """Give the members that carry our marks and are ours by their field manager, and what could not be seen.

    Marks alone do not make a member: controllers copy labels to what they make (a Service's to its
    Endpoints). Objects of a set with another ID belong to the same environment in another namespace.
    """
    items, notes = labelled_objects(cluster, inventory)
    members = [member_of(item) for item in items if is_ours(item, inventory)]
    return tuple({member.identity: member for member in members}.values()), notes


def labelled_objects(cluster: Cluster, inventory: Inventory) -> tuple[tuple[Live, ...], tuple[str, ...]]:
    """Give the metadata of every object with our marks, whoever set them, and what could not be seen."""
    query = kube_object.selector(app=inventory.app, environment=inventory.environment)
    labels = f"{query},{kube_object.COMPONENT_LABEL}"

    def fetch(kind: Kind) -> Sequence[Live]:
        address = kind.api_version, kind.kind
        try:
            return cluster.list(*address, labels=labels, metadata_only=True).items
        except ForbiddenError:
            if not kind.namespaced:
                raise
        # Who may not look everywhere may still look here.
        return cluster.list(*address, namespace=inventory.namespace, labels=labels, metadata_only=True).items

    items, unseen = _fetch_kinds(cluster.kinds(), fetch)
    return items, (f"{unseen}: such objects may be missed",) if unseen else ()


def namespace_contents(cluster: Cluster, namespace: str) -> tuple[tuple[Live, ...], str]:
    """Give the metadata of all that a namespace holds but Events and Leases, and what may not be listed."""

    def fetch(kind: Kind) -> Sequence[Live]:
        return cluster.list(kind.api_version, kind.kind, namespace=namespace, metadata_only=True).items

    kinds = (kind for kind in cluster.kinds() if kind.namespaced and kind.kind != "Lease")
    return _fetch_kinds(kinds, fetch)


def _fetch_kinds(
    kinds: Iterable[Kind], fetch: Callable[[Kind], Sequence[Live]]
) -> tuple[tuple[Live, ...], str]:
    """Give the objects of many kinds, each in one version, and which kinds may not be listed."""
    named: dict[tuple[str, str], Kind] = {}
    for kind in kinds:
        if (kind.group, kind.kind) not in _LEFT_OUT:
            named.setdefault((kind.group, kind.kind), kind)
    asked, objects, unseen = list(named.values()), dict[str, Live](), list[str]()
    for kind, items in zip(asked, parallel.run(fetch, asked), strict=True):
        if isinstance(items, ForbiddenError):
            unseen.append(kind.kind)
        elif isinstance(items, MlstackError):
            if not isinstance(items, ObjectNotFoundError | InvalidError):
                raise items
        else:
            for item in items:  # an object may be served by two groups; what is only computed has no UID
                if item["metadata"].get("uid"):
                    objects.setdefault(item["metadata"]["uid"], item)
    more = f" and {len(unseen) - _NAMED} more kinds" if len(unseen) > _NAMED else ""
    names = ", ".join(sorted(unseen)[:_NAMED])
    return tuple(objects.values()), f"no right to list {names}{more}" if unseen else ""


def is_ours(live: Live, inventory: Inventory) -> bool:
    """Tell whether an object was applied by us, for this environment."""
    owners = live["metadata"].get("ownerReferences")
    return not owners and values.is_applied_by_us(live) and not values.other_owner_of(live, inventory)


def member_of(live: Live) -> Member:
    """Give a live object as a member."""
    obj, uid = KubeObject(data=live), str(live["metadata"]["uid"])
    component = str(obj.labels.get(kube_object.COMPONENT_LABEL, ""))
    return Member(identity=obj.identity, api_version=obj.api_version, component=component, uid=uid)


# --- webhooks and policies before what is kept of an environment: waited for, and named when they refuse ---

WEBHOOK_S = 120.0
"""How long a webhook is waited for: it starts as its pod does, with an image to be pulled."""

_API = "admissionregistration.k8s.io/v1"
_KINDS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
_WEBHOOK = re.compile(r'admission webhook [`"]([^`"]+)[`"](?: denied the request)?:? ?')
_EXEMPT = f"let it pass what has the label {kube_object.MANAGED_BY_LABEL}={kube_object.MANAGER}"


def patient(cluster: Cluster, *, clock: Clock, on_event: OnEvent, timeout_s: float = inf) -> Cluster:
    """Give a cluster whose webhooks are waited for while they start, as with any other object."""
    patience = Patience(
        clock,
        lambda text: on_event(RunEvent("waiting", None, text)),
        answered=True,
        webhook_s=WEBHOOK_S,
        timeout_s=timeout_s,
        remind=lambda text: on_event(RunEvent("still", None, text)),
    )
    return GuardedClient(cluster, patience=patience)


@contextmanager
def explained(
    cluster: Cluster, inventory: Inventory, *, so: str, what: str = "inventory", kind: str = "ConfigMap"
) -> Iterator[None]:
    """Say plainly that what mlstack keeps was refused, by which webhook, and what to do.

    `what` is kept in an object of this kind, under the name of the inventory; `so` says what follows from it
    for the run.

    Raises:
        ClusterError: what was raised inside, in better words.
    """
    try:
        yield
    except (ForbiddenError, InvalidError, TransientError) as error:
        webhook = _WEBHOOK.search(error.message)
        is_policy = isinstance(error, ForbiddenError) and error.why == "policy"
        if webhook is None and not is_policy and "ValidatingAdmissionPolicy" not in error.message:
            raise
        ref = f"{kind} {inventory.namespace}/{inventory.name}"
        text = error.message.removeprefix(f"`{ref}`: ").removeprefix(f"`{ref}` is refused: ")
        who, hint = "a policy of the cluster", f"{_EXEMPT}, then run the command again"
        if webhook is not None:
            configuration = _configuration(cluster, webhook[1])
            named = configuration and f" ({configuration['kind']} `{configuration['metadata']['name']}`)"
            who = f"admission webhook `{webhook[1]}`{named or ''}"
            hint = _hint(error, configuration, inventory)
            text = text.replace(webhook[0], "", 1)
        is_silent = isinstance(error, TransientError)
        why = f"cannot be written: {who} {text}" if is_silent else f"is refused by {who}: {text}"
        error.message = f"the {what} of environment `{inventory.environment}`, `{ref}`, {why}; {so}"
        error.hint, error.args = hint, (error.message,)
        raise


def _configuration(cluster: Cluster, webhook: str) -> Live | None:
    """Give the configuration of a webhook, None if nobody may look."""
    with suppress(ClusterError):
        for kind in _KINDS:
            for configuration in cluster.list(_API, kind).items:
                if any(entry.get("name") == webhook for entry in configuration.get("webhooks") or ()):
                    return configuration
    return None


def _hint(error: ClusterError, configuration: Live | None, inventory: Inventory) -> str:
    exempt, is_silent = f"{_EXEMPT} (objectSelector)", isinstance(error, TransientError)
    if is_silent and configuration is None:
        return f"see that the service behind the webhook runs, or {exempt}, then run the command again"
    app, environment = inventory.app, inventory.environment
    if configuration is None or not values.belongs_to(configuration, app=app, environment=environment):
        wait = "wait until its service runs, or " if is_silent else ""
        return f"{wait}{exempt}, then run the command again"
    name = f"{configuration['kind'].lower()} {configuration['metadata']['name']}"
    return (
        f"it is a webhook of this environment: {exempt}; to get on now, take it away:"
        f" kubectl delete {name}; the next apply sets it up again"
    )
