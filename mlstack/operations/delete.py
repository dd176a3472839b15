"""`delete`: find what an environment has in its cluster, and after the question take it away."""

from collections.abc import Sequence
from dataclasses import dataclass

from mlstack.cluster.api import Cluster, Opener
from mlstack.engine import desired, guard
from mlstack.engine.execute import Run
from mlstack.engine.remains import Spare, find
from mlstack.errors import MlstackError
from mlstack.files.appdir import AppDir
from mlstack.model import report
from mlstack.model.app import Environment
from mlstack.model.clock import Clock
from mlstack.model.diff import Changes
from mlstack.model.events import Event, OnEvent, silent
from mlstack.model.overrides import Overrides
from mlstack.model.report import ChangeReport, RunResult
from mlstack.templating import CodeStore

_NONE = Overrides()


@dataclass(frozen=True, kw_only=True)
class DeletePlan:
    """What one delete would do, ready to be confirmed and carried out.

    Attributes:
        changes: one change an object: `delete`, or `kept` with the reason.
        place: the environment as it is used by this run.
        cluster: where the objects are.
        grace_period_s: time that pods get to end, None for their own.
        dry_run: delete nothing.
    """

    changes: Changes
    place: Environment
    cluster: Cluster
    grace_period_s: int | None
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
        """Tell whether anything is deleted."""
        return self.changes.destructive

    @property
    def changes_existing(self) -> bool:
        """Tell whether anything is deleted."""
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
    include_crds: bool = False,
    include_namespaces: bool = False,
    include_claims: bool = False,
    grace_period_s: int | None = None,
    dry_run: bool = False,
) -> DeletePlan:
    """Find what would be deleted; nothing is.

    Args:
        app: the app directory.
        environment: name of the environment.
        opener: opens a cluster by its context.
        components: only these components and modules.
        overrides: parameters for this run.
        store: keeps compiled templates and passed parameter sets.
        context: another kubectl context, for this run; the cluster must be the same.
        namespace: another namespace, for this run.
        include_crds: delete definitions too, and with them every object of their kinds in every namespace.
        include_namespaces: delete namespaces too, and with them everything they hold.
        include_claims: delete volume claims too, and with them their data.
        grace_period_s: time that pods get to end, in seconds; None for their own.
        dry_run: make a plan that deletes nothing when carried out.

    Raises:
        ConfigError: a file, parameter or template is wrong.
        ClusterError: the cluster cannot be asked or is another one.
    """
    place = desired.place(app, environment, context=context, namespace=namespace)
    state = desired.load(
        app, environment, components=components, overrides=overrides, store=store, namespace=namespace
    )
    cluster = opener(place.context)
    identity = guard.check_cluster(place, cluster)
    spare = Spare(definitions=not include_crds, namespaces=not include_namespaces, claims=not include_claims)
    changes = find(
        state, cluster, place=place, identity=identity, spare=spare, only_components=bool(components)
    )
    return DeletePlan(
        changes=changes, place=place, cluster=cluster, grace_period_s=grace_period_s, dry_run=dry_run
    )


def execute(plan: DeletePlan, *, clock: Clock, on_event: OnEvent = silent) -> RunResult:
    """Delete what the plan says, last wave first.

    Args:
        plan: what was confirmed.
        clock: for waits.
        on_event: told about every object as it goes.

    Raises:
        MlstackError: an object could not be deleted; `partial` holds what was done.
        Interrupted: a person stopped the run; `partial` as well.
    """
    if plan.dry_run:
        return _pretend(plan, on_event)
    for note in plan.changes.notes:
        on_event(Event("note", None, note))
    run = Run(plan.cluster, on_event=on_event, clock=clock)
    try:
        run.delete(plan.changes.changes, grace_period_s=plan.grace_period_s)
    except MlstackError as error:
        error.partial = report.run_result(plan.changes, run.outcomes)
        raise
    except KeyboardInterrupt as stop:
        raise report.Interrupted(report.run_result(plan.changes, run.outcomes)) from stop
    return report.run_result(plan.changes, run.outcomes)


def _pretend(plan: DeletePlan, on_event: OnEvent) -> RunResult:
    events = {
        change.identity: Event(
            "deleted" if change.action == "delete" else "kept", change.identity, change.reason
        )
        for change in plan.changes.changes
    }
    for event in events.values():
        on_event(event)
    return report.run_result(plan.changes, events, dry_run=True)
