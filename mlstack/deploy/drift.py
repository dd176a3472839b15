"""Why a live object is not as its files say: who changed which field, or whether only our apply is behind.

The API server keeps the books: whoever changes or removes a value that we applied takes its path from our
entry in `managedFields`. So a field that is still ours has the value we gave it, and differs because the
files have changed since; one that is another's was changed by that one; one that is nobody's was removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from mlstack.deploy import adopt, inventory_store, result
from mlstack.deploy.changes import with_uid
from mlstack.deploy.diff import MOVES, DiffContext, context_of, is_meddled, kept_labels
from mlstack.deploy.inventory import Inventory, Member, other_owner_of, owned_hash, payload_hash
from mlstack.deploy.live import placed
from mlstack.deploy.object_diff import foreign_fields, policy_of, removed_fields
from mlstack.deploy.replacement import dry_run_copy
from mlstack.deploy.target import ResolvedTarget
from mlstack.errors import ConflictError, InvalidError, MlstackError
from mlstack.kube import parallel
from mlstack.kube.client import ObjectRef
from mlstack.objects import managed_fields
from mlstack.objects.kube_object import APP_LABEL, MANAGER, Identity, KubeObject
from mlstack.objects.managed_fields import OURS, FieldChange, ManagedFieldsEntry, Path, is_persons_tool

Cause = Literal["person", "controller", "stale", "unknown"]
DriftState = Literal["same", "changed", "missing", "new", "extra"]
DriftAction = Literal["changed", "removed", "added"]

_SEEN_FROM_LIVE: Mapping[str, DriftAction] = {"changed": "changed", "added": "removed", "removed": "added"}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One field of a live object that is not as the files say.

    Attributes:
        path: the field as people write it: `spec.template.spec.containers[main].image`.
        action: what happened to the live object: `added` is there and is not wanted any more.
        cause: `person` for a tool that people use, `controller` for any other program, `stale` where
            the files have changed since the last apply, `unknown` where a field went without a trace.
        live: the value in the cluster, None if the field was removed.
        wanted: the value that the files give, None if they give none.
        manager: the field manager that changed it, empty if nobody is recorded.
        subresource: `scale` or `status` if it wrote through one.
        time: when that manager last took or left a field of the object, empty if that is not recorded.
        sure: false where the manager is only likely, as of a removed field that leaves no trace.
    """

    path: str
    action: DriftAction
    cause: Cause
    live: Any = None
    wanted: Any = None
    manager: str = ""
    subresource: str = ""
    time: str = ""
    sure: bool = True


@dataclass(frozen=True, kw_only=True)
class ObjectDrift:
    """How one live object stands against the files and the last apply."""

    identity: Identity
    component: str
    # `missing` was applied and is not there, `new` was not applied so far, `extra` is there with our marks
    # and not in the files.
    state: DriftState
    reason: str = ""  # what happened to the object as a whole, empty if nothing did
    manager: str = ""  # the field manager that made an extra object ours, empty if nobody is recorded
    time: str = ""  # when it did
    differences: tuple[Difference, ...] = ()

    @property
    def causes(self) -> tuple[str, ...]:
        """Give what it counts as: the cause of each difference, or what became of the whole object."""
        if self.state in ("missing", "extra"):
            return (self.state,)
        return ("stale",) if self.state == "new" else tuple(field.cause for field in self.differences)


# --- one object: who changed which field ---


def differences(
    live: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    tree: managed_fields.Tree | None = None,
    gone: Sequence[Path] = (),
    remaining: Mapping[str, Any] | None = None,
    applied: Mapping[str, Any] | None = None,
    secrets: Sequence[str] = (),
) -> tuple[Difference, ...]:
    """Tell every field of ours in which a live object differs from what an apply would make of it.

    Values of Secrets are masked.

    Args:
        live: the object as it is.
        after: the server's answer to a forced dry run of what the files say.
        tree: the fields to look at; None for those that we own and those we would own.
        gone: further fields of the live object that are not wanted, which the dry run could not show.
        remaining: the object without these; None if they leave nothing behind.
        applied: the object as it was applied last; None if that is not known.
        secrets: texts to be masked wherever they stand.
    """
    ours = managed_fields.union(managed_fields.owned(live, MANAGER), managed_fields.owned(after, MANAGER))
    identity = KubeObject(data=live).identity
    remaining = managed_fields.cut(live, gone) if remaining is None else remaining
    changes = [
        *managed_fields.located(live, after, ours if tree is None else tree),
        *managed_fields.located(live, remaining, managed_fields.tree_along(gone)),
    ]
    return tuple(
        _difference(live, path, shown, applied)
        for path, change in changes
        for shown in result.veiled(result.masked(identity, [change]), secrets)
    )


def _difference(
    live: Mapping[str, Any], path: Path, change: FieldChange, applied: Mapping[str, Any] | None
) -> Difference:
    """Give a difference with its cause."""
    entries = managed_fields.entries(live)
    ours = [entry for entry in entries if entry.owner == OURS]
    others = [entry for entry in entries if entry.owner != OURS]
    owners = [entry for entry in others if _depth(entry, path)]
    # Who fills an empty map of ours owns what is in it, and we the map.
    deepest = max((_depth(entry, path) for entry in owners), default=1)
    cause: Cause = "unknown"
    owner, sure = None, True
    if any(_depth(entry, path) >= deepest for entry in ours):
        cause = "stale"
    elif owners:
        owner = max(owners, key=lambda entry: entry.time)
    elif applied is not None and not managed_fields.says(
        applied, path
    ):  # removed from the object, or never applied
        cause = "stale"
    else:
        # A controller sets fields of its own all day; who takes one of ours away is a person.
        since = [
            entry
            for entry in others
            if is_persons_tool(entry.owner) and not entry.owner.subresource
            if ours and entry.time >= ours[0].time
        ]
        if len(since) == 1:
            owner, sure = since[0], False
    if owner is not None:
        cause = "person" if is_persons_tool(owner.owner) else "controller"
    return Difference(
        path=change.path,
        action=_SEEN_FROM_LIVE[change.action],
        cause=cause,
        live=change.old,
        wanted=change.new,
        manager=owner.owner.manager if owner else "",
        subresource=owner.owner.subresource if owner else "",
        time=owner.time if owner else "",
        sure=sure,
    )


def _depth(entry: ManagedFieldsEntry, path: Path) -> int:
    """Give how far down a manager owns a field: itself or something in it, or around it as a whole; or 0."""
    tree: managed_fields.Tree = entry.tree
    for depth, key in enumerate(path, 1):
        if key not in tree:
            return 0
        tree = tree[key]
        if not tree:  # the thing as a whole is owned, with all it holds
            return depth
    return len(path)


# --- environment: live objects against files and the last apply ---


@dataclass(frozen=True, kw_only=True)
class Drift:
    """What became of an environment."""

    objects: tuple[ObjectDrift, ...]  # those of the files in their order, then those only the cluster has
    notes: tuple[str, ...] = ()  # what could not be seen


class _Row(NamedTuple):
    drift: ObjectDrift
    labels: tuple[tuple[str, str], ...] = ()  # path and manager of labels that people added
    note: str = ""  # to whom a number is left


def find_drift(resolved: ResolvedTarget) -> Drift:
    """Judge every object of an environment; nothing is written."""
    state, cluster = resolved.state, resolved.cluster
    inventory = inventory_store.load_or_find(
        cluster, app=state.app, environment=state.environment, namespace=resolved.place.namespace
    )
    labelled = inventory.label if inventory.members else dict
    objects = tuple(manifest.with_data(labelled(manifest.data)) for manifest in state.objects)
    resolved = replace(resolved, state=replace(state, objects=objects))
    context = context_of(resolved, inventory=inventory)
    manifests = placed(objects, cluster)
    rows = parallel.whole(
        parallel.run(lambda manifest: _drift(context, inventory, manifest, state.secrets), manifests)
    )
    extra, unread = _extra(resolved, inventory, {manifest.identity for manifest in manifests})
    by_name = sorted(rows, key=lambda row: row.drift.identity)
    notes = [row.note for row in by_name if row.note]
    notes += kept_labels((row.drift.identity, row.labels) for row in by_name)
    if fault := context.applied.fault:
        notes.append(
            f"what was applied last cannot be read, so removed fields may be laid to nobody: {fault}"
        )
    return Drift(
        objects=(*(row.drift for row in rows), *extra),
        notes=tuple(dict.fromkeys((*state.notes, *inventory.notes, *notes, *unread))),
    )


def _drift(context: DiffContext, inventory: Inventory, manifest: KubeObject, secrets: Sequence[str]) -> _Row:
    """Tell how a live object stands; one that changes while it is looked at is looked at again."""
    for _ in range(MOVES):
        try:
            return _drift_now(context, inventory, manifest, secrets)
        except ConflictError as moved:
            if moved.conflicts:
                raise
    return _drift_now(context, inventory, manifest, secrets)


def _drift_now(
    context: DiffContext, inventory: Inventory, manifest: KubeObject, secrets: Sequence[str]
) -> _Row:
    drift = ObjectDrift(identity=manifest.identity, component=manifest.component, state="same")
    member = inventory.members.get(manifest.identity)
    live = context.cluster.get(ObjectRef.of(manifest.data))
    if live is None or live["metadata"].get("deletionTimestamp"):
        if member is None and live is None:
            return _Row(replace(drift, state="new", reason="was not applied so far"))
        reason = "is being deleted" if live is not None else "was applied and is not there any more"
        return _Row(replace(drift, state="missing", reason=reason))
    replicas, note = context.scalers.replicas(manifest, live), ""
    if replicas.left:
        numbers = [managed_fields.value_at(data, replicas.path) for data in (live, manifest.data)]
        values = "{} in the cluster, {} in the files".format(*numbers)
        note = f"`{manifest.identity}` {replicas.notes[0]} ({values})"
    if member is not None and _is_as_left(context, manifest, live, member):
        return _Row(drift, note=note)
    before = context.applied.of(manifest)
    applied: Mapping[str, Any] | None = inventory.label(before[0]) if before else None
    if not before and member and member.payload_hash and member.payload_hash == payload_hash(replicas.asked):
        applied = replicas.asked
    labels: tuple[tuple[str, str], ...] = ()
    try:
        payload = with_uid(replicas.asked, live["metadata"]["uid"])
        forced = context.cluster.apply(payload, force=True, dry_run=True).object
    except InvalidError as error:
        fields = _without_answer(context, manifest, live, replicas.asked, error, applied, secrets)
    else:
        policy = policy_of(context, manifest)
        removed = removed_fields(context, manifest, live, forced, policy, replicas.spared)
        dropped = [path for _, path in (*removed.dropped, *removed.dropped_left)]
        gone = tuple(dict.fromkeys([*dropped, *(path for _, path in removed.foreign)]))
        remaining, labels = managed_fields.cut(removed.after, dropped), removed.labels
        fields = differences(live, forced, gone=gone, remaining=remaining, applied=applied, secrets=secrets)
    again = member is not None and bool(member.uid) and member.uid != live["metadata"]["uid"]
    reason = "was deleted and made anew since it was applied" if again else ""
    found = replace(drift, state="changed" if fields or again else "same", reason=reason, differences=fields)
    return _Row(found, labels, note)


def _is_as_left(context: DiffContext, manifest: KubeObject, live: Mapping[str, Any], member: Member) -> bool:
    """Tell from hashes alone that nothing differs: definitions take seconds to ask about."""
    return (
        member.uid == live["metadata"]["uid"]
        and bool(member.payload_hash and member.owned_hash)
        and member.payload_hash == payload_hash(context.scalers.payload(manifest))
        and member.owned_hash == owned_hash(live)
        and not is_meddled(context, manifest, live)
    )


def _without_answer(
    context: DiffContext,
    manifest: KubeObject,
    live: Mapping[str, Any],
    data: Mapping[str, Any],
    error: InvalidError,
    applied: Mapping[str, Any] | None,
    secrets: Sequence[str],
) -> tuple[Difference, ...]:
    """Tell what an object is that cannot take the change: by a new one, or by what is written."""
    copy = dry_run_copy(context.cluster, data, live)
    foreign = [path for _, path in foreign_fields(context, manifest, live)]
    if isinstance(copy, MlstackError):
        sent = {key: value for key, value in data.items() if key not in ("apiVersion", "kind")}
        tree = managed_fields.union(managed_fields.owned(live, MANAGER), managed_fields.tree_of(sent))
        gone, after = foreign, data
    else:
        tree, after = None, copy
        gone = [*adopt.displaced(live, data, error.causes), *foreign]
    gone = list(dict.fromkeys(gone))
    return differences(live, after, tree=tree, gone=gone, remaining=after, applied=applied, secrets=secrets)


def _extra(
    resolved: ResolvedTarget, inventory: Inventory, manifests: set[Identity]
) -> tuple[tuple[ObjectDrift, ...], tuple[str, ...]]:
    """Give what is there with our marks and not in the files: left over by us, or copied by somebody."""
    items, notes = inventory_store.labelled_objects(resolved.cluster, inventory)
    label = ("f:metadata", "f:labels", f"f:{APP_LABEL}")
    places = {"", inventory.namespace, *(member.namespace for member in inventory.members)}
    rows = []
    for item in items:
        member, is_ours = inventory_store.member_of(item), inventory_store.is_ours(item, inventory)
        maker = next((entry for entry in managed_fields.entries(item) if _depth(entry, label)), None)
        # Controllers copy labels to what they make as well.
        is_copy = (
            maker is not None
            and maker.owner.manager != MANAGER
            and is_persons_tool(maker.owner)
            and not other_owner_of(item, inventory)
            and item["metadata"].get("namespace", "") in places
        )
        is_meant = not resolved.selective or member.component in resolved.state.components
        if member.identity in manifests or not is_meant or not (is_ours or is_copy):
            continue
        left = "the files do not bring it any more"
        rows.append(
            ObjectDrift(
                identity=member.identity,
                component=member.component,
                state="extra",
                reason=left if is_ours else "carries our labels, and mlstack did not make it",
                manager=maker.owner.manager if maker else "",
                time=maker.time if maker else "",
            )
        )
    return tuple(sorted(rows, key=lambda row: row.identity)), notes


def summary(objects: Sequence[ObjectDrift]) -> dict[str, int]:
    """Count the differences by their cause."""
    causes = [cause for drift in objects for cause in drift.causes]
    return {cause: causes.count(cause) for cause in sorted(set(causes))}
