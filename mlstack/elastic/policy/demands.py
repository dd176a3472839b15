"""Pods without a node that are no trainers: they come first."""

from __future__ import annotations

from mlstack.elastic.policy.books import Books
from mlstack.elastic.policy.parts import Crew
from mlstack.elastic.scaleplan import Unplaced
from mlstack.elastic.snapshot import Demand


def serve_demands(books: Books) -> dict[str, list[Demand]]:
    """Find room for every waiting pod, those of higher priority first; give those of jobs that found none."""
    missing: dict[str, list[Demand]] = {}
    ordered = sorted(
        books.ledger.snapshot.demands, key=lambda each: (-each.priority, each.created_ms, each.key)
    )
    for demand in ordered:
        crew = books.ledger.crews.get(demand.job)
        if crew is not None and crew.is_admitted:
            if not place_own(books, crew, demand):
                missing.setdefault(demand.job, []).append(demand)
        elif not books.place_foreign(demand):
            books.unplaced[demand.key] = Unplaced(key=demand.key, missing=demand.request)
    return missing


def place_own(books: Books, crew: Crew, demand: Demand) -> bool:
    """Find room for a master or parameter server of a job: on the nodes it is tied to, or else anywhere."""
    for nodes in dict.fromkeys((demand.nodes, crew.job.nodes)):
        if books.place_member(crew, demand.request, nodes, demand.key) is not None:
            return True
    return False
