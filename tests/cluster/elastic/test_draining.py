"""Evictions on a real control plane: what budgets let go, and where it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.api import ApiRefusedError
from tests.support.elastic import training_job
from tests.support.elastic_controller import Jobs, Start

pytestmark = pytest.mark.cluster

Obj = dict[str, Any]


def evict(jobs: Jobs, name: str) -> None:
    """Ask for the end of a pod as a drain does."""
    path = f"/api/v1/namespaces/{jobs.namespace}/pods/{name}/eviction"
    metadata = {"name": name, "namespace": jobs.namespace}
    jobs.cluster.request("POST", path, {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata})


@contextmanager
def drained(jobs: Jobs, node: str, *, timeout_s: int) -> Iterator[str]:
    """Drain a node and give what kubectl complained of; the node takes pods again afterwards."""
    words = ("--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={timeout_s}s")
    try:
        done = jobs.cluster.kubectl("drain", node, *words, check=False)
        yield "" if done.returncode == 0 else done.stderr
    finally:
        jobs.cordon(node, False)


def uids(jobs: Jobs, role: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in jobs.pods("one", role)}


def budget(jobs: Jobs, role: str) -> Obj:
    """Give what the cluster makes of a budget."""
    path = f"/apis/policy/v1/namespaces/{jobs.namespace}/poddisruptionbudgets/one-{role}"
    return dict((jobs.cluster.find(path) or {}).get("status") or {})


def test_an_eviction_is_granted_above_the_minimum_and_refused_at_it(start: Start, jobs: Jobs) -> None:
    start()
    jobs.create(training_job("one", minimum=2, maximum=3))
    jobs.wait_for(lambda: len(jobs.names("one")) == 3, what="three trainers")
    jobs.wait_for_phase("one", "Running")
    jobs.wait_for(lambda: budget(jobs, "trainer").get("disruptionsAllowed") == 1, what="room for an eviction")
    before = uids(jobs, "trainer")

    evict(jobs, "one-trainer-1")
    jobs.wait_for(lambda: len(uids(jobs, "trainer") & before) == 2, what="the end of the one")
    jobs.wait_for(lambda: len(jobs.names("one")) == 3, what="another in its place")
    jobs.wait_for_phase("one", "Running")
    assert len(uids(jobs, "trainer") & before) == 2
    assert jobs.status("one")["trainer"]["failed"] == 0

    jobs.scale("one", 2)
    jobs.wait_for(lambda: budget(jobs, "trainer").get("currentHealthy") == 2, what="the minimum")
    least = uids(jobs, "trainer")
    assert len(least) == 2
    for name in jobs.names("one"):
        with pytest.raises(ApiRefusedError, match="would violate the pod's disruption budget") as refused:
            evict(jobs, name)
        assert refused.value.status == 429
    assert uids(jobs, "trainer") == least


def test_trainers_of_a_drained_node_go_on_elsewhere(start: Start, jobs: Jobs) -> None:
    start()
    jobs.create(training_job("one", minimum=2, maximum=4, cpu="6"))
    jobs.wait_for(lambda: len(jobs.names("one")) == 4, what="four trainers")
    jobs.wait_for_phase("one", "Running")
    jobs.wait_for(lambda: budget(jobs, "trainer").get("disruptionsAllowed") == 2, what="room for evictions")
    before = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in jobs.pods("one")}
    node = next(iter(before.values()))
    others = {uid for uid, place in before.items() if place != node}

    with drained(jobs, node, timeout_s=20) as complaint:
        assert complaint == ""

        def is_whole_elsewhere() -> bool:
            places = [pod["spec"].get("nodeName") for pod in jobs.pods("one")]
            return len(places) == 4 and all(place not in (None, "", node) for place in places)

        jobs.wait_for(is_whole_elsewhere, what="four trainers elsewhere")
        jobs.wait_for_phase("one", "Running")
        assert others < uids(jobs, "trainer")
        assert jobs.status("one")["trainer"]["failed"] == 0


def test_a_drain_takes_trainers_and_leaves_the_servers(start: Start, jobs: Jobs) -> None:
    start()
    jobs.create(training_job("one", minimum=1, maximum=4, cpu="6", pservers=1, with_master=True))
    jobs.wait_for(lambda: len(jobs.names("one")) == 4, what="four trainers")
    jobs.wait_for_phase("one", "Running")
    jobs.wait_for(lambda: budget(jobs, "trainer").get("disruptionsAllowed") == 3, what="room for evictions")
    servers = {role: uids(jobs, role) for role in ("pserver", "master")}
    node = jobs.pods("one", "pserver")[0]["spec"]["nodeName"]
    taken = {pod["metadata"]["uid"] for pod in jobs.pods("one", "trainer") if pod["spec"]["nodeName"] == node}
    assert taken

    with drained(jobs, node, timeout_s=8) as complaint:
        assert "one-pserver-0" in complaint
        assert not taken & uids(jobs, "trainer")
        assert {role: uids(jobs, role) for role in servers} == servers
        jobs.wait_for_phase("one", "Running")
