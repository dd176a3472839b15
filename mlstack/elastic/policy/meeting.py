"""Jobs whose trainers meet at one of them get that one back when it is lost."""

from __future__ import annotations

from mlstack.elastic.policy.books import Books
from mlstack.elastic.policy.parts import Crew, Seat

TEXT = "makes the trainer anew at which the others meet"


def restore_meetings(books: Books) -> None:
    """Plan a trainer for each job that lacks its meeting point: at need in place of another of its own.

    The others are at a loss without it, so that the one that goes is none the less, whatever the minimum.
    """
    for crew in books.ledger.crews.values():
        if crew.job.lacks_meeting and not crew.is_settled:
            _restore(books, crew)


def _restore(books: Books, crew: Crew) -> None:
    if any(seat.is_planned for seat in crew.seats):
        return
    host = books.free_place(crew, crew.job.nodes) if crew.count < crew.job.maximum else None
    if host is None:
        giving = [seat for seat in crew.seats if _may_be_replaced(seat)]
        if not giving:
            return
        seat = min(giving, key=lambda each: each.disposal)
        host = seat.host
        books.ledger.evict(seat, "gang", crew.job.key)
    assert host is not None
    books.ledger.add(crew, host, "gang")
    crew.notes.append(("gang", TEXT))


def _may_be_replaced(seat: Seat) -> bool:
    """Tell whether a new trainer can have the place of this one."""
    host, crew = seat.host, seat.crew
    if host is None or host.name in crew.bars or not seat.is_bound:
        return False
    return crew.job.nodes is None or host.name in crew.job.nodes
