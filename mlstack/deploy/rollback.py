"""Going back to an earlier revision: asked for, or after an apply that failed; a plan like any other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mlstack.clock import Clock
from mlstack.deploy import definition, history
from mlstack.deploy.changes import DESTRUCTIVE, ApplyOptions, Change
from mlstack.deploy.diff import diff
from mlstack.deploy.history import DamagedHistoryError, Revision
from mlstack.deploy.history_store import History, open_history
from mlstack.deploy.inventory import Inventory, as_members
from mlstack.deploy.live import fetch
from mlstack.deploy.plan import ApplyPlan
from mlstack.deploy.prune import is_claim
from mlstack.deploy.result import RunResult
from mlstack.deploy.target import ResolvedTarget, Target, resolve
from mlstack.errors import ClusterError, MlstackError, NotFoundError
from mlstack.kube.client import Opener
from mlstack.objects.kinds import kinds_of_crd
from mlstack.objects.kube_object import DesiredState, Identity, KubeObject


@dataclass(frozen=True, kw_only=True)
class RollbackGoal:
    """Where going back leads: what is to be planned, the set of today, and what is to be said."""

    resolved: ResolvedTarget
    options: ApplyOptions
    what: str
    now: DesiredState
    revision: int
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
    known = past.revisions()
    revision, notes = (past.find(number), ()) if number is not None else _before_newest(past, known)
    earlier = past.load(revision)
    try:
        now = past.load(known[-1])
    except DamagedHistoryError as error:  # what is there now is known from the inventory all the same
        now, notes = earlier, (*notes, error.message)
    state, stays = earlier_state(earlier, now, may_lose=options.allow_destructive)
    return RollbackGoal(
        resolved=resolve(target, lambda context: past.cluster, state=state),
        options=options,
        what=f"rollback to {revision.number}",
        now=now,
        revision=revision.number,
        notes=(*notes, *stays, *_files_differ(target, state)),
    )


def to_earlier(plan: ApplyPlan, goal: RollbackGoal) -> ApplyPlan:
    """Give a plan of an earlier set without what it must not do to claims, and with what is to be said."""
    changes = sparing_claims(plan.changes.changes, goal.now)
    notes = (*plan.changes.notes, *goal.notes)
    return replace(plan, changes=replace(plan.changes, changes=changes, notes=notes))


def _before_newest(past: History, known: Sequence[Revision]) -> tuple[Revision, tuple[str, ...]]:
    if len(known) < 2:
        there = f"only revision {known[0].number}" if known else "no history"
        raise NotFoundError(
            f"environment `{past.environment}` has nothing to go back to: {there}",
            hint=f"mlstack history {past.environment}",
        )
    revision = history.last_good(known[:-1]) or known[-2]
    passed = [str(later.number) for later in known[:-1] if later.number > revision.number]
    return revision, (f"revision {', '.join(passed)} is passed over: it did not work",) if passed else ()


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
    today = {obj.identity: obj for obj in now.objects}
    then = {obj.identity: obj for obj in earlier.objects}
    reasons = {key: _lasting(obj, today.get(key), may_lose) for key, obj in then.items()}
    kept = [today[key] if reasons[key] else obj for key, obj in then.items()]
    notes = tuple(f"{key} stays as it is: {why}" for key, why in reasons.items() if why)
    return replace(earlier, objects=tuple(kept)), notes


def _lasting(earlier: KubeObject, today: KubeObject | None, may_lose: bool) -> str:
    """Say why an object cannot get its earlier form again, nothing if it can."""
    if today is None or today.data == earlier.data:
        return ""
    if is_claim(earlier.identity):
        return "a claim is not rolled back"
    if kinds_of_crd(earlier.data) and not may_lose and not definition.is_allowed(earlier.data):
        lost = definition.losses(today.data, earlier.data)
        if lost:
            return f"going back would lose something ({lost[0]}); if that is wanted: --allow-destructive-crds"
    return ""


def sparing_claims(changes: Iterable[Change], now: DesiredState) -> tuple[Change, ...]:
    """Give the changes of a rollback without those that would take volume claims along.

    What is listed for deletion may be known by its metadata alone, so the set of today is asked as well.
    """
    holding = {obj.identity for obj in now.objects if _takes_claims_along(obj)}
    return tuple(
        replace(change, action="kept", reason=_ALONG, writes=False, desired=None)
        if change.action in DESTRUCTIVE and (change.identity in holding or _takes_claims_along(change.found))
        else change
        for change in changes
    )


_ALONG = "its volume claims would be deleted with it (persistentVolumeClaimRetentionPolicy)"


def _takes_claims_along(live: KubeObject | None) -> bool:
    if live is None or live.kind != "StatefulSet":
        return False
    policy = (live.data.get("spec") or {}).get("persistentVolumeClaimRetentionPolicy") or {}
    return bool(policy.get("whenDeleted") == "Delete")


# --- after an apply that failed ---


@dataclass(frozen=True, kw_only=True)
class Retreat:
    """What becomes of a failed apply that is to be rolled back."""

    proposal: ApplyPlan | None  # what going back would do; None if there is nothing to be done
    notes: tuple[str, ...]  # what is to be said of it, as what cannot be undone


@dataclass(frozen=True, kw_only=True)
class LastGood:
    """What an apply may go back to without a question, as it was known before it began."""

    revision: Revision  # the last one that worked
    whole: DesiredState  # its set
    borne_out: frozenset[Identity]  # the objects of which the cluster had exactly what the set says


def known_good(plan: ApplyPlan, *, clock: Clock) -> LastGood | None:
    """Give what an apply may go back to, before it begins; None if no earlier revision worked.

    A history lies in Secrets: whoever may write those in the namespace may write a revision of their own,
    with the rights of whoever goes back to it. Nothing else in the namespace vouches for one either, since
    whoever may write Secrets there may mostly write all else. So a revision is believed as far as the live
    objects, looked at one by one, are what it says: to bring those back gives nobody more than they had.

    Args:
        plan: the apply; only the components it is about go back.
        clock: tells the time.

    Raises:
        ClusterError: the cluster cannot be asked.
    """
    resolved = plan.resolved
    kept = History.of(resolved.state.app, resolved.place, resolved.cluster, clock=clock)
    revisions = kept.revisions()
    components = resolved.state.components if resolved.selective else ()
    while (good := history.last_good(revisions, components)) is not None:
        try:
            whole = kept.load(good)
        except DamagedHistoryError:  # the one before it may be whole
            revisions = tuple(revision for revision in revisions if revision.number < good.number)
            continue
        earlier = history.only(whole, components) if resolved.selective else whole
        return LastGood(revision=good, whole=whole, borne_out=_borne_out(plan, earlier))
    return None


def _borne_out(plan: ApplyPlan, earlier: DesiredState) -> frozenset[Identity]:
    """Give the objects of a set that are there as it says; the inventory's hashes are not asked."""
    resolved = plan.resolved
    nothing = Inventory(app=earlier.app, environment=earlier.environment, namespace=resolved.place.namespace)
    try:
        wanted = replace(resolved, state=as_members(earlier, nothing.namespace))
        options = replace(plan.options, dry_run=True, create=False, adopt=False, keep_foreign_fields=True)
        changes = diff(wanted, fetch(wanted, options, inventory=nothing), options)
    except ClusterError:  # a kind that the cluster does not have: the apply itself needs none of this
        return frozenset()
    return frozenset(change.identity for change in changes.changes if change.action == "unchanged")


def known_goal(failed: ApplyPlan, error: MlstackError, known: LastGood | None) -> RollbackGoal | str:
    """Find what to go back to after an apply that `error` ended, or say why nothing is rolled back.

    Objects come back that were there when the apply began, and those go that it has made; nothing else
    that a revision says is done without a question.
    """
    done = error.partial
    if not (isinstance(done, RunResult) and any(row.outcome in history.CHANGING for row in done.objects)):
        return "nothing was changed, so nothing is rolled back"
    if known is None:
        return "nothing is rolled back: no earlier revision of this environment worked"
    resolved, number = failed.resolved, known.revision.number
    earlier = history.only(known.whole, resolved.state.components) if resolved.selective else known.whole
    vouched, doubted = _believed(earlier, known, resolved.state, failed.environment)
    state, said = earlier_state(vouched, resolved.state, may_lose=failed.options.allow_destructive)
    return RollbackGoal(
        resolved=replace(resolved, state=state, whole=known.whole),
        # The set was whole once, so that what goes is what the failed apply brought.
        options=replace(failed.options, prune=True, create=True, allow_large_prune=True),
        what=f"rollback to {number} after a failure",
        now=resolved.state,
        revision=number,
        created=frozenset(row.object for row in done.objects if row.outcome == "created"),
        notes=(*said, *doubted, *_lost(done)),
    )


def to_known(plan: ApplyPlan, goal: RollbackGoal, failed: ApplyPlan) -> Retreat:
    """Give the retreat by a plan of what is known to be good: it takes away only what the apply made."""
    spared = sparing_claims(plan.changes.changes, goal.now)
    changes = tuple(_only_of_the_run(change, goal.created) for change in spared)
    stays = (f"{change.identity} stays: {change.reason}" for change in changes if change.action == "kept")
    return Retreat(
        proposal=replace(plan, changes=replace(plan.changes, changes=changes), pin=None, lock=failed.lock),
        notes=(f"rolling back to revision {goal.revision}", *stays, *goal.notes),
    )


def _believed(
    earlier: DesiredState, known: LastGood, now: DesiredState, environment: str
) -> tuple[DesiredState, tuple[str, ...]]:
    """Give a set with the objects that were there as it says; of the others what is wanted of them now."""
    today = {obj.identity: obj for obj in now.objects}
    doubted = [obj.identity for obj in earlier.objects if obj.identity not in known.borne_out]
    instead = [today[key] for key in doubted if key in today]
    kept = [obj for obj in earlier.objects if obj.identity in known.borne_out]
    number = known.revision.number
    notes = tuple(
        f"{key} is not brought back: before this run the cluster had not what revision {number} says of it;"
        f" if that is wanted: mlstack rollback {environment} {number}"
        for key in doubted
    )
    return replace(earlier, objects=(*kept, *instead)), notes


def _only_of_the_run(change: Change, created: Collection[str]) -> Change:
    """Keep what was there before the run: that a revision does not have it is no reason to delete it."""
    if change.action != "delete" or str(change.identity) in created:
        return change
    return replace(change, action="kept", reason="was there before this run", writes=False)


def _lost(done: RunResult) -> Iterator[str]:
    for row in done.objects:
        if row.outcome in ("recreated", "deleted", "terminating"):
            yield f"{row.object} was {row.outcome}: what it had done or held does not come back"
