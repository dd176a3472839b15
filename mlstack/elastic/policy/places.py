"""The best free place for a pod, found without looking at every node again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from mlstack.elastic.policy.ledger import Ledger
from mlstack.elastic.policy.parts import Host
from mlstack.elastic.policy.shapes import Shape

C = TypeVar("C", bound=tuple[int, ...])


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
        self._heap: list[tuple[C, int, int]] = []
        for host in hosts:
            if (cost := self.cost(host)) is not None:
                self._heap.append((cost, host.index, host.version))
        heapify(self._heap)

    @abstractmethod
    def cost(self, host: Host) -> C | None:
        """Give the cost of a host, None where it will not do."""

    def _catch_up(self) -> None:
        log = self._ledger.log
        if self._seen == len(log):
            return
        for index in dict.fromkeys(log[self._seen :]):
            if (host := self._hosts.get(index)) is not None and (cost := self.cost(host)) is not None:
                heappush(self._heap, (cost, index, host.version))
        self._seen = len(log)

    def best(self) -> Host | None:
        """Give the host of least cost, None if none will do."""
        self._catch_up()
        heap = self._heap
        while heap:
            cost, index, version = heap[0]
            host = self._hosts[index]
            if version != host.version:
                heappop(heap)
            elif self.is_current(host, cost):
                return host
        return None

    def is_current(self, host: Host, cost: C) -> bool:
        """Tell whether the cost of the first host holds; if not, it has been ranked anew."""
        return True

    def rank_again(self, host: Host) -> None:
        """Rank the first host by its cost of now."""
        heappop(self._heap)
        if (cost := self.cost(host)) is not None:
            heappush(self._heap, (cost, host.index, host.version))


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
        super().__init__(ledger, hosts)

    def cost(self, host: Host) -> tuple[int, int, int] | None:
        """Give the cost of a host, None where the pod does not fit."""
        later, now, tier = host.later, host.now, 0
        for resource, amount in self._wanted:
            if later[resource] < amount:
                return None
            if now[resource] < amount:
                tier = 1
        ledger = self._ledger
        return (ledger.spared(host, self._wanted), tier, ledger.left_over(host, self._wanted))


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
