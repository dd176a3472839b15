"""What a deploy says about itself, ready to be read by a person or a program; secrets are masked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal

from mlstack.app.app import API_VERSION
from mlstack.dataclass import dataclass
from mlstack.deploy.changes import Action, Change, Changes
from mlstack.events import Outcome, RunEvent
from mlstack.objects.kube_object import Identity
from mlstack.objects.managed_fields import FieldChange
from mlstack.objects.masking import MASK, mask_object, mask_values, mask_whole
from mlstack.readiness.rule import ReadinessState, State

RunKind = Literal["ApplyResult", "DeleteResult"]


@dataclass(frozen=True, kw_only=True)
class ObjectChange:
    """What would happen to one object."""

    object: str  # the object as people name it: `Deployment kubeflow/tf-hub`
    api_version: str  # its API version
    kind: str  # its kind
    namespace: str  # its namespace, empty for cluster-scoped objects
    name: str  # its name
    component: str  # full name of the component that brings it
    action: Action  # `create`, `update`, `recreate`, `delete`, `unchanged`, `missing` or `kept`
    reason: str = ""  # why it is recreated, deleted or kept
    fields: tuple[FieldChange, ...] = ()  # what differs
    notes: tuple[str, ...] = ()  # remarks, as whose fields are overridden
    manifest: Mapping[str, Any] | None = None  # the whole object where it is created, else None
    refused: tuple[str, ...] = ()  # why an apply would not do this, empty if it would
    hint: str = ""  # what to do about that


@dataclass(frozen=True, kw_only=True)
class ChangeReport:
    """What a run would do."""

    api_version: str = API_VERSION  # version of this format
    kind: Literal["DiffResult"] = "DiffResult"  # kind of this format
    ok: bool  # true if nothing would change
    app: str  # name of the app
    environment: str  # name of the environment
    namespace: str  # its namespace
    context: str  # the kubectl context
    objects: tuple[ObjectChange, ...]  # one row an object, in the order of execution
    counts: Mapping[str, int]  # number of objects of each action
    # what the objects take of the cluster afterwards, by amount: `pods`, `requests.cpu` (thousandths of a
    # core), `requests.memory` (bytes), `gpus.PRODUCT`, `storage.CLASS`, `loadbalancers` and the like
    takes: Mapping[str, int] = field(default_factory=dict)
    takes_more: Mapping[str, int] = field(default_factory=dict)  # than now, by amount; less below 0
    notes: tuple[str, ...] = ()  # remarks on the run as a whole


@dataclass(frozen=True, kw_only=True)
class ObjectResult:
    """What happened to one object."""

    object: str  # the object as people name it
    kind: str  # its kind
    namespace: str  # its namespace, empty for cluster-scoped objects
    name: str  # its name
    component: str  # full name of the component that brings it
    outcome: Outcome  # what happened; `terminating` was deleted, is held by a finalizer, and nobody waited
    text: str = ""  # the reason or remark, empty if there is nothing to say
    state: State | Literal[""] = ""  # how it stood when the wait for it ended, empty if nobody waited
    reason: str = ""  # what it waited for, or why it failed


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What `apply` or `delete` did."""

    api_version: str = API_VERSION  # version of this format
    kind: RunKind = "ApplyResult"  # kind of this format
    ok: bool  # true if every object came to its end, and works as far as it was waited for
    app: str  # name of the app
    environment: str  # name of the environment
    namespace: str  # its namespace
    context: str  # the kubectl context
    dry_run: bool  # whether the server only said what it would do
    objects: tuple[ObjectResult, ...]  # one row an object, in the order of execution
    counts: Mapping[str, int] = field(default_factory=dict)  # number of objects of each outcome
    notes: tuple[str, ...] = ()  # remarks on the run as a whole


class Interrupted(KeyboardInterrupt):
    """Raised when a person stops a run that has begun."""

    def __init__(self, partial: RunResult) -> None:
        super().__init__("interrupted")
        self.partial = partial


def report(changes: Changes) -> ChangeReport:
    """Write down what a run would do."""
    from mlstack.readiness.capacity import footprint

    later = [change.desired for change in changes.changes if change.desired is not None]
    now = [change.live or change.desired for change in changes.changes if change.action != "create"]
    takes = footprint(later)
    return ChangeReport(
        ok=not changes.visible,
        app=changes.app,
        environment=changes.environment,
        namespace=changes.namespace,
        context=changes.context,
        objects=tuple(_row(change, changes.secrets) for change in changes.changes),
        counts=changes.counts(),
        takes=takes.now,
        takes_more=takes - footprint([obj for obj in now if obj is not None]),
        notes=changes.notes,
    )


def _row(change: Change, secrets: Sequence[str]) -> ObjectChange:
    desired = change.desired if change.action == "create" else None
    return ObjectChange(
        object=str(change.identity),
        api_version=change.api_version,
        kind=change.identity.kind,
        namespace=change.identity.namespace,
        name=change.identity.name,
        component=change.component,
        action=change.action,
        reason=change.reason,
        fields=veiled(change.fields, secrets),
        notes=change.notes,
        manifest=mask_values(mask_object(desired.data), secrets) if desired is not None else None,
        refused=change.refusal.reasons if change.refusal else (),
        hint=change.refusal.hint if change.refusal else "",
    )


def run_result(
    changes: Changes,
    outcomes: Mapping[Identity, RunEvent],
    *,
    standings: Mapping[Identity, ReadinessState] | None = None,
    kind: RunKind = "ApplyResult",
    dry_run: bool = False,
) -> RunResult:
    """Write down what a run did."""
    states, rows = standings or {}, []
    for change in changes.changes:
        key, state = change.identity, states.get(change.identity)
        event = outcomes.get(key, RunEvent("skipped", None, "not reached"))
        rows.append(
            ObjectResult(
                object=str(key),
                kind=key.kind,
                namespace=key.namespace,
                name=key.name,
                component=change.component,
                outcome=event.kind,  # type: ignore[arg-type]  # callers pass only events that end an object
                text=event.text,
                state=state.readiness.state if state else "",
                reason=state.readiness.reason if state else "",
            )
        )
    is_done = not any(row.outcome in ("failed", "skipped") for row in rows)
    return RunResult(
        kind=kind,
        ok=is_done and all(state.is_good for state in states.values()),
        app=changes.app,
        environment=changes.environment,
        namespace=changes.namespace,
        context=changes.context,
        dry_run=dry_run,
        objects=tuple(rows),
        counts=dict(sorted(Counter(row.outcome for row in rows).items())),
        notes=changes.notes,
    )


def masked(identity: Identity, changes: Iterable[FieldChange]) -> tuple[FieldChange, ...]:
    """Hide the values of a Secret's data; which keys differ may be seen."""
    if (identity.group, identity.kind) != ("", "Secret"):
        return tuple(changes)
    return tuple(
        replace(change, old=mask_whole(change.old), new=mask_whole(change.new))
        if change.path.startswith(("data", "stringData")) or "last-applied" in change.path
        else change
        for change in changes
    )


def veiled(changes: Iterable[FieldChange], secrets: Sequence[str]) -> tuple[FieldChange, ...]:
    """Hide secrets that a template put into other objects; the value before one may have been one too."""
    shown = []
    for change in changes:
        old, new = (mask_values(value, secrets) if secrets else value for value in (change.old, change.new))
        if (old, new) != (change.old, change.new):
            change = replace(change, old=_as_hidden(old, new), new=_as_hidden(new, old))
        shown.append(change)
    return tuple(shown)


def _as_hidden(value: Any, beside: Any) -> Any:
    """Give a value masked where the one beside it is: an earlier secret stood there."""
    if isinstance(value, Mapping) and isinstance(beside, Mapping):
        return {name: _as_hidden(inner, beside.get(name)) for name, inner in value.items()}
    if isinstance(value, list) and isinstance(beside, list) and len(value) == len(beside):
        return [_as_hidden(*pair) for pair in zip(value, beside, strict=True)]
    return _hidden(value) if _holds_mask(beside) or _holds_mask(value) else value


def _hidden(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _hidden(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_hidden(inner) for inner in value]
    return None if value is None else MASK


def _holds_mask(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_mask, value.values()))
    return (
        any(map(_holds_mask, value)) if isinstance(value, list) else isinstance(value, str) and MASK in value
    )


# --- How an environment does, ready to be read by a person or a program: component, object, pods ---


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
class ResultList:
    """What a command gives for each of several environments, in their order."""

    api_version: str = API_VERSION  # version of this format
    kind: Literal["ResultList"] = "ResultList"  # kind of this format
    ok: bool  # true if every one is
    # one result an environment; one that failed is `{environment, ok: false, error: {message, where, hint,
    # exitCode}}`, with what was done until then in `partial`
    items: tuple[Mapping[str, Any], ...]


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
