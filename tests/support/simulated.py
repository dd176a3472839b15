"""Small simulated clusters for tests of the simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mlstack.simulator import scenario
from mlstack.simulator.control_plane import (
    Scheduler,
    SchedulerSettings,
    Workloads,
    WorkloadSettings,
    collect_garbage,
)
from mlstack.simulator.engine import Kernel, Kubelets, Obj, SimulatedStore, manifest
from mlstack.simulator.scenario import NodeGroup, Scenario, ScenarioEvent, classes, nodes

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

    def __init__(self, *cores: int, scheduler: SchedulerSettings | None = None, gpus: int = 0) -> None:
        self.kernel = Kernel()
        self.store = SimulatedStore(self.kernel)
        self.kubelets = Kubelets(self.store, (2_000, 5_000))
        Scheduler(self.store, scheduler or SchedulerSettings())
        Workloads(self.store, WorkloadSettings())
        collect_garbage(self.store)
        for priority_class in classes():
            self.store.write(priority_class)
        for index, count in enumerate(cores):
            offered = {"cpu": str(count), "memory": f"{4 * count}Gi", "nvidia.com/gpu": str(gpus)}
            for node in nodes(NodeGroup(name=f"n{index}", count=1, allocatable=offered)):
                self.store.write(node)

    def pod(self, name: str, cpu: str = "1", **spec: Any) -> Obj:
        """Create a pod."""
        container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
        labels = {"labels": spec.pop("labels", {})}
        parts = {"metadata": labels, "spec": {"containers": [container], **spec}}
        return self.store.write(self.store.admit(manifest("v1", "Pod", name, "default", **parts)))

    def workload(self, kind: str, name: str, count: int, **spec: Any) -> Obj:
        """Create a Deployment, Job or StatefulSet whose pods request a core."""
        container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
        template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **spec}}
        replicas = {"parallelism" if kind == "Job" else "replicas": count}
        version = "batch/v1" if kind == "Job" else "apps/v1"
        own = {**replicas, "template": template}
        return self.store.write(manifest(version, kind, name, "default", spec=own))

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        self.kernel.run(self.kernel.now_ms + round(seconds * 1000))

    def live(self, kind: str, name: str) -> Obj:
        """Give an object that is there."""
        obj = self.store.get(kind, name, "default")
        assert obj is not None
        return obj

    def node_of(self, name: str) -> str:
        """Give where a pod is bound, empty for nowhere."""
        return str(self.live("Pod", name)["spec"].get("nodeName", ""))

    def phase_of(self, name: str) -> str:
        """Give the phase of a pod, empty once it is gone."""
        pod = self.store.get("Pod", name, "default")
        return str(pod["status"]["phase"]) if pod else ""

    def pods(self, prefix: str = "") -> list[Obj]:
        """Give the pods whose name begins so."""
        return [pod for pod in self.store.all("Pod") if pod["metadata"]["name"].startswith(prefix)]

    def going(self, prefix: str = "") -> list[Obj]:
        """Give those of them that are being deleted."""
        return [pod for pod in self.pods(prefix) if "deletionTimestamp" in pod["metadata"]]
