"""The best free place for a pod, found without looking at every node again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, NamedTuple, TypeVar

from mlstack.elastic.policy.state import (
    WHOLE,
    ClusterState,
    Disposal,
    JobState,
    NodeInfo,
    Shape,
    TrainerSlot,
    count,
    dominant,
    fits,
    shape,
)
from mlstack.elastic.snapshot import Cause, Demand, Unplaced, Vector

# --- The best free place for a pod, found without looking at every node again ---

C = TypeVar("C", bound=tuple[int, ...])


CROWDED = 8
"""Entries for each host, void ones too, from which on the void ones are thrown away."""


class Ranking(ABC, Generic[C]):
    """Hosts in order of a cost that is worked out anew only for hosts that changed."""

    def __init__(self, ledger: ClusterState, hosts: list[NodeInfo]) -> None:
        self._ledger = ledger
        self._hosts = {host.index: host for host in hosts}
        self._seen = len(ledger.log)
        self._last = dict.fromkeys(self._hosts, 0)
        costs = self._first_ranks(hosts)
        self._heap = [(cost, index, 0) for cost, index in costs if cost is not None]
        heapify(self._heap)

    @abstractmethod
    def cost(self, host: NodeInfo) -> C | None:
        """Give the cost of a host, None where it will not do."""

    def rank(self, host: NodeInfo) -> C | None:
        """Give what a host is ranked by: its cost."""
        return self.cost(host)

    def _first_ranks(self, hosts: list[NodeInfo]) -> Iterator[tuple[C | None, int]]:
        """Give ranks and indexes, worked out once for all hosts that are alike and without trainers."""
        alike: dict[int, C | None] = {}
        for host in hosts:
            if host.crews:
                yield self.rank(host), host.index
            elif (kind := self._ledger.kind(host)) in alike:
                yield alike[kind], host.index
            else:
                alike[kind] = rank = self.rank(host)
                yield rank, host.index

    def _enter(self, index: int, cost: C | None) -> None:
        """Rank a host by a new cost; what was entered for it before is void."""
        self._last[index] += 1
        if cost is not None:
            heappush(self._heap, (cost, index, self._last[index]))

    def catch_up(self) -> None:
        """Rank those hosts again that changed."""
        log = self._ledger.log
        if self._seen == len(log):
            return
        for index in dict.fromkeys(log[self._seen :]):
            if (host := self._hosts.get(index)) is not None:
                self._enter(index, self.rank(host))
        self._seen = len(log)
        if len(self._heap) > CROWDED * len(self._last):
            self._heap = [entry for entry in self._heap if entry[2] == self._last[entry[1]]]
            heapify(self._heap)

    def _first(self) -> tuple[C, int, int] | None:
        """Give the entry of least cost that is not void."""
        heap, last = self._heap, self._last
        while heap and heap[0][2] != last[heap[0][1]]:
            heappop(heap)
        return heap[0] if heap else None

    def best(self) -> NodeInfo | None:
        """Give the host of least cost, None if none will do."""
        self.catch_up()
        first = self._first()
        return self._hosts[first[1]] if first else None


class Contest(Ranking[C]):
    """Hosts in order of a cost that depends on their trainers' jobs too.

    Hosts are ranked by the least that the cost can be, and it is worked out for the first one alone. As
    long as nothing is taken back, jobs only lose what they can spare, and costs rise; afterwards, the hosts
    of all jobs that changed are ranked anew. (Where another job has become the richest, its trainers may
    happen to leave less waste than those that went before: that is not looked for.)
    """

    @abstractmethod
    def rank(self, host: NodeInfo) -> C | None:
        """Give a cost that is not higher than that of a host, None where it will not do."""

    def __init__(self, ledger: ClusterState, hosts: list[NodeInfo]) -> None:
        super().__init__(ledger, hosts)
        self._epoch, self._stirred = ledger.epoch, len(ledger.stirred)

    def catch_up(self) -> None:
        """Rank hosts again that changed, or of whose jobs one changed and may have more to spare."""
        super().catch_up()
        ledger = self._ledger
        if self._epoch == ledger.epoch:
            return
        crews = dict.fromkeys(ledger.stirred[self._stirred :])
        self._epoch, self._stirred = ledger.epoch, len(ledger.stirred)
        for host in dict.fromkeys([seat.host for crew in crews for seat in crew.seats]):
            if host is not None and host.index in self._hosts:
                self._enter(host.index, self.rank(host))

    def best(self) -> NodeInfo | None:
        """Give the host of least cost, None if none will do."""
        self.catch_up()
        while (first := self._first()) is not None:
            host = self._hosts[first[1]]
            if (cost := self.cost(host)) == first[0]:
                return host
            heappop(self._heap)
            self._enter(host.index, cost)
        return None


class Places(Ranking[tuple[int, int, int]]):
    """Free places for one kind of pod: spared devices, room at once before room to come, best fit."""

    def __init__(self, ledger: ClusterState, hosts: list[NodeInfo], wanted: Shape) -> None:
        self._wanted = wanted
        self._whole = ledger.whole
        super().__init__(ledger, hosts)

    def cost(self, host: NodeInfo) -> tuple[int, int, int] | None:
        """Give the cost of a host, None where the pod does not fit."""
        later, now, whole, tier, left = host.later, host.now, self._whole, 0, 0
        for each, amount in self._wanted:  # as in `left_over`, here on the way: asked most often of all
            rest = later[each] - amount
            if rest < 0:
                return None
            if now[each] < amount:
                tier = 1
            left += rest * WHOLE // whole[each]
        return (self._ledger.spared(host, self._wanted) if host.devices else 0, tier, left)


class PlaceFinder:
    """Free places for all kinds of pods of one plan."""

    def __init__(self, ledger: ClusterState) -> None:
        self._ledger = ledger
        self._rankings: dict[tuple[Shape, frozenset[str] | None, frozenset[str]], Places] = {}

    def find(
        self, wanted: Shape, nodes: frozenset[str] | None, barred: frozenset[str] = frozenset()
    ) -> NodeInfo | None:
        """Give the best host with room for a pod, None if there is none."""
        key = (wanted, nodes, barred)
        ranking = self._rankings.get(key)
        if ranking is None:
            ranking = Places(self._ledger, self._ledger.hosts_of(nodes, barred), wanted)
            self._rankings[key] = ranking
        return ranking.best()


# --- Which trainers of one node have to go so that a pod fits, and on which node that hurts least ---

Allowance = Callable[[JobState], int]


class Clearance(NamedTuple):
    """What it takes to make room on a node."""

    priority: int  # the highest priority of a job that loses a trainer
    evictions: int  # bound trainers that go
    waste: int  # share of the left-over that fits nothing
    poverty: int  # minus the level of the poorest job that loses a trainer
    seats: tuple[TrainerSlot, ...]  # the trainers, none if there is room already


_FREE = Clearance(-(1 << 62), 0, 0, 0, ())


def surplus_up_to(priority: int) -> Allowance:
    """Give the allowance of all trainers above the minimum, of jobs up to a priority among jobs."""
    return lambda crew: crew.surplus if crew.job.priority <= priority else 0


def surplus_under_pods(priority: int) -> Allowance:
    """Give the allowance of all trainers above the minimum, of jobs whose pods have at most this priority."""
    return lambda crew: crew.surplus if crew.job.pod_priority <= priority else 0


def can_go(seat: TrainerSlot, gone: int = 0) -> bool:
    """Tell whether so many others of its job run that the job does not fall below its minimum meanwhile.

    The one at which the others meet never goes while the job goes on.
    """
    if seat.is_meeting:
        return False
    return not seat.is_bound or seat.crew.bound - gone > seat.crew.job.minimum


def clear(ledger: ClusterState, host: NodeInfo, wanted: Shape, allow: Allowance) -> Clearance | None:
    """Find the trainers of a host that have to go so that a pod fits, None if that does not help.

    Trainers of the lowest priority go first, then those of the richest job; one that is enough is taken
    rather than several.
    """
    later = host.later
    short = [(each, amount - later[each]) for each, amount in wanted if later[each] < amount]
    if not short:
        return _FREE
    if not fits(host.lifted, wanted):
        return None
    allowed = {crew: most for crew in host.crews if (most := allow(crew)) > 0}
    for priority in sorted({crew.job.priority for crew in allowed}):
        if chosen := _single(host, allowed, priority, short) or _several(host, allowed, priority, short):
            return _cost(ledger, host, wanted, chosen)
    return None


def least(host: NodeInfo, wanted: Shape, allow: Allowance) -> tuple[int, int, int, int] | None:
    """Give a clearance without its seats that is no dearer than the one `clear` finds, None if it finds none.

    There may be none all the same.
    """
    later = host.later
    short = [(each, amount - later[each]) for each, amount in wanted if later[each] < amount]
    if not short:
        return _FREE[:4]
    if not fits(host.lifted, wanted):
        return None
    crews = [crew for crew in host.crews if allow(crew) > 0]
    taken = 1
    for each, amount in short:
        most = max([crew.job.trainer[each] for crew in crews], default=0)
        if not most:
            return None
        taken = max(taken, -(-amount // most))
    priority = min([crew.job.priority for crew in crews])
    return (priority, max(0, taken - host.unbound), 0, -max([crew.level for crew in crews]))


def _single(
    host: NodeInfo, allowed: dict[JobState, int], priority: int, short: list[tuple[int, int]]
) -> list[TrainerSlot]:
    """Find one trainer of a priority whose room is enough, none if there is none."""
    best: tuple[bool, int, Disposal, str] | None = None
    chosen: list[TrainerSlot] = []
    for crew in allowed:
        if crew.job.priority == priority and fits(crew.job.trainer, short):
            for seat in host.crews[crew]:
                rank = (seat.is_bound, -crew.level, seat.disposal, crew.job.key)
                if (best is None or rank < best) and can_go(seat):
                    best, chosen = rank, [seat]
    return chosen


def _several(
    host: NodeInfo, allowed: dict[JobState, int], priority: int, short: list[tuple[int, int]]
) -> list[TrainerSlot]:
    """Find trainers up to a priority that together leave room enough, none if they do not."""
    taken: list[tuple[JobState, list[TrainerSlot]]] = []
    left = dict(short)
    for crew, seats in _groups(host, allowed, priority):
        frees = crew.job.trainer
        if not any([frees[each] for each in left]):
            continue
        number = max([_times(amount, frees[each], len(seats)) for each, amount in left.items()])
        going = seats[:number]
        taken.append((crew, going))
        left = {each: amount - len(going) * frees[each] for each, amount in left.items()}
        if max(left.values()) <= 0:
            return _pruned(taken, left)
    return []


def _groups(
    host: NodeInfo, allowed: dict[JobState, int], priority: int
) -> Iterator[tuple[JobState, list[TrainerSlot]]]:
    """Give the trainers of each job that may go together, in the order in which they go.

    The lowest priority comes first, in it those that no pod runs for yet, then the richest job.
    """
    groups: list[tuple[tuple[int, bool, int, str], JobState, list[TrainerSlot], int]] = []
    for crew, most in allowed.items():
        if crew.job.priority > priority:
            continue
        unbound: list[TrainerSlot] = []
        bound: list[TrainerSlot] = []
        for seat in host.crews[crew]:
            if not seat.is_meeting:
                (bound if seat.is_bound else unbound).append(seat)
        sparing = min(most - len(unbound), crew.bound - crew.job.minimum)
        for each, number in ((unbound, most), (bound, sparing)):
            if each and number > 0:
                standing = (crew.job.priority, each is bound, -crew.level, crew.job.key)
                groups.append((standing, crew, each, number))
    for _, crew, seats, number in sorted(groups, key=lambda group: group[0]):
        yield crew, sorted(seats, key=lambda each: each.disposal)[:number]


def _times(amount: int, size: int, most: int) -> int:
    """Give how many of a size make up an amount, `most` where none does."""
    if amount <= 0:
        return 0
    return -(-amount // size) if size else most


def _pruned(taken: list[tuple[JobState, list[TrainerSlot]]], left: dict[int, int]) -> list[TrainerSlot]:
    """Drop trainers that are not needed after all, the dearest first; `left` is minus what is too much."""
    needed: list[TrainerSlot] = []
    for crew, seats in reversed(taken):
        frees = crew.job.trainer
        spare = min([-amount // frees[each] for each, amount in left.items() if frees[each]])
        kept = max(0, len(seats) - spare)
        left = {each: amount + (len(seats) - kept) * frees[each] for each, amount in left.items()}
        needed[:0] = seats[:kept]
    return needed


def _cost(ledger: ClusterState, host: NodeInfo, wanted: Shape, chosen: list[TrainerSlot]) -> Clearance:
    room = list(host.later)
    priority, level, evictions = -(1 << 62), 1 << 62, 0
    for seat in chosen:
        crew = seat.crew
        for each, amount in crew.wanted:
            room[each] += amount
        priority, level = max(priority, crew.job.priority), min(level, crew.level)
        evictions += seat.is_bound
    for each, amount in wanted:
        room[each] -= amount
    return Clearance(priority, evictions, ledger.waste(room, wanted), -level, tuple(chosen))


class Evictions(Contest[tuple[int, int, int, int]]):
    """Hosts in order of what it costs to make room there."""

    def __init__(self, ledger: ClusterState, hosts: list[NodeInfo], wanted: Shape, allow: Allowance) -> None:
        self._wanted = wanted
        self._allow = allow
        super().__init__(ledger, hosts)

    def rank(self, host: NodeInfo) -> tuple[int, int, int, int] | None:
        """Give the least that making room on a host can cost, None where that is not possible."""
        return least(host, self._wanted, self._allow)

    def cost(self, host: NodeInfo) -> tuple[int, int, int, int] | None:
        """Give the cost of making room on a host, None where that is not possible."""
        found = clear(self._ledger, host, self._wanted, self._allow)
        return None if found is None else found[:4]


class VictimFinder:
    """Ways to make room for all kinds of pods of one plan."""

    def __init__(self, ledger: ClusterState) -> None:
        self._ledger = ledger
        self._rankings: dict[Hashable, Evictions] = {}

    def find(
        self,
        wanted: Shape,
        nodes: frozenset[str] | None,
        barred: frozenset[str],
        allow: Allowance,
        *,
        key: Hashable,
    ) -> NodeInfo | None:
        """Give the host where making room hurts least, None if there is none."""
        whole = (wanted, nodes, barred, key)
        ranking = self._rankings.get(whole)
        if ranking is None:
            ranking = Evictions(self._ledger, self._ledger.hosts_of(nodes, barred), wanted, allow)
            self._rankings[whole] = ranking
        return ranking.best()


# --- Places for masters and parameter servers: where they cost the fewest places for trainers ---
# A 4-core parameter server takes one 5-core trainer's place on an empty node of 24 cores, a second one
# beside it takes none: pods that stay for long are better put where the remainder is used, and where one
# costs as much as elsewhere, it goes where the next one costs least. Nodes are judged as if their trainers
# were lifted, because trainers can be moved and these pods cannot.

Loss = tuple[int, int]

# What a further pod costs where none fits.
_TOO_MUCH = (1 << 62, 1 << 62)


class SlotLoss:
    """What a pod beside trainers costs on a node, counted in places for trainers."""

    def __init__(
        self, trainer: Shape, companion: Shape, wanted: Shape, whole: list[int], values: dict[Vector, int]
    ) -> None:
        self._trainer = trainer
        self._companion = companion
        self._worth = dominant(companion, whole) * 1000 // max(1, dominant(trainer, whole))
        self._wanted = wanted
        beside = dict(companion)
        self._pair = [(each, amount, beside[each]) for each, amount in trainer if each in beside]
        self._values = values
        self._known: dict[Vector, tuple[Loss, Loss]] = {}

    def of(self, room: list[int]) -> tuple[Loss, Loss]:
        """Give what the pod costs in a room, and what a further one like it would cost beside it.

        Each in thousandths of a place, gang pods counted, and in whole places.
        """
        key = tuple(room)
        if (known := self._known.get(key)) is None:
            rest = self._less(room)
            further = self._between(rest, self._less(rest)) if fits(rest, self._wanted) else _TOO_MUCH
            known = self._known[key] = (self._between(room, rest), further)
        return known

    def _less(self, room: list[int]) -> list[int]:
        rest = list(room)
        for each, amount in self._wanted:
            rest[each] -= amount
        return rest

    def _between(self, room: list[int], rest: list[int]) -> Loss:
        places = count(room, self._trainer) - count(rest, self._trainer)
        return (self._value(tuple(room)) - self._value(tuple(rest)), places)

    def _value(self, room: Vector) -> int:
        """Give the most that trainers and companions together are worth in a room."""
        if (known := self._values.get(room)) is not None:
            return known
        best, worth = 0, self._worth
        most = count(room, self._companion) if worth else 0
        rows = [(room[resource], amount, beside) for resource, amount, beside in self._pair]
        for places in range(1 + (count(room, self._trainer) if self._trainer else 0)):
            companions = most
            for free, amount, beside in rows:
                found = (free - places * amount) // beside
                if found < companions:
                    companions = found
            value = companions * worth + 1000 * places
            if value > best:
                best = value
        self._values[room] = best
        return best


class Slots(Contest[tuple[int, ...]]):
    """Hosts in order of the trainers' places that a pod costs there."""

    def __init__(
        self,
        ledger: ClusterState,
        hosts: list[NodeInfo],
        wanted: Shape,
        loss: SlotLoss,
        allow: Allowance,
        *,
        is_late: bool,
    ) -> None:
        self._wanted = wanted
        self._loss = loss
        self._allow = allow
        self._is_late = is_late
        super().__init__(ledger, hosts)

    def rank(self, host: NodeInfo) -> tuple[int, ...] | None:
        """Give the least that a host can cost, None where no room can be made."""
        found = least(host, self._wanted, self._allow)
        if found is None:
            return None
        _, evictions, _, poverty = found
        return self._cost(host, evictions, evictions, poverty)

    def cost(self, host: NodeInfo) -> tuple[int, ...] | None:
        """Give the cost of a host, None where no room can be made."""
        found = clear(self._ledger, host, self._wanted, self._allow)
        return None if found is None else self._cost(host, len(found.seats), found.evictions, found.poverty)

    def _cost(self, host: NodeInfo, taken: int, evictions: int, poverty: int) -> tuple[int, ...]:
        spared = self._ledger.spared(host, self._wanted)
        tightness = self._ledger.left_over(host, self._wanted)
        loss, further = self._loss.of(host.lifted)
        return (taken if self._is_late else 0, spared, *loss, *further, evictions, poverty, tightness)


class SlotFinder:
    """Places for masters and parameter servers of all jobs of one plan."""

    def __init__(self, ledger: ClusterState) -> None:
        self._ledger = ledger
        self._losses: dict[Hashable, SlotLoss] = {}
        self._values: dict[Hashable, dict[Vector, int]] = {}
        self._rankings: dict[Hashable, Slots] = {}

    def find(
        self,
        crew: JobState,
        wanted: Shape,
        nodes: frozenset[str] | None,
        barred: frozenset[str],
        allow: Allowance,
        *,
        is_late: bool,
    ) -> NodeInfo | None:
        """Give the best host for a pod of a job's gang, None if no room can be made."""
        companion = shape(max(crew.job.gang, key=lambda role: role.count).request) if crew.job.gang else ()
        kind = (crew.wanted, companion, wanted)
        if (loss := self._losses.get(kind)) is None:
            values = self._values.setdefault(kind[:2], {})
            loss = self._losses[kind] = SlotLoss(*kind, self._ledger.whole, values)
        whole = (kind, nodes, barred, crew.job.priority, is_late)
        if (ranking := self._rankings.get(whole)) is None:
            hosts = self._ledger.hosts_of(nodes, barred)
            ranking = self._rankings[whole] = Slots(self._ledger, hosts, wanted, loss, allow, is_late=is_late)
        return ranking.best()


# --- The ledger together with the searches in it, and the three ways to give a pod a place ---


class Transaction:
    """All that the steps of a plan share."""

    def __init__(self, ledger: ClusterState) -> None:
        self.ledger = ledger
        self.unplaced: dict[str, Unplaced] = {}  # what found no place so far, by key
        self._places = PlaceFinder(ledger)
        self._victims = VictimFinder(ledger)
        self._slots = SlotFinder(ledger)
        self._free: dict[tuple[frozenset[str] | None, int], list[int]] = {}

    def free_place(self, crew: JobState, nodes: frozenset[str] | None) -> NodeInfo | None:
        """Give the best free place for a trainer of a job."""
        return self._places.find(crew.wanted, nodes, crew.bars)

    def free_in_all(self, nodes: frozenset[str] | None) -> list[int]:
        """Give what is free on all these nodes together."""
        key = (nodes, len(self.ledger.log))
        if key not in self._free:
            hosts = self.ledger.hosts_of(nodes)
            size = range(len(self.ledger.snapshot.resources))
            self._free[key] = [sum(host.later[each] for host in hosts) for each in size]
        return self._free[key]

    def _make_room(self, host: NodeInfo, wanted: Shape, allow: Allowance, cause: Cause, whom: str) -> None:
        found = clear(self.ledger, host, wanted, allow)
        for seat in found.seats if found else ():
            self.ledger.evict(seat, cause, whom)

    def place_foreign(self, demand: Demand) -> bool:
        """Find room for a pod of others, at need by taking trainers above a minimum; tell whether."""
        wanted = shape(demand.request)
        host = self._places.find(wanted, demand.nodes)
        if host is None:
            allow = surplus_under_pods(demand.priority)
            key = ("pods", demand.priority)
            host = self._victims.find(wanted, demand.nodes, frozenset(), allow, key=key)
            if host is None:
                return False
            self._make_room(host, wanted, allow, "yield", demand.key)
        self.ledger.reserve(host, demand.request, demand.key)
        return True

    def place_member(
        self,
        crew: JobState,
        request: Vector,
        nodes: frozenset[str] | None,
        key: str,
        *,
        is_late: bool = False,
    ) -> NodeInfo | None:
        """Find room for a master or parameter server where it costs the fewest places for trainers."""
        wanted = shape(request)
        allow = surplus_up_to(crew.job.priority)
        barred = frozenset[str]() if is_late else crew.bars
        host = self._slots.find(crew, wanted, nodes, barred, allow, is_late=is_late)
        if host is not None:
            self._make_room(host, wanted, allow, "gang", crew.job.key)
            self.ledger.reserve(host, request, key, owner=crew.job.key)
        return host

    def place_trainer(self, crew: JobState, nodes: frozenset[str] | None, cause: Cause) -> bool:
        """Find room for a trainer of a job's minimum; tell whether there is."""
        host = self._places.find(crew.wanted, nodes, crew.bars)
        if host is None:
            allow = surplus_up_to(crew.job.priority)
            key = ("jobs", crew.job.priority)
            host = self._victims.find(crew.wanted, nodes, crew.bars, allow, key=key)
            if host is None:
                return False
            self._make_room(host, crew.wanted, allow, "gang", crew.job.key)
        self.ledger.add(crew, host, cause)
        return True
