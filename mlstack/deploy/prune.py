"""What an environment has in its cluster and is to go: what the files no longer bring, or all of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from mlstack.dataclass import Record, dataclass
from mlstack.deploy.changes import Change
from mlstack.deploy.inventory import (
    Inventory,
    Live,
    Member,
    is_applied_by_us,
    list_visible,
    load_inventory,
    other_owner_of,
    ref_of,
)
from mlstack.deploy.live import placed
from mlstack.deploy.target import ResolvedTarget
from mlstack.deploy.wait import obstacles
from mlstack.errors import ForbiddenError, InvalidError, MlstackError, ObjectNotFoundError, UsageError
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.names import listed
from mlstack.objects import kube_object
from mlstack.objects.kube_object import DesiredState, Identity, Kind, KubeObject, kinds_of_crd
from mlstack.objects.order import last_first

# Annotations that keep an object when what brought it goes, ours and those of kindred tools.
KEEP_ANNOTATIONS: Mapping[str, frozenset[str]] = {
    "mlstack.dev/prune": frozenset({"false", "disabled"}),
    "helm.sh/resource-policy": frozenset({"keep"}),
    "client.lifecycle.config.k8s.io/deletion": frozenset({"detach"}),
    "cli-utils.sigs.k8s.io/on-remove": frozenset({"keep"}),
    "kustomize.toolkit.fluxcd.io/prune": frozenset({"disabled"}),
    "kapp.k14s.io/delete-strategy": frozenset({"orphan"}),
}

LARGE = 4
"""From so many deletions on, more than half of all members looks like a mistake; small sets change often."""

_SPARED = (  # option, group and kind, and why such objects are kept
    (
        "definitions",
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        "definitions are kept: deleting one deletes its objects in every namespace (delete --crds)",
    ),
    (
        "namespaces",
        ("", "Namespace"),
        "namespaces are kept: deleting one deletes everything in it (delete --namespaces)",
    ),
    (
        "claims",
        ("", "PersistentVolumeClaim"),
        "volume claims are kept: deleting one deletes its data (delete --claims)",
    ),
)


class KeepOptions(Record):
    """What is kept because deleting it takes data or other people's things along."""

    definitions: bool = True
    namespaces: bool = True
    claims: bool = True
    foreign: bool = True  # what a namespace that goes holds of others, and what annotations keep in it

    def reason(self, identity: Identity) -> str:
        """Say why an object is kept, nothing if it is not."""
        kind = (identity.group, identity.kind)
        return next((why for option, spared, why in _SPARED if getattr(self, option) and kind == spared), "")


def is_claim(identity: Identity) -> bool:
    """Tell whether an object is a claim of a volume: it holds data."""
    return (identity.group, identity.kind) == ("", "PersistentVolumeClaim")


@dataclass(frozen=True)
class PruneVerdict:
    """What becomes of one member that nothing brings any more, and why it is another's or stays."""

    fate: Literal["gone", "foreign", "kept", "delete"]  # `foreign`: there and another's
    reason: str = ""


Verdicts = Mapping[Identity, PruneVerdict]
_HIDDEN = PruneVerdict("kept", "its API does not answer at present")


def _verdict(member: Member, live: Live | None, inventory: Inventory, spare: KeepOptions) -> PruneVerdict:
    """Say what becomes of a member: it goes if it has our marks, and is what we wrote or applied since."""
    if live is None:
        return PruneVerdict("gone")
    metadata = live["metadata"]
    foreign = other_owner_of(live, inventory)
    if not foreign and metadata.get("uid") != member.uid and not is_applied_by_us(live):
        foreign = "was made anew by somebody else"
    if foreign:
        return PruneVerdict("foreign", foreign)
    owners, annotations = metadata.get("ownerReferences") or (), metadata.get("annotations") or {}
    owned = f"is owned by {owners[0].get('kind')} `{owners[0].get('name')}`" if owners else ""
    values = {name: str(annotations.get(name, "")).strip() for name in KEEP_ANNOTATIONS}
    reasons = (
        f"is kept: annotation `{name}: {value}`"
        for name, value in values.items()
        if value.lower() in KEEP_ANNOTATIONS[name]
    )
    kept = owned or spare.reason(member.identity) or next(reasons, "")
    return PruneVerdict("kept", kept) if kept else PruneVerdict("delete")


def _deletion(member: Member, verdict: PruneVerdict, live: Live | None, reason: str) -> Change:
    goes = verdict.fate == "delete"
    return Change(
        identity=member.identity,
        component=member.component,
        api_version=member.api_version,
        action="delete" if goes else "kept",
        reason=verdict.reason or reason,
        live_uid=str(live["metadata"]["uid"]) if live is not None else "",
        writes=goes,
        live=KubeObject(data=live, component=member.component) if live is not None else None,
    )


class PruneSet(Record):
    """What becomes of members that are to go."""

    changes: tuple[Change, ...] = ()  # a deletion each, or `kept` with the reason; in the order of execution
    forgotten: frozenset[Identity] = frozenset()  # not there any more, or another's: they leave the inventory
    moved: frozenset[Identity] = frozenset()  # another component brings them now, or may: they stay
    notes: tuple[str, ...] = ()
    of: int = 0  # how many members were looked through

    @property
    def warning(self) -> str:
        """Say how much would go where that looks like a mistake."""
        going = sum(change.action == "delete" for change in self.changes)
        is_too_much = going >= LARGE and going * 2 > self.of
        text = f"{going} of {self.of} deployed objects would be deleted: more than half"
        return text if is_too_much else ""


# --- candidates: what the files no longer bring ---


def candidates(resolved: ResolvedTarget, inventory: Inventory, changes: Sequence[Change]) -> PruneSet:
    """Find the members of an inventory that the files no longer bring, and say what becomes of each.

    With selected components only theirs are looked at; what another component brings now has moved and stays.
    """
    selected = resolved.state.known_as
    members = inventory.of_components(selected) if resolved.selective else inventory.ordered()
    desired = [change for change in changes if change.desired is not None]
    brought, uids = {change.identity for change in desired}, {change.live_uid for change in desired} - {""}
    unbrought = [member for member in members if member.identity not in brought]
    if not unbrought:
        return PruneSet(of=len(members))
    elsewhere, doubt = _brought_elsewhere(resolved) if resolved.selective else (frozenset[Identity](), "")
    moved = {member.identity for member in unbrought} & elsewhere
    served, lives, hidden = lookup(resolved.cluster, [m for m in unbrought if m.identity not in moved])
    verdicts, deletions = dict[Identity, PruneVerdict](), dict[Identity, Change]()
    for member in served:
        key, live = member.identity, lives.get(member.identity)
        verdict = _HIDDEN if key in hidden else _verdict(member, live, inventory, KeepOptions())
        if live is not None and live["metadata"].get("uid") in uids:
            verdict = PruneVerdict("gone")  # the files bring it under another API group
        elif verdict.fate == "delete" and doubt:
            verdict = PruneVerdict("kept", doubt)
            moved.add(key)
        verdicts[key] = verdict
        if verdict.fate in ("kept", "delete"):
            deletions[key] = _deletion(member, verdict, live, _why(member, live))
    order = last_first([change.subject for change in deletions.values()])
    return PruneSet(
        changes=tuple(deletions[key] for key in order),
        forgotten=_forgotten(verdicts),
        moved=frozenset(moved),
        notes=_left_alone(verdicts),
        of=len(members),
    )


def _why(member: Member, live: Live | None) -> str:
    why = f"component `{member.component}` no longer brings it"
    if live is None or not live["metadata"].get("deletionTimestamp"):
        return why
    held = obstacles(live)
    return f"{why}; it is being deleted already{f', and {held}' if held else ''}"


def _brought_elsewhere(resolved: ResolvedTarget) -> tuple[frozenset[Identity], str]:
    """Give what all components of the environment bring, or why that cannot be said."""
    try:
        whole = resolved.whole or replace(resolved.target, components=()).desired()
    except MlstackError as error:
        return frozenset(), f"may have moved to a component that cannot be rendered: {error.message}"
    return frozenset(obj.identity for obj in whole.objects), ""


def _left_alone(verdicts: Verdicts) -> tuple[str, ...]:
    items = sorted(verdicts.items(), key=lambda item: str(item[0]))
    return tuple(f"{key} is left alone: it {it.reason}" for key, it in items if it.fate == "foreign")


def _forgotten(verdicts: Verdicts) -> frozenset[Identity]:
    return frozenset(key for key, verdict in verdicts.items() if verdict.fate in ("gone", "foreign"))


# --- everything, by the inventory, the marks and the files ---


def members_to_delete(resolved: ResolvedTarget, inventory: Inventory) -> tuple[Member, ...]:
    """Give the members that a delete is about: all, or those of the selected components and modules."""
    if resolved.selective:
        names = {*resolved.state.known_as, *resolved.target.components}
        heads = tuple(f"{name}." for name in resolved.target.components)
        return tuple(
            member
            for member in inventory.ordered()
            if member.component in names or member.component.startswith(heads)
        )
    if not inventory.exists:  # rebuilt by the marks just now
        return inventory.ordered()
    labelled, _ = members_by_labels(resolved.cluster, inventory)
    new = [member for member in labelled if member.identity not in inventory.members]
    return inventory.with_members(new).ordered()


def everything(
    resolved: ResolvedTarget, inventory: Inventory, members: Sequence[Member], *, spare: KeepOptions
) -> PruneSet:
    """Say what becomes of all members that are to go, and of what the files bring; nothing is written.

    Objects of the files that do not carry our marks are left alone: other people may depend on them.

    Raises:
        UsageError: a namespace that is to go would take along what is not.
        ClusterError: the cluster cannot be asked.
    """
    state, cluster = resolved.state, resolved.cluster
    in_files = [  # they may be there, ours or another's
        Member(identity=obj.identity, api_version=obj.api_version, component=obj.component)
        for obj in placed(state.objects, cluster)
        if obj.identity not in inventory.members
    ]
    asked = [*members, *in_files]
    if not spare.namespaces and not resolved.selective:  # made before everything else, by no component
        namespace = Identity("", "Namespace", "", resolved.place.namespace)
        asked.append(Member(identity=namespace, api_version="v1"))
    served, lives, hidden = lookup(cluster, asked)
    verdicts = {m.identity: _verdict(m, lives.get(m.identity), inventory, spare) for m in served}
    verdicts |= dict.fromkeys(hidden, _HIDDEN)
    deleted = (key for key, verdict in verdicts.items() if verdict.fate == "delete")
    namespaces = frozenset(key.name for key in deleted if (key.group, key.kind) == ("", "Namespace"))
    for key, verdict in verdicts.items():  # what is kept goes, where it may, with a namespace that goes
        in_namespace = key.namespace in namespaces and verdict.fate == "kept" and key in lives
        if in_namespace and not spare.foreign and not is_claim(key):
            verdicts[key] = PruneVerdict("delete", f"goes with namespace `{key.namespace}`")
    taken = refuse_along(cluster, inventory, verdicts, namespaces, spare)
    judged = {member.identity: verdicts.get(member.identity, _HIDDEN) for member in in_files}
    foreign = {key for key, verdict in judged.items() if verdict.fate == "foreign"}
    changes = _deletions(resolved, [m for m in served if m.identity not in foreign], lives, verdicts)
    going = [change.live for change in changes if change.action == "delete" and change.live is not None]
    return PruneSet(
        changes=changes,
        forgotten=_forgotten(verdicts) & inventory.members.keys(),
        notes=(*_left_alone(judged), *taken_along(going, cluster), *retained(going, cluster), *taken),
    )


def _deletions(
    resolved: ResolvedTarget, members: Sequence[Member], lives: Mapping[Identity, Live], verdicts: Verdicts
) -> tuple[Change, ...]:
    going = [member for member in members if verdicts[member.identity].fate == "delete"]
    # Whole objects are read: what they hold says what they need and what goes with them.
    results = parallel.run(lambda member: resolved.cluster.get(ref_of(member)), going)
    answers = zip(going, results, strict=True)
    whole = {member.identity: live for member, live in answers if not isinstance(live, MlstackError)}
    lives = {**lives, **{key: live for key, live in whole.items() if live is not None}}
    brought = {obj.identity for obj in resolved.state.objects}
    deletions = {}
    for member in members:
        key, verdict = member.identity, verdicts[member.identity]
        if verdict.fate != "gone":
            obsolete = "the files no longer bring it" if brought and key not in brought else ""
            deletions[key] = _deletion(member, verdict, lives.get(key), obsolete)
    subjects = [change.subject for change in deletions.values()]
    return tuple(deletions[key] for key in last_first(subjects, resolved.state.depends))


# --- retained: what outlives a deletion, because a controller made it and people's work may be in it ---

# The hub marks what its users start: see `common_labels` in its configuration.
_HUB_FILE = "jupyterhub_config.py"
_HUB_LABELS = "app=jupyterhub"

# More names than these are counted, not listed; of what is lost people want to know more.
_NAMED = 5
_LOST = 50


def retained(going: Sequence[KubeObject], cluster: Cluster) -> Iterator[str]:
    """Name what stays when these objects go: notebooks and homes of a hub, claims of a StatefulSet."""
    for deleted in going:
        namespace, data = deleted.namespace, deleted.data
        if deleted.kind == "ConfigMap" and _HUB_FILE in (data.get("data") or {}):
            for kind in ("Pod", "PersistentVolumeClaim"):
                items = [
                    item
                    for item in list_visible(cluster, kind, namespace=namespace, labels=_HUB_LABELS)
                    if kube_object.APP_LABEL not in (item["metadata"].get("labels") or {})
                ]
                if items:
                    yield f"{_named(kind, items)} of the hub's users in namespace `{namespace}` will stay"
        if (deleted.group, deleted.kind) == ("apps", "StatefulSet"):
            templates = (data.get("spec") or {}).get("volumeClaimTemplates") or ()
            heads = tuple(f"{template['metadata']['name']}-{deleted.name}-" for template in templates)
            kind = "PersistentVolumeClaim"
            claims = list_visible(cluster, kind, namespace=namespace, labels="") if heads else ()
            claims = [claim for claim in claims if claim["metadata"]["name"].startswith(heads)]
            if claims:
                yield f"{_named(kind, claims)} of `{deleted.identity}` will stay"


def _named(kind: str, items: Sequence[Live]) -> str:
    return f"{kind} {listed([f'`{KubeObject(data=item).name}`' for item in items], _NAMED)}"


# --- taken along: what goes although nobody asked for it ---

# Controllers put these into every namespace.
_OF_EVERY_NAMESPACE = frozenset(
    {
        ("", "ServiceAccount", "default"),
        ("", "ConfigMap", "kube-root-ca.crt"),
        ("", "ConfigMap", "openshift-service-ca.crt"),
        ("", "ConfigMap", "istio-ca-root-cert"),
    }
)
_ACCOUNT = "kubernetes.io/service-account.name"


def taken_along(going: Sequence[KubeObject], cluster: Cluster) -> Iterator[str]:
    """Name the objects that go with definitions although nobody asked for it, in all namespaces."""
    asked = {deleted.identity for deleted in going}
    for definition in going:
        kinds = kinds_of_crd(definition.data)
        if not kinds:
            continue
        served = kinds[-1]
        try:
            items = cluster.list(served.api_version, served.kind, metadata_only=True).items
        except ObjectNotFoundError:
            continue
        objects = [obj for item in items if (obj := KubeObject(data=item)).identity not in asked]
        names = [f"{obj.namespace}/{obj.name}" if obj.namespace else obj.name for obj in objects]
        if names:
            yield (
                f"with definition `{definition.name}` go {len(names)} {served.kind} of all namespaces:"
                f" {listed(names, _LOST)}"
            )


def refuse_along(
    cluster: Cluster,
    inventory: Inventory,
    verdicts: Verdicts,
    namespaces: Collection[str],
    spare: KeepOptions,
) -> tuple[str, ...]:
    """Raise if a namespace that goes would take along what is not to go; else give what is to be said."""
    notes: list[str] = []
    for namespace in sorted(namespaces):
        items, unseen = namespace_contents(cluster, namespace)
        if unseen:
            notes.append(f"{unseen} in namespace `{namespace}`: what others have there goes with it unseen")
        lost = dict(_lost(items, inventory, verdicts))
        kept = {key: why for key, why in lost.items() if (spare.claims if is_claim(key) else spare.foreign)}
        if kept:
            options = {"--claims" if is_claim(key) else "--foreign" for key in kept}
            lines = [f"  {key}: {why}" for key, why in list(kept.items())[:_LOST]]
            lines += [f"  and {len(kept) - _LOST} more"] if len(kept) > _LOST else []
            raise UsageError(
                "\n".join([f"namespace `{namespace}` would take along what is not to be deleted", *lines]),
                hint=f"nothing was deleted; if all of that may go: {' '.join(sorted(options))};"
                " else leave out --namespaces",
            )
        if lost:
            names = listed([str(key) for key in lost], _LOST)
            notes.append(f"with namespace `{namespace}` go {len(lost)} objects besides: {names}")
    return tuple(notes)


def _lost(items: Sequence[Live], inventory: Inventory, verdicts: Verdicts) -> Iterator[tuple[Identity, str]]:
    """Give what nobody asked to delete, with the reason; what belongs to another object goes as that does."""
    uids = {item["metadata"]["uid"] for item in items}
    services = {item["metadata"]["name"] for item in items if item["kind"] == "Service"}
    for item in items:
        key, metadata = KubeObject(data=item).identity, item["metadata"]
        verdict, foreign = verdicts.get(key), other_owner_of(item, inventory)
        if metadata.get("deletionTimestamp") or (verdict is not None and verdict.fate == "delete"):
            continue
        is_owned = any(owner.get("uid") in uids for owner in metadata.get("ownerReferences") or ())
        is_made = (
            (key.group, key.kind, key.name) in _OF_EVERY_NAMESPACE
            or _ACCOUNT in (metadata.get("annotations") or {})
            or (key.kind == "Endpoints" and key.name in services)
        )
        is_record = not foreign and kube_object.COMPONENT_LABEL not in (metadata.get("labels") or {})
        if is_owned or is_made or is_record:
            continue
        member = inventory.members.get(key)
        stays = f"is of component `{member.component}`, which stays" if member else ""
        reason = verdict.reason if verdict else stays
        yield key, reason or foreign or "is not known to the inventory"


# --- lookup: which members are there now, by as few requests as will do, or by their labels ---

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
    if not unserved:
        return frozenset()
    try:
        services = cluster.list("apiregistration.k8s.io/v1", "APIService").items
    except (ObjectNotFoundError, ForbiddenError):
        return frozenset()
    specs = (item.get("spec") or {} for item in services)
    groups = {spec.get("group") for spec in specs if spec.get("service")}
    return frozenset(member.identity for member in unserved if member.identity.group in groups)


# Kinds that no app brings, or whose objects only controllers write; some of them there are very many of.
_LEFT_OUT = frozenset(
    {("", "Event"), ("events.k8s.io", "Event"), ("", "Node"), ("discovery.k8s.io", "EndpointSlice")}
)
_KINDS_NAMED = 8  # kinds that a note names; who has one namespace may list hardly any


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


def load_or_find(cluster: Cluster, state: DesiredState) -> Inventory:
    """Read the inventory of an environment; where there is none, find its objects by their marks."""
    inventory = load_inventory(cluster, state)
    return inventory if inventory.exists else find_by_labels(cluster, inventory)


def members_by_labels(cluster: Cluster, inventory: Inventory) -> tuple[tuple[Member, ...], tuple[str, ...]]:
    """Give members with our marks that are ours by their field manager, and what could not be seen."""
    # Marks alone do not make a member: controllers copy labels to what they make (a Service's to its
    # Endpoints). Objects of a set with another ID belong to the same environment in another namespace.
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
    more = f" and {len(unseen) - _KINDS_NAMED} more kinds" if len(unseen) > _KINDS_NAMED else ""
    names = ", ".join(sorted(unseen)[:_KINDS_NAMED])
    return tuple(objects.values()), f"no right to list {names}{more}" if unseen else ""


def is_ours(live: Live, inventory: Inventory) -> bool:
    """Tell whether an object was applied by us, for this environment."""
    owners = live["metadata"].get("ownerReferences")
    return not owners and is_applied_by_us(live) and not other_owner_of(live, inventory)


def member_of(live: Live) -> Member:
    """Give a live object as a member."""
    obj, uid = KubeObject(data=live), str(live["metadata"]["uid"])
    component = str(obj.labels.get(kube_object.COMPONENT_LABEL, ""))
    return Member(identity=obj.identity, api_version=obj.api_version, component=component, uid=uid)
