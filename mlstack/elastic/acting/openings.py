"""Which places of a plan are free at this moment, and which lean on room that somebody still holds.

A plan promises room that pods on their way out will leave. A trainer that is created before they have left
waits for a node, and a scheduler that tries waiting pods again whenever anything leaves gives it the first
room that comes free, which another pod was promised, one held to that very node perhaps. So it is created
when its own place is free; nothing is lost but the time of one pass.
"""

from __future__ import annotations

from collections.abc import Iterable

from mlstack.elastic.scaleplan import ScalePlan
from mlstack.elastic.snapshot import Snapshot, Vector


class Openings:
    """Room that is free now and that nobody else is promised.

    Args:
        snapshot: the moment.
        plan: what was decided; what it takes away counts as still there.
    """

    def __init__(self, snapshot: Snapshot, plan: ScalePlan) -> None:
        """Count what is held and what is promised to others."""
        self._requests = {job.key: job.trainer for job in snapshot.jobs}
        self._free = {
            node.name: [a - b for a, b in zip(node.allocatable, node.used, strict=True)]
            for node in snapshot.nodes
        }
        for leaving in snapshot.arriving:
            self._take(leaving.node, leaving.request)
        for kept in plan.reservations:
            self._take(kept.node, kept.request)
        for job in snapshot.jobs:
            waiting = plan.decisions[job.key].waiting
            for trainer in job.trainers:
                self._take(trainer.node or waiting.get(trainer.name, ""), job.trainer)

    def among(self, job: str, places: Iterable[str]) -> tuple[str, ...]:
        """Give those places for trainers of a job that are free, and take them; no node is always free."""
        found = []
        for node in places:
            if not node or self._has_room(node, self._requests[job]):
                self._take(node, self._requests[job])
                found.append(node)
        return tuple(found)

    def _has_room(self, node: str, request: Vector) -> bool:
        free = self._free.get(node)
        return free is not None and all(
            left >= amount for left, amount in zip(free, request, strict=True) if amount
        )

    def _take(self, node: str, request: Vector) -> None:
        if node in self._free:
            self._free[node] = [a - b for a, b in zip(self._free[node], request, strict=True)]
