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
from tests.support.api import ApiRefusedError, Json
from tests.support.cluster import TestCluster
from tests.support.controlplane import MINIKUBE, ControlPlane
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster


def test_contexts_lead_to_different_clusters(minikube: TestCluster, gke: TestCluster) -> None:
    assert _uid_of_kube_system(minikube) != _uid_of_kube_system(gke)
    assert minikube.ca_pem != gke.ca_pem


def test_one_kubeconfig_leads_to_both_clusters(control_plane: ControlPlane, kubeconfig: Path) -> None:
    shown = {
        context: _kubectl(control_plane, "--context", context, "get", "nodes", "-o", "name")
        for context in control_plane.clusters
    }
    assert shown["minikube"].split() == ["node/minikube"]
    assert shown["gke"].split() == ["node/gke-gpu-0", "node/gke-gpu-1", "node/gke-gpu-2"]
    assert os.environ["KUBECONFIG"] == str(kubeconfig)


def test_server_says_the_version_it_was_built_from(minikube: TestCluster) -> None:
    assert minikube.request("GET", "/version")["gitVersion"] == "v1.36.3"


def test_pods_of_a_deployment_run(minikube: TestCluster, namespace: str) -> None:
    minikube.kubectl("create", "deployment", "web", "--image=web", "--replicas=3", "-n", namespace)
    found = minikube.wait_for(
        f"/apis/apps/v1/namespaces/{namespace}/deployments/web",
        lambda deployment: deployment["status"].get("availableReplicas") == 3,
    )
    pods = minikube.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    assert found["status"]["readyReplicas"] == 3
    assert [pod["status"]["phase"] for pod in pods] == ["Running"] * 3
    assert len({pod["status"]["podIP"] for pod in pods}) == 3


def test_pod_with_a_claim_runs(gke: TestCluster, namespace: str) -> None:
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    size = {"requests": {"storage": "1Gi"}}
    claim = {"metadata": {"name": "home"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": size}}
    gke.request("POST", claims, claim)
    volumes = [{"name": "home", "persistentVolumeClaim": {"claimName": "home"}}]
    _create_pod(gke, namespace, spec={"volumes": volumes})
    _wait_for_phase(gke, namespace, "Running")
    assert gke.request("GET", f"{claims}/home")["status"]["phase"] == "Bound"


def test_pod_that_no_node_can_hold_says_why(minikube: TestCluster, namespace: str) -> None:
    _create_pod(minikube, namespace, gpus="1")
    pod = minikube.wait_for(_pod(namespace), lambda pod: _condition(pod, "PodScheduled") is not None)
    condition = _condition(pod, "PodScheduled")
    assert condition is not None
    assert condition["reason"] == "Unschedulable"
    assert "Insufficient nvidia.com/gpu" in condition["message"]


def test_gpu_pod_runs_where_there_are_gpus(gke: TestCluster, namespace: str) -> None:
    _create_pod(gke, namespace, gpus="2")
    _wait_for_phase(gke, namespace, "Running")


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
    assert _phase(minikube, namespace) == "Running"


@pytest.mark.parametrize(
    ("code", "phase", "reason"),
    [("0", "Succeeded", "Completed"), ("3", "Failed", "Error")],
    ids=["done", "broken"],
)
def test_pod_ends_when_an_annotation_says_so(
    minikube: TestCluster, namespace: str, code: str, phase: str, reason: str
) -> None:
    _create_pod(minikube, namespace)
    _wait_for_phase(minikube, namespace, "Running")
    minikube.kubectl("annotate", "pod", "pod", f"mlstack.dev/test-exit={code}", "-n", namespace)
    pod = _wait_for_phase(minikube, namespace, phase)
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (int(code), reason)


def test_pod_waits_when_an_annotation_says_so(minikube: TestCluster, namespace: str) -> None:
    _create_pod(minikube, namespace, annotations={"mlstack.dev/test-waiting": "ImagePullBackOff"})
    pod = minikube.wait_for(_pod(namespace), lambda pod: pod["status"].get("containerStatuses"))
    waiting = pod["status"]["containerStatuses"][0]["state"]["waiting"]
    assert (pod["status"]["phase"], waiting["reason"]) == ("Pending", "ImagePullBackOff")


def test_job_is_complete_when_its_pod_ends(minikube: TestCluster, namespace: str) -> None:
    end = {"metadata": {"annotations": {"mlstack.dev/test-exit": "0"}}, "spec": _pod_spec()}
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    minikube.request("POST", jobs, {"metadata": {"name": "job"}, "spec": {"template": end}})
    minikube.wait_for(f"{jobs}/job", lambda job: job["status"].get("succeeded") == 1)


def test_users_may_do_what_they_were_given(minikube: TestCluster, namespace: str) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
    lister = minikube.create_user(f"lister-{namespace}", rules, namespace=namespace)
    maps, pods = (f"/api/v1/namespaces/{namespace}/{plural}" for plural in ("configmaps", "pods"))
    assert minikube.client(lister).request("GET", maps)["kind"] == "ConfigMapList"
    assert minikube.client(minikube.viewer).request("GET", pods)["kind"] == "PodList"
    for user, path in ((lister, pods), (minikube.nobody, pods), (minikube.nobody, maps)):
        with pytest.raises(ApiRefusedError) as refused:
            minikube.client(user).request("GET", path)
        assert refused.value.status == 403
        assert user.name in refused.value.body["message"]


def test_objects_survive_the_death_of_the_api_server(gke: TestCluster, namespace: str) -> None:
    uid = _uid_of_kube_system(gke)
    gke.restart_apiserver()
    assert _uid_of_kube_system(gke) == uid
    _create_pod(gke, namespace)
    _wait_for_phase(gke, namespace, "Running")


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


def _phase(cluster: TestCluster, namespace: str) -> str:
    return str(cluster.request("GET", _pod(namespace))["status"]["phase"])


def _wait_for_phase(cluster: TestCluster, namespace: str, phase: str, *, name: str = "pod") -> Json:
    return cluster.wait_for(_pod(namespace, name), lambda pod: pod["status"]["phase"] == phase)


def _condition(pod: Json, kind: str) -> Json | None:
    rows = (row for row in pod["status"].get("conditions", []) if row["type"] == kind)
    return next(rows, None)


def _uid_of_kube_system(cluster: TestCluster) -> str:
    return str(cluster.request("GET", "/api/v1/namespaces/kube-system")["metadata"]["uid"])


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
