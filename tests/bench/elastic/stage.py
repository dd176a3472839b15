"""The cluster of an experiment: a real control plane, the nodes of a scenario, and what was installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlstack.simulator import scenario
from mlstack.simulator.scenario import NodeGroup, Scenario
from tests.bench.elastic.kubelets import write_stages
from tests.controlplane.recipes import Programs
from tests.support.api import Json
from tests.support.cluster import ClusterSpec, Node, TestCluster
from tests.support.controlplane import ControlPlane

CONTEXT = "experiment"
IMAGE = "example.org/experiment:1"


@contextmanager
def cluster_of(scenario: Scenario, programs: Programs, folder: Path) -> Iterator[TestCluster]:
    """Run a control plane with the nodes of a scenario; what runs on every node runs already."""
    spec = ClusterSpec(
        context=CONTEXT,
        nodes=[node for group in scenario.nodes for node in _nodes(group)],
        storage_class="standard",
        binding_mode="Immediate",
        stages=write_stages(folder / "stages.yaml", scenario.start_ms),
    )
    plane = ControlPlane.start(programs, (spec,))
    try:
        cluster = plane.clusters[CONTEXT]
        for group in scenario.nodes:
            _run_background(cluster, group)
        yield cluster
    finally:
        plane.stop()


def install_controller(cluster: TestCluster, folder: Path) -> None:
    """Apply the prototype `elastic-controller` as users do; the experiment runs a controller of its own."""
    app = folder / "app"
    steps = (
        ("init", app.name),
        ("pkg", "install", "kubeflow/elastic"),
        ("generate", "elastic-controller", "elastic", f"--image={IMAGE}"),
        ("env", "add", CONTEXT),
        ("apply", CONTEXT, "--yes", "--no-wait"),
    )
    for index, step in enumerate(steps):
        done = subprocess.run(
            mlstack(*step),
            cwd=app if index else folder,
            env=environ(cluster, folder),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"mlstack {' '.join(step)}\n{done.stdout}{done.stderr}"
    cluster.kubectl("delete", "deployment", "elastic")
    cluster.wait_for("/api/v1/namespaces/default/pods", lambda pods: not pods["items"], what="no controller")


def mlstack(*arguments: str) -> list[str]:
    """Give the command line of mlstack as it is in this tree."""
    return [sys.executable, "-m", "mlstack", *arguments]


def environ(cluster: TestCluster, folder: Path) -> dict[str, str]:
    """Give the variables with which programs reach the cluster, and nothing else."""
    root = Path(__file__).parents[3]
    return {"KUBECONFIG": str(cluster.kubeconfig), "HOME": str(folder), "PYTHONPATH": str(root)}


def _nodes(group: NodeGroup) -> Iterator[Node]:
    for node in scenario.nodes(group):
        yield Node(name=node["metadata"]["name"], capacity=group.allocatable, labels=group.labels)


def _run_background(cluster: TestCluster, group: NodeGroup) -> None:
    """Put a pod on every node of a group, as a DaemonSet would."""
    if not group.background:
        return
    cluster.wait_for_service_account("kube-system")
    for node in scenario.nodes(group):
        cluster.request("POST", "/api/v1/namespaces/kube-system/pods", _background(node, group))


def _background(node: Json, group: NodeGroup) -> Json:
    pod = scenario.background(node["metadata"]["name"], group.background)
    spec = {name: value for name, value in pod["spec"].items() if name != "priority"}
    containers = [{**container, "image": IMAGE} for container in spec["containers"]]
    return {
        "metadata": pod["metadata"],
        "spec": {**spec, "containers": containers, "priorityClassName": "system-node-critical"},
    }
