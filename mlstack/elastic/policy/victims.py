"""Which trainers of one node have to go so that a pod fits, and on which node that hurts least."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple

from mlstack.elastic.policy.ledger import Ledger
from mlstack.elastic.policy.parts import Crew, Disposal, Host, Seat
from mlstack.elastic.policy.places import Contest
from mlstack.elastic.policy.shapes import Shape, fits

Allowance = Callable[[Crew], int]


class Clearance(NamedTuple):
    """What it takes to make room on a node.

    Attributes:
        priority: the highest priority of a job that loses a trainer.
        evictions: bound trainers that go.
        waste: share of the left-over that fits nothing.
        poverty: minus the level of the poorest job that loses a trainer.
        seats: the trainers, none if there is room already.
    """

    priority: int
    evictions: int
    waste: int
    poverty: int
    seats: tuple[Seat, ...]


_FREE = Clearance(-(1 << 62), 0, 0, 0, ())


def surplus_up_to(priority: int) -> Allowance:
    """Give the allowance of all trainers above the minimum, of jobs up to a priority among jobs."""
    return lambda crew: crew.surplus if crew.job.priority <= priority else 0


def surplus_under_pods(priority: int) -> Allowance:
    """Give the allowance of all trainers above the minimum, of jobs whose pods have at most this priority."""
    return lambda crew: crew.surplus if crew.job.pod_priority <= priority else 0


def can_go(seat: Seat, gone: int = 0) -> bool:
    """Tell whether so many others of its job run that the job does not fall below its minimum meanwhile.

    The one at which the others meet never goes while the job goes on.

    Args:
        seat: the trainer.
        gone: how many that run the job loses besides.
    """
    if seat.is_meeting:
        return False
    return not seat.is_bound or seat.crew.bound - gone > seat.crew.job.minimum


def clear(ledger: Ledger, host: Host, wanted: Shape, allow: Allowance) -> Clearance | None:
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


def least(host: Host, wanted: Shape, allow: Allowance) -> tuple[int, int, int, int] | None:
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


def _single(host: Host, allowed: dict[Crew, int], priority: int, short: list[tuple[int, int]]) -> list[Seat]:
    """Find one trainer of a priority whose room is enough, none if there is none."""
    best: tuple[bool, int, Disposal, str] | None = None
    chosen: list[Seat] = []
    for crew in allowed:
        if crew.job.priority == priority and fits(crew.job.trainer, short):
            for seat in host.crews[crew]:
                rank = (seat.is_bound, -crew.level, seat.disposal, crew.job.key)
                if (best is None or rank < best) and can_go(seat):
                    best, chosen = rank, [seat]
    return chosen


def _several(host: Host, allowed: dict[Crew, int], priority: int, short: list[tuple[int, int]]) -> list[Seat]:
    """Find trainers up to a priority that together leave room enough, none if they do not."""
    taken: list[tuple[Crew, list[Seat]]] = []
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


def _groups(host: Host, allowed: dict[Crew, int], priority: int) -> Iterator[tuple[Crew, list[Seat]]]:
    """Give the trainers of each job that may go together, in the order in which they go.

    The lowest priority comes first, in it those that no pod runs for yet, then the richest job.
    """
    groups: list[tuple[tuple[int, bool, int, str], Crew, list[Seat], int]] = []
    for crew, most in allowed.items():
        if crew.job.priority > priority:
            continue
        unbound: list[Seat] = []
        bound: list[Seat] = []
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


def _pruned(taken: list[tuple[Crew, list[Seat]]], left: dict[int, int]) -> list[Seat]:
    """Drop trainers that are not needed after all, the dearest first; `left` is minus what is too much."""
    needed: list[Seat] = []
    for crew, seats in reversed(taken):
        frees = crew.job.trainer
        spare = min([-amount // frees[each] for each, amount in left.items() if frees[each]])
        kept = max(0, len(seats) - spare)
        left = {each: amount + (len(seats) - kept) * frees[each] for each, amount in left.items()}
        needed[:0] = seats[:kept]
    return needed


def _cost(ledger: Ledger, host: Host, wanted: Shape, chosen: list[Seat]) -> Clearance:
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
    """Hosts in order of what it costs to make room there.

    Args:
        ledger: the books.
        hosts: hosts that come into question.
        wanted: what the pod requests.
        allow: how many trainers a job may lose.
    """

    def __init__(self, ledger: Ledger, hosts: list[Host], wanted: Shape, allow: Allowance) -> None:
        """Rank all hosts."""
        self._wanted = wanted
        self._allow = allow
        super().__init__(ledger, hosts)

    def rank(self, host: Host) -> tuple[int, int, int, int] | None:
        """Give the least that making room on a host can cost, None where that is not possible."""
        return least(host, self._wanted, self._allow)

    def cost(self, host: Host) -> tuple[int, int, int, int] | None:
        """Give the cost of making room on a host, None where that is not possible."""
        found = clear(self._ledger, host, self._wanted, self._allow)
        return None if found is None else found[:4]


class VictimFinder:
    """Ways to make room for all kinds of pods of one plan.

    Args:
        ledger: the books.
    """

    def __init__(self, ledger: Ledger) -> None:
        """Start without any ranking."""
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
    ) -> Host | None:
        """Give the host where making room hurts least, None if there is none.

        Args:
            wanted: what the pod requests.
            nodes: where it may go, None for anywhere.
            barred: where it may not go.
            allow: how many trainers a job may lose; it may only get stricter while room is made.
            key: what tells this allowance from others.
        """
        whole = (wanted, nodes, barred, key)
        ranking = self._rankings.get(whole)
        if ranking is None:
            ranking = Evictions(self._ledger, self._ledger.hosts_of(nodes, barred), wanted, allow)
            self._rankings[whole] = ranking
        return ranking.best()
