"""What a new leader knows from the cluster alone: where the one before it stopped, it goes on."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.clock import time_ms, timestamp
from mlstack.elastic.actions import INCOMPLETE_MS
from mlstack.elastic.facts import JobFacts, parse_job
from mlstack.elastic.inspect import decide, read_snapshot
from mlstack.elastic.snapshot import PolicyConfig
from mlstack.elastic.state import BAR_MS, GANG_MS, RETRY_MS, restore_moves
from mlstack.kube.client import ObjectRef
from tests.support.elastic import training_job
from tests.support.stage import Stage

pytestmark = pytest.mark.slow

TIME = "2023-11-14T22:13:20Z"
TIME_MS = 1_700_000_000_000


@pytest.fixture
def stage() -> Stage:
    return Stage("n1", "n2")


def job(*records: dict[str, Any]) -> JobFacts:
    return parse_job({**training_job(), "status": {"scaleRecords": list(records)}})


def record(*, moves: int = 2, time: str = TIME) -> dict[str, Any]:
    return {"time": time, "from": 5, "to": 3, "cause": "gang", "reason": "gives up some", "moves": moves}


def test_trainers_given_up_for_fairness_are_moves() -> None:
    assert restore_moves([job(record()), job(record(moves=1))], TIME_MS) == [TIME_MS] * 3


def test_what_was_long_ago_is_none() -> None:
    assert restore_moves([job(record(time="2023-11-14T22:13:19Z"))], TIME_MS) == []


def test_a_new_leader_spends_no_more_moves_than_are_left() -> None:
    stage = Stage(*[f"n{index}" for index in range(8)])
    stage.put(training_job("rich", minimum=1, maximum=64))
    stage.settle()
    stage.put(training_job("poor", minimum=1, maximum=64))
    moved = 0
    for _ in range(9):
        stage.restart()
        moved += stage.step().plan.moves
        stage.run_pods()
    assert 0 < moved <= 15


def test_servers_stay_held_to_their_nodes(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=2, pservers=2))
    stage.step()
    before = stage.get("StatefulSet", "train-pserver", "apps/v1")

    stage.restart()
    stage.step()

    after = stage.get("StatefulSet", "train-pserver", "apps/v1")
    assert before and after and "affinity" in before["spec"]["template"]["spec"]
    assert after["spec"] == before["spec"]


def test_a_gang_without_places_is_given_up_by_whoever_leads(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=1, pservers=2))
    give_up(stage, has_many_leaders=True)
    assert stage.status()["trainer"]["desired"] == 0


def test_failed_trainers_are_replaced_no_sooner(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=2))
    stage.settle()
    stage.end("train-trainer-0", phase="Failed", conditions=[_ready_since(stage)])
    stage.step()
    assert stage.status()["trainer"]["failed"] == 1

    stage.restart()
    stage.step()
    assert stage.trainers() == ["train-trainer-1"]

    stage.step(seconds=RETRY_MS[0] / 1000)
    assert len(stage.trainers()) == 2


def test_a_failure_that_nobody_saw_is_counted_by_the_next_leader(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=4))
    stage.settle()
    for number, counted in ((0, 1), (1, 2), (2, 3)):
        stage.end(f"train-trainer-{number}", phase="Failed", conditions=[_ready_since(stage)])
        stage.restart()
        stage.step()
        assert stage.status()["trainer"]["failed"] == counted
    stage.restart()
    stage.step()
    assert stage.status()["trainer"]["failed"] == 3


def test_the_pause_after_failures_grows_whoever_leads(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=2))
    stage.settle()
    for seconds in (10, 20, 40, 60):
        stage.end(stage.trainers()[0], phase="Failed", conditions=[_ready_since(stage)])
        stage.step()
        stage.restart()
        stage.step(seconds=seconds - 1)
        assert len(stage.trainers()) == 1
        stage.step(seconds=1)
        assert len(stage.trainers()) == 2
        stage.settle()
        assert "trainerRetries" not in stage.status().get("setbacks", {})


def fail_all(stage: Stage) -> None:
    """Let all trainers fail at one moment."""
    for name in stage.trainers():
        stage.end(name, phase="Failed", conditions=[_ready_since(stage)])
    stage.step()


def test_all_trainers_fail_six_times_in_a_row_whoever_leads(stage: Stage) -> None:
    stage.put(training_job(minimum=2, maximum=2))
    stage.settle()

    for _ in range(5):
        fail_all(stage)
        for seconds in (0, RETRY_MS[1] / 1000):
            stage.restart()  # seen again it is the same failure
            stage.step(seconds=seconds)
        stage.settle()
        assert stage.status()["phase"] == "Running"
    stage.restart()
    fail_all(stage)

    assert stage.status()["phase"] == "Failed"
    assert stage.status()["reason"] == "all 2 trainers failed, 6 times in a row"


def test_a_common_failure_that_nobody_saw_is_counted_by_the_next_leader(stage: Stage) -> None:
    stage.put(training_job(minimum=2, maximum=2))
    stage.settle()
    fail_all(stage)
    stage.step(seconds=60)
    stage.settle()

    for name in stage.trainers():
        stage.end(name, phase="Failed", conditions=[_ready_since(stage)])
    stage.restart()
    stage.step()

    assert "2 times in a row" in stage.status()["reason"]


SERVERS = ("train-pserver-0", "train-pserver-1")
STEP_S = 10


def give_up(stage: Stage, *, has_many_leaders: bool = False) -> None:
    """Let the gang be admitted in vain until it is given up: its servers find no node."""
    before = tries(stage)
    for _ in range(INCOMPLETE_MS // 1000 // STEP_S + 2):
        if has_many_leaders:
            stage.restart()
        stage.step(seconds=STEP_S)
        stage.run_sets()
        stage.run_pods(but=SERVERS)
        for name in SERVERS:
            if stage.get("Pod", name):
                stage.refuse(name, "no such volume")
        if tries(stage) > before:
            return
    raise AssertionError("it is not given up")


def tries(stage: Stage) -> int:
    return int(stage.status().get("setbacks", {}).get("gangRetries", 0))


def wait_for_a_try(stage: Stage, *, longest_s: int) -> int:
    """Let time pass until the gang is admitted again; give how long that took, in seconds."""
    for waited_s in range(STEP_S, longest_s + 1, STEP_S):
        stage.step(seconds=STEP_S)
        if stage.status()["trainer"]["desired"]:
            return waited_s
    raise AssertionError("it is not tried again")


def test_a_gang_that_was_given_up_waits_as_long_whoever_leads() -> None:
    stage = Stage(*[f"n{index}" for index in range(6)])
    stage.put(training_job(minimum=1, maximum=2, pservers=2))

    for number in range(4):
        give_up(stage)
        stage.restart()
        length_s = (GANG_MS[0] << number) // 1000
        assert wait_for_a_try(stage, longest_s=length_s) == length_s
        stage.restart()


def test_a_job_that_was_changed_after_it_was_given_up_is_tried_at_once_by_a_new_leader() -> None:
    stage = Stage("n1", "n2", "n3")
    stage.put(training_job(minimum=1, maximum=2, pservers=2))
    give_up(stage)

    stage.memory.patch(ObjectRef.of(stage.job()), {"spec": {"passes": 2}})
    stage.restart()

    assert wait_for_a_try(stage, longest_s=STEP_S)


def test_whoever_asks_for_the_plan_is_told_that_a_gang_waits() -> None:
    stage = Stage("n1", "n2", "n3")
    stage.put(training_job(minimum=1, maximum=2, pservers=2))
    give_up(stage)

    def reasons(after_ms: int) -> tuple[str, ...]:
        snapshot = read_snapshot(stage.memory, stage.clock.now_ms + after_ms)
        return decide(snapshot, PolicyConfig()).jobs[0].reasons

    assert reasons(GANG_MS[0] - 1) == ("waiting: it waits until its next try",)
    assert reasons(GANG_MS[0])[0].startswith("admitted: ")


def test_whoever_asks_for_the_plan_sees_no_trainers_on_nodes_that_are_passed_over(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=1))
    for _ in range(6):
        stage.step(seconds=STEP_S)
        stage.refuse_pods()
    assert stage.trainers() == []  # neither node had room in truth

    def places(after_ms: int) -> list[str]:
        outcome = decide(read_snapshot(stage.memory, stage.clock.now_ms + after_ms), PolicyConfig())
        return [place.node for place in outcome.jobs[0].places]

    assert places(0) == []
    assert places(BAR_MS[0]) == ["n1"]


def now_and_target(stage: Stage, after_ms: int = 0) -> tuple[int, int]:
    """Give how many trainers the job has and is to have, as the plan says after so long."""
    job = decide(read_snapshot(stage.memory, stage.clock.now_ms + after_ms), PolicyConfig()).jobs[0]
    return job.now, job.target


def test_whoever_asks_for_the_plan_sees_failed_trainers_replaced_when_the_leader_does(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=4))
    stage.settle()
    stage.end("train-trainer-0", phase="Failed", conditions=[_ready_since(stage)])
    stage.step()

    assert now_and_target(stage) == (3, 3)
    stage.step(seconds=RETRY_MS[0] / 1000)
    assert now_and_target(stage) == (4, 4)


def test_failed_trainers_that_no_leader_replaces_are_not_said_to_be_held_back(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=4))
    stage.settle()
    stage.end("train-trainer-0", phase="Failed", conditions=[_ready_since(stage)])

    assert now_and_target(stage, RETRY_MS[1]) == (3, 3)  # a leader would have to see it first
    stage.step()
    assert now_and_target(stage, RETRY_MS[0] - 1) == (3, 3)
    assert now_and_target(stage, RETRY_MS[0]) == (3, 4)


def test_a_gang_that_found_its_place_begins_anew() -> None:
    stage = Stage("n1", "n2", "n3")
    stage.put(training_job(minimum=1, maximum=2, pservers=2))
    give_up(stage)
    wait_for_a_try(stage, longest_s=60)

    stage.settle()

    assert stage.status()["phase"] == "Running"
    assert tries(stage) == 0


def test_nodes_where_trainers_never_found_room_are_passed_over_as_long_whoever_leads(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=1))
    left_ms: dict[tuple[str, int], int] = {}
    for _ in range(80):
        stage.restart()
        stage.step(seconds=STEP_S)
        stage.refuse_pods()
        for bar in stage.status().get("setbacks", {}).get("passedOver", []):
            until_ms = time_ms(bar["until"])
            for node in bar["nodes"]:
                left_ms.setdefault((node, bar["times"]), until_ms - stage.clock.now_ms)

    assert left_ms == {(f"n{n}", times): 60_000 << times - 1 for n in (1, 2) for times in (1, 2, 3, 4)}


def test_what_a_new_leader_remembers_costs_no_write(stage: Stage) -> None:
    stage.put(training_job(minimum=2, maximum=2))
    stage.put(training_job("lost", minimum=1, maximum=2, pservers=2))
    stage.settle()
    fail_all(stage)
    stage.step(seconds=60)
    stage.settle()
    assert stage.status()["setbacks"]["failedRounds"] == 1
    stage.cluster.writes = 0

    for _ in range(3):
        stage.restart()
        stage.step(seconds=10)

    assert stage.cluster.writes == 0


@pytest.mark.parametrize("is_dry", [False, True], ids=["leads", "dry run"])
def test_that_a_job_still_waits_is_not_told_again_by_the_next_leader(stage: Stage, is_dry: bool) -> None:
    stage.put(training_job(minimum=9, maximum=9, cpu="4"))
    stage.settle()

    stage.restart(is_dry=is_dry)
    reports = [stage.step(seconds=60) for _ in range(3)]

    assert [(report.actions, report.events) for report in reports] == [([], [])] * 3
    assert stage.events() == ["WaitingForCapacity"]


def test_a_job_that_was_pushed_aside_and_waits_since_is_not_told_again_by_the_next_leader() -> None:
    stage = Stage("n1")
    stage.put(training_job(minimum=1, maximum=1, cpu="8"))
    stage.settle()
    stage.put(training_job("high", minimum=1, maximum=1, cpu="8", priority=10))
    stage.settle()
    stage.rest(seconds=15)
    assert "; since then: " in stage.status()["reason"]
    before = stage.events()

    stage.restart()
    stage.step()

    assert stage.events() == before


def test_that_a_job_waits_for_something_else_is_told_by_the_next_leader(stage: Stage) -> None:
    stage.put(training_job(minimum=9, maximum=9, cpu="4"))
    stage.settle()
    bounds = {"min-instance": 8, "max-instance": 8}
    stage.memory.patch(ObjectRef.of(stage.job()), {"spec": {"trainer": bounds}})

    stage.restart()
    stage.step()

    assert stage.events() == ["WaitingForCapacity"] * 2


def _ready_since(stage: Stage) -> dict[str, str]:
    return {"type": "Ready", "status": "False", "lastTransitionTime": timestamp(stage.clock.now_ms / 1000)}
