"""How long one plan takes of a processor: the goals are 50 ms for 20 jobs and 1 s for 200 jobs, p95."""

from __future__ import annotations

from collections.abc import Callable
from statistics import quantiles
from time import process_time

import pytest

from mlstack.elastic.policy.plan import plan
from mlstack.elastic.snapshot import PolicyConfig, Snapshot
from tests.bench.elastic_moments import hard_moments, moments

pytestmark = pytest.mark.bench

MODES = ("fair", "throughput")


def pods(snapshot: Snapshot) -> int:
    agents = len(snapshot.nodes)
    return agents + len(snapshot.demands) + sum(len(job.trainers) + len(job.held) for job in snapshot.jobs)


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
        measure(name, snapshot, config, rounds)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("nodes", "jobs", "kinds", "cores", "rounds"),
    [
        pytest.param(133, 20, 20, 1.3, 20, id="small"),
        pytest.param(1000, 200, 20, 1.9, 3, id="large"),
        pytest.param(1000, 200, 200, 1.9, 3, id="large-all-differ"),
    ],
)
def test_time_of_one_hard_plan(
    mode: str, nodes: int, jobs: int, kinds: int, cores: float, rounds: int
) -> None:
    config = PolicyConfig(mode=mode)
    print(f"\n{mode}: {jobs} jobs on {nodes} nodes with devices, {kinds} sizes of trainers")
    for name, snapshot in hard_moments(nodes, jobs, kinds=kinds, cores=cores, mode=mode):
        measure(name, snapshot, config, rounds)


def measure(name: str, snapshot: Snapshot, config: PolicyConfig, rounds: int) -> None:
    p50, p95 = p50_p95(lambda: plan(snapshot, config), rounds)
    print(f"  {name:16} {pods(snapshot):6} pods   p50 {p50:8.1f} ms   p95 {p95:8.1f} ms")
