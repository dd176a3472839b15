"""Pods whose containers cannot begin: told in the status of their job, with the reason of the kubelet."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.elastic import facts, pods
from mlstack.elastic.cache import ClusterCache, build_snapshot
from mlstack.elastic.facts import held_up
from mlstack.elastic.policy.plan import plan
from mlstack.elastic.snapshot import PolicyConfig, ScalePlan, Snapshot
from mlstack.elastic.training_job import parse
from mlstack.kube.client import ObjectRef, WatchEvent
from mlstack.simulator import scenario
from mlstack.simulator.measures import breaches_of_sample
from mlstack.simulator.run import simulate
from tests.support.elastic import node, numbered, pod, training_job
from tests.support.simulated import Sandbox
from tests.support.stage import Stage

PULL = "ImagePullBackOff: image train:1"
CRASH = "CrashLoopBackOff: container `main` ended with exit code 1"
CRASHED = {"terminated": {"exitCode": 1}}


def waiting(reason: str, message: str = "", **other: Any) -> dict[str, Any]:
    status = {"name": "main", "image": "train:1", "ready": False, "restartCount": 0, **other}
    return {**status, "state": {"waiting": {"reason": reason, "message": message}}}


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
    parsed = facts.parse_pod({**pod("web"), "status": {"containerStatuses": [waiting("ErrImagePull")]}})
    assert parsed.held_up == ""


@pytest.fixture
def stage() -> Stage:
    stage = Stage("n1", "n2")
    stage.put(training_job(minimum=2, maximum=2))
    stage.step()
    return stage


def hold_up(stage: Stage, name: str, container: dict[str, Any]) -> None:
    """Bind a pod and let its container wait."""
    ref = ObjectRef("v1", "Pod", "default", name)
    stage.memory.patch(ref, {"spec": {"nodeName": "n1"}})
    stage.memory.patch(ref, {"status": {"containerStatuses": [container]}}, subresource="status")


def test_the_status_says_of_one_pod_why_it_does_not_begin(stage: Stage) -> None:
    for name in stage.trainers():
        hold_up(stage, name, waiting("ErrImagePull"))
    stage.step()

    message = f"`train-trainer-0`: {PULL}"
    assert stage.status()["reason"] == f"ready: 0 of 2 trainers; {message}"
    messages = {condition["type"]: condition["message"] for condition in stage.status()["conditions"]}
    assert messages["Progressing"] == f"0 of 2 trainers are ready; {message}"


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


Obj = dict[str, Any]


def snapshot_of(*objects: Obj) -> Snapshot:
    cache = ClusterCache()
    for number, obj in enumerate(objects, start=1):
        cache.handle(WatchEvent(type="ADDED", object=numbered(obj, number)))
    return build_snapshot(cache, 0)


def planned(*objects: Obj) -> ScalePlan:
    return plan(snapshot_of(*objects), PolicyConfig())


def places(plan: ScalePlan, job: str = "train") -> list[str]:
    return sorted(plan.decisions[f"default/{job}"].places)


def web(*ports: Obj, name: str = "web", **spec: Any) -> Obj:
    container = {"name": "main", "ports": list(ports), "resources": {"requests": {"cpu": "1"}}}
    return pod(name, phase="Running", containers=[container], **spec)


def test_one_trainer_on_the_network_of_its_node_goes_to_each_node() -> None:
    assert places(planned(node("n1"), node("n2"), training_job(hostNetwork=True))) == ["n1", "n2"]
    assert len(places(planned(node("n1"), node("n2"), training_job()))) == 4


def test_trainers_and_their_parameter_servers_need_nodes_of_their_own() -> None:
    job = training_job(minimum=2, pservers=1, hostNetwork=True)
    assert "default/train" in {row.key for row in planned(node("n1"), node("n2"), job).unplaced}
    plan = planned(node("n1"), node("n2"), node("n3"), job)
    assert sorted([*places(plan), *plan.decisions["default/train"].hints["pserver"]]) == ["n1", "n2", "n3"]


def test_jobs_with_the_same_port_share_the_nodes() -> None:
    jobs = [training_job(name, hostNetwork=True) for name in ("a", "b")]
    plan = planned(node("n1"), node("n2"), *jobs)
    assert sorted(places(plan, "a") + places(plan, "b")) == ["n1", "n2"]


@pytest.mark.parametrize(
    ("holder", "expected"),
    [
        pytest.param(web({"containerPort": 80, "hostPort": 7164}), ["n2"], id="host-port"),
        pytest.param(web({"containerPort": 7164}, hostNetwork=True), ["n2"], id="host-network"),
        pytest.param(web({"containerPort": 80, "hostPort": 7165}), ["n2"], id="one-of-several-ports"),
        pytest.param(web({"containerPort": 7164}), ["n1", "n2"], id="port-of-its-own"),
        pytest.param(web({"containerPort": 80, "hostPort": 80}), ["n1", "n2"], id="another-port"),
        pytest.param(
            web({"containerPort": 80, "hostPort": 7164, "protocol": "UDP"}),
            ["n1", "n2"],
            id="another-protocol",
        ),
    ],
)
def test_the_port_of_a_pod_of_others_keeps_trainers_off_its_node(holder: Obj, expected: list[str]) -> None:
    holder["spec"]["nodeName"] = "n1"
    assert places(planned(node("n1"), node("n2"), holder, training_job(hostNetwork=True))) == expected


def test_sidecars_hold_ports_and_ended_pods_do_not() -> None:
    def on_n1(name: str, *, phase: str, **init: str) -> Obj:
        container = {"name": "init", "ports": [{"containerPort": 80, "hostPort": 7164}], **init}
        return pod(name, node="n1", phase=phase, initContainers=[container])

    job = training_job(hostNetwork=True)
    assert places(planned(node("n1"), on_n1("a", phase="Running", restartPolicy="Always"), job)) == []
    assert places(planned(node("n1"), on_n1("a", phase="Running"), job)) == ["n1"]
    assert places(planned(node("n1"), on_n1("a", phase="Succeeded", restartPolicy="Always"), job)) == ["n1"]


def test_a_port_comes_free_only_when_its_pod_is_gone() -> None:
    going = web({"containerPort": 80, "hostPort": 7164}, node="n1", gone_ms=5000)
    job = training_job(hostNetwork=True)
    (room,) = snapshot_of(node("n1"), going, job).arriving
    assert (room.node, max(room.request[3:])) == ("n1", 1)


def test_ports_are_no_resource_unless_a_job_asks_for_them() -> None:
    holder = web({"containerPort": 80, "hostPort": 7164}, node="n1")
    assert snapshot_of(node("n1"), holder, training_job()).resources == ("cpu", "memory", "pods")


TAKEN = "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports."


def waits(*ports: int, why: str = TAKEN, **spec: Any) -> Obj:
    """Give a pod of others that the scheduler found no node for."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
    declared = [{"containerPort": 80 + number, "hostPort": port} for number, port in enumerate(ports)]
    container = {"name": "main", "ports": declared, "resources": {"requests": {"cpu": "1"}}}
    return pod("gate", containers=[container], conditions=[condition], **{"priority": 1000, **spec})


def at_work(*on: str, maximum: int = 4, cpu: str = "1", **spec: Any) -> list[Obj]:
    """Give a job with a trainer on each of these nodes."""
    job = training_job(maximum=maximum, cpu=cpu, **spec)
    status = {"phase": "Running", "trainer": {"desired": len(on)}}
    labels = {"mlstack.dev/training-job": "train", "mlstack.dev/role": "trainer"}
    template = pods.pod_spec(
        parse({**job, "metadata": {**job["metadata"], "uid": "uid-train"}}), "trainer", 0
    )
    trainers = [
        pod(
            f"train-trainer-{number}",
            node=name,
            phase="Running",
            labels=labels,
            owner=("TrainingJob", "uid-train"),
            containers=template["containers"],
            hostNetwork=bool(spec.get("hostNetwork")),
        )
        for number, name in enumerate(on)
    ]
    return [{**job, "status": status}, *trainers]


def test_a_trainer_makes_way_for_a_pod_that_waits_for_its_port_alone() -> None:
    plan = planned(node("n1"), node("n2"), *at_work("n1", "n2", hostNetwork=True), waits(7164))

    decision = plan.decisions["default/train"]
    assert (decision.target, len(decision.victims)) == (1, 1)
    assert decision.reasons[0].cause == "yield"


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param([waits(7164, priority=-20)], id="for-a-lower-priority"),
        pytest.param(
            [waits(7165, why="0/2 nodes are available: 2 node(s) had a taint.")],
            id="where-something-else-is-missing",
        ),
    ],
)
def test_no_trainer_makes_way_for_its_port(pods: list[Obj]) -> None:
    classes = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": -10}
    low = {**classes, "metadata": {"name": "mlstack-trainer"}}
    plan = planned(low, node("n1"), node("n2"), *at_work("n1", "n2", hostNetwork=True), *pods)

    assert plan.decisions["default/train"].victims == ()


@pytest.mark.parametrize("why", [TAKEN, "0/2 nodes are available: 2 Insufficient cpu."])
def test_trainers_do_not_make_way_where_others_keep_the_port(why: str) -> None:
    """The nodes are full of trainers, and pods of others keep the port of both: no victim would help."""
    keepers = [web({"containerPort": 80, "hostPort": 80}, name=f"w{n}", node=f"n{n}") for n in (1, 2)]
    full = at_work("n1", "n2", cpu="7", maximum=2)

    plan = planned(node("n1"), node("n2"), *keepers, *full, waits(80, why=why))

    assert plan.decisions["default/train"].victims == ()
    assert [row.key for row in plan.unplaced] == ["default/gate"]
    keepers[1] = web(name="w2", node="n2")
    without = planned(node("n1"), node("n2"), *keepers, *full, waits(80, why=why))
    assert without.decisions["default/train"].victims == ("train-trainer-1",)


def test_ports_that_go_together_count_as_one() -> None:
    many = training_job(hostNetwork=True, port=7900, ports_num=100, ports_num_for_sparse=100)
    assert len(snapshot_of(node("n1"), many).resources) == 4
    holder = web({"containerPort": 80, "hostPort": 8000}, node="n1")
    assert places(planned(node("n1"), node("n2"), holder, many)) == ["n2"]


def test_a_job_that_waits_for_a_port_says_so() -> None:
    plan = planned(node("n1"), node("n2"), training_job(minimum=3, hostNetwork=True))
    text = plan.decisions["default/train"].reasons[0].text
    assert text == "no room for 3 host ports 7165/TCP of its gang"


def test_the_simulated_scheduler_gives_a_port_to_one_pod_a_node() -> None:
    sandbox = Sandbox(8, 8)
    container = {"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}
    for index in range(3):
        sandbox.pod(f"p{index}", containers=[container])
        sandbox.run(1)
    assert sorted(sandbox.node_of(f"p{index}") for index in range(3)) == ["", "n0-0", "n1-0"]


def test_a_simulated_job_on_the_network_of_its_nodes_keeps_every_law() -> None:
    data = {
        "seconds": 60,
        "nodes": [{"name": "n", "count": 5, "cpu": 16, "memory": "64Gi"}],
        "jobs": [
            {
                **{"name": "train", "at": 5, "min": 1, "max": 9, "trainer": {"cpu": 1}},
                **{"pservers": {"count": 1, "cpu": 1}, "spec": {"hostNetwork": True}},
            }
        ],
    }
    outcome = simulate(scenario.read(data, where="ports.yaml"))
    assert outcome.samples[-1].trainers == [4]
    assert [breach for sample in outcome.samples for breach in breaches_of_sample(sample)] == []
