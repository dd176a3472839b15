"""Where room can be made, as jobs lose trainers and get them back."""

from __future__ import annotations

from mlstack.elastic.policy.placement import CROWDED, VictimFinder, surplus_up_to
from mlstack.elastic.policy.state import ClusterState, Fulfilment, NodeInfo
from mlstack.elastic.snapshot import Job, Node, Snapshot, Trainer

ON_B = frozenset("b")


def cluster() -> ClusterState:
    """Give the state of two full nodes with a trainer each, of a job that can spare one."""
    nodes = tuple(Node(name=name, allocatable=(2,), used=(0,)) for name in "ab")
    trainers = tuple(Trainer(name=name, node=name, planned=name, created_ms=0) for name in "ab")
    job = Job(key="j", minimum=1, maximum=2, trainer=(2,), state="admitted", trainers=trainers)
    snapshot = Snapshot(now_ms=0, resources=("cpu",), nodes=nodes, jobs=(job,))
    return ClusterState(snapshot, Fulfilment(snapshot.jobs), 0)


def find(finder: VictimFinder) -> NodeInfo | None:
    return finder.find(((0, 2),), ON_B, frozenset(), surplus_up_to(0), key="jobs")


def test_a_node_is_ranked_again_when_its_job_gets_back_what_it_lost_elsewhere() -> None:
    transaction = cluster()
    finder, b = VictimFinder(transaction), transaction.by_name["b"]
    assert find(finder) is b
    ((first, *_),) = transaction.by_name["a"].states.values()
    transaction.evict(first, "gang")
    assert find(finder) is None
    transaction.rollback(0)
    assert find(finder) is b


def test_a_ranking_does_not_grow_with_the_number_of_attempts() -> None:
    transaction = cluster()
    finder = VictimFinder(transaction)
    for _ in range(20 * CROWDED):
        find(finder)
        transaction.reserve(transaction.by_name["b"], (1,), "web")
        transaction.rollback(0)
    (ranking,) = finder._rankings.values()
    assert find(finder) is transaction.by_name["b"]
    assert len(ranking._heap) <= CROWDED
