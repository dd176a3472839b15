"""Play a scenario of the simulator in real time: a real control plane, the real controller."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from mlstack.elastic.training_job import API_VERSION
from mlstack.kube.api_server import connect
from mlstack.objects.resources import amounts
from mlstack.simulator import scenario
from mlstack.simulator.measures import Sample
from mlstack.simulator.scenario import JobPlan, Scenario, ScenarioEvent, ServiceDeployment
from tests.bench.elastic.spectator import Spectator
from tests.bench.elastic.stage import CONTEXT, IMAGE, cluster_of, environ, install_controller, mlstack
from tests.bench.elastic.usage import Usage, usage_of
from tests.controlplane.recipes import Programs
from tests.support.api import Json
from tests.support.cluster import TestCluster
from tests.support.elastic_controller import LEASE
from tests.support.processes import free_port
from tests.support.waiting import wait_until

DEPLOYMENTS = f"/apis/apps/v1/namespaces/{scenario.NAMESPACE}/deployments"
JOBS = f"/apis/{API_VERSION}/namespaces/{scenario.NAMESPACE}/trainingjobs"
MERGE = "application/merge-patch+json"
OF_CLASS = ("priority", "preemptionPolicy")


@dataclass(frozen=True, kw_only=True)
class Played:
    """What one run gave."""

    samples: list[Sample]  # one a second, by time since the window of the scenario began
    usage: dict[str, Usage]  # what the programs used, by name
    late_ms: list[int]  # how late each sample was taken
    off_ms: list[int]  # how late each thing of the scenario happened


def play(scenario: Scenario, programs: Programs, folder: Path, *, policy: str = "fair") -> Played:
    """Play a scenario once, from an empty cluster on.

    Raises:
        ValueError: something happens in it that only the simulator can do.
    """
    with cluster_of(scenario, programs, folder) as cluster:
        install_controller(cluster, folder)
        with _controller(cluster, folder, policy) as controller:
            spectator = Spectator(connect(CONTEXT, kubeconfig=str(cluster.kubeconfig)))
            off = _perform(scenario, cluster, spectator)
            usage = {"controller": usage_of(controller.pid)}
            usage |= {name: usage_of(cluster.machinery.pid_of(name)) for name in PROGRAMS}
            spectator.stop()
    return Played(samples=spectator.samples, usage=usage, late_ms=spectator.late_ms, off_ms=off)


PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")


@contextmanager
def _controller(cluster: TestCluster, folder: Path, policy: str) -> Iterator[subprocess.Popen[bytes]]:
    address = f"127.0.0.1:{free_port()}"
    command = mlstack("elastic", "run", "--context", CONTEXT, "--policy", policy, "--listen", address)
    with (folder / "controller.log").open("wb") as log:
        process = subprocess.Popen(command, env=environ(cluster, folder), stdout=log, stderr=log)
        try:
            wait_until(lambda: _is_ready(address) and _leads(cluster), what="a controller that leads")
            yield process
            assert process.poll() is None, f"the controller ended: {(folder / 'controller.log').read_text()}"
        finally:
            process.terminate()
            process.wait(timeout=30)


def _perform(scenario: Scenario, cluster: TestCluster, spectator: Spectator) -> list[int]:
    """Let everything happen at its time, and give how late it was."""
    calendar = sorted(_calendar(scenario, cluster), key=lambda entry: entry[0])
    cores = sum(amounts(group.allocatable)["cpu"] * group.count for group in scenario.nodes)
    wait_until(lambda: spectator.allocatable("cpu") == cores, what="all nodes in the watch")
    begin, off = time.monotonic(), []
    spectator.start(begin + scenario.begin_ms / 1000)
    for at_ms, action in calendar:
        time.sleep(max(0.0, begin + at_ms / 1000 - time.monotonic()))
        off.append(round((time.monotonic() - begin) * 1000) - at_ms)
        action()
    time.sleep(max(0.0, begin + scenario.end_ms / 1000 - time.monotonic()))
    return off


def _is_ready(address: str) -> bool:
    """Tell whether the controller has seen all there is."""
    try:
        with urlopen(f"http://{address}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _leads(cluster: TestCluster) -> bool:
    lease = cluster.find(LEASE)
    return bool(lease and lease["spec"].get("holderIdentity"))


def _calendar(scenario: Scenario, cluster: TestCluster) -> Iterator[tuple[int, Callable[[], object]]]:
    for service in scenario.services:
        yield service.at_ms, lambda service=service: _serve(cluster, service)
    for job in scenario.jobs:
        yield job.at_ms, lambda job=job: _submit(cluster, job, scenario.grace_s)
    for event in scenario.events:
        yield event.at_ms, _doing(cluster, event)


def _serve(cluster: TestCluster, service: ServiceDeployment) -> None:
    policy = "PreemptLowerPriority" if service.is_preempting else "Never"
    name = f"priority-{service.priority}-{policy.lower()}"
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    if service.priority and cluster.find(f"{path}/{name}") is None:
        value = {"value": service.priority, "preemptionPolicy": policy}
        cluster.request("POST", path, {"metadata": {"name": name}, **value})
    deployment = scenario.deployment(service)
    template = deployment["spec"]["template"]
    pod = {key: value for key, value in template["spec"].items() if key not in OF_CLASS}
    pod["containers"] = [{**container, "image": IMAGE} for container in pod["containers"]]
    if service.priority:
        pod["priorityClassName"] = name
    spec = {**deployment["spec"], "template": {**template, "spec": pod}}
    cluster.request("POST", DEPLOYMENTS, {**deployment, "spec": spec})


def _submit(cluster: TestCluster, job: JobPlan, grace_s: int) -> Json:
    return cluster.request("POST", JOBS, scenario.training_job(job, grace_s))


def _doing(cluster: TestCluster, event: ScenarioEvent) -> Callable[[], object]:
    """Give what an event does; what nobody can do to a real cluster from outside is not played."""
    job = f"{JOBS}/{event.name}"
    match event.what:
        case "scale":
            return _patch(cluster, f"{DEPLOYMENTS}/{event.name}/scale", {"spec": {"replicas": event.count}})
        case "limit-job":
            return _patch(cluster, f"{job}/scale", {"spec": {"replicas": event.count}})
        case "suspend-job" | "resume-job":
            return _patch(cluster, job, {"spec": {"suspend": event.what == "suspend-job"}})
        case "delete-job":
            return lambda: cluster.request("DELETE", job)
        case "cordon-node" | "uncordon-node":
            closed = {"spec": {"unschedulable": event.what == "cordon-node"}}
            return _patch(cluster, f"/api/v1/nodes/{event.name}", closed)
    raise ValueError(f"{event.what} happens in the simulator alone")


def _patch(cluster: TestCluster, path: str, body: Json) -> Callable[[], object]:
    return lambda: cluster.request("PATCH", path, body, content_type=MERGE)
