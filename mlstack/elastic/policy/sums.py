"""What room there can be at most: what fails by that alone need not be tried pod by pod."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Set

from mlstack.elastic.policy.ledger import Ledger
from mlstack.elastic.policy.needs import needs
from mlstack.elastic.policy.parts import Crew, Host
from mlstack.elastic.policy.shapes import Shape, count, shape
from mlstack.elastic.snapshot import Vector

Room = list[int]


class FreeRoom:
    """What some hosts together have free, kept up to date from the ledger's log; overfull ones count as full.

    Args:
        ledger: the books.
        hosts: the hosts.
    """

    def __init__(self, ledger: Ledger, hosts: Iterable[Host]) -> None:
        """Add up once."""
        self._ledger = ledger
        self._seen = len(ledger.log)
        self._at = {host.index: [max(0, amount) for amount in host.later] for host in hosts}
        self._sums = [sum(amounts) for amounts in zip(*self._at.values(), strict=True)]
        self._sums += [0] * (len(ledger.whole) - len(self._sums))

    def sums(self) -> list[int]:
        """Give the sum of each resource."""
        log = self._ledger.log
        for index in dict.fromkeys(log[self._seen :]):
            if (before := self._at.get(index)) is not None:
                self._at[index] = after = [max(0, amount) for amount in self._ledger.hosts[index].later]
                for each, amount in enumerate(after):
                    self._sums[each] += amount - before[each]
        self._seen = len(log)
        return list(self._sums)


def has_places(
    ledger: Ledger, crew: Crew, nodes: frozenset[str] | None, aside: Collection[Crew] = ()
) -> bool:
    """Tell whether there can be places enough for each kind of pod that a job lacks, if the others took none.

    Args:
        ledger: the books.
        crew: the job.
        nodes: where its pods may go, None for anywhere.
        aside: jobs that would be taken off whole for it.
    """
    rooms = _without(ledger, aside)
    givers = {
        each for each in ledger.crews.values() if each.surplus and each.job.priority <= crew.job.priority
    }
    givers.difference_update(aside)
    pairs = [(rooms[host.index], _lifted(host, rooms[host.index], givers)) for host in ledger.hosts_of(nodes)]
    return all(
        _is_room(pairs, shape(need.request), need.number, givers) for need in needs(crew, ledger.whole)
    )


def _is_room(pairs: list[tuple[Room, Room]], wanted: Shape, number: int, givers: set[Crew]) -> bool:
    """Tell whether there can be so many places, in free room or in that of trainers that can be spared."""
    missing = number - sum([count(room, wanted) for room, _ in pairs])
    if missing <= 0:
        return True
    requests = [giver.job.trainer for giver in givers]
    largest = [(each, amount, max([one[each] for one in requests], default=0)) for each, amount in wanted]
    prices: list[int] = []
    for room, lifted in pairs:
        free = count(room, wanted)
        prices += _prices(room, free, min(count(lifted, wanted), free + missing), largest)
    cheapest = sorted(prices)[:missing]
    return len(cheapest) == missing and sum(cheapest) <= sum([giver.surplus for giver in givers])


def _prices(room: Room, free: int, most: int, largest: list[tuple[int, int, int]]) -> Iterator[int]:
    """Give how many trainers at least have to go for each place in a room beyond those that are free."""
    gone = 0
    for places in range(free + 1, most + 1):
        before = gone
        for each, amount, size in largest:
            gone = max(gone, -((room[each] - places * amount) // max(1, size)))
        yield gone - before


def _without(ledger: Ledger, aside: Collection[Crew]) -> list[Room]:
    """Give the room of each host once those jobs are gone."""
    gone = set(aside)
    rooms = [_lifted(host, host.later, gone) for host in ledger.hosts]
    for other in aside:
        for held in other.job.held:
            if (host := ledger.by_name.get(held.node)) is not None:
                _add(rooms[host.index], held.request)
    keys = {other.job.key for other in aside}
    for host, request, _, owner in ledger.reservations.values():
        if owner in keys:
            _add(rooms[host.index], request)
    return rooms


def _lifted(host: Host, room: Room, crews: Set[Crew]) -> Room:
    """Give a room of a host and that of all trainers there of those jobs."""
    lifted = list(room)
    for crew in host.crews.keys() & crews if crews else ():
        number = len(host.crews[crew])
        for each, amount in crew.wanted:
            lifted[each] += number * amount
    return lifted


def _add(room: Room, request: Vector) -> None:
    for each, amount in enumerate(request):
        room[each] += amount
