"""Where room can be made, as jobs lose trainers and get them back."""

from __future__ import annotations

from mlstack.elastic.policy.placement import CROWDED, Ranking, SurplusUpTo, find_room
from mlstack.elastic.policy.sharing import Admission
from mlstack.elastic.policy.state import ClusterState, Fulfilment, NodeInfo
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
    rankings = [search for search in cluster.searches.values() if isinstance(search, Ranking)]
    assert find(cluster) is cluster.by_name["b"]
    assert rankings and all(len(ranking._heap) <= CROWDED for ranking in rankings)


def test_jobs_that_are_set_aside_leave_their_servers_room_too() -> None:
    held = (Held(node="a", request=(6,)),)
    trainers = tuple(Trainer(name=name, node="a", planned="a", created_ms=0) for name in "bc")
    small = Job(key="j", minimum=2, maximum=9, trainer=(2,), state="admitted", trainers=trainers, held=held)
    jobs = (Job(key="large", minimum=1, maximum=1, trainer=(10,), priority=1), small)
    nodes = (Node(name="a", allocatable=(10,), used=(6,)),)
    snapshot = Snapshot(now_ms=0, resources=("cpu",), nodes=nodes, jobs=jobs)
    cluster = ClusterState(snapshot, Fulfilment(jobs), 0)
    queue, state = Admission(cluster, backfill_ms=0), cluster.states["large"]
    assert not queue.is_conceivable(state, None)
    assert queue.is_conceivable(state, None, [cluster.states["j"]])
