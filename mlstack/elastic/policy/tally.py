"""What EDL's rules look at: sums over the whole cluster and what is idle on each node.

Demand counts all pods, those without a node too: where it exceeds the total, somebody waits. Pods on their
way out still count as used.
"""

from __future__ import annotations

from collections.abc import Iterable

from mlstack.elastic.snapshot import Job, Snapshot, Vector


class Tally:
    """Sums and idle room of a snapshot, changed by a dry run.

    Attributes:
        totals: what all nodes offer.
        lines: most that may be requested; the load factor lowers it for CPU alone, as in EDL.
        demand: what all pods request.
        idle: what is idle on each node, by name.
    """

    def __init__(self, snapshot: Snapshot, *, load_pct: int) -> None:
        """Add up everything but the trainers, masters and parameter servers that are not pods yet."""
        self._cpu = position(snapshot, "cpu")
        width = len(snapshot.resources)
        self.totals = [sum(node.allocatable[each] for node in snapshot.nodes) for each in range(width)]
        self.lines = list(self.totals)
        if self._cpu is not None:
            self.lines[self._cpu] = self.totals[self._cpu] * load_pct // 100
        self.demand = [0] * width
        self.idle: dict[str, list[int]] = {}
        self._full: dict[tuple[object, frozenset[str] | None], int] = {}
        self._settle(snapshot)
        self._names = list(self.idle)

    def _settle(self, snapshot: Snapshot) -> None:
        for node in sorted(snapshot.nodes, key=lambda node: node.name):
            self.idle[node.name] = list(node.allocatable)
            self.take(node.name, node.used)
            self.ask(node.used)
        for leaving in snapshot.arriving:
            self.take(leaving.node, leaving.request)
            self.ask(leaving.request)
        for demand in snapshot.demands:
            self.ask(demand.request)

    def ask(self, request: Vector, times: int = 1) -> None:
        """Raise the demand by so many pods; a negative number lowers it."""
        for each, amount in enumerate(request):
            self.demand[each] += amount * times

    def take(self, node: str, request: Vector) -> None:
        """Take room on a node; a node that takes no pods has none that counts."""
        if (idle := self.idle.get(node)) is not None:
            for each, amount in enumerate(request):
                idle[each] -= amount

    def give(self, node: str, request: Vector) -> None:
        """Give room on a node back."""
        self.take(node, tuple(-amount for amount in request))
        self._full.clear()

    def is_over(self, resource: int) -> bool:
        """Whether more of a resource is asked for than may be requested."""
        return self.demand[resource] > self.lines[resource]

    def room(self, resource: int) -> int:
        """Give how much more of a resource may be requested."""
        return self.lines[resource] - self.demand[resource]

    def first_fit(self, request: Vector, resources: Iterable[int], nodes: frozenset[str] | None) -> str:
        """Give the first node by name with room in those resources, empty if there is none.

        Where there was no room there is none later unless some was given back: those nodes are passed over.
        """
        wanted = tuple((each, request[each]) for each in resources if request[each])
        start = self._full.get((wanted, nodes), 0)
        for place in range(start, len(self._names)):
            name = self._names[place]
            if nodes is not None and name not in nodes:
                continue
            idle = self.idle[name]
            if all(idle[each] >= amount for each, amount in wanted):
                self._full[wanted, nodes] = place
                return name
        self._full[wanted, nodes] = len(self._names)
        return ""


def position(snapshot: Snapshot, resource: str) -> int | None:
    """Give where a resource stands in the vectors, None if the snapshot does not know it."""
    return snapshot.resources.index(resource) if resource in snapshot.resources else None


def amount(request: Vector, resource: int | None) -> int:
    """Give how much of a resource is requested, 0 of an unknown one."""
    return 0 if resource is None else request[resource]


def hold_bound(tally: Tally, jobs: Iterable[Job]) -> None:
    """Take the room of the trainers that have a node; their demand is counted apart."""
    for job in jobs:
        for trainer in job.trainers:
            tally.take(trainer.node, job.trainer)
