"""`apply`: work out what would change, and after the question carry out exactly that."""

from collections.abc import Sequence
from dataclasses import dataclass

from mlstack.cluster.api import Cluster, Opener
from mlstack.engine import desired, guard
from mlstack.engine.execute import Run
from mlstack.engine.observe import observe
from mlstack.errors import MlstackError
from mlstack.files.appdir import AppDir
from mlstack.model import report
from mlstack.model.app import ClusterIdentity, Environment
from mlstack.model.clock import Clock
from mlstack.model.diff import Action, Changes
from mlstack.model.events import Event, EventKind, OnEvent, silent
from mlstack.model.overrides import Overrides
from mlstack.model.report import ChangeReport, RunResult
from mlstack.templating import CodeStore

_NONE = Overrides()


@dataclass(frozen=True, kw_only=True)
class ApplyPlan:
    """What one apply would do, ready to be confirmed and carried out.

    Attributes:
        changes: one change an object.
        app: the app directory.
        place: the environment as it is used by this run.
        cluster: where the changes go.
        pin: identity that the environment is bound to before the first write, None if it is bound already.
        dry_run: write nothing.
    """

    changes: Changes
    app: AppDir
    place: Environment
    cluster: Cluster
    pin: ClusterIdentity | None
    dry_run: bool

    @property
    def report(self) -> ChangeReport:
        """Give what a person confirms."""
        return report.report(self.changes)

    @property
    def environment(self) -> str:
        """Give the name of the environment."""
        return self.place.name

    @property
    def protected(self) -> bool:
        """Tell whether the environment wants every change confirmed."""
        return self.place.protected

    @property
    def destructive(self) -> bool:
        """Tell whether anything is deleted, if only to be made anew."""
        return self.changes.destructive

    @property
    def changes_existing(self) -> bool:
        """Tell whether anything that exists changes or goes."""
        return self.changes.changes_existing


def compute(
    app: AppDir,
    environment: str,
    *,
    opener: Opener,
    components: Sequence[str] = (),
    overrides: Overrides = _NONE,
    store: CodeStore | None = None,
    context: str | None = None,
    namespace: str | None = None,
    dry_run: bool = False,
    create: bool = True,
) -> ApplyPlan:
    """Work out what an apply would do; nothing is written.

    Args:
        app: the app directory.
        environment: name of the environment.
        opener: opens a cluster by its context.
        components: only these components and modules.
        overrides: parameters for this run.
        store: keeps compiled templates and passed parameter sets.
        context: another kubectl context, for this run; the cluster must be the same.
        namespace: another namespace, for this run.
        dry_run: make a plan that writes nothing when carried out; the server checks new objects as well.
        create: whether objects that are missing are made.

    Raises:
        ConfigError: a file, parameter or template is wrong, or nothing would be deployed.
        ClusterError: the cluster cannot be asked, is another one, or refuses an object.
    """
    place = desired.place(app, environment, context=context, namespace=namespace)
    state = desired.load(
        app, environment, components=components, overrides=overrides, store=store, namespace=namespace
    )
    guard.refuse_empty(state)
    cluster = opener(place.context)
    identity = guard.check_cluster(place, cluster)
    changes = observe(state, cluster, environment=place, identity=identity, create=create, check_new=dry_run)
    fresh = place.cluster is None and context is None and guard.is_known(identity)
    return ApplyPlan(
        changes=changes,
        app=app,
        place=place,
        cluster=cluster,
        pin=identity if fresh else None,
        dry_run=dry_run,
    )


def execute(plan: ApplyPlan, *, clock: Clock, on_event: OnEvent = silent) -> RunResult:
    """Carry out a plan.

    Args:
        plan: what was confirmed.
        clock: for waits.
        on_event: told about every object as it is done.

    Raises:
        MlstackError: an object failed; `partial` holds what was done.
        Interrupted: a person stopped the run; `partial` as well.
    """
    if plan.dry_run:
        return _pretend(plan, on_event)
    if plan.pin is not None:
        plan.app.pin_identity(plan.environment, plan.pin)
        bound = f"environment `{plan.environment}` is now bound to this cluster ({guard.describe(plan.pin)})"
        on_event(Event("note", None, bound))
    for note in plan.changes.notes:
        on_event(Event("note", None, note))
    run = Run(plan.cluster, on_event=on_event, clock=clock)
    try:
        run.apply(plan.changes.changes)
    except MlstackError as error:
        error.partial = report.run_result(plan.changes, run.outcomes)
        raise
    except KeyboardInterrupt as stop:
        raise report.Interrupted(report.run_result(plan.changes, run.outcomes)) from stop
    return report.run_result(plan.changes, run.outcomes)


_OUTCOMES: dict[Action, EventKind] = {
    "create": "created",
    "update": "updated",
    "recreate": "recreated",
    "unchanged": "unchanged",
}


def _pretend(plan: ApplyPlan, on_event: OnEvent) -> RunResult:
    events = {
        change.identity: Event(
            _OUTCOMES.get(change.action, "kept"), change.identity, change.reason or "; ".join(change.notes)
        )
        for change in plan.changes.changes
    }
    for event in events.values():
        on_event(event)
    return report.run_result(plan.changes, events, dry_run=True)
