"""Nodes, pods and training jobs of one moment, as a policy sees them: integers and names, nothing to ask.

Amounts are vectors: one integer a resource, in the order of `Snapshot.resources`. CPU counts in thousandths
of a core, memory and storage in bytes, everything else (`pods`, `nvidia.com/gpu`, a port of the node as
`hostport:7164:TCP`) in whole pieces. Times are milliseconds since 1970 (in the simulator: since its start).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

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
