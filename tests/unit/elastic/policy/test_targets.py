"""What every policy tells jobs to have that are not scaled any more."""

from __future__ import annotations

import pytest

from mlstack.elastic.policy.plan import plan
from mlstack.elastic.snapshot import Job, Node, PolicyConfig, Snapshot, Trainer


@pytest.mark.parametrize("mode", ["fair", "throughput", "edl"])
@pytest.mark.parametrize(("was", "target"), [(5, 5), (1, 3), (9, 6)])
def test_job_that_ends_is_to_have_what_it_was_to_have(mode: str, was: int, target: int) -> None:
    """However few trainers are left: the target stays in its range, which may have changed meanwhile."""
    trainers = tuple(Trainer(name=f"a-{index}", node="n0", planned="n0", created_ms=0) for index in range(2))
    job = Job(key="a", minimum=3, maximum=6, trainer=(1,), state="finishing", target=was, trainers=trainers)
    node = Node(name="n0", allocatable=(9,), used=(0,))
    found = plan(Snapshot(now_ms=0, resources=("cpu",), nodes=(node,), jobs=(job,)), PolicyConfig(mode=mode))
    decision = found.decisions["a"]
    assert (decision.target, decision.victims, decision.places) == (target, (), ())
