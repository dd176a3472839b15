"""What room there can be at most: what fails by that alone need not be tried pod by pod."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from mlstack.elastic.policy.ledger import Ledger
from mlstack.elastic.policy.needs import needs
from mlstack.elastic.policy.parts import Crew, Host
from mlstack.elastic.policy.shapes import count, shape
from mlstack.elastic.snapshot import Vector


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
    """Tell whether there are places enough for each kind of pod that a job lacks, if the others took none.

    Args:
        ledger: the books.
        crew: the job.
        nodes: where its pods may go, None for anywhere.
        aside: jobs that would be taken off whole for it.
    """
    most = _most(ledger, crew, aside)
    rooms = [most[host.index] for host in ledger.hosts_of(nodes)]
    return all(_is_room(rooms, need.request, need.number) for need in needs(crew, ledger.whole))


def _is_room(rooms: Iterable[list[int]], request: Vector, number: int) -> bool:
    wanted = shape(request)
    for room in rooms:
        if number <= 0:
            break
        number -= count(room, wanted)
    return number <= 0


def _most(ledger: Ledger, crew: Crew, aside: Collection[Crew]) -> list[list[int]]:
    """Give the room of each host without those jobs, and without all trainers of jobs that can spare some."""
    rooms = [list(host.later) for host in ledger.hosts]
    for other in ledger.crews.values():
        if other in aside or (other.surplus and other.job.priority <= crew.job.priority):
            for seat in other.seats:
                if seat.host is not None:
                    _add(rooms[seat.host.index], other.job.trainer)
    for other in aside:
        for held in other.job.held:
            if (host := ledger.by_name.get(held.node)) is not None:
                _add(rooms[host.index], held.request)
    keys = {other.job.key for other in aside}
    for host, request, _, owner in ledger.reservations.values():
        if owner in keys:
            _add(rooms[host.index], request)
    return rooms


def _add(room: list[int], request: Vector) -> None:
    for each, amount in enumerate(request):
        room[each] += amount
