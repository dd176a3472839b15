"""What is free in all, kept up to date from the ledger's log instead of added up for every question."""

from __future__ import annotations

from collections.abc import Iterable

from mlstack.elastic.policy.ledger import Ledger
from mlstack.elastic.policy.parts import Host


class FreeRoom:
    """What some hosts together have free, those that are overfull counted as full.

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
