"""The real training operator, with the rights that kubeflow-core gives it, runs our prototypes' jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import StartOperator
from tests.support import examples
from tests.support.api import Json
from tests.support.cluster import TestCluster
from tests.support.controlplane import ControlPlane
from tests.support.training_operator import TrainingOperator

pytestmark = pytest.mark.cluster

CORE = "kubeflow/core/kubeflow-core"
IMAGE = {"image": "registry.example.org/team/train:1.0"}
JOBS: Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, int]]] = {
    "cnn": ("kubeflow/tf-job/tf-cnn", {}, {"ps": 1, "worker": 1}),
    "cnn-with-gpus": ("kubeflow/tf-job/tf-cnn", {"num_workers": 2, "num_gpus": 1}, {"ps": 1, "worker": 2}),
    "job": (
        "kubeflow/tf-job/tf-job",
        {**IMAGE, "num_workers": 2, "num_ps": 1, "num_evaluators": 1},
        {"chief": 1, "worker": 2, "ps": 1, "evaluator": 1},
    ),
    "one-pod": ("kubeflow/tf-job/tf-job", {**IMAGE, "script": "print('hello')\n"}, {"chief": 1}),
    "simple": ("kubeflow/tf-job/tf-job-simple", {}, {"worker": 2}),
}


class Terminal:
    """Runs mlstack's commands in an app directory."""

    def __init__(self, app: Path) -> None:
        self._app = app

    def run(self, *words: str) -> str:
        """Run a command that must succeed and give what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "mlstack", *words],
            cwd=self._app,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            env=dict(os.environ),
        )
        assert done.returncode == 0, f"mlstack {' '.join(words)}\n{done.stdout}\n{done.stderr}"
        return done.stdout


Deploy = Callable[..., Terminal]


@pytest.fixture(scope="module", autouse=True)
def clean(control_plane: ControlPlane) -> Iterator[None]:
    """Leave nothing behind that belongs to the whole cluster."""
    yield
    names = ("crd/tfjobs.kubeflow.org", "crd/pytorchjobs.kubeflow.org")
    roles = ("clusterrole/tf-job-operator", "clusterrolebinding/tf-job-operator")
    control_plane.clusters["gke"].kubectl("delete", "--ignore-not-found", *names, *roles)


@pytest.fixture
def deploy(tmp_path: Path, gke: TestCluster, namespace: str, kubeconfig: Path) -> Iterator[Deploy]:
    """Give a function that makes an app with kubeflow-core and jobs, and applies the former to gke."""

    def make(jobs: Mapping[str, tuple[str, Mapping[str, Any]]], **core: Any) -> Terminal:
        components = {"core": (CORE, {"installHub": False, **core}), **jobs}
        app = examples.write_app(tmp_path / "app", components)
        place = {"context": "gke", "namespace": namespace}
        file = app.root / "environments" / "gke" / "environment.yaml"
        file.write_text(json.dumps({**json.loads(file.read_text()), **place}))
        terminal = Terminal(app.root)
        terminal.run("apply", "gke", "-c", "core", "--yes")
        return terminal

    yield make
    gke.kubectl("delete", "tfjob", "--all", "-n", namespace, "--cascade=background")


@pytest.fixture
def operator(
    gke: TestCluster, namespace: str, training_operator: StartOperator
) -> Callable[[], TrainingOperator]:
    """Give a function that starts the operator as the applied Deployment would: its account and its flags."""

    def start() -> TrainingOperator:
        deployment = gke.request("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments/tf-job-operator")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        return training_operator(
            gke,
            user=gke.service_account(namespace, "tf-job-operator"),
            namespace=namespace,
            secret="tf-job-operator-webhook-cert",
            flags=container["args"],
        )

    return start


def test_jobs_run_and_their_pods_know_each_other(
    gke: TestCluster, namespace: str, deploy: Deploy, operator: Callable[[], TrainingOperator]
) -> None:
    terminal = deploy({name: (prototype, params) for name, (prototype, params, _) in JOBS.items()})
    started = operator()
    chosen = [word for name in JOBS for word in ("-c", name)]
    terminal.run("apply", "gke", *chosen, "--yes")
    pods = {name: running_pods(gke, namespace, name, roles) for name, (_, _, roles) in JOBS.items()}
    status = json.loads(terminal.run("status", "gke", *chosen, "-o", "json"))
    assert status["ok"] and len(status["components"]) == len(JOBS)
    for component in status["components"]:
        (row,) = [obj for obj in component["objects"] if obj["kind"] == "TFJob"]
        name, roles = row["name"], JOBS[row["name"]][2]
        configs = {pod_name: tf_config(pod) for pod_name, pod in pods[name].items()}
        assert configs == expected_configs(namespace, name, roles)
        assert row["state"] == "ready"
        assert {pod["name"] for pod in row["pods"]} == pods[name].keys()
    assert_nothing_was_forbidden(started)


def test_gpus_are_asked_for_by_workers_alone(
    gke: TestCluster, namespace: str, deploy: Deploy, operator: Callable[[], TrainingOperator]
) -> None:
    terminal = deploy({"it": ("kubeflow/tf-job/tf-cnn", {"num_gpus": 2})})
    operator()
    terminal.run("apply", "gke", "-c", "it", "--yes")
    pods = running_pods(gke, namespace, "it", {"ps": 1, "worker": 1})
    limits = {name: pod["spec"]["containers"][0]["resources"].get("limits") for name, pod in pods.items()}
    assert limits == {"it-ps-0": None, "it-worker-0": {"nvidia.com/gpu": "2"}}
    assert pods["it-worker-0"]["spec"]["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    assert "nodeSelector" not in pods["it-ps-0"]["spec"]


def test_an_operator_of_one_namespace_needs_no_rights_elsewhere(
    gke: TestCluster, namespace: str, deploy: Deploy, operator: Callable[[], TrainingOperator]
) -> None:
    jobs = {"it": ("kubeflow/tf-job/tf-job-simple", {})}
    terminal = deploy(jobs, deploymentScope="namespace", deploymentNamespace=namespace)
    role = gke.request("GET", f"/apis/rbac.authorization.k8s.io/v1/clusterroles/tf-job-operator-{namespace}")
    assert [rule["resources"] for rule in role["rules"]] == [["validatingwebhookconfigurations"]]
    started = operator()
    terminal.run("apply", "gke", "-c", "it", "--yes")
    running_pods(gke, namespace, "it", {"worker": 2})
    assert_nothing_was_forbidden(started)


def running_pods(cluster: TestCluster, namespace: str, job: str, roles: Mapping[str, int]) -> dict[str, Json]:
    """Wait until all pods of the job run, and give them by name."""
    names = [f"{job}-{role}-{index}" for role, count in roles.items() for index in range(count)]
    path = f"/api/v1/namespaces/{namespace}/pods"
    return {
        name: cluster.wait_for(
            f"{path}/{name}", lambda pod: pod["status"]["phase"] == "Running", timeout_s=60
        )
        for name in names
    }


def tf_config(pod: Json) -> Any:
    """Give what a pod's container is told of the job, nothing for a job of one pod."""
    (container,) = pod["spec"]["containers"]
    texts = [entry["value"] for entry in container.get("env", []) if entry["name"] == "TF_CONFIG"]
    return json.loads(texts[0]) if texts else None


def expected_configs(namespace: str, job: str, roles: Mapping[str, int]) -> dict[str, Any]:
    """Give what each pod of a job should be told."""
    cluster = {
        role: [f"{job}-{role}-{index}.{namespace}.svc:2222" for index in range(count)]
        for role, count in roles.items()
    }
    alone = sum(roles.values()) == 1
    return {
        f"{job}-{role}-{index}": None
        if alone
        else {"cluster": cluster, "task": {"type": role, "index": index}, "environment": "cloud"}
        for role, count in roles.items()
        for index in range(count)
    }


def assert_nothing_was_forbidden(operator: TrainingOperator) -> None:
    """Hold the operator's rights to be enough: it says in its log what it, a user, cannot do."""
    assert [line for line in operator.log().splitlines() if "forbidden: User" in line] == []
