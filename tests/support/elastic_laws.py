"""The laws of scaling plans (I1 to I8): each check names what broke it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from mlstack.elastic.snapshot import Demand, Job, Node, ScalePlan, Snapshot, Vector, stands_still
from tests.support.actuation import room


def check_plan(snapshot: Snapshot, plan: ScalePlan) -> None:
    """Check what holds for every plan: I1, I2, I3, I4, I8 and I13."""
    check_targets(snapshot, plan)
    check_room(snapshot, plan)
    check_places(snapshot, plan)
    check_victims(snapshot, plan)
    check_gangs(snapshot, plan)
    check_steps(snapshot, plan)


def check_targets(snapshot: Snapshot, plan: ScalePlan) -> None:
    """I1: a target is 0 for jobs without pods, else from minimum to maximum."""
    for job in snapshot.jobs:
        decision = plan.decisions[job.key]
        if job.state == "finishing":
            assert not decision.victims and not decision.places, job.key
        if decision.is_admitted:
            assert job.least <= decision.target <= job.maximum, job.key
        else:
            assert decision.target == 0 and not decision.places, job.key


def check_room(snapshot: Snapshot, plan: ScalePlan) -> None:
    """I2: bound, planned and reserved requests of a node are within what it has."""
    before = {node.name: room(node, snapshot) for node in snapshot.nodes}
    after = {name: list(free) for name, free in before.items()}
    for row in plan.reservations:
        _take(after, row.node, row.request, -1)
    for job in snapshot.jobs:
        decision = plan.decisions[job.key]
        for trainer in job.trainers:
            if trainer.name in decision.victims:
                _take(after, trainer.node, job.trainer, 1)
        for node in (*decision.places, *decision.waiting.values()):
            _take(after, node, job.trainer, -1)
        if job.state != "waiting" and not decision.is_admitted:
            for held in job.held:
                _take(after, held.node, held.request, 1)
    for name, free in after.items():
        for left, was in zip(free, before[name], strict=True):
            assert left >= min(0, was), f"{name} is over-allocated: {free}, before {before[name]}"


def _take(rooms: dict[str, list[int]], node: str, request: Vector, sign: int) -> None:
    if node in rooms:
        rooms[node] = [left + sign * amount for left, amount in zip(rooms[node], request, strict=True)]


def check_places(snapshot: Snapshot, plan: ScalePlan) -> None:
    """I3: every trainer asked for has a node that it may go to, and they are as many as the target says."""
    names = {node.name for node in snapshot.nodes}
    for job in snapshot.jobs:
        decision = plan.decisions[job.key]
        live = {trainer.name: trainer for trainer in job.trainers}
        assert set(decision.victims) <= set(live) and len(set(decision.victims)) == len(decision.victims)
        unbound = {name for name, trainer in live.items() if not trainer.node}
        if job.state != "finishing":
            assert set(decision.waiting) == unbound - set(decision.victims), job.key
        if decision.is_admitted and job.state != "finishing":
            assert decision.target == len(live) - len(decision.victims) + len(decision.places), job.key
        barred = {node for node, until in job.barred.items() if until > snapshot.now_ms}
        for node in (*decision.places, *decision.waiting.values()):
            assert node in names and node not in barred, f"{job.key} on {node}"
            assert job.nodes is None or node in job.nodes, f"{job.key} on {node}"


def check_victims(snapshot: Snapshot, plan: ScalePlan) -> None:
    """I4: nobody at or below the minimum loses a running trainer, but jobs that are taken off whole.

    Nor does a job that goes on lose the trainer at which the others meet.
    """
    for job in snapshot.jobs:
        decision = plan.decisions[job.key]
        bound = [trainer for trainer in job.trainers if trainer.node]
        lost = [trainer for trainer in bound if trainer.name in decision.victims]
        if decision.is_admitted:
            is_whole = len(bound) - len(lost) >= job.minimum
            assert not lost or is_whole or stands_still(job), job.key
            assert not any(trainer.is_meeting for trainer in lost), job.key
        elif job.state == "admitted":
            assert sorted(decision.victims) == sorted(trainer.name for trainer in job.trainers), job.key
            assert decision.reasons[0].cause in ("suspended", "lost"), job.key


def check_gangs(snapshot: Snapshot, plan: ScalePlan) -> None:
    """I8: a job with pods has all of them placed, one without has none."""
    kept = Counter(row.key for row in plan.reservations)
    for job in snapshot.jobs:
        decision = plan.decisions[job.key]
        if job.state == "waiting" and decision.is_admitted:
            for role in job.gang:
                assert len(decision.hints.get(role.name, ())) == role.count, job.key
                assert kept[f"{job.key} {role.name}"] == role.count, job.key
        for demand in snapshot.demands:
            if demand.job == job.key and job.state == "admitted":
                assert bool(kept[demand.key]) == decision.is_admitted, demand.key


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
    here = sum(trainer.node == node.name and not trainer.is_meeting for trainer in job.trainers)
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
    return any(trainer.node == node.name and not trainer.is_meeting for trainer in job.trainers)


def _allowed(snapshot: Snapshot, names: frozenset[str] | None) -> list[Node]:
    return [node for node in snapshot.nodes if names is None or node.name in names]


def _fits(free: Sequence[int], request: Vector) -> bool:
    return all(left >= amount for left, amount in zip(free, request, strict=True) if amount)


def unmet(snapshot: Snapshot) -> tuple[Demand, ...]:
    """Give the pods of others that have no place."""
    return tuple(demand for demand in snapshot.demands if not demand.job)
