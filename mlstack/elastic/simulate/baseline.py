"""EDL's own way to run jobs: ReplicaSets and a Job, and every 5 s a parallelism from policy `edl-v010`.

Policy `off` leaves the parallelism as it was created: rigid jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlstack.cluster.api import WatchEvent
from mlstack.elastic.config import PolicyConfig
from mlstack.elastic.observed import nodes, pods
from mlstack.elastic.observed.amounts import BASIC, vector
from mlstack.elastic.observed.nodes import NodeFacts
from mlstack.elastic.observed.pods import JOB_LABEL, ROLE_LABEL, PodFacts
from mlstack.elastic.policy.edl_original import edl_v010
from mlstack.elastic.simulate.cluster import Environment
from mlstack.elastic.simulate.kernel import START_MS
from mlstack.elastic.simulate.objects import NAMESPACE, training_job
from mlstack.elastic.simulate.scenario import JobPlan
from mlstack.elastic.simulate.store import Obj, changed
from mlstack.elastic.snapshot import Arriving, Demand, Job, Node, Snapshot, Trainer, Vector
from mlstack.elastic.spec import parse

TICK_MS = 5_000
MAX_LOAD_PCT = 97


class Baseline:
    """Submits jobs as EDL's server did, and scales them as its controller did.

    Args:
        environment: the cluster.
        mode: `edl-v010`, or `off` for jobs that are never scaled.
    """

    def __init__(self, environment: Environment, mode: str) -> None:
        """Put the submissions and rounds on the calendar."""
        self._environment = environment
        self._kernel, self._store = environment.kernel, environment.store
        self._config = PolicyConfig(mode=mode, max_load_pct=MAX_LOAD_PCT)
        self._is_on = mode != "off"
        self._nodes: dict[str, NodeFacts] = {}
        self._pods: dict[str, PodFacts] = {}
        self._jobs: list[JobPlan] = []
        self.violations: list[str] = []
        self._store.watch(["Pod", "Node"], self._hear)
        for job in environment.scenario.jobs:
            environment.later(job.at_ms, lambda job=job: self._submit(job))  # type: ignore[misc]  # bound now
        if self._is_on:
            chance = self._kernel.generator("baseline")
            self._kernel.after(chance.randrange(TICK_MS), self._tick)

    def _hear(self, event: WatchEvent) -> None:
        if event.object["kind"] == "Node":
            facts = nodes.parse(event.object)
            self._nodes[facts.place.name] = facts
            return
        pod = pods.parse(event.object)
        if event.type == "DELETED" or pod.ending:
            self._pods.pop(pod.uid, None)
        else:
            self._pods[pod.uid] = pod

    def _submit(self, job: JobPlan) -> None:
        wanted = self._store.write(training_job(job, self._environment.scenario.grace_s))
        spec = parse(wanted)
        self._jobs.append(job)
        grace_s = self._environment.scenario.grace_s
        for kind, role, count, requests in (
            ("Deployment", "pserver", spec.pserver.count, spec.pserver.resources.container),
            ("Deployment", "master", spec.master.count, spec.master.resources.container),
            ("Job", "trainer", job.first or spec.trainer.minimum, spec.trainer.resources.container),
        ):
            self._store.write(_workload(kind, job.name, role, count, requests, grace_s))
        if self._is_on:
            self._kernel.after(100, self._round)

    def _tick(self) -> None:
        self._round()
        self._kernel.after(TICK_MS, self._tick)

    def _round(self) -> None:
        """Decide, and write the parallelism of every job that changes."""
        decided = edl_v010(self._snapshot(), self._config)
        for job in self._jobs:
            live = self._store.get("Job", f"{job.name}-trainer", NAMESPACE)
            target = decided.decisions[f"{NAMESPACE}/{job.name}"].target
            if live is not None and live["spec"]["parallelism"] != target:
                self._store.write(changed(live, spec={"parallelism": target}))

    def _snapshot(self) -> Snapshot:
        """Give what EDL's controller read: it asked the API server for everything, each time."""
        names = sorted({name for node in self._nodes.values() for name in node.allocatable} - set(BASIC))
        resources = (*BASIC, *names)
        live = sorted(self._pods.values(), key=lambda pod: pod.key)
        used = {name: [0] * len(resources) for name in self._nodes}
        for pod in live:
            if pod.node and pod.gone_ms is None and pod.role != "trainer":
                used[pod.node] = [
                    a + b for a, b in zip(used[pod.node], vector(pod.requests, resources), strict=True)
                ]
        return Snapshot(
            now_ms=self._kernel.now_ms,
            resources=resources,
            nodes=tuple(
                Node(
                    name=name,
                    allocatable=vector(node.allocatable, resources),
                    used=tuple(used[name]),
                )
                for name, node in sorted(self._nodes.items())
            ),
            demands=tuple(_demand(pod, resources) for pod in live if not pod.node and pod.role != "trainer"),
            arriving=tuple(_arriving(pod, resources) for pod in live if pod.node and pod.gone_ms is not None),
            jobs=tuple(self._job(job, live, resources) for job in self._jobs),
        )

    def _job(self, job: JobPlan, live: list[PodFacts], resources: tuple[str, ...]) -> Job:
        spec = parse(training_job(job, self._environment.scenario.grace_s))
        own = [pod for pod in live if pod.job == job.name and pod.role == "trainer"]
        stored = self._store.get("Job", f"{job.name}-trainer", NAMESPACE)
        return Job(
            key=f"{NAMESPACE}/{job.name}",
            minimum=spec.trainer.minimum,
            maximum=spec.trainer.maximum,
            trainer=vector({**spec.trainer.resources.requests, "pods": 1}, resources),
            created_ms=START_MS + job.at_ms,
            state="admitted",
            target=int(stored["spec"]["parallelism"]) if stored else 0,
            trainers=tuple(_trainer(pod) for pod in own if pod.gone_ms is None),
            leaving=sum(pod.gone_ms is not None for pod in own),
        )


def _trainer(pod: PodFacts) -> Trainer:
    return Trainer(
        name=pod.name,
        node=pod.node,
        planned="",
        created_ms=pod.created_ms,
        is_ready=pod.phase == "Running",
    )


def _demand(pod: PodFacts, resources: tuple[str, ...]) -> Demand:
    request: Vector = vector(pod.requests, resources)
    return Demand(key=pod.key, request=request, priority=0, created_ms=pod.created_ms)


def _arriving(pod: PodFacts, resources: tuple[str, ...]) -> Arriving:
    return Arriving(node=pod.node, request=vector(pod.requests, resources), at_ms=pod.gone_ms or 0)


def _workload(kind: str, job: str, role: str, count: int, requests: Mapping[str, Any], grace_s: int) -> Obj:
    labels = {JOB_LABEL: job, ROLE_LABEL: role}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "terminationGracePeriodSeconds": grace_s,
            "containers": [{"name": role, "resources": dict(requests)}],
        },
    }
    field = "parallelism" if kind == "Job" else "replicas"
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": f"{job}-{role}", "namespace": NAMESPACE},
        "spec": {field: count, "selector": {"matchLabels": labels}, "template": template},
    }
