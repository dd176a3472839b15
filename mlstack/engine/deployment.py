"""One deploy of an environment: work out what would change, then carry out exactly that."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial

from mlstack.cluster.ahead import soon
from mlstack.engine import guard, rights
from mlstack.engine.comparing import refusals
from mlstack.engine.comparing.observe import looking_again
from mlstack.engine.comparison import compare
from mlstack.engine.proposal import Proposal
from mlstack.engine.records import inventory as inventories
from mlstack.engine.records import recording
from mlstack.engine.records.lock import LastingLock
from mlstack.engine.removing.prune import refuse_too_much
from mlstack.engine.target import Reached
from mlstack.engine.waiting import ready
from mlstack.engine.waiting.gates import TermsOf
from mlstack.engine.writing.execute import Run
from mlstack.engine.writing.send import Again
from mlstack.errors import ClusterError, MlstackError, OutdatedError, UnreachableError
from mlstack.model import membership
from mlstack.model.app import ClusterIdentity
from mlstack.model.clock import Clock
from mlstack.model.diff import Changes
from mlstack.model.digest import what_moved
from mlstack.model.events import Event, OnEvent
from mlstack.model.inventory import Inventory
from mlstack.model.objects import Identity
from mlstack.model.options import ApplyOptions
from mlstack.model.readiness.terms import terms_of
from mlstack.model.readyrules import ReadyRules
from mlstack.model.report import RunResult


@dataclass(frozen=True, kw_only=True)
class Deployment(Proposal):
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
        widened = membership.widened(self.inventory, self.changes.changes)
        settled = membership.settled(widened, self.changes.changes, written={}, gone=self.forgotten)
        return bool(self.changes.writes) or inventories.needs_writing(self.inventory, settled)

    @property
    def again(self) -> Again:
        """Give what looks at an object that moved since its change was worked out."""
        return looking_again(self.reached, self.options, self.inventory)

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
    def locked_to_the_end(self) -> Iterator["Deployment"]:
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
            who = guard.describe(self.pin)
            on_event(
                Event("note", None, f"environment `{self.environment}` is now bound to this cluster ({who})")
            )
        return self.carry_out(
            lambda run: self._recorded(run, clock=clock, on_event=on_event), clock=clock, on_event=on_event
        )

    def _recorded(self, run: Run, *, clock: Clock, on_event: OnEvent) -> None:
        """Do the steps and write them into the history, however they end."""
        record = partial(
            recording.record,
            self.reached,
            self.changes,
            what=self.what,
            waited=self.options.wait,
            history=recording.history(self.reached, clock=clock, ahead=self.writes),
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
            recording.before_leaving(partial(record, run.outcomes, error=stop))
            raise
        recorded = soon(partial(record, run.outcomes, error=None))  # neither record needs the other
        try:
            inventories.settle(run, widened, now.changes.changes, forgotten=now.forgotten, on_event=run.tell)
            recorded()
        except (MlstackError, KeyboardInterrupt):
            recorded()
            raise

    def _as_it_is_now(self, run: Run) -> "Deployment":
        """Give this deploy worked out again if another run was faster, as long as it holds nothing new."""
        if not self.writes or not inventories.moved(run.cluster, self.inventory):
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
        widened = inventories.widen(run.records, self.inventory, changes, on_event=on_event)
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
                inventories.settle(run, widened, changes, in_vain=True, on_event=on_event)
            raise
        return widened

    def _wait(self, run: Run, clock: Clock, on_event: OnEvent) -> None:
        """Wait until what is wanted works; what was deleted for it is not made up for by anything."""
        wanted = [change for change in self.changes.changes if change.desired and change.action != "missing"]
        if not self.options.wait or not wanted:
            return
        ready.until_applied(
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
) -> Deployment:
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
        guard.refuse_empty(reached.state)
    ready.terms_of(reached.state.objects, reached, options)  # a wrong annotation ends the run here
    with rights.explaining(reached, writing=not options.dry_run):
        found = compare(reached, options)
    refusals.refuse(found.changes.changes)
    if not options.allow_large_prune:
        refuse_too_much(found.pruning)
    place, identity = reached.place, reached.identity
    # What lies in no namespace is known for sure only now: the server tells it of custom resources.
    guard.refuse_outside(place, (change.subject for change in found.changes.changes if change.component))
    fresh = place.cluster is None and reached.target.context is None and guard.is_known(identity)
    made = Deployment(
        changes=found.changes,
        place=place,
        cluster=reached.cluster,
        dry_run=options.dry_run,
        reached=reached,
        options=options,
        pin=identity if fresh else None,
        inventory=found.inventory,
        forgotten=found.pruning.forgotten,
        what=what or recording.of(reached.target, "apply"),
        holder=reached.target.holder,
        lock_timeout_s=options.lock_timeout_s,
        timeout_s=options.timeout_s,
    )
    if made.writes and not made.dry_run:
        changes = found.changes
        rights.check(
            made.cluster,
            place,
            changes.app,
            changes.changes,
            found.inventory,
            may_all=found.may_all,
        )
    return made
