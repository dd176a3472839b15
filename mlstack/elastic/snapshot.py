"""Nodes, pods and training jobs of one moment, as a policy sees them: integers and names, nothing to ask.

Amounts are vectors: one integer a resource, in the order of `Snapshot.resources`. CPU counts in thousandths
of a core, memory and storage in bytes, everything else (`pods`, `nvidia.com/gpu`, a port of the node as
`hostport:7164:TCP`) in whole pieces. Times are milliseconds since 1970 (in the simulator: since its start).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, chain, islice, repeat
from operator import sub
from types import UnionType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from mlstack.dataclass import dataclass
from mlstack.errors import ConfigError
from mlstack.objects.resources import Amounts

Vector = tuple[int, ...]
NodeNames = frozenset[str] | None  # None for all nodes
# How fast a job trains, as reported: (trainers, speed); speeds are whole, only their ratios count.
Curve = tuple[tuple[int, int], ...]

JobStage = Literal["waiting", "admitted", "finishing"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A node that takes pods: Ready and not cordoned."""

    name: str
    allocatable: Vector  # what pods may request of it in all
    # requests of all pods bound to it that neither ended nor are going, without live trainers of the jobs of
    # the snapshot, which are listed with their jobs
    used: Vector
    devices: Vector = ()  # of these resources, what device plug-ins brought to it: GPUs and the like


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """A pod without a node that is no trainer: of others, or a master or parameter server of a job."""

    key: str  # `namespace/name`
    request: Vector
    priority: int  # of the pod; what it may push aside has the same pod priority or a lower one
    created_ms: int
    job: str = ""  # key of the job whose master or parameter server it is, empty for pods of others
    nodes: NodeNames = None  # that it may go to


@dataclass(frozen=True, kw_only=True, slots=True)
class Trainer:
    """A trainer pod that neither ended nor is going."""

    name: str  # of the pod
    node: str  # where it is bound, empty while it waits for a place
    planned: str  # the node that the plan had for it when it was created, empty for none
    created_ms: int
    is_ready: bool = False
    is_tried: bool = True  # while it waits: whether the scheduler has looked for a node in vain
    is_rendezvous: bool = False  # whether the others of its job meet at it: it goes with the whole job alone

    @property
    def index(self) -> int:
        """Give the number at the end of its name, -1 where there is none."""
        number = self.name.rpartition("-")[2]
        return int(number) if number.isascii() and number.isdigit() else -1


@dataclass(frozen=True, kw_only=True, slots=True)
class GangRole:
    """Pods of one kind that the gang of a job needs beside its trainers."""

    name: str  # `master` or `pserver`
    count: int  # how many there have to be
    request: Vector  # what one requests


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """Room that a pod holds."""

    node: str  # where it is bound
    request: Vector


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A training job that is neither done nor being deleted."""

    key: str  # `namespace/name`
    minimum: int  # fewest trainers it runs with
    maximum: int  # most trainers it can use
    trainer: Vector  # what one trainer requests
    gang: tuple[GangRole, ...] = ()  # masters and parameter servers that run beside the trainers
    priority: int = 0  # of the job among jobs; higher goes first
    pod_priority: int = 0  # of its trainer pods among all pods of the cluster
    weight: int = 1  # its share when jobs of one priority share, at least 1
    created_ms: int = 0  # when the job was created
    state: JobStage = "waiting"  # `waiting` has no pods; `finishing` is not scaled any more
    target: int = 0  # how many trainers it was told to have, 0 while it waits
    trainers: tuple[Trainer, ...] = ()  # its live trainers
    # of its bound masters and parameter servers that are not going, counted in `Node.used`: what comes free
    # if it is suspended
    held: tuple[Held, ...] = ()
    leaving: int = 0  # how many more of its trainers are on their way out; their room is in `arriving`
    failed: int = 0  # how many of its trainers failed by themselves and are not to be replaced yet
    # whether the trainer at which its others meet is gone and the next new one takes its place
    lacks_rendezvous: bool = False
    not_before_ms: int = 0  # while it waits: when it may be admitted again at the earliest
    nodes: NodeNames = None  # that its pods may go to
    # nodes that had a place for a trainer or its gang on paper only, each with the time until when it is
    # passed over
    barred: Mapping[str, int] = field(default_factory=dict)
    cooldown_ms: int = 0  # least time between two changes that neither a minimum nor others make necessary
    changed_ms: int | None = None  # when its target was last changed, None if never
    curve: Curve | None = None  # speed by trainers, if known
    speed: str = "linear"  # name of a speed model if no curve is known: `linear`, `amdahl:0.9`, `optimus:...`
    floor: int | None = None  # fewest with which it goes on where its minimum has no room, if they are less
    refused: str = ""  # why the API server does not take its gang, or more trainers than its maximum here

    @property
    def least(self) -> int:
        """Give the fewest trainers that it may be told to have, 0 aside."""
        is_lenient = self.floor is not None and self.state == "admitted"
        return min(self.floor or 0, self.minimum) if is_lenient else self.minimum


def stands_still(job: Job) -> bool:
    """Tell whether the trainers of a job cannot meet: what it loses of the others costs no work."""
    return job.lacks_rendezvous or any(trainer.is_rendezvous and not trainer.node for trainer in job.trainers)


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """One moment of a cluster."""

    now_ms: int
    resources: tuple[str, ...]  # names, in the order of every vector
    nodes: tuple[Node, ...]
    demands: tuple[Demand, ...] = ()
    # room of pods on their way out: it may be promised, but not used twice
    arriving: tuple[Held, ...] = ()
    jobs: tuple[Job, ...] = ()
    moves_ms: tuple[int, ...] = ()  # when trainers were moved for fairness alone, one entry a move


# --- what a policy decides about the jobs of a snapshot, and why ---

ScaleCause = Literal[
    "admitted",  # a waiting job gets its whole gang
    "waiting",  # no room for the gang
    "refused",  # the API server does not take its pods
    "suspended",  # taken off whole for a job of higher priority
    "lost",  # taken off whole: what it lost and cannot run without has no room
    "minimum",  # trainers missing below the minimum
    "bounds",  # the range of the job changed
    "growth",  # free room
    "yield",  # room for pods of others
    "gang",  # room for the gang of another job
    "fairness",  # moved between jobs
    "stuck",  # trainers that found no node are withdrawn
    "steady",  # nothing changes
    "finishing",  # not scaled any more
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """Why a job gets what it gets."""

    cause: ScaleCause
    text: str  # one line for people: numbers, names, no more


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What becomes of one job."""

    job: str
    # trainers it is to have: 0, or from minimum to maximum; while a job ends, what it was to have
    target: int
    is_admitted: bool  # whether it has pods at all after this
    victims: tuple[str, ...] = ()  # names of trainers to be deleted, worst first
    places: tuple[str, ...] = ()  # a node for each trainer to be created
    # for each live trainer without a node that stays: the node that it can have
    waiting: Mapping[str, str] = field(default_factory=dict)
    # for `master` and `pserver` of a job just admitted: a node for each pod
    hints: Mapping[str, tuple[str, ...]]
    moves: int = 0  # how many of its victims or places are moves for fairness alone
    withheld: int = 0  # trainers that failed and are left out of its target: their room is lent till then
    reasons: tuple[Reason, ...]  # why, the weightiest first; never empty


@dataclass(frozen=True, kw_only=True, slots=True)
class Reservation:
    """Room on a node that is kept for a pod which is not there yet, or not yet bound."""

    node: str
    request: Vector
    key: str  # the demand, or the job with its role: `default/a master`


@dataclass(frozen=True, kw_only=True, slots=True)
class Unplaced:
    """A demand or gang without a place."""

    key: str  # of the demand or job
    missing: Vector  # what is missing in all, by resource


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalePlan:
    """All that a policy decides at one moment."""

    decisions: Mapping[str, Decision]  # one for each job of the snapshot, by key
    reservations: tuple[Reservation, ...] = ()  # room that is spoken for
    unplaced: tuple[Unplaced, ...] = ()  # what found no place
    moves: int = 0  # trainers moved for fairness alone in this plan
    steps: int = 0  # how many steps the policy took, which is bounded


# --- how a policy is to behave ---


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyConfig:
    """Settings of a policy."""

    mode: str = "fair"  # name of the policy
    headroom_pct: int = 0  # hundredths of all places for a trainer that growth leaves free
    moves: int = 15  # most trainers moved for fairness alone within a window
    moves_window_ms: int = 10_000
    stuck_ms: int = 15_000  # how long a trainer may wait for a node that the plan had for it
    backfill_ms: int = 300_000  # how long a waiting job lets younger ones pass before its nodes are kept
    max_load_pct: int = 97  # part of the cluster that EDL's rules fill (`-max_load_desired` of EDL)


@dataclass(frozen=True, kw_only=True, slots=True)
class PriorityGrants:
    """The highest priority that jobs of a namespace may have by the configuration of the controller."""

    everywhere: int | None = 0  # in namespaces that are not named; None for no limit, as in a simulation
    namespaces: Mapping[str, int] = field(default_factory=dict)  # by name, instead of that


NO_LIMIT = PriorityGrants(everywhere=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Priority:
    """The priority of a job among jobs."""

    value: int = 0  # what it counts with
    reason: Literal["", "Granted", "AboveNamespace", "NoSuchClass"] = ""
    message: str = ""

    @property
    def is_granted(self) -> bool:
        """Tell whether it counts with what it asks for."""
        return self.reason in ("", "Granted")


# --- a snapshot as a file: saved from a live cluster, planned with anywhere ---

API_VERSION = "mlstack.dev/v1"
KIND = "ElasticSnapshot"


def write(snapshot: Snapshot) -> str:
    """Write a snapshot as JSON; the same moment gives the same text."""
    document = {"apiVersion": API_VERSION, "kind": KIND, **asdict(snapshot)}
    return json.dumps(document, indent=1, sort_keys=True, default=sorted) + "\n"  # sets of names


def read(text: str, *, where: str) -> Snapshot:
    """Read a snapshot that was saved.

    Raises:
        ConfigError: it is none; `where` is the place.
    """
    try:
        document = json.loads(text)
        if not isinstance(document, dict) or document.pop("kind", None) != KIND:
            raise ValueError(f"it is no {KIND}")
        if (version := document.pop("apiVersion", None)) != API_VERSION:
            raise ValueError(f"its apiVersion is {version!r}, not {API_VERSION}")
        known = document.get("resources")
        moment: Snapshot = _built(Snapshot, document, "", len(known) if isinstance(known, list) else 0)
        for job in moment.jobs:
            speeds(source(job))
        return moment
    except (ValueError, TypeError, RecursionError) as error:  # as of a field that lacks
        message = f"this is no saved snapshot: {error}"
        raise ConfigError(message, where=where, hint="mlstack elastic plan --save FILE") from error


_VECTORS = {"allocatable", "used", "devices", "request", "trainer"}
_TYPES = {int: "a whole number", str: "a string", bool: "true or false", tuple: "a list", frozenset: "a list"}


def _built(kind: Any, value: Any, place: str, size: int) -> Any:
    """Build what a type asks for of plain JSON: lists are tuples, or sets of names; vectors are so long."""
    form, parts = get_origin(kind) or kind, get_args(kind)
    if form is UnionType:
        return None if value is None else _built(parts[0], value, place, size)
    if isinstance(value, list) and form in (tuple, frozenset):
        return form(_built(parts[0], item, f"{place}[{number}]", size) for number, item in enumerate(value))
    if isinstance(value, dict) and form is Mapping:
        return {name: _built(parts[1], item, f"{place}.{name}", size) for name, item in value.items()}
    if isinstance(value, dict) and hasattr(form, "__dataclass_fields__"):
        hints = {name: hint for name, hint in _hints(form).items() if name in value}
        fields = {name: _built(hint, value[name], f"{place}.{name}", size) for name, hint in hints.items()}
        for name in _VECTORS & fields.keys():
            if len(fields[name]) != size and (fields[name] or name != "devices"):
                raise ValueError(f"`{place[1:]}.{name}` must be {size} amounts, one for each of `resources`")
        return form(**{**value, **fields})
    if type(value) is form or (form is Literal and value in parts):
        return value
    wanted = f"one of {', '.join(parts)}" if form is Literal else _TYPES.get(form, "a map")
    raise ValueError(f"`{place[1:]}` must be {wanted}, got {json.dumps(value)[:40]}")


_hints = lru_cache(get_type_hints)  # of a class


# --- vectors of amounts ---

BASIC = ("cpu", "memory", "pods")
"""Resources that every vector has, in this order; others follow by name."""


def vector(pod: Amounts, resources: Sequence[str]) -> Vector:
    """Put amounts into the order of a snapshot's resources."""
    return tuple([pod.get(name, 0) for name in resources])


def minus(room: Sequence[int], request: Sequence[int]) -> Vector:
    """Subtract one vector from another."""
    return tuple(map(sub, room, request))


# --- how fast a job trains with so many trainers: reported points made concave, or a named model ---
# Speeds are exact fractions of no particular unit: only ratios between speeds of one job are ever used.


class SpecSource(NamedTuple):
    """All that the speed of a job is known from."""

    curve: Curve | None  # as reported, None if nothing was
    speed: str  # name of a model, for a job without a curve
    maximum: int  # most trainers
    pservers: int  # parameter servers


def source(job: Job) -> SpecSource:
    """Give what the speed of a job is known from: few jobs of a cluster differ in it."""
    pservers = sum(role.count for role in job.gang if role.name == "pserver")
    return SpecSource(job.curve, job.speed, job.maximum, pservers)


@lru_cache(maxsize=4096)
def speeds(source: SpecSource) -> tuple[Fraction, ...]:
    """Give the speed with 0 to `maximum` trainers, concave and never falling."""
    reported: dict[int, list[int]] = {}
    for count, speed in source.curve or ():
        if count > 0 and speed >= 0:
            reported.setdefault(count, []).append(speed)
    # One point a size: the mean if it was reported twice.
    points = [(count, Fraction(sum(speeds), len(speeds))) for count, speeds in sorted(reported.items())]
    if not any(speed for _, speed in points):
        model = read_speed(source.speed, pservers=source.pservers)
        return tuple(model(count) for count in range(source.maximum + 1))
    blocks = _envelope(points)
    # Beyond the largest measured size the last slope goes on to twice that size, then nothing is gained
    # (Pollux, OSDI 2021, limits itself likewise).
    blocks += [(points[-1][0], blocks[-1][1]), (source.maximum, Fraction(0))]
    gains = chain.from_iterable(repeat(gain, width) for width, gain in blocks)
    return tuple(accumulate(islice(gains, source.maximum), initial=Fraction(0)))


def _envelope(points: list[tuple[int, Fraction]]) -> list[tuple[int, Fraction]]:
    """Give what is used instead of reported points, which are noisy, as (trainers, gain of each).

    That is the lowest concave, non-decreasing curve from the origin that no point is above: adjacent
    violators are pooled.
    """
    blocks: list[tuple[int, Fraction]] = []
    last_count, last_speed = 0, Fraction(0)
    for count, speed in points:
        width, gain = count - last_count, speed - last_speed
        while blocks and gain * blocks[-1][0] > blocks[-1][1] * width:
            wider, more = blocks.pop()
            width, gain = width + wider, gain + more
        blocks.append((width, gain))
        last_count, last_speed = count, speed
    return [(width, max(Fraction(0), gain / width)) for width, gain in blocks]


def read_speed(text: str, *, pservers: int = 0) -> Callable[[int], Fraction]:
    """Give the speed model of that name as a function of the number of trainers.

    `linear`; `amdahl:F` with the share F of the work that runs in parallel; `optimus:A,B,C,D` with the
    seconds of a step as A + B·w/p + C·w + D·p for w trainers and p parameter servers (Optimus, EuroSys
    2018, asynchronous).

    Raises:
        ValueError: no model of that name, or numbers that it cannot use (plain decimals, up to nine digits).
    """
    name, _, numbers = text.partition(":")
    parts = numbers.split(",") if numbers else []
    values = [Fraction(part) for part in parts if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", part)]
    if len(values) < len(parts):
        raise ValueError(f"`{numbers}` in the speed model `{text}` is not made of plain numbers with commas")
    match name, values:
        case "linear", []:
            return Fraction
        case "amdahl", [parallel] if parallel <= 1:
            return lambda count: count / (count * (1 - parallel) + parallel) if count else Fraction(0)
        case "optimus", [alone, shared, trainer, pserver] if alone > 0:
            servers = max(1, pservers)
            fixed, single = alone + pserver * servers, shared / servers + trainer
            return lambda count: count / (fixed + single * count)
    raise ValueError(f"no speed model `{text}`; known: `linear`, `amdahl:0.95`, `optimus:1,2.5,0.02,0.1`")
