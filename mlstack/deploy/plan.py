"""What a run would do, worked out and waiting for a yes: the whole difference, and the plan of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, TypeVar

import mlstack
from mlstack.app.environment import ClusterIdentity, Environment
from mlstack.clock import timestamp
from mlstack.dataclass import Record, row
from mlstack.deploy.changes import (
    DESTRUCTIVE,
    EXISTING,
    OUTCOMES,
    ApplyOptions,
    Change,
    ChangeReport,
    Changes,
    OnEvent,
    Refusal,
    RunEvent,
    RunKind,
    RunResult,
    digest_of,
    report,
    run_result,
    what_moved,
)
from mlstack.deploy.history import CHANGING, History, Revision, RevisionStatus
from mlstack.deploy.inventory import (
    Inventory,
    as_members,
    grown,
    needs_writing,
    other_environments,
    people_hash,
    shrunk,
)
from mlstack.deploy.live import DiffContext, fetch, is_reachable, only_field
from mlstack.deploy.lock import LastingLock
from mlstack.deploy.prune import PruneSet, candidates, find_by_labels
from mlstack.deploy.target import NOWHERE, GitState, ResolvedTarget
from mlstack.errors import (
    ClusterError,
    ConfigError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    MlstackError,
    NotReadyError,
    OutdatedError,
    TransientError,
    UnreachableError,
)
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.names import listed
from mlstack.objects import kube_object, managed_fields, order
from mlstack.objects.kube_object import Data, Identity, Kind, Kinds, KubeObject, kinds_of_crd
from mlstack.objects.order import DEPENDS_ON, outside

if TYPE_CHECKING:
    from mlstack.deploy.capacity import Capacity

T = TypeVar("T")


class ApplyPlan(Record):
    """What one run would do, ready to be confirmed and carried out; a delete and a rollback are plans too.

    `kind` tells a deletion of everything from an apply.
    """

    changes: Changes
    resolved: ResolvedTarget  # what is wanted, and where
    options: ApplyOptions
    inventory: Inventory  # what the environment had in its cluster when this was worked out
    pruned: PruneSet = field(default_factory=PruneSet)  # what becomes of what the files no longer bring
    may_all: bool | None = None  # whether we may do everything in the cluster; None if that was not asked
    what: str = ""  # the run in a few words, for the history
    kind: RunKind = "ApplyResult"
    pin: ClusterIdentity | None = None  # what the environment is bound to before the first write
    grace_period_s: int | None = None  # time that deleted pods get to end, None for their own
    source: GitState = NOWHERE  # what git says of the files that are applied
    capacity: Capacity | None = None  # whether there is room for the pods; None if that was not asked
    lock: LastingLock | None = None  # holds the lock over this run and others; None for this run alone

    @cached_property
    def report(self) -> ChangeReport:
        """Give what a person confirms."""
        return report(self.changes)

    @property
    def place(self) -> Environment:
        """Give the environment as it is used by this run."""
        return self.resolved.place

    @property
    def destructive(self) -> bool:
        """Tell whether anything is deleted, if only to be made anew."""
        return any(change.action in DESTRUCTIVE for change in self.changes.changes)

    @property
    def changes_existing(self) -> bool:
        """Tell whether anything that exists changes or goes."""
        return any(change.action in EXISTING for change in self.changes.changes)

    @property
    def deletes(self) -> bool:
        """Tell whether this takes everything away, with what is kept of the environment."""
        return self.kind == "DeleteResult"

    @cached_property
    def writes(self) -> bool:
        """Tell whether anything is sent, if only to set the inventory right, so that a lock is needed."""
        if self.deletes:
            return bool(self.changes.writes or self.pruned.forgotten) or self.inventory.exists
        changes = self.changes.changes
        left = shrunk(grown(self.inventory, changes), changes, written={}, gone=self.pruned.forgotten)
        return bool(self.changes.writes) or needs_writing(self.inventory, left)

    @property
    def namespace_creation(self) -> tuple[Change, ...]:
        """Give the creation of the environment's namespace, if there is one: the lock lives in it."""
        key = Identity("", "Namespace", "", self.place.namespace)
        return tuple(
            change for change in self.changes.writes if change.identity == key and change.action == "create"
        )


def diff_environment(resolved: ResolvedTarget, options: ApplyOptions) -> ApplyPlan:
    """Compare what is wanted with what is there and what was deployed before; nothing is written.

    Raises:
        ClusterError: the cluster cannot be asked or refuses an object.
    """
    members = as_members(resolved.state, resolved.place.namespace)
    desired = replace(resolved, state=members)
    live = fetch(desired, options, writing=not options.dry_run)
    changes = diff(live, check_new=options.dry_run)
    inventory = live.inventory
    was_deployed = live.was_deployed or any(change.live_uid for change in changes.changes)
    if not inventory.exists and options.prune and was_deployed:
        inventory = find_by_labels(resolved.cluster, inventory)
    pruned = candidates(desired, inventory, changes.changes) if options.prune else PruneSet()
    notes = [*changes.notes, *inventory.notes, *pruned.notes]
    if pruned.warning and not options.allow_large_prune:
        notes.append(f"{pruned.warning}, which an apply does only with --allow-large-prune")
    name = resolved.place.name
    notes += [  # what an environment has in its old namespace is left there
        f"environment `{name}` has objects in namespace `{space}` too: mlstack delete {name} -n {space}"
        for space in live.elsewhere
    ]
    if options.adopt:
        notes += _former_environments(resolved)
    rows = (*changes.changes, *pruned.changes)
    if any(change.action == "update" for change in rows):
        from mlstack.deploy.object_diff import with_rollout_notes

        rows = with_rollout_notes(rows)
    return ApplyPlan(
        changes=replace(changes, changes=rows, notes=tuple(notes)),
        resolved=resolved,
        options=options,
        inventory=inventory,
        pruned=pruned,
        may_all=live.may_all,
    )


def _former_environments(resolved: ResolvedTarget) -> Iterator[str]:
    """Say what is left of environments that the app does not have, whose objects are adopted."""
    place, names = resolved.place, set(map(kube_object.label_of, resolved.target.app.environment_names))
    for former in other_environments(resolved.cluster, resolved.state):
        if former not in names:
            yield (
                f"environment `{former}`, which the app does not have, keeps its inventory and history in"
                f" namespace `{place.namespace}`; for what it has left: mlstack env add {former}"
                f" --context {place.context} --namespace {place.namespace}, then mlstack delete {former}"
                f" and mlstack env rm {former}"
            )


def refuse_new(approved: Changes, now: Changes) -> None:
    """Raise if anything is to be done now that was not approved; what is done already may be missing.

    Raises:
        OutdatedError: naming the first such object.
    """
    shown = {change.identity: change for change in approved.changes}
    for change in now.writes:
        before = shown.get(change.identity)
        if before is None or before.digest != change.digest:
            difference = what_moved(before, change) if before is not None else f"{change.action} is new"
            raise OutdatedError(
                f"another run was faster, and `{change.identity}` is not as it was shown: {difference}",
                hint="nothing was done; run the command again to see what is left",
            )


def pretend(plan: ApplyPlan, on_event: OnEvent) -> RunResult:
    """Tell how each object would end; nothing is sent."""
    outcomes = {}
    for note in plan.changes.notes:
        on_event(RunEvent("note", None, note))
    for change in plan.changes.changes:
        text = change.reason or "; ".join(change.notes)
        event = RunEvent(OUTCOMES.get(change.action, "kept"), change.identity, text)
        outcomes[change.identity] = event
        on_event(event)
    return run_result(plan.changes, outcomes, kind=plan.kind, dry_run=True)


def record(
    plan: ApplyPlan,
    past: History,
    error: MlstackError | KeyboardInterrupt | None,
    *,
    outcomes: Mapping[Identity, RunEvent],
    on_event: OnEvent,
    now_s: float,
) -> None:
    """Write a revision if a run changed anything; that it cannot be written is told, and no failure.

    One that was interrupted writes one whatever it had done. A run that waited and found all as wanted writes
    one too where the newest says something else: a run before it was killed before it could, or what it wrote
    works by now. A delete takes components out; if it did not end well, they do not work.
    """
    changes, state = plan.changes, plan.resolved.state
    changed = any(event.kind in CHANGING | {"terminating"} for event in outcomes.values())
    changed |= plan.deletes and error is None
    changed |= isinstance(error, KeyboardInterrupt) and bool(changes.visible)
    missing = {change.identity for change in changes.changes if change.action == "missing"}
    if not changed and (error is not None or missing or not plan.options.wait):
        return
    if isinstance(error, UnreachableError):  # whoever applies next makes up for it
        return
    # What was not to be created is not to be created by a later rollback either.
    applied = replace(state, objects=tuple(obj for obj in state.objects if obj.identity not in missing))
    draft, news = _draft(plan, error, outcomes, now_s), None if plan.deletes else applied
    try:
        selective, moved = plan.resolved.selective, plan.pruned.moved
        past.record(draft, news, selective=selective, moved=moved, if_news=not changed)
    except ClusterError as failure:
        if changed:
            on_event(RunEvent("note", None, f"the history of this run is incomplete: {failure.message}"))


def _draft(
    plan: ApplyPlan,
    error: MlstackError | KeyboardInterrupt | None,
    outcomes: Mapping[Identity, RunEvent],
    now_s: float,
) -> Revision:
    ended: RevisionStatus = "not ready" if isinstance(error, NotReadyError) else "failed"
    if error is None:
        ended = "done"
    elif isinstance(error, KeyboardInterrupt):
        ended = "interrupted"
    components, changes = tuple(plan.resolved.state.components), plan.changes.changes
    if plan.deletes:  # the files need not know a component any more
        components = tuple(sorted({*components, *(change.component for change in changes)} - {""}))
    return Revision(
        number=0,
        time=timestamp(now_s),
        who=plan.resolved.target.who,
        what=plan.what,
        result=ended,
        components=components,
        counts=dict(run_result(plan.changes, outcomes).counts),
        planned=len(plan.changes.visible),
        version=mlstack.__version__,
        commit=plan.source.commit,
        dirty=bool(plan.source.changed),
    )


# --- the diff: what an apply would make of each object, and what is said of them as a whole ---

# How often an object may be another one than a moment before, as while somebody recreates it; of a hundred
# objects on a server that refuses one question of four, five times were not enough once in ten runs.
_MOVES = 20
_NAMED = 8


def diff(context: DiffContext, *, check_new: bool = False) -> Changes:
    """Compare what is wanted with what was fetched; nothing is written.

    An object that the server does not accept is a change that is refused. With `check_new` the server is
    asked about new objects too, where it can tell already.
    """
    context, resolved, state = replace(context, check_new=check_new), context.resolved, context.resolved.state
    objects = (*context.created, *context.objects)
    _refuse_absent_targets(objects, context.cluster)
    manifests = order.ordered(objects, state.depends)
    results = parallel.run(lambda manifest: diff_object(context, manifest), manifests)
    if not check_new:
        results = _with_new_checked(results, manifests, context)
    changes = tuple(_changes(results, manifests, context))
    notes = [
        *state.notes,
        *(f"namespace `{namespace.name}` is created first" for namespace in context.created),
    ]
    for change in changes:
        if change.action == "unchanged" and change.left:  # nobody would look at it
            notes += [f"`{change.identity}` {note}" for note in change.notes if "leaves" in note]
    notes += kept_labels((change.identity, change.labels) for change in changes)
    if context.applied.fault:
        notes.append(
            "what was applied before cannot be read, so fields that others changed and the files no longer"
            f" have may stay: {context.applied.fault}"
        )
    context_name, identity = resolved.place.context, resolved.identity
    return row(Changes, state, context=context_name, cluster=identity, changes=changes, notes=tuple(notes))


def kept_labels(labels: Iterable[tuple[Identity, Sequence[tuple[str, str]]]]) -> tuple[str, ...]:
    """Say in one line which labels and annotations of people stay; nothing if there are none."""
    texts = [f"`{path}` of `{identity}` ({manager})" for identity, rows in labels for path, manager in rows]
    if not texts:
        return ()
    return (f"labels and annotations that people added stay: {listed(texts, _NAMED)}",)


def _refuse_absent_targets(manifests: Sequence[KubeObject], cluster: Cluster) -> None:
    """Raise if an object depends on one outside of the run that is not there before anything is written."""
    for manifest, target in outside(manifests):
        kind = _kind(target, Kinds.builtin()) or _kind(target, cluster.kinds())
        if kind is not None:
            namespace = (target.namespace or manifest.namespace) if kind.namespaced else ""
            try:
                if cluster.get(ObjectRef(kind.api_version, kind.kind, namespace, target.name)) is not None:
                    continue
            except ForbiddenError:  # whoever may not look cannot be told
                continue
        raise ConfigError(
            f"`{manifest.identity}` depends on `{target}`, which is neither in this run nor in the cluster",
            where=str(manifest.source) if manifest.source else f"component {manifest.component}",
            hint=f"see its annotation `{DEPENDS_ON}`: group `{target.group}`, kind `{target.kind}`",
        )


def _kind(target: Identity, kinds: Kinds) -> Kind | None:
    return next((kind for kind in kinds.of_group(target.group) if kind.kind == target.kind), None)


# --- what the server had against objects: asked about in time, and told of each without hiding the others ---


def _with_new_checked(
    results: list[Change | MlstackError], manifests: Sequence[KubeObject], context: DiffContext
) -> list[Change | MlstackError]:
    """Ask about new objects too: what is wrong with them is better told before anything is written.

    It costs a request each, so many are asked about only where something else is wrong, and those of a new
    environment too. Only what the server says of fields counts: other objects of the run may be all that a
    webhook or a quota waits for.
    """
    new = [
        place
        for place, change in enumerate(results)
        if isinstance(change, Change)
        and change.action == "create"
        and not kinds_of_crd(manifests[place].data)
    ]
    wrong = any(not isinstance(change, Change) or change.refusal for change in results)
    if not new or not (wrong or (len(new) <= parallel.WORKERS and context.inventory.exists)):
        return results
    asking = replace(context, check_new=True)
    answers = parallel.run(lambda place: diff_object(asking, manifests[place]), new)
    checked = list(results)
    for place, answer in zip(new, answers, strict=True):
        if isinstance(answer, InvalidError) and answer.causes and "webhook" not in answer.message:
            checked[place] = answer
    return checked


def _changes(
    results: Sequence[Change | MlstackError], manifests: Sequence[KubeObject], context: DiffContext
) -> Iterator[Change]:
    """Give a change for every object, for one that the server does not accept a change that is refused.

    Objects that only a new version of their definition may let pass are looked at without the server.
    """
    errors = [result for result in results if isinstance(result, MlstackError)]
    if others := [error for error in errors if not _is_of_object(error)]:
        raise parallel.together(others)
    redefined = {
        (kind.group, kind.kind)
        for change in results
        if isinstance(change, Change) and change.writes and not change.refusal and change.desired
        for kind in kinds_of_crd(change.desired.data)
    }
    for result, manifest in zip(results, manifests, strict=True):
        if isinstance(result, Change):
            yield result
        elif isinstance(result, InvalidError) and (manifest.group, manifest.kind) in redefined:
            yield _diff_unchecked(context, manifest)
        else:
            try:
                reachable = is_reachable(manifest, context)
                live = context.cluster.get(ObjectRef.of(manifest.data)) if reachable else None
            except ClusterError:  # what is wrong is known already
                live = None
            reason = result.message.removeprefix(f"`{manifest.identity}`").removeprefix(" is refused")
            reasons = (reason.removeprefix(": ").strip(),)
            refusal = Refusal(kind="invalid", reasons=reasons, hint=result.hint or "", error=result)
            yield refused(manifest, live, refusal)


def _is_of_object(error: MlstackError) -> bool:
    """Tell whether an error is about the one object that the server was asked about, and no other."""
    if isinstance(error, ForbiddenError):
        return error.why not in ("credentials", "rights")
    return isinstance(error, InvalidError | ConflictError | TransientError)


def _diff_unchecked(context: DiffContext, manifest: KubeObject) -> Change:
    notes = ("not checked by the server: its definition changes first",)
    live = context.cluster.get(ObjectRef.of(manifest.data))
    if live is None:
        return _creation(context, manifest, reachable=False, notes=notes)
    from mlstack.deploy.object_diff import update

    data = context.scalers.payload(manifest)
    tree = managed_fields.union(managed_fields.owned(live), managed_fields.tree_of(data))
    return update(context, manifest, live, tuple(managed_fields.compare(live, data, tree)), notes=notes)


def refused(manifest: KubeObject, live: Data | None, refusal: Refusal) -> Change:
    """Give a change that must not be carried out, as far as it is one."""
    return Change(
        identity=manifest.identity,
        component=manifest.component,
        action="create" if live is None else "update",
        api_version=manifest.api_version,
        desired=manifest,
        live_uid="" if live is None else str(live["metadata"]["uid"]),
        refusal=refusal,
    )


# --- one object ---


def until_still(look: Callable[[], T]) -> T:
    """Look at an object, and again where it changes meanwhile."""
    for _ in range(_MOVES):
        try:
            return look()
        except ConflictError as moved:
            if moved.conflicts:
                raise
    return look()


def diff_object(context: DiffContext, manifest: KubeObject) -> Change:
    """Give what would happen to an object; what was fetched of it serves for the first look."""
    contexts = chain([context], repeat(replace(context, live={})))
    return until_still(lambda: _diff_object(next(contexts), manifest))


def _diff_object(context: DiffContext, manifest: KubeObject) -> Change:
    listed = context.unchanged(manifest)
    if listed is not None and not is_meddled(context, manifest, listed):
        return _unchanged(context, manifest, listed)
    reachable = is_reachable(manifest, context)
    live: Data | None = None
    if reachable and manifest.identity in context.live:
        answer = context.live[manifest.identity]
        if isinstance(answer, MlstackError):
            raise answer
        live = answer
    elif not reachable:
        live = _live_in_other_version(context, manifest)
    elif not context.is_absent(manifest):
        live = context.cluster.get(ObjectRef.of(manifest.data))
    is_ending = live is not None and bool(live["metadata"].get("deletionTimestamp"))
    if (live is None or is_ending) and not context.options.create:
        reason = f"is {'being deleted' if is_ending else 'not there'}, and creation is off"
        return change_of(context, manifest, action="missing", writes=False, reason=reason)
    if live is None:
        checked = reachable and context.check_new
        notes = context.cluster.apply(manifest.data, dry_run=True).warnings if checked else ()
        return _creation(context, manifest, reachable=reachable, notes=notes)
    if is_ending:
        reason = "once the old one, which is being deleted, is gone"
        return _creation(context, manifest, reachable=True, live_uid=live["metadata"]["uid"], reason=reason)
    if context.is_as_left(manifest, live) and not is_meddled(context, manifest, live):
        return _unchanged(context, manifest, live)
    from mlstack.deploy.object_diff import diff_live

    return diff_live(context, manifest, live)


def _live_in_other_version(context: DiffContext, manifest: KubeObject) -> Data | None:
    """Give an object as the server has it, where the run's own definition brings the version wanted of it."""
    kind = _kind(manifest.identity, context.cluster.kinds())
    is_absent = manifest.namespace in context.absent_namespaces
    if kind is None or is_absent or kind.namespaced != bool(manifest.namespace):
        return None
    return context.cluster.get(ObjectRef(kind.api_version, kind.kind, manifest.namespace, manifest.name))


def _unchanged(context: DiffContext, manifest: KubeObject, live: Data) -> Change:
    return change_of(
        context,
        manifest,
        action="unchanged",
        writes=False,
        live_uid=live["metadata"]["uid"],
        made_elsewhere=was_made_elsewhere(context, manifest, live),
    )


def _creation(context: DiffContext, manifest: KubeObject, *, reachable: bool, **facts: Any) -> Change:
    """Give a creation; the number that an autoscaler sets is sent once and handed over at once."""
    scalers, handover = context.scalers, None
    path, data = scalers.path(manifest), scalers.payload(manifest)
    if reachable and scalers.is_set(manifest) and scalers.scaler(manifest):
        data = managed_fields.cut(data, [path])
    if data != manifest.data:
        handover = only_field(manifest.data, path, managed_fields.value_at(manifest.data, path))
    facts |= {"fingerprint": digest_of(manifest.data), "handover": handover, "payload": data}
    return change_of(context, manifest, action="create", **facts)


def change_of(context: DiffContext, manifest: KubeObject, **facts: Any) -> Change:
    """Give a change of an object; what is sent is what we will own of it, if nothing else is given."""
    payload = facts.pop("payload") if "payload" in facts else context.scalers.payload(manifest)
    return Change(
        identity=manifest.identity,
        component=manifest.component,
        api_version=manifest.api_version,
        desired=manifest,
        payload=None if payload == manifest.data else payload,
        **facts,
    )


ADOPT = "mlstack.dev/adopt"
"""Annotation of an object that is taken over from kubectl or Helm, as `--adopt` does for all."""


def adopts(options: ApplyOptions, manifest: KubeObject) -> bool:
    """Tell whether what kubectl or Helm applied of an object becomes ours."""
    return options.adopt or manifest.annotations.get(ADOPT) == "true"


def was_made_elsewhere(context: DiffContext, manifest: KubeObject, live: Data) -> bool:
    """Tell whether another tool made an object, from which it was not and is not adopted."""
    member = context.inventory.members.get(manifest.identity)
    is_made = bool(managed_fields.adoptable(live)) and not adopts(context.options, manifest)
    if member is None or member.uid != live["metadata"]["uid"]:
        return is_made
    return is_made and member.made_elsewhere


def is_meddled(context: DiffContext, manifest: KubeObject, live: Data) -> bool:
    """Tell from metadata alone whether people's tools set something since, or what may have to go."""
    member, now = context.inventory.members.get(manifest.identity), people_hash(live)
    if member is not None and member.people_hash != now:
        return True
    if not now:
        return False
    from mlstack.deploy.object_diff import foreign_fields

    return bool(foreign_fields(context, manifest, live, metadata_only=True))
