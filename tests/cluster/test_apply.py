"""What people do to a cluster with `apply`, `diff`, `delete` and `status`, on real API servers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlstack.deploy.changes import RunResult
from mlstack.errors import InvalidError, ObjectNotFoundError
from mlstack.render import render
from mlstack.yaml import read, write
from tests.support.cluster import TestCluster, User
from tests.support.deploying import (
    Stack,
    config_map,
    crd,
    deployment,
    opener_of,
    outcomes,
    path,
    secret,
    tfjob,
)
from tests.support.training_operator import TrainingOperator

pytestmark = pytest.mark.cluster


def versions(cluster: TestCluster, namespace: str, *kinds: str) -> dict[str, str]:
    """Give the resourceVersion of every object of ours."""
    columns = r"jsonpath={range .items[*]}{.kind}/{.metadata.name}={.metadata.resourceVersion}{'\n'}{end}"
    ours = ("-n", namespace, "-l", "mlstack.dev/app=demo,mlstack.dev/component")
    lines = cluster.kubectl("get", ",".join(kinds), *ours, "-o", columns).stdout.splitlines()
    return dict(line.split("=") for line in lines if line)


# --- apply ----------------------------------------------------------------------------------------


def test_apply_creates_what_is_missing(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    stack.write("web", deployment(), config_map(a="1"), secret(password="hush"))
    result = stack.apply()
    assert result.ok
    assert outcomes(result) == {"settings": "created", "keys": "created", "web": "created"}
    live = minikube.request("GET", path(namespace, "configmaps", "settings"))
    assert live["data"] == {"a": "1"}
    assert live["metadata"]["labels"]["mlstack.dev/component"] == "web"
    assert {entry["manager"] for entry in live["metadata"]["managedFields"]} == {"mlstack"}


def test_second_apply_writes_nothing_and_one_change_one_object(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    kinds = ("configmaps", "secrets", "services", "persistentvolumeclaims", "roles")
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "disk"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}},
    }
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    }
    stack.deploy("web", config_map(), secret(a="b"), service, claim, role)
    before = versions(minikube, namespace, *kinds)
    result = stack.apply()
    assert set(outcomes(result).values()) == {"unchanged"}
    assert versions(minikube, namespace, *kinds) == before
    assert len(before) == 5
    stack.write("web", config_map(a="2"), secret(a="b"), service, claim, role)
    assert [name for name, outcome in outcomes(stack.apply()).items() if outcome == "updated"] == ["settings"]
    after = versions(minikube, namespace, *kinds)
    assert [name for name in after if after[name] != before[name]] == ["ConfigMap/settings"]
    assert stack.diff().ok


def test_a_namespace_nobody_asked_for_is_an_error(stack: Stack) -> None:
    stray = config_map()
    stray["metadata"]["namespace"] = "nowhere"
    stack.write("a", stray)
    with pytest.raises(ObjectNotFoundError, match="namespace `nowhere` does not exist"):
        stack.apply()


def test_cluster_scoped_custom_resources_get_no_namespace(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    group = f"{namespace}.example.com"
    stack.deploy("definition", crd("planets", "Planet", group=group, scope="Cluster"))
    stack.remove("definition")
    stack.write("a", {"apiVersion": f"{group}/v1", "kind": "Planet", "metadata": {"name": "mars"}})
    definition = {f"planets.{group}": "kept"}  # definitions outlive what brought them
    assert outcomes(stack.apply()) == {"mars": "created", **definition}
    assert outcomes(stack.apply()) == {"mars": "unchanged", **definition}
    minikube.request("DELETE", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/planets.{group}")


def test_refused_objects_fail_the_run_with_what_was_done(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.write("a", config_map(), deployment(ports=[{"containerPort": 70000}]))
    with pytest.raises(InvalidError) as caught:
        stack.apply()
    partial = caught.value.partial
    assert isinstance(partial, RunResult)
    assert not partial.ok
    assert outcomes(partial) == {"settings": "created", "web": "failed"}
    assert minikube.find(path(namespace, "configmaps", "settings")) is not None


def test_an_immutable_field_is_explained(stack: Stack) -> None:
    stack.deploy("a", deployment())
    changed = deployment()
    changed["spec"]["selector"]["matchLabels"] = {"app": "web", "tier": "front"}
    changed["spec"]["template"]["metadata"]["labels"] = {"app": "web", "tier": "front"}
    stack.write("a", changed)
    with pytest.raises(
        InvalidError, match=r"`spec.selector` cannot change while the object exists"
    ) as caught:
        stack.apply()
    assert caught.value.hint is not None
    assert 'mlstack.dev/recreate: "true"' in caught.value.hint


def test_an_object_that_is_being_deleted_is_made_anew(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.deploy("a", deployment(replicas=2))
    live = minikube.wait_for(
        path(namespace, "deployments", "web"), lambda live: live["status"].get("readyReplicas") == 2
    )
    minikube.kubectl("delete", "deployment", "web", "-n", namespace, "--cascade=foreground", "--wait=false")
    assert outcomes(stack.apply())["web"] == "created"
    again = minikube.request("GET", path(namespace, "deployments", "web"))
    assert again["metadata"]["uid"] != live["metadata"]["uid"]
    assert "deletionTimestamp" not in again["metadata"]


# --- other people's changes -----------------------------------------------------------------------


def test_what_kubectl_scaled_is_put_back_and_said(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.deploy("a", deployment(replicas=2))
    minikube.kubectl("scale", "deployment/web", "--replicas=4", "-n", namespace)
    row = stack.diff().objects[0]
    assert [(field.path, field.old, field.new) for field in row.fields] == [("spec.replicas", 4, 2)]
    assert row.notes == ("takes `spec.replicas` back from `kubectl` (through `scale`)",)
    assert outcomes(stack.apply()) == {"web": "updated"}
    assert minikube.request("GET", path(namespace, "deployments", "web"))["spec"]["replicas"] == 2
    assert stack.diff().ok


def test_a_value_set_by_hand_before_we_wanted_it_is_owned_afterwards(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.deploy("a", config_map(a="1"))
    minikube.kubectl("patch", "configmap", "settings", "-n", namespace, "-p", '{"data": {"b": "2"}}')
    stack.write("a", config_map(a="1", b="2"))
    assert stack.diff().ok
    assert outcomes(stack.apply()) == {"settings": "unchanged"}
    live = minikube.request("GET", path(namespace, "configmaps", "settings"))
    ours = next(entry for entry in live["metadata"]["managedFields"] if entry["manager"] == "mlstack")
    assert set(ours["fieldsV1"]["f:data"]) == {"f:a", "f:b"}


# --- the right cluster, the right rights ------------------------------------------------------------


def test_a_user_of_one_namespace_can_apply_there(
    tmp_path: Path, namespace: str, minikube: TestCluster
) -> None:
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "patch", "create"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "verbs": ["get", "create", "update", "delete"],
        },
    ]
    user: User = minikube.create_user(f"user-{namespace}", rules, namespace=namespace)
    config = minikube.write_kubeconfig(tmp_path / "user", user)
    stack = Stack(tmp_path / "app", namespace=namespace, opener=opener_of(config))
    stack.write("a", config_map(a="1"))
    assert outcomes(stack.apply()) == {"settings": "created"}
    assert outcomes(stack.apply()) == {"settings": "unchanged"}


# --- training jobs ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("definitions")
def test_run_policy_alone_is_patched(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    stack.deploy("cnn", tfjob())
    first = minikube.request("GET", path(namespace, "tfjobs", "cnn"))["metadata"]["uid"]
    changed = tfjob()
    changed["spec"]["runPolicy"]["backoffLimit"] = 2
    stack.write("cnn", changed)
    assert not stack.plan().destructive
    assert outcomes(stack.apply()) == {"cnn": "updated"}
    assert minikube.request("GET", path(namespace, "tfjobs", "cnn"))["metadata"]["uid"] == first


@pytest.mark.usefixtures("definitions")
def test_a_field_the_definition_holds_fast_means_a_new_run(stack: Stack) -> None:
    first = tfjob()
    first["spec"]["runPolicy"]["schedulingPolicy"] = {"queue": "one"}
    stack.deploy("cnn", first)
    second = tfjob()
    second["spec"]["runPolicy"]["schedulingPolicy"] = {"queue": "two"}
    second["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 2
    stack.write("cnn", second)
    assert outcomes(stack.apply()) == {"cnn": "recreated"}


@pytest.mark.usefixtures("definitions")
def test_status_of_a_job_with_its_operator(
    stack: Stack, minikube: TestCluster, training_operator: Callable[..., TrainingOperator]
) -> None:
    training_operator(minikube, "tfjob")
    hungry = tfjob("hungry")
    container = hungry["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    stack.deploy("jobs", tfjob("fine"), hungry)
    rows = _until(stack, lambda rows: rows["fine"].state == "ready" and "GPU" not in rows["hungry"].state)
    assert rows["fine"].reason == "workers 1 of 1"
    assert rows["fine"].pods[0].state == "ready"
    rows = _until(stack, lambda rows: "nvidia.com/gpu" in rows["hungry"].reason)
    assert rows["hungry"].reason == (
        "0 of 1 workers run. Workers wait: no node of this cluster has nvidia.com/gpu "
        "(0/1 nodes: Insufficient nvidia.com/gpu)"
    )
    assert not stack.status().ok


@pytest.mark.usefixtures("definitions")
def test_status_says_why_the_pods_of_a_job_are_refused(
    stack: Stack, minikube: TestCluster, training_operator: Callable[..., TrainingOperator]
) -> None:
    training_operator(minikube, "tfjob")
    refused = tfjob("refused")
    container = refused["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"nvidia.com/gpu": 1}}
    stack.deploy("jobs", refused)
    rows = _until(stack, lambda rows: "refused:" in rows["refused"].reason)
    assert rows["refused"].reason.startswith("0 of 1 workers run. Workers wait: a pod was refused: ")
    assert "Limit must be set for non overcommitable resources" in rows["refused"].reason


def _until(stack: Stack, accept: Callable[[dict[str, Any]], bool], timeout_s: float = 30) -> dict[str, Any]:
    """Ask for the status until it is as wanted."""
    deadline = stack.clock.now_s() + timeout_s
    while True:
        rows = {row.name: row for part in stack.status().components for row in part.objects}
        if accept(rows):
            return rows
        assert stack.clock.now_s() < deadline, rows
        stack.clock.sleep(0.2)


# --- status -----------------------------------------------------------------------------------------


def test_status_is_ok_when_all_pods_run(stack: Stack) -> None:
    stack.deploy("a", deployment(replicas=2), config_map())
    rows = _until(stack, lambda rows: rows["web"].state == "ready")
    assert rows["web"].reason == "2 of 2 pods"
    assert [pod.state for pod in rows["web"].pods] == ["ready", "ready"]
    assert stack.status().ok


# --- delete -----------------------------------------------------------------------------------------


def test_delete_goes_in_reverse_and_a_second_time_finds_nothing(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.deploy("a", config_map(), deployment())
    result = stack.delete()
    assert [row.kind for row in result.objects] == ["Deployment", "ConfigMap"]
    assert set(outcomes(result).values()) == {"deleted"}
    assert minikube.find(path(namespace, "deployments", "web")) is None
    pods = minikube.request("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector=app%3Dweb")["items"]
    assert pods == []
    assert stack.delete().objects == ()


# --- agreement with kubectl -------------------------------------------------------------------------


def test_kubectl_diff_of_the_rendered_output_is_empty(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.deploy("a", deployment(env=[], args=None), secret(a="1"), config_map(a="yes", b="012", c="1e3"))
    text = write.to_yaml_documents(obj.data for obj in render.load(stack.app, "minikube").objects)
    assert len(read.read_documents(text, source="rendered")) == 3
    assert minikube.kubectl("diff", "-f", "-", input=text).stdout == ""
