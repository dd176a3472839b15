"""How a run enters the history of its environment: what it did, how it ended, and the set it was about."""

from collections.abc import Mapping
from dataclasses import replace

import mlstack
from mlstack.cluster.api import Opener
from mlstack.engine import guard, history
from mlstack.engine.history import History
from mlstack.engine.target import Reached, Target
from mlstack.errors import MlstackError, NotReadyError
from mlstack.model.clock import Clock
from mlstack.model.diff import Changes
from mlstack.model.events import Event, OnEvent
from mlstack.model.history import Result, Revision, timestamp
from mlstack.model.objects import DesiredState, Identity
from mlstack.model.report import run_result

_CHANGING = frozenset({"created", "updated", "recreated", "deleted"})


def record(
    reached: Reached,
    changes: Changes,
    outcomes: Mapping[Identity, Event],
    *,
    what: str,
    error: MlstackError | None,
    clock: Clock,
    on_event: OnEvent,
) -> None:
    """Write a revision if the run changed anything; that it cannot be written is told, and no failure.

    Args:
        reached: what was wanted, and where.
        changes: what was to be done.
        outcomes: how each object ended.
        what: the run in a few words, as `of` gives them.
        error: what ended the run early.
        clock: tells the time.
        on_event: told when no history can be kept.
    """
    if not any(event.kind in _CHANGING for event in outcomes.values()):
        return
    draft = Revision(
        number=0,
        time=timestamp(clock.now_s()),
        who=reached.target.who,
        what=what,
        result=_result(error),
        components=tuple(reached.state.components),
        counts=dict(run_result(changes, outcomes).counts),
        version=mlstack.__version__,
    )
    kept = History.of(reached.state.app, reached.place, reached.cluster, clock=clock)
    history.keep(kept, draft, _made(reached.state, changes), selective=reached.selective, on_event=on_event)


def of(target: Target, verb: str) -> str:
    """Give a run in a few words: `apply -c cnn,web with --set`; values are not told, some are secret."""
    components = f" -c {','.join(target.components)}" if target.components else ""
    own = " with --set" if target.overrides else ""
    return f"{verb}{components}{own}"


def _result(error: MlstackError | None) -> Result:
    if error is None:
        return "done"
    return "not ready" if isinstance(error, NotReadyError) else "failed"


def _made(state: DesiredState, changes: Changes) -> DesiredState:
    """Leave out what was not to be created: a later rollback is not to create it either."""
    missing = {change.identity for change in changes.changes if change.action == "missing"}
    return replace(state, objects=tuple(one for one in state.objects if one.identity not in missing))


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
