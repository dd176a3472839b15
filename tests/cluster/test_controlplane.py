"""The clusters of the tests behave like clusters, and nothing of them leaves or outlives the run."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.recipes import Programs
from tests.support.api import Json
from tests.support.cluster import TestCluster
from tests.support.controlplane import MINIKUBE, ControlPlane
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster


def test_one_kubeconfig_leads_to_both_clusters(control_plane: ControlPlane, kubeconfig: Path) -> None:
    nodes = {
        context: _kubectl(control_plane, "--context", context, "get", "nodes", "-o", "name")
        for context in control_plane.clusters
    }
    assert nodes["minikube"].split() == ["node/minikube"]
    assert nodes["gke"].split() == ["node/gke-gpu-0", "node/gke-gpu-1", "node/gke-gpu-2"]
    assert os.environ["KUBECONFIG"] == str(kubeconfig)


def test_server_says_the_version_it_was_built_from(minikube: TestCluster) -> None:
    assert minikube.request("GET", "/version")["gitVersion"] == "v1.36.3"


def test_deleted_pod_goes_soon(minikube: TestCluster, namespace: str) -> None:
    _create_pod(minikube, namespace)
    _wait_for_phase(minikube, namespace, "Running")
    minikube.request("DELETE", _pod(namespace))
    minikube.wait_until_gone(_pod(namespace), timeout_s=10)


def test_pod_may_use_up_its_grace(minikube: TestCluster, namespace: str) -> None:
    _create_pod(minikube, namespace, annotations={"mlstack.dev/test-ignore-sigterm": ""})
    _wait_for_phase(minikube, namespace, "Running")
    minikube.request("DELETE", f"{_pod(namespace)}?gracePeriodSeconds=3600")
    minikube.wait_for(_pod(namespace), lambda pod: pod["metadata"].get("deletionTimestamp"))
    _create_pod(minikube, namespace, name="later")
    _wait_for_phase(minikube, namespace, "Running", name="later")
    minikube.request("DELETE", _pod(namespace, "later"))
    minikube.wait_until_gone(_pod(namespace, "later"))
    assert minikube.request("GET", _pod(namespace))["status"]["phase"] == "Running"


def test_nothing_beyond_loopback_can_be_dialled(control_plane: ControlPlane) -> None:
    for address in ("198.51.100.77", "10.96.0.1"):
        with socket.socket() as dialling:
            assert dialling.connect_ex((address, 443)) == errno.ENETUNREACH


def test_stop_leaves_no_process_and_no_file(isolated_programs: Programs) -> None:
    plane = ControlPlane.start(isolated_programs, (MINIKUBE,))
    pids = plane.pids
    directory = plane.kubeconfig.parent
    assert len(pids) == 5
    plane.stop()
    assert [pid for pid in pids if _lives(pid)] == []
    assert not directory.exists()


def test_programs_and_files_go_with_a_killed_parent(tmp_path: Path) -> None:
    directory = tmp_path / "swept"
    directory.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(directory)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert _lives(child)
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    wait_until(lambda: not _lives(child), what="the end of the child")
    wait_until(lambda: not directory.exists(), what="the end of the directory")


_PARENT = """
import sys, time
from pathlib import Path
from tests.support import broom
from tests.support.processes import Program
directory = Path(sys.argv[1])
sweeper = broom.sweep_after_us(directory)
program = Program("sleeper", ["sleep", "600"], log=directory / "log")
program.start()
print(program.pid, flush=True)
time.sleep(600)
"""


def _pod(namespace: str, name: str = "pod") -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def _pod_spec(gpus: str = "0") -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": gpus}}
    return {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "main", "resources": resources}],
    }


def _create_pod(
    cluster: TestCluster,
    namespace: str,
    *,
    name: str = "pod",
    gpus: str = "0",
    annotations: dict[str, str] | None = None,
    spec: dict[str, Any] | None = None,
) -> None:
    body = {
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {**_pod_spec(gpus), **(spec or {})},
    }
    cluster.request("POST", f"/api/v1/namespaces/{namespace}/pods", body)


def _wait_for_phase(cluster: TestCluster, namespace: str, phase: str, *, name: str = "pod") -> Json:
    return cluster.wait_for(_pod(namespace, name), lambda pod: pod["status"]["phase"] == phase)


def _kubectl(control_plane: ControlPlane, *arguments: str) -> str:
    done = subprocess.run(
        [control_plane.programs.kubectl, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


def _lives(pid: int) -> bool:
    """Say whether the process runs; one that is dead and not yet reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
