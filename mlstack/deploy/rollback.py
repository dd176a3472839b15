"""Going back to an earlier revision: proposed, confirmed and carried out like any other change."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from mlstack.clock import Clock
from mlstack.deploy import history
from mlstack.deploy.changes import ApplyOptions, Change
from mlstack.deploy.deployment import ApplyPlan, propose
from mlstack.deploy.diff import diff
from mlstack.deploy.history import DamagedHistoryError, History, Revision, open_history
from mlstack.deploy.inventory import Inventory
from mlstack.deploy.live import fetch
from mlstack.deploy.result import RunResult
from mlstack.deploy.target import Reached, Target, reach
from mlstack.errors import ClusterError, MlstackError, NotFoundError
from mlstack.kube.client import Opener
from mlstack.objects.kube_object import DesiredState, Identity


@dataclass(frozen=True, kw_only=True)
class _Point:
    """Where to go back to: a revision, its set, the set of today, and what is to be said."""

    revision: Revision
    state: DesiredState
    now: DesiredState
    notes: tuple[str, ...]


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
    kept = open_history(target, opener, clock=clock)
    point = _point(kept, number, options)
    reached = reach(target, lambda context: kept.cluster, state=point.state)
    made = _proposed(reached, options, f"rollback to {point.revision.number}", now=point.now)
    notes = (*point.notes, *_files_differ(target, point.state))
    return replace(made, changes=replace(made.changes, notes=(*made.changes.notes, *notes)))


def _proposed(reached: Reached, options: ApplyOptions, what: str, *, now: DesiredState) -> ApplyPlan:
    made = propose(reached, options, what=what, may_be_empty=True)
    spared = history.sparing_claims(made.changes.changes, now)
    return replace(made, changes=replace(made.changes, changes=spared))


def _point(kept: History, number: int | None, options: ApplyOptions) -> _Point:
    known = kept.revisions()
    found, notes = (kept.find(number), ()) if number is not None else _before_newest(kept, known)
    earlier = kept.load(found)
    try:
        now = kept.load(known[-1])
    except DamagedHistoryError as error:  # what is there now is known from the inventory all the same
        now, notes = earlier, (*notes, error.message)
    state, said = history.gone_back(earlier, now, may_lose=options.allow_destructive)
    return _Point(revision=found, state=state, now=now, notes=(*notes, *said))


def _before_newest(kept: History, known: Sequence[Revision]) -> tuple[Revision, tuple[str, ...]]:
    if len(known) < 2:
        there = f"only revision {known[0].number}" if known else "no history"
        raise NotFoundError(
            f"environment `{kept.environment}` has nothing to go back to: {there}",
            hint=f"mlstack history {kept.environment}",
        )
    found = history.last_good(known[:-1]) or known[-2]
    passed = [str(one.number) for one in known[:-1] if one.number > found.number]
    if not passed:
        return found, ()
    return found, (f"revision {', '.join(passed)} is passed over: it did not work",)


def _files_differ(target: Target, state: DesiredState) -> Iterator[str]:
    """Warn if the next apply would undo the rollback."""
    environment = target.environment
    try:
        wanted = target.desired()
    except MlstackError as error:
        yield f"the files of the app cannot be rendered at present: {error.message}"
        return
    if history.changes_between(state, wanted):
        yield (
            "the files of the app still say something else: the next `mlstack apply"
            f" {environment}` undoes this; see `mlstack diff {environment}`"
        )


@dataclass(frozen=True, kw_only=True)
class Retreat:
    """What becomes of a failed apply that is to be rolled back.

    Attributes:
        proposal: what going back would do; None if there is nothing to be done.
        notes: what is to be said of it, as what cannot be undone.
    """

    proposal: ApplyPlan | None
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class KnownGood:
    """What an apply may go back to without a question, as it was known before it began.

    Attributes:
        revision: the last one that worked.
        whole: its set.
        borne_out: the objects of which the cluster had exactly what the set says.
    """

    revision: Revision
    whole: DesiredState
    borne_out: frozenset[Identity]


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
    state, said = history.gone_back(vouched, reached.state, may_lose=failed.options.allow_destructive)
    # The set was whole once, so that what goes is what the failed apply brought.
    options = replace(failed.options, prune=True, create=True, allow_large_prune=True)
    back = _proposed(
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
