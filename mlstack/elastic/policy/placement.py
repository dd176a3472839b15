"""Where a pod goes: free places, what has to go for it elsewhere, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from mlstack.elastic.policy.state import (
    WHOLE,
    ClusterState,
    EvictionOrder,
    JobState,
    NodeInfo,
    NodeNames,
    Shape,
    TrainerSlot,
    count,
    dominant,
    fits,
    shape,
)
from mlstack.elastic.snapshot import Cause, Demand, Unplaced, Vector

CROWDED = 8
"""Entries for each node, void ones too, from which on the void ones are thrown away."""

Cost = Callable[[NodeInfo], tuple[int, ...] | None]
"""Gives the cost of a node, None where it will not do."""


class Ranking:
    """Nodes in order of a cost that is worked out anew only for nodes that changed.

    With `least` the cost depends on the jobs of their trainers too: nodes are ranked by that, the least that
    the cost can be, and the cost is worked out for the first one alone. As long as nothing is taken back,
    jobs only lose what they can spare, and costs rise; afterwards, the nodes of all jobs that changed are
    ranked anew. (Where another job has become the richest, its trainers may happen to leave less waste than
    those that went before: that is not looked for.)
    """

    def __init__(
        self, cluster: ClusterState, nodes: list[NodeInfo], cost: Cost, least: Cost | None = None
    ) -> None:
        self._cluster, self.cost, self.least = cluster, cost, least
        self.nodes = {node.index: node for node in nodes}
        self._rank = least or cost
        self._seen, self._seen_jobs = len(cluster.log), len(cluster.changed)
        self._epoch = cluster.epoch
        self._last = dict.fromkeys(self.nodes, 0)
        ranks = self._first_ranks(nodes)
        self._heap = [(rank, index, 0) for rank, index in ranks if rank is not None]
        heapify(self._heap)

    def _first_ranks(self, nodes: list[NodeInfo]) -> Iterator[tuple[tuple[int, ...] | None, int]]:
        """Give ranks and indexes, worked out once for all nodes that are alike and without trainers."""
        alike: dict[int, tuple[int, ...] | None] = {}
        for node in nodes:
            if node.states:
                yield self._rank(node), node.index
            else:
                kind = self._cluster.kind(node)
                if kind not in alike:
                    alike[kind] = self._rank(node)
                yield alike[kind], node.index

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
                    self._enter(index, self._rank(node))
            self._seen = len(cluster.log)
            if len(self._heap) > CROWDED * len(self._last):
                self._heap = [entry for entry in self._heap if entry[2] == self._last[entry[1]]]
                heapify(self._heap)
        if self.least is not None and self._epoch != cluster.epoch:
            states = dict.fromkeys(cluster.changed[self._seen_jobs :])
            self._epoch, self._seen_jobs = cluster.epoch, len(cluster.changed)
            for node in dict.fromkeys([slot.node for state in states for slot in state.slots]):
                if node is not None and node.index in self.nodes:
                    self._enter(node.index, self._rank(node))

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
            if self.least is None or (cost := self.cost(node)) == rank:
                return node
            heappop(heap)
            self._enter(index, cost)
        return None


def free_cost(cluster: ClusterState, node: NodeInfo, amounts: Shape) -> tuple[int, ...] | None:
    """Give the cost of a free place: spared devices, room at once before room to come, best fit."""
    later, now, whole, tier, left = node.later, node.now, cluster.whole, 0, 0
    for resource, amount in amounts:  # as in `left_over`, here on the way: asked most often of all
        rest = later[resource] - amount
        if rest < 0:
            return None
        if now[resource] < amount:
            tier = 1
        left += rest * WHOLE // whole[resource]
    return (cluster.spared(node, amounts) if node.devices else 0, tier, left)


# --- which trainers of one node have to go so that a pod fits ---

Allowance = Callable[[JobState], int]


class Clearance(NamedTuple):
    """What it takes to make room on a node."""

    priority: int  # the highest priority of a job that loses a trainer
    evictions: int  # bound trainers that go
    waste: int  # share of the left-over that fits nothing
    negative_share: int  # minus the share of the poorest job that loses a trainer
    slots: tuple[TrainerSlot, ...]  # the trainers, none if there is room already


_FREE = Clearance(-(1 << 62), 0, 0, 0, ())


def surplus_up_to(priority: int) -> Allowance:
    """Give the allowance of all trainers above the minimum, of jobs up to a priority among jobs."""
    return lambda state: state.surplus if state.job.priority <= priority else 0


def surplus_under_pods(priority: int) -> Allowance:
    """Give the allowance of all trainers above the minimum, of jobs whose pods have at most this priority."""
    return lambda state: state.surplus if state.job.pod_priority <= priority else 0


def can_go(slot: TrainerSlot, gone: int = 0) -> bool:
    """Tell whether so many others of its job run that the job does not fall below its minimum meanwhile.

    The one at which the others meet never goes while the job goes on.
    """
    if slot.is_meeting:
        return False
    return not slot.is_bound or slot.state.bound - gone > slot.state.job.minimum


def clear(cluster: ClusterState, node: NodeInfo, amounts: Shape, allow: Allowance) -> Clearance | None:
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
        if chosen := _single(node, allowed, priority, short) or _several(node, allowed, priority, short):
            return _cost(cluster, node, amounts, chosen)
    return None


def least(node: NodeInfo, amounts: Shape, allow: Allowance) -> tuple[int, int, int, int] | None:
    """Give a clearance without its slots that is no dearer than the one `clear` finds, None if it finds none.

    There may be none all the same.
    """
    later = node.later
    short = [(resource, amount - later[resource]) for resource, amount in amounts if later[resource] < amount]
    if not short:
        return _FREE[:4]
    if not fits(node.lifted, amounts):
        return None
    states = [state for state in node.states if allow(state) > 0]
    taken = 1
    for resource, amount in short:
        most = max([state.job.trainer[resource] for state in states], default=0)
        if not most:
            return None
        taken = max(taken, -(-amount // most))
    priority = min([state.job.priority for state in states])
    return (priority, max(0, taken - node.unbound), 0, -max([state.share for state in states]))


def _single(
    node: NodeInfo, allowed: dict[JobState, int], priority: int, short: list[tuple[int, int]]
) -> list[TrainerSlot]:
    """Find one trainer of a priority whose room is enough, none if there is none."""
    best: tuple[bool, int, EvictionOrder, str] | None = None
    chosen: list[TrainerSlot] = []
    for state in allowed:
        if state.job.priority == priority and fits(state.job.trainer, short):
            for slot in node.states[state]:
                rank = (slot.is_bound, -state.share, slot.eviction_order, state.job.key)
                if (best is None or rank < best) and can_go(slot):
                    best, chosen = rank, [slot]
    return chosen


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
        number = max([_times(amount, frees[resource], len(slots)) for resource, amount in left.items()])
        going = slots[:number]
        taken.append((state, going))
        left = {resource: amount - len(going) * frees[resource] for resource, amount in left.items()}
        if max(left.values()) <= 0:
            return _pruned(taken, left)
    return []


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
        unbound: list[TrainerSlot] = []
        bound: list[TrainerSlot] = []
        for slot in node.states[state]:
            if not slot.is_meeting:
                (bound if slot.is_bound else unbound).append(slot)
        sparing = min(most - len(unbound), state.bound - state.job.minimum)
        for group, number in ((unbound, most), (bound, sparing)):
            if group and number > 0:
                standing = (state.job.priority, group is bound, -state.share, state.job.key)
                groups.append((standing, state, group, number))
    for _, state, slots, number in sorted(groups, key=lambda group: group[0]):
        yield state, sorted(slots, key=lambda slot: slot.eviction_order)[:number]


def _times(amount: int, size: int, most: int) -> int:
    """Give how many of a size make up an amount, `most` where none does."""
    if amount <= 0:
        return 0
    return -(-amount // size) if size else most


def _pruned(taken: list[tuple[JobState, list[TrainerSlot]]], left: dict[int, int]) -> list[TrainerSlot]:
    """Drop trainers that are not needed after all, the dearest first; `left` is minus what is too much."""
    needed: list[TrainerSlot] = []
    for state, slots in reversed(taken):
        frees = state.job.trainer
        spare = min([-amount // frees[resource] for resource, amount in left.items() if frees[resource]])
        kept = max(0, len(slots) - spare)
        left = {resource: amount + (len(slots) - kept) * frees[resource] for resource, amount in left.items()}
        needed[:0] = slots[:kept]
    return needed


def _cost(cluster: ClusterState, node: NodeInfo, amounts: Shape, chosen: list[TrainerSlot]) -> Clearance:
    room = list(node.later)
    priority, share, evictions = -(1 << 62), 1 << 62, 0
    for slot in chosen:
        state = slot.state
        for resource, amount in state.amounts:
            room[resource] += amount
        priority, share = max(priority, state.job.priority), min(share, state.share)
        evictions += slot.is_bound
    for resource, amount in amounts:
        room[resource] -= amount
    return Clearance(priority, evictions, cluster.waste(room, amounts), -share, tuple(chosen))


# --- places for masters and parameter servers: where they cost the fewest places for trainers ---
# A 4-core parameter server takes one 5-core trainer's place on an empty node of 24 cores, a second one
# beside it takes none: pods that stay for long are better put where the remainder is used, and where one
# costs as much as elsewhere, it goes where the next one costs least. Nodes are judged as if their trainers
# were lifted, because trainers can be moved and these pods cannot.

Loss = tuple[int, int]

# What a further pod costs where none fits.
_TOO_MUCH = (1 << 62, 1 << 62)


class SlotLoss:
    """What a pod beside trainers costs on a node, counted in places for trainers."""

    def __init__(
        self, trainer: Shape, companion: Shape, amounts: Shape, whole: list[int], values: dict[Vector, int]
    ) -> None:
        self._trainer = trainer
        self._companion = companion
        self._worth = dominant(companion, whole) * 1000 // max(1, dominant(trainer, whole))
        self._amounts = amounts
        beside = dict(companion)
        self._pair = [
            (resource, amount, beside[resource]) for resource, amount in trainer if resource in beside
        ]
        self._values = values
        self._known: dict[Vector, tuple[Loss, Loss]] = {}

    def of(self, room: list[int]) -> tuple[Loss, Loss]:
        """Give what the pod costs in a room, and what a further one like it would cost beside it.

        Each in thousandths of a place, gang pods counted, and in whole places.
        """
        key = tuple(room)
        if (known := self._known.get(key)) is None:
            rest = self._less(room)
            further = self._between(rest, self._less(rest)) if fits(rest, self._amounts) else _TOO_MUCH
            known = self._known[key] = (self._between(room, rest), further)
        return known

    def _less(self, room: list[int]) -> list[int]:
        rest = list(room)
        for resource, amount in self._amounts:
            rest[resource] -= amount
        return rest

    def _between(self, room: list[int], rest: list[int]) -> Loss:
        places = count(room, self._trainer) - count(rest, self._trainer)
        return (self._value(tuple(room)) - self._value(tuple(rest)), places)

    def _value(self, room: Vector) -> int:
        """Give the most that trainers and companions together are worth in a room."""
        if (known := self._values.get(room)) is not None:
            return known
        best, worth = 0, self._worth
        most = count(room, self._companion) if worth else 0
        rows = [(room[resource], amount, beside) for resource, amount, beside in self._pair]
        for places in range(1 + (count(room, self._trainer) if self._trainer else 0)):
            companions = most
            for free, amount, beside in rows:
                found = (free - places * amount) // beside
                if found < companions:
                    companions = found
            value = companions * worth + 1000 * places
            if value > best:
                best = value
        self._values[room] = best
        return best


# --- the cluster together with the searches in it, and the three ways to give a pod a place ---


class Transaction:
    """All that the steps of a plan share."""

    def __init__(self, cluster: ClusterState) -> None:
        self.cluster = cluster
        self.unplaced: dict[str, Unplaced] = {}  # what found no place so far, by key
        self._rankings: dict[Hashable, Ranking] = {}
        self._losses: dict[Hashable, SlotLoss] = {}
        self._values: dict[Hashable, dict[Vector, int]] = {}
        self._free: dict[tuple[NodeNames, int], list[int]] = {}

    def _ranked(
        self,
        key: Hashable,
        node_names: NodeNames,
        barred: frozenset[str],
        cost: Cost,
        least: Cost | None = None,
    ) -> Ranking:
        """Give the ranking of some nodes, without those that are barred, that `key` tells from others."""
        whole = (key, node_names, barred)
        if (ranking := self._rankings.get(whole)) is None:
            nodes = self.cluster.nodes_of(node_names, barred)
            ranking = self._rankings[whole] = Ranking(self.cluster, nodes, cost, least)
        return ranking

    def free_node(
        self, amounts: Shape, node_names: NodeNames, barred: frozenset[str] = frozenset()
    ) -> NodeInfo | None:
        """Give the best node with room for a pod, None if there is none."""
        ranking = self._ranked(
            ("free", amounts), node_names, barred, lambda node: free_cost(self.cluster, node, amounts)
        )
        return ranking.best()

    def node_to_clear(
        self, amounts: Shape, node_names: NodeNames, barred: frozenset[str], allow: Allowance, key: Hashable
    ) -> NodeInfo | None:
        """Give the node where making room hurts least, None if there is none.

        `key` tells this allowance from others; it may only get stricter while room is made.
        """

        def cost(node: NodeInfo) -> tuple[int, ...] | None:
            found = clear(self.cluster, node, amounts, allow)
            return None if found is None else found[:4]

        ranking = self._ranked(
            ("clear", amounts, key), node_names, barred, cost, lambda node: least(node, amounts, allow)
        )
        return ranking.best()

    def node_for_server(
        self,
        state: JobState,
        amounts: Shape,
        node_names: NodeNames,
        allow: Allowance,
        *,
        is_late: bool,
    ) -> NodeInfo | None:
        """Give the node where a master or parameter server costs the fewest places for trainers."""
        companion = shape(max(state.job.gang, key=lambda role: role.count).request) if state.job.gang else ()
        kind = (state.amounts, companion, amounts)
        if (loss := self._losses.get(kind)) is None:
            values = self._values.setdefault(kind[:2], {})
            loss = self._losses[kind] = SlotLoss(*kind, self.cluster.whole, values)

        def price(node: NodeInfo, taken: int, evictions: int, share: int) -> tuple[int, ...]:
            spared, left = self.cluster.spared(node, amounts), self.cluster.left_over(node, amounts)
            lost, further = loss.of(node.lifted)
            return (taken if is_late else 0, spared, *lost, *further, evictions, share, left)

        def at_least(node: NodeInfo) -> tuple[int, ...] | None:
            found = least(node, amounts, allow)
            return None if found is None else price(node, found[1], found[1], found[3])

        def cost(node: NodeInfo) -> tuple[int, ...] | None:
            found = clear(self.cluster, node, amounts, allow)
            return (
                None
                if found is None
                else price(node, len(found.slots), found.evictions, found.negative_share)
            )

        key = ("server", kind, state.job.priority, is_late)
        barred = frozenset[str]() if is_late else state.bars
        return self._ranked(key, node_names, barred, cost, at_least).best()

    def free_in_all(self, node_names: NodeNames) -> list[int]:
        """Give what is free on all these nodes together."""
        key = (node_names, len(self.cluster.log))
        if key not in self._free:
            nodes = self.cluster.nodes_of(node_names)
            size = range(len(self.cluster.snapshot.resources))
            self._free[key] = [sum(node.later[resource] for node in nodes) for resource in size]
        return self._free[key]

    def _make_room(self, node: NodeInfo, amounts: Shape, allow: Allowance, cause: Cause, whom: str) -> None:
        clearance = clear(self.cluster, node, amounts, allow)
        for slot in clearance.slots if clearance else ():
            self.cluster.evict(slot, cause, whom)

    def place_foreign(self, demand: Demand) -> bool:
        """Find room for a pod of others, at need by taking trainers above a minimum; tell whether."""
        amounts = shape(demand.request)
        node = self.free_node(amounts, demand.nodes)
        if node is None:
            allow = surplus_under_pods(demand.priority)
            key = ("pods", demand.priority)
            node = self.node_to_clear(amounts, demand.nodes, frozenset(), allow, key)
            if node is None:
                return False
            self._make_room(node, amounts, allow, "yield", demand.key)
        self.cluster.reserve(node, demand.request, demand.key)
        return True

    def place_server(
        self, state: JobState, request: Vector, node_names: NodeNames, key: str, *, is_late: bool = False
    ) -> NodeInfo | None:
        """Find room for a master or parameter server where it costs the fewest places for trainers.

        One that `is_late` is there already: then rather where no trainer has to go, and on nodes too that are
        passed over, since it may be tied to one.
        """
        amounts, allow = shape(request), surplus_up_to(state.job.priority)
        node = self.node_for_server(state, amounts, node_names, allow, is_late=is_late)
        if node is not None:
            self._make_room(node, amounts, allow, "gang", state.job.key)
            self.cluster.reserve(node, request, key, owner=state.job.key)
        return node

    def place_trainer(self, state: JobState, node_names: NodeNames, cause: Cause) -> bool:
        """Find room for a trainer of a job's minimum; tell whether there is."""
        node = self.free_node(state.amounts, node_names, state.bars)
        if node is None:
            allow = surplus_up_to(state.job.priority)
            key = ("jobs", state.job.priority)
            node = self.node_to_clear(state.amounts, node_names, state.bars, allow, key)
            if node is None:
                return False
            self._make_room(node, state.amounts, allow, "gang", state.job.key)
        self.cluster.add(state, node, cause)
        return True
