"""`status`: whether what was applied works, and why not: component, object, pods."""

from collections.abc import Callable, Iterator, Sequence

from mlstack.app.app import Component
from mlstack.app.app_dir import AppDir
from mlstack.clock import Clock
from mlstack.deploy import inventory_store
from mlstack.deploy.changes import Change
from mlstack.deploy.deletion import Gone, holders, obstacles
from mlstack.deploy.inventory_store import ref_of
from mlstack.deploy.live import namespaces_of, placed
from mlstack.deploy.prune import candidates
from mlstack.deploy.result import ComponentStatus, LeftOver, ObjectStatus, PodStatus, StatusResult
from mlstack.deploy.target import ResolvedTarget, Target, resolve
from mlstack.errors import ClusterError, ForbiddenError
from mlstack.kube.client import Cluster, ObjectRef, Opener
from mlstack.objects.kube_object import DesiredState, KubeObject, selector
from mlstack.operations import row
from mlstack.readiness.evaluate import Logs, ResourceStatus, inspect
from mlstack.readiness.operators import Operator, how_to_install, is_unseen, operator_of
from mlstack.readiness.watcher import UNSEEN, ReadinessWatcher

# How often it is looked whether what was going is gone.
_AGAIN_S = 2.0


def status(target: Target, *, opener: Opener, clock: Clock) -> StatusResult:
    """Judge every object of an environment.

    Raises:
        ConfigError: a file, parameter or template is wrong.
        ClusterError: the cluster cannot be asked or is another one.
    """
    report = _Report(resolve(target, opener, confined=False), clock)
    seen, notes = inspect(
        report.wanted,
        report.resolved.cluster,
        now_s=clock.now_s(),
        wait_for_load_balancer=report.resolved.place.wait_for_load_balancer,
        labels=report.labels,
        rules=report.resolved.rules,
        logs=Logs.of_state(report.resolved.cluster, report.resolved.state),
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
    """Judge every object again whenever one changes, until all of them work; gives what was seen last.

    Args:
        target: what to look at.
        opener: opens a cluster by its context.
        clock: tells the time.
        on_change: called with everything, once at first and then whenever something is another.
        timeout_s: seconds after which it ends whatever is seen; None for never.

    Raises:
        ConfigError: a file, parameter or template is wrong.
        ClusterError: the cluster cannot be asked or is another one.
    """
    report = _Report(resolve(target, opener, confined=False), clock)
    resolved = report.resolved
    watcher = ReadinessWatcher(
        resolved.cluster,
        report.wanted,
        clock=clock,
        labels=report.labels,
        wait_for_load_balancer=resolved.place.wait_for_load_balancer,
        everything=True,
        rules=resolved.rules,
        logs=Logs.of_state(resolved.cluster, resolved.state),
    )
    ends_s = None if timeout_s is None else clock.now_s() + timeout_s
    last: StatusResult | None = None
    with watcher:
        for seen in watcher.rounds():
            is_late = ends_s is not None and clock.now_s() >= ends_s
            if not is_late and any(one.readiness is UNSEEN for one in seen):
                continue
            report.follow_left_over(seen)
            found = report.of(seen, (*watcher.notes, *_outage(watcher)))
            if found != last:
                on_change(found)
            last = found
            if found.ok or is_late:
                break
    return last if last is not None else report.of((), ())


def _outage(watcher: ReadinessWatcher) -> tuple[str, ...]:
    error = watcher.outage()
    return (error.message,) if error is not None else ()


class _Report:
    """Writes down what is seen of one environment."""

    def __init__(self, resolved: ResolvedTarget, clock: Clock) -> None:
        self.resolved, self._clock = resolved, clock
        self.wanted = placed(resolved.state.objects, resolved.cluster)
        self.labels = selector(app=resolved.state.app, environment=resolved.state.environment)
        self._left_over: tuple[LeftOver, ...] = ()
        self._notes: tuple[str, ...] = ()
        self._going: tuple[str, ...] = ()
        self._found_s = 0.0

    def follow_left_over(self, seen: Sequence[ResourceStatus]) -> None:
        """Look up what the files no longer bring, once, and again from time to time while any of it goes."""
        is_first, is_going = not self._found_s, self._going or self._is_terminating
        if is_first or (is_going and self._clock.now_s() - self._found_s >= _AGAIN_S):
            self.find_left_over(seen)

    @property
    def _is_terminating(self) -> bool:
        return any(row.is_terminating for row in self._left_over)

    def find_left_over(self, seen: Sequence[ResourceStatus]) -> None:
        """Look up what the inventory has and the files no longer bring."""
        state, cluster = self.resolved.state, self.resolved.cluster
        self._found_s = self._clock.now_s()
        brought = [_as_it_is(one) for one in seen]
        try:
            self._going = tuple(_namespaces_going(self.wanted, state, cluster))
            inventory = inventory_store.load(
                cluster, app=state.app, environment=state.environment, namespace=state.namespace
            )
            if not inventory.exists and any(one.live for one in seen):
                inventory = inventory_store.find_by_labels(cluster, inventory)
            changes = candidates(self.resolved, inventory, brought).changes
            going = [change for change in changes if _is_going(change)]
            held = dict(
                zip(
                    (one.identity for one in going),
                    holders(cluster, [_gone(change) for change in going]),
                    strict=True,
                )
            )
        except ClusterError as error:
            self._notes = (f"what the files no longer bring may be missing: {error.message}",)
            return
        self._notes = inventory.notes
        self._left_over = tuple(
            _left_over(change, held.get(change.identity))
            for change in changes
            if held.get(change.identity, "") is not None  # gone meanwhile
        )

    def of(self, seen: Sequence[ResourceStatus], notes: Sequence[str]) -> StatusResult:
        """Give the whole state."""
        resolved, state = self.resolved, self.resolved.state
        app, environment = resolved.target.app, resolved.place.name
        rows = tuple(_component(app, name, seen, environment) for name in state.components)
        return StatusResult(
            ok=all(row.ok for row in rows) and not self._going and not self._is_terminating,
            app=state.app,
            environment=state.environment,
            namespace=state.namespace,
            context=resolved.place.context,
            components=rows,
            left_over=self._left_over,
            notes=(*state.notes, *self._going, *self._notes, *notes),
        )


def _as_it_is(seen: ResourceStatus) -> Change:
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


def _is_going(change: Change) -> bool:
    return change.found is not None and bool(change.found.metadata.get("deletionTimestamp"))


def _gone(change: Change) -> Gone:
    return Gone(ref_of(change), change.live_uid)


def _namespaces_going(wanted: Sequence[KubeObject], state: DesiredState, cluster: Cluster) -> Iterator[str]:
    """Say which of the environment's namespaces are being deleted, and what holds them."""
    for name in namespaces_of(wanted, state):
        ref = ObjectRef("v1", "Namespace", "", name)
        try:
            live = cluster.get(ref)
        except ForbiddenError:  # whoever may work in one namespace only may not read namespaces
            continue
        if live is not None and live["metadata"].get("deletionTimestamp"):
            held = f": {left}" if (left := obstacles(live)) else ""
            yield f"namespace `{name}` is terminating, and all that it holds goes with it{held}"


def _left_over(change: Change, held: str | None) -> LeftOver:
    """Give a row; `held` says what holds an object that is being deleted."""
    return row(
        LeftOver,
        change.identity,
        object=str(change.identity),
        component=change.component,
        is_kept=change.action == "kept",
        is_terminating=held is not None,
        reason=change.reason if held is None else held,
    )


def _component(app: AppDir, name: str, seen: Sequence[ResourceStatus], environment: str) -> ComponentStatus:
    own = [one for one in seen if one.wanted.component == name]
    return ComponentStatus(
        name=name,
        ok=all(one.readiness.is_fine for one in own),
        objects=tuple(_object(one, _hint(app, one, environment)) for one in own),
    )


def _object(seen: ResourceStatus, hint: str) -> ObjectStatus:
    pods = tuple(
        PodStatus(
            name=str(pod["metadata"]["name"]),
            state=readiness.state,
            reason=readiness.reason,
            node=str((pod.get("spec") or {}).get("nodeName") or ""),
        )
        for pod, readiness in seen.pods
    )
    identity, readiness = seen.wanted.identity, seen.readiness
    return row(
        ObjectStatus,
        identity,
        object=str(identity),
        state=readiness.state,
        reason=readiness.reason,
        hint=hint,
        pods=pods,
    )


def _hint(app: AppDir, seen: ResourceStatus, environment: str) -> str:
    """Say what to do about the troubles that have a usual cure."""
    name = seen.wanted.component
    if seen.readiness.state == "missing":
        return f"mlstack apply {environment} -c {name}"
    if is_unseen(seen.wanted.data, seen.readiness):
        operator = operator_of(seen.wanted.api_version, seen.wanted.kind)
        return _operator_hint(operator, environment) if operator else ""
    if seen.readiness.resource and _takes(app, name, "num_gpus"):
        return (
            "add GPU nodes with the device plugin,"
            f" or: mlstack param set --env={environment} {name} num_gpus 0"
        )
    return ""


def _operator_hint(operator: Operator, environment: str) -> str:
    flags = ", its `--namespace` and `--enable-scheme`" if operator.job_kind else ""
    return f"look at the Deployment of the {operator.name}{flags}; {how_to_install(operator, environment)}"


def _takes(app: AppDir, name: str, parameter: str) -> bool:
    component = app.component(name)
    return isinstance(component, Component) and parameter in app.prototype(component.prototype).params
