"""Pods without a node that are no trainers: they come first."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Hashable

from mlstack.elastic.policy.placement import Transaction
from mlstack.elastic.policy.state import (
    ClusterState,
    FreeRoom,
    JobState,
    ResourceNeed,
    TrainerSlot,
    amount,
    could_ever_run,
    dominant,
    fits,
    has_places,
    members,
    needs,
    shape,
    useful,
)
from mlstack.elastic.snapshot import Cause, Demand, Trainer, Unplaced

# --- Pods without a node that are no trainers: they come first ---


class Demands:
    """The queue of pods without a node, those of higher priority first."""

    def __init__(self, books: Transaction) -> None:
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


def place_own(books: Transaction, crew: JobState, demand: Demand) -> bool:
    """Find room for a master or parameter server of a job: on the nodes it is tied to, or else anywhere."""
    for nodes in dict.fromkeys((demand.nodes, crew.job.nodes)):
        if books.place_member(crew, demand.request, nodes, demand.key, is_late=True) is not None:
            return True
    return False


# --- All that a job lacks finds a place, or nothing is changed ---


class Attempts:
    """Tries to give jobs what they lack."""

    def __init__(self, books: Transaction) -> None:
        self._books = books
        self._ledger = books.ledger
        # masters and parameter servers of running jobs that found no place, by job
        self.missing: dict[str, list[Demand]] = {}
        self._free: dict[frozenset[str] | None, FreeRoom] = {}

    def attempt(
        self, crew: JobState, nodes: frozenset[str] | None, *, hurry: bool = False
    ) -> list[ResourceNeed]:
        """Try to place all that a job lacks; give what found no place, and then nothing was changed."""
        if not self.is_conceivable(crew, nodes):
            return needs(crew, self._ledger.whole)
        mark, was_admitted = self._ledger.steps, crew.is_admitted
        hints: dict[str, list[str]] = {}
        left = self._place_members(crew, nodes, hints)
        if not (left and hurry):
            left += self._place_missing(crew)
        if not (left and hurry):
            left += self._place_trainers(crew, nodes, "minimum" if was_admitted else "admitted")
        if left:
            self._ledger.rollback(mark)
        elif not was_admitted:
            self._ledger.admit(crew, hints)
        return left

    def _place_members(
        self, crew: JobState, nodes: frozenset[str] | None, hints: dict[str, list[str]]
    ) -> list[ResourceNeed]:
        left = []
        for need in members(crew, self._ledger.whole):
            key = f"{crew.job.key} {need.name}"
            for placed in range(need.number):
                host = self._books.place_member(crew, need.request, nodes, key)
                if host is None:
                    left.append(need._replace(number=need.number - placed))
                    break
                hints.setdefault(need.name, []).append(host.name)
        return left

    def _place_missing(self, crew: JobState) -> list[ResourceNeed]:
        return [
            ResourceNeed(demand.key, demand.request, 1)
            for demand in self.missing.get(crew.job.key, ())
            if not place_own(self._books, crew, demand)
        ]

    def _place_trainers(
        self, crew: JobState, nodes: frozenset[str] | None, cause: Cause
    ) -> list[ResourceNeed]:
        while crew.count < crew.job.minimum:
            if not self._books.place_trainer(crew, nodes, cause):
                return [ResourceNeed("trainer", crew.job.trainer, crew.job.minimum - crew.count)]
        return []

    def is_conceivable(
        self, crew: JobState, nodes: frozenset[str] | None, aside: Collection[JobState] = ()
    ) -> bool:
        """Tell by sums alone whether there could be room enough."""
        size = len(self._ledger.snapshot.resources)
        needed = shape(amount(needs(crew, self._ledger.whole), size))
        if (free := self._free.get(nodes)) is None:
            free = self._free[nodes] = FreeRoom(self._ledger, self._ledger.hosts_of(nodes))
        room = free.sums()
        for other in self._ledger.crews.values():
            if other.job.priority <= crew.job.priority and (surplus := other.surplus):
                for each, part in other.wanted:
                    room[each] += surplus * part
        for other in aside:
            for each, part in other.wanted:
                room[each] += (other.count - other.surplus) * part
            for held in other.job.held:
                for each, part in enumerate(held.request):
                    room[each] += part
        keys = {other.job.key for other in aside}
        for _, request, _, owner in self._ledger.reservations.values() if keys else ():
            if owner in keys:
                for each, part in enumerate(request):
                    room[each] += part
        return fits(room, needed)


# --- Jobs of lower priority are taken off whole where nothing less makes room for a gang ---

# Each try takes all the others off again: a plan has to end where nearly every job has to go.
_SPARED_TRIES = 100


class Preemption:
    """Room for one job at the cost of whole others."""

    def __init__(
        self, ledger: ClusterState, attempts: Attempts, crew: JobState, nodes: frozenset[str] | None
    ) -> None:
        self._ledger = ledger
        self._attempts = attempts
        self._crew = crew
        self._nodes = nodes
        self._mark = ledger.steps
        lower = [
            each
            for each in ledger.crews.values()
            if not each.is_settled and each.job.priority < crew.job.priority
        ]
        self._lower = sorted(lower, key=lambda each: (each.job.priority, -each.job.created_ms, each.job.key))

    def run(self) -> bool:
        """Take off as many jobs as it takes and no more; tell whether that made room."""
        if not self._lower or not self._attempts.is_conceivable(self._crew, self._nodes, self._lower):
            return False
        if not self._has_places(self._lower):
            return False
        if not self._fits_without(self._lower):
            self._ledger.rollback(self._mark)
            return False
        self._spare(self._lower[: self._least()])
        return True

    def _least(self) -> int:
        """Give how many jobs have to go, from the first on: the sums tell at once that few are not enough."""
        self._ledger.rollback(self._mark)
        numbers = range(1, len(self._lower))
        first = bisect_left(numbers, True, key=lambda number: self._has_places(self._lower[:number]))
        return 1 + bisect_left(
            numbers, True, first, key=lambda number: self._fits_without(self._lower[:number])
        )

    def _take_off(self, each: JobState) -> None:
        job = self._crew.job
        text = f"taken off for {job.key} of priority {job.priority}, above its {each.job.priority}"
        self._ledger.suspend(each, "suspended", text)
        self._ledger.epoch += 1

    def _fits(self) -> bool:
        return self._has_places(()) and not self._attempts.attempt(self._crew, self._nodes, hurry=True)

    def _has_places(self, aside: Collection[JobState]) -> bool:
        """Tell whether it is worth a try once those jobs are taken off too."""
        return has_places(self._ledger, self._crew, self._nodes, aside)

    def _spare(self, taken: list[JobState]) -> None:
        """Leave those running after all without whose room the job fits as well: the oldest are tried."""
        needed = taken
        tries = 1 + _SPARED_TRIES // len(taken)
        for each in taken[-2::-1][:tries]:
            fewer = [other for other in needed if other is not each]
            self._ledger.rollback(self._mark)
            if self._has_places(fewer) and self._fits_without(fewer):
                needed = fewer
        self._fits_without(needed)

    def _fits_without(self, jobs: list[JobState]) -> bool:
        self._ledger.rollback(self._mark)
        for each in jobs:
            self._take_off(each)
        return self._fits()


# --- Whole gangs or nothing: jobs that wait, and jobs that lost something they cannot run without ---


class Admission:
    """The queue of jobs for which something is missing."""

    def __init__(self, books: Transaction, *, backfill_ms: int) -> None:
        self._books = books
        self._ledger = books.ledger
        self._attempts = Attempts(books)
        self._backfill_ms = backfill_ms
        self._failed: set[Hashable] = set()
        self._use: dict[Hashable, frozenset[str]] = {}

    def serve(self, missing: dict[str, list[Demand]]) -> None:
        """Serve jobs by priority, running ones before waiting ones, then by age."""
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

    def _queue(self) -> list[JobState]:
        lacking = [crew for crew in self._ledger.crews.values() if self._lacks(crew)]
        return sorted(
            lacking,
            key=lambda crew: (-crew.job.priority, not crew.is_admitted, crew.job.created_ms, crew.job.key),
        )

    def _lacks(self, crew: JobState) -> bool:
        if crew.job.state == "finishing" or crew.is_held_off:
            return False
        is_short = crew.count < crew.job.minimum or crew.job.key in self._attempts.missing
        return not crew.is_admitted or is_short

    @staticmethod
    def _was_taken_off(crew: JobState) -> bool:
        return crew.job.state == "admitted" and not crew.is_admitted

    def _serve(self, crew: JobState, kept: frozenset[str]) -> bool:
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

    def _goes_on(self, crew: JobState) -> bool:
        """Tell whether a job that runs can do with fewer trainers than it should have."""
        is_whole = crew.is_admitted and crew.job.key not in self._attempts.missing
        return is_whole and crew.job.least <= crew.count < crew.job.minimum

    def _push_aside(self, crew: JobState, nodes: frozenset[str] | None) -> bool:
        is_served = Preemption(self._ledger, self._attempts, crew, nodes).run()
        if is_served:
            self._failed.clear()
        return is_served

    def _nodes(self, crew: JobState, kept: frozenset[str]) -> frozenset[str] | None:
        if not kept:
            return crew.job.nodes
        mine = crew.job.nodes if crew.job.nodes is not None else frozenset(self._ledger.by_name)
        return mine - kept

    def _kind(self, crew: JobState, nodes: frozenset[str] | None) -> Hashable:
        """Give what decides whether a job fits: where one of a kind did not, no later one does."""
        job = crew.job
        if crew.is_admitted:
            return job.key
        gang = tuple((role.name, role.count, role.request) for role in job.gang)
        return (job.priority, gang, job.trainer, job.minimum, nodes, crew.bars)

    def _leave_out(self, crew: JobState, left: list[ResourceNeed]) -> None:
        missing = amount(left, len(self._ledger.snapshot.resources))
        self._books.unplaced[crew.job.key] = Unplaced(key=crew.job.key, missing=missing)
        if crew.is_admitted:
            lost = ", ".join(dict.fromkeys(need.name for need in left))
            text = f"taken off: no room for {lost}, which it cannot run without"
            self._ledger.suspend(crew, "lost", text)

    def _blocks(self, crew: JobState) -> bool:
        """Tell whether a job has waited so long that younger ones must not take what it could use."""
        waited = self._ledger.snapshot.now_ms - crew.job.created_ms
        return crew.job.state == "waiting" and waited >= self._backfill_ms

    def _useful(self, crew: JobState) -> frozenset[str]:
        """Give the nodes that could take any pod of a job's gang, none if even all of them empty are too few.

        It is worked out once for jobs that are alike.
        """
        kind = self._kind(crew, crew.job.nodes)
        if (known := self._use.get(kind)) is None:
            nodes = useful(self._ledger, crew)
            known = self._use[kind] = nodes if could_ever_run(self._ledger, crew, nodes) else frozenset()
        return known


# --- Jobs whose trainers meet at one of them get that one back when it is lost ---

TEXT = "makes the trainer anew at which the others meet"


def restore_meetings(books: Transaction) -> None:
    """Plan a trainer for each job that lacks its meeting point: at need in place of another of its own.

    The others are at a loss without it, so that the one that goes is none the less, whatever the minimum.
    """
    for crew in books.ledger.crews.values():
        if crew.job.lacks_meeting and not crew.is_settled:
            _restore(books, crew)


def _restore(books: Transaction, crew: JobState) -> None:
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


def _may_be_replaced(seat: TrainerSlot) -> bool:
    """Tell whether a new trainer can have the place of this one."""
    host, crew = seat.host, seat.crew
    if host is None or host.name in crew.bars or not seat.is_bound:
        return False
    return crew.job.nodes is None or host.name in crew.job.nodes


# --- Trainers without a node: they keep their planned place, get another one, or are withdrawn when
# stuck

UNTRIED = 4
"""A trainer at which the scheduler has not even looked is given so many times as long: it may be down."""


def seat_loose(books: Transaction, *, stuck_ms: int) -> None:
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


def _is_stuck(books: Transaction, trainer: Trainer, busy: set[str], stuck_ms: int) -> bool:
    """Tell whether a trainer waits too long although its node is not waiting for somebody to go."""
    waited = books.ledger.snapshot.now_ms - trainer.created_ms
    limit_ms = stuck_ms if trainer.is_tried else UNTRIED * stuck_ms
    return waited > limit_ms and trainer.planned not in busy


def _withdraw(crew: JobState, stuck: list[Trainer], stuck_ms: int) -> None:
    if stuck:
        crew.is_withdrawn = True
        crew.bars |= {trainer.planned for trainer in stuck}
        crew.gone.extend((TrainerSlot(crew, None, trainer, "stuck"), "stuck", "") for trainer in stuck)
        seconds = f"{stuck_ms / 1000:g} s"
        crew.notes.append(("stuck", f"withdraws {len(stuck)} that found no node within {seconds}"))


def _seat(books: Transaction, crew: JobState) -> None:
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
