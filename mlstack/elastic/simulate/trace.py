"""A synthetic trace of training jobs: when they come, how much there is to do, how well they scale.

150 jobs come as a Poisson stream. Their work is heavy-tailed: log-normal, cut at ten times the median, as
clusters limit how long a job may take (else the one longest job alone decides the makespan). The part of
the work that runs in parallel differs. The load is the time that all trainers would take, each job at its
maximum, over what the cluster has in the time in which the jobs come: above 1 a queue grows.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate

JOBS = 150
SLOTS = 250
LOADS = (Fraction(9, 5), Fraction(11, 5))
PARALLEL = ("0.9", "0.95", "0.98", "0.99", "0.995")
MAXIMA = (16, 32, 60)
MINIMUM = 1
MEDIAN_MS = 40_000_000
LONGEST_MS = 10 * MEDIAN_MS
SIGMA = 1.2


@dataclass(frozen=True, kw_only=True)
class TraceJob:
    """A job of a trace.

    Attributes:
        key: its key.
        at_ms: when it comes.
        work_ms: time that one trainer would take.
        parallel: part of the work that runs in parallel, as a decimal (Amdahl's law).
        minimum: fewest trainers.
        maximum: most trainers.
    """

    key: str
    at_ms: int
    work_ms: int
    parallel: str
    minimum: int
    maximum: int

    def speed(self, count: int) -> float:
        """Give how many times as fast as with one trainer it runs."""
        share = float(self.parallel)
        return count / (count * (1 - share) + share)

    @property
    def alone_ms(self) -> int:
        """Give the time that it takes at its maximum."""
        return round(self.work_ms / self.speed(self.maximum))


def draw(seed: int, load: Fraction) -> tuple[TraceJob, ...]:
    """Draw a trace; a seed gives the same jobs at every load, only faster or slower one after another."""
    dice = random.Random(seed)
    drawn = [_draw_one(dice, index) for index in range(JOBS)]
    gaps = [dice.expovariate(1.0) for _ in drawn]
    taken_ms = sum(job.alone_ms * job.maximum for job in drawn)
    unit_ms = taken_ms / (SLOTS * float(load)) / sum(gaps)
    times = (round(unit_ms * each) for each in accumulate(gaps))
    return tuple(replace(job, at_ms=at_ms) for job, at_ms in zip(drawn, times, strict=True))


def _draw_one(dice: random.Random, index: int) -> TraceJob:
    return TraceJob(
        key=f"trace/job-{index:03}",
        at_ms=0,
        work_ms=min(LONGEST_MS, round(MEDIAN_MS * dice.lognormvariate(0, SIGMA))),
        parallel=dice.choice(PARALLEL),
        minimum=MINIMUM,
        maximum=dice.choice(MAXIMA),
    )
