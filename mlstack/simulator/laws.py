"""What holds for every plan and every sample (I1 to I4 and I8 of the design): each breach as a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from mlstack.elastic.snapshot import Decision, Job, ScalePlan, Snapshot, Vector, stands_still
from mlstack.simulator.measures import Sample

WITHOUT_PLACES = frozenset({"edl"})
"""Policies that decide by numbers alone: the scheduler finds places, and a gang need not be whole."""


def breaches_of_plan(snapshot: Snapshot, plan: ScalePlan, *, has_places: bool = True) -> Iterator[str]:
    """Give what is wrong with a plan; `has_places` says whether it has to say where everything goes."""
    for job in snapshot.jobs:
        decision = plan.decisions[job.key]
        # I1: a target is 0 for jobs without pods, else from minimum to maximum.
        if job.state == "finishing" and (decision.victims or decision.places):
            yield f"I1: {job.key} is about to end and is scaled"
        if decision.is_admitted and not job.least <= decision.target <= job.maximum:
            yield f"I1: {job.key} is to have {decision.target} trainers"
        elif not decision.is_admitted and (decision.target or decision.places):
            yield f"I1: {job.key} is not admitted and is to have {decision.target} trainers"
        # I4: nobody at or below the minimum loses a running trainer, but with the whole job.
        bound = [trainer for trainer in job.trainers if trainer.node]
        lost = [trainer for trainer in bound if trainer.name in decision.victims]
        if decision.is_admitted and any(trainer.is_meeting for trainer in lost):
            yield f"I4: {job.key} loses the trainer at which the others meet"
        if decision.is_admitted and lost and len(bound) - len(lost) < job.minimum and not stands_still(job):
            yield f"I4: {job.key} goes below its minimum of {job.minimum}"
        if has_places:
            yield from _breaches_of_places(snapshot, plan, job, decision)
    yield from _breaches_of_nodes(snapshot, plan)


def _breaches_of_places(snapshot: Snapshot, plan: ScalePlan, job: Job, decision: Decision) -> Iterator[str]:
    # I3: every trainer asked for has a node.
    names = {node.name for node in snapshot.nodes}
    if any(node not in names for node in decision.places):
        yield f"I3: {job.key} is to have a trainer without a node"
    live = len(job.trainers) - len(decision.victims) + len(decision.places)
    if decision.is_admitted and job.state != "finishing" and decision.target != live:
        yield f"I3: {job.key} is to have {decision.target} trainers, {live} of which are accounted for"
    # I8: a job with pods has all of them placed, one without has none.
    for role in job.gang if job.state == "waiting" and decision.is_admitted else ():
        if len(decision.hints.get(role.name, ())) != role.count:
            yield f"I8: {job.key} is admitted without a place for each {role.name}"
    reserved = {row.key for row in plan.reservations}
    for demand in snapshot.demands:
        if demand.job == job.key and decision.is_admitted and demand.key not in reserved:
            yield f"I8: {job.key} goes on without a place for {demand.key}"


def _breaches_of_nodes(snapshot: Snapshot, plan: ScalePlan) -> Iterator[str]:
    """I2: bound, planned and reserved requests of a node are within what it has."""
    free = {
        node.name: [a - b for a, b in zip(node.allocatable, node.used, strict=True)]
        for node in snapshot.nodes
    }

    def take(node: str, request: Vector, sign: int = 1) -> None:
        if node in free:
            free[node] = [left - sign * amount for left, amount in zip(free[node], request, strict=True)]

    for job in snapshot.jobs:
        for trainer in job.trainers:
            take(trainer.node, job.trainer)
    before = {name: list(left) for name, left in free.items()}
    for row in plan.reservations:
        take(row.node, row.request)
    for job in snapshot.jobs:
        decision = plan.decisions[job.key]
        for trainer in job.trainers:
            if trainer.name in decision.victims:
                take(trainer.node, job.trainer, sign=-1)
        for name in (*decision.places, *decision.waiting.values()):
            take(name, job.trainer)
        for held in job.held if job.state != "waiting" and not decision.is_admitted else ():
            take(held.node, held.request, sign=-1)
    for name, after in free.items():
        if any(left < min(0, was) for left, was in zip(after, before[name], strict=True)):
            yield f"I2: {name} is over-allocated by {[left for left in after if left < 0]}"


def breaches_of_sample(sample: Sample) -> Iterator[str]:
    """Give what is wrong with what can be seen of a cluster."""
    for name in sample.crowded:
        yield f"I2: {name} has more bound than it offers"
    for job in sample.jobs:
        if job.target and job.is_answered and not job.minimum <= job.target <= job.maximum:
            yield f"I1: {job.key} was told to have {job.target} trainers"


def stale_pods(samples: Sequence[Sample], *, allowed: int = 60) -> Iterator[str]:
    """Give the jobs that had pods for more than so many samples while they were told to have none (I8)."""
    since: Counter[str] = Counter()
    for sample in samples:
        for job in sample.jobs:
            is_stale = job.target == 0 and job.pods > 0
            since[job.key] = since[job.key] + 1 if is_stale else 0
            if since[job.key] == allowed:
                yield f"I8: {job.key} is not admitted and has {job.pods} pods at {sample.at_ms // 1000} s"
