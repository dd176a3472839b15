"""Room for one pod on a node: what goes for it, and what it costs those that come after."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from mlstack.elastic.policy.placement import SurplusUpTo, clear, slot_loss
from mlstack.elastic.policy.state import ClusterState, Fulfilment, Sparse, dominant, fits, sparse, total
from mlstack.elastic.snapshot import Job, Node, Snapshot, Trainer
from tests.property.elastic.moments import MANY

WHOLE = [8, 8]

requests = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(sparse)
rooms = st.tuples(st.integers(-1, 8), st.integers(-1, 8)).map(list)


@st.composite
def full_nodes(draw: st.DrawFn) -> Snapshot:
    """Give a node that is full of the trainers of some jobs, all of other sizes."""
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))
    jobs = tuple(
        Job(
            key=f"j{index}",
            minimum=0,
            maximum=4 + draw(st.integers(0, 4)),
            trainer=(draw(st.integers(1, 5)), draw(st.integers(0, 3))),
            state="admitted",
            priority=draw(st.integers(0, 1)),
            trainers=tuple(
                Trainer(name=f"j{index}-{n}", node="a", planned="a", created_ms=0) for n in range(count)
            ),
        )
        for index, count in enumerate(counts)
    )
    size = total([job.trainer for job in jobs for _ in job.trainers], 2)
    node = Node(name="a", allocatable=size, used=(0, 0))
    return Snapshot(now_ms=0, resources=("cpu", "memory"), nodes=(node,), jobs=jobs)


@MANY
@given(full_nodes(), st.tuples(st.integers(1, 20), st.integers(0, 9)))
def test_those_that_go_make_room_enough_and_none_goes_in_vain(
    snapshot: Snapshot, request: tuple[int, int]
) -> None:
    cluster = ClusterState(snapshot, Fulfilment(snapshot.jobs), 0)
    (node,), amounts = cluster.nodes, sparse(request)

    clearance = clear(cluster, node, amounts, SurplusUpTo(1))

    assert (clearance is not None) == fits(node.allocatable, amounts)
    for spared in (None, *clearance.slots) if clearance is not None else ():
        going = [slot.state.job.trainer for slot in clearance.slots if slot is not spared]
        assert fits(total(going, 2), amounts) == (spared is None)


@given(requests.filter(bool), requests.filter(bool), requests.filter(bool), rooms)
def test_a_server_costs_what_the_best_use_of_the_room_loses(
    trainer: Sparse, companion: Sparse, server: Sparse, room: list[int]
) -> None:
    rest = list(room)
    for index, amount in server:
        rest[index] -= amount

    loss, *_ = slot_loss(trainer, companion, server, WHOLE)(tuple(room))

    assert loss == best_use(room, trainer, companion) - best_use(rest, trainer, companion)


def best_use(room: list[int], trainer: Sparse, companion: Sparse) -> int:
    """Try all numbers of trainers and companions; give the most they are worth, a trainer being 1000."""
    worth = dominant(companion, WHOLE) * 1000 // dominant(trainer, WHOLE)
    first, second = dict(trainer), dict(companion)
    best = 0
    for trainers, companions in product(range(9), repeat=2):
        taken = [trainers * first.get(i, 0) + companions * second.get(i, 0) for i in range(len(room))]
        if fits(room, sparse(tuple(taken))):
            best = max(best, trainers * 1000 + companions * worth)
    return best
