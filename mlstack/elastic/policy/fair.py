"""The policy `fair`: whole gangs first, then equal shares, moved a little at a time."""

from __future__ import annotations

from mlstack.elastic.config import PolicyConfig
from mlstack.elastic.policy.admission import Admission
from mlstack.elastic.policy.balance import Balance
from mlstack.elastic.policy.books import Books
from mlstack.elastic.policy.demands import Demands
from mlstack.elastic.policy.growth import grow
from mlstack.elastic.policy.headroom import Headroom
from mlstack.elastic.policy.ledger import Ledger
from mlstack.elastic.policy.loose import seat_loose
from mlstack.elastic.policy.meeting import restore_meetings
from mlstack.elastic.policy.outcome import conclude
from mlstack.elastic.policy.scoring import Fulfilment, Scoring
from mlstack.elastic.policy.table import policy
from mlstack.elastic.scaleplan import ScalePlan
from mlstack.elastic.snapshot import Snapshot


@policy("fair")
def fair(snapshot: Snapshot, config: PolicyConfig) -> ScalePlan:
    """Share out by how much of its range every job has."""
    return share_out(snapshot, config, Fulfilment(snapshot.jobs))


def share_out(snapshot: Snapshot, config: PolicyConfig, scoring: Scoring) -> ScalePlan:
    """Serve demands, gangs and minima, then fill free room and even out as `scoring` ranks the jobs.

    A round may leave room to what came before it, so rounds follow until one changes nothing: what the plan
    leaves then needs no further plan.
    """
    budget = _budget(snapshot, config)
    books = Books(Ledger(snapshot, scoring, budget))
    seat_loose(books, stuck_ms=config.stuck_ms)
    _keep_bounds(books)
    demands, admission = Demands(books), Admission(books, backfill_ms=config.backfill_ms)
    headroom = Headroom(books.ledger, config.headroom_pct)
    balance = Balance(books, headroom, budget)
    steps = -1
    while steps != books.ledger.steps:
        steps = books.ledger.steps
        admission.serve(demands.serve())
        headroom.restore()
        grow(books, headroom)
        balance.even_out()
    restore_meetings(books)
    return conclude(books)


def _budget(snapshot: Snapshot, config: PolicyConfig) -> int:
    """Give how many trainers may still be moved for fairness within the window that ends now."""
    since = snapshot.now_ms - config.moves_window_ms
    return max(0, config.moves - sum(moved > since for moved in snapshot.moves_ms))


def _keep_bounds(books: Books) -> None:
    """Take trainers above the maximum of their job."""
    for crew in books.ledger.crews.values():
        if crew.job.state == "admitted":
            seats = sorted(crew.seats, key=lambda each: (each.is_meeting, each.disposal))
            for seat in seats[: max(0, crew.count - crew.job.maximum)]:
                books.ledger.evict(seat, "bounds")
