"""`status`: whether what was applied works, and why not: component, object, pods."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from mlstack.app.app import Component
from mlstack.app.app_dir import AppDir
from mlstack.app.document import API_VERSION
from mlstack.clock import Clock
from mlstack.dataclass import dataclass, row
from mlstack.deploy.changes import Change
from mlstack.deploy.inventory import load_inventory, ref_of
from mlstack.deploy.live import namespaces_of, placed
from mlstack.deploy.prune import candidates, find_by_labels
from mlstack.deploy.target import ResolvedTarget, Target, resolve
from mlstack.deploy.wait import UNSEEN, ReadinessWatcher, obstacles
from mlstack.deploy.write import Gone, holders
from mlstack.errors import ClusterError, ForbiddenError
from mlstack.kube.client import ObjectRef, Opener
from mlstack.objects.kube_object import KubeObject, selector
from mlstack.readiness.evaluate import Logs, ResourceStatus, inspect
from mlstack.readiness.rule import State, how_to_bring, how_to_install, is_unseen, operator_of

# How often it is looked whether what was going is gone.
_AGAIN_S = 2.0


@dataclass(frozen=True, kw_only=True)
class PodStatus:
    """One pod of an object."""

    name: str  # name of the pod
    state: State  # state by the rule for pods
    reason: str  # what it waits for or why it failed
    node: str  # node it runs on, empty if it has none yet


@dataclass(frozen=True, kw_only=True)
class ObjectStatus:
    """One object of a component."""

    object: str  # the object as people name it
    kind: str  # its kind
    namespace: str  # its namespace, empty for cluster-scoped objects
    name: str  # its name
    state: State  # `missing` if it is not in the cluster
    reason: str  # what it waits for or why it failed
    hint: str  # what to do about it, empty if nothing is known
    pods: tuple[PodStatus, ...]  # its pods, by name


@dataclass(frozen=True, kw_only=True)
class ComponentStatus:
    """One component of an environment."""

    name: str  # full name of the component
    ok: bool  # whether all its objects work
    objects: tuple[ObjectStatus, ...]  # its objects in the order they are applied


@dataclass(frozen=True, kw_only=True)
class LeftOver:
    """One object that the environment has in its cluster and the files no longer bring."""

    object: str  # the object as people name it
    kind: str  # its kind
    namespace: str  # its namespace, empty for cluster-scoped objects
    name: str  # its name
    component: str  # full name of the component that brought it
    is_kept: bool  # whether an apply would leave it there
    is_terminating: bool = False  # whether it is being deleted already
    reason: str  # why it is there, why it stays, or what holds it while it goes


@dataclass(frozen=True, kw_only=True)
class StatusResult:
    """How an environment does; `ok` if everything works."""

    api_version: str = API_VERSION  # version of this format
    kind: Literal["StatusResult"] = "StatusResult"  # kind of this format
    ok: bool  # whether every object is ready, done or suspended on purpose, and nothing of it is still going
    app: str  # name of the app
    environment: str  # name of the environment
    namespace: str  # its namespace
    context: str  # the kubectl context
    components: tuple[ComponentStatus, ...]  # by name
    # what the files no longer bring; of `ok` it decides only by what is terminating
    left_over: tuple[LeftOver, ...] = ()
    notes: tuple[str, ...] = ()  # remarks, as what could not be read


class Surplus(NamedTuple):
    """What an environment has in the cluster that its files no longer bring."""

    left_over: tuple[LeftOver, ...] = ()
    going: tuple[str, ...] = ()  # which of its namespaces are being deleted, and what holds them
    notes: tuple[str, ...] = ()

    @property
    def is_going(self) -> bool:
        """Tell whether any of it is being deleted."""
        return bool(self.going) or any(row.is_terminating for row in self.left_over)


def status(target: Target, *, opener: Opener, clock: Clock) -> StatusResult:
    """Judge every object of an environment.

    Raises:
        ConfigError: a file, parameter or template is wrong.
        ClusterError: the cluster cannot be asked or is another one.
    """
    resolved = resolve(replace(target, stand_ins=True), opener, confined=False)
    cluster, state = resolved.cluster, resolved.state
    objects = placed(state.objects, cluster)
    statuses, notes = inspect(
        objects,
        cluster,
        now_s=clock.now_s(),
        wait_for_load_balancer=resolved.place.wait_for_load_balancer,
        labels=selector(app=state.app, environment=state.environment),
        rules=resolved.rules,
        logs=Logs.of_state(cluster, state),
    )
    return _result(resolved, statuses, _surplus(resolved, objects, statuses), notes)


def watch(
    target: Target,
    *,
    opener: Opener,
    clock: Clock,
    on_change: Callable[[StatusResult], object],
    timeout_s: float | None = None,
) -> StatusResult:
    """Judge every object again whenever one changes, until all of them work; gives what was seen last.

    `on_change` is called with everything, once at first and then whenever something is another; `timeout_s`
    are seconds after which it ends whatever is seen, None for never.

    Raises:
        ConfigError: a file, parameter or template is wrong.
        ClusterError: the cluster cannot be asked or is another one.
    """
    resolved = resolve(replace(target, stand_ins=True), opener, confined=False)
    cluster, state = resolved.cluster, resolved.state
    objects = placed(state.objects, cluster)
    watcher = ReadinessWatcher(
        cluster,
        objects,
        clock=clock,
        labels=selector(app=state.app, environment=state.environment),
        wait_for_load_balancer=resolved.place.wait_for_load_balancer,
        everything=True,
        rules=resolved.rules,
        logs=Logs.of_state(cluster, state),
    )
    ends_s = None if timeout_s is None else clock.now_s() + timeout_s
    surplus, looked_s = Surplus(), None
    last = None
    with watcher:
        for statuses in watcher.rounds():
            now_s = clock.now_s()
            is_late = ends_s is not None and now_s >= ends_s
            if not is_late and any(status.readiness is UNSEEN for status in statuses):
                continue
            if looked_s is None or (surplus.is_going and now_s - looked_s >= _AGAIN_S):
                surplus, looked_s = _surplus(resolved, objects, statuses, before=surplus), now_s
            outage = watcher.outage()
            notes = (*watcher.notes, *([outage.message] if outage is not None else []))
            result = _result(resolved, statuses, surplus, notes)
            if result != last:
                on_change(result)
            last = result
            if result.ok or is_late:
                break
    return last if last is not None else _result(resolved, (), surplus, ())


def _surplus(
    resolved: ResolvedTarget,
    objects: Sequence[KubeObject],
    statuses: Sequence[ResourceStatus],
    *,
    before: Surplus = Surplus(),  # noqa: B008 - it never changes
) -> Surplus:
    """Look up what the inventory has and the files no longer bring; as before where that cannot be seen."""
    state, cluster = resolved.state, resolved.cluster
    brought = [_unchanged(status) for status in statuses]
    going = before.going
    try:
        going = tuple(_namespaces_going(resolved, objects))
        inventory = load_inventory(cluster, state)
        if not inventory.exists and any(status.live for status in statuses):
            inventory = find_by_labels(cluster, inventory)
        changes = candidates(resolved, inventory, brought).changes
        terminating = [
            change for change in changes if change.live and change.live.metadata.get("deletionTimestamp")
        ]
        held_by = holders(cluster, [Gone(ref_of(change), change.live_uid) for change in terminating])
        held = {change.identity: holder for change, holder in zip(terminating, held_by, strict=True)}
    except ClusterError as error:
        note = f"what the files no longer bring may be missing: {error.message}"
        return Surplus(before.left_over, going, (note,))
    left_over = []
    for change in changes:
        holder = held.get(change.identity, "")
        if holder is None:  # gone meanwhile
            continue
        is_terminating = change.identity in held
        left_over.append(
            row(
                LeftOver,
                change.identity,
                object=str(change.identity),
                component=change.component,
                is_kept=change.action == "kept",
                is_terminating=is_terminating,
                reason=holder if is_terminating else change.reason,
            )
        )
    return Surplus(tuple(left_over), going, inventory.notes)


def _unchanged(status: ResourceStatus) -> Change:
    desired = status.desired
    return Change(
        identity=desired.identity,
        component=desired.component,
        api_version=desired.api_version,
        action="unchanged",
        desired=desired,
        live_uid=str(status.live["metadata"].get("uid") or "") if status.live else "",
    )


def _namespaces_going(resolved: ResolvedTarget, objects: Sequence[KubeObject]) -> Iterator[str]:
    for name in namespaces_of(objects, resolved.state):
        try:
            live = resolved.cluster.get(ObjectRef("v1", "Namespace", "", name))
        except ForbiddenError:  # whoever may work in one namespace only may not read namespaces
            continue
        if live is not None and live["metadata"].get("deletionTimestamp"):
            held = f": {left}" if (left := obstacles(live)) else ""
            yield f"namespace `{name}` is terminating, and all that it holds goes with it{held}"


def _result(
    resolved: ResolvedTarget, statuses: Sequence[ResourceStatus], surplus: Surplus, notes: Sequence[str]
) -> StatusResult:
    state, environment = resolved.state, resolved.place.name
    components = []
    for name in state.components:
        own = [status for status in statuses if status.desired.component == name]
        objects = tuple(_object(status, _hint(resolved.target.app, status, environment)) for status in own)
        is_fine = all(status.readiness.is_fine for status in own)
        components.append(ComponentStatus(name=name, ok=is_fine, objects=objects))
    return StatusResult(
        ok=all(component.ok for component in components) and not surplus.is_going,
        app=state.app,
        environment=state.environment,
        namespace=state.namespace,
        context=resolved.place.context,
        components=tuple(components),
        left_over=surplus.left_over,
        notes=(*state.notes, *surplus.going, *surplus.notes, *notes),
    )


def _object(status: ResourceStatus, hint: str) -> ObjectStatus:
    pods = tuple(
        PodStatus(
            name=str(pod["metadata"]["name"]),
            state=readiness.state,
            reason=readiness.reason,
            node=str((pod.get("spec") or {}).get("nodeName") or ""),
        )
        for pod, readiness in status.pods
    )
    identity, readiness = status.desired.identity, status.readiness
    return row(
        ObjectStatus,
        identity,
        object=str(identity),
        state=readiness.state,
        reason=readiness.reason,
        hint=hint,
        pods=pods,
    )


def _hint(app: AppDir, status: ResourceStatus, environment: str) -> str:
    """Say what to do about the troubles that have a usual cure."""
    desired = status.desired
    name = desired.component
    if status.readiness.state == "missing":
        return f"mlstack apply {environment} -c {name}"
    if is_unseen(desired.data, status.readiness):
        operator = operator_of(desired.api_version, desired.kind)
        if operator is None:
            return ""
        flags = ", its `--namespace` and `--enable-scheme`" if operator.job_kind else ""
        need = app.need(name, desired.api_version, desired.kind, environment)
        install = how_to_bring(need, environment) if need else how_to_install(operator, environment)
        return f"look at the Deployment of the {operator.name}{flags}; {install}"
    component = app.component(name) if status.readiness.resource else None
    if isinstance(component, Component) and "num_gpus" in app.prototype(component.prototype).params:
        fewer = f"mlstack param set --env={environment} {name} num_gpus 0"
        return f"add GPU nodes with the device plugin, or: {fewer}"
    return ""
