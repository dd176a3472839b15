"""What a person reads of one simulation: a summary, a row a second for a spreadsheet, and a drawing."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mlstack.dataclass import Record, row
from mlstack.elastic.policy.sharing import jain
from mlstack.errors import UsageError
from mlstack.simulator import measures
from mlstack.simulator.measures import PARTS, SERIES, JobHistory, Raise, Samples, over_time
from mlstack.simulator.run import SimulationOutcome
from mlstack.simulator.scenario import NAMESPACE


class ResourceUse(Record):
    """How much of a resource was used: means over time, in percent of what all nodes offer."""

    name: str  # of the resource
    utilisation: float  # requests of running pods
    of_samples: float  # the same as plain mean of the samples, which is how EDL counted
    useful: float  # the part of it of whole gangs and services
    background: float  # the part of it of the background
    requested: float  # requests of all pods, those without a node included
    stranded: float  # free where no trainer fits


class WaitSummary(Record):
    """How long jobs waited for something, in seconds; those that never got there count with their time."""

    mean: float  # of all jobs
    p50: float  # what half of the jobs do not exceed
    p95: float  # what 19 of 20 jobs do not exceed
    max: float  # the longest
    never: int  # how many jobs never got there


class Completion(Record):
    """How jobs came to their end."""

    finished: int  # jobs that succeeded
    unfinished: int  # jobs that had an end to reach (`work`) and did not succeed
    # mean time from submission to success of those that succeeded (JCT), null without any
    mean_s: float | None
    p95_s: float | None  # what 19 of 20 of these times do not exceed, likewise
    makespan_s: float | None  # from the first submission to the last success; null if work was left


class ServiceSummary(Record):
    """One service of a simulation."""

    name: str
    lacking: float  # pods that it missed, mean over the whole time
    shortfall: float  # pods that it missed, mean over the time after its target was raised
    raises: tuple[Raise, ...]  # the raised targets, each with the seconds until 99 % of it ran


class JobSummary(Record):
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


class SimulationReport(Record):
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
    samples, last = outcome.samples, outcome.samples[-1]
    resources = tuple(_resource(samples, name) for name in measures.resources(samples))
    histories = measures.histories(samples)
    scalings = {key: measures.scalings(history, samples[0].at_ms) for key, history in histories.items()}
    jct_s = {
        job.name: round(end_s - (job.at_ms - outcome.scenario.begin_ms) / 1000, 3)
        for job in outcome.scenario.jobs
        if (end_s := measures.succeeded_s(histories.get(f"{NAMESPACE}/{job.name}", ()))) is not None
    }
    return row(
        SimulationReport,
        outcome,
        resources[0],  # the cores
        scenario=outcome.scenario.name,
        seconds=last.at_ms / 1000,
        resources=resources,
        first_trainer=_waits(histories.values(), for_gang=False),
        whole_gang=_waits(histories.values(), for_gang=True),
        completion=_completion(outcome, jct_s),
        jain=round(jain(last.trainers), 3),
        spread=measures.spread(last.trainers),
        grown=sum(up for up, _, _ in scalings.values()),
        shrunk=sum(down for _, down, _ in scalings.values()),
        creations=last.created,
        deletions=last.deleted,
        services=tuple(_service(samples, key) for key in _keys(samples, "services")),
        jobs=tuple(_job(key, history, scalings[key], jct_s) for key, history in histories.items()),
    )


def _resource(samples: Samples, name: str) -> ResourceUse:
    def mean(part: str) -> float:
        return round(over_time(samples, lambda sample: sample.share(part, name)), 2)

    of_samples = round(measures.mean(sample.share("running", name) for sample in samples), 2)
    return ResourceUse(
        name=name, of_samples=of_samples, **{field: mean(part) for field, part in PARTS.items()}
    )


def _waits(histories: Iterable[JobHistory], *, for_gang: bool) -> WaitSummary:
    waits = [measures.wait(history, for_gang=for_gang) for history in histories]
    seconds = [seconds for seconds, _ in waits]
    return WaitSummary(
        mean=round(measures.mean(seconds), 2),
        p50=measures.percentile(seconds, 50),
        p95=measures.percentile(seconds, 95),
        max=max(seconds, default=0.0),
        never=sum(not is_met for _, is_met in waits),
    )


def _completion(outcome: SimulationOutcome, jct_s: Mapping[str, float]) -> Completion:
    submitted_s = {job.name: job.at_ms / 1000 for job in outcome.scenario.jobs}
    left = sum(bool(job.work_s) and job.name not in jct_s for job in outcome.scenario.jobs)
    ends = [submitted_s[name] + seconds for name, seconds in jct_s.items()]
    return Completion(
        finished=len(jct_s),
        unfinished=left,
        mean_s=round(measures.mean(jct_s.values()), 2) if jct_s else None,
        p95_s=measures.percentile(jct_s.values(), 95) if jct_s else None,
        makespan_s=round(max(ends) - min(submitted_s.values()), 3) if jct_s and not left else None,
    )


def _service(samples: Samples, key: str) -> ServiceSummary:
    return ServiceSummary(
        name=key.partition("/")[2],
        lacking=round(over_time(samples, lambda sample: measures.missing(sample, key)), 2),
        shortfall=round(measures.shortfall(samples, key), 2),
        raises=tuple(measures.raises(samples, key)),
    )


def _job(
    key: str, history: JobHistory, scalings: tuple[int, int, int], jct_s: Mapping[str, float]
) -> JobSummary:
    name, rows = key.partition("/")[2], [job for _, job in history]
    whole = next((index for index, job in enumerate(rows) if job.is_complete), len(rows))
    after = [job.trainers for job in rows[whole:] if not job.is_over]
    return JobSummary(
        name=name,
        wait_s=measures.wait(history, for_gang=False)[0],
        gang_s=measures.wait(history, for_gang=True)[0],
        has_begun=any(not job.is_pending for job in rows),
        was_whole=whole < len(rows),
        jct_s=jct_s.get(name),
        fewest=min(after, default=0),
        mean=round(measures.mean(after), 1),
        most=max(job.trainers for job in rows),
        scalings=scalings[0] + scalings[1],
        turns=scalings[2],
        phase=rows[-1].phase,
    )


def _keys(samples: Samples, field: str) -> list[str]:
    return sorted({item.key for sample in samples for item in getattr(sample, field)})


def to_csv(samples: Samples) -> str:
    """Write one row a second as CSV: figures of the cores, services, jobs, the use of other resources."""
    services, jobs = _keys(samples, "services"), _keys(samples, "jobs")
    others = measures.resources(samples)[1:]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            *("seconds", *SERIES),
            *(f"{key}:{part}" for key in services for part in ("target", "running")),
            *(f"{key}:{part}" for key in jobs for part in ("trainers", "target")),
            *(f"utilisation:{name}" for name in others),
        ]
    )
    for sample in samples:
        by_service = {service.key: (service.target, service.running) for service in sample.services}
        by_job = {job.key: (job.trainers, job.target) for job in sample.jobs}
        writer.writerow(
            [
                f"{sample.at_ms / 1000:g}",
                *(f"{series.value(sample):.{series.digits}f}" for series in SERIES.values()),
                *(value for key in services for value in by_service.get(key, ("", ""))),
                *(value for key in jobs for value in by_job.get(key, ("", ""))),
                *(f"{sample.share('running', name):.3f}" for name in others),
            ]
        )
    return text.getvalue()


# --- draw samples: the only door to matplotlib, an extra (`pip install 'mlstack[plot]'`) ---

_LEGEND = 12  # most lines that are named beside them
_Line = tuple[str, Sequence[float | None], dict[str, Any]]  # name, a value a sample, how it looks


def library() -> Any:
    """Give matplotlib (about half a second to import), or raise UsageError where it is not installed."""
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError(
            "plots need matplotlib, which is not installed", hint="pip install 'mlstack[plot]'"
        ) from error
    return matplotlib


def draw(samples: Samples, title: str) -> str:
    """Draw samples as SVG, the same for the same samples; a UsageError without matplotlib."""
    matplotlib = library()
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "mlstack", "font.size": 9}):
        figure = Figure(figsize=(10, 8), layout="constrained")
        seconds = [sample.at_ms / 1000 for sample in samples]
        panels = _panels(samples)
        for axes, (label, lines, legend) in zip(figure.subplots(3, 1, sharex=True), panels, strict=True):
            for name, values, style in lines:
                axes.plot(seconds, values, label=name, **style)
            axes.set_ylabel(label)
            axes.set_ylim(bottom=0)
            if 0 < len(lines) <= _LEGEND:
                axes.legend(**legend)
        axes.set_xlabel("seconds")
        figure.suptitle(title)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def _panels(samples: Samples) -> list[tuple[str, list[_Line], dict[str, Any]]]:
    def series(name: str) -> list[float]:
        return [SERIES[name].value(sample) for sample in samples]

    use: list[_Line] = [
        ("requested", series("requested"), {"lw": 0.8}),
        ("running", series("utilisation"), {"lw": 1.6}),
        ("useful", series("useful"), {"lw": 1.2}),
        ("stranded", series("stranded"), {"lw": 0.8}),
    ]
    for name in measures.resources(samples)[1:]:
        shares = [sample.share("running", name) for sample in samples]
        use.append((f"running, {name}", shares, {"lw": 0.8, "ls": "--"}))
    by_key = [{job.key: job.trainers for job in sample.jobs} for sample in samples]
    trainers: list[_Line] = [
        (key.partition("/")[2], [jobs.get(key) for jobs in by_key], {"lw": 1.0})
        for key in _keys(samples, "jobs")
    ]
    steps = {"drawstyle": "steps-post"}
    waiting: list[_Line] = [("pending jobs", series("pending_jobs"), steps)]
    missing = [sum(service.missing for service in sample.services) for sample in samples]
    if any(missing):
        waiting.append(("missing pods of services", missing, steps))
    return [
        ("% of cores, or as named", use, {"loc": "lower right", "ncols": 4}),
        ("trainers", trainers, {"loc": "upper right", "ncols": 3}),
        ("waiting", waiting, {"loc": "upper right"}),
    ]
