"""What a job lacks, and what room there can be at most: what fails by that alone need not be tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Set
from typing import NamedTuple

from mlstack.elastic.policy.state import (
    ClusterState,
    JobState,
    NodeInfo,
    NodeNames,
    Shape,
    count,
    dominant,
    fits,
    shape,
    total,
)
from mlstack.elastic.snapshot import Vector

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
    return [
        *members(state, whole),
        *([ResourceNeed("trainer", state.job.trainer, short)] if short > 0 else []),
    ]


def amount(lacked: Iterable[ResourceNeed], size: int) -> Vector:
    """Give what pods request in all."""
    return total([tuple(amount * need.number for amount in need.request) for need in lacked], size)


def useful(cluster: ClusterState, state: JobState) -> frozenset[str]:
    """Give the nodes that could take any pod of a job's gang."""
    kinds = [shape(need.request) for need in needs(state, cluster.whole)]
    nodes = cluster.nodes_of(state.job.nodes, state.bars)
    sizes = {size for size in {node.allocatable for node in nodes} if any(fits(size, kind) for kind in kinds)}
    return frozenset([node.name for node in nodes if node.allocatable in sizes])


def could_ever_run(cluster: ClusterState, state: JobState, node_names: frozenset[str]) -> bool:
    """Tell whether the gang of a job could fit if the nodes it can use were empty, by sums and pod by pod."""
    lacked = needs(state, cluster.whole)
    sizes = Counter([node.allocatable for node in cluster.nodes_of(node_names)])
    size = len(cluster.snapshot.resources)
    room = total([tuple(amount * number for amount in all_) for all_, number in sizes.items()], size)
    return fits(room, shape(amount(lacked, size))) and all(
        any(fits(all_, shape(need.request)) for all_ in sizes) for need in lacked
    )


# --- what room there can be at most: what fails by that alone need not be tried pod by pod ---

Room = list[int]


class FreeRoom:
    """What some nodes together have free, kept up to date from the log; overfull ones count as full."""

    def __init__(self, cluster: ClusterState, nodes: Iterable[NodeInfo]) -> None:
        self._cluster = cluster
        self._seen = len(cluster.log)
        self._at = {node.index: [max(0, amount) for amount in node.later] for node in nodes}
        self._sums = [sum(amounts) for amounts in zip(*self._at.values(), strict=True)]
        self._sums += [0] * (len(cluster.whole) - len(self._sums))

    def sums(self) -> list[int]:
        """Give the sum of each resource."""
        log = self._cluster.log
        for index in dict.fromkeys(log[self._seen :]):
            if (before := self._at.get(index)) is not None:
                self._at[index] = after = [max(0, amount) for amount in self._cluster.nodes[index].later]
                for resource, amount in enumerate(after):
                    self._sums[resource] += amount - before[resource]
        self._seen = len(log)
        return list(self._sums)


def has_places(
    cluster: ClusterState,
    state: JobState,
    node_names: NodeNames,
    preempted: Collection[JobState] = (),
) -> bool:
    """Tell whether there can be places enough for each kind of pod that a job lacks, if others took none."""
    rooms = _without(cluster, preempted)
    givers = {
        each for each in cluster.states.values() if each.surplus and each.job.priority <= state.job.priority
    }
    givers.difference_update(preempted)
    pairs = [
        (rooms[node.index], _lifted(node, rooms[node.index], givers)) for node in cluster.nodes_of(node_names)
    ]
    return all(
        _is_room(pairs, shape(need.request), need.number, givers) for need in needs(state, cluster.whole)
    )


def _is_room(pairs: list[tuple[Room, Room]], amounts: Shape, number: int, givers: set[JobState]) -> bool:
    """Tell whether there can be so many places, in free room or in that of trainers that can be spared."""
    missing = number - sum([count(room, amounts) for room, _ in pairs])
    if missing <= 0:
        return True
    requests = [giver.job.trainer for giver in givers]
    largest = [
        (resource, amount, max([one[resource] for one in requests], default=0))
        for resource, amount in amounts
    ]
    prices: list[int] = []
    for room, lifted in pairs:
        free = count(room, amounts)
        prices += _prices(room, free, min(count(lifted, amounts), free + missing), largest)
    cheapest = sorted(prices)[:missing]
    return len(cheapest) == missing and sum(cheapest) <= sum([giver.surplus for giver in givers])


def _prices(room: Room, free: int, most: int, largest: list[tuple[int, int, int]]) -> Iterator[int]:
    """Give how many trainers at least have to go for each place in a room beyond those that are free."""
    gone = 0
    for places in range(free + 1, most + 1):
        before = gone
        for resource, amount, size in largest:
            gone = max(gone, -((room[resource] - places * amount) // max(1, size)))
        yield gone - before


def _without(cluster: ClusterState, preempted: Collection[JobState]) -> list[Room]:
    """Give the room of each node once those jobs are gone."""
    gone = set(preempted)
    rooms = [_lifted(node, node.later, gone) for node in cluster.nodes]
    for other in preempted:
        for held in other.job.held:
            if (node := cluster.by_name.get(held.node)) is not None:
                _add(rooms[node.index], held.request)
    keys = {other.job.key for other in preempted}
    for node, request, _, owner in cluster.reservations.values():
        if owner in keys:
            _add(rooms[node.index], request)
    return rooms


def _lifted(node: NodeInfo, room: Room, states: Set[JobState]) -> Room:
    """Give a room of a node and that of all trainers there of those jobs."""
    lifted = list(room)
    for state in node.states.keys() & states if states else ():
        number = len(node.states[state])
        for resource, amount in state.amounts:
            lifted[resource] += number * amount
    return lifted


def _add(room: Room, request: Vector) -> None:
    for resource, amount in enumerate(request):
        room[resource] += amount
