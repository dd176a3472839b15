"""`history`: what was applied to an environment when and by whom, one revision of it, and two compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mlstack.cluster.api import Opener
from mlstack.engine.desired import known_secrets
from mlstack.engine.records.history import History
from mlstack.engine.records.recording import history_of
from mlstack.engine.target import Target
from mlstack.errors import NotFoundError
from mlstack.model import history, order, packing, report
from mlstack.model.app import API_VERSION
from mlstack.model.clock import Clock
from mlstack.model.diff import Changes
from mlstack.model.history import Revision
from mlstack.model.masking import mask_object, mask_values
from mlstack.model.objects import KubeObject
from mlstack.model.report import ObjectChange


@dataclass(frozen=True, kw_only=True)
class HistoryResult:
    """What is known of an environment's past.

    Attributes:
        api_version: version of this format.
        kind: kind of this format.
        app: name of the app.
        environment: name of the environment.
        namespace: where the history is kept.
        context: the kubectl context.
        revisions: newest first.
        notes: remarks, as on revisions that are damaged.
    """

    api_version: str = API_VERSION
    kind: Literal["HistoryResult"] = "HistoryResult"
    app: str
    environment: str
    namespace: str
    context: str
    revisions: tuple[Revision, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RevisionObject:
    """One object of a revision.

    Attributes:
        object: the object as people name it: `Deployment kubeflow/tf-hub`.
        component: full name of the component that brought it.
        manifest: the whole object, secrets masked.
    """

    object: str
    component: str
    manifest: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class RevisionResult:
    """One revision with its objects.

    Attributes:
        api_version: version of this format.
        kind: kind of this format.
        app: name of the app.
        environment: name of the environment.
        namespace: where the history is kept.
        context: the kubectl context.
        revision: what is known of the run.
        objects: the whole set, in the order it is applied.
    """

    api_version: str = API_VERSION
    kind: Literal["RevisionResult"] = "RevisionResult"
    app: str
    environment: str
    namespace: str
    context: str
    revision: Revision
    objects: tuple[RevisionObject, ...]


@dataclass(frozen=True, kw_only=True)
class RevisionDiff:
    """What changed from one revision to another.

    Attributes:
        api_version: version of this format.
        kind: kind of this format.
        ok: true if nothing did.
        app: name of the app.
        environment: name of the environment.
        context: the kubectl context.
        older: number of the one that is compared.
        newer: number of the one it is compared with.
        objects: what came, changed and went, secrets masked.
        counts: number of objects of each action.
    """

    api_version: str = API_VERSION
    kind: Literal["RevisionDiff"] = "RevisionDiff"
    ok: bool
    app: str
    environment: str
    context: str
    older: int
    newer: int
    objects: tuple[ObjectChange, ...]
    counts: Mapping[str, int] = field(default_factory=dict)


def list_all(target: Target, *, opener: Opener, clock: Clock) -> HistoryResult:
    """List the revisions of an environment.

    Raises:
        ClusterError: the cluster cannot be asked, or is another one.
    """
    kept = history_of(target, opener, clock=clock)
    return HistoryResult(
        app=kept.app,
        environment=kept.environment,
        namespace=kept.namespace,
        context=target.place().context,
        revisions=kept.revisions()[::-1],
        notes=tuple(packing.damaged(number).message for number in kept.impossible()),
    )


def show(target: Target, number: int | None = None, *, opener: Opener, clock: Clock) -> RevisionResult:
    """Give one revision with its objects, the newest unless it is named.

    Raises:
        NotFoundError: there is no such revision.
        ClusterError: the cluster cannot be asked, is another one, or the revision is damaged.
    """
    kept = history_of(target, opener, clock=clock)
    found = _newest(kept) if number is None else kept.find(number)
    state, secrets = kept.load(found), known_secrets(target.app, target.environment)
    return RevisionResult(
        app=kept.app,
        environment=kept.environment,
        namespace=kept.namespace,
        context=target.place().context,
        revision=found,
        objects=tuple(
            _object(one, (*state.secrets, *secrets)) for one in order.ordered(state.objects, state.depends)
        ),
    )


def _object(found: KubeObject, secrets: Sequence[str]) -> RevisionObject:
    manifest = mask_values(mask_object(found.data), secrets)
    return RevisionObject(object=str(found.identity), component=found.component, manifest=manifest)


def diff(
    target: Target, older: int, newer: int | None = None, *, opener: Opener, clock: Clock
) -> RevisionDiff:
    """Compare a revision with another, the newest unless it is named.

    Raises:
        NotFoundError: one of them is not there.
        ClusterError: the cluster cannot be asked, is another one, or a revision is damaged.
    """
    kept = history_of(target, opener, clock=clock)
    first = kept.find(older)
    second = _newest(kept) if newer is None else kept.find(newer)
    before, after = kept.load(first), kept.load(second)
    context = target.place().context
    changes = Changes(
        app=kept.app,
        environment=kept.environment,
        namespace=kept.namespace,
        context=context,
        cluster=None,
        changes=history.compared(before, after),
        secrets=(*before.secrets, *after.secrets, *known_secrets(target.app, target.environment)),
    )
    told = report.report(changes)
    return RevisionDiff(
        ok=told.ok,
        app=kept.app,
        environment=kept.environment,
        context=context,
        older=first.number,
        newer=second.number,
        objects=told.objects,
        counts=told.counts,
    )


def _newest(kept: History) -> Revision:
    known = kept.revisions()
    if known:
        return known[-1]
    raise NotFoundError(
        f"environment `{kept.environment}` has no history in namespace `{kept.namespace}`",
        hint=f"mlstack apply {kept.environment}",
    )
