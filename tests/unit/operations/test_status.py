"""Status from a cluster in memory: the tree, the reasons, the hints."""

from typing import Any

import pytest

from mlstack.errors import ForbiddenError
from mlstack.kube.client import ObjectRef
from mlstack.operations import status
from mlstack.operations.status import StatusResult
from mlstack.testing.cluster import MemoryCluster
from tests.support.builders import write_tree
from tests.support.deploying import Stack, config_map, crd, deployment, existing, tfjob
from tests.support.packages import COMMON, JOBS, vendored

Clusters = dict[str, MemoryCluster]
SCHEDULER = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: not helpful."


def add_pod(
    cluster: MemoryCluster,
    owner: ObjectRef,
    name: str,
    *,
    labels: dict[str, str] | None = None,
    **status: Any,
) -> None:
    """Make a pod that belongs to an object."""
    live = existing(cluster, owner)
    reference = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": live["metadata"]["uid"],
        "controller": True,
    }
    metadata = {"name": name, "namespace": "ml", "labels": labels or {}, "ownerReferences": [reference]}
    spec = {"containers": [{"name": "main", "image": "a"}]}
    cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    cluster.patch(ObjectRef("v1", "Pod", "ml", name), {"status": status}, subresource="status")


def unscheduled() -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": SCHEDULER}
    return {"phase": "Pending", "conditions": [condition]}


def test_what_belongs_to_another_environment_is_missing_but_for_definitions(stack: Stack) -> None:
    version = "rbac.authorization.k8s.io/v1"
    role = {"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": "shared"}, "rules": []}
    stack.write("a", role, crd(group="example.org"))
    stack.apply()
    file = "environments/dev/environment.yaml"
    stack.write_text(file, (stack.app.root / file.replace("dev", "minikube")).read_text())
    result = stack.status(environment="dev")
    states = {row.kind: (row.state, row.reason, row.hint) for row in result.components[0].objects}
    hint = "rename it, or take it over: mlstack apply dev -c a --adopt"
    assert states == {
        "ClusterRole": ("missing", "belongs to environment `minikube` of app `demo`", hint),
        "CustomResourceDefinition": ("ready", "", ""),
    }
    assert not result.ok and stack.status().ok


def test_the_tree_of_components_and_objects(stack: Stack) -> None:
    stack.write("a", config_map("one"))
    stack.write("b", config_map("two"))
    stack.apply(components=["a"])
    result = stack.status()
    assert [(part.name, part.ok) for part in result.components] == [("a", True), ("b", False)]
    row = result.components[1].objects[0]
    assert (row.object, row.state, row.hint) == ("ConfigMap ml/two", "missing", "mlstack apply minikube -c b")
    assert not result.ok
    assert stack.status(components=["a"]).ok


def test_pods_are_shown_below_their_owner(stack: Stack, clusters: Clusters) -> None:
    stack.deploy("a", tfjob(), crd("tfjobs", "TFJob", group="kubeflow.org"))
    owner = ObjectRef("kubeflow.org/v1", "TFJob", "ml", "cnn")
    labels = {"training.kubeflow.org/replica-type": "worker"}
    add_pod(clusters["minikube"], owner, "cnn-worker-0", labels=labels, **unscheduled())
    row = next(row for row in stack.status().components[0].objects if row.kind == "TFJob")
    assert row.reason == (
        "0 of 1 workers run. Workers wait: no node of this cluster has nvidia.com/gpu "
        "(0/1 nodes: Insufficient nvidia.com/gpu)"
    )
    assert [(pod.name, pod.state) for pod in row.pods] == [("cnn-worker-0", "waiting")]


def test_a_component_that_takes_gpus_gets_the_hint(stack: Stack, cluster: MemoryCluster) -> None:
    template = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: {{ name }}}\n" + (
        "spec:\n  serviceName: a\n  selector: {matchLabels: {app: a}}\n"
        "  template: {metadata: {labels: {app: a}}, spec: {containers: [{name: main, image: a}]}}\n"
    )
    component = """\
        apiVersion: mlstack.dev/v1
        kind: Component
        prototype: kubeflow/jobs/tf-cnn
        params: {image: a}
        """
    write_tree(
        stack.root,
        {
            **vendored(COMMON, {**JOBS, "tf-cnn/templates/job.yaml.j2": template.encode()}),
            "components/cnn.yaml": component,
        },
    )
    stack.apply()
    add_pod(cluster, ObjectRef("apps/v1", "StatefulSet", "ml", "cnn"), "cnn-0", **unscheduled())
    assert stack.status().components[0].objects[0].hint == (
        "add GPU nodes with the device plugin, or: mlstack param set --env=minikube cnn num_gpus 0"
    )


def test_a_job_without_operator_gets_the_hint(stack: Stack) -> None:
    stack.deploy("a", tfjob(), crd("tfjobs", "TFJob", group="kubeflow.org"))
    stack.clock.sleep(60)
    row = next(row for row in stack.status().components[0].objects if row.kind == "TFJob")
    assert row.reason == "no training operator has picked it up after 60 s"
    assert "mlstack apply minikube -c kubeflow-core" in row.hint


@pytest.mark.parametrize(
    ("version", "operator", "hint"),
    [("v1", "training operator", "kubeflow/trainer"), ("v2beta1", "MPI operator", "kubeflow/mpi-operator")],
)
def test_an_mpi_job_names_the_operator_of_its_version(
    stack: Stack, version: str, operator: str, hint: str
) -> None:
    definition = crd("mpijobs", "MPIJob", group="kubeflow.org")
    definition["spec"]["versions"][0]["name"] = version
    job = {"apiVersion": f"kubeflow.org/{version}", "kind": "MPIJob", "metadata": {"name": "a"}}
    worker = {"template": {"spec": {"containers": [{"name": "a", "image": "a"}]}}}
    stack.deploy("a", {**job, "spec": {"mpiReplicaSpecs": {"Worker": worker}}}, definition)
    stack.clock.sleep(60)
    row = next(row for row in stack.status().components[0].objects if row.kind == "MPIJob")
    assert row.reason == f"no {operator} has picked it up after 60 s"
    assert (hint in row.hint, "kubeflow-core" in row.hint) == (True, False)


def test_only_pods_of_the_newest_revision_count(stack: Stack, clusters: Clusters) -> None:
    stack.deploy("a", deployment())
    cluster = clusters["minikube"]
    live = existing(cluster, ObjectRef("apps/v1", "Deployment", "ml", "web"))
    for number, reason in (("9", "old"), ("10", "new")):
        owner = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": "web",
            "uid": live["metadata"]["uid"],
            "controller": True,
        }
        metadata = {
            "name": f"web-{reason}",
            "namespace": "ml",
            "annotations": {"deployment.kubernetes.io/revision": number},
            "ownerReferences": [owner],
        }
        spec = {key: live["spec"][key] for key in ("selector", "template")}
        cluster.create({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec})
        message = unscheduled()
        message["conditions"][0]["message"] = f"{reason} pods wait"
        add_pod(
            cluster, ObjectRef("apps/v1", "ReplicaSet", "ml", f"web-{reason}"), f"pod-{reason}", **message
        )
    row = stack.status().components[0].objects[0]
    assert row.reason == "0 of 1 pods ready: new pods wait"
    assert [pod.name for pod in row.pods] == ["pod-new"]


def test_events_that_may_not_be_read_are_said(
    stack: Stack, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.deploy("a", deployment())
    original = cluster.list

    def without_events(api_version: str, kind: str, **options: Any) -> Any:
        if kind == "Event":
            raise ForbiddenError("`viewer` may not list events")
        return original(api_version, kind, **options)

    monkeypatch.setattr(cluster, "list", without_events)
    result = stack.status()
    assert result.notes == ("reasons may be missing: `viewer` may not list events",)
    assert result.components[0].objects[0].state == "waiting"


def test_what_the_files_no_longer_bring_is_shown_apart(stack: Stack) -> None:
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    stack.write("a", config_map("one"))
    stack.deploy("b", config_map("two"), {**claim, "spec": spec})
    assert stack.status(components=["a"]).left_over == ()
    stack.remove("b")
    result = stack.status()
    assert result.ok
    assert [(row.object, row.component, row.is_kept) for row in result.left_over] == [
        ("PersistentVolumeClaim ml/data", "b", True),
        ("ConfigMap ml/two", "b", False),
    ]


def watched(stack: Stack, **options: Any) -> tuple[StatusResult, list[StatusResult]]:
    changes: list[StatusResult] = []
    target = stack.target()
    last = status.watch(target, opener=stack.opener, clock=stack.clock, on_change=changes.append, **options)
    return last, changes


def test_watching_sees_what_goes_away(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", config_map())
    assert watched(stack)[0].ok
    cluster.delete(ObjectRef("v1", "ConfigMap", "ml", "settings"))
    last, _ = watched(stack, timeout_s=5)
    assert last.components[0].objects[0].state == "missing"


def test_a_lost_inventory_is_found_again_by_the_labels(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", config_map("one"), config_map("two"))
    cluster.delete(ObjectRef("v1", "ConfigMap", "ml", "mlstack-demo.minikube"))
    stack.write("a", config_map("one"))
    result = stack.status()
    assert [row.object for row in result.left_over] == ["ConfigMap ml/two"]
    assert result.notes == ("there is no inventory: 2 objects found by their labels",)


def test_many_objects_are_listed_and_not_asked_for_one_by_one(
    stack: Stack, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.deploy("a", *[config_map(f"many-{number}") for number in range(10)])
    asked: list[str] = []
    get = cluster.get

    def counting(ref: ObjectRef) -> Any:
        asked.append(ref.name)
        return get(ref)

    monkeypatch.setattr(cluster, "get", counting)
    strip = [{"op": "remove", "path": "/metadata/labels"}]
    cluster.patch(ObjectRef("v1", "ConfigMap", "ml", "many-3"), strip, kind="json")
    assert stack.status().ok
    assert [name for name in asked if name.startswith("many")] == ["many-3"]
