"""What a simulation is of: nodes, jobs, services, what happens when and what goes wrong, from a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import inf
from pathlib import Path
from typing import Any

from mlstack.dataclass import Record
from mlstack.elastic.training_job import (
    SERVER_CLASS,
    TRAINER_CLASS,
    SpecError,
    SpecFields,
    own_spec_names,
    parse,
    read_fields,
    spec_field,
)
from mlstack.errors import ConfigError
from mlstack.names import nearest
from mlstack.objects.managed_fields import merge_patch
from mlstack.objects.resources import quantity
from mlstack.simulator.control_plane import SchedulerSettings, WorkloadSettings
from mlstack.simulator.engine import manifest
from mlstack.simulator.measures import BACKGROUND
from mlstack.testing.store import Obj
from mlstack.yaml.read import read_document

NAMESPACE = "default"
CASES = ("case1", "case2", "case2-roomy")
"""The published experiments that are a scenario."""
FOLDER = Path(__file__).with_name("scenarios")

EVENTS = {
    "scale": "service",  # it gets `count` replicas
    "delete-job": "job",
    "suspend-job": "job",
    "resume-job": "job",
    "limit-job": "job",  # `kubectl scale`: at most `count` trainers
    "finish-job": "job",  # all its trainers find no more work
    "crash-trainers": "job",  # `count` trainers fail by themselves
    "delete-trainers": "job",  # `count` trainers are deleted by somebody
    "fail-node": "node",
    "heal-node": "node",
    "cordon-node": "node",
    "uncordon-node": "node",
    "remove-node": "node",
    "add-nodes": "group of nodes",  # `count` more of it
    "kill-controller": "",  # the one that leads dies and comes back after `seconds`
    "stop-controller": "",  # the one that leads frees its Lease, ends, and comes back after `seconds`
    "freeze-controller": "",  # the one that leads stands still for `seconds` in the middle of a pass
    "isolate-controller": "",  # the one that leads reaches the API server no more for `seconds`
    "break-watch": "",  # the one that leads hears nothing for `seconds`, then lists anew
}
"""What can happen, and what it happens to: that is named by `name`."""

# A sample is kept for every second: a week of them is what memory and patience are there for.
_LONGEST_S = 7 * 24 * 3600
# More than any cluster of Kubernetes bears: what is counted here is made, one by one.
_MOST_NODES, _MOST_JOBS, _MOST_PODS = 10_000, 10_000, 100_000
_NO_FIELDS: Mapping[str, Any] = {}
_NO_ITEMS: tuple[Mapping[str, Any], ...] = ()
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_REQUESTS = {"cpu": "cpu", "memory": "memory", "gpu": "nvidia.com/gpu"}

# --- readers of single fields: times are seconds, amounts are written as in Kubernetes ---


def _requests(fields: SpecFields, name: str = "", default: object = None) -> dict[str, str]:
    return {
        resource: _quantity(fields, name, fields.value(name))
        for name, resource in _REQUESTS.items()
        if name in fields
    }


def _allocatable(fields: SpecFields, name: str, default: object) -> dict[str, str]:
    return {**_requests(fields), **_quantities(fields, name)}


def _quantities(fields: SpecFields, name: str, default: object = None) -> dict[str, str]:
    amounts = fields.get(name, _NO_FIELDS).items()
    return {str(key): _quantity(fields, f"{name}.{key}", amount) for key, amount in amounts}


def _quantity(fields: SpecFields, name: str, value: object) -> str:
    """Give an amount as it is written; what Kubernetes would not read as one is a fault."""
    if (amount := quantity(str(value))) is None or amount < 0:
        fields.fault(f"`{name}` must be an amount such as 2, 500m or 4Gi, got {value!r}")
    return str(value)


def _name(fields: SpecFields, field: str = "name", default: str = "") -> str:
    name = fields.get("name", "")
    if fields.value("name") in (None, ""):
        fields.fault("`name` is missing")
    return name


def _ms(fields: SpecFields, name: str, default: float = 0, *, most: float = inf) -> int:
    return round(_number(fields, name, default, most=most) * 1000)


def _number(fields: SpecFields, name: str, default: float, *, most: float) -> float:
    value = fields.value(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        fields.fault(f"`{name}` must be a number that is not negative, got {value!r}")
    elif not value <= most:
        fields.fault(f"`{name}` must be at most {most:g}, got {value!r}")
    else:
        return float(value)
    return default


def _seconds(fields: SpecFields, name: str, default: float) -> float:
    return _ms(fields, name) / 1000


def _texts(fields: SpecFields, name: str, default: object) -> dict[str, str]:
    return {str(name): str(value) for name, value in fields.get(name, _NO_FIELDS).items()}


def _taints(fields: SpecFields, name: str, default: object) -> tuple[dict[str, str], ...]:
    taints = []
    for index, item in enumerate(fields.get(name, _NO_ITEMS)):
        fields.below(item, f"{name}[{index}]").get("effect", "", among=_EFFECTS)
        taints.append({str(key): str(value) for key, value in item.items()})
    return tuple(taints)


# --- what a simulation is of; the declarations are what is read of an entry ---


class NodeGroup(Record):
    """Nodes that are alike."""

    name: str = spec_field("name", "", read=_name)  # the nodes are called `<name>-0` and so on
    count: int = spec_field("count", 1, maximum=_MOST_NODES)
    # what pods may request of each, as in a Node (`cpu: 12`, `memory: 48Gi`)
    allocatable: Mapping[str, str] = spec_field("allocatable", {}, read=_allocatable)
    # what a pod of the background requests on each; empty for none
    background: Mapping[str, str] = spec_field("background", {}, read=_quantities)
    labels: Mapping[str, str] = spec_field("labels", {}, read=_texts)
    taints: tuple[Mapping[str, str], ...] = spec_field("taints", (), read=_taints)


class JobPlan(Record):
    """A training job that will be submitted."""

    name: str
    at_ms: int
    spec: Mapping[str, Any]  # of the TrainingJob
    first: int = spec_field("first", 0)  # trainers that EDL's baselines create it with; 0 for its minimum
    work_s: int = spec_field("work", 0)  # seconds that one trainer would need alone; 0 for work without end


class ServiceDeployment(Record):
    """A Deployment of others, beside which jobs train."""

    name: str = spec_field("name", "", read=_name)
    at_ms: int = spec_field("at", 0, read=_ms)  # when it is created
    replicas: int = spec_field("replicas", 1, maximum=_MOST_PODS)  # how many pods it begins with
    requests: Mapping[str, str] = spec_field("requests", {}, read=_requests)  # of each pod
    priority: int = spec_field("priority", 1000, minimum=None)
    # whether the scheduler pushes others aside for them; where not, their class has `preemptionPolicy:
    # Never`, and the controller alone makes room
    is_preempting: bool = spec_field("preempts", True)
    grace_s: int = spec_field("grace", 2)  # how long a pod takes to end


class ScenarioEvent(Record):
    """Something that happens."""

    at_ms: int = spec_field("at", 0, read=_ms)  # when first
    what: str = spec_field("what", "", among=EVENTS)
    name: str = spec_field("name", "")  # of the job, service, node or group of nodes
    count: int = spec_field("count", 1, maximum=_MOST_PODS)  # how many, where that has a meaning
    seconds: float = spec_field("seconds", 0, read=_seconds)  # how long it lasts, likewise
    every_ms: int = spec_field("every", 0, read=_ms)  # happens again after so long; 0 for once


class Scenario(Record):
    """A whole simulation but for its seed and policy."""

    name: str
    nodes: tuple[NodeGroup, ...]
    jobs: tuple[JobPlan, ...] = ()  # by time
    services: tuple[ServiceDeployment, ...] = ()
    events: tuple[ScenarioEvent, ...] = ()
    conflict_pct: float = 0  # share of the controller's writes that are refused since the object changed
    error_pct: float = 0  # share of its writes to which the API server has no answer for now
    begin_ms: int = 0  # when sampling begins; times in results count from here
    end_ms: int = 550_000  # when all ends
    scheduler: SchedulerSettings = field(default_factory=SchedulerSettings)
    start_ms: tuple[int, int] = (2_000, 5_000)  # shortest and longest time of a pod from bound to running
    workloads: WorkloadSettings = field(default_factory=WorkloadSettings)
    grace_s: int = 5  # of trainers, where their spec does not say
    controllers: int = 1  # how many there are, of which one leads


def with_preemption(scenario: Scenario, *, is_preempting: bool) -> Scenario:
    """Give a scenario in which the scheduler makes room for services, or leaves it to the controller."""
    services = (replace(service, is_preempting=is_preempting) for service in scenario.services)
    return replace(scenario, services=tuple(services))


# --- the objects of a scenario, as the API server would have them ---


def nodes(group: NodeGroup, first: int = 0) -> Iterator[Obj]:
    """Give the nodes of a group, Ready, numbered from `first` on."""
    offered = {"pods": "110", **group.allocatable}
    ready = {"type": "Ready", "status": "True"}
    for index in range(first, first + group.count):
        name = f"{group.name}-{index}"
        yield manifest(
            "v1",
            "Node",
            name,
            metadata={"labels": {"kubernetes.io/hostname": name, **group.labels}},
            spec={"taints": list(group.taints)} if group.taints else {},
            status={"allocatable": offered, "capacity": offered, "conditions": [ready]},
        )


def background(node: str, requests: Mapping[str, str]) -> Obj:
    """Give the pod of the background of a node, already running."""
    spec = {
        "nodeName": node,
        "priority": 2_000_001_000,
        "terminationGracePeriodSeconds": 30,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "agent", "resources": {"requests": dict(requests)}}],
    }
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return manifest("v1", "Pod", f"agent-{node}", BACKGROUND, spec=spec, status=status)


def classes() -> Iterator[Obj]:
    """Give the priority classes that come with the controller."""
    for name, value in ((TRAINER_CLASS, -10), (SERVER_CLASS, 100)):
        yield manifest("scheduling.k8s.io/v1", "PriorityClass", name, value=value, preemptionPolicy="Never")


def training_job(job: JobPlan, grace_s: int) -> Obj:
    """Give the TrainingJob of a job."""
    defaults = {"fault_tolerant": True, "trainer": {"terminationGracePeriodSeconds": grace_s}}
    spec = merge_patch(defaults, job.spec)
    return manifest("paddlepaddle.org/v1", "TrainingJob", job.name, NAMESPACE, spec=spec)


def deployment(service: ServiceDeployment) -> Obj:
    """Give the Deployment of a service."""
    labels = {"app": service.name}
    pod = {
        "priority": service.priority,
        "preemptionPolicy": "PreemptLowerPriority" if service.is_preempting else "Never",
        "terminationGracePeriodSeconds": service.grace_s,
        "containers": [{"name": service.name, "resources": {"requests": dict(service.requests)}}],
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": service.replicas, "selector": {"matchLabels": labels}, "template": template}
    return manifest("apps/v1", "Deployment", service.name, NAMESPACE, spec=spec)


# --- read a scenario: times are seconds, amounts are written as in Kubernetes ---
# A job may be given by a few short fields, by the `spec` of a TrainingJob, or by both: `spec` is laid over
# what the short fields come to. `scenarios/example.yaml` has every field.

FIELDS = {
    level: tuple(names.split())
    for level, names in {
        "": "name nodes jobs services events faults begin seconds grace controllers scheduler start",
        "nodes": "name count cpu memory gpu allocatable background labels taints",
        "jobs": "name count at every min max trainer pservers master priority weight first work spec",
        "services": "name at replicas cpu memory gpu priority preempts grace",
        "events": "at what name count seconds every",
    }.items()
}
"""The fields of each level."""


def published(name: str) -> Scenario:
    """Give a published experiment by its name."""
    return load((FOLDER / f"{name}.yaml").read_text("utf-8"), where=name)


def load(text: str, *, where: str) -> Scenario:
    """Read a scenario from its file, YAML or JSON.

    Raises:
        YamlError: it is neither.
        ConfigError: it is no scenario; tells all that is wrong with it.
    """
    return read(read_document(text, source=where, is_yaml_1_2=True).value, where=where)


def read(data: object, *, where: str) -> Scenario:
    """Read a scenario from the plain values of its file.

    Raises:
        ConfigError: it is none; tells all that is wrong with it.
    """
    top = SpecFields(data, "scenario")
    top.check(FIELDS[""])
    jobs = tuple(job for fields in _entries(top, "jobs") for job in _jobs(fields))
    name = top.get("name", where.rpartition("/")[2].partition(".")[0])
    groups = tuple(NodeGroup(**read_fields(NodeGroup, fields)) for fields in _entries(top, "nodes"))
    services = tuple(
        ServiceDeployment(**read_fields(ServiceDeployment, fields)) for fields in _entries(top, "services")
    )
    events = tuple(map(_event, _entries(top, "events")))
    faults = top.level("faults")
    faults.check(("conflicts", "errors"))
    scenario = Scenario(
        name=name,
        nodes=groups,
        jobs=jobs,
        services=services,
        events=events,
        conflict_pct=_number(faults, "conflicts", 0, most=100),
        error_pct=_number(faults, "errors", 0, most=100),
        begin_ms=_ms(top, "begin"),
        end_ms=_ms(top, "seconds", 600, most=_LONGEST_S),
        grace_s=top.get("grace", 5),
        controllers=top.get("controllers", 1, minimum=1, maximum=100),
        scheduler=_scheduler(top.level("scheduler")),
        start_ms=_start_ms(top),
    )
    # What is not as it should be is not there: what follows from that is no other fault.
    if faulty := [*(top.faults or _faults(scenario)), *_unread(top.warnings)]:
        raise ConfigError(
            "the scenario cannot be used: " + "; ".join(faulty),
            where=where,
            hint="`mlstack elastic simulate --example` prints a scenario with every field",
        )
    return scenario


def _entries(top: SpecFields, name: str) -> Iterator[SpecFields]:
    for index, item in enumerate(top.get(name, _NO_ITEMS)):
        fields = top.below(item, f"{name}[{index}]")
        fields.check(FIELDS[name])
        yield fields


def _start_ms(top: SpecFields) -> tuple[int, int]:
    start = top.value("start")
    match (2, 5) if start is None else start:
        case [int() | float() as least, int() | float() as most] if 0 <= least <= most <= _LONGEST_S:
            return round(least * 1000), round(most * 1000)
    top.fault("`start` must be the shortest and the longest start of a pod in seconds, as [2, 5]")
    return 2000, 5000


def _jobs(fields: SpecFields) -> Iterator[JobPlan]:
    """Give the jobs of one entry: one, or `count` of them `every` so many seconds."""
    name = _name(fields)
    count = fields.get("count", 1, maximum=_MOST_JOBS) if "count" in fields else None
    spec = _spec(fields)
    for index in range(1 if count is None else count):
        yield JobPlan(
            name=name if count is None else f"{name}-{index}",
            at_ms=_ms(fields, "at") + index * _ms(fields, "every"),
            spec=spec,
            **read_fields(JobPlan, fields),
        )


def _spec(fields: SpecFields) -> Mapping[str, Any]:
    spec: dict[str, Any] = {
        "image": "example.org/training:1",
        "priority": fields.get("priority", 0, minimum=None),
        "weight": fields.get("weight", 1, minimum=1),
        "trainer": {
            "entrypoint": "train",
            "min-instance": fields.get("min", 1),
            "max-instance": fields.get("max", 1),
            "resources": _resources(fields.level("trainer")),
        },
        "pserver": {"min-instance": 0, "max-instance": 0, "resources": {}},
        "master": {"enabled": False},
    }
    if "pservers" in fields:
        level = fields.level("pservers")
        count, resources = level.get("count", 1), _resources(level, "count")
        spec["pserver"] = {"min-instance": count, "max-instance": count, "resources": resources}
    if "master" in fields:
        spec["master"] = {"resources": _resources(fields.level("master"))}
    merged: Mapping[str, Any] = merge_patch(spec, own_spec_names(fields.get("spec", _NO_FIELDS)))
    return merged


def _resources(level: SpecFields, *others: str) -> dict[str, Any]:
    """Read the requests of a role; GPUs are limits too, as Kubernetes wants them."""
    gpu = _REQUESTS["gpu"]
    level.check((*_REQUESTS, *others))
    requests = _requests(level)
    return {"requests": requests, **({"limits": {gpu: requests[gpu]}} if gpu in requests else {})}


def _event(fields: SpecFields) -> ScenarioEvent:
    event = ScenarioEvent(**read_fields(ScenarioEvent, fields))
    if "what" not in fields:
        fields.fault("`what` is missing")
    elif EVENTS.get(event.what) and not event.name:
        fields.fault(f"`{event.what}` needs the `name` of what it happens to")
    if 0 < event.every_ms < 1000:
        fields.fault("`every` must be at least 1 (second), or 0 for once")
    return event


def _scheduler(fields: SpecFields) -> SchedulerSettings:
    fields.check(("scoring", "bindRate", "preempts"))
    scoring = fields.get("scoring", "least-allocated", among=("least-allocated", "most-allocated"))
    return SchedulerSettings(
        scoring=scoring,
        bind_rate=fields.get("bindRate", 100, minimum=1),
        preempts=fields.get("preempts", True),
    )


def _faults(scenario: Scenario) -> Iterator[str]:
    """Name jobs that the controller would refuse, events that befall nothing, and what shows nothing."""
    if not scenario.nodes:
        yield "scenario: no `nodes`"
    for group in scenario.nodes:
        for name, amount in group.background.items():
            offered = group.allocatable.get(name, "0")
            if (quantity(amount) or 0) > (quantity(offered) or 0):
                yield f"nodes `{group.name}`: their `background` takes {amount} {name} of {offered}"
    if scenario.begin_ms >= scenario.end_ms:
        yield "scenario: `begin` must be less than `seconds`"
    for job in scenario.jobs:
        try:
            faults = _unread(parse(training_job(job, scenario.grace_s)).warnings)
        except SpecError as error:
            faults = iter(error.faults)
        yield from (f"job `{job.name}`: {fault}" for fault in faults)
    targets: dict[str, Sequence[str]] = {
        "service": [service.name for service in scenario.services],
        "job": [job.name for job in scenario.jobs],
        "node": [f"{group.name}-{index}" for group in scenario.nodes for index in _numbers(scenario, group)],
        "group of nodes": [group.name for group in scenario.nodes],
    }
    for kind in ("job", "service", "node"):
        if repeated := [name for name, times in Counter(targets[kind]).items() if times > 1]:
            yield f"two {kind}s are called `{repeated[0]}`"
    if scenario.jobs and min(job.at_ms for job in scenario.jobs) >= scenario.end_ms:
        yield f"scenario: no job comes before the end, `seconds` {scenario.end_ms / 1000:g}"
    for index, event in enumerate(scenario.events):
        kind = EVENTS.get(event.what, "")
        if event.name and kind and event.name not in targets[kind]:
            near = nearest(event.name, targets[kind])
            hint = f"; did you mean `{near}`?" if near else ""
            yield f"scenario.events[{index}]: there is no {kind} `{event.name}`{hint}"


def _unread(warnings: Iterable[str]) -> Iterator[str]:
    """Give those of the warnings of a reader that tell of fields nobody reads."""
    ending = " of a TrainingJob and is ignored"
    return (text.removesuffix(ending) for text in warnings if text.endswith(ending))


def _numbers(scenario: Scenario, group: NodeGroup) -> range:
    """Give the numbers of nodes that a group ever has."""
    count = group.count
    for event in scenario.events:
        if event.what == "add-nodes" and event.name == group.name:
            count += event.count * (1 + (scenario.end_ms // event.every_ms if event.every_ms else 0))
    return range(count)
