"""Who gets the room of a real cluster: GPUs, priorities, pods of different shapes, limits set by others."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.elastic import pod, training_job
from tests.support.elastic_controller import Jobs, Start

pytestmark = pytest.mark.cluster

Obj = dict[str, Any]


def gpu_job(name: str, *, minimum: int, maximum: int, gpus: int, priority: int = 0) -> Obj:
    """Give a job whose trainers take so many of the two GPUs that each node has."""
    job = training_job(name, minimum=minimum, maximum=maximum, cpu="1", priority=priority)
    job["spec"]["trainer"]["resources"]["limits"] = {"nvidia.com/gpu": str(gpus)}
    return job


def nodes_of(jobs: Jobs, name: str) -> dict[str, str]:
    """Give where the trainers of a job are, by UID."""
    return {pod["metadata"]["uid"]: pod["spec"].get("nodeName", "") for pod in jobs.pods(name, "trainer")}


def output(jobs: Jobs, *words: str) -> str:
    """Give what `mlstack elastic` says about the namespace."""
    login = f"--kubeconfig={jobs.cluster.kubeconfig}"
    command = [sys.executable, "-m", "mlstack", "elastic", *words, "-n", jobs.namespace, login]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_gpus_go_by_priority_and_exactly_those_in_the_way_leave(start: Start, jobs: Jobs) -> None:
    start()
    jobs.create(gpu_job("low", minimum=1, maximum=6, gpus=1))
    jobs.wait_for(lambda: len(jobs.names("low")) == 6, what="six GPUs in use")
    jobs.wait_for_phase("low", "Running")
    before = nodes_of(jobs, "low")

    jobs.create(gpu_job("high", minimum=2, maximum=2, gpus=2, priority=10))
    jobs.wait_for_phase("high", "Running")
    jobs.create(gpu_job("last", minimum=2, maximum=2, gpus=2, priority=-10))
    jobs.wait_for(lambda: jobs.status("last").get("reason"), what="a reason to wait")
    jobs.wait_for_phase("low", "Running")

    taken = set(nodes_of(jobs, "high").values())
    assert len(taken) == 2  # a node each
    assert nodes_of(jobs, "low") == {uid: node for uid, node in before.items() if node not in taken}
    assert jobs.pods("last") == []
    assert jobs.status("last")["reason"] == "no room for 4 nvidia.com/gpu of its gang"
    assert "no room for 4 nvidia.com/gpu of its gang" in output(jobs, "status")
    assert "taken off" not in output(jobs, "plan")


def test_a_gang_of_higher_priority_takes_a_whole_job_off(start: Start, jobs: Jobs) -> None:
    start(options=["--max-priority=10"])
    jobs.create(gpu_job("low", minimum=3, maximum=3, gpus=2))
    jobs.wait_for_phase("low", "Running")

    jobs.create(gpu_job("high", minimum=2, maximum=4, gpus=1, priority=10))
    jobs.wait_for_phase("high", "Running")
    jobs.wait_for(lambda: len(jobs.names("high")) == 4, what="the growth of the higher one")
    assert jobs.names("low") == []
    assert jobs.status("low")["phase"] == "Pending"
    jobs.cluster.request("DELETE", jobs.path("high"))

    jobs.wait_for_phase("low", "Running")
    assert len(jobs.names("low")) == 3


def test_pods_of_different_shapes_share_nodes(start: Start, jobs: Jobs) -> None:
    start()
    jobs.create(gpu_job("gpus", minimum=2, maximum=6, gpus=1))
    jobs.create(training_job("wide", minimum=1, maximum=9, cpu="7"))
    jobs.create(training_job("slim", minimum=2, maximum=30, cpu="1", pservers=2, pserver_cpu="2"))
    for name in ("gpus", "wide", "slim"):
        jobs.wait_for_phase(name, "Running")

    def is_full() -> bool:
        cores = {"gpus": 1, "wide": 7, "slim": 1}
        return sum(len(jobs.names(name)) * cpus for name, cpus in cores.items()) + 4 >= 3 * 16 - 3

    jobs.wait_for(is_full, what="a full cluster", timeout_s=30)
    jobs.wait_for(
        lambda: all(jobs.status(name)["phase"] == "Running" for name in ("gpus", "wide", "slim")), what="rest"
    )
    assert all(pod["spec"].get("nodeName") for pod in jobs.pods())
    assert len(jobs.names("gpus")) >= 2 and len(jobs.names("wide")) >= 1


def test_an_autoscaler_bounds_the_plan(start: Start, jobs: Jobs) -> None:
    start()
    jobs.create(training_job("one", minimum=1, maximum=6, cpu="1"))
    jobs.wait_for(lambda: len(jobs.names("one")) == 6, what="six trainers")
    jobs.create(autoscaler("one", most=3))

    jobs.wait_for(lambda: len(jobs.names("one")) == 3, what="three trainers", timeout_s=45)
    jobs.wait_for_phase("one", "Running")

    live = jobs.objects("horizontalpodautoscalers")["horizontalpodautoscalers/one"]
    assert live["status"]["currentReplicas"] >= 3, json.dumps(live["status"])
    assert live["status"]["desiredReplicas"] == 3
    assert jobs.cluster.request("GET", jobs.path("one"))["spec"]["trainer"]["max-instance"] == 3


def autoscaler(job: str, *, most: int) -> Obj:
    metric = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": job},
        "spec": {
            "minReplicas": 1,
            "maxReplicas": most,
            "scaleTargetRef": {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "name": job},
            "metrics": [{"type": "Resource", "resource": metric}],
        },
    }


def test_a_trainer_makes_way_for_a_pod_that_lacks_nothing_but_its_port(start: Start, jobs: Jobs) -> None:
    start()
    jobs.create(training_job("one", minimum=1, maximum=9, cpu="1", hostNetwork=True))
    jobs.wait_for(lambda: len(jobs.names("one")) == 3, what="a trainer on each node")
    jobs.wait_for_phase("one", "Running")
    # For pods of this class the scheduler makes no room by itself.
    gate = pod("gate", priorityClassName="mlstack-training")
    gate["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 7164}]

    jobs.create({key: value for key, value in gate.items() if key != "status"})

    jobs.wait_for(lambda: "gate" in bound(jobs), what="the pod that needs the port")
    jobs.wait_for_phase("one", "Running")
    assert len(jobs.names("one")) == 2


def bound(jobs: Jobs) -> list[str]:
    """Give the names of the pods that have a node."""
    return [pod["metadata"]["name"] for pod in jobs.pods() if pod["spec"].get("nodeName")]
