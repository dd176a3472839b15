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
    """Tell whether a job may get trainers beyond its minimum."""
    if crew.is_settled or crew.is_withdrawn:
        return False
    return crew.count < crew.job.maximum and not is_cooling(crew, now_ms)


def grow(books: Books, headroom: Headroom) -> int:
    """Fill free room: the highest priority first, then the lowest level; give the number of trainers."""
    now_ms = books.ledger.snapshot.now_ms
    queue = [_rank(crew) for crew in books.ledger.crews.values() if can_gain(crew, now_ms)]
    heapify(queue)
    grown = 0
    while queue:
        crew = books.ledger.crews[heappop(queue)[2]]
        host = books.free_place(crew, crew.job.nodes)
        if host is None or not headroom.allows(host, crew.wanted):
            continue
        books.ledger.add(crew, host, "growth")
        grown += 1
        if crew.count < crew.job.maximum:
            heappush(queue, _rank(crew))
    return grown


def _rank(crew: Crew) -> tuple[int, int, str]:
    return (-crew.job.priority, crew.level, crew.job.key)
