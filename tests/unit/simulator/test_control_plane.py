"""Scheduler, kubelets, controllers and failing nodes from outside: where pods go, and who makes way."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from mlstack.simulator.control_plane import SchedulerSettings, Workloads, WorkloadSettings
from mlstack.simulator.engine import Kernel, SimulatedStore, manifest
from mlstack.simulator.scenario import NAMESPACE, ServiceDeployment, deployment
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


# --- Kubelets, controllers and failing nodes from outside ---


def test_a_pod_runs_two_to_five_seconds_after_it_is_bound() -> None:
    sandbox = Sandbox(100)
    for index in range(40):
        sandbox.pod(f"p{index}")
    sandbox.run(1.9)
    assert {sandbox.phase_of(f"p{index}") for index in range(40)} == {"Pending"}
    sandbox.run(3.8)
    assert {sandbox.phase_of(f"p{index}") for index in range(40)} == {"Running"}


def test_a_deleted_pod_goes_when_its_grace_is_over() -> None:
    sandbox = Sandbox(4)
    sandbox.workload("Deployment", "web", 1, terminationGracePeriodSeconds=7)
    sandbox.run(10)
    sandbox.store.remove(sandbox.live("Deployment", "web"))
    sandbox.run(6.9)
    assert [pod["status"]["phase"] for pod in sandbox.pods("web")] == ["Running"]
    sandbox.run(1)
    assert sandbox.pods("web") == []


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (1, "Failed")])
def test_a_pod_that_ends_by_itself_gives_its_room_back(code: int, phase: str) -> None:
    sandbox = Sandbox(1)
    pod = sandbox.pod("first")
    sandbox.run(10)
    sandbox.kubelets.exit(pod, code)
    sandbox.pod("second")
    sandbox.run(10)
    assert (sandbox.phase_of("first"), sandbox.phase_of("second")) == (phase, "Running")


@pytest.mark.parametrize("kind", ["Deployment", "Job", "StatefulSet"])
def test_a_workload_has_as_many_pods_as_it_asks_for(kind: str) -> None:
    sandbox = Sandbox(64)
    sandbox.workload(kind, "w", 7)
    sandbox.run(10)
    assert len(sandbox.pods("w-")) == 7
    field = "parallelism" if kind == "Job" else "replicas"
    sandbox.store.update(sandbox.live(kind, "w"), spec={field: 3})
    sandbox.run(60)
    assert len(sandbox.pods("w-")) == 3


def test_a_stateful_set_has_stable_names_and_makes_a_lost_pod_again() -> None:
    sandbox = Sandbox(8)
    sandbox.workload("StatefulSet", "w", 3)
    sandbox.run(10)
    lost = sandbox.live("Pod", "w-1")
    sandbox.store.remove(lost)
    sandbox.run(10)
    assert sandbox.live("Pod", "w-1")["metadata"]["uid"] != lost["metadata"]["uid"]
    assert sandbox.live("StatefulSet", "w")["status"]["readyReplicas"] == 3


def test_controllers_make_twenty_pods_a_second_after_a_burst() -> None:
    sandbox = Sandbox(200)
    sandbox.workload("Deployment", "web", 100)
    sandbox.run(1)
    assert 30 <= len(sandbox.pods("web")) <= 52
    sandbox.run(4)
    assert len(sandbox.pods("web")) == 100


def test_pods_without_a_node_go_first_when_a_deployment_shrinks() -> None:
    sandbox = Sandbox(3)
    sandbox.workload("Deployment", "web", 5, terminationGracePeriodSeconds=1)
    sandbox.run(10)
    sandbox.store.update(sandbox.live("Deployment", "web"), spec={"replicas": 3})
    sandbox.run(5)
    assert [pod["status"]["phase"] for pod in sandbox.pods("web")] == ["Running"] * 3


@pytest.mark.parametrize(
    ("pods", "replicas", "left"),
    [
        ({"full": 6, "emptier": 5}, 7, {"full": 2, "emptier": 5}),
        ({"full": 3, "emptier": 2}, 1, {"emptier": 1}),
    ],
    ids=["until nodes are empty", "until only the emptier is left"],
)
def test_pods_of_the_fullest_nodes_go_and_are_chosen_once(
    pods: dict[str, int], replicas: int, left: dict[str, int]
) -> None:
    """At one request a second nodes grow empty meanwhile, and still nobody is chosen anew."""
    kernel, count = Kernel(), sum(pods.values())
    store = SimulatedStore(kernel)
    Workloads(store, WorkloadSettings(rate=1, burst=count))
    store.write(deployment(ServiceDeployment(name="web", replicas=count, requests={"cpu": "1"})))
    kernel.run(kernel.now_ms + 5_000)
    places = list(Counter(pods).elements())
    for pod, place in zip(store.all("Pod"), places, strict=True):
        store.update(pod, spec={"nodeName": place}, status={"phase": "Running"})
    live = store.get("Deployment", "web", NAMESPACE)
    assert live is not None
    store.update(live, spec={"replicas": replicas})
    kernel.run(kernel.now_ms + 60_000)
    going = [pod for pod in store.all("Pod") if "deletionTimestamp" in pod["metadata"]]
    assert Counter(places) - Counter(pod["spec"]["nodeName"] for pod in going) == left


def test_pods_leave_a_silent_node_when_they_tolerate_it_no_longer() -> None:
    sandbox = Sandbox(4, 4)
    toleration = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 5}
    sandbox.workload("Job", "w", 8, tolerations=[toleration], terminationGracePeriodSeconds=1)
    sandbox.run(10)
    sandbox.kubelets.fail("n0-0")
    sandbox.run(39)
    assert sandbox.going("w-") == []
    sandbox.run(10)
    assert {pod["spec"]["nodeName"] for pod in sandbox.going("w-")} == {"n0-0"}


def test_a_node_that_comes_back_takes_pods_again_and_has_its_own_taints() -> None:
    sandbox, own = Sandbox(4), [{"key": "mine", "effect": "PreferNoSchedule"}]
    sandbox.store.update(sandbox.store.all("Node")[0], spec={"taints": own})
    sandbox.kubelets.fail("n0-0")
    sandbox.run(60)
    sandbox.pod("late")
    sandbox.run(5)
    assert sandbox.node_of("late") == ""
    sandbox.kubelets.heal("n0-0")
    sandbox.run(10)
    assert sandbox.store.all("Node")[0]["spec"]["taints"] == own
    assert sandbox.phase_of("late") == "Running"


def test_pods_of_a_node_that_was_taken_away_are_cleaned_up() -> None:
    sandbox = Sandbox(4)
    sandbox.pod("orphan")
    sandbox.run(10)
    sandbox.kubelets.remove("n0-0")
    sandbox.run(30)
    assert sandbox.phase_of("orphan") == ""
