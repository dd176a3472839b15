"""Whole simulations: the same bytes for the same seed, and the controller under faults."""

from dataclasses import replace

import pytest

from mlstack.simulator import measures, report, scenario
from mlstack.simulator.measures import Samples
from mlstack.simulator.run import SimulationOutcome, simulate
from mlstack.simulator.scenario import Faults, Scenario, ScenarioEvent
from tests.support.simulated import SMALL_JOB, small_scenario


def at_end(outcome: SimulationOutcome) -> list[int]:
    return measures.trainers(outcome.samples[-1])


def complete(samples: Samples) -> int:
    return measures.complete(samples[-1])


@pytest.mark.parametrize("policy", ["fair", "edl", "throughput", "edl-v010", "off"])
def test_the_same_seed_gives_the_same_bytes(policy: str) -> None:
    one, two = (report.rows(simulate(small_scenario(seconds=60), policy, seed=3).samples) for _ in range(2))
    assert one == two


def test_another_seed_gives_another_run() -> None:
    one, two = (report.rows(simulate(small_scenario(seconds=60), seed=seed).samples) for seed in (1, 2))
    assert one != two


def test_jobs_are_whole_and_share_evenly_and_no_law_is_broken() -> None:
    outcome = simulate(small_scenario())
    assert complete(outcome.samples) == 3
    assert measures.spread(at_end(outcome)) <= 1
    assert outcome.violations == ()


@pytest.mark.parametrize(
    "event",
    [
        ScenarioEvent(at_ms=20_000, what="kill-controller", seconds=3, every_ms=20_000),
        ScenarioEvent(at_ms=20_000, what="break-watch", seconds=15, every_ms=40_000),
    ],
    ids=["killed", "deaf"],
)
def test_a_controller_that_is_disturbed_comes_to_the_same(event: ScenarioEvent) -> None:
    calm, disturbed = simulate(small_scenario()), simulate(small_scenario(event))
    assert sorted(at_end(disturbed)) == sorted(at_end(calm))
    assert disturbed.violations == ()


def test_refused_writes_are_made_good() -> None:
    calm = simulate(small_scenario())
    troubled = simulate(replace(small_scenario(), faults=Faults(conflict_pct=20, error_pct=10)))
    assert sum(at_end(troubled)) == sum(at_end(calm))
    assert troubled.violations == ()


def test_a_service_gets_its_pods_and_what_it_frees_is_used() -> None:
    grows = ScenarioEvent(at_ms=60_000, what="scale", name="web", count=14)
    shrinks = ScenarioEvent(at_ms=100_000, what="scale", name="web", count=2)
    outcome = simulate(small_scenario(grows, shrinks))
    by_second = {sample.at_ms // 1000: sample for sample in outcome.samples}
    assert by_second[90].services[0].running == 14
    assert sum(measures.trainers(by_second[59])) > sum(measures.trainers(by_second[90]))
    assert sum(at_end(outcome)) > sum(measures.trainers(by_second[59]))


def test_a_lost_node_is_made_up_for() -> None:
    outcome = simulate(small_scenario(ScenarioEvent(at_ms=50_000, what="remove-node", name="n-0")))
    assert complete(outcome.samples) == 3
    assert measures.spread(at_end(outcome)) <= 1
    assert outcome.violations == ()


def test_trainers_of_a_silent_node_are_soon_made_up_for() -> None:
    outcome = simulate(small_scenario(ScenarioEvent(at_ms=50_000, what="fail-node", name="n-0"), seconds=120))
    assert min(at_end(outcome)) >= 2
    assert measures.spread(at_end(outcome)) <= 1
    assert outcome.violations == ()


def test_new_nodes_are_used() -> None:
    few = simulate(small_scenario())
    more = simulate(small_scenario(ScenarioEvent(at_ms=60_000, what="add-nodes", name="n", count=2)))
    assert sum(at_end(more)) > sum(at_end(few))


def test_a_suspended_job_has_no_pods_and_comes_back() -> None:
    outcome = simulate(
        small_scenario(
            ScenarioEvent(at_ms=50_000, what="suspend-job", name="j-0"),
            ScenarioEvent(at_ms=100_000, what="resume-job", name="j-0"),
        )
    )
    by_second = {sample.at_ms // 1000: sample for sample in outcome.samples}
    assert by_second[70].jobs[0].pods == 0
    assert complete(outcome.samples) == 3


def test_a_deleted_job_leaves_nothing_behind() -> None:
    outcome = simulate(small_scenario(ScenarioEvent(at_ms=50_000, what="delete-job", name="j-1"), seconds=90))
    last = outcome.samples[-1]
    assert [job.key for job in last.jobs] == ["default/j-0", "default/j-2"]
    assert outcome.violations == ()


def test_the_most_trainers_can_be_set_from_outside() -> None:
    outcome = simulate(
        small_scenario(ScenarioEvent(at_ms=50_000, what="limit-job", name="j-0", count=3), seconds=90)
    )
    assert at_end(outcome)[0] == 3
    assert outcome.violations == ()


def test_work_that_is_done_ends_a_job() -> None:
    jobs = [{"name": "j", "at": 5, "work": 200, **SMALL_JOB}]
    outcome = simulate(_with_jobs(jobs))
    assert outcome.samples[-1].jobs[0].phase == "Succeeded"
    assert outcome.samples[-1].jobs[0].trainers == 0


def test_jobs_with_gpus_share_them() -> None:
    nodes = [{"name": "g", "count": 2, "cpu": 32, "memory": "64Gi", "gpu": 4}]
    jobs = [{"name": "j", "count": 2, "min": 1, "max": 8, "trainer": {"cpu": 1, "gpu": 1}}]
    outcome = simulate(_with_jobs(jobs, nodes=nodes))
    assert at_end(outcome) == [4, 4]


def test_a_job_of_higher_priority_gets_its_most() -> None:
    jobs = [
        {"name": "low", "at": 5, **SMALL_JOB},
        {"name": "top", "at": 30, **SMALL_JOB, "priority": 5},
    ]
    nodes = [{"name": "n", "count": 2, "cpu": 16, "memory": "64Gi"}]
    low, top = simulate(_with_jobs(jobs, nodes=nodes)).samples[-1].jobs
    assert top.trainers > low.trainers >= low.minimum


def test_rigid_jobs_keep_what_they_are_created_with() -> None:
    jobs = [{"name": "j", "at": 5, "first": 4, **SMALL_JOB}]
    assert at_end(simulate(_with_jobs(jobs), "off")) == [4]


def _with_jobs(jobs: object, nodes: object = None) -> Scenario:
    data = {
        "seconds": 120,
        "nodes": nodes or [{"name": "n", "count": 6, "cpu": 16, "memory": "64Gi"}],
        "jobs": jobs,
    }
    return scenario.read(data, where="jobs.yaml")
