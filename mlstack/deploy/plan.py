"""What a run would do, worked out and waiting for a yes: the whole difference, and the plan of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import mlstack
from mlstack.app.environment import ClusterIdentity, Environment
from mlstack.clock import Clock, timestamp
from mlstack.dataclass import dataclass, row
from mlstack.deploy.changes import (
    DESTRUCTIVE,
    EXISTING,
    Action,
    ApplyOptions,
    Change,
    ChangeReport,
    Changes,
    RunKind,
    RunResult,
    report,
    run_result,
    what_moved,
)
from mlstack.deploy.diff import diff
from mlstack.deploy.history import (
    CHANGING,
    DamagedHistoryError,
    History,
    Result,
    Revision,
    changes_between,
    last_good_revision,
    only,
    open_history,
    run_summary,
)
from mlstack.deploy.inventory import Inventory, as_members, grown, needs_writing, other_environments, shrunk
from mlstack.deploy.live import fetch
from mlstack.deploy.lock import LastingLock
from mlstack.deploy.prune import (
    KeepOptions,
    PruneSet,
    candidates,
    everything,
    find_by_labels,
    is_claim,
    load_or_find,
    members_to_delete,
)
from mlstack.deploy.target import NOWHERE, GitState, ResolvedTarget, Target, resolve
from mlstack.errors import (
    ClusterError,
    ConfigError,
    MlstackError,
    NotFoundError,
    NotReadyError,
    OutdatedError,
    RegistryError,
    UnreachableError,
)
from mlstack.events import OnEvent, RunEvent, RunEventKind
from mlstack.kube.client import Opener
from mlstack.objects import kube_object
from mlstack.objects.kube_object import DesiredState, Identity, KubeObject, kinds_of_crd

if TYPE_CHECKING:
    from mlstack.deploy.capacity import Capacity


_OUTCOMES: Mapping[Action, RunEventKind] = {
    "create": "created",
    "update": "updated",
    "recreate": "recreated",
    "delete": "deleted",
    "unchanged": "unchanged",
}


@dataclass(frozen=True, kw_only=True)
class ApplyPlan:
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

    @property
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
    def namespace(self) -> tuple[Change, ...]:
        """Give the creation of the environment's namespace, if there is one: the lock lives in it."""
        own = Identity("", "Namespace", "", self.place.namespace)
        return tuple(
            change for change in self.changes.writes if change.identity == own and change.action == "create"
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
    known = live.inventory
    was_deployed = live.was_deployed or any(change.live_uid for change in changes.changes)
    if not known.exists and options.prune and was_deployed:
        known = find_by_labels(resolved.cluster, known)
    pruned = candidates(desired, known, changes.changes) if options.prune else PruneSet()
    notes = [*changes.notes, *known.notes, *pruned.notes]
    if pruned.warning and not options.allow_large_prune:
        notes.append(f"{pruned.warning}, which an apply does only with --allow-large-prune")
    name = resolved.place.name
    for namespace in live.elsewhere:  # what an environment has in its old namespace is left there
        notes.append(
            f"environment `{name}` has objects in namespace `{namespace}` too:"
            f" mlstack delete {name} -n {namespace}"
        )
    if options.adopt:
        notes += _former_environments(resolved, known)
    rows = (*changes.changes, *pruned.changes)
    if any(change.action == "update" for change in rows):
        from mlstack.deploy.object_diff import with_rollout_notes

        rows = with_rollout_notes(rows)
    return ApplyPlan(
        changes=replace(changes, changes=rows, notes=tuple(notes)),
        resolved=resolved,
        options=options,
        inventory=known,
        pruned=pruned,
        may_all=live.may_all,
    )


def _former_environments(resolved: ResolvedTarget, known: Inventory) -> Iterator[str]:
    """Say what is left of environments that the app does not have, whose objects are adopted."""
    place, names = resolved.place, set(map(kube_object.label_of, resolved.target.app.environment_names))
    for former in other_environments(resolved.cluster, known):
        if former not in names:
            yield (
                f"environment `{former}`, which the app does not have, keeps its inventory and history in"
                f" namespace `{place.namespace}`; for what it has left: mlstack env add {former}"
                f" --context {place.context} --namespace {place.namespace}, then mlstack delete {former}"
                f" and mlstack env rm {former}"
            )


def plan_deletion(
    target: Target, opener: Opener, options: ApplyOptions, *, spare: KeepOptions, grace_period_s: int | None
) -> ApplyPlan:
    """Plan to delete what was deployed, all or some components, whether the files render or not."""
    fault: MlstackError | None = None
    try:
        state = target.desired()
    except (ConfigError, NotFoundError, RegistryError) as error:
        place, app, fault = target.place(), target.app.app.name, error
        state = DesiredState(app=app, environment=place.name, namespace=place.namespace, objects=())
    resolved = resolve(target, opener, state=state)
    known = load_or_find(resolved.cluster, state)
    members = members_to_delete(resolved, known)
    if isinstance(fault, NotFoundError) and not members:
        raise fault
    pruned = everything(resolved, known, members, spare=spare)
    notes = [f"by the inventory alone, as the files cannot be rendered: {fault.message}"] if fault else []
    changes = row(
        Changes,
        state,
        context=resolved.place.context,
        cluster=resolved.identity,
        changes=pruned.changes,
        secrets=(),
        notes=(*known.notes, *notes, *pruned.notes),
    )
    return ApplyPlan(
        kind="DeleteResult",
        changes=changes,
        resolved=resolved,
        options=options,
        inventory=known,
        pruned=pruned,
        what=run_summary(target, "delete"),
        grace_period_s=grace_period_s,
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
            what = what_moved(before, change) if before is not None else f"{change.action} is new"
            raise OutdatedError(
                f"another run was faster, and `{change.identity}` is not as it was shown: {what}",
                hint="nothing was done; run the command again to see what is left",
            )


def pretend(plan: ApplyPlan, on_event: OnEvent) -> RunResult:
    """Tell how each object would end; nothing is sent."""
    outcomes = {}
    for note in plan.changes.notes:
        on_event(RunEvent("note", None, note))
    for change in plan.changes.changes:
        text = change.reason or "; ".join(change.notes)
        event = RunEvent(_OUTCOMES.get(change.action, "kept"), change.identity, text)
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
) -> None:
    """Write a revision if a run changed anything; that it cannot be written is told, and no failure.

    One that was interrupted writes one whatever it had done. A run that waited and found all as wanted writes
    one too where the newest says something else: a run before it was killed before it could, or what it wrote
    works by now. A delete takes components out; if it was interrupted, they do not work.
    """
    changes, state = plan.changes, plan.resolved.state
    changed = plan.deletes or any(event.kind in CHANGING | {"terminating"} for event in outcomes.values())
    changed = changed or (isinstance(error, KeyboardInterrupt) and bool(changes.visible))
    missing = {change.identity for change in changes.changes if change.action == "missing"}
    if not changed and (error is not None or missing or not plan.options.wait):
        return
    if isinstance(error, UnreachableError):  # whoever applies next makes up for it
        return
    # What was not to be created is not to be created by a later rollback either.
    applied = replace(state, objects=tuple(obj for obj in state.objects if obj.identity not in missing))
    draft, news = _draft(plan, past, error, outcomes), None if plan.deletes else applied
    try:
        past.record(draft, news, selective=plan.resolved.selective, if_news=not changed)
    except ClusterError as failure:
        if changed:
            on_event(RunEvent("note", None, f"the history of this run is incomplete: {failure.message}"))


def _draft(
    plan: ApplyPlan,
    past: History,
    error: MlstackError | KeyboardInterrupt | None,
    outcomes: Mapping[Identity, RunEvent],
) -> Revision:
    ended: Result = "not ready" if isinstance(error, NotReadyError) else "failed"
    if error is None:
        ended = "done"
    elif isinstance(error, KeyboardInterrupt):
        ended = "interrupted"
    components = tuple(plan.resolved.state.components)
    if plan.deletes:  # the files need not know a component any more
        named = {*components, *(change.component for change in plan.changes.changes)} - {""}
        components = tuple(sorted(named))
    return Revision(
        number=0,
        time=timestamp(past.clock.now_s()),
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


# --- going back to an earlier revision: asked for, or after an apply that failed ---


@dataclass(frozen=True, kw_only=True)
class RollbackGoal:
    """Where going back leads: what is to be planned, the set of today, and what is to be said."""

    resolved: ResolvedTarget
    options: ApplyOptions
    what: str
    now: DesiredState
    notes: tuple[str, ...]
    created: frozenset[str] = frozenset()  # what the apply made that failed


def earlier_goal(
    target: Target, opener: Opener, *, number: int | None = None, options: ApplyOptions, clock: Clock
) -> RollbackGoal:
    """Find the revision to go back to; without a number the newest before the last one that worked.

    Claims stay as they are: those of today are neither deleted nor given the size they had. So do
    definitions that would lose something, unless the options allow that.

    Raises:
        NotFoundError: there is no such revision, or none before the newest.
        ClusterError: the cluster cannot be asked or is another one.
    """
    past = open_history(target, opener, clock=clock)
    known, notes = past.revisions(), list[str]()
    if number is not None:
        revision = past.find(number)
    elif len(known) < 2:
        there = f"only revision {known[0].number}" if known else "no history"
        raise NotFoundError(
            f"environment `{past.environment}` has nothing to go back to: {there}",
            hint=f"mlstack history {past.environment}",
        )
    else:
        revision = last_good_revision(known[:-1]) or known[-2]
        if passed := [str(later.number) for later in known[:-1] if later.number > revision.number]:
            notes.append(f"revision {', '.join(passed)} is passed over: it did not work")
    earlier = past.load(revision)
    try:
        now = past.load(known[-1])
    except DamagedHistoryError as error:  # what is there now is known from the inventory all the same
        now = earlier
        notes.append(error.message)
    state, stays = earlier_state(earlier, now, may_lose=options.allow_destructive)
    return RollbackGoal(
        resolved=resolve(target, lambda context: past.cluster, state=state),
        options=options,
        what=f"rollback to {revision.number}",
        now=now,
        notes=(*notes, *stays, *_files_differ(target, state)),
    )


def to_earlier(plan: ApplyPlan, goal: RollbackGoal) -> ApplyPlan:
    """Give a plan of an earlier set without what it must not do to claims, and with what is to be said."""
    changes = sparing_claims(plan.changes.changes, goal.now)
    notes = (*plan.changes.notes, *goal.notes)
    return replace(plan, changes=replace(plan.changes, changes=changes, notes=notes))


def _files_differ(target: Target, state: DesiredState) -> Iterator[str]:
    """Warn if the next apply would undo the rollback."""
    environment = target.environment
    try:
        desired = target.desired()
    except MlstackError as error:
        yield f"the files of the app cannot be rendered at present: {error.message}"
        return
    if changes_between(state, desired):
        yield (
            "the files of the app still say something else: the next `mlstack apply"
            f" {environment}` undoes this; see `mlstack diff {environment}`"
        )


# --- what does not go back ---


def earlier_state(
    earlier: DesiredState, now: DesiredState, *, may_lose: bool = False
) -> tuple[DesiredState, tuple[str, ...]]:
    """Give an earlier set as far as one can go back to it, and say what stays as it is today."""
    # A claim holds data: it is neither replaced nor made smaller. A definition that would lose fields or
    # versions would take along what is stored in them; it goes back only if it `may_lose` them.
    from mlstack.deploy import replacement

    current = {obj.identity: obj for obj in now.objects}
    objects, notes = [], []
    for obj in earlier.objects:
        today, why = current.get(obj.identity), ""
        if today is not None and today.data != obj.data:
            may_go_back = may_lose or not kinds_of_crd(obj.data) or replacement.is_allowed(obj.data)
            if is_claim(obj.identity):
                why = "a claim is not rolled back"
            elif not may_go_back and (lost := replacement.losses(today.data, obj.data)):
                why = f"going back would lose something ({lost[0]})"
                why += "; if that is wanted: --allow-destructive-crds"
        objects.append(today if today is not None and why else obj)
        if why:
            notes.append(f"{obj.identity} stays as it is: {why}")
    return replace(earlier, objects=tuple(objects)), tuple(notes)


def sparing_claims(changes: Iterable[Change], now: DesiredState) -> tuple[Change, ...]:
    """Give the changes of a rollback without those that would take volume claims along."""
    # What is listed for deletion may be known by its metadata alone, so the set of today is asked as well.
    holding = {obj.identity for obj in now.objects if _takes_claims_along(obj)}
    along = "its volume claims would be deleted with it (persistentVolumeClaimRetentionPolicy)"
    return tuple(
        replace(change, action="kept", reason=along, writes=False, desired=None)
        if change.action in DESTRUCTIVE and (change.identity in holding or _takes_claims_along(change.live))
        else change
        for change in changes
    )


def _takes_claims_along(live: KubeObject | None) -> bool:
    if live is None or live.kind != "StatefulSet":
        return False
    policy = (live.data.get("spec") or {}).get("persistentVolumeClaimRetentionPolicy") or {}
    return bool(policy.get("whenDeleted") == "Delete")


# --- after an apply that failed ---


@dataclass(frozen=True, kw_only=True)
class LastGood:
    """What an apply may go back to without a question, as it was known before it began."""

    revision: int  # the last one that worked
    state: DesiredState  # its set
    borne_out: frozenset[Identity]  # the objects of which the cluster had exactly what the set says


def last_good(plan: ApplyPlan, *, clock: Clock) -> LastGood | None:
    """Give what an apply may go back to, before it begins; None if no earlier revision worked.

    A history lies in Secrets: whoever may write those in the namespace may write a revision of their own,
    with the rights of whoever goes back to it. Nothing else in the namespace vouches for one either, since
    whoever may write Secrets there may mostly write all else. So a revision is believed as far as the live
    objects, looked at one by one, are what it says: to bring those back gives nobody more than they had.
    Only the components that the apply is about go back.

    Raises:
        ClusterError: the cluster cannot be asked.
    """
    resolved = plan.resolved
    past = History.of(resolved.state.app, resolved.place, resolved.cluster, clock=clock)
    revisions = past.revisions()
    components = resolved.state.known_as if resolved.selective else ()
    while (good := last_good_revision(revisions, components)) is not None:
        try:
            state = past.load(good)
        except DamagedHistoryError:  # the one before it may be whole
            revisions = tuple(revision for revision in revisions if revision.number < good.number)
            continue
        earlier = only(state, components) if resolved.selective else state
        return LastGood(revision=good.number, state=state, borne_out=_borne_out(plan, earlier))
    return None


def _borne_out(plan: ApplyPlan, earlier: DesiredState) -> frozenset[Identity]:
    """Give the objects of a set that are there as it says; the inventory's hashes are not asked."""
    namespace = plan.place.namespace
    nothing = Inventory(app=earlier.app, environment=earlier.environment, namespace=namespace)
    try:
        desired = replace(plan.resolved, state=as_members(earlier, namespace))
        options = replace(plan.options, dry_run=True, create=False, adopt=False, keep_foreign_fields=True)
        changes = diff(fetch(desired, options, inventory=nothing))
    except ClusterError:  # a kind that the cluster does not have: the apply itself needs none of this
        return frozenset()
    return frozenset(change.identity for change in changes.changes if change.action == "unchanged")


def failure_goal(failed: ApplyPlan, error: MlstackError, good: LastGood | None) -> RollbackGoal | str:
    """Find what to go back to after an apply that `error` ended, or say why nothing is rolled back.

    Objects come back that were there as the revision says when the apply began, and those go that it has
    made; nothing else that a revision says is done without a question.
    """
    done = error.partial
    if not (isinstance(done, RunResult) and any(result.outcome in CHANGING for result in done.objects)):
        return "nothing was changed, so nothing is rolled back"
    if good is None:
        return "nothing is rolled back: no earlier revision of this environment worked"
    resolved, number = failed.resolved, good.revision
    earlier = only(good.state, resolved.state.known_as) if resolved.selective else good.state
    today = {obj.identity: obj for obj in resolved.state.objects}
    doubted = [obj.identity for obj in earlier.objects if obj.identity not in good.borne_out]
    believed = [obj for obj in earlier.objects if obj.identity in good.borne_out]
    instead = [today[key] for key in doubted if key in today]
    vouched = replace(earlier, objects=(*believed, *instead))
    state, stays = earlier_state(vouched, resolved.state, may_lose=failed.options.allow_destructive)
    notes = [
        f"{key} is not brought back: before this run the cluster had not what revision {number} says of it;"
        f" if that is wanted: mlstack rollback {failed.place.name} {number}"
        for key in doubted
    ]
    for result in done.objects:
        if result.outcome in ("recreated", "deleted", "terminating"):
            notes.append(f"{result.object} was {result.outcome}: what it had done or held does not come back")
    return RollbackGoal(
        resolved=replace(resolved, state=state, whole=good.state),
        # The set was whole once, so that what goes is what the failed apply brought.
        options=replace(failed.options, prune=True, create=True, allow_large_prune=True),
        what=f"rollback to {number} after a failure",
        now=resolved.state,
        created=frozenset(result.object for result in done.objects if result.outcome == "created"),
        notes=(f"rolling back to revision {number}", *stays, *notes),
    )


def to_last_good(plan: ApplyPlan, goal: RollbackGoal, failed: ApplyPlan) -> ApplyPlan:
    """Give a plan of what is known to be good, which takes away only what the apply made."""
    changes, stays = [], []
    for change in sparing_claims(plan.changes.changes, goal.now):
        # That a revision does not have what was there before the run is no reason to delete it.
        was_there = change.action == "delete" and str(change.identity) not in goal.created
        reason = "was there before this run" if was_there else change.reason
        changes.append(replace(change, action="kept", reason=reason, writes=False) if was_there else change)
        if was_there or change.action == "kept":
            stays.append(f"{change.identity} stays: {reason}")
    notes = (goal.notes[0], *stays, *goal.notes[1:], *plan.changes.notes)
    changed = replace(plan.changes, changes=tuple(changes), notes=notes)
    return replace(plan, changes=changed, pin=None, lock=failed.lock)
