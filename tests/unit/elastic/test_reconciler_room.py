"""What the controller tells jobs to have while their pods end, fail or wait, and whose room stays theirs."""

from __future__ import annotations

import pytest

from mlstack.elastic.controller.reconciler import Pass
from mlstack.errors import TransientError
from tests.support.elastic import node, pod, training_job
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


def test_the_room_of_a_failed_trainer_is_lent_while_it_is_not_replaced(stage: Stage) -> None:
    stage.put(training_job("failing", minimum=1, maximum=8, cpu="2"))
    stage.put(training_job("other", minimum=1, maximum=8, cpu="2"))
    stage.settle()
    assert (len(stage.trainers("failing")), len(stage.trainers("other"))) == (4, 4)

    stage.end("failing-trainer-0", phase="Failed")
    stage.settle()

    assert (len(stage.trainers("failing")), len(stage.trainers("other"))) == (3, 5)
    assert stage.status("failing")["trainer"]["desired"] == 3
    record = stage.status("failing")["scaleRecords"][-1]
    assert record["cause"] == "steady" and "failed are replaced after a pause" in record["reason"]
    stage.step(seconds=11)
    stage.settle()
    assert (len(stage.trainers("failing")), len(stage.trainers("other"))) == (4, 4)


def test_the_room_of_a_failed_trainer_of_the_minimum_is_kept(stage: Stage) -> None:
    stage.put(training_job("failing", minimum=4, maximum=4, cpu="2"))
    stage.put(training_job("other", minimum=1, maximum=8, cpu="2"))
    stage.settle()

    stage.end("failing-trainer-0", phase="Failed")
    stage.settle()

    assert (len(stage.trainers("failing")), len(stage.trainers("other"))) == (3, 4)
    assert stage.status("failing")["trainer"]["desired"] == 4
    stage.step(seconds=11)
    stage.settle()
    assert len(stage.trainers("failing")) == 4


@pytest.mark.parametrize(("low", "high"), [("a", "z"), ("z", "a")])
def test_room_that_is_free_goes_to_the_job_of_higher_priority_first(low: str, high: str) -> None:
    stage = Stage("n1", cpu="4")
    going = pod("going", node="n1", cpu="2", phase="Running")
    stage.put({**going, "metadata": {**going["metadata"], "finalizers": ["example.com/slow"]}})
    stage.delete("Pod", "going")
    stage.put(training_job(low, minimum=1, maximum=1, cpu="2"))
    stage.put(training_job(high, minimum=1, maximum=1, cpu="2", priority=5))

    stage.step()

    assert stage.status(low)["trainer"]["desired"] == stage.status(high)["trainer"]["desired"] == 1
    assert (stage.trainers(low), stage.trainers(high)) == ([], [f"{high}-trainer-0"])


def step_with_refusals(stage: Stage, *numbers: int) -> Pass:
    """Do one pass of whose writes these are refused."""
    count = iter(range(1000))

    def refuse() -> None:
        if next(count) in numbers:
            raise TransientError("busy")

    stage.cluster.refuses = refuse
    found = stage.step()
    stage.cluster.refuses = lambda: None
    return found


def test_of_what_surrounds_the_trainers_only_what_was_refused_is_written_again(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=1, pservers=1, with_master=True))
    first = step_with_refusals(stage, 2)
    refused = [action.ref for action, _ in first.refused]
    assert sum(action.verb == "apply" for action in first.actions) > len(refused) == 1

    second = stage.step(seconds=3)

    assert [action.ref for action in second.actions if action.verb == "apply"] == refused
    stage.settle()
    assert stage.status()["phase"] == "Running"


def test_servers_are_held_to_their_nodes_though_no_set_came_off_at_first(stage: Stage) -> None:
    stage.put(training_job(minimum=1, maximum=1, pservers=1, with_master=True))
    first = step_with_refusals(stage, *range(1, 99))
    assert not stage.all("StatefulSet", "apps/v1")
    hints = first.plan.decisions["default/train"].hints

    stage.step(seconds=3)

    for role in ("master", "pserver"):
        found = stage.get("StatefulSet", f"train-{role}", "apps/v1")
        assert found is not None
        affinity = found["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
        (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert term["matchExpressions"][0]["values"] == list(hints[role])


def test_a_job_of_fixed_size_that_is_to_have_more_than_there_is_room_for_goes_on() -> None:
    stage = Stage("n1", "n2", cpu="5")
    stage.put(training_job("fixed", minimum=2, maximum=4, scaling="Manual"))
    stage.settle()
    stage.resize(20, name="fixed")

    for _ in range(5):
        stage.settle()
        stage.step(seconds=5)

    assert len(stage.trainers("fixed")) == 10
    assert stage.status("fixed")["phase"] == "Running"
    [degraded] = [each for each in stage.status("fixed")["conditions"] if each["type"] == "Degraded"]
    assert "10 of 20 trainers" in degraded["message"]


@pytest.mark.parametrize(
    "gpus",
    [
        pytest.param({"allocatable": "8", "capacity": "8"}, id="plug-in is there"),
        pytest.param({"allocatable": "0", "capacity": "8"}, id="plug-in is away"),
    ],
)
def test_nodes_with_devices_are_left_to_who_wants_them_before_anybody_does(gpus: dict[str, str]) -> None:
    stage = Stage("plain")
    devices = node("a-gpu")
    for kind, count in gpus.items():
        devices["status"][kind] = {**devices["status"][kind], "nvidia.com/gpu": count}
    stage.put(devices)
    stage.put(training_job(minimum=1, maximum=8, pservers=1, with_master=True))

    stage.settle()

    on_devices = [pod for pod in stage.all("Pod") if pod["spec"].get("nodeName") == "a-gpu"]
    assert len(on_devices) == 2, "8 trainers, a server and a master of a core each: 8 cores are elsewhere"
    stage.put(training_job("another", minimum=4, maximum=4))
    stage.settle()
    assert len(stage.trainers("another")) == 4, "room is room where there is no other"
