"""What is measured of a run, from one sample a second; the same for the simulator and a real cluster.

Means over time weigh each sample by how long it stood. What never came about within the samples is censored:
it counts with the time until the end, and is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from mlstack.elastic.sampling import JobSample, Sample

Samples = Sequence[Sample]
Value = Callable[[Sample], float]


@dataclass(frozen=True, kw_only=True)
class Waits:
    """How long jobs waited for something.

    Attributes:
        seconds: of each job, by key; until the last sample of it for those that never got there.
        never: those, by key.
    """

    seconds: dict[str, float]
    never: tuple[str, ...]

    @property
    def censored(self) -> int:
        """Count the jobs that never got there."""
        return len(self.never)

    @property
    def most(self) -> float:
        """Give the longest, 0 without jobs."""
        return max(self.seconds.values(), default=0.0)

    @property
    def mean(self) -> float:
        """Give the mean, 0 without jobs."""
        return mean(self.seconds.values())

    def percentile(self, percent: float) -> float:
        """Give the smallest wait that so many percent of the jobs do not exceed."""
        return percentile(self.seconds.values(), percent)


def window(samples: Samples, begin_s: float, end_s: float = float("inf")) -> list[Sample]:
    """Give the samples from one time to another, both included."""
    return [sample for sample in samples if begin_s * 1000 <= sample.at_ms <= end_s * 1000]


def over_time(samples: Samples, value: Value) -> float:
    """Give the mean of a value over time; each sample stands until the next."""
    if len(samples) < 2:
        return mean(map(value, samples))
    total = sum(value(one) * (following.at_ms - one.at_ms) for one, following in pairwise(samples))
    return total / (samples[-1].at_ms - samples[0].at_ms)


def mean(values: Iterable[float]) -> float:
    """Give the plain mean, 0 of nothing."""
    known = list(values)
    return sum(known) / len(known) if known else 0.0


def percentile(values: Iterable[float], percent: float) -> float:
    """Give the smallest value that so many percent of them do not exceed, 0 of nothing."""
    known = sorted(values)
    return known[max(0, ceil(len(known) * percent / 100) - 1)] if known else 0.0


def utilisation(sample: Sample, resource: str = "cpu") -> float:
    """Give requests of running pods as percent of what all nodes offer."""
    return sample.share(sample.running, resource)


def resources(samples: Samples) -> tuple[str, ...]:
    """Name what nodes offered at any time, cores first; how many pods they take is left out."""
    names = {name for sample in samples for name, amount in sample.allocatable.items() if amount}
    return ("cpu", *sorted(names - {"cpu", "pods"}))


def useful(sample: Sample, resource: str = "cpu") -> float:
    """Give the part of the utilisation of services and of jobs whose gang is complete; no background."""
    return sample.share(sample.useful, resource)


def time_at(samples: Samples, value: Value, least: float) -> float:
    """Give in percent how much of the time a value was at least so much."""
    return over_time(samples, lambda sample: 100.0 * (value(sample) >= least))


def pending(sample: Sample) -> int:
    """Count the jobs without a running trainer."""
    return sum(job.is_pending and not job.is_over for job in sample.jobs)


def complete(sample: Sample) -> int:
    """Count the jobs whose whole gang runs."""
    return sum(job.is_complete for job in sample.jobs)


def trainers(sample: Sample) -> list[int]:
    """Give the running trainers of each job, by key."""
    return [job.trainers for job in sample.jobs if not job.is_over]


def jain(counts: Sequence[float]) -> float:
    """Give Jain's index of fairness: 1 for equal shares, 1/n when one has everything."""
    squares = sum(count * count for count in counts)
    return sum(counts) ** 2 / (len(counts) * squares) if squares else 1.0


def spread(counts: Sequence[int]) -> int:
    """Give the difference between most and least."""
    return max(counts) - min(counts) if counts else 0


def waits(samples: Samples, has_it: Callable[[JobSample], bool]) -> Waits:
    """Give how long each job, from its first sample on, waited for something."""
    since: dict[str, int] = {}
    until: dict[str, int] = {}
    last: dict[str, int] = {}
    for sample in samples:
        for job in sample.jobs:
            since.setdefault(job.key, sample.at_ms)
            last[job.key] = sample.at_ms
            if has_it(job) or job.is_over:
                until.setdefault(job.key, sample.at_ms)
    seconds = {key: (until.get(key, last[key]) - at) / 1000 for key, at in sorted(since.items())}
    return Waits(seconds=seconds, never=tuple(sorted(since.keys() - until.keys())))


def waits_for_trainer(samples: Samples) -> Waits:
    """Give how long each job waited for its first running trainer: EDL's pending time."""
    return waits(samples, lambda job: not job.is_pending)


def waits_for_gang(samples: Samples) -> Waits:
    """Give how long each job waited until its whole gang ran."""
    return waits(samples, lambda job: job.is_complete)


def succeeded_s(samples: Samples) -> dict[str, float]:
    """Give by job when it was first seen as succeeded, in seconds."""
    found: dict[str, float] = {}
    for sample in samples:
        for job in sample.jobs:
            if job.phase == "Succeeded":
                found.setdefault(job.key, sample.at_ms / 1000)
    return found


def below_minimum(samples: Samples) -> list[tuple[int, str]]:
    """Give when which jobs had fewer trainers with a node than their minimum after they had been complete.

    A job that was told to have none since then (suspended whole) is not among them, nor one that ends.
    """
    begun: set[str] = set()
    found = []
    for sample in samples:
        for job in sample.jobs:
            if job.is_complete:
                begun.add(job.key)
            elif job.target == 0 or job.is_over or job.phase == "Completing":
                begun.discard(job.key)
            elif job.key in begun and job.bound < job.minimum:
                found.append((sample.at_ms, job.key))
    return found


def last_change_s(samples: Samples) -> float:
    """Give when a trainer was last made, deleted, or began or ceased to run; 0 if none ever."""
    last = 0
    for before, after in pairwise(samples):
        if _state(before) != _state(after):
            last = after.at_ms
    return last / 1000


def _state(sample: Sample) -> tuple[object, ...]:
    return (sample.created, sample.deleted, {job.key: job.trainers for job in sample.jobs})


def operations(samples: Samples) -> int:
    """Count the trainers made and deleted between the first and the last sample."""
    first, last = samples[0], samples[-1]
    return last.created + last.deleted - first.created - first.deleted


def turns(samples: Samples) -> dict[str, int]:
    """Count by job how often what it was told to have went up after it went down, or the other way round.

    Its end does not count.
    """
    found: dict[str, int] = {}
    way: dict[str, int] = {}
    for key, step in _steps(samples):
        found[key] = found.get(key, 0) + (step * way.get(key, step) < 0)
        way[key] = step or way.get(key, 0)
    return found


def scalings(samples: Samples) -> dict[str, tuple[int, int]]:
    """Count by job how often it was told to have more trainers, and how often fewer.

    Its end does not count.
    """
    found: dict[str, tuple[int, int]] = {}
    for key, step in _steps(samples):
        up, down = found.get(key, (0, 0))
        found[key] = (up + (step > 0), down + (step < 0))
    return found


def _steps(samples: Samples) -> Iterator[tuple[str, int]]:
    """Give for each job of each sample by how much it was told to grow since the one before, until it ends.

    A job that comes after the first sample begins with none.
    """
    was = {job.key: _told(job) for sample in samples[:1] for job in sample.jobs}
    for sample in samples:
        for job in sample.jobs:
            if not job.is_over and job.phase != "Completing":
                yield job.key, _told(job) - was.get(job.key, 0)
                was[job.key] = _told(job)


def _told(job: JobSample) -> int:
    return job.bound + job.unbound if job.target is None else job.target
