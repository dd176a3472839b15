"""What is measured from events and samples: use of a cluster, means over time, waits, fairness, services."""

from dataclasses import replace
from typing import Any

import pytest

from mlstack.elastic.policy.sharing import jain
from mlstack.kube.client import WatchEvent
from mlstack.simulator import measures, scenario
from mlstack.simulator.engine import manifest
from mlstack.simulator.measures import ClusterObserver, Sample
from mlstack.simulator.scenario import ServiceDeployment, background, deployment
from tests.support.samples import job, sample

WEB = "default/web"


# --- samples, summed up of what watch events tell, wherever they come from ---

SMALL = {
    "nodes": [{"name": "n", "cpu": 10}],
    "jobs": [
        {"name": "j", "max": 4, "trainer": {"cpu": 3}, "pservers": {"count": 1, "cpu": 1}, "master": {}}
    ],
}


def hear(observer: ClusterObserver, *objects: dict[str, Any], change: str = "ADDED") -> None:
    for obj in objects:
        place = {} if obj["kind"] == "Node" else {"namespace": "default"}
        named = {**place, "uid": obj["metadata"]["name"], **obj["metadata"]}
        observer.hear(WatchEvent(type=change, object={**obj, "metadata": named}))  # type: ignore[arg-type]


def pod(
    name: str, role: str = "", *, cpu: str = "3", node: str = "n-0", phase: str = "Running"
) -> dict[str, Any]:
    labels = {"mlstack.dev/training-job": "j", "mlstack.dev/role": role} if role else {"app": "web"}
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    bound = {"nodeName": node} if node else {}
    return manifest(
        "v1", "Pod", name, metadata={"labels": labels}, spec=spec | bound, status={"phase": phase}
    )


def cluster(cores: int = 10) -> ClusterObserver:
    observer, small = ClusterObserver(), scenario.read(SMALL, where="small.yaml")
    hear(observer, *scenario.nodes(replace(small.nodes[0], allocatable={"cpu": str(cores)})))
    hear(observer, scenario.training_job(small.jobs[0], 5))
    return observer


def test_running_pods_count_and_waiting_ones_are_only_requested() -> None:
    observer = cluster()
    hear(observer, pod("t0", "trainer"), pod("t1", "trainer", node="", phase="Pending"))
    sample = observer.sample(0)
    assert (sample.share("running"), sample.share("requested")) == (30, 60)
    assert (sample.jobs[0].trainers, sample.jobs[0].bound, sample.jobs[0].unbound) == (1, 1, 1)


def test_room_is_useful_once_the_gang_is_whole() -> None:
    observer = cluster()
    hear(observer, pod("t0", "trainer"), pod("m", "master", cpu="1"))
    assert observer.sample(0).useful == {}
    hear(observer, pod("p", "pserver", cpu="1"))
    sample = observer.sample(0)
    assert sample.jobs[0].is_complete
    assert sample.share("useful") == 50


def test_pods_on_their_way_out_run_but_are_no_trainers_any_more() -> None:
    observer = cluster()
    going = pod("t0", "trainer")
    hear(observer, going)
    going["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    hear(observer, going, change="MODIFIED")
    sample = observer.sample(0)
    assert (sample.share("running"), sample.jobs[0].trainers, sample.deleted) == (30, 0, 1)
    hear(observer, going, change="DELETED")
    sample = observer.sample(0)
    assert (sample.share("running"), sample.deleted, sample.created) == (0, 1, 1)


def test_background_is_told_by_its_namespace() -> None:
    observer = cluster()
    agent = background("n-0", {"cpu": "1"})
    agent["metadata"]["uid"] = "agent"
    observer.hear(WatchEvent(type="ADDED", object=agent))
    sample = observer.sample(0)
    assert (sample.share("background"), sample.share("useful")) == (10, 0)


def test_pods_of_a_service_are_told_by_its_selector() -> None:
    observer = cluster()
    hear(observer, deployment(ServiceDeployment(name="web", replicas=3, requests={"cpu": "3"})))
    hear(observer, pod("w0"), pod("w1", node="", phase="Pending"))
    sample = observer.sample(0)
    assert (sample.services[0].target, sample.services[0].running) == (3, 1)


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


# --- measures of samples ---


def test_mean_over_time_weighs_each_sample_by_how_long_it_stood() -> None:
    samples = [sample(0, running=100), sample(1, running=0), sample(10, running=50)]
    assert measures.over_time(samples, lambda sample: sample.share("running")) == pytest.approx(10)
    assert measures.mean(sample.share("running") for sample in samples) == pytest.approx(50)


def history(samples: list[Sample], name: str = "a") -> measures.JobHistory:
    return measures.histories(samples)[f"default/{name}"]


def test_waits_count_from_the_first_sample_of_a_job_and_to_its_last_if_in_vain() -> None:
    samples = [
        sample(0, job("a", 0), job("c", 0)),
        sample(5, job("a", 3), job("b", 0), job("c", 0)),
        sample(9, job("a", 3), job("b", 0)),
    ]
    waits = [measures.wait(history(samples, name), for_gang=False) for name in "abc"]
    assert waits == [(5, True), (4, False), (5, False)]


def test_a_gang_is_whole_with_all_servers_and_the_least_trainers() -> None:
    samples = [sample(0, job("a", 2, servers=2)), sample(3, job("a", 1)), sample(7, job("a", 2))]
    assert measures.wait(history(samples), for_gang=True) == (7, True)


@pytest.mark.parametrize(
    ("counts", "index"), [([5, 5, 5], 1.0), ([9, 0, 0], 1 / 3), ([0, 0], 1.0), ([4, 2], 36 / 40)]
)
def test_jains_index(counts: list[int], index: float) -> None:
    assert jain(counts) == pytest.approx(index)


def test_percentile_is_the_smallest_value_that_enough_do_not_exceed() -> None:
    assert measures.percentile([4, 1, 3, 2], 50) == 2
    assert measures.percentile(range(1, 21), 95) == 19
    assert measures.percentile([], 95) == 0


def test_below_minimum_counts_after_a_job_was_whole_and_not_when_it_is_taken_off() -> None:
    short = {"servers": 3, "bound": 1}
    samples = [
        sample(0, job("a", 1, bound=1)),
        sample(1, job("a", 2)),
        sample(2, job("a", 1, **short)),
        sample(3, job("a", 0, target=0)),
        sample(4, job("a", 0, bound=0)),
    ]
    assert measures.below_minimum(history(samples)) == [2_000]


def test_last_change_is_of_pods_made_deleted_or_running() -> None:
    samples = [sample(0, job("a", 2)), sample(1, job("a", 3), created=1), sample(2, job("a", 3), created=1)]
    assert measures.last_change_s(samples) == 1


def test_scalings_are_counted_by_direction_with_their_turns_and_without_the_end() -> None:
    targets = [2, 5, 5, 3, 3, 4, 6, 6]
    samples = [sample(second, job("a", target)) for second, target in enumerate(targets)]
    ends = [
        sample(9 + index, job("a", 0, phase=phase)) for index, phase in enumerate(("Completing", "Failed"))
    ]
    assert measures.scalings(history([*samples, *ends]), 0) == (3, 1, 2)


def test_jobs_that_come_later_begin_with_no_trainers() -> None:
    samples = [sample(1, job("a", 4)), sample(2, job("a", 2))]
    assert [measures.scalings(history(samples), begin_ms) for begin_ms in (0, 1_000)] == [
        (1, 1, 1),
        (0, 1, 0),
    ]


def test_what_a_service_frees_is_used_again() -> None:
    loads = [90, 70, 75, 80, 89] + [90] * 60
    samples = [
        sample(second, running=load, service=(100 if second == 0 else 50, 50))
        for second, load in enumerate(loads)
    ]
    assert measures.restored_after_s(samples, WEB) == [3]
