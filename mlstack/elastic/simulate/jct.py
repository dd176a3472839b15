"""How long jobs take: the trace run by a rigid queue and by the real policies, on slots that are all alike.

What a plan says happens at once (perfect actuation), only that a job whose number of trainers changes
stands still for a while. Between two plans nothing changes but the work that is done, so the simulation
goes from event to event: a job comes, a job ends, or the policy wants to be asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

from mlstack.elastic.config import PolicyConfig
from mlstack.elastic.plan import plan
from mlstack.elastic.scaleplan import Decision, ScalePlan
from mlstack.elastic.simulate.trace import SLOTS, TraceJob
from mlstack.elastic.snapshot import Job, JobState, Node, Snapshot, Trainer

PAUSE_MS = 5_000
TICK_MS = 5_000
_NODE = "pool"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a trace went.

    Attributes:
        mean_jct_s: mean time from the coming of a job to its end.
        p95_jct_s: the time that 19 of 20 jobs stay below.
        makespan_s: time from the start to the end of the last job.
        changes: how often the number of trainers of a running job was changed.
        plans: how often the policy was asked.
    """

    mean_jct_s: float
    p95_jct_s: float
    makespan_s: float
    changes: int = 0
    plans: int = 0


def run_rigid(trace: Sequence[TraceJob]) -> Outcome:
    """Run a trace first in, first out: each job at its maximum, or it waits and all after it wait too."""
    running: list[tuple[int, int]] = []
    free, now_ms, ends = SLOTS, 0, {}
    for job in trace:
        now_ms = max(now_ms, job.at_ms)
        running.sort()
        while running and (running[0][0] <= now_ms or free < job.maximum):
            end_ms, count = running.pop(0)
            now_ms, free = max(now_ms, end_ms), free + count
        free -= job.maximum
        ends[job.key] = now_ms + job.alone_ms
        running.append((ends[job.key], job.maximum))
    return _outcome(trace, ends)


def run_policy(trace: Sequence[TraceJob], config: PolicyConfig) -> Outcome:
    """Run a trace under a policy."""
    pool = _Pool(config)
    coming = list(reversed(trace))
    while coming or pool.runs:
        times = [each for each in (coming[-1].at_ms if coming else None, pool.next_ms()) if each is not None]
        pool.go_on(min(times))
        while coming and coming[-1].at_ms <= pool.now_ms:
            pool.submit(coming.pop())
        pool.decide()
    return _outcome(trace, pool.ends, changes=pool.changes, plans=pool.plans)


@dataclass
class _Run:
    """A job that is under way or waits."""

    job: TraceJob
    left_ms: float
    names: list[Trainer] = field(default_factory=list)
    made: int = 0
    state: JobState = "waiting"
    still_until_ms: int = 0
    changed_ms: int | None = None

    def end_ms(self, now_ms: int) -> int | None:
        """Give when it will be done if nothing changes."""
        if not self.names:
            return None
        return max(now_ms, self.still_until_ms) + ceil(self.left_ms / self.job.speed(len(self.names)))

    def work(self, since_ms: int, until_ms: int) -> None:
        """Do what can be done in a time."""
        if self.names:
            worked_ms = max(0, until_ms - max(since_ms, self.still_until_ms))
            self.left_ms -= worked_ms * self.job.speed(len(self.names))


class _Pool:
    """The slots with the jobs on them, and the policy that shares them out."""

    def __init__(self, config: PolicyConfig) -> None:
        self._config = config
        self._again_ms: int | None = None
        self._moves_ms: tuple[int, ...] = ()
        self.now_ms = 0
        self.runs: dict[str, _Run] = {}
        self.ends: dict[str, int] = {}
        self.changes = 0
        self.plans = 0

    def next_ms(self) -> int | None:
        """Give when a job ends or the policy wants to be asked again, whatever is first."""
        ends = [end for run in self.runs.values() if (end := run.end_ms(self.now_ms)) is not None]
        return min([*ends, *([self._again_ms] if self._again_ms is not None else [])], default=None)

    def go_on(self, until_ms: int) -> None:
        """Let time pass, and let those go that are done by then."""
        done = [
            key
            for key, run in self.runs.items()
            if (end := run.end_ms(self.now_ms)) is not None and end <= until_ms
        ]
        for run in self.runs.values():
            run.work(self.now_ms, until_ms)
        self.now_ms = until_ms
        for key in done:
            self.ends[key] = until_ms
            del self.runs[key]

    def submit(self, job: TraceJob) -> None:
        """Let a job come."""
        self.runs[job.key] = _Run(job=job, left_ms=float(job.work_ms))

    def decide(self) -> None:
        """Ask the policy, and do as it says; ask again soon as long as something changes."""
        decided = plan(self._snapshot(), self._config)
        self.plans += 1
        self._remember(decided)
        is_changed = [self._obey(decision) for decision in decided.decisions.values()]
        self._again_ms = self.now_ms + TICK_MS if any(is_changed) else None

    def _remember(self, decided: ScalePlan) -> None:
        since_ms = self.now_ms - self._config.moves_window_ms
        recent = tuple(each for each in self._moves_ms if each > since_ms)
        self._moves_ms = recent + (self.now_ms,) * decided.moves

    def _obey(self, decision: Decision) -> bool:
        run = self.runs[decision.job]
        if decision.target == len(run.names) and not decision.victims:
            return False
        if run.names:
            self.changes += 1
        victims = set(decision.victims)
        run.names = [each for each in run.names if each.name not in victims]
        while len(run.names) < decision.target:
            run.names.append(self._trainer(run))
        run.state = "admitted" if decision.is_admitted else "waiting"
        run.still_until_ms, run.changed_ms = self.now_ms + PAUSE_MS, self.now_ms
        return True

    def _trainer(self, run: _Run) -> Trainer:
        run.made += 1
        name = f"{run.job.key}-trainer-{run.made}"
        return Trainer(name=name, node=_NODE, planned=_NODE, created_ms=self.now_ms, is_ready=True)

    def _snapshot(self) -> Snapshot:
        return Snapshot(
            now_ms=self.now_ms,
            resources=("cpu",),
            nodes=(Node(name=_NODE, allocatable=(SLOTS,), used=(0,)),),
            jobs=tuple(_job(run) for run in self.runs.values()),
            moves_ms=self._moves_ms,
        )


def _job(run: _Run) -> Job:
    return Job(
        key=run.job.key,
        minimum=run.job.minimum,
        maximum=run.job.maximum,
        trainer=(1,),
        created_ms=run.job.at_ms,
        state=run.state,
        target=len(run.names),
        trainers=tuple(run.names),
        changed_ms=run.changed_ms,
        speed=f"amdahl:{run.job.parallel}",
    )


def _outcome(trace: Sequence[TraceJob], ends: dict[str, int], *, changes: int = 0, plans: int = 0) -> Outcome:
    times = sorted(ends[job.key] - job.at_ms for job in trace)
    return Outcome(
        mean_jct_s=sum(times) / len(times) / 1000,
        p95_jct_s=times[ceil(0.95 * len(times)) - 1] / 1000,
        makespan_s=max(ends.values()) / 1000,
        changes=changes,
        plans=plans,
    )
