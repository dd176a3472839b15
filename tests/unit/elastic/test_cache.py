"""What the controller makes of what it hears."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.elastic.cache import ClusterCache, JobLimits, build_snapshot
from mlstack.kube.client import WatchEvent
from tests.support.elastic import node, numbered, pod, training_job

Obj = dict[str, Any]
NOW_MS = 1_000_000_000_000


def cache_of(*objects: Obj) -> ClusterCache:
    cache = ClusterCache()
    for number, obj in enumerate(objects, start=1):
        cache.handle(WatchEvent(type="ADDED", object=numbered(obj, number)))
    return cache


def admitted(job: Obj, trainers: int) -> Obj:
    return {**job, "status": {"phase": "Running", "trainer": {"desired": trainers}}}


def trainer(index: int, job: str = "train", **fields: Any) -> Obj:
    labels = {"mlstack.dev/training-job": job, "mlstack.dev/role": "trainer"}
    owner = ("TrainingJob", f"uid-{job}")
    return pod(f"{job}-trainer-{index}", labels=labels, owner=owner, **fields)


def amounts(cache: ClusterCache, vector: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(build_snapshot(cache, NOW_MS).resources, vector, strict=True))


@pytest.mark.parametrize(("phase", "pods"), [("Running", 1), ("Succeeded", 0)])
def test_pods_of_others_use_up_their_node_until_they_end(phase: str, pods: int) -> None:
    cache = cache_of(node("n1"), pod("web", node="n1", cpu="2", phase=phase))

    used = amounts(cache, build_snapshot(cache, NOW_MS).nodes[0].used)

    assert (used["cpu"], used["pods"]) == (2000 * pods, pods)


def test_a_terminating_pod_is_room_to_come() -> None:
    cache = cache_of(node("n1"), pod("web", node="n1", cpu="2", phase="Running", gone_ms=NOW_MS + 5000))

    snapshot = build_snapshot(cache, NOW_MS)

    assert amounts(cache, snapshot.nodes[0].used)["cpu"] == 0
    (room,) = snapshot.arriving
    assert (room.node, amounts(cache, room.request)["cpu"]) == ("n1", 2000)


def test_cordoned_and_broken_nodes_take_no_pods() -> None:
    cache = cache_of(node("n1"), node("n2", unschedulable=True), node("n3", is_ready=False))

    assert [node.name for node in build_snapshot(cache, NOW_MS).nodes] == ["n1"]


def test_tainted_nodes_are_for_those_who_tolerate() -> None:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    toleration = {"key": "gpu", "operator": "Exists"}
    cache = cache_of(node("n1"), node("n2", taints=[taint]), pod("a"), pod("b", tolerations=[toleration]))

    nodes = {demand.key: demand.nodes for demand in build_snapshot(cache, NOW_MS).demands}

    assert nodes == {"default/a": frozenset({"n1"}), "default/b": None}


BY_LABEL = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
AS_A_DAEMON = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}


@pytest.mark.parametrize("term", [BY_LABEL, AS_A_DAEMON], ids=["by label", "by name"])
def test_required_affinity_names_nodes(term: Obj) -> None:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    zones = [node(name, labels={"zone": zone}) for name, zone in (("n1", "a"), ("n2", "b"))]
    cache = cache_of(*zones, pod("a", affinity={"nodeAffinity": required}))

    assert build_snapshot(cache, NOW_MS).demands[0].nodes == frozenset({"n2"})


def test_a_pod_that_waits_for_something_else_is_no_demand() -> None:
    message = "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind."
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    lacks = {**waits, "message": "0/1 nodes are available: 1 Insufficient cpu."}
    apart = "preemption: 0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."
    others = [pod("apart", conditions=[{**lacks, "message": f"{lacks['message']} {apart}"}])]
    others += [pod("gated", schedulingGates=[{"name": "later"}])]
    cache = cache_of(node("n1"), pod("volume", conditions=[waits]), pod("room", conditions=[lacks]), *others)

    assert [demand.key for demand in build_snapshot(cache, NOW_MS).demands] == ["default/room"]


def test_a_nominated_pod_wants_no_room_elsewhere() -> None:
    waiting = pod("web")
    waiting["status"]["nominatedNodeName"] = "n2"
    cache = cache_of(node("n1"), node("n2"), waiting)

    assert build_snapshot(cache, NOW_MS).demands[0].nodes == frozenset({"n2"})


def test_init_containers_count_as_a_maximum() -> None:
    def container(cpu: str, **more: str) -> Obj:
        return {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}, **more}

    started_first = [container("1", restartPolicy="Always"), container("3")]
    cache = cache_of(node("n1"), pod("a", initContainers=started_first, overhead={"cpu": "250m"}))

    # the second runs beside the sidecar: 1 + 3, more than 1 + 1 later on
    assert amounts(cache, build_snapshot(cache, NOW_MS).demands[0].request)["cpu"] == 4250


@pytest.mark.parametrize(("trainers", "state", "pods"), [(0, "waiting", 0), (1, "admitted", 2)])
def test_pods_that_sets_have_not_made_yet_are_demands(trainers: int, state: str, pods: int) -> None:
    cache = cache_of(node("n1"), admitted(training_job(pservers=2), trainers))

    snapshot = build_snapshot(cache, NOW_MS)

    assert [(job.key, job.state) for job in snapshot.jobs] == [("default/train", state)]
    keys = [f"default/train-pserver-{index}" for index in range(pods)]
    assert [(demand.key, demand.job) for demand in snapshot.demands] == [
        (key, "default/train") for key in keys
    ]


def test_live_trainers_stand_with_their_job() -> None:
    cache = cache_of(
        node("n1"),
        admitted(training_job(), 2),
        trainer(0, node="n1", phase="Running"),
        trainer(1),
        trainer(2, node="n1", phase="Running", gone_ms=NOW_MS + 1000),
    )

    snapshot = build_snapshot(cache, NOW_MS)

    (job,) = snapshot.jobs
    assert {pod.name: pod.node for pod in job.trainers} == {"train-trainer-0": "n1", "train-trainer-1": ""}
    assert (job.target, job.leaving, job.state) == (2, 1, "admitted")
    assert amounts(cache, snapshot.nodes[0].used)["cpu"] == 0
    assert len(snapshot.arriving) == 1


def test_what_a_finalizer_holds_of_a_deleted_job_is_no_room_to_come() -> None:
    job = admitted(training_job(), 1)
    job["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:20Z"
    cache = cache_of(node("n1"), job, trainer(0, node="n1", phase="Running"))

    snapshot = build_snapshot(cache, NOW_MS)

    assert (amounts(cache, snapshot.nodes[0].used)["cpu"], snapshot.arriving) == (1000, ())


def test_labels_alone_make_no_trainer() -> None:
    labels = {"mlstack.dev/training-job": "train", "mlstack.dev/role": "trainer"}
    impostor = pod("impostor", labels=labels, node="n1", phase="Running")
    other = pod("other", labels=labels, owner=("TrainingJob", "uid-elsewhere"), node="n1", phase="Running")
    cache = cache_of(node("n1"), admitted(training_job(), 1), impostor, other)

    snapshot = build_snapshot(cache, NOW_MS)

    assert snapshot.jobs[0].trainers == ()
    assert amounts(cache, snapshot.nodes[0].used)["pods"] == 2


def test_the_first_success_makes_a_job_finishing() -> None:
    ended = trainer(0, phase="Succeeded", node="n1")
    cache = cache_of(node("n1"), admitted(training_job(), 2), ended, trainer(1))
    assert build_snapshot(cache, NOW_MS).jobs[0].state == "finishing"


def test_old_news_change_nothing() -> None:
    cache = ClusterCache()
    fresh, stale = numbered(pod("a", node="n1"), 9), numbered(pod("a"), 5)

    assert cache.handle(WatchEvent(type="ADDED", object=fresh))
    assert not cache.handle(WatchEvent(type="MODIFIED", object=stale))
    assert [pod.node for pod in cache.pods.values()] == ["n1"]


def test_a_heartbeat_is_no_news() -> None:
    cache = cache_of(node("n1"))

    assert not cache.handle(WatchEvent(type="MODIFIED", object=numbered(node("n1"), 6)))
    assert cache.handle(WatchEvent(type="MODIFIED", object=numbered(node("n1", cpu="9"), 7)))


@pytest.mark.parametrize(
    ("version", "later"), [("7", 5), ("", 8)], ids=["told late", "deleted by a write of our own"]
)
def test_what_has_gone_stays_gone(version: str, later: int) -> None:
    cache = cache_of(pod("a"))
    gone = numbered(pod("a"), 3)
    gone["metadata"]["resourceVersion"] = version
    cache.handle(WatchEvent(type="DELETED", object=gone))

    assert not cache.handle(WatchEvent(type="MODIFIED", object=numbered(pod("a"), later)))
    assert not cache.pods


def test_what_a_selector_lost_sight_of_comes_back_with_its_label() -> None:
    cache = cache_of(pod("a"))
    cache.handle(WatchEvent(type="DELETED", object=numbered(pod("a"), 7)))

    assert cache.handle(WatchEvent(type="MODIFIED", object=numbered(pod("a"), 8)))
    assert [pod.name for pod in cache.pods.values()] == ["a"]


def test_a_namesake_is_another_pod() -> None:
    cache = ClusterCache()
    cache.handle(WatchEvent(type="ADDED", object=numbered(pod("a"), 5, "one")))
    cache.handle(WatchEvent(type="ADDED", object=numbered(pod("a"), 8, "two")))

    assert not cache.handle(WatchEvent(type="DELETED", object=numbered(pod("a"), 7, "one")))
    assert [pod.uid for pod in cache.pods.values()] == ["two"]


def test_a_list_drops_ghosts_and_keeps_what_is_newer() -> None:
    cache = ClusterCache()
    for name, version in (("ghost", 3), ("kept", 4), ("newer", 12)):
        cache.handle(WatchEvent(type="ADDED", object=numbered(pod(name), version)))

    cache.replace("Pod", [numbered(pod("kept"), 4)], "10")

    assert sorted(pod.name for pod in cache.pods.values()) == ["kept", "newer"]


def test_bars_that_are_over_are_left_out() -> None:
    cache = cache_of(node("n1"), training_job())
    limits = {"default/train": JobLimits(barred={"n1": NOW_MS + 1, "n2": NOW_MS})}

    assert build_snapshot(cache, NOW_MS, limits).jobs[0].barred == {"n1": NOW_MS + 1}


def test_priorities_come_from_classes() -> None:
    low = {"kind": "PriorityClass", "metadata": {"name": "mlstack-trainer"}, "value": -10}
    cache = cache_of(low, node("n1"), training_job(), pod("web", priority=1000))

    snapshot = build_snapshot(cache, NOW_MS)

    assert snapshot.jobs[0].pod_priority == -10
    assert snapshot.demands[0].priority == 1000


def curve(*points: Any) -> tuple[tuple[int, int], ...] | None:
    """Give what the plan sees of the speed that a job reported."""
    job = training_job()
    job["status"] = {"throughput": {"curve": list(points)}}
    reported = build_snapshot(cache_of(node("n1"), job), NOW_MS).jobs[0].curve
    return reported


def test_reported_speeds_keep_their_ratios() -> None:
    assert curve([1, 10], [2, 18]) == ((1, 10), (2, 18))
    assert curve([1, 0.4], [2, 0.7], [4, 0.9]) == ((1, 4), (2, 7), (4, 9))
    assert curve([1.0, 2e-07], [2, 3e-07]) == ((1, 2), (2, 3))


@pytest.mark.parametrize(
    "wrong",
    [[2, -0.1], [2, float("nan")], [2, float("inf")], [2, True], [True, 1], [2, "fast"], [1.5, 1], [2], []],
    ids=str,
)
def test_points_of_anything_but_numbers_are_passed_over(wrong: list[Any]) -> None:
    assert curve(wrong) is None
    assert curve([1, 0.5], wrong, [4, 1.5]) == ((1, 1), (4, 3))
