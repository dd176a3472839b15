"""An observer sums up what watch events tell, wherever they come from."""

from typing import Any

from mlstack.kube.client import WatchEvent
from mlstack.simulator.measures import ClusterObserver
from mlstack.simulator.scenario import (
    JobPlan,
    NodeGroup,
    Service,
    background,
    deployment,
    nodes,
    training_job,
)

SPEC = {
    "image": "a:1",
    "trainer": {
        "entrypoint": "x",
        "min-instance": 1,
        "max-instance": 4,
        "resources": {"requests": {"cpu": "3"}},
    },
    "pserver": {"min-instance": 1, "resources": {"requests": {"cpu": "1"}}},
}


def hear(observer: ClusterObserver, *objects: dict[str, Any], change: str = "ADDED") -> None:
    for obj in objects:
        named = {"namespace": "default", "uid": obj["metadata"]["name"], **obj["metadata"]}
        observer.hear(WatchEvent(type=change, object={**obj, "metadata": named}))  # type: ignore[arg-type]


def pod(
    name: str, role: str = "", *, cpu: str = "3", node: str = "n-0", phase: str = "Running"
) -> dict[str, Any]:
    labels = {"mlstack.dev/training-job": "j", "mlstack.dev/role": role} if role else {"app": "web"}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            **({"nodeName": node} if node else {}),
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
        },
        "status": {"phase": phase},
    }


def cluster(cores: int = 10) -> ClusterObserver:
    observer = ClusterObserver()
    hear(observer, *nodes(NodeGroup(name="n", count=1, allocatable={"cpu": str(cores)})))
    hear(observer, training_job(JobPlan(name="j", at_ms=0, spec=SPEC), 5))
    return observer


def test_running_pods_count_and_waiting_ones_are_only_requested() -> None:
    observer = cluster()
    hear(observer, pod("t0", "trainer"), pod("t1", "trainer", node="", phase="Pending"))
    found = observer.sample(0)
    assert (found.share(found.running), found.share(found.requested)) == (30, 60)
    assert (found.jobs[0].trainers, found.jobs[0].bound, found.jobs[0].unbound) == (1, 1, 1)


def test_room_is_useful_once_the_gang_is_whole() -> None:
    observer = cluster()
    hear(observer, pod("t0", "trainer"), pod("m", "master", cpu="1"))
    assert observer.sample(0).useful == {}
    hear(observer, pod("p", "pserver", cpu="1"))
    found = observer.sample(0)
    assert found.jobs[0].is_complete
    assert found.share(found.useful) == 50


def test_pods_on_their_way_out_run_but_are_no_trainers_any_more() -> None:
    observer = cluster()
    going = pod("t0", "trainer")
    hear(observer, going)
    going["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    hear(observer, going, change="MODIFIED")
    found = observer.sample(0)
    assert (found.share(found.running), found.jobs[0].trainers, found.deleted) == (30, 0, 1)
    hear(observer, going, change="DELETED")
    found = observer.sample(0)
    assert (found.share(found.running), found.deleted, found.created) == (0, 1, 1)


def test_background_is_told_by_its_namespace() -> None:
    observer = cluster()
    agent = background("n-0", {"cpu": "1"})
    agent["metadata"]["uid"] = "agent"
    observer.hear(WatchEvent(type="ADDED", object=agent))
    found = observer.sample(0)
    assert (found.share(found.background), found.share(found.useful)) == (10, 0)


def test_pods_of_a_service_are_told_by_its_selector() -> None:
    observer = cluster()
    hear(observer, deployment(Service(name="web", replicas=3, requests={"cpu": "3"})))
    hear(observer, pod("w0"), pod("w1", node="", phase="Pending"))
    found = observer.sample(0)
    assert (found.services[0].target, found.services[0].running, found.pending) == (3, 1, 1)


def test_room_where_no_trainer_fits_is_stranded() -> None:
    observer = cluster(cores=8)
    hear(observer, pod("t0", "trainer"))
    assert observer.sample(0).stranded.get("cpu", 0) == 0
    hear(observer, pod("t1", "trainer"))
    assert observer.sample(0).stranded["cpu"] == 2000


def test_an_overfull_node_is_named() -> None:
    observer = cluster(cores=5)
    hear(observer, pod("t0", "trainer"), pod("t1", "trainer"))
    assert observer.sample(0).crowded == ("n-0",)
