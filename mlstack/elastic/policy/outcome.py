"""The books become a plan: for each job a target, its victims and places, and why."""

from __future__ import annotations

from collections import Counter

from mlstack.elastic.policy.books import Books
from mlstack.elastic.policy.parts import Crew, Seat, in_range
from mlstack.elastic.policy.reasons import reasons
from mlstack.elastic.scaleplan import Decision, ScalePlan


def conclude(books: Books) -> ScalePlan:
    """Give the plan that the books hold."""
    ledger = books.ledger
    steps = ledger.steps
    for crew in ledger.crews.values():
        _stay(crew)
    decisions = {key: _decide(books, crew) for key, crew in ledger.crews.items()}
    moved = sum(cause == "fairness" for crew in ledger.crews.values() for _, cause, _ in crew.gone)
    return ScalePlan(
        decisions=decisions,
        reservations=ledger.kept(),
        unplaced=tuple(books.unplaced[key] for key in sorted(books.unplaced)),
        moves=moved,
        steps=steps,
    )


def _stay(crew: Crew) -> None:
    """Keep a trainer where it is instead of taking it away and planning a new one on the same node.

    Where the new one is to be the one at which the others meet, the old one will not do.
    """
    if crew.job.lacks_meeting:
        return
    for row in list(crew.gone):
        old = row[0]
        new = next((seat for seat in crew.seats if seat.is_planned and seat.host is old.host), None)
        if old.host is not None and new is not None:
            crew.gone.remove(row)
            crew.seats[crew.seats.index(new)] = old


def _decide(books: Books, crew: Crew) -> Decision:
    planned = sorted((seat for seat in crew.seats if seat.is_planned), key=_place)
    gone = sorted((seat for seat, _, _ in crew.gone), key=lambda seat: seat.disposal)
    is_ending = crew.job.state == "finishing"
    unseated = () if is_ending else sorted(trainer.name for trainer in crew.loose)
    counted = Counter(cause for _, cause, _ in crew.gone) + Counter(seat.cause for seat in planned)
    return Decision(
        job=crew.job.key,
        target=in_range(crew.job, crew.job.target) if is_ending else crew.count if crew.is_admitted else 0,
        is_admitted=crew.is_admitted,
        victims=(*unseated, *(seat.trainer.name for seat in gone if seat.trainer is not None)),
        places=tuple(_place(seat) for seat in planned),
        waiting={
            seat.trainer.name: _place(seat)
            for seat in crew.seats
            if seat.trainer is not None and not seat.is_bound
        },
        hints={name: tuple(nodes) for name, nodes in sorted(crew.hints.items())},
        moves=counted["fairness"],
        withheld=crew.withheld,
        reasons=reasons(books, crew),
    )


def _place(seat: Seat) -> str:
    return seat.host.name if seat.host is not None else ""
