"""The parts of a report on one simulation: resources, waits, ends of jobs, services, and each job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mlstack.elastic import measures, service_measures
from mlstack.elastic.measures import Samples, Value, Waits, over_time
from mlstack.elastic.service_measures import Raise
from mlstack.elastic.simulate.objects import NAMESPACE
from mlstack.elastic.simulate.run import Outcome


@dataclass(frozen=True, kw_only=True)
class ResourceUse:
    """How much of a resource was used: means over time, in percent of what all nodes offer.

    Attributes:
        name: of the resource.
        utilisation: requests of running pods.
        of_samples: the same as plain mean of the samples, which is how EDL counted.
        useful: the part of it of whole gangs and services.
        background: the part of it of the background.
        requested: requests of all pods, those without a node included.
        stranded: free where no trainer fits.
    """

    name: str
    utilisation: float
    of_samples: float
    useful: float
    background: float
    requested: float
    stranded: float


@dataclass(frozen=True, kw_only=True)
class WaitSummary:
    """How long jobs waited for something, in seconds; those that never got there count with their time.

    Attributes:
        mean: of all jobs.
        p50: what half of the jobs do not exceed.
        p95: what 19 of 20 jobs do not exceed.
        max: the longest.
        never: how many jobs never got there.
    """

    mean: float
    p50: float
    p95: float
    max: float
    never: int


@dataclass(frozen=True, kw_only=True)
class Completion:
    """How jobs came to their end.

    Attributes:
        finished: jobs that succeeded.
        unfinished: jobs that had an end to reach (`work`) and did not succeed.
        mean_s: mean time from submission to success of those that succeeded (JCT), null without any.
        p95_s: what 19 of 20 of these times do not exceed, likewise.
        makespan_s: from the first submission to the last success; null if work was left.
    """

    finished: int
    unfinished: int
    mean_s: float | None
    p95_s: float | None
    makespan_s: float | None


@dataclass(frozen=True, kw_only=True)
class ServiceSummary:
    """One service of a simulation.

    Attributes:
        name: its name.
        lacking: pods that it missed, mean over the whole time.
        shortfall: pods that it missed, mean over the time after its target was raised.
        raises: the raised targets, each with the seconds until 99 % of it ran.
    """

    name: str
    lacking: float
    shortfall: float
    raises: tuple[Raise, ...]


@dataclass(frozen=True, kw_only=True)
class JobSummary:
    """One job of a simulation.

    Attributes:
        name: its name.
        wait_s: from its submission to its first running trainer; its whole time if none ever ran.
        gang_s: from its submission to its whole gang, likewise.
        has_begun: whether a trainer of it ever ran.
        was_whole: whether its whole gang ever ran.
        jct_s: from its submission to its success, null for none.
        fewest: fewest running trainers after its gang was whole.
        mean: mean of running trainers after that.
        most: most running trainers.
        scalings: how often it was told to have more or fewer trainers.
        turns: how often that turned from growing to shrinking or back.
        phase: at the end, empty where nobody writes one.
    """

    name: str
    wait_s: float
    gang_s: float
    has_begun: bool
    was_whole: bool
    jct_s: float | None
    fewest: int
    mean: float
    most: int
    scalings: int
    turns: int
    phase: str


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


def completion(outcome: Outcome) -> Completion:
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


def jct_s(outcome: Outcome) -> dict[str, float]:
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
            lacking=round(service_measures.lacking(samples, key), 2),
            shortfall=round(service_measures.shortfall(samples, key), 2),
            raises=tuple(service_measures.raises(samples, key)),
        )


def jobs(outcome: Outcome) -> Iterator[JobSummary]:
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
