"""Places that growth leaves free, counted in whole places for a trainer and not in sums of scraps."""

from __future__ import annotations

from mlstack.elastic.policy.ledger import Ledger
from mlstack.elastic.policy.parts import Host
from mlstack.elastic.policy.shapes import Shape, count


class Headroom:
    """How many places for each kind of trainer have to stay free.

    Args:
        ledger: the books.
        percent: hundredths of all places that the nodes would have if they were empty.
    """

    def __init__(self, ledger: Ledger, percent: int) -> None:
        """Start without having counted."""
        self._ledger = ledger
        self._percent = percent
        self._kept: dict[Shape, int] = {}

    def allows(self, host: Host, wanted: Shape) -> bool:
        """Tell whether enough places are left if one more trainer goes to a host."""
        if not self._percent or not wanted:
            return True
        return all(self._is_left(host, wanted, kind) for kind in self._kinds())

    def _kinds(self) -> list[Shape]:
        return [kind for kind in dict.fromkeys(crew.wanted for crew in self._ledger.crews.values()) if kind]

    def _is_left(self, host: Host, wanted: Shape, kind: Shape) -> bool:
        if kind not in self._kept:
            places = sum(count(each.allocatable, kind) for each in self._ledger.hosts)
            self._kept[kind] = -(-places * self._percent // 100)
        free = sum(count(each.later, kind) for each in self._ledger.hosts)
        rest = list(host.later)
        for each, amount in wanted:
            rest[each] -= amount
        lost = count(host.later, kind) - count(rest, kind)
        return lost == 0 or free - lost >= self._kept[kind]
