"""Nodes, jobs and trainers as they stand while a plan is made."""

from __future__ import annotations

from mlstack.elastic.policy.shapes import Shape, shape
from mlstack.elastic.scaleplan import Cause
from mlstack.elastic.snapshot import Job, Node, Trainer

Disposal = tuple[int, int, int, int, str]


class Host:
    """A node with its room.

    Attributes:
        index: its rank by name.
        name: its name.
        now: room at this moment; what goes in this plan does not count, what comes does.
        later: room when everything on its way out, by this plan too, is gone.
        lifted: `later` as if no trainer were there.
        devices: the resources that device plug-ins brought to it, and how much of each.
        crews: the jobs that have trainers on it, with these; changed by `sit` and `rise` alone.
        unbound: how many of these are not bound to it yet.
        kind: a number that hosts of the same size and room share, None if it is to be found anew.
    """

    __slots__ = (
        "allocatable",
        "crews",
        "devices",
        "index",
        "kind",
        "later",
        "lifted",
        "name",
        "now",
        "unbound",
    )

    def __init__(self, index: int, node: Node) -> None:
        """Start with the room of the node as it stands in the snapshot."""
        self.index = index
        self.name = node.name
        self.allocatable = node.allocatable
        self.devices = tuple((each, count) for each, count in enumerate(node.devices) if count)
        self.now = [all_ - used for all_, used in zip(node.allocatable, node.used, strict=True)]
        self.later = list(self.now)
        self.lifted = list(self.now)
        self.crews: dict[Crew, list[Seat]] = {}
        self.unbound = 0
        self.kind: int | None = None

    def sit(self, seat: Seat) -> None:
        """Put a trainer on it."""
        seats = self.crews.get(seat.crew)
        if seats is None:
            self.crews[seat.crew] = [seat]
        else:
            seats.append(seat)
        self.unbound += not seat.is_bound

    def rise(self, seat: Seat) -> None:
        """Take a trainer off it."""
        seats = self.crews[seat.crew]
        seats.remove(seat)
        if not seats:
            del self.crews[seat.crew]
        self.unbound -= not seat.is_bound


class Seat:
    """A trainer, live or planned, with its place.

    Attributes:
        crew: whose it is.
        host: where it is or is to go; None for a node that takes no pods any more, or none yet.
        trainer: the live pod, None for one that is planned.
        cause: why it was planned.
        is_bound: whether a pod runs there: losing it costs work.
        is_meeting: whether the others of its job meet at it: it stays while the job does.
        disposal: the order in which trainers of one job go: planned, unbound, unready, young ones first, and
            of one age those of the highest indexes.
    """

    __slots__ = ("cause", "crew", "disposal", "host", "is_bound", "is_meeting", "trainer")

    def __init__(self, crew: Crew, host: Host | None, trainer: Trainer | None, cause: Cause) -> None:
        """Keep the facts."""
        self.crew = crew
        self.host = host
        self.trainer = trainer
        self.cause = cause
        self.is_bound = trainer is not None and bool(trainer.node)
        self.is_meeting = trainer is not None and trainer.is_meeting
        self.disposal: Disposal = _disposal(host, trainer)

    @property
    def is_planned(self) -> bool:
        """Tell whether no pod is there yet."""
        return self.trainer is None


def _disposal(host: Host | None, trainer: Trainer | None) -> Disposal:
    if trainer is None:
        return (0, 0, 0, 0, host.name if host else "")
    rank = 1 if not trainer.node else 2 if host is None else 3
    return (rank, int(trainer.is_ready), -trainer.created_ms, -trainer.index, trainer.name)


class Crew:
    """A job with the trainers that it has and gets.

    Attributes:
        job: the job.
        wanted: what one trainer requests.
        seats: its trainers, live and planned.
        bound: how many of them are bound to a node.
        loose: live trainers without a node for which the plan has none either, so far.
        gone: bound trainers that this plan takes, with the cause and for whom.
        is_admitted: whether it has pods.
        level: how well off it is.
        surplus: how many trainers it can lose without falling below its minimum.
        hints: nodes for the pods of its gang, if it was admitted by this plan.
        withheld: how many failed trainers it gets no others for.
        is_withdrawn: whether trainers were withdrawn because they found no node.
        is_held_off: whether it is too early to admit it again.
        bars: nodes that are passed over.
        notes: what else is to be told about it.
    """

    __slots__ = (
        "bars",
        "bound",
        "gone",
        "hints",
        "is_admitted",
        "is_held_off",
        "is_withdrawn",
        "job",
        "level",
        "loose",
        "notes",
        "seats",
        "surplus",
        "wanted",
        "withheld",
    )

    def __init__(self, job: Job, now_ms: int) -> None:
        """Start without trainers."""
        self.job = job
        self.wanted: Shape = shape(job.trainer)
        self.seats: list[Seat] = []
        self.bound = 0
        self.loose: list[Trainer] = []
        self.gone: list[tuple[Seat, Cause, str]] = []
        self.is_admitted = job.state != "waiting"
        self.level = 0
        self.surplus = 0
        self.hints: dict[str, list[str]] = {}
        self.withheld = 0
        self.is_withdrawn = False
        self.is_held_off = job.state == "waiting" and job.not_before_ms > now_ms
        self.bars = frozenset(node for node, until in job.barred.items() if until > now_ms)
        self.notes: list[tuple[Cause, str]] = []

    @property
    def count(self) -> int:
        """Give how many trainers it has if the plan is carried out."""
        return len(self.seats)

    @property
    def is_settled(self) -> bool:
        """Tell whether it may neither gain nor lose: it waits or is about to end."""
        return not self.is_admitted or self.job.state == "finishing"


def in_range(job: Job, count: int) -> int:
    """Give the number of trainers nearest to `count` that a job may be told to have."""
    return min(max(count, job.minimum), job.maximum)
