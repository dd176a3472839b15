"""Jobs of lower priority that are taken off whole."""

from __future__ import annotations

from mlstack.elastic.policy.plan import plan
from mlstack.elastic.snapshot import Demand, Job, Node, PolicyConfig, Role, Snapshot, Trainer


def test_a_job_is_taken_off_though_its_servers_have_no_node_yet() -> None:
    """What is kept for them comes free with the rest."""
    trainer = Trainer(name="low-0", node="n0", planned="n0", created_ms=0)
    gang = (Role(name="pserver", count=1, request=(2,)),)
    low = Job(key="low", minimum=1, maximum=1, trainer=(1,), gang=gang, state="admitted", trainers=(trainer,))
    high = Job(key="high", minimum=1, maximum=1, trainer=(3,), priority=1)
    server = Demand(key="low-pserver-0", request=(2,), priority=100, created_ms=0, job="low")
    node = Node(name="n0", allocatable=(4,), used=(0,))
    moment = Snapshot(now_ms=0, resources=("cpu",), nodes=(node,), jobs=(low, high), demands=(server,))
    found = plan(moment, PolicyConfig())
    assert (found.decisions["high"].target, found.decisions["low"].target) == (1, 0)
