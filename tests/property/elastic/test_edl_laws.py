"""Laws of EDL's rules: what the mended ones promise, and that both end."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mlstack.elastic.policy.plan import plan
from mlstack.elastic.snapshot import (
    Demand,
    GangRole,
    Job,
    JobStage,
    Node,
    PolicyConfig,
    ScalePlan,
    Snapshot,
    Trainer,
)
from tests.property.elastic.moments import MANY

RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
LOADS = st.sampled_from([50, 80, 97, 100])


@st.composite
def _nodes(draw: st.DrawFn) -> tuple[Node, ...]:
    sizes = st.tuples(st.integers(0, 16), st.integers(0, 16), st.sampled_from([0, 0, 4, 8]))
    drawn = draw(st.lists(st.tuples(sizes, st.integers(0, 4)), min_size=1, max_size=5))
    return tuple(
        Node(name=f"n{index}", allocatable=size, used=(min(used, size[0]), 0, 0))
        for index, (size, used) in enumerate(drawn)
    )


@st.composite
def _job(draw: st.DrawFn, index: int, nodes: tuple[Node, ...]) -> Job:
    minimum = draw(st.integers(0, 3))
    state: JobStage = draw(st.sampled_from(["waiting", "admitted", "admitted", "admitted", "finishing"]))
    names = st.sampled_from(["", *[node.name for node in nodes]])
    places = [] if state == "waiting" else draw(st.lists(names, max_size=8))
    trainers = tuple(
        Trainer(
            name=f"{index}-{number}",
            node=node,
            planned="",
            created_ms=draw(st.integers(0, 3)),
            is_ready=bool(node) and draw(st.booleans()),
        )
        for number, node in enumerate(places)
    )
    return Job(
        key=f"default/{index}",
        minimum=minimum,
        maximum=minimum + draw(st.integers(0, 9)),
        trainer=(draw(st.integers(0, 4)), draw(st.integers(0, 4)), draw(st.sampled_from([0, 0, 1, 2]))),
        gang=(GangRole(name="pserver", count=draw(st.integers(0, 2)), request=(1, 1, 0)),),
        state=state,
        target=0 if state == "waiting" else draw(st.integers(0, 9)),
        trainers=trainers,
        leaving=draw(st.sampled_from([0, 0, 0, 1])),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Draw any moment: mixed shapes and GPUs, over-full nodes, trainers that do not run, waiting pods."""
    nodes = draw(_nodes())
    jobs = tuple(draw(_job(index, nodes)) for index in range(draw(st.integers(1, 5))))
    requests = draw(st.lists(st.integers(1, 5), max_size=3))
    demands = tuple(
        Demand(key=f"web/{number}", request=(cpu, 1, 0), priority=0, created_ms=0)
        for number, cpu in enumerate(requests)
    )
    return Snapshot(now_ms=0, resources=RESOURCES, nodes=nodes, jobs=jobs, demands=demands)


def mended(snapshot: Snapshot, load: int) -> ScalePlan:
    return plan(snapshot, PolicyConfig(mode="edl", max_load_pct=load))


def carried_out(snapshot: Snapshot, decided: ScalePlan) -> Snapshot:
    """Give the snapshot after everything happened that was decided, and every trainer runs."""
    jobs = []
    for job in snapshot.jobs:
        decision = decided.decisions[job.key]
        rest = [replace(pod, is_ready=True) for pod in job.trainers if pod.name not in decision.victims]
        state: JobStage = job.state if job.state == "finishing" else "admitted"
        new = [
            Trainer(name=f"{job.key}+{len(rest) + index}", node=node, planned="", created_ms=9, is_ready=True)
            for index, node in enumerate(decision.places)
        ]
        jobs.append(
            replace(job, state=state, target=decision.target, trainers=(*rest, *new), leaving=0, gang=())
        )
    return replace(snapshot, jobs=tuple(jobs))


@MANY
@given(snapshots(), LOADS)
def test_targets_are_in_range_and_pods_add_up_to_them(snapshot: Snapshot, load: int) -> None:
    decided = mended(snapshot, load)
    for job in snapshot.jobs:
        decision = decided.decisions[job.key]
        if job.state != "finishing":
            assert job.minimum <= decision.target <= job.maximum
            left = len(job.trainers) - len(decision.victims)
            assert left + len(decision.places) == decision.target
            assert not (decision.victims and decision.places)
        assert decision.reasons


@MANY
@given(snapshots(), LOADS)
def test_named_nodes_have_room_for_all_that_is_planned_there(snapshot: Snapshot, load: int) -> None:
    decided = mended(snapshot, load)
    planned = Counter(
        (node, job.trainer) for job in snapshot.jobs for node in decided.decisions[job.key].places if node
    )
    taken = Counter((trainer.node, job.trainer) for job in snapshot.jobs for trainer in job.trainers)
    for node in snapshot.nodes:
        if not any(name == node.name for name, _ in planned):
            continue
        for place in range(len(RESOURCES)):
            new = sum(shape[place] * n for (name, shape), n in planned.items() if name == node.name)
            old = sum(shape[place] * n for (name, shape), n in taken.items() if name == node.name)
            assert not new or node.used[place] + old + new <= node.allocatable[place]


@MANY
@given(snapshots(), LOADS)
def test_what_was_decided_comes_to_rest(snapshot: Snapshot, load: int) -> None:
    """No step is undone by the next: each round of a quiet cluster changes less, and soon nothing."""
    for _ in range(12):
        decided = mended(snapshot, load)
        snapshot = carried_out(snapshot, decided)
    again = mended(snapshot, load)
    assert {key: decision.target for key, decision in again.decisions.items()} == {
        job.key: job.target for job in snapshot.jobs
    }


@MANY
@given(snapshots(), LOADS, st.sampled_from(["edl", "edl-v010"]))
def test_both_end_within_their_bound(snapshot: Snapshot, load: int, mode: str) -> None:
    decided = plan(snapshot, PolicyConfig(mode=mode, max_load_pct=load))
    trainers = sum(max(job.maximum, job.target, job.minimum) for job in snapshot.jobs)
    assert decided.steps <= 2 * len(snapshot.jobs) * (2 + trainers)
