"""What a server-side apply would make of one object: a live object and dry runs become a `Change`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mlstack.app.app import ConflictRule
from mlstack.deploy import adopt, conflicts, definition, replacement, result
from mlstack.deploy.adopt import Removal, RemovedFields
from mlstack.deploy.autoscaling import Replicas, Scalers, only_field
from mlstack.deploy.changes import ApplyOptions, Change, Refusal, digest_of, fingerprint
from mlstack.deploy.conflicts import (
    FORCE_FIELDS,
    IGNORE_FIELDS,
    ConflictPolicy,
    ConflictResolution,
    Lost,
    annotated,
    resolve,
)
from mlstack.deploy.inventory import Inventory, Member, people_hash
from mlstack.deploy.live import LastApplied, LiveState, is_reachable, pruned_labels
from mlstack.deploy.replacement import ReplacementVerdict
from mlstack.deploy.target import ResolvedTarget
from mlstack.errors import ConflictError, InvalidError, MlstackError, VersionGoneError
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.objects import kube_object, managed_fields
from mlstack.objects.kinds import Kinds
from mlstack.objects.kube_object import MANAGER, Identity, KubeObject
from mlstack.objects.managed_fields import AUTOSCALING, FieldChange, Path
from mlstack.readiness.assess import needs_new_run

Manifest = Mapping[str, Any]

# How often an object may be another one than a moment before, as while somebody recreates it; of a hundred
# objects on a server that refuses one question of four, five times were not enough once in ten runs.
_MOVES = 20
_USUAL = ApplyOptions()


# --- what holds for every object of a run ---


@dataclass(frozen=True, kw_only=True)
class DiffContext:
    """What holds for every object of a run when it is compared."""

    cluster: Cluster
    environment: str
    scalers: Scalers
    applied: LastApplied
    options: ApplyOptions = _USUAL
    rules: tuple[ConflictRule, ...] = ()  # of the app, for fields that others own as well
    environments: frozenset[str] = frozenset()  # all of the app, as labels name them
    members: Mapping[Identity, Member] = field(default_factory=dict)  # what was written last
    live: LiveState | None = None  # None: each object is asked for
    check_new: bool = False

    def policy(self, wanted: KubeObject) -> ConflictPolicy:
        """Say who is to have the fields of an object that others own too.

        Raises:
            ConfigError: an annotation holds no paths.
        """
        ended = self.scalers.is_set(wanted) and self.scalers.loses(wanted)
        return ConflictPolicy(
            force=annotated(wanted, FORCE_FIELDS),
            ignore=annotated(wanted, IGNORE_FIELDS),
            rules=tuple(rule for rule in self.rules if not rule.kinds or wanted.kind in rule.kinds),
            adopted=(adopt.ADOPTABLE if self.options.adopt else frozenset())
            | ({AUTOSCALING} if ended else frozenset()),
            forced=self.options.force_conflicts,
            keep_foreign=self.options.keep_foreign_fields,
        )

    def was_made_elsewhere(self, wanted: KubeObject, live: Manifest) -> bool:
        """Tell whether another tool made an object, from which it was not and is not adopted."""
        member = self.members.get(wanted.identity)
        is_made = bool(adopt.adoptable(live)) and not self.options.adopt
        if member is None or member.uid != live["metadata"]["uid"]:
            return is_made
        return is_made and member.made_elsewhere

    def foreign(
        self, wanted: KubeObject, live: Manifest, losses: Sequence[Lost], spare: Sequence[Path] = ()
    ) -> RemovedFields:
        """Tell what becomes of fields of others that no file has; of `live` the metadata is enough."""
        if not adopt.by_people(losses):
            return RemovedFields()
        if not self.options.adopt and replacement.other_owner(wanted, wanted.with_data(live)):
            return RemovedFields()  # it is for its owner to say
        makers = adopt.ADOPTABLE if self.was_made_elsewhere(wanted, live) else frozenset()
        return adopt.foreign(losses, self.policy(wanted), spare=spare, makers=makers)

    def foreign_of(self, wanted: KubeObject, live: Manifest, *, metadata_only: bool = False) -> RemovedFields:
        """Tell what becomes of fields of others that no file has, without asking what an apply would do."""
        losses = adopt.strange(live, wanted.data, metadata_only=metadata_only)
        path = self.scalers.path(wanted)
        return self.foreign(wanted, live, losses, [path] if path and not self.scalers.is_set(wanted) else [])

    def new_labels(
        self, wanted: KubeObject, live: Manifest, losses: Sequence[Lost]
    ) -> tuple[tuple[str, str], ...]:
        """Give path and manager of labels and annotations among fields of others, unless told before."""
        member = self.members.get(wanted.identity)
        if member is not None and member.people_hash == people_hash(live):
            return ()
        labels = adopt.by_people(losses, labels=True)
        return tuple((text, loss.owner.manager) for loss in labels for text in loss.texts)

    def is_meddled(self, wanted: KubeObject, live: Manifest) -> bool:
        """Tell from metadata alone whether people's tools set something since, or what may have to go."""
        member, now = self.members.get(wanted.identity), people_hash(live)
        if member is not None and member.people_hash != now:
            return True
        return bool(now and self.foreign_of(wanted, live, metadata_only=True).taken)


def context_of(
    resolved: ResolvedTarget, options: ApplyOptions = _USUAL, inventory: Inventory | None = None
) -> DiffContext:
    """Give what holds for every object of a run, in which each object is asked for."""
    state, app = resolved.state, resolved.target.app
    return DiffContext(
        cluster=resolved.cluster,
        environment=state.environment,
        scalers=Scalers(state.objects, resolved.cluster, pruned=pruned_labels(resolved, options)),
        applied=LastApplied(resolved),
        options=options,
        rules=app.app.conflicts,
        environments=frozenset(map(kube_object.label_of, app.environment_names)),
        members=inventory.members if inventory else {},
    )


# --- one object ---


def diff_object(context: DiffContext, wanted: KubeObject) -> Change:
    """Give what would happen to an object; one that changes while it is looked at is looked at again."""
    for _ in range(_MOVES):
        try:
            return _diff_now(context, wanted)
        except ConflictError as moved:
            if moved.conflicts:
                raise
        if context.live is not None:
            context = replace(context, live=replace(context.live, live={}))
    return _diff_now(context, wanted)


def _diff_now(context: DiffContext, wanted: KubeObject) -> Change:
    metadata = context.live.metadata if context.live else None
    listed = metadata.unchanged(wanted) if metadata else None
    if listed is not None and not context.is_meddled(wanted, listed):
        return _unchanged(context, wanted, listed)
    absent = context.live.absent_namespaces if context.live else frozenset[str]()
    reachable = is_reachable(wanted, context.cluster, absent)
    is_absent = metadata is not None and metadata.is_absent(wanted)
    live = _read(context, wanted) if reachable and not is_absent else None
    if live is None:
        return _new(context, wanted, reachable)
    if live["metadata"].get("deletionTimestamp"):
        return _terminating(context, wanted, live)
    if metadata and metadata.is_as_left(wanted, live) and not context.is_meddled(wanted, live):
        return _unchanged(context, wanted, live)
    return _of_any_owner(context, wanted, live)


def _read(context: DiffContext, wanted: KubeObject) -> Manifest | None:
    if context.live is not None and wanted.identity in context.live.live:
        return context.live.get(wanted)
    return context.cluster.get(ObjectRef.of(wanted.data))


def _unchanged(context: DiffContext, wanted: KubeObject, live: Manifest) -> Change:
    return _change(
        context,
        wanted,
        action="unchanged",
        writes=False,
        live_uid=live["metadata"]["uid"],
        made_elsewhere=context.was_made_elsewhere(wanted, live),
    )


def _new(context: DiffContext, wanted: KubeObject, reachable: bool) -> Change:
    if not context.options.create:
        reason = "is not there, and creation is off"
        return _change(context, wanted, action="missing", writes=False, reason=reason)
    warnings: tuple[str, ...] = ()
    if reachable and context.check_new:
        warnings = context.cluster.apply(wanted.data, dry_run=True).warnings
    return _creation(context, wanted, reachable, notes=warnings)


def _terminating(context: DiffContext, wanted: KubeObject, live: Manifest) -> Change:
    if not context.options.create:
        reason = "is being deleted, and creation is off"
        return _change(context, wanted, action="missing", writes=False, reason=reason)
    reason = "once the old one, which is being deleted, is gone"
    return _creation(context, wanted, True, live_uid=live["metadata"]["uid"], reason=reason)


def _of_any_owner(context: DiffContext, wanted: KubeObject, live: Manifest) -> Change:
    """Give the change of a live object; one of another app or environment is refused, or adopted.

    Definitions and namespaces that both want alike stay whose they are.
    """
    found = replacement.foreign_owner(wanted, wanted.with_data(live), context.environments)
    if found is None:
        return _existing(context, wanted, live)
    owner, refusal = found
    try:
        change = _existing(context, wanted, live)
    except (ConflictError, InvalidError):
        if context.options.adopt:
            raise
        return replacement.refused(wanted, live, refusal)
    if context.options.adopt:
        return replace(change, notes=(f"takes it from {owner}", *change.notes))
    if not replacement.is_shared(wanted, change.fields):
        return replace(change, refusal=refusal)
    note = f"is the same there as here and stays with {owner}"
    return replace(
        change, action="unchanged", fields=(), writes=False, notes=(note,), prepare=(), payload=None
    )


# --- a live object, as a forced dry run tells ---


@dataclass(frozen=True, kw_only=True)
class _Unsaid:
    """What becomes of fields of one object that others own and no file has."""

    ended: RemovedFields = field(default_factory=RemovedFields)  # those that the files had once
    foreign: RemovedFields = field(default_factory=RemovedFields)  # those that people's tools set
    removal: Removal = field(default_factory=Removal)  # what it means that these go
    labels: tuple[tuple[str, str], ...] = ()  # path and manager of people's labels, unless told before

    def notes(self, live: Manifest) -> tuple[str, ...]:
        return (
            *(conflicts.describe_dropped(loss) for loss in self.ended.taken),
            *(conflicts.describe_foreign(live, loss) for loss in self.foreign.taken),
            *(conflicts.describe_left(loss) for loss in (*self.ended.left, *self.foreign.left)),
        )


def _existing(context: DiffContext, wanted: KubeObject, live: Manifest) -> Change:
    cluster = context.cluster
    replicas, policy = context.scalers.replicas(wanted, live), context.policy(wanted)
    try:
        resolution = resolve(cluster, wanted, replicas.asked, live, policy)
        if _has_lost_scaler(context, wanted, resolution.left):
            policy = replace(policy, adopted=policy.adopted | {AUTOSCALING})
            resolution = resolve(cluster, wanted, replicas.asked, live, policy)
    except VersionGoneError:
        return _of_gone_version(context, wanted, live)
    except InvalidError as error:
        return _of_refused(context, wanted, live, error)
    unsaid = _unsaid(context, wanted, live, resolution, replicas, policy)
    fault = unsaid.removal.fault
    if fault is not None:
        fixed = replacement.sentence(wanted, fault.causes, unsaid.removal.changed)
        verdict = replacement.judge(wanted, context.environment, fixed=fixed, why=None)
        return _anew(context, wanted, live, unsaid.removal.changed, verdict, unsaid.notes(live))
    emptied = conflicts.emptied(live, resolution.payload, unsaid.removal.paths, policy)
    if emptied:
        data = managed_fields.cut(resolution.payload, [path for loss in emptied for path in loss.paths])
        again = resolve(cluster, wanted, data, live, policy)
        resolution = replace(again, taken=resolution.taken, left=(*resolution.left, *emptied))
    is_adopted = context.options.adopt and bool(adopt.adoptable(live))
    gone: tuple[FieldChange, ...] = ()
    about: tuple[str, ...] = ()
    if is_adopted or context.was_made_elsewhere(wanted, live):
        ending = {text for loss in (*unsaid.ended.taken, *unsaid.foreign.taken) for text in loss.texts}
        going = adopt.goes(cluster, live, resolution, replicas.data, spare=replicas.spared)
        gone = tuple(one for one in going if one.path not in ending)
        about = tuple(adopt.describe(live, gone, adopt=is_adopted))
    notes = (
        *resolution.forced.warnings,
        *(conflicts.describe_taken(loss) for loss in resolution.taken if loss.said),
        *(conflicts.describe_left(loss) for loss in resolution.left),
        *(conflicts.describe_swept(loss) for loss in conflicts.swept(live, resolution.forced.object)),
        *unsaid.notes(live),
        *replicas.note,
        *about,
    )
    return _compared(context, wanted, live, resolution, replicas, gone, unsaid, tuple(dict.fromkeys(notes)))


def _has_lost_scaler(context: DiffContext, wanted: KubeObject, left: Sequence[Lost]) -> bool:
    """Tell whether a number is left to an autoscaler that is gone: none scales the workload any more.

    Of the controllers that write under this name only the autoscaler writes through `scale`.
    """
    path = context.scalers.path(wanted)
    held = any(loss.owner == AUTOSCALING and path in loss.paths for loss in left)
    return held and context.scalers.has_none(wanted)


def _unsaid(
    context: DiffContext,
    wanted: KubeObject,
    live: Manifest,
    resolution: ConflictResolution,
    replicas: Replicas,
    policy: ConflictPolicy,
) -> _Unsaid:
    """Tell what becomes of fields of others that no file has."""
    losses = adopt.strange(resolution.forced.object, wanted.data)
    if not losses:
        return _Unsaid()
    ended = adopt.dropped(losses, live, context.applied.of(wanted), policy, spare=replicas.spared)
    new = ended.out_of(losses)
    foreign = context.foreign(wanted, live, new, replicas.spared)
    removal = adopt.removal(context.cluster, wanted, live, foreign.paths)
    return _Unsaid(
        ended=ended,
        foreign=foreign if removal.changed else replace(foreign, taken=()),
        removal=removal,
        labels=context.new_labels(wanted, live, new),
    )


def _compared(
    context: DiffContext,
    wanted: KubeObject,
    live: Manifest,
    resolution: ConflictResolution,
    replicas: Replicas,
    gone: tuple[FieldChange, ...],
    unsaid: _Unsaid,
    notes: tuple[str, ...],
) -> Change:
    """Tell what differs in what we own, and whether the object is written."""
    after, ended, removal = resolution.forced.object, unsaid.ended, unsaid.removal
    own, new = managed_fields.owned(live, MANAGER), managed_fields.owned(after, MANAGER)
    differing = [*managed_fields.compare(live, after, managed_fields.union(own, new))]
    prepare: adopt.Patch = ()
    if context.options.adopt and adopt.adoptable(live):
        differing += gone
        prepare = adopt.take_over(live, api_version=wanted.api_version, spare=replicas.spared)
    if ended.paths:
        tree = managed_fields.tree_along(ended.paths)
        differing += adopt.without(context.cluster, live, resolution.payload, tree)
    changed = tuple({one.path: one for one in (*differing, *removal.changed)}.values())
    # What changes nothing is not worth a write, but goes along with one: else it is asked about for ever.
    items = (*ended.paths, *(removal.paths if changed or prepare or own != new else ()))
    if items:
        prepare = _prepared(wanted, live, items, prepare)
    losses = (*resolution.left, *ended.left, *unsaid.foreign.left)
    facts = {
        "notes": notes,
        "left": (*replicas.left, *((text, loss.owner.manager) for loss in losses for text in loss.texts)),
        "labels": unsaid.labels,
        "made_elsewhere": context.was_made_elsewhere(wanted, live),
        "payload": replicas.sent(resolution.payload),
        "prepare": prepare,
        "handover": replicas.handover,
        "seen": {key: live[key] for key in ("apiVersion", "kind", "metadata") if key in live},
    }
    if changed:
        return _differing(context, wanted, live, changed, facts, after)
    writes = own != new or bool(prepare) or replicas.changes_hands
    return _change(context, wanted, action="unchanged", writes=writes, **facts, **_precisely(live))


def _prepared(wanted: KubeObject, live: Manifest, items: Sequence[Path], after: adopt.Patch) -> adopt.Patch:
    """Give the patch that makes fields ours, so that an apply without them removes them.

    An apply that empties a map of a custom resource leaves null in its place, which few definitions
    allow: what lies in a map that the files set empty goes by the patch itself.
    """
    is_custom = Kinds.builtin().lookup(wanted.api_version, wanted.kind) is None
    inside = [
        path for path in items if is_custom and managed_fields.value_at(wanted.data, path[:-1]) in ({}, [])
    ]
    taken = [path for path in items if path not in inside]
    patch = adopt.take_items(live, taken, api_version=wanted.api_version, after=after)
    return (*patch, *managed_fields.removals(live, inside))


def _differing(
    context: DiffContext,
    wanted: KubeObject,
    live: Manifest,
    changed: tuple[FieldChange, ...],
    facts: Mapping[str, Any],
    after: Manifest,
) -> Change:
    why = needs_new_run(live, changed)
    if why:
        verdict = replacement.judge(wanted, context.environment, fixed=why, why=why)
        return _anew(context, wanted, live, changed, verdict, facts["notes"])
    defines, cluster = replacement.is_definition(wanted), context.cluster
    lost = definition.refuse_losses(cluster, live, after) if defines else ()
    notes = (*facts["notes"], *(definition.refuse_demands(cluster, live, after) if defines else ()))
    may_lose = context.options.allow_destructive or definition.is_allowed(wanted.data)
    refusal = replacement.destructive(wanted, lost) if lost and not may_lose else None
    notes = (*notes, *lost) if may_lose else notes
    return _update(context, wanted, live, changed, refusal=refusal, **{**facts, "notes": notes})


# --- an object that a dry run cannot tell of: the server refuses it, or cannot be asked yet ---


def _of_refused(context: DiffContext, wanted: KubeObject, live: Manifest, error: InvalidError) -> Change:
    """Tell a change that cannot be made in place from an object that is wrong: ask under another name."""
    is_definition = replacement.is_definition(wanted)
    copy = wanted.data if is_definition else adopt.attempt(context.cluster, wanted.data, live)
    fault = copy if isinstance(copy, MlstackError) else None
    if not isinstance(copy, MlstackError):
        items = adopt.displaced(live, context.scalers.payload(wanted), error.causes)
        if items:
            return _displacing(context, wanted, live, items, copy)
    if not replacement.says_fixed(error.causes) and (is_definition or fault is not None):
        raise error
    after = wanted.data if isinstance(copy, MlstackError) else copy
    tree = managed_fields.union(managed_fields.owned(live, MANAGER), managed_fields.owned(after, MANAGER))
    if after is wanted.data:  # as it is written, without what the server would fill in
        tree = managed_fields.tree_of(after)
    foreign = context.foreign_of(wanted, live)
    differing = (
        *managed_fields.compare(live, after, tree),
        *managed_fields.compare(live, after, managed_fields.tree_along(foreign.paths)),
    )
    changed = tuple({one.path: one for one in differing}.values())
    lost = definition.refuse_losses(context.cluster, live, wanted.data) if is_definition else ()
    why = needs_new_run(live, changed)
    fixed = "; ".join(lost) or replacement.sentence(wanted, error.causes, changed)
    verdict = replacement.judge(wanted, context.environment, fixed=fixed, why=why)
    if fault is not None and verdict.recreate:
        verdict = replacement.unless_refused(verdict, fault)
    # What people added and goes with the object is said; nothing of what a new one has too.
    notes = tuple(
        conflicts.describe_foreign(live, loss)
        for loss in foreign.taken
        if any(text.startswith(one.path) for text in loss.texts for one in changed)
    )
    return _anew(context, wanted, live, changed, verdict, notes)


def _anew(
    context: DiffContext,
    wanted: KubeObject,
    live: Manifest,
    changed: tuple[FieldChange, ...],
    verdict: ReplacementVerdict,
    notes: tuple[str, ...] = (),
) -> Change:
    """Give the change of an object that cannot take it in place; made anew, it is sent whole."""
    refusal = Refusal(kind="immutable", reasons=(verdict.reason,), hint=verdict.hint)
    return _update(
        context,
        wanted,
        live,
        changed,
        action="recreate" if verdict.recreate else "update",
        reason=verdict.reason if verdict.recreate else "",
        notes=notes,
        refusal=None if verdict.recreate else refusal,
        payload=wanted.data,
    )


def _displacing(
    context: DiffContext, wanted: KubeObject, live: Manifest, items: tuple[Path, ...], after: Manifest
) -> Change:
    """Give the change of an object in which a person's list items stand where ours are to be."""
    tree = managed_fields.union(managed_fields.owned(live, MANAGER), managed_fields.owned(after, MANAGER))
    texts = {managed_fields.path_text(path): managed_fields.value_at(live, path) for path in items}
    changed = (
        *managed_fields.compare(live, after, tree),
        *(FieldChange(path=text, action="removed", old=value) for text, value in texts.items()),
    )
    said = ", ".join(f"`{text}`" for text in texts)
    note = f"removes {said}, which a person put in the place of ours"
    patch = adopt.take_items(live, items, api_version=wanted.api_version)
    return _update(context, wanted, live, changed, notes=(note,), prepare=patch)


def _of_gone_version(context: DiffContext, wanted: KubeObject, live: Manifest) -> Change:
    """Give the change of an object whose field owners stand in a version that is not served any more."""
    data = context.scalers.payload(wanted)
    differing = managed_fields.compare(live, data, managed_fields.tree_of(data))
    changed = tuple(one for one in differing if not one.path.startswith("apiVersion"))
    note = "its field owners are rewritten first: they stand in a version that is not served any more"
    return _update(
        context,
        wanted,
        live,
        changed,
        action="update" if changed else "unchanged",
        notes=(note,),
        prepare=adopt.reversioned(live, api_version=wanted.api_version),
    )


def change_of_new_definition(context: DiffContext, wanted: KubeObject) -> Change:
    """Give the change of an object whose definition changes first: until then the server cannot tell."""
    note = "not checked by the server: its definition changes first"
    live = context.cluster.get(ObjectRef.of(wanted.data))
    if live is None:
        return _creation(context, wanted, False, notes=(note,))
    data = context.scalers.payload(wanted)
    tree = managed_fields.union(managed_fields.owned(live, MANAGER), managed_fields.tree_of(data))
    return _update(context, wanted, live, tuple(managed_fields.compare(live, data, tree)), notes=(note,))


# --- the parts of a change: what is sent, and what it was computed from ---


def _change(context: DiffContext, wanted: KubeObject, **facts: Any) -> Change:
    """Give a change of an object; what is sent is what we will own of it, if nothing else is given."""
    sent = facts.pop("payload") if "payload" in facts else context.scalers.payload(wanted)
    return Change(
        identity=wanted.identity,
        component=wanted.component,
        api_version=wanted.api_version,
        desired=wanted,
        payload=None if sent == wanted.data else sent,
        **facts,
    )


def _update(
    context: DiffContext, wanted: KubeObject, live: Manifest, changed: Sequence[FieldChange], **facts: Any
) -> Change:
    """Give the change of a live object in some fields, whose secrets are masked."""
    masked = result.masked(wanted.identity, changed)
    usual = {"action": "update", "fields": masked, "fingerprint": fingerprint(changed), **_precisely(live)}
    return _change(context, wanted, **{**usual, **facts})


def _creation(context: DiffContext, wanted: KubeObject, reachable: bool, **facts: Any) -> Change:
    """Give a creation; the number that an autoscaler sets is sent once and handed over at once."""
    scalers, handover = context.scalers, None
    path, data = scalers.path(wanted), scalers.payload(wanted)
    if reachable and scalers.is_set(wanted) and scalers.scaler(wanted):
        data = managed_fields.cut(data, [path])
    if data != wanted.data:
        handover = only_field(wanted.data, path, managed_fields.value_at(wanted.data, path))
    made = digest_of(wanted.data)
    return _change(
        context, wanted, action="create", fingerprint=made, handover=handover, payload=data, **facts
    )


def _precisely(live: Manifest) -> dict[str, str]:
    """Give which object, and which version of it, a change was computed from."""
    metadata = live["metadata"]
    return {"live_uid": str(metadata["uid"]), "live_version": str(metadata["resourceVersion"])}
