"""Small simulated clusters for tests of the simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlstack.simulator import scenario
from mlstack.simulator.engine import START_MS, Kernel, Obj, SimulatedStore, admit
from mlstack.simulator.nodes import (
    Collector,
    Kubelets,
    KubeletSettings,
    NodeLifecycle,
    Workloads,
    WorkloadSettings,
)
from mlstack.simulator.scenario import NodeGroup, Scenario, ScenarioEvent, classes, nodes
from mlstack.simulator.scheduler import Scheduler, SchedulerSettings

SMALL_JOB = {
    "min": 2,
    "max": 12,
    "trainer": {"cpu": 2, "memory": "2Gi"},
    "pservers": {"count": 2, "cpu": 1},
    "master": {"cpu": "500m"},
}
"""A small job of a scenario, but for its name and times."""


def small_scenario(*events: ScenarioEvent, jobs: int = 3, seconds: int = 150, **more: object) -> Scenario:
    """Give a small cluster with a service and jobs that come ten seconds apart."""
    data = {
        "seconds": seconds,
        "nodes": [{"name": "n", "count": 6, "cpu": 16, "memory": "64Gi", "background": {"cpu": "300m"}}],
        "services": [{"name": "web", "replicas": 6, "cpu": 3}],
        "jobs": [{"name": "j", "count": jobs, "every": 10, "at": 5, **SMALL_JOB}],
        **more,
    }
    return replace(scenario.read(data, where="small.yaml"), events=events)


class Sandbox:
    """Nodes, a scheduler, kubelets and controllers, without anybody who scales."""

    def __init__(
        self, *cores: int, seed: int = 0, scheduler: SchedulerSettings | None = None, gpus: int = 0
    ) -> None:
        self.kernel = Kernel(seed)
        self.store = SimulatedStore(self.kernel)
        self.kubelets = Kubelets(self.store, self.kernel, KubeletSettings())
        self.lifecycle = NodeLifecycle(self.store, self.kernel, self.kubelets)
        self.scheduler = Scheduler(self.store, self.kernel, scheduler or SchedulerSettings())
        self.workloads = Workloads(self.store, self.kernel, WorkloadSettings())
        self.collector = Collector(self.store, self.kernel)
        for one in classes():
            self.store.write(one)
        for index, count in enumerate(cores):
            offered = {"cpu": str(count), "memory": f"{4 * count}Gi", "nvidia.com/gpu": str(gpus)}
            for node in nodes(NodeGroup(name=f"n{index}", count=1, allocatable=offered)):
                self.store.write(node)

    def pod(self, name: str, cpu: str = "1", **spec: Any) -> Obj:
        """Create a pod."""
        container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": spec.pop("labels", {})},
            "spec": {"containers": [container], **spec},
        }
        return self.store.write(admit(self.store, pod))

    def workload(self, kind: str, name: str, count: int, cpu: str = "1", **spec: Any) -> Obj:
        """Create a Deployment, Job or StatefulSet."""
        container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
        field = "parallelism" if kind == "Job" else "replicas"
        template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **spec}}
        return self.store.write(
            {
                "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
                "kind": kind,
                "metadata": {"name": name, "namespace": "default"},
                "spec": {field: count, "template": template},
            }
        )

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        self.kernel.run(self.kernel.now_ms + round(seconds * 1000))

    @property
    def elapsed_s(self) -> float:
        """Give the time since the start."""
        return (self.kernel.now_ms - START_MS) / 1000

    def node_of(self, name: str) -> str:
        """Give where a pod is bound, empty for nowhere."""
        found = self.store.get("Pod", name, "default")
        return str(found["spec"].get("nodeName", "")) if found else ""

    def phase_of(self, name: str) -> str:
        """Give the phase of a pod, empty once it is gone."""
        found = self.store.get("Pod", name, "default")
        return str(found["status"]["phase"]) if found else ""

    def pods(self, prefix: str = "") -> list[Obj]:
        """Give the pods whose name begins so."""
        return [pod for pod in self.store.all("Pod") if pod["metadata"]["name"].startswith(prefix)]
