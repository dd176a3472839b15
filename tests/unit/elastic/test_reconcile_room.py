"""What the controller tells jobs to have while their pods end, fail or wait, and whose room stays theirs."""

from __future__ import annotations

import pytest

from tests.support.elastic import training_job
from tests.support.stage import Stage


@pytest.fixture
def stage() -> Stage:
    return Stage("n1", "n2")


def test_a_job_that_ends_keeps_its_target_however_few_trainers_are_left(stage: Stage) -> None:
    stage.put(training_job(minimum=3, maximum=4))
    stage.settle()
    told = stage.events()

    for index in range(3):
        stage.end(f"train-trainer-{index}", phase="Succeeded")
        stage.settle()

    assert stage.status()["trainer"]["desired"] == 4
    assert stage.status()["phase"] == "Completing"
    assert stage.events() == told
    stage.end("train-trainer-3", phase="Succeeded")
    stage.settle()
    assert stage.status()["trainer"]["desired"] == 0
    assert stage.status()["phase"] == "Succeeded"
