"""Trainers without a node: they keep their planned place, get another one, or are withdrawn when stuck."""

from __future__ import annotations

from mlstack.elastic.policy.books import Books
from mlstack.elastic.policy.parts import Crew, Seat
from mlstack.elastic.policy.shapes import fits
from mlstack.elastic.snapshot import Trainer

UNTRIED = 4
"""A trainer at which the scheduler has not even looked is given so many times as long: it may be down."""


def seat_loose(books: Books, *, stuck_ms: int) -> None:
    """Enter all trainers that are not bound yet; those that wait too long are withdrawn and barred."""
    busy = {going.node for going in books.ledger.snapshot.arriving}
    for crew in books.ledger.crews.values():
        waiting = [trainer for trainer in crew.job.trainers if not trainer.node]
        waiting.sort(key=lambda each: (not each.is_meeting, each.created_ms, each.index, each.name))
        is_ending = crew.job.state == "finishing"
        stuck = [each for each in waiting if not is_ending and _is_stuck(books, each, busy, stuck_ms)]
        _withdraw(crew, stuck, stuck_ms)
        crew.loose.extend(each for each in waiting if each not in stuck)
    for crew in books.ledger.crews.values():
        for _ in range(len(crew.loose)):
            _seat(books, crew)


def _is_stuck(books: Books, trainer: Trainer, busy: set[str], stuck_ms: int) -> bool:
    """Tell whether a trainer waits too long although its node is not waiting for somebody to go."""
    waited = books.ledger.snapshot.now_ms - trainer.created_ms
    limit_ms = stuck_ms if trainer.is_tried else UNTRIED * stuck_ms
    return waited > limit_ms and trainer.planned not in busy


def _withdraw(crew: Crew, stuck: list[Trainer], stuck_ms: int) -> None:
    if stuck:
        crew.is_withdrawn = True
        crew.bars |= {trainer.planned for trainer in stuck}
        crew.gone.extend((Seat(crew, None, trainer, "stuck"), "stuck", "") for trainer in stuck)
        seconds = f"{stuck_ms / 1000:g} s"
        crew.notes.append(("stuck", f"withdraws {len(stuck)} that found no node within {seconds}"))


def _seat(books: Books, crew: Crew) -> None:
    """Give the first trainer that waits its planned place, or another one; else put it behind the others."""
    trainer = crew.loose[0]
    host = books.ledger.by_name.get(trainer.planned)
    is_allowed = trainer.planned not in crew.bars and (
        crew.job.nodes is None or trainer.planned in crew.job.nodes
    )
    if host is None or not is_allowed or not fits(host.later, crew.wanted):
        host = books.free_place(crew, crew.job.nodes)
    if host is None:
        crew.loose.append(crew.loose.pop(0))
    else:
        books.ledger.add(crew, host, "steady")
