"""Which trainers of one node have to go so that a pod fits, and on which node that hurts least."""

from __future__ import annotations

from collections.abc import Callable, Hashable
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
    allowed = {crew: allow(crew) for crew in host.crews}
    candidates = [seat for seat in host.seats if allowed[seat.crew] > 0 and can_go(seat)]
    if not candidates:
        return None
    candidates.sort(key=_preference)
    for priority in dict.fromkeys([seat.crew.job.priority for seat in candidates]):
        eligible = [seat for seat in candidates if seat.crew.job.priority <= priority]
        if chosen := _choose(eligible, short, allowed):
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
    planned = sum([not seat.is_bound for seat in host.seats])
    priority = min([crew.job.priority for crew in crews])
    return (priority, max(0, taken - planned), 0, -max([crew.level for crew in crews]))


def _preference(seat: Seat) -> tuple[int, int, int, Disposal]:
    crew = seat.crew
    return (crew.job.priority, int(seat.is_bound), -crew.level, seat.disposal)


def _choose(eligible: list[Seat], short: list[tuple[int, int]], allowed: dict[Crew, int]) -> list[Seat]:
    for seat in eligible:
        if fits(seat.crew.job.trainer, short):
            return [seat]
    taken: list[Seat] = []
    lost = dict.fromkeys(allowed, 0)
    bound = dict.fromkeys(allowed, 0)
    left = dict(short)
    for seat in eligible:
        crew = seat.crew
        frees = crew.job.trainer
        if lost[crew] < allowed[crew] and can_go(seat, bound[crew]) and any([frees[each] for each in left]):
            lost[crew] += 1
            bound[crew] += seat.is_bound
            taken.append(seat)
            for each in left:
                left[each] -= frees[each]
            if max(left.values()) <= 0:
                return _pruned(taken, left)
    return []


def _pruned(taken: list[Seat], left: dict[int, int]) -> list[Seat]:
    """Drop trainers that are not needed after all, the dearest first; `left` is what is still short."""
    for seat in reversed(taken[:]):
        frees = seat.crew.job.trainer
        if len(taken) > 1 and max([amount + frees[each] for each, amount in left.items()]) <= 0:
            taken = [each for each in taken if each is not seat]
            left = {each: amount + frees[each] for each, amount in left.items()}
    return taken


def _cost(ledger: Ledger, host: Host, wanted: Shape, chosen: list[Seat]) -> Clearance:
    room = list(host.later)
    for seat in chosen:
        for each, amount in seat.crew.wanted:
            room[each] += amount
    for each, amount in wanted:
        room[each] -= amount
    return Clearance(
        priority=max([seat.crew.job.priority for seat in chosen]),
        evictions=sum([seat.is_bound for seat in chosen]),
        waste=ledger.waste(room, wanted),
        poverty=-min([seat.crew.level for seat in chosen]),
        seats=tuple(chosen),
    )


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
