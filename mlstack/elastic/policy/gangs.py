"""Whole gangs: pods without a node, jobs that wait or lost something, preemption, rendezvous."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence, Set
from typing import NamedTuple

from mlstack.elastic.policy.placement import free_node, place_foreign, place_server, place_trainer
from mlstack.elastic.policy.state import (
    ClusterState,
    FreeRoom,
    JobState,
    NodeInfo,
    NodeNames,
    Shape,
    TrainerSlot,
    count,
    dominant,
    fits,
    shape,
    total,
)
from mlstack.elastic.snapshot import Cause, Demand, Trainer, Unplaced, Vector

# --- what a job lacks: its whole gang while it waits, or what it lost and cannot run without ---


class ResourceNeed(NamedTuple):
    """Equal pods that a job lacks."""

    name: str  # their role, or the name of a single pod
    request: Vector  # what one requests
    number: int  # how many


def members(state: JobState, whole: list[int]) -> list[ResourceNeed]:
    """Give the masters and parameter servers of a job that waits, the largest first."""
    if state.is_admitted:
        return []
    roles = sorted(state.job.gang, key=lambda role: (-dominant(shape(role.request), whole), role.name))
    return [ResourceNeed(role.name, role.request, role.count) for role in roles if role.count]


def needs(state: JobState, whole: list[int]) -> list[ResourceNeed]:
    """Give the pods of a job's gang that are not there: members, then trainers up to the minimum."""
    short = state.job.minimum - state.count
    trainers = [ResourceNeed("trainer", state.job.trainer, short)] if short > 0 else []
    return members(state, whole) + trainers


def amount(lacked: Iterable[ResourceNeed], size: int) -> Vector:
    """Give what pods request in all."""
    return total([tuple(amount * need.number for amount in need.request) for need in lacked], size)


def useful_nodes(cluster: ClusterState, state: JobState) -> frozenset[str]:
    """Give the nodes that could take any pod of a job's gang, none if even all of them empty are too few."""
    lacked, size = needs(state, cluster.whole), len(cluster.snapshot.resources)
    shapes = [shape(need.request) for need in lacked]
    sizes = Counter([node.allocatable for node in cluster.nodes_of(state.job.nodes, state.bars)])
    sizes = Counter({room: n for room, n in sizes.items() if any(fits(room, request) for request in shapes)})
    whole = total([tuple(amount * number for amount in room) for room, number in sizes.items()], size)
    could_run = fits(whole, shape(amount(lacked, size))) and all(
        any(fits(room, request) for room in sizes) for request in shapes
    )
    nodes = cluster.nodes_of(state.job.nodes, state.bars) if could_run else []
    return frozenset([node.name for node in nodes if node.allocatable in sizes])


# --- what room there can be at most ---

Room = list[int]


def has_places(
    cluster: ClusterState,
    state: JobState,
    node_names: NodeNames,
    preempted: Collection[JobState] = (),
) -> bool:
    """Tell whether there can be places enough for each kind of pod that a job lacks, if others took none."""
    givers = _givers(cluster, state).difference(preempted)
    rooms = _without(cluster, preempted)
    pairs = [
        (rooms[node.index], _lifted(node, rooms[node.index], givers)) for node in cluster.nodes_of(node_names)
    ]
    return all(
        _is_room(pairs, shape(need.request), need.number, givers) for need in needs(state, cluster.whole)
    )


def _givers(cluster: ClusterState, state: JobState) -> set[JobState]:
    """Give the jobs that may lose trainers to a job."""
    states, priority = cluster.states.values(), state.job.priority
    return {other for other in states if other.surplus and other.job.priority <= priority}


def _is_room(pairs: list[tuple[Room, Room]], amounts: Shape, number: int, givers: set[JobState]) -> bool:
    """Tell whether there can be so many places, in free room or in that of trainers that can be spared."""
    missing = number - sum([count(room, amounts) for room, _ in pairs])
    if missing <= 0:
        return True
    largest = [
        (resource, amount, max([1, *(giver.job.trainer[resource] for giver in givers)]))
        for resource, amount in amounts
    ]
    prices: list[int] = []  # how many trainers at least go for each place beyond those that are free
    for room, lifted in pairs:
        free, gone = count(room, amounts), 0
        for places in range(free + 1, min(count(lifted, amounts), free + missing) + 1):
            before = gone
            for resource, amount, size in largest:
                gone = max(gone, -((room[resource] - places * amount) // size))
            prices.append(gone - before)
    cheapest = sorted(prices)[:missing]
    return len(cheapest) == missing and sum(cheapest) <= sum([giver.surplus for giver in givers])


def _without(cluster: ClusterState, preempted: Collection[JobState]) -> list[Room]:
    gone, keys = set(preempted), {other.job.key for other in preempted}
    rooms = [_lifted(node, node.later, gone) for node in cluster.nodes]
    held = [(cluster.by_name.get(held.node), held.request) for other in preempted for held in other.job.held]
    held += [(node, request) for node, request, _, owner in cluster.reservations.values() if owner in keys]
    for node, request in held:
        if node is not None:
            for resource, amount in enumerate(request):
                rooms[node.index][resource] += amount
    return rooms


def _lifted(node: NodeInfo, room: Room, states: Set[JobState]) -> Room:
    lifted = list(room)
    for state in node.states.keys() & states if states else ():
        number = len(node.states[state])
        for resource, amount in state.amounts:
            lifted[resource] += number * amount
    return lifted


# --- pods without a node that are no trainers: they come first ---


class Demands:
    """The queue of pods without a node, those of higher priority first."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._left = sorted(cluster.snapshot.demands, key=self._rank)

    def _rank(self, demand: Demand) -> tuple[int, int, int, bool, int, str]:
        """Rank by priority, the job's too (room made for a gang is kept), age, then tied and large ones."""
        state = self._cluster.states.get(demand.job)
        priority = state.job.priority if state else 0
        size = dominant(shape(demand.request), self._cluster.whole) if demand.job else 0
        return (-demand.priority, -priority, demand.created_ms, demand.nodes is None, -size, demand.key)

    def serve(self) -> dict[str, list[Demand]]:
        """Find room for what found none yet; give those pods of running jobs that still have none, by job."""
        self._cluster.epoch += 1
        served = {key for _, _, key, _ in self._cluster.reservations.values()}
        self._left = [demand for demand in self._left if demand.key not in served and not self._serve(demand)]
        missing: dict[str, list[Demand]] = {}
        for demand in self._left:
            if demand.job:
                missing.setdefault(demand.job, []).append(demand)
        return missing

    def _serve(self, demand: Demand) -> bool:
        """Find room for a pod; tell whether it is done with: those of jobs without pods go with them."""
        if demand.job:
            state = self._cluster.states.get(demand.job)
            return state is None or not state.is_admitted or _place_own(self._cluster, state, demand)
        if is_placed := place_foreign(self._cluster, demand):
            self._cluster.unplaced.pop(demand.key, None)
        else:
            self._cluster.unplaced[demand.key] = Unplaced(key=demand.key, missing=demand.request)
        return is_placed


def _place_own(cluster: ClusterState, state: JobState, demand: Demand) -> bool:
    """Find room for a master or parameter server of a job: on the nodes it is tied to, or else anywhere."""
    return any(
        place_server(cluster, state, demand.request, node_names, demand.key, is_late=True) is not None
        for node_names in dict.fromkeys((demand.nodes, state.job.nodes))
    )


# --- whole gangs or nothing ---

# Each try takes all the others off again: a plan has to end where nearly every job has to go.
_SPARED_TRIES = 100


class Admission:
    """The queue of jobs for which something is missing."""

    def __init__(self, cluster: ClusterState, *, backfill_ms: int) -> None:
        self._cluster = cluster
        self._backfill_ms = backfill_ms
        # masters and parameter servers of running jobs that found no place, by job
        self._missing: dict[str, list[Demand]] = {}
        self._failed: set[Hashable] = set()
        self._use: dict[Hashable, frozenset[str]] = {}
        self._free: dict[NodeNames, FreeRoom] = {}

    def serve(self, missing: dict[str, list[Demand]]) -> None:
        """Serve jobs by priority, running ones before waiting ones, then by age."""
        self._missing = missing
        self._failed.clear()
        self._cluster.epoch += 1
        lacking = [
            state
            for state in self._cluster.states.values()
            if state.job.state != "finishing" and not state.is_held_off
            if not state.is_admitted or state.count < state.job.minimum or state.job.key in missing
        ]

        def rank(state: JobState) -> tuple[int, bool, int, str]:
            return (-state.job.priority, not state.is_admitted, state.job.created_ms, state.job.key)

        kept: frozenset[str] = frozenset()
        for state in sorted(lacking, key=rank):
            if state.job.state == "admitted" and not state.is_admitted:
                continue  # it was taken off meanwhile
            is_served = self._serve(state, kept if not state.is_admitted else frozenset())
            # What it could use is kept from younger ones once it has waited long.
            waited_ms = self._cluster.snapshot.now_ms - state.job.created_ms
            if not is_served and state.job.state == "waiting" and waited_ms >= self._backfill_ms:
                kind = self._kind(state, state.job.nodes)
                if kind not in self._use:
                    self._use[kind] = useful_nodes(self._cluster, state)
                kept |= self._use[kind]

    def _serve(self, state: JobState, kept: frozenset[str]) -> bool:
        """Give a job all that it lacks, tell whether; a running one that cannot have it is taken off."""
        cluster, job, node_names = self._cluster, state.job, state.job.nodes
        if kept:
            node_names = (frozenset(cluster.by_name) if node_names is None else node_names) - kept
        kind = self._kind(state, node_names)
        left = needs(state, cluster.whole)
        if node_names is not None and not cluster.nodes_of(node_names):
            self._failed.add(kind)
        if kind not in self._failed:
            left = self.attempt(state, node_names)
            if left and self._preempt(state, node_names):
                self._failed.clear()
                left = []
            if not left:
                self._missing.pop(job.key, None)
                cluster.unplaced.pop(job.key, None)
                return True
        self._failed.add(kind)
        if state.is_admitted and job.key not in self._missing and job.least <= state.count < job.minimum:
            cluster.relax(state, f"has {state.count} of {job.minimum}: no room for more")
            return True
        missing = amount(left, len(cluster.snapshot.resources))
        cluster.unplaced[job.key] = Unplaced(key=job.key, missing=missing)
        if state.is_admitted:
            lost = ", ".join(dict.fromkeys(need.name for need in left))
            cluster.suspend(state, "lost", f"taken off: no room for {lost}, which it cannot run without")
        return False

    def _kind(self, state: JobState, node_names: NodeNames) -> Hashable:
        """Give what decides whether a job fits: where one of a kind did not, no later one does."""
        job = state.job
        if state.is_admitted:
            return job.key
        gang = tuple((role.name, role.count, role.request) for role in job.gang)
        return (job.priority, gang, job.trainer, job.minimum, node_names, state.bars)

    # --- all that a job lacks finds a place, or nothing is changed ---

    def attempt(self, state: JobState, node_names: NodeNames, *, hurry: bool = False) -> list[ResourceNeed]:
        """Try to place all that a job lacks; give what found no place, and then nothing was changed."""
        cluster = self._cluster
        if not self.is_conceivable(state, node_names):
            return needs(state, cluster.whole)
        mark, was_admitted = cluster.steps, state.is_admitted
        hints: dict[str, list[str]] = {}
        left = []
        for need in members(state, cluster.whole):
            for placed in range(need.number):
                key = f"{state.job.key} {need.name}"
                node = place_server(cluster, state, need.request, node_names, key)
                if node is None:
                    left.append(need._replace(number=need.number - placed))
                    break
                hints.setdefault(need.name, []).append(node.name)
        if not (left and hurry):
            for demand in self._missing.get(state.job.key, ()):
                if not _place_own(cluster, state, demand):
                    left.append(ResourceNeed(demand.key, demand.request, 1))
        if not (left and hurry):
            cause: Cause = "minimum" if was_admitted else "admitted"
            while state.count < state.job.minimum:
                if not place_trainer(cluster, state, node_names, cause):
                    left.append(ResourceNeed("trainer", state.job.trainer, state.job.minimum - state.count))
                    break
        if left:
            cluster.rollback(mark)
        elif not was_admitted:
            cluster.admit(state, hints)
        return left

    def is_conceivable(
        self, state: JobState, node_names: NodeNames, preempted: Collection[JobState] = ()
    ) -> bool:
        """Tell by sums alone whether there could be room enough."""
        cluster, size = self._cluster, len(self._cluster.snapshot.resources)
        if (free := self._free.get(node_names)) is None:
            nodes = cluster.nodes_of(node_names)
            free = self._free[node_names] = FreeRoom(cluster, nodes, free_amounts)
        keys = {other.job.key for other in preempted}
        more = [[other.surplus * part for part in other.job.trainer] for other in _givers(cluster, state)]
        for other in preempted:
            more.append([(other.count - other.surplus) * part for part in other.job.trainer])
            more += [list(held.request) for held in other.job.held]
        more += [list(request) for _, request, _, owner in cluster.reservations.values() if owner in keys]
        room = [sum(amounts) for amounts in zip(free.sums() or [0] * size, *more, strict=True)]
        return fits(room, shape(amount(needs(state, cluster.whole), size)))

    # --- jobs of lower priority are taken off whole where nothing less makes room for a gang ---

    def _preempt(self, state: JobState, node_names: NodeNames) -> bool:
        """Take off as many jobs as it takes and no more; tell whether that made room."""
        cluster, mark, priority = self._cluster, self._cluster.steps, state.job.priority
        states = cluster.states.values()
        lower = [other for other in states if not other.is_settled and other.job.priority < priority]
        lower.sort(key=lambda other: (other.job.priority, -other.job.created_ms, other.job.key))

        def may_fit(victims: Sequence[JobState]) -> bool:
            return has_places(cluster, state, node_names, victims)

        def fits_without(victims: Sequence[JobState]) -> bool:
            cluster.rollback(mark)
            for victim in victims:
                over = f"of priority {priority}, above its {victim.job.priority}"
                cluster.suspend(victim, "suspended", f"taken off for {state.job.key} {over}")
                cluster.epoch += 1
            return may_fit(()) and not self.attempt(state, node_names, hurry=True)

        if not lower or not self.is_conceivable(state, node_names, lower) or not may_fit(lower):
            return False
        if not fits_without(lower):
            cluster.rollback(mark)
            return False
        # How many have to go, from the first on: the sums tell at once that few are not enough.
        cluster.rollback(mark)
        numbers = range(1, len(lower))
        first = bisect_left(numbers, True, key=lambda number: may_fit(lower[:number]))
        least = bisect_left(numbers, True, first, key=lambda number: fits_without(lower[:number]))
        needed = taken = lower[: 1 + least]
        # Those are left running without whose room the job fits as well: the oldest are tried.
        for spared in taken[-2::-1][: 1 + _SPARED_TRIES // len(taken)]:
            fewer = [other for other in needed if other is not spared]
            cluster.rollback(mark)
            if may_fit(fewer) and fits_without(fewer):
                needed = fewer
        fits_without(needed)
        return True


def free_amounts(node: NodeInfo) -> Sequence[int]:
    """Give what is free on a node; an overfull one counts as full."""
    return [max(0, amount) for amount in node.later]


# --- jobs whose trainers meet at one of them get that one back when it is lost ---


def restore_rendezvous(cluster: ClusterState) -> None:
    """Plan a trainer for each job that lacks its meeting point, at need in place of another."""
    for state in cluster.states.values():
        job = state.job
        if not job.lacks_meeting or state.is_settled or any(slot.is_planned for slot in state.slots):
            continue
        node = None
        if state.count < job.maximum:
            node = free_node(cluster, state.amounts, job.nodes, state.bars)
        if node is None:
            giving = [slot for slot in state.slots if slot.is_bound and _may_use(state, slot.node)]
            if not giving:
                continue
            slot = min(giving, key=lambda slot: slot.eviction_order)
            node = slot.node
            cluster.evict(slot, "gang", job.key)
        assert node is not None
        cluster.add(state, node, "gang")
        state.notes.append(("gang", "makes the trainer anew at which the others meet"))


def _may_use(state: JobState, node: NodeInfo | None) -> bool:
    names = state.job.nodes
    return node is not None and node.name not in state.bars and (names is None or node.name in names)


# --- trainers without a node ---

# A trainer at which the scheduler has not even looked is given so many times as long: it may be down.
_UNTRIED = 4


def place_unbound(cluster: ClusterState, *, stuck_ms: int) -> None:
    """Enter all trainers that are not bound yet; those that wait too long are withdrawn and barred."""
    busy = {going.node for going in cluster.snapshot.arriving}

    def is_stuck(trainer: Trainer) -> bool:
        """Tell whether it waits too long although its node is not waiting for somebody to go."""
        limit_ms = stuck_ms if trainer.is_tried else _UNTRIED * stuck_ms
        return cluster.snapshot.now_ms - trainer.created_ms > limit_ms and trainer.planned not in busy

    for state in cluster.states.values():
        waiting = [trainer for trainer in state.job.trainers if not trainer.node]
        waiting.sort(
            key=lambda trainer: (not trainer.is_meeting, trainer.created_ms, trainer.index, trainer.name)
        )
        stuck = [trainer for trainer in waiting if state.job.state != "finishing" and is_stuck(trainer)]
        if stuck:
            state.is_withdrawn = True
            state.bars |= {trainer.planned for trainer in stuck}
            state.gone += [(TrainerSlot(state, None, trainer, "stuck"), "stuck", "") for trainer in stuck]
            text = f"withdraws {len(stuck)} that found no node within {stuck_ms / 1000:g} s"
            state.notes.append(("stuck", text))
        state.unbound += [trainer for trainer in waiting if trainer not in stuck]
    for state in cluster.states.values():
        for _ in range(len(state.unbound)):
            # The first that waits gets its planned place, or another one; else it goes behind the others.
            node = cluster.by_name.get(state.unbound[0].planned)
            if node is None or not _may_use(state, node) or not fits(node.later, state.amounts):
                node = free_node(cluster, state.amounts, state.job.nodes, state.bars)
            if node is None:
                state.unbound.append(state.unbound.pop(0))
            else:
                cluster.add(state, node, "steady")
