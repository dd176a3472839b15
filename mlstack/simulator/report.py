"""The parts of a report on one simulation: resources, waits, ends of jobs, services, and each job."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mlstack.simulator import measures
from mlstack.simulator.measures import Raise, Sample, Samples, Value, Waits, over_time
from mlstack.simulator.run import SimulationOutcome
from mlstack.simulator.scenario import NAMESPACE

# --- The parts of a report on one simulation: resources, waits, ends of jobs, services, and each
# job


@dataclass(frozen=True, kw_only=True)
class ResourceUse:
    """How much of a resource was used: means over time, in percent of what all nodes offer."""

    name: str  # of the resource
    utilisation: float  # requests of running pods
    of_samples: float  # the same as plain mean of the samples, which is how EDL counted
    useful: float  # the part of it of whole gangs and services
    background: float  # the part of it of the background
    requested: float  # requests of all pods, those without a node included
    stranded: float  # free where no trainer fits


@dataclass(frozen=True, kw_only=True)
class WaitSummary:
    """How long jobs waited for something, in seconds; those that never got there count with their time."""

    mean: float  # of all jobs
    p50: float  # what half of the jobs do not exceed
    p95: float  # what 19 of 20 jobs do not exceed
    max: float  # the longest
    never: int  # how many jobs never got there


@dataclass(frozen=True, kw_only=True)
class Completion:
    """How jobs came to their end."""

    finished: int  # jobs that succeeded
    unfinished: int  # jobs that had an end to reach (`work`) and did not succeed
    # mean time from submission to success of those that succeeded (JCT), null without any
    mean_s: float | None
    p95_s: float | None  # what 19 of 20 of these times do not exceed, likewise
    makespan_s: float | None  # from the first submission to the last success; null if work was left


@dataclass(frozen=True, kw_only=True)
class ServiceSummary:
    """One service of a simulation."""

    name: str
    lacking: float  # pods that it missed, mean over the whole time
    shortfall: float  # pods that it missed, mean over the time after its target was raised
    raises: tuple[Raise, ...]  # the raised targets, each with the seconds until 99 % of it ran


@dataclass(frozen=True, kw_only=True)
class JobSummary:
    """One job of a simulation."""

    name: str
    wait_s: float  # from its submission to its first running trainer; its whole time if none ever ran
    gang_s: float  # from its submission to its whole gang, likewise
    has_begun: bool  # whether a trainer of it ever ran
    was_whole: bool  # whether its whole gang ever ran
    jct_s: float | None  # from its submission to its success, null for none
    fewest: int  # fewest running trainers after its gang was whole
    mean: float  # mean of running trainers after that
    most: int  # most running trainers
    scalings: int  # how often it was told to have more or fewer trainers
    turns: int  # how often that turned from growing to shrinking or back
    phase: str  # at the end, empty where nobody writes one


def resources(samples: Samples) -> tuple[ResourceUse, ...]:
    """Sum up what was used of each resource, cores first."""
    return tuple(_resource(samples, name) for name in measures.resources(samples))


def _resource(samples: Samples, name: str) -> ResourceUse:
    def mean(value: Value) -> float:
        return round(over_time(samples, value), 2)

    return ResourceUse(
        name=name,
        utilisation=mean(lambda one: measures.utilisation(one, name)),
        of_samples=round(measures.mean(measures.utilisation(one, name) for one in samples), 2),
        useful=mean(lambda one: measures.useful(one, name)),
        background=mean(lambda one: one.share(one.background, name)),
        requested=mean(lambda one: one.share(one.requested, name)),
        stranded=mean(lambda one: one.share(one.stranded, name)),
    )


def waits(found: Waits) -> WaitSummary:
    """Sum waits up."""
    return WaitSummary(
        mean=round(found.mean, 2),
        p50=found.percentile(50),
        p95=found.percentile(95),
        max=found.most,
        never=found.censored,
    )


def completion(outcome: SimulationOutcome) -> Completion:
    """Sum up how jobs came to their end."""
    times = jct_s(outcome)
    plans = outcome.scenario.jobs
    left = sum(bool(job.work_s) and job.name not in times for job in plans)
    submitted = {job.name: job.at_ms / 1000 for job in plans}
    ends = [submitted[name] + seconds for name, seconds in times.items()]
    has_all = bool(times) and not left
    return Completion(
        finished=len(times),
        unfinished=left,
        mean_s=round(measures.mean(times.values()), 2) if times else None,
        p95_s=measures.percentile(times.values(), 95) if times else None,
        makespan_s=round(max(ends) - min(submitted.values()), 3) if has_all else None,
    )


def jct_s(outcome: SimulationOutcome) -> dict[str, float]:
    """Give from submission to success the seconds of each job that succeeded, by name."""
    ends = measures.succeeded_s(outcome.samples)
    begin_ms = outcome.scenario.begin_ms
    return {
        job.name: round(ends[key] - (job.at_ms - begin_ms) / 1000, 3)
        for job in outcome.scenario.jobs
        if (key := f"{NAMESPACE}/{job.name}") in ends
    }


def services(samples: Samples) -> Iterator[ServiceSummary]:
    """Sum each service up, by name."""
    for key in sorted({service.key for sample in samples for service in sample.services}):
        yield ServiceSummary(
            name=key.partition("/")[2],
            lacking=round(measures.lacking(samples, key), 2),
            shortfall=round(measures.shortfall(samples, key), 2),
            raises=tuple(measures.raises(samples, key)),
        )


def jobs(outcome: SimulationOutcome) -> Iterator[JobSummary]:
    """Sum each job up, by name."""
    samples = outcome.samples
    first, gang = measures.waits_for_trainer(samples), measures.waits_for_gang(samples)
    turns, scalings, times = measures.turns(samples), measures.scalings(samples), jct_s(outcome)
    for key in sorted(first.seconds):
        name = key.partition("/")[2]
        rows = [job for sample in samples for job in sample.jobs if job.key == key]
        whole = next((index for index, job in enumerate(rows) if job.is_complete), len(rows))
        after = [job.trainers for job in rows[whole:] if not job.is_over]
        yield JobSummary(
            name=name,
            wait_s=first.seconds[key],
            gang_s=gang.seconds[key],
            has_begun=any(not job.is_pending for job in rows),
            was_whole=whole < len(rows),
            jct_s=times.get(name),
            fewest=min(after, default=0),
            mean=round(measures.mean(after), 1),
            most=max((job.trainers for job in rows), default=0),
            scalings=sum(scalings.get(key, ())),
            turns=turns.get(key, 0),
            phase=rows[-1].phase,
        )


# --- What a person reads of one simulation: a row a second for a spreadsheet, and a summary ---


@dataclass(frozen=True, kw_only=True)
class SimulationReport:
    """One simulation, summed up."""

    scenario: str  # its name
    policy: str  # how jobs were scaled
    seed: int  # of chance
    seconds: float  # how long it was
    utilisation: float  # mean over time, in percent of the cluster's cores
    useful: float  # the part of it of whole gangs and services
    stranded: float  # cores that were free where no trainer fits, likewise
    # the same of every resource that the nodes have, and more; cores first
    resources: tuple[ResourceUse, ...]
    first_trainer: WaitSummary  # how long jobs waited for their first running trainer
    whole_gang: WaitSummary  # how long jobs waited until their whole gang ran
    completion: Completion  # how jobs came to their end
    jain: float  # fairness of trainers at the end
    spread: int  # difference between most and fewest trainers of a job at the end
    grown: int  # how often a job was told to have more trainers; with EDL's own way, how often it had
    shrunk: int  # how often a job was told to have fewer, likewise; its end does not count
    creations: int  # trainers that were made
    deletions: int  # trainers that were deleted
    passes: int  # how often the controller looked; 0 for EDL's own way
    calls: Mapping[str, int]  # its requests to the API server, by verb; none for EDL's own way
    services: tuple[ServiceSummary, ...]  # the services by name
    jobs: tuple[JobSummary, ...]  # the jobs by name
    violations: tuple[str, ...]  # breaches of what must always hold

    @property
    def ok(self) -> bool:
        """Tell whether all that must hold did."""
        return not self.violations


def summary(outcome: SimulationOutcome) -> SimulationReport:
    """Sum a simulation up."""
    samples = outcome.samples
    used = resources(samples)
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
        first_trainer=waits(measures.waits_for_trainer(samples)),
        whole_gang=waits(measures.waits_for_gang(samples)),
        completion=completion(outcome),
        jain=round(measures.jain(trainers), 3),
        spread=measures.spread(trainers),
        grown=sum(up for up, _ in steps),
        shrunk=sum(down for _, down in steps),
        creations=samples[-1].created,
        deletions=samples[-1].deleted,
        passes=outcome.passes,
        calls=outcome.calls,
        services=tuple(services(samples)),
        jobs=tuple(jobs(outcome)),
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
