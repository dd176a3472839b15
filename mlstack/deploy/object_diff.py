"""What a server-side apply would make of an object that is there: dry runs become a `Change`."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import field, replace
from math import ceil, floor
from typing import Any

from mlstack.dataclass import Record
from mlstack.deploy import conflicts, replacement
from mlstack.deploy.changes import Change, Refusal, fingerprint, masked
from mlstack.deploy.conflicts import ConflictPolicy, ConflictResolution, OwnedField, resolve
from mlstack.deploy.inventory import other_owner, people_hash
from mlstack.deploy.live import DiffContext, Replicas
from mlstack.deploy.plan import adopts as is_adopting
from mlstack.deploy.plan import change_of, refused, was_made_elsewhere
from mlstack.errors import ODD, ConflictError, InvalidError, MlstackError, VersionGoneError
from mlstack.kube.client import Cluster
from mlstack.names import listed
from mlstack.objects import managed_fields
from mlstack.objects.kube_object import MANAGER, Data, Identity, Kinds, KubeObject
from mlstack.objects.managed_fields import ADOPTABLE, AUTOSCALING, FieldChange, FieldPath, path_text, value_at
from mlstack.objects.references import read_by_pods, read_once
from mlstack.readiness.evaluate import needs_new_run
from mlstack.readiness.rule import number


def diff_live(context: DiffContext, manifest: KubeObject, live: Data) -> Change:
    """Give the change of a live object; one of another app or environment is refused, or adopted.

    Definitions and namespaces that both want alike stay whose they are.
    """
    foreign = replacement.foreign_owner(manifest, live, context.resolved.target.app.environment_names)
    if foreign is None:
        return _diff(context, manifest, live)
    owner, refusal = foreign
    try:
        change = _diff(context, manifest, live)
    except (ConflictError, InvalidError):
        if context.options.adopt:
            raise
        return refused(manifest, live, refusal)
    if context.options.adopt:
        return replace(change, notes=(f"takes it from {owner}", *change.notes))
    if not replacement.is_shared(manifest, change.fields):
        return replace(change, refusal=refusal)
    note = f"is the same there as here and stays with {owner}"
    return replace(
        change, action="unchanged", fields=(), writes=False, notes=(note,), prepare=(), payload=None
    )


def _diff(context: DiffContext, manifest: KubeObject, live: Data) -> Change:
    if live["apiVersion"] != manifest.api_version:  # this very run brings the version that is wanted
        return _diff_other_version(context, manifest, live)
    scalers, cluster = context.scalers, context.cluster
    replicas, policy = scalers.replicas(manifest, live), policy_of(context, manifest)
    try:
        resolution = resolve(cluster, manifest, replicas.asked, live, policy)
        # Of the controllers that write under this name only the autoscaler writes through `scale`.
        if (AUTOSCALING, scalers.path(manifest)) in resolution.left and scalers.has_none(manifest):
            policy = replace(policy, adopted=policy.adopted | {AUTOSCALING})
            resolution = resolve(cluster, manifest, replicas.asked, live, policy)
    except VersionGoneError:
        return _diff_other_version(context, manifest, live)
    except InvalidError as error:
        return _diff_refused(context, manifest, live, error)
    removed = removed_fields(context, manifest, live, resolution.forced.object, policy, replicas.spared)
    if removed.error is not None:
        fixed = replacement.sentence(manifest, removed.error.causes, removed.changed)
        verdict = replacement.judge(manifest, context.resolved.state.environment, fixed=fixed, why=None)
        return _replace(context, manifest, live, removed.changed, verdict, tuple(removed.notes(live)))
    emptied = conflicts.empty_maps(live, resolution.payload, removed.paths, policy)
    if emptied:
        data = managed_fields.cut(resolution.payload, [path for _, path in emptied])
        again = resolve(cluster, manifest, data, live, policy)
        resolution = replace(again, taken=resolution.taken, left=[*resolution.left, *emptied])
    taken = [
        field for field in resolution.taken if field[0].manager not in (MANAGER, managed_fields.HANDOVER)
    ]
    notes = [
        *resolution.forced.warnings,
        *conflicts.notes(conflicts.TAKEN, taken, live),
        *conflicts.notes(conflicts.LEFT, resolution.left, live),
        *conflicts.notes(conflicts.SWEPT, conflicts.lost_items(live, resolution.forced.object), live),
        *removed.notes(live),
        *replicas.notes,
    ]
    return _compared(context, manifest, live, resolution, replicas, removed, notes)


def _compared(
    context: DiffContext,
    manifest: KubeObject,
    live: Data,
    resolution: ConflictResolution,
    replicas: Replicas,
    removed: RemovedFields,
    notes: list[str],
) -> Change:
    """Tell what differs in what we own, and whether the object is written."""
    after = resolution.forced.object
    adopts = is_adopting(context.options, manifest) and bool(managed_fields.adoptable(live))
    made_elsewhere = was_made_elsewhere(context, manifest, live)
    dropped = tuple(dict.fromkeys(path for _, path in removed.dropped))
    gone: list[FieldChange] = []
    if adopts or made_elsewhere:
        removals = {path_text(path) for _, path in (*removed.dropped, *removed.foreign)}
        going = conflicts.gone_by_adoption(context.cluster, live, resolution, replicas.data, replicas.spared)
        gone = [change for change in going if change.path not in removals]
        notes += conflicts.adoption_note(live, gone, adopt=adopts)
    changed = _differing(context.cluster, live, resolution, removed, gone if adopts else ())
    moves = managed_fields.owned(live) != managed_fields.owned(after)
    # What changes nothing is not worth a write, but goes along with one: else it is asked about for ever.
    paths = (*dropped, *(removed.paths if changed or adopts or moves else ()))
    left = (*resolution.left, *removed.dropped_left, *removed.foreign_left)
    facts: dict[str, Any] = {
        "notes": tuple(dict.fromkeys(notes)),
        "left": (*replicas.left, *((path_text(path), owner.manager) for owner, path in left)),
        "labels": removed.labels,
        "made_elsewhere": made_elsewhere,
        "payload": managed_fields.cut(resolution.payload, [replicas.path] if replicas.handover else []),
        "prepare": _prepared(manifest, live, paths, adopts, replicas.spared) if adopts or paths else (),
        "handover": replicas.handover,
        "live_metadata": {key: live[key] for key in ("apiVersion", "kind", "metadata") if key in live},
    }
    if changed or replacement.is_failed_hook(manifest, live):
        return _changed(context, manifest, live, changed, after, facts)
    facts["writes"] = moves or bool(facts["prepare"]) or replicas.handover is not None
    return update(context, manifest, live, (), action="unchanged", fingerprint="", **facts)


def _differing(
    cluster: Cluster,
    live: Data,
    resolution: ConflictResolution,
    removed: RemovedFields,
    gone: Sequence[FieldChange],
) -> tuple[FieldChange, ...]:
    """Give each field that gets another value or goes, once; `gone` is taken away by an adoption."""
    after, dropped = resolution.forced.object, managed_fields.tree_along(path for _, path in removed.dropped)
    differing = (
        *managed_fields.compare(live, after, _ours(live, after)),
        *gone,
        *conflicts.changed_without(cluster, live, resolution.payload, dropped),
        *removed.changed,
    )
    return tuple({change.path: change for change in differing}.values())


def _changed(
    context: DiffContext,
    manifest: KubeObject,
    live: Data,
    changed: Sequence[FieldChange],
    after: Data,
    facts: dict[str, Any],
) -> Change:
    """Give a change in fields, in place or by a new run; what a definition would lose has to be allowed."""
    if replacement.is_failed_hook(manifest, live):
        reason = "it failed, and a hook of Helm runs again"
        return _replace(context, manifest, live, changed, reason, facts["notes"])
    if why := needs_new_run(live, changed):
        verdict = replacement.judge(manifest, context.resolved.state.environment, fixed=why, why=why)
        return _replace(context, manifest, live, changed, verdict, facts["notes"])
    if not replacement.is_definition(manifest):
        return update(context, manifest, live, changed, **facts)
    lost = replacement.losses_of(context.cluster, live, after)
    notes = (*facts["notes"], *replacement.demands_of(context.cluster, live, after))
    refusal = None
    if context.options.allow_destructive or replacement.is_allowed(manifest.data):
        notes = (*notes, *lost)
    elif lost:
        hint = (
            f"if that is wanted: --allow-destructive-crds, or the annotation"
            f' `{replacement.ALLOW_ANNOTATION}: "true"` on `{manifest.name}`'
        )
        refusal = Refusal(kind="destructive", reasons=lost, hint=hint)
    return update(context, manifest, live, changed, **{**facts, "notes": notes, "refusal": refusal})


def _prepared(
    manifest: KubeObject, live: Data, paths: Sequence[FieldPath], adopts: bool, spared: Sequence[FieldPath]
) -> conflicts.JsonPatch:
    """Give the patch that makes fields ours, so that an apply without them removes them.

    An apply that empties a map of a custom resource leaves null in its place, which few definitions
    allow: what lies in a map that the files set empty goes by the patch itself.
    """
    is_custom = Kinds.builtin().lookup(manifest.api_version, manifest.kind) is None
    inside = [path for path in paths if is_custom and value_at(manifest.data, path[:-1]) in ({}, [])]
    ours = [path for path in paths if path not in inside]
    patch = conflicts.own(live, api_version=manifest.api_version, adopt=adopts, paths=ours, spare=spared)
    return (*patch, *managed_fields.removals(live, inside))


# --- fields that others own ---


def policy_of(context: DiffContext, manifest: KubeObject) -> ConflictPolicy:
    """Say who is to have the fields of an object that others own too."""
    scalers, options, rules = context.scalers, context.options, context.resolved.target.app.app.conflicts
    ended = scalers.is_set(manifest) and scalers.loses(manifest)
    return ConflictPolicy(
        force=managed_fields.annotated(manifest, managed_fields.FORCE_FIELDS),
        ignore=managed_fields.annotated(manifest, managed_fields.IGNORE_FIELDS),
        rules=tuple(rule for rule in rules if not rule.kinds or manifest.kind in rule.kinds),
        adopted=(ADOPTABLE if is_adopting(options, manifest) else frozenset())
        | ({AUTOSCALING} if ended else frozenset()),
        forced=options.force_conflicts,
        keep_foreign=options.keep_foreign_fields,
    )


class RemovedFields(Record):
    """What becomes of fields of a live object that others own and no file has."""

    dropped: Sequence[OwnedField] = ()  # the files had them once: they go
    dropped_left: Sequence[OwnedField] = ()  # likewise, and they stay with others
    foreign: Sequence[OwnedField] = ()  # people's tools set them: they go
    foreign_left: Sequence[OwnedField] = ()  # likewise, and they stay
    labels: tuple[tuple[str, str], ...] = ()  # path and manager of people's labels, unless told before
    paths: tuple[FieldPath, ...] = ()  # what goes with `foreign`, and what holds nothing else
    changed: tuple[FieldChange, ...] = ()  # what changes; nothing where the server gives the same values
    after: Data = field(default_factory=dict)  # the object without `foreign`
    error: InvalidError | None = None  # why they cannot go while the object exists

    def notes(self, live: Data) -> list[str]:
        """Say what goes and what stays."""
        return [
            *conflicts.notes(conflicts.DROPPED, self.dropped, live),
            *conflicts.notes(conflicts.FOREIGN, self.foreign, live),
            *conflicts.notes(conflicts.LEFT, self.dropped_left, live),
            *conflicts.notes(conflicts.LEFT, self.foreign_left, live),
        ]


def removed_fields(
    context: DiffContext,
    manifest: KubeObject,
    live: Data,
    forced: Data,
    policy: ConflictPolicy,
    spared: Sequence[FieldPath],
) -> RemovedFields:
    """Tell what becomes of fields of others that no file has, from the answer to a forced dry run."""
    fields = conflicts.fields_of_no_file(forced, manifest.data)
    if not fields:
        return RemovedFields(after=live)
    applied = context.applied.of(manifest)
    dropped, dropped_left = conflicts.dropped_fields(fields, live, applied, policy, spare=spared)
    ours = {path for _, path in (*dropped, *dropped_left)}
    fields = [(owner, path) for owner, path in fields if path not in ours]
    foreign, foreign_left = _foreign(context, manifest, live, fields, spared)
    member = context.inventory.members.get(manifest.identity)
    is_told = member is not None and member.people_hash == people_hash(live)
    labels = [] if is_told else conflicts.by_people(fields, labels=True)
    removed = RemovedFields(
        dropped=dropped,
        dropped_left=dropped_left,
        foreign_left=foreign_left,
        labels=tuple((path_text(path), owner.manager) for owner, path in labels),
        after=live,
    )
    going = [path for _, path in foreign if value_at(live, path) is not managed_fields.MISSING]
    if not going:
        return removed
    paths = conflicts.widened(live, manifest.data, going)
    after, error = conflicts.without(context.cluster, manifest, live, paths)
    changed = tuple(managed_fields.compare(live, after, managed_fields.tree_along(going)))
    removed = replace(removed, paths=paths, after=after, changed=changed)
    return replace(removed, foreign=foreign, error=error) if changed else removed


def _foreign(
    context: DiffContext,
    manifest: KubeObject,
    live: Data,
    fields: Sequence[OwnedField],
    spared: Sequence[FieldPath],
) -> tuple[list[OwnedField], list[OwnedField]]:
    """Part fields that no file has: what people's tools set and goes, and what stays."""
    if not conflicts.by_people(fields):
        return [], []
    if not context.options.adopt and other_owner(manifest, live):
        return [], []  # it is for its owner to say
    makers = ADOPTABLE if was_made_elsewhere(context, manifest, live) else frozenset()
    return conflicts.foreign(fields, policy_of(context, manifest), spare=spared, makers=makers)


def foreign_fields(
    context: DiffContext, manifest: KubeObject, live: Data, *, metadata_only: bool = False
) -> list[OwnedField]:
    """Give the fields of people's tools that go, without asking what an apply would do.

    Of `live` the metadata is enough.
    """
    fields = conflicts.fields_of_no_file(live, manifest.data, metadata_only=metadata_only)
    path = context.scalers.path(manifest)
    spared = [path] if path and not context.scalers.is_set(manifest) else []
    return _foreign(context, manifest, live, fields, spared)[0]


# --- an object that a dry run cannot tell of: the server refuses it, or cannot be asked yet ---


def _diff_refused(context: DiffContext, manifest: KubeObject, live: Data, error: InvalidError) -> Change:
    """Tell a change that cannot be made in place from an object that is wrong: ask under another name."""
    cluster, is_definition = context.cluster, replacement.is_definition(manifest)
    copy = manifest.data if is_definition else replacement.dry_run_copy(cluster, manifest.data, live)
    fault, after = (copy, manifest.data) if isinstance(copy, MlstackError) else (None, copy)
    if fault is None:
        items = conflicts.displaced_items(live, context.scalers.payload(manifest), error.causes)
        if items:
            return _displace(context, manifest, live, items, after)
    is_policy = not any(cause.reason for cause in error.causes)  # whose words a creation may not meet
    if not replacement.says_fixed(error) and (is_definition or is_policy or fault is not None):
        raise error
    tree = _ours(live, after)
    if after is manifest.data:  # as it is written, without what the server would fill in
        tree = managed_fields.tree_of(after)
    foreign = foreign_fields(context, manifest, live)
    differing = (
        *managed_fields.compare(live, after, tree),
        *managed_fields.compare(live, after, managed_fields.tree_along(path for _, path in foreign)),
    )
    changed = tuple({change.path: change for change in differing}.values())
    lost = replacement.losses_of(cluster, live, manifest.data) if is_definition else ()
    why = needs_new_run(live, changed)
    fixed = "; ".join(lost) or replacement.sentence(manifest, error.causes, changed)
    verdict = replacement.judge(manifest, context.resolved.state.environment, fixed=fixed, why=why)
    if fault is not None and isinstance(verdict, str):
        verdict = replacement.unless_refused(verdict, fault)
    # What people added and goes with the object is said; nothing of what a new one has too.
    paths = tuple(change.path for change in changed)
    owners = {owner for owner, path in foreign if path_text(path).startswith(paths)}
    remarks = [(owner, path) for owner, path in foreign if owner in owners]
    notes = tuple(conflicts.notes(conflicts.FOREIGN, remarks, live))
    return _replace(context, manifest, live, changed, verdict, notes)


def _replace(
    context: DiffContext,
    manifest: KubeObject,
    live: Data,
    changed: Sequence[FieldChange],
    verdict: str | Refusal,
    notes: tuple[str, ...],
) -> Change:
    """Give the change of an object that cannot take it in place; made anew, it is sent whole."""
    facts: dict[str, Any] = {"refusal": verdict}
    if isinstance(verdict, str):
        facts = {"action": "recreate", "reason": verdict}
    return update(context, manifest, live, changed, notes=notes, payload=manifest.data, **facts)


def _displace(
    context: DiffContext, manifest: KubeObject, live: Data, items: Sequence[FieldPath], after: Data
) -> Change:
    values = {path_text(path): value_at(live, path) for path in items}
    changed = [
        *managed_fields.compare(live, after, _ours(live, after)),
        *(FieldChange(path=text, action="removed", old=value) for text, value in values.items()),
    ]
    listed = ", ".join(f"`{text}`" for text in values)
    note = f"removes {listed}, which a person put in the place of ours"
    patch = conflicts.own(live, api_version=manifest.api_version, paths=items)
    return update(context, manifest, live, changed, notes=(note,), prepare=patch)


def _diff_other_version(context: DiffContext, manifest: KubeObject, live: Data) -> Change:
    """Give the change of an object whose field owners stand in another version than it is wanted in.

    No apply can read such entries where the definition drops that version, or where it lacks a new field.
    """
    data = context.scalers.payload(manifest)
    tree = managed_fields.union(managed_fields.owned(live), managed_fields.tree_of(data))
    differing = managed_fields.compare(live, data, tree)
    changed = [change for change in differing if not change.path.startswith("apiVersion")]
    note = f"its field owners are rewritten first, from another version to {manifest.version}"
    entries = [{**raw, "apiVersion": manifest.api_version} for raw in managed_fields.raw_entries(live)]
    return update(
        context,
        manifest,
        live,
        changed,
        action="update" if changed else "unchanged",
        notes=(note,),
        prepare=conflicts.entries_patch(live, entries),
    )


def _ours(live: Data, after: Data) -> managed_fields.Tree:
    return managed_fields.union(managed_fields.owned(live), managed_fields.owned(after))


def update(
    context: DiffContext, manifest: KubeObject, live: Data, changed: Sequence[FieldChange], **facts: Any
) -> Change:
    """Give the change of a live object in some fields, whose secrets are masked."""
    usual = {
        "action": "update",
        "fields": masked(manifest.identity, changed),
        "fingerprint": fingerprint(changed),
        "live": KubeObject(data=live),
        "live_uid": str(live["metadata"]["uid"]),
        "live_version": str(live["metadata"]["resourceVersion"]),
    }
    return change_of(context, manifest, **{**usual, **facts})


# --- what changes do to pods that run ---

_CONFIGS = ("ConfigMap", "Secret")
_NAMED = 8
_DATA = ("data", "binaryData", "stringData")


def with_rollout_notes(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Give changes with what they do to pods among the notes of each workload and of each setting.

    Of odd values, which the API server refuses, nothing is said.
    """
    notes = {change.identity: note for change in changes if (note := _restart(change))}
    settings = {change.identity for change in changes if _changes(change, _DATA, _CONFIGS)}
    staying = [
        change.desired
        for change in changes
        if change.desired is not None
        and change.action in ("update", "unchanged")
        and change.identity not in notes
    ]
    notes |= _unnoticed(settings, staying) if settings else {}
    return tuple(
        replace(change, notes=(*change.notes, notes[change.identity])) if change.identity in notes else change
        for change in changes
    )


def _changes(change: Change, paths: tuple[str, ...], kinds: Container[str]) -> bool:
    return (
        change.action == "update"
        and change.identity.kind in kinds
        and any(row.path.startswith(paths) for row in change.fields)
    )


def _restart(change: Change) -> str:
    """Say of a workload whose pods are made anew how that goes, as its controller does it."""
    rule = _ROLLOUTS.get(change.identity.kind) if change.identity.group == "apps" else None
    if rule is None or change.desired is None or not _changes(change, ("spec.template.",), _ROLLOUTS):
        return ""
    try:
        live = (change.live or change.desired).data.get("spec") or {}
        spec = change.desired.data.get("spec") or {}
        if (spec.get("updateStrategy") or {}).get("type") == "OnDelete":
            return "its pods keep what they have until somebody deletes them (updateStrategy OnDelete)"
        # An autoscaler's number stands in the cluster alone.
        return rule(spec, number(spec, "replicas", number(live, "replicas", 1)))
    except ODD:
        return ""


def _deployment(spec: Mapping[str, Any], count: int) -> str:
    strategy = spec.get("strategy") or {}
    if strategy.get("type") == "Recreate":
        return f"stops {_pods(count)}, then starts {'it' if count == 1 else 'them'} again"
    missing, more = budget(strategy, count)
    return f"restarts {_pods(count)}: at most {missing} missing and {more} more at a time"


def budget(strategy: Mapping[str, Any], count: int) -> tuple[int, int]:
    """Give how many pods of a Deployment may be missing, and how many more there may be, while it updates."""
    rolling = strategy.get("rollingUpdate") or {}
    missing = _share(rolling.get("maxUnavailable", "25%"), count, floor)
    more = _share(rolling.get("maxSurge", "25%"), count, ceil)
    # apps/v1: where both would be 0, one pod may be missing
    return missing or int(not more), more


def _stateful_set(spec: Mapping[str, Any], count: int) -> str:
    budget = (spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
    first = number(budget, "partition")
    at_once = max(1, _share(budget.get("maxUnavailable", 1), count, ceil))
    kept = f"; those below {first} stay as they are (partition)" if first else ""
    return f"restarts {_pods(max(count - first, 0))}, {at_once} at a time, the last one first{kept}"


def _daemon_set(spec: Mapping[str, Any], count: int) -> str:
    budget = (spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
    at_once = budget.get("maxUnavailable", 1)
    return f"restarts the pod of every node, {at_once} of them at a time"


_ROLLOUTS = {"Deployment": _deployment, "StatefulSet": _stateful_set, "DaemonSet": _daemon_set}


def _share(value: Any, count: int, rounded: Any) -> int:
    if isinstance(value, str) and value.endswith("%") and value[:-1].isdigit():
        return int(rounded(int(value[:-1]) * count / 100))
    return value if isinstance(value, int) else 0


def _pods(count: int) -> str:
    return f"{count} pod{'' if count == 1 else 's'}"


def _unnoticed(settings: Container[Identity], staying: Sequence[KubeObject]) -> dict[Identity, str]:
    """Say of each setting whose content changes which workloads that read it are not restarted."""
    readers: dict[Identity, tuple[list[str], list[str]]] = {}
    for obj in staying:
        try:
            read, once = set(read_by_pods(obj)), set(read_once(obj))
        except ODD:
            continue
        for setting in read:
            if setting in settings:
                readers.setdefault(setting, ([], []))[setting not in once].append(str(obj.identity))
    notes = {}
    for setting, (of_start, of_files) in readers.items():
        texts = [f"running pods of {listed(of_start, _NAMED)} do not notice it"] if of_start else []
        if of_files:
            names = listed(of_files, _NAMED)
            texts.append(f"running pods of {names} get the new files within minutes, and are not restarted")
        notes[setting] = "; ".join(texts)
    return notes
