"""`apply`: work out what would change, and after the question carry out exactly that.

Plan files and rollbacks are rare: what they need is imported when they come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from mlstack.app.app import API_VERSION, ClusterIdentity, Environment
from mlstack.clock import Clock
from mlstack.deploy import approve as planfile
from mlstack.deploy import compare as sides
from mlstack.deploy import drift, history, inventory_store, lock, permissions, replacement, result, wait
from mlstack.deploy import target as guard
from mlstack.deploy.approve import approve
from mlstack.deploy.changes import ApplyOptions, Changes
from mlstack.deploy.compare import ComparedEnvironment
from mlstack.deploy.deployment import ApplyPlan, ProposedPlan, compare, propose
from mlstack.deploy.drift import Difference, DriftState, ObjectDrift
from mlstack.deploy.history import History, Revision, open_history
from mlstack.deploy.inventory import Inventory
from mlstack.deploy.prune import KeepOptions, PruneSet, prune_set
from mlstack.deploy.result import ChangeReport, ObjectChange, RunKind, RunResult, report
from mlstack.deploy.rollback import propose_rollback
from mlstack.deploy.run import Run
from mlstack.deploy.target import Target, reach
from mlstack.errors import (
    ClusterError,
    LockedError,
    MlstackError,
    NotFoundError,
    OutdatedError,
    UnreachableError,
)
from mlstack.events import OnEvent, RunEvent, silent
from mlstack.kube.client import Cluster, Opener
from mlstack.kube.lease import Lease, Term
from mlstack.objects import order
from mlstack.objects.kube_object import Identity, KubeObject
from mlstack.objects.masking import mask_object, mask_values
from mlstack.readiness.assess import assess
from mlstack.readiness.rule import Facts
from mlstack.readiness.terms import Policy
from mlstack.render.render import known_secrets

if TYPE_CHECKING:
    from mlstack.deploy.rollback import KnownGood, Retreat


# --- `apply`: work out what would change, and after the question carry out exactly that ---
# Plan files and rollbacks are rare: what they need is imported when they come.

_USUAL = ApplyOptions()


def plan_apply(target: Target, *, opener: Opener, options: ApplyOptions = _USUAL) -> ApplyPlan:
    """Work out what an apply would do; nothing is written.

    Args:
        target: what to deploy, and where.
        opener: opens a cluster by its context.
        options: how it is to be done.

    Raises:
        ConfigError: a file, parameter or template is wrong, or nothing would be deployed.
        ClusterError: the cluster cannot be asked, is another one, or refuses an object.
    """
    return propose(reach(target, opener), options)


def plan_approved(file: Path, target: Target, *, opener: Opener, options: ApplyOptions = _USUAL) -> ApplyPlan:
    """Work out what an apply of a plan file would do: what was approved, or nothing.

    Args:
        file: the plan file.
        target: the app directory; of the rest another context and parameters that the file may not hold.
        opener: opens a cluster by its context.
        options: how it is to be done; what decides what happens is taken from the file.

    Raises:
        ConfigError: the file is damaged or another app's, or files of the app have changed since.
        WrongClusterError: another cluster answers.
        ConflictError: something would be done that the file does not hold, as the cluster has moved since.
    """
    from mlstack.deploy import approve

    approval = approve.read(file)
    planned = approve.target_of(approval, target)
    state = planned.desired()
    approve.refuse_moved_files(approval, planned, where=str(file))
    reached = reach(planned, opener, state=state)
    approve.refuse_moved_cluster(approval, reached.identity, context=reached.place.context)
    what = f"apply of the plan of {approval.created}"
    found = propose(reached, approve.options_of(approval, options), what=what)
    approve.refuse_moved_objects(approval, found, where=str(file))
    return found


def apply(plan: ApplyPlan, *, clock: Clock, on_event: OnEvent = silent) -> RunResult:
    """Carry out what was worked out.

    Args:
        plan: what was confirmed.
        clock: for waits.
        on_event: told about every object as it is done.

    Raises:
        MlstackError: an object failed; `partial` holds what was done.
        Interrupted: a person stopped the run; `partial` as well.
    """
    return plan.run(clock=clock, on_event=on_event)


def known_good(plan: ApplyPlan, *, clock: Clock) -> KnownGood | None:
    """Give what an apply may go back to without a question, before it begins; None if nothing.

    Raises:
        ClusterError: the cluster cannot be asked, or the last revision that worked is damaged.
    """
    from mlstack.deploy import rollback

    return rollback.known_good(plan, clock=clock)


def retreat(failed: ApplyPlan, error: MlstackError, *, known: KnownGood | None, clock: Clock) -> Retreat:
    """Work out how to go back after a failed apply; its proposal is carried out by `execute`.

    Args:
        failed: the apply.
        error: what ended it.
        known: what `known_good` gave before it began.
        clock: tells the time.

    Raises:
        ClusterError: the cluster cannot be asked, or refuses what was there before.
    """
    from mlstack.deploy import rollback

    return rollback.retreat(failed, error, known=known, clock=clock)


# --- `diff`: what `apply` would change, as a server-side dry run says ---

_DIFF_OPTIONS = ApplyOptions(dry_run=True)


def diff(target: Target, *, opener: Opener, options: ApplyOptions = _DIFF_OPTIONS) -> ChangeReport:
    """Compare an environment with its cluster; nothing is written.

    Args:
        target: what to compare.
        opener: opens a cluster by its context.
        options: of the apply that is asked about, a dry run.

    Returns:
        The changes; `ok` if there are none.

    Raises:
        ConfigError: a file, parameter or template is wrong.
        ClusterError: the cluster cannot be asked, is another one, or refuses an object; in the last case
            `partial` is the report.
    """
    reached = reach(target, opener)
    with permissions.explaining(reached, writing=False):
        found = compare(reached, options)
    result = report(found.changes)
    fault = replacement.unanswered(found.changes.changes)
    if fault is not None:
        fault.partial = result
        raise fault
    return result


# --- `plan`: what an apply would do, kept in a file so that exactly that can be done later ---

_ASKING = ApplyOptions(dry_run=True)


@dataclass(frozen=True, kw_only=True)
class PlannedWait:
    """What an apply would wait for after it wrote an object.

    Attributes:
        object: the object as people name it.
        policy: `required` objects fail the run when they do not work, `optional` ones are told of.
        timeout_s: for how many seconds at most.
        goes_on: it runs to an end or is optional: only the reason it waits for is waited for.
    """

    object: str
    policy: Policy
    timeout_s: float
    goes_on: bool


@dataclass(frozen=True, kw_only=True)
class PlanResult:
    """What an apply would do.

    Attributes:
        api_version: version of this format.
        kind: kind of this format.
        ok: always true: to have a plan is a success, whatever it holds.
        changed: whether it holds a change.
        app: name of the app.
        environment: name of the environment.
        namespace: its namespace.
        context: the kubectl context.
        cluster: who answered there.
        file: the plan file that was written, null if none was.
        objects: one row an object, in the order of execution.
        counts: number of objects of each action.
        waits: what would be waited for, in the order of execution; none with `--no-wait`.
        notes: remarks on the run as a whole.
    """

    api_version: str = API_VERSION
    kind: Literal["PlanResult"] = "PlanResult"
    ok: bool = True
    changed: bool
    app: str
    environment: str
    namespace: str
    context: str
    cluster: ClusterIdentity | None
    file: str | None
    objects: tuple[ObjectChange, ...]
    counts: Mapping[str, int]
    waits: tuple[PlannedWait, ...] = ()
    notes: tuple[str, ...] = ()


def plan(
    target: Target, *, opener: Opener, clock: Clock, options: ApplyOptions = _ASKING, out: Path | None = None
) -> PlanResult:
    """Work out what an apply would do; nothing is written but the plan file.

    Args:
        target: what to deploy, and where.
        opener: opens a cluster by its context.
        clock: tells the time, which stands in the file.
        options: how it would be done.
        out: where the plan file is written; None writes none.

    Raises:
        ConfigError: a file, parameter or template is wrong, or the plan file cannot be written.
        ClusterError: the cluster cannot be asked, is another one, or refuses an object.
    """
    found = propose(reach(target, opener), options)
    if out is not None:
        planfile.write(out, approve(found, now_s=clock.now_s(), salt=planfile.new_salt()))
    report = found.report
    return PlanResult(
        changed=not report.ok,
        app=report.app,
        environment=report.environment,
        namespace=report.namespace,
        context=report.context,
        cluster=found.changes.cluster,
        file=None if out is None else str(out),
        objects=report.objects,
        counts=report.counts,
        waits=_waits(found),
        notes=report.notes,
    )


def _waits(found: ApplyPlan) -> tuple[PlannedWait, ...]:
    """Give the objects that change and do not work at once, with the terms of the wait."""
    if not found.options.wait:
        return ()
    changed = [change.desired for change in found.changes.visible if change.desired is not None]
    slow = [one for one in changed if not assess(Facts(data=one.data), found.rules).is_fine]
    terms = wait.terms_of(slow, found.reached, found.options)
    return tuple(
        PlannedWait(object=str(identity), policy=one.policy, timeout_s=one.timeout_s, goes_on=one.brief)
        for identity, one in terms.items()
        if one.policy != "none"
    )


# --- `delete`: find what an environment has in its cluster, and after the question take it away ---

_DELETE_OPTIONS = KeepOptions()


@dataclass(frozen=True, kw_only=True)
class DeletePlan(ProposedPlan):
    """What one delete would do, each change a `delete`, or `kept` with the reason.

    Attributes:
        remains: what there is to take away.
        grace_period_s: time that pods get to end, None for their own.
        wait: whether the run goes on until everything is gone.
    """

    result_kind: ClassVar[RunKind] = "DeleteResult"

    remains: PruneSet
    grace_period_s: int | None
    wait: bool

    @property
    def writes(self) -> bool:
        """Tell whether anything is sent: what the environment keeps of itself in the cluster goes as well."""
        return bool(self.changes.writes or self.remains.forgotten) or self.remains.inventory.exists

    def run(self, run: Run, *, clock: Clock, on_event: OnEvent) -> None:
        """Delete, then settle what the environment keeps of itself in the cluster."""
        inventory, changes = self.remains.inventory, self.changes.changes
        if self.writes and inventory_store.has_moved(run.cluster, inventory):
            raise OutdatedError(
                f"environment `{self.environment}` was deployed since this was shown",
                hint="nothing was deleted; run the command again to see what is there now",
            )

        def shrink(cluster: Cluster, *, forgotten: frozenset[Identity] = frozenset()) -> Inventory:
            return inventory_store.shrink(
                cluster,
                inventory,
                changes,
                outcomes=run.outcomes,
                written=run.written,
                forgotten=forgotten,
                on_event=on_event,
            )

        removed = partial(
            history.write_removal,
            self.remains.reached,
            self.changes,
            run.outcomes,
            clock=clock,
            on_event=run.tell,
        )
        try:
            run.delete(
                changes, depends=self.changes.depends, grace_period_s=self.grace_period_s, wait=self.wait
            )
        except KeyboardInterrupt as stop:
            history.before_leaving(partial(removed, error=stop))
            raise
        except UnreachableError:
            raise
        except MlstackError:
            with suppress(ClusterError):  # it still lists everything that is there
                shrink(run.cluster)
            raise
        namespace = run.outcomes.get(Identity("", "Namespace", "", self.place.namespace), _KEPT)
        if namespace.kind in ("deleted", "terminating"):
            return  # with everything that was kept in it
        left = shrink(run.records, forgotten=self.remains.forgotten)
        if self.remains.reached.selective:
            removed()
        else:
            inventory_store.remove(run.cluster, left)
            self._forget(run.cluster, clock=clock, on_event=on_event)

    def _forget(self, cluster: Cluster, *, clock: Clock, on_event: OnEvent) -> None:
        try:
            History.of(self.changes.app, self.place, cluster, clock=clock).forget()
        except ClusterError as error:  # what was asked for is done
            on_event(RunEvent("note", None, f"the history stays: {error.message}"))


_KEPT = RunEvent("kept", None)


def plan_delete(
    target: Target,
    *,
    opener: Opener,
    spare: KeepOptions = _DELETE_OPTIONS,
    grace_period_s: int | None = None,
    wait: bool = True,
    dry_run: bool = False,
    timeout_s: float | None = None,
    lock_timeout_s: float | None = None,
) -> DeletePlan:
    """Find what would be deleted; nothing is.

    Args:
        target: what to delete, and where.
        opener: opens a cluster by its context.
        spare: kinds that are kept.
        grace_period_s: time that pods get to end, in seconds; None for their own.
        wait: go on until everything is gone.
        dry_run: make a plan that deletes nothing when carried out.
        timeout_s: how long anything is waited for; None goes on as long as anything goes now and then.
        lock_timeout_s: how long to wait for another run on the environment; None for 30 s in `timeout_s`.

    Raises:
        ConfigError: the environment's own file is wrong.
        NotFoundError: neither the files nor the cluster know a component.
        ClusterError: the cluster cannot be asked or is another one.
    """
    remains = prune_set(target, opener, spare=spare)
    plan = DeletePlan(
        changes=remains.changes,
        place=remains.reached.place,
        cluster=remains.reached.cluster,
        remains=remains,
        grace_period_s=grace_period_s,
        wait=wait,
        dry_run=dry_run,
        holder=target.holder,
        lock_timeout_s=lock_timeout_s,
        timeout_s=timeout_s,
    )
    if plan.writes and not dry_run:
        changes = remains.changes
        permissions.check(plan.cluster, plan.place, changes.app, changes.changes, remains.inventory)
    return plan


def delete(plan: DeletePlan, *, clock: Clock, on_event: OnEvent = silent) -> RunResult:
    """Delete what the plan says, last wave first.

    Args:
        plan: what was confirmed.
        clock: for waits.
        on_event: told about every object as it goes.

    Raises:
        MlstackError: an object could not be deleted; `partial` holds what was done.
        Interrupted: a person stopped the run; `partial` as well.
    """
    return plan.carry_out(
        lambda run: plan.run(run, clock=clock, on_event=on_event), clock=clock, on_event=on_event
    )


# --- `rollback`: work out how to go back to an earlier revision, and after the question do exactly
# that


def plan_rollback(
    target: Target,
    number: int | None = None,
    *,
    opener: Opener,
    clock: Clock,
    options: ApplyOptions = _USUAL,
) -> ApplyPlan:
    """Work out what going back would do; nothing is written.

    Args:
        target: the environment; its files need not render.
        number: the revision; None for the newest before the last one that worked.
        opener: opens a cluster by its context.
        clock: tells the time.
        options: how it is to be done.

    Raises:
        NotFoundError: there is no such revision, or none before the newest.
        ClusterError: the cluster cannot be asked, is another one, or refuses an object.
    """
    return propose_rollback(target, opener, number=number, options=options, clock=clock)


def rollback(plan: ApplyPlan, *, clock: Clock, on_event: OnEvent = silent) -> RunResult:
    """Carry out what was worked out; it becomes a revision of its own.

    Args:
        plan: what was confirmed.
        clock: for waits.
        on_event: told about every object as it is done.

    Raises:
        MlstackError: an object failed; `partial` holds what was done.
        Interrupted: a person stopped the run; `partial` as well.
    """
    return plan.run(clock=clock, on_event=on_event)


# --- `unlock`: free an environment whose lock a dead run has left behind ---


@dataclass(frozen=True, kw_only=True)
class UnlockPlan:
    """What would be freed.

    Attributes:
        place: the environment as it is used by this run.
        lease: its lock.
        term: who holds it; None if nobody does.
        left_s: how long it lasts unless its run goes on.
    """

    place: Environment
    lease: Lease
    term: Term | None
    left_s: float

    @property
    def holder(self) -> str:
        """Say who holds it since when, and how long it lasts."""
        if self.term is None:
            return "nobody"
        rest = f"expires in {self.left_s:.0f} s" if self.left_s > 0 else "expired"
        return f"{lock.describe(self.term)}, {rest}"


@dataclass(frozen=True, kw_only=True)
class UnlockResult:
    """An environment that is free.

    Attributes:
        environment: its name.
        context: the kubectl context.
        namespace: its namespace.
        unlocked: whether it was locked before.
        holder: who held it since when.
    """

    environment: str
    context: str
    namespace: str
    unlocked: bool
    holder: str


def plan_unlock(target: Target, *, opener: Opener, clock: Clock) -> UnlockPlan:
    """Find who holds the lock of an environment; nothing is written, nothing is rendered.

    Raises:
        NotFoundError: there is no such environment.
        ClusterError: the cluster cannot be asked or is another one.
    """
    place = target.place()
    cluster = opener(place.context)
    guard.check_cluster(place, cluster)
    lease = lock.lease_of(cluster, place, target.app.app().name, holder=target.holder, clock=clock)
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
    """What changes on the way from one environment to another.

    Attributes:
        api_version: version of this format.
        kind: kind of this format.
        ok: true if there is no difference.
        app: name of the app.
        left: what is compared: `local:ENV` for its files, `remote:ENV` for its cluster.
        right: what it is compared with.
        objects: one row an object, named as in the environment it was compared in; `create` is on the right
            alone, `delete` on the left alone.
        counts: number of objects of each action.
        notes: remarks on the comparison as a whole.
    """

    api_version: str = API_VERSION
    kind: Literal["CompareResult"] = "CompareResult"
    ok: bool
    app: str
    left: str
    right: str
    objects: tuple[ObjectChange, ...]
    counts: Mapping[str, int]
    notes: tuple[str, ...] = ()


def compare_environments(
    target: Target, left: ComparedEnvironment, right: ComparedEnvironment, *, opener: Opener
) -> CompareResult:
    """Compare two sides; nothing is written.

    Args:
        target: the app directory, components and parameters, for both sides.
        left: the side that is compared.
        right: the side it is compared with.
        opener: opens a cluster by its context.

    Raises:
        NotFoundError: there is no such environment.
        ConfigError: a file, parameter or template is wrong.
        ClusterError: a cluster cannot be asked, or is another than the environment's.
    """
    changes, notes = sides.compare(target, left, right, opener=opener)
    told = report(
        Changes(
            app=target.app.app().name,
            environment=right.environment,
            namespace="",
            context="",
            cluster=None,
            changes=changes,
            notes=notes,
        )
    )
    return CompareResult(
        ok=told.ok,
        app=told.app,
        left=str(left),
        right=str(right),
        objects=told.objects,
        counts=told.counts,
        notes=told.notes,
    )


# --- `diff --live`: what became of an environment since it was applied, and who did it ---


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


def find_drift(target: Target, *, opener: Opener) -> DriftResult:
    """Classify every difference of the live objects; nothing is written.

    Args:
        target: what to look at.
        opener: opens a cluster by its context.

    Raises:
        ConfigError: a file, parameter or template is wrong.
        ClusterError: the cluster cannot be asked or is another one.
    """
    reached = reach(target, opener)
    found = drift.find_drift(reached)
    return DriftResult(
        ok=all(row.state == "same" for row in found.objects),
        app=reached.state.app,
        environment=reached.state.environment,
        namespace=reached.state.namespace,
        context=reached.place.context,
        objects=tuple(_row(row) for row in found.objects),
        counts=drift.summary(found.objects),
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


# --- `history`: what was applied to an environment when and by whom, one revision of it, and two
# compared


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


def list_history(target: Target, *, opener: Opener, clock: Clock) -> HistoryResult:
    """List the revisions of an environment.

    Raises:
        ClusterError: the cluster cannot be asked, or is another one.
    """
    kept = open_history(target, opener, clock=clock)
    return HistoryResult(
        app=kept.app,
        environment=kept.environment,
        namespace=kept.namespace,
        context=target.place().context,
        revisions=kept.revisions()[::-1],
        notes=tuple(history.damaged(number).message for number in kept.impossible()),
    )


def show_revision(
    target: Target, number: int | None = None, *, opener: Opener, clock: Clock
) -> RevisionResult:
    """Give one revision with its objects, the newest unless it is named.

    Raises:
        NotFoundError: there is no such revision.
        ClusterError: the cluster cannot be asked, is another one, or the revision is damaged.
    """
    kept = open_history(target, opener, clock=clock)
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


def diff_revisions(
    target: Target, older: int, newer: int | None = None, *, opener: Opener, clock: Clock
) -> RevisionDiff:
    """Compare a revision with another, the newest unless it is named.

    Raises:
        NotFoundError: one of them is not there.
        ClusterError: the cluster cannot be asked, is another one, or a revision is damaged.
    """
    kept = open_history(target, opener, clock=clock)
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
        changes=history.changes_between(before, after),
        secrets=(*before.secrets, *after.secrets, *known_secrets(target.app, target.environment)),
    )
    told = result.report(changes)
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
