"""Whole simulations: the same bytes for the same seed, and controllers under all that can happen."""

from dataclasses import replace

import pytest

from mlstack.elastic.controller import LeaderElector
from mlstack.simulator import measures, report, scenario
from mlstack.simulator.measures import JobSample, Sample
from mlstack.simulator.run import SimulationOutcome, simulate
from mlstack.simulator.scenario import Scenario, ScenarioEvent
from tests.support.simulated import SMALL_JOB, small_scenario

pytestmark = pytest.mark.slow


def run(*events: ScenarioEvent, seconds: int = 150, **more: float) -> SimulationOutcome:
    """Run the small scenario with events, and hold that no law is broken."""
    outcome = simulate(replace(small_scenario(*events, seconds=seconds), **more))
    assert outcome.violations == ()
    return outcome


@pytest.fixture(scope="module")
def calm() -> list[int]:
    """Give the trainers that the jobs have at the end where nothing happens."""
    return at_end(run())


def event(second: float, what: str, name: str = "", **more: int) -> ScenarioEvent:
    return ScenarioEvent(at_ms=round(second * 1000), what=what, name=name, **more)


def at_end(outcome: SimulationOutcome) -> list[int]:
    return outcome.samples[-1].trainers


def by_second(outcome: SimulationOutcome) -> dict[int, Sample]:
    return {sample.at_ms // 1000: sample for sample in outcome.samples}


def gang_waits(outcome: SimulationOutcome) -> list[float]:
    histories = measures.histories(outcome.samples).values()
    return [measures.wait(history, for_gang=True)[0] for history in histories]


def jobs_at_end(*jobs: dict[str, object], policy: str = "fair", **node: object) -> tuple[JobSample, ...]:
    """Give how jobs stand after two minutes on nodes that are alike."""
    nodes = [{"name": "n", "count": 6, "cpu": 16, "memory": "64Gi", **node}]
    small = scenario.read({"seconds": 120, "nodes": nodes, "jobs": jobs}, where="jobs.yaml")
    return simulate(small, policy).samples[-1].jobs


@pytest.mark.parametrize("policy", ["fair", "edl", "throughput", "edl-v010", "off"])
def test_the_same_seed_gives_the_same_bytes_and_another_one_others(policy: str) -> None:
    small = small_scenario(seconds=60)
    first, second, other = (report.to_csv(simulate(small, policy, seed=seed).samples) for seed in (3, 3, 4))
    assert first == second != other


@pytest.mark.parametrize("events", [[], [event(50, "remove-node", "n-0")]], ids=["calm", "a node is lost"])
def test_jobs_are_whole_and_share_evenly(events: list[ScenarioEvent]) -> None:
    outcome = run(*events)
    assert outcome.samples[-1].complete == 3
    assert measures.spread(at_end(outcome)) <= 1


@pytest.mark.parametrize(
    "disturbance",
    [
        event(20, "kill-controller", seconds=3, every_ms=20_000),
        event(20, "break-watch", seconds=15, every_ms=40_000),
    ],
    ids=["killed", "deaf"],
)
def test_a_disturbed_controller_comes_to_the_same(calm: list[int], disturbance: ScenarioEvent) -> None:
    assert sorted(at_end(run(disturbance))) == sorted(calm)


def test_refused_writes_are_made_good(calm: list[int]) -> None:
    assert sum(at_end(run(conflict_pct=20, error_pct=10))) == sum(calm)


def test_a_service_gets_its_pods_and_what_it_frees_is_used() -> None:
    outcome = run(event(60, "scale", "web", count=14), event(100, "scale", "web", count=2))
    moments = by_second(outcome)
    assert moments[90].services[0].running == 14
    assert sum(moments[59].trainers) > sum(moments[90].trainers)
    assert sum(at_end(outcome)) > sum(moments[59].trainers)


def test_trainers_of_a_silent_node_are_soon_made_up_for() -> None:
    trainers = at_end(run(event(50, "fail-node", "n-0"), seconds=120))
    assert min(trainers) >= 2
    assert measures.spread(trainers) <= 1


def test_new_nodes_are_used(calm: list[int]) -> None:
    assert sum(at_end(run(event(60, "add-nodes", "n", count=2)))) > sum(calm)


def test_a_node_that_comes_takes_the_name_of_no_other() -> None:
    outcome = run(event(20, "remove-node", "n-0"), event(30, "add-nodes", "n"))
    assert outcome.samples[-1].allocatable == outcome.samples[0].allocatable


def test_a_suspended_job_has_no_pods_and_comes_back() -> None:
    outcome = run(event(50, "suspend-job", "j-0"), event(100, "resume-job", "j-0"))
    assert by_second(outcome)[70].jobs[0].pods == 0
    assert outcome.samples[-1].complete == 3


def test_a_deleted_job_leaves_nothing_behind() -> None:
    outcome = run(event(50, "delete-job", "j-1"), seconds=90)
    assert [job.key for job in outcome.samples[-1].jobs] == ["default/j-0", "default/j-2"]


def test_the_most_trainers_can_be_set_from_outside() -> None:
    assert at_end(run(event(50, "limit-job", "j-0", count=3), seconds=90))[0] == 3


def test_jobs_with_gpus_share_them() -> None:
    job = {"name": "j", "count": 2, "min": 1, "max": 8, "trainer": {"cpu": 1, "gpu": 1}}
    assert [job.trainers for job in jobs_at_end(job, count=2, gpu=4)] == [4, 4]


def test_a_job_of_higher_priority_gets_its_most() -> None:
    low, top = jobs_at_end(
        {"name": "low", "at": 5, **SMALL_JOB}, {"name": "top", "at": 30, **SMALL_JOB, "priority": 5}, count=2
    )
    assert top.trainers > low.trainers >= low.minimum


def test_rigid_jobs_keep_what_they_are_created_with() -> None:
    (job,) = jobs_at_end({"name": "j", "at": 5, "first": 4, **SMALL_JOB}, policy="off")
    assert job.trainers == 4


def test_a_hundred_jobs_on_five_hundred_nodes_are_whole_and_break_no_law() -> None:
    background = {"background": {"cpu": "380m"}}
    data = {
        "seconds": 140,
        "nodes": [
            {"name": f"c{cores}", "count": count, "cpu": cores, "memory": f"{4 * cores}Gi", **background}
            for cores, count in {12: 260, 24: 225, 20: 15}.items()
        ],
        "jobs": [
            {
                **{"name": "j", "count": 100, "every": 0.5, "at": 5, "min": 2, "max": 60},
                **{"trainer": {"cpu": 2, "memory": "4Gi"}, "pservers": {"count": 4, "cpu": 2}},
                "master": {"cpu": 1},
            }
        ],
        "services": [{"name": "web", "replicas": 300, "cpu": 3}],
        "events": [{"at": 80, "what": "scale", "name": "web", "count": 600}],
        "scheduler": {"bindRate": 300},
    }
    outcome = simulate(scenario.read(data, where="large.yaml"))
    last = outcome.samples[-1]
    assert outcome.violations == ()
    assert (last.complete, last.services[0].running) == (100, 600)
    assert measures.percentile(gang_waits(outcome), 95) <= 25


# --- several controllers in one cluster: one leads, whatever becomes of it, and nothing is done twice ---


def several(*events: ScenarioEvent, controllers: int = 2) -> Scenario:
    """Give the small cluster with five jobs and so many controllers."""
    return small_scenario(*events, jobs=5, controllers=controllers)


def test_of_two_that_start_at_once_one_works() -> None:
    alone, both = simulate(several(controllers=1)), simulate(several())
    first, second = (
        (last.complete, sorted(last.trainers), last.created, last.deleted)
        for last in (alone.samples[-1], both.samples[-1])
    )
    assert second == first
    assert both.violations == ()
    assert both.passes == pytest.approx(alone.passes, abs=3)
    assert "replace" not in alone.calls, "a lone controller needs no Lease"


@pytest.mark.parametrize(
    "disturbance",
    [
        event(20, "kill-controller", seconds=30, every_ms=40_000),
        event(20, "kill-controller", seconds=3, every_ms=20_000),
        event(27, "stop-controller", seconds=5, every_ms=20_000),
        event(24, "freeze-controller", seconds=40, every_ms=50_000),
        event(24, "isolate-controller", seconds=30, every_ms=50_000),
        event(24, "break-watch", seconds=20, every_ms=50_000),
    ],
    ids=["killed for long", "killed often", "stopped", "frozen", "isolated", "deaf"],
)
@pytest.mark.parametrize("refused_pct", [0, pytest.param(5, marks=pytest.mark.slow)], ids=["calm", "refused"])
def test_whatever_becomes_of_the_leader_jobs_end_up_whole(
    disturbance: ScenarioEvent, refused_pct: int
) -> None:
    troubled = replace(several(disturbance), conflict_pct=refused_pct, error_pct=refused_pct)
    outcome = simulate(troubled)
    assert outcome.violations == ()
    assert outcome.samples[-1].complete == 5
    assert measures.spread(at_end(outcome)) <= 1


FROZEN = event(24.5, "freeze-controller", seconds=40)


def test_a_leader_that_wakes_up_late_writes_nothing_more() -> None:
    outcome = simulate(several(FROZEN))
    assert outcome.violations == ()
    assert max(gang_waits(outcome)) <= 30


def test_writing_without_the_lease_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaderElector, "check", lambda self: None)
    outcome = simulate(several(FROZEN))
    assert any("writes while controller-1 leads" in text for text in outcome.violations)


def test_a_lone_controller_goes_on_when_the_server_answers_again() -> None:
    outcome = simulate(several(event(24, "isolate-controller", seconds=30), controllers=1))
    assert outcome.violations == ()
    assert outcome.samples[-1].complete == 5
