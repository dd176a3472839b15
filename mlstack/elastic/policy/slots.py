"""Places for masters and parameter servers: where they cost the fewest places for trainers.

A 4-core parameter server takes one 5-core trainer's place on an empty node of 24 cores, a second one beside
it takes none: pods that stay for long are better put where the remainder is used, and where one costs as
much as elsewhere, it goes where the next one costs least. Nodes are judged as if their trainers were lifted,
because trainers can be moved and these pods cannot.
"""

from __future__ import annotations

from collections.abc import Hashable

from mlstack.elastic.policy.ledger import Ledger
from mlstack.elastic.policy.parts import Crew, Host
from mlstack.elastic.policy.places import Contest
from mlstack.elastic.policy.shapes import Shape, count, dominant, fits, shape
from mlstack.elastic.policy.victims import Allowance, clear, least
from mlstack.elastic.snapshot import Vector

Loss = tuple[int, int]

# What a further pod costs where none fits.
_TOO_MUCH = (1 << 62, 1 << 62)


class SlotLoss:
    """What a pod beside trainers costs on a node, counted in places for trainers.

    Args:
        trainer: what a trainer of the job requests.
        companion: what the most frequent pod of its gang requests.
        wanted: what the pod to be placed requests.
        whole: reference amounts, by which requests for different resources compare.
        values: what rooms are worth, as far as it is known: the same for all pods beside such trainers.
    """

    def __init__(
        self, trainer: Shape, companion: Shape, wanted: Shape, whole: list[int], values: dict[Vector, int]
    ) -> None:
        """Remember the requests, and what one companion is worth in thousandths of a trainer."""
        self._trainer = trainer
        self._companion = companion
        self._worth = dominant(companion, whole) * 1000 // max(1, dominant(trainer, whole))
        self._wanted = wanted
        beside = dict(companion)
        self._pair = [(each, amount, beside[each]) for each, amount in trainer if each in beside]
        self._values = values
        self._known: dict[Vector, tuple[Loss, Loss]] = {}

    def of(self, room: list[int]) -> tuple[Loss, Loss]:
        """Give what the pod costs in a room, and what a further one like it would cost beside it.

        Each in thousandths of a place, gang pods counted, and in whole places.
        """
        key = tuple(room)
        if (known := self._known.get(key)) is None:
            rest = self._less(room)
            further = self._between(rest, self._less(rest)) if fits(rest, self._wanted) else _TOO_MUCH
            known = self._known[key] = (self._between(room, rest), further)
        return known

    def _less(self, room: list[int]) -> list[int]:
        rest = list(room)
        for each, amount in self._wanted:
            rest[each] -= amount
        return rest

    def _between(self, room: list[int], rest: list[int]) -> Loss:
        places = count(room, self._trainer) - count(rest, self._trainer)
        return (self._value(tuple(room)) - self._value(tuple(rest)), places)

    def _value(self, room: Vector) -> int:
        """Give the most that trainers and companions together are worth in a room."""
        if (known := self._values.get(room)) is not None:
            return known
        best, worth = 0, self._worth
        most = count(room, self._companion) if worth else 0
        rows = [(room[resource], amount, beside) for resource, amount, beside in self._pair]
        for places in range(1 + (count(room, self._trainer) if self._trainer else 0)):
            companions = most
            for free, amount, beside in rows:
                found = (free - places * amount) // beside
                if found < companions:
                    companions = found
            value = companions * worth + 1000 * places
            if value > best:
                best = value
        self._values[room] = best
        return best


class Slots(Contest[tuple[int, ...]]):
    """Hosts in order of the trainers' places that a pod costs there.

    Args:
        ledger: the books.
        hosts: hosts that come into question.
        wanted: what the pod requests.
        loss: what it costs.
        allow: how many trainers a job may lose for it.
        is_late: whether the pod is there already, so that trainers planned around it stay where they are.
    """

    def __init__(
        self,
        ledger: Ledger,
        hosts: list[Host],
        wanted: Shape,
        loss: SlotLoss,
        allow: Allowance,
        *,
        is_late: bool,
    ) -> None:
        """Rank all hosts."""
        self._wanted = wanted
        self._loss = loss
        self._allow = allow
        self._is_late = is_late
        super().__init__(ledger, hosts)

    def rank(self, host: Host) -> tuple[int, ...] | None:
        """Give the least that a host can cost, None where no room can be made."""
        found = least(host, self._wanted, self._allow)
        if found is None:
            return None
        _, evictions, _, poverty = found
        return self._cost(host, evictions, evictions, poverty)

    def cost(self, host: Host) -> tuple[int, ...] | None:
        """Give the cost of a host, None where no room can be made."""
        found = clear(self._ledger, host, self._wanted, self._allow)
        return None if found is None else self._cost(host, len(found.seats), found.evictions, found.poverty)

    def _cost(self, host: Host, taken: int, evictions: int, poverty: int) -> tuple[int, ...]:
        spared = self._ledger.spared(host, self._wanted)
        tightness = self._ledger.left_over(host, self._wanted)
        loss, further = self._loss.of(host.lifted)
        return (taken if self._is_late else 0, spared, *loss, *further, evictions, poverty, tightness)


class SlotFinder:
    """Places for masters and parameter servers of all jobs of one plan.

    Args:
        ledger: the books.
    """

    def __init__(self, ledger: Ledger) -> None:
        """Start without any ranking."""
        self._ledger = ledger
        self._losses: dict[Hashable, SlotLoss] = {}
        self._values: dict[Hashable, dict[Vector, int]] = {}
        self._rankings: dict[Hashable, Slots] = {}

    def find(
        self,
        crew: Crew,
        wanted: Shape,
        nodes: frozenset[str] | None,
        barred: frozenset[str],
        allow: Allowance,
        *,
        is_late: bool,
    ) -> Host | None:
        """Give the best host for a pod of a job's gang, None if no room can be made.

        Args:
            crew: the job.
            wanted: what the pod requests.
            nodes: where it may go, None for anywhere.
            barred: where it may not go.
            allow: how many trainers a job may lose: the same for all jobs of the priority of this one.
            is_late: whether the pod is there already.
        """
        companion = shape(max(crew.job.gang, key=lambda role: role.count).request) if crew.job.gang else ()
        kind = (crew.wanted, companion, wanted)
        if (loss := self._losses.get(kind)) is None:
            values = self._values.setdefault(kind[:2], {})
            loss = self._losses[kind] = SlotLoss(*kind, self._ledger.whole, values)
        whole = (kind, nodes, barred, crew.job.priority, is_late)
        if (ranking := self._rankings.get(whole)) is None:
            hosts = self._ledger.hosts_of(nodes, barred)
            ranking = self._rankings[whole] = Slots(self._ledger, hosts, wanted, loss, allow, is_late=is_late)
        return ranking.best()
