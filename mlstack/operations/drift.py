"""`diff --live`: what became of an environment since it was applied, and who did it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mlstack.cluster.api import Opener
from mlstack.engine.comparing import drift as engine
from mlstack.engine.target import Target, reach
from mlstack.model.app import API_VERSION
from mlstack.model.drift import Difference, DriftState, ObjectDrift


@dataclass(frozen=True, kw_only=True)
class DriftRow:
    """How one live object stands against the files and the last apply.

    Attributes:
        object: the object as people name it: `Deployment kubeflow/tf-hub`.
        kind: its kind.
        namespace: its namespace, empty for cluster-scoped objects.
        name: its name.
        component: full name of the component that brings it.
        state: `same`, `changed`, `missing` (was applied and is not there), `new` (was not applied so far)
            or `extra` (is there with our marks, and not in the files).
        reason: what happened to the object as a whole, empty if nothing did.
        manager: the field manager that made an extra object ours, empty if nobody is recorded.
        time: when it did.
        differences: fields that are not as the files say.
    """

    object: str
    kind: str
    namespace: str
    name: str
    component: str
    state: DriftState
    reason: str
    manager: str
    time: str
    differences: tuple[Difference, ...]


@dataclass(frozen=True, kw_only=True)
class DriftResult:
    """What became of an environment since it was applied.

    Attributes:
        api_version: version of this format.
        kind: kind of this format.
        ok: true if the live objects are as the files say.
        app: name of the app.
        environment: name of the environment.
        namespace: its namespace.
        context: the kubectl context.
        objects: one row an object: those of the files in their order, then those only the cluster has.
        counts: number of differences by cause: `person`, `controller`, `stale` (the files have changed
            since the last apply), `unknown`, `missing` and `extra`.
        notes: what could not be seen.
    """

    api_version: str = API_VERSION
    kind: Literal["DriftResult"] = "DriftResult"
    ok: bool
    app: str
    environment: str
    namespace: str
    context: str
    objects: tuple[DriftRow, ...]
    counts: Mapping[str, int]
    notes: tuple[str, ...] = ()


def drift(target: Target, *, opener: Opener) -> DriftResult:
    """Classify every difference of the live objects; nothing is written.

    Args:
        target: what to look at.
        opener: opens a cluster by its context.

    Raises:
        ConfigError: a file, parameter or template is wrong.
        ClusterError: the cluster cannot be asked or is another one.
    """
    reached = reach(target, opener)
    found = engine.look(reached)
    return DriftResult(
        ok=all(row.state == "same" for row in found.objects),
        app=reached.state.app,
        environment=reached.state.environment,
        namespace=reached.state.namespace,
        context=reached.place.context,
        objects=tuple(_row(row) for row in found.objects),
        counts=engine.summary(found.objects),
        notes=found.notes,
    )


def _row(found: ObjectDrift) -> DriftRow:
    identity = found.identity
    return DriftRow(
        object=str(identity),
        kind=identity.kind,
        namespace=identity.namespace,
        name=identity.name,
        component=found.component,
        state=found.state,
        reason=found.reason,
        manager=found.manager,
        time=found.time,
        differences=found.differences,
    )
