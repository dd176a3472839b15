"""Where room can be made, as jobs lose trainers and get them back."""

from __future__ import annotations

from mlstack.elastic.policy.placement import CROWDED, Transaction, surplus_up_to
from mlstack.elastic.policy.state import ClusterState, Fulfilment, NodeInfo
from mlstack.elastic.snapshot import Job, Node, Snapshot, Trainer

ON_B = frozenset("b")


def cluster_of() -> ClusterState:
    """Give the state of two full nodes with a trainer each, of a job that can spare one."""
    nodes = tuple(Node(name=name, allocatable=(2,), used=(0,)) for name in "ab")
    trainers = tuple(Trainer(name=name, node=name, planned=name, created_ms=0) for name in "ab")
    job = Job(key="j", minimum=1, maximum=2, trainer=(2,), state="admitted", trainers=trainers)
    snapshot = Snapshot(now_ms=0, resources=("cpu",), nodes=nodes, jobs=(job,))
    return ClusterState(snapshot, Fulfilment(snapshot.jobs), 0)


def find(transaction: Transaction) -> NodeInfo | None:
    return transaction.node_to_clear(((0, 2),), ON_B, frozenset(), surplus_up_to(0), "jobs")


def test_a_node_is_ranked_again_when_its_job_gets_back_what_it_lost_elsewhere() -> None:
    cluster = cluster_of()
    finder, b = Transaction(cluster), cluster.by_name["b"]
    assert find(finder) is b
    ((first, *_),) = cluster.by_name["a"].states.values()
    cluster.evict(first, "gang")
    assert find(finder) is None
    cluster.rollback(0)
    assert find(finder) is b


def test_a_ranking_does_not_grow_with_the_number_of_attempts() -> None:
    cluster = cluster_of()
    finder = Transaction(cluster)
    for _ in range(20 * CROWDED):
        find(finder)
        cluster.reserve(cluster.by_name["b"], (1,), "web")
        cluster.rollback(0)
    (ranking,) = finder._rankings.values()
    assert find(finder) is cluster.by_name["b"]
    assert len(ranking._heap) <= CROWDED
