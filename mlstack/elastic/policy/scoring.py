"""Who gets the next trainer: the one thing in which policies that share out free room differ."""

from __future__ import annotations

from collections.abc import Iterable
from math import lcm
from typing import Protocol

from mlstack.elastic.snapshot import Job


class Scoring(Protocol):
    """How well off jobs are, in integers that only compare with each other."""

    def level(self, job: Job, count: int) -> int:
        """Tell how well off a job is with so many trainers: the lowest level gets the next one."""
        ...

    def is_fairer(self, poor: Job, poor_count: int, rich: Job, rich_count: int) -> bool:
        """Tell whether a trainer less for `rich` and one more for `poor` is worth a move."""
        ...


class Fulfilment:
    """Equal shares of what jobs can use: (count - minimum) / (maximum - minimum) / weight.

    Args:
        jobs: all jobs that are to be compared.
    """

    def __init__(self, jobs: Iterable[Job]) -> None:
        """Find a common denominator, so that levels are exact integers."""
        ranges = {job.key: max(1, (job.maximum - job.minimum) * job.weight) for job in jobs}
        common = lcm(*ranges.values())
        self._steps = {key: common // size for key, size in ranges.items()}

    def level(self, job: Job, count: int) -> int:
        """Give the part of its range that a job has by so many trainers."""
        return (count - job.minimum) * self._steps[job.key]

    def is_fairer(self, poor: Job, poor_count: int, rich: Job, rich_count: int) -> bool:
        """Tell whether the poorer one is still not the richer one after the move."""
        return self.level(poor, poor_count + 1) <= self.level(rich, rich_count - 1)
