"""Laws of the policy `throughput`: what it shares with `fair`, and what it is better at."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlstack.elastic.policy.plan import Gain, plan
from mlstack.elastic.snapshot import (
    Job,
    JobStage,
    Node,
    PolicyConfig,
    ScalePlan,
    Snapshot,
    Trainer,
    source,
    speeds,
)
from tests.property.elastic.moments import MANY
from tests.support.actuation import actuate

FAIR = PolicyConfig(mode="fair")
THROUGHPUT = PolicyConfig(mode="throughput")
SPEEDS = st.sampled_from(["linear", "amdahl:0.5", "amdahl:0.9", "amdahl:0.98", "optimus:1,2,0.5,0.25"])
CURVES = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 1000)), max_size=6).map(
    lambda points: tuple(points) or None
)


@st.composite
def clusters(draw: st.DrawFn, *, is_alike: bool, is_new: bool) -> Snapshot:
    """Draw jobs with trainers of one shape on nodes of any size; `is_alike`: they differ by name alone."""
    sizes = draw(st.lists(st.integers(0, 12), min_size=1, max_size=4))
    model = draw(_jobs())
    count = draw(st.integers(1, 5))
    jobs = [replace(model if is_alike else draw(_jobs()), key=f"default/{index}") for index in range(count)]
    snapshot = Snapshot(
        now_ms=1_000_000,
        resources=("cpu",),
        nodes=tuple(
            Node(name=f"n{index}", allocatable=(2 * size,), used=(0,)) for index, size in enumerate(sizes)
        ),
        jobs=tuple(jobs),
    )
    return snapshot if is_new else _somewhere(draw, snapshot)


@st.composite
def _jobs(draw: st.DrawFn) -> Job:
    minimum = draw(st.integers(1, 3))
    return Job(
        key="",
        minimum=minimum,
        maximum=minimum + draw(st.integers(0, 12)),
        trainer=(2,),
        speed=draw(SPEEDS),
        curve=draw(CURVES),
    )


def _somewhere(draw: st.DrawFn, snapshot: Snapshot) -> Snapshot:
    """Put some jobs into the cluster with any number of trainers that their range and the nodes allow."""
    free = [node.name for node in snapshot.nodes for _ in range(node.allocatable[0] // 2)]
    jobs = []
    for job in snapshot.jobs:
        count = draw(st.integers(job.minimum, job.maximum))
        places, free = (free[:count], free[count:]) if count <= len(free) else ([], free)
        jobs.append(_with(job, [(f"{job.key}-{index}", node) for index, node in enumerate(places)]))
    return replace(snapshot, jobs=tuple(jobs))


def _with(job: Job, pods: list[tuple[str, str]]) -> Job:
    trainers = tuple(
        Trainer(name=name, node=node, planned=node, created_ms=0, is_ready=True) for name, node in pods
    )
    state: JobStage = "admitted" if pods else "waiting"
    return replace(job, state=state, target=len(pods), trainers=trainers)


def targets(decided: ScalePlan) -> dict[str, int]:
    return {key: decision.target for key, decision in decided.decisions.items()}


def worth(snapshot: Snapshot, counts: dict[str, int]) -> Fraction:
    """The product of the speeds of all jobs that run: as large as the sum of the logarithms is."""
    return prod(
        (speeds(source(job))[n] for job in snapshot.jobs if (n := counts[job.key])), start=Fraction(1)
    )


@MANY
@given(clusters(is_alike=True, is_new=False))
def test_with_identical_jobs_it_decides_as_fair(snapshot: Snapshot) -> None:
    assert targets(plan(snapshot, THROUGHPUT)) == targets(plan(snapshot, FAIR))


@MANY
@given(clusters(is_alike=False, is_new=True))
def test_new_jobs_get_at_least_the_speed_that_fair_gives_them(snapshot: Snapshot) -> None:
    best, fair = targets(plan(snapshot, THROUGHPUT)), targets(plan(snapshot, FAIR))
    assert [key for key in best if best[key]] == [key for key in fair if fair[key]]
    assert worth(snapshot, best) >= worth(snapshot, fair)


@MANY
@given(clusters(is_alike=False, is_new=False))
def test_moves_alone_never_make_all_jobs_together_slower(snapshot: Snapshot) -> None:
    running = [job for job in snapshot.jobs if job.state == "admitted"]
    snapshot = replace(snapshot, jobs=tuple(running))
    before = {job.key: job.target for job in running}
    assert worth(snapshot, targets(plan(snapshot, THROUGHPUT))) >= worth(snapshot, before)


@MANY
@given(clusters(is_alike=False, is_new=False))
def test_it_comes_to_rest(snapshot: Snapshot) -> None:
    for _ in range(20):
        decided = plan(snapshot, THROUGHPUT)
        if targets(decided) == {job.key: job.target for job in snapshot.jobs}:
            break
        snapshot = actuate(snapshot, decided, after_ms=60_000)
    assert targets(plan(snapshot, THROUGHPUT)) == {job.key: job.target for job in snapshot.jobs}


@MANY
@given(clusters(is_alike=False, is_new=True))
def test_each_further_trainer_gains_less(snapshot: Snapshot) -> None:
    gain = Gain(snapshot.jobs, (100,))
    for job in snapshot.jobs:
        levels = [gain.share(job, count) for count in range(job.minimum, job.maximum + 1)]
        assert all(before < after for before, after in pairwise(levels))


def test_room_goes_to_the_job_that_scales() -> None:
    """Ten slots, two jobs: one cannot use more than a few trainers, the other can use all."""
    jobs = [
        Job(key=key, minimum=1, maximum=10, trainer=(1,), speed=speed)
        for key, speed in (("default/a", "amdahl:0.5"), ("default/b", "linear"))
    ]
    node = Node(name="n", allocatable=(10,), used=(0,))
    snapshot = Snapshot(now_ms=0, resources=("cpu",), nodes=(node,), jobs=tuple(jobs))
    assert targets(plan(snapshot, FAIR)) == {"default/a": 5, "default/b": 5}
    assert targets(plan(snapshot, THROUGHPUT)) == {"default/a": 2, "default/b": 8}


def test_a_trainer_of_half_the_size_is_worth_half_the_gain() -> None:
    """Both scale well, one takes a core for each trainer, one takes two: equal shares, not equal counts."""
    jobs = [
        Job(key=key, minimum=1, maximum=20, trainer=(size,), speed="linear")
        for key, size in (("default/a", 1), ("default/b", 2))
    ]
    node = Node(name="n", allocatable=(24,), used=(0,))
    snapshot = Snapshot(now_ms=0, resources=("cpu",), nodes=(node,), jobs=tuple(jobs))
    assert targets(plan(snapshot, THROUGHPUT)) == {"default/a": 12, "default/b": 6}


@pytest.mark.parametrize(("rich", "stays"), [(12, True), (13, False)], ids=["small", "large"])
def test_a_small_gain_moves_nobody(rich: int, *, stays: bool) -> None:
    """The poor job gains 1/10, less a tenth of it 0.09; the rich one loses 1/11 or 1/12."""
    sizes = {"default/a": rich, "default/b": 10}
    jobs = [
        _with(
            Job(key=key, minimum=1, maximum=30 + index, trainer=(1,)),
            [(f"{key}-{number}", "n") for number in range(count)],
        )
        for index, (key, count) in enumerate(sizes.items())
    ]
    node = Node(name="n", allocatable=(rich + 10,), used=(0,))
    snapshot = Snapshot(now_ms=0, resources=("cpu",), nodes=(node,), jobs=tuple(jobs))
    assert (targets(plan(snapshot, THROUGHPUT)) == sizes) is stays
