"""Moments of clusters with training jobs, as they can really occur: nothing is bound without room."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from hypothesis import settings
from hypothesis import strategies as st

from mlstack.elastic.snapshot import Demand, GangRole, Held, Job, Node, Snapshot, Trainer, Vector
from tests.support.actuation import room

NOW_MS = 1_000_000
RESOURCES = (("cpu",), ("cpu", "memory"), ("cpu", "nvidia.com/gpu"), ("cpu", "memory", "nvidia.com/gpu"))

# A law is tried on eight times the examples of other properties, and on 10,000 at most.
MANY = settings(max_examples=min(10_000, 8 * settings().max_examples))


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """What moments may hold."""

    is_alike: bool = False  # all trainers request the same, all jobs are of one priority and go anywhere
    has_gangs: bool = True  # jobs have masters and parameter servers
    has_others: bool = True  # pods of others wait or go, nodes are cordoned, trainers wait for a node
    has_limits: bool = True  # jobs are tied to nodes, passed over nodes, cooling or about to end
    jobs: int = 5  # most jobs


def moments(**kind: bool | int) -> st.SearchStrategy[Snapshot]:
    """Give moments of a kind: a seed decides all but the sizes, which shrink well."""
    chosen = Kind(**kind)  # type: ignore[arg-type]
    return st.builds(
        _draw,
        st.integers(0, 2**32),
        st.integers(0, 6),
        st.integers(0, chosen.jobs),
        st.integers(0, 4) if chosen.has_others else st.just(0),
        st.just(chosen),
    )


def moment(seed: int, nodes: int, jobs: int, demands: int, **kind: bool | int) -> Snapshot:
    """Give one moment of a kind."""
    chosen = Kind(**kind)  # type: ignore[arg-type]
    return _draw(seed, nodes, jobs, demands if chosen.has_others else 0, chosen)


def _draw(seed: int, nodes: int, jobs: int, demands: int, kind: Kind) -> Snapshot:
    dice = Random(seed)
    resources = dice.choice(RESOURCES)
    snapshot = Snapshot(
        now_ms=NOW_MS,
        resources=resources,
        nodes=tuple(_node(dice, index, resources) for index in range(nodes)),
    )
    model = _job(dice, 0, resources, kind)
    for index in range(jobs):
        job = _job(dice, index, resources, kind)
        if kind.is_alike:
            job = replace(job, trainer=model.trainer, priority=0, pod_priority=-10, nodes=None)
        snapshot = _settle(dice, snapshot, job, kind)
    for index in range(demands):
        snapshot = _disturb(dice, snapshot, index)
    return _cordon(dice, snapshot) if kind.has_others else snapshot


def _vector(dice: Random, resources: tuple[str, ...], most: int) -> Vector:
    return tuple(dice.choice((0, 0, 1, 2)) if "/" in name else dice.randint(1, most) for name in resources)


def _node(dice: Random, index: int, resources: tuple[str, ...]) -> Node:
    allocatable = tuple(
        dice.choice((0, 2, 4)) if "/" in name else dice.choice((3, 5, 8, 12)) for name in resources
    )
    used = tuple(0 if "/" in name else dice.choice((0, 0, 1)) for name in resources)
    devices = tuple(size if "/" in name else 0 for name, size in zip(resources, allocatable, strict=True))
    return Node(name=f"n{index}", allocatable=allocatable, used=used, devices=devices)


def _job(dice: Random, index: int, resources: tuple[str, ...], kind: Kind) -> Job:
    minimum = dice.choice((0, 1, 1, 2, 3))
    names = [f"n{number}" for number in range(6)]
    limited = kind.has_limits and dice.random() < 0.3
    gang = tuple(
        GangRole(
            name=name, count=dice.randint(1, 3), request=_no_device(_vector(dice, resources, 3), resources)
        )
        for name in ("master", "pserver")
        if kind.has_gangs and dice.random() < 0.5
    )
    return Job(
        key=f"default/j{index}",
        minimum=minimum,
        maximum=max(1, minimum + dice.choice((0, 1, 3, 3, 10))),  # as the definition asks
        trainer=_vector(dice, resources, 3),
        gang=gang,
        priority=dice.choice((0, 0, 0, 1, 2)),
        pod_priority=dice.choice((-10, -10, 0, 5)),
        weight=dice.choice((1, 1, 1, 2)),
        created_ms=dice.choice((1, 2, 900_000)),
        nodes=frozenset(dice.sample(names, 3)) if limited and dice.random() < 0.5 else None,
        barred={dice.choice(names): dice.choice((NOW_MS - 1, NOW_MS + 10**9))} if limited else {},
        cooldown_ms=10**9 if limited and dice.random() < 0.3 else 0,
        changed_ms=dice.choice((None, 900_000)),
        failed=dice.choice((0, 0, 1, 2)) if limited else 0,
        speed=dice.choice(("linear", "amdahl:0.9")),
    )


def _no_device(request: Vector, resources: tuple[str, ...]) -> Vector:
    return tuple(0 if "/" in name else amount for name, amount in zip(resources, request, strict=True))


def _settle(dice: Random, snapshot: Snapshot, job: Job, kind: Kind) -> Snapshot:
    """Add a job: waiting, or running on what room there is."""
    if dice.random() < 0.4:
        return replace(snapshot, jobs=(*snapshot.jobs, job))
    placed = snapshot
    held: list[Held] = []
    demands: list[Demand] = []
    for role in job.gang:
        for number in range(role.count):
            node = _free_node(dice, placed, role.request, job.nodes)
            if node is None or (kind.has_others and dice.random() < 0.1):
                key = f"{job.key}-{role.name}-{number}"
                demands.append(
                    Demand(
                        key=key,
                        request=role.request,
                        priority=100,
                        created_ms=1,
                        job=job.key,
                        nodes=job.nodes,
                    )
                )
            else:
                held.append(Held(node=node.name, request=role.request))
                placed = _use(placed, node, role.request)
    job = replace(job, state="admitted", held=tuple(held))
    placed = replace(placed, jobs=(*placed.jobs, job), demands=(*placed.demands, *demands))
    wanted = dice.randint(max(0, job.minimum - int(kind.has_others)), job.maximum + int(dice.random() < 0.1))
    for number in range(wanted):
        placed = _hire(dice, placed, number, kind)
    job = placed.jobs[-1]
    if not kind.has_others and len(job.trainers) < job.minimum:
        return replace(snapshot, jobs=(*snapshot.jobs, replace(job, state="waiting", held=(), trainers=())))
    is_ending = kind.has_limits and dice.random() < 0.1
    job = replace(job, target=len(job.trainers), state="finishing" if is_ending else "admitted")
    return replace(placed, jobs=(*placed.jobs[:-1], job))


def _hire(dice: Random, snapshot: Snapshot, number: int, kind: Kind) -> Snapshot:
    job = snapshot.jobs[-1]
    node = _free_node(dice, snapshot, job.trainer, job.nodes)
    if node is None:
        return snapshot
    is_unbound = kind.has_others and dice.random() < 0.15
    trainer = Trainer(
        name=f"j{job.key[-1]}-trainer-{number}",
        node="" if is_unbound else node.name,
        planned=node.name,
        created_ms=dice.choice((NOW_MS - 20_000, NOW_MS - 1_000)),
        is_ready=dice.random() < 0.8,
        is_rendezvous=number == 0 and not any(role.name == "master" for role in job.gang),
    )
    return replace(snapshot, jobs=(*snapshot.jobs[:-1], replace(job, trainers=(*job.trainers, trainer))))


def _free_node(
    dice: Random, snapshot: Snapshot, request: Vector, names: frozenset[str] | None
) -> Node | None:
    free = [
        node
        for node in snapshot.nodes
        if (names is None or node.name in names)
        and all(left >= amount for left, amount in zip(room(node, snapshot), request, strict=True) if amount)
    ]
    return dice.choice(free) if free else None


def _use(snapshot: Snapshot, node: Node, request: Vector) -> Snapshot:
    used = tuple(a + b for a, b in zip(node.used, request, strict=True))
    return replace(
        snapshot,
        nodes=tuple(replace(other, used=used) if other is node else other for other in snapshot.nodes),
    )


def _disturb(dice: Random, snapshot: Snapshot, index: int) -> Snapshot:
    """Add a pod of others that waits for a node, or one that is about to go."""
    request = _vector(dice, snapshot.resources, 4)
    if dice.random() < 0.6:
        nodes = frozenset(f"n{dice.randint(0, 5)}" for _ in range(3)) if dice.random() < 0.2 else None
        demand = Demand(
            key=f"web/p{index}",
            request=request,
            priority=dice.choice((-100, 0, 0, 1000)),
            created_ms=dice.choice((1, 2, 3)),
            nodes=nodes,
        )
        return replace(snapshot, demands=(*snapshot.demands, demand))
    node = _free_node(dice, snapshot, request, None)
    if node is None:
        return snapshot
    going = Held(node=node.name, request=request)
    return replace(snapshot, arriving=(*snapshot.arriving, going))


def _cordon(dice: Random, snapshot: Snapshot) -> Snapshot:
    """Take a node out of what takes pods; what runs there goes on."""
    if len(snapshot.nodes) < 2 or dice.random() < 0.8:
        return snapshot
    gone = dice.choice(snapshot.nodes).name
    return replace(snapshot, nodes=tuple(node for node in snapshot.nodes if node.name != gone))
