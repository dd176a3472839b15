"""The commands of Kubeflow's launch post, typed as they stand in the brief, against two real API servers."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.recipes import Programs
from tests.support.cluster import TestCluster
from tests.support.controlplane import ControlPlane

pytestmark = pytest.mark.cluster

USE_GKE = "kubectl config use-context gke"

SEQUENCE = f"""\
mlstack init my-kubeflow && cd my-kubeflow
mlstack registry add kubeflow github.com/google/kubeflow/tree/master/kubeflow
mlstack pkg install kubeflow/core
mlstack pkg install kubeflow/tf-serving
mlstack pkg install kubeflow/tf-job
mlstack generate core kubeflow-core --name=kubeflow-core
mlstack env add minikube
mlstack apply minikube -c kubeflow-core
{USE_GKE}
mlstack env add gke
mlstack apply gke -c kubeflow-core
mlstack generate tf-cnn cnn --name=cnn
mlstack apply minikube -c cnn
mlstack prototype list tf-job
mlstack param set --env=gke cnn num_gpus 1
mlstack param set --env=gke cnn num_workers 1
mlstack apply gke -c cnn
mlstack generate tf-serving inception --name=inception --namespace=default --model_path=gs://kubeflow-models/inception
mlstack apply gke -c inception
"""


class Shell:
    """Types commands one after the other, as a person in one terminal would."""

    def __init__(self, folder: Path, kubectl: Path) -> None:
        self.folder = folder
        self._path = os.pathsep.join([str(Path(sys.executable).parent), str(kubectl), os.environ["PATH"]])

    def type(self, line: str, *, status: int = 0) -> str:
        """Run a line, follow its `cd`, and give what it printed on stdout."""
        run = subprocess.run(
            ["sh", "-c", line],
            cwd=self.folder,
            env={**os.environ, "PATH": self._path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert run.returncode == status, f"{line}\n{run.stdout}\n{run.stderr}"
        if " cd " in line:
            self.folder /= shlex.split(line)[-1]
        return run.stdout


@pytest.fixture(scope="module")
def control_plane(isolated_programs: Programs) -> Iterator[ControlPlane]:
    """Two clusters that nobody has used: the sequence works in `default` and brings CRDs."""
    plane = ControlPlane.start(isolated_programs)
    yield plane
    plane.stop()


@pytest.fixture
def shell(tmp_path: Path, kubeconfig: Path, isolated_programs: Programs) -> Shell:
    """A terminal in an empty folder, whose `kubectl` is the one of the tests."""
    work = tmp_path / "work"
    work.mkdir()
    return Shell(work, isolated_programs.kubectl.parent)


def test_the_launch_sequence_runs_as_typed(shell: Shell, minikube: TestCluster, gke: TestCluster) -> None:
    for line in SEQUENCE.splitlines():
        shell.type(line)

    for cluster in (minikube, gke):
        assert _read(cluster, "/apis/apps/v1", "statefulsets/tf-hub")["spec"]["replicas"] == 1
        assert _read(cluster, "/api/v1", "services/tf-hub-lb")["spec"]["ports"][0]["port"] == 80
        assert _read(cluster, "/apis/apps/v1", "deployments/tf-job-operator")
    assert _read(gke, "/apis/apps/v1", "deployments/inception")
    assert _worker_limits(gke) == {"nvidia.com/gpu": 1}
    assert "nvidia.com/gpu" not in _worker_limits(minikube)

    _kubectl_diff_is_empty(shell, "minikube", ["kubeflow-core", "cnn"])
    _kubectl_diff_is_empty(shell, "gke", ["kubeflow-core", "cnn", "inception"])
    _second_apply_writes_nothing(shell, minikube, ["kubeflow-core", "cnn"])
    _second_apply_writes_nothing(shell, gke, ["kubeflow-core", "cnn", "inception"])


def _read(cluster: TestCluster, group: str, name: str) -> dict[str, Any]:
    live: dict[str, Any] = cluster.request("GET", f"{group}/namespaces/default/{name}")
    return live


def _worker_limits(cluster: TestCluster) -> dict[str, Any]:
    job = _read(cluster, "/apis/kubeflow.org/v1", "tfjobs/cnn")
    template = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    limits: dict[str, Any] = template["spec"]["containers"][0].get("resources", {}).get("limits", {})
    return limits


def _kubectl_diff_is_empty(shell: Shell, environment: str, components: list[str]) -> None:
    selected = " ".join(f"-c {name}" for name in components)
    shell.type(f"mlstack render {environment} {selected} > rendered.yaml")
    printed = shell.type(f"kubectl --context {environment} diff -f rendered.yaml")
    assert printed == ""


def _second_apply_writes_nothing(shell: Shell, cluster: TestCluster, components: list[str]) -> None:
    before = _versions(shell, cluster, components)
    for name in components:
        shell.type(f"mlstack apply {cluster.context} -c {name}")
    assert _versions(shell, cluster, components) == before


def _versions(shell: Shell, cluster: TestCluster, components: list[str]) -> dict[str, str]:
    selected = " ".join(f"-c {name}" for name in components)
    shell.type(f"mlstack render {cluster.context} {selected} > rendered.yaml")
    path = "{range .items[*]}{.kind}/{.metadata.name}={.metadata.resourceVersion}{'\\n'}{end}"
    lines = cluster.kubectl("get", "-f", str(shell.folder / "rendered.yaml"), "-o", f"jsonpath={path}").stdout
    return dict(line.rsplit("=", 1) for line in lines.splitlines())
