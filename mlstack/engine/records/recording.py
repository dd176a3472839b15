"""How a run enters the history of its environment: what it did, how it ended, and the set it was about."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

import mlstack
from mlstack.cluster.ahead import soon
from mlstack.cluster.api import Opener
from mlstack.engine import guard
from mlstack.engine.records.history import History
from mlstack.engine.target import Reached, Target
from mlstack.errors import ClusterError, MlstackError, NotReadyError, UnreachableError
from mlstack.model.clock import Clock
from mlstack.model.diff import Changes
from mlstack.model.events import Event, OnEvent
from mlstack.model.history import CHANGING, Result, Revision, timestamp
from mlstack.model.objects import Identity
from mlstack.model.report import run_result

_CHANGING = frozenset({"created", "updated", "recreated", "deleted", "terminating"})

# What ends programs by SIGTERM kills them when they have not gone after 10 s (Docker) or 30 s (Kubernetes).
LEAVING_S = 6.0


def record(
    reached: Reached,
    changes: Changes,
    outcomes: Mapping[Identity, Event],
    *,
    what: str,
    error: MlstackError | KeyboardInterrupt | None,
    waited: bool,
    history: History,
    clock: Clock,
    on_event: OnEvent,
) -> None:
    """Write a revision if the run changed anything; that it cannot be written is told, and no failure.

    One that was interrupted writes one whatever it had done, which says how far it came. A run that found
    all as wanted writes one too where the newest says something else: a run before it
    was killed before it could, or failed and what it wrote works by now.

    Args:
        reached: what was wanted, and where.
        changes: what was to be done.
        outcomes: how each object ended.
        what: the run in a few words, as `of` gives them.
        error: what ended the run early.
        waited: whether it went on until everything worked.
        history: where it enters.
        clock: tells the time.
        on_event: told when no history can be kept.
    """
    changed = any(event.kind in CHANGING for event in outcomes.values())
    changed = changed or (isinstance(error, KeyboardInterrupt) and bool(changes.visible))
    missing = {change.identity for change in changes.changes if change.action == "missing"}
    if not changed and (error is not None or missing or not waited):
        return
    if isinstance(error, UnreachableError):  # whoever applies next makes up for it
        return
    draft = _draft(reached, changes, outcomes, what=what, clock=clock)
    # What was not to be created is not to be created by a later rollback either.
    made = tuple(one for one in reached.state.objects if one.identity not in missing)
    try:
        history.record(
            replace(draft, result=_result(error)),
            replace(reached.state, objects=made),
            selective=reached.selective,
            if_news=not changed,
        )
    except ClusterError as failure:
        if changed:
            on_event(_unkept(failure))


def record_removal(
    reached: Reached,
    changes: Changes,
    outcomes: Mapping[Identity, Event],
    *,
    clock: Clock,
    on_event: OnEvent,
    error: KeyboardInterrupt | None = None,
) -> None:
    """Write a revision without components that were deleted; that it cannot be written is no failure.

    Of a deletion that was interrupted it has them still, as what does not work.

    Args:
        reached: what was deleted, and where.
        changes: what was to be done.
        outcomes: how each object ended.
        error: what ended the run early.
        clock: tells the time.
        on_event: told when no history can be kept.
    """
    draft = _draft(reached, changes, outcomes, what=of(reached.target, "delete"), clock=clock)
    # The files need not know a component any more.
    names = {*draft.components, *(change.component for change in changes.changes)} - {""}
    draft = replace(draft, components=tuple(sorted(names)), result=_result(error))
    try:
        history(reached, clock=clock).record_removal(draft)
    except ClusterError as failure:
        on_event(_unkept(failure))


def before_leaving(record: Callable[[], None]) -> None:
    """Write down how far a run came that was asked to end, as long as its user may be kept for that."""
    with suppress(TimeoutError):
        soon(record)(LEAVING_S)


def _draft(
    reached: Reached, changes: Changes, outcomes: Mapping[Identity, Event], *, what: str, clock: Clock
) -> Revision:
    return Revision(
        number=0,
        time=timestamp(clock.now_s()),
        who=reached.target.who,
        what=what,
        result="done",
        components=tuple(reached.state.components),
        counts=dict(run_result(changes, outcomes).counts),
        planned=len(changes.visible),
        version=mlstack.__version__,
    )


def history(reached: Reached, *, clock: Clock, ahead: bool = False) -> History:
    """Give the history that a run enters; with `ahead` it is read while the run goes on."""
    found = History.of(reached.state.app, reached.place, reached.cluster, clock=clock)
    return found.read_ahead() if ahead else found


def _unkept(failure: ClusterError) -> Event:
    return Event("note", None, f"the history of this run is incomplete: {failure.message}")


def of(target: Target, verb: str) -> str:
    """Give a run in a few words: `apply -c cnn,web with --set`; values are not told, some are secret."""
    components = f" -c {','.join(target.components)}" if target.components else ""
    own = " with --set" if target.overrides else ""
    return f"{verb}{components}{own}"


def _result(error: MlstackError | KeyboardInterrupt | None) -> Result:
    if error is None or isinstance(error, KeyboardInterrupt):
        return "done" if error is None else "interrupted"
    return "not ready" if isinstance(error, NotReadyError) else "failed"


def history_of(target: Target, opener: Opener, *, clock: Clock) -> History:
    """Give the history of a target from the cluster of its context; nothing is rendered.

    Raises:
        ConfigError: the environment's file is wrong.
        WrongClusterError: the context leads to another cluster.
    """
    place = target.place()
    cluster = opener(place.context)
    guard.check_cluster(place, cluster)
    return History.of(target.app.app().name, place, cluster, clock=clock)
