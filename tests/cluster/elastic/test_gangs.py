"""Masters and parameter servers that the real scheduler cannot put where the plan had a place for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from tests.support.elastic import training_job
from tests.support.elastic_controller import Jobs, Start, held_to

pytestmark = pytest.mark.cluster

Obj = dict[str, Any]

HELD_S = 16
"""How long a server is held to its node here: 15 s and the grace of the trainers."""

PAUSE_S = 8
"""How long a gang waits here after it was given up for the first time."""

TIMES = {"INCOMPLETE_MS": 10_000, "GANG_MS": (PAUSE_S * 1000, 3_600_000)}


def created_s(pod: Obj) -> float:
    return datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp()


def fill(jobs: Jobs, node: str) -> None:
    """Put a pod of somebody else's on a node, which leaves no room there."""
    container = {"name": "main", "image": "registry.example.org/x:1"}
    spec = {"nodeName": node, "containers": [{**container, "resources": {"requests": {"cpu": "16"}}}]}
    jobs.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stranger"}, "spec": spec})


@pytest.mark.parametrize("spoil", [Jobs.cordon, fill], ids=["cordoned", "filled"])
def test_servers_whose_planned_node_is_lost_to_them_go_elsewhere_after_a_while(
    start: Start, jobs: Jobs, spoil: Callable[[Jobs, str], None]
) -> None:
    start()
    job = training_job("one", minimum=1, maximum=2, pservers=2, with_master=True)
    job["spec"]["trainer"]["terminationGracePeriodSeconds"] = HELD_S - 15
    with jobs.cluster.machinery.paused("kube-controller-manager"):  # no set makes its pods yet
        jobs.create(job)
        jobs.wait_for(lambda: len(templates(jobs)) == 2, what="the sets of the gang")
        planned = {host for template in templates(jobs) for host in held_to(template)}
        assert len(planned) == 1
        node = planned.pop()
        spoil(jobs, node)

    try:
        jobs.wait_for(lambda: len(servers(jobs)) == 3, what="the servers")
        first = servers(jobs)
        assert all(held_to(pod) == [node] for pod in first.values())
        jobs.wait_for_phase("one", "Running", timeout_s=50)
        now = servers(jobs)
        assert now.keys() == first.keys()
        for name, pod in now.items():
            assert pod["spec"]["nodeName"] != node
            assert held_to(pod) == []
            assert wished(pod) == [node]
            assert pod["metadata"]["uid"] != first[name]["metadata"]["uid"]
            assert created_s(pod) - created_s(first[name]) >= HELD_S - 1  # times are whole seconds
    finally:
        jobs.cordon(node, False)


def templates(jobs: Jobs) -> list[Obj]:
    """Give what the StatefulSets of the namespace make pods from."""
    return [stateful_set["spec"]["template"] for stateful_set in jobs.objects("statefulsets").values()]


def servers(jobs: Jobs) -> dict[str, Obj]:
    """Give the masters and parameter servers of the job by name."""
    pods = [*jobs.pods("one", "master"), *jobs.pods("one", "pserver")]
    return {pod["metadata"]["name"]: pod for pod in pods}


def wished(pod: Obj) -> list[str]:
    """Give the host names of the nodes that a pod would rather go to."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    wishes = affinity.get("preferredDuringSchedulingIgnoredDuringExecution", [])
    return [
        host for wish in wishes for term in wish["preference"]["matchExpressions"] for host in term["values"]
    ]


def test_a_gang_whose_volume_never_comes_leaves_its_room_to_one_that_waits(start: Start, jobs: Jobs) -> None:
    first = start(is_named=False, times=TIMES)
    jobs.create(training_job("healthy", minimum=2, maximum=2, cpu="12"))
    jobs.wait_for_phase("healthy", "Running")
    uids = {pod["metadata"]["uid"] for pod in jobs.pods("healthy")}
    lost = training_job("lost", minimum=1, maximum=1, cpu="12", pservers=1)
    lost["spec"]["pserver"]["storage"] = {"size": "1Gi", "storageClassName": "nowhere"}
    jobs.create(lost)
    jobs.wait_for_phase("lost", "Admitted")
    jobs.create(training_job("next", minimum=1, maximum=1, cpu="12"))
    jobs.wait_for(lambda: jobs.status("next").get("reason"), what="a reason to wait")

    jobs.wait_for_phase("lost", "Pending")  # tried for 10 s
    given_up_s = time.monotonic()
    assert "unbound immediate PersistentVolumeClaims" in jobs.status("lost")["reason"]
    jobs.wait_for_phase("next", "Running")
    assert jobs.pods("lost") == []
    assert {pod["metadata"]["uid"] for pod in jobs.pods("healthy")} == uids

    first.program.kill()
    start("second", is_named=False, times=TIMES)  # goes by what the first wrote down
    jobs.cluster.request("DELETE", jobs.path("next"))
    jobs.wait_for_phase("lost", "Admitted")
    assert time.monotonic() - given_up_s > PAUSE_S - 2
