"""Jobs of lower priority are taken off whole where nothing less makes room for a gang."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection

from mlstack.elastic.policy.attempts import Attempts
from mlstack.elastic.policy.ledger import Ledger
from mlstack.elastic.policy.parts import Crew
from mlstack.elastic.policy.sums import has_places

# Each try takes all the others off again: a plan has to end where nearly every job has to go.
_SPARED_TRIES = 100


class PushAside:
    """Room for one job at the cost of whole others.

    Args:
        ledger: the books.
        attempts: tries to give a job what it lacks.
        crew: the job.
        nodes: where its pods may go, None for anywhere.
    """

    def __init__(self, ledger: Ledger, attempts: Attempts, crew: Crew, nodes: frozenset[str] | None) -> None:
        """Find the jobs of strictly lower priority: the lowest first, then the newest."""
        self._ledger = ledger
        self._attempts = attempts
        self._crew = crew
        self._nodes = nodes
        self._mark = ledger.steps
        lower = [
            each
            for each in ledger.crews.values()
            if not each.is_settled and each.job.priority < crew.job.priority
        ]
        self._lower = sorted(lower, key=lambda each: (each.job.priority, -each.job.created_ms, each.job.key))

    def run(self) -> bool:
        """Take off as many jobs as it takes and no more; tell whether that made room."""
        if not self._lower or not self._attempts.is_conceivable(self._crew, self._nodes, self._lower):
            return False
        if not self._has_places(self._lower):
            return False
        if not self._fits_without(self._lower):
            self._ledger.rollback(self._mark)
            return False
        self._spare(self._lower[: self._least()])
        return True

    def _least(self) -> int:
        """Give how many jobs have to go, from the first on: the sums tell at once that few are not enough."""
        self._ledger.rollback(self._mark)
        numbers = range(1, len(self._lower))
        first = bisect_left(numbers, True, key=lambda number: self._has_places(self._lower[:number]))
        return 1 + bisect_left(
            numbers, True, first, key=lambda number: self._fits_without(self._lower[:number])
        )

    def _take_off(self, each: Crew) -> None:
        job = self._crew.job
        text = f"taken off for {job.key} of priority {job.priority}, above its {each.job.priority}"
        self._ledger.suspend(each, "suspended", text)
        self._ledger.epoch += 1

    def _fits(self) -> bool:
        return self._has_places(()) and not self._attempts.attempt(self._crew, self._nodes, hurry=True)

    def _has_places(self, aside: Collection[Crew]) -> bool:
        """Tell whether it is worth a try once those jobs are taken off too."""
        return has_places(self._ledger, self._crew, self._nodes, aside)

    def _spare(self, taken: list[Crew]) -> None:
        """Leave those running after all without whose room the job fits as well: the oldest are tried."""
        needed = taken
        tries = 1 + _SPARED_TRIES // len(taken)
        for each in taken[-2::-1][:tries]:
            fewer = [other for other in needed if other is not each]
            self._ledger.rollback(self._mark)
            if self._has_places(fewer) and self._fits_without(fewer):
                needed = fewer
        self._fits_without(needed)

    def _fits_without(self, jobs: list[Crew]) -> bool:
        self._ledger.rollback(self._mark)
        for each in jobs:
            self._take_off(each)
        return self._fits()
