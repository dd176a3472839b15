"""`status`: whether what was applied works, and why not: component, object, pods."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mlstack.cluster.api import Opener
from mlstack.engine.inspect import inspect
from mlstack.engine.judge import Seen
from mlstack.engine.surroundings import placed
from mlstack.engine.target import Target, reach
from mlstack.files.appdir import AppDir
from mlstack.model.app import API_VERSION, Component
from mlstack.model.clock import Clock
from mlstack.model.readiness.base import State


@dataclass(frozen=True, kw_only=True)
class PodStatus:
    """One pod of an object.

    Attributes:
        name: name of the pod.
        state: state by the rule for pods.
        reason: what it waits for or why it failed.
        node: node it runs on, empty if it has none yet.
    """

    name: str
    state: State
    reason: str
    node: str


@dataclass(frozen=True, kw_only=True)
class ObjectStatus:
    """One object of a component.

    Attributes:
        object: the object as people name it.
        kind: its kind.
        namespace: its namespace, empty for cluster-scoped objects.
        name: its name.
        state: `missing` if it is not in the cluster.
        reason: what it waits for or why it failed.
        hint: what to do about it, empty if nothing is known.
        pods: its pods, by name.
    """

    object: str
    kind: str
    namespace: str
    name: str
    state: State
    reason: str
    hint: str
    pods: tuple[PodStatus, ...]


@dataclass(frozen=True, kw_only=True)
class ComponentStatus:
    """One component of an environment.

    Attributes:
        name: full name of the component.
        ok: whether all its objects work.
        objects: its objects in the order they are applied.
    """

    name: str
    ok: bool
    objects: tuple[ObjectStatus, ...]


@dataclass(frozen=True, kw_only=True)
class StatusResult:
    """How an environment does; `ok` if everything works.

    Attributes:
        api_version: version of this format.
        kind: kind of this format.
        ok: whether every object is ready, done or suspended on purpose.
        app: name of the app.
        environment: name of the environment.
        namespace: its namespace.
        context: the kubectl context.
        components: by name.
        notes: remarks, as what could not be read.
    """

    api_version: str = API_VERSION
    kind: Literal["StatusResult"] = "StatusResult"
    ok: bool
    app: str
    environment: str
    namespace: str
    context: str
    components: tuple[ComponentStatus, ...]
    notes: tuple[str, ...] = ()


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
    reached = reach(target, opener, confined=False)
    state, place = reached.state, reached.place
    seen, notes = inspect(
        placed(state.objects, reached.cluster),
        reached.cluster,
        now_s=clock.now_s(),
        wait_for_load_balancer=place.wait_for_load_balancer,
    )
    rows = tuple(_component(target.app, name, seen, place.name) for name in state.components)
    return StatusResult(
        ok=all(row.ok for row in rows),
        app=state.app,
        environment=state.environment,
        namespace=state.namespace,
        context=place.context,
        components=rows,
        notes=(*state.notes, *notes),
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
