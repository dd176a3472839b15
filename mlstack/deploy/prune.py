"""What an environment has in its cluster and the files no longer bring: found, judged, shown as changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlstack.deploy import inventory, inventory_store
from mlstack.deploy import inventory as pruning
from mlstack.deploy.changes import Change, Changes
from mlstack.deploy.inventory import Inventory, KeepOptions, Member, PruneVerdict
from mlstack.deploy.inventory_store import InventoryLookup, Live, lookup, ref_of
from mlstack.deploy.live import placed
from mlstack.deploy.target import Reached, Target, reach
from mlstack.deploy.wait import obstacles
from mlstack.errors import (
    ConfigError,
    ForbiddenError,
    MlstackError,
    NotFoundError,
    ObjectNotFoundError,
    RegistryError,
    UsageError,
)
from mlstack.events import listed
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, Opener
from mlstack.objects import kube_object
from mlstack.objects.kinds import kinds_of_crd
from mlstack.objects.kube_object import DesiredState, Identity, KubeObject
from mlstack.objects.order import last_first

# --- What an environment has in its cluster and the files no longer bring: found, judged, shown as
# changes


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """What becomes of members that nothing brings any more.

    Attributes:
        changes: a deletion each, or `kept` with the reason; in the order of execution.
        forgotten: members that are not there any more, or are another's now: they leave the inventory.
        notes: what is to be said.
        of: how many members were looked through.
    """

    changes: tuple[Change, ...] = ()
    forgotten: frozenset[Identity] = frozenset()
    notes: tuple[str, ...] = ()
    of: int = 0

    @property
    def is_too_much(self) -> bool:
        """Tell whether it looks like a mistake."""
        return pruning.is_too_much(self._going, self.of)

    @property
    def _going(self) -> int:
        return sum(change.action == "delete" for change in self.changes)

    @property
    def warning(self) -> str:
        """Say how much would go."""
        return f"{self._going} of {self.of} deployed objects would be deleted"


def candidates(reached: Reached, inventory: Inventory, changes: Sequence[Change]) -> Pruning:
    """Find the members of an inventory that the files no longer bring, and say what becomes of each.

    With selected components only theirs are looked at; what another component of the environment brings
    now has moved and stays.

    Args:
        reached: what is wanted, and where to look; nothing is written.
        inventory: what was deployed.
        changes: what becomes of what is wanted.

    Raises:
        ClusterError: the cluster cannot say whether a member is there.
    """
    members = _looked_through(reached, inventory)
    brought = {change.identity for change in changes if change.desired is not None}
    spare = [one for one in members if one.identity not in brought]
    if not spare:
        return Pruning(of=len(members))
    elsewhere, doubt = _brought_elsewhere(reached) if reached.selective else (frozenset[Identity](), "")
    seen = lookup(reached.cluster, [one for one in spare if one.identity not in elsewhere])
    uids = {change.live_uid for change in changes if change.desired is not None} - {""}
    verdicts = {one.identity: _verdict(one, seen, inventory, uids, doubt) for one in seen.members}
    named = [_change(one, seen, verdicts[one.identity]) for one in seen.members]
    return Pruning(
        changes=_ordered([change for change in named if change is not None]),
        forgotten=frozenset(key for key, one in verdicts.items() if one.fate in ("gone", "foreign")),
        notes=tuple(f"{key} is left alone: it {one.reason}" for key, one in _foreign(verdicts)),
        of=len(members),
    )


def refuse_too_much(found: Pruning) -> None:
    """Raise if so much would be deleted that the files look wrong.

    Raises:
        UsageError: nothing is done without `--allow-large-prune`.
    """
    if found.is_too_much:
        raise UsageError(
            f"{found.warning}: more than half",
            hint="see `mlstack diff`; if this is meant, --allow-large-prune; to leave them, --no-prune",
        )


def _looked_through(reached: Reached, inventory: Inventory) -> tuple[Member, ...]:
    if not reached.selective:
        return inventory.ordered()
    return inventory.of_components(reached.state.components)


def _brought_elsewhere(reached: Reached) -> tuple[frozenset[Identity], str]:
    """Give what all components of the environment bring, or why that cannot be said."""
    try:
        whole = reached.whole or replace(reached.target, components=()).desired()
    except MlstackError as error:
        return frozenset(), f"may have moved to a component that cannot be rendered: {error.message}"
    return frozenset(one.identity for one in whole.objects), ""


def _verdict(
    member: Member, seen: InventoryLookup, inventory: Inventory, uids: set[str], doubt: str
) -> PruneVerdict:
    if member.identity in seen.hidden:
        return PruneVerdict("kept", "its API does not answer at present")
    live = seen.live.get(member.identity)
    found = pruning.judge(live, member, inventory, spare=KeepOptions())
    if live is not None and live["metadata"].get("uid") in uids:
        return PruneVerdict("gone")  # the files bring it under another API group
    return PruneVerdict("kept", doubt) if found.fate == "delete" and doubt else found


def _change(member: Member, seen: InventoryLookup, verdict: PruneVerdict) -> Change | None:
    if verdict.fate not in ("kept", "delete"):
        return None
    live = seen.live.get(member.identity)
    return Change(
        identity=member.identity,
        component=member.component,
        api_version=member.api_version,
        action="delete" if verdict.fate == "delete" else "kept",
        reason=verdict.reason or _why(member, live),
        live_uid=str(live["metadata"]["uid"]) if live else "",
        writes=verdict.fate == "delete",
        found=None if live is None else KubeObject(data=live, component=member.component),
    )


def _why(member: Member, live: Live | None) -> str:
    why = f"component `{member.component}` no longer brings it"
    if live is None or not live["metadata"].get("deletionTimestamp"):
        return why
    held = obstacles(live)
    return f"{why}; it is being deleted already{f', and {held}' if held else ''}"


def _ordered(changes: list[Change]) -> tuple[Change, ...]:
    known = {change.identity: change for change in changes}
    return tuple(known[one] for one in last_first([change.subject for change in changes]))


def _foreign(verdicts: dict[Identity, PruneVerdict]) -> Iterator[tuple[Identity, PruneVerdict]]:
    return ((key, one) for key, one in verdicts.items() if one.fate == "foreign")


# --- What outlives a deletion, because a controller made it and people's work may be in it; what
# goes along

# The hub marks what its users start: see `common_labels` in its configuration.
_HUB_FILE = "jupyterhub_config.py"
_HUB_LABELS = "app=jupyterhub"
_HUB_MAKES = (("v1", "Pod"), ("v1", "PersistentVolumeClaim"))

# More names than these are counted, not listed; of what is lost people want to know more.
_NAMED = 5
_LOST = 50

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


def retained(going: Sequence[KubeObject], cluster: Cluster) -> Iterator[str]:
    """Name what stays when these objects go: notebooks and homes of a hub, claims of a StatefulSet.

    Args:
        going: live objects that are about to be deleted.
        cluster: where to look; nothing is written.
    """
    for found in going:
        if found.kind == "ConfigMap" and _HUB_FILE in (found.data.get("data") or {}):
            yield from _of_hub(found.namespace, cluster)
        if (found.group, found.kind) == ("apps", "StatefulSet"):
            yield from _of_stateful_set(found, cluster)


def _of_hub(namespace: str, cluster: Cluster) -> Iterator[str]:
    for api_version, kind in _HUB_MAKES:
        made = [
            item
            for item in _list(cluster, api_version, kind, namespace, _HUB_LABELS)
            if kube_object.APP_LABEL not in (item["metadata"].get("labels") or {})
        ]
        if made:
            yield f"{_named(kind, made)} of the hub's users in namespace `{namespace}` will stay"


def _of_stateful_set(found: KubeObject, cluster: Cluster) -> Iterator[str]:
    templates = (found.data.get("spec") or {}).get("volumeClaimTemplates") or ()
    prefixes = tuple(f"{template['metadata']['name']}-{found.name}-" for template in templates)
    if not prefixes:
        return
    claims = _list(cluster, "v1", "PersistentVolumeClaim", found.namespace, "")
    made = [claim for claim in claims if claim["metadata"]["name"].startswith(prefixes)]
    if made:
        yield f"{_named('PersistentVolumeClaim', made)} of `{found.identity}` will stay"


def _list(
    cluster: Cluster, api_version: str, kind: str, namespace: str, labels: str
) -> Sequence[Mapping[str, Any]]:
    try:
        return cluster.list(api_version, kind, namespace=namespace, labels=labels, metadata_only=True).items
    except ForbiddenError:  # a remark is no reason to fail
        return ()


def _named(kind: str, items: Sequence[Mapping[str, Any]]) -> str:
    return f"{kind} {listed([f'`{KubeObject(data=item).name}`' for item in items], _NAMED)}"


def taken_along(going: Sequence[KubeObject], cluster: Cluster) -> Iterator[str]:
    """Name the objects that go with definitions although nobody asked for it, in all namespaces."""
    asked = {found.identity for found in going}
    for definition in going:
        kinds = kinds_of_crd(definition.data)
        if not kinds:
            continue
        served = kinds[-1]
        try:
            items = cluster.list(served.api_version, served.kind, metadata_only=True).items
        except ObjectNotFoundError:
            continue
        names = [_place_of(item) for item in items if KubeObject(data=item).identity not in asked]
        if names:
            yield (
                f"with definition `{definition.name}` go {len(names)} {served.kind} of all namespaces:"
                f" {listed(names, _LOST)}"
            )


def _place_of(item: Mapping[str, Any]) -> str:
    metadata = item["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else metadata["name"]


def namespaces_going(verdicts: Mapping[Identity, PruneVerdict]) -> frozenset[str]:
    """Give the namespaces that are to be deleted."""
    going = (key for key, one in verdicts.items() if one.fate == "delete")
    return frozenset(key.name for key in going if (key.group, key.kind) == ("", "Namespace"))


def refuse_along(
    cluster: Cluster, inventory: Inventory, verdicts: Mapping[Identity, PruneVerdict], spare: KeepOptions
) -> tuple[str, ...]:
    """Raise if a namespace that goes would take along what is not to go; give what is to be said otherwise.

    Args:
        cluster: where to look; nothing is written.
        inventory: of the environment.
        verdicts: what becomes of each of its objects.
        spare: what is kept.

    Raises:
        UsageError: naming what a namespace holds of others, and what is kept in it.
    """
    notes: list[str] = []
    for namespace in sorted(namespaces_going(verdicts)):
        items, unseen = inventory_store.namespace_contents(cluster, namespace)
        if unseen:
            notes.append(f"{unseen} in namespace `{namespace}`: what others have there goes with it unseen")
        lost = dict(_lost(items, inventory, verdicts))
        kept = {who: why for who, why in lost.items() if _is_spared(who, spare)}
        if kept:
            options = {"--claims" if pruning.is_claim(who) else "--foreign" for who in kept}
            lines = [f"  {who}: {why}" for who, why in list(kept.items())[:_LOST]]
            lines += [f"  and {len(kept) - _LOST} more"] if len(kept) > _LOST else []
            raise UsageError(
                "\n".join([f"namespace `{namespace}` would take along what is not to be deleted", *lines]),
                hint=f"nothing was deleted; if all of that may go: {' '.join(sorted(options))};"
                " else leave out --namespaces",
            )
        if lost:
            names = listed([str(who) for who in lost], _LOST)
            notes.append(f"with namespace `{namespace}` go {len(lost)} objects besides: {names}")
    return tuple(notes)


def _is_spared(identity: Identity, spare: KeepOptions) -> bool:
    return spare.claims if pruning.is_claim(identity) else spare.foreign


def _lost(
    items: Sequence[Mapping[str, Any]], inventory: Inventory, verdicts: Mapping[Identity, PruneVerdict]
) -> Iterator[tuple[Identity, str]]:
    """Give what nobody asked to delete, with the reason; what belongs to another object goes as that does."""
    uids = {item["metadata"]["uid"] for item in items}
    services = {item["metadata"]["name"] for item in items if item["kind"] == "Service"}
    for item in items:
        found = KubeObject(data=item)
        who, metadata = found.identity, item["metadata"]
        verdict = verdicts.get(who)
        is_owned = any(owner.get("uid") in uids for owner in metadata.get("ownerReferences") or ())
        is_made = (
            (who.group, who.kind, who.name) in _OF_EVERY_NAMESPACE
            or _ACCOUNT in (metadata.get("annotations") or {})
            or (who.kind == "Endpoints" and who.name in services)
        )
        if metadata.get("deletionTimestamp") or (verdict is not None and verdict.fate == "delete"):
            continue
        if is_owned or is_made or _is_record(found, inventory):
            continue
        member = inventory.members.get(who)
        other = f"is of component `{member.component}`, which stays" if member else ""
        said = verdict.reason if verdict else other
        yield who, said or pruning.whose(item, inventory) or "is not known to the inventory"


def _is_record(found: KubeObject, inventory: Inventory) -> bool:
    """Tell whether an object is what mlstack keeps of this very environment."""
    is_ours = not pruning.whose(found.data, inventory)
    return is_ours and kube_object.COMPONENT_LABEL not in (found.metadata.get("labels") or {})


# --- What an environment has in its cluster, to be taken away: by the inventory, the marks and the
# files


@dataclass(frozen=True, kw_only=True)
class PruneSet:
    """What there is to take away.

    Attributes:
        reached: where it is; its state is what the files bring, as far as they render.
        changes: a deletion for each object, or `kept` with the reason.
        inventory: what was deployed.
        forgotten: members of it that are not there any more, or are another's.
    """

    reached: Reached
    changes: Changes
    inventory: Inventory
    forgotten: frozenset[Identity]


def prune_set(target: Target, opener: Opener, *, spare: KeepOptions) -> PruneSet:
    """Give a deletion for everything of an environment that is in the cluster.

    What was deployed counts, whatever the files say now; they need not even render. Objects of the files
    that carry the marks of another app or environment, or none, are kept: other people may depend on them.

    Args:
        target: the environment, and which components of it.
        opener: opens a cluster by its context; nothing is written.
        spare: kinds to keep.

    Raises:
        NotFoundError: neither the files nor the inventory know a component.
        ClusterError: the cluster cannot be asked or is another one.
    """
    state, fault = _rendered(target)
    reached = reach(target, opener, state=state)
    cluster, place = reached.cluster, reached.place
    known = inventory_store.load_or_find(
        cluster, app=state.app, environment=state.environment, namespace=place.namespace
    )
    members = _members(reached, known)
    if isinstance(fault, NotFoundError) and not members:
        raise fault
    seen = lookup(cluster, [*members, *_of_files(reached, known), *_own_namespace(reached, spare)])
    verdicts = _along(
        seen, {one.identity: _deletion_verdict(one, seen, known, spare) for one in seen.members}, spare
    )
    noted = refuse_along(cluster, known, verdicts, spare)
    found = _changes(reached, seen, verdicts)
    going = [change.found for change in found if change.action == "delete" and change.found is not None]
    changes = Changes(
        app=state.app,
        environment=state.environment,
        namespace=state.namespace,
        context=place.context,
        cluster=reached.identity,
        changes=found,
        depends=state.depends,
        notes=(*_notes(reached, known, fault, going), *noted),
    )
    lost = (key for key, one in verdicts.items() if key in known.members and one.fate in ("gone", "foreign"))
    return PruneSet(reached=reached, changes=changes, inventory=known, forgotten=frozenset(lost))


def _rendered(target: Target) -> tuple[DesiredState, MlstackError | None]:
    """Give what the files bring, or nothing and the reason."""
    try:
        return target.desired(), None
    except (ConfigError, NotFoundError, RegistryError) as error:
        place, app = target.place(), target.app.app().name
        return DesiredState(app=app, environment=place.name, namespace=place.namespace, objects=()), error


def _members(reached: Reached, known: Inventory) -> tuple[Member, ...]:
    """Give the members that are to go: all, or those of the selected components and modules."""
    if reached.selective:
        names, modules = set(reached.state.components), tuple(reached.target.components)
        return tuple(
            one
            for one in known.ordered()
            if one.component in names
            or any(one.component == name or one.component.startswith(f"{name}.") for name in modules)
        )
    if not known.exists:  # rebuilt by the marks just now
        return known.ordered()
    marked, _ = inventory_store.members_by_labels(reached.cluster, known)
    return known.with_members(one for one in marked if one.identity not in known.members).ordered()


def _of_files(reached: Reached, known: Inventory) -> Iterator[Member]:
    """Give what the files bring and the inventory does not know: it may be there, ours or another's."""
    for found in placed(reached.state.objects, reached.cluster):
        if found.identity not in known.members:
            yield Member(identity=found.identity, api_version=found.api_version, component=found.component)


def _own_namespace(reached: Reached, spare: KeepOptions) -> Iterator[Member]:
    """Give the environment's namespace where namespaces are to go: it was made before everything else."""
    if not spare.namespaces and not reached.selective:
        identity = Identity("", "Namespace", "", reached.place.namespace)
        yield Member(identity=identity, api_version="v1")


def _deletion_verdict(
    member: Member, seen: InventoryLookup, known: Inventory, spare: KeepOptions
) -> PruneVerdict:
    if member.identity in seen.hidden:
        return PruneVerdict("kept", "its API does not answer at present")
    return inventory.judge(seen.live.get(member.identity), member, known, spare=spare)


def _along(
    seen: InventoryLookup, verdicts: Mapping[Identity, PruneVerdict], spare: KeepOptions
) -> Mapping[Identity, PruneVerdict]:
    """Let what is kept go, where it may, with a namespace that goes."""
    going = namespaces_going(verdicts)
    if spare.foreign or not going:
        return verdicts
    return {
        key: PruneVerdict("delete", f"goes with namespace `{key.namespace}`")
        if key.namespace in going and one.fate == "kept" and not inventory.is_claim(key) and key in seen.live
        else one
        for key, one in verdicts.items()
    }


def _changes(
    reached: Reached, seen: InventoryLookup, verdicts: Mapping[Identity, PruneVerdict]
) -> tuple[Change, ...]:
    """Give what becomes of everything that is there, in the order of execution."""
    full = _full(reached.cluster, [one for one in seen.members if verdicts[one.identity].fate == "delete"])
    brought, lives = {found.identity for found in reached.state.objects}, {**seen.live, **full}
    found = {
        one.identity: _deletion(one, verdicts[one.identity], lives.get(one.identity), brought)
        for one in seen.members
        if verdicts[one.identity].fate != "gone"
    }
    subjects = [change.subject for change in found.values()]
    return tuple(found[one] for one in last_first(subjects, reached.state.depends))


def _full(cluster: Cluster, members: Sequence[Member]) -> Mapping[Identity, Live]:
    """Read whole objects: what they hold says what they need and what goes with them."""
    results = parallel.run(lambda one: cluster.get(ref_of(one)), members)
    return {
        one.identity: live
        for one, live in zip(members, results, strict=True)
        if live is not None and not isinstance(live, MlstackError)
    }


def _deletion(
    member: Member, verdict: PruneVerdict, live: Live | None, brought: Iterable[Identity]
) -> Change:
    goes = verdict.fate == "delete"
    obsolete = "the files no longer bring it" if member.identity not in brought else ""
    return Change(
        identity=member.identity,
        component=member.component,
        api_version=member.api_version,
        action="delete" if goes else "kept",
        reason=verdict.reason or (obsolete if brought else ""),
        live_uid=str(live["metadata"]["uid"]) if live is not None else "",
        writes=goes,
        found=KubeObject(data=live, component=member.component) if live is not None else None,
    )


def _notes(
    reached: Reached, known: Inventory, fault: MlstackError | None, going: Sequence[KubeObject]
) -> Iterator[str]:
    yield from known.notes
    if fault is not None:
        yield f"by the inventory alone, as the files cannot be rendered: {fault.message}"
    yield from taken_along(going, reached.cluster)
    yield from retained(going, reached.cluster)
