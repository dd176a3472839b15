"""How an environment does, ready to be read by a person or a program: component, object, pods."""

from dataclasses import dataclass
from typing import Literal

from mlstack.model.app import API_VERSION
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
class LeftOver:
    """One object that the environment has in its cluster and the files no longer bring.

    Attributes:
        object: the object as people name it.
        kind: its kind.
        namespace: its namespace, empty for cluster-scoped objects.
        name: its name.
        component: full name of the component that brought it.
        is_kept: whether an apply would leave it there.
        is_terminating: whether it is being deleted already.
        reason: why it is there, why it stays, or what holds it while it goes.
    """

    object: str
    kind: str
    namespace: str
    name: str
    component: str
    is_kept: bool
    is_terminating: bool = False
    reason: str


@dataclass(frozen=True, kw_only=True)
class StatusResult:
    """How an environment does; `ok` if everything works.

    Attributes:
        api_version: version of this format.
        kind: kind of this format.
        ok: whether every object is ready, done or suspended on purpose, and nothing of it is still going.
        app: name of the app.
        environment: name of the environment.
        namespace: its namespace.
        context: the kubectl context.
        components: by name.
        left_over: what the files no longer bring; of `ok` it decides only by what is terminating.
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
    left_over: tuple[LeftOver, ...] = ()
    notes: tuple[str, ...] = ()
