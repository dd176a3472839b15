"""Whole gangs or nothing: jobs that wait, and jobs that lost something they cannot run without."""

from __future__ import annotations

from collections.abc import Hashable

from mlstack.elastic.policy.aside import PushAside
from mlstack.elastic.policy.attempts import Attempts
from mlstack.elastic.policy.books import Books
from mlstack.elastic.policy.needs import Need, amount, could_ever_run, needs, useful
from mlstack.elastic.policy.parts import Crew
from mlstack.elastic.scaleplan import Unplaced
from mlstack.elastic.snapshot import Demand


class Admission:
    """The queue of jobs for which something is missing.

    Args:
        books: ledger and searches.
        backfill_ms: how long a waiting job lets younger ones pass.
    """

    def __init__(self, books: Books, *, backfill_ms: int) -> None:
        """Start before the first round."""
        self._books = books
        self._ledger = books.ledger
        self._attempts = Attempts(books)
        self._backfill_ms = backfill_ms
        self._failed: set[Hashable] = set()
        self._use: dict[Hashable, frozenset[str]] = {}

    def serve(self, missing: dict[str, list[Demand]]) -> None:
        """Serve jobs by priority, running ones before waiting ones, then by age.

        Args:
            missing: masters and parameter servers of running jobs that found no place, by job.
        """
        self._attempts.missing = missing
        self._failed.clear()
        self._ledger.epoch += 1
        kept: frozenset[str] = frozenset()
        for crew in self._queue():
            if self._was_taken_off(crew):
                continue
            is_served = self._serve(crew, kept if not crew.is_admitted else frozenset())
            if not is_served and self._blocks(crew):
                kept |= self._useful(crew)

    def _queue(self) -> list[Crew]:
        lacking = [crew for crew in self._ledger.crews.values() if self._lacks(crew)]
        return sorted(
            lacking,
            key=lambda crew: (-crew.job.priority, not crew.is_admitted, crew.job.created_ms, crew.job.key),
        )

    def _lacks(self, crew: Crew) -> bool:
        if crew.job.state == "finishing" or crew.is_held_off:
            return False
        is_short = crew.count < crew.job.minimum or crew.job.key in self._attempts.missing
        return not crew.is_admitted or is_short

    @staticmethod
    def _was_taken_off(crew: Crew) -> bool:
        return crew.job.state == "admitted" and not crew.is_admitted

    def _serve(self, crew: Crew, kept: frozenset[str]) -> bool:
        """Give a job all that it lacks, tell whether; a running one that cannot have it is taken off."""
        nodes = self._nodes(crew, kept)
        kind = self._kind(crew, nodes)
        left = needs(crew, self._ledger.whole)
        if nodes is not None and not self._ledger.hosts_of(nodes):
            self._failed.add(kind)
        if kind not in self._failed:
            left = self._attempts.attempt(crew, nodes)
            if not left or self._push_aside(crew, nodes):
                self._attempts.missing.pop(crew.job.key, None)
                self._books.unplaced.pop(crew.job.key, None)
                return True
        self._failed.add(kind)
        if self._goes_on(crew):
            self._ledger.relax(crew, f"has {crew.count} of {crew.job.minimum}: no room for more")
            return True
        self._leave_out(crew, left)
        return False

    def _goes_on(self, crew: Crew) -> bool:
        """Tell whether a job that runs can do with fewer trainers than it should have."""
        is_whole = crew.is_admitted and crew.job.key not in self._attempts.missing
        return is_whole and crew.job.least <= crew.count < crew.job.minimum

    def _push_aside(self, crew: Crew, nodes: frozenset[str] | None) -> bool:
        is_served = PushAside(self._ledger, self._attempts, crew, nodes).run()
        if is_served:
            self._failed.clear()
        return is_served

    def _nodes(self, crew: Crew, kept: frozenset[str]) -> frozenset[str] | None:
        if not kept:
            return crew.job.nodes
        mine = crew.job.nodes if crew.job.nodes is not None else frozenset(self._ledger.by_name)
        return mine - kept

    def _kind(self, crew: Crew, nodes: frozenset[str] | None) -> Hashable:
        """Give what decides whether a job fits: where one of a kind did not, no later one does."""
        job = crew.job
        if crew.is_admitted:
            return job.key
        gang = tuple((role.name, role.count, role.request) for role in job.gang)
        return (job.priority, gang, job.trainer, job.minimum, nodes, crew.bars)

    def _leave_out(self, crew: Crew, left: list[Need]) -> None:
        missing = amount(left, len(self._ledger.snapshot.resources))
        self._books.unplaced[crew.job.key] = Unplaced(key=crew.job.key, missing=missing)
        if crew.is_admitted:
            lost = ", ".join(dict.fromkeys(need.name for need in left))
            text = f"taken off: no room for {lost}, which it cannot run without"
            self._ledger.suspend(crew, "lost", text)

    def _blocks(self, crew: Crew) -> bool:
        """Tell whether a job has waited so long that younger ones must not take what it could use."""
        waited = self._ledger.snapshot.now_ms - crew.job.created_ms
        return crew.job.state == "waiting" and waited >= self._backfill_ms

    def _useful(self, crew: Crew) -> frozenset[str]:
        """Give the nodes that could take any pod of a job's gang, none if even all of them empty are too few.

        It is worked out once for jobs that are alike.
        """
        kind = self._kind(crew, crew.job.nodes)
        if (known := self._use.get(kind)) is None:
            nodes = useful(self._ledger, crew)
            known = self._use[kind] = nodes if could_ever_run(self._ledger, crew, nodes) else frozenset()
        return known
