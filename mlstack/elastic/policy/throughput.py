"""Who gains most by the next trainer, for what it takes of the cluster: the order of policy `throughput`.

The gain of a trainer is relative, speed(n + 1) / speed(n) - 1, and counts per dominant share, the largest
part of any resource of the cluster that one trainer takes. To give each trainer to the largest gain makes
the sum of the logarithms of speed-ups as large as can be (proportional fairness): nobody starves, as the
gain of a job with few trainers is large, and nobody has to know how long a job will take.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from mlstack.elastic.policy.fair import policy, share_out
from mlstack.elastic.policy.state import Fulfilment
from mlstack.elastic.snapshot import Job, PolicyConfig, ScalePlan, Snapshot
from mlstack.elastic.speed import SpecSource, source, speeds_from

_FINE = 10**12
"""Gains are compared as integers, in this part of one per share."""

_RESTART_TENTHS = 9
"""Tenths of its gain that a move is worth: a job that is changed loses time (as in Pollux, OSDI 2021)."""

_WITHOUT = Fraction(10**9)
"""The gain of a first trainer of a job that has none: above all others."""


class Gain:
    """Largest relative gain per dominant share first; where nothing is gained, the lowest fulfilment."""

    def __init__(self, jobs: Iterable[Job], totals: Sequence[int]) -> None:
        jobs = tuple(jobs)
        self._fulfilment = Fulfilment(jobs)
        self._gains = {job.key: _gains(job, totals) for job in jobs}
        self._kinds = {job.key: (job.trainer, job.minimum, self._gains[job.key]) for job in jobs}
        ranks = [self._fulfilment.share(job, job.maximum) for job in jobs]
        self._scale = 1 + max(ranks, default=0)

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


def _gains(job: Job, totals: Sequence[int]) -> tuple[int, ...]:
    """Give what each further trainer brings, from the first to the last one."""
    return _worth(source(job), job.weight / dominant_share(job, totals))


@lru_cache(maxsize=4096)
def _worth(known: SpecSource, weight: Fraction) -> tuple[int, ...]:
    """Reckon once: curves and clusters change seldom."""
    times, parts = weight.numerator * _FINE, weight.denominator
    return tuple([above * times // (below * parts) for above, below in _relative(known)])


@lru_cache(maxsize=4096)
def _relative(known: SpecSource) -> tuple[tuple[int, int], ...]:
    """Give the relative gain of each further trainer as numerator and denominator."""
    gains = [after / before - 1 if before else _WITHOUT for before, after in pairwise(speeds_from(known))]
    return tuple([(gain.numerator, gain.denominator) for gain in gains])


def dominant_share(job: Job, totals: Sequence[int]) -> Fraction:
    """Give the largest part of any resource of the cluster that one trainer takes; 1 if it takes nothing."""
    shares = (Fraction(asked, all_) for asked, all_ in zip(job.trainer, totals, strict=True) if all_ > 0)
    return max(shares, default=Fraction(0)) or Fraction(1)


# --- the policy `throughput`: as `fair`, but the next trainer goes where it brings most ---


@policy("throughput")
def throughput(snapshot: Snapshot, config: PolicyConfig) -> ScalePlan:
    """Share out by the relative gain of one more trainer per dominant share, from each job's speed curve."""
    width = len(snapshot.resources)
    totals = [sum(node.allocatable[each] for node in snapshot.nodes) for each in range(width)]
    return share_out(snapshot, config, Gain(snapshot.jobs, totals))
