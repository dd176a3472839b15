"""Policy `edl`: EDL's rules, with the faults mended that made it plan what cannot run or never end.

Kept: the line of the load factor over sums of the whole cluster (`max_load_pct`, for CPU alone),
one trainer a job and pass, jobs whose trainers do not all run are left alone unless a job is wholly
pending, pods are created at once without waiting for room for their gang, nobody has priority.

Mended: a planned trainer takes room on its node, and gives it back when it is planned away; growth and
shrink obey the same line, and a job is shrunk only for a resource that it uses, so that no step is undone
by the next; a job is never below its minimum or above its maximum; jobs that finish are left alone; what
was decided counts, not which of the pods are to be seen yet.
"""

from __future__ import annotations

from dataclasses import replace

from mlstack.elastic.config import PolicyConfig
from mlstack.elastic.policy.edl_round import is_elastic, is_pending, is_running, order, walk
from mlstack.elastic.policy.parts import in_range
from mlstack.elastic.policy.tally import Tally, hold_bound, position
from mlstack.elastic.scaleplan import Decision, Reason, ScalePlan
from mlstack.elastic.snapshot import Job, Snapshot, Trainer


class _Repaired:
    """The steps of the mended dry run; remembers the nodes of the trainers that it planned."""

    def __init__(self, tally: Tally, snapshot: Snapshot) -> None:
        self._tally = tally
        self._memory = position(snapshot, "memory")
        self._every = range(len(snapshot.resources))
        self.nodes: dict[str, list[str]] = {job.key: [] for job in snapshot.jobs}

    def down(self, job: Job, planned: int) -> int:
        """Give -1 while too much is asked for of something that the job uses."""
        if planned <= job.minimum or not any(self._tally.is_over(each) for each in self._used(job)):
            return 0
        if self.nodes[job.key]:
            self._tally.give(self.nodes[job.key].pop(), job.trainer)
        self._tally.ask(job.trainer, -1)
        return -1

    def up(self, job: Job, planned: int) -> int:
        """Give 1 when the line and a node have room for one more trainer."""
        if planned >= job.maximum or not all(self._has_room(job, each) for each in self._used(job)):
            return 0
        node = self._tally.first_fit(job.trainer, self._every, job.nodes)
        if not node:
            return 0
        self._tally.take(node, job.trainer)
        self._tally.ask(job.trainer)
        self.nodes[job.key].append(node)
        return 1

    def _used(self, job: Job) -> list[int]:
        return [each for each in self._every if job.trainer[each]]

    def _has_room(self, job: Job, resource: int) -> bool:
        room, wanted = self._tally.room(resource), job.trainer[resource]
        return (
            room > wanted if resource == self._memory else room >= wanted
        )  # EDL never asks for the last byte


def edl(snapshot: Snapshot, config: PolicyConfig) -> ScalePlan:
    """Decide by EDL's rules, mended; a job that was given up takes no part until its time has come."""
    off = {
        job.key: _hold_off(job)
        for job in snapshot.jobs
        if job.state == "waiting" and job.not_before_ms > snapshot.now_ms
    }
    jobs = tuple(job for job in snapshot.jobs if job.key not in off)
    found = _walk(replace(snapshot, jobs=jobs), config)
    return replace(found, decisions={**found.decisions, **off})


def _hold_off(job: Job) -> Decision:
    reason = Reason(cause="waiting", text="it waits until its next try")
    if job.refused:
        reason = Reason(cause="refused", text=job.refused)
    return Decision(job=job.key, target=0, is_admitted=False, hints={}, reasons=(reason,))


def _walk(snapshot: Snapshot, config: PolicyConfig) -> ScalePlan:
    current = {job.key: in_range(job, job.target) for job in snapshot.jobs}
    tally = _tally(snapshot, config, current)
    steps = _Repaired(tally, snapshot)
    outcome = walk(order(snapshot, _taking_part(snapshot), current), current, up=steps.up, down=steps.down)
    decisions = {
        job.key: _decide(job, outcome.planned[job.key], steps.nodes[job.key]) for job in snapshot.jobs
    }
    return ScalePlan(decisions=decisions, steps=outcome.steps)


def _tally(snapshot: Snapshot, config: PolicyConfig, current: dict[str, int]) -> Tally:
    """Add up the cluster with every job at what was decided for it, its gang included when it starts now."""
    tally = Tally(snapshot, load_pct=config.max_load_pct)
    hold_bound(tally, snapshot.jobs)
    for job in snapshot.jobs:
        tally.ask(job.trainer, len(job.trainers) if job.state == "finishing" else current[job.key])
        if job.state == "waiting":
            for role in job.gang:
                tally.ask(role.request, role.count)
    return tally


def _taking_part(snapshot: Snapshot) -> list[Job]:
    """Give the jobs that may be rescaled: those that run, but all as soon as one job is wholly pending."""
    jobs = [job for job in snapshot.jobs if job.state != "finishing"]
    is_somebody_waiting = any(is_pending(job) for job in jobs)
    return [job for job in jobs if is_elastic(job) and (is_somebody_waiting or _is_whole(job))]


def _is_whole(job: Job) -> bool:
    return is_running(job) and len(job.trainers) == job.target


def _decide(job: Job, target: int, nodes: list[str]) -> Decision:
    if job.state == "finishing":
        reason = Reason(cause="finishing", text="a trainer found no more work")
        return Decision(job=job.key, target=target, is_admitted=True, hints={}, reasons=(reason,))
    missing = max(0, target - len(job.trainers))
    unplanned = max(0, missing - len(nodes))
    return Decision(
        job=job.key,
        target=target,
        is_admitted=True,
        victims=_victims(job, len(job.trainers) - target),
        places=(*[""] * unplanned, *nodes[:missing]),
        hints={},
        reasons=(_reason(job, target),),
    )


def _victims(job: Job, count: int) -> tuple[str, ...]:
    """Give who goes: without a node first, then not ready, then the youngest; last the meeting point."""

    def keep(trainer: Trainer) -> tuple[bool, bool, bool, int, int, str]:
        age = (-trainer.created_ms, -trainer.index, trainer.name)
        return (trainer.is_meeting, bool(trainer.node), trainer.is_ready, *age)

    return tuple(trainer.name for trainer in sorted(job.trainers, key=keep)[: max(0, count)])


def _reason(job: Job, target: int) -> Reason:
    was = job.target
    if job.state == "waiting":
        return Reason(cause="admitted", text=f"starts at once with {target} trainers")
    if target == was:
        return Reason(cause="steady", text=f"stays at {was} trainers")
    if not job.minimum <= was <= job.maximum:
        return Reason(cause="bounds", text=f"{was} -> {target}: the range is {job.minimum} to {job.maximum}")
    if target > was:
        return Reason(cause="growth", text=f"{was} -> {target}: the cluster has room below the line")
    return Reason(cause="yield", text=f"{was} -> {target}: more is asked for than may be requested")
