"""How long one plan takes of a processor: the goals are 50 ms for 20 jobs and 1 s for 200 jobs, p95."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import quantiles
from time import process_time

import pytest

from mlstack.elastic.config import PolicyConfig
from mlstack.elastic.plan import plan
from mlstack.elastic.snapshot import Demand, Job, Node, Role, Snapshot, Vector
from tests.support.actuation import actuate

pytestmark = pytest.mark.bench

RESOURCES = ("cpu", "memory", "pods")
MODES = ("fair", "throughput")
GIB = 2**30


def request(cores: float, gib: float) -> Vector:
    return (int(cores * 1000), int(gib * GIB), 1)


def cluster(count: int) -> tuple[Node, ...]:
    """Give nodes in the proportions of the calibrated cluster, each with its agent."""
    sizes = [12 if index % 133 < 69 else 20 if index % 133 < 73 else 24 for index in range(count)]
    return tuple(
        Node(
            name=f"n{index:04}",
            allocatable=(size * 1000, 4 * size * GIB, 110),
            used=request(0.38, 0.5),
        )
        for index, size in enumerate(sizes)
    )


def job(index: int, *, kinds: int, cores: float) -> Job:
    """Give a job whose trainers are of one of so many sizes."""
    kind = index % kinds
    return Job(
        key=f"default/job-{index:03}",
        minimum=2,
        maximum=60,
        trainer=request(cores + 0.1 * kind, 1 + 0.5 * kind),
        gang=(
            Role(name="master", count=1, request=request(cores / 5, 0.3)),
            Role(name="pserver", count=10, request=request(cores * 0.8, 1)),
        ),
        priority=kind % 2 if kinds > 1 else 0,
        created_ms=index * 1000,
        speed=("linear", "amdahl:0.9", "amdahl:0.98")[index % 3],
    )


def crowd(count: int, *, kinds: int, cores: float) -> tuple[Job, ...]:
    """Give jobs for which there is no room: their minimum is more than the cluster has."""
    every = (job(1000 + index, kinds=kinds, cores=cores) for index in range(count))
    return tuple(replace(each, minimum=5000, maximum=6000) for each in every)


def web(count: int, cores: float) -> tuple[Demand, ...]:
    return tuple(
        Demand(key=f"web/nginx-{index}", request=request(cores, 1), priority=1000, created_ms=0)
        for index in range(count)
    )


def moments(nodes: int, jobs: int, *, kinds: int, cores: float, mode: str) -> dict[str, Snapshot]:
    """Give what a controller meets: a cold start, a full cluster, a new job, a burst of web pods."""
    config = PolicyConfig(mode=mode)
    every = tuple(job(index, kinds=kinds, cores=cores) for index in range(jobs))
    cold = Snapshot(now_ms=10_000_000, resources=RESOURCES, nodes=cluster(nodes), jobs=every)
    full = cold
    for _ in range(4):
        full = actuate(full, plan(full, config))
    before = replace(cold, jobs=every[:-1])
    for _ in range(4):
        before = actuate(before, plan(before, config))
    return {
        "cold start": cold,
        "steady": full,
        "new job": replace(before, jobs=(*before.jobs, every[-1])),
        "jobs that wait": replace(full, jobs=(*full.jobs, *crowd(jobs // 4, kinds=kinds, cores=cores))),
        "100 web pods": replace(full, demands=web(100, cores * 0.6)),
    }


def pods(snapshot: Snapshot) -> int:
    agents = len(snapshot.nodes)
    return agents + len(snapshot.demands) + sum(len(each.trainers) + len(each.held) for each in snapshot.jobs)


def p50_p95(run: Callable[[], object], rounds: int) -> tuple[float, float]:
    taken = []
    for _ in range(rounds):
        begin = process_time()
        run()
        taken.append(1000 * (process_time() - begin))
    cuts = quantiles(taken, n=20)
    return cuts[9], cuts[18]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("nodes", "jobs", "kinds", "cores", "rounds"),
    [
        pytest.param(133, 20, 1, 5, 40, id="case-1"),
        pytest.param(133, 20, 5, 1.3, 40, id="small"),
        pytest.param(1000, 200, 1, 1.9, 5, id="large"),
        pytest.param(1000, 200, 20, 1.9, 5, id="large-mixed"),
    ],
)
def test_time_of_one_plan(mode: str, nodes: int, jobs: int, kinds: int, cores: float, rounds: int) -> None:
    config = PolicyConfig(mode=mode)
    print(f"\n{mode}: {jobs} jobs on {nodes} nodes, {kinds} sizes of trainers")
    for name, snapshot in moments(nodes, jobs, kinds=kinds, cores=cores, mode=mode).items():
        p50, p95 = p50_p95(lambda snapshot=snapshot: plan(snapshot, config), rounds)  # type: ignore[misc]
        print(f"  {name:14} {pods(snapshot):6} pods   p50 {p50:8.1f} ms   p95 {p95:8.1f} ms")
