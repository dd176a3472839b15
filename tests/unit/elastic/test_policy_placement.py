"""Where room can be made, as jobs lose trainers and get them back."""

from __future__ import annotations

from mlstack.elastic.policy.placement import CROWDED, Ranking, SurplusUpTo, find_room, has_places
from mlstack.elastic.policy.state import ClusterState, FreeRoom, Fulfilment, NodeInfo
from mlstack.elastic.snapshot import Held, Job, Node, Snapshot, Trainer

ON_B = frozenset("b")


def two_full_nodes() -> ClusterState:
    """Give the state of two full nodes with a trainer each, of a job that can spare one."""
    nodes = tuple(Node(name=name, allocatable=(2,), used=(0,)) for name in "ab")
    trainers = tuple(Trainer(name=name, node=name, planned=name, created_ms=0) for name in "ab")
    job = Job(key="j", minimum=1, maximum=2, trainer=(2,), state="admitted", trainers=trainers)
    snapshot = Snapshot(now_ms=0, resources=("cpu",), nodes=nodes, jobs=(job,))
    return ClusterState(snapshot, Fulfilment(snapshot.jobs), 0)


def find(cluster: ClusterState) -> NodeInfo | None:
    mark = cluster.steps
    node = find_room(cluster, ((0, 2),), ON_B, frozenset(), SurplusUpTo(0), ("gang", "web"))
    cluster.rollback(mark)
    return node


def test_a_node_is_ranked_again_when_its_job_gets_back_what_it_lost_elsewhere() -> None:
    cluster = two_full_nodes()
    b = cluster.by_name["b"]
    assert find(cluster) is b
    ((first, *_),) = cluster.by_name["a"].states.values()
    cluster.evict(first, "gang")
    assert find(cluster) is None
    cluster.rollback(0)
    assert find(cluster) is b


def test_a_ranking_does_not_grow_with_the_number_of_attempts() -> None:
    cluster = two_full_nodes()
    for _ in range(20 * CROWDED):
        find(cluster)
        cluster.reserve(cluster.by_name["b"], (1,), "web")
        cluster.rollback(0)
    rankings = [each for each in cluster.searches.values() if isinstance(each, Ranking)]
    assert find(cluster) is cluster.by_name["b"]
    assert rankings and all(len(ranking._heap) <= CROWDED for ranking in rankings)


def node(name: str) -> Node:
    return Node(name=name, allocatable=(10,), used=(0,))


def running(key: str, *nodes: str, minimum: int) -> Job:
    trainers = tuple(
        Trainer(name=f"{key}-{index}", node=name, planned=name, created_ms=0)
        for index, name in enumerate(nodes)
    )
    return Job(key=key, minimum=minimum, maximum=9, trainer=(2,), state="admitted", trainers=trainers)


def cluster_of(*jobs: Job) -> ClusterState:
    nodes = (node("a"), node("b"))
    snapshot = Snapshot(now_ms=0, resources=("cpu",), nodes=nodes, jobs=jobs)
    return ClusterState(snapshot, Fulfilment(jobs), 0)


def test_free_room_follows_what_is_kept_and_passes_over_what_is_overfull() -> None:
    cluster = cluster_of(running("j", *["a"] * 6, minimum=1))
    room = FreeRoom(cluster, cluster.nodes, lambda node: [max(0, amount) for amount in node.later])
    assert room.sums() == [10]
    cluster.reserve(cluster.by_name["b"], (3,), "web")
    assert room.sums() == [7]
    cluster.rollback(0)
    assert room.sums() == [10]


def test_a_pod_needs_no_more_trainers_to_go_than_can_be_spared() -> None:
    large = Job(key="large", minimum=2, maximum=2, trainer=(8,), priority=1)
    crowd = ["a"] * 5 + ["b"] * 5
    spare = cluster_of(large, running("j", *crowd, minimum=2))
    assert has_places(spare, spare.states["large"], None)
    scarce = cluster_of(large, running("j", *crowd, minimum=3))
    assert not has_places(scarce, scarce.states["large"], None)
    assert not has_places(spare, spare.states["large"], frozenset("a"))


def test_jobs_that_are_set_aside_leave_their_servers_room_too() -> None:
    large = Job(key="large", minimum=1, maximum=1, trainer=(10,), priority=1)
    other = running("j", "a", "a", minimum=2)
    held = Job(
        key="j",
        minimum=2,
        maximum=9,
        trainer=(2,),
        state="admitted",
        trainers=other.trainers,
        held=(Held(node="a", request=(6,)),),
    )
    snapshot = Snapshot(
        now_ms=0,
        resources=("cpu",),
        nodes=(Node(name="a", allocatable=(10,), used=(6,)),),
        jobs=(large, held),
    )
    cluster = ClusterState(snapshot, Fulfilment(snapshot.jobs), 0)
    assert not has_places(cluster, cluster.states["large"], None)
    assert has_places(cluster, cluster.states["large"], None, [cluster.states["j"]])
