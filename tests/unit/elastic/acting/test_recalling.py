"""What a new leader knows from the cluster alone: where the one before it stopped, it goes on."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.elastic.acting.gang import INCOMPLETE_MS
from mlstack.elastic.acting.memory import FIRST_RETRY_MS
from mlstack.elastic.acting.recalling import moves
from mlstack.elastic.observed.jobs import JobFacts, parse_job
from mlstack.elastic.status import timestamp
from tests.support.elastic import training_job
from tests.support.stage import Stage

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
    assert moves([job(record()), job(record(moves=1))], TIME_MS) == [TIME_MS] * 3


def test_what_was_long_ago_is_none() -> None:
    assert moves([job(record(time="2023-11-14T22:13:19Z"))], TIME_MS) == []


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
    stage.put(training_job(minimum=1, maximum=2, pservers=2))
    for _ in range(INCOMPLETE_MS // 10_000 + 2):
        if "no node" in str(stage.status().get("reason")):
            break
        stage.restart()
        stage.step(seconds=10)
        stage.run_sets()
        stage.refuse_pods()
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

    stage.step(seconds=FIRST_RETRY_MS / 1000)
    assert len(stage.trainers()) == 2


def _ready_since(stage: Stage) -> dict[str, str]:
    return {"type": "Ready", "status": "False", "lastTransitionTime": timestamp(stage.clock.now_ms)}
