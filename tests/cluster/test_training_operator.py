"""The real training operator works on the test clusters, beside upstream's CRD."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cluster.conftest import StartOperator
from tests.support import upstream
from tests.support.api import Json
from tests.support.cluster import TestCluster

pytestmark = pytest.mark.cluster

_CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tfjobs.kubeflow.org"


@pytest.fixture
def tfjobs(gke: TestCluster, namespace: str) -> Iterator[str]:
    """Upstream's CRD in the cluster `gke`; the path of the TFJobs of this test."""
    source = upstream.crd("kubeflow.org/tfjobs.yaml")
    was_there = gke.find(_CRD) is not None
    gke.kubectl("apply", "--server-side", "--force-conflicts", "-f", source)
    gke.wait_for(_CRD, lambda crd: _is_true(crd, "Established"))
    path = f"/apis/kubeflow.org/v1/namespaces/{namespace}/tfjobs"
    gke.wait_for(path)
    yield path
    if not was_there:
        gke.request("DELETE", _CRD)
        gke.wait_until_gone(_CRD)


def test_operator_takes_up_a_job_that_was_there_before_and_runs_it_to_its_end(
    gke: TestCluster, namespace: str, tfjobs: str, training_operator: StartOperator
) -> None:
    gke.request("POST", tfjobs, _tfjob("cnn"))
    training_operator(gke, "tfjob")
    gke.wait_for(f"{tfjobs}/cnn", lambda job: _is_true(job, "Running"))
    pod = gke.request("GET", f"/api/v1/namespaces/{namespace}/pods/cnn-worker-1")
    assert json.loads(_environment(pod)["TF_CONFIG"])["task"] == {"type": "worker", "index": 1}
    for index in (0, 1):
        gke.kubectl("annotate", "pod", f"cnn-worker-{index}", "mlstack.dev/test-exit=0", "-n", namespace)
    gke.wait_for(f"{tfjobs}/cnn", lambda job: _is_true(job, "Succeeded"))


def _tfjob(name: str) -> Json:
    container = {"name": "tensorflow", "image": "train"}
    template = {"spec": {"containers": [container]}}
    worker = {"replicas": 2, "restartPolicy": "Never", "template": template}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {"successPolicy": "AllWorkers", "tfReplicaSpecs": {"Worker": worker}},
    }


def _is_true(live: Json, condition: str) -> bool:
    rows = live.get("status", {}).get("conditions") or []  # null in a CRD that was just made
    return any(row["type"] == condition and row["status"] == "True" for row in rows)


def _environment(pod: Json) -> dict[str, str]:
    return {row["name"]: row.get("value", "") for row in pod["spec"]["containers"][0]["env"]}
