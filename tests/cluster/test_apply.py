"""What people do to a cluster with `apply`, `diff`, `delete` and `status`, on real API servers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlstack.deploy.changes import RunResult
from mlstack.deploy.prune import KeepOptions
from mlstack.errors import (
    ConfigError,
    ForbiddenError,
    InvalidError,
    MlstackError,
    ObjectNotFoundError,
    UnreachableError,
    WrongClusterError,
)
from mlstack.render import render
from mlstack.yaml import read, write
from tests.support.cluster import TestCluster, User
from tests.support.controlplane import ControlPlane
from tests.support.deploying import (
    Stack,
    config_map,
    crd,
    deployment,
    opener_of,
    outcomes,
    secret,
    tfjob,
)
from tests.support.training_operator import TrainingOperator

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
CRDS = ROOT / "prototypes/core/kubeflow-core/files/crds"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def path(namespace: str, kind: str, name: str) -> str:
    group = {"deployments": "apis/apps/v1", "tfjobs": "apis/kubeflow.org/v1"}.get(kind, "api/v1")
    return f"/{group}/namespaces/{namespace}/{kind}/{name}"


def versions(cluster: TestCluster, namespace: str, *kinds: str) -> dict[str, str]:
    """Give the resourceVersion of every object of ours."""
    lines = cluster.kubectl(
        "get",
        ",".join(kinds),
        "-n",
        namespace,
        "-l",
        "mlstack.dev/app=demo,mlstack.dev/component",
        "-o",
        r"jsonpath={range .items[*]}{.kind}/{.metadata.name}={.metadata.resourceVersion}{'\n'}{end}",
    ).stdout.splitlines()
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


def test_second_apply_writes_nothing(stack: Stack, minikube: TestCluster, namespace: str) -> None:
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


def test_one_change_updates_one_object(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    stack.deploy("a", config_map("one", a="1"), config_map("two", a="1"))
    before = versions(minikube, namespace, "configmaps")
    stack.write("a", config_map("one", a="2"), config_map("two", a="1"))
    report = stack.diff()
    assert not report.ok
    changed = [(row.name, field.path, field.old, field.new) for row in report.objects for field in row.fields]
    assert changed == [("one", "data.a", "1", "2")]
    assert outcomes(stack.apply()) == {"one": "updated", "two": "unchanged"}
    after = versions(minikube, namespace, "configmaps")
    assert [name for name in after if after[name] != before[name]] == ["ConfigMap/one"]
    assert stack.diff().ok


def test_removed_fields_go(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    stack.deploy("a", config_map(a="1", b="2"))
    stack.write("a", config_map(a="1"))
    assert [field.action for row in stack.diff().objects for field in row.fields] == ["removed"]
    stack.apply()
    assert minikube.request("GET", path(namespace, "configmaps", "settings"))["data"] == {"a": "1"}


def test_a_key_dropped_from_string_data_goes(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    stack.deploy("a", secret(a="1", b="2"))
    stack.deploy("a", secret(a="1"))
    assert minikube.request("GET", path(namespace, "secrets", "keys"))["data"] == {"a": "MQ=="}


def test_secrets_are_masked_in_a_diff(stack: Stack) -> None:
    stack.deploy("a", secret(password="first-secret"))
    stack.write("a", secret(password="second-secret"))
    text = repr(stack.diff())
    assert "data.password" in text
    for hidden in ("Zmlyc3Qtc2VjcmV0", "c2Vjb25kLXNlY3JldA==", "first-secret", "second-secret"):
        assert hidden not in text


def test_a_missing_namespace_is_created_first(
    tmp_path: Path, kubeconfig: Path, minikube: TestCluster, namespace: str
) -> None:
    stack = Stack(tmp_path / "app", namespace=f"{namespace}-new", opener=opener_of(kubeconfig))
    stack.write("a", config_map())
    assert not stack.diff().ok
    result = stack.apply()
    assert outcomes(result) == {f"{namespace}-new": "created", "settings": "created"}
    assert f"namespace `{namespace}-new` is created first" in result.notes
    assert outcomes(stack.apply()) == {"settings": "unchanged"}
    stack.delete()
    assert minikube.find(f"/api/v1/namespaces/{namespace}-new") is not None
    minikube.request("DELETE", f"/api/v1/namespaces/{namespace}-new")


def test_a_namespace_nobody_asked_for_is_an_error(stack: Stack) -> None:
    stray = config_map()
    stray["metadata"]["namespace"] = "nowhere"
    stack.write("a", stray)
    with pytest.raises(ObjectNotFoundError, match="namespace `nowhere` does not exist"):
        stack.apply()


def test_definition_and_its_object_in_one_apply(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    group = f"{namespace}.example.com"
    widget = {
        "apiVersion": f"{group}/v1",
        "kind": "Widget",
        "metadata": {"name": "first"},
        "spec": {"size": 3},
    }
    stack.write("a", widget, crd(group=group))
    assert not stack.diff().ok
    result = stack.apply()
    assert [row.kind for row in result.objects] == ["CustomResourceDefinition", "Widget"]
    assert set(outcomes(result).values()) == {"created"}
    assert set(outcomes(stack.apply()).values()) == {"unchanged"}
    kept = stack.delete()
    assert outcomes(kept) == {"first": "deleted", f"widgets.{group}": "kept"}
    assert outcomes(stack.delete(spare=KeepOptions(definitions=False)))[f"widgets.{group}"] == "deleted"


def test_a_kind_without_definition_is_an_error(stack: Stack) -> None:
    stack.write("a", {"apiVersion": "none.example.com/v1", "kind": "Nothing", "metadata": {"name": "a"}})
    with pytest.raises(ObjectNotFoundError, match=r"has no kind `Nothing \(none.example.com/v1\)`"):
        stack.apply()


def test_cluster_scoped_custom_resources_get_no_namespace(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    group = f"{namespace}.example.com"
    stack.deploy("definition", crd("planets", "Planet", group=group, scope="Cluster"))
    stack.remove("definition")
    stack.write("a", {"apiVersion": f"{group}/v1", "kind": "Planet", "metadata": {"name": "mars"}})
    kept = {f"planets.{group}": "kept"}  # definitions outlive what brought them
    assert outcomes(stack.apply()) == {"mars": "created", **kept}
    assert outcomes(stack.apply()) == {"mars": "unchanged", **kept}
    minikube.request("DELETE", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/planets.{group}")


def test_dry_run_names_every_object_and_writes_nothing(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.deploy("a", config_map("old", a="1"))
    stack.write("a", config_map("old", a="2"), config_map("new"))
    result = stack.apply(dry_run=True)
    assert result.dry_run
    assert outcomes(result) == {"old": "updated", "new": "created"}
    assert minikube.find(path(namespace, "configmaps", "new")) is None
    assert minikube.request("GET", path(namespace, "configmaps", "old"))["data"] == {"a": "1"}


def test_dry_run_finds_what_the_server_would_refuse(stack: Stack) -> None:
    stack.write("a", deployment(ports=[{"containerPort": 70000}]))
    with pytest.raises(InvalidError, match="Deployment"):
        stack.apply(dry_run=True)


def test_without_creation_missing_objects_are_left_out(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.deploy("a", config_map("old", a="1"))
    stack.write("a", config_map("old", a="2"), config_map("new"))
    assert outcomes(stack.apply(create=False)) == {"old": "updated", "new": "kept"}
    assert minikube.find(path(namespace, "configmaps", "new")) is None


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
        path(namespace, "deployments", "web"), lambda found: found["status"].get("readyReplicas") == 2
    )
    minikube.kubectl("delete", "deployment", "web", "-n", namespace, "--cascade=foreground", "--wait=false")
    assert outcomes(stack.apply())["web"] == "created"
    again = minikube.request("GET", path(namespace, "deployments", "web"))
    assert again["metadata"]["uid"] != live["metadata"]["uid"]
    assert "deletionTimestamp" not in again["metadata"]


def test_nothing_to_deploy_is_an_error(stack: Stack) -> None:
    with pytest.raises(ConfigError, match="has no objects"):
        stack.apply()


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


def test_what_kubectl_edited_is_put_back(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    stack.deploy("a", config_map(a="1"))
    patch = '{"data": {"a": "by hand", "more": "by hand"}}'
    minikube.kubectl(
        "patch", "configmap", "settings", "-n", namespace, "-p", patch, "--field-manager=kubectl-edit"
    )
    stack.apply()
    live = minikube.request("GET", path(namespace, "configmaps", "settings"))
    assert live["data"] == {"a": "1"}


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


def test_fields_of_a_program_stay_and_are_said(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    stack.deploy("a", deployment(replicas=2))
    patch = '{"spec": {"replicas": 5}}'
    minikube.kubectl("patch", "deployment", "web", "-n", namespace, "-p", patch, "--field-manager=autoscaler")
    stack.write("a", deployment(replicas=2, image="nginx:1.28"))
    (row,) = stack.diff().objects
    assert row.notes[0] == "leaves `spec.replicas` to `autoscaler`"
    assert outcomes(stack.apply()) == {"web": "updated"}
    assert minikube.request("GET", path(namespace, "deployments", "web"))["spec"]["replicas"] == 5


def test_fields_of_others_that_we_do_not_set_are_left_alone(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.deploy("a", config_map(a="1"))
    minikube.kubectl("label", "configmap", "settings", "-n", namespace, "theirs=yes")
    assert stack.diff().ok
    assert outcomes(stack.apply()) == {"settings": "unchanged"}


# --- the right cluster, the right rights ------------------------------------------------------------


def test_the_cluster_is_pinned_by_the_first_apply(stack: Stack, minikube: TestCluster) -> None:
    stack.write("a", config_map())
    stack.diff()
    assert stack.app.environment("minikube").cluster is None
    stack.apply()
    pinned = stack.app.environment("minikube").cluster
    system = minikube.request("GET", "/api/v1/namespaces/kube-system")
    assert pinned is not None
    assert pinned.uid == system["metadata"]["uid"]


def test_another_cluster_behind_the_context_is_refused(
    stack: Stack, minikube: TestCluster, gke: TestCluster, namespace: str
) -> None:
    stack.write("a", config_map())
    stack.apply("minikube")
    with pytest.raises(WrongClusterError) as caught:
        stack.apply("minikube", context="gke")
    for cluster in (minikube, gke):
        uid = cluster.request("GET", "/api/v1/namespaces/kube-system")["metadata"]["uid"]
        assert uid in caught.value.message
    assert gke.find(path(namespace, "configmaps", "settings")) is None
    for operation in (stack.diff, stack.delete, stack.status):
        with pytest.raises(WrongClusterError):
            operation("minikube", context="gke")


def test_a_user_without_rights_is_told_so(tmp_path: Path, namespace: str, minikube: TestCluster) -> None:
    config = minikube.write_kubeconfig(tmp_path / "viewer", minikube.viewer)
    stack = Stack(tmp_path / "app", namespace=namespace, opener=opener_of(config))
    stack.write("a", config_map())
    with pytest.raises(ForbiddenError, match=rf"create, patch configmaps in namespace {namespace}"):
        stack.apply()
    assert minikube.find(path(namespace, "configmaps", "settings")) is None


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


def test_an_unreachable_server_is_told_so(
    tmp_path: Path, namespace: str, kubeconfig: Path, minikube: TestCluster
) -> None:
    text = kubeconfig.read_text(encoding="utf-8").replace(minikube.server, "https://127.0.0.1:9")
    broken = tmp_path / "broken"
    broken.write_text(text, encoding="utf-8")
    stack = Stack(tmp_path / "app", namespace=namespace, opener=opener_of(broken))
    stack.write("a", config_map())
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:9"):
        stack.apply()


# --- training jobs ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("definitions")
def test_a_changed_job_is_recreated(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    stack.deploy("cnn", tfjob())
    first = minikube.request("GET", path(namespace, "tfjobs", "cnn"))["metadata"]["uid"]
    assert outcomes(stack.apply()) == {"cnn": "unchanged"}
    stack.write("cnn", tfjob(workers=3))
    plan = stack.plan()
    assert plan.destructive
    assert [row.reason for row in plan.report.objects] == [
        "cnn: workers 1 -> 3 needs a new run: the training operator does not change a running job."
    ]
    assert outcomes(stack.apply()) == {"cnn": "recreated"}
    again = minikube.request("GET", path(namespace, "tfjobs", "cnn"))
    assert again["metadata"]["uid"] != first
    assert again["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] == 3
    assert outcomes(stack.apply()) == {"cnn": "unchanged"}


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
def test_status_without_operator_says_so(stack: Stack) -> None:
    stack.deploy("cnn", tfjob())
    stack.clock = _Later(60)
    row = stack.status().components[0].objects[0]
    assert (row.state, row.reason.split(" after ")[0]) == (
        "waiting",
        "no training operator has picked it up",
    )


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


class _Later:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def now_s(self) -> float:
        import time

        return time.time() + self._seconds

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here waits")


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


def test_status_tells_what_is_not_applied(stack: Stack) -> None:
    stack.write("a", config_map())
    result = stack.status()
    row = result.components[0].objects[0]
    assert not result.ok
    assert (row.state, row.hint) == ("missing", "mlstack apply minikube -c a")


def test_status_is_ok_when_all_pods_run(stack: Stack) -> None:
    stack.deploy("a", deployment(replicas=2), config_map())
    rows = _until(stack, lambda rows: rows["web"].state == "ready")
    assert rows["web"].reason == "2 of 2 pods"
    assert [pod.state for pod in rows["web"].pods] == ["ready", "ready"]
    assert stack.status().ok


def test_status_says_why_a_gpu_pod_waits(stack: Stack) -> None:
    stack.deploy("a", deployment(resources={"limits": {"nvidia.com/gpu": 1}}))
    rows = _until(stack, lambda rows: "nvidia.com/gpu" in rows["web"].reason)
    assert rows["web"].state == "waiting"
    assert rows["web"].reason == (
        "0 of 1 pods ready: no node of this cluster has nvidia.com/gpu "
        "(0/1 nodes: Insufficient nvidia.com/gpu)"
    )


def test_status_says_when_an_image_cannot_be_pulled(stack: Stack) -> None:
    broken = deployment()
    broken["spec"]["template"]["metadata"]["annotations"] = {"mlstack.dev/test-waiting": "ImagePullBackOff"}
    stack.deploy("a", broken)
    rows = _until(stack, lambda rows: "ImagePullBackOff" in rows["web"].reason)
    assert rows["web"].reason.startswith("0 of 1 pods ready: container main: ImagePullBackOff")


def test_status_says_when_a_quota_refuses_pods(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few"},
        "spec": {"hard": {"pods": "0"}},
    }
    stack.write("a", quota, deployment())
    minikube.request("POST", f"/api/v1/namespaces/{namespace}/resourcequotas", quota)
    minikube.wait_for(
        path(namespace, "resourcequotas", "few"), lambda found: found.get("status", {}).get("hard")
    )
    stack.apply()
    rows = _until(stack, lambda rows: "quota" in rows["web"].reason)
    assert "waiting for quota: exceeded quota: few" in rows["web"].reason


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


def test_delete_finds_what_the_files_no_longer_bring(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.deploy("a", config_map("old"), config_map("new"))
    stack.write("a", config_map("new"))
    assert outcomes(stack.delete()) == {"old": "deleted", "new": "deleted"}


def test_delete_of_one_component_leaves_the_others(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.write("a", config_map("one"))
    stack.deploy("b", config_map("two"))
    assert outcomes(stack.delete(components=["a"])) == {"one": "deleted"}
    assert minikube.find(path(namespace, "configmaps", "two")) is not None


def test_delete_keeps_claims_and_what_belongs_to_others(
    tmp_path: Path, kubeconfig: Path, stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "disk"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    other = Stack(tmp_path / "other", namespace=namespace, opener=opener_of(kubeconfig), name="other")
    other.deploy("a", config_map("shared"))
    minikube.kubectl("create", "configmap", "foreign", "-n", namespace)
    stack.deploy("a", claim)
    stack.write("a", claim, config_map("shared"), config_map("foreign"))
    result = stack.delete()
    assert {row.name: row.text.split(":")[0] for row in result.objects} == {
        "disk": "volume claims are kept",
        "shared": "belongs to environment `minikube` of app `other`",
        "foreign": "was not made by mlstack",
    }
    assert set(outcomes(result).values()) == {"kept"}
    assert outcomes(stack.delete(spare=KeepOptions(claims=False)))["disk"] == "deleted"


def test_deleting_a_definition_names_the_objects_that_go_with_it(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    group = f"{namespace}.example.com"
    stack.deploy("a", crd(group=group))
    widget = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "theirs"}}
    minikube.kubectl("apply", "-n", namespace, "-f", "-", input=write.to_yaml(widget))
    result = stack.delete(spare=KeepOptions(definitions=False))
    assert result.notes == (
        f"with definition `widgets.{group}` go 1 Widget of all namespaces: {namespace}/theirs",
    )


# --- agreement with kubectl -------------------------------------------------------------------------


def test_kubectl_diff_of_the_rendered_output_is_empty(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.deploy("a", deployment(env=[], args=None), secret(a="1"), config_map(a="yes", b="012", c="1e3"))
    text = write.to_yaml_documents(found.data for found in render.load(stack.app, "minikube").objects)
    assert len(read.read_documents(text, source="rendered")) == 3
    assert minikube.kubectl("diff", "-f", "-", input=text).stdout == ""


def test_errors_are_ours(stack: Stack) -> None:
    stack.write("a", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "Not A Name"}})
    with pytest.raises(MlstackError):
        stack.apply()


def test_both_clusters_are_kept_apart(
    stack: Stack, minikube: TestCluster, gke: TestCluster, namespace: str, control_plane: ControlPlane
) -> None:
    stack.write("a", config_map())
    stack.apply("gke")
    assert minikube.find(path(namespace, "configmaps", "settings")) is None
    assert gke.find(path(namespace, "configmaps", "settings")) is not None
