"""Trainers move from rich jobs to poor ones, a few at a time and only where that evens things out."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from mlstack.elastic.policy.books import Books
from mlstack.elastic.policy.growth import can_gain, is_cooling
from mlstack.elastic.policy.headroom import Headroom
from mlstack.elastic.policy.parts import Crew, Disposal, Host, Seat
from mlstack.elastic.policy.shapes import is_within
from mlstack.elastic.policy.victims import Clearance, can_go, clear


class Balance:
    """Moves for fairness alone.

    Args:
        books: ledger and searches.
        headroom: places that stay free.
        budget: most trainers that may be taken.

    Attributes:
        moves: trainers taken so far.
    """

    def __init__(self, books: Books, headroom: Headroom, budget: int) -> None:
        """Start with nothing moved."""
        self._headroom = headroom
        self._ledger = books.ledger
        self._now_ms = books.ledger.snapshot.now_ms
        self._budget = budget
        self.moves = 0

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

    def _help(self, poor: Crew) -> bool:
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

    def _spare(self, rich: Crew, poor: Crew) -> int:
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

    def _single(self, poor: Crew, allowed: dict[Crew, int]) -> tuple[Host, tuple[Seat, ...]] | None:
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

    def _is_enough(self, host: Host, rich: Crew, poor: Crew) -> bool:
        """Tell whether a job may use a host, and has room there when a trainer of another one goes."""
        later, frees, names = host.later, rich.job.trainer, poor.job.nodes
        for each, amount in poor.wanted:
            if later[each] + frees[each] < amount:
                return False
        return (names is None or host.name in names) and host.name not in poor.bars

    def _rank(self, seat: Seat, poor: Crew) -> tuple[int, int, int, Disposal]:
        assert seat.host is not None
        spared = self._ledger.spared(seat.host, poor.wanted)
        return (int(seat.is_bound), spared, self._ledger.left_over(seat.host, poor.wanted), seat.disposal)

    def _several(self, poor: Crew, allowed: dict[Crew, int]) -> tuple[Host, tuple[Seat, ...]] | None:
        """Find a node where several smaller trainers together leave room enough."""
        if all(is_within(poor.wanted, crew.wanted) for crew in allowed):
            return None
        best: tuple[Clearance, Host] | None = None
        for host, found in self._clearances(poor, allowed):
            within = self.moves + len(found.seats) <= self._budget
            if within and (best is None or found[:4] < best[0][:4]):
                best = (found, host)
        return (best[1], best[0].seats) if best else None

    def _clearances(self, poor: Crew, allowed: dict[Crew, int]) -> Iterator[tuple[Host, Clearance]]:
        giving = {seat.host for crew in allowed for seat in crew.seats}
        for host in self._ledger.hosts_of(poor.job.nodes, poor.bars):
            if host not in giving:
                continue
            found = clear(self._ledger, host, poor.wanted, lambda crew: allowed.get(crew, 0))
            if found is not None and found.seats:
                yield host, found


def _kind(crew: Crew) -> Hashable:
    """Give what decides what a job could get: where the poorest of a kind finds nothing, no other does."""
    job = crew.job
    standing = (job.priority, job.weight, job.minimum, job.maximum, job.speed, job.curve)
    return (standing, crew.wanted, job.nodes, crew.bars)
