"""Whole gangs or nothing: jobs that wait, and jobs that lost something they cannot run without."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from mlstack.elastic.policy.books import Books
from mlstack.elastic.policy.demands import place_own
from mlstack.elastic.policy.parts import Crew
from mlstack.elastic.policy.shapes import dominant, fits, shape, total
from mlstack.elastic.scaleplan import Cause, Unplaced
from mlstack.elastic.snapshot import Demand, Vector

Missing = list[tuple[str, Vector]]


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
        self._missing: dict[str, list[Demand]] = {}
        self._backfill_ms = backfill_ms
        self._failed: set[Hashable] = set()

    def serve(self, missing: dict[str, list[Demand]]) -> None:
        """Serve jobs by priority, running ones before waiting ones, then by age.

        Args:
            missing: masters and parameter servers of running jobs that found no place, by job.
        """
        self._missing = missing
        self._failed.clear()
        self._ledger.epoch += 1
        kept: frozenset[str] = frozenset()
        for crew in self._queue():
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
        if crew.job.state == "finishing" or self._was_taken_off(crew):
            return False
        return not crew.is_admitted or crew.count < crew.job.minimum or crew.job.key in self._missing

    @staticmethod
    def _was_taken_off(crew: Crew) -> bool:
        return crew.job.state == "admitted" and not crew.is_admitted

    def _serve(self, crew: Crew, kept: frozenset[str]) -> bool:
        """Give a job all that it lacks; a running one for which that is impossible is taken off."""
        if self._was_taken_off(crew):
            return False
        nodes = self._nodes(crew, kept)
        kind = self._kind(crew, nodes)
        left = [] if kind in self._failed else self._attempt(crew, nodes)
        if kind not in self._failed and (not left or self._push_aside(crew, nodes)):
            self._missing.pop(crew.job.key, None)
            self._books.unplaced.pop(crew.job.key, None)
            return True
        self._failed.add(kind)
        self._leave_out(crew, left)
        return False

    def _nodes(self, crew: Crew, kept: frozenset[str]) -> frozenset[str] | None:
        if not kept:
            return crew.job.nodes
        mine = crew.job.nodes if crew.job.nodes is not None else frozenset(self._ledger.by_name)
        return mine - kept

    def _kind(self, crew: Crew, nodes: frozenset[str] | None) -> Hashable:
        job = crew.job
        if crew.is_admitted:
            return job.key
        gang = tuple((role.name, role.count, role.request) for role in job.gang)
        return (job.priority, gang, job.trainer, job.minimum, nodes, crew.bars)

    def _attempt(self, crew: Crew, nodes: frozenset[str] | None, *, hurry: bool = False) -> Missing:
        """Try to place all that a job lacks; give what found no place, and then nothing was changed."""
        ledger = self._ledger
        mark, was_admitted = ledger.steps, crew.is_admitted
        left: Missing = []
        if not self._is_conceivable(crew, nodes):
            return [*self._members(crew), *self._trainers(crew)]
        hints: dict[str, list[str]] = {}
        for name, request in self._members(crew):
            host = self._books.place_member(crew, request, nodes, f"{crew.job.key} {name}")
            if host is None:
                left.append((name, request))
                if hurry:
                    break
            else:
                hints.setdefault(name, []).append(host.name)
        for demand in self._missing.get(crew.job.key, ()):
            if not place_own(self._books, crew, demand):
                left.append((demand.key, demand.request))
        cause: Cause = "minimum" if was_admitted else "admitted"
        for name, request in self._trainers(crew):
            if (left and hurry) or not self._books.place_trainer(crew, nodes, cause):
                left.append((name, request))
        if left:
            ledger.rollback(mark)
        elif not was_admitted:
            ledger.admit(crew, hints)
        return left

    def _members(self, crew: Crew) -> Iterator[tuple[str, Vector]]:
        """Give the pods of a waiting job's gang beside its trainers, the largest first."""
        if not crew.is_admitted:
            whole = self._ledger.whole
            roles = sorted(crew.job.gang, key=lambda role: (-dominant(shape(role.request), whole), role.name))
            for role in roles:
                yield from [(role.name, role.request)] * role.count

    def _trainers(self, crew: Crew) -> Iterator[tuple[str, Vector]]:
        for _ in range(crew.job.minimum - crew.count):
            yield ("trainer", crew.job.trainer)

    def _is_conceivable(self, crew: Crew, nodes: frozenset[str] | None) -> bool:
        """Tell by sums alone whether the room and all trainers above a minimum could be enough."""
        size = len(self._ledger.snapshot.resources)
        wanted = [request for _, request in (*self._members(crew), *self._trainers(crew))]
        needed = shape(total(wanted, size))
        room = [0] * size
        for host in self._ledger.hosts_of(nodes):
            for each, _ in needed:
                room[each] += max(0, host.later[each])
        for other in self._ledger.crews.values():
            if other.job.priority <= crew.job.priority and (surplus := other.surplus):
                for each, amount in other.wanted:
                    room[each] += surplus * amount
        return fits(room, needed)

    def _push_aside(self, crew: Crew, nodes: frozenset[str] | None) -> bool:
        """Take jobs of strictly lower priority off whole, the newest first, if that helps; tell whether."""
        lower = [
            each
            for each in self._ledger.crews.values()
            if not each.is_settled and each.job.priority < crew.job.priority
        ]
        lower.sort(key=lambda each: (each.job.priority, -each.job.created_ms, each.job.key))
        mark = self._ledger.steps
        for size in range(1, len(lower) + 1):
            if self._try_without(crew, nodes, lower[:size]):
                self._spare(crew, nodes, lower[:size], mark)
                self._failed.clear()
                return True
        return False

    def _try_without(self, crew: Crew, nodes: frozenset[str] | None, jobs: list[Crew]) -> bool:
        mark = self._ledger.steps
        for each in jobs:
            text = (
                f"taken off for {crew.job.key} of priority {crew.job.priority}, above its {each.job.priority}"
            )
            self._ledger.suspend(each, "suspended", text)
        self._ledger.epoch += 1
        if not self._attempt(crew, nodes, hurry=True):
            return True
        self._ledger.rollback(mark)
        return False

    def _spare(self, crew: Crew, nodes: frozenset[str] | None, jobs: list[Crew], mark: int) -> None:
        """Leave those running after all without whose room the job fits as well, the oldest first."""
        needed = jobs
        for each in reversed(jobs[:-1]):
            fewer = [other for other in needed if other is not each]
            self._ledger.rollback(mark)
            if self._try_without(crew, nodes, fewer):
                needed = fewer
            else:
                self._try_without(crew, nodes, needed)

    def _leave_out(self, crew: Crew, left: Missing) -> None:
        job = crew.job
        size = len(self._ledger.snapshot.resources)
        needed = total([request for _, request in left], size) if left else self._all(crew)
        self._books.unplaced[job.key] = Unplaced(key=job.key, missing=needed)
        if crew.is_admitted:
            lost = ", ".join(dict.fromkeys(name for name, _ in left))
            self._ledger.suspend(
                crew, "suspended", f"taken off: no room for {lost}, which it cannot run without"
            )

    def _all(self, crew: Crew) -> Vector:
        wanted = [request for _, request in (*self._members(crew), *self._trainers(crew))]
        return total(wanted, len(self._ledger.snapshot.resources))

    def _blocks(self, crew: Crew) -> bool:
        """Tell whether a job has waited so long that younger ones must not take what it could use."""
        if crew.job.state != "waiting":
            return False
        waited = self._ledger.snapshot.now_ms - crew.job.created_ms
        return waited >= self._backfill_ms and self._could_ever_run(crew)

    def _could_ever_run(self, crew: Crew) -> bool:
        hosts = [self._ledger.by_name[name] for name in sorted(self._useful(crew))]
        size = len(self._ledger.snapshot.resources)
        room = total([host.allocatable for host in hosts], size)
        kinds = {shape(request) for _, request in (*self._members(crew), *self._trainers(crew))}
        return fits(room, shape(self._all(crew))) and all(
            any(fits(host.allocatable, kind) for host in hosts) for kind in kinds
        )

    def _useful(self, crew: Crew) -> frozenset[str]:
        """Give the nodes that could take any pod of a job's gang."""
        kinds = {shape(request) for _, request in (*self._members(crew), *self._trainers(crew))}
        return frozenset(
            host.name
            for host in self._ledger.hosts_of(crew.job.nodes)
            if any(fits(host.allocatable, kind) for kind in kinds)
        )
