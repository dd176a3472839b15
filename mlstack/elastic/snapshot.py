"""Nodes, pods and training jobs of one moment, as a policy sees them: integers and names, nothing to ask.

Amounts are vectors: one integer a resource, in the order of `Snapshot.resources`. CPU counts in thousandths
of a core, memory and storage in bytes, everything else (`pods`, `nvidia.com/gpu`, a port of the node as
`hostport:7164:TCP`) in whole pieces. Times are milliseconds since 1970 (in the simulator: since its start).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from mlstack.errors import ConfigError

# --- Nodes, pods and training jobs of one moment, as a policy sees them: integers and names,
# nothing to ask
# Amounts are vectors: one integer a resource, in the order of `Snapshot.resources`. CPU counts in thousandths
# of a core, memory and storage in bytes, everything else (`pods`, `nvidia.com/gpu`, a port of the node as
# `hostport:7164:TCP`) in whole pieces. Times are milliseconds since 1970 (in the simulator: since its start).

Vector = tuple[int, ...]

JobState = Literal["waiting", "admitted", "finishing"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A node that takes pods: Ready and not cordoned.

    Attributes:
        name: its name.
        allocatable: what pods may request of it in all.
        used: requests of all pods bound to it that neither ended nor are going, without live trainers of the
            jobs of the snapshot, which are listed with their jobs.
        devices: of these resources, what device plug-ins brought to it: GPUs and the like.
    """

    name: str
    allocatable: Vector
    used: Vector
    devices: Vector = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Arriving:
    """Room that a pod on its way out still holds: it may be promised, but not used twice.

    Attributes:
        node: where it is.
        request: what comes free.
        at_ms: when the pod is gone at the latest.
    """

    node: str
    request: Vector
    at_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """A pod without a node that is no trainer: of others, or a master or parameter server of a job.

    Attributes:
        key: `namespace/name`.
        request: what it requests.
        priority: of the pod; what it may push aside has the same pod priority or a lower one.
        created_ms: when it was created.
        job: key of the job whose master or parameter server it is, empty for pods of others.
        nodes: names of the nodes that it may go to, None for all.
    """

    key: str
    request: Vector
    priority: int
    created_ms: int
    job: str = ""
    nodes: frozenset[str] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Trainer:
    """A trainer pod that neither ended nor is going.

    Attributes:
        name: name of the pod.
        node: where it is bound, empty while it waits for a place.
        planned: the node that the plan had for it when it was created, empty for none.
        created_ms: when it was created.
        is_ready: whether it is ready.
        is_tried: while it waits: whether the scheduler has looked for a node in vain.
        is_meeting: whether the others of its job meet at it: it is taken with the whole job alone.
    """

    name: str
    node: str
    planned: str
    created_ms: int
    is_ready: bool = False
    is_tried: bool = True
    is_meeting: bool = False

    @property
    def index(self) -> int:
        """Give the number at the end of its name, -1 where there is none."""
        number = self.name.rpartition("-")[2]
        return int(number) if number.isascii() and number.isdigit() else -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Role:
    """Pods of one kind that the gang of a job needs beside its trainers.

    Attributes:
        name: `master` or `pserver`.
        count: how many there have to be.
        request: what one requests.
    """

    name: str
    count: int
    request: Vector


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """Room that a master or parameter server of a job holds; it counts in `Node.used`.

    Attributes:
        node: where it is bound.
        request: what it requests.
    """

    node: str
    request: Vector


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """How fast a job trains with so many trainers.

    Attributes:
        points: (trainers, speed), as reported, before any smoothing; speeds in a unit of the job's own, so
            that they are whole: only their ratios count.
    """

    points: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A training job that is neither done nor being deleted.

    Attributes:
        key: `namespace/name`.
        minimum: fewest trainers it runs with.
        maximum: most trainers it can use.
        floor: fewest with which it goes on where there is no room for its minimum; None for the minimum.
        trainer: what one trainer requests.
        gang: masters and parameter servers that run beside the trainers.
        priority: of the job among jobs; higher goes first.
        pod_priority: of its trainer pods among all pods of the cluster.
        weight: its share when jobs of one priority share, at least 1.
        created_ms: when the job was created.
        state: `waiting` has no pods; `finishing` is not scaled any more.
        target: how many trainers it was told to have, 0 while it waits.
        trainers: its live trainers.
        held: its bound masters and parameter servers that are not going: what comes free if it is suspended.
        leaving: how many more of its trainers are on their way out; their room is in `arriving`.
        failed: how many of its trainers failed by themselves and are not to be replaced yet.
        lacks_meeting: whether the trainer at which its others meet is gone and the next new one takes its
            place.
        not_before_ms: while it waits: when it may be admitted again at the earliest.
        refused: why the API server does not take its gang, or more trainers than its maximum here; empty
            while it does.
        nodes: names of the nodes that its pods may go to, None for all.
        barred: nodes that had a place for a trainer or its gang on paper only, each with the time until when
            it is passed over.
        cooldown_ms: least time between two changes that neither a minimum nor others make necessary.
        changed_ms: when its target was last changed, None if never.
        curve: speed by trainers, if known.
        speed: name of a speed model if no curve is known: `linear`, `amdahl:0.9`, `optimus:...`.
    """

    key: str
    minimum: int
    maximum: int
    trainer: Vector
    gang: tuple[Role, ...] = ()
    priority: int = 0
    pod_priority: int = 0
    weight: int = 1
    created_ms: int = 0
    state: JobState = "waiting"
    target: int = 0
    trainers: tuple[Trainer, ...] = ()
    held: tuple[Held, ...] = ()
    leaving: int = 0
    failed: int = 0
    lacks_meeting: bool = False
    not_before_ms: int = 0
    nodes: frozenset[str] | None = None
    barred: Mapping[str, int] = field(default_factory=dict)
    cooldown_ms: int = 0
    changed_ms: int | None = None
    curve: Curve | None = None
    speed: str = "linear"
    floor: int | None = None
    refused: str = ""

    @property
    def least(self) -> int:
        """Give the fewest trainers that it may be told to have, 0 aside."""
        is_lenient = self.floor is not None and self.state == "admitted"
        return min(self.floor or 0, self.minimum) if is_lenient else self.minimum


def stands_still(job: Job) -> bool:
    """Tell whether the trainers of a job cannot meet: what it loses of the others costs no work."""
    return job.lacks_meeting or any(trainer.is_meeting and not trainer.node for trainer in job.trainers)


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """One moment of a cluster.

    Attributes:
        now_ms: the moment.
        resources: names of the resources, in the order of every vector.
        nodes: nodes that take pods.
        demands: pods that wait for a node, without trainers.
        arriving: room that will come free.
        jobs: the training jobs.
        moves_ms: when trainers were last moved between jobs for fairness alone, one entry a move.
    """

    now_ms: int
    resources: tuple[str, ...]
    nodes: tuple[Node, ...]
    demands: tuple[Demand, ...] = ()
    arriving: tuple[Arriving, ...] = ()
    jobs: tuple[Job, ...] = ()
    moves_ms: tuple[int, ...] = ()


# --- What a policy decides about the jobs of a snapshot, and why ---

Cause = Literal[
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
    """Why a job gets what it gets.

    Attributes:
        cause: the rule.
        text: one line for people: numbers, names, no more.
    """

    cause: Cause
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What becomes of one job.

    Attributes:
        job: its key.
        target: trainers it is to have: 0, or from minimum to maximum; while a job ends, what it was to have.
        is_admitted: whether it has pods at all after this.
        victims: names of trainers to be deleted, worst first.
        places: a node for each trainer to be created.
        waiting: for each live trainer without a node that stays: the node that it can have.
        hints: for `master` and `pserver` of a job just admitted: a node for each pod.
        moves: how many of its victims or places are moves for fairness alone.
        withheld: how many trainers that failed are left out of its target, so that others may have their
            room until they are replaced; those of a minimum are not.
        reasons: why, the weightiest first; never empty.
    """

    job: str
    target: int
    is_admitted: bool
    victims: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    waiting: Mapping[str, str] = field(default_factory=dict)
    hints: Mapping[str, tuple[str, ...]]
    moves: int = 0
    withheld: int = 0
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reservation:
    """Room on a node that is kept for a pod which is not there yet, or not yet bound.

    Attributes:
        node: where.
        request: how much.
        key: the demand, or the job with its role: `default/a master`.
    """

    node: str
    request: Vector
    key: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Unplaced:
    """A demand or gang without a place.

    Attributes:
        key: of the demand or job.
        missing: what is missing in all, by resource.
    """

    key: str
    missing: Vector


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalePlan:
    """All that a policy decides at one moment.

    Attributes:
        decisions: one for each job of the snapshot, by key.
        reservations: room that is spoken for.
        unplaced: what found no place.
        moves: trainers moved for fairness alone in this plan.
        steps: how many steps the policy took, which is bounded.
    """

    decisions: Mapping[str, Decision]
    reservations: tuple[Reservation, ...] = ()
    unplaced: tuple[Unplaced, ...] = ()
    moves: int = 0
    steps: int = 0


# --- How a policy is to behave: the settings that users may change, with the defaults that were
# measured


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyConfig:
    """Settings of a policy.

    Attributes:
        mode: name of the policy.
        headroom_pct: part of the places for a trainer that growth leaves free, in hundredths of all places.
        moves: most trainers moved for fairness alone within a window.
        moves_window_ms: length of that window.
        stuck_ms: how long a trainer may wait for a node that the plan had for it.
        backfill_ms: how long a waiting job lets younger ones of its priority pass; after that the nodes
            it could use are kept from them.
        max_load_pct: part of the cluster that EDL's rules fill (`-max_load_desired` of EDL).
    """

    mode: str = "fair"
    headroom_pct: int = 0
    moves: int = 15
    moves_window_ms: int = 10_000
    stuck_ms: int = 15_000
    backfill_ms: int = 300_000
    max_load_pct: int = 97


@dataclass(frozen=True, kw_only=True, slots=True)
class PriorityGrants:
    """The highest priority that jobs of a namespace may have by the configuration of the controller.

    Attributes:
        everywhere: in namespaces that are not named; None for no limit, as in a simulation.
        namespaces: by name, instead of that.
    """

    everywhere: int | None = 0
    namespaces: Mapping[str, int] = field(default_factory=dict)

    def highest(self, namespace: str) -> int | None:
        """Give the highest of a namespace, None for no limit."""
        return self.namespaces.get(namespace, self.everywhere)


NO_LIMIT = PriorityGrants(everywhere=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Priority:
    """The priority of a job among jobs.

    Attributes:
        value: what it counts with.
        asked: what it asks for, 0 unless said.
        reason: one word, empty where it asks for nothing.
        message: one line for people.
    """

    value: int = 0
    asked: int = 0
    reason: Literal["", "Granted", "AboveNamespace", "NoSuchClass"] = ""
    message: str = ""

    @property
    def is_granted(self) -> bool:
        """Tell whether it counts with what it asks for."""
        return self.reason in ("", "Granted")


# --- A snapshot as a file: saved from a live cluster, planned with anywhere ---

API_VERSION = "mlstack.dev/v1"
KIND = "ElasticSnapshot"


def write(snapshot: Snapshot) -> str:
    """Write a snapshot as JSON; the same moment gives the same text."""
    found = {"apiVersion": API_VERSION, "kind": KIND, **asdict(snapshot)}
    return json.dumps(found, indent=1, sort_keys=True, default=_plain) + "\n"


def read(text: str, *, where: str) -> Snapshot:
    """Read a snapshot that was saved.

    Raises:
        ConfigError: it is none; `where` is the place.
    """
    try:
        found = json.loads(text)
        if not isinstance(found, Mapping) or found.get("kind") != KIND:
            raise ValueError(f"it is no {KIND}")
        if found.get("apiVersion") != API_VERSION:
            raise ValueError(f"its apiVersion is {found.get('apiVersion')!r}, not {API_VERSION}")
        return _snapshot(found)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise ConfigError(
            f"this is no saved snapshot: {error}", where=where, hint="mlstack elastic plan --save FILE"
        ) from error


def _snapshot(found: Mapping[str, Any]) -> Snapshot:
    return Snapshot(
        now_ms=int(found["now_ms"]),
        resources=tuple(found["resources"]),
        nodes=tuple(Node(**_vectors(one)) for one in found["nodes"]),
        demands=tuple(Demand(**_vectors(one)) for one in found["demands"]),
        arriving=tuple(Arriving(**_vectors(one)) for one in found["arriving"]),
        jobs=tuple(map(_job, found["jobs"])),
        moves_ms=tuple(found["moves_ms"]),
    )


def _job(found: Mapping[str, Any]) -> Job:
    curve = found.get("curve")
    return Job(
        **{
            **_vectors(found),
            "gang": tuple(Role(**_vectors(one)) for one in found["gang"]),
            "trainers": tuple(Trainer(**one) for one in found["trainers"]),
            "held": tuple(Held(**_vectors(one)) for one in found.get("held") or ()),
            "curve": Curve(points=tuple(map(tuple, curve["points"]))) if curve else None,
        }
    )


def _vectors(found: Mapping[str, Any]) -> dict[str, Any]:
    """Give the fields with amounts as tuples and names of nodes as a set."""
    values = dict(found)
    for name in ("allocatable", "used", "devices", "request", "trainer"):
        if name in values:
            values[name] = tuple(values[name])
    if values.get("nodes") is not None:
        values["nodes"] = frozenset(values["nodes"])
    return values


def _plain(value: object) -> object:
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(f"{value!r} has no place in a snapshot")


# --- Ports of nodes as resources: one key for each port and protocol, and how people read it ---

_PREFIX = "hostport:"


def key(number: int, protocol: str) -> str:
    """Name a port of a node among the resources of a snapshot: `hostport:7164:TCP`."""
    return f"{_PREFIX}{number}:{protocol}"


def is_key(resource: str) -> bool:
    """Tell whether a resource is a port of the node: each node has one of it, unsaid."""
    return resource.startswith(_PREFIX)


def words(resource: str, pieces: int) -> str:
    """Write so many of a port as people read it: `host port 7164/TCP`, `3 host ports 7164/TCP`."""
    number, _, protocol = resource.removeprefix(_PREFIX).partition(":")
    return f"{'host port' if pieces == 1 else f'{pieces} host ports'} {number}/{protocol}"
