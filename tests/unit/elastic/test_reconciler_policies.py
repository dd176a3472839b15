"""The other policies under the controller: what `edl` and `throughput` come to on a cluster in memory."""

from __future__ import annotations

import pytest

from mlstack.elastic.snapshot import PolicyConfig
from tests.support.elastic import pod, training_job
from tests.support.stage import Stage

EDL = PolicyConfig(mode="edl", max_load_pct=100)


@pytest.fixture
def stage() -> Stage:
    return Stage("n1", "n2")


def test_edl_grows_into_free_room_and_yields_it_to_others(stage: Stage) -> None:
    """16 cores: 15 trainers leave nothing for the web pod of 4; EDL takes 3 trainers away for it."""
    stage.restart(EDL)
    stage.put(training_job(minimum=2, maximum=15))
    stage.settle()
    assert len(stage.trainers()) == 15

    stage.put(pod("web", cpu="4"))
    stage.settle()

    assert len(stage.trainers()) == 12
    assert stage.status()["trainer"]["desired"] == 12


def test_edl_starts_a_job_at_once_and_makes_room_for_it(stage: Stage) -> None:
    stage.restart(EDL)
    stage.put(training_job("old", minimum=2, maximum=16))
    stage.settle()

    stage.put(training_job("new", minimum=2, maximum=4, pservers=2, with_master=True))
    stage.settle()

    assert len(stage.trainers("new")) >= 2
    assert len(stage.trainers("old")) <= 16 - 2 - 2 - 1
    assert stage.status("new")["phase"] == "Running"


@pytest.mark.parametrize("mode", ["edl", "throughput"])
def test_nothing_is_written_once_nothing_changes(stage: Stage, mode: str) -> None:
    stage.restart(PolicyConfig(mode=mode))
    stage.put(training_job("a", minimum=2, maximum=9, speed="amdahl:0.9"))
    stage.put(training_job("b", minimum=2, maximum=9, pservers=1))
    stage.settle()
    stage.step()

    assert stage.rest(seconds=50) == 0


def test_throughput_reads_the_named_model_of_a_job(stage: Stage) -> None:
    """16 cores for a job that half runs in parallel, and one that wholly does."""
    stage.restart(PolicyConfig(mode="throughput"))
    stage.put(training_job("slow", minimum=1, maximum=16, speed="amdahl:0.5"))
    stage.put(training_job("fast", minimum=1, maximum=16, speed="linear"))

    stage.settle()
    for _ in range(6):
        stage.step(seconds=11)
        stage.settle()

    assert len(stage.trainers("slow")) + len(stage.trainers("fast")) == 16
    assert len(stage.trainers("slow")) == 3


def test_throughput_reads_a_curve_of_less_than_one_item_a_second(stage: Stage) -> None:
    """Of 16 cores the job that hardly gains from a fourth trainer gets three: 0.4, 0.7, 0.9 and no more."""
    stage.restart(PolicyConfig(mode="throughput"))
    slow = training_job("slow", minimum=1, maximum=16)
    slow["status"] = {"throughput": {"curve": [[1, 0.4], [2, 0.7], [3, 0.9], [16, 0.9]]}}
    stage.put(slow)
    stage.put(training_job("fast", minimum=1, maximum=16))

    stage.settle()
    for _ in range(6):
        stage.step(seconds=11)
        stage.settle()

    assert len(stage.trainers("slow")) == 3
    assert len(stage.trainers("fast")) == 13
