"""What became of an environment: how it stands, its lock, history and drift; two environments compared."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from mlstack.app.app import Component
from mlstack.app.app_dir import AppDir
from mlstack.app.environment import Environment
from mlstack.clock import Clock
from mlstack.dataclass import Record, row
from mlstack.deploy import history, lock
from mlstack.deploy import target as guard
from mlstack.deploy.changes import Change, Changes, ObjectChange, report
from mlstack.deploy.history import History, Revision, open_history
from mlstack.deploy.inventory import load_inventory, other_owner, ref_of
from mlstack.deploy.live import namespaces_of, placed
from mlstack.deploy.prune import candidates, find_by_labels
from mlstack.deploy.target import ResolvedTarget, Target, resolve
from mlstack.deploy.wait import UNSEEN, ReadinessWatcher, obstacles
from mlstack.errors import ClusterError, ForbiddenError, LockedError, NotFoundError
from mlstack.kube.client import Cluster, ObjectRef, Opener
from mlstack.kube.parallel import Lease, Term
from mlstack.objects import order
from mlstack.objects.kube_object import Identity, KubeObject, selector
from mlstack.objects.masking import mask_object, mask_values
from mlstack.readiness.evaluate import MISSING, Logs, ResourceStatus, inspect, replacement_of
from mlstack.readiness.rule import State, how_to_bring, how_to_install, is_unseen, operator_of
from mlstack.render.render import known_secrets

if TYPE_CHECKING:
    from mlstack.deploy.compare import ComparedEnvironment, DriftRow

# --- `status`: whether what was applied works, and why not: component, object, pods ---

# How often it is looked whether what was going is gone.
_AGAIN_S = 2.0


class PodStatus(Record):
    """One pod of an object."""

    name: str  # name of the pod
    state: State  # state by the rule for pods
    reason: str  # what it waits for or why it failed
    node: str  # node it runs on, empty if it has none yet


class ObjectStatus(Record):
    """One object of a component."""

    object: str  # the object as people name it
    kind: str  # its kind
    namespace: str  # its namespace, empty for cluster-scoped objects
    name: str  # its name
    state: State  # `missing` if it is not in the cluster
    reason: str  # what it waits for or why it failed
    hint: str  # what to do about it, empty if nothing is known
    pods: tuple[PodStatus, ...]  # its pods, by name


class ComponentStatus(Record):
    """One component of an environment."""

    name: str  # full name of the component
    ok: bool  # whether all its objects work
    objects: tuple[ObjectStatus, ...]  # its objects in the order they are applied


class LeftOver(Record):
    """One object that the environment has in its cluster and the files no longer bring."""

    object: str  # the object as people name it
    kind: str  # its kind
    namespace: str  # its namespace, empty for cluster-scoped objects
    name: str  # its name
    component: str  # full name of the component that brought it
    is_kept: bool  # whether an apply would leave it there
    is_terminating: bool = False  # whether it is being deleted already
    reason: str  # why it is there, why it stays, or what holds it while it goes


class StatusResult(Record):
    """How an environment does; `ok` if everything works."""

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
    """Judge every object of an environment."""
    resolved, objects, terms = _judging(target, opener)
    statuses, notes = inspect(objects, resolved.cluster, now_s=clock.now_s(), **terms)
    return _result(resolved, statuses, _surplus(resolved, objects, statuses), notes)


def _judging(target: Target, opener: Opener) -> tuple[ResolvedTarget, tuple[KubeObject, ...], dict[str, Any]]:
    """Give what a target is about, its objects, and by which terms they are judged."""
    resolved = resolve(replace(target, stand_ins=True), opener, confined=False)
    cluster, state = resolved.cluster, resolved.state
    terms = {
        "wait_for_load_balancer": resolved.place.wait_for_load_balancer,
        "labels": selector(app=state.app, environment=state.environment),
        "rules": resolved.rules,
        "logs": Logs.of_state(cluster, state),
    }
    return resolved, tuple(placed(state.objects, cluster)), terms


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
    """
    resolved, objects, terms = _judging(target, opener)
    watcher = ReadinessWatcher(resolved.cluster, objects, clock=clock, everything=True, **terms)
    ends_s = None if timeout_s is None else clock.now_s() + timeout_s
    surplus, looked_s, last = Surplus(), None, None
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
    cluster, going = resolved.cluster, before.going
    try:
        going = tuple(_namespaces_going(resolved, objects))
        inventory = load_inventory(cluster, resolved.state)
        if not inventory.exists and any(status.live for status in statuses):
            inventory = find_by_labels(cluster, inventory)
        changes = candidates(resolved, inventory, [*map(_unchanged, statuses)]).changes
        held = _held(cluster, changes)
    except ClusterError as error:
        note = f"what the files no longer bring may be missing: {error.message}"
        return Surplus(before.left_over, going, (note,))
    gone = {identity for identity, holder in held.items() if holder is None}
    left_over = (
        row(
            LeftOver,
            change.identity,
            change,
            object=str(change.identity),
            is_kept=change.action == "kept",
            is_terminating=change.identity in held,
            reason=held.get(change.identity, change.reason),
        )
        for change in changes
        if change.identity not in gone
    )
    return Surplus(tuple(left_over), going, inventory.notes)


def _held(cluster: Cluster, changes: Sequence[Change]) -> dict[Identity, str | None]:
    """Say what holds each object that is being deleted; None for one that is gone."""
    going = [change for change in changes if change.live and change.live.metadata.get("deletionTimestamp")]
    if not going:
        return {}
    from mlstack.deploy.write import Gone, holders

    held_by = holders(cluster, [Gone(ref_of(change), change.live_uid) for change in going])
    return dict(zip((change.identity for change in going), held_by, strict=True))


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
    components, by_component = [], defaultdict[str, list[ResourceStatus]](list)
    for status in statuses:
        # What belongs to another environment is missing, unless both may want it, as a definition.
        owner = other_owner(status.desired, status.live) if status.live else ""
        if owner and not replacement_of(status.desired.data).shared:
            status = replace(status, readiness=replace(MISSING, reason=f"belongs to {owner}"), pods=())
        by_component[status.desired.component].append(status)
    for name in state.components:
        own = by_component[name]
        objects = tuple(_object(status, _hint(resolved.target.app, status, environment)) for status in own)
        is_fine = all(status.readiness.is_fine for status in own)
        components.append(ComponentStatus(name=name, ok=is_fine, objects=objects))
    return row(
        StatusResult,
        state,
        surplus,
        ok=all(component.ok for component in components) and not surplus.is_going,
        context=resolved.place.context,
        components=tuple(components),
        notes=(*state.notes, *surplus.going, *surplus.notes, *notes),
    )


def _object(status: ResourceStatus, hint: str) -> ObjectStatus:
    pods = tuple(
        row(
            PodStatus,
            readiness,
            name=str(pod["metadata"]["name"]),
            node=str((pod.get("spec") or {}).get("nodeName") or ""),
        )
        for pod, readiness in status.pods
    )
    identity = status.desired.identity
    return row(ObjectStatus, identity, status.readiness, object=str(identity), hint=hint, pods=pods)


def _hint(app: AppDir, status: ResourceStatus, environment: str) -> str:
    """Say what to do about the troubles that have a usual cure."""
    desired = status.desired
    name = desired.component
    if status.readiness.state == "missing":
        command = f"mlstack apply {environment} -c {name}"
        return f"rename it, or take it over: {command} --adopt" if status.live else command
    if is_unseen(desired.data, status.readiness):
        operator = operator_of(desired.api_version, desired.kind)
        if operator is None:
            return ""
        flags = ", its `--namespace` and `--enable-scheme`" if operator.job_kind else ""
        need = app.need(name, desired.api_version, desired.kind, environment)
        install = how_to_bring(need, environment) if need else how_to_install(operator, environment)
        return f"look at the Deployment of the {operator.name}{flags}; {install}"
    component = app.component(name) if status.readiness.resource else None
    if isinstance(component, Component) and "num_gpus" in app.prototype_of(component).params:
        fewer = f"mlstack param set --env={environment} {name} num_gpus 0"
        return f"add GPU nodes with the device plugin, or: {fewer}"
    return ""


# --- `unlock`: free an environment whose lock a dead run has left behind ---


class UnlockPlan(Record):
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


class UnlockResult(Record):
    """An environment that is free."""

    environment: str  # its name
    context: str  # the kubectl context
    namespace: str  # its namespace
    unlocked: bool  # whether it was locked before
    holder: str  # who held it since when


def plan_unlock(target: Target, *, opener: Opener, clock: Clock) -> UnlockPlan:
    """Find who holds the lock of an environment; nothing is written, nothing is rendered."""
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
    name, is_held = plan.place.name, plan.term is not None
    if plan.term is not None:
        plan.lease.release(plan.term)
        if (now := plan.lease.read()) is not None:
            message = f"another run has locked environment `{name}` meanwhile: {lock.describe(now)}"
            raise LockedError(message, hint="it was left alone; if that run is dead too, repeat the command")
    return row(UnlockResult, plan, plan.place, environment=name, unlocked=is_held)


# --- `diff A B`: two environments side by side, as their files say or as their clusters have them ---


class CompareResult(Record):
    """What changes on the way from one environment to another."""

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
    """Compare two sides; nothing is written."""
    from mlstack.deploy import compare

    changes, notes = compare.compare(target, left, right, opener=opener)
    nowhere: dict[str, Any] = {"namespace": "", "context": "", "cluster": None}
    compared = Changes(
        app=target.app.app.name, environment=right.environment, changes=changes, notes=notes, **nowhere
    )
    return row(CompareResult, report(compared), left=str(left), right=str(right))


# --- `diff --live`: what became of an environment since it was applied, and who did it ---


class DriftResult(Record):
    """What became of an environment since it was applied."""

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
    """Classify every difference of the live objects; nothing is written."""
    from mlstack.deploy import compare

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


class HistoryResult(Record):
    """What is known of an environment's past."""

    app: str  # name of the app
    environment: str  # name of the environment
    namespace: str  # where the history is kept
    context: str  # the kubectl context
    revisions: tuple[Revision, ...]  # newest first
    notes: tuple[str, ...] = ()  # remarks, as on revisions that are damaged


class RevisionObject(Record):
    """One object of a revision."""

    object: str  # the object as people name it: `Deployment kubeflow/tf-hub`
    component: str  # full name of the component that brought it
    manifest: Mapping[str, Any]  # the whole object, secrets masked


class RevisionResult(Record):
    """One revision with its objects."""

    app: str  # name of the app
    environment: str  # name of the environment
    namespace: str  # where the history is kept
    context: str  # the kubectl context
    revision: Revision  # what is known of the run
    objects: tuple[RevisionObject, ...]  # the whole set, in the order it is applied


class RevisionDiff(Record):
    """What changed from one revision to another."""

    ok: bool  # true if nothing did
    app: str  # name of the app
    environment: str  # name of the environment
    context: str  # the kubectl context
    older: int  # number of the one that is compared
    newer: int  # number of the one it is compared with
    objects: tuple[ObjectChange, ...]  # what came, changed and went, secrets masked
    counts: Mapping[str, int] = field(default_factory=dict)  # number of objects of each action


def list_history(target: Target, *, opener: Opener) -> HistoryResult:
    """List the revisions of an environment."""
    past = open_history(target, opener)
    return row(
        HistoryResult,
        past,
        context=target.place().context,
        revisions=past.revisions()[::-1],
        notes=tuple(history.DamagedHistoryError(number).message for number in past.impossible()),
    )


def show_revision(target: Target, number: int | None = None, *, opener: Opener) -> RevisionResult:
    """Give one revision with its objects, the newest unless it is named."""
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
    return row(RevisionResult, past, context=target.place().context, revision=revision, objects=objects)


def diff_revisions(target: Target, older: int, newer: int | None = None, *, opener: Opener) -> RevisionDiff:
    """Compare a revision with another, the newest unless it is named."""
    past = open_history(target, opener)
    first = past.find(older)
    second = _newest(past) if newer is None else past.find(newer)
    before, after = past.load(first), past.load(second)
    changes = row(
        Changes,
        past,
        context=target.place().context,
        cluster=None,
        changes=history.changes_between(before, after),
        secrets=(*before.secrets, *after.secrets, *known_secrets(target.app, target.environment)),
    )
    return row(RevisionDiff, report(changes), older=first.number, newer=second.number)


def _newest(past: History) -> Revision:
    revisions = past.revisions()
    if revisions:
        return revisions[-1]
    message = f"environment `{past.environment}` has no history in namespace `{past.namespace}`"
    raise NotFoundError(message, hint=f"mlstack apply {past.environment}")
