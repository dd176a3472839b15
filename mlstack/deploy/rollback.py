"""Going back to an earlier revision: asked for, or after an apply that failed; a plan like any other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mlstack.clock import Clock
from mlstack.deploy import history, replacement
from mlstack.deploy.changes import DESTRUCTIVE, ApplyOptions, Change
from mlstack.deploy.diff import diff
from mlstack.deploy.history import DamagedHistoryError, History, Revision, open_history
from mlstack.deploy.inventory import Inventory
from mlstack.deploy.live import fetch
from mlstack.deploy.plan import ApplyPlan, make_plan
from mlstack.deploy.prune import is_claim
from mlstack.deploy.result import RunResult
from mlstack.deploy.target import Reached, Target, reach
from mlstack.errors import ClusterError, MlstackError, NotFoundError
from mlstack.kube.client import Opener
from mlstack.objects.kinds import kinds_of_crd
from mlstack.objects.kube_object import DesiredState, Identity, KubeObject


def propose_rollback(
    target: Target, opener: Opener, *, number: int | None = None, options: ApplyOptions, clock: Clock
) -> ApplyPlan:
    """Work out what going back to a revision would do; nothing is written.

    Claims stay as they are: those of today are neither deleted nor given the size they had. So do
    definitions that would lose something, unless the options allow that.

    Args:
        target: the environment.
        opener: opens a cluster by its context.
        number: the revision; None for the newest before the last one that worked.
        options: how it is to be done.
        clock: tells the time.

    Raises:
        NotFoundError: there is no such revision, or none before the newest.
        ClusterError: the cluster cannot be asked, is another one, or refuses an object.
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
    reached = reach(target, lambda context: past.cluster, state=state)
    plan = _plan(reached, options, f"rollback to {revision.number}", now=now)
    notes = (*plan.changes.notes, *notes, *stays, *_files_differ(target, state))
    return replace(plan, changes=replace(plan.changes, notes=notes))


def _plan(reached: Reached, options: ApplyOptions, what: str, *, now: DesiredState) -> ApplyPlan:
    plan = make_plan(reached, options, what=what, may_be_empty=True)
    return replace(plan, changes=replace(plan.changes, changes=sparing_claims(plan.changes.changes, now)))


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
    today = {found.identity: found for found in now.objects}
    then = {found.identity: found for found in earlier.objects}
    reasons = {key: _lasting(found, today.get(key), may_lose) for key, found in then.items()}
    kept = [today[key] if reasons[key] else found for key, found in then.items()]
    notes = tuple(f"{key} stays as it is: {why}" for key, why in reasons.items() if why)
    return replace(earlier, objects=tuple(kept)), notes


def _lasting(earlier: KubeObject, today: KubeObject | None, may_lose: bool) -> str:
    """Say why an object cannot get its earlier form again, nothing if it can."""
    if today is None or today.data == earlier.data:
        return ""
    if is_claim(earlier.identity):
        return "a claim is not rolled back"
    if kinds_of_crd(earlier.data) and not may_lose and not replacement.is_allowed(earlier.data):
        lost = replacement.losses(today.data, earlier.data)
        if lost:
            return f"going back would lose something ({lost[0]}); if that is wanted: --allow-destructive-crds"
    return ""


def sparing_claims(changes: Iterable[Change], now: DesiredState) -> tuple[Change, ...]:
    """Give the changes of a rollback without those that would take volume claims along.

    What is listed for deletion may be known by its metadata alone, so the set of today is asked as well.
    """
    holding = {found.identity for found in now.objects if _takes_claims_along(found)}
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
class KnownGood:
    """What an apply may go back to without a question, as it was known before it began."""

    revision: Revision  # the last one that worked
    whole: DesiredState  # its set
    borne_out: frozenset[Identity]  # the objects of which the cluster had exactly what the set says


def known_good(plan: ApplyPlan, *, clock: Clock) -> KnownGood | None:
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
    reached = plan.reached
    kept = History.of(reached.state.app, reached.place, reached.cluster, clock=clock)
    revisions = kept.revisions()
    components = reached.state.components if reached.selective else ()
    while (good := history.last_good(revisions, components)) is not None:
        try:
            whole = kept.load(good)
        except DamagedHistoryError:  # the one before it may be whole
            revisions = tuple(one for one in revisions if one.number < good.number)
            continue
        earlier = history.only(whole, components) if reached.selective else whole
        return KnownGood(revision=good, whole=whole, borne_out=_borne_out(plan, earlier))
    return None


def _borne_out(plan: ApplyPlan, earlier: DesiredState) -> frozenset[Identity]:
    """Give the objects of a set that are there as it says; the inventory's hashes are not asked."""
    reached = plan.reached
    nothing = Inventory(app=earlier.app, environment=earlier.environment, namespace=reached.place.namespace)
    members = tuple(one.with_data(nothing.label(one.data)) for one in earlier.objects)
    try:
        wanted = replace(reached, state=replace(earlier, objects=members))
        options = replace(plan.options, dry_run=True, create=False, adopt=False, keep_foreign_fields=True)
        found = diff(wanted, fetch(wanted, options, inventory=nothing), options)
    except ClusterError:  # a kind that the cluster does not have: the apply itself needs none of this
        return frozenset()
    return frozenset(one.identity for one in found.changes if one.action == "unchanged")


def retreat(failed: ApplyPlan, error: MlstackError, *, known: KnownGood | None, clock: Clock) -> Retreat:
    """Work out how to go back to the last revision that worked, after an apply failed; nothing is written.

    Objects come back that were there when the apply began, and those go that it has made; nothing else
    that a revision says is done without a question.

    Args:
        failed: the apply; only the components it was about go back.
        error: what ended it; `partial` holds what was done.
        known: what `known_good` gave before it began.
        clock: tells the time.

    Raises:
        ClusterError: the cluster cannot be asked, or refuses an object.
    """
    done = error.partial
    if not (isinstance(done, RunResult) and any(row.outcome in history.CHANGING for row in done.objects)):
        return Retreat(proposal=None, notes=("nothing was changed, so nothing is rolled back",))
    if known is None:
        why = "nothing is rolled back: no earlier revision of this environment worked"
        return Retreat(proposal=None, notes=(why,))
    reached, number = failed.reached, known.revision.number
    earlier = history.only(known.whole, reached.state.components) if reached.selective else known.whole
    vouched, doubted = _believed(earlier, known, reached.state, failed.environment)
    state, said = earlier_state(vouched, reached.state, may_lose=failed.options.allow_destructive)
    # The set was whole once, so that what goes is what the failed apply brought.
    options = replace(failed.options, prune=True, create=True, allow_large_prune=True)
    back = _plan(
        replace(reached, state=state, whole=known.whole),
        options,
        f"rollback to {number} after a failure",
        now=reached.state,
    )
    created = {row.object for row in done.objects if row.outcome == "created"}
    changes = tuple(_only_of_the_run(one, created) for one in back.changes.changes)
    stays = (f"{one.identity} stays: {one.reason}" for one in changes if one.action == "kept")
    return Retreat(
        proposal=replace(back, changes=replace(back.changes, changes=changes), pin=None, lock=failed.lock),
        notes=(f"rolling back to revision {number}", *stays, *said, *doubted, *_lost(done)),
    )


def _believed(
    earlier: DesiredState, known: KnownGood, now: DesiredState, environment: str
) -> tuple[DesiredState, tuple[str, ...]]:
    """Give a set with the objects that were there as it says; of the others what is wanted of them now."""
    today = {one.identity: one for one in now.objects}
    doubted = [one.identity for one in earlier.objects if one.identity not in known.borne_out]
    instead = [today[one] for one in doubted if one in today]
    kept = [one for one in earlier.objects if one.identity in known.borne_out]
    number = known.revision.number
    notes = tuple(
        f"{one} is not brought back: before this run the cluster had not what revision {number} says of it;"
        f" if that is wanted: mlstack rollback {environment} {number}"
        for one in doubted
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
