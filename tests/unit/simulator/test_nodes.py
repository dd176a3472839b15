"""Kubelets, controllers and failing nodes from outside."""

from collections import Counter

import pytest

from mlstack.simulator.control_plane import Workloads, WorkloadSettings
from mlstack.simulator.engine import Kernel, SimulatedStore
from mlstack.simulator.scenario import NAMESPACE, Service, deployment
from tests.support.simulated import Sandbox


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
    store.write(deployment(Service(name="web", replicas=count, requests={"cpu": "1"})))
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


def test_a_node_that_comes_back_takes_pods_again() -> None:
    sandbox = Sandbox(4)
    sandbox.kubelets.fail("n0-0")
    sandbox.run(60)
    sandbox.pod("late")
    sandbox.run(5)
    assert sandbox.node_of("late") == ""
    sandbox.kubelets.heal("n0-0")
    sandbox.run(10)
    assert sandbox.phase_of("late") == "Running"


def test_pods_of_a_node_that_was_taken_away_are_cleaned_up() -> None:
    sandbox = Sandbox(4)
    sandbox.pod("orphan")
    sandbox.run(10)
    sandbox.kubelets.remove("n0-0")
    sandbox.run(30)
    assert sandbox.phase_of("orphan") == ""
