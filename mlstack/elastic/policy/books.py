"""The ledger together with the searches in it, and the three ways to give a pod a place."""

from __future__ import annotations

from mlstack.elastic.policy.ledger import Ledger
from mlstack.elastic.policy.parts import Crew, Host
from mlstack.elastic.policy.places import PlaceFinder
from mlstack.elastic.policy.shapes import Shape, shape
from mlstack.elastic.policy.slots import SlotFinder
from mlstack.elastic.policy.victims import Allowance, VictimFinder, clear, surplus_under_pods, surplus_up_to
from mlstack.elastic.scaleplan import Cause, Unplaced
from mlstack.elastic.snapshot import Demand, Vector


class Books:
    """All that the steps of a plan share.

    Args:
        ledger: the books.

    Attributes:
        unplaced: what found no place so far, by key.
    """

    def __init__(self, ledger: Ledger) -> None:
        """Start without any search made."""
        self.ledger = ledger
        self.unplaced: dict[str, Unplaced] = {}
        self._places = PlaceFinder(ledger)
        self._victims = VictimFinder(ledger)
        self._slots = SlotFinder(ledger)
        self._free: dict[tuple[frozenset[str] | None, int], list[int]] = {}

    def free_place(self, crew: Crew, nodes: frozenset[str] | None) -> Host | None:
        """Give the best free place for a trainer of a job."""
        return self._places.find(crew.wanted, nodes, crew.bars)

    def free_in_all(self, nodes: frozenset[str] | None) -> list[int]:
        """Give what is free on all these nodes together."""
        key = (nodes, len(self.ledger.log))
        if key not in self._free:
            hosts = self.ledger.hosts_of(nodes)
            size = range(len(self.ledger.snapshot.resources))
            self._free[key] = [sum(host.later[each] for host in hosts) for each in size]
        return self._free[key]

    def _make_room(self, host: Host, wanted: Shape, allow: Allowance, cause: Cause, whom: str) -> None:
        found = clear(self.ledger, host, wanted, allow)
        for seat in found.seats if found else ():
            self.ledger.evict(seat, cause, whom)

    def place_foreign(self, demand: Demand) -> bool:
        """Find room for a pod of others, at need by taking trainers above a minimum; tell whether."""
        wanted = shape(demand.request)
        host = self._places.find(wanted, demand.nodes)
        if host is None:
            allow = surplus_under_pods(demand.priority)
            key = ("pods", demand.priority)
            host = self._victims.find(wanted, demand.nodes, frozenset(), allow, key=key)
            if host is None:
                return False
            self._make_room(host, wanted, allow, "yield", demand.key)
        self.ledger.reserve(host, demand.request, demand.key)
        return True

    def place_member(
        self, crew: Crew, request: Vector, nodes: frozenset[str] | None, key: str, *, is_late: bool = False
    ) -> Host | None:
        """Find room for a master or parameter server where it costs the fewest places for trainers.

        Args:
            crew: its job.
            request: what it requests.
            nodes: where it may go, None for anywhere.
            key: its name.
            is_late: whether it is there already: then rather where no trainer has to go, and on nodes too
                that are passed over, since it may be tied to one.
        """
        wanted = shape(request)
        allow = surplus_up_to(crew.job.priority)
        barred = frozenset[str]() if is_late else crew.bars
        host = self._slots.find(crew, wanted, nodes, barred, allow, is_late=is_late)
        if host is not None:
            self._make_room(host, wanted, allow, "gang", crew.job.key)
            self.ledger.reserve(host, request, key, owner=crew.job.key)
        return host

    def place_trainer(self, crew: Crew, nodes: frozenset[str] | None, cause: Cause) -> bool:
        """Find room for a trainer of a job's minimum; tell whether there is."""
        host = self._places.find(crew.wanted, nodes, crew.bars)
        if host is None:
            allow = surplus_up_to(crew.job.priority)
            key = ("jobs", crew.job.priority)
            host = self._victims.find(crew.wanted, nodes, crew.bars, allow, key=key)
            if host is None:
                return False
            self._make_room(host, crew.wanted, allow, "gang", crew.job.key)
        self.ledger.add(crew, host, cause)
        return True
