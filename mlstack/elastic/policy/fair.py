"""Policy `fair`: head-room, growth, balance between jobs, and decisions in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from mlstack.elastic import snapshot
from mlstack.elastic.policy.gangs import Admission, Demands, place_unbound, restore_rendezvous
from mlstack.elastic.policy.needs import needs
from mlstack.elastic.policy.placement import Clearance, Transaction, can_go, clear
from mlstack.elastic.policy.state import (
    ClusterState,
    EvictionOrder,
    Fulfilment,
    JobState,
    NodeInfo,
    Scoring,
    Shape,
    TrainerSlot,
    count,
    in_range,
    is_within,
)
from mlstack.elastic.snapshot import Cause, Decision, PolicyConfig, Reason, ScalePlan, Snapshot, Vector
from mlstack.table import Table

# --- places that stay free for what may come ---


class _Free:
    """How many places for one kind of trainer are free, kept up to date from the cluster's log."""

    def __init__(self, cluster: ClusterState, kind: Shape, percent: int) -> None:
        self._cluster = cluster
        self._kind = kind
        self._at = [count(node.later, kind) for node in cluster.nodes]
        self._seen = len(cluster.log)
        self._total = sum(self._at)
        places = sum(count(node.allocatable, kind) for node in cluster.nodes)
        self.kept = -(-places * percent // 100)

    def free(self) -> int:
        """Give the number of free places of now."""
        for index in dict.fromkeys(self._cluster.log[self._seen :]):
            now = count(self._cluster.nodes[index].later, self._kind)
            self._total += now - self._at[index]
            self._at[index] = now
        self._seen = len(self._cluster.log)
        return self._total

    def change(self, node: NodeInfo, amounts: Shape, sign: int) -> int:
        """Give how many places there are more if a pod leaves a node (1), or comes to it (-1)."""
        room = list(node.later)
        for resource, amount in amounts:
            room[resource] += sign * amount
        return count(room, self._kind) - count(node.later, self._kind)


class Headroom:
    """How many places for each kind of trainer have to stay free: one rule for growing and for shrinking."""

    def __init__(self, cluster: ClusterState, percent: int) -> None:
        self._cluster = cluster
        kinds = dict.fromkeys(state.amounts for state in cluster.states.values() if state.amounts)
        self._kinds = [_Free(cluster, kind, percent) for kind in kinds] if percent else []

    def allows(self, node: NodeInfo, amounts: Shape) -> bool:
        """Tell whether enough places are left if one more trainer goes to a node."""
        for kind in self._kinds:
            lost = kind.change(node, amounts, -1)
            if lost and kind.free() + lost < kind.kept:
                return False
        return True

    def restore(self) -> None:
        """Take trainers above a minimum until enough places are free, or no more can be made."""
        for kind in self._kinds:
            while kind.free() < kind.kept and (slot := self._victim(kind)) is not None:
                self._cluster.evict(slot, "yield", "head-room")

    def _victim(self, kind: _Free) -> TrainerSlot | None:
        """Find the trainer that makes most places: of the lowest priority, then of the richest job."""
        options = [
            ((state.job.priority, -state.share, -gained, slot.eviction_order), slot)
            for state in self._cluster.states.values()
            if state.surplus
            for slot in state.slots
            if slot.node is not None and can_go(slot)
            if (gained := kind.change(slot.node, state.amounts, 1)) > 0
        ]
        return min(options, key=lambda option: option[0])[1] if options else None


# --- free room becomes trainers, one by one, always for the job that is worst off ---


def is_cooling(state: JobState, now_ms: int) -> bool:
    """Tell whether a job was changed so lately that it is left alone where nothing presses."""
    changed_ms = state.job.changed_ms
    return changed_ms is not None and now_ms - changed_ms < state.job.cooldown_ms


def can_gain(state: JobState, now_ms: int) -> bool:
    """Tell whether a job may get trainers of others beyond its minimum."""
    return _may_have(state, state.job.maximum) and not is_cooling(state, now_ms)


def can_grow(state: JobState, now_ms: int) -> bool:
    """Tell whether a job may get trainers in free room; to replace what it lost is no change to wait with."""
    most = min(state.job.target, state.job.maximum) if is_cooling(state, now_ms) else state.job.maximum
    return _may_have(state, most)


def _may_have(state: JobState, most: int) -> bool:
    return not (state.is_settled or state.is_withdrawn or state.withheld) and state.count < most


def grow(transaction: Transaction, headroom: Headroom) -> int:
    """Fill free room: the highest priority first, then the lowest share; give the number of trainers.

    A job gets so many fewer as failed and are not to be replaced yet; others may have these.
    """
    grown = _fill(transaction, headroom)
    lent = sum(
        [_withhold(transaction, state) for state in transaction.cluster.states.values() if state.job.failed]
    )
    return grown - lent + (_fill(transaction, headroom) if lent else 0)


def _withhold(transaction: Transaction, state: JobState) -> int:
    """Take back what a job would get in place of failed trainers, once a plan; give how many these are."""
    if state.withheld or state.is_settled:
        return 0
    planned = [slot for slot in state.slots if slot.is_planned]
    state.withheld = max(0, state.job.failed - sum(slot.cause != "growth" for slot in planned))
    taken = [slot for slot in planned if slot.cause == "growth"][::-1][: state.withheld]
    for slot in taken:
        transaction.cluster.evict(slot, "growth")
    return len(taken)


def _fill(transaction: Transaction, headroom: Headroom) -> int:
    now_ms = transaction.cluster.snapshot.now_ms
    queue = [_rank(state) for state in transaction.cluster.states.values() if can_grow(state, now_ms)]
    heapify(queue)
    grown = 0
    while queue:
        state = transaction.cluster.states[heappop(queue)[2]]
        node = transaction.free_node(state.amounts, state.job.nodes, state.bars)
        if node is None or not headroom.allows(node, state.amounts):
            continue
        transaction.cluster.add(state, node, "growth")
        grown += 1
        if can_grow(state, now_ms):
            heappush(queue, _rank(state))
    return grown


def _rank(state: JobState) -> tuple[int, int, str]:
    return (-state.job.priority, state.share, state.job.key)


# --- trainers move from rich jobs to poor ones ---


class Balance:
    """Moves for fairness alone."""

    def __init__(self, transaction: Transaction, headroom: Headroom, budget: int) -> None:
        self._headroom = headroom
        self._cluster = transaction.cluster
        self._now_ms = transaction.cluster.snapshot.now_ms
        self._budget = budget
        self.moves = 0  # trainers taken so far

    def even_out(self) -> int:
        """Move trainers until nothing is gained by it or the budget is used up; give how many were taken."""
        before = self.moves
        while self.moves < self._budget and self._move_one():
            pass
        return self.moves - before

    def _move_one(self) -> bool:
        """Give the poorest job that can be helped one trainer of richer ones."""
        failed: set[Hashable] = set()
        gaining = [state for state in self._cluster.states.values() if can_gain(state, self._now_ms)]
        for state in sorted(gaining, key=lambda state: (-state.job.priority, state.share, state.job.key)):
            kind = _kind(state)
            if kind in failed:
                continue
            if self._help(state):
                return True
            failed.add(kind)
        return False

    def _help(self, poor: JobState) -> bool:
        allowed = {
            state: most for state in self._cluster.states.values() if (most := self._spare(state, poor))
        }
        if not allowed:
            return False
        found = self._single(poor, allowed) or self._several(poor, allowed)
        if found is None:
            return False
        node, slots = found
        mark = self._cluster.steps
        for slot in slots:
            self._cluster.evict(slot, "fairness", poor.job.key)
        if not self._headroom.allows(node, poor.amounts):
            self._cluster.rollback(mark)
            return False
        self.moves += len(slots)
        self._cluster.add(poor, node, "fairness")
        return True

    def _spare(self, rich: JobState, poor: JobState) -> int:
        """Give how many trainers a job can lose to another one."""
        if rich is poor or rich.job.priority > poor.job.priority or not rich.surplus:
            return 0
        if is_cooling(rich, self._now_ms):
            return 0
        if rich.job.priority < poor.job.priority:
            return rich.surplus
        most, scoring = 0, self._cluster.scoring
        while most < rich.surplus and scoring.is_fairer(poor.job, poor.count, rich.job, rich.count - most):
            most += 1
        return most

    def _single(
        self, poor: JobState, allowed: dict[JobState, int]
    ) -> tuple[NodeInfo, tuple[TrainerSlot, ...]] | None:
        """Find one trainer whose room is enough: of the lowest priority, then of the richest job."""
        for rich in sorted(allowed, key=lambda state: (state.job.priority, -state.share, state.job.key)):
            nodes = [node for node in dict.fromkeys([slot.node for slot in rich.slots]) if node is not None]
            suited = {node for node in nodes if self._is_enough(node, rich, poor)}
            options = [
                (self._rank(slot, poor), slot) for slot in rich.slots if slot.node in suited and can_go(slot)
            ]
            if options:
                slot = min(options, key=lambda option: option[0])[1]
                assert slot.node is not None
                return slot.node, (slot,)
        return None

    def _is_enough(self, node: NodeInfo, rich: JobState, poor: JobState) -> bool:
        """Tell whether a job may use a node, and has room there when a trainer of another one goes."""
        later, frees, names = node.later, rich.job.trainer, poor.job.nodes
        for resource, amount in poor.amounts:
            if later[resource] + frees[resource] < amount:
                return False
        return (names is None or node.name in names) and node.name not in poor.bars

    def _rank(self, slot: TrainerSlot, poor: JobState) -> tuple[int, int, int, EvictionOrder]:
        assert slot.node is not None
        spared = self._cluster.spared(slot.node, poor.amounts)
        return (
            int(slot.is_bound),
            spared,
            self._cluster.left_over(slot.node, poor.amounts),
            slot.eviction_order,
        )

    def _several(
        self, poor: JobState, allowed: dict[JobState, int]
    ) -> tuple[NodeInfo, tuple[TrainerSlot, ...]] | None:
        """Find a node where several smaller trainers together leave room enough."""
        if all(is_within(poor.amounts, state.amounts) for state in allowed):
            return None
        best: tuple[Clearance, NodeInfo] | None = None
        for node, found in self._clearances(poor, allowed):
            within = self.moves + len(found.slots) <= self._budget
            if within and (best is None or found[:4] < best[0][:4]):
                best = (found, node)
        return (best[1], best[0].slots) if best else None

    def _clearances(
        self, poor: JobState, allowed: dict[JobState, int]
    ) -> Iterator[tuple[NodeInfo, Clearance]]:
        giving = {slot.node for state in allowed for slot in state.slots}
        for node in self._cluster.nodes_of(poor.job.nodes, poor.bars):
            if node not in giving:
                continue
            found = clear(self._cluster, node, poor.amounts, lambda state: allowed.get(state, 0))
            if found is not None and found.slots:
                yield node, found


def _kind(state: JobState) -> Hashable:
    """Give what decides what a job could get: where the poorest of a kind finds nothing, no other does."""
    job = state.job
    standing = (job.priority, job.weight, job.minimum, job.maximum, job.speed, job.curve)
    return (standing, state.amounts, job.nodes, state.bars)


# --- decisions in words: one line each, with numbers and names ---

# The weightiest first.
ORDER: tuple[Cause, ...] = (
    "suspended",
    "lost",
    "refused",
    "waiting",
    "admitted",
    "minimum",
    "stuck",
    "bounds",
    "yield",
    "gang",
    "fairness",
    "growth",
    "finishing",
    "steady",
)
NAMED = 3


def reasons(transaction: Transaction, state: JobState) -> tuple[Reason, ...]:
    """Say why a job gets what it gets, the weightiest reason first."""
    found = [Reason(cause=cause, text=text) for cause, text in state.notes]
    if not state.is_admitted:
        found += [] if found else [_outside(transaction, state)]
    elif state.job.state == "finishing":
        found.append(Reason(cause="finishing", text=f"keeps {_trainers(state.count)} until it ends"))
    else:
        found += _gains(state) + _losses(state)
        if not found:
            found.append(_steady(transaction, state))
    return tuple(sorted(found, key=lambda reason: ORDER.index(reason.cause)))


def _outside(transaction: Transaction, state: JobState) -> Reason:
    """Say why a job has no pods."""
    if state.is_held_off and state.job.refused:
        return Reason(cause="refused", text=state.job.refused)
    return Reason(cause="waiting", text=_waiting(transaction, state))


def _steady(transaction: Transaction, state: JobState) -> Reason:
    """Say why a job gets no more."""
    job, stays = state.job, f"stays at {_trainers(state.count)}"
    if state.count >= job.maximum and job.refused:
        return Reason(cause="refused", text=f"{stays}: {job.refused}")
    return Reason(cause="steady", text=f"{stays}{_why_no_more(transaction, state)}")


def _why_no_more(transaction: Transaction, state: JobState) -> str:
    job = state.job
    if state.count >= job.maximum:
        return ", its maximum"
    since_ms = transaction.cluster.snapshot.now_ms - (job.changed_ms or 0)
    is_cooling = job.changed_ms is not None and since_ms < job.cooldown_ms
    why = f"changed within the last {job.cooldown_ms // 1000} s" if is_cooling else "no room for more"
    if state.withheld:
        why = "trainers failed, and are replaced after a pause"
    return f" of {_range(state)}: {why}"


def _gains(state: JobState) -> list[Reason]:
    job, gains = state.job, Counter(slot.cause for slot in state.slots if slot.is_planned)
    now = f"{_trainers(state.count)} of {_range(state)}"
    texts: dict[Cause, str] = {
        "admitted": _gang(state),
        "minimum": f"gets {gains['minimum']} back to its minimum of {job.minimum}",
        "growth": f"{_grows(state, gains['growth'])} to {now} in free room",
        "fairness": f"gets {gains['fairness']} of richer jobs, to {now}",
    }
    is_new = job.state == "waiting"
    return [
        Reason(cause=cause, text=text)
        for cause, text in texts.items()
        if gains[cause] or (cause == "admitted" and is_new)
    ]


def _grows(state: JobState, number: int) -> str:
    """Say how a job comes by more trainers: what it is told to have already, it only gets back."""
    return f"gets {number} back" if state.count <= state.job.target else f"grows by {number}"


def _losses(state: JobState) -> list[Reason]:
    found = []
    for cause in dict.fromkeys(cause for _, cause, _ in state.gone if cause != "stuck"):
        whom = Counter(name for _, other, name in state.gone if other == cause)
        number = sum(whom.values())
        whom = Counter({"its own gang" if name == state.job.key else name: whom[name] for name in whom})
        favour = f" for {_names(whom)}" if any(whom) else f" above its maximum of {state.job.maximum}"
        found.append(Reason(cause=cause, text=f"gives up {number} of its trainers{favour}"))
    if state.unbound:
        text = f"withdraws {len(state.unbound)} that wait for a node: their room went to others"
        found.append(Reason(cause="yield", text=text))
    return found


def _gang(state: JobState) -> str:
    roles = [_count(role.count, role.name) for role in state.job.gang]
    return f"room for its gang of {_list([*roles, _trainers(state.job.minimum)])}"


def _waiting(transaction: Transaction, state: JobState) -> str:
    """Say what a gang waits for: its next try, what nothing will bring, else what is short."""
    if state.is_held_off:
        return "it waits until its next try"
    nodes = transaction.cluster.nodes_of(state.job.nodes)
    if not nodes:
        return "no node takes its trainers: node selector, affinity or taints"
    names = transaction.cluster.snapshot.resources
    for need in needs(state, transaction.cluster.whole):
        if not any(_is_enough(node.allocatable, need.request) for node in nodes):
            most = [max(node.allocatable[resource] for node in nodes) for resource in range(len(names))]
            text = _amounts(names, need.request, most)
            return f"no node is large enough for one {need.name} of {text}"
    row = transaction.unplaced.get(state.job.key)
    what = _amounts(names, row.missing, transaction.free_in_all(state.job.nodes)) if row else "any pod"
    return f"no room for {what} of its gang"


def _is_enough(room: Sequence[int], amounts: Vector) -> bool:
    return all(left >= amount for left, amount in zip(room, amounts, strict=True) if amount)


def _amounts(names: Sequence[str], amounts: Vector, room: Sequence[int]) -> str:
    """Write the amounts that are too much for the room; where each would do alone, all of them."""
    asked = [resource for resource in range(len(names)) if amounts[resource]]
    short = [resource for resource in asked if amounts[resource] > room[resource]]
    together = [resource for resource in asked if names[resource] != "pods"]
    return ", ".join(_amount(names[resource], amounts[resource]) for resource in short or together or asked)


def _amount(name: str, amount: int) -> str:
    if name == "cpu":
        return f"{amount / 1000:g} cpu"
    if name in ("memory", "ephemeral-storage"):
        return f"{amount / 2**30:.4g} GiB {name}" if amount >= 2**30 else f"{amount / 2**20:.4g} MiB {name}"
    if snapshot.is_key(name):
        return snapshot.words(name, amount)
    return f"{amount} {name}"


def _trainers(number: int) -> str:
    return _count(number, "trainer")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _range(state: JobState) -> str:
    return f"{state.job.minimum} to {state.job.maximum}"


def _names(whom: Counter[str]) -> str:
    if len(whom) == 1:
        return next(iter(whom))
    ordered = [name if number == 1 else f"{name} ({number})" for name, number in sorted(whom.items())]
    more = len(ordered) - NAMED
    return _list([*ordered[:NAMED], f"{more} more"] if more > 0 else ordered)


def _list(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


# --- the cluster state becomes a plan: for each job a target, its victims and places, and why ---


def conclude(transaction: Transaction) -> ScalePlan:
    """Give the plan that the state hold."""
    cluster = transaction.cluster
    steps = cluster.steps
    for state in cluster.states.values():
        _stay(state)
    decisions = {key: _decide(transaction, state) for key, state in cluster.states.items()}
    moved = sum(cause == "fairness" for state in cluster.states.values() for _, cause, _ in state.gone)
    return ScalePlan(
        decisions=decisions,
        reservations=cluster.kept(),
        unplaced=tuple(transaction.unplaced[key] for key in sorted(transaction.unplaced)),
        moves=moved,
        steps=steps,
    )


def _stay(state: JobState) -> None:
    """Keep a trainer where it is instead of taking it away and planning a new one on the same node.

    Where the new one is to be the one at which the others meet, the old one will not do.
    """
    if state.job.lacks_meeting:
        return
    for row in list(state.gone):
        old = row[0]
        new = next((slot for slot in state.slots if slot.is_planned and slot.node is old.node), None)
        if old.node is not None and new is not None:
            state.gone.remove(row)
            state.slots[state.slots.index(new)] = old


def _decide(transaction: Transaction, state: JobState) -> Decision:
    planned = sorted((slot for slot in state.slots if slot.is_planned), key=_place)
    gone = sorted((slot for slot, _, _ in state.gone), key=lambda slot: slot.eviction_order)
    is_ending = state.job.state == "finishing"
    unseated = () if is_ending else sorted(trainer.name for trainer in state.unbound)
    counted = Counter(cause for _, cause, _ in state.gone) + Counter(slot.cause for slot in planned)
    return Decision(
        job=state.job.key,
        target=in_range(state.job, state.job.target)
        if is_ending
        else state.count
        if state.is_admitted
        else 0,
        is_admitted=state.is_admitted,
        victims=(*unseated, *(slot.trainer.name for slot in gone if slot.trainer is not None)),
        places=tuple(_place(slot) for slot in planned),
        waiting={
            slot.trainer.name: _place(slot)
            for slot in state.slots
            if slot.trainer is not None and not slot.is_bound
        },
        hints={name: tuple(node_names) for name, node_names in sorted(state.hints.items())},
        moves=counted["fairness"],
        withheld=state.withheld,
        reasons=reasons(transaction, state),
    )


def _place(slot: TrainerSlot) -> str:
    return slot.node.name if slot.node is not None else ""


# --- the table of policies; each enters itself where it is written ---

Policy = Callable[[Snapshot, PolicyConfig], ScalePlan]

POLICIES: Table[Policy] = Table("scaling policy")
policy = POLICIES.register


# --- the policy `fair`: whole gangs first, then equal shares, moved a little at a time ---


@policy("fair")
def fair(snapshot: Snapshot, config: PolicyConfig) -> ScalePlan:
    """Share out by how much of its range every job has."""
    return share_out(snapshot, config, Fulfilment(snapshot.jobs))


def share_out(snapshot: Snapshot, config: PolicyConfig, scoring: Scoring) -> ScalePlan:
    """Serve demands, gangs and minima, then fill free room and even out as `scoring` ranks the jobs.

    A round may leave room to what came before it, so rounds follow until one changes nothing: what the plan
    leaves then needs no further plan.
    """
    budget = _budget(snapshot, config)
    transaction = Transaction(ClusterState(snapshot, scoring, budget))
    place_unbound(transaction, stuck_ms=config.stuck_ms)
    _keep_bounds(transaction)
    demands, admission = Demands(transaction), Admission(transaction, backfill_ms=config.backfill_ms)
    headroom = Headroom(transaction.cluster, config.headroom_pct)
    balance = Balance(transaction, headroom, budget)
    steps = -1
    while steps != transaction.cluster.steps:
        steps = transaction.cluster.steps
        admission.serve(demands.serve())
        headroom.restore()
        grow(transaction, headroom)
        balance.even_out()
    restore_rendezvous(transaction)
    return conclude(transaction)


def _budget(snapshot: Snapshot, config: PolicyConfig) -> int:
    """Give how many trainers may still be moved for fairness within the window that ends now."""
    since = snapshot.now_ms - config.moves_window_ms
    return max(0, config.moves - sum(moved > since for moved in snapshot.moves_ms))


def _keep_bounds(transaction: Transaction) -> None:
    """Take trainers above the maximum of their job."""
    for state in transaction.cluster.states.values():
        if state.job.state == "admitted":
            slots = sorted(state.slots, key=lambda slot: (slot.is_meeting, slot.eviction_order))
            for slot in slots[: max(0, state.count - state.job.maximum)]:
                transaction.cluster.evict(slot, "bounds")
