"""The simulated controllers bring workloads to life, step by step and the same each time."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from mlstack.kube.client import ObjectRef
from mlstack.testing.cluster import MemoryCluster
from mlstack.testing.controllers import Simulation
from mlstack.validate.validate import load_schemas
from tests.support.cluster_contract import deployment, with_container

Obj = dict[str, Any]


@pytest.fixture
def cluster() -> MemoryCluster:
    seconds = count(1_700_000_000)
    return MemoryCluster(load_schemas("1.36"), clock=lambda: float(next(seconds)))


def pods(cluster: MemoryCluster) -> dict[str, str]:
    items = cluster.list("v1", "Pod").items
    return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in items}


def read(cluster: MemoryCluster, api_version: str, kind: str, name: str) -> Obj:
    obj = cluster.get(ObjectRef(api_version, kind, "default", name))
    assert obj is not None
    return obj


def conditions(obj: Obj) -> dict[str, str]:
    return {row["type"]: row["status"] for row in obj["status"]["conditions"]}


def workload(kind: str, name: str, **spec: Any) -> Obj:
    template = deployment("default", name)["spec"]["template"]
    selector = {"matchLabels": {"app": name}}
    api_version = "batch/v1" if kind == "Job" else "apps/v1"
    if kind == "Job":
        spec["template"] = {"spec": {**template["spec"], "restartPolicy": "Never"}}
    else:
        spec |= {"selector": selector, "template": template}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def test_a_deployment_becomes_available(cluster: MemoryCluster) -> None:
    cluster.apply(deployment("default", replicas=2))
    simulation = Simulation(cluster)
    assert 1 < simulation.settle() < 10
    live = read(cluster, "apps/v1", "Deployment", "web")
    assert conditions(live) == {"Available": "True", "Progressing": "True"}
    assert live["status"]["readyReplicas"] == live["status"]["replicas"] == 2
    assert list(pods(cluster).values()) == ["Running", "Running"]
    assert simulation.settle() == 0


def test_a_new_template_replaces_the_pods(cluster: MemoryCluster) -> None:
    simulation = Simulation(cluster)
    cluster.apply(deployment("default", replicas=1))
    simulation.settle()
    before = pods(cluster)
    cluster.apply(with_container(deployment("default", replicas=1), image="example.com/web:2"))
    simulation.settle()
    assert len(pods(cluster)) == 1
    assert pods(cluster).keys() != before.keys()
    live = read(cluster, "apps/v1", "Deployment", "web")
    assert live["status"]["observedGeneration"] == live["metadata"]["generation"] == 2
    assert live["status"]["replicas"] == 1


def test_deleting_a_workload_takes_its_pods_with_it(cluster: MemoryCluster) -> None:
    simulation = Simulation(cluster)
    cluster.apply(deployment("default", replicas=2))
    simulation.settle()
    cluster.delete(ObjectRef("apps/v1", "Deployment", "default", "web"))
    simulation.settle()
    assert pods(cluster) == {}
    assert cluster.list("apps/v1", "ReplicaSet").items == ()


def test_pods_of_a_stateful_set_are_numbered_and_have_claims(cluster: MemoryCluster) -> None:
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    cluster.apply(workload("StatefulSet", "tf-hub", replicas=2, volumeClaimTemplates=[claim]))
    Simulation(cluster).settle()
    assert pods(cluster) == {"tf-hub-0": "Running", "tf-hub-1": "Running"}
    bound = read(cluster, "v1", "PersistentVolumeClaim", "data-tf-hub-1")
    assert bound["status"]["phase"] == "Bound"
    assert read(cluster, "apps/v1", "StatefulSet", "tf-hub")["status"]["readyReplicas"] == 2


def test_a_changed_stateful_set_gets_new_pods_of_the_same_names(cluster: MemoryCluster) -> None:
    simulation = Simulation(cluster)
    cluster.apply(workload("StatefulSet", "db", replicas=1))
    simulation.settle()
    first = read(cluster, "v1", "Pod", "db-0")["metadata"]["uid"]
    cluster.apply(with_container(workload("StatefulSet", "db", replicas=1), image="example.com/web:2"))
    simulation.settle()
    second = read(cluster, "v1", "Pod", "db-0")
    assert second["metadata"]["uid"] != first
    assert second["status"]["phase"] == "Running"


def test_a_daemon_set_runs_on_the_node(cluster: MemoryCluster) -> None:
    cluster.apply(workload("DaemonSet", "agent"))
    Simulation(cluster).settle()
    assert read(cluster, "apps/v1", "DaemonSet", "agent")["status"]["numberReady"] == 1


def test_a_job_runs_and_completes(cluster: MemoryCluster) -> None:
    cluster.apply(workload("Job", "train", completions=2))
    simulation = Simulation(cluster)
    simulation.step()
    assert set(pods(cluster).values()) == {"Pending"}
    simulation.settle()
    assert set(pods(cluster).values()) == {"Succeeded"}
    assert conditions(read(cluster, "batch/v1", "Job", "train"))["Complete"] == "True"


def test_a_pod_that_wants_more_gpus_than_there_are_waits_with_the_reason(cluster: MemoryCluster) -> None:
    limits = {"limits": {"nvidia.com/gpu": 2}}
    cluster.apply(with_container(deployment("default", replicas=1), resources=limits))
    Simulation(cluster, gpus=1).settle()
    (pod,) = cluster.list("v1", "Pod").items
    (row,) = pod["status"]["conditions"]
    assert (row["reason"], row["status"]) == ("Unschedulable", "False")
    assert "Insufficient nvidia.com/gpu" in row["message"]
    assert conditions(read(cluster, "apps/v1", "Deployment", "web"))["Available"] == "False"


def test_load_balancers_get_an_address_only_where_there_are_any(cluster: MemoryCluster) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s", "namespace": "default"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    }
    cluster.apply(service)
    Simulation(cluster).settle()
    assert read(cluster, "v1", "Service", "s")["status"] == {}
    Simulation(cluster, load_balancers=True).settle()
    assert read(cluster, "v1", "Service", "s")["status"]["loadBalancer"]["ingress"] == [{"ip": "203.0.113.1"}]


def test_training_jobs_wait_for_their_operator(cluster: MemoryCluster) -> None:
    open_object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {"type": "object", "properties": {"spec": open_object, "status": open_object}}
        },
        "subresources": {"status": {}},
    }
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "tfjobs.kubeflow.org"},
        "spec": {
            "group": "kubeflow.org",
            "names": {"kind": "TFJob", "plural": "tfjobs"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }
    cluster.apply(crd)
    template = deployment("default")["spec"]["template"]
    roles = {"Worker": {"replicas": 2, "template": template}, "PS": {"replicas": 1, "template": template}}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "cnn", "namespace": "default"},
    }
    cluster.apply(job | {"spec": {"tfReplicaSpecs": roles}})
    simulation = Simulation(cluster)
    simulation.settle()
    assert pods(cluster) == {}
    operator = deployment("default", "tf-job-operator", replicas=1)
    cluster.apply(with_container(operator, image="kubeflow/training-operator:v1-1"))
    simulation.settle()
    assert {"cnn-worker-0", "cnn-worker-1", "cnn-ps-0"} < pods(cluster).keys()
    live = read(cluster, "kubeflow.org/v1", "TFJob", "cnn")
    assert conditions(live) == {"Created": "True", "Running": "True"}
    assert live["status"]["replicaStatuses"] == {"PS": {"active": 1}, "Worker": {"active": 2}}


def test_a_watch_that_ran_dry_lets_the_simulation_go_on(cluster: MemoryCluster) -> None:
    cluster.apply(deployment("default", replicas=1))
    simulation = Simulation(cluster)
    cluster.on_idle = simulation.step
    types = [event.type for event in cluster.watch("v1", "Pod", namespace="default", timeout_s=60)]
    assert types == ["BOOKMARK", "ADDED", "MODIFIED"]


def test_the_same_happens_each_time() -> None:
    def run() -> list[Any]:
        cluster = MemoryCluster(load_schemas("1.36"), clock=lambda: 1_700_000_000.0)
        cluster.apply(deployment("default", replicas=3))
        Simulation(cluster).settle()
        return [cluster.list(*kind).items for kind in (("v1", "Pod"), ("apps/v1", "Deployment"))]

    assert run() == run()


def test_a_service_lists_its_pods_and_whether_they_are_ready(cluster: MemoryCluster) -> None:
    cluster.apply(workload("Deployment", "web", replicas=2))
    metadata = {"name": "front", "namespace": "default"}
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
    cluster.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    simulation, states = Simulation(cluster), []
    while simulation.step():
        slices = cluster.list(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            namespace="default",
            labels="kubernetes.io/service-name=front",
        ).items
        states.append([endpoint["conditions"]["ready"] for part in slices for endpoint in part["endpoints"]])
    assert True not in states[0]
    assert states[-1] == [True, True]
    cluster.delete(ObjectRef("v1", "Service", "default", "front"), propagation="Background")
    simulation.settle()
    assert cluster.list("discovery.k8s.io/v1", "EndpointSlice").items == ()
