"""What becomes of training jobs at one moment: a pure function of a snapshot and one of the policies.

Policy `throughput` is `fair`, but the next trainer goes where it brings most, for what it takes of the
cluster. The gain of a trainer is relative, speed(n + 1) / speed(n) - 1, and counts per dominant share, the
largest part of any resource of the cluster that one trainer takes. To give each trainer to the largest gain
makes the sum of the logarithms of speed-ups as large as can be (proportional fairness): nobody starves, as
the gain of a job with few trainers is large, and nobody has to know how long a job will take.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from mlstack.elastic.policy.edl import edl, edl_v010
from mlstack.elastic.policy.fair import fair, share_out
from mlstack.elastic.policy.state import Fulfilment
from mlstack.elastic.snapshot import Job, PolicyConfig, ScalePlan, Snapshot
from mlstack.elastic.speed import SpecSource, source, speeds
from mlstack.names import Table

Policy = Callable[[Snapshot, PolicyConfig], ScalePlan]

POLICIES: Table[Policy] = Table("scaling policy")
POLICIES.register("fair")(fair)
POLICIES.register("edl")(edl)
POLICIES.register("edl-v010")(edl_v010)

# Policies with known defects, kept to be measured against: for the simulator alone.
BASELINES = frozenset({"edl-v010"})


def plan(snapshot: Snapshot, config: PolicyConfig) -> ScalePlan:
    """Decide what every job of a snapshot gets.

    The time is a number in the snapshot; the same snapshot gives the same plan, in whatever order its
    parts are listed.

    Raises:
        NotFoundError: there is no policy of that name; carries the nearest known one.
    """
    policy = POLICIES.find(config.mode)
    # Garbage collection would walk all that is known of a cluster for what little a plan leaves.
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        return policy(snapshot, config)
    finally:
        if is_collecting:
            gc.enable()


# --- the policy `throughput` ---

_FINE = 10**12
"""Gains are compared as integers, in this part of one per share."""
_RESTART_TENTHS = 9
"""Tenths of its gain that a move is worth: a job that is changed loses time (as in Pollux, OSDI 2021)."""
_WITHOUT = Fraction(10**9)
"""The gain of a first trainer of a job that has none: above all others."""


@POLICIES.register("throughput")
def throughput(snapshot: Snapshot, config: PolicyConfig) -> ScalePlan:
    """Share out by the relative gain of one more trainer per dominant share, from each job's speed curve."""
    size = range(len(snapshot.resources))
    totals = [sum(node.allocatable[resource] for node in snapshot.nodes) for resource in size]
    return share_out(snapshot, config, Gain(snapshot.jobs, totals))


class Gain:
    """Largest relative gain per dominant share first; where nothing is gained, the lowest fulfilment."""

    def __init__(self, jobs: Iterable[Job], totals: Sequence[int]) -> None:
        jobs = tuple(jobs)
        self._fulfilment = Fulfilment(jobs)
        self._gains = {
            job.key: _gains(source(job), job.weight / _dominant_share(job, totals)) for job in jobs
        }
        self._kinds = {job.key: (job.trainer, job.minimum, self._gains[job.key]) for job in jobs}
        self._scale = 1 + max([self._fulfilment.share(job, job.maximum) for job in jobs], default=0)

    def share(self, job: Job, count: int) -> int:
        """Give the gain of one more trainer as a negative number; fulfilment decides between equal ones."""
        return self._fulfilment.share(job, count) - self._gain(job, count) * self._scale

    def is_fairer(self, poor: Job, poor_count: int, rich: Job, rich_count: int) -> bool:
        """Tell whether the gain of the one is worth more than the loss of the other and the restarts.

        Between jobs that differ in nothing, policy `fair` decides: a gap of two trainers is worth a move.
        """
        if self._kinds[poor.key] == self._kinds[rich.key]:
            return self._fulfilment.is_fairer(poor, poor_count, rich, rich_count)
        return self._gain(poor, poor_count) * _RESTART_TENTHS > self._gain(rich, rich_count - 1) * 10

    def _gain(self, job: Job, count: int) -> int:
        gains = self._gains[job.key]
        return gains[count] if 0 <= count < len(gains) else 0


def _dominant_share(job: Job, totals: Sequence[int]) -> Fraction:
    """Give the largest part of any resource of the cluster that one trainer takes; 1 if it takes nothing."""
    shares = (Fraction(asked, all_) for asked, all_ in zip(job.trainer, totals, strict=True) if all_ > 0)
    return max(shares, default=Fraction(0)) or Fraction(1)


@lru_cache(maxsize=4096)
def _gains(known: SpecSource, weight: Fraction) -> tuple[int, ...]:
    """Give what each further trainer brings, from the first on; curves and clusters change seldom."""
    times, parts = weight.numerator * _FINE, weight.denominator
    gains = [after / before - 1 if before else _WITHOUT for before, after in pairwise(speeds(known))]
    return tuple([gain.numerator * times // (gain.denominator * parts) for gain in gains])
