"""How evenly trainers are shared, and how much room there is that nobody can use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mlstack.elastic.snapshot import Snapshot, Vector


def jain(counts: Iterable[int]) -> float:
    """Give Jain's fairness index: 1 when all have the same, 1/n when one has all."""
    values = list(counts)
    squares = sum(value * value for value in values)
    return 1.0 if not squares else sum(values) ** 2 / (len(values) * squares)


def free_by_node(snapshot: Snapshot) -> Mapping[str, Vector]:
    """Give what is free on each node: neither held nor about to come free."""
    free = {node.name: _less(node.allocatable, node.used) for node in snapshot.nodes}
    for room in snapshot.arriving:
        if room.node in free:
            free[room.node] = _less(free[room.node], room.request)
    for job in snapshot.jobs:
        for trainer in job.trainers:
            if trainer.node in free:
                free[trainer.node] = _less(free[trainer.node], job.trainer)
    return free


def is_placeable(node: str, room: Vector, snapshot: Snapshot) -> bool:
    """Tell whether a job that wants more trainers could have one there."""
    return any(
        all(wanted <= there for wanted, there in zip(job.trainer, room, strict=True))
        and (job.nodes is None or node in job.nodes)
        for job in snapshot.jobs
        if job.state != "finishing" and len(job.trainers) < job.maximum
    )


def _less(one: Vector, other: Vector) -> Vector:
    return tuple(value - minus for value, minus in zip(one, other, strict=True))


def total(vectors: Iterable[Vector]) -> Vector:
    """Add vectors up; of none the sum is empty."""
    found: list[int] = []
    for vector in vectors:
        found = [sum(pair) for pair in zip(found, vector, strict=True)] if found else list(vector)
    return tuple(found)
