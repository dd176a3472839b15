"""Policy `fair`: head-room, growth, balance between jobs, and decisions in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from functools import partial
from heapq import heapify, heappop, heappush

from mlstack.elastic.policy.gangs import Admission, Demands, needs, place_unbound, restore_rendezvous
from mlstack.elastic.policy.placement import Clearance, can_go, clear, free_node
from mlstack.elastic.policy.state import (
    ClusterState,
    EvictionOrder,
    FreeRoom,
    Fulfilment,
    JobState,
    NodeInfo,
    Scoring,
    Shape,
    TrainerSlot,
    count,
    fits,
    in_range,
    is_within,
    shape,
)
from mlstack.elastic.snapshot import (
    Cause,
    Decision,
    PolicyConfig,
    Reason,
    Reservation,
    ScalePlan,
    Snapshot,
    Vector,
)
from mlstack.objects import resources


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
    place_unbound(cluster, stuck_ms=config.stuck_ms)
    for state in cluster.states.values():
        if state.job.state == "admitted":
            slots = sorted(state.slots, key=lambda slot: (slot.is_meeting, slot.eviction_order))
            for slot in slots[: max(0, state.count - state.job.maximum)]:
                cluster.evict(slot, "bounds")
    demands, admission = Demands(cluster), Admission(cluster, backfill_ms=config.backfill_ms)
    headroom = Headroom(cluster, config.headroom_pct)
    balance = Balance(cluster, headroom, budget)
    steps = -1
    while steps != cluster.steps:
        steps = cluster.steps
        admission.serve(demands.serve())
        headroom.restore()
        grow(cluster, headroom)
        balance.even_out()
    restore_rendezvous(cluster)
    return conclude(cluster)


# --- places that stay free for what may come ---


class Headroom:
    """How many places for each kind of trainer have to stay free: one rule for growing and for shrinking."""

    def __init__(self, cluster: ClusterState, percent: int) -> None:
        self._cluster = cluster
        kinds = dict.fromkeys(state.amounts for state in cluster.states.values() if state.amounts)
        # what is free and how many are to stay free, by kind
        self._kinds: dict[Shape, tuple[FreeRoom, int]] = {}
        for kind in kinds if percent else ():
            places = sum(count(node.allocatable, kind) for node in cluster.nodes)
            free = FreeRoom(cluster, cluster.nodes, partial(_places, kind))
            self._kinds[kind] = (free, -(-places * percent // 100))

    def allows(self, node: NodeInfo, amounts: Shape) -> bool:
        """Tell whether enough places are left if one more trainer goes to a node."""
        for kind, (free, kept) in self._kinds.items():
            lost = _places_gained(node, amounts, -1, kind)
            if lost and sum(free.sums()) + lost < kept:
                return False
        return True

    def restore(self) -> None:
        """Take trainers of the lowest priority, then the richest job, until enough places are free."""
        for kind, (free, kept) in self._kinds.items():
            while sum(free.sums()) < kept:
                options = [
                    ((state.job.priority, -state.share, -gained, slot.eviction_order), slot)
                    for state in self._cluster.states.values()
                    if state.surplus
                    for slot in state.slots
                    if slot.node is not None and can_go(slot)
                    if (gained := _places_gained(slot.node, state.amounts, 1, kind)) > 0
                ]
                if not options:
                    break
                self._cluster.evict(min(options, key=lambda option: option[0])[1], "yield", "head-room")


def _places(kind: Shape, node: NodeInfo) -> tuple[int]:
    return (count(node.later, kind),)


def _places_gained(node: NodeInfo, amounts: Shape, sign: int, kind: Shape) -> int:
    """Give how many places of a kind there are more if a pod leaves a node (1), or comes to it (-1)."""
    room = list(node.later)
    for resource, amount in amounts:
        room[resource] += sign * amount
    return count(room, kind) - count(node.later, kind)


# --- free room becomes trainers, one by one, always for the job that is worst off ---


def is_cooling(state: JobState, now_ms: int) -> bool:
    """Tell whether a job was changed so lately that it is left alone where nothing presses."""
    changed_ms = state.job.changed_ms
    return changed_ms is not None and now_ms - changed_ms < state.job.cooldown_ms


def can_gain(state: JobState, now_ms: int) -> bool:
    """Tell whether a job may get trainers of others beyond its minimum."""
    return not is_cooling(state, now_ms) and can_grow(state, now_ms)


def can_grow(state: JobState, now_ms: int) -> bool:
    """Tell whether a job may get trainers in free room; to replace what it lost is no change to wait with."""
    most = state.job.maximum
    if is_cooling(state, now_ms):
        most = min(state.job.target, most)
    return not (state.is_settled or state.is_withdrawn or state.withheld) and state.count < most


def grow(cluster: ClusterState, headroom: Headroom) -> None:
    """Fill free room: the highest priority first, then the lowest share.

    Others may have what a job would get for trainers that failed and are not replaced yet: it is taken back.
    """
    _fill(cluster, headroom)
    lent = 0
    for state in cluster.states.values():
        if state.job.failed and not state.withheld and not state.is_settled:
            planned = [slot for slot in state.slots if slot.is_planned]
            state.withheld = max(0, state.job.failed - sum(slot.cause != "growth" for slot in planned))
            for slot in [slot for slot in planned if slot.cause == "growth"][::-1][: state.withheld]:
                cluster.evict(slot, "growth")
                lent += 1
    if lent:
        _fill(cluster, headroom)


def _fill(cluster: ClusterState, headroom: Headroom) -> None:
    now_ms = cluster.snapshot.now_ms
    queue = [_rank(state) for state in cluster.states.values() if can_grow(state, now_ms)]
    heapify(queue)
    while queue:
        state = cluster.states[heappop(queue)[2]]
        node = free_node(cluster, state.amounts, state.job.nodes, state.bars)
        if node is None or not headroom.allows(node, state.amounts):
            continue
        cluster.add(state, node, "growth")
        if can_grow(state, now_ms):
            heappush(queue, _rank(state))


def _rank(state: JobState) -> tuple[int, int, str]:
    return (-state.job.priority, state.share, state.job.key)


# --- trainers move from rich jobs to poor ones ---

Place = tuple[NodeInfo, tuple[TrainerSlot, ...]]  # a node, and the trainers that have to go from there


class Balance:
    """Moves for fairness alone, `budget` at the most."""

    def __init__(self, cluster: ClusterState, headroom: Headroom, budget: int) -> None:
        self._cluster, self._headroom, self._budget = cluster, headroom, budget
        self._now_ms = cluster.snapshot.now_ms

    def even_out(self) -> None:
        """Move trainers until nothing is gained by it or the budget is used up."""
        while self._budget > 0 and self._move_one():
            pass

    def _move_one(self) -> bool:
        failed: set[Hashable] = set()
        gaining = [state for state in self._cluster.states.values() if can_gain(state, self._now_ms)]
        for state in sorted(gaining, key=lambda state: (-state.job.priority, state.share, state.job.key)):
            # What decides what it could get: where the poorest of a kind finds nothing, no other does.
            job = state.job
            standing = (job.priority, job.weight, job.minimum, job.maximum, job.speed, job.curve)
            kind = (standing, state.amounts, job.nodes, state.bars)
            if kind not in failed:
                if self._help(state):
                    return True
                failed.add(kind)
        return False

    def _help(self, poor: JobState) -> bool:
        cluster = self._cluster
        allowed = {state: most for state in cluster.states.values() if (most := self._spare(state, poor))}
        place = self._single(poor, allowed) or self._several(poor, allowed) if allowed else None
        if place is None:
            return False
        node, slots = place
        mark = cluster.steps
        for slot in slots:
            cluster.evict(slot, "fairness", poor.job.key)
        if not self._headroom.allows(node, poor.amounts):
            cluster.rollback(mark)
            return False
        self._budget -= len(slots)
        cluster.add(poor, node, "fairness")
        return True

    def _spare(self, rich: JobState, poor: JobState) -> int:
        is_above = rich.job.priority > poor.job.priority
        if rich is poor or is_above or not rich.surplus or is_cooling(rich, self._now_ms):
            return 0
        if rich.job.priority < poor.job.priority:
            return rich.surplus
        most, scoring = 0, self._cluster.scoring
        while most < rich.surplus and scoring.is_fairer(poor.job, poor.count, rich.job, rich.count - most):
            most += 1
        return most

    def _single(self, poor: JobState, allowed: dict[JobState, int]) -> Place | None:
        """Find one trainer whose room is enough: of the lowest priority, then of the richest job."""
        suited = set(self._cluster.nodes_of(poor.job.nodes, poor.bars))

        def rank(slot: TrainerSlot, node: NodeInfo) -> tuple[bool, int, int, EvictionOrder]:
            left = self._cluster.left_over(node, poor.amounts)
            return (slot.is_bound, self._cluster.spared(node, poor.amounts), left, slot.eviction_order)

        for rich in sorted(allowed, key=lambda state: (state.job.priority, -state.share, state.job.key)):
            frees = rich.job.trainer
            enough = {
                node
                for node in dict.fromkeys([slot.node for slot in rich.slots])
                if node in suited
                and all([node.later[resource] + frees[resource] >= part for resource, part in poor.amounts])
            }
            options = [
                (rank(slot, slot.node), slot.node, slot)
                for slot in rich.slots
                if slot.node is not None and slot.node in enough and can_go(slot)
            ]
            if options:
                _, node, slot = min(options, key=lambda option: option[0])
                return node, (slot,)
        return None

    def _several(self, poor: JobState, allowed: dict[JobState, int]) -> Place | None:
        """Find a node where several smaller trainers together leave room enough."""
        if all(is_within(poor.amounts, state.amounts) for state in allowed):
            return None
        giving = {slot.node for state in allowed for slot in state.slots}
        best: tuple[Clearance, NodeInfo] | None = None
        for node in self._cluster.nodes_of(poor.job.nodes, poor.bars):
            if node not in giving:
                continue
            row = clear(self._cluster, node, poor.amounts, lambda state: allowed.get(state, 0))
            is_possible = row is not None and 0 < len(row.slots) <= self._budget
            if row is not None and is_possible and (best is None or row[:4] < best[0][:4]):
                best = (row, node)
        return (best[1], best[0].slots) if best else None


# --- the cluster state becomes a plan: for each job a target, its victims and places, and why ---


def conclude(cluster: ClusterState) -> ScalePlan:
    """Give the plan that the state holds."""
    for state in cluster.states.values():
        # A trainer stays where it is instead of a new one on the same node; where the new one is to be the
        # one at which the others meet, the old one will not do.
        for row in [] if state.job.lacks_meeting else list(state.gone):
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
_ORDER: tuple[Cause, ...] = (
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
    elif is_cooling(state, now_ms):
        why = f"changed within the last {job.cooldown_ms // 1000} s"
    return f" of {job.minimum} to {job.maximum}: {why}"


def _gains(state: JobState) -> list[tuple[Cause, str]]:
    job, gains = state.job, Counter(slot.cause for slot in state.slots if slot.is_planned)
    now = f"{_count(state.count, 'trainer')} of {job.minimum} to {job.maximum}"
    gang = [*(_count(role.count, role.name) for role in job.gang), _count(job.minimum, "trainer")]
    # What it is told to have already, it only gets back.
    growth = f"gets {gains['growth']} back" if state.count <= job.target else f"grows by {gains['growth']}"
    texts: dict[Cause, str] = {
        "admitted": f"room for its gang of {_list(gang)}",
        "minimum": f"gets {gains['minimum']} back to its minimum of {job.minimum}",
        "growth": f"{growth} to {now} in free room",
        "fairness": f"gets {gains['fairness']} of richer jobs, to {now}",
    }
    gains["admitted"] += job.state == "waiting"
    return [(cause, text) for cause, text in texts.items() if gains[cause]]


def _losses(state: JobState) -> list[tuple[Cause, str]]:
    losses: list[tuple[Cause, str]] = []
    for cause in dict.fromkeys(cause for _, cause, _ in state.gone if cause != "stuck"):
        names = [name for _, other, name in state.gone if other == cause]
        whom = Counter("its own gang" if name == state.job.key else name for name in names)
        favour = f" for {_names(whom)}" if any(whom) else f" above its maximum of {state.job.maximum}"
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
        if not any(fits(node.allocatable, shape(need.request)) for node in nodes):
            most = [max(node.allocatable[at] for node in nodes) for at in size]
            text = _amounts(names, need.request, most)
            return f"no node is large enough for one {need.name} of {text}"
    row, key = cluster.unplaced.get(state.job.key), ("free in all", state.job.nodes)
    if key not in cluster.searches:
        cluster.searches[key] = [sum(node.later[at] for node in nodes) for at in size]
    what = _amounts(names, row.missing, cluster.searches[key]) if row else "any pod"
    return f"no room for {what} of its gang"


def _amounts(names: Sequence[str], amounts: Vector, room: Sequence[int]) -> str:
    """Write the amounts that are too much for the room; where each would do alone, all of them."""
    asked = [resource for resource in range(len(names)) if amounts[resource]]
    short = [resource for resource in asked if amounts[resource] > room[resource]]
    together = [resource for resource in asked if names[resource] != "pods"]
    return ", ".join(_amount(names[resource], amounts[resource]) for resource in short or together or asked)


def _amount(name: str, amount: int) -> str:
    text = resources.written(name, amount)
    return text if resources.is_host_port(name) else f"{text} {name}"


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


def jain(counts: Sequence[float]) -> float:
    """Give Jain's index of fairness: 1 for equal shares, 1/n when one has everything."""
    squares = sum(count * count for count in counts)
    return sum(counts) ** 2 / (len(counts) * squares) if squares else 1.0
