"""Moments of large clusters: what a controller meets every day, and what is hard to plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mlstack.elastic.policy.plan import plan
from mlstack.elastic.snapshot import Demand, GangRole, Job, Node, PolicyConfig, Snapshot, Vector
from tests.support.actuation import actuate

RESOURCES = ("cpu", "memory", "pods")
GPU = "nvidia.com/gpu"
GIB = 2**30


def request(cores: float, gib: float) -> Vector:
    return (int(cores * 1000), int(gib * GIB), 1)


def cluster(count: int) -> tuple[Node, ...]:
    """Give nodes in the proportions of the calibrated cluster, each with its agent."""
    sizes = [12 if index % 133 < 69 else 20 if index % 133 < 73 else 24 for index in range(count)]
    return tuple(
        Node(name=f"n{index:04}", allocatable=(size * 1000, 4 * size * GIB, 110), used=request(0.38, 0.5))
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
            GangRole(name="master", count=1, request=request(cores / 5, 0.3)),
            GangRole(name="pserver", count=10, request=request(cores * 0.8, 1)),
        ),
        priority=kind % 2 if kinds > 1 else 0,
        created_ms=index * 1000,
        speed=("linear", "amdahl:0.9", "amdahl:0.98")[index % 3],
    )


def crowd(count: int, *, kinds: int, cores: float) -> tuple[Job, ...]:
    """Give jobs for which there is no room: their minimum is more than the cluster has."""
    every = (job(1000 + index, kinds=kinds, cores=cores) for index in range(count))
    return tuple(replace(job, minimum=5000, maximum=6000) for job in every)


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


def hard_moments(
    nodes: int, jobs: int, *, kinds: int, cores: float, mode: str
) -> Iterator[tuple[str, Snapshot]]:
    """Give what is hard: nothing fits, everything is tied, much is lost or pushed aside at once."""
    config = PolicyConfig(mode=mode)
    every = tuple(_mixed(job(index, kinds=kinds, cores=cores), index, nodes) for index in range(jobs))
    cold = Snapshot(now_ms=10_000_000, resources=(*RESOURCES, GPU), nodes=_with_devices(nodes), jobs=every)
    yield "none fits", replace(cold, jobs=tuple(replace(job, minimum=6000, maximum=6001) for job in every))
    yield "scraps only", replace(cold, nodes=tuple(_all_but(node, int(cores * 700)) for node in cold.nodes))
    yield "mixed, cold", cold
    full = _settled(cold, config, 3)
    yield "mixed, steady", full
    yield "nodes died", _without(full, {f"n{index:04}" for index in range(0, nodes, 5)})
    loose = [tuple(replace(pod, node="", created_ms=10_010_000) for pod in job.trainers) for job in full.jobs]
    waiting = zip(full.jobs, loose, strict=True)
    yield "all unbound", replace(full, jobs=tuple(replace(job, trainers=them) for job, them in waiting))
    yield "mixed web pods", replace(full, demands=_mixed_web(5 * jobs, cores))
    small = (replace(job, minimum=20, maximum=22, priority=0, nodes=None) for job in every)
    low = _settled(replace(cold, jobs=tuple(small)), config, 2)
    yield "high priority", replace(low, jobs=(*low.jobs, *_high(jobs // 10, 20, cores)))
    yield "high, never fits", replace(low, jobs=(*low.jobs, *_high(jobs // 10, nodes // 3, 19)))
    yield "high, takes most", replace(low, jobs=(*low.jobs, *_high(2, nodes * 2 // 3, 10)))


def _mixed(job: Job, index: int, nodes: int) -> Job:
    """Give a job a priority and a weight, a third of them devices, and half of them nodes of their own."""
    own = frozenset(f"n{(index * 37 + number) % nodes:04}" for number in range(nodes // 5))
    gang = tuple(replace(role, request=(*role.request, 0)) for role in job.gang)
    trainer = (*job.trainer, 1 + index % 2 if index % 3 == 0 else 0)
    tied, weight = own if index % 2 else None, 1 + index % 3
    return replace(job, gang=gang, trainer=trainer, priority=index % 3, weight=weight, nodes=tied)


def _with_devices(count: int) -> tuple[Node, ...]:
    """Give nodes of which each fifth has GPUs."""
    return tuple(
        replace(
            node,
            allocatable=(*node.allocatable, 8 if index % 10 == 0 else 4 if index % 10 == 1 else 0),
            used=(*node.used, 0),
        )
        for index, node in enumerate(cluster(count))
    )


def _all_but(node: Node, left: int) -> Node:
    return replace(node, used=(node.allocatable[0] - left, *node.used[1:]))


def _settled(snapshot: Snapshot, config: PolicyConfig, rounds: int) -> Snapshot:
    for _ in range(rounds):
        snapshot = actuate(snapshot, plan(snapshot, config))
    return snapshot


def _without(full: Snapshot, dead: set[str]) -> Snapshot:
    """Take nodes away with all that was on them; the sets make their servers again."""
    again = [
        Demand(
            key=f"{job.key}-{n}",
            request=held.request,
            priority=100,
            created_ms=0,
            job=job.key,
            nodes=job.nodes,
        )
        for job in full.jobs
        for n, held in enumerate(job.held)
        if held.node in dead
    ]
    jobs = [
        replace(
            job,
            trainers=tuple(pod for pod in job.trainers if pod.node not in dead),
            held=tuple(held for held in job.held if held.node not in dead),
        )
        for job in full.jobs
    ]
    nodes = tuple(node for node in full.nodes if node.name not in dead)
    return replace(full, nodes=nodes, jobs=tuple(jobs), demands=(*full.demands, *again))


def _mixed_web(count: int, cores: float) -> tuple[Demand, ...]:
    """Give web pods of twenty sizes, some larger than any node."""
    pods = enumerate(web(count, cores))
    return tuple(replace(pod, request=(*request(cores * (0.3 + index % 20), 1), 0)) for index, pod in pods)


def _high(count: int, minimum: int, cores: float) -> tuple[Job, ...]:
    """Give jobs of a high priority, each of its own size."""
    return tuple(
        Job(
            key=f"default/high-{index:03}",
            minimum=minimum,
            maximum=2 * minimum,
            trainer=(*request(cores + 0.01 * index, 2), 0),
            gang=(GangRole(name="pserver", count=10, request=(*request(cores * 0.8, 1), 0)),),
            priority=5,
            created_ms=index,
        )
        for index in range(count)
    )
