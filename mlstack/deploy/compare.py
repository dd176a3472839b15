"""Files and clusters of any two environments side by side, and who changed which live object (drift)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from mlstack.app.environment import Environment
from mlstack.dataclass import Record, row
from mlstack.deploy import conflicts
from mlstack.deploy.changes import ApplyOptions, Change, ChangeAction, hide_secrets, masked, with_uid
from mlstack.deploy.history import changes_between
from mlstack.deploy.inventory import (
    MEMBER_LABEL,
    Inventory,
    Member,
    other_owner_of,
    owned_hash,
    payload_hash,
    ref_of,
)
from mlstack.deploy.live import DiffContext, context_of, placed
from mlstack.deploy.object_diff import foreign_fields, policy_of, removed_fields
from mlstack.deploy.plan import diff_environment, is_meddled, kept_labels, until_still
from mlstack.deploy.prune import is_ours, labelled_objects, load_or_find, member_of
from mlstack.deploy.replacement import dry_run_copy
from mlstack.deploy.target import ResolvedTarget, Target, resolve
from mlstack.errors import InvalidError, MlstackError, UsageError
from mlstack.kube import parallel
from mlstack.kube.client import ObjectRef, Opener
from mlstack.objects import managed_fields
from mlstack.objects.kube_object import (
    APP_LABEL,
    ENVIRONMENT_LABEL,
    MANAGER,
    Data,
    DesiredState,
    Identity,
    KubeObject,
    label_of,
)
from mlstack.objects.managed_fields import OURS, FieldChange, FieldPath, ManagedFieldsEntry, is_persons_tool

_BACK: Mapping[str, ChangeAction] = {"create": "delete", "delete": "create", "recreate": "update"}


class ComparedEnvironment(Record):
    """One side of a comparison: `local` for what the files say, `remote` for what the cluster has."""

    where: Literal["local", "remote"]
    environment: str

    def __str__(self) -> str:
        """Write the side as it is typed."""
        return f"{self.where}:{self.environment}"


def read_side(text: str) -> ComparedEnvironment:
    """Read `local:ENV`, `remote:ENV`, or `ENV` for what its files say.

    Raises:
        UsageError: it is none of them.
    """
    where, colon, environment = text.partition(":")
    if not colon:
        return ComparedEnvironment(where="local", environment=text)
    if where not in ("local", "remote") or not environment:
        raise UsageError(f"`{text}` is no side of a comparison", hint="write local:ENV or remote:ENV")
    return ComparedEnvironment(where="local" if where == "local" else "remote", environment=environment)


def compare(
    target: Target, left: ComparedEnvironment, right: ComparedEnvironment, *, opener: Opener
) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """Give what changes on the way from one side to the other, and remarks; nothing is written.

    Files and a cluster are compared by a dry run there, so that defaults of the server are no difference.

    Args:
        target: the app directory, components and parameters, for both sides.
        left: the side that is compared.
        right: the side it is compared with.
        opener: opens a cluster by its context.

    Raises:
        ConfigError: a file, parameter or template is wrong.
        ClusterError: a cluster cannot be asked, or is another than the environment's.
    """
    if left.where == right.where:
        return _like_with_like(target, left, right, opener)
    files, live = (left, right) if left.where == "local" else (right, left)
    changes, notes = _with_cluster(target, files, live, opener)
    return changes if files is right else tuple(map(_reversed, changes)), notes


def _reversed(change: Change) -> Change:
    """Give a change as it is seen from the other side."""
    action, fields = _BACK.get(change.action, change.action), tuple(field.reversed for field in change.fields)
    return replace(change, action=action, fields=fields, desired=None, reason="", notes=())


def _like_with_like(
    target: Target, left: ComparedEnvironment, right: ComparedEnvironment, opener: Opener
) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """Compare the files of two environments, or what two clusters have."""
    targets = [replace(target, environment=side.environment) for side in (left, right)]
    before, after = (
        side.desired() if left.where == "local" else _live_state(resolve(side, opener)) for side in targets
    )
    place, other = (side.app.environment(side.environment) for side in targets)
    secrets = (*before.secrets, *after.secrets)
    changes = tuple(
        replace(change, fields=hide_secrets(change.fields, secrets))
        for change in changes_between(_moved(before, place, other), after)
    )
    return changes, tuple(dict.fromkeys((*before.notes, *after.notes)))


def _with_cluster(
    target: Target, files: ComparedEnvironment, live: ComparedEnvironment, opener: Opener
) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """Compare with a cluster what one side's files say, as if they were of the environment there."""
    desired = replace(target, environment=files.environment)
    goal = replace(target, environment=live.environment)
    place, other = (side.app.environment(side.environment) for side in (desired, goal))
    state = _moved(desired.desired(), place, other)
    changes = diff_environment(resolve(goal, opener, state=state), ApplyOptions(dry_run=True)).changes.changes
    namespace = Identity("", "Namespace", "", state.namespace)  # which an apply would make first
    return tuple(
        replace(change, fields=hide_secrets(change.fields, state.secrets))
        for change in changes
        if change.component or change.identity != namespace
    ), state.notes


def _moved(state: DesiredState, place: Environment, other: Environment) -> DesiredState:
    """Give the objects of one environment as if they were another's: its namespace and its mark."""
    objects = []
    for obj in state.objects:
        metadata = dict(obj.metadata)
        if obj.namespace == place.namespace:
            metadata["namespace"] = other.namespace
        if (obj.metadata.get("labels") or {}).get(ENVIRONMENT_LABEL):
            metadata["labels"] = {**metadata["labels"], ENVIRONMENT_LABEL: label_of(other.name)}
        if (obj.api_version, obj.kind, obj.name) == ("v1", "Namespace", place.namespace):
            metadata["name"] = other.namespace
        objects.append(obj.with_data({**obj.data, "metadata": metadata}))
    return replace(state, environment=other.name, namespace=other.namespace, objects=tuple(objects))


def _live_state(resolved: ResolvedTarget) -> DesiredState:
    """Give what we own of the objects that an environment has in its cluster."""
    state = resolved.state
    inventory = load_or_find(resolved.cluster, state)
    members = inventory.of_components(state.components) if resolved.selective else inventory.ordered()

    def fetch(member: Member) -> KubeObject | None:
        live = resolved.cluster.get(ref_of(member))
        return None if live is None else KubeObject(data=_owned(live), component=member.component)

    objects = parallel.whole(parallel.run(fetch, members))
    return replace(
        state,
        objects=tuple(obj for obj in objects if obj is not None),
        notes=(*state.notes, *inventory.notes),
    )


def _owned(live: Data) -> dict[str, Any]:
    """Give what we applied of a live object, with its name, and without the mark of its ApplySet."""
    names = {key: live["metadata"][key] for key in ("name", "namespace") if key in live["metadata"]}
    tree = managed_fields.owned(live)
    owned = managed_fields.project(live, tree) if tree else {}
    metadata = {**owned.get("metadata", {}), **names}
    labels = {key: value for key, value in metadata.pop("labels", {}).items() if key != MEMBER_LABEL}
    metadata |= {"labels": labels} if labels else {}
    return {**owned, "apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": metadata}


# --- drift: who changed which field of a live object, or whether only our apply is behind ---

DriftCause = Literal["person", "controller", "stale", "unknown"]
DriftState = Literal["same", "changed", "missing", "new", "extra"]
DriftAction = Literal["changed", "removed", "added"]


class Difference(Record):
    """One field of a live object that is not as the files say."""

    path: str  # the field as people write it: `spec.template.spec.containers[main].image`
    action: DriftAction  # what happened to the live object: `added` is there and is not wanted any more
    # `person` for a tool that people use, `controller` for any other program, `stale` where the files have
    # changed since the last apply, `unknown` where a field went without a trace
    cause: DriftCause
    live: Any = None  # the value in the cluster, None if the field was removed
    wanted: Any = None  # the value that the files give, None if they give none
    manager: str = ""  # the field manager that changed it, empty if nobody is recorded
    subresource: str = ""  # `scale` or `status` if it wrote through one
    time: str = ""  # when that manager last took or left a field of the object, empty if that is not recorded
    sure: bool = True  # false where the manager is only likely, as of a removed field that leaves no trace

    @property
    def change(self) -> FieldChange:
        """Give what happened to the field."""
        return FieldChange(path=self.path, action=self.action, old=self.wanted, new=self.live)


class DriftRow(Record):
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
    gone: Sequence[FieldPath] = (),
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
        for shown in hide_secrets(masked(identity, [change]), secrets)
    )


def _difference(live: Data, path: FieldPath, change: FieldChange, applied: Data | None) -> Difference:
    entries = managed_fields.entries(live)
    ours = [entry for entry in entries if entry.owner == OURS]
    others = [entry for entry in entries if entry.owner != OURS]
    owners = [entry for entry in others if managed_fields.depth(entry.tree, path)]
    # Who fills an empty map of ours owns what is in it, and we the map.
    deepest = max((managed_fields.depth(entry.tree, path) for entry in owners), default=1)
    cause: DriftCause = "unknown"
    owner, sure = None, True
    if any(managed_fields.depth(entry.tree, path) >= deepest for entry in ours):
        cause = "stale"
    elif owners:
        owner = max(owners, key=lambda entry: entry.time)
    elif applied is not None and not managed_fields.says(applied, path):
        cause = "stale"  # removed from the object, or never applied
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
    inventory = load_or_find(cluster, state)
    labelled = inventory.label if inventory.members else dict
    objects = tuple(manifest.with_data(labelled(manifest.data)) for manifest in state.objects)
    resolved = replace(resolved, state=replace(state, objects=objects))
    context = context_of(resolved, inventory=inventory)
    manifests = placed(objects, cluster)
    looks = [partial(_drift, context, manifest) for manifest in manifests]
    answers = parallel.whole(parallel.run(until_still, looks))
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


def _drift(context: DiffContext, manifest: KubeObject) -> _Answer:
    member = context.inventory.members.get(manifest.identity)
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
    applied: Data | None = context.inventory.label(last[0]) if last else None
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
    return row(
        DriftRow,
        identity,
        object=str(identity),
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
) -> tuple[Data, managed_fields.Tree | None, list[FieldPath]]:
    """Tell what an object is that cannot take the change: by a new one, or by what is written.

    Given are what it would be, the fields to look at, and those that go.
    """
    copy = dry_run_copy(context.cluster, data, live)
    foreign = [path for _, path in foreign_fields(context, manifest, live)]
    if not isinstance(copy, MlstackError):
        return copy, None, [*conflicts.displaced_items(live, data, error.causes), *foreign]
    sent = {key: value for key, value in data.items() if key not in ("apiVersion", "kind")}
    tree = managed_fields.union(managed_fields.owned(live), managed_fields.tree_of(sent))
    return data, tree, foreign


def _extra(
    resolved: ResolvedTarget, inventory: Inventory, manifests: set[Identity]
) -> tuple[list[DriftRow], tuple[str, ...]]:
    """Give what is there with our marks and not in the files: left over by us, or copied by somebody."""
    items, notes = labelled_objects(resolved.cluster, inventory)
    label = ("f:metadata", "f:labels", f"f:{APP_LABEL}")
    places = {"", inventory.namespace, *(member.namespace for member in inventory.members)}
    rows = []
    for item in sorted(items, key=lambda item: member_of(item).identity):
        member = member_of(item)
        is_meant = not resolved.selective or member.component in resolved.state.components
        if member.identity in manifests or not is_meant:
            continue
        maker = next(
            (entry for entry in managed_fields.entries(item) if managed_fields.depth(entry.tree, label)), None
        )
        reason = "the files do not bring it any more"
        if not is_ours(item, inventory):
            reason = "carries our labels, and mlstack did not make it"
            by_person = maker is not None and maker.owner.manager != MANAGER and is_persons_tool(maker.owner)
            is_here = item["metadata"].get("namespace", "") in places
            # Controllers copy labels to what they make as well.
            if not by_person or other_owner_of(item, inventory) or not is_here:
                continue
        rows.append(_row(member.identity, member.component, "extra", reason, maker=maker))
    return rows, notes
