"""Where a pod goes: free places, what has to go for it elsewhere, what that costs, how many there can be."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import cache
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from mlstack.dataclass import dataclass
from mlstack.elastic.policy.state import (
    WHOLE,
    ClusterState,
    EvictionOrder,
    JobState,
    NodeInfo,
    Sparse,
    TrainerSlot,
    count,
    dominant,
    fits,
    sparse,
)
from mlstack.elastic.snapshot import Demand, NodeNames, ScaleCause, Vector

CROWDED = 8  # entries for each node, void ones too, from which on the void ones are thrown away
Cost = Callable[[NodeInfo], tuple[int, ...] | None]  # gives the cost of a node, None where it will not do


class Ranking:
    """Nodes in order of a cost that is worked out anew only for nodes that changed.

    A cost that is `of_jobs` depends on the jobs of their trainers too. As long as nothing is taken back, jobs
    only lose what they can spare, and costs rise: that of the first node is worked out again. Afterwards, the
    nodes of all jobs that changed are ranked anew. (Where another job has become the richest, its trainers
    may happen to leave less waste than those that went before: that is not looked for.)
    """

    def __init__(self, cluster: ClusterState, nodes: list[NodeInfo], cost: Cost, *, of_jobs: bool) -> None:
        self._cluster, self.cost, self._of_jobs = cluster, cost, of_jobs
        self.nodes = {node.index: node for node in nodes}
        self._seen, self._seen_jobs = len(cluster.log), len(cluster.changed)
        self._epoch = cluster.epoch
        self._last = dict.fromkeys(self.nodes, 0)
        self._heap = [(rank, node.index, 0) for node in nodes if (rank := cost(node)) is not None]
        heapify(self._heap)

    def _enter(self, index: int, rank: tuple[int, ...] | None) -> None:
        """Rank a node anew; what was entered for it before is void."""
        self._last[index] += 1
        if rank is not None:
            heappush(self._heap, (rank, index, self._last[index]))

    def _catch_up(self) -> None:
        """Rank nodes again that changed, or of whose jobs one changed and may have more to spare."""
        cluster = self._cluster
        if self._seen != len(cluster.log):
            for index in dict.fromkeys(cluster.log[self._seen :]):
                if (node := self.nodes.get(index)) is not None:
                    self._enter(index, self.cost(node))
            self._seen = len(cluster.log)
            if len(self._heap) > CROWDED * len(self._last):
                self._heap = [entry for entry in self._heap if entry[2] == self._last[entry[1]]]
                heapify(self._heap)
        if self._of_jobs and self._epoch != cluster.epoch:
            states = dict.fromkeys(cluster.changed[self._seen_jobs :])
            self._epoch, self._seen_jobs = cluster.epoch, len(cluster.changed)
            for changed in dict.fromkeys([slot.node for state in states for slot in state.slots]):
                if changed is not None and changed.index in self.nodes:
                    self._enter(changed.index, self.cost(changed))

    def best(self) -> NodeInfo | None:
        """Give the node of least cost, None if none will do."""
        self._catch_up()
        heap, last = self._heap, self._last
        while heap:
            rank, index, number = heap[0]
            if number != last[index]:
                heappop(heap)
                continue
            node = self.nodes[index]
            if not self._of_jobs or (cost := self.cost(node)) == rank:
                return node
            heappop(heap)
            self._enter(index, cost)
        return None


def best_node(
    cluster: ClusterState,
    key: Hashable,
    node_names: NodeNames,
    barred: frozenset[str],
    cost: Cost,
    *,
    of_jobs: bool = False,
) -> NodeInfo | None:
    """Give the node of least cost, None if none will do; `key` tells the cost from others."""
    whole = ("ranking", key, node_names, barred)
    ranking: Ranking | None = cluster.searches.get(whole)
    if ranking is None:
        nodes = cluster.nodes_of(node_names, barred)
        ranking = cluster.searches[whole] = Ranking(cluster, nodes, cost, of_jobs=of_jobs)
    return ranking.best()


def free_node(
    cluster: ClusterState, amounts: Sparse, node_names: NodeNames, barred: frozenset[str] = frozenset()
) -> NodeInfo | None:
    """Give the best node with room for a pod: spared devices, room at once before room to come, best fit."""

    def cost(node: NodeInfo) -> tuple[int, ...] | None:
        if not fits(node.later, amounts):
            return None
        is_late = not fits(node.now, amounts)
        return (cluster.spared(node, amounts), is_late, cluster.left_over(node, amounts))

    return best_node(cluster, ("free", amounts), node_names, barred, cost)


# --- which trainers of one node have to go so that a pod fits ---

Allowance = Callable[[JobState], int]  # gives how many trainers a job may lose


@dataclass(frozen=True)
class SurplusUpTo:
    """The allowance of all trainers above the minimum, of jobs up to a priority."""

    priority: int
    is_of_pods: bool = False  # whether the priority of their pods counts, not that of the jobs

    def __call__(self, state: JobState) -> int:
        """Give how many trainers a job may lose."""
        priority = state.job.pod_priority if self.is_of_pods else state.job.priority
        return state.surplus if priority <= self.priority else 0


class Clearance(NamedTuple):
    """What it takes to make room on a node."""

    priority: int  # the highest priority of a job that loses a trainer
    evictions: int  # bound trainers that go
    waste: int  # share of the left-over that fits nothing
    negative_share: int  # minus the share of the poorest job that loses a trainer
    slots: tuple[TrainerSlot, ...]  # the trainers, none if there is room already


_FREE = Clearance(-(1 << 62), 0, 0, 0, ())


def can_go(slot: TrainerSlot) -> bool:
    """Tell whether a trainer may go: its job keeps a running minimum, and the rendezvous."""
    if slot.is_rendezvous:
        return False
    return not slot.is_bound or slot.state.bound > slot.state.job.minimum


def clear(cluster: ClusterState, node: NodeInfo, amounts: Sparse, allow: Allowance) -> Clearance | None:
    """Find the trainers of a node that have to go so that a pod fits, None if that does not help.

    Trainers of the lowest priority go first, then those of the richest job; one that is enough is taken
    rather than several.
    """
    later = node.later
    short = [(resource, amount - later[resource]) for resource, amount in amounts if later[resource] < amount]
    if not short:
        return _FREE
    if not fits(node.lifted, amounts):
        return None
    allowed = {state: most for state in node.states if (most := allow(state)) > 0}
    for priority in sorted({state.job.priority for state in allowed}):
        chosen = _single(node, allowed, priority, short) or _several(node, allowed, priority, short)
        if not chosen:
            continue
        room = list(later)
        for resource, amount in amounts:
            room[resource] -= amount
        for slot in chosen:
            for resource, amount in slot.state.amounts:
                room[resource] += amount
        is_useful = any(fits(room, kind) for kind in cluster.shapes)
        waste = [room[resource] * WHOLE // cluster.whole[resource] for resource, _ in amounts]
        return Clearance(
            priority=max([slot.state.job.priority for slot in chosen]),
            evictions=sum([slot.is_bound for slot in chosen]),
            waste=0 if is_useful else sum(waste),
            negative_share=-min([slot.state.share for slot in chosen]),
            slots=tuple(chosen),
        )
    return None


def _single(
    node: NodeInfo, allowed: dict[JobState, int], priority: int, short: list[tuple[int, int]]
) -> list[TrainerSlot]:
    slots = [
        slot
        for state in allowed
        if state.job.priority == priority and fits(state.job.trainer, short)
        for slot in node.states[state]
        if can_go(slot)
    ]

    def rank(slot: TrainerSlot) -> tuple[bool, int, EvictionOrder, str]:
        return (slot.is_bound, -slot.state.share, slot.eviction_order, slot.state.job.key)

    return [min(slots, key=rank)] if slots else []


def _several(
    node: NodeInfo, allowed: dict[JobState, int], priority: int, short: list[tuple[int, int]]
) -> list[TrainerSlot]:
    """Find trainers up to a priority that together leave room enough, none if they do not."""
    taken: list[tuple[JobState, list[TrainerSlot]]] = []
    left = dict(short)
    for state, slots in _groups(node, allowed, priority):
        frees = state.job.trainer
        if not any([frees[resource] for resource in left]):
            continue
        number = 0
        for resource, amount in left.items():
            if amount > 0:
                number = max(number, -(-amount // frees[resource]) if frees[resource] else len(slots))
        going = slots[:number]
        taken.append((state, going))
        left = {resource: amount - len(going) * frees[resource] for resource, amount in left.items()}
        if max(left.values()) <= 0:
            break
    else:
        return []
    needed: list[TrainerSlot] = []  # without those that are not needed after all, the dearest first
    for state, slots in reversed(taken):
        frees = state.job.trainer
        spare = min([-amount // frees[resource] for resource, amount in left.items() if frees[resource]])
        kept = max(0, len(slots) - spare)
        left = {resource: amount + (len(slots) - kept) * frees[resource] for resource, amount in left.items()}
        needed[:0] = slots[:kept]
    return needed


def _groups(
    node: NodeInfo, allowed: dict[JobState, int], priority: int
) -> Iterator[tuple[JobState, list[TrainerSlot]]]:
    """Give the trainers of each job that may go together, in the order in which they go.

    The lowest priority comes first, in it those that no pod runs for yet, then the richest job.
    """
    groups: list[tuple[tuple[int, bool, int, str], JobState, list[TrainerSlot], int]] = []
    for state, most in allowed.items():
        if state.job.priority > priority:
            continue
        slots = [slot for slot in node.states[state] if not slot.is_rendezvous]
        bound = [slot for slot in slots if slot.is_bound]
        unbound = [slot for slot in slots if not slot.is_bound]
        sparing = min(most - len(unbound), state.bound - state.job.minimum)
        for group, number in ((unbound, most), (bound, sparing)):
            if group and number > 0:
                rank = (state.job.priority, group is bound, -state.share, state.job.key)
                groups.append((rank, state, group, number))
    for _, state, slots, number in sorted(groups, key=lambda group: group[0]):
        yield state, sorted(slots, key=lambda slot: slot.eviction_order)[:number]


# --- places for masters and parameter servers: where they cost the fewest places for trainers ---
# A 4-core parameter server takes one 5-core trainer's place on an empty node of 24 cores, a second one
# beside it takes none: pods that stay for long are better put where the remainder is used, and where one
# costs as much as elsewhere, it goes where the next one costs least. Nodes are judged as if their trainers
# were lifted, because trainers can be moved and these pods cannot.


def slot_loss(
    trainer: Sparse, companion: Sparse, amounts: Sparse, whole: list[int]
) -> Callable[[Vector], tuple[int, int, int, int]]:
    """Give a function of a room: what a pod costs there, and what a further one like it would cost beside it.

    Each in thousandths of a place for a trainer, gang pods counted, and in whole places.
    """
    worth = dominant(companion, whole) * 1000 // max(1, dominant(trainer, whole))
    beside = dict(companion)
    pairs = [(resource, amount, beside[resource]) for resource, amount in trainer if resource in beside]

    @cache
    def value(room: Vector) -> int:
        """Give the most that trainers and companions together are worth in a room."""
        best, most = 0, count(room, companion) if worth else 0
        rows = [(room[resource], amount, beside) for resource, amount, beside in pairs]
        for places in range(1 + (count(room, trainer) if trainer else 0)):
            companions = most
            for free, amount, beside in rows:
                number = (free - places * amount) // beside
                if number < companions:
                    companions = number
            best = max(best, companions * worth + 1000 * places)
        return best

    def less(room: Vector) -> Vector:
        asked = dict(amounts)
        return tuple([part - asked.get(resource, 0) for resource, part in enumerate(room)])

    @cache
    def loss(room: Vector) -> tuple[int, int, int, int]:
        rest = less(room)
        further = less(rest)
        later = (1 << 62, 1 << 62)  # where none fits
        if fits(rest, amounts):
            later = (value(rest) - value(further), count(rest, trainer) - count(further, trainer))
        return (value(room) - value(rest), count(room, trainer) - count(rest, trainer), *later)

    return loss


# --- the three ways to give a pod a place ---


def place_foreign(cluster: ClusterState, demand: Demand) -> bool:
    """Find room for a pod of others, at need by taking trainers above a minimum; tell whether."""
    amounts, allow = sparse(demand.request), SurplusUpTo(demand.priority, is_of_pods=True)
    node = find_room(cluster, amounts, demand.nodes, frozenset(), allow, ("yield", demand.key))
    if node is not None:
        cluster.reserve(node, demand.request, demand.key)
    return node is not None


def place_server(
    cluster: ClusterState,
    state: JobState,
    request: Vector,
    node_names: NodeNames,
    key: str,
    *,
    is_late: bool = False,
) -> NodeInfo | None:
    """Find room for a server where it costs the fewest places for trainers.

    One that `is_late` is there already: rather where no trainer has to go, and on barred nodes too.
    """
    amounts, allow = sparse(request), SurplusUpTo(state.job.priority)
    companion = sparse(max(state.job.gang, key=lambda role: role.count).request) if state.job.gang else ()
    kind = (state.amounts, companion, amounts)
    if (loss := cluster.searches.get(("loss", kind))) is None:
        loss = cluster.searches["loss", kind] = slot_loss(*kind, cluster.whole)

    def cost(node: NodeInfo) -> tuple[int, ...] | None:
        row = clear(cluster, node, amounts, allow)
        if row is None:
            return None
        taken = (len(row.slots) if is_late else 0, cluster.spared(node, amounts))
        left = cluster.left_over(node, amounts)
        return (*taken, *loss(tuple(node.lifted)), row.evictions, row.negative_share, left)

    barred = frozenset[str]() if is_late else state.bars
    search = ("server", kind, state.job.priority, is_late)
    node = best_node(cluster, search, node_names, barred, cost, of_jobs=True)
    if node is not None:
        _make_room(cluster, node, amounts, allow, ("gang", state.job.key))
        cluster.reserve(node, request, key, owner=state.job.key)
    return node


def place_trainer(cluster: ClusterState, state: JobState, node_names: NodeNames, cause: ScaleCause) -> bool:
    """Find room for a trainer of a job's minimum; tell whether there is."""
    amounts, allow = state.amounts, SurplusUpTo(state.job.priority)
    node = find_room(cluster, amounts, node_names, state.bars, allow, ("gang", state.job.key))
    if node is not None:
        cluster.add(state, node, cause)
    return node is not None


def find_room(
    cluster: ClusterState,
    amounts: Sparse,
    node_names: NodeNames,
    barred: frozenset[str],
    allow: SurplusUpTo,
    why: tuple[ScaleCause, str],
) -> NodeInfo | None:
    """Give the best node with room, or make it where it hurts least, for this cause and in favour of whom."""
    if (node := free_node(cluster, amounts, node_names, barred)) is not None:
        return node

    def cost(node: NodeInfo) -> tuple[int, ...] | None:
        clearance = clear(cluster, node, amounts, allow)
        return None if clearance is None else clearance[:4]

    node = best_node(cluster, ("clear", amounts, allow), node_names, barred, cost, of_jobs=True)
    if node is not None:
        _make_room(cluster, node, amounts, allow, why)
    return node


def _make_room(
    cluster: ClusterState, node: NodeInfo, amounts: Sparse, allow: Allowance, why: tuple[ScaleCause, str]
) -> None:
    clearance = clear(cluster, node, amounts, allow)
    for slot in clearance.slots if clearance else ():
        cluster.evict(slot, *why)


def givers(cluster: ClusterState, state: JobState) -> set[JobState]:
    """Give the jobs that may lose trainers to a job."""
    states, priority = cluster.states.values(), state.job.priority
    return {other for other in states if other.surplus and other.job.priority <= priority}
