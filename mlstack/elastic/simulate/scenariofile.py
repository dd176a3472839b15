"""Read a scenario that somebody wrote: their nodes, jobs, services, and what happens to them.

Times are seconds, amounts are written as in Kubernetes. A job may be given by a few short fields, by the
`spec` of a TrainingJob, or by both: `spec` is laid over what the short fields come to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, get_args

from mlstack.cluster.patches import merge_patch
from mlstack.elastic.simulate.kubelet import KubeletSettings
from mlstack.elastic.simulate.objects import training_job
from mlstack.elastic.simulate.scenario import Event, Faults, Happening, JobPlan, NodeGroup, Scenario, Service
from mlstack.elastic.simulate.scheduler import SchedulerSettings
from mlstack.elastic.spec import SpecError, own_names, parse
from mlstack.elastic.specfields import Fields, Findings
from mlstack.errors import ConfigError
from mlstack.model.names import nearest
from mlstack.model.validation.formats import quantity

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
        where: the file, for messages.

    Raises:
        ConfigError: it is not one; tells all that is wrong with it.
    """
    findings = Findings()
    top = Fields(data, "scenario", findings)
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


def _scenario(top: Fields, where: str) -> Scenario:
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


def _start_ms(top: Fields) -> tuple[int, int]:
    start = top.value("start")
    match (2, 5) if start is None else start:
        case [int() | float() as least, int() | float() as most] if 0 <= least <= most <= _LONGEST_S:
            return round(least * 1000), round(most * 1000)
    top.fault("`start` must be the shortest and the longest start of a pod in seconds, as [2, 5]")
    return 2000, 5000


def _levels(top: Fields, name: str) -> Iterator[Fields]:
    for index, item in enumerate(top.items(name)):
        yield top.below(item, f"{name}[{index}]")


def _nodes(fields: Fields) -> NodeGroup:
    fields.check(NODE)
    return NodeGroup(
        name=_name(fields),
        count=fields.integer("count", 1, maximum=_MOST_NODES),
        allocatable={**_room(fields), **_quantities(fields, "allocatable")},
        background=_quantities(fields, "background"),
        labels=_texts(fields.mapping("labels")),
        taints=tuple(_texts(taint) for taint in fields.items("taints")),
    )


def _jobs(fields: Fields) -> Iterator[JobPlan]:
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


def _spec(fields: Fields) -> Mapping[str, Any]:
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
    found: Mapping[str, Any] = merge_patch(spec, own_names(fields.mapping("spec")))
    return found


def _resources(fields: Fields) -> dict[str, Any]:
    """Give requests; GPUs as limits too, as Kubernetes wants them."""
    room = _room(fields)
    gpus = {GPU: room[GPU]} if GPU in room else {}
    return {"requests": room, **({"limits": gpus} if gpus else {})}


def _room(fields: Fields) -> dict[str, str]:
    names = {"cpu": "cpu", "memory": "memory", "gpu": GPU}
    return {names[name]: _quantity(fields, name, fields.value(name)) for name in _ROOM if name in fields}


def _quantities(fields: Fields, name: str) -> dict[str, str]:
    return {
        str(key): _quantity(fields, f"{name}.{key}", found) for key, found in fields.mapping(name).items()
    }


def _quantity(fields: Fields, name: str, found: object) -> str:
    """Give an amount as it is written; what Kubernetes would not read as one is a fault."""
    if (amount := quantity(str(found))) is None or amount < 0:
        fields.fault(f"`{name}` must be an amount such as 2, 500m or 4Gi, got {found!r}")
    return str(found)


def _service(fields: Fields) -> Service:
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


def _event(fields: Fields) -> Event:
    fields.check(EVENT)
    what = fields.text("what", "scale", among=get_args(Happening))
    if what in _NEEDS_NAME and not fields.text("name"):
        fields.fault(f"`{what}` needs the `name` of what it happens to")
    return Event(
        at_ms=_ms(fields, "at", 0),
        what=what,  # type: ignore[arg-type]  # one of them, or a fault
        name=fields.text("name"),
        count=fields.integer("count", 1, maximum=_MOST_PODS),
        seconds=_ms(fields, "seconds", 0) / 1000,
        every_ms=_ms(fields, "every", 0),
    )


def _faults(fields: Fields) -> Faults:
    fields.check(("conflicts", "errors"))
    return Faults(
        conflict_pct=_number(fields, "conflicts", 0, most=100),
        error_pct=_number(fields, "errors", 0, most=100),
    )


def _scheduler(fields: Fields) -> SchedulerSettings:
    fields.check(("scoring", "bindRate", "preempts"))
    scoring = fields.text("scoring", "least-allocated", among=("least-allocated", "most-allocated"))
    return SchedulerSettings(
        scoring=scoring,  # type: ignore[arg-type]  # one of them, or a fault
        bind_rate=max(1, fields.integer("bindRate", 100)),
        preempts=fields.flag("preempts", default=True),
    )


def _name(fields: Fields) -> str:
    name = fields.text("name")
    if fields.value("name") in (None, ""):
        fields.fault("`name` is missing")
    return name


def _ms(fields: Fields, name: str, default: float, *, most: float = inf) -> int:
    return round(_number(fields, name, default, most=most) * 1000)


def _number(fields: Fields, name: str, default: float, *, most: float = inf) -> float:
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
