"""What a person reads of one simulation: a row a second for a spreadsheet, and a summary."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mlstack.elastic import measures
from mlstack.elastic.measures import Samples
from mlstack.elastic.sampling import Sample
from mlstack.elastic.simulate import summaries
from mlstack.elastic.simulate.run import Outcome
from mlstack.elastic.simulate.summaries import (
    Completion,
    JobSummary,
    ResourceUse,
    ServiceSummary,
    WaitSummary,
)


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
        resources: the same of every resource that the nodes have, and more; cores first.
        first_trainer: how long jobs waited for their first running trainer.
        whole_gang: how long jobs waited until their whole gang ran.
        completion: how jobs came to their end.
        jain: fairness of trainers at the end.
        spread: difference between most and fewest trainers of a job at the end.
        grown: how often a job was told to have more trainers; with EDL's own way, how often it had.
        shrunk: how often a job was told to have fewer, likewise; its end does not count.
        creations: trainers that were made.
        deletions: trainers that were deleted.
        passes: how often the controller looked; 0 for EDL's own way.
        calls: its requests to the API server, by verb; none for EDL's own way.
        services: the services by name.
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
    resources: tuple[ResourceUse, ...]
    first_trainer: WaitSummary
    whole_gang: WaitSummary
    completion: Completion
    jain: float
    spread: int
    grown: int
    shrunk: int
    creations: int
    deletions: int
    passes: int
    calls: Mapping[str, int]
    services: tuple[ServiceSummary, ...]
    jobs: tuple[JobSummary, ...]
    violations: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Tell whether all that must hold did."""
        return not self.violations


def summary(outcome: Outcome) -> SimulationReport:
    """Sum a simulation up."""
    samples = outcome.samples
    used = summaries.resources(samples)
    trainers = measures.trainers(samples[-1])
    steps = measures.scalings(samples).values()
    return SimulationReport(
        scenario=outcome.scenario.name,
        policy=outcome.policy,
        seed=outcome.seed,
        seconds=samples[-1].at_ms / 1000,
        utilisation=used[0].utilisation,
        useful=used[0].useful,
        stranded=used[0].stranded,
        resources=used,
        first_trainer=summaries.waits(measures.waits_for_trainer(samples)),
        whole_gang=summaries.waits(measures.waits_for_gang(samples)),
        completion=summaries.completion(outcome),
        jain=round(measures.jain(trainers), 3),
        spread=measures.spread(trainers),
        grown=sum(up for up, _ in steps),
        shrunk=sum(down for _, down in steps),
        creations=samples[-1].created,
        deletions=samples[-1].deleted,
        passes=outcome.passes,
        calls=outcome.calls,
        services=tuple(summaries.services(samples)),
        jobs=tuple(summaries.jobs(outcome)),
        violations=outcome.violations,
    )


def rows(samples: Samples) -> str:
    """Write one row a second as CSV.

    Shares are percent of the cores; services and jobs follow in columns, then the utilisation of every other
    resource that the nodes have.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    services = sorted({service.key for sample in samples for service in sample.services})
    jobs = sorted({job.key for sample in samples for job in sample.jobs})
    others = measures.resources(samples)[1:]
    writer.writerow(
        [
            *("seconds", "utilisation", "useful", "background", "requested", "stranded"),
            *("pending_jobs", "complete_jobs", "jain", "trainers", "created", "deleted"),
            *(f"{key}:{part}" for key in services for part in ("target", "running")),
            *(f"{key}:{part}" for key in jobs for part in ("trainers", "target")),
            *(f"utilisation:{name}" for name in others),
        ]
    )
    for sample in samples:
        shares = [f"{measures.utilisation(sample, name):.3f}" for name in others]
        writer.writerow([*_shares(sample), *_services(sample, services), *_trainers(sample, jobs), *shares])
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
