"""EDL's rules, mended (`edl`) and as of v0.1.0 (`edl-v010`), over sums of the whole cluster.

Demand counts all pods, those without a node too: where it exceeds the total, somebody waits. Pods on their
way out still count as used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from mlstack.elastic.policy.state import in_range
from mlstack.elastic.snapshot import Decision, Job, PolicyConfig, Reason, ScalePlan, Snapshot, Trainer, Vector

# --- what EDL's rules look at: sums over the whole cluster and what is idle on each node ---


class Tally:
    """Sums and idle room of a snapshot, changed by a dry run."""

    def __init__(self, snapshot: Snapshot, *, load_pct: int) -> None:
        self._cpu = position(snapshot, "cpu")
        width = len(snapshot.resources)
        # what all nodes offer
        self.totals = [sum(node.allocatable[each] for node in snapshot.nodes) for each in range(width)]
        # most that may be requested; the load factor lowers it for CPU alone, as in EDL
        self.lines = list(self.totals)
        if self._cpu is not None:
            self.lines[self._cpu] = self.totals[self._cpu] * load_pct // 100
        self.demand = [0] * width  # what all pods request
        self.idle: dict[str, list[int]] = {}  # what is idle on each node, by name
        self._full: dict[tuple[object, frozenset[str] | None], int] = {}
        self._settle(snapshot)
        self._names = list(self.idle)

    def _settle(self, snapshot: Snapshot) -> None:
        for node in sorted(snapshot.nodes, key=lambda node: node.name):
            self.idle[node.name] = list(node.allocatable)
            self.take(node.name, node.used)
            self.ask(node.used)
        for leaving in snapshot.arriving:
            self.take(leaving.node, leaving.request)
            self.ask(leaving.request)
        for demand in snapshot.demands:
            self.ask(demand.request)

    def ask(self, request: Vector, times: int = 1) -> None:
        """Raise the demand by so many pods; a negative number lowers it."""
        for each, amount in enumerate(request):
            self.demand[each] += amount * times

    def take(self, node: str, request: Vector) -> None:
        """Take room on a node; a node that takes no pods has none that counts."""
        if (idle := self.idle.get(node)) is not None:
            for each, amount in enumerate(request):
                idle[each] -= amount

    def give(self, node: str, request: Vector) -> None:
        """Give room on a node back."""
        self.take(node, tuple(-amount for amount in request))
        self._full.clear()

    def is_over(self, resource: int) -> bool:
        """Whether more of a resource is asked for than may be requested."""
        return self.demand[resource] > self.lines[resource]

    def room(self, resource: int) -> int:
        """Give how much more of a resource may be requested."""
        return self.lines[resource] - self.demand[resource]

    def first_fit(self, request: Vector, resources: Iterable[int], nodes: frozenset[str] | None) -> str:
        """Give the first node by name with room in those resources, empty if there is none.

        Where there was no room there is none later unless some was given back: those nodes are passed over.
        """
        wanted = tuple((each, request[each]) for each in resources if request[each])
        start = self._full.get((wanted, nodes), 0)
        for place in range(start, len(self._names)):
            name = self._names[place]
            if nodes is not None and name not in nodes:
                continue
            idle = self.idle[name]
            if all(idle[each] >= amount for each, amount in wanted):
                self._full[wanted, nodes] = place
                return name
        self._full[wanted, nodes] = len(self._names)
        return ""


def position(snapshot: Snapshot, resource: str) -> int | None:
    """Give where a resource stands in the vectors, None if the snapshot does not know it."""
    return snapshot.resources.index(resource) if resource in snapshot.resources else None


def amount(request: Vector, resource: int | None) -> int:
    """Give how much of a resource is requested, 0 of an unknown one."""
    return 0 if resource is None else request[resource]


def hold_bound(tally: Tally, jobs: Iterable[Job]) -> None:
    """Take the room of the trainers that have a node; their demand is counted apart."""
    for job in jobs:
        for trainer in job.trainers:
            tally.take(trainer.node, job.trainer)


# --- one round of EDL's autoscaler ---
# Every job gets one step up, then, in reverse order, one step down, and so on. Order and fulfilment are those
# of the start of the round: that is why EDL hands out equal increments, not equal levels. Ties that EDL left
# to the iteration of a map are decided by the job's key.

Step = Callable[[Job, int], int]


@dataclass(frozen=True, kw_only=True, slots=True)
class EdlOutcome:
    """What a round came to."""

    planned: Mapping[str, int]  # trainers by job
    steps: int  # how many changes were tried


def is_elastic(job: Job) -> bool:
    """Whether a job can have more or fewer trainers."""
    return job.minimum < job.maximum


def is_pending(job: Job) -> bool:
    """Whether every trainer of a job still waits to run; true of a job without any."""
    return not job.leaving and not any(trainer.is_ready for trainer in job.trainers)


def is_running(job: Job) -> bool:
    """Whether every trainer of a job runs and none is on its way out."""
    return not job.leaving and all(trainer.is_ready for trainer in job.trainers)


def order(snapshot: Snapshot, jobs: Iterable[Job], current: Mapping[str, int]) -> list[Job]:
    """Sort jobs: least fulfilled first, then by what one trainer asks for, GPUs before CPU before memory."""
    gpu, cpu, memory = (position(snapshot, name) for name in ("nvidia.com/gpu", "cpu", "memory"))

    def place(job: Job) -> tuple[Fraction, int, int, int, str]:
        trainer = job.trainer
        asked = (amount(trainer, gpu), amount(trainer, cpu), amount(trainer, memory))
        return (_fulfilment(job, current[job.key]), *asked, job.key)

    return sorted(jobs, key=place)


def _fulfilment(job: Job, current: int) -> Fraction:
    if not is_elastic(job):
        return Fraction(1)
    return Fraction(current - job.minimum, job.maximum - job.minimum)


def walk(jobs: list[Job], current: Mapping[str, int], *, up: Step, down: Step) -> EdlOutcome:
    """Repeat passes over the jobs until one ends where it began.

    EDL repeats until nothing changes within a pass. A pass of changes that cancel out would be repeated for
    ever (a GPU given and taken back at the line): here the walk ends with it.
    """
    planned = dict(current)
    steps = 0
    for _ in range(_bound(jobs, current)):
        before = dict(planned)
        for job in jobs:
            planned[job.key] += up(job, planned[job.key])
        for job in reversed(jobs):
            planned[job.key] += down(job, planned[job.key])
        steps += 2 * len(jobs)
        if planned == before:
            break
    return EdlOutcome(planned=planned, steps=steps)


def _bound(jobs: Iterable[Job], current: Mapping[str, int]) -> int:
    """Give more passes than any walk needs: one for each trainer that could come or go, and two."""
    return 2 + sum(max(job.maximum, current[job.key]) for job in jobs)


# --- Policy `edl` ---
# Kept: the line of the load factor over sums of the whole cluster (`max_load_pct`, for CPU alone),
# one trainer a job and pass, jobs whose trainers do not all run are left alone unless a job is wholly
# pending, pods are created at once without waiting for room for their gang, nobody has priority.
#
# Mended: a planned trainer takes room on its node, and gives it back when it is planned away; growth and
# shrink obey the same line, and a job is shrunk only for a resource that it uses, so that no step is undone
# by the next; a job is never below its minimum or above its maximum; jobs that finish are left alone; what
# was decided counts, not which of the pods are to be seen yet.


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


# --- Policy `edl-v010` ---
# The faults are what makes it a baseline: room on a node grows when a trainer is planned there, room never
# comes back when one is taken away, GPUs are filled above the line at which they are taken away, jobs with
# one trainer that cannot start are left alone. Only the loop without an end is cut off. What it gives is the
# parallelism of each job; which trainers go and where new ones run is left to others, as it was.


@dataclass(frozen=True, kw_only=True, slots=True)
class _Original:
    """The steps of the original dry run over its sums."""

    tally: Tally  # the sums
    cpu: int | None  # where CPU stands in a vector, None if nowhere; likewise the others
    memory: int | None  # where memory stands
    gpu: int | None  # where GPUs stand
    gpu_line: int  # GPUs above which trainers are taken away

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
    outcome = walk(order(snapshot, _original_jobs(snapshot), current), current, up=steps.up, down=steps.down)
    decisions = {job.key: _decide_original(job, outcome.planned[job.key]) for job in snapshot.jobs}
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


def _original_jobs(snapshot: Snapshot) -> list[Job]:
    """Give the jobs that may be rescaled: those that run, but all as soon as one job is wholly pending."""
    is_somebody_waiting = any(is_pending(job) for job in snapshot.jobs if job.state != "finishing")
    return [
        job
        for job in snapshot.jobs
        if is_elastic(job) and (is_somebody_waiting or (job.state != "finishing" and is_running(job)))
    ]


def _decide_original(job: Job, target: int) -> Decision:
    was = _parallelism(job)
    if target == was:
        reason = Reason(cause="steady", text=f"parallelism stays {was}")
    else:
        reason = Reason(cause="growth" if target > was else "yield", text=f"parallelism {was} -> {target}")
    return Decision(job=job.key, target=target, is_admitted=True, hints={}, reasons=(reason,))
