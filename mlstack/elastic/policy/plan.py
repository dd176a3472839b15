"""What becomes of training jobs at one moment: a pure function of a snapshot and one of the policies."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from mlstack.elastic.policy.fair import fair, share_out
from mlstack.elastic.policy.state import Fulfilment, in_range
from mlstack.elastic.snapshot import (
    Decision,
    Job,
    PolicyConfig,
    Reason,
    ScalePlan,
    Snapshot,
    SpecSource,
    Trainer,
    Vector,
    source,
    speeds,
)
from mlstack.names import Table

Policy = Callable[[Snapshot, PolicyConfig], ScalePlan]

POLICIES: Table[Policy] = Table("scaling policy")
POLICIES.register("fair")(fair)

# Policies with known defects, kept to be measured against: for the simulator alone.
BASELINES = frozenset({"edl-v010"})


def plan(snapshot: Snapshot, config: PolicyConfig) -> ScalePlan:
    """Decide what every job of a snapshot gets.

    The time is a number in the snapshot; the same snapshot gives the same plan, in whatever order its
    parts are listed.

    Raises:
        NotFoundError: there is no policy of that name; carries the nearest known one.
    """
    policy = POLICIES.find(config.mode)
    # Garbage collection would walk all that is known of a cluster for what little a plan leaves.
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        return policy(snapshot, config)
    finally:
        if is_collecting:
            gc.enable()


# --- Policy `throughput` ---
# It is `fair`, but the next trainer goes where it brings most, for what it takes of the
# cluster. The gain of a trainer is relative, speed(n + 1) / speed(n) - 1, and counts per dominant share, the
# largest part of any resource of the cluster that one trainer takes. To give each trainer to the largest gain
# makes the sum of the logarithms of speed-ups as large as can be (proportional fairness): nobody starves, as
# the gain of a job with few trainers is large, and nobody has to know how long a job will take.

_FINE = 10**12  # gains are compared as integers, in this part of one per share
# Tenths of its gain that a move is worth: a job that is changed loses time (as in Pollux, OSDI 2021).
_RESTART_TENTHS = 9
_WITHOUT = Fraction(10**9)  # the gain of a first trainer of a job that has none: above all others


@POLICIES.register("throughput")
def throughput(snapshot: Snapshot, config: PolicyConfig) -> ScalePlan:
    """Share out by the relative gain of one more trainer per dominant share, from each job's speed curve."""
    size = range(len(snapshot.resources))
    totals = [sum(node.allocatable[resource] for node in snapshot.nodes) for resource in size]
    return share_out(snapshot, config, Gain(snapshot.jobs, totals))


class Gain:
    """Largest relative gain per dominant share first; where nothing is gained, the lowest fulfilment."""

    def __init__(self, jobs: Iterable[Job], totals: Sequence[int]) -> None:
        jobs = tuple(jobs)
        self._fulfilment = Fulfilment(jobs)
        self._gains = {
            job.key: _gains(source(job), job.weight / _dominant_share(job, totals)) for job in jobs
        }
        self._kinds = {job.key: (job.trainer, job.minimum, self._gains[job.key]) for job in jobs}
        self._scale = 1 + max([self._fulfilment.share(job, job.maximum) for job in jobs], default=0)

    def share(self, job: Job, count: int) -> int:
        """Give the gain of one more trainer as a negative number; fulfilment decides between equal ones."""
        return self._fulfilment.share(job, count) - self._gain(job, count) * self._scale

    def is_fairer(self, poor: Job, poor_count: int, rich: Job, rich_count: int) -> bool:
        """Tell whether the gain of the one is worth more than the loss of the other and the restarts.

        Between jobs that differ in nothing, policy `fair` decides: a gap of two trainers is worth a move.
        """
        if self._kinds[poor.key] == self._kinds[rich.key]:
            return self._fulfilment.is_fairer(poor, poor_count, rich, rich_count)
        return self._gain(poor, poor_count) * _RESTART_TENTHS > self._gain(rich, rich_count - 1) * 10

    def _gain(self, job: Job, count: int) -> int:
        gains = self._gains[job.key]
        return gains[count] if 0 <= count < len(gains) else 0


def _dominant_share(job: Job, totals: Sequence[int]) -> Fraction:
    """Give the largest part of any resource of the cluster that one trainer takes; 1 if it takes nothing."""
    shares = (Fraction(asked, all_) for asked, all_ in zip(job.trainer, totals, strict=True) if all_ > 0)
    return max(shares, default=Fraction(0)) or Fraction(1)


@lru_cache(maxsize=4096)
def _gains(origin: SpecSource, weight: Fraction) -> tuple[int, ...]:
    """Give what each further trainer brings, from the first on; curves and clusters change seldom."""
    times, parts = weight.numerator * _FINE, weight.denominator
    gains = [after / before - 1 if before else _WITHOUT for before, after in pairwise(speeds(origin))]
    return tuple([gain.numerator * times // (gain.denominator * parts) for gain in gains])


# --- EDL's rules, mended (`edl`) and as of v0.1.0 (`edl-v010`), over sums of the whole cluster ---
# Demand counts all pods, those without a node too: where it exceeds the total, somebody waits. Pods on their
# way out still count as used.


class Tally:
    """Sums and idle room of a snapshot, with its bound trainers, changed by a dry run."""

    def __init__(self, snapshot: Snapshot, *, load_pct: int) -> None:
        names, size = snapshot.resources, range(len(snapshot.resources))
        # Where these stand in the vectors, None if the snapshot does not know them.
        self.gpu, self.cpu, self.memory = (
            names.index(name) if name in names else None for name in ("nvidia.com/gpu", "cpu", "memory")
        )
        # Most that may be requested; the load factor lowers it for CPU alone, as in EDL.
        self.lines = [sum(node.allocatable[resource] for node in snapshot.nodes) for resource in size]
        if self.cpu is not None:
            self.lines[self.cpu] = self.lines[self.cpu] * load_pct // 100
        self.demand = [0 for _ in size]  # what all pods request; trainers of jobs are counted apart
        self.idle: dict[str, list[int]] = {}  # what is idle on each node, by name
        self._full: dict[tuple[object, frozenset[str] | None], int] = {}
        for node in sorted(snapshot.nodes, key=lambda node: node.name):
            self.idle[node.name] = list(node.allocatable)
            self.take(node.name, node.used)
            self.ask(node.used)
        for going in snapshot.arriving:
            self.take(going.node, going.request)
            self.ask(going.request)
        for demand in snapshot.demands:
            self.ask(demand.request)
        for job in snapshot.jobs:
            for trainer in job.trainers:
                self.take(trainer.node, job.trainer)
        self._names = list(self.idle)

    def ask(self, request: Vector, times: int = 1) -> None:
        """Raise the demand by so many pods; a negative number lowers it."""
        for resource, amount in enumerate(request):
            self.demand[resource] += amount * times

    def take(self, node: str, request: Vector) -> None:
        """Take room on a node; a node that takes no pods has none that counts."""
        if (idle := self.idle.get(node)) is not None:
            for resource, amount in enumerate(request):
                idle[resource] -= amount

    def give(self, node: str, request: Vector) -> None:
        """Give room on a node back."""
        self.take(node, tuple(-amount for amount in request))
        self._full.clear()

    def room(self, resource: int) -> int:
        """Give how much more of a resource may be requested, less than 0 where it is too much already."""
        return self.lines[resource] - self.demand[resource]

    def first_fit(self, request: Vector, resources: Iterable[int], nodes: frozenset[str] | None) -> str:
        """Give the first node by name with room, empty if none; where there was none is none later."""
        asked = tuple((resource, request[resource]) for resource in resources if request[resource])
        place = self._full.get((asked, nodes), 0)
        for name in self._names[place:]:
            idle, may_go = self.idle[name], nodes is None or name in nodes
            if may_go and all(idle[resource] >= amount for resource, amount in asked):
                break
            place += 1
        self._full[asked, nodes] = place
        return self._names[place] if place < len(self._names) else ""


# --- one round of EDL's autoscaler ---
# Every job gets one step up, then, in reverse order, one step down, and so on. Order and fulfilment are those
# of the start of the round: that is why EDL hands out equal increments, not equal levels. Ties that EDL left
# to the iteration of a map are decided by the job's key.

Step = Callable[[Job, int], int]


def taking_part(jobs: Sequence[Job], *, is_whole: bool) -> list[Job]:
    """Give the jobs to rescale: those that run (with all trainers: `is_whole`), or all if one is pending."""
    is_somebody_waiting, running = False, set()
    for job in jobs:
        ready = [trainer.is_ready for trainer in job.trainers]
        if job.state != "finishing" and not job.leaving:
            is_somebody_waiting |= not any(ready)
            if all(ready) and (not is_whole or len(ready) == job.target):
                running.add(job.key)
    return [job for job in jobs if job.minimum < job.maximum and (is_somebody_waiting or job.key in running)]


def walk(
    tally: Tally, jobs: Iterable[Job], current: Mapping[str, int], *, up: Step, down: Step
) -> tuple[dict[str, int], int]:
    """Repeat passes over the jobs until one ends where it began; give trainers by job, and the steps.

    The least fulfilled job comes first, then the one whose trainers ask for least: GPUs, CPU, memory. Where
    changes cancel out (a GPU given and taken back at the line) EDL repeats its pass for ever.
    """

    def rank(job: Job) -> tuple[Fraction, list[int], str]:
        fulfilment = Fraction(current[job.key] - job.minimum, job.maximum - job.minimum)
        places = (tally.gpu, tally.cpu, tally.memory)
        return fulfilment, [0 if place is None else job.trainer[place] for place in places], job.key

    ordered = sorted(jobs, key=rank)
    planned, steps = dict(current), 0
    # More passes than any walk needs: one for each trainer that could come or go, and two.
    for _ in range(2 + sum(max(job.maximum, current[job.key]) for job in ordered)):
        before = dict(planned)
        for job in ordered:
            planned[job.key] += up(job, planned[job.key])
        for job in reversed(ordered):
            planned[job.key] += down(job, planned[job.key])
        steps += 2 * len(ordered)
        if planned == before:
            break
    return planned, steps


# --- Policy `edl` ---
# Kept: the line of the load factor over sums of the whole cluster (`max_load_pct`, for CPU alone),
# one trainer a job and pass, jobs whose trainers do not all run are left alone unless a job is wholly
# pending, pods are created at once without waiting for room for their gang, nobody has priority.
#
# Mended: a planned trainer takes room on its node, and gives it back when it is planned away; growth and
# shrink obey the same line, and a job is shrunk only for a resource that it uses, so that no step is undone
# by the next; a job is never below its minimum or above its maximum; jobs that finish are left alone; what
# was decided counts, not which of the pods are to be seen yet.


class _Mended(Tally):
    def __init__(self, snapshot: Snapshot, *, load_pct: int) -> None:
        super().__init__(snapshot, load_pct=load_pct)
        # the nodes of the trainers that it planned, by job
        self.nodes: dict[str, list[str]] = {job.key: [] for job in snapshot.jobs}

    def down(self, job: Job, planned: int) -> int:
        """Give -1 while too much is asked for of something that the job uses."""
        is_over = any(amount and self.room(resource) < 0 for resource, amount in enumerate(job.trainer))
        if planned <= job.minimum or not is_over:
            return 0
        if self.nodes[job.key]:
            self.give(self.nodes[job.key].pop(), job.trainer)
        self.ask(job.trainer, -1)
        return -1

    def up(self, job: Job, planned: int) -> int:
        """Give 1 when the line and a node have room for one more trainer."""
        for resource, amount in enumerate(job.trainer):
            # EDL never asks for the last byte.
            if amount and self.room(resource) < amount + (resource == self.memory):
                return 0
        every = range(len(job.trainer))
        node = "" if planned >= job.maximum else self.first_fit(job.trainer, every, job.nodes)
        if not node:
            return 0
        self.take(node, job.trainer)
        self.ask(job.trainer)
        self.nodes[job.key].append(node)
        return 1


@POLICIES.register("edl")
def edl(snapshot: Snapshot, config: PolicyConfig) -> ScalePlan:
    """Decide by EDL's rules, mended; a job that was given up takes no part until its time has come."""
    off = {}
    for job in snapshot.jobs:
        if job.state == "waiting" and job.not_before_ms > snapshot.now_ms:
            reason = Reason(cause="waiting", text="it waits until its next try")
            if job.refused:
                reason = Reason(cause="refused", text=job.refused)
            off[job.key] = Decision(job=job.key, target=0, is_admitted=False, hints={}, reasons=(reason,))
    jobs = tuple(job for job in snapshot.jobs if job.key not in off)
    current = {job.key: in_range(job, job.target) for job in jobs}
    # Every job counts with what was decided for it, its gang included when it starts now.
    run = _Mended(replace(snapshot, jobs=jobs), load_pct=config.max_load_pct)
    for job in jobs:
        run.ask(job.trainer, len(job.trainers) if job.state == "finishing" else current[job.key])
        for role in job.gang if job.state == "waiting" else ():
            run.ask(role.request, role.count)
    active = [job for job in jobs if job.state != "finishing"]
    scaled = taking_part(active, is_whole=True)
    planned, steps = walk(run, scaled, current, up=run.up, down=run.down)
    decisions = {job.key: _decide(job, planned[job.key], run.nodes[job.key]) for job in jobs}
    return ScalePlan(decisions={**decisions, **off}, steps=steps)


def _decide(job: Job, target: int, nodes: list[str]) -> Decision:
    if job.state == "finishing":
        reason = Reason(cause="finishing", text="a trainer found no more work")
        return Decision(job=job.key, target=target, is_admitted=True, hints={}, reasons=(reason,))

    def keep(trainer: Trainer) -> tuple[bool, bool, bool, int, int, str]:
        """Rank who goes: without a node first, then not ready, then the youngest; last the meeting point."""
        age = (-trainer.created_ms, -trainer.index, trainer.name)
        return (trainer.is_meeting, bool(trainer.node), trainer.is_ready, *age)

    missing = target - len(job.trainers)
    victims = sorted(job.trainers, key=keep)[: max(0, -missing)]
    unplanned = max(0, missing - len(nodes))
    return Decision(
        job=job.key,
        target=target,
        is_admitted=True,
        victims=tuple(trainer.name for trainer in victims),
        places=(*[""] * unplanned, *nodes[: max(0, missing)]),
        hints={},
        reasons=(_reason(job, target),),
    )


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


class _Original(Tally):
    def __init__(self, snapshot: Snapshot, *, load_pct: int) -> None:
        super().__init__(snapshot, load_pct=load_pct)
        # GPUs above which trainers are taken away
        self._gpu_line = 0 if self.gpu is None else self.lines[self.gpu] * load_pct // 100

    def down(self, job: Job, planned: int) -> int:
        """Give -1 or 0: the test is about the cluster, not about what this job uses."""
        is_crowded = self.gpu is not None and self.demand[self.gpu] > self._gpu_line
        is_crowded = is_crowded or (self.cpu is not None and self.room(self.cpu) < 0)
        if planned > job.maximum or (is_crowded and planned > job.minimum):
            self.ask(job.trainer, -1)
            return -1
        return 0

    def up(self, job: Job, planned: int) -> int:
        """Give 1 or 0, or at once all that is above the maximum as a negative number."""
        step = job.maximum - planned
        if step > 0:
            counted = [resource for resource in (self.cpu, self.memory) if resource is not None]
            node = self.first_fit(job.trainer, counted, None)
            step = int(bool(node) and self._has_room(job))
            if step:
                self.give(node, job.trainer)  # the fault: what it takes is added to what is idle
        self.ask(job.trainer, step)
        return step

    def _has_room(self, job: Job) -> bool:
        if self.memory is not None and self.room(self.memory) <= job.trainer[self.memory]:
            return False
        if self.cpu is not None and self.room(self.cpu) < job.trainer[self.cpu]:
            return False
        devices = 0 if self.gpu is None else job.trainer[self.gpu]
        return self.gpu is None or not devices or self.room(self.gpu) >= devices


@POLICIES.register("edl-v010")
def edl_v010(snapshot: Snapshot, config: PolicyConfig) -> ScalePlan:
    """Decide as EDL v0.1.0 did: targets alone, no victims, no nodes, no gangs."""
    run = _Original(snapshot, load_pct=config.max_load_pct)
    # What stands in the job's Job object: EDL creates it with the minimum, at once.
    current = {job.key: job.minimum if job.state == "waiting" else job.target for job in snapshot.jobs}
    for job in snapshot.jobs:
        run.ask(job.trainer, len(job.trainers))
    planned, steps = walk(run, taking_part(snapshot.jobs, is_whole=False), current, up=run.up, down=run.down)
    decisions = {}
    for key, was in current.items():
        reason = Reason(cause="steady", text=f"parallelism stays {was}")
        if (target := planned[key]) != was:
            text = f"parallelism {was} -> {target}"
            reason = Reason(cause="growth" if target > was else "yield", text=text)
        decisions[key] = Decision(job=key, target=target, is_admitted=True, hints={}, reasons=(reason,))
    return ScalePlan(decisions=decisions, steps=steps)
