"""EDL's published experiments: case 1, jobs that come one by one, and case 2, jobs beside a web service.

The cluster is the mix of 133 nodes and 2348 cores that fits EDL's measurements best; the sizes were not
published. The roomy one has as many cores on larger nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from mlstack.elastic.simulate.objects import NAMESPACE, training_job
from mlstack.elastic.simulate.scenario import Event, JobPlan, NodeGroup, Scenario, Service
from mlstack.elastic.simulate.scheduler import SchedulerSettings
from mlstack.elastic.simulate.workloads import WorkloadSettings
from mlstack.elastic.spec import parse

JOBS = 20
WEB = "nginx"
SERVICE = f"{NAMESPACE}/{WEB}"

_AGENT = {"cpu": "380m"}
_WARM_UP_MS = 20_000
_STEPS = ((300, 90), (200, 90), (100, 90), (200, 90), (300, 90), (400, 120))


def _nodes(sizes: Mapping[int, int]) -> tuple[NodeGroup, ...]:
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


CALIBRATED = _nodes({12: 69, 20: 4, 24: 60})
ROOMY = _nodes({32: 73, 12: 1})


def _spec(minimum: int, maximum: int) -> dict[str, Any]:
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
        spacing_ms: between two submissions.
        first: trainers that the baselines create a job with.
    """
    jobs = tuple(
        JobPlan(name=f"job-{index:02d}", at_ms=5_000 + index * spacing_ms, spec=_spec(2, 60), first=first)
        for index in range(JOBS)
    )
    return Scenario(name="case1", nodes=CALIBRATED, jobs=jobs, end_ms=550_000)


def case2(*, nodes: tuple[NodeGroup, ...] = CALIBRATED, name: str = "case2") -> Scenario:
    """Six jobs beside a web service that shrinks and grows again.

    Time counts from when the service runs, as in EDL's logs (all six rigid jobs run after 55 s there).
    """
    first_ms = _WARM_UP_MS + 25_000
    jobs = tuple(
        JobPlan(name=f"job-{index}", at_ms=first_ms + index * 5_000, spec=_spec(2, 60), first=15)
        for index in range(6)
    )
    events, at_ms = [], jobs[-1].at_ms + 60_000
    for count, seconds in _STEPS:
        events.append(Event(at_ms=at_ms, what="scale", name=WEB, count=count))
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
        case: one of `CASES`.
        is_preempting: whether the scheduler pushes trainers aside for services; None for as the case has it.
    """
    scenario = CASES[case]()
    return scenario if is_preempting is None else with_preemption(scenario, is_preempting=is_preempting)
