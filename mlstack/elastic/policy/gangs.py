"""Whole gangs: pods without a node, jobs that wait or lost something, preemption, rendezvous."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Hashable

from mlstack.elastic.policy.needs import (
    FreeRoom,
    ResourceNeed,
    amount,
    could_ever_run,
    has_places,
    members,
    needs,
    useful,
)
from mlstack.elastic.policy.placement import Transaction
from mlstack.elastic.policy.state import ClusterState, JobState, NodeNames, TrainerSlot, dominant, fits, shape
from mlstack.elastic.snapshot import Cause, Demand, Trainer, Unplaced

# --- pods without a node that are no trainers: they come first ---


class Demands:
    """The queue of pods without a node, those of higher priority first."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._left = sorted(transaction.cluster.snapshot.demands, key=self._rank)

    def _rank(self, demand: Demand) -> tuple[int, int, int, bool, int, str]:
        """Rank by priority, that of the job too, and age; then tied and large ones, which have least choice.

        Room that was made for the gang of a job is so not taken by an older job of lower priority.
        """
        state = self._transaction.cluster.states.get(demand.job)
        priority = state.job.priority if state else 0
        size = dominant(shape(demand.request), self._transaction.cluster.whole) if demand.job else 0
        return (-demand.priority, -priority, demand.created_ms, demand.nodes is None, -size, demand.key)

    def serve(self) -> dict[str, list[Demand]]:
        """Find room for what found none yet; give those pods of running jobs that still have none, by job."""
        self._transaction.cluster.epoch += 1
        missing: dict[str, list[Demand]] = {}
        served = self._transaction.cluster.reserved()
        self._left = [demand for demand in self._left if demand.key not in served and not self._serve(demand)]
        for demand in self._left:
            if demand.job:
                missing.setdefault(demand.job, []).append(demand)
        return missing

    def _serve(self, demand: Demand) -> bool:
        """Find room for a pod; tell whether it is done with: those of jobs without pods go with them."""
        if not demand.job:
            return self._serve_foreign(demand)
        state = self._transaction.cluster.states.get(demand.job)
        return state is None or not state.is_admitted or place_own(self._transaction, state, demand)

    def _serve_foreign(self, demand: Demand) -> bool:
        is_placed = self._transaction.place_foreign(demand)
        if is_placed:
            self._transaction.unplaced.pop(demand.key, None)
        else:
            self._transaction.unplaced[demand.key] = Unplaced(key=demand.key, missing=demand.request)
        return is_placed


def place_own(transaction: Transaction, state: JobState, demand: Demand) -> bool:
    """Find room for a master or parameter server of a job: on the nodes it is tied to, or else anywhere."""
    for node_names in dict.fromkeys((demand.nodes, state.job.nodes)):
        if transaction.place_server(state, demand.request, node_names, demand.key, is_late=True) is not None:
            return True
    return False


# --- all that a job lacks finds a place, or nothing is changed ---


class Attempts:
    """Tries to give jobs what they lack."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._cluster = transaction.cluster
        # masters and parameter servers of running jobs that found no place, by job
        self.missing: dict[str, list[Demand]] = {}
        self._free: dict[frozenset[str] | None, FreeRoom] = {}

    def attempt(self, state: JobState, node_names: NodeNames, *, hurry: bool = False) -> list[ResourceNeed]:
        """Try to place all that a job lacks; give what found no place, and then nothing was changed."""
        if not self.is_conceivable(state, node_names):
            return needs(state, self._cluster.whole)
        mark, was_admitted = self._cluster.steps, state.is_admitted
        hints: dict[str, list[str]] = {}
        left = self._place_members(state, node_names, hints)
        if not (left and hurry):
            left += self._place_missing(state)
        if not (left and hurry):
            left += self._place_trainers(state, node_names, "minimum" if was_admitted else "admitted")
        if left:
            self._cluster.rollback(mark)
        elif not was_admitted:
            self._cluster.admit(state, hints)
        return left

    def _place_members(
        self, state: JobState, node_names: NodeNames, hints: dict[str, list[str]]
    ) -> list[ResourceNeed]:
        left = []
        for need in members(state, self._cluster.whole):
            key = f"{state.job.key} {need.name}"
            for placed in range(need.number):
                node = self._transaction.place_server(state, need.request, node_names, key)
                if node is None:
                    left.append(need._replace(number=need.number - placed))
                    break
                hints.setdefault(need.name, []).append(node.name)
        return left

    def _place_missing(self, state: JobState) -> list[ResourceNeed]:
        return [
            ResourceNeed(demand.key, demand.request, 1)
            for demand in self.missing.get(state.job.key, ())
            if not place_own(self._transaction, state, demand)
        ]

    def _place_trainers(self, state: JobState, node_names: NodeNames, cause: Cause) -> list[ResourceNeed]:
        while state.count < state.job.minimum:
            if not self._transaction.place_trainer(state, node_names, cause):
                return [ResourceNeed("trainer", state.job.trainer, state.job.minimum - state.count)]
        return []

    def is_conceivable(
        self, state: JobState, node_names: NodeNames, preempted: Collection[JobState] = ()
    ) -> bool:
        """Tell by sums alone whether there could be room enough."""
        size = len(self._cluster.snapshot.resources)
        needed = shape(amount(needs(state, self._cluster.whole), size))
        if (free := self._free.get(node_names)) is None:
            free = self._free[node_names] = FreeRoom(self._cluster, self._cluster.nodes_of(node_names))
        room = free.sums()
        for other in self._cluster.states.values():
            if other.job.priority <= state.job.priority and (surplus := other.surplus):
                for resource, part in other.amounts:
                    room[resource] += surplus * part
        for other in preempted:
            for resource, part in other.amounts:
                room[resource] += (other.count - other.surplus) * part
            for held in other.job.held:
                for resource, part in enumerate(held.request):
                    room[resource] += part
        keys = {other.job.key for other in preempted}
        for _, request, _, owner in self._cluster.reservations.values() if keys else ():
            if owner in keys:
                for resource, part in enumerate(request):
                    room[resource] += part
        return fits(room, needed)


# --- jobs of lower priority are taken off whole where nothing less makes room for a gang ---

# Each try takes all the others off again: a plan has to end where nearly every job has to go.
_SPARED_TRIES = 100


class Preemption:
    """Room for one job at the cost of whole others."""

    def __init__(
        self, cluster: ClusterState, attempts: Attempts, state: JobState, node_names: NodeNames
    ) -> None:
        self._cluster = cluster
        self._attempts = attempts
        self._state = state
        self._node_names = node_names
        self._mark = cluster.steps
        lower = [
            other
            for other in cluster.states.values()
            if not other.is_settled and other.job.priority < state.job.priority
        ]
        self._lower = sorted(
            lower, key=lambda other: (other.job.priority, -other.job.created_ms, other.job.key)
        )

    def run(self) -> bool:
        """Take off as many jobs as it takes and no more; tell whether that made room."""
        if not self._lower or not self._attempts.is_conceivable(self._state, self._node_names, self._lower):
            return False
        if not self._has_places(self._lower):
            return False
        if not self._fits_without(self._lower):
            self._cluster.rollback(self._mark)
            return False
        self._spare(self._lower[: self._least()])
        return True

    def _least(self) -> int:
        """Give how many jobs have to go, from the first on: the sums tell at once that few are not enough."""
        self._cluster.rollback(self._mark)
        numbers = range(1, len(self._lower))
        first = bisect_left(numbers, True, key=lambda number: self._has_places(self._lower[:number]))
        return 1 + bisect_left(
            numbers, True, first, key=lambda number: self._fits_without(self._lower[:number])
        )

    def _suspend(self, victim: JobState) -> None:
        job = self._state.job
        text = f"taken off for {job.key} of priority {job.priority}, above its {victim.job.priority}"
        self._cluster.suspend(victim, "suspended", text)
        self._cluster.epoch += 1

    def _fits(self) -> bool:
        return self._has_places(()) and not self._attempts.attempt(self._state, self._node_names, hurry=True)

    def _has_places(self, preempted: Collection[JobState]) -> bool:
        """Tell whether it is worth a try once those jobs are taken off too."""
        return has_places(self._cluster, self._state, self._node_names, preempted)

    def _spare(self, taken: list[JobState]) -> None:
        """Leave those running after all without whose room the job fits as well: the oldest are tried."""
        needed = taken
        tries = 1 + _SPARED_TRIES // len(taken)
        for spared in taken[-2::-1][:tries]:
            fewer = [other for other in needed if other is not spared]
            self._cluster.rollback(self._mark)
            if self._has_places(fewer) and self._fits_without(fewer):
                needed = fewer
        self._fits_without(needed)

    def _fits_without(self, jobs: list[JobState]) -> bool:
        self._cluster.rollback(self._mark)
        for victim in jobs:
            self._suspend(victim)
        return self._fits()


# --- whole gangs or nothing ---


class Admission:
    """The queue of jobs for which something is missing."""

    def __init__(self, transaction: Transaction, *, backfill_ms: int) -> None:
        self._transaction = transaction
        self._cluster = transaction.cluster
        self._attempts = Attempts(transaction)
        self._backfill_ms = backfill_ms
        self._failed: set[Hashable] = set()
        self._use: dict[Hashable, frozenset[str]] = {}

    def serve(self, missing: dict[str, list[Demand]]) -> None:
        """Serve jobs by priority, running ones before waiting ones, then by age."""
        self._attempts.missing = missing
        self._failed.clear()
        self._cluster.epoch += 1
        kept: frozenset[str] = frozenset()
        for state in self._queue():
            if self._was_suspended(state):
                continue
            is_served = self._serve(state, kept if not state.is_admitted else frozenset())
            if not is_served and self._blocks(state):
                kept |= self._useful(state)

    def _queue(self) -> list[JobState]:
        lacking = [state for state in self._cluster.states.values() if self._lacks(state)]
        return sorted(
            lacking,
            key=lambda state: (
                -state.job.priority,
                not state.is_admitted,
                state.job.created_ms,
                state.job.key,
            ),
        )

    def _lacks(self, state: JobState) -> bool:
        if state.job.state == "finishing" or state.is_held_off:
            return False
        is_short = state.count < state.job.minimum or state.job.key in self._attempts.missing
        return not state.is_admitted or is_short

    @staticmethod
    def _was_suspended(state: JobState) -> bool:
        return state.job.state == "admitted" and not state.is_admitted

    def _serve(self, state: JobState, kept: frozenset[str]) -> bool:
        """Give a job all that it lacks, tell whether; a running one that cannot have it is taken off."""
        node_names = self._node_names(state, kept)
        kind = self._kind(state, node_names)
        left = needs(state, self._cluster.whole)
        if node_names is not None and not self._cluster.nodes_of(node_names):
            self._failed.add(kind)
        if kind not in self._failed:
            left = self._attempts.attempt(state, node_names)
            if not left or self._preempt(state, node_names):
                self._attempts.missing.pop(state.job.key, None)
                self._transaction.unplaced.pop(state.job.key, None)
                return True
        self._failed.add(kind)
        if self._goes_on(state):
            self._cluster.relax(state, f"has {state.count} of {state.job.minimum}: no room for more")
            return True
        self._leave_out(state, left)
        return False

    def _goes_on(self, state: JobState) -> bool:
        """Tell whether a job that runs can do with fewer trainers than it should have."""
        is_whole = state.is_admitted and state.job.key not in self._attempts.missing
        return is_whole and state.job.least <= state.count < state.job.minimum

    def _preempt(self, state: JobState, node_names: NodeNames) -> bool:
        is_served = Preemption(self._cluster, self._attempts, state, node_names).run()
        if is_served:
            self._failed.clear()
        return is_served

    def _node_names(self, state: JobState, kept: frozenset[str]) -> frozenset[str] | None:
        if not kept:
            return state.job.nodes
        mine = state.job.nodes if state.job.nodes is not None else frozenset(self._cluster.by_name)
        return mine - kept

    def _kind(self, state: JobState, node_names: NodeNames) -> Hashable:
        """Give what decides whether a job fits: where one of a kind did not, no later one does."""
        job = state.job
        if state.is_admitted:
            return job.key
        gang = tuple((role.name, role.count, role.request) for role in job.gang)
        return (job.priority, gang, job.trainer, job.minimum, node_names, state.bars)

    def _leave_out(self, state: JobState, left: list[ResourceNeed]) -> None:
        missing = amount(left, len(self._cluster.snapshot.resources))
        self._transaction.unplaced[state.job.key] = Unplaced(key=state.job.key, missing=missing)
        if state.is_admitted:
            lost = ", ".join(dict.fromkeys(need.name for need in left))
            text = f"taken off: no room for {lost}, which it cannot run without"
            self._cluster.suspend(state, "lost", text)

    def _blocks(self, state: JobState) -> bool:
        """Tell whether a job has waited so long that younger ones must not take what it could use."""
        waited = self._cluster.snapshot.now_ms - state.job.created_ms
        return state.job.state == "waiting" and waited >= self._backfill_ms

    def _useful(self, state: JobState) -> frozenset[str]:
        """Give the nodes that could take any pod of a job's gang, none if even all of them empty are too few.

        It is worked out once for jobs that are alike.
        """
        kind = self._kind(state, state.job.nodes)
        if (known := self._use.get(kind)) is None:
            node_names = useful(self._cluster, state)
            known = self._use[kind] = (
                node_names if could_ever_run(self._cluster, state, node_names) else frozenset()
            )
        return known


# --- jobs whose trainers meet at one of them get that one back when it is lost ---

TEXT = "makes the trainer anew at which the others meet"


def restore_rendezvous(transaction: Transaction) -> None:
    """Plan a trainer for each job that lacks its meeting point: at need in place of another of its own.

    The others are at a loss without it, so that the one that goes is none the less, whatever the minimum.
    """
    for state in transaction.cluster.states.values():
        if state.job.lacks_meeting and not state.is_settled:
            _restore(transaction, state)


def _restore(transaction: Transaction, state: JobState) -> None:
    if any(slot.is_planned for slot in state.slots):
        return
    node = (
        transaction.free_node(state.amounts, state.job.nodes, state.bars)
        if state.count < state.job.maximum
        else None
    )
    if node is None:
        giving = [slot for slot in state.slots if _may_be_replaced(slot)]
        if not giving:
            return
        slot = min(giving, key=lambda slot: slot.eviction_order)
        node = slot.node
        transaction.cluster.evict(slot, "gang", state.job.key)
    assert node is not None
    transaction.cluster.add(state, node, "gang")
    state.notes.append(("gang", TEXT))


def _may_be_replaced(slot: TrainerSlot) -> bool:
    """Tell whether a new trainer can have the place of this one."""
    node, state = slot.node, slot.state
    if node is None or node.name in state.bars or not slot.is_bound:
        return False
    return state.job.nodes is None or node.name in state.job.nodes


# --- trainers without a node ---

UNTRIED = 4
"""A trainer at which the scheduler has not even looked is given so many times as long: it may be down."""


def place_unbound(transaction: Transaction, *, stuck_ms: int) -> None:
    """Enter all trainers that are not bound yet; those that wait too long are withdrawn and barred."""
    busy = {going.node for going in transaction.cluster.snapshot.arriving}
    for state in transaction.cluster.states.values():
        waiting = [trainer for trainer in state.job.trainers if not trainer.node]
        waiting.sort(
            key=lambda trainer: (not trainer.is_meeting, trainer.created_ms, trainer.index, trainer.name)
        )
        is_ending = state.job.state == "finishing"
        stuck = [
            trainer
            for trainer in waiting
            if not is_ending and _is_stuck(transaction, trainer, busy, stuck_ms)
        ]
        _withdraw(state, stuck, stuck_ms)
        state.unbound.extend(trainer for trainer in waiting if trainer not in stuck)
    for state in transaction.cluster.states.values():
        for _ in range(len(state.unbound)):
            _place(transaction, state)


def _is_stuck(transaction: Transaction, trainer: Trainer, busy: set[str], stuck_ms: int) -> bool:
    """Tell whether a trainer waits too long although its node is not waiting for somebody to go."""
    waited = transaction.cluster.snapshot.now_ms - trainer.created_ms
    limit_ms = stuck_ms if trainer.is_tried else UNTRIED * stuck_ms
    return waited > limit_ms and trainer.planned not in busy


def _withdraw(state: JobState, stuck: list[Trainer], stuck_ms: int) -> None:
    if stuck:
        state.is_withdrawn = True
        state.bars |= {trainer.planned for trainer in stuck}
        state.gone.extend((TrainerSlot(state, None, trainer, "stuck"), "stuck", "") for trainer in stuck)
        seconds = f"{stuck_ms / 1000:g} s"
        state.notes.append(("stuck", f"withdraws {len(stuck)} that found no node within {seconds}"))


def _place(transaction: Transaction, state: JobState) -> None:
    """Give the first trainer that waits its planned place, or another one; else put it behind the others."""
    trainer = state.unbound[0]
    node = transaction.cluster.by_name.get(trainer.planned)
    is_allowed = trainer.planned not in state.bars and (
        state.job.nodes is None or trainer.planned in state.job.nodes
    )
    if node is None or not is_allowed or not fits(node.later, state.amounts):
        node = transaction.free_node(state.amounts, state.job.nodes, state.bars)
    if node is None:
        state.unbound.append(state.unbound.pop(0))
    else:
        transaction.cluster.add(state, node, "steady")
