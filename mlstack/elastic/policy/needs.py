"""What a job lacks, and what room there can be at most: what fails by that alone need not be tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Set
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
    givers = {
        other
        for other in cluster.states.values()
        if other.surplus and other.job.priority <= state.job.priority
    }
    givers.difference_update(preempted)
    rooms = _without(cluster, preempted)
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
    """Give the room of each node once those jobs are gone."""
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
    """Give a room of a node and that of all trainers there of those jobs."""
    lifted = list(room)
    for state in node.states.keys() & states if states else ():
        number = len(node.states[state])
        for resource, amount in state.amounts:
            lifted[resource] += number * amount
    return lifted
