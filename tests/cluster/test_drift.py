"""Who changed what since the last apply, as real API servers keep the books; kubectl does the changing."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from mlstack.cli import kube
from mlstack.model.drift import Difference
from mlstack.operations import drift
from mlstack.operations.drift import DriftResult, DriftRow
from tests.support.cluster import TestCluster
from tests.support.deploying import Stack, config_map, crd, deployment, is_established, secret
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def stack(tmp_path: Path, namespace: str, kubeconfig: Path) -> Stack:
    """An app with a Deployment, a ConfigMap, a Secret and a Service that were applied to minikube."""
    made = Stack(
        tmp_path / "app",
        namespace=namespace,
        opener=lambda context: kube.connect(context, kubeconfig=str(kubeconfig)),
    )
    made.write("web", *objects())
    made.apply()
    return made


def objects() -> list[dict[str, Any]]:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}, {"port": 81, "name": "more"}]},
    }
    service["spec"]["ports"][0]["name"] = "main"
    web = deployment(replicas=2, env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}])
    return [config_map(a="1", b="1"), secret(password="hush"), service, web]


def look(stack: Stack, **facts: Any) -> DriftResult:
    return drift.drift(stack.target(**facts), opener=stack.opener)


def rows(found: DriftResult) -> dict[str, DriftRow]:
    return {row.object.split()[0]: row for row in found.objects if row.state != "same"}


def only(found: DriftResult) -> Difference:
    (row,) = rows(found).values()
    (one,) = row.differences
    return one


def test_right_after_an_apply_nothing_differs(stack: Stack) -> None:
    found = look(stack)
    assert found.ok, found
    assert len(found.objects) == 4


def test_kubectl_scale(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    minikube.kubectl("scale", "deployment/web", "--replicas=5", "-n", namespace)
    one = only(look(stack))
    assert (one.path, one.live, one.wanted) == ("spec.replicas", 5, 2)
    assert (one.cause, one.manager, one.subresource) == ("person", "kubectl", "scale")
    assert one.time == ""  # the server keeps none for what is written through `scale`


def test_what_an_autoscaler_writes(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    scale = f"/apis/apps/v1/namespaces/{namespace}/deployments/web/scale"
    minikube.request(
        "PATCH",
        f"{scale}?fieldManager=kube-controller-manager",
        {"spec": {"replicas": 6}},
        content_type="application/merge-patch+json",
    )
    one = only(look(stack))
    assert (one.path, one.live, one.cause, one.manager) == (
        "spec.replicas",
        6,
        "controller",
        "kube-controller-manager",
    )


def test_kubectl_set_image(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    minikube.kubectl("set", "image", "deployment/web", "main=nginx:1.99", "-n", namespace)
    one = only(look(stack))
    assert (one.path, one.live, one.wanted) == (
        "spec.template.spec.containers[main].image",
        "nginx:1.99",
        "nginx:1.27",
    )
    assert (one.cause, one.manager) == ("person", "kubectl-set")
    assert one.time.startswith("20")


def test_kubectl_label(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    label = ("label", "configmap/settings", "-n", namespace, "--overwrite")
    minikube.kubectl(*label, "team=red")
    assert look(stack).ok
    minikube.kubectl(*label, "mlstack.dev/component=other")
    one = only(look(stack))
    assert (one.path, one.live, one.wanted, one.manager) == (
        'metadata.labels["mlstack.dev/component"]',
        "other",
        "web",
        "kubectl-label",
    )


def test_kubectl_edit(
    stack: Stack, minikube: TestCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBE_EDITOR", f"sed -i {shlex.quote('s/  a: .*/  a: edited/; /^  b: /d')}")
    minikube.kubectl("edit", "configmap", "settings", "-n", namespace)
    found = {one.path: one for one in rows(look(stack))["ConfigMap"].differences}
    assert found.keys() == {"data.a", "data.b"}
    assert (found["data.a"].live, found["data.a"].cause, found["data.a"].manager) == (
        "edited",
        "person",
        "kubectl-edit",
    )
    # The server keeps no record of who took a field away; only one has written since.
    assert (found["data.b"].action, found["data.b"].manager, found["data.b"].sure) == (
        "removed",
        "kubectl-edit",
        False,
    )


def test_a_field_that_is_taken_away_alone(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    patch = json.dumps([{"op": "remove", "path": "/spec/template/spec/containers/0/env/0"}])
    minikube.kubectl("patch", "deployment", "web", "-n", namespace, "--type=json", "-p", patch)
    one = only(look(stack))
    assert (one.path, one.action) == ("spec.template.spec.containers[main].env[A]", "removed")
    assert one.wanted == {"name": "A", "value": "1"}
    assert (one.cause, one.manager) == ("unknown", "")  # the server keeps no record of it


def test_a_list_item_that_was_changed_in_its_key(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    patch = json.dumps([{"op": "replace", "path": "/spec/ports/0/port", "value": 85}])
    minikube.kubectl("patch", "service", "web", "-n", namespace, "--type=json", "-p", patch)
    found = rows(look(stack))["Service"].differences
    assert {(one.path, one.action, one.manager) for one in found} == {
        ("spec.ports[80,TCP]", "removed", "kubectl-patch"),
        ("spec.ports[85,TCP]", "added", "kubectl-patch"),
    }
    (row,) = (row for row in stack.diff().objects if row.fields)
    assert {one.path for one in row.fields} == {one.path for one in found}


def test_kubectl_apply_of_a_changed_copy(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    live = minikube.kubectl("get", "configmap", "settings", "-n", namespace, "-o", "json").stdout
    changed = json.loads(live)
    changed["data"]["a"] = "applied"
    changed["metadata"].pop("managedFields", None)
    minikube.kubectl("apply", "-f", "-", "-n", namespace, input=json.dumps(changed))
    one = only(look(stack))
    assert (one.path, one.cause, one.manager) == ("data.a", "person", "kubectl-client-side-apply")


def test_kubectl_delete(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    minikube.kubectl("delete", "configmap", "settings", "-n", namespace)
    found = look(stack)
    assert rows(found)["ConfigMap"].state == "missing"
    assert found.counts == {"missing": 1}


def test_an_object_deleted_and_made_by_hand(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    minikube.kubectl("delete", "configmap", "settings", "-n", namespace)
    minikube.kubectl("create", "configmap", "settings", "-n", namespace, "--from-literal=a=2")
    row = rows(look(stack))["ConfigMap"]
    assert row.reason == "was deleted and made anew since it was applied"
    found = {one.path: one for one in row.differences}
    assert (found["data.a"].cause, found["data.a"].manager) == ("person", "kubectl-create")


def test_files_that_have_changed_since(stack: Stack) -> None:
    changed = objects()
    changed[0]["data"] = {"a": "1", "c": "3"}
    changed[3]["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:1.28"
    stack.write("web", *changed)
    stack.write("more", config_map("more"))
    found = look(stack)
    assert found.counts == {"stale": 4}
    assert {row.name: row.state for row in found.objects if row.state == "new"} == {"more": "new"}


def test_what_the_files_give_up_and_what_somebody_copies(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    live = json.loads(minikube.kubectl("get", "configmap", "settings", "-n", namespace, "-o", "json").stdout)
    copy = {**live, "metadata": {"name": "copy", "labels": live["metadata"]["labels"]}}
    minikube.kubectl("create", "-f", "-", "-n", namespace, input=json.dumps(copy))
    stack.write("web", *objects()[1:])
    found = {row.name: row for row in look(stack).objects if row.state == "extra"}
    assert found.keys() == {"settings", "copy"}
    assert found["settings"].reason == "the files do not bring it any more"
    assert found["copy"].manager == "kubectl-create"


def test_what_controllers_make_of_ours_is_no_extra(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    """The Service's labels stand on its Endpoints, ReplicaSets and pods belong to the Deployment."""
    minikube.wait_for(f"/api/v1/namespaces/{namespace}/endpoints/web")
    minikube.wait_for(
        f"/apis/apps/v1/namespaces/{namespace}/deployments/web",
        lambda found: found["status"].get("readyReplicas") == 2,
    )
    assert look(stack).ok


def test_secret_values_are_masked(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    minikube.kubectl(
        "patch", "secret", "keys", "-n", namespace, "-p", json.dumps({"stringData": {"password": "loud"}})
    )
    found = look(stack)
    assert only(found).cause == "person"
    assert not any(word in repr(found) for word in ("hush", "loud", "aHVzaA", "bG91ZA"))


def test_looking_writes_nothing(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    minikube.kubectl("scale", "deployment/web", "--replicas=0", "-n", namespace)
    minikube.wait_for(
        f"/apis/apps/v1/namespaces/{namespace}/deployments/web",
        lambda found: found["status"].get("observedGeneration") == found["metadata"]["generation"]
        and not found["status"].get("replicas"),
    )
    where = f"/api/v1/namespaces/{namespace}"
    kinds = [f"{where}/configmaps", f"{where}/secrets", f"{where}/services"]
    before = [minikube.request("GET", each) for each in kinds]
    look(stack)
    assert [each["items"] for each in before] == [minikube.request("GET", each)["items"] for each in kinds]


def test_a_definition_and_its_objects(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    group = f"{namespace}.drift.example.com"
    widget = {
        "apiVersion": f"{group}/v1",
        "kind": "Widget",
        "metadata": {"name": "one"},
        "spec": {"size": 1, "tags": ["a"]},
    }
    stack.write("widgets", crd(group=group), widget)
    stack.apply()
    try:
        minikube.wait_for(f"{DEFINITIONS}/widgets.{group}", is_established)
        assert look(stack).ok
        patch = json.dumps({"spec": {"size": 2}})
        minikube.kubectl(
            "patch", f"widgets.{group}", "one", "-n", namespace, "--type=merge", "-p", patch,
            "--field-manager=widget-operator",
        )  # fmt: skip
        one = only(look(stack))
        assert (one.path, one.cause, one.manager) == ("spec.size", "controller", "widget-operator")
    finally:
        minikube.kubectl("delete", "crd", f"widgets.{group}", "--wait=false")


def test_without_the_right_to_read_the_history_it_is_said(
    stack: Stack, minikube: TestCluster, namespace: str, tmp_path: Path
) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "patch"]}]
    user = minikube.create_user(f"drift-{namespace}", rules, namespace=namespace)
    kubeconfig = minikube.write_kubeconfig(tmp_path / "limited", user)
    stack.write("web", objects()[0])
    stack.opener = lambda context: kube.connect(context, kubeconfig=str(kubeconfig))
    can_i = ("auth", "can-i", "get", "configmaps", "-n", namespace)
    wait_until(lambda: minikube.kubectl(*can_i, user=user, check=False).returncode == 0, what="rights")
    minikube.kubectl("patch", "configmap", "settings", "-n", namespace, "-p", '{"data": {"a": null}}')
    found = look(stack)
    assert any("what was applied last cannot be read" in note for note in found.notes)
    (unseen,) = [note for note in found.notes if "no right to list" in note]  # told once, and not at length
    assert unseen.endswith("more kinds: such objects may be missed") and len(unseen) < 250
