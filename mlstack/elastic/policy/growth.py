"""Free room becomes trainers, one by one, always for the job that is worst off."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from mlstack.elastic.policy.books import Books
from mlstack.elastic.policy.headroom import Headroom
from mlstack.elastic.policy.parts import Crew


def is_cooling(crew: Crew, now_ms: int) -> bool:
    """Tell whether a job was changed so lately that it is left alone where nothing presses."""
    changed_ms = crew.job.changed_ms
    return changed_ms is not None and now_ms - changed_ms < crew.job.cooldown_ms


def can_gain(crew: Crew, now_ms: int) -> bool:
    """Tell whether a job may get trainers of others beyond its minimum."""
    return _may_have(crew, crew.job.maximum) and not is_cooling(crew, now_ms)


def can_grow(crew: Crew, now_ms: int) -> bool:
    """Tell whether a job may get trainers in free room; to replace what it lost is no change to wait with."""
    most = min(crew.job.target, crew.job.maximum) if is_cooling(crew, now_ms) else crew.job.maximum
    return _may_have(crew, most)


def _may_have(crew: Crew, most: int) -> bool:
    return not (crew.is_settled or crew.is_withdrawn or crew.withheld) and crew.count < most


def grow(books: Books, headroom: Headroom) -> int:
    """Fill free room: the highest priority first, then the lowest level; give the number of trainers.

    A job gets so many fewer as failed and are not to be replaced yet; others may have these.
    """
    grown = _fill(books, headroom)
    lent = sum([_withhold(books, crew) for crew in books.ledger.crews.values() if crew.job.failed])
    return grown - lent + (_fill(books, headroom) if lent else 0)


def _withhold(books: Books, crew: Crew) -> int:
    """Take back what a job would get in place of failed trainers, once a plan; give how many these are."""
    if crew.withheld or crew.is_settled:
        return 0
    planned = [seat for seat in crew.seats if seat.is_planned]
    crew.withheld = max(0, crew.job.failed - sum(seat.cause != "growth" for seat in planned))
    taken = [seat for seat in planned if seat.cause == "growth"][::-1][: crew.withheld]
    for seat in taken:
        books.ledger.evict(seat, "growth")
    return len(taken)


def _fill(books: Books, headroom: Headroom) -> int:
    now_ms = books.ledger.snapshot.now_ms
    queue = [_rank(crew) for crew in books.ledger.crews.values() if can_grow(crew, now_ms)]
    heapify(queue)
    grown = 0
    while queue:
        crew = books.ledger.crews[heappop(queue)[2]]
        host = books.free_place(crew, crew.job.nodes)
        if host is None or not headroom.allows(host, crew.wanted):
            continue
        books.ledger.add(crew, host, "growth")
        grown += 1
        if can_grow(crew, now_ms):
            heappush(queue, _rank(crew))
    return grown


def _rank(crew: Crew) -> tuple[int, int, str]:
    return (-crew.job.priority, crew.level, crew.job.key)
