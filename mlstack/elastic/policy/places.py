"""The best free place for a pod, found without looking at every node again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from mlstack.elastic.policy.ledger import Ledger
from mlstack.elastic.policy.parts import Host
from mlstack.elastic.policy.shapes import WHOLE, Shape

C = TypeVar("C", bound=tuple[int, ...])


CROWDED = 8
"""Entries for each host, void ones too, from which on the void ones are thrown away."""


class Ranking(ABC, Generic[C]):
    """Hosts in order of a cost that is worked out anew only for hosts that changed.

    Args:
        ledger: the books.
        hosts: hosts that come into question.
    """

    def __init__(self, ledger: Ledger, hosts: list[Host]) -> None:
        """Rank all hosts."""
        self._ledger = ledger
        self._hosts = {host.index: host for host in hosts}
        self._seen = len(ledger.log)
        self._last = dict.fromkeys(self._hosts, 0)
        costs = self._first_ranks(hosts)
        self._heap = [(cost, index, 0) for cost, index in costs if cost is not None]
        heapify(self._heap)

    @abstractmethod
    def cost(self, host: Host) -> C | None:
        """Give the cost of a host, None where it will not do."""

    def rank(self, host: Host) -> C | None:
        """Give what a host is ranked by: its cost."""
        return self.cost(host)

    def _first_ranks(self, hosts: list[Host]) -> Iterator[tuple[C | None, int]]:
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

    def best(self) -> Host | None:
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
    def rank(self, host: Host) -> C | None:
        """Give a cost that is not higher than that of a host, None where it will not do."""

    def __init__(self, ledger: Ledger, hosts: list[Host]) -> None:
        """Rank all hosts."""
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

    def best(self) -> Host | None:
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
    """Free places for one kind of pod: spared devices, room at once before room to come, best fit.

    Args:
        ledger: the books.
        hosts: hosts that come into question.
        wanted: what the pod requests.
    """

    def __init__(self, ledger: Ledger, hosts: list[Host], wanted: Shape) -> None:
        """Rank all hosts."""
        self._wanted = wanted
        self._whole = ledger.whole
        super().__init__(ledger, hosts)

    def cost(self, host: Host) -> tuple[int, int, int] | None:
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
    """Free places for all kinds of pods of one plan.

    Args:
        ledger: the books.
    """

    def __init__(self, ledger: Ledger) -> None:
        """Start without any ranking."""
        self._ledger = ledger
        self._rankings: dict[tuple[Shape, frozenset[str] | None, frozenset[str]], Places] = {}

    def find(
        self, wanted: Shape, nodes: frozenset[str] | None, barred: frozenset[str] = frozenset()
    ) -> Host | None:
        """Give the best host with room for a pod, None if there is none."""
        key = (wanted, nodes, barred)
        ranking = self._rankings.get(key)
        if ranking is None:
            ranking = Places(self._ledger, self._ledger.hosts_of(nodes, barred), wanted)
            self._rankings[key] = ranking
        return ranking.best()
