"""What becomes of training jobs at one moment: a pure function of a snapshot and one of the policies."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from mlstack.elastic.policy import sharing
from mlstack.elastic.policy.state import (
    ClusterState,
    Fulfilment,
    Gain,
    JobState,
    Scoring,
    TrainerSlot,
    fits,
    in_range,
    needs,
    sparse,
    total,
)
from mlstack.elastic.snapshot import (
    Decision,
    Job,
    NodeNames,
    PolicyConfig,
    Reason,
    Reservation,
    ScaleCause,
    ScalePlan,
    Snapshot,
    Trainer,
    Vector,
    minus,
)
from mlstack.names import Table
from mlstack.objects import resources

ScalingPolicy = Callable[[Snapshot, PolicyConfig], ScalePlan]

POLICIES: Table[ScalingPolicy] = Table("scaling policy")

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


# --- policies that share out room, `fair` by how much of its range each job has, `throughput` by its gain ---


@POLICIES.register("fair")
def fair(snapshot: Snapshot, config: PolicyConfig) -> ScalePlan:
    """Share out by how much of its range every job has: whole gangs first, moved a little at a time."""
    return share_out(snapshot, config, Fulfilment(snapshot.jobs))


def share_out(snapshot: Snapshot, config: PolicyConfig, scoring: Scoring) -> ScalePlan:
    """Serve demands, gangs and minima, then fill free room and even out as `scoring` ranks the jobs.

    A round may leave room to what came before it: rounds follow until one changes nothing.
    """
    # How many trainers may still be moved for fairness within the window that ends now.
    since_ms = snapshot.now_ms - config.moves_window_ms
    budget = max(0, config.moves - sum(moved_ms > since_ms for moved_ms in snapshot.moves_ms))
    cluster = ClusterState(snapshot, scoring, budget)
    sharing.place_unbound(cluster, stuck_ms=config.stuck_ms)
    for state in cluster.states.values():
        if state.job.state == "admitted" and (excess := state.count - state.job.maximum) > 0:
            slots = sorted(state.slots, key=lambda slot: (slot.is_rendezvous, slot.eviction_order))
            for slot in slots[:excess]:
                cluster.evict(slot, "bounds")
    demands, admission = sharing.Demands(cluster), sharing.Admission(cluster, backfill_ms=config.backfill_ms)
    headroom = sharing.Headroom(cluster, config.headroom_pct)
    balance = sharing.Balance(cluster, headroom, budget)
    steps = -1
    while steps != cluster.steps:
        steps = cluster.steps
        admission.serve(demands.serve())
        headroom.restore()
        sharing.grow(cluster, headroom)
        balance.even_out()
    sharing.restore_rendezvous(cluster)
    return scale_plan(cluster)


@POLICIES.register("throughput")
def throughput(snapshot: Snapshot, config: PolicyConfig) -> ScalePlan:
    """Share out by the relative gain of one more trainer per dominant share, from each job's speed curve."""
    totals = total([node.allocatable for node in snapshot.nodes], len(snapshot.resources))
    return share_out(snapshot, config, Gain(snapshot.jobs, totals))


# --- the cluster state becomes a plan: for each job a target, its victims and places, and why ---


def scale_plan(cluster: ClusterState) -> ScalePlan:
    """Give the plan that the state holds."""
    for state in cluster.states.values():
        # A trainer stays where it is instead of a new one on the same node; where the new one is to be the
        # one at which the others meet, the old one will not do.
        for row in [] if state.job.lacks_rendezvous else list(state.gone):
            old = row[0]
            new = next((slot for slot in state.slots if slot.is_planned and slot.node is old.node), None)
            if old.node is not None and new is not None:
                state.gone.remove(row)
                state.slots[state.slots.index(new)] = old
    reserved = sorted(cluster.reservations.values(), key=lambda row: (row[2], row[0].name))
    return ScalePlan(
        decisions={key: _decide(cluster, state) for key, state in cluster.states.items()},
        reservations=tuple(
            Reservation(node=node.name, request=request, key=key) for node, request, key, _ in reserved
        ),
        unplaced=tuple(cluster.unplaced[key] for key in sorted(cluster.unplaced)),
        moves=sum(cause == "fairness" for state in cluster.states.values() for _, cause, _ in state.gone),
        steps=cluster.steps,
    )


def _decide(cluster: ClusterState, state: JobState) -> Decision:
    planned = sorted((slot for slot in state.slots if slot.is_planned), key=_place)
    gone = sorted((slot for slot, _, _ in state.gone), key=lambda slot: slot.eviction_order)
    is_ending = state.job.state == "finishing"
    unseated = () if is_ending else sorted(trainer.name for trainer in state.unbound)
    moves = [cause for _, cause, _ in state.gone] + [slot.cause for slot in planned]
    waiting = {slot.trainer.name: _place(slot) for slot in state.slots if slot.trainer and not slot.is_bound}
    target = state.count if state.is_admitted else 0
    return Decision(
        job=state.job.key,
        target=in_range(state.job, state.job.target) if is_ending else target,
        is_admitted=state.is_admitted,
        victims=(*unseated, *(slot.trainer.name for slot in gone if slot.trainer is not None)),
        places=tuple(_place(slot) for slot in planned),
        waiting=waiting,
        hints={name: tuple(node_names) for name, node_names in sorted(state.hints.items())},
        moves=moves.count("fairness"),
        withheld=state.withheld,
        reasons=_reasons(cluster, state),
    )


def _place(slot: TrainerSlot) -> str:
    return slot.node.name if slot.node is not None else ""


# --- decisions in words: one line each, with numbers and names ---

# The weightiest first.
_ORDER: tuple[ScaleCause, ...] = (
    *("suspended", "lost", "refused", "waiting", "admitted", "minimum", "stuck", "bounds"),
    *("yield", "gang", "fairness", "growth", "finishing", "steady"),
)
_NAMED = 3


def _reasons(cluster: ClusterState, state: JobState) -> tuple[Reason, ...]:
    """Say why a job gets what it gets, the weightiest reason first."""
    job, notes = state.job, list(state.notes)
    if not state.is_admitted:
        if state.is_held_off and job.refused and not notes:
            notes.append(("refused", job.refused))
        elif not notes:
            notes.append(("waiting", _waiting(cluster, state)))
    elif job.state == "finishing":
        notes.append(("finishing", f"keeps {_count(state.count, 'trainer')} until it ends"))
    else:
        notes += _gains(state) + _losses(state)
        stays = f"stays at {_count(state.count, 'trainer')}"
        if not notes and state.count >= job.maximum and job.refused:
            notes.append(("refused", f"{stays}: {job.refused}"))
        elif not notes:
            notes.append(("steady", f"{stays}{_why_no_more(state, cluster.snapshot.now_ms)}"))
    reasons = [Reason(cause=cause, text=text) for cause, text in notes]
    return tuple(sorted(reasons, key=lambda reason: _ORDER.index(reason.cause)))


def _why_no_more(state: JobState, now_ms: int) -> str:
    job, why = state.job, "no room for more"
    if state.count >= job.maximum:
        return ", its maximum"
    if state.withheld:
        why = "trainers failed, and are replaced after a pause"
    elif sharing.is_cooling(state, now_ms):
        why = f"changed within the last {job.cooldown_ms // 1000} s"
    return f" of {job.minimum} to {job.maximum}: {why}"


def _gains(state: JobState) -> list[tuple[ScaleCause, str]]:
    job, gains = state.job, Counter(slot.cause for slot in state.slots if slot.is_planned)
    now = f"{_count(state.count, 'trainer')} of {job.minimum} to {job.maximum}"
    gang = [*(_count(role.count, role.name) for role in job.gang), _count(job.minimum, "trainer")]
    # What it is told to have already, it only gets back.
    growth = f"gets {gains['growth']} back" if state.count <= job.target else f"grows by {gains['growth']}"
    texts: dict[ScaleCause, str] = {
        "admitted": f"room for its gang of {_list(gang)}",
        "minimum": f"gets {gains['minimum']} back to its minimum of {job.minimum}",
        "growth": f"{growth} to {now} in free room",
        "fairness": f"gets {gains['fairness']} of richer jobs, to {now}",
    }
    gains["admitted"] += job.state == "waiting"
    return [(cause, text) for cause, text in texts.items() if gains[cause]]


def _losses(state: JobState) -> list[tuple[ScaleCause, str]]:
    losses: list[tuple[ScaleCause, str]] = []
    for cause in dict.fromkeys(cause for _, cause, _ in state.gone if cause != "stuck"):
        names = [name for _, other, name in state.gone if other == cause]
        takers = Counter("its own gang" if name == state.job.key else name for name in names)
        favour = f" for {_names(takers)}" if any(takers) else f" above its maximum of {state.job.maximum}"
        losses.append((cause, f"gives up {len(names)} of its trainers{favour}"))
    if state.unbound:
        text = f"withdraws {len(state.unbound)} that wait for a node: their room went to others"
        losses.append(("yield", text))
    return losses


def _waiting(cluster: ClusterState, state: JobState) -> str:
    """Say what a gang waits for: its next try, what nothing will bring, else what is short."""
    if state.is_held_off:
        return "it waits until its next try"
    nodes = cluster.nodes_of(state.job.nodes)
    if not nodes:
        return "no node takes its trainers: node selector, affinity or taints"
    names = cluster.snapshot.resources
    size = range(len(names))
    for need in needs(state, cluster.whole):
        if not any(fits(node.allocatable, sparse(need.request)) for node in nodes):
            most = [max(node.allocatable[at] for node in nodes) for at in size]
            text = _amounts(names, need.request, most)
            return f"no node is large enough for one {need.name} of {text}"
    row, key = cluster.unplaced.get(state.job.key), ("free in all", state.job.nodes)
    if key not in cluster.searches:
        cluster.searches[key] = [sum(node.later[at] for node in nodes) for at in size]
    amounts = _amounts(names, row.missing, cluster.searches[key]) if row else "any pod"
    return f"no room for {amounts} of its gang"


def _amounts(names: Sequence[str], amounts: Vector, room: Sequence[int]) -> str:
    """Write the amounts that are too much for the room; where each would do alone, all of them."""
    asked = [resource for resource in range(len(names)) if amounts[resource]]
    short = [resource for resource in asked if amounts[resource] > room[resource]]
    together = [resource for resource in asked if names[resource] != "pods"]
    texts = [(names[at], resources.written(names[at], amounts[at])) for at in short or together or asked]
    return ", ".join(text if resources.is_host_port(name) else f"{text} {name}" for name, text in texts)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _names(whom: Counter[str]) -> str:
    if len(whom) == 1:
        return next(iter(whom))
    ordered = [name if number == 1 else f"{name} ({number})" for name, number in sorted(whom.items())]
    more = len(ordered) - _NAMED
    return _list([*ordered[:_NAMED], f"{more} more"] if more > 0 else ordered)


def _list(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


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
        self.lines = list(total([node.allocatable for node in snapshot.nodes], len(size)))
        if self.cpu is not None:
            self.lines[self.cpu] = self.lines[self.cpu] * load_pct // 100
        self.demand = [0 for _ in size]  # what all pods request; trainers of jobs are counted apart
        self.idle: dict[str, list[int]] = {}  # what is idle on each node, by name
        self._full: dict[tuple[object, NodeNames], int] = {}
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
            idle[:] = minus(idle, request)

    def give(self, node: str, request: Vector) -> None:
        """Give room on a node back."""
        self.take(node, tuple(-amount for amount in request))
        self._full.clear()

    def room(self, resource: int) -> int:
        """Give how much more of a resource may be requested, less than 0 where it is too much already."""
        return self.lines[resource] - self.demand[resource]

    def first_fit(self, request: Vector, resources: Iterable[int], nodes: NodeNames) -> str:
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


def rescaled_jobs(jobs: Sequence[Job], *, is_whole: bool) -> list[Job]:
    """Give the jobs to rescale: those that run (with all trainers: `is_whole`), or all if one is pending."""
    is_somebody_waiting, running = False, set()
    for job in jobs:
        ready = [trainer.is_ready for trainer in job.trainers]
        if job.state != "finishing" and not job.leaving:
            is_somebody_waiting |= not any(ready)
            if all(ready) and (not is_whole or len(ready) == job.target):
                running.add(job.key)
    return [job for job in jobs if job.minimum < job.maximum and (is_somebody_waiting or job.key in running)]


def passes(
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
    scaled = rescaled_jobs(active, is_whole=True)
    planned, steps = passes(run, scaled, current, up=run.up, down=run.down)
    decisions = {job.key: _edl_decision(job, planned[job.key], run.nodes[job.key]) for job in jobs}
    return ScalePlan(decisions={**decisions, **off}, steps=steps)


def _edl_decision(job: Job, target: int, nodes: list[str]) -> Decision:
    if job.state == "finishing":
        reason = Reason(cause="finishing", text="a trainer found no more work")
        return Decision(job=job.key, target=target, is_admitted=True, hints={}, reasons=(reason,))

    def keep(trainer: Trainer) -> tuple[bool, bool, bool, int, int, str]:
        """Rank who goes: without a node first, then not ready, then the youngest; last the rendezvous."""
        age = (-trainer.created_ms, -trainer.index, trainer.name)
        return (trainer.is_rendezvous, bool(trainer.node), trainer.is_ready, *age)

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
        reasons=(_edl_reason(job, target),),
    )


def _edl_reason(job: Job, target: int) -> Reason:
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
    scaled = rescaled_jobs(snapshot.jobs, is_whole=False)
    planned, steps = passes(run, scaled, current, up=run.up, down=run.down)
    decisions = {}
    for key, was in current.items():
        reason = Reason(cause="steady", text=f"parallelism stays {was}")
        if (target := planned[key]) != was:
            text = f"parallelism {was} -> {target}"
            reason = Reason(cause="growth" if target > was else "yield", text=text)
        decisions[key] = Decision(job=key, target=target, is_admitted=True, hints={}, reasons=(reason,))
    return ScalePlan(decisions=decisions, steps=steps)
