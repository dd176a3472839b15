"""Compare before write, on real API servers: what is unchanged, whose fields are whose, what was approved."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mlstack.deploy.plan import ApplyPlan
from mlstack.errors import OutdatedError
from mlstack.kube.api_server import connect
from mlstack.kube.client import ObjectRef
from mlstack.operations import deploy
from tests.support.cluster import TestCluster
from tests.support.counted import Counted
from tests.support.deploying import (
    Stack,
    autoscaler,
    config_map,
    crd,
    deployment,
    is_established,
    outcomes,
    secret,
)
from tests.support.looking import looked_at
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Eyes:
    """Opens clusters and remembers what was asked of the last one."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = str(kubeconfig)
        self.last: Counted

    def __call__(self, context: str) -> Any:
        self.last = Counted(connect(context, kubeconfig=self._kubeconfig))
        return self.last


@pytest.fixture
def eyes(kubeconfig: Path) -> Eyes:
    return Eyes(kubeconfig)


@pytest.fixture
def stack(tmp_path: Path, namespace: str, eyes: Eyes) -> Stack:
    """An app that deploys into the test's own namespace, as the admin of both clusters."""
    return Stack(tmp_path / "app", namespace=namespace, opener=eyes)


@pytest.fixture
def gone(minikube: TestCluster) -> Iterator[Callable[[str], None]]:
    """Definitions to be taken away after the test."""
    names: list[str] = []
    yield names.append
    for name in names:
        minikube.kubectl("delete", "crd", name, "--ignore-not-found", "--wait=false")


def path(namespace: str, name: str, kind: str = "deployments") -> str:
    group = {"deployments": "apis/apps/v1", "horizontalpodautoscalers": "apis/autoscaling/v2"}.get(
        kind, "api/v1"
    )
    return f"/{group}/namespaces/{namespace}/{kind}/{name}"


def owners(live: dict[str, Any], *field: str) -> set[str]:
    """Give the managers that own a field."""

    def has(tree: Any, steps: tuple[str, ...]) -> bool:
        return not steps or (steps[0] in tree and has(tree[steps[0]], steps[1:]))

    return {row["manager"] for row in live["metadata"]["managedFields"] if has(row["fieldsV1"], field)}


def write_as(
    cluster: TestCluster, manager: str, where: str, patch: dict[str, Any], *, subresource: str = ""
) -> dict[str, Any]:
    """Write as another field manager, as an operator or an autoscaler does."""
    target = f"{where}/{subresource}" if subresource else where
    live: dict[str, Any] = cluster.request("PATCH", f"{target}?fieldManager={manager}", patch)
    return live


def scaled(cluster: TestCluster, where: str, replicas: int) -> None:
    write_as(cluster, "kube-controller-manager", where, {"spec": {"replicas": replicas}}, subresource="scale")


# --- unchanged ------------------------------------------------------------------------------------


def test_a_foreign_change_is_found_although_the_rest_is_unchanged(
    stack: Stack, eyes: Eyes, minikube: TestCluster, namespace: str, gone: Callable[[str], None]
) -> None:
    definition = crd(group=f"{namespace}.example.com")
    gone(definition["metadata"]["name"])
    stack.write("a", definition, *(config_map(f"map-{number}", a="1") for number in range(8)))
    stack.apply()
    minikube.wait_for(f"{DEFINITIONS}/{definition['metadata']['name']}", is_established)
    write_as(minikube, "kubectl-edit", path(namespace, "map-3", "configmaps"), {"data": {"a": "2"}})
    assert [row.name for row in stack.diff().objects if row.action == "update"] == ["map-3"]
    assert eyes.last.asked["dry run"] == 1
    minikube.request("DELETE", path(namespace, "map-5", "configmaps"))
    changed = {row.name: row.action for row in stack.diff().objects if row.action != "unchanged"}
    assert changed == {"map-3": "update", "map-5": "create"}


def test_an_object_made_anew_by_others_is_not_taken_for_unchanged(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.write("a", config_map(a="1"))
    stack.apply()
    minikube.request("DELETE", path(namespace, "settings", "configmaps"))
    minikube.kubectl("create", "configmap", "settings", "--from-literal=a=other", "-n", namespace)
    assert [row.action for row in stack.diff().objects] == ["update"]


def test_who_may_not_list_is_told_the_same(
    tmp_path: Path, stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.write("a", *(config_map(f"map-{number}", a="1") for number in range(6)))
    stack.apply()
    verbs = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "patch", "create"]}
    lease = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}
    user = minikube.create_user(f"{namespace}-blind", [verbs, lease], namespace=namespace)
    config = minikube.write_kubeconfig(tmp_path / "blind", user)
    blind = Eyes(config)
    stack.opener = blind
    assert {row.action for row in stack.diff().objects} == {"unchanged"}
    assert blind.last.asked["dry run"] == 0


# --- conflicts ------------------------------------------------------------------------------------


def test_what_an_operator_set_stays_and_the_rest_is_applied(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    where = path(namespace, "web")
    limits = {"cpu": "100m", "memory": "64Mi"}
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]
    stack.write("a", deployment(replicas=0, resources={"limits": limits}, env=env))
    stack.apply()
    container = {
        "name": "main",
        "resources": {"limits": {"cpu": "300m", "memory": "96Mi"}},
        "env": [{"name": "A", "value": "theirs"}],
    }
    minikube.request(
        "PATCH",
        f"{where}?fieldManager=vpa-updater",
        {"spec": {"template": {"spec": {"containers": [container]}}}},
        content_type="application/strategic-merge-patch+json",
    )
    env[1]["value"] = "2"
    stack.write("a", deployment(replicas=0, resources={"limits": limits}, env=env))
    (row,) = stack.diff().objects
    assert [field.path for field in row.fields] == ["spec.template.spec.containers[main].env[B].value"]
    note = row.notes[0]
    assert note == (
        "leaves `spec.template.spec.containers[main].env[A].value`,"
        " `spec.template.spec.containers[main].resources.limits.cpu`,"
        " `spec.template.spec.containers[main].resources.limits.memory` to `vpa-updater`"
    )
    assert outcomes(stack.apply()) == {"web": "updated"}
    (live,) = minikube.request("GET", where)["spec"]["template"]["spec"]["containers"]
    assert live["resources"]["limits"] == {"cpu": "300m", "memory": "96Mi"}
    assert live["env"] == [{"name": "A", "value": "theirs"}, {"name": "B", "value": "2"}]
    again = stack.diff()
    assert again.ok
    assert again.notes[0].startswith(f"`Deployment {namespace}/web` leaves")
    before = minikube.request("GET", where)["metadata"]["resourceVersion"]
    stack.apply()
    assert minikube.request("GET", where)["metadata"]["resourceVersion"] == before


@pytest.mark.parametrize("names", [("", ""), ("http", "metrics")])
def test_a_port_that_a_person_changed_is_put_back(
    stack: Stack, minikube: TestCluster, namespace: str, names: tuple[str, str]
) -> None:
    ports = (
        [{"port": 80, "targetPort": 8080}]
        if names == ("", "")
        else [
            {"name": names[0], "port": 80, "targetPort": 8080},
            {"name": names[1], "port": 9090, "targetPort": 9090},
        ]
    )
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    stack.write("a", {**service, "spec": {"selector": {"app": "web"}, "ports": ports}})
    stack.apply()
    edit = '[{"op": "replace", "path": "/spec/ports/0/port", "value": 81}]'
    minikube.kubectl("patch", "service", "web", "-n", namespace, "--type=json", "-p", edit)
    (row,) = stack.diff().objects
    assert {(field.path, field.action) for field in row.fields} == {
        ("spec.ports[80,TCP]", "added"),
        ("spec.ports[81,TCP]", "removed"),
    }
    assert "`spec.ports[81,TCP]`, which a person put in the place of ours" in row.notes[0]
    assert outcomes(stack.apply()) == {"web": "updated"}
    live = minikube.request("GET", path(namespace, "web", "services"))
    assert [port["port"] for port in live["spec"]["ports"]] == [port["port"] for port in ports]
    assert stack.apply().counts == {"unchanged": 1}


def test_a_map_that_is_one_value_stays_as_a_whole(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    where = path(namespace, "web", "services")
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    }
    stack.write("a", service)
    stack.apply()
    write_as(minikube, "operator", where, {"spec": {"selector": {"app": "theirs"}}})
    service["spec"]["ports"][0]["targetPort"] = 9090  # type: ignore[index]
    stack.write("a", service)
    stack.apply()
    live = minikube.request("GET", where)["spec"]
    assert live["selector"] == {"app": "theirs"}
    assert live["ports"][0]["targetPort"] == 9090


# --- fields that the files no longer have ----------------------------------------------------------


def test_fields_a_person_changed_go_when_the_files_drop_them(
    stack: Stack, minikube: TestCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    labelled = config_map(a="1", b="1")
    labelled["metadata"]["labels"] = {"tier": "gold"}
    pod = {"args": ["a"], "imagePullPolicy": "Always", "env": [{"name": "A", "value": "1"}]}
    stack.write("a", labelled, secret(one="1", two="2"), deployment(**pod))
    stack.apply()
    monkeypatch.setenv("KUBE_EDITOR", f"sed -i {shlex.quote('s/^  b: .*/  b: edited/')}")
    minikube.kubectl("edit", "configmap", "settings", "-n", namespace)
    minikube.kubectl("label", "configmap", "settings", "tier=tin", "mine=yes", "--overwrite", "-n", namespace)
    changed = {"name": "main", "args": ["b", "c"], "imagePullPolicy": "IfNotPresent"}
    spec = json.dumps({"spec": {"template": {"spec": {"containers": [changed]}}}})
    minikube.kubectl("patch", "deployment", "web", "-p", spec, "-n", namespace)
    two = json.dumps({"data": {"two": "bm90IHR3bw=="}})
    minikube.kubectl("patch", "secret", "keys", "-p", two, "-n", namespace)
    stack.write("a", config_map(a="1"), secret(one="1"), deployment(env=pod["env"]))
    changes = {row.name: row for row in stack.diff().objects}
    assert {(field.path, field.action) for field in changes["settings"].fields} == {
        ("data.b", "removed"),
        ("metadata.labels.tier", "removed"),
    }
    assert set(changes["settings"].notes) == {
        "removes `data.b`, which `kubectl-edit` changed and the files no longer have",
        "removes `metadata.labels.tier`, which `kubectl-label` changed and the files no longer have",
    }
    assert [(field.path, field.action) for field in changes["web"].fields] == [
        ("spec.template.spec.containers[main].args", "removed")  # the policy is the server's own default
    ]
    assert [(field.path, field.old) for field in changes["keys"].fields] == [("data.two", "********")]
    assert set(outcomes(stack.apply()).values()) == {"updated"}
    assert minikube.request("GET", path(namespace, "settings", "configmaps"))["data"] == {"a": "1"}
    live = minikube.request("GET", path(namespace, "settings", "configmaps"))
    assert (live["metadata"]["labels"]["mine"], "tier" in live["metadata"]["labels"]) == ("yes", False)
    assert (
        "args"
        not in minikube.request("GET", path(namespace, "web"))["spec"]["template"]["spec"]["containers"][0]
    )
    assert set(minikube.request("GET", path(namespace, "keys", "secrets"))["data"]) == {"one"}
    assert stack.diff().ok
    assert looked_at(stack.target(), stack.opener).writes == ()


def test_the_number_a_person_scaled_to_stays_when_the_files_drop_it(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.write("a", deployment(replicas=2))
    stack.apply()
    minikube.kubectl("scale", "deployment/web", "--replicas=5", "-n", namespace)
    bare = deployment()
    del bare["spec"]["replicas"]
    stack.write("a", bare)
    diff = stack.diff()
    assert diff.ok
    assert diff.notes == (
        f"`Deployment {namespace}/web` leaves `spec.replicas` to `kubectl` (through `scale`)",
    )
    stack.apply()
    assert minikube.request("GET", path(namespace, "web"))["spec"]["replicas"] == 5


def test_a_plan_holds_what_goes_and_a_killed_run_is_made_good(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    where = path(namespace, "settings", "configmaps")
    stack.write("a", config_map(a="1", b="1"))
    stack.apply()
    write_as(minikube, "kubectl-edit", where, {"data": {"b": "2"}})
    stack.write("a", config_map(a="1"))
    plan = stack.plan()
    (change,) = plan.changes.changes
    # Between the two requests of the write.
    stack.opener("minikube").patch(
        ObjectRef("v1", "ConfigMap", namespace, "settings"), change.prepare, kind="json"
    )
    assert [field.path for row in stack.diff().objects for field in row.fields] == ["data.b"]
    deploy.apply(plan, clock=stack.clock, on_event=lambda _: None)
    assert minikube.request("GET", where)["data"] == {"a": "1"}
    assert stack.diff().ok


# --- replicas -------------------------------------------------------------------------------------


def test_replicas_are_sent_once_and_then_are_the_autoscalers(
    stack: Stack, eyes: Eyes, minikube: TestCluster, namespace: str
) -> None:
    where = path(namespace, "web")
    stack.write("a", deployment(replicas=2), autoscaler())
    stack.apply()
    live = minikube.request("GET", where)
    assert live["spec"]["replicas"] == 2
    assert "mlstack" not in owners(live, "f:spec", "f:replicas")
    assert set(outcomes(stack.apply()).values()) == {"unchanged"}
    assert eyes.last.written == []
    scaled(minikube, where, 5)
    assert stack.diff().ok
    stack.write("a", deployment(replicas=2, image="nginx:1.28"), autoscaler())
    assert outcomes(stack.apply())["web"] == "updated"
    live = minikube.request("GET", where)
    assert live["spec"]["replicas"] == 5
    assert owners(live, "f:spec", "f:replicas") == {"kube-controller-manager"}


def test_an_autoscaler_that_goes_gives_the_number_back(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    where = path(namespace, "web")
    stack.write("a", deployment(replicas=2), autoscaler())
    stack.apply()
    scaled(minikube, where, 5)
    stack.write("a", deployment(replicas=3))
    row = next(row for row in stack.diff().objects if row.name == "web")
    assert [field.path for field in row.fields] == ["spec.replicas"]
    stack.apply()
    live = minikube.request("GET", where)
    assert live["spec"]["replicas"] == 3
    assert owners(live, "f:spec", "f:replicas") == {"mlstack"}


def scale_by_an_autoscaler_that_goes(stack: Stack, minikube: TestCluster, where: str) -> None:
    """Bring two replicas and an autoscaler, let it ask for five, and take it away in a run of its own."""
    stack.write("a", deployment(replicas=2))
    stack.write("b", autoscaler())
    stack.apply()
    scaled(minikube, where, 5)
    stack.remove("b")
    stack.delete(components=("b",))


def test_the_number_stays_with_an_autoscaler_of_somebody_else_that_took_over(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    where = path(namespace, "web")
    scale_by_an_autoscaler_that_goes(stack, minikube, where)
    theirs = autoscaler()
    theirs["metadata"].update(name="theirs", namespace=namespace)
    minikube.request("POST", path(namespace, "", "horizontalpodautoscalers").rstrip("/"), theirs)
    assert stack.diff().ok
    stack.apply()
    assert minikube.request("GET", where)["spec"]["replicas"] == 5


def test_replicas_of_ours_are_handed_over_without_a_dip(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    where = path(namespace, "web")
    stack.write("a", deployment(replicas=3))
    stack.apply()
    generation = minikube.request("GET", where)["metadata"]["generation"]
    stack.write("a", deployment(replicas=3), autoscaler())
    assert [row.action for row in stack.diff().objects] == ["unchanged", "create"]
    stack.apply()
    live = minikube.request("GET", where)
    assert (live["spec"]["replicas"], live["metadata"]["generation"]) == (3, generation)
    assert owners(live, "f:spec", "f:replicas") == {"mlstack-handover"}
    scaled(minikube, where, 6)
    live = minikube.request("GET", where)
    assert owners(live, "f:spec", "f:replicas") == {"kube-controller-manager"}
    stack.apply()
    assert minikube.request("GET", where)["spec"]["replicas"] == 6


# --- take-over ------------------------------------------------------------------------------------


def test_what_kubectl_applied_is_taken_over_when_asked(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    theirs = deployment(replicas=2, args=["old"], env=[{"name": "A", "value": "1"}])
    theirs["metadata"]["labels"] = {"team": "ml"}
    from mlstack.yaml import write

    minikube.kubectl("apply", "-f", "-", "-n", namespace, input=write.to_yaml(theirs))
    stack.write("a", deployment(replicas=2))
    (row,) = stack.diff().objects
    (note,) = row.notes
    assert note.startswith(
        "was applied by `kubectl-client-side-apply`, what only that set stays; taking it over"
    )
    assert "`metadata.labels.team`" in note
    stack.apply()
    live = minikube.request("GET", path(namespace, "web"))
    assert live["metadata"]["labels"]["team"] == "ml"
    (row,) = [row for row in stack.apply(adopt=True, dry_run=True).objects]
    assert row.outcome == "updated"
    generation = live["metadata"]["generation"]
    assert outcomes(stack.apply(adopt=True)) == {"web": "updated"}
    live = minikube.request("GET", path(namespace, "web"))
    (container,) = live["spec"]["template"]["spec"]["containers"]
    assert "args" not in container
    assert "env" not in container
    assert "team" not in live["metadata"]["labels"]
    assert "kubectl.kubernetes.io/last-applied-configuration" not in live["metadata"].get("annotations", {})
    assert live["metadata"]["generation"] == generation + 1
    assert live["spec"]["replicas"] == 2
    assert stack.diff().ok
    assert outcomes(stack.apply(adopt=True)) == {"web": "unchanged"}


@pytest.mark.parametrize("operation", ["Apply", "Update"])
def test_what_helm_installed_is_taken_over_without_changing_the_number(
    stack: Stack, minikube: TestCluster, namespace: str, operation: str
) -> None:
    theirs = deployment(replicas=3, args=["old"])
    theirs["metadata"] |= {
        "namespace": namespace,
        "labels": {"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": "web-1"},
        "annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": namespace},
    }
    if operation == "Apply":
        minikube.request(
            "PATCH",
            f"{path(namespace, 'web')}?fieldManager=helm",
            theirs,
            content_type="application/apply-patch+yaml",
        )
    else:
        minikube.request("POST", f"{path(namespace, '').rstrip('/')}?fieldManager=helm", theirs)
    bare = deployment()
    del bare["spec"]["replicas"]
    stack.write("a", bare)
    assert any("Helm release `web`" in note for note in stack.diff().objects[0].notes)
    stack.apply(adopt=True)
    live = minikube.request("GET", path(namespace, "web"))
    assert live["spec"]["replicas"] == 3
    assert "args" not in live["spec"]["template"]["spec"]["containers"][0]
    assert "helm.sh/chart" not in live["metadata"]["labels"]
    assert "meta.helm.sh/release-name" not in live["metadata"].get("annotations", {})
    assert stack.diff().ok


def test_services_keep_their_addresses_when_taken_over(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    from mlstack.yaml import write

    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "labels": {"old": "1"}},
        "spec": {"type": "NodePort", "selector": {"app": "web"}, "ports": [{"port": 80}]},
    }
    minikube.kubectl("apply", "-f", "-", "-n", namespace, input=write.to_yaml(service))
    before = minikube.request("GET", path(namespace, "web", "services"))["spec"]
    del service["metadata"]["labels"]  # type: ignore[attr-defined]
    stack.write("a", service)
    (change,) = stack.plan(adopt=True).changes.changes
    assert not [field.path for field in change.fields if field.path.startswith("spec")]
    stack.apply(adopt=True)
    live = minikube.request("GET", path(namespace, "web", "services"))
    assert live["spec"] == before
    assert "old" not in live["metadata"]["labels"]


def test_owners_in_a_dropped_version_are_rewritten(
    stack: Stack, minikube: TestCluster, namespace: str, gone: Callable[[str], None]
) -> None:
    group = f"{namespace}.example.com"
    gone(f"widgets.{group}")
    definition = crd(group=group)
    (version,) = definition["spec"]["versions"]
    definition["spec"]["versions"] = [{**version, "name": "v1alpha1", "storage": False}, version]
    minikube.kubectl("apply", "--server-side", "-f", "-", input=_text(definition))
    minikube.wait_for(f"{DEFINITIONS}/widgets.{group}", is_established)
    widget = {
        "apiVersion": f"{group}/v1alpha1",
        "kind": "Widget",
        "metadata": {"name": "w"},
        "spec": {"a": 1},
    }
    stack.write("a", widget)
    stack.apply()
    definition["spec"]["versions"] = [version]
    minikube.kubectl("apply", "--server-side", "-f", "-", input=_text(definition))
    widget = {**widget, "apiVersion": f"{group}/v1", "spec": {"a": 2}}
    stack.write("a", widget)
    place = f"/apis/{group}/v1/namespaces/{namespace}/widgets/w"
    minikube.wait_for(place)
    (row,) = stack.diff().objects
    assert row.action == "update"
    assert row.notes[0].startswith("its field owners are rewritten first")
    assert outcomes(stack.apply()) == {"w": "updated"}
    assert minikube.request("GET", place)["spec"] == {"a": 2}
    assert stack.diff().ok


def _text(data: dict[str, Any]) -> str:
    from mlstack.yaml import write

    return write.to_yaml(data)


# --- what was approved ----------------------------------------------------------------------------


def approved(stack: Stack, before: dict[str, Any], after: dict[str, Any]) -> ApplyPlan:
    """Plan the change of an object that was applied."""
    stack.write("a", before)
    stack.apply()
    stack.write("a", after)
    return stack.plan()


def test_secrets_stay_hidden_in_messages_and_changes(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    where = path(namespace, "keys", "secrets")
    plan = approved(stack, secret(password="first-secret"), secret(password="second-secret"))
    write_as(minikube, "kubectl-edit", where, {"data": {"password": "dGhpcmQtc2VjcmV0"}})
    with pytest.raises(OutdatedError) as caught:
        deploy.apply(plan, clock=stack.clock)
    output = f"{caught.value.message} {plan.report} {[change.digest for change in plan.changes.changes]}"
    for hidden in ("secret-", "Zmlyc3Qtc2VjcmV0", "c2Vjb25kLXNlY3JldA", "dGhpcmQtc2VjcmV0", "-secret"):
        assert hidden not in output


# --- what the cluster changes itself --------------------------------------------------------------


@pytest.fixture
def mutating(minikube: TestCluster, namespace: str) -> Iterator[None]:
    """A policy that writes a label and an image of its own into Deployments of the namespace."""
    mutation = (
        "Object{metadata: Object.metadata{labels: {'team': 'platform'}},"
        " spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{"
        "containers: object.spec.template.spec.containers.map(one,"
        " Object.spec.template.spec.containers{name: one.name, image: 'mirror.example.com/nginx:1.27'})}}}}"
    )
    named = {"metadata": {"name": namespace}}
    writes = {"operations": ["CREATE", "UPDATE"], "resources": ["deployments"]}
    matched = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], **writes}],
    }
    mutations = [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": mutation}}]
    spec = {"reinvocationPolicy": "Never", "matchConstraints": matched, "mutations": mutations}
    policy = {**named, "kind": "MutatingAdmissionPolicy", "spec": spec}
    binding = {**named, "kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": namespace}}
    group = "/apis/admissionregistration.k8s.io"
    version = next((name for name in ("v1", "v1beta1") if minikube.find(f"{group}/{name}/{POLICIES}")), None)
    assert version is not None, "this API server has no mutating policies"
    minikube.request("POST", f"{group}/{version}/{POLICIES}", policy)
    minikube.request("POST", f"{group}/{version}/mutatingadmissionpolicybindings", binding)
    yield
    minikube.request("DELETE", f"{group}/{version}/mutatingadmissionpolicybindings/{namespace}")
    minikube.request("DELETE", f"{group}/{version}/{POLICIES}/{namespace}")


POLICIES = "mutatingadmissionpolicies"


@pytest.mark.usefixtures("mutating")
def test_what_admission_changes_on_every_write_is_no_difference(
    stack: Stack, eyes: Eyes, minikube: TestCluster, namespace: str
) -> None:
    where = path(namespace, "web")
    probe = deployment("probe")
    probe["metadata"]["namespace"] = namespace

    def mutates() -> bool:
        answer = minikube.request("POST", f"{path(namespace, '').rstrip('/')}?dryRun=All", probe)
        return "team" in answer["metadata"].get("labels", {})

    wait_until(mutates, what="the policy")
    stack.write("a", deployment())
    stack.apply()
    live = minikube.request("GET", where)
    assert live["metadata"]["labels"]["team"] == "platform"
    assert live["spec"]["template"]["spec"]["containers"][0]["image"] == "mirror.example.com/nginx:1.27"
    assert stack.diff().ok
    assert outcomes(stack.apply()) == {"web": "unchanged"}
    assert eyes.last.written == []
    tried = looked_at(stack.target(), eyes)
    assert not tried.visible
    stack.write("a", deployment(replicas=2))
    assert [field.path for field in stack.diff().objects[0].fields] == ["spec.replicas"]
    stack.apply()
    assert stack.diff().ok
    assert not looked_at(stack.target(), eyes).visible
