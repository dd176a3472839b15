"""Going back to an earlier revision: proposed, confirmed and carried out like any other change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mlstack.cluster.api import Opener
from mlstack.engine.deployment import Deployment, propose
from mlstack.engine.records.history import History
from mlstack.engine.records.recording import history_of
from mlstack.engine.target import Reached, Target, reach
from mlstack.errors import MlstackError, NotFoundError
from mlstack.model import history
from mlstack.model.clock import Clock
from mlstack.model.history import Revision
from mlstack.model.objects import DesiredState
from mlstack.model.options import ApplyOptions
from mlstack.model.packing import DamagedError
from mlstack.model.report import RunResult


@dataclass(frozen=True, kw_only=True)
class _Point:
    """Where to go back to: a revision, its set, the set of today, and what is to be said."""

    revision: Revision
    state: DesiredState
    now: DesiredState
    notes: tuple[str, ...]


def propose_rollback(
    target: Target, opener: Opener, *, number: int | None = None, options: ApplyOptions, clock: Clock
) -> Deployment:
    """Work out what going back to a revision would do; nothing is written.

    Claims stay as they are: those of today are neither deleted nor given the size they had. So do
    definitions that would lose something.

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
    kept = history_of(target, opener, clock=clock)
    point = _point(kept, number)
    reached = reach(target, lambda context: kept.cluster, state=point.state)
    made = _proposed(reached, options, f"rollback to {point.revision.number}", now=point.now)
    notes = (*point.notes, *_files_differ(target, point.state))
    return replace(made, changes=replace(made.changes, notes=(*made.changes.notes, *notes)))


def _proposed(reached: Reached, options: ApplyOptions, what: str, *, now: DesiredState) -> Deployment:
    made = propose(reached, options, what=what, may_be_empty=True)
    spared = history.sparing_claims(made.changes.changes, now)
    return replace(made, changes=replace(made.changes, changes=spared))


def _point(kept: History, number: int | None) -> _Point:
    known = kept.revisions()
    found, notes = (kept.find(number), ()) if number is not None else _before_newest(kept, known)
    earlier = kept.load(found)
    try:
        now = kept.load(known[-1])
    except DamagedError as error:  # what is there now is known from the inventory all the same
        now, notes = earlier, (*notes, error.message)
    state, said = history.gone_back(earlier, now)
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
    if history.compared(state, wanted):
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

    proposal: Deployment | None
    notes: tuple[str, ...]


def retreat(failed: Deployment, error: MlstackError, *, clock: Clock) -> Retreat:
    """Work out how to go back to the last revision that worked, after an apply failed; nothing is written.

    Args:
        failed: the apply; only the components it was about go back.
        error: what ended it; `partial` holds what was done.
        clock: tells the time.

    Raises:
        ClusterError: the cluster cannot be asked, or refuses an object.
    """
    done = error.partial
    if not (isinstance(done, RunResult) and any(row.outcome in _CHANGING for row in done.objects)):
        return Retreat(proposal=None, notes=("nothing was changed, so nothing is rolled back",))
    reached = failed.reached
    kept = History.of(reached.state.app, reached.place, reached.cluster, clock=clock)
    good = history.last_good(kept.revisions(), reached.state.components if reached.selective else ())
    if good is None:
        why = "nothing is rolled back: no earlier revision of this environment worked"
        return Retreat(proposal=None, notes=(why,))
    known = kept.load(good)
    earlier = history.only(known, reached.state.components) if reached.selective else known
    state, said = history.gone_back(earlier, reached.state)
    # The set was whole once, so that what goes is what the failed apply brought.
    options = replace(failed.options, prune=True, create=True, allow_large_prune=True)
    back = _proposed(
        replace(reached, state=state, whole=known),
        options,
        f"rollback to {good.number} after a failure",
        now=reached.state,
    )
    stays = (f"{one.identity} stays: {one.reason}" for one in back.changes.changes if one.action == "kept")
    return Retreat(
        proposal=replace(back, pin=None, lock=failed.lock),
        notes=(f"rolling back to revision {good.number}", *stays, *said, *_lost(done)),
    )


_CHANGING = frozenset({"created", "updated", "recreated", "deleted"})


def _lost(done: RunResult) -> Iterator[str]:
    for row in done.objects:
        if row.outcome in ("recreated", "deleted"):
            yield f"{row.object} was {row.outcome}: what it had done or held does not come back"
