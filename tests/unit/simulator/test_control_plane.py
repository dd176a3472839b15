"""The scheduler from outside: where pods go, in which order, and who makes way."""

from typing import Any

import pytest

from mlstack.simulator.control_plane import SchedulerSettings
from mlstack.simulator.engine import manifest
from tests.support.simulated import Sandbox

TERM = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n0-0"]}]}
REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": TERM}]}
TRAINER = {"priorityClassName": "mlstack-trainer"}


def with_affinity(rule: object, cpu: str = "1") -> dict[str, object]:
    return {"cpu": cpu, "affinity": {"nodeAffinity": rule}}


@pytest.mark.parametrize(
    ("cores", "first", "second", "node"),
    [
        pytest.param((1, 8), with_affinity(REQUIRED), with_affinity(REQUIRED), "", id="required affinity"),
        pytest.param(
            (2, 16),
            with_affinity(PREFERRED, "2"),
            with_affinity(PREFERRED, "2"),
            "n1-0",
            id="preferred affinity wins over room but not over none",
        ),
        pytest.param(
            (1,), TRAINER, {"priority": 1000, "preemptionPolicy": "Never"}, "", id="it does not preempt"
        ),
        pytest.param((1,), {"priority": -100}, TRAINER, "", id="a trainer pushes nothing aside"),
    ],
)
def test_where_a_second_pod_goes_when_the_first_has_its_node(
    cores: tuple[int, ...], first: dict[str, Any], second: dict[str, Any], node: str
) -> None:
    sandbox = Sandbox(*cores)
    sandbox.pod("first", **first)
    sandbox.run(10)
    sandbox.pod("second", **second)
    sandbox.run(30)
    assert (sandbox.node_of("first"), sandbox.node_of("second")) == ("n0-0", node)


def test_pods_go_to_nodes_with_room_and_no_node_is_overfull() -> None:
    sandbox = Sandbox(4, 4)
    for index in range(10):
        sandbox.pod(f"p{index}")
    sandbox.run(10)
    assert (
        sorted(sandbox.node_of(f"p{index}") for index in range(10)) == ["", ""] + ["n0-0"] * 4 + ["n1-0"] * 4
    )


@pytest.mark.parametrize(("scoring", "spread"), [("least-allocated", 2), ("most-allocated", 1)])
def test_scoring_spreads_or_packs(scoring: str, spread: int) -> None:
    sandbox = Sandbox(8, 8, scheduler=SchedulerSettings(scoring=scoring))
    for index in range(4):
        sandbox.pod(f"p{index}")
        sandbox.run(1)
    assert len({sandbox.node_of(f"p{index}") for index in range(4)}) == spread


def test_gpus_count_as_any_resource() -> None:
    sandbox = Sandbox(8, gpus=1)
    gpu = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    sandbox.pod("first", containers=[gpu])
    sandbox.pod("second", containers=[gpu])
    sandbox.run(5)
    assert sorted([sandbox.node_of("first"), sandbox.node_of("second")]) == ["", "n0-0"]


def test_higher_priority_is_tried_first() -> None:
    sandbox = Sandbox(1)
    first = sandbox.pod("first", priority=100)
    sandbox.run(1)
    sandbox.pod("low", priority=0)
    sandbox.pod("high", priority=10)
    sandbox.run(1)
    sandbox.store.remove(first)
    sandbox.run(1)
    assert (sandbox.node_of("low"), sandbox.node_of("high")) == ("", "n0-0")


def test_a_waiting_pod_gets_room_that_comes_free() -> None:
    sandbox = Sandbox(1)
    first = sandbox.pod("first", terminationGracePeriodSeconds=5)
    sandbox.run(10)
    sandbox.pod("second")
    sandbox.run(10)
    assert sandbox.node_of("second") == ""
    sandbox.store.remove(first)
    sandbox.run(2)
    assert sandbox.node_of("second") == "n0-0"


def test_a_pod_is_never_moved_by_news_of_how_it_was_before() -> None:
    sandbox = Sandbox(2, 2)
    for index in range(6):
        sandbox.pod(f"p{index}")
    sandbox.run(0.01)
    before: dict[str, str] = {}
    for _ in range(100):
        sandbox.run(0.05)
        now = {f"p{index}": sandbox.node_of(f"p{index}") for index in range(6)}
        assert all(now[name] == node for name, node in before.items() if node)
        before = now


def test_preemption_takes_trainers_and_as_few_as_needed() -> None:
    sandbox = Sandbox(10)
    for index in range(10):
        sandbox.pod(f"t{index}", priorityClassName="mlstack-trainer", terminationGracePeriodSeconds=5)
    sandbox.run(10)
    sandbox.pod("web", "3", priority=1000)
    sandbox.run(1)
    assert len(sandbox.going("t")) == 3
    assert sandbox.node_of("web") == ""
    sandbox.run(6)
    assert sandbox.node_of("web") == "n0-0"
    assert len(sandbox.pods("t")) == 7


def test_preemption_keeps_a_disruption_budget_where_it_has_a_choice() -> None:
    sandbox = Sandbox(2)
    sandbox.pod("a", priority=-10, labels={"job": "kept"})
    sandbox.pod("b", priority=-10, labels={"job": "free"})
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"job": "kept"}}}
    sandbox.store.write(manifest("policy/v1", "PodDisruptionBudget", "kept", "default", spec=spec))
    sandbox.run(10)
    sandbox.pod("web", priority=1000)
    sandbox.run(1)
    assert [pod["metadata"]["name"] for pod in sandbox.going()] == ["b"]


def test_cordoned_nodes_get_no_pods() -> None:
    sandbox = Sandbox(4, 4)
    sandbox.kubelets.cordon("n0-0", is_closed=True)
    sandbox.run(1)
    for index in range(5):
        sandbox.pod(f"p{index}")
    sandbox.run(10)
    assert {sandbox.node_of(f"p{index}") for index in range(5)} == {"", "n1-0"}


def test_old_schedulers_try_again_by_time_alone() -> None:
    sandbox = Sandbox(1, scheduler=SchedulerSettings(retries_by_time=True, longest_backoff_ms=60_000))
    first = sandbox.pod("first")
    sandbox.run(1)
    sandbox.pod("second")
    sandbox.run(16)
    sandbox.store.remove(first)
    sandbox.run(10)
    assert sandbox.node_of("second") == ""
    sandbox.run(10)
    assert sandbox.node_of("second") == "n0-0"
