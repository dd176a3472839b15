"""A plan carried out at once and without a fault: what the cluster is like after it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from mlstack.elastic.snapshot import Decision, Demand, Held, Job, Node, ScalePlan, Snapshot, Trainer, Vector

TICK_MS = 5_000


def actuate(snapshot: Snapshot, plan: ScalePlan, *, after_ms: int = TICK_MS) -> Snapshot:
    """Give the snapshot after everything that the plan asks for was done and every pod is bound and ready."""
    now_ms = snapshot.now_ms + after_ms
    used: dict[str, list[int]] = {node.name: list(node.used) for node in snapshot.nodes}
    own = {demand.key: demand for demand in snapshot.demands}
    settled = {row.key for row in plan.reservations}
    gained: dict[str, list[Held]] = defaultdict(list)
    for row in plan.reservations:
        _add(used, row.node, row.request, 1)
        owner = own[row.key].job if row.key in own else row.key.rpartition(" ")[0]
        if owner:
            gained[owner].append(Held(node=row.node, request=row.request))
    jobs = []
    for job in snapshot.jobs:
        decision = plan.decisions[job.key]
        if not decision.is_admitted:
            for held in job.held:
                _add(used, held.node, held.request, -1)
        jobs.append(_carried_out(job, decision, tuple(gained[job.key]), now_ms))
    off = {job.key for job in snapshot.jobs if not plan.decisions[job.key].is_admitted}
    return replace(
        snapshot,
        now_ms=now_ms,
        nodes=tuple(replace(node, used=tuple(used[node.name])) for node in snapshot.nodes),
        demands=tuple(pod for pod in snapshot.demands if pod.key not in settled and pod.job not in off),
        arriving=(),
        jobs=tuple(jobs),
        moves_ms=(*snapshot.moves_ms, *[snapshot.now_ms] * plan.moves),
    )


def _add(used: dict[str, list[int]], node: str, request: Vector, sign: int) -> None:
    if node in used:
        for index, amount in enumerate(request):
            used[node][index] += sign * amount


def _carried_out(job: Job, decision: Decision, gained: tuple[Held, ...], now_ms: int) -> Job:
    if not decision.is_admitted:
        state = "waiting" if job.state == "admitted" else job.state
        return replace(job, state=state, trainers=(), held=(), target=0, changed_ms=now_ms)
    staying = [trainer for trainer in job.trainers if trainer.name not in decision.victims]
    bound = [pod if pod.node else replace(pod, node=decision.waiting.get(pod.name, "")) for pod in staying]
    new = [
        Trainer(name=f"{job.key}-{now_ms}-{index}", node=node, planned=node, created_ms=now_ms, is_ready=True)
        for index, node in enumerate(decision.places)
    ]
    state = "admitted" if job.state == "waiting" else job.state
    return replace(
        job,
        state=state,
        trainers=(*bound, *new),
        held=(*job.held, *gained),
        target=decision.target,
        changed_ms=job.changed_ms if decision.target == job.target else now_ms,
    )


def is_still(plan: ScalePlan, snapshot: Snapshot) -> bool:
    """Tell whether a plan leaves everything as it is."""
    return all(
        not decision.victims and not decision.places and decision.is_admitted == (job.state != "waiting")
        for job in snapshot.jobs
        for decision in [plan.decisions[job.key]]
    )


def room(node: Node, snapshot: Snapshot) -> list[int]:
    """Give what is free on a node when everybody who is going has gone."""
    free = [all_ - used for all_, used in zip(node.allocatable, node.used, strict=True)]
    for job in snapshot.jobs:
        for trainer in job.trainers:
            if trainer.node == node.name:
                free = [left - amount for left, amount in zip(free, job.trainer, strict=True)]
    return free


def begin(snapshot: Snapshot, plan: ScalePlan) -> Snapshot:
    """Give the snapshot after all was asked for and nothing has happened: pods unbound, victims going."""
    now_ms = snapshot.now_ms + 1_000
    arriving, demands = list(snapshot.arriving), list(snapshot.demands)
    used: dict[str, list[int]] = {node.name: list(node.used) for node in snapshot.nodes}
    jobs = []
    for job in snapshot.jobs:
        decision = plan.decisions[job.key]
        gone = [trainer for trainer in job.trainers if trainer.name in decision.victims and trainer.node]
        going = [(trainer.node, job.trainer) for trainer in gone]
        if not decision.is_admitted:
            for held in job.held:
                going.append((held.node, held.request))
                _add(used, held.node, held.request, -1)
        arriving += [Held(node=node, request=request) for node, request in going]
        demands += _members(job, decision, now_ms)
        jobs.append(_begun(job, decision, now_ms))
    off = {job.key for job in jobs if job.state == "waiting"}
    return replace(
        snapshot,
        now_ms=now_ms,
        nodes=tuple(replace(node, used=tuple(used[node.name])) for node in snapshot.nodes),
        demands=tuple(pod for pod in demands if pod.job not in off),
        arriving=tuple(arriving),
        jobs=tuple(jobs),
    )


def _members(job: Job, decision: Decision, now_ms: int) -> list[Demand]:
    requests = {role.name: role.request for role in job.gang}
    return [
        Demand(
            key=f"{job.key}-{name}-{index}",
            request=requests[name],
            priority=100,
            created_ms=now_ms,
            job=job.key,
            nodes=frozenset(nodes),
        )
        for name, nodes in decision.hints.items()
        for index in range(len(nodes))
    ]


def _begun(job: Job, decision: Decision, now_ms: int) -> Job:
    done = _carried_out(job, decision, (), now_ms)
    old = {trainer.name: trainer for trainer in job.trainers}
    trainers = [
        replace(pod, node=old[pod.name].node if pod.name in old else "", is_ready=pod.name in old)
        for pod in done.trainers
    ]
    return replace(done, trainers=tuple(trainers))


def rescaled(snapshot: Snapshot, resource: int, factor: int) -> Snapshot:
    """Give the same moment with one resource counted in units that much smaller."""

    def scaled(vector: Vector) -> Vector:
        return tuple(amount * factor if index == resource else amount for index, amount in enumerate(vector))

    return replace(
        snapshot,
        nodes=tuple(
            replace(node, allocatable=scaled(node.allocatable), used=scaled(node.used))
            for node in snapshot.nodes
        ),
        demands=tuple(replace(demand, request=scaled(demand.request)) for demand in snapshot.demands),
        arriving=tuple(replace(held, request=scaled(held.request)) for held in snapshot.arriving),
        jobs=tuple(
            replace(
                job,
                trainer=scaled(job.trainer),
                gang=tuple(replace(role, request=scaled(role.request)) for role in job.gang),
                held=tuple(replace(held, request=scaled(held.request)) for held in job.held),
            )
            for job in snapshot.jobs
        ),
    )
