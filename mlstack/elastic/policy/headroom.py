"""Places that stay free for what may come, counted in whole places for a trainer, not in sums of scraps."""

from __future__ import annotations

from mlstack.elastic.policy.ledger import Ledger
from mlstack.elastic.policy.parts import Host, Seat
from mlstack.elastic.policy.shapes import Shape, count
from mlstack.elastic.policy.victims import can_go


class _Free:
    """How many places for one kind of trainer are free, kept up to date from the ledger's log."""

    def __init__(self, ledger: Ledger, kind: Shape, percent: int) -> None:
        """Count the places of all hosts, as they are and as if they were empty."""
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

    def change(self, host: Host, wanted: Shape, sign: int) -> int:
        """Give how many places there are more if a pod leaves a host (1), or comes to it (-1)."""
        room = list(host.later)
        for each, amount in wanted:
            room[each] += sign * amount
        return count(room, self._kind) - count(host.later, self._kind)


class Headroom:
    """How many places for each kind of trainer have to stay free: one rule for growing and for shrinking.

    Args:
        ledger: the books.
        percent: hundredths of all places that the nodes would have if they were empty.
    """

    def __init__(self, ledger: Ledger, percent: int) -> None:
        """Count what there is, if anything has to stay free."""
        self._ledger = ledger
        kinds = dict.fromkeys(crew.wanted for crew in ledger.crews.values() if crew.wanted)
        self._kinds = [_Free(ledger, kind, percent) for kind in kinds] if percent else []

    def allows(self, host: Host, wanted: Shape) -> bool:
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

    def _victim(self, kind: _Free) -> Seat | None:
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
