"""Going back to an earlier revision: asked for, or after an apply that failed; a plan like any other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from mlstack.clock import Clock
from mlstack.dataclass import dataclass
from mlstack.deploy import definition, history
from mlstack.deploy.changes import DESTRUCTIVE, ApplyOptions, Change
from mlstack.deploy.diff import diff
from mlstack.deploy.history import DamagedHistoryError
from mlstack.deploy.history_store import History, open_history
from mlstack.deploy.inventory import Inventory, as_members
from mlstack.deploy.live import fetch
from mlstack.deploy.plan import ApplyPlan
from mlstack.deploy.prune import is_claim
from mlstack.deploy.result import RunResult
from mlstack.deploy.target import ResolvedTarget, Target, resolve
from mlstack.errors import ClusterError, MlstackError, NotFoundError
from mlstack.kube.client import Opener
from mlstack.objects.kube_object import DesiredState, Identity, KubeObject, kinds_of_crd


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
        revision = history.last_good(known[:-1]) or known[-2]
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
    if history.changes_between(state, desired):
        yield (
            "the files of the app still say something else: the next `mlstack apply"
            f" {environment}` undoes this; see `mlstack diff {environment}`"
        )


# --- what does not go back ---


def earlier_state(
    earlier: DesiredState, now: DesiredState, *, may_lose: bool = False
) -> tuple[DesiredState, tuple[str, ...]]:
    """Give an earlier set as far as one can go back to it, and say what stays as it is today.

    A claim holds data: it is neither replaced nor made smaller. A definition that would lose fields or
    versions would take along what is stored in them; it goes back only if it `may_lose` them.
    """
    current = {obj.identity: obj for obj in now.objects}
    objects, notes = [], []
    for obj in earlier.objects:
        today, why = current.get(obj.identity), ""
        if today is not None and today.data != obj.data:
            may_go_back = may_lose or not kinds_of_crd(obj.data) or definition.is_allowed(obj.data)
            if is_claim(obj.identity):
                why = "a claim is not rolled back"
            elif not may_go_back and (lost := definition.losses(today.data, obj.data)):
                why = f"going back would lose something ({lost[0]})"
                why += "; if that is wanted: --allow-destructive-crds"
        objects.append(today if today is not None and why else obj)
        if why:
            notes.append(f"{obj.identity} stays as it is: {why}")
    return replace(earlier, objects=tuple(objects)), tuple(notes)


def sparing_claims(changes: Iterable[Change], now: DesiredState) -> tuple[Change, ...]:
    """Give the changes of a rollback without those that would take volume claims along.

    What is listed for deletion may be known by its metadata alone, so the set of today is asked as well.
    """
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
    while (good := history.last_good(revisions, components)) is not None:
        try:
            state = past.load(good)
        except DamagedHistoryError:  # the one before it may be whole
            revisions = tuple(revision for revision in revisions if revision.number < good.number)
            continue
        earlier = history.only(state, components) if resolved.selective else state
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
    if not (isinstance(done, RunResult) and any(row.outcome in history.CHANGING for row in done.objects)):
        return "nothing was changed, so nothing is rolled back"
    if good is None:
        return "nothing is rolled back: no earlier revision of this environment worked"
    resolved, number = failed.resolved, good.revision
    earlier = history.only(good.state, resolved.state.known_as) if resolved.selective else good.state
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
    for row in done.objects:
        if row.outcome in ("recreated", "deleted", "terminating"):
            notes.append(f"{row.object} was {row.outcome}: what it had done or held does not come back")
    return RollbackGoal(
        resolved=replace(resolved, state=state, whole=good.state),
        # The set was whole once, so that what goes is what the failed apply brought.
        options=replace(failed.options, prune=True, create=True, allow_large_prune=True),
        what=f"rollback to {number} after a failure",
        now=resolved.state,
        created=frozenset(row.object for row in done.objects if row.outcome == "created"),
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
