"""What a person reads of one simulation: a row a second for a spreadsheet, and a summary."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass

from mlstack.elastic import measures
from mlstack.elastic.measures import Samples
from mlstack.elastic.sampling import Sample
from mlstack.elastic.simulate.run import Outcome


@dataclass(frozen=True, kw_only=True)
class JobSummary:
    """One job of a simulation.

    Attributes:
        name: its name.
        wait_s: from its submission to its first running trainer.
        gang_s: from its submission to its whole gang; the length of the simulation if that never ran.
        fewest: fewest running trainers after that.
        mean: mean of running trainers after that.
        most: most running trainers.
        turns: how often what it was told to have turned from growing to shrinking or back.
        phase: at the end, empty where nobody writes one.
    """

    name: str
    wait_s: float
    gang_s: float
    fewest: int
    mean: float
    most: int
    turns: int
    phase: str


@dataclass(frozen=True, kw_only=True)
class SimulationReport:
    """One simulation, summed up.

    Attributes:
        scenario: its name.
        policy: how jobs were scaled.
        seed: of chance.
        seconds: how long it was.
        utilisation: mean over time, in percent of the cluster's cores.
        useful: the part of it of whole gangs and services.
        stranded: cores that were free where no trainer fits, likewise.
        jain: fairness of trainers at the end.
        deletions: trainers that were deleted.
        jobs: the jobs by name.
        violations: breaches of what must always hold.
    """

    scenario: str
    policy: str
    seed: int
    seconds: float
    utilisation: float
    useful: float
    stranded: float
    jain: float
    deletions: int
    jobs: tuple[JobSummary, ...]
    violations: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Tell whether all that must hold did."""
        return not self.violations


def summary(outcome: Outcome) -> SimulationReport:
    """Sum a simulation up."""
    samples = outcome.samples
    return SimulationReport(
        scenario=outcome.scenario.name,
        policy=outcome.policy,
        seed=outcome.seed,
        seconds=samples[-1].at_ms / 1000,
        utilisation=round(measures.over_time(samples, measures.utilisation), 2),
        useful=round(measures.over_time(samples, measures.useful), 2),
        stranded=round(measures.over_time(samples, lambda one: one.share(one.stranded)), 2),
        jain=round(measures.jain(measures.trainers(samples[-1])), 3),
        deletions=samples[-1].deleted,
        jobs=tuple(_jobs(samples)),
        violations=outcome.violations,
    )


def _jobs(samples: Samples) -> Iterator[JobSummary]:
    first, gang = measures.waits_for_trainer(samples), measures.waits_for_gang(samples)
    turns = measures.turns(samples)
    for key in sorted(first.seconds):
        rows = [job for sample in samples for job in sample.jobs if job.key == key]
        whole = next((index for index, job in enumerate(rows) if job.is_complete), len(rows))
        after = [job.trainers for job in rows[whole:] if not job.is_over]
        yield JobSummary(
            name=key.partition("/")[2],
            wait_s=first.seconds[key],
            gang_s=gang.seconds[key],
            fewest=min(after, default=0),
            mean=round(measures.mean(after), 1),
            most=max((job.trainers for job in rows), default=0),
            turns=turns.get(key, 0),
            phase=rows[-1].phase,
        )


def rows(samples: Samples) -> str:
    """Write one row a second as CSV: shares in percent of the cores, then services and jobs in columns."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    services = sorted({service.key for sample in samples for service in sample.services})
    jobs = sorted({job.key for sample in samples for job in sample.jobs})
    writer.writerow(
        [
            *("seconds", "utilisation", "useful", "background", "requested", "stranded"),
            *("pending_jobs", "complete_jobs", "jain", "trainers", "created", "deleted"),
            *(f"{key}:{part}" for key in services for part in ("target", "running")),
            *(f"{key}:{part}" for key in jobs for part in ("trainers", "target")),
        ]
    )
    for sample in samples:
        writer.writerow([*_shares(sample), *_services(sample, services), *_trainers(sample, jobs)])
    return text.getvalue()


def _shares(sample: Sample) -> Iterator[object]:
    yield f"{sample.at_ms / 1000:g}"
    for part in (sample.running, sample.useful, sample.background, sample.requested, sample.stranded):
        yield f"{sample.share(part):.3f}"
    trainers = measures.trainers(sample)
    yield from (measures.pending(sample), measures.complete(sample), f"{measures.jain(trainers):.4f}")
    yield from (sum(trainers), sample.created, sample.deleted)


def _services(sample: Sample, keys: list[str]) -> Iterator[object]:
    known = {service.key: service for service in sample.services}
    for key in keys:
        yield from (known[key].target, known[key].running) if key in known else ("", "")


def _trainers(sample: Sample, keys: list[str]) -> Iterator[object]:
    known = {job.key: job for job in sample.jobs}
    for key in keys:
        if key not in known:
            yield from ("", "")
        else:
            yield from (known[key].trainers, "" if known[key].target is None else known[key].target)
