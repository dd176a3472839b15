"""One round of EDL's autoscaler: who takes part, in which order, and the walk until nothing changes.

Every job gets one step up, then, in reverse order, one step down, and so on. Order and fulfilment are those
of the start of the round: that is why EDL hands out equal increments, not equal levels. Ties that EDL left
to the iteration of a map are decided by the job's key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from mlstack.elastic.policy.tally import amount, position
from mlstack.elastic.snapshot import Job, Snapshot

Step = Callable[[Job, int], int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a round came to.

    Attributes:
        planned: trainers by job.
        steps: how many changes were tried.
    """

    planned: Mapping[str, int]
    steps: int


def is_elastic(job: Job) -> bool:
    """Whether a job can have more or fewer trainers."""
    return job.minimum < job.maximum


def is_pending(job: Job) -> bool:
    """Whether every trainer of a job still waits to run; true of a job without any."""
    return not job.leaving and not any(trainer.is_ready for trainer in job.trainers)


def is_running(job: Job) -> bool:
    """Whether every trainer of a job runs and none is on its way out."""
    return not job.leaving and all(trainer.is_ready for trainer in job.trainers)


def order(snapshot: Snapshot, jobs: Iterable[Job], current: Mapping[str, int]) -> list[Job]:
    """Sort jobs: least fulfilled first, then by what one trainer asks for, GPUs before CPU before memory."""
    gpu, cpu, memory = (position(snapshot, name) for name in ("nvidia.com/gpu", "cpu", "memory"))

    def place(job: Job) -> tuple[Fraction, int, int, int, str]:
        trainer = job.trainer
        asked = (amount(trainer, gpu), amount(trainer, cpu), amount(trainer, memory))
        return (_fulfilment(job, current[job.key]), *asked, job.key)

    return sorted(jobs, key=place)


def _fulfilment(job: Job, current: int) -> Fraction:
    if not is_elastic(job):
        return Fraction(1)
    return Fraction(current - job.minimum, job.maximum - job.minimum)


def walk(jobs: list[Job], current: Mapping[str, int], *, up: Step, down: Step) -> Outcome:
    """Repeat passes over the jobs until one ends where it began.

    EDL repeats until nothing changes within a pass. A pass of changes that cancel out would be repeated for
    ever (a GPU given and taken back at the line): here the walk ends with it.
    """
    planned = dict(current)
    steps = 0
    for _ in range(_bound(jobs, current)):
        before = dict(planned)
        for job in jobs:
            planned[job.key] += up(job, planned[job.key])
        for job in reversed(jobs):
            planned[job.key] += down(job, planned[job.key])
        steps += 2 * len(jobs)
        if planned == before:
            break
    return Outcome(planned=planned, steps=steps)


def _bound(jobs: Iterable[Job], current: Mapping[str, int]) -> int:
    """Give more passes than any walk needs: one for each trainer that could come or go, and two."""
    return 2 + sum(max(job.maximum, current[job.key]) for job in jobs)
