"""What a simulation is of: nodes, jobs, services, what happens when, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, Literal, get_args

from mlstack.elastic.training_job import (
    SERVER_CLASS,
    TRAINER_CLASS,
    Findings,
    SpecError,
    SpecFields,
    own_spec_names,
    parse,
)
from mlstack.errors import ConfigError
from mlstack.names import nearest
from mlstack.simulator.engine import Obj
from mlstack.simulator.measures import BACKGROUND
from mlstack.simulator.nodes import KubeletSettings, WorkloadSettings
from mlstack.simulator.scheduler import SchedulerSettings
from mlstack.testing.writes import merge_patch
from mlstack.validate.formats import quantity

# --- What a simulation is of: nodes, jobs, services, what happens when, and what goes wrong ---

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
    """Nodes that are alike."""

    name: str  # the nodes are called `<name>-0` and so on
    count: int  # how many
    allocatable: Mapping[str, str]  # what pods may request of each, as in a Node (`cpu: 12`, `memory: 48Gi`)
    # what a pod of the background requests on each; empty for none
    background: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)  # of each
    taints: tuple[Mapping[str, str], ...] = ()  # of each


@dataclass(frozen=True, kw_only=True)
class JobPlan:
    """A training job that will be submitted."""

    name: str
    at_ms: int  # when
    spec: Mapping[str, Any]  # of the TrainingJob
    first: int = 0  # trainers that EDL's baselines create it with; 0 for its minimum
    work_s: int = 0  # seconds that one trainer would need alone; 0 for work without end


@dataclass(frozen=True, kw_only=True)
class Service:
    """A Deployment of others, beside which jobs train."""

    name: str
    at_ms: int = 0  # when it is created
    replicas: int  # how many pods it begins with
    requests: Mapping[str, str]  # what each requests
    priority: int = 1000  # of its pods
    # whether the scheduler pushes others aside for them; where not, their class has `preemptionPolicy:
    # Never`, and the controller alone makes room
    is_preempting: bool = True
    grace_s: int = 2  # how long a pod takes to end


@dataclass(frozen=True, kw_only=True)
class ScenarioEvent:
    """Something that happens."""

    at_ms: int  # when first
    what: Happening
    name: str = ""  # of the job, service, node or group of nodes
    count: int = 0  # how many, where that has a meaning
    seconds: float = 0  # how long it lasts, where that has a meaning
    every_ms: int = 0  # happens again after so long; 0 for once


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What goes wrong by chance."""

    conflict_pct: float = 0  # share of the controller's writes that are refused since the object changed
    error_pct: float = 0  # share of its writes to which the API server has no answer for now


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A whole simulation but for its seed and policy."""

    name: str
    nodes: tuple[NodeGroup, ...]  # the cluster
    jobs: tuple[JobPlan, ...] = ()  # training jobs by time
    services: tuple[Service, ...] = ()  # Deployments of others
    events: tuple[ScenarioEvent, ...] = ()  # what happens
    faults: Faults = field(default_factory=Faults)  # what goes wrong by chance
    begin_ms: int = 0  # when sampling begins; times in results count from here
    end_ms: int = 550_000  # when all ends
    scheduler: SchedulerSettings = field(default_factory=SchedulerSettings)  # how the scheduler works
    kubelet: KubeletSettings = field(default_factory=KubeletSettings)  # how long pods take
    workloads: WorkloadSettings = field(default_factory=WorkloadSettings)  # how quick the controllers are
    grace_s: int = 5  # of trainers, where their spec does not say
    controllers: int = 1  # how many there are, of which one leads


# --- The objects that a scenario begins with, and those that come into it, as the API server would
# have them

NAMESPACE = "default"

_PODS_A_NODE = "110"


def nodes(group: NodeGroup, first: int = 0) -> Iterator[Obj]:
    """Give the nodes of a group, Ready.

    Args:
        first: number of the first of them.
    """
    for index in range(first, first + group.count):
        name = f"{group.name}-{index}"
        offered = {"pods": _PODS_A_NODE, **group.allocatable}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **group.labels}},
            "spec": {"taints": list(group.taints)} if group.taints else {},
            "status": {
                "allocatable": offered,
                "capacity": offered,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }


def background(node: str, requests: Mapping[str, str]) -> Obj:
    """Give the pod of the background of a node, already running."""
    container = {"name": "agent", "resources": {"requests": dict(requests)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"agent-{node}", "namespace": BACKGROUND},
        "spec": {
            "nodeName": node,
            "priority": 2_000_001_000,
            "terminationGracePeriodSeconds": 30,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def classes() -> Iterator[Obj]:
    """Give the priority classes that come with the controller."""
    for name, value, policy in (
        (TRAINER_CLASS, -10, "Never"),
        (SERVER_CLASS, 100, "Never"),
    ):
        yield {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "preemptionPolicy": policy,
        }


def training_job(job: JobPlan, grace_s: int) -> Obj:
    """Give the TrainingJob of a job."""
    trainer = {"terminationGracePeriodSeconds": grace_s, **(job.spec.get("trainer") or {})}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": job.name, "namespace": NAMESPACE},
        "spec": {"fault_tolerant": True, **job.spec, "trainer": trainer},
    }


def preemption_policy(service: Service) -> str:
    """Give what the class of a service's pods says of pushing others aside."""
    return "PreemptLowerPriority" if service.is_preempting else "Never"


def deployment(service: Service) -> Obj:
    """Give the Deployment of a service."""
    labels = {"app": service.name}
    container = {"name": service.name, "resources": {"requests": dict(service.requests)}}
    template: dict[str, Any] = {
        "metadata": {"labels": labels},
        "spec": {
            "priority": service.priority,
            "preemptionPolicy": preemption_policy(service),
            "terminationGracePeriodSeconds": service.grace_s,
            "containers": [container],
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": service.name, "namespace": NAMESPACE},
        "spec": {
            "replicas": service.replicas,
            "selector": {"matchLabels": labels},
            "template": template,
        },
    }


# --- Read a scenario that somebody wrote: their nodes, jobs, services, and what happens to them ---
# Times are seconds, amounts are written as in Kubernetes. A job may be given by a few short fields, by the
# `spec` of a TrainingJob, or by both: `spec` is laid over what the short fields come to.

GPU = "nvidia.com/gpu"
EXAMPLE = Path(__file__).with_name("example.yaml")
"""A scenario with every field, for people to begin with."""

# The fields of each level.
TOP = (
    "name",
    "nodes",
    "jobs",
    "services",
    "events",
    "faults",
    "begin",
    "seconds",
    "grace",
    "controllers",
    "scheduler",
    "start",
)
_ROOM = ("cpu", "memory", "gpu")
NODE = ("name", "count", *_ROOM, "allocatable", "background", "labels", "taints")
JOB = (
    *("name", "count", "at", "every", "min", "max", "trainer", "pservers", "master", "priority", "weight"),
    *("first", "work", "spec"),
)
SERVICE = ("name", "at", "replicas", *_ROOM, "priority", "preempts", "grace")
EVENT = ("at", "what", "name", "count", "seconds", "every")
_NEEDS_NAME = frozenset(what for what in get_args(Happening) if not what.endswith(("-controller", "-watch")))
_LONGEST_S = 7 * 24 * 3600
"""A sample is kept for every second: a week of them is what memory and patience are there for."""
_MOST_NODES, _MOST_JOBS, _MOST_PODS = 10_000, 10_000, 100_000
"""More than any cluster of Kubernetes bears: what is counted here is made, one by one."""
_UNREAD = " of a TrainingJob and is ignored"


def read(data: object, *, where: str) -> Scenario:
    """Read a scenario from what its file holds.

    Args:
        data: the file's contents as plain values.

    Raises:
        ConfigError: it is not one; tells all that is wrong with it.
    """
    findings = Findings()
    top = SpecFields(data, "scenario", findings)
    top.check(TOP)
    scenario = _scenario(top, where)
    _check(scenario, findings)
    faults = [*findings.faults, *(text.removesuffix(_UNREAD) for text in findings.warnings)]
    if faults:
        raise ConfigError(
            "the scenario cannot be used: " + "; ".join(faults),
            where=where,
            hint="`mlstack elastic simulate --example` prints a scenario with every field",
        )
    return scenario


def _scenario(top: SpecFields, where: str) -> Scenario:
    jobs = tuple(job for fields in _levels(top, "jobs") for job in _jobs(fields))
    return Scenario(
        name=top.text("name", where.rpartition("/")[2].partition(".")[0]),
        nodes=tuple(_nodes(fields) for fields in _levels(top, "nodes")),
        jobs=jobs,
        services=tuple(_service(fields) for fields in _levels(top, "services")),
        events=tuple(_event(fields) for fields in _levels(top, "events")),
        faults=_faults(top.level("faults")),
        begin_ms=_ms(top, "begin", 0),
        end_ms=_ms(top, "seconds", 600, most=_LONGEST_S),
        grace_s=top.integer("grace", 5),
        controllers=top.integer("controllers", 1, minimum=1, maximum=100),
        scheduler=_scheduler(top.level("scheduler")),
        kubelet=KubeletSettings(start_ms=_start_ms(top)),
    )


def _start_ms(top: SpecFields) -> tuple[int, int]:
    start = top.value("start")
    match (2, 5) if start is None else start:
        case [int() | float() as least, int() | float() as most] if 0 <= least <= most <= _LONGEST_S:
            return round(least * 1000), round(most * 1000)
    top.fault("`start` must be the shortest and the longest start of a pod in seconds, as [2, 5]")
    return 2000, 5000


def _levels(top: SpecFields, name: str) -> Iterator[SpecFields]:
    for index, item in enumerate(top.items(name)):
        yield top.below(item, f"{name}[{index}]")


def _nodes(fields: SpecFields) -> NodeGroup:
    fields.check(NODE)
    return NodeGroup(
        name=_name(fields),
        count=fields.integer("count", 1, maximum=_MOST_NODES),
        allocatable={**_room(fields), **_quantities(fields, "allocatable")},
        background=_quantities(fields, "background"),
        labels=_texts(fields.mapping("labels")),
        taints=tuple(_texts(taint) for taint in fields.items("taints")),
    )


def _jobs(fields: SpecFields) -> Iterator[JobPlan]:
    """Give the jobs of one entry: one, or `count` of them `every` so many seconds."""
    fields.check(JOB)
    name = _name(fields)
    count = fields.integer("count", 1, maximum=_MOST_JOBS) if "count" in fields else None
    spec = _spec(fields)
    for index in range(1 if count is None else count):
        yield JobPlan(
            name=name if count is None else f"{name}-{index}",
            at_ms=_ms(fields, "at", 0) + index * _ms(fields, "every", 0),
            spec=spec,
            first=fields.integer("first", 0),
            work_s=fields.integer("work", 0),
        )


def _spec(fields: SpecFields) -> Mapping[str, Any]:
    spec: dict[str, Any] = {
        "image": "example.org/training:1",
        "priority": fields.integer("priority", 0, minimum=None),
        "weight": fields.integer("weight", 1, minimum=1),
        "trainer": {
            "entrypoint": "train",
            "min-instance": fields.integer("min", 1),
            "max-instance": fields.integer("max", 1),
            "resources": _resources(fields.level("trainer")),
        },
        "pserver": {"min-instance": 0, "max-instance": 0, "resources": {}},
        "master": {"enabled": False},
    }
    if "pservers" in fields:
        level = fields.level("pservers")
        count = level.integer("count", 1)
        spec["pserver"] = {"min-instance": count, "max-instance": count, "resources": _resources(level)}
    if "master" in fields:
        spec["master"] = {"resources": _resources(fields.level("master"))}
    found: Mapping[str, Any] = merge_patch(spec, own_spec_names(fields.mapping("spec")))
    return found


def _resources(fields: SpecFields) -> dict[str, Any]:
    """Give requests; GPUs as limits too, as Kubernetes wants them."""
    room = _room(fields)
    gpus = {GPU: room[GPU]} if GPU in room else {}
    return {"requests": room, **({"limits": gpus} if gpus else {})}


def _room(fields: SpecFields) -> dict[str, str]:
    names = {"cpu": "cpu", "memory": "memory", "gpu": GPU}
    return {names[name]: _quantity(fields, name, fields.value(name)) for name in _ROOM if name in fields}


def _quantities(fields: SpecFields, name: str) -> dict[str, str]:
    return {
        str(key): _quantity(fields, f"{name}.{key}", found) for key, found in fields.mapping(name).items()
    }


def _quantity(fields: SpecFields, name: str, found: object) -> str:
    """Give an amount as it is written; what Kubernetes would not read as one is a fault."""
    if (amount := quantity(str(found))) is None or amount < 0:
        fields.fault(f"`{name}` must be an amount such as 2, 500m or 4Gi, got {found!r}")
    return str(found)


def _service(fields: SpecFields) -> Service:
    fields.check(SERVICE)
    return Service(
        name=_name(fields),
        at_ms=_ms(fields, "at", 0),
        replicas=fields.integer("replicas", 1, maximum=_MOST_PODS),
        requests=_room(fields),
        priority=fields.integer("priority", 1000, minimum=None),
        is_preempting=fields.flag("preempts", default=True),
        grace_s=fields.integer("grace", 2),
    )


def _event(fields: SpecFields) -> ScenarioEvent:
    fields.check(EVENT)
    what = fields.text("what", "scale", among=get_args(Happening))
    if what in _NEEDS_NAME and not fields.text("name"):
        fields.fault(f"`{what}` needs the `name` of what it happens to")
    return ScenarioEvent(
        at_ms=_ms(fields, "at", 0),
        what=what,  # type: ignore[arg-type]  # one of them, or a fault
        name=fields.text("name"),
        count=fields.integer("count", 1, maximum=_MOST_PODS),
        seconds=_ms(fields, "seconds", 0) / 1000,
        every_ms=_ms(fields, "every", 0),
    )


def _faults(fields: SpecFields) -> Faults:
    fields.check(("conflicts", "errors"))
    return Faults(
        conflict_pct=_number(fields, "conflicts", 0, most=100),
        error_pct=_number(fields, "errors", 0, most=100),
    )


def _scheduler(fields: SpecFields) -> SchedulerSettings:
    fields.check(("scoring", "bindRate", "preempts"))
    scoring = fields.text("scoring", "least-allocated", among=("least-allocated", "most-allocated"))
    return SchedulerSettings(
        scoring=scoring,  # type: ignore[arg-type]  # one of them, or a fault
        bind_rate=max(1, fields.integer("bindRate", 100)),
        preempts=fields.flag("preempts", default=True),
    )


def _name(fields: SpecFields) -> str:
    name = fields.text("name")
    if fields.value("name") in (None, ""):
        fields.fault("`name` is missing")
    return name


def _ms(fields: SpecFields, name: str, default: float, *, most: float = inf) -> int:
    return round(_number(fields, name, default, most=most) * 1000)


def _number(fields: SpecFields, name: str, default: float, *, most: float = inf) -> float:
    found = fields.value(name)
    if found is None:
        return default
    if isinstance(found, bool) or not isinstance(found, int | float) or found < 0:
        fields.fault(f"`{name}` must be a number that is not negative, got {found!r}")
        return default
    if not found <= most:
        fields.fault(f"`{name}` must be at most {most:g}, got {found!r}")
        return default
    return float(found)


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in values.items()}


def _check(scenario: Scenario, findings: Findings) -> None:
    """Find jobs that the controller would refuse, events that befall nothing, and what shows nothing."""
    if not scenario.nodes:
        findings.faults.append("scenario: no `nodes`")
    if scenario.begin_ms >= scenario.end_ms:
        findings.faults.append("scenario: `begin` must be less than `seconds`")
    names = [job.name for job in scenario.jobs]
    findings.faults += [
        f"two jobs are called `{name}`" for name in sorted(set(names)) if names.count(name) > 1
    ]
    for job in scenario.jobs:
        try:
            parse(training_job(job, scenario.grace_s))
        except SpecError as error:
            findings.faults += [f"job `{job.name}`: {fault}" for fault in error.faults]
    findings.faults += _aimless(scenario)


def _aimless(scenario: Scenario) -> Iterator[str]:
    """Name the events that happen to what the scenario does not have."""
    for index, event in enumerate(scenario.events):
        kind, known = _aims(scenario, event.what)
        if event.name and kind and event.name not in known:
            near = nearest(event.name, known)
            hint = f"; did you mean `{near}`?" if near else ""
            yield f"scenario.events[{index}]: there is no {kind} `{event.name}`{hint}"


def _aims(scenario: Scenario, what: str) -> tuple[str, Sequence[str]]:
    """Give what an event can happen to, and the names of all there are; nothing where it needs no name."""
    if what == "scale":
        return "service", [service.name for service in scenario.services]
    if what == "add-nodes":
        return "group of nodes", [group.name for group in scenario.nodes]
    if what.endswith("-node"):
        return "node", [
            f"{group.name}-{index}" for group in scenario.nodes for index in _numbers(scenario, group)
        ]
    if what.endswith(("-job", "-trainers")):
        return "job", [job.name for job in scenario.jobs]
    return "", ()


def _numbers(scenario: Scenario, group: NodeGroup) -> range:
    """Give the numbers of nodes that a group ever has."""
    added = [event for event in scenario.events if event.what == "add-nodes" and event.name == group.name]
    times = [1 + (scenario.end_ms // event.every_ms if event.every_ms else 0) for event in added]
    return range(group.count + sum(event.count * often for event, often in zip(added, times, strict=True)))


# --- EDL's published experiments: case 1, jobs that come one by one, and case 2, jobs beside a web
# service
# The cluster is the mix of 133 nodes and 2348 cores that fits EDL's measurements best; the sizes were not
# published. The roomy one has as many cores on larger nodes.

JOBS = 20
WEB = "nginx"
CASE_SERVICE = f"{NAMESPACE}/{WEB}"

_AGENT = {"cpu": "380m"}
_WARM_UP_MS = 20_000
_STEPS = ((300, 90), (200, 90), (100, 90), (200, 90), (300, 90), (400, 120))


def _case_nodes(sizes: Mapping[int, int]) -> tuple[NodeGroup, ...]:
    """Give nodes by cores: how many of each, with 4 GiB a core."""
    return tuple(
        NodeGroup(
            name=f"c{cores}",
            count=count,
            allocatable={"cpu": str(cores), "memory": f"{4 * cores}Gi"},
            background=_AGENT,
        )
        for cores, count in sizes.items()
    )


CALIBRATED = _case_nodes({12: 69, 20: 4, 24: 60})
ROOMY = _case_nodes({32: 73, 12: 1})


def _case_spec(minimum: int, maximum: int) -> dict[str, Any]:
    return {
        "image": "example.org/paddle:1",
        "trainer": {
            "entrypoint": "python train.py",
            "min-instance": minimum,
            "max-instance": maximum,
            "resources": {"requests": {"cpu": "5", "memory": "8Gi"}},
        },
        "pserver": {
            "min-instance": 10,
            "max-instance": 10,
            "resources": {"requests": {"cpu": "4", "memory": "5Gi"}},
        },
        "master": {"resources": {"requests": {"cpu": "1", "memory": "300Mi"}}},
    }


def case1(*, spacing_ms: int = 10_000, first: int = 2) -> Scenario:
    """Twenty jobs, one after the other, on an empty cluster.

    Args:
        first: trainers that the baselines create a job with.
    """
    jobs = tuple(
        JobPlan(
            name=f"job-{index:02d}", at_ms=5_000 + index * spacing_ms, spec=_case_spec(2, 60), first=first
        )
        for index in range(JOBS)
    )
    return Scenario(name="case1", nodes=CALIBRATED, jobs=jobs, end_ms=550_000)


def case2(*, nodes: tuple[NodeGroup, ...] = CALIBRATED, name: str = "case2") -> Scenario:
    """Six jobs beside a web service that shrinks and grows again.

    Time counts from when the service runs, as in EDL's logs (all six rigid jobs run after 55 s there).
    """
    first_ms = _WARM_UP_MS + 25_000
    jobs = tuple(
        JobPlan(name=f"job-{index}", at_ms=first_ms + index * 5_000, spec=_case_spec(2, 60), first=15)
        for index in range(6)
    )
    events, at_ms = [], jobs[-1].at_ms + 60_000
    for count, seconds in _STEPS:
        events.append(ScenarioEvent(at_ms=at_ms, what="scale", name=WEB, count=count))
        at_ms += seconds * 1000
    web = Service(name=WEB, replicas=400, requests={"cpu": "3", "memory": "3Gi"})
    return Scenario(
        name=name,
        nodes=nodes,
        jobs=jobs,
        services=(web,),
        events=tuple(events),
        begin_ms=_WARM_UP_MS,
        end_ms=at_ms,
    )


def case2_roomy() -> Scenario:
    """The same on a cluster of as many cores on larger nodes, where the controller alone makes room.

    EDL's cluster knew no preemption. Where pods preempt, the scheduler takes trainers without regard to what
    is left over on their nodes.
    """
    return with_preemption(case2(nodes=ROOMY, name="case2-roomy"), is_preempting=False)


def with_preemption(scenario: Scenario, *, is_preempting: bool) -> Scenario:
    """Give a scenario in which the scheduler makes room for services, or leaves it to the controller."""
    services = (replace(each, is_preempting=is_preempting) for each in scenario.services)
    return replace(scenario, services=tuple(services))


_SCHEDULER_1_6 = SchedulerSettings(
    preempts=False,
    bind_rate=50,
    failure_ms=40,  # an event and a condition at 50 requests a second
    retries_by_time=True,
    longest_backoff_ms=60_000,
)


def as_measured(scenario: Scenario) -> Scenario:
    """Give a case as EDL ran it: Kubernetes 1.6, no priorities, trainers that take 30 s to end.

    The 30 s (a shell is the first process of every container), 10 s for web pods and what a failed attempt to
    find a node costs are assumptions, chosen to come near EDL's measurements.
    """
    web = tuple(replace(service, priority=0, grace_s=10) for service in scenario.services)
    return replace(
        scenario,
        services=web,
        grace_s=30,
        scheduler=_SCHEDULER_1_6,
        workloads=WorkloadSettings(spreads_removal=False),
    )


def unelastic(scenario: Scenario) -> Scenario:
    """Give a scenario with jobs that keep the trainers they are created with.

    These are 15 in case 2; the most of their range in case 1, as in all that do not say.
    """
    jobs = (replace(job, first=job.first if job.first > 2 else _most(job)) for job in scenario.jobs)
    return replace(scenario, jobs=tuple(jobs))


def _most(job: JobPlan) -> int:
    return parse(training_job(job, 0)).trainer.maximum


CASES: dict[str, Callable[[], Scenario]] = {"case1": case1, "case2": case2, "case2-roomy": case2_roomy}


def named(case: str, *, is_preempting: bool | None = None) -> Scenario:
    """Give a case by its name.

    Args:
        is_preempting: whether the scheduler pushes trainers aside for services; None for as the case has it.
    """
    scenario = CASES[case]()
    return scenario if is_preempting is None else with_preemption(scenario, is_preempting=is_preempting)
