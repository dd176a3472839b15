"""What an environment wants, has and had: the whole difference, deletions included."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import ClassVar

from mlstack.app.app import ClusterIdentity, Environment, ReadyRules
from mlstack.clock import Clock
from mlstack.deploy import (
    history,
    inventory,
    inventory_store,
    permissions,
    replacement,
    result,
    target,
    wait,
)
from mlstack.deploy import inventory as applyset
from mlstack.deploy import lock as locking
from mlstack.deploy.changes import Action, ApplyOptions, Change, Changes, what_moved
from mlstack.deploy.diff import context_of, diff, diff_object
from mlstack.deploy.inventory import Inventory
from mlstack.deploy.live import fetch
from mlstack.deploy.lock import LastingLock
from mlstack.deploy.prune import Pruning, candidates, refuse_too_much
from mlstack.deploy.result import ChangeReport, RunKind, RunResult
from mlstack.deploy.run import Run
from mlstack.deploy.target import Holder, Reached
from mlstack.deploy.wait import TermsOf
from mlstack.deploy.write import Again
from mlstack.errors import (
    ClusterError,
    ForbiddenError,
    MlstackError,
    ObjectNotFoundError,
    OutdatedError,
    UnreachableError,
)
from mlstack.events import OnEvent, RunEvent, RunEventKind
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.kube.parallel import prefetch
from mlstack.objects import kube_object
from mlstack.objects.kube_object import Identity
from mlstack.readiness.evaluate import hidden
from mlstack.readiness.terms import ReadinessState, terms_of

# --- What an environment wants, has and had: the whole difference, deletions included ---


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What an environment would change, and what it was compared with.

    Attributes:
        changes: everything a deploy would do.
        inventory: what the environment has in its cluster.
        pruning: what becomes of what the files no longer bring.
        may_all: tells whether we may do everything in the cluster; None if that was not asked.
    """

    changes: Changes
    inventory: Inventory
    pruning: Pruning
    may_all: bool | None


def compare(reached: Reached, options: ApplyOptions) -> Comparison:
    """Compare what is wanted with what is there and what was deployed before; nothing is written.

    Raises:
        ClusterError: the cluster cannot be asked or refuses an object.
    """
    state, place = reached.state, reached.place
    applyset.refuse_member_labels(one.data for one in state.objects)
    label = Inventory(app=state.app, environment=state.environment, namespace=place.namespace).label
    members = tuple(one.with_data(label(one.data)) for one in state.objects)
    reached = replace(reached, state=replace(state, objects=members))
    current = fetch(reached, options, writing=not options.dry_run)
    inventory = current.inventory
    changes = diff(reached, current, options, check_new=options.dry_run)
    was_deployed = current.was_deployed or any(change.live_uid for change in changes.changes)
    if not inventory.exists and options.prune and was_deployed:
        inventory = inventory_store.find_by_labels(reached.cluster, inventory)
    found = candidates(reached, inventory, changes.changes) if options.prune else Pruning()
    notes = (
        *changes.notes,
        *inventory.notes,
        *found.notes,
        *_large(found, options),
        *_elsewhere(place.name, current.elsewhere),
        *(_former(reached, inventory) if options.adopt else ()),
    )
    return Comparison(
        changes=replace(changes, changes=(*changes.changes, *found.changes), notes=notes),
        inventory=inventory,
        pruning=found,
        may_all=current.may_all,
    )


def _elsewhere(environment: str, namespaces: Sequence[str]) -> tuple[str, ...]:
    """Say it when an environment comes to another namespace: what it has in the old one is left there."""
    return tuple(
        f"environment `{environment}` has objects in namespace `{namespace}` too:"
        f" mlstack delete {environment} -n {namespace}"
        for namespace in namespaces
    )


def _former(reached: Reached, inventory: Inventory) -> tuple[str, ...]:
    """Say what is left of environments that the app does not have, whose objects are taken over."""
    place, known = reached.place, set(map(kube_object.label_of, reached.target.app.environment_names()))
    return tuple(
        f"environment `{one}`, which the app does not have, keeps its inventory and history in namespace"
        f" `{place.namespace}`; for what it has left: mlstack env add {one} --context {place.context}"
        f" --namespace {place.namespace}, then mlstack delete {one} and mlstack env rm {one}"
        for one in inventory_store.other_environments(reached.cluster, inventory)
        if one not in known
    )


def _large(found: Pruning, options: ApplyOptions) -> tuple[str, ...]:
    if not found.is_too_much or options.allow_large_prune:
        return ()
    return (f"{found.warning}: more than half, which an apply does only with --allow-large-prune",)


# --- What was worked out and waits for a yes: what a person confirms, and carrying out exactly that ---

_OUTCOMES: Mapping[Action, RunEventKind] = {
    "create": "created",
    "update": "updated",
    "recreate": "recreated",
    "delete": "deleted",
    "unchanged": "unchanged",
}


@dataclass(frozen=True, kw_only=True)
class ProposedPlan:
    """What one run would do.

    Attributes:
        changes: one change an object.
        place: the environment as it is used by this run.
        cluster: where the changes go.
        dry_run: write nothing.
        holder: who takes the environment's lock.
        lock_timeout_s: how long to wait for another run that holds it; None for 30 s, within `timeout_s`.
        timeout_s: how long anything is waited for at most, the lock too; None for what is usual.
        lock: what holds the lock over this run and others; None holds it for this run alone.
    """

    result_kind: ClassVar[RunKind] = "ApplyResult"

    changes: Changes
    place: Environment
    cluster: Cluster
    dry_run: bool
    holder: Holder = field(default_factory=Holder)
    lock_timeout_s: float | None = None
    timeout_s: float | None = None
    lock: LastingLock | None = None

    @property
    def report(self) -> ChangeReport:
        """Give what a person confirms."""
        return result.report(self.changes)

    @property
    def environment(self) -> str:
        """Give the name of the environment."""
        return self.place.name

    @property
    def protected(self) -> bool:
        """Tell whether the environment wants every change confirmed."""
        return self.place.protected

    @property
    def destructive(self) -> bool:
        """Tell whether anything is deleted, if only to be made anew."""
        return self.changes.destructive

    @property
    def changes_existing(self) -> bool:
        """Tell whether anything that exists changes or goes."""
        return self.changes.changes_existing

    @property
    def writes(self) -> bool:
        """Tell whether anything is sent, so that the environment has to be locked."""
        return bool(self.changes.writes)

    @property
    def again(self) -> Again | None:
        """Give what looks at an object that moved since its change was worked out."""
        return None

    @property
    def terms(self) -> TermsOf | None:
        """Give on what terms an object is waited for where others depend on it; None for the usual ones."""
        return None

    @property
    def rules(self) -> ReadyRules | None:
        """Give the app's own readiness rules; None where nothing is waited for."""
        return None

    def carry_out(self, work: Callable[[Run], None], *, clock: Clock, on_event: OnEvent) -> RunResult:
        """Do the changes while the environment is locked; a dry run only tells how each would end.

        Args:
            work: what of a run does them.
            clock: for waits.
            on_event: told about every object as it is done.

        Raises:
            LockedError: another run holds the lock.
            MlstackError: an object failed; `partial` holds what was done.
            Interrupted: a person stopped the run; `partial` as well.
        """
        if self.dry_run:
            return self._pretended(on_event)
        for note in self.changes.notes:
            on_event(RunEvent("note", None, note))
        run = Run(
            self.cluster,
            on_event=on_event,
            clock=clock,
            again=self.again,
            terms=self.terms,
            rules=self.rules,
            secrets=hidden([change.subject for change in self.changes.changes], self.changes.secrets),
            timeout_s=self.timeout_s,
        )
        try:
            self.cluster.expect(min(parallel.WORKERS, len(self.changes.writes)))
            run.apply(self._namespace())
            with self._locked(clock, on_event) as cluster:
                run.use(cluster)
                work(run)
        except MlstackError as error:
            error.partial = self._result(run.outcomes, run.standings)
            raise
        except KeyboardInterrupt as stop:
            raise result.Interrupted(self._result(run.outcomes, run.standings)) from stop
        return self._result(run.outcomes, run.standings)

    def left(self, run: Run) -> tuple[Change, ...]:
        """Give the changes that a run has not done yet."""
        return tuple(change for change in self.changes.changes if change.identity not in run.outcomes)

    def _namespace(self) -> tuple[Change, ...]:
        """Give the creation of the environment's namespace: the lock lives in it."""
        wanted = Identity("", "Namespace", "", self.place.namespace)
        found = (change for change in self.changes.writes if change.action == "create")
        return tuple(change for change in found if change.identity == wanted)

    @contextmanager
    def _locked(self, clock: Clock, on_event: OnEvent) -> Iterator[Cluster]:
        """Give the cluster to write to, fenced by the lock unless there is nothing to write or to lock."""
        if not self.writes:
            locking.release_stale(self.cluster, self.place, self.changes.app, holder=self.holder, clock=clock)
        if not self.writes:
            yield self.cluster
            return
        lock = locking.hold(
            self.cluster,
            self.place,
            self.changes.app,
            holder=self.holder,
            clock=clock,
            on_event=on_event,
            timeout_s=self._lock_s,
        )
        with ExitStack() as stack:
            yield self._entered(lock, stack)

    @property
    def _lock_s(self) -> float:
        if self.lock_timeout_s is not None:
            return self.lock_timeout_s
        return locking.WAIT_S if self.timeout_s is None else min(locking.WAIT_S, self.timeout_s)

    def _entered(self, lock: AbstractContextManager[Cluster], stack: ExitStack) -> Cluster:
        """Give the cluster to write to, with the lock held; without it if its namespace is not there."""
        try:
            return stack.enter_context(lock) if self.lock is None else self.lock.cluster(lock)
        except (ObjectNotFoundError, ForbiddenError):
            if self._has_namespace():
                raise
            return self.cluster

    def _has_namespace(self) -> bool:
        try:
            live = self.cluster.get(ObjectRef("v1", "Namespace", "", self.place.namespace))
        except ForbiddenError:  # whoever may work in one namespace only may not read namespaces
            return True
        return live is not None and not live["metadata"].get("deletionTimestamp")

    def _result(
        self,
        outcomes: Mapping[Identity, RunEvent],
        standings: Mapping[Identity, ReadinessState] | None = None,
    ) -> RunResult:
        return result.run_result(
            self.changes, outcomes, standings=standings, kind=self.result_kind, dry_run=self.dry_run
        )

    def _pretended(self, on_event: OnEvent) -> RunResult:
        ends = {
            change.identity: RunEvent(
                _OUTCOMES.get(change.action, "kept"),
                change.identity,
                change.reason or "; ".join(change.notes),
            )
            for change in self.changes.changes
        }
        for note in self.changes.notes:
            on_event(RunEvent("note", None, note))
        for end in ends.values():
            on_event(end)
        return self._result(ends)


# --- One deploy of an environment: work out what would change, then carry out exactly that ---


@dataclass(frozen=True, kw_only=True)
class ApplyPlan(ProposedPlan):
    """What one deploy would do, ready to be confirmed and carried out.

    Attributes:
        reached: what is wanted, and where.
        options: how it is to be done.
        pin: identity that the environment is bound to before the first write, None if it is bound already.
        what: the run in a few words, for the history.
        inventory: what the environment had in its cluster when this was worked out.
        forgotten: members of it that are not there any more, or are another's.
    """

    reached: Reached
    options: ApplyOptions
    pin: ClusterIdentity | None
    what: str
    inventory: Inventory
    forgotten: frozenset[Identity] = frozenset()

    @cached_property
    def writes(self) -> bool:
        """Tell whether anything is sent: an inventory that is to be set right counts."""
        widened = inventory.grown(self.inventory, self.changes.changes)
        settled = inventory.shrunk(widened, self.changes.changes, written={}, gone=self.forgotten)
        return bool(self.changes.writes) or inventory_store.needs_writing(self.inventory, settled)

    @property
    def again(self) -> Again:
        """Give what looks at an object that moved since its change was worked out."""
        context = context_of(self.reached, self.options, self.inventory)
        return lambda change: diff_object(context, change.subject)

    @property
    def terms(self) -> TermsOf:
        """Give on what terms an object is waited for where others depend on it: until a job runs, too."""
        return partial(
            terms_of,
            timeout_s=self.options.timeout_s,
            component_s=self.reached.state.timeouts,
            wait_for_jobs=True,
        )

    @property
    def rules(self) -> ReadyRules:
        """Give the app's own readiness rules."""
        return self.reached.rules

    @contextmanager
    def locked_to_the_end(self) -> Iterator[ApplyPlan]:
        """Give this deploy with a lock that it keeps until the block ends, over a retreat as well."""
        with LastingLock() as lock:
            yield replace(self, lock=lock)

    def run(self, *, clock: Clock, on_event: OnEvent) -> RunResult:
        """Carry the deploy out; a dry run only tells how each object would end.

        Args:
            clock: for waits.
            on_event: told about every object as it is done.

        Raises:
            MlstackError: an object failed; `partial` holds what was done.
            Interrupted: a person stopped the run; `partial` as well.
        """
        if self.pin is not None and not self.dry_run:
            self.reached.target.app.pin_identity(self.environment, self.pin)
            who = target.describe(self.pin)
            on_event(
                RunEvent(
                    "note", None, f"environment `{self.environment}` is now bound to this cluster ({who})"
                )
            )
        return self.carry_out(
            lambda run: self._recorded(run, clock=clock, on_event=on_event), clock=clock, on_event=on_event
        )

    def _recorded(self, run: Run, *, clock: Clock, on_event: OnEvent) -> None:
        """Do the steps and write them into the history, however they end."""
        record = partial(
            history.write,
            self.reached,
            self.changes,
            what=self.what,
            waited=self.options.wait,
            history=history.history(self.reached, clock=clock, ahead=self.writes),
            clock=clock,
            on_event=run.tell,
        )
        try:
            now = self._as_it_is_now(run)
            widened = now._steps(run, clock, on_event)
        except MlstackError as error:
            record(run.outcomes, error=error)
            raise
        except KeyboardInterrupt as stop:
            history.before_leaving(partial(record, run.outcomes, error=stop))
            raise
        recorded = prefetch(partial(record, run.outcomes, error=None))  # neither record needs the other
        try:
            inventory_store.shrink(
                run.records,
                widened,
                now.changes.changes,
                outcomes=run.outcomes,
                written=run.written,
                forgotten=now.forgotten,
                on_event=run.tell,
            )
            recorded()
        except (MlstackError, KeyboardInterrupt):
            recorded()
            raise

    def _as_it_is_now(self, run: Run) -> ApplyPlan:
        """Give this deploy worked out again if another run was faster, as long as it holds nothing new."""
        if not self.writes or not inventory_store.has_moved(run.cluster, self.inventory):
            return self
        empty = not self.reached.state.objects
        now = propose(self.reached, self.options, what=self.what, may_be_empty=empty)
        refuse_new(self.changes, now.changes)
        left = {change.identity for change in now.changes.changes}
        for change in self.left(run):
            if change.identity not in left:
                run.skip(change, "gone", "was gone already")
        return now

    def _steps(self, run: Run, clock: Clock, on_event: OnEvent) -> Inventory:
        """Do everything in its order, after the inventory has grown; gives it, to be shrunk last of all."""
        changes = self.changes.changes
        widened = inventory_store.grow(run.records, self.inventory, changes, on_event=on_event)
        try:
            run.apply(
                [change for change in self.left(run) if change.desired is not None],
                depends=self.changes.depends,
            )
            self._wait(run, clock, on_event)
            run.delete(
                [change for change in self.left(run) if change.desired is None],
                depends=self.changes.depends,
                wait=self.options.wait,
            )
        except UnreachableError:
            raise
        except MlstackError:
            with suppress(ClusterError):  # what it holds now covers everything; hashes only save time
                inventory_store.shrink(
                    run.cluster,
                    widened,
                    changes,
                    outcomes=run.outcomes,
                    written=run.written,
                    on_event=on_event,
                )
            raise
        return widened

    def _wait(self, run: Run, clock: Clock, on_event: OnEvent) -> None:
        """Wait until what is wanted works; what was deleted for it is not made up for by anything."""
        wanted = [change for change in self.changes.changes if change.desired and change.action != "missing"]
        if not self.options.wait or not wanted:
            return
        wait.until_applied(
            self.reached,
            wanted,
            self.options,
            written=run.written,
            clock=clock,
            on_event=on_event,
            found=run.standings.update,
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


def propose(
    reached: Reached, options: ApplyOptions, *, what: str = "", may_be_empty: bool = False
) -> ApplyPlan:
    """Work out what a deploy would do; nothing is written.

    Args:
        reached: what is wanted, and where.
        options: how it is to be done.
        what: the run in a few words, for the history; empty for an apply.
        may_be_empty: whether nothing may be wanted, as by a set that was recorded so.

    Raises:
        ConfigError: nothing would be deployed.
        ForbiddenError: rights are missing; names all of them.
        ClusterError: the cluster cannot be asked or refuses an object.
    """
    if not may_be_empty:
        target.refuse_empty(reached.state)
    wait.terms_of(reached.state.objects, reached, options)  # a wrong annotation ends the run here
    with permissions.explaining(reached, writing=not options.dry_run):
        found = compare(reached, options)
    replacement.refuse(found.changes.changes)
    if not options.allow_large_prune:
        refuse_too_much(found.pruning)
    place, identity = reached.place, reached.identity
    # What lies in no namespace is known for sure only now: the server tells it of custom resources.
    target.refuse_outside(place, (change.subject for change in found.changes.changes if change.component))
    fresh = place.cluster is None and reached.target.context is None and target.is_known(identity)
    made = ApplyPlan(
        changes=found.changes,
        place=place,
        cluster=reached.cluster,
        dry_run=options.dry_run,
        reached=reached,
        options=options,
        pin=identity if fresh else None,
        inventory=found.inventory,
        forgotten=found.pruning.forgotten,
        what=what or history.run_summary(reached.target, "apply"),
        holder=reached.target.holder,
        lock_timeout_s=options.lock_timeout_s,
        timeout_s=options.timeout_s,
    )
    if made.writes and not made.dry_run:
        changes = found.changes
        permissions.check(
            made.cluster,
            place,
            changes.app,
            changes.changes,
            found.inventory,
            may_all=found.may_all,
        )
    return made
