"""A snapshot as a plan changes it: nodes, jobs and trainers, what jobs lack, and how well off they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from math import lcm
from operator import add
from typing import Any, NamedTuple

from mlstack.elastic.snapshot import (
    Job,
    Node,
    NodeNames,
    ScaleCause,
    Snapshot,
    SpecSource,
    Trainer,
    Unplaced,
    Vector,
    minus,
    source,
    speeds,
)

# --- arithmetic with requests: what fits, how often, and how much is left, in integers ---

Sparse = tuple[tuple[int, int], ...]  # of a vector: resource and amount, without the zeros
EvictionOrder = tuple[int, int, int, int, str]
Reserved = tuple["NodeInfo", Vector, str, str]  # where, how much, its key, the key of its job

# Left-overs of different resources are compared as parts of a reference amount, in these units: a resource
# counted in other units then changes no decision.
WHOLE = 10**9


def sparse(request: Vector) -> Sparse:
    """Give what a request really asks for."""
    return tuple((resource, amount) for resource, amount in enumerate(request) if amount > 0)


def fits(room: Sequence[int], amounts: Iterable[tuple[int, int]]) -> bool:
    """Tell whether a request fits into a room."""
    for resource, amount in amounts:  # noqa: SIM110  # asked thousands of times a plan: half the time of all()
        if room[resource] < amount:
            return False
    return True


def count(room: Sequence[int], amounts: Sparse) -> int:
    """Give how many such pods fit into a room; one that requests nothing fits any number of times."""
    most = 1 << 20
    for resource, amount in amounts:
        times = room[resource] // amount
        if times < most:
            most = times
    return most if most > 0 else 0


def total(vectors: Iterable[Vector], size: int) -> Vector:
    """Give the sum of vectors of that size."""
    return tuple(map(sum, zip([0] * size, *vectors, strict=True)))


def dominant(request: Sparse, whole: Sequence[int]) -> int:
    """Give the largest share that a request takes of a reference amount of any resource."""
    return max((amount * WHOLE // whole[resource] for resource, amount in request), default=0)


def is_within(small: Sparse, large: Sparse) -> bool:
    """Tell whether a request asks for no more than another one of anything."""
    asked = dict(large)
    return all(amount <= asked.get(resource, 0) for resource, amount in small)


# --- nodes, jobs and trainers as they stand while a plan is made ---


class NodeInfo:
    """A node with its room."""

    def __init__(self, index: int, node: Node) -> None:
        self.index = index  # its rank by name
        self.name = node.name
        self.allocatable = node.allocatable
        # the resources that device plug-ins brought to it, and how much of each
        self.devices = sparse(node.devices)
        # room at this moment; what goes in this plan does not count, what comes does
        self.now = list(minus(node.allocatable, node.used))
        self.later = list(self.now)  # room when everything on its way out, by this plan too, is gone
        self.lifted = list(self.now)  # `later` as if no trainer were there
        self.states: dict[JobState, list[TrainerSlot]] = {}  # the jobs that have trainers on it, with these
        self.unbound = 0  # how many of these are not bound to it yet


class TrainerSlot:
    """A trainer, live or planned, with its place."""

    def __init__(
        self, state: JobState, node: NodeInfo | None, trainer: Trainer | None, cause: ScaleCause
    ) -> None:
        self.state = state  # whose it is
        self.node = node  # where it is or is to go; None for a node that takes no pods any more, or none yet
        self.trainer = trainer  # the live pod
        self.cause = cause  # why it was planned
        self.is_planned = trainer is None  # no pod is there yet
        self.is_bound = trainer is not None and bool(trainer.node)  # a pod runs: losing it costs work
        self.is_rendezvous = trainer is not None and trainer.is_rendezvous  # it stays while the job does

    @cached_property
    def eviction_order(self) -> EvictionOrder:
        """Rank it among its job's that go: planned, unbound, unready, young ones first, then high indexes."""
        if self.trainer is None:
            return (0, 0, 0, 0, self.node.name if self.node else "")
        rank = 1 if not self.trainer.node else 2 if self.node is None else 3
        age = (-self.trainer.created_ms, -self.trainer.index, self.trainer.name)
        return (rank, int(self.trainer.is_ready), *age)


class JobState:
    """A job with the trainers that it has and gets."""

    def __init__(self, job: Job, now_ms: int) -> None:
        self.job = job
        self.amounts: Sparse = sparse(job.trainer)  # what one trainer requests
        self.slots: list[TrainerSlot] = []  # its trainers, live and planned
        self.bound = 0  # how many of them are bound to a node
        self.unbound: list[Trainer] = []  # live trainers for which neither node nor plan has a place
        self.gone: list[tuple[TrainerSlot, ScaleCause, str]] = []  # bound ones taken: the cause, and for whom
        self.is_admitted = job.state != "waiting"  # whether it has pods
        self.share = 0  # how well off it is
        self.surplus = 0  # how many trainers it can lose without falling below its minimum
        self.hints: dict[str, list[str]] = {}  # nodes for its gang, if it was admitted by this plan
        self.withheld = 0  # how many failed trainers it gets no others for
        self.is_withdrawn = False  # whether trainers were withdrawn because they found no node
        self.is_held_off = job.state == "waiting" and job.not_before_ms > now_ms  # too early to admit it
        self.bars = frozenset(node for node, until in job.barred.items() if until > now_ms)
        self.notes: list[tuple[ScaleCause, str]] = []  # what else is to be told about it

    @property
    def count(self) -> int:
        """Give how many trainers it has if the plan is carried out."""
        return len(self.slots)

    @property
    def short(self) -> int:
        """Give how many trainers it lacks; without any it is not admitted."""
        return (self.job.minimum if self.is_admitted else max(1, self.job.minimum)) - self.count

    @property
    def is_settled(self) -> bool:
        """Tell whether it may neither gain nor lose: it waits or is about to end."""
        return not self.is_admitted or self.job.state == "finishing"


def in_range(job: Job, count: int) -> int:
    """Give the number of trainers nearest to `count` that a job may be told to have."""
    return min(max(count, job.minimum), job.maximum)


# --- who gets the next trainer: the one thing in which policies that share out free room differ ---
# Shares are integers that only compare with each other: the lowest gets the next trainer.


class Fulfilment:
    """Equal shares of what jobs can use: (count - minimum) / (maximum - minimum) / weight."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        ranges = {job.key: max(1, (job.maximum - job.minimum) * job.weight) for job in jobs}
        common = lcm(*ranges.values())
        self._steps = {key: common // size for key, size in ranges.items()}

    def share(self, job: Job, count: int) -> int:
        """Give the part of its range that a job has by so many trainers."""
        return (count - job.minimum) * self._steps[job.key]

    def is_fairer(self, poor: Job, poor_count: int, rich: Job, rich_count: int) -> bool:
        """Tell whether the poorer one is still not the richer one after the move."""
        return self.share(poor, poor_count + 1) <= self.share(rich, rich_count - 1)


# In policy `throughput` the next trainer goes where it brings most, for what it takes of the cluster. The
# gain of a trainer is relative, speed(n + 1) / speed(n) - 1, and counts per dominant share, the largest part
# of any resource of the cluster that one trainer takes. To give each trainer to the largest gain makes the
# sum of the logarithms of speed-ups as large as can be (proportional fairness): nobody starves, as the gain
# of a job with few trainers is large, and nobody has to know how long a job will take.

_FINE = 10**12  # gains are compared as integers, in this part of one per share
# Tenths of its gain that a move is worth: a job that is changed loses time (as in Pollux, OSDI 2021).
_RESTART_TENTHS = 9
_WITHOUT = Fraction(10**9)  # the gain of a first trainer of a job that has none: above all others


class Gain:
    """Largest relative gain per dominant share first; where nothing is gained, the lowest fulfilment."""

    def __init__(self, jobs: Iterable[Job], totals: Sequence[int]) -> None:
        jobs = tuple(jobs)
        self._fulfilment = Fulfilment(jobs)
        self._gains: dict[str, tuple[int, ...]] = {}
        for job in jobs:
            amounts = zip(job.trainer, totals, strict=True)
            share = max((Fraction(asked, all_) for asked, all_ in amounts if all_), default=Fraction(0))
            self._gains[job.key] = _gains(source(job), job.weight / (share or Fraction(1)))
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


@lru_cache(maxsize=4096)
def _gains(origin: SpecSource, weight: Fraction) -> tuple[int, ...]:
    """Give what each further trainer brings, from the first on; curves and clusters change seldom."""
    times, parts = weight.numerator * _FINE, weight.denominator
    gains = [after / before - 1 if before else _WITHOUT for before, after in pairwise(speeds(origin))]
    return tuple([gain.numerator * times // (gain.denominator * parts) for gain in gains])


Scoring = Fulfilment | Gain

# --- the state of one plan ---
# Every change is noted, so that an attempt that fails is taken back whole; and every node counts its changes,
# so that a search which sorted the nodes once looks only at those that changed since.


class ClusterState:
    """Room and trainers of a snapshot, and every change that a plan makes to them."""

    def __init__(self, snapshot: Snapshot, scoring: Scoring, swaps: int) -> None:
        self.snapshot = snapshot
        self.scoring = scoring
        nodes = sorted(snapshot.nodes, key=lambda node: node.name)
        self.nodes = [NodeInfo(index, node) for index, node in enumerate(nodes)]  # by name
        self.by_name = {node.name: node for node in self.nodes}
        jobs = sorted(snapshot.jobs, key=lambda job: job.key)
        self.states = {job.key: JobState(job, snapshot.now_ms) for job in jobs}  # by key
        self.reservations: dict[int, Reserved] = {}
        self.unplaced: dict[str, Unplaced] = {}  # what found no place so far, by key
        self.log: list[int] = []  # indexes of the nodes that changed, in order of the changes
        self.changed: list[JobState] = []  # the jobs that changed, in order of the changes
        # How often something was taken back, or jobs may have gained trainers: to take some may cost less.
        self.epoch = 0
        self.searches: dict[Hashable, Any] = {}  # what searches found out, for the next ones
        # The largest amount that any node has of each resource.
        size = range(len(snapshot.resources))
        self.whole = [max([1, *(node.allocatable[resource] for node in self.nodes)]) for resource in size]
        # the requests that may come for free room, without those that are larger than another one
        asked = {state.amounts for state in self.states.values()}
        asked |= {sparse(demand.request) for demand in snapshot.demands}
        kinds = sorted(asked, key=lambda kind: (len(kind), kind))
        self.shapes = [a for a in kinds if not any(is_within(b, a) for b in kinds if b != a)]
        self._undo: list[Callable[[], None]] = []
        self._numbers = 0
        # No plan needs so many changes: each trainer and pod comes and goes twice at most.
        trainers = sum(max(job.maximum, len(job.trainers)) for job in jobs)
        servers = sum(len(job.held) + sum(role.count for role in job.gang) + 2 for job in jobs)
        pods = trainers + servers + len(snapshot.demands)
        self._most = 4 * pods + 2 * min(swaps, trainers * (len(jobs) + 1))
        self._enter()

    def _enter(self) -> None:
        """Take the room of what goes, and put all bound trainers where they are."""
        for going in self.snapshot.arriving:
            if (node := self.by_name.get(going.node)) is not None:
                node.now = list(minus(node.now, going.request))
        for state in self.states.values():
            for trainer in state.job.trainers:
                if trainer.node:
                    self._add(TrainerSlot(state, self.by_name.get(trainer.node), trainer, "steady"))
            self._update(state)

    def _shift(self, node: NodeInfo, amounts: Sparse, sign: int, *rooms: list[int]) -> None:
        """Add to rooms of a node (1), or take from them (-1)."""
        for room in rooms:
            for resource, amount in amounts:
                room[resource] += sign * amount
        self.log.append(node.index)

    def _update(self, state: JobState) -> None:
        """Note that a job has other trainers, or other rights to them."""
        count = len(state.slots)
        state.share = self.scoring.share(state.job, count)
        state.surplus = 0 if state.is_settled else max(0, count - state.job.minimum)
        self.changed.append(state)

    # --- changes that can be taken back ---

    @property
    def steps(self) -> int:
        """Give how many changes were made and kept so far."""
        return len(self._undo)

    def _note(self, undo: Callable[[], None]) -> None:
        self._undo.append(undo)
        if len(self._undo) > self._most:
            raise RuntimeError(f"a plan took more than {self._most} steps, which no plan needs")

    def rollback(self, mark: int) -> None:
        """Take back every change since there were `mark` steps."""
        while len(self._undo) > mark:
            self._undo.pop()()
        self.epoch += 1

    def reserve(self, node: NodeInfo, request: Vector, key: str, *, owner: str = "") -> None:
        """Keep room for a pod that is no trainer; `owner` is the job it belongs to."""
        number = self._numbers = self._numbers + 1
        self._reserve(number, (node, request, key, owner))
        self._note(partial(self._unreserve, number))

    def _reserve(self, number: int, row: Reserved) -> None:
        self.reservations[number] = row
        node = row[0]
        self._shift(node, sparse(row[1]), -1, node.now, node.later, node.lifted)

    def _unreserve(self, number: int) -> None:
        node, request, _, _ = self.reservations.pop(number)
        self._shift(node, sparse(request), 1, node.now, node.later, node.lifted)

    def add(self, state: JobState, node: NodeInfo, cause: ScaleCause) -> None:
        """Give a job a trainer at a node: one that waits for a node if there is any, else a new one."""
        trainer = state.unbound.pop(0) if state.unbound else None
        slot = TrainerSlot(state, node, trainer, cause)
        self._add(slot)

        def undo() -> None:
            self._remove(slot)
            if trainer is not None:
                state.unbound.insert(0, trainer)

        self._note(undo)

    def _add(self, slot: TrainerSlot, *, is_back: bool = False) -> None:
        """Put a trainer on its node; the room of one that is back after all was never free at once."""
        state, node = slot.state, slot.node
        if node is not None:
            self._shift(node, state.amounts, -1, *([] if is_back else [node.now]), node.later)
            node.states.setdefault(state, []).append(slot)
            node.unbound += not slot.is_bound
        state.slots.append(slot)
        state.bound += slot.is_bound
        self._update(state)

    def _remove(self, slot: TrainerSlot, *, is_going: bool = False) -> None:
        """Take a trainer off its node; a pod that is going needs its time: its room is not free at once."""
        state, node = slot.state, slot.node
        state.slots.remove(slot)
        state.bound -= slot.is_bound
        if node is not None:
            node.states[state].remove(slot)
            if not node.states[state]:
                del node.states[state]
            node.unbound -= not slot.is_bound
            self._shift(node, state.amounts, 1, *([] if is_going else [node.now]), node.later)
        self._update(state)

    def evict(self, slot: TrainerSlot, cause: ScaleCause, whom: str = "") -> None:
        """Take a trainer from a job, in favour of `whom`; one without a node may get another place."""
        state, trainer = slot.state, slot.trainer
        self._remove(slot, is_going=slot.is_bound)
        if slot.is_bound:
            state.gone.append((slot, cause, whom))
        elif trainer is not None:
            state.unbound.append(trainer)

        def undo() -> None:
            if slot.is_bound:
                state.gone.pop()
            elif trainer is not None:
                state.unbound.remove(trainer)
            self._add(slot, is_back=slot.is_bound)

        self._note(undo)

    def suspend(self, state: JobState, cause: ScaleCause, text: str) -> None:
        """Take a job off whole: trainers, masters and parameter servers."""
        for slot in sorted(state.slots, key=lambda slot: slot.eviction_order):
            self.evict(slot, "suspended")
        for held in sorted(state.job.held, key=lambda room: (room.node, room.request)):
            if (node := self.by_name.get(held.node)) is not None:
                rooms, amounts = (node.later, node.lifted), sparse(held.request)
                self._shift(node, amounts, 1, *rooms)
                self._note(partial(self._shift, node, amounts, -1, *rooms))
        for number, row in list(self.reservations.items()):
            if row[3] == state.job.key:
                self._unreserve(number)
                self._note(partial(self._reserve, number, row))
        self.change(state, is_admitted=False, notes=[*state.notes, (cause, text)])

    def change(self, state: JobState, **values: Any) -> None:
        """Set fields of a job's state."""
        before = {name: getattr(state, name) for name in values}

        def give(values: dict[str, Any]) -> None:
            vars(state).update(values)
            self._update(state)

        give(values)
        self._note(partial(give, before))

    # --- questions ---

    def left_over(self, node: NodeInfo, amounts: Sparse) -> int:
        """Give what a node has left of the things asked for, after the pod, in shares of the largest node."""
        later, whole, left = node.later, self.whole, 0
        for resource, amount in amounts:
            left += (later[resource] - amount) * WHOLE // whole[resource]
        return left

    def spared(self, node: NodeInfo, amounts: Sparse) -> int:
        """Give the share of devices that such a pod leaves idle: it is to fill GPU nodes or leave them."""
        asked, spared = dict(amounts) if node.devices else {}, 0
        for resource, count in node.devices:
            idle = node.later[resource] - asked[resource] if resource in asked else count
            spared += idle * WHOLE // self.whole[resource]
        return spared

    def nodes_of(self, names: NodeNames, barred: frozenset[str] = frozenset()) -> list[NodeInfo]:
        """Give the nodes of these names, or all, without some."""
        if names is None and not barred:
            return self.nodes
        key = ("nodes", names, barred)
        nodes: list[NodeInfo] | None = self.searches.get(key)
        if nodes is None:
            nodes = self.searches[key] = [
                node
                for node in self.nodes
                if (names is None or node.name in names) and node.name not in barred
            ]
        return nodes


class FreeRoom:
    """The sums of a measure of some nodes, kept up to date from the log."""

    def __init__(
        self, cluster: ClusterState, nodes: Iterable[NodeInfo], measure: Callable[[NodeInfo], Sequence[int]]
    ) -> None:
        self._cluster = cluster
        self._measure = measure
        self._at = {node.index: measure(node) for node in nodes}
        self._sums = [sum(amounts) for amounts in zip(*self._at.values(), strict=True)]
        self._seen = len(cluster.log)

    def sums(self) -> list[int]:
        """Give the sums; none where there is no node."""
        log = self._cluster.log
        for index in dict.fromkeys(log[self._seen :]):
            if (before := self._at.get(index)) is not None:
                self._at[index] = after = self._measure(self._cluster.nodes[index])
                self._sums = list(map(add, self._sums, minus(after, before)))
        self._seen = len(log)
        return list(self._sums)


# --- what a job lacks: its whole gang while it waits, or what it lost and cannot run without ---


class ResourceNeed(NamedTuple):
    """Equal pods that a job lacks."""

    name: str  # their role, or the name of a single pod
    request: Vector  # what one requests
    number: int  # how many


def members(state: JobState, whole: list[int]) -> list[ResourceNeed]:
    """Give the masters and parameter servers of a job that waits, the largest first."""
    if state.is_admitted:
        return []
    roles = sorted(state.job.gang, key=lambda role: (-dominant(sparse(role.request), whole), role.name))
    return [ResourceNeed(role.name, role.request, role.count) for role in roles if role.count]


def needs(state: JobState, whole: list[int]) -> list[ResourceNeed]:
    """Give the pods of a job's gang that are not there: members, then trainers up to the minimum."""
    trainers = [ResourceNeed("trainer", state.job.trainer, state.short)] if state.short > 0 else []
    return members(state, whole) + trainers


def total_need(lacked: Iterable[ResourceNeed], size: int) -> Vector:
    """Give what pods request in all."""
    return total([tuple(amount * need.number for amount in need.request) for need in lacked], size)


def useful_nodes(cluster: ClusterState, state: JobState) -> frozenset[str]:
    """Give the nodes that could take any pod of a job's gang, none if even all of them empty are too few."""
    lacked, size = needs(state, cluster.whole), len(cluster.snapshot.resources)
    shapes = [sparse(need.request) for need in lacked]
    sizes = Counter([node.allocatable for node in cluster.nodes_of(state.job.nodes, state.bars)])
    sizes = Counter({room: n for room, n in sizes.items() if any(fits(room, request) for request in shapes)})
    whole = total([tuple(amount * number for amount in room) for room, number in sizes.items()], size)
    could_run = fits(whole, sparse(total_need(lacked, size))) and all(
        any(fits(room, request) for room in sizes) for request in shapes
    )
    nodes = cluster.nodes_of(state.job.nodes, state.bars) if could_run else []
    return frozenset([node.name for node in nodes if node.allocatable in sizes])
