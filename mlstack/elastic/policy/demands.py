"""Pods without a node that are no trainers: they come first."""

from __future__ import annotations

from mlstack.elastic.policy.books import Books
from mlstack.elastic.policy.parts import Crew
from mlstack.elastic.policy.shapes import dominant, shape
from mlstack.elastic.scaleplan import Unplaced
from mlstack.elastic.snapshot import Demand


class Demands:
    """The queue of pods without a node, those of higher priority first.

    Args:
        books: ledger and searches.
    """

    def __init__(self, books: Books) -> None:
        """Put all pods into order."""
        self._books = books
        self._left = sorted(books.ledger.snapshot.demands, key=self._rank)

    def _rank(self, demand: Demand) -> tuple[int, int, int, bool, int, str]:
        """Rank by priority, that of the job too, and age; then tied and large ones, which have least choice.

        Room that was made for the gang of a job is so not taken by an older job of lower priority.
        """
        crew = self._books.ledger.crews.get(demand.job)
        priority = crew.job.priority if crew else 0
        size = dominant(shape(demand.request), self._books.ledger.whole) if demand.job else 0
        return (-demand.priority, -priority, demand.created_ms, demand.nodes is None, -size, demand.key)

    def serve(self) -> dict[str, list[Demand]]:
        """Find room for what found none yet; give those pods of running jobs that still have none, by job."""
        self._books.ledger.epoch += 1
        missing: dict[str, list[Demand]] = {}
        served = self._books.ledger.reserved()
        self._left = [each for each in self._left if each.key not in served and not self._serve(each)]
        for demand in self._left:
            if demand.job:
                missing.setdefault(demand.job, []).append(demand)
        return missing

    def _serve(self, demand: Demand) -> bool:
        """Find room for a pod; tell whether it is done with: those of jobs without pods go with them."""
        if not demand.job:
            return self._serve_foreign(demand)
        crew = self._books.ledger.crews.get(demand.job)
        return crew is None or not crew.is_admitted or place_own(self._books, crew, demand)

    def _serve_foreign(self, demand: Demand) -> bool:
        is_placed = self._books.place_foreign(demand)
        if is_placed:
            self._books.unplaced.pop(demand.key, None)
        else:
            self._books.unplaced[demand.key] = Unplaced(key=demand.key, missing=demand.request)
        return is_placed


def place_own(books: Books, crew: Crew, demand: Demand) -> bool:
    """Find room for a master or parameter server of a job: on the nodes it is tied to, or else anywhere."""
    for nodes in dict.fromkeys((demand.nodes, crew.job.nodes)):
        if books.place_member(crew, demand.request, nodes, demand.key, is_late=True) is not None:
            return True
    return False
