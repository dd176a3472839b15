"""The laws of scaling plans (I1 to I8): each check names what broke it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from mlstack.elastic.snapshot import Decision, Job, Node, ScalePlan, Snapshot, Vector
from mlstack.simulator.measures import breaches_of_plan
from tests.support.actuation import room


def check_plan(snapshot: Snapshot, plan: ScalePlan) -> None:
    """Check what holds for every plan: I1, I2, I3, I4, I8 and I13, those that simulations watch and more."""
    assert not list(breaches_of_plan(snapshot, plan))
    reserved = Counter(row.key for row in plan.reservations)
    for job in snapshot.jobs:
        decision = plan.decisions[job.key]
        check_places(snapshot, job, decision)
        if job.state == "admitted" and not decision.is_admitted:  # I4
            assert sorted(decision.victims) == sorted(trainer.name for trainer in job.trainers), job.key
            assert decision.reasons[0].cause in ("suspended", "lost"), job.key
        for role in job.gang if job.state == "waiting" and decision.is_admitted else ():  # I8
            assert reserved[f"{job.key} {role.name}"] == role.count, job.key
        for demand in snapshot.demands:
            if demand.job == job.key and job.state == "admitted":
                assert bool(reserved[demand.key]) == decision.is_admitted, demand.key
    check_steps(snapshot, plan)


def check_places(snapshot: Snapshot, job: Job, decision: Decision) -> None:
    """I3: every trainer asked for has a node that it may go to, and each one without a node is dealt with."""
    victims, unbound = set(decision.victims), {trainer.name for trainer in job.trainers if not trainer.node}
    assert victims <= {trainer.name for trainer in job.trainers} and len(victims) == len(decision.victims)
    assert job.state == "finishing" or set(decision.waiting) == unbound - victims, job.key
    names = {node.name for node in _allowed(snapshot, job.nodes)}
    names -= {node for node, until in job.barred.items() if until > snapshot.now_ms}
    assert {*decision.places, *decision.waiting.values()} <= names, job.key


def check_steps(snapshot: Snapshot, plan: ScalePlan) -> None:
    """I13: no more steps than trainers, pods and swaps make necessary."""
    trainers = sum(max(job.maximum, len(job.trainers)) for job in snapshot.jobs)
    pods = len(snapshot.demands) + sum(
        len(job.held) + sum(role.count for role in job.gang) + 2 for job in snapshot.jobs
    )
    assert plan.steps <= 4 * (trainers + pods) + 2 * max(plan.moves, 0) + 2 * trainers


def check_fixed_point(snapshot: Snapshot, plan: ScalePlan) -> None:
    """Check what holds where nothing is left to do: I5 and I6; `plan` leaves `snapshot` as it is."""
    check_priority(snapshot, plan)
    check_no_idle_room(snapshot)


def check_priority(snapshot: Snapshot, plan: ScalePlan) -> None:
    """I5: no node could take a pod without a place if trainers above a minimum of lower priority went."""
    left = {row.key for row in plan.unplaced}
    for demand in snapshot.demands:
        if demand.key in left and not demand.job:
            for node in _allowed(snapshot, demand.nodes):
                free = room(node, snapshot)
                for job in snapshot.jobs:
                    if job.pod_priority <= demand.priority:
                        free = _without(job, node, free)
                assert not _fits(free, demand.request), f"{demand.key} could have {node.name}"


def _without(job: Job, node: Node, free: Sequence[int]) -> list[int]:
    here = sum(trainer.node == node.name and not trainer.is_rendezvous for trainer in job.trainers)
    spare = max(0, len(job.trainers) - job.minimum) if job.state == "admitted" else 0
    return [left + min(here, spare) * amount for left, amount in zip(free, job.trainer, strict=True)]


def check_no_idle_room(snapshot: Snapshot) -> None:
    """I6: no node has room for a trainer of a job that could use one."""
    for job in growing(snapshot):
        for node in _allowed(snapshot, job.nodes):
            is_barred = job.barred.get(node.name, 0) > snapshot.now_ms
            assert is_barred or not _fits(room(node, snapshot), job.trainer), (
                f"{job.key} could use {node.name}"
            )


def growing(snapshot: Snapshot) -> Iterator[Job]:
    """Give the jobs that may get another trainer at this moment."""
    for job in snapshot.jobs:
        is_held_back = is_cooling(job, snapshot) or bool(job.failed)
        if job.state == "admitted" and len(job.trainers) < job.maximum and not is_held_back:
            yield job


def is_cooling(job: Job, snapshot: Snapshot) -> bool:
    """Tell whether a job was changed too lately to be changed again for nothing pressing."""
    return job.changed_ms is not None and snapshot.now_ms - job.changed_ms < job.cooldown_ms


def check_no_fairer_swap(snapshot: Snapshot) -> None:
    """I7: no move of one trainer helps the poorer job without making it the richer one."""
    for poor in growing(snapshot):
        for rich in snapshot.jobs:
            if rich is poor or rich.state != "admitted" or is_cooling(rich, snapshot):
                continue
            if rich.priority > poor.priority or len(rich.trainers) <= rich.minimum:
                continue
            if rich.priority == poor.priority and not _is_fairer(poor, rich):
                continue
            for node in _allowed(snapshot, poor.nodes):
                if poor.barred.get(node.name, 0) <= snapshot.now_ms and _hosts(rich, node):
                    free = [a + b for a, b in zip(room(node, snapshot), rich.trainer, strict=True)]
                    assert not _fits(free, poor.trainer), f"{rich.key} could give {poor.key} {node.name}"


def _is_fairer(poor: Job, rich: Job) -> bool:
    raised = (len(poor.trainers) + 1 - poor.minimum) * _range(rich)
    return raised <= (len(rich.trainers) - 1 - rich.minimum) * _range(poor)


def _range(job: Job) -> int:
    return max(1, (job.maximum - job.minimum) * job.weight)


def _hosts(job: Job, node: Node) -> bool:
    return any(trainer.node == node.name and not trainer.is_rendezvous for trainer in job.trainers)


def _allowed(snapshot: Snapshot, names: frozenset[str] | None) -> list[Node]:
    return [node for node in snapshot.nodes if names is None or node.name in names]


def _fits(free: Sequence[int], request: Vector) -> bool:
    return all(left >= amount for left, amount in zip(free, request, strict=True) if amount)
