"""What a report tells of a simulation, from samples made by hand and from small runs."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import pytest

from mlstack.simulator import report, scenario
from mlstack.simulator.measures import Sample
from mlstack.simulator.run import SimulationOutcome, simulate
from mlstack.simulator.scenario import JobPlan, Scenario
from tests.support.samples import job, sample

GPU = "nvidia.com/gpu"


def outcome(*samples: Sample, work: dict[str, float] | None = None, begin: float = 0) -> SimulationOutcome:
    """Give what came of jobs with work that were submitted at these seconds."""
    plans = [
        JobPlan(name=name, at_ms=round(second * 1000), spec={}, work_s=9)
        for name, second in (work or {}).items()
    ]
    scenario = Scenario(name="made", nodes=(), jobs=tuple(plans), begin_ms=round(begin * 1000))
    return SimulationOutcome(
        scenario=scenario,
        policy="fair",
        seed=0,
        samples=samples,
        violations=(),
        passes=7,
        calls={"create": 2},
    )


def summed(*samples: Sample, **more: Any) -> report.SimulationReport:
    return report.summary(outcome(*samples, **more))


def with_gpus(second: int, *, cores: int, gpus: int) -> Sample:
    """Give a moment of a cluster of 100 cores and 8 GPUs."""
    sampled = sample(second, running=cores)
    return replace(
        sampled,
        allocatable={**sampled.allocatable, GPU: 8, "pods": 110, "memory": 0},
        running={**sampled.running, GPU: gpus},
    )


def test_every_resource_that_nodes_have_is_told_beside_the_mean_of_samples() -> None:
    summary = summed(
        with_gpus(0, cores=0, gpus=4), with_gpus(1, cores=10, gpus=8), with_gpus(5, cores=70, gpus=0)
    )
    assert [(resource.name, resource.utilisation, resource.of_samples) for resource in summary.resources] == [
        ("cpu", 8.0, 26.67),
        (GPU, 90.0, 50.0),
    ]
    assert summary.utilisation == 8.0


def test_rows_keep_their_columns_and_end_with_the_other_resources() -> None:
    moments = [with_gpus(0, cores=20, gpus=2), with_gpus(1, cores=40, gpus=8)]
    header, *rows = csv.reader(io.StringIO(report.to_csv(moments)))
    assert header[:6] == ["seconds", "utilisation", "useful", "background", "requested", "stranded"]
    assert header[-1] == f"utilisation:{GPU}"
    assert [(row[1], row[-1]) for row in rows] == [("20.000", "25.000"), ("40.000", "100.000")]


def test_times_of_jobs_count_from_their_submission() -> None:
    summary = summed(
        sample(0, job("a", 2)),
        sample(10, job("a", 0, phase="Succeeded"), job("b", 2)),
        sample(40, job("a", 0, phase="Succeeded"), job("b", 0, phase="Succeeded")),
        work={"a": 2.5, "b": 12},
        begin=5,
    )
    ends = summary.completion
    assert {job.name: job.jct_s for job in summary.jobs} == {"a": 12.5, "b": 33.0}
    assert (ends.finished, ends.unfinished) == (2, 0)
    assert (ends.mean_s, ends.p95_s, ends.makespan_s) == (22.75, 33.0, 42.5)


def test_work_that_is_left_leaves_the_makespan_open() -> None:
    summary = summed(
        sample(0, job("a", 2), job("b", 2), job("c", 1)),
        sample(10, job("a", 0, phase="Succeeded"), job("b", 2), job("c", 0, phase="Failed")),
        work={"a": 0, "b": 0, "c": 0},
    )
    ends = summary.completion
    assert (ends.finished, ends.unfinished, ends.mean_s, ends.makespan_s) == (1, 2, 10.0, None)
    assert {job.name: job.jct_s for job in summary.jobs} == {"a": 10.0, "b": None, "c": None}


def test_without_a_finished_job_there_are_no_times() -> None:
    ends = summed(sample(0, job("a", 2)), sample(1, job("a", 2)), work={"a": 0}).completion
    assert (ends.finished, ends.mean_s, ends.p95_s, ends.makespan_s) == (0, None, None, None)


def test_waits_tell_how_many_never_got_there() -> None:
    begins = [sample(0, *(job(name, 0) for name in "abcd"))]
    begun = {"a": 2, "b": 4, "c": 9, "d": 99}
    later = [
        sample(second, *(job(name, int(second >= due)) for name, due in begun.items()))
        for second in range(1, 11)
    ]
    summary = summed(*begins, *later)
    first = summary.first_trainer
    assert (first.mean, first.p50, first.p95, first.max, first.never) == (6.25, 4.0, 10.0, 10.0, 1)
    assert summary.whole_gang.never == 4
    assert [job.has_begun for job in summary.jobs] == [True, True, True, False]
    assert not any(job.was_whole for job in summary.jobs)


def test_services_tell_what_they_missed_and_when_a_raised_target_was_served() -> None:
    summary = summed(
        sample(0, service=(100, 100)),
        *(sample(second, service=(200, min(200, 100 + 20 * (second - 10)))) for second in range(10, 20)),
        sample(20, service=(300, 200)),
        sample(25, service=(300, 250)),
    )
    (web,) = summary.services
    assert web.name == "web"
    assert [(step.target, step.seconds, step.is_served) for step in web.raises] == [
        (200, 5.0, True),
        (300, 5.0, False),
    ]
    assert web.lacking == pytest.approx((300 + 500) / 25)
    assert web.shortfall == pytest.approx((300 + 500) / 14, abs=0.01)


def test_changes_of_what_jobs_were_told_are_counted_by_direction() -> None:
    counts = ([2, 5, 5, 3, 4], [6, 6, 1, 1, 0])
    summary = summed(
        *(
            sample(second, job("a", a), job("b", b, phase="Completing" if second == 4 else "Running"))
            for second, (a, b) in enumerate(zip(*counts, strict=True))
        )
    )
    assert (summary.grown, summary.shrunk, summary.spread) == (2, 2, 4)
    assert [job.scalings for job in summary.jobs] == [3, 1]
    assert (summary.passes, summary.calls) == (7, {"create": 2})


@pytest.fixture(scope="module")
def mixed() -> dict[str, Any]:
    """Give a cluster with GPUs where a job has an end and finds its most."""
    return {
        "seconds": 90,
        "nodes": [{"name": "g", "count": 2, "cpu": 8, "memory": "32Gi", "gpu": 2}],
        "jobs": [{"name": "j", "at": 2, "min": 1, "max": 4, "trainer": {"cpu": 1, "gpu": 1}, "work": 80}],
    }


@pytest.mark.parametrize("policy", ["fair", "edl-v010", "off"])
def test_work_that_is_done_ends_a_job_whoever_scales_it(mixed: dict[str, Any], policy: str) -> None:
    summary = report.summary(simulate(scenario.read(mixed, where="mixed.yaml"), policy))
    (only,) = summary.jobs
    assert only.phase == "Succeeded"
    assert only.jct_s is not None and 22 <= only.jct_s <= 45
    assert summary.completion.makespan_s == only.jct_s
    assert {resource.name for resource in summary.resources} == {"cpu", "memory", GPU}
    assert (summary.passes > 0, bool(summary.calls)) == ((policy == "fair",) * 2)


def test_rigid_jobs_have_the_most_of_their_range(mixed: dict[str, Any]) -> None:
    crowded = {**mixed, "nodes": [{"name": "n", "cpu": 64, "gpu": 9, "memory": "64Gi"}]}
    summary = report.summary(simulate(scenario.read(crowded, where="crowded.yaml"), "off"))
    assert summary.jobs[0].most == summary.creations == 4
