"""What a simulation is of: nodes, jobs, services, what happens when, and what goes wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mlstack.elastic.simulate.kubelet import KubeletSettings
from mlstack.elastic.simulate.scheduler import SchedulerSettings
from mlstack.elastic.simulate.workloads import WorkloadSettings

Happening = Literal[
    "scale",  # a service gets `count` replicas
    "delete-job",
    "suspend-job",
    "resume-job",
    "limit-job",  # `kubectl scale`: at most `count` trainers
    "finish-job",  # all its trainers find no more work
    "crash-trainers",  # `count` trainers fail by themselves
    "delete-trainers",  # `count` trainers are deleted by somebody
    "fail-node",
    "heal-node",
    "cordon-node",
    "uncordon-node",
    "remove-node",
    "add-nodes",  # `count` more like the group named
    "kill-controller",  # the one that leads dies and comes back after `seconds`
    "stop-controller",  # the one that leads frees its Lease, ends, and comes back after `seconds`
    "freeze-controller",  # the one that leads stands still for `seconds` in the middle of a pass
    "isolate-controller",  # the one that leads reaches the API server no more for `seconds`
    "break-watch",  # the one that leads hears nothing for `seconds`, then lists anew
]


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """Nodes that are alike.

    Attributes:
        name: the nodes are called `<name>-0` and so on.
        count: how many.
        allocatable: what pods may request of each, as in a Node (`cpu: 12`, `memory: 48Gi`).
        background: what a pod of the background requests on each; empty for none.
        labels: of each.
        taints: of each.
    """

    name: str
    count: int
    allocatable: Mapping[str, str]
    background: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class JobPlan:
    """A training job that will be submitted.

    Attributes:
        name: its name.
        at_ms: when.
        spec: of the TrainingJob.
        first: trainers that EDL's baselines create it with; 0 for its minimum.
        work_s: seconds that one trainer would need alone; 0 for work without end.
    """

    name: str
    at_ms: int
    spec: Mapping[str, Any]
    first: int = 0
    work_s: int = 0


@dataclass(frozen=True, kw_only=True)
class Service:
    """A Deployment of others, beside which jobs train.

    Attributes:
        name: its name.
        at_ms: when it is created.
        replicas: how many pods it begins with.
        requests: what each requests.
        priority: of its pods.
        is_preempting: whether the scheduler pushes others aside for them; where not, their class has
            `preemptionPolicy: Never`, and the controller alone makes room.
        grace_s: how long a pod takes to end.
    """

    name: str
    at_ms: int = 0
    replicas: int
    requests: Mapping[str, str]
    priority: int = 1000
    is_preempting: bool = True
    grace_s: int = 2


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happens.

    Attributes:
        at_ms: when first.
        what: what it is.
        name: of the job, service, node or group of nodes.
        count: how many, where that has a meaning.
        seconds: how long it lasts, where that has a meaning.
        every_ms: happens again after so long; 0 for once.
    """

    at_ms: int
    what: Happening
    name: str = ""
    count: int = 0
    seconds: float = 0
    every_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What goes wrong by chance.

    Attributes:
        conflict_pct: share of the controller's writes that are refused since the object changed.
        error_pct: share of its writes to which the API server has no answer for now.
    """

    conflict_pct: float = 0
    error_pct: float = 0


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A whole simulation but for its seed and policy.

    Attributes:
        name: its name.
        nodes: the cluster.
        jobs: training jobs by time.
        services: Deployments of others.
        events: what happens.
        faults: what goes wrong by chance.
        begin_ms: when sampling begins; times in results count from here.
        end_ms: when all ends.
        scheduler: how the scheduler works.
        kubelet: how long pods take.
        workloads: how quick the controllers are.
        grace_s: of trainers, where their spec does not say.
        controllers: how many there are, of which one leads.
    """

    name: str
    nodes: tuple[NodeGroup, ...]
    jobs: tuple[JobPlan, ...] = ()
    services: tuple[Service, ...] = ()
    events: tuple[Event, ...] = ()
    faults: Faults = field(default_factory=Faults)
    begin_ms: int = 0
    end_ms: int = 550_000
    scheduler: SchedulerSettings = field(default_factory=SchedulerSettings)
    kubelet: KubeletSettings = field(default_factory=KubeletSettings)
    workloads: WorkloadSettings = field(default_factory=WorkloadSettings)
    grace_s: int = 5
    controllers: int = 1

    def with_grace(self, seconds: int) -> Scenario:
        """Give the same with another grace for trainers."""
        return replace(self, grace_s=seconds)
