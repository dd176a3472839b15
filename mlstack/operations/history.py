"""What became of an environment: its lock, its history, drift, and two environments side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from mlstack.app.document import API_VERSION
from mlstack.app.environment import Environment
from mlstack.clock import Clock
from mlstack.dataclass import dataclass, row
from mlstack.deploy import compare, history, lock
from mlstack.deploy import target as guard
from mlstack.deploy.changes import Changes, ObjectChange, report
from mlstack.deploy.compare import ComparedEnvironment, DriftRow
from mlstack.deploy.history import History, Revision, open_history
from mlstack.deploy.target import Target, resolve
from mlstack.errors import LockedError, NotFoundError
from mlstack.kube.client import Opener
from mlstack.kube.lease import Lease, Term
from mlstack.objects import order
from mlstack.objects.masking import mask_object, mask_values
from mlstack.render.render import known_secrets

# --- `unlock`: free an environment whose lock a dead run has left behind ---


@dataclass(frozen=True, kw_only=True)
class UnlockPlan:
    """What would be freed."""

    place: Environment  # the environment as it is used by this run
    lease: Lease  # its lock
    term: Term | None  # who holds it; None if nobody does
    left_s: float  # how long it lasts unless its run goes on

    @property
    def holder(self) -> str:
        """Say who holds it since when, and how long it lasts."""
        if self.term is None:
            return "nobody"
        rest = f"expires in {self.left_s:.0f} s" if self.left_s > 0 else "expired"
        return f"{lock.describe(self.term)}, {rest}"


@dataclass(frozen=True, kw_only=True)
class UnlockResult:
    """An environment that is free."""

    environment: str  # its name
    context: str  # the kubectl context
    namespace: str  # its namespace
    unlocked: bool  # whether it was locked before
    holder: str  # who held it since when


def plan_unlock(target: Target, *, opener: Opener, clock: Clock) -> UnlockPlan:
    """Find who holds the lock of an environment; nothing is written, nothing is rendered.

    Raises:
        NotFoundError: there is no such environment.
        ClusterError: the cluster cannot be asked or is another one.
    """
    place = target.place()
    cluster = opener(place.context)
    guard.check_cluster(place, cluster)
    lease = lock.lease_of(cluster, place, target.app.app.name, holder=target.holder, clock=clock)
    term = lease.read()
    return UnlockPlan(place=place, lease=lease, term=term, left_s=lease.left_s() if term else 0.0)


def unlock(plan: UnlockPlan) -> UnlockResult:
    """Free the environment; a run that still holds the lock writes nothing more.

    Raises:
        LockedError: another run has taken the lock since.
        ClusterError: the cluster does not answer or refuses.
    """
    if plan.term is not None:
        plan.lease.release(plan.term)
        now = plan.lease.read()
        if now is not None:
            raise LockedError(
                f"another run has locked environment `{plan.place.name}` meanwhile: {lock.describe(now)}",
                hint="it was left alone; if that run is dead too, repeat the command",
            )
    return UnlockResult(
        environment=plan.place.name,
        context=plan.place.context,
        namespace=plan.place.namespace,
        unlocked=plan.term is not None,
        holder=plan.holder,
    )


# --- `diff A B`: two environments side by side, as their files say or as their clusters have them ---


@dataclass(frozen=True, kw_only=True)
class CompareResult:
    """What changes on the way from one environment to another."""

    api_version: str = API_VERSION  # version of this format
    kind: Literal["CompareResult"] = "CompareResult"  # kind of this format
    ok: bool  # true if there is no difference
    app: str  # name of the app
    left: str  # what is compared: `local:ENV` for its files, `remote:ENV` for its cluster
    right: str  # what it is compared with
    # one row an object, named as in the environment it was compared in; `create` is on the right alone,
    # `delete` on the left alone
    objects: tuple[ObjectChange, ...]
    counts: Mapping[str, int]  # number of objects of each action
    notes: tuple[str, ...] = ()  # remarks on the comparison as a whole


def compare_environments(
    target: Target, left: ComparedEnvironment, right: ComparedEnvironment, *, opener: Opener
) -> CompareResult:
    """Compare two sides; nothing is written.

    Raises:
        NotFoundError: there is no such environment.
        ConfigError: a file, parameter or template is wrong.
        ClusterError: a cluster cannot be asked, or is another than the environment's.
    """
    changes, notes = compare.compare(target, left, right, opener=opener)
    compared = Changes(
        app=target.app.app.name,
        environment=right.environment,
        namespace="",
        context="",
        cluster=None,
        changes=changes,
        notes=notes,
    )
    return row(CompareResult, report(compared), kind="CompareResult", left=str(left), right=str(right))


# --- `diff --live`: what became of an environment since it was applied, and who did it ---


@dataclass(frozen=True, kw_only=True)
class DriftResult:
    """What became of an environment since it was applied."""

    api_version: str = API_VERSION  # version of this format
    kind: Literal["DriftResult"] = "DriftResult"  # kind of this format
    ok: bool  # true if the live objects are as the files say
    app: str  # name of the app
    environment: str  # name of the environment
    namespace: str  # its namespace
    context: str  # the kubectl context
    # one row an object: those of the files in their order, then those only the cluster has
    objects: tuple[DriftRow, ...]
    # number of differences by cause: `person`, `controller`, `stale` (the files have changed since the
    # last apply), `unknown`, `missing` and `extra`
    counts: Mapping[str, int]
    notes: tuple[str, ...] = ()  # what could not be seen


def find_drift(target: Target, *, opener: Opener) -> DriftResult:
    """Classify every difference of the live objects; nothing is written.

    Raises:
        ConfigError: a file, parameter or template is wrong.
        ClusterError: the cluster cannot be asked or is another one.
    """
    resolved = resolve(target, opener)
    rows, notes = compare.find_drift(resolved)
    causes = Counter(cause for differing in rows for cause in differing.causes)
    return row(
        DriftResult,
        resolved.state,
        ok=all(differing.state == "same" for differing in rows),
        context=resolved.place.context,
        objects=rows,
        counts=dict(sorted(causes.items())),
        notes=notes,
    )


# --- `history`: what was applied to an environment when and by whom, one revision of it, and two
# compared


@dataclass(frozen=True, kw_only=True)
class HistoryResult:
    """What is known of an environment's past."""

    api_version: str = API_VERSION  # version of this format
    kind: Literal["HistoryResult"] = "HistoryResult"  # kind of this format
    app: str  # name of the app
    environment: str  # name of the environment
    namespace: str  # where the history is kept
    context: str  # the kubectl context
    revisions: tuple[Revision, ...]  # newest first
    notes: tuple[str, ...] = ()  # remarks, as on revisions that are damaged


@dataclass(frozen=True, kw_only=True)
class RevisionObject:
    """One object of a revision."""

    object: str  # the object as people name it: `Deployment kubeflow/tf-hub`
    component: str  # full name of the component that brought it
    manifest: Mapping[str, Any]  # the whole object, secrets masked


@dataclass(frozen=True, kw_only=True)
class RevisionResult:
    """One revision with its objects."""

    api_version: str = API_VERSION  # version of this format
    kind: Literal["RevisionResult"] = "RevisionResult"  # kind of this format
    app: str  # name of the app
    environment: str  # name of the environment
    namespace: str  # where the history is kept
    context: str  # the kubectl context
    revision: Revision  # what is known of the run
    objects: tuple[RevisionObject, ...]  # the whole set, in the order it is applied


@dataclass(frozen=True, kw_only=True)
class RevisionDiff:
    """What changed from one revision to another."""

    api_version: str = API_VERSION  # version of this format
    kind: Literal["RevisionDiff"] = "RevisionDiff"  # kind of this format
    ok: bool  # true if nothing did
    app: str  # name of the app
    environment: str  # name of the environment
    context: str  # the kubectl context
    older: int  # number of the one that is compared
    newer: int  # number of the one it is compared with
    objects: tuple[ObjectChange, ...]  # what came, changed and went, secrets masked
    counts: Mapping[str, int] = field(default_factory=dict)  # number of objects of each action


def list_history(target: Target, *, opener: Opener) -> HistoryResult:
    """List the revisions of an environment.

    Raises:
        ClusterError: the cluster cannot be asked, or is another one.
    """
    past = open_history(target, opener)
    return row(
        HistoryResult,
        past,
        context=target.place().context,
        revisions=past.revisions()[::-1],
        notes=tuple(history.DamagedHistoryError(number).message for number in past.impossible()),
    )


def show_revision(target: Target, number: int | None = None, *, opener: Opener) -> RevisionResult:
    """Give one revision with its objects, the newest unless it is named.

    Raises:
        NotFoundError: there is no such revision.
        ClusterError: the cluster cannot be asked, is another one, or the revision is damaged.
    """
    past = open_history(target, opener)
    revision = _newest(past) if number is None else past.find(number)
    state = past.load(revision)
    secrets = (*state.secrets, *known_secrets(target.app, target.environment))
    objects = tuple(
        RevisionObject(
            object=str(manifest.identity),
            component=manifest.component,
            manifest=mask_values(mask_object(manifest.data), secrets),
        )
        for manifest in order.ordered(state.objects, state.depends)
    )
    context = target.place().context
    return row(RevisionResult, past, context=context, revision=revision, objects=objects)


def diff_revisions(target: Target, older: int, newer: int | None = None, *, opener: Opener) -> RevisionDiff:
    """Compare a revision with another, the newest unless it is named.

    Raises:
        NotFoundError: one of them is not there.
        ClusterError: the cluster cannot be asked, is another one, or a revision is damaged.
    """
    past = open_history(target, opener)
    first = past.find(older)
    second = _newest(past) if newer is None else past.find(newer)
    before, after = past.load(first), past.load(second)
    changes = Changes(
        app=past.app,
        environment=past.environment,
        namespace=past.namespace,
        context=target.place().context,
        cluster=None,
        changes=history.changes_between(before, after),
        secrets=(*before.secrets, *after.secrets, *known_secrets(target.app, target.environment)),
    )
    return row(RevisionDiff, report(changes), kind="RevisionDiff", older=first.number, newer=second.number)


def _newest(past: History) -> Revision:
    revisions = past.revisions()
    if revisions:
        return revisions[-1]
    raise NotFoundError(
        f"environment `{past.environment}` has no history in namespace `{past.namespace}`",
        hint=f"mlstack apply {past.environment}",
    )
