"""Which pods a Deployment gives up."""

from collections import Counter

from mlstack.simulator.engine import Kernel, SimulatedStore, changed
from mlstack.simulator.nodes import Workloads, WorkloadSettings
from mlstack.simulator.scenario import NAMESPACE, Service, deployment


def left_on(nodes: dict[str, int], replicas: int) -> Counter[str]:
    """Give how many pods are left on each node after a Deployment has shrunk at one request a second."""
    kernel = Kernel()
    store = SimulatedStore(kernel)
    Workloads(store, kernel, WorkloadSettings(rate=1, burst=sum(nodes.values())))
    store.write(deployment(Service(name="web", replicas=sum(nodes.values()), requests={"cpu": "1"})))
    kernel.run(kernel.now_ms + 5_000)
    places = [name for name, count in nodes.items() for _ in range(count)]
    for pod, place in zip(store.all("Pod"), places, strict=True):
        store.write(changed(pod, spec={"nodeName": place}, status={"phase": "Running"}))
    live = store.get("Deployment", "web", NAMESPACE)
    assert live is not None
    store.write(changed(live, spec={"replicas": replicas}))
    kernel.run(kernel.now_ms + 60_000)
    going = [pod for pod in store.all("Pod") if "deletionTimestamp" in pod["metadata"]]
    return Counter(places) - Counter(pod["spec"]["nodeName"] for pod in going)


def test_pods_of_the_fullest_nodes_go_and_are_chosen_once() -> None:
    """Requests are few and nodes empty meanwhile, and still nobody is chosen anew."""
    assert left_on({"full": 6, "emptier": 5}, 7) == {"full": 2, "emptier": 5}


def test_pods_of_a_node_that_is_no_fuller_stay_until_the_fuller_ones_have_gone() -> None:
    assert left_on({"full": 3, "emptier": 2}, 1) == {"emptier": 1}
