"""Places that stay free for what may come, counted in whole places for a trainer, not in sums of scraps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from mlstack.elastic import snapshot
from mlstack.elastic.policy.gangs import Admission, Demands, restore_meetings, seat_loose
from mlstack.elastic.policy.placement import Clearance, Transaction, can_go, clear
from mlstack.elastic.policy.state import (
    ClusterState,
    Disposal,
    Fulfilment,
    JobState,
    NodeInfo,
    Scoring,
    Shape,
    TrainerSlot,
    count,
    in_range,
    is_within,
    needs,
)
from mlstack.elastic.snapshot import Cause, Decision, PolicyConfig, Reason, ScalePlan, Snapshot, Vector
from mlstack.table import Table

# --- Places that stay free for what may come, counted in whole places for a trainer, not in sums of
# scraps


class _Free:
    """How many places for one kind of trainer are free, kept up to date from the ledger's log."""

    def __init__(self, ledger: ClusterState, kind: Shape, percent: int) -> None:
        self._ledger = ledger
        self._kind = kind
        self._at = [count(host.later, kind) for host in ledger.hosts]
        self._seen = len(ledger.log)
        self._total = sum(self._at)
        places = sum(count(host.allocatable, kind) for host in ledger.hosts)
        self.kept = -(-places * percent // 100)

    def free(self) -> int:
        """Give the number of free places of now."""
        for index in dict.fromkeys(self._ledger.log[self._seen :]):
            now = count(self._ledger.hosts[index].later, self._kind)
            self._total += now - self._at[index]
            self._at[index] = now
        self._seen = len(self._ledger.log)
        return self._total

    def change(self, host: NodeInfo, wanted: Shape, sign: int) -> int:
        """Give how many places there are more if a pod leaves a host (1), or comes to it (-1)."""
        room = list(host.later)
        for each, amount in wanted:
            room[each] += sign * amount
        return count(room, self._kind) - count(host.later, self._kind)


class Headroom:
    """How many places for each kind of trainer have to stay free: one rule for growing and for shrinking."""

    def __init__(self, ledger: ClusterState, percent: int) -> None:
        self._ledger = ledger
        kinds = dict.fromkeys(crew.wanted for crew in ledger.crews.values() if crew.wanted)
        self._kinds = [_Free(ledger, kind, percent) for kind in kinds] if percent else []

    def allows(self, host: NodeInfo, wanted: Shape) -> bool:
        """Tell whether enough places are left if one more trainer goes to a host."""
        for kind in self._kinds:
            lost = kind.change(host, wanted, -1)
            if lost and kind.free() + lost < kind.kept:
                return False
        return True

    def restore(self) -> None:
        """Take trainers above a minimum until enough places are free, or no more can be made."""
        for kind in self._kinds:
            while kind.free() < kind.kept and (seat := self._victim(kind)) is not None:
                self._ledger.evict(seat, "yield", "head-room")

    def _victim(self, kind: _Free) -> TrainerSlot | None:
        """Find the trainer that makes most places: of the lowest priority, then of the richest job."""
        options = [
            ((crew.job.priority, -crew.level, -gained, seat.disposal), seat)
            for crew in self._ledger.crews.values()
            if crew.surplus
            for seat in crew.seats
            if seat.host is not None and can_go(seat)
            if (gained := kind.change(seat.host, crew.wanted, 1)) > 0
        ]
        return min(options, key=lambda option: option[0])[1] if options else None


# --- Free room becomes trainers, one by one, always for the job that is worst off ---


def is_cooling(crew: JobState, now_ms: int) -> bool:
    """Tell whether a job was changed so lately that it is left alone where nothing presses."""
    changed_ms = crew.job.changed_ms
    return changed_ms is not None and now_ms - changed_ms < crew.job.cooldown_ms


def can_gain(crew: JobState, now_ms: int) -> bool:
    """Tell whether a job may get trainers of others beyond its minimum."""
    return _may_have(crew, crew.job.maximum) and not is_cooling(crew, now_ms)


def can_grow(crew: JobState, now_ms: int) -> bool:
    """Tell whether a job may get trainers in free room; to replace what it lost is no change to wait with."""
    most = min(crew.job.target, crew.job.maximum) if is_cooling(crew, now_ms) else crew.job.maximum
    return _may_have(crew, most)


def _may_have(crew: JobState, most: int) -> bool:
    return not (crew.is_settled or crew.is_withdrawn or crew.withheld) and crew.count < most


def grow(books: Transaction, headroom: Headroom) -> int:
    """Fill free room: the highest priority first, then the lowest level; give the number of trainers.

    A job gets so many fewer as failed and are not to be replaced yet; others may have these.
    """
    grown = _fill(books, headroom)
    lent = sum([_withhold(books, crew) for crew in books.ledger.crews.values() if crew.job.failed])
    return grown - lent + (_fill(books, headroom) if lent else 0)


def _withhold(books: Transaction, crew: JobState) -> int:
    """Take back what a job would get in place of failed trainers, once a plan; give how many these are."""
    if crew.withheld or crew.is_settled:
        return 0
    planned = [seat for seat in crew.seats if seat.is_planned]
    crew.withheld = max(0, crew.job.failed - sum(seat.cause != "growth" for seat in planned))
    taken = [seat for seat in planned if seat.cause == "growth"][::-1][: crew.withheld]
    for seat in taken:
        books.ledger.evict(seat, "growth")
    return len(taken)


def _fill(books: Transaction, headroom: Headroom) -> int:
    now_ms = books.ledger.snapshot.now_ms
    queue = [_rank(crew) for crew in books.ledger.crews.values() if can_grow(crew, now_ms)]
    heapify(queue)
    grown = 0
    while queue:
        crew = books.ledger.crews[heappop(queue)[2]]
        host = books.free_place(crew, crew.job.nodes)
        if host is None or not headroom.allows(host, crew.wanted):
            continue
        books.ledger.add(crew, host, "growth")
        grown += 1
        if can_grow(crew, now_ms):
            heappush(queue, _rank(crew))
    return grown


def _rank(crew: JobState) -> tuple[int, int, str]:
    return (-crew.job.priority, crew.level, crew.job.key)


# --- Trainers move from rich jobs to poor ones, a few at a time and only where that evens things
# out


class Balance:
    """Moves for fairness alone."""

    def __init__(self, books: Transaction, headroom: Headroom, budget: int) -> None:
        self._headroom = headroom
        self._ledger = books.ledger
        self._now_ms = books.ledger.snapshot.now_ms
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
        gaining = [crew for crew in self._ledger.crews.values() if can_gain(crew, self._now_ms)]
        for crew in sorted(gaining, key=lambda each: (-each.job.priority, each.level, each.job.key)):
            kind = _kind(crew)
            if kind in failed:
                continue
            if self._help(crew):
                return True
            failed.add(kind)
        return False

    def _help(self, poor: JobState) -> bool:
        allowed = {crew: most for crew in self._ledger.crews.values() if (most := self._spare(crew, poor))}
        if not allowed:
            return False
        found = self._single(poor, allowed) or self._several(poor, allowed)
        if found is None:
            return False
        host, seats = found
        mark = self._ledger.steps
        for seat in seats:
            self._ledger.evict(seat, "fairness", poor.job.key)
        if not self._headroom.allows(host, poor.wanted):
            self._ledger.rollback(mark)
            return False
        self.moves += len(seats)
        self._ledger.add(poor, host, "fairness")
        return True

    def _spare(self, rich: JobState, poor: JobState) -> int:
        """Give how many trainers a job can lose to another one."""
        if rich is poor or rich.job.priority > poor.job.priority or not rich.surplus:
            return 0
        if is_cooling(rich, self._now_ms):
            return 0
        if rich.job.priority < poor.job.priority:
            return rich.surplus
        most, scoring = 0, self._ledger.scoring
        while most < rich.surplus and scoring.is_fairer(poor.job, poor.count, rich.job, rich.count - most):
            most += 1
        return most

    def _single(
        self, poor: JobState, allowed: dict[JobState, int]
    ) -> tuple[NodeInfo, tuple[TrainerSlot, ...]] | None:
        """Find one trainer whose room is enough: of the lowest priority, then of the richest job."""
        for rich in sorted(allowed, key=lambda each: (each.job.priority, -each.level, each.job.key)):
            hosts = [host for host in dict.fromkeys([seat.host for seat in rich.seats]) if host is not None]
            suited = {host for host in hosts if self._is_enough(host, rich, poor)}
            options = [
                (self._rank(seat, poor), seat) for seat in rich.seats if seat.host in suited and can_go(seat)
            ]
            if options:
                seat = min(options, key=lambda option: option[0])[1]
                assert seat.host is not None
                return seat.host, (seat,)
        return None

    def _is_enough(self, host: NodeInfo, rich: JobState, poor: JobState) -> bool:
        """Tell whether a job may use a host, and has room there when a trainer of another one goes."""
        later, frees, names = host.later, rich.job.trainer, poor.job.nodes
        for each, amount in poor.wanted:
            if later[each] + frees[each] < amount:
                return False
        return (names is None or host.name in names) and host.name not in poor.bars

    def _rank(self, seat: TrainerSlot, poor: JobState) -> tuple[int, int, int, Disposal]:
        assert seat.host is not None
        spared = self._ledger.spared(seat.host, poor.wanted)
        return (int(seat.is_bound), spared, self._ledger.left_over(seat.host, poor.wanted), seat.disposal)

    def _several(
        self, poor: JobState, allowed: dict[JobState, int]
    ) -> tuple[NodeInfo, tuple[TrainerSlot, ...]] | None:
        """Find a node where several smaller trainers together leave room enough."""
        if all(is_within(poor.wanted, crew.wanted) for crew in allowed):
            return None
        best: tuple[Clearance, NodeInfo] | None = None
        for host, found in self._clearances(poor, allowed):
            within = self.moves + len(found.seats) <= self._budget
            if within and (best is None or found[:4] < best[0][:4]):
                best = (found, host)
        return (best[1], best[0].seats) if best else None

    def _clearances(
        self, poor: JobState, allowed: dict[JobState, int]
    ) -> Iterator[tuple[NodeInfo, Clearance]]:
        giving = {seat.host for crew in allowed for seat in crew.seats}
        for host in self._ledger.hosts_of(poor.job.nodes, poor.bars):
            if host not in giving:
                continue
            found = clear(self._ledger, host, poor.wanted, lambda crew: allowed.get(crew, 0))
            if found is not None and found.seats:
                yield host, found


def _kind(crew: JobState) -> Hashable:
    """Give what decides what a job could get: where the poorest of a kind finds nothing, no other does."""
    job = crew.job
    standing = (job.priority, job.weight, job.minimum, job.maximum, job.speed, job.curve)
    return (standing, crew.wanted, job.nodes, crew.bars)


# --- Decisions in words: one line each, with numbers and names ---

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


def reasons(books: Transaction, crew: JobState) -> tuple[Reason, ...]:
    """Say why a job gets what it gets, the weightiest reason first."""
    found = [Reason(cause=cause, text=text) for cause, text in crew.notes]
    if not crew.is_admitted:
        found += [] if found else [_outside(books, crew)]
    elif crew.job.state == "finishing":
        found.append(Reason(cause="finishing", text=f"keeps {_trainers(crew.count)} until it ends"))
    else:
        found += _gains(crew) + _losses(crew)
        if not found:
            found.append(_steady(books, crew))
    return tuple(sorted(found, key=lambda reason: ORDER.index(reason.cause)))


def _outside(books: Transaction, crew: JobState) -> Reason:
    """Say why a job has no pods."""
    if crew.is_held_off and crew.job.refused:
        return Reason(cause="refused", text=crew.job.refused)
    return Reason(cause="waiting", text=_waiting(books, crew))


def _steady(books: Transaction, crew: JobState) -> Reason:
    """Say why a job gets no more."""
    job, stays = crew.job, f"stays at {_trainers(crew.count)}"
    if crew.count >= job.maximum and job.refused:
        return Reason(cause="refused", text=f"{stays}: {job.refused}")
    return Reason(cause="steady", text=f"{stays}{_why_no_more(books, crew)}")


def _why_no_more(books: Transaction, crew: JobState) -> str:
    job = crew.job
    if crew.count >= job.maximum:
        return ", its maximum"
    since_ms = books.ledger.snapshot.now_ms - (job.changed_ms or 0)
    is_cooling = job.changed_ms is not None and since_ms < job.cooldown_ms
    why = f"changed within the last {job.cooldown_ms // 1000} s" if is_cooling else "no room for more"
    if crew.withheld:
        why = "trainers failed, and are replaced after a pause"
    return f" of {_range(crew)}: {why}"


def _gains(crew: JobState) -> list[Reason]:
    job, gains = crew.job, Counter(seat.cause for seat in crew.seats if seat.is_planned)
    now = f"{_trainers(crew.count)} of {_range(crew)}"
    texts: dict[Cause, str] = {
        "admitted": _gang(crew),
        "minimum": f"gets {gains['minimum']} back to its minimum of {job.minimum}",
        "growth": f"{_grows(crew, gains['growth'])} to {now} in free room",
        "fairness": f"gets {gains['fairness']} of richer jobs, to {now}",
    }
    is_new = job.state == "waiting"
    return [
        Reason(cause=cause, text=text)
        for cause, text in texts.items()
        if gains[cause] or (cause == "admitted" and is_new)
    ]


def _grows(crew: JobState, number: int) -> str:
    """Say how a job comes by more trainers: what it is told to have already, it only gets back."""
    return f"gets {number} back" if crew.count <= crew.job.target else f"grows by {number}"


def _losses(crew: JobState) -> list[Reason]:
    found = []
    for cause in dict.fromkeys(cause for _, cause, _ in crew.gone if cause != "stuck"):
        whom = Counter(name for _, each, name in crew.gone if each == cause)
        number = sum(whom.values())
        whom = Counter({"its own gang" if name == crew.job.key else name: whom[name] for name in whom})
        favour = f" for {_names(whom)}" if any(whom) else f" above its maximum of {crew.job.maximum}"
        found.append(Reason(cause=cause, text=f"gives up {number} of its trainers{favour}"))
    if crew.loose:
        text = f"withdraws {len(crew.loose)} that wait for a node: their room went to others"
        found.append(Reason(cause="yield", text=text))
    return found


def _gang(crew: JobState) -> str:
    roles = [_count(role.count, role.name) for role in crew.job.gang]
    return f"room for its gang of {_list([*roles, _trainers(crew.job.minimum)])}"


def _waiting(books: Transaction, crew: JobState) -> str:
    """Say what a gang waits for: its next try, what nothing will bring, else what is short."""
    if crew.is_held_off:
        return "it waits until its next try"
    hosts = books.ledger.hosts_of(crew.job.nodes)
    if not hosts:
        return "no node takes its trainers: node selector, affinity or taints"
    names = books.ledger.snapshot.resources
    for need in needs(crew, books.ledger.whole):
        if not any(_is_enough(host.allocatable, need.request) for host in hosts):
            most = [max(host.allocatable[each] for host in hosts) for each in range(len(names))]
            text = _amounts(names, need.request, most)
            return f"no node is large enough for one {need.name} of {text}"
    row = books.unplaced.get(crew.job.key)
    what = _amounts(names, row.missing, books.free_in_all(crew.job.nodes)) if row else "any pod"
    return f"no room for {what} of its gang"


def _is_enough(room: Sequence[int], wanted: Vector) -> bool:
    return all(left >= amount for left, amount in zip(room, wanted, strict=True) if amount)


def _amounts(names: Sequence[str], wanted: Vector, room: Sequence[int]) -> str:
    """Write the amounts that are too much for the room; where each would do alone, all of them."""
    asked = [each for each in range(len(names)) if wanted[each]]
    short = [each for each in asked if wanted[each] > room[each]]
    together = [each for each in asked if names[each] != "pods"]
    return ", ".join(_amount(names[each], wanted[each]) for each in short or together or asked)


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


def _range(crew: JobState) -> str:
    return f"{crew.job.minimum} to {crew.job.maximum}"


def _names(whom: Counter[str]) -> str:
    if len(whom) == 1:
        return next(iter(whom))
    ordered = [name if number == 1 else f"{name} ({number})" for name, number in sorted(whom.items())]
    more = len(ordered) - NAMED
    return _list([*ordered[:NAMED], f"{more} more"] if more > 0 else ordered)


def _list(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


# --- The books become a plan: for each job a target, its victims and places, and why ---


def conclude(books: Transaction) -> ScalePlan:
    """Give the plan that the books hold."""
    ledger = books.ledger
    steps = ledger.steps
    for crew in ledger.crews.values():
        _stay(crew)
    decisions = {key: _decide(books, crew) for key, crew in ledger.crews.items()}
    moved = sum(cause == "fairness" for crew in ledger.crews.values() for _, cause, _ in crew.gone)
    return ScalePlan(
        decisions=decisions,
        reservations=ledger.kept(),
        unplaced=tuple(books.unplaced[key] for key in sorted(books.unplaced)),
        moves=moved,
        steps=steps,
    )


def _stay(crew: JobState) -> None:
    """Keep a trainer where it is instead of taking it away and planning a new one on the same node.

    Where the new one is to be the one at which the others meet, the old one will not do.
    """
    if crew.job.lacks_meeting:
        return
    for row in list(crew.gone):
        old = row[0]
        new = next((seat for seat in crew.seats if seat.is_planned and seat.host is old.host), None)
        if old.host is not None and new is not None:
            crew.gone.remove(row)
            crew.seats[crew.seats.index(new)] = old


def _decide(books: Transaction, crew: JobState) -> Decision:
    planned = sorted((seat for seat in crew.seats if seat.is_planned), key=_place)
    gone = sorted((seat for seat, _, _ in crew.gone), key=lambda seat: seat.disposal)
    is_ending = crew.job.state == "finishing"
    unseated = () if is_ending else sorted(trainer.name for trainer in crew.loose)
    counted = Counter(cause for _, cause, _ in crew.gone) + Counter(seat.cause for seat in planned)
    return Decision(
        job=crew.job.key,
        target=in_range(crew.job, crew.job.target) if is_ending else crew.count if crew.is_admitted else 0,
        is_admitted=crew.is_admitted,
        victims=(*unseated, *(seat.trainer.name for seat in gone if seat.trainer is not None)),
        places=tuple(_place(seat) for seat in planned),
        waiting={
            seat.trainer.name: _place(seat)
            for seat in crew.seats
            if seat.trainer is not None and not seat.is_bound
        },
        hints={name: tuple(nodes) for name, nodes in sorted(crew.hints.items())},
        moves=counted["fairness"],
        withheld=crew.withheld,
        reasons=reasons(books, crew),
    )


def _place(seat: TrainerSlot) -> str:
    return seat.host.name if seat.host is not None else ""


# --- The table of policies; each enters itself where it is written ---

Policy = Callable[[Snapshot, PolicyConfig], ScalePlan]

POLICIES: Table[Policy] = Table("scaling policy")
policy = POLICIES.register


# --- The policy `fair`: whole gangs first, then equal shares, moved a little at a time ---


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
    books = Transaction(ClusterState(snapshot, scoring, budget))
    seat_loose(books, stuck_ms=config.stuck_ms)
    _keep_bounds(books)
    demands, admission = Demands(books), Admission(books, backfill_ms=config.backfill_ms)
    headroom = Headroom(books.ledger, config.headroom_pct)
    balance = Balance(books, headroom, budget)
    steps = -1
    while steps != books.ledger.steps:
        steps = books.ledger.steps
        admission.serve(demands.serve())
        headroom.restore()
        grow(books, headroom)
        balance.even_out()
    restore_meetings(books)
    return conclude(books)


def _budget(snapshot: Snapshot, config: PolicyConfig) -> int:
    """Give how many trainers may still be moved for fairness within the window that ends now."""
    since = snapshot.now_ms - config.moves_window_ms
    return max(0, config.moves - sum(moved > since for moved in snapshot.moves_ms))


def _keep_bounds(books: Transaction) -> None:
    """Take trainers above the maximum of their job."""
    for crew in books.ledger.crews.values():
        if crew.job.state == "admitted":
            seats = sorted(crew.seats, key=lambda each: (each.is_meeting, each.disposal))
            for seat in seats[: max(0, crew.count - crew.job.maximum)]:
                books.ledger.evict(seat, "bounds")
