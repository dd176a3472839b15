"""What a run would do, worked out and waiting for a yes: the whole difference, and the plan of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import mlstack
from mlstack.app.environment import ClusterIdentity, Environment
from mlstack.clock import timestamp
from mlstack.dataclass import dataclass
from mlstack.deploy import history_store, inventory, inventory_store, result
from mlstack.deploy.changes import DESTRUCTIVE, EXISTING, Action, ApplyOptions, Change, Changes, what_moved
from mlstack.deploy.diff import diff
from mlstack.deploy.history import CHANGING, Result, Revision
from mlstack.deploy.history_store import History
from mlstack.deploy.inventory import Inventory
from mlstack.deploy.live import fetch
from mlstack.deploy.lock import LastingLock
from mlstack.deploy.prune import KeepOptions, PruneSet, candidates, everything, members_to_delete
from mlstack.deploy.result import ChangeReport, RunKind, RunResult
from mlstack.deploy.source import NOWHERE, GitState
from mlstack.deploy.target import ResolvedTarget, Target, resolve
from mlstack.errors import (
    ClusterError,
    ConfigError,
    MlstackError,
    NotFoundError,
    NotReadyError,
    OutdatedError,
    RegistryError,
    UnreachableError,
)
from mlstack.events import OnEvent, RunEvent, RunEventKind
from mlstack.kube.client import Opener
from mlstack.objects import kube_object
from mlstack.objects.kube_object import DesiredState, Identity

if TYPE_CHECKING:
    from mlstack.deploy.capacity import Capacity

_OUTCOMES: Mapping[Action, RunEventKind] = {
    "create": "created",
    "update": "updated",
    "recreate": "recreated",
    "delete": "deleted",
    "unchanged": "unchanged",
}


@dataclass(frozen=True, kw_only=True)
class ApplyPlan:
    """What one run would do, ready to be confirmed and carried out; a delete and a rollback are plans too.

    `kind` tells a deletion of everything from an apply.
    """

    changes: Changes
    resolved: ResolvedTarget  # what is wanted, and where
    options: ApplyOptions
    inventory: Inventory  # what the environment had in its cluster when this was worked out
    pruned: PruneSet = field(default_factory=PruneSet)  # what becomes of what the files no longer bring
    may_all: bool | None = None  # whether we may do everything in the cluster; None if that was not asked
    what: str = ""  # the run in a few words, for the history
    kind: RunKind = "ApplyResult"
    pin: ClusterIdentity | None = None  # what the environment is bound to before the first write
    grace_period_s: int | None = None  # time that deleted pods get to end, None for their own
    source: GitState = NOWHERE  # what git says of the files that are applied
    capacity: Capacity | None = None  # whether there is room for the pods; None if that was not asked
    lock: LastingLock | None = None  # holds the lock over this run and others; None for this run alone

    @property
    def report(self) -> ChangeReport:
        """Give what a person confirms."""
        return result.report(self.changes)

    @property
    def place(self) -> Environment:
        """Give the environment as it is used by this run."""
        return self.resolved.place

    @property
    def destructive(self) -> bool:
        """Tell whether anything is deleted, if only to be made anew."""
        return any(change.action in DESTRUCTIVE for change in self.changes.changes)

    @property
    def changes_existing(self) -> bool:
        """Tell whether anything that exists changes or goes."""
        return any(change.action in EXISTING for change in self.changes.changes)

    @property
    def deletes(self) -> bool:
        """Tell whether this takes everything away, with what is kept of the environment."""
        return self.kind == "DeleteResult"

    @cached_property
    def writes(self) -> bool:
        """Tell whether anything is sent, if only to set the inventory right, so that a lock is needed."""
        if self.deletes:
            return bool(self.changes.writes or self.pruned.forgotten) or self.inventory.exists
        grown = inventory.grown(self.inventory, self.changes.changes)
        shrunk = inventory.shrunk(grown, self.changes.changes, written={}, gone=self.pruned.forgotten)
        return bool(self.changes.writes) or inventory_store.needs_writing(self.inventory, shrunk)

    @property
    def namespace(self) -> tuple[Change, ...]:
        """Give the creation of the environment's namespace, if there is one: the lock lives in it."""
        own = Identity("", "Namespace", "", self.place.namespace)
        return tuple(
            change for change in self.changes.writes if change.identity == own and change.action == "create"
        )


def diff_environment(resolved: ResolvedTarget, options: ApplyOptions) -> ApplyPlan:
    """Compare what is wanted with what is there and what was deployed before; nothing is written.

    Raises:
        ClusterError: the cluster cannot be asked or refuses an object.
    """
    members = inventory.as_members(resolved.state, resolved.place.namespace)
    desired = replace(resolved, state=members)
    live = fetch(desired, options, writing=not options.dry_run)
    changes = diff(live, check_new=options.dry_run)
    known = live.inventory
    was_deployed = live.was_deployed or any(change.live_uid for change in changes.changes)
    if not known.exists and options.prune and was_deployed:
        known = inventory_store.find_by_labels(resolved.cluster, known)
    pruned = candidates(desired, known, changes.changes) if options.prune else PruneSet()
    notes = [*changes.notes, *known.notes, *pruned.notes]
    if pruned.warning and not options.allow_large_prune:
        notes.append(f"{pruned.warning}, which an apply does only with --allow-large-prune")
    name = resolved.place.name
    for namespace in live.elsewhere:  # what an environment has in its old namespace is left there
        notes.append(
            f"environment `{name}` has objects in namespace `{namespace}` too:"
            f" mlstack delete {name} -n {namespace}"
        )
    if options.adopt:
        notes += _former_environments(resolved, known)
    rows = (*changes.changes, *pruned.changes)
    if any(change.action == "update" for change in rows):
        from mlstack.deploy import rollout

        rows = rollout.noted(rows)
    return ApplyPlan(
        changes=replace(changes, changes=rows, notes=tuple(notes)),
        resolved=resolved,
        options=options,
        inventory=known,
        pruned=pruned,
        may_all=live.may_all,
    )


def _former_environments(resolved: ResolvedTarget, known: Inventory) -> Iterator[str]:
    """Say what is left of environments that the app does not have, whose objects are adopted."""
    place, names = resolved.place, set(map(kube_object.label_of, resolved.target.app.environment_names))
    for former in inventory_store.other_environments(resolved.cluster, known):
        if former not in names:
            yield (
                f"environment `{former}`, which the app does not have, keeps its inventory and history in"
                f" namespace `{place.namespace}`; for what it has left: mlstack env add {former}"
                f" --context {place.context} --namespace {place.namespace}, then mlstack delete {former}"
                f" and mlstack env rm {former}"
            )


def plan_deletion(
    target: Target, opener: Opener, options: ApplyOptions, *, spare: KeepOptions, grace_period_s: int | None
) -> ApplyPlan:
    """Plan to delete what was deployed, all or some components, whether the files render or not."""
    fault: MlstackError | None = None
    try:
        state = target.desired()
    except (ConfigError, NotFoundError, RegistryError) as error:
        place, app, fault = target.place(), target.app.app.name, error
        state = DesiredState(app=app, environment=place.name, namespace=place.namespace, objects=())
    resolved = resolve(target, opener, state=state)
    known = inventory_store.load_or_find(
        resolved.cluster, app=state.app, environment=state.environment, namespace=resolved.place.namespace
    )
    members = members_to_delete(resolved, known)
    if isinstance(fault, NotFoundError) and not members:
        raise fault
    pruned = everything(resolved, known, members, spare=spare)
    notes = [f"by the inventory alone, as the files cannot be rendered: {fault.message}"] if fault else []
    changes = Changes(
        app=state.app,
        environment=state.environment,
        namespace=state.namespace,
        context=resolved.place.context,
        cluster=resolved.identity,
        changes=pruned.changes,
        depends=state.depends,
        notes=(*known.notes, *notes, *pruned.notes),
    )
    return ApplyPlan(
        kind="DeleteResult",
        changes=changes,
        resolved=resolved,
        options=options,
        inventory=known,
        pruned=pruned,
        what=history_store.run_summary(target, "delete"),
        grace_period_s=grace_period_s,
    )


def refuse_new(approved: Changes, now: Changes) -> None:
    """Raise if anything is to be done now that was not approved; what is done already may be missing.

    Raises:
        OutdatedError: naming the first such object.
    """
    shown = {change.identity: change for change in approved.changes}
    for change in now.writes:
        before = shown.get(change.identity)
        if before is None or before.digest != change.digest:
            what = what_moved(before, change) if before is not None else f"{change.action} is new"
            raise OutdatedError(
                f"another run was faster, and `{change.identity}` is not as it was shown: {what}",
                hint="nothing was done; run the command again to see what is left",
            )


def pretend(plan: ApplyPlan, on_event: OnEvent) -> RunResult:
    """Tell how each object would end; nothing is sent."""
    outcomes = {}
    for note in plan.changes.notes:
        on_event(RunEvent("note", None, note))
    for change in plan.changes.changes:
        text = change.reason or "; ".join(change.notes)
        event = RunEvent(_OUTCOMES.get(change.action, "kept"), change.identity, text)
        outcomes[change.identity] = event
        on_event(event)
    return result.run_result(plan.changes, outcomes, kind=plan.kind, dry_run=True)


def record(
    plan: ApplyPlan,
    past: History,
    error: MlstackError | KeyboardInterrupt | None,
    *,
    outcomes: Mapping[Identity, RunEvent],
    on_event: OnEvent,
) -> None:
    """Write a revision if a run changed anything; that it cannot be written is told, and no failure.

    One that was interrupted writes one whatever it had done. A run that waited and found all as wanted writes
    one too where the newest says something else: a run before it was killed before it could, or what it wrote
    works by now. A delete takes components out; if it was interrupted, they do not work.
    """
    changes, state = plan.changes, plan.resolved.state
    changed = plan.deletes or any(event.kind in CHANGING | {"terminating"} for event in outcomes.values())
    changed = changed or (isinstance(error, KeyboardInterrupt) and bool(changes.visible))
    missing = {change.identity for change in changes.changes if change.action == "missing"}
    if not changed and (error is not None or missing or not plan.options.wait):
        return
    if isinstance(error, UnreachableError):  # whoever applies next makes up for it
        return
    # What was not to be created is not to be created by a later rollback either.
    applied = replace(state, objects=tuple(obj for obj in state.objects if obj.identity not in missing))
    draft, news = _draft(plan, past, error, outcomes), None if plan.deletes else applied
    try:
        past.record(draft, news, selective=plan.resolved.selective, if_news=not changed)
    except ClusterError as failure:
        if changed:
            on_event(RunEvent("note", None, f"the history of this run is incomplete: {failure.message}"))


def _draft(
    plan: ApplyPlan,
    past: History,
    error: MlstackError | KeyboardInterrupt | None,
    outcomes: Mapping[Identity, RunEvent],
) -> Revision:
    ended: Result = "not ready" if isinstance(error, NotReadyError) else "failed"
    if error is None:
        ended = "done"
    elif isinstance(error, KeyboardInterrupt):
        ended = "interrupted"
    components = tuple(plan.resolved.state.components)
    if plan.deletes:  # the files need not know a component any more
        named = {*components, *(change.component for change in plan.changes.changes)} - {""}
        components = tuple(sorted(named))
    return Revision(
        number=0,
        time=timestamp(past.clock.now_s()),
        who=plan.resolved.target.who,
        what=plan.what,
        result=ended,
        components=components,
        counts=dict(result.run_result(plan.changes, outcomes).counts),
        planned=len(plan.changes.visible),
        version=mlstack.__version__,
        commit=plan.source.commit,
        dirty=bool(plan.source.changed),
    )
