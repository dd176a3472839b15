"""What must have come about by the end of a simulation in which nothing happened for a while."""

from __future__ import annotations

from collections.abc import Iterator

from mlstack.simulator.measures import JobSample, Sample
from mlstack.simulator.run import SimulationOutcome

LONGEST_S = 110
"""So long a job may have been admitted without its whole gang: it is given up after 90 s."""

STEADY_S = 60
"""What a job was told to have for so long it has."""


def undone(outcome: SimulationOutcome) -> list[str]:
    """Give what should have come about and has not."""
    found = []
    for job in outcome.samples[-1].jobs:
        last = list(_of(outcome.samples, job.key))
        if all(map(_is_partial, last[-LONGEST_S:])):
            found.append(f"{job.key} has not had its whole gang for {LONGEST_S} s")
        if _is_short(last[-STEADY_S:]):
            found.append(f"{job.key} was told to have {job.target} trainers and has {job.trainers}")
        if job.target == 0 and all(one.target == 0 and one.pods for one in last[-STEADY_S:]):
            found.append(f"{job.key} is to have no pods and has {job.pods}")
    return found


def _of(samples: tuple[Sample, ...], key: str) -> Iterator[JobSample]:
    return (job for sample in samples for job in sample.jobs if job.key == key)


def _is_partial(job: JobSample) -> bool:
    return bool(job.target) and not job.is_complete and not job.is_over and job.phase != "Completing"


def _is_short(last: list[JobSample]) -> bool:
    if last[-1].is_over or not last[-1].target or last[-1].phase == "Completing":
        return False
    return all(job.target == last[-1].target and job.trainers != job.target for job in last)
