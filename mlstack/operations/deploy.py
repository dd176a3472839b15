"""`apply`, and what is a plan through the same apply: `plan`, `delete`, `rollback`.

Plan files and rollbacks are rare: what they need is imported when they come.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mlstack.app.app_dir import AppDir
from mlstack.app.environment import ClusterIdentity, Environment
from mlstack.clock import Clock
from mlstack.dataclass import Record, row
from mlstack.deploy import lock as locking
from mlstack.deploy import target as guard
from mlstack.deploy.changes import (
    ApplyOptions,
    ChangeReport,
    Changes,
    Interrupted,
    ObjectChange,
    OnEvent,
    RunEvent,
    RunResult,
    refusal_error,
    report,
    run_result,
    silent,
)
from mlstack.deploy.history import History, before_leaving, run_summary
from mlstack.deploy.inventory import Inventory, grown, has_moved, remove, shrunk
from mlstack.deploy.inventory import write as write_inventory
from mlstack.deploy.live import context_of, has_namespace
from mlstack.deploy.plan import ApplyPlan, diff_environment, pretend, record, refuse_new
from mlstack.deploy.prune import KeepOptions, everything, load_or_find, members_to_delete
from mlstack.deploy.run import Run
from mlstack.deploy.target import GitState, Prior, ResolvedTarget, Target, resolve, resolved_after
from mlstack.deploy.wait import terms_of, until_applied
from mlstack.errors import (
    ClusterError,
    ConfigError,
    ForbiddenError,
    MlstackError,
    NotFoundError,
    ObjectNotFoundError,
    OutdatedError,
    RegistryError,
    UnreachableError,
    UsageError,
)
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, Opener
from mlstack.kube.parallel import prefetch
from mlstack.objects.kube_object import DesiredState, Identity
from mlstack.readiness.evaluate import assess, hidden
from mlstack.readiness.rule import Facts, WaitPolicy

if TYPE_CHECKING:
    from mlstack.deploy.reapply import LastGood
    from mlstack.readiness.capacity import Fit
    from mlstack.registries.images import ImageFault

_USUAL = ApplyOptions()
_DRY_RUN = ApplyOptions(dry_run=True)
_KEEP = KeepOptions()


def plan_apply(
    target: Target, *, opener: Opener, options: ApplyOptions = _USUAL, prior: Prior = None
) -> ApplyPlan:
    """Work out what an apply would do, after the `prior` runs of this call; nothing is written.

    Raises:
        ConfigError: a file, parameter or template is wrong, or nothing would be deployed.
        ClusterError: the cluster cannot be asked, is another one, or refuses an object.
    """
    source = None if options.dry_run else prefetch(partial(guard.git_state, target.app.root))
    with resolved_after(prior, target, opener) as resolved:
        return _of_source(_with_room(_plan(resolved, options)), source)


def _of_source(plan: ApplyPlan, source: Callable[[], GitState] | None) -> ApplyPlan:
    """Give a plan with what git says of the files, None in a dry run, unless they must not be applied so."""
    if source is not None:
        plan = replace(plan, source=source())
        if plan.changes.writes and not plan.options.allow_dirty:
            guard.refuse_changed(plan.place, plan.source)
    return plan


def _plan(
    resolved: ResolvedTarget, options: ApplyOptions, *, what: str = "", may_be_empty: bool = False
) -> ApplyPlan:
    """Work out what a deploy would do; `what` it is for the history, an apply where that is empty."""
    place, identity = resolved.place, resolved.identity
    if not may_be_empty:
        guard.refuse_empty(resolved.state)
    terms_of(resolved.state.objects, resolved, options)  # a wrong annotation ends the run here
    with guard.explaining_rights(resolved, writing=not options.dry_run):
        # fetch what is live, diff each object, find what to prune
        plan = diff_environment(resolved, options)
    changes = plan.changes.changes
    if error := refusal_error(changes):
        raise error
    if plan.pruned.warning and not options.allow_large_prune:
        hint = "see `mlstack diff`; if this is meant, --allow-large-prune; to leave them, --no-prune"
        raise UsageError(plan.pruned.warning, hint=hint)
    # What lies in no namespace is known for sure only now: the server tells it of custom resources.
    guard.refuse_outside(place, (change.subject for change in changes if change.component))
    is_new = place.cluster is None and resolved.target.context is None and guard.is_known(identity)
    what = what or run_summary(resolved.target, "apply")
    plan = replace(plan, what=what, pin=identity if is_new else None)
    if plan.writes and not options.dry_run:
        guard.check_rights(resolved, changes, has_inventory=plan.inventory.exists, may_all=plan.may_all)
    if options.check_capacity:
        from mlstack.deploy import capacity

        plan = replace(plan, capacity=capacity.check(plan.resolved, plan.changes.changes))
    return plan


def _with_room(plan: ApplyPlan) -> ApplyPlan:
    """Give a plan that tells of what is not certain to fit, unless some pods are known to find no room."""
    if plan.capacity is None:
        return plan
    from mlstack.deploy import capacity

    notes = (*plan.changes.notes, *capacity.remarks(plan.capacity))
    return replace(plan, changes=replace(plan.changes, notes=notes))


def apply(plan: ApplyPlan, *, clock: Clock, on_event: OnEvent = silent) -> RunResult:
    """Carry out what was worked out; `on_event` is told about every object as it is done.

    Raises:
        LockedError: another run holds the lock.
        MlstackError: an object failed; `partial` holds what was done.
        Interrupted: a person stopped the run; `partial` as well.
    """
    if plan.options.dry_run:
        return pretend(plan, on_event)
    run = _begin(plan, clock, on_event)
    try:
        run.apply(plan.namespace_creation)  # the lock lives in it
        with _locked(plan, run):
            _carry_out(plan, run)
    except MlstackError as error:
        error.partial = _result(plan, run)
        raise
    except KeyboardInterrupt as stop:
        raise Interrupted(_result(plan, run)) from stop
    return _result(plan, run)


def _carry_out(plan: ApplyPlan, run: Run) -> None:
    """Do the steps of a plan in their order; the inventory covers at each moment what may be there."""
    past = History.of(plan.changes.app, plan.place, run.unfenced)
    if plan.writes and not plan.deletes:
        past = past.read_ahead()
    inventory: Inventory | None = None
    try:
        now = _still_valid(plan, run)
        inventory, changes, options = now.inventory, now.changes.changes, now.options
        writes = [change for change in changes if change.desired is not None]
        deletions = [change for change in changes if change.desired is None]
        if not now.deletes:
            inventory = write_inventory(run.records, inventory, grown(inventory, changes), on_event=run.tell)
        run.apply(writes, now.changes.depends)
        present = [change for change in writes if change.action != "missing"]
        if present and options.wait and not now.deletes:
            until_applied(
                replace(now.resolved, cluster=run.unfenced),
                present,
                options,
                written=run.written,
                standings=run.standings,
                clock=run.clock,
                on_event=run.tell,
            )
        run.delete(deletions, now.changes.depends, grace_period_s=now.grace_period_s, wait=options.wait)
    except (MlstackError, KeyboardInterrupt) as error:
        _keep_what_was_done(plan, run, past, inventory, error)
        raise
    if plan.deletes:
        namespace = run.outcomes.get(Identity("", "Namespace", "", plan.place.namespace))
        if namespace is None or namespace.kind not in ("deleted", "terminating"):  # else all goes with it
            _forget(now, run, past, _shrink_inventory(now, run, inventory, run.records))
        return
    recorded = prefetch(partial(_record, plan, run, past, None))  # neither record needs the other
    try:
        _shrink_inventory(now, run, inventory, run.records)
    finally:
        recorded()


def _bind(app: AppDir, place: Environment, pin: ClusterIdentity) -> str:
    """Bind an environment to its cluster; a checkout that nobody may write to, as in CI, stays as it is."""
    who, name = guard.describe(pin), place.name
    try:
        app.pin_identity(name, pin)
    except ConfigError:
        if os.access(app.root, os.W_OK):
            raise
        advice = f"apply once from a checkout that can be, and commit {place.file}"
        return f"environment `{name}` is bound to no cluster, as the app cannot be written ({who}): {advice}"
    return f"environment `{name}` is now bound to this cluster ({who})"


def _begin(plan: ApplyPlan, clock: Clock, on_event: OnEvent) -> Run:
    """Bind an environment that is new to its cluster, tell what is to be told, and begin a run."""
    if plan.pin is not None:
        on_event(RunEvent("note", None, _bind(plan.resolved.target.app, plan.place, plan.pin)))
    for note in plan.changes.notes:
        on_event(RunEvent("note", None, note))
    resolved, changes, applies = plan.resolved, plan.changes, not plan.deletes
    resolved.cluster.expect(min(parallel.WORKERS, len(changes.writes)))
    return Run(
        resolved.cluster,
        on_event=on_event,
        clock=clock,
        context=context_of(resolved, plan.options, plan.inventory) if applies else None,
        secrets=hidden([change.subject for change in changes.changes], changes.secrets),
        timeout_s=plan.options.timeout_s,
        fail_fast=plan.options.fail_fast,
    )


@contextmanager
def _locked(plan: ApplyPlan, run: Run) -> Iterator[None]:
    """Let a run write while it holds the environment's lock, if there is anything to write or to lock."""
    place, cluster, options = plan.place, run.unfenced, plan.options
    holder, app = plan.resolved.target.holder, plan.changes.app
    if not plan.writes:
        locking.release_stale(cluster, place, app, holder=holder, clock=run.clock)
        run.use(cluster)
        yield
        return
    timeout_s = locking.WAIT_S if options.timeout_s is None else min(locking.WAIT_S, options.timeout_s)
    if options.lock_timeout_s is not None:
        timeout_s = options.lock_timeout_s
    lock = locking.hold(
        cluster, place, app, holder=holder, clock=run.clock, on_event=run.tell, timeout_s=timeout_s
    )
    with ExitStack() as stack:
        try:
            fenced = stack.enter_context(lock) if plan.lock is None else plan.lock.cluster(lock)
        except (ObjectNotFoundError, ForbiddenError):
            if has_namespace(cluster, place.namespace):
                raise
            fenced = cluster
        run.use(fenced)
        yield


def _still_valid(plan: ApplyPlan, run: Run) -> ApplyPlan:
    """Give the plan made again if another run was faster, as long as it holds nothing new."""
    if not plan.writes or not has_moved(run.cluster, plan.inventory):
        return plan
    if plan.deletes:
        hint = "nothing was deleted; run the command again to see what is there now"
        raise OutdatedError(f"environment `{plan.place.name}` was deployed since this was shown", hint=hint)
    now = _plan(plan.resolved, plan.options, what=plan.what, may_be_empty=not plan.resolved.state.objects)
    refuse_new(plan.changes, now.changes)
    still = {change.identity for change in now.changes.changes}
    for change in run.left(plan.changes.changes):
        if change.identity not in still:
            run.end("gone", change, "was gone already")
    return now


def _shrink_inventory(plan: ApplyPlan, run: Run, inventory: Inventory, cluster: Cluster) -> Inventory:
    """Keep what a run did, however far it came; for one that failed, `cluster` waits for no webhook."""
    gone = {key for key, event in run.outcomes.items() if event.kind in ("deleted", "gone")}
    gone |= plan.pruned.forgotten
    left = shrunk(inventory, plan.changes.changes, written=run.written, gone=gone)
    has_new_kinds = any(key.kind == "CustomResourceDefinition" for key in (*run.written, *gone))
    so = "all the rest of this run is done"
    return write_inventory(cluster, inventory, left, on_event=run.tell, so=so, refresh=has_new_kinds)


def _keep_what_was_done(
    plan: ApplyPlan,
    run: Run,
    past: History,
    inventory: Inventory | None,
    error: MlstackError | KeyboardInterrupt,
) -> None:
    """Write down how far a run came that did not end well: in its inventory and its history."""
    written = partial(_record, plan, run, past, error)
    if isinstance(error, KeyboardInterrupt):
        if inventory is not None or not plan.deletes:
            before_leaving(written)
        return
    if inventory is not None and not isinstance(error, UnreachableError):
        for change in run.left(() if plan.deletes else plan.changes.changes):
            if change.desired is None:
                why = "pruned only when everything else works" if change.writes else change.reason
                run.end("skipped" if change.writes else "kept", change, why)
        with suppress(ClusterError):  # what it holds now covers everything; hashes only save time
            _shrink_inventory(plan, run, inventory, run.cluster)
    written()


def _forget(plan: ApplyPlan, run: Run, past: History, left: Inventory) -> None:
    """Take away what was kept of an environment, or of some components of it, that is deleted."""
    if plan.resolved.selective:
        _record(plan, run, past, None)
        return
    remove(run.cluster, left)
    try:
        replace(past, cluster=run.cluster).forget()
    except ClusterError as error:  # what was asked for is done
        run.tell(RunEvent("note", None, f"the history stays: {error.message}"))


def _record(plan: ApplyPlan, run: Run, past: History, error: MlstackError | KeyboardInterrupt | None) -> None:
    record(plan, past, error, outcomes=run.outcomes, on_event=run.tell, now_s=run.clock.now_s())


def _result(plan: ApplyPlan, run: Run) -> RunResult:
    return run_result(plan.changes, run.outcomes, standings=run.standings, kind=plan.kind)


# --- `diff`, and `plan`: what an apply would do, kept in a file so that exactly that can be done later ---


def diff(
    target: Target, *, opener: Opener, options: ApplyOptions = _DRY_RUN, prior: Prior = None
) -> ChangeReport:
    """Compare an environment with its cluster by a server-side dry run; `ok` if there are no changes.

    Raises:
        ConfigError: a file, parameter or template is wrong.
        ClusterError: the cluster cannot be asked, is another one, or refuses an object; in the last case
            `partial` is the report.
    """
    with resolved_after(prior, target, opener) as resolved, guard.explaining_rights(resolved, writing=False):
        changes = diff_environment(resolved, options).changes
    result = report(changes)
    if fault := refusal_error(changes.changes, "invalid"):
        fault.partial = result
        raise fault
    return result


class PlannedWait(Record):
    """What an apply would wait for after it wrote an object."""

    object: str  # the object as people name it
    # `required` objects fail the run when they do not work, `optional` ones are told of
    policy: WaitPolicy
    timeout_s: float  # for how many seconds at most
    goes_on: bool  # it runs to an end or is optional: only the reason it waits for is waited for


class PlanResult(Record):
    """What an apply would do."""

    ok: bool = True  # false where an image cannot be pulled, or pods are known to find no room
    changed: bool  # whether it holds a change
    app: str  # name of the app
    environment: str  # name of the environment
    namespace: str  # its namespace
    context: str  # the kubectl context
    cluster: ClusterIdentity | None  # who answered there
    file: str | None  # the plan file that was written, null if none was
    objects: tuple[ObjectChange, ...]  # one row an object, in the order of execution
    counts: Mapping[str, int]  # number of objects of each action
    takes: Mapping[str, int]  # what the objects take of the cluster afterwards, as in a DiffResult
    takes_more: Mapping[str, int]  # than now
    # what would be waited for, in the order of execution; none with `--no-wait`
    waits: tuple[PlannedWait, ...] = ()
    images: tuple[ImageFault, ...] = ()  # that nodes may not get, where that was asked
    # with `--check-capacity` whether there is room: one row an object that makes pods, else none
    capacity: tuple[Fit, ...] = ()
    notes: tuple[str, ...] = ()  # remarks on the run as a whole


def plan(
    target: Target,
    *,
    opener: Opener,
    clock: Clock,
    options: ApplyOptions = _DRY_RUN,
    out: Path | None = None,
    check_images: bool = False,
    prior: Prior = None,
) -> PlanResult:
    """Work out what an apply would do; nothing is written but the plan file `out`.

    With `check_images` the registries are asked for what the nodes would pull; where one cannot be had for
    sure, or pods that were to be checked have no room, no plan file is written.

    Raises:
        ConfigError: a file, parameter or template is wrong, or the plan file cannot be written.
        ClusterError: the cluster cannot be asked, is another one, or refuses an object.
    """
    with resolved_after(prior, target, opener) as resolved:
        planned = _plan(resolved, options)
    images, capacity = _image_faults(planned) if check_images else (), planned.capacity
    is_sound = (capacity is None or capacity.ok) and all(fault.problem == "unchecked" for fault in images)
    if out is not None and is_sound:
        from mlstack.deploy import reapply

        reapply.write(out, reapply.approve(planned, now_s=clock.now_s(), salt=os.urandom(16).hex()))
    report = planned.report
    return row(
        PlanResult,
        report,
        ok=is_sound,
        changed=not report.ok,
        cluster=planned.changes.cluster,
        file=None if out is None or not is_sound else str(out),
        waits=_planned_waits(planned),
        images=images,
        capacity=capacity.fits if capacity else (),
        notes=(*report.notes, *(capacity.notes if capacity else ())),
    )


def _image_faults(plan: ApplyPlan) -> tuple[ImageFault, ...]:
    from mlstack.registries import images

    return images.check_pulls(plan.resolved.state.objects, plan.resolved.cluster)


def refuse_images(plan: ApplyPlan) -> ApplyPlan:
    """Ask the registries for the images of a plan; a note on each that could not be asked for is added.

    Raises:
        RegistryError: nodes cannot pull one; names all of them.
    """
    faults = _image_faults(plan)
    lines = {fault: f"`{fault.image}` ({fault.object}) {fault.message}" for fault in faults}
    if refused := [line for fault, line in lines.items() if fault.problem != "unchecked"]:
        head = f"{len(refused)} images cannot be pulled\n  " if len(refused) > 1 else ""
        hint = "nothing was changed; mlstack images list ENV shows what sets each"
        raise RegistryError(head + "\n  ".join(refused), hint=hint)
    return replace(plan, changes=replace(plan.changes, notes=(*plan.changes.notes, *lines.values())))


def _planned_waits(plan: ApplyPlan) -> tuple[PlannedWait, ...]:
    """Give the objects that change and do not work at once, with the terms of the wait."""
    if not plan.options.wait:
        return ()
    changed = [change.desired for change in plan.changes.visible if change.desired is not None]
    slow = [obj for obj in changed if not assess(Facts(data=obj.data), plan.resolved.rules).is_fine]
    return tuple(
        PlannedWait(object=str(identity), policy=terms.policy, timeout_s=terms.timeout_s, goes_on=terms.brief)
        for identity, terms in terms_of(slow, plan.resolved, plan.options).items()
        if terms.policy != "none"
    )


def plan_approved(target: Target, file: Path, *, opener: Opener, options: ApplyOptions = _USUAL) -> ApplyPlan:
    """Work out what an apply of a plan file would do: what was approved, or nothing.

    Of `target` count the app directory, another context and parameters that the file may not hold; what
    decides what happens is taken from the file, not from `options`.

    Raises:
        ConfigError: the file is damaged or another app's, or files of the app have changed since.
        WrongClusterError: another cluster answers.
        ConflictError: something would be done that the file does not hold, as the cluster has moved since.
    """
    from mlstack.deploy import reapply

    approved = reapply.read(file)
    planned = reapply.target_of(approved, target)
    state = planned.desired()
    reapply.refuse_moved_files(approved, planned, where=str(file))
    resolved = resolve(planned, opener, state=state)
    reapply.refuse_moved_cluster(approved, resolved.identity, context=resolved.place.context)
    what = f"apply of the plan of {approved['created']}"
    plan = _plan(resolved, reapply.options_of(approved, options), what=what)
    reapply.refuse_moved_objects(approved, plan.changes, where=str(file))
    return _of_source(
        _with_room(plan), None if options.dry_run else partial(guard.git_state, target.app.root)
    )


# --- `delete`: take away what an environment has in its cluster, last wave first ---


def plan_delete(
    target: Target,
    *,
    opener: Opener,
    spare: KeepOptions = _KEEP,
    grace_period_s: int | None = None,
    options: ApplyOptions = _USUAL,
) -> ApplyPlan:
    """Find what would be deleted, but for the kinds that are spared; nothing is.

    `grace_period_s` is the time that pods get to end. Without a limit a run lasts as long as anything goes.

    Raises:
        ConfigError: the environment's own file is wrong.
        NotFoundError: neither the files nor the cluster know a component.
        ClusterError: the cluster cannot be asked or is another one.
    """
    state, fault = _desired_or_nothing(target)
    resolved = resolve(target, opener, state=state)
    inventory = load_or_find(resolved.cluster, state)
    members = members_to_delete(resolved, inventory)
    if isinstance(fault, NotFoundError) and not members:
        raise fault
    pruned = everything(resolved, inventory, members, spare=spare)
    blind = [f"by the inventory alone, as the files cannot be rendered: {fault.message}"] if fault else []
    notes = (*inventory.notes, *blind, *pruned.notes)
    place = {"context": resolved.place.context, "cluster": resolved.identity}
    plan = ApplyPlan(
        kind="DeleteResult",
        changes=row(Changes, state, pruned, **place, secrets=(), notes=notes),
        resolved=resolved,
        options=options,
        inventory=inventory,
        pruned=pruned,
        what=run_summary(target, "delete"),
        grace_period_s=grace_period_s,
    )
    if plan.writes and not options.dry_run:
        guard.check_rights(resolved, pruned.changes, has_inventory=inventory.exists)
    return plan


def _desired_or_nothing(target: Target) -> tuple[DesiredState, MlstackError | None]:
    """Render a target; where that fails, what is there can be deleted all the same."""
    try:
        return target.desired(), None
    except (ConfigError, NotFoundError, RegistryError) as error:
        place, app = target.place(), target.app.app.name
        return DesiredState(app=app, environment=place.name, namespace=place.namespace, objects=()), error


# --- `rollback`: go back to an earlier revision, asked for or after an apply that failed ---


def plan_rollback(
    target: Target, number: int | None = None, *, opener: Opener, options: ApplyOptions = _USUAL
) -> ApplyPlan:
    """Work out what going back would do; nothing is written, and the files need not render.

    Without a number it is the newest revision before the last one that worked.

    Raises:
        NotFoundError: there is no such revision, or none before the newest.
        ClusterError: the cluster cannot be asked, is another one, refuses an object, or has no room
            (`check_capacity`).
    """
    from mlstack.deploy import reapply

    goal = reapply.earlier_goal(target, opener, number=number, options=options)
    plan = _plan(goal.resolved, options, what=goal.what, may_be_empty=True)
    return reapply.to_earlier(_with_room(plan), goal)


@contextmanager
def locked_to_the_end(plan: ApplyPlan) -> Iterator[ApplyPlan]:
    """Give a plan with a lock that it keeps until the block ends, over an automatic rollback as well."""
    with locking.LastingLock() as lock:
        yield replace(plan, lock=lock)


def plan_automatic_rollback(
    failed: ApplyPlan, error: MlstackError, *, good: LastGood | None
) -> ApplyPlan | str:
    """Plan to go back after an apply that `error` ended, to what was `good` before it; or say why not.

    Raises:
        ClusterError: the cluster cannot be asked, or refuses what was there before.
    """
    from mlstack.deploy import reapply

    goal = reapply.failure_goal(failed, error, good)
    if isinstance(goal, str):
        return goal
    plan = _plan(goal.resolved, goal.options, what=goal.what, may_be_empty=True)
    return reapply.to_last_good(plan, goal, failed)
