"""Policy `edl-v010`: the autoscaler of EDL v0.1.0 with its faults, as a baseline for the simulator.

The faults are what makes it a baseline: room on a node grows when a trainer is planned there, room never
comes back when one is taken away, GPUs are filled above the line at which they are taken away, jobs with
one trainer that cannot start are left alone. Only the loop without an end is cut off. What it gives is the
parallelism of each job; which trainers go and where new ones run is left to others, as it was.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlstack.elastic.config import PolicyConfig
from mlstack.elastic.policy.edl_round import is_elastic, is_pending, is_running, order, walk
from mlstack.elastic.policy.tally import Tally, amount, hold_bound, position
from mlstack.elastic.scaleplan import Decision, Reason, ScalePlan
from mlstack.elastic.snapshot import Job, Snapshot


@dataclass(frozen=True, kw_only=True, slots=True)
class _Original:
    """The steps of the original dry run over its sums.

    Attributes:
        tally: the sums.
        cpu: where CPU stands in a vector, None if nowhere; likewise the others.
        memory: where memory stands.
        gpu: where GPUs stand.
        gpu_line: GPUs above which trainers are taken away.
    """

    tally: Tally
    cpu: int | None
    memory: int | None
    gpu: int | None
    gpu_line: int

    def down(self, job: Job, planned: int) -> int:
        """Give -1 or 0: the test is about the cluster, not about what this job uses."""
        if planned > job.maximum or (self._is_crowded() and planned > job.minimum):
            self.tally.ask(job.trainer, -1)
            return -1
        return 0

    def up(self, job: Job, planned: int) -> int:
        """Give 1 or 0, or at once all that is above the maximum as a negative number."""
        step = job.maximum - planned if planned >= job.maximum else self._one_more(job)
        self.tally.ask(job.trainer, step)
        return step

    def _is_crowded(self) -> bool:
        if self.gpu is not None and self.tally.demand[self.gpu] > self.gpu_line:
            return True
        return self.cpu is not None and self.tally.is_over(self.cpu)

    def _one_more(self, job: Job) -> int:
        node = self._node(job)
        if not node or not self._has_room(job):
            return 0
        self.tally.give(node, job.trainer)  # the fault: what a planned trainer takes is added to what is idle
        return 1

    def _node(self, job: Job) -> str:
        known = [each for each in (self.cpu, self.memory) if each is not None]
        return self.tally.first_fit(job.trainer, known, None)

    def _has_room(self, job: Job) -> bool:
        if self.memory is not None and self.tally.room(self.memory) <= job.trainer[self.memory]:
            return False
        if self.cpu is not None and self.tally.room(self.cpu) < job.trainer[self.cpu]:
            return False
        devices = amount(job.trainer, self.gpu)
        return self.gpu is None or not devices or self.tally.room(self.gpu) >= devices


def edl_v010(snapshot: Snapshot, config: PolicyConfig) -> ScalePlan:
    """Decide as EDL v0.1.0 did: targets alone, no victims, no nodes, no gangs."""
    tally = Tally(snapshot, load_pct=config.max_load_pct)
    hold_bound(tally, snapshot.jobs)
    for job in snapshot.jobs:
        tally.ask(job.trainer, len(job.trainers))
    steps = _steps(snapshot, tally, config)
    current = {job.key: _parallelism(job) for job in snapshot.jobs}
    outcome = walk(order(snapshot, _taking_part(snapshot), current), current, up=steps.up, down=steps.down)
    decisions = {job.key: _decide(job, outcome.planned[job.key]) for job in snapshot.jobs}
    return ScalePlan(decisions=decisions, steps=outcome.steps)


def _steps(snapshot: Snapshot, tally: Tally, config: PolicyConfig) -> _Original:
    gpu = position(snapshot, "nvidia.com/gpu")
    total = 0 if gpu is None else tally.totals[gpu]
    return _Original(
        tally=tally,
        cpu=position(snapshot, "cpu"),
        memory=position(snapshot, "memory"),
        gpu=gpu,
        gpu_line=total * config.max_load_pct // 100,
    )


def _parallelism(job: Job) -> int:
    """Give what stands in the job's Job object: EDL creates it with the minimum, at once."""
    return job.target if job.state != "waiting" else job.minimum


def _taking_part(snapshot: Snapshot) -> list[Job]:
    """Give the jobs that may be rescaled: those that run, but all as soon as one job is wholly pending."""
    is_somebody_waiting = any(is_pending(job) for job in snapshot.jobs if job.state != "finishing")
    return [
        job
        for job in snapshot.jobs
        if is_elastic(job) and (is_somebody_waiting or (job.state != "finishing" and is_running(job)))
    ]


def _decide(job: Job, target: int) -> Decision:
    was = _parallelism(job)
    if target == was:
        reason = Reason(cause="steady", text=f"parallelism stays {was}")
    else:
        reason = Reason(cause="growth" if target > was else "yield", text=f"parallelism {was} -> {target}")
    return Decision(job=job.key, target=target, is_admitted=True, hints={}, reasons=(reason,))
