"""Which pods without a node come first."""

from __future__ import annotations

import pytest

from mlstack.elastic.policy.plan import plan
from mlstack.elastic.snapshot import Demand, Job, Node, PolicyConfig, Role, Snapshot


def server(job: str, created_ms: int) -> Demand:
    """Give a parameter server without a node, tied to the node that was emptied for one of them."""
    nodes = frozenset({"n0"})
    return Demand(
        key=f"{job}-pserver-0", request=(2,), priority=100, created_ms=created_ms, job=job, nodes=nodes
    )


@pytest.mark.parametrize(("low", "high"), [("a", "z"), ("z", "a")])
def test_room_made_for_a_gang_is_not_taken_by_an_older_one_of_lower_priority(low: str, high: str) -> None:
    gang = (Role(name="pserver", count=1, request=(2,)),)
    jobs = tuple(
        Job(key=key, minimum=0, maximum=1, trainer=(9,), gang=gang, state="admitted", priority=priority)
        for key, priority in ((low, 0), (high, 5))
    )
    nodes = tuple(Node(name=name, allocatable=(2,), used=(0,)) for name in ("n0", "n1"))
    demands = (server(low, 1), server(high, 2))
    found = plan(
        Snapshot(now_ms=9, resources=("cpu",), nodes=nodes, jobs=jobs, demands=demands), PolicyConfig()
    )
    assert {row.key: row.node for row in found.reservations} == {
        f"{high}-pserver-0": "n0",
        f"{low}-pserver-0": "n1",
    }
