"""`status`: whether what was applied works, and why not: component, object, pods."""

from collections.abc import Callable, Sequence

from mlstack.cluster.api import Opener
from mlstack.engine.comparing.surroundings import placed
from mlstack.engine.records import inventory as inventories
from mlstack.engine.removing.prune import prune
from mlstack.engine.target import Reached, Target, reach
from mlstack.engine.waiting.inspect import inspect
from mlstack.engine.waiting.judge import Seen
from mlstack.engine.waiting.logs import Logs
from mlstack.engine.waiting.lookout import UNSEEN, Lookout
from mlstack.errors import ClusterError
from mlstack.files.appdir import AppDir
from mlstack.model.app import Component
from mlstack.model.clock import Clock
from mlstack.model.diff import Change
from mlstack.model.health import ComponentStatus, LeftOver, ObjectStatus, PodStatus, StatusResult
from mlstack.model.objects import selector


def status(target: Target, *, opener: Opener, clock: Clock) -> StatusResult:
    """Judge every object of an environment.

    Args:
        target: what to look at.
        opener: opens a cluster by its context.
        clock: tells the time.

    Raises:
        ConfigError: a file, parameter or template is wrong.
        ClusterError: the cluster cannot be asked or is another one.
    """
    report = _Report(reach(target, opener, confined=False))
    seen, notes = inspect(
        report.wanted,
        report.reached.cluster,
        now_s=clock.now_s(),
        wait_for_load_balancer=report.reached.place.wait_for_load_balancer,
        labels=report.labels,
        rules=report.reached.rules,
        logs=Logs.of_state(report.reached.cluster, report.reached.state),
    )
    report.find_left_over(seen)
    return report.of(seen, notes)


def watch(
    target: Target,
    *,
    opener: Opener,
    clock: Clock,
    on_change: Callable[[StatusResult], object],
    timeout_s: float | None = None,
) -> StatusResult:
    """Judge every object again whenever one changes, until all of them work.

    Args:
        target: what to look at.
        opener: opens a cluster by its context.
        clock: tells the time.
        on_change: called with everything, once at first and then whenever something is another.
        timeout_s: seconds after which it ends whatever is seen; None for never.

    Returns:
        What was seen last.

    Raises:
        ConfigError: a file, parameter or template is wrong.
        ClusterError: the cluster cannot be asked or is another one.
    """
    report = _Report(reach(target, opener, confined=False))
    reached = report.reached
    lookout = Lookout(
        reached.cluster,
        report.wanted,
        clock=clock,
        labels=report.labels,
        wait_for_load_balancer=reached.place.wait_for_load_balancer,
        everything=True,
        rules=reached.rules,
        logs=Logs.of_state(reached.cluster, reached.state),
    )
    ends_s = None if timeout_s is None else clock.now_s() + timeout_s
    last: StatusResult | None = None
    with lookout:
        for seen in lookout.rounds():
            is_late = ends_s is not None and clock.now_s() >= ends_s
            if not is_late and any(one.readiness is UNSEEN for one in seen):
                continue
            if last is None:
                report.find_left_over(seen)
            found = report.of(seen, (*lookout.notes, *_outage(lookout)))
            if found != last:
                on_change(found)
            last = found
            if found.ok or is_late:
                break
    return last if last is not None else report.of((), ())


def _outage(lookout: Lookout) -> tuple[str, ...]:
    error = lookout.outage()
    return (error.message,) if error is not None else ()


class _Report:
    """Writes down what is seen of one environment."""

    def __init__(self, reached: Reached) -> None:
        self.reached = reached
        self.wanted = placed(reached.state.objects, reached.cluster)
        self.labels = selector(app=reached.state.app, environment=reached.state.environment)
        self._left_over: tuple[LeftOver, ...] = ()
        self._notes: tuple[str, ...] = ()

    def find_left_over(self, seen: Sequence[Seen]) -> None:
        """Look up what the inventory has and the files no longer bring."""
        state, cluster = self.reached.state, self.reached.cluster
        brought = [_as_it_is(one) for one in seen]
        try:
            inventory = inventories.read(
                cluster, app=state.app, environment=state.environment, namespace=state.namespace
            )
            if not inventory.exists and any(one.live for one in seen):
                inventory = inventories.found_again(cluster, inventory)
            found = prune(self.reached, inventory, brought)
        except ClusterError as error:
            self._notes = (f"what the files no longer bring may be missing: {error.message}",)
            return
        self._notes = inventory.notes
        self._left_over = tuple(_left_over(change) for change in found.changes)

    def of(self, seen: Sequence[Seen], notes: Sequence[str]) -> StatusResult:
        """Give the whole state."""
        reached, state = self.reached, self.reached.state
        app, environment = reached.target.app, reached.place.name
        rows = tuple(_component(app, name, seen, environment) for name in state.components)
        return StatusResult(
            ok=all(row.ok for row in rows),
            app=state.app,
            environment=state.environment,
            namespace=state.namespace,
            context=reached.place.context,
            components=rows,
            left_over=self._left_over,
            notes=(*state.notes, *self._notes, *notes),
        )


def _as_it_is(seen: Seen) -> Change:
    uid = str(seen.live["metadata"].get("uid") or "") if seen.live else ""
    wanted = seen.wanted
    return Change(
        identity=wanted.identity,
        component=wanted.component,
        api_version=wanted.api_version,
        action="unchanged",
        desired=wanted,
        live_uid=uid,
    )


def _left_over(change: Change) -> LeftOver:
    identity = change.identity
    return LeftOver(
        object=str(identity),
        kind=identity.kind,
        namespace=identity.namespace,
        name=identity.name,
        component=change.component,
        is_kept=change.action == "kept",
        reason=change.reason,
    )


def _component(app: AppDir, name: str, seen: Sequence[Seen], environment: str) -> ComponentStatus:
    own = [one for one in seen if one.wanted.component == name]
    return ComponentStatus(
        name=name,
        ok=all(one.readiness.is_fine for one in own),
        objects=tuple(_object(one, _hint(app, one, environment)) for one in own),
    )


def _object(seen: Seen, hint: str) -> ObjectStatus:
    identity = seen.wanted.identity
    return ObjectStatus(
        object=str(identity),
        kind=identity.kind,
        namespace=identity.namespace,
        name=identity.name,
        state=seen.readiness.state,
        reason=seen.readiness.reason,
        hint=hint,
        pods=tuple(
            PodStatus(
                name=str(pod["metadata"]["name"]),
                state=found.state,
                reason=found.reason,
                node=str((pod.get("spec") or {}).get("nodeName") or ""),
            )
            for pod, found in seen.pods
        ),
    )


def _hint(app: AppDir, seen: Seen, environment: str) -> str:
    """Say what to do about the troubles that have a usual cure."""
    name = seen.wanted.component
    if seen.readiness.state == "missing":
        return f"mlstack apply {environment} -c {name}"
    if seen.readiness.reason.startswith("no training operator"):
        return (
            "look at the operator's Deployment, its `--namespace` and `--enable-scheme`;"
            f" to install it: mlstack apply {environment} -c kubeflow-core"
        )
    if seen.readiness.resource and _takes(app, name, "num_gpus"):
        return (
            "add GPU nodes with the device plugin,"
            f" or: mlstack param set --env={environment} {name} num_gpus 0"
        )
    return ""


def _takes(app: AppDir, name: str, parameter: str) -> bool:
    component = app.component(name)
    return isinstance(component, Component) and parameter in app.prototype(component.prototype).params
