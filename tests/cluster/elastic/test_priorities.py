"""Priority games of two namespaces on a real API server: who takes what from whom."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cluster import TestCluster
from tests.support.elastic import training_job
from tests.support.elastic_controller import Jobs, Start

pytestmark = pytest.mark.cluster

Obj = dict[str, Any]


@pytest.fixture
def gold(gke: TestCluster, namespace: str) -> Iterator[str]:
    """A PriorityClass of 500."""
    name, path = f"gold-{namespace}", "/apis/scheduling.k8s.io/v1/priorityclasses"
    gke.request("POST", path, {"metadata": {"name": name}, "value": 500})
    yield name
    gke.request("DELETE", f"{path}/{name}")


def uids(jobs: Jobs, name: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in jobs.pods(name)}


def granted(jobs: Jobs, name: str) -> Obj:
    rows = jobs.status(name).get("conditions", [])
    return next((row for row in rows if row["type"] == "PriorityGranted"), {})


def fill(others: Jobs) -> set[str]:
    """Let a job of the other namespace have the whole cluster for its minimum."""
    others.create(training_job("rich", minimum=3, maximum=3, cpu="12"))
    others.wait_for_phase("rich", "Running")
    return uids(others, "rich")


@pytest.mark.parametrize("asked", [{"priority": 2_000_000_000}, {"priorityClassName": "gold"}])
def test_a_priority_that_nobody_granted_cuts_no_job_of_another_namespace(
    start: Start, jobs: Jobs, others: Jobs, gold: str, asked: Obj
) -> None:
    start(options=[f"--namespace={others.namespace}", "--tick=1"])
    before = fill(others)

    spec = {**asked, **({"priorityClassName": gold} if "priorityClassName" in asked else {})}
    jobs.create(training_job("greedy", minimum=1, maximum=3, cpu="12", **spec))
    jobs.wait_for(lambda: granted(jobs, "greedy"), what="a word about its priority")
    time.sleep(3)

    assert uids(others, "rich") == before
    assert jobs.pods("greedy") == []
    assert (granted(jobs, "greedy")["status"], granted(jobs, "greedy")["reason"]) == (
        "False",
        "AboveNamespace",
    )
    assert f"counts with 0, the highest of namespace `{jobs.namespace}`" in granted(jobs, "greedy")["message"]


def test_a_namespace_takes_what_the_controller_grants_it(start: Start, jobs: Jobs, others: Jobs) -> None:
    start(options=[f"--namespace={others.namespace}", f"--max-priority={jobs.namespace}=10"])
    fill(others)

    jobs.create(training_job("first", minimum=1, maximum=1, cpu="12", priority=99))
    jobs.wait_for_phase("first", "Running")

    assert jobs.status("first")["priority"] == 10
    reason = {row["type"]: row["reason"] for row in others.status("rich")["conditions"]}["Admitted"]
    assert reason == "PreemptedFor"


def test_a_class_that_a_quota_of_the_namespace_names_is_granted(
    start: Start, jobs: Jobs, others: Jobs, gold: str
) -> None:
    start(options=[f"--namespace={others.namespace}"])
    fill(others)
    match = [{"scopeName": "PriorityClass", "operator": "In", "values": [gold]}]
    spec = {"hard": {"pods": "5"}, "scopeSelector": {"matchExpressions": match}}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gold"}, "spec": spec}
    jobs.create(quota)

    jobs.create(training_job("first", minimum=1, maximum=1, cpu="12", priorityClassName=gold))
    jobs.wait_for_phase("first", "Running")

    assert jobs.status("first")["priority"] == 500
    assert granted(jobs, "first")["reason"] == "Granted"


def test_a_number_and_a_class_together_are_refused_by_the_definition(jobs: Jobs) -> None:
    with pytest.raises(Exception, match="give one of them"):
        jobs.create(training_job("both", priority=3, priorityClassName="gold"))
