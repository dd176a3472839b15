"""All that a job lacks finds a place, or nothing is changed."""

from __future__ import annotations

from collections.abc import Collection

from mlstack.elastic.policy.books import Books
from mlstack.elastic.policy.demands import place_own
from mlstack.elastic.policy.needs import Need, amount, members, needs
from mlstack.elastic.policy.parts import Crew
from mlstack.elastic.policy.shapes import fits, shape
from mlstack.elastic.policy.sums import FreeRoom
from mlstack.elastic.scaleplan import Cause
from mlstack.elastic.snapshot import Demand


class Attempts:
    """Tries to give jobs what they lack.

    Args:
        books: ledger and searches.

    Attributes:
        missing: masters and parameter servers of running jobs that found no place, by job.
    """

    def __init__(self, books: Books) -> None:
        """Start with nothing missing."""
        self._books = books
        self._ledger = books.ledger
        self.missing: dict[str, list[Demand]] = {}
        self._free: dict[frozenset[str] | None, FreeRoom] = {}

    def attempt(self, crew: Crew, nodes: frozenset[str] | None, *, hurry: bool = False) -> list[Need]:
        """Try to place all that a job lacks; give what found no place, and then nothing was changed.

        Args:
            crew: the job.
            nodes: where its pods may go, None for anywhere.
            hurry: whether the first pod without a place is all that counts.
        """
        if not self.is_conceivable(crew, nodes):
            return needs(crew, self._ledger.whole)
        mark, was_admitted = self._ledger.steps, crew.is_admitted
        hints: dict[str, list[str]] = {}
        left = self._place_members(crew, nodes, hints)
        if not (left and hurry):
            left += self._place_missing(crew)
        if not (left and hurry):
            left += self._place_trainers(crew, nodes, "minimum" if was_admitted else "admitted")
        if left:
            self._ledger.rollback(mark)
        elif not was_admitted:
            self._ledger.admit(crew, hints)
        return left

    def _place_members(
        self, crew: Crew, nodes: frozenset[str] | None, hints: dict[str, list[str]]
    ) -> list[Need]:
        left = []
        for need in members(crew, self._ledger.whole):
            key = f"{crew.job.key} {need.name}"
            for placed in range(need.number):
                host = self._books.place_member(crew, need.request, nodes, key)
                if host is None:
                    left.append(need._replace(number=need.number - placed))
                    break
                hints.setdefault(need.name, []).append(host.name)
        return left

    def _place_missing(self, crew: Crew) -> list[Need]:
        return [
            Need(demand.key, demand.request, 1)
            for demand in self.missing.get(crew.job.key, ())
            if not place_own(self._books, crew, demand)
        ]

    def _place_trainers(self, crew: Crew, nodes: frozenset[str] | None, cause: Cause) -> list[Need]:
        while crew.count < crew.job.minimum:
            if not self._books.place_trainer(crew, nodes, cause):
                return [Need("trainer", crew.job.trainer, crew.job.minimum - crew.count)]
        return []

    def is_conceivable(self, crew: Crew, nodes: frozenset[str] | None, aside: Collection[Crew] = ()) -> bool:
        """Tell by sums alone whether there could be room enough.

        Args:
            crew: the job.
            nodes: where its pods may go, None for anywhere.
            aside: jobs that would be taken off whole for it.
        """
        size = len(self._ledger.snapshot.resources)
        needed = shape(amount(needs(crew, self._ledger.whole), size))
        if (free := self._free.get(nodes)) is None:
            free = self._free[nodes] = FreeRoom(self._ledger, self._ledger.hosts_of(nodes))
        room = free.sums()
        for other in self._ledger.crews.values():
            if other.job.priority <= crew.job.priority and (surplus := other.surplus):
                for each, part in other.wanted:
                    room[each] += surplus * part
        for other in aside:
            for each, part in other.wanted:
                room[each] += (other.count - other.surplus) * part
            for held in other.job.held:
                for each, part in enumerate(held.request):
                    room[each] += part
        keys = {other.job.key for other in aside}
        for _, request, _, owner in self._ledger.reservations.values() if keys else ():
            if owner in keys:
                for each, part in enumerate(request):
                    room[each] += part
        return fits(room, needed)
