"""Who changed what since the last apply, as real API servers keep the books; kubectl does the changing."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlstack.deploy.compare import Difference, DriftRow
from mlstack.errors import OutdatedError
from mlstack.operations import deploy
from mlstack.operations.status import DriftResult, find_drift
from tests.support.cluster import TestCluster
from tests.support.counted import Counted
from tests.support.deploying import Stack, config_map, crd, deployment, opener_of, secret
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture
def stack(stack: Stack) -> Stack:
    """An app with a Deployment, a ConfigMap, a Secret and a Service that were applied to minikube."""
    stack.write("web", *objects())
    stack.apply()
    return stack


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
    return find_drift(stack.target(**facts), opener=stack.opener)


def rows(drift: DriftResult) -> dict[str, DriftRow]:
    return {row.object.split()[0]: row for row in drift.objects if row.state != "same"}


def only(drift: DriftResult) -> Difference:
    (row,) = rows(drift).values()
    (difference,) = row.differences
    return difference


def test_kubectl_scale(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    minikube.kubectl("scale", "deployment/web", "--replicas=5", "-n", namespace)
    field = only(look(stack))
    assert (field.path, field.live, field.wanted) == ("spec.replicas", 5, 2)
    assert (field.cause, field.manager, field.subresource) == ("person", "kubectl", "scale")
    assert field.time == ""  # the server keeps none for what is written through `scale`


def test_kubectl_set_image(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    minikube.kubectl("set", "image", "deployment/web", "main=nginx:1.99", "-n", namespace)
    field = only(look(stack))
    assert (field.path, field.live, field.wanted) == (
        "spec.template.spec.containers[main].image",
        "nginx:1.99",
        "nginx:1.27",
    )
    assert (field.cause, field.manager) == ("person", "kubectl-set")
    assert field.time.startswith("20")


def test_kubectl_label(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    label = ("label", "configmap/settings", "-n", namespace, "--overwrite")
    minikube.kubectl(*label, "team=red")
    assert look(stack).ok
    minikube.kubectl(*label, "mlstack.dev/component=other")
    field = only(look(stack))
    assert (field.path, field.live, field.wanted, field.manager) == (
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
    fields = {field.path: field for field in rows(look(stack))["ConfigMap"].differences}
    assert fields.keys() == {"data.a", "data.b"}
    assert (fields["data.a"].live, fields["data.a"].cause, fields["data.a"].manager) == (
        "edited",
        "person",
        "kubectl-edit",
    )
    # The server keeps no record of who took a field away; only one has written since.
    assert (fields["data.b"].action, fields["data.b"].manager, fields["data.b"].sure) == (
        "removed",
        "kubectl-edit",
        False,
    )


def test_a_field_that_is_taken_away_alone(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    patch = json.dumps([{"op": "remove", "path": "/spec/template/spec/containers/0/env/0"}])
    minikube.kubectl("patch", "deployment", "web", "-n", namespace, "--type=json", "-p", patch)
    field = only(look(stack))
    assert (field.path, field.action) == ("spec.template.spec.containers[main].env[A]", "removed")
    assert field.wanted == {"name": "A", "value": "1"}
    assert (field.cause, field.manager) == ("unknown", "")  # the server keeps no record of it


def test_a_list_item_that_was_changed_in_its_key(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    patch = json.dumps([{"op": "replace", "path": "/spec/ports/0/port", "value": 85}])
    minikube.kubectl("patch", "service", "web", "-n", namespace, "--type=json", "-p", patch)
    fields = rows(look(stack))["Service"].differences
    assert {(field.path, field.action, field.manager) for field in fields} == {
        ("spec.ports[80,TCP]", "removed", "kubectl-patch"),
        ("spec.ports[85,TCP]", "added", "kubectl-patch"),
    }
    (row,) = (row for row in stack.diff().objects if row.fields)
    assert {field.path for field in row.fields} == {field.path for field in fields}


def test_kubectl_apply_of_a_changed_copy(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    live = minikube.kubectl("get", "configmap", "settings", "-n", namespace, "-o", "json").stdout
    changed = json.loads(live)
    changed["data"]["a"] = "applied"
    changed["metadata"].pop("managedFields", None)
    minikube.kubectl("apply", "-f", "-", "-n", namespace, input=json.dumps(changed))
    field = only(look(stack))
    assert (field.path, field.cause, field.manager) == ("data.a", "person", "kubectl-client-side-apply")


def test_what_controllers_make_of_ours_is_no_extra(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    """The Service's labels stand on its Endpoints, ReplicaSets and pods belong to the Deployment."""
    minikube.wait_for(f"/api/v1/namespaces/{namespace}/endpoints/web")
    minikube.wait_for(
        f"/apis/apps/v1/namespaces/{namespace}/deployments/web",
        lambda live: live["status"].get("readyReplicas") == 2,
    )
    assert look(stack).ok


def test_looking_writes_nothing(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    minikube.kubectl("scale", "deployment/web", "--replicas=0", "-n", namespace)
    minikube.wait_for(
        f"/apis/apps/v1/namespaces/{namespace}/deployments/web",
        lambda live: live["status"].get("observedGeneration") == live["metadata"]["generation"]
        and not live["status"].get("replicas"),
    )
    where = f"/api/v1/namespaces/{namespace}"
    kinds = [f"{where}/configmaps", f"{where}/secrets", f"{where}/services"]
    before = [minikube.request("GET", kind) for kind in kinds]
    look(stack)
    assert [page["items"] for page in before] == [minikube.request("GET", kind)["items"] for kind in kinds]


def test_without_the_right_to_read_the_history_it_is_said(
    stack: Stack, minikube: TestCluster, namespace: str, tmp_path: Path
) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "patch"]}]
    user = minikube.create_user(f"drift-{namespace}", rules, namespace=namespace)
    kubeconfig = minikube.write_kubeconfig(tmp_path / "limited", user)
    stack.write("web", objects()[0])
    stack.opener = opener_of(kubeconfig)
    can_i = ("auth", "can-i", "get", "configmaps", "-n", namespace)
    wait_until(lambda: minikube.kubectl(*can_i, user=user, check=False).returncode == 0, what="rights")
    minikube.kubectl("patch", "configmap", "settings", "-n", namespace, "-p", '{"data": {"a": null}}')
    drift = look(stack)
    assert any("what was applied last cannot be read" in note for note in drift.notes)
    (unseen,) = [note for note in drift.notes if "no right to list" in note]  # told once, and not at length
    assert unseen.endswith("more kinds: such objects may be missed") and len(unseen) < 250


# --- what people add -------------------------------------------------------------------------------


@pytest.fixture
def kubectl(minikube: TestCluster, namespace: str) -> Callable[..., None]:
    """Runs kubectl in the test's namespace."""
    return lambda *words, **facts: minikube.kubectl(*words, "-n", namespace, **facts) and None


def patched(kubectl: Callable[..., None], what: str, **content: Any) -> None:
    kubectl("patch", *what.split("/"), "-p", json.dumps(content))


def live_of(cluster: TestCluster, namespace: str, what: str) -> dict[str, Any]:
    kind, name = what.split("/")
    group = "apis/apps/v1" if kind == "deployments" else "api/v1"
    live: dict[str, Any] = cluster.request("GET", f"/{group}/namespaces/{namespace}/{kind}/{name}")
    return live


def meddle(kubectl: Callable[..., None]) -> None:
    """Add by hand what is dear to somebody: a container, a network, variables, keys."""
    side = {"name": "side", "image": "busybox:1", "securityContext": {"runAsUser": 0}}
    mount = {"name": "main", "volumeMounts": [{"name": "root", "mountPath": "/root"}]}
    volume = {"name": "root", "hostPath": {"path": "/"}}
    pod = {"hostNetwork": True, "containers": [side, mount], "volumes": [volume]}
    patched(kubectl, "deployment/web", spec={"template": {"spec": pod}})
    kubectl("set", "env", "deployment/web", "-c", "main", "C=3")
    patched(kubectl, "service/web", spec={"sessionAffinity": "ClientIP"})
    patched(kubectl, "secret/keys", stringData={"more": "loud"})
    patched(kubectl, "configmap/settings", data={"more": "yes"}, binaryData={"raw": "AAA="})


WHERE = ("configmaps/settings", "secrets/keys", "services/web", "deployments/web")
POD = "spec.template.spec"
ADDED = {
    "data.more",
    "binaryData",
    "spec.sessionAffinity",
    "spec.sessionAffinityConfig",
    f"{POD}.hostNetwork",
    f"{POD}.containers[side]",
    f"{POD}.containers[main].env[C]",
    f"{POD}.containers[main].volumeMounts",
    f"{POD}.volumes",
}


def contents(minikube: TestCluster, namespace: str) -> list[Any]:
    objects = [live_of(minikube, namespace, where) for where in WHERE]
    return [{key: obj.get(key) for key in ("spec", "data", "binaryData")} for obj in objects]


def test_what_people_add_is_shown_with_manager_and_time_and_goes(
    stack: Stack, minikube: TestCluster, namespace: str, kubectl: Callable[..., None]
) -> None:
    before = contents(minikube, namespace)
    meddle(kubectl)
    fields = [field for row in rows(look(stack)).values() for field in row.differences]
    assert {field.path for field in fields} >= ADDED - {"spec.sessionAffinity"}
    assert {(field.cause, field.manager) for field in fields} == {
        ("person", "kubectl-patch"),
        ("person", "kubectl-set"),
    }
    assert all(field.time.startswith("20") for field in fields)
    report = stack.diff()
    assert report.counts == {"update": 4}
    assert {field.path for row in report.objects for field in row.fields} >= ADDED
    notes = [row.notes[0] for row in report.objects if row.notes]
    assert all("removes" in note and " UTC and no file has" in note for note in notes), notes
    assert not any(word in repr((fields, report)) for word in ("loud", "bG91ZA"))
    stack.apply(keep_foreign_fields=True)
    assert contents(minikube, namespace) != before
    assert not look(stack).ok
    assert stack.apply().counts == {"updated": 4}
    assert contents(minikube, namespace) == before
    assert look(stack).ok
    assert stack.apply().counts == {"unchanged": 4}
    owners = {
        entry["manager"]
        for where in WHERE
        for entry in live_of(minikube, namespace, where)["metadata"]["managedFields"]
        if "f:spec" in entry["fieldsV1"] or "f:data" in entry["fieldsV1"]
    }
    assert owners == {"mlstack"}


def test_what_programs_add_stays_and_what_of_a_person_lies_in_it(
    stack: Stack, minikube: TestCluster, namespace: str, kubectl: Callable[..., None]
) -> None:
    def write(manager: str, **container: Any) -> None:
        content = {"spec": {"template": {"spec": {"containers": [container]}}}}
        patched(kubectl, f"deployment/web/--field-manager={manager}", **content)

    write("mesh-injector", name="proxy", image="proxy:1")
    kubectl("set", "image", "deployment/web", "proxy=proxy:2")
    write("kubectl-patch", name="side", image="side:1")
    write("vpa-updater", name="side", resources={"limits": {"cpu": "1"}})
    before = live_of(minikube, namespace, "deployments/web")["spec"]
    assert look(stack).ok
    report = stack.diff()
    assert report.ok
    assert any(f"leaves `{POD}.containers[side]` to `kubectl-patch`" in note for note in report.notes)
    stack.apply()
    assert live_of(minikube, namespace, "deployments/web")["spec"] == before


def test_a_service_that_a_person_opened_is_closed_again(
    stack: Stack, minikube: TestCluster, namespace: str, kubectl: Callable[..., None]
) -> None:
    before = live_of(minikube, namespace, "services/web")["spec"]
    port = {"name": "ssh", "port": 22, "nodePort": 30022}
    patched(kubectl, "service/web", spec={"type": "NodePort", "ports": [port]})
    assert {field.path for field in rows(look(stack))["Service"].differences} >= {
        "spec.ports[22,TCP]",
        "spec.type",
    }
    stack.apply()
    assert live_of(minikube, namespace, "services/web")["spec"] == before
    assert look(stack).ok


def test_what_a_person_set_and_took_back_is_no_drift(
    stack: Stack, minikube: TestCluster, namespace: str, kubectl: Callable[..., None]
) -> None:
    patched(kubectl, "service/web", spec={"sessionAffinity": "ClientIP"})
    patched(kubectl, "service/web", spec={"sessionAffinity": "None"})
    pod = {"dnsPolicy": "Default", "containers": [{"name": "main", "imagePullPolicy": "Always"}]}
    patched(kubectl, "deployment/web", spec={"template": {"spec": pod}})
    pod = {"dnsPolicy": "ClusterFirst", "containers": [{"name": "main", "imagePullPolicy": "IfNotPresent"}]}
    patched(kubectl, "deployment/web", spec={"template": {"spec": pod}})
    assert look(stack).ok
    assert stack.diff().ok
    before = live_of(minikube, namespace, "services/web")["metadata"]
    assert stack.apply().counts == {"unchanged": 4}
    assert live_of(minikube, namespace, "services/web")["metadata"] == before


def test_labels_and_annotations_of_people_stay_and_are_told_once(
    stack: Stack, minikube: TestCluster, namespace: str, kubectl: Callable[..., None]
) -> None:
    kubectl("label", "deployment/web", "team=red")
    kubectl("annotate", "secret/keys", "owner=me")
    kubectl("rollout", "restart", "deployment/web")
    metas = [live_of(minikube, namespace, where)["metadata"] for where in ("deployments/web", "secrets/keys")]
    pod = live_of(minikube, namespace, "deployments/web")["spec"]["template"]
    for result in (look(stack), stack.diff()):
        assert result.ok
        (note,) = result.notes
        assert all(
            word in note for word in ("labels.team", "annotations.owner", "restartedAt", "kubectl-label")
        )
    assert stack.apply().counts == {"unchanged": 4}
    (note,) = stack.notes
    assert "labels and annotations that people added stay" in note
    assert stack.apply().counts == {"unchanged": 4}
    assert (stack.notes, look(stack).notes, stack.diff().notes) == ([], (), ())
    live = live_of(minikube, namespace, "deployments/web")
    assert (live["metadata"]["labels"], live["spec"]["template"]) == (metas[0]["labels"], pod)
    assert live_of(minikube, namespace, "secrets/keys")["metadata"] == metas[1]


@pytest.mark.parametrize("how", ["annotation", "rule"])
def test_fields_of_people_are_kept_where_the_app_says_so(
    stack: Stack, minikube: TestCluster, namespace: str, kubectl: Callable[..., None], how: str
) -> None:
    paths = ("data.more", "data.also")
    manifests = objects()
    if how == "annotation":
        manifests[0]["metadata"]["annotations"] = {"mlstack.dev/ignore-fields": ", ".join(paths)}
        stack.write("web", *manifests)
    else:
        rules = "".join(f"  - {{path: {path}, manager: kubectl*, take: theirs}}\n" for path in paths)
        text = (stack.root / "app.yaml").read_text()
        (stack.root / "app.yaml").write_text(f"{text}conflicts:\n{rules}")
    stack.apply()
    patched(kubectl, "configmap/settings", data={"more": "1", "also": "2", "not": "3"})
    assert only(look(stack)).path == "data.not"
    stack.apply()
    assert live_of(minikube, namespace, "configmaps/settings")["data"].keys() == {"a", "b", "more", "also"}
    assert look(stack).ok
    assert stack.apply().counts == {"unchanged": 4}


@pytest.mark.parametrize("flags", [(), ("--server-side", "--force-conflicts")])
def test_what_people_add_with_kubectl_apply_goes_from_what_we_made(
    stack: Stack, minikube: TestCluster, namespace: str, kubectl: Callable[..., None], flags: tuple[str, ...]
) -> None:
    before = live_of(minikube, namespace, "deployments/web")["spec"]
    more = deployment(replicas=2, env=[{"name": "A", "value": "1"}, {"name": "X", "value": "9"}])
    more["spec"]["template"]["spec"]["hostNetwork"] = True
    kubectl("apply", *flags, "-f", "-", input=json.dumps(more))
    managers = {field.path: field.manager for field in rows(look(stack))["Deployment"].differences}
    manager = "kubectl" if flags else "kubectl-client-side-apply"
    assert managers == {
        "spec.template.spec.hostNetwork": manager,
        "spec.template.spec.containers[main].env[X]": manager,
    }
    assert stack.apply().counts == {"updated": 1, "unchanged": 3}
    assert live_of(minikube, namespace, "deployments/web")["spec"] == before
    assert look(stack).ok


def test_what_made_an_object_keeps_its_fields_and_what_is_patched_later_goes(
    stack: Stack, minikube: TestCluster, namespace: str, kubectl: Callable[..., None]
) -> None:
    theirs = {**config_map("theirs", a="1", b="2"), "metadata": {"name": "theirs"}}
    kubectl("apply", "-f", "-", input=json.dumps(theirs))
    stack.write("more", config_map("theirs", a="1"))
    stack.apply()
    patched(kubectl, "configmap/theirs", data={"c": "3"})
    assert only(look(stack)).path == "data.c"
    for _ in range(2):
        stack.apply()
        assert live_of(minikube, namespace, "configmaps/theirs")["data"] == {"a": "1", "b": "2"}
    assert look(stack).ok
    stack.apply(adopt=True)
    assert live_of(minikube, namespace, "configmaps/theirs")["data"] == {"a": "1"}


def test_what_cannot_be_taken_away_is_told_before_anything_is_written(
    stack: Stack, minikube: TestCluster, namespace: str, kubectl: Callable[..., None]
) -> None:
    patched(kubectl, "configmap/settings", immutable=True)
    assert only(look(stack)).path == "immutable"
    (row,) = [row for row in stack.diff().objects if row.fields]
    assert [field.path for field in row.fields] == ["immutable"]
    assert "cannot change while the object exists" in row.refused[0]
    assert "mlstack.dev/recreate" in row.hint
    settings = objects()[0]
    settings["metadata"]["annotations"] = {"mlstack.dev/recreate": "true"}
    stack.write("web", settings, *objects()[1:])
    stack.apply()
    assert "immutable" not in live_of(minikube, namespace, "configmaps/settings")


def test_a_number_that_no_file_says_stays_where_a_person_scaled(
    stack: Stack, minikube: TestCluster, namespace: str, kubectl: Callable[..., None]
) -> None:
    bare = objects()[3]
    del bare["spec"]["replicas"]
    bare["metadata"]["name"] = "bare"
    stack.write("more", bare)
    stack.apply()
    kubectl("scale", "deployment/bare", "--replicas=2")  # of which the server keeps no record
    assert stack.diff().ok
    patched(kubectl, "deployment/bare", spec={"replicas": 3})
    assert look(stack).ok
    assert f"`Deployment {namespace}/bare` leaves `spec.replicas` to `kubectl-patch`" in stack.diff().notes
    stack.apply()
    assert live_of(minikube, namespace, "deployments/bare")["spec"]["replicas"] == 3


def test_a_plan_and_a_rollback_take_away_what_people_added(
    stack: Stack, minikube: TestCluster, namespace: str, kubectl: Callable[..., None]
) -> None:
    before = contents(minikube, namespace)
    meddle(kubectl)
    plan = stack.plan()
    patched(kubectl, "configmap/settings", data={"later": "1"})
    with pytest.raises(OutdatedError, match=r"data\.later"):
        deploy.apply(plan, clock=stack.clock)
    patched(kubectl, "configmap/settings", data={"later": None})
    stack.rollback(1)
    assert contents(minikube, namespace) == before
    assert look(stack).ok


def without_empty(value: Any) -> Any:
    """Leave out empty maps; the server itself drops one that was filled and emptied."""
    if not isinstance(value, dict):
        return [without_empty(item) for item in value] if isinstance(value, list) else value
    return {key: without_empty(inner) for key, inner in value.items() if inner != {}}


def test_what_a_person_puts_into_an_empty_map_of_ours_goes(
    stack: Stack, minikube: TestCluster, namespace: str, kubectl: Callable[..., None]
) -> None:
    """As `kubectl create deployment --dry-run=client -o yaml` writes them."""
    bare = deployment("bare", resources={}, securityContext={})
    bare["spec"]["strategy"] = {}
    bare["spec"]["template"]["spec"]["securityContext"] = {}
    stack.write("more", bare)
    stack.apply()
    before = without_empty(live_of(minikube, namespace, "deployments/bare")["spec"])
    root = {"securityContext": {"runAsUser": 0}}
    main = {"name": "main", "resources": {"limits": {"cpu": "1"}}, **root}
    pod = {"spec": {"containers": [main], **root}}
    strategy = {"type": "Recreate", "rollingUpdate": None}
    patched(kubectl, "deployment/bare", spec={"strategy": strategy, "template": pod})
    fields = rows(look(stack))["Deployment"].differences
    assert {field.path: (field.cause, field.manager) for field in fields} == dict.fromkeys(
        (
            "spec.strategy.type",
            "spec.template.spec.containers[main].resources.limits",
            "spec.template.spec.containers[main].securityContext.runAsUser",
            "spec.template.spec.securityContext.runAsUser",
        ),
        ("person", "kubectl-patch"),
    )
    stack.apply()
    assert without_empty(live_of(minikube, namespace, "deployments/bare")["spec"]) == before
    assert look(stack).ok
    assert stack.apply().counts == {"unchanged": 5}


def test_a_custom_resource_is_put_back_as_the_files_say(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    group = f"{namespace}.drift.example.com"
    spec = {"size": 1, "tags": ["a"], "empty": {}}
    widget = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "one"}, "spec": spec}
    stack.write("widgets", crd(group=group), widget)
    stack.apply()
    edit = {"spec": {"more": {"b": 1}, "empty": {"x": 1}, "tags": ["a", "b"]}, "status": {"seen": 1}}
    try:
        words = ("patch", f"widgets.{group}", "one", "-n", namespace, "--type=merge", "-p", json.dumps(edit))
        minikube.kubectl(*words)
        (row,) = rows(look(stack)).values()
        assert {field.path for field in row.differences} == {"spec.more", "spec.empty.x", "spec.tags"}
        stack.apply()
        live = minikube.request("GET", f"/apis/{group}/v1/namespaces/{namespace}/widgets/one")
        assert live["spec"] == spec
        assert look(stack).ok
        assert stack.apply().counts == {"unchanged": 6}
    finally:
        minikube.kubectl("delete", "crd", f"widgets.{group}", "--wait=false")


def test_what_the_files_take_in_of_what_a_person_added_is_as_they_say(
    stack: Stack, minikube: TestCluster, namespace: str, kubectl: Callable[..., None]
) -> None:
    side = {"name": "side", "image": "side:1"}
    pod = {"containers": [{**side, "securityContext": {"runAsUser": 0}}]}
    patched(kubectl, "deployment/web", spec={"template": {"spec": pod}})
    wanted = objects()
    wanted[3]["spec"]["template"]["spec"]["containers"].append(side)
    stack.write("web", *wanted)
    (row,) = [row for row in stack.diff().objects if row.fields]
    assert [field.path for field in row.fields] == ["spec.template.spec.containers[side].securityContext"]
    stack.apply()
    opener, counted = stack.opener, []
    stack.opener = lambda context: counted.append(Counted(opener(context))) or counted[-1]
    assert stack.apply().counts == {"unchanged": 4}
    assert counted[0].asked["dry run"] == 1  # of the Secret, of which no hash is kept
    assert counted[0].written == []
