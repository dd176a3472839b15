"""The books of one plan: who holds which room on which node, and what of it was decided in this plan.

Every change is noted, so that an attempt that fails is taken back whole; and every node counts its changes,
so that a search which sorted the nodes once looks only at those that changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from mlstack.elastic.policy.parts import Crew, Host, Seat
from mlstack.elastic.policy.scoring import Scoring
from mlstack.elastic.policy.shapes import WHOLE, Shape, fits, is_within, shape
from mlstack.elastic.scaleplan import Cause, Reservation
from mlstack.elastic.snapshot import Snapshot, Vector


class Ledger:
    """Room and trainers of a snapshot, and every change that a plan makes to them.

    Args:
        snapshot: the moment.
        scoring: how well off jobs are.
        swaps: most trainers that may be moved for fairness, for the bound on steps.

    Attributes:
        hosts: the nodes, by name.
        crews: the jobs, by key.
        log: indexes of the hosts that changed, in order of the changes.
        stirred: the jobs that changed, in order of the changes.
        epoch: how often something was taken back, or jobs may have gained trainers: to take
            some may cost less than it did.
    """

    def __init__(self, snapshot: Snapshot, scoring: Scoring, swaps: int) -> None:
        """Enter nodes, what is on its way out, and the trainers that are bound."""
        self.snapshot = snapshot
        self.scoring = scoring
        self.hosts = [
            Host(index, node) for index, node in enumerate(sorted(snapshot.nodes, key=lambda each: each.name))
        ]
        self.by_name = {host.name: host for host in self.hosts}
        self.crews = {
            job.key: Crew(job, snapshot.now_ms) for job in sorted(snapshot.jobs, key=lambda each: each.key)
        }
        self.log: list[int] = []
        self.stirred: list[Crew] = []
        self.epoch = 0
        self.reservations: dict[int, tuple[Host, Vector, str, str]] = {}
        self._undo: list[Callable[[], None]] = []
        self._most = self._bound(swaps)
        self._numbers = 0
        self._kinds: dict[tuple[Vector, Vector, Vector], int] = {}
        self._chosen: dict[tuple[frozenset[str] | None, frozenset[str]], list[Host]] = {}
        self.whole = self._references(len(snapshot.resources))
        self.shapes = self._smallest()
        self._enter()

    def _bound(self, swaps: int) -> int:
        """Give a number of changes that no plan needs: each trainer and pod comes and goes twice at most."""
        jobs = self.snapshot.jobs
        trainers = sum(max(job.maximum, len(job.trainers)) for job in jobs)
        pods = len(self.snapshot.demands) + sum(
            len(job.held) + sum(role.count for role in job.gang) + 2 for job in jobs
        )
        return 4 * (trainers + pods) + 2 * min(swaps, trainers * (len(jobs) + 1))

    def _references(self, size: int) -> list[int]:
        """Give the largest amount that any node has of each resource."""
        return [max([1, *(host.allocatable[each] for host in self.hosts)]) for each in range(size)]

    def _smallest(self) -> list[Shape]:
        """Give the requests that may come for free room, without those that are larger than another one."""
        asked = {crew.wanted for crew in self.crews.values()}
        asked |= {shape(demand.request) for demand in self.snapshot.demands}
        ordered = sorted(asked, key=lambda each: (len(each), each))
        return [
            each for each in ordered if not any(is_within(other, each) for other in ordered if other != each)
        ]

    def _enter(self) -> None:
        for going in self.snapshot.arriving:
            if (host := self.by_name.get(going.node)) is not None:
                for resource, amount in enumerate(going.request):
                    host.now[resource] -= amount
        for crew in self.crews.values():
            for trainer in crew.job.trainers:
                if trainer.node:
                    self._sit(Seat(crew, self.by_name.get(trainer.node), trainer, "steady"))
            self._stir(crew)

    # Room.

    def _take(self, host: Host, wanted: Shape) -> None:
        now, later = host.now, host.later
        for resource, amount in wanted:
            now[resource] -= amount
            later[resource] -= amount
        self._touch(host)

    def _give(self, host: Host, wanted: Shape, *, at_once: bool) -> None:
        for resource, amount in wanted:
            host.later[resource] += amount
            if at_once:
                host.now[resource] += amount
        self._touch(host)

    def _touch(self, host: Host) -> None:
        self.log.append(host.index)
        host.kind = None

    def _lift(self, host: Host, wanted: Shape, sign: int) -> None:
        for resource, amount in wanted:
            host.lifted[resource] += sign * amount

    # Changes that can be taken back.

    @property
    def steps(self) -> int:
        """Give how many changes were made and kept so far."""
        return len(self._undo)

    def _note(self, undo: Callable[[], None]) -> None:
        self._undo.append(undo)
        if len(self._undo) > self._most:
            raise RuntimeError(f"a plan took more than {self._most} steps, which no plan needs")

    def rollback(self, mark: int) -> None:
        """Take back every change since there were `mark` steps."""
        while len(self._undo) > mark:
            self._undo.pop()()
        self.epoch += 1

    def reserve(self, host: Host, request: Vector, key: str, *, owner: str = "") -> None:
        """Keep room for a pod that is no trainer; `owner` is the job it belongs to."""
        wanted = shape(request)
        number = self._numbers = self._numbers + 1
        self._take(host, wanted)
        self._lift(host, wanted, -1)
        self.reservations[number] = (host, request, key, owner)

        def undo() -> None:
            del self.reservations[number]
            self._give(host, wanted, at_once=True)
            self._lift(host, wanted, 1)

        self._note(undo)

    def cancel(self, owner: str) -> None:
        """Give up all room kept for the pods of a job."""
        for number, (host, request, key, whose) in list(self.reservations.items()):
            if whose == owner:
                self._cancel(number, (host, request, key, whose))

    def _cancel(self, number: int, row: tuple[Host, Vector, str, str]) -> None:
        host, wanted = row[0], shape(row[1])
        del self.reservations[number]
        self._give(host, wanted, at_once=True)
        self._lift(host, wanted, 1)

        def undo() -> None:
            self.reservations[number] = row
            self._take(host, wanted)
            self._lift(host, wanted, -1)

        self._note(undo)

    def release(self, host: Host, request: Vector) -> None:
        """Count the room of a bound pod that this plan takes away."""
        wanted = shape(request)
        self._give(host, wanted, at_once=False)
        self._lift(host, wanted, 1)

        def undo() -> None:
            for resource, amount in wanted:
                host.later[resource] -= amount
            self._lift(host, wanted, -1)
            self._touch(host)

        self._note(undo)

    def add(self, crew: Crew, host: Host, cause: Cause) -> None:
        """Give a job a trainer at a host: one that waits for a node if there is any, else a new one."""
        trainer = crew.loose.pop(0) if crew.loose else None
        seat = Seat(crew, host, trainer, cause)
        self._sit(seat)

        def undo() -> None:
            self._rise(seat)
            if trainer is not None:
                crew.loose.insert(0, trainer)

        self._note(undo)

    def _sit(self, seat: Seat) -> None:
        crew, host = seat.crew, seat.host
        if host is not None:
            self._take(host, crew.wanted)
            host.sit(seat)
        crew.seats.append(seat)
        crew.bound += seat.is_bound
        self._stir(crew)

    def _rise(self, seat: Seat) -> None:
        crew, host = seat.crew, seat.host
        crew.seats.remove(seat)
        crew.bound -= seat.is_bound
        if host is not None:
            host.rise(seat)
            self._give(host, crew.wanted, at_once=True)
        self._stir(crew)

    def _stir(self, crew: Crew) -> None:
        """Note that a job has other trainers, or other rights to them."""
        count = len(crew.seats)
        crew.level = self.scoring.level(crew.job, count)
        crew.surplus = 0 if crew.is_settled else max(0, count - crew.job.minimum)
        self.stirred.append(crew)

    def evict(self, seat: Seat, cause: Cause, whom: str = "") -> None:
        """Take a trainer from a job, in favour of `whom`; one without a node may get another place."""
        host, crew, trainer = seat.host, seat.crew, seat.trainer
        self._rise(seat)
        if seat.is_bound:
            crew.gone.append((seat, cause, whom))
            if host is not None:
                self._delay(host, crew.wanted, 1)
        elif trainer is not None:
            crew.loose.append(trainer)

        def undo() -> None:
            if seat.is_bound:
                crew.gone.pop()
                if host is not None:
                    self._delay(host, crew.wanted, -1)
            elif trainer is not None:
                crew.loose.remove(trainer)
            self._sit(seat)

        self._note(undo)

    def _delay(self, host: Host, wanted: Shape, sign: int) -> None:
        """Count room as still to come: a pod needs its time to go."""
        for resource, amount in wanted:
            host.now[resource] -= sign * amount
        host.kind = None

    def suspend(self, crew: Crew, cause: Cause, text: str) -> None:
        """Take a job off whole: trainers, masters and parameter servers."""
        for seat in sorted(crew.seats, key=lambda each: each.disposal):
            self.evict(seat, "suspended")
        for held in sorted(crew.job.held, key=lambda each: (each.node, each.request)):
            if (host := self.by_name.get(held.node)) is not None:
                self.release(host, held.request)
        self.cancel(crew.job.key)
        crew.is_admitted = False
        self._stir(crew)
        crew.notes.append((cause, text))
        self._note(lambda: self._resume(crew))

    def relax(self, crew: Crew, text: str) -> None:
        """Let a job go on with the trainers that it has as its minimum."""
        job = crew.job
        crew.job = replace(job, minimum=crew.count)
        crew.notes.append(("steady", text))
        self._stir(crew)

        def undo() -> None:
            crew.job = job
            crew.notes.pop()
            self._stir(crew)

        self._note(undo)

    def admit(self, crew: Crew, hints: dict[str, list[str]]) -> None:
        """Count a job as running, with nodes for the pods of its gang."""
        crew.is_admitted = True
        crew.hints = hints
        self._stir(crew)

        def undo() -> None:
            crew.is_admitted = False
            crew.hints = {}
            self._stir(crew)

        self._note(undo)

    def _resume(self, crew: Crew) -> None:
        crew.is_admitted = True
        crew.notes.pop()
        self._stir(crew)

    # Questions.

    def kind(self, host: Host) -> int:
        """Give a number that hosts of the same size and room share."""
        if (known := host.kind) is None:
            standing = (host.allocatable, tuple(host.now), tuple(host.later))
            known = host.kind = self._kinds.setdefault(standing, len(self._kinds))
        return known

    def left_over(self, host: Host, wanted: Shape) -> int:
        """Give what a host has left of the things asked for, after the pod, in shares of the largest node."""
        later, whole, left = host.later, self.whole, 0
        for each, amount in wanted:
            left += (later[each] - amount) * WHOLE // whole[each]
        return left

    def waste(self, room: list[int], wanted: Shape) -> int:
        """Give the share of a left-over that fits nothing; 0 if somebody can use it."""
        for each in self.shapes:
            if fits(room, each):
                return 0
        return sum([room[each] * WHOLE // self.whole[each] for each, _ in wanted])

    def spared(self, host: Host, wanted: Shape) -> int:
        """Give the share of devices that such a pod leaves idle: it is to fill GPU nodes or leave them."""
        if not host.devices:
            return 0
        asked = dict(wanted)
        return sum(
            (host.later[each] - asked[each] if each in asked else count) * WHOLE // self.whole[each]
            for each, count in host.devices
        )

    def reserved(self) -> set[str]:
        """Give the keys of pods for which room is kept."""
        return {key for _, _, key, _ in self.reservations.values()}

    def kept(self) -> tuple[Reservation, ...]:
        """Give the room that is kept for pods which are no trainers."""
        rows = [
            Reservation(node=host.name, request=request, key=key)
            for host, request, key, _ in self.reservations.values()
        ]
        return tuple(sorted(rows, key=lambda row: (row.key, row.node)))

    def hosts_of(self, names: frozenset[str] | None, without: Iterable[str] = ()) -> list[Host]:
        """Give the hosts of these names, or all, without some."""
        barred = frozenset(without)
        if names is None and not barred:
            return self.hosts
        if (known := self._chosen.get((names, barred))) is None:
            known = [
                host
                for host in self.hosts
                if (names is None or host.name in names) and host.name not in barred
            ]
            self._chosen[names, barred] = known
        return known
