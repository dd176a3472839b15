"""Why a live object is not as its files say: who changed which field, or whether only our apply is behind.

The API server keeps the books: whoever changes or removes a value that we applied takes its path from our
entry in `managedFields`. So a field that is still ours has the value we gave it, and differs because the
files have changed since; one that is another's was changed by that one; one that is nobody's was removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from mlstack.dataclass import dataclass
from mlstack.deploy import adopt, inventory_store, result
from mlstack.deploy.changes import with_uid
from mlstack.deploy.diff import MOVES, is_meddled, kept_labels
from mlstack.deploy.inventory import Inventory, Member, other_owner_of, owned_hash, payload_hash
from mlstack.deploy.live import DiffContext, context_of, placed
from mlstack.deploy.object_diff import foreign_fields, policy_of, removed_fields
from mlstack.deploy.replacement import dry_run_copy
from mlstack.deploy.target import ResolvedTarget
from mlstack.errors import ConflictError, InvalidError, MlstackError
from mlstack.kube import parallel
from mlstack.kube.client import ObjectRef
from mlstack.objects import managed_fields
from mlstack.objects.kube_object import APP_LABEL, MANAGER, Data, Identity, KubeObject
from mlstack.objects.managed_fields import OURS, FieldChange, ManagedFieldsEntry, Path, is_persons_tool

Cause = Literal["person", "controller", "stale", "unknown"]
DriftState = Literal["same", "changed", "missing", "new", "extra"]
DriftAction = Literal["changed", "removed", "added"]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One field of a live object that is not as the files say."""

    path: str  # the field as people write it: `spec.template.spec.containers[main].image`
    action: DriftAction  # what happened to the live object: `added` is there and is not wanted any more
    # `person` for a tool that people use, `controller` for any other program, `stale` where the files have
    # changed since the last apply, `unknown` where a field went without a trace
    cause: Cause
    live: Any = None  # the value in the cluster, None if the field was removed
    wanted: Any = None  # the value that the files give, None if they give none
    manager: str = ""  # the field manager that changed it, empty if nobody is recorded
    subresource: str = ""  # `scale` or `status` if it wrote through one
    time: str = ""  # when that manager last took or left a field of the object, empty if that is not recorded
    sure: bool = True  # false where the manager is only likely, as of a removed field that leaves no trace


@dataclass(frozen=True, kw_only=True)
class DriftRow:
    """How one live object stands against the files and the last apply."""

    object: str  # the object as people name it: `Deployment kubeflow/tf-hub`
    kind: str  # its kind
    namespace: str  # its namespace, empty for cluster-scoped objects
    name: str  # its name
    component: str  # full name of the component that brings it
    # `same`, `changed`, `missing` (was applied and is not there), `new` (was not applied so far) or
    # `extra` (is there with our marks, and not in the files)
    state: DriftState
    reason: str  # what happened to the object as a whole, empty if nothing did
    manager: str  # the field manager that made an extra object ours, empty if nobody is recorded
    time: str  # when it did
    differences: tuple[Difference, ...]  # fields that are not as the files say

    @property
    def causes(self) -> tuple[str, ...]:
        """Give what it counts as: the cause of each difference, or what became of the whole object."""
        if self.state in ("missing", "extra"):
            return (self.state,)
        return ("stale",) if self.state == "new" else tuple(field.cause for field in self.differences)


# --- one object: who changed which field ---


def differences(
    live: Data,
    after: Data,
    *,
    tree: managed_fields.Tree | None = None,
    gone: Sequence[Path] = (),
    remaining: Data | None = None,
    applied: Data | None = None,
    secrets: Sequence[str] = (),
) -> tuple[Difference, ...]:
    """Tell every field of ours in which a live object differs from what an apply would make of it.

    Looked at are `tree` (None: what we own in either) and `gone`, which is not in what remains of the live
    object. `applied` is the object as it was applied last, if that is known. Values of Secrets are masked.
    """
    ours = managed_fields.union(managed_fields.owned(live), managed_fields.owned(after))
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


def _difference(live: Data, path: Path, change: FieldChange, applied: Data | None) -> Difference:
    """Give a difference with its cause."""
    entries = managed_fields.entries(live)
    ours = [entry for entry in entries if entry.owner == OURS]
    others = [entry for entry in entries if entry.owner != OURS]
    owners = [entry for entry in others if managed_fields.depth(entry.tree, path)]
    # Who fills an empty map of ours owns what is in it, and we the map.
    deepest = max((managed_fields.depth(entry.tree, path) for entry in owners), default=1)
    cause: Cause = "unknown"
    owner, sure = None, True
    if any(managed_fields.depth(entry.tree, path) >= deepest for entry in ours):
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
        action=change.reversed.action,
        cause=cause,
        live=change.old,
        wanted=change.new,
        manager=owner.owner.manager if owner else "",
        subresource=owner.owner.subresource if owner else "",
        time=owner.time if owner else "",
        sure=sure,
    )


# --- environment: live objects against files and the last apply ---


def find_drift(resolved: ResolvedTarget) -> tuple[tuple[DriftRow, ...], tuple[str, ...]]:
    """Judge every object of an environment, and say what could not be seen; nothing is written.

    First stand the objects of the files in their order, then those that only the cluster has.
    """
    state, cluster = resolved.state, resolved.cluster
    inventory = inventory_store.load_or_find(
        cluster, app=state.app, environment=state.environment, namespace=resolved.place.namespace
    )
    labelled = inventory.label if inventory.members else dict
    objects = tuple(manifest.with_data(labelled(manifest.data)) for manifest in state.objects)
    resolved = replace(resolved, state=replace(state, objects=objects))
    context = context_of(resolved, inventory=inventory)
    manifests = placed(objects, cluster)
    answers = parallel.whole(parallel.run(lambda manifest: _drift(context, inventory, manifest), manifests))
    extra, unread = _extra(resolved, inventory, {manifest.identity for manifest in manifests})
    by_name = sorted(zip((manifest.identity for manifest in manifests), answers, strict=True))
    notes = [note for _, (_, _, note) in by_name if note]
    notes += kept_labels((identity, labels) for identity, (_, labels, _) in by_name)
    if fault := context.applied.fault:
        what = "what was applied last cannot be read, so removed fields may be laid to nobody"
        notes.append(f"{what}: {fault}")
    rows = (*(row for row, _, _ in answers), *extra)
    return rows, tuple(dict.fromkeys((*state.notes, *inventory.notes, *notes, *unread)))


_Answer = tuple[DriftRow, tuple[tuple[str, str], ...], str]
"""A row, path and manager of labels that people added, and to whom a number is left."""


def _drift(context: DiffContext, inventory: Inventory, manifest: KubeObject) -> _Answer:
    """Tell how a live object stands; one that changes while it is looked at is looked at again."""
    for _ in range(MOVES):
        try:
            return _drift_now(context, inventory, manifest)
        except ConflictError as moved:
            if moved.conflicts:
                raise
    return _drift_now(context, inventory, manifest)


def _drift_now(context: DiffContext, inventory: Inventory, manifest: KubeObject) -> _Answer:
    member = inventory.members.get(manifest.identity)
    live = context.cluster.get(ObjectRef.of(manifest.data))
    if live is None or live["metadata"].get("deletionTimestamp"):
        if member is None and live is None:
            return _row(manifest.identity, manifest.component, "new", "was not applied so far"), (), ""
        reason = "is being deleted" if live is not None else "was applied and is not there any more"
        return _row(manifest.identity, manifest.component, "missing", reason), (), ""
    replicas, note = context.scalers.replicas(manifest, live), ""
    if replicas.left:
        numbers = [managed_fields.value_at(data, replicas.path) for data in (live, manifest.data)]
        values = "{} in the cluster, {} in the files".format(*numbers)
        note = f"`{manifest.identity}` {replicas.notes[0]} ({values})"
    if member is not None and _is_as_left(context, manifest, live, member):
        return _row(manifest.identity, manifest.component, "same"), (), note
    last = context.applied.of(manifest)
    applied: Data | None = inventory.label(last[0]) if last else None
    if not last and member and member.payload_hash and member.payload_hash == payload_hash(replicas.asked):
        applied = replicas.asked
    labels: tuple[tuple[str, str], ...] = ()
    try:
        payload = with_uid(replicas.asked, live["metadata"]["uid"])
        after = context.cluster.apply(payload, force=True, dry_run=True).object
    except InvalidError as error:
        after, tree, gone = _without_answer(context, manifest, live, replicas.asked, error)
        remaining = after
    else:
        policy, tree = policy_of(context, manifest), None
        removed = removed_fields(context, manifest, live, after, policy, replicas.spared)
        gone = [path for _, path in (*removed.dropped, *removed.dropped_left)]
        remaining, labels = managed_fields.cut(removed.after, gone), removed.labels
        gone += [path for _, path in removed.foreign]
    secrets, paths = context.resolved.state.secrets, tuple(dict.fromkeys(gone))
    fields = differences(
        live, after, tree=tree, gone=paths, remaining=remaining, applied=applied, secrets=secrets
    )
    again = member is not None and bool(member.uid) and member.uid != live["metadata"]["uid"]
    reason = "was deleted and made anew since it was applied" if again else ""
    state: DriftState = "changed" if fields or again else "same"
    return _row(manifest.identity, manifest.component, state, reason, fields=fields), labels, note


def _row(
    identity: Identity,
    component: str,
    state: DriftState,
    reason: str = "",
    *,
    maker: ManagedFieldsEntry | None = None,
    fields: tuple[Difference, ...] = (),
) -> DriftRow:
    return DriftRow(
        object=str(identity),
        kind=identity.kind,
        namespace=identity.namespace,
        name=identity.name,
        component=component,
        state=state,
        reason=reason,
        manager=maker.owner.manager if maker else "",
        time=maker.time if maker else "",
        differences=fields,
    )


def _is_as_left(context: DiffContext, manifest: KubeObject, live: Data, member: Member) -> bool:
    """Tell from hashes alone that nothing differs: definitions take seconds to ask about."""
    return (
        member.uid == live["metadata"]["uid"]
        and bool(member.payload_hash and member.owned_hash)
        and member.payload_hash == payload_hash(context.scalers.payload(manifest))
        and member.owned_hash == owned_hash(live)
        and not is_meddled(context, manifest, live)
    )


def _without_answer(
    context: DiffContext, manifest: KubeObject, live: Data, data: Data, error: InvalidError
) -> tuple[Data, managed_fields.Tree | None, list[Path]]:
    """Tell what an object is that cannot take the change: by a new one, or by what is written.

    Given are what it would be, the fields to look at, and those that go.
    """
    copy = dry_run_copy(context.cluster, data, live)
    foreign = [path for _, path in foreign_fields(context, manifest, live)]
    if not isinstance(copy, MlstackError):
        return copy, None, [*adopt.displaced(live, data, error.causes), *foreign]
    sent = {key: value for key, value in data.items() if key not in ("apiVersion", "kind")}
    tree = managed_fields.union(managed_fields.owned(live), managed_fields.tree_of(sent))
    return data, tree, foreign


def _extra(
    resolved: ResolvedTarget, inventory: Inventory, manifests: set[Identity]
) -> tuple[list[DriftRow], tuple[str, ...]]:
    """Give what is there with our marks and not in the files: left over by us, or copied by somebody."""
    items, notes = inventory_store.labelled_objects(resolved.cluster, inventory)
    label = ("f:metadata", "f:labels", f"f:{APP_LABEL}")
    places = {"", inventory.namespace, *(member.namespace for member in inventory.members)}
    rows = []
    for item in sorted(items, key=lambda item: inventory_store.member_of(item).identity):
        member = inventory_store.member_of(item)
        is_meant = not resolved.selective or member.component in resolved.state.components
        if member.identity in manifests or not is_meant:
            continue
        maker = next(
            (entry for entry in managed_fields.entries(item) if managed_fields.depth(entry.tree, label)), None
        )
        reason = "the files do not bring it any more"
        if not inventory_store.is_ours(item, inventory):
            reason = "carries our labels, and mlstack did not make it"
            by_person = maker is not None and maker.owner.manager != MANAGER and is_persons_tool(maker.owner)
            is_here = item["metadata"].get("namespace", "") in places
            # Controllers copy labels to what they make as well.
            if not by_person or other_owner_of(item, inventory) or not is_here:
                continue
        rows.append(_row(member.identity, member.component, "extra", reason, maker=maker))
    return rows, notes
