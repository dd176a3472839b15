"""Pods whose containers cannot begin: told in the status of their job, with the reason of the kubelet."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.elastic import facts
from mlstack.elastic.facts import held_up
from mlstack.kube.client import ObjectRef
from tests.support.elastic import pod, training_job
from tests.support.stage import Stage

PULL = "ImagePullBackOff: image train:1"
CRASH = "CrashLoopBackOff: container `main` ended with exit code 1"
CRASHED = {"terminated": {"exitCode": 1}}


def waiting(reason: str, message: str = "", **other: Any) -> dict[str, Any]:
    found = {"name": "main", "image": "train:1", "ready": False, "restartCount": 0, **other}
    return {**found, "state": {"waiting": {"reason": reason, "message": message}}}


def running(**other: Any) -> dict[str, Any]:
    return {"name": "main", "ready": False, "state": {"running": {}}, **other}


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        (waiting("ContainerCreating"), ""),
        (waiting("PodInitializing"), ""),
        (running(), ""),
        (waiting("ImagePullBackOff", 'Back-off pulling image "train:1"'), PULL),
        (waiting("ErrImagePull", "rpc error: request 17: not found"), PULL),
        (waiting("CrashLoopBackOff", "back-off 10s", lastState=CRASHED), CRASH),
        (waiting("CrashLoopBackOff"), "CrashLoopBackOff: container `main` ended"),
        (running(restartCount=1, lastState=CRASHED), ""),
        (running(restartCount=2, lastState=CRASHED), CRASH),
        (running(restartCount=2, lastState=CRASHED, ready=True), ""),
        (
            waiting("CreateContainerConfigError", 'secret "token"\nnot found'),
            'CreateContainerConfigError: secret "token" not found',
        ),
        (waiting("CreateContainerError", "container 8e1f: no command"), "CreateContainerError"),
    ],
)
def test_what_a_container_waits_for(container: dict[str, Any], expected: str) -> None:
    assert held_up({"containerStatuses": [container]}) == expected


def test_an_init_container_comes_first() -> None:
    status = {
        "initContainerStatuses": [waiting("ErrImageNeverPull")],
        "containerStatuses": [waiting("PodInitializing")],
    }
    assert held_up(status) == "ErrImageNeverPull"


def test_what_a_kubelet_says_is_cut() -> None:
    assert len(held_up({"containerStatuses": [waiting("InvalidImageName", "x" * 9_000)]})) == 300


def test_of_pods_without_training_nothing_is_remembered() -> None:
    found = facts.parse_pod({**pod("web"), "status": {"containerStatuses": [waiting("ErrImagePull")]}})
    assert found.held_up == ""


@pytest.fixture
def stage() -> Stage:
    found = Stage("n1", "n2")
    found.put(training_job(minimum=2, maximum=2))
    found.step()
    return found


def hold_up(stage: Stage, name: str, container: dict[str, Any]) -> None:
    """Bind a pod and let its container wait."""
    ref = ObjectRef("v1", "Pod", "default", name)
    stage.memory.patch(ref, {"spec": {"nodeName": "n1"}})
    stage.memory.patch(ref, {"status": {"containerStatuses": [container]}}, subresource="status")


def test_the_status_says_of_one_pod_why_it_does_not_begin(stage: Stage) -> None:
    for name in stage.trainers():
        hold_up(stage, name, waiting("ErrImagePull"))
    stage.step()

    said = f"`train-trainer-0`: {PULL}"
    assert stage.status()["reason"] == f"ready: 0 of 2 trainers; {said}"
    messages = {each["type"]: each["message"] for each in stage.status()["conditions"]}
    assert messages["Progressing"] == f"0 of 2 trainers are ready; {said}"


def test_tries_by_turns_cost_no_write(stage: Stage) -> None:
    first, second = stage.trainers()
    hold_up(stage, first, waiting("ErrImagePull"))
    hold_up(stage, second, waiting("CrashLoopBackOff", restartCount=2, lastState=CRASHED))
    stage.step()

    written = stage.cluster.writes
    for number in range(3, 6):
        hold_up(stage, first, waiting("ImagePullBackOff", f"Back-off {number} s"))
        hold_up(stage, second, running(restartCount=number, lastState=CRASHED))
        stage.step(seconds=60)
        hold_up(stage, first, waiting("ErrImagePull", f"request {number}"))
        hold_up(stage, second, waiting("CrashLoopBackOff", restartCount=number, lastState=CRASHED))
        stage.step(seconds=60)
    assert stage.cluster.writes == written


def test_a_gang_that_was_whole_and_crashes_says_so(stage: Stage) -> None:
    stage.settle()
    hold_up(stage, "train-trainer-1", waiting("CrashLoopBackOff", lastState=CRASHED))
    ref = ObjectRef("v1", "Pod", "default", "train-trainer-1")
    not_ready = {"conditions": [{"type": "Ready", "status": "False"}]}
    stage.memory.patch(ref, {"status": not_ready}, subresource="status")
    stage.step()

    assert f"ready: 1 of 2 trainers; `train-trainer-1`: {CRASH}" in stage.status()["reason"]
