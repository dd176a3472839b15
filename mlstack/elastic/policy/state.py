"""A snapshot as a plan changes it: nodes, jobs and trainers, and the arithmetic with requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import lcm
from typing import Protocol

from mlstack.elastic.snapshot import Cause, Job, Node, Reservation, Snapshot, Trainer, Vector

# --- arithmetic with requests: what fits, how often, and how much is left, in integers ---

Shape = tuple[tuple[int, int], ...]
NodeNames = frozenset[str] | None
"""Nodes that pods may go to, None for all."""

# Left-overs of different resources are compared as parts of a reference amount, in these units: a resource
# counted in other units then changes no decision.
WHOLE = 10**9

# A pod that requests nothing fits any number of times.
ENDLESS = 1 << 20


def shape(request: Vector) -> Shape:
    """Give what a request really asks for: (resource, amount) without the zeros."""
    return tuple((resource, amount) for resource, amount in enumerate(request) if amount > 0)


def fits(room: Sequence[int], amounts: Iterable[tuple[int, int]]) -> bool:
    """Tell whether a request fits into a room."""
    for resource, amount in amounts:  # noqa: SIM110  # asked thousands of times a plan: half the time of all()
        if room[resource] < amount:
            return False
    return True


def count(room: Sequence[int], amounts: Shape) -> int:
    """Give how many such pods fit into a room."""
    most = ENDLESS
    for resource, amount in amounts:
        found = room[resource] // amount
        if found < most:
            most = found
    return most if most > 0 else 0


def total(vectors: Iterable[Vector], size: int) -> Vector:
    """Give the sum of vectors of that size."""
    sums = [0] * size
    for vector in vectors:
        for resource, amount in enumerate(vector):
            sums[resource] += amount
    return tuple(sums)


def dominant(request: Shape, whole: Sequence[int]) -> int:
    """Give the largest share that a request takes of a reference amount of any resource."""
    return max((amount * WHOLE // whole[resource] for resource, amount in request), default=0)


def is_within(small: Shape, large: Shape) -> bool:
    """Tell whether a request asks for no more than another one of anything."""
    asked = dict(large)
    return all(amount <= asked.get(resource, 0) for resource, amount in small)


# --- nodes, jobs and trainers as they stand while a plan is made ---

EvictionOrder = tuple[int, int, int, int, str]


class NodeInfo:
    """A node with its room."""

    __slots__ = (
        "allocatable",
        "devices",
        "index",
        "kind",
        "later",
        "lifted",
        "name",
        "now",
        "states",
        "unbound",
    )

    def __init__(self, index: int, node: Node) -> None:
        self.index = index  # its rank by name
        self.name = node.name
        self.allocatable = node.allocatable
        # the resources that device plug-ins brought to it, and how much of each
        self.devices = tuple((resource, count) for resource, count in enumerate(node.devices) if count)
        # room at this moment; what goes in this plan does not count, what comes does
        self.now = [all_ - used for all_, used in zip(node.allocatable, node.used, strict=True)]
        self.later = list(self.now)  # room when everything on its way out, by this plan too, is gone
        self.lifted = list(self.now)  # `later` as if no trainer were there
        # the jobs that have trainers on it, with these; changed by `add_slot` and `remove_slot` alone
        self.states: dict[JobState, list[TrainerSlot]] = {}
        self.unbound = 0  # how many of these are not bound to it yet
        # a number that nodes of the same size and room share, None if it is to be found anew
        self.kind: int | None = None

    def add_slot(self, slot: TrainerSlot) -> None:
        """Put a trainer on it."""
        slots = self.states.get(slot.state)
        if slots is None:
            self.states[slot.state] = [slot]
        else:
            slots.append(slot)
        self.unbound += not slot.is_bound

    def remove_slot(self, slot: TrainerSlot) -> None:
        """Take a trainer off it."""
        slots = self.states[slot.state]
        slots.remove(slot)
        if not slots:
            del self.states[slot.state]
        self.unbound -= not slot.is_bound


class TrainerSlot:
    """A trainer, live or planned, with its place."""

    __slots__ = ("cause", "eviction_order", "is_bound", "is_meeting", "node", "state", "trainer")

    def __init__(self, state: JobState, node: NodeInfo | None, trainer: Trainer | None, cause: Cause) -> None:
        self.state = state  # whose it is
        self.node = node  # where it is or is to go; None for a node that takes no pods any more, or none yet
        self.trainer = trainer  # the live pod, None for one that is planned
        self.cause = cause  # why it was planned
        # whether a pod runs there: losing it costs work
        self.is_bound = trainer is not None and bool(trainer.node)
        # whether the others of its job meet at it: it stays while the job does
        self.is_meeting = trainer is not None and trainer.is_meeting
        # the order in which trainers of one job go: planned, unbound, unready, young ones first, and of one
        # age those of the highest indexes
        self.eviction_order: EvictionOrder = _eviction_order(node, trainer)

    @property
    def is_planned(self) -> bool:
        """Tell whether no pod is there yet."""
        return self.trainer is None


def _eviction_order(node: NodeInfo | None, trainer: Trainer | None) -> EvictionOrder:
    if trainer is None:
        return (0, 0, 0, 0, node.name if node else "")
    rank = 1 if not trainer.node else 2 if node is None else 3
    return (rank, int(trainer.is_ready), -trainer.created_ms, -trainer.index, trainer.name)


class JobState:
    """A job with the trainers that it has and gets."""

    __slots__ = (
        "amounts",
        "bars",
        "bound",
        "gone",
        "hints",
        "is_admitted",
        "is_held_off",
        "is_withdrawn",
        "job",
        "notes",
        "share",
        "slots",
        "surplus",
        "unbound",
        "withheld",
    )

    def __init__(self, job: Job, now_ms: int) -> None:
        self.job = job
        self.amounts: Shape = shape(job.trainer)  # what one trainer requests
        self.slots: list[TrainerSlot] = []  # its trainers, live and planned
        self.bound = 0  # how many of them are bound to a node
        # live trainers without a node for which the plan has none either, so far
        self.unbound: list[Trainer] = []
        # bound trainers that this plan takes, with the cause and for whom
        self.gone: list[tuple[TrainerSlot, Cause, str]] = []
        self.is_admitted = job.state != "waiting"  # whether it has pods
        self.share = 0  # how well off it is
        self.surplus = 0  # how many trainers it can lose without falling below its minimum
        # nodes for the pods of its gang, if it was admitted by this plan
        self.hints: dict[str, list[str]] = {}
        self.withheld = 0  # how many failed trainers it gets no others for
        self.is_withdrawn = False  # whether trainers were withdrawn because they found no node
        # whether it is too early to admit it again
        self.is_held_off = job.state == "waiting" and job.not_before_ms > now_ms
        # nodes that are passed over
        self.bars = frozenset(node for node, until in job.barred.items() if until > now_ms)
        self.notes: list[tuple[Cause, str]] = []  # what else is to be told about it

    @property
    def count(self) -> int:
        """Give how many trainers it has if the plan is carried out."""
        return len(self.slots)

    @property
    def is_settled(self) -> bool:
        """Tell whether it may neither gain nor lose: it waits or is about to end."""
        return not self.is_admitted or self.job.state == "finishing"


def in_range(job: Job, count: int) -> int:
    """Give the number of trainers nearest to `count` that a job may be told to have."""
    return min(max(count, job.minimum), job.maximum)


# --- who gets the next trainer: the one thing in which policies that share out free room differ ---


class Scoring(Protocol):
    """How well off jobs are, in integers that only compare with each other."""

    def share(self, job: Job, count: int) -> int:
        """Tell how well off a job is with so many trainers: the lowest share gets the next one."""
        ...

    def is_fairer(self, poor: Job, poor_count: int, rich: Job, rich_count: int) -> bool:
        """Tell whether a trainer less for `rich` and one more for `poor` is worth a move."""
        ...


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


# --- the state of one plan ---
# Every change is noted, so that an attempt that fails is taken back whole; and every node counts its changes,
# so that a search which sorted the nodes once looks only at those that changed since.


Reserved = tuple[NodeInfo, Vector, str, str]
"""Room kept for a pod that is no trainer: where, how much, its key, the key of its job."""


class ClusterState:
    """Room and trainers of a snapshot, and every change that a plan makes to them."""

    def __init__(self, snapshot: Snapshot, scoring: Scoring, swaps: int) -> None:
        self.snapshot = snapshot
        self.scoring = scoring
        # the nodes, by name
        self.nodes = [
            NodeInfo(index, node)
            for index, node in enumerate(sorted(snapshot.nodes, key=lambda node: node.name))
        ]
        self.by_name = {node.name: node for node in self.nodes}
        # the jobs, by key
        self.states = {
            job.key: JobState(job, snapshot.now_ms) for job in sorted(snapshot.jobs, key=lambda job: job.key)
        }
        self.log: list[int] = []  # indexes of the nodes that changed, in order of the changes
        self.changed: list[JobState] = []  # the jobs that changed, in order of the changes
        # how often something was taken back, or jobs may have gained trainers: to take some may cost less
        # than it did
        self.epoch = 0
        self.reservations: dict[int, Reserved] = {}
        self._undo: list[Callable[[], None]] = []
        self._most = self._bound(swaps)
        self._numbers = 0
        self._kinds: dict[tuple[Vector, Vector, Vector], int] = {}
        self._chosen: dict[tuple[frozenset[str] | None, frozenset[str]], list[NodeInfo]] = {}
        self.whole = self._references(len(snapshot.resources))
        self.shapes = self._smallest()
        self._enter()

    def _bound(self, swaps: int) -> int:
        """Give a number of changes that no plan needs: each trainer and pod comes and goes twice at most."""
        jobs = self.snapshot.jobs
        trainers = sum(max(job.maximum, len(job.trainers)) for job in jobs)
        pods = len(self.snapshot.demands) + sum(
            len(job.held) + sum(role.count for role in job.gang) + 2 for job in jobs
        )
        return 4 * (trainers + pods) + 2 * min(swaps, trainers * (len(jobs) + 1))

    def _references(self, size: int) -> list[int]:
        """Give the largest amount that any node has of each resource."""
        return [max([1, *(node.allocatable[resource] for node in self.nodes)]) for resource in range(size)]

    def _smallest(self) -> list[Shape]:
        """Give the requests that may come for free room, without those that are larger than another one."""
        asked = {state.amounts for state in self.states.values()}
        asked |= {shape(demand.request) for demand in self.snapshot.demands}
        ordered = sorted(asked, key=lambda kind: (len(kind), kind))
        return [
            kind for kind in ordered if not any(is_within(other, kind) for other in ordered if other != kind)
        ]

    def _enter(self) -> None:
        for going in self.snapshot.arriving:
            if (node := self.by_name.get(going.node)) is not None:
                for resource, amount in enumerate(going.request):
                    node.now[resource] -= amount
        for state in self.states.values():
            for trainer in state.job.trainers:
                if trainer.node:
                    self._add(TrainerSlot(state, self.by_name.get(trainer.node), trainer, "steady"))
            self._update(state)

    # Room.

    def _take(self, node: NodeInfo, amounts: Shape) -> None:
        now, later = node.now, node.later
        for resource, amount in amounts:
            now[resource] -= amount
            later[resource] -= amount
        self._touch(node)

    def _give(self, node: NodeInfo, amounts: Shape, *, at_once: bool) -> None:
        for resource, amount in amounts:
            node.later[resource] += amount
            if at_once:
                node.now[resource] += amount
        self._touch(node)

    def _touch(self, node: NodeInfo) -> None:
        self.log.append(node.index)
        node.kind = None

    def _lift(self, node: NodeInfo, amounts: Shape, sign: int) -> None:
        for resource, amount in amounts:
            node.lifted[resource] += sign * amount

    # Changes that can be taken back.

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
        self._note(lambda: self._unreserve(number))

    def cancel(self, owner: str) -> None:
        """Give up all room kept for the pods of a job."""
        for number, row in list(self.reservations.items()):
            if row[3] == owner:
                self._unreserve(number)
                self._note(partial(self._reserve, number, row))

    def _reserve(self, number: int, row: Reserved) -> None:
        self.reservations[number] = row
        self._take(row[0], shape(row[1]))
        self._lift(row[0], shape(row[1]), -1)

    def _unreserve(self, number: int) -> None:
        node, request, _, _ = self.reservations.pop(number)
        self._give(node, shape(request), at_once=True)
        self._lift(node, shape(request), 1)

    def release(self, node: NodeInfo, request: Vector) -> None:
        """Count the room of a bound pod that this plan takes away."""
        amounts = shape(request)
        self._give(node, amounts, at_once=False)
        self._lift(node, amounts, 1)

        def undo() -> None:
            for resource, amount in amounts:
                node.later[resource] -= amount
            self._lift(node, amounts, -1)
            self._touch(node)

        self._note(undo)

    def add(self, state: JobState, node: NodeInfo, cause: Cause) -> None:
        """Give a job a trainer at a node: one that waits for a node if there is any, else a new one."""
        trainer = state.unbound.pop(0) if state.unbound else None
        slot = TrainerSlot(state, node, trainer, cause)
        self._add(slot)

        def undo() -> None:
            self._remove(slot)
            if trainer is not None:
                state.unbound.insert(0, trainer)

        self._note(undo)

    def _add(self, slot: TrainerSlot) -> None:
        state, node = slot.state, slot.node
        if node is not None:
            self._take(node, state.amounts)
            node.add_slot(slot)
        state.slots.append(slot)
        state.bound += slot.is_bound
        self._update(state)

    def _remove(self, slot: TrainerSlot) -> None:
        state, node = slot.state, slot.node
        state.slots.remove(slot)
        state.bound -= slot.is_bound
        if node is not None:
            node.remove_slot(slot)
            self._give(node, state.amounts, at_once=True)
        self._update(state)

    def _update(self, state: JobState) -> None:
        """Note that a job has other trainers, or other rights to them."""
        count = len(state.slots)
        state.share = self.scoring.share(state.job, count)
        state.surplus = 0 if state.is_settled else max(0, count - state.job.minimum)
        self.changed.append(state)

    def evict(self, slot: TrainerSlot, cause: Cause, whom: str = "") -> None:
        """Take a trainer from a job, in favour of `whom`; one without a node may get another place."""
        node, state, trainer = slot.node, slot.state, slot.trainer
        self._remove(slot)
        if slot.is_bound:
            state.gone.append((slot, cause, whom))
            if node is not None:
                self._delay(node, state.amounts, 1)
        elif trainer is not None:
            state.unbound.append(trainer)

        def undo() -> None:
            if slot.is_bound:
                state.gone.pop()
                if node is not None:
                    self._delay(node, state.amounts, -1)
            elif trainer is not None:
                state.unbound.remove(trainer)
            self._add(slot)

        self._note(undo)

    def _delay(self, node: NodeInfo, amounts: Shape, sign: int) -> None:
        """Count room as still to come: a pod needs its time to go."""
        for resource, amount in amounts:
            node.now[resource] -= sign * amount
        node.kind = None

    def suspend(self, state: JobState, cause: Cause, text: str) -> None:
        """Take a job off whole: trainers, masters and parameter servers."""
        for slot in sorted(state.slots, key=lambda slot: slot.eviction_order):
            self.evict(slot, "suspended")
        for held in sorted(state.job.held, key=lambda room: (room.node, room.request)):
            if (node := self.by_name.get(held.node)) is not None:
                self.release(node, held.request)
        self.cancel(state.job.key)
        state.is_admitted = False
        self._update(state)
        state.notes.append((cause, text))

        def undo() -> None:
            state.is_admitted = True
            state.notes.pop()
            self._update(state)

        self._note(undo)

    def relax(self, state: JobState, text: str) -> None:
        """Let a job go on with the trainers that it has as its minimum."""
        job = state.job
        state.job = replace(job, minimum=state.count)
        state.notes.append(("steady", text))
        self._update(state)

        def undo() -> None:
            state.job = job
            state.notes.pop()
            self._update(state)

        self._note(undo)

    def admit(self, state: JobState, hints: dict[str, list[str]]) -> None:
        """Count a job as running, with nodes for the pods of its gang."""
        state.is_admitted = True
        state.hints = hints
        self._update(state)

        def undo() -> None:
            state.is_admitted = False
            state.hints = {}
            self._update(state)

        self._note(undo)

    # Questions.

    def kind(self, node: NodeInfo) -> int:
        """Give a number that nodes of the same size and room share."""
        if (known := node.kind) is None:
            standing = (node.allocatable, tuple(node.now), tuple(node.later))
            known = node.kind = self._kinds.setdefault(standing, len(self._kinds))
        return known

    def left_over(self, node: NodeInfo, amounts: Shape) -> int:
        """Give what a node has left of the things asked for, after the pod, in shares of the largest node."""
        later, whole, left = node.later, self.whole, 0
        for resource, amount in amounts:
            left += (later[resource] - amount) * WHOLE // whole[resource]
        return left

    def waste(self, room: list[int], amounts: Shape) -> int:
        """Give the share of a left-over that fits nothing; 0 if somebody can use it."""
        for kind in self.shapes:
            if fits(room, kind):
                return 0
        return sum([room[resource] * WHOLE // self.whole[resource] for resource, _ in amounts])

    def spared(self, node: NodeInfo, amounts: Shape) -> int:
        """Give the share of devices that such a pod leaves idle: it is to fill GPU nodes or leave them."""
        if not node.devices:
            return 0
        asked = dict(amounts)
        return sum(
            (node.later[resource] - asked[resource] if resource in asked else count)
            * WHOLE
            // self.whole[resource]
            for resource, count in node.devices
        )

    def reserved(self) -> set[str]:
        """Give the keys of pods for which room is kept."""
        return {key for _, _, key, _ in self.reservations.values()}

    def kept(self) -> tuple[Reservation, ...]:
        """Give the room that is kept for pods which are no trainers."""
        rows = [
            Reservation(node=node.name, request=request, key=key)
            for node, request, key, _ in self.reservations.values()
        ]
        return tuple(sorted(rows, key=lambda row: (row.key, row.node)))

    def nodes_of(self, names: frozenset[str] | None, without: Iterable[str] = ()) -> list[NodeInfo]:
        """Give the nodes of these names, or all, without some."""
        barred = frozenset(without)
        if names is None and not barred:
            return self.nodes
        if (known := self._chosen.get((names, barred))) is None:
            known = [
                node
                for node in self.nodes
                if (names is None or node.name in names) and node.name not in barred
            ]
            self._chosen[names, barred] = known
        return known
