"""The best free place for a pod, found without looking at every node again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, NamedTuple, TypeVar

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

# --- The best free place for a pod, found without looking at every node again ---

C = TypeVar("C", bound=tuple[int, ...])


CROWDED = 8
"""Entries for each node, void ones too, from which on the void ones are thrown away."""


class Ranking(ABC, Generic[C]):
    """Nodes in order of a cost that is worked out anew only for nodes that changed."""

    def __init__(self, cluster: ClusterState, nodes: list[NodeInfo]) -> None:
        self._cluster = cluster
        self._nodes = {node.index: node for node in nodes}
        self._seen = len(cluster.log)
        self._last = dict.fromkeys(self._nodes, 0)
        costs = self._first_ranks(nodes)
        self._heap = [(cost, index, 0) for cost, index in costs if cost is not None]
        heapify(self._heap)

    @abstractmethod
    def cost(self, node: NodeInfo) -> C | None:
        """Give the cost of a node, None where it will not do."""

    def rank(self, node: NodeInfo) -> C | None:
        """Give what a node is ranked by: its cost."""
        return self.cost(node)

    def _first_ranks(self, nodes: list[NodeInfo]) -> Iterator[tuple[C | None, int]]:
        """Give ranks and indexes, worked out once for all nodes that are alike and without trainers."""
        alike: dict[int, C | None] = {}
        for node in nodes:
            if node.states:
                yield self.rank(node), node.index
            elif (kind := self._cluster.kind(node)) in alike:
                yield alike[kind], node.index
            else:
                alike[kind] = rank = self.rank(node)
                yield rank, node.index

    def _enter(self, index: int, cost: C | None) -> None:
        """Rank a node by a new cost; what was entered for it before is void."""
        self._last[index] += 1
        if cost is not None:
            heappush(self._heap, (cost, index, self._last[index]))

    def catch_up(self) -> None:
        """Rank those nodes again that changed."""
        log = self._cluster.log
        if self._seen == len(log):
            return
        for index in dict.fromkeys(log[self._seen :]):
            if (node := self._nodes.get(index)) is not None:
                self._enter(index, self.rank(node))
        self._seen = len(log)
        if len(self._heap) > CROWDED * len(self._last):
            self._heap = [entry for entry in self._heap if entry[2] == self._last[entry[1]]]
            heapify(self._heap)

    def _first(self) -> tuple[C, int, int] | None:
        """Give the entry of least cost that is not void."""
        heap, last = self._heap, self._last
        while heap and heap[0][2] != last[heap[0][1]]:
            heappop(heap)
        return heap[0] if heap else None

    def best(self) -> NodeInfo | None:
        """Give the node of least cost, None if none will do."""
        self.catch_up()
        first = self._first()
        return self._nodes[first[1]] if first else None


class Contest(Ranking[C]):
    """Nodes in order of a cost that depends on their trainers' jobs too.

    Nodes are ranked by the least that the cost can be, and it is worked out for the first one alone. As
    long as nothing is taken back, jobs only lose what they can spare, and costs rise; afterwards, the nodes
    of all jobs that changed are ranked anew. (Where another job has become the richest, its trainers may
    happen to leave less waste than those that went before: that is not looked for.)
    """

    @abstractmethod
    def rank(self, node: NodeInfo) -> C | None:
        """Give a cost that is not higher than that of a node, None where it will not do."""

    def __init__(self, cluster: ClusterState, nodes: list[NodeInfo]) -> None:
        super().__init__(cluster, nodes)
        self._epoch, self._changed = cluster.epoch, len(cluster.changed)

    def catch_up(self) -> None:
        """Rank nodes again that changed, or of whose jobs one changed and may have more to spare."""
        super().catch_up()
        cluster = self._cluster
        if self._epoch == cluster.epoch:
            return
        states = dict.fromkeys(cluster.changed[self._changed :])
        self._epoch, self._changed = cluster.epoch, len(cluster.changed)
        for node in dict.fromkeys([slot.node for state in states for slot in state.slots]):
            if node is not None and node.index in self._nodes:
                self._enter(node.index, self.rank(node))

    def best(self) -> NodeInfo | None:
        """Give the node of least cost, None if none will do."""
        self.catch_up()
        while (first := self._first()) is not None:
            node = self._nodes[first[1]]
            if (cost := self.cost(node)) == first[0]:
                return node
            heappop(self._heap)
            self._enter(node.index, cost)
        return None


class Places(Ranking[tuple[int, int, int]]):
    """Free places for one kind of pod: spared devices, room at once before room to come, best fit."""

    def __init__(self, cluster: ClusterState, nodes: list[NodeInfo], amounts: Shape) -> None:
        self._amounts = amounts
        self._whole = cluster.whole
        super().__init__(cluster, nodes)

    def cost(self, node: NodeInfo) -> tuple[int, int, int] | None:
        """Give the cost of a node, None where the pod does not fit."""
        later, now, whole, tier, left = node.later, node.now, self._whole, 0, 0
        for each, amount in self._amounts:  # as in `left_over`, here on the way: asked most often of all
            rest = later[each] - amount
            if rest < 0:
                return None
            if now[each] < amount:
                tier = 1
            left += rest * WHOLE // whole[each]
        return (self._cluster.spared(node, self._amounts) if node.devices else 0, tier, left)


class PlaceFinder:
    """Free places for all kinds of pods of one plan."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._rankings: dict[tuple[Shape, frozenset[str] | None, frozenset[str]], Places] = {}

    def find(
        self, amounts: Shape, node_names: NodeNames, barred: frozenset[str] = frozenset()
    ) -> NodeInfo | None:
        """Give the best node with room for a pod, None if there is none."""
        key = (amounts, node_names, barred)
        ranking = self._rankings.get(key)
        if ranking is None:
            ranking = Places(self._cluster, self._cluster.nodes_of(node_names, barred), amounts)
            self._rankings[key] = ranking
        return ranking.best()


# --- Which trainers of one node have to go so that a pod fits, and on which node that hurts least ---

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
    short = [(each, amount - later[each]) for each, amount in amounts if later[each] < amount]
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
    short = [(each, amount - later[each]) for each, amount in amounts if later[each] < amount]
    if not short:
        return _FREE[:4]
    if not fits(node.lifted, amounts):
        return None
    states = [state for state in node.states if allow(state) > 0]
    taken = 1
    for each, amount in short:
        most = max([state.job.trainer[each] for state in states], default=0)
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
        if not any([frees[each] for each in left]):
            continue
        number = max([_times(amount, frees[each], len(slots)) for each, amount in left.items()])
        going = slots[:number]
        taken.append((state, going))
        left = {each: amount - len(going) * frees[each] for each, amount in left.items()}
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
        for each, number in ((unbound, most), (bound, sparing)):
            if each and number > 0:
                standing = (state.job.priority, each is bound, -state.share, state.job.key)
                groups.append((standing, state, each, number))
    for _, state, slots, number in sorted(groups, key=lambda group: group[0]):
        yield state, sorted(slots, key=lambda each: each.eviction_order)[:number]


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
        spare = min([-amount // frees[each] for each, amount in left.items() if frees[each]])
        kept = max(0, len(slots) - spare)
        left = {each: amount + (len(slots) - kept) * frees[each] for each, amount in left.items()}
        needed[:0] = slots[:kept]
    return needed


def _cost(cluster: ClusterState, node: NodeInfo, amounts: Shape, chosen: list[TrainerSlot]) -> Clearance:
    room = list(node.later)
    priority, share, evictions = -(1 << 62), 1 << 62, 0
    for slot in chosen:
        state = slot.state
        for each, amount in state.amounts:
            room[each] += amount
        priority, share = max(priority, state.job.priority), min(share, state.share)
        evictions += slot.is_bound
    for each, amount in amounts:
        room[each] -= amount
    return Clearance(priority, evictions, cluster.waste(room, amounts), -share, tuple(chosen))


class Evictions(Contest[tuple[int, int, int, int]]):
    """Nodes in order of what it costs to make room there."""

    def __init__(
        self, cluster: ClusterState, nodes: list[NodeInfo], amounts: Shape, allow: Allowance
    ) -> None:
        self._amounts = amounts
        self._allow = allow
        super().__init__(cluster, nodes)

    def rank(self, node: NodeInfo) -> tuple[int, int, int, int] | None:
        """Give the least that making room on a node can cost, None where that is not possible."""
        return least(node, self._amounts, self._allow)

    def cost(self, node: NodeInfo) -> tuple[int, int, int, int] | None:
        """Give the cost of making room on a node, None where that is not possible."""
        found = clear(self._cluster, node, self._amounts, self._allow)
        return None if found is None else found[:4]


class VictimFinder:
    """Ways to make room for all kinds of pods of one plan."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._rankings: dict[Hashable, Evictions] = {}

    def find(
        self,
        amounts: Shape,
        node_names: NodeNames,
        barred: frozenset[str],
        allow: Allowance,
        *,
        key: Hashable,
    ) -> NodeInfo | None:
        """Give the node where making room hurts least, None if there is none."""
        whole = (amounts, node_names, barred, key)
        ranking = self._rankings.get(whole)
        if ranking is None:
            ranking = Evictions(self._cluster, self._cluster.nodes_of(node_names, barred), amounts, allow)
            self._rankings[whole] = ranking
        return ranking.best()


# --- Places for masters and parameter servers: where they cost the fewest places for trainers ---
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
        self._pair = [(each, amount, beside[each]) for each, amount in trainer if each in beside]
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
        for each, amount in self._amounts:
            rest[each] -= amount
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


class Slots(Contest[tuple[int, ...]]):
    """Nodes in order of the trainers' places that a pod costs there."""

    def __init__(
        self,
        cluster: ClusterState,
        nodes: list[NodeInfo],
        amounts: Shape,
        loss: SlotLoss,
        allow: Allowance,
        *,
        is_late: bool,
    ) -> None:
        self._amounts = amounts
        self._loss = loss
        self._allow = allow
        self._is_late = is_late
        super().__init__(cluster, nodes)

    def rank(self, node: NodeInfo) -> tuple[int, ...] | None:
        """Give the least that a node can cost, None where no room can be made."""
        found = least(node, self._amounts, self._allow)
        if found is None:
            return None
        _, evictions, _, negative_share = found
        return self._cost(node, evictions, evictions, negative_share)

    def cost(self, node: NodeInfo) -> tuple[int, ...] | None:
        """Give the cost of a node, None where no room can be made."""
        found = clear(self._cluster, node, self._amounts, self._allow)
        return (
            None
            if found is None
            else self._cost(node, len(found.slots), found.evictions, found.negative_share)
        )

    def _cost(self, node: NodeInfo, taken: int, evictions: int, negative_share: int) -> tuple[int, ...]:
        spared = self._cluster.spared(node, self._amounts)
        tightness = self._cluster.left_over(node, self._amounts)
        loss, further = self._loss.of(node.lifted)
        return (taken if self._is_late else 0, spared, *loss, *further, evictions, negative_share, tightness)


class SlotFinder:
    """Places for masters and parameter servers of all jobs of one plan."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._losses: dict[Hashable, SlotLoss] = {}
        self._values: dict[Hashable, dict[Vector, int]] = {}
        self._rankings: dict[Hashable, Slots] = {}

    def find(
        self,
        state: JobState,
        amounts: Shape,
        node_names: NodeNames,
        barred: frozenset[str],
        allow: Allowance,
        *,
        is_late: bool,
    ) -> NodeInfo | None:
        """Give the best node for a pod of a job's gang, None if no room can be made."""
        companion = shape(max(state.job.gang, key=lambda role: role.count).request) if state.job.gang else ()
        kind = (state.amounts, companion, amounts)
        if (loss := self._losses.get(kind)) is None:
            values = self._values.setdefault(kind[:2], {})
            loss = self._losses[kind] = SlotLoss(*kind, self._cluster.whole, values)
        whole = (kind, node_names, barred, state.job.priority, is_late)
        if (ranking := self._rankings.get(whole)) is None:
            nodes = self._cluster.nodes_of(node_names, barred)
            ranking = self._rankings[whole] = Slots(
                self._cluster, nodes, amounts, loss, allow, is_late=is_late
            )
        return ranking.best()


# --- the cluster together with the searches in it, and the three ways to give a pod a place ---


class Transaction:
    """All that the steps of a plan share."""

    def __init__(self, cluster: ClusterState) -> None:
        self.cluster = cluster
        self.unplaced: dict[str, Unplaced] = {}  # what found no place so far, by key
        self._places = PlaceFinder(cluster)
        self._victims = VictimFinder(cluster)
        self._slots = SlotFinder(cluster)
        self._free: dict[tuple[frozenset[str] | None, int], list[int]] = {}

    def free_place(self, state: JobState, node_names: NodeNames) -> NodeInfo | None:
        """Give the best free place for a trainer of a job."""
        return self._places.find(state.amounts, node_names, state.bars)

    def free_in_all(self, node_names: NodeNames) -> list[int]:
        """Give what is free on all these nodes together."""
        key = (node_names, len(self.cluster.log))
        if key not in self._free:
            nodes = self.cluster.nodes_of(node_names)
            size = range(len(self.cluster.snapshot.resources))
            self._free[key] = [sum(node.later[each] for node in nodes) for each in size]
        return self._free[key]

    def _make_room(self, node: NodeInfo, amounts: Shape, allow: Allowance, cause: Cause, whom: str) -> None:
        found = clear(self.cluster, node, amounts, allow)
        for slot in found.slots if found else ():
            self.cluster.evict(slot, cause, whom)

    def place_foreign(self, demand: Demand) -> bool:
        """Find room for a pod of others, at need by taking trainers above a minimum; tell whether."""
        amounts = shape(demand.request)
        node = self._places.find(amounts, demand.nodes)
        if node is None:
            allow = surplus_under_pods(demand.priority)
            key = ("pods", demand.priority)
            node = self._victims.find(amounts, demand.nodes, frozenset(), allow, key=key)
            if node is None:
                return False
            self._make_room(node, amounts, allow, "yield", demand.key)
        self.cluster.reserve(node, demand.request, demand.key)
        return True

    def place_member(
        self,
        state: JobState,
        request: Vector,
        node_names: NodeNames,
        key: str,
        *,
        is_late: bool = False,
    ) -> NodeInfo | None:
        """Find room for a master or parameter server where it costs the fewest places for trainers."""
        amounts = shape(request)
        allow = surplus_up_to(state.job.priority)
        barred = frozenset[str]() if is_late else state.bars
        node = self._slots.find(state, amounts, node_names, barred, allow, is_late=is_late)
        if node is not None:
            self._make_room(node, amounts, allow, "gang", state.job.key)
            self.cluster.reserve(node, request, key, owner=state.job.key)
        return node

    def place_trainer(self, state: JobState, node_names: NodeNames, cause: Cause) -> bool:
        """Find room for a trainer of a job's minimum; tell whether there is."""
        node = self._places.find(state.amounts, node_names, state.bars)
        if node is None:
            allow = surplus_up_to(state.job.priority)
            key = ("jobs", state.job.priority)
            node = self._victims.find(state.amounts, node_names, state.bars, allow, key=key)
            if node is None:
                return False
            self._make_room(node, state.amounts, allow, "gang", state.job.key)
        self.cluster.add(state, node, cause)
        return True
