"""Arithmetic with requests: what fits, how often, and how much is left, in integers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mlstack.elastic.snapshot import Vector

Shape = tuple[tuple[int, int], ...]

# Left-overs of different resources are compared as parts of a reference amount, in these units: a resource
# counted in other units then changes no decision.
WHOLE = 10**9

# A pod that requests nothing fits any number of times.
ENDLESS = 1 << 20


def shape(request: Vector) -> Shape:
    """Give what a request really asks for: (resource, amount) without the zeros."""
    return tuple((resource, amount) for resource, amount in enumerate(request) if amount > 0)


def fits(room: Sequence[int], wanted: Iterable[tuple[int, int]]) -> bool:
    """Tell whether a request fits into a room."""
    for resource, amount in wanted:  # noqa: SIM110  # asked thousands of times a plan: half the time of all()
        if room[resource] < amount:
            return False
    return True


def count(room: Sequence[int], wanted: Shape) -> int:
    """Give how many such pods fit into a room."""
    most = ENDLESS
    for resource, amount in wanted:
        found = room[resource] // amount
        if found < most:
            most = found
    return most if most > 0 else 0


def total(vectors: Iterable[Vector], size: int) -> Vector:
    """Give the sum of vectors of that size."""
    sums = [0] * size
    for vector in vectors:
        for resource, amount in enumerate(vector):
            sums[resource] += amount
    return tuple(sums)


def dominant(request: Shape, whole: Sequence[int]) -> int:
    """Give the largest share that a request takes of a reference amount of any resource."""
    return max((amount * WHOLE // whole[resource] for resource, amount in request), default=0)


def is_within(small: Shape, large: Shape) -> bool:
    """Tell whether a request asks for no more than another one of anything."""
    asked = dict(large)
    return all(amount <= asked.get(resource, 0) for resource, amount in small)
