"""Who gets room: pods without a node, then whole gangs, then each job as free room and fairness allow."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from heapq import heapify, heappop, heappush

from mlstack.elastic.policy import placement
from mlstack.elastic.policy.placement import Clearance
from mlstack.elastic.policy.state import (
    ClusterState,
    EvictionOrder,
    FreeRoom,
    JobState,
    NodeInfo,
    ResourceNeed,
    Sparse,
    TrainerSlot,
    count,
    dominant,
    fits,
    is_within,
    members,
    needs,
    sparse,
    total_need,
    useful_nodes,
)
from mlstack.elastic.snapshot import Demand, NodeNames, ScaleCause, Trainer, Unplaced

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
            key=lambda trainer: (not trainer.is_rendezvous, trainer.created_ms, trainer.index, trainer.name)
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
                node = placement.free_node(cluster, state.amounts, state.job.nodes, state.bars)
            if node is None:
                state.unbound.append(state.unbound.pop(0))
            else:
                cluster.add(state, node, "steady")


def _may_use(state: JobState, node: NodeInfo | None) -> bool:
    names = state.job.nodes
    return node is not None and node.name not in state.bars and (names is None or node.name in names)


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
        size = dominant(sparse(demand.request), self._cluster.whole) if demand.job else 0
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
        if is_placed := placement.place_foreign(self._cluster, demand):
            self._cluster.unplaced.pop(demand.key, None)
        else:
            self._cluster.unplaced[demand.key] = Unplaced(key=demand.key, missing=demand.request)
        return is_placed


def _place_own(cluster: ClusterState, state: JobState, demand: Demand) -> bool:
    """Find room for a master or parameter server of a job: on the nodes it is tied to, or else anywhere."""
    return any(
        placement.place_server(cluster, state, demand.request, names, demand.key, is_late=True) is not None
        for names in dict.fromkeys((demand.nodes, state.job.nodes))
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
        self._free: dict[NodeNames, FreeRoom] = {}

    def serve(self, missing: dict[str, list[Demand]]) -> None:
        """Serve jobs by priority, running ones before waiting ones, then by age."""
        self._missing = missing
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
                kept |= useful_nodes(self._cluster, state)

    def _serve(self, state: JobState, kept: frozenset[str]) -> bool:
        """Give a job all that it lacks, tell whether; a running one that cannot have it is taken off."""
        cluster, job, node_names = self._cluster, state.job, state.job.nodes
        if kept:
            node_names = (frozenset(cluster.by_name) if node_names is None else node_names) - kept
        left = self.attempt(state, node_names)
        if not left or self._preempt(state, node_names):
            self._missing.pop(job.key, None)
            cluster.unplaced.pop(job.key, None)
            return True
        if state.is_admitted and job.key not in self._missing and job.least <= state.count < job.minimum:
            text = f"has {state.count} of {job.minimum}: no room for more"
            lenient = replace(job, minimum=state.count)
            cluster.change(state, job=lenient, notes=[*state.notes, ("steady", text)])
            return True
        missing = total_need(left, len(cluster.snapshot.resources))
        cluster.unplaced[job.key] = Unplaced(key=job.key, missing=missing)
        if state.is_admitted:
            names = [need.name if need.name != "trainer" else "its minimum of trainers" for need in left]
            lost = ", ".join(dict.fromkeys(names))
            cluster.suspend(state, "lost", f"taken off: no room for {lost}, which it cannot run without")
        return False

    # --- all that a job lacks finds a place, or nothing is changed ---

    def attempt(self, state: JobState, node_names: NodeNames) -> list[ResourceNeed]:
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
                node = placement.place_server(cluster, state, need.request, node_names, key)
                if node is None:
                    left.append(need._replace(number=need.number - placed))
                    break
                hints.setdefault(need.name, []).append(node.name)
        for demand in self._missing.get(state.job.key, ()):
            if not _place_own(cluster, state, demand):
                left.append(ResourceNeed(demand.key, demand.request, 1))
        cause: ScaleCause = "minimum" if was_admitted else "admitted"
        while state.short > 0:
            if not placement.place_trainer(cluster, state, node_names, cause):
                left.append(ResourceNeed("trainer", state.job.trainer, state.short))
                break
        if left:
            cluster.rollback(mark)
        elif not was_admitted:
            cluster.change(state, is_admitted=True, hints=hints)
        return left

    def is_conceivable(
        self, state: JobState, node_names: NodeNames, preempted: Collection[JobState] = ()
    ) -> bool:
        """Tell by sums alone whether there could be room enough."""
        cluster, size = self._cluster, len(self._cluster.snapshot.resources)
        if (free := self._free.get(node_names)) is None:
            nodes = cluster.nodes_of(node_names)
            free = FreeRoom(cluster, nodes, lambda node: [max(0, amount) for amount in node.later])
            self._free[node_names] = free
        keys = {other.job.key for other in preempted}
        giving = placement.givers(cluster, state)
        more = [[other.surplus * part for part in other.job.trainer] for other in giving]
        for other in preempted:
            more.append([(other.count - other.surplus) * part for part in other.job.trainer])
            more += [list(held.request) for held in other.job.held]
        more += [list(request) for _, request, _, owner in cluster.reservations.values() if owner in keys]
        room = [sum(amounts) for amounts in zip(free.sums() or [0] * size, *more, strict=True)]
        return fits(room, sparse(total_need(needs(state, cluster.whole), size)))

    # --- jobs of lower priority are taken off whole where nothing less makes room for a gang ---

    def _preempt(self, state: JobState, node_names: NodeNames) -> bool:
        """Take off as many jobs as it takes and no more; tell whether that made room."""
        cluster, mark, priority = self._cluster, self._cluster.steps, state.job.priority
        states = cluster.states.values()
        lower = [other for other in states if not other.is_settled and other.job.priority < priority]
        lower.sort(key=lambda other: (other.job.priority, -other.job.created_ms, other.job.key))

        def may_fit(victims: Sequence[JobState]) -> bool:
            return self.is_conceivable(state, node_names, victims)

        def fits_without(victims: Sequence[JobState]) -> bool:
            cluster.rollback(mark)
            for victim in victims:
                over = f"of priority {priority}, above its {victim.job.priority}"
                cluster.suspend(victim, "suspended", f"taken off for {state.job.key} {over}")
                cluster.epoch += 1
            return not self.attempt(state, node_names)

        if not lower or not cluster.nodes_of(node_names) or not may_fit(lower):
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


# --- places that stay free for what may come ---


class Headroom:
    """How many places for each kind of trainer have to stay free: one rule for growing and for shrinking."""

    def __init__(self, cluster: ClusterState, percent: int) -> None:
        self._cluster = cluster
        kinds = dict.fromkeys(state.amounts for state in cluster.states.values() if state.amounts)
        # what is free and how many are to stay free, by kind
        self._kinds: dict[Sparse, tuple[FreeRoom, int]] = {}
        for kind in kinds if percent else ():
            places = sum(count(node.allocatable, kind) for node in cluster.nodes)
            free = FreeRoom(cluster, cluster.nodes, partial(_places, kind))
            self._kinds[kind] = (free, -(-places * percent // 100))

    def allows(self, node: NodeInfo, amounts: Sparse) -> bool:
        """Tell whether enough places are left if one more trainer goes to a node."""
        for kind, (free, kept) in self._kinds.items():
            lost = _places_gained(node, amounts, -1, kind)
            if lost and sum(free.sums()) + lost < kept:
                return False
        return True

    def restore(self) -> None:
        """Take trainers of the lowest priority, then the richest job, until enough places are free."""
        for kind, (free, kept) in self._kinds.items():
            while sum(free.sums()) < kept:
                options = [
                    ((state.job.priority, -state.share, -gained, slot.eviction_order), slot)
                    for state in self._cluster.states.values()
                    if state.surplus
                    for slot in state.slots
                    if slot.node is not None and placement.can_go(slot)
                    if (gained := _places_gained(slot.node, state.amounts, 1, kind)) > 0
                ]
                if not options:
                    break
                self._cluster.evict(min(options, key=lambda option: option[0])[1], "yield", "head-room")


def _places(kind: Sparse, node: NodeInfo) -> tuple[int]:
    return (count(node.later, kind),)


def _places_gained(node: NodeInfo, amounts: Sparse, sign: int, kind: Sparse) -> int:
    """Give how many places of a kind there are more if a pod leaves a node (1), or comes to it (-1)."""
    room = list(node.later)
    for resource, amount in amounts:
        room[resource] += sign * amount
    return count(room, kind) - count(node.later, kind)


# --- free room becomes trainers, one by one, always for the job that is worst off ---


def is_cooling(state: JobState, now_ms: int) -> bool:
    """Tell whether a job was changed so lately that it is left alone where nothing presses."""
    changed_ms = state.job.changed_ms
    return changed_ms is not None and now_ms - changed_ms < state.job.cooldown_ms


def can_gain(state: JobState, now_ms: int) -> bool:
    """Tell whether a job may get trainers of others beyond its minimum."""
    return not is_cooling(state, now_ms) and can_grow(state, now_ms)


def can_grow(state: JobState, now_ms: int) -> bool:
    """Tell whether a job may get trainers in free room; to replace what it lost is no change to wait with."""
    most = state.job.maximum
    if is_cooling(state, now_ms):
        most = min(state.job.target, most)
    return not (state.is_settled or state.is_withdrawn or state.withheld) and state.count < most


def grow(cluster: ClusterState, headroom: Headroom) -> None:
    """Fill free room: the highest priority first, then the lowest share.

    Others may have what a job would get for trainers that failed and are not replaced yet: it is taken back.
    """
    _fill(cluster, headroom)
    lent = 0
    for state in cluster.states.values():
        if state.job.failed and not state.withheld and not state.is_settled:
            planned = [slot for slot in state.slots if slot.is_planned]
            state.withheld = max(0, state.job.failed - sum(slot.cause != "growth" for slot in planned))
            for slot in [slot for slot in planned if slot.cause == "growth"][::-1][: state.withheld]:
                cluster.evict(slot, "growth")
                lent += 1
    if lent:
        _fill(cluster, headroom)


def _fill(cluster: ClusterState, headroom: Headroom) -> None:
    now_ms = cluster.snapshot.now_ms
    queue = [_rank(state) for state in cluster.states.values() if can_grow(state, now_ms)]
    heapify(queue)
    while queue:
        state = cluster.states[heappop(queue)[2]]
        node = placement.free_node(cluster, state.amounts, state.job.nodes, state.bars)
        if node is None or not headroom.allows(node, state.amounts):
            continue
        cluster.add(state, node, "growth")
        if can_grow(state, now_ms):
            heappush(queue, _rank(state))


def _rank(state: JobState) -> tuple[int, int, str]:
    return (-state.job.priority, state.share, state.job.key)


# --- trainers move from rich jobs to poor ones ---

Eviction = tuple[NodeInfo, tuple[TrainerSlot, ...]]  # a node, and the trainers that have to go from there


class Balance:
    """Moves for fairness alone, `budget` at the most."""

    def __init__(self, cluster: ClusterState, headroom: Headroom, budget: int) -> None:
        self._cluster, self._headroom, self._budget = cluster, headroom, budget
        self._now_ms = cluster.snapshot.now_ms

    def even_out(self) -> None:
        """Move trainers until nothing is gained by it or the budget is used up."""
        is_helpful = True
        while is_helpful and self._budget > 0:
            gaining = [state for state in self._cluster.states.values() if can_gain(state, self._now_ms)]
            is_helpful = any(self._help(state) for state in sorted(gaining, key=_rank))

    def _help(self, poor: JobState) -> bool:
        cluster = self._cluster
        allowed = {state: most for state in cluster.states.values() if (most := self._spare(state, poor))}
        place = self._single(poor, allowed) or self._several(poor, allowed) if allowed else None
        if place is None:
            return False
        node, slots = place
        mark = cluster.steps
        for slot in slots:
            cluster.evict(slot, "fairness", poor.job.key)
        if not self._headroom.allows(node, poor.amounts):
            cluster.rollback(mark)
            return False
        self._budget -= len(slots)
        cluster.add(poor, node, "fairness")
        return True

    def _spare(self, rich: JobState, poor: JobState) -> int:
        is_above = rich.job.priority > poor.job.priority
        if rich is poor or is_above or not rich.surplus or is_cooling(rich, self._now_ms):
            return 0
        if rich.job.priority < poor.job.priority:
            return rich.surplus
        most, scoring = 0, self._cluster.scoring
        while most < rich.surplus and scoring.is_fairer(poor.job, poor.count, rich.job, rich.count - most):
            most += 1
        return most

    def _single(self, poor: JobState, allowed: dict[JobState, int]) -> Eviction | None:
        """Find one trainer whose room is enough: of the lowest priority, then of the richest job."""
        suited = set(self._cluster.nodes_of(poor.job.nodes, poor.bars))

        def rank(slot: TrainerSlot, node: NodeInfo) -> tuple[bool, int, int, EvictionOrder]:
            left = self._cluster.left_over(node, poor.amounts)
            return (slot.is_bound, self._cluster.spared(node, poor.amounts), left, slot.eviction_order)

        for rich in sorted(allowed, key=lambda state: (state.job.priority, -state.share, state.job.key)):
            frees = rich.job.trainer
            enough = {
                node
                for node in dict.fromkeys([slot.node for slot in rich.slots])
                if node in suited
                and all([node.later[resource] + frees[resource] >= part for resource, part in poor.amounts])
            }
            options = [
                (rank(slot, slot.node), slot.node, slot)
                for slot in rich.slots
                if slot.node is not None and slot.node in enough and placement.can_go(slot)
            ]
            if options:
                _, node, slot = min(options, key=lambda option: option[0])
                return node, (slot,)
        return None

    def _several(self, poor: JobState, allowed: dict[JobState, int]) -> Eviction | None:
        """Find a node where several smaller trainers together leave room enough."""
        if all(is_within(poor.amounts, state.amounts) for state in allowed):
            return None
        giving = {slot.node for state in allowed for slot in state.slots}
        best: tuple[Clearance, NodeInfo] | None = None
        for node in self._cluster.nodes_of(poor.job.nodes, poor.bars):
            if node not in giving:
                continue
            row = placement.clear(self._cluster, node, poor.amounts, lambda state: allowed.get(state, 0))
            is_possible = row is not None and 0 < len(row.slots) <= self._budget
            if row is not None and is_possible and (best is None or row[:4] < best[0][:4]):
                best = (row, node)
        return (best[1], best[0].slots) if best else None


# --- jobs whose trainers meet at one of them get that one back when it is lost ---


def restore_rendezvous(cluster: ClusterState) -> None:
    """Plan a trainer for each job that lacks its rendezvous, at need in place of another."""
    for state in cluster.states.values():
        job = state.job
        if not job.lacks_rendezvous or state.is_settled or any(slot.is_planned for slot in state.slots):
            continue
        node = None
        if state.count < job.maximum:
            node = placement.free_node(cluster, state.amounts, job.nodes, state.bars)
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


def jain(counts: Sequence[float]) -> float:
    """Give Jain's index of fairness: 1 for equal shares, 1/n when one has everything."""
    squares = sum(count * count for count in counts)
    return sum(counts) ** 2 / (len(counts) * squares) if squares else 1.0
