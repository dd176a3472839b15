"""What keeps a shared cluster safe: locks, rights, fixed fields, definitions, objects of others."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mlstack.cli.ports import holder
from mlstack.deploy.changes import ObjectChange
from mlstack.deploy.target import Holder
from mlstack.errors import ClusterError, ForbiddenError, InvalidError, LockedError
from mlstack.kube.client import ObjectRef
from mlstack.operations import deploy
from mlstack.operations.status import find_drift
from tests.support.cluster import TestCluster
from tests.support.deploying import (
    Objects,
    RealClock,
    Stack,
    config_map,
    crd,
    deployment,
    is_established,
    opener_of,
    outcomes,
    path,
)

pytestmark = pytest.mark.cluster

Data = dict[str, Any]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def row_of(stack: Stack, name: str) -> ObjectChange:
    (change,) = (row for row in stack.diff().objects if row.name == name)
    return change


def annotated(data: Mapping[str, Any], **annotations: str) -> Data:
    named = {f"mlstack.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    others = data["metadata"].get("annotations") or {}
    return {**data, "metadata": {**data["metadata"], "annotations": {**others, **named}}}


# --- fields that cannot change: every row of apply-kubernetes 7 ---------------------------------------


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """A change that the server refuses to make in place.

    Attributes:
        first: the object as it is made.
        then: as it is wanted later.
        text: what is told of it.
        anew: `asked` if the annotation lets it be made anew, `itself` if that needs no asking, `never`.
    """

    first: Data
    then: Data
    text: str
    anew: str = "asked"


def an_object(api_version: str, kind: str, name: str = "it", **content: Any) -> Data:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **content}


def workload(kind: str, labels: Mapping[str, str], **spec: Any) -> Data:
    pod = {"containers": [{"name": "main", "image": "nginx:1.27"}]}
    template = {"metadata": {"labels": dict(labels)}, "spec": pod}
    return an_object(
        "apps/v1", kind, spec={"selector": {"matchLabels": dict(labels)}, "template": template, **spec}
    )


def stateful(size: str = "1Gi", **spec: Any) -> Data:
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
    }
    facts = {"serviceName": "db", "replicas": 1, "volumeClaimTemplates": [claim], **spec}
    return workload("StatefulSet", {"app": "it"}, **facts)


def job(image: str = "job:1", completions: int = 1) -> Data:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": image}]}
    return an_object("batch/v1", "Job", spec={"completions": completions, "template": {"spec": pod}})


def claim(size: str = "1Gi", storage_class: str = "standard") -> Data:
    room = {"resources": {"requests": {"storage": size}}, "storageClassName": storage_class}
    return an_object("v1", "PersistentVolumeClaim", spec={"accessModes": ["ReadWriteOnce"], **room})


def service(address: str) -> Data:
    return an_object(
        "v1", "Service", spec={"clusterIP": address, "ports": [{"port": 80}], "selector": {"a": "b"}}
    )


def binding(role: str) -> Data:
    group = "rbac.authorization.k8s.io"
    return an_object(
        f"{group}/v1",
        "RoleBinding",
        roleRef={"apiGroup": group, "kind": "Role", "name": role},
        subjects=[{"kind": "User", "name": "ada", "apiGroup": group}],
    )


def storage_class(provisioner: str) -> Data:
    return an_object("storage.k8s.io/v1", "StorageClass", "safety-class", provisioner=provisioner)


ONE, TWO = {"app": "it"}, {"app": "it", "tier": "front"}
HEADLESS = "None"
FIXED = {
    "Deployment selector": Fixed(
        first=workload("Deployment", ONE), then=workload("Deployment", TWO), text="`spec.selector`"
    ),
    "DaemonSet selector": Fixed(
        first=workload("DaemonSet", ONE), then=workload("DaemonSet", TWO), text="`spec.selector`"
    ),
    "StatefulSet serviceName": Fixed(
        first=stateful(), then=stateful(serviceName="other"), text="`spec.serviceName`"
    ),
    "StatefulSet claims": Fixed(first=stateful(), then=stateful("2Gi"), text="`spec.volumeClaimTemplates"),
    "StatefulSet pod management": Fixed(
        first=stateful(), then=stateful(podManagementPolicy="Parallel"), text="`spec.podManagementPolicy`"
    ),
    "Job template": Fixed(first=job(), then=job("job:2"), text="`spec.template`", anew="itself"),
    "Job completions": Fixed(first=job(), then=job(completions=2), text="`spec.completions`", anew="itself"),
    "claim's class": Fixed(
        first=claim(), then=claim(storage_class="other"), text="`spec.storageClassName`", anew="never"
    ),
    "unbound claim's size": Fixed(
        first=claim(storage_class="nobody"),
        then=claim("2Gi", "nobody"),
        text="`spec.resources.requests.storage`",
        anew="never",
    ),
    "Service address": Fixed(
        first=service(HEADLESS), then=service("10.96.200.77"), text="`spec.clusterIPs[0]`"
    ),
    "role of a binding": Fixed(first=binding("one"), then=binding("two"), text="`roleRef`"),
    "StorageClass": Fixed(
        first=storage_class("example.com/one"), then=storage_class("example.com/two"), text="`provisioner`"
    ),
    "Secret type": Fixed(
        first=an_object("v1", "Secret", type="Opaque", stringData={"a": "hush-hush"}),
        then=an_object("v1", "Secret", type="example.com/other", stringData={"a": "hush-hush"}),
        text="`type`",
    ),
    "IngressClass": Fixed(
        first=an_object(
            "networking.k8s.io/v1", "IngressClass", "safety-class", spec={"controller": "example.com/one"}
        ),
        then=an_object(
            "networking.k8s.io/v1", "IngressClass", "safety-class", spec={"controller": "example.com/two"}
        ),
        text="`spec.controller`",
    ),
    "immutable ConfigMap": Fixed(
        first=an_object("v1", "ConfigMap", immutable=True, data={"a": "1"}),
        then=an_object("v1", "ConfigMap", immutable=True, data={"a": "2"}),
        text="`data`",
    ),
    "PriorityClass": Fixed(
        first=an_object("scheduling.k8s.io/v1", "PriorityClass", "safety-class", value=10),
        then=an_object("scheduling.k8s.io/v1", "PriorityClass", "safety-class", value=20),
        text="`value`",
    ),
}
CLUSTER_SCOPED = ("StorageClass", "IngressClass", "PriorityClass")


@pytest.fixture
def swept(minikube: TestCluster) -> Iterator[None]:
    """Nothing of this test is left outside its namespace."""
    yield
    for kind in CLUSTER_SCOPED:
        minikube.kubectl("delete", kind.lower(), "safety-class", "--ignore-not-found")


def named(text: str) -> str:
    """Give the names in backticks and what follows, without the object's own."""
    return text.rpartition("it`: ")[2] or text


def test_what_would_be_refused_anew_is_not_deleted(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.deploy("a", service(HEADLESS))
    before = minikube.request("GET", path(namespace, "services", "it"))
    stack.write("a", annotated(service("192.0.2.1"), recreate="true"))
    with pytest.raises(InvalidError, match="made anew it would be refused") as refused:
        stack.apply()
    assert "not in the valid range" in refused.value.message
    assert minikube.request("GET", path(namespace, "services", "it")) == before


@pytest.mark.usefixtures("swept")
@pytest.mark.parametrize("case", FIXED.values(), ids=FIXED)
def test_a_field_that_cannot_change_is_named_with_what_lets_it(stack: Stack, case: Fixed) -> None:
    stack.deploy("a", case.first)
    name, kind = case.first["metadata"]["name"], case.first["kind"]
    before = stack.opener("minikube").get(_ref(stack, case.first))
    stack.write("a", case.then)
    row = row_of(stack, name)
    if case.anew == "itself":
        assert (row.action, row.refused) == ("recreate", ())
        assert case.text in row.reason
    else:
        assert row.action == "update"
        (message,) = row.refused
        assert case.text in message
        assert "cannot change while the object exists" in message
        assert "hush-hush" not in message
        with pytest.raises(InvalidError) as refused:
            stack.apply()
        assert case.text in refused.value.message
        assert kind in refused.value.message
        lets = "never made anew" if case.anew == "never" else 'mlstack.dev/recreate: "true"'
        assert lets in (refused.value.hint or "")
        assert stack.opener("minikube").get(_ref(stack, case.first)) == before or kind not in (
            "ConfigMap",
            "Secret",
        )
    stack.write("a", annotated(case.then, recreate="true"))
    if case.anew == "never":
        assert row_of(stack, name).action == "update"
        return
    assert stack.plan().destructive
    assert outcomes(stack.apply())[name] == "recreated"
    assert before is not None
    live = stack.opener("minikube").get(_ref(stack, case.first))
    assert live is not None
    assert live["metadata"]["uid"] != before["metadata"]["uid"]
    assert stack.diff().ok


def _ref(stack: Stack, data: Data) -> ObjectRef:
    namespace = "" if data["kind"] in CLUSTER_SCOPED else stack.namespace
    return ObjectRef(data["apiVersion"], data["kind"], namespace, data["metadata"]["name"])


def test_no_part_of_a_pod_template_is_told(stack: Stack) -> None:
    stack.deploy("a", job("registry.example.com/secret-name:1"))
    changed = annotated(job(), recreate="never")
    changed["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": "hush-hush"}]
    stack.write("a", changed)
    with pytest.raises(InvalidError) as refused:
        stack.apply()
    assert "hush-hush" not in f"{refused.value.message} {refused.value.hint}"
    assert len(refused.value.message) < 300


def with_labels(data: Data, metadata: Any) -> Data:
    template = {**data["spec"]["template"], "metadata": metadata}
    return {**data, "spec": {**data["spec"], "template": template}}


@pytest.mark.parametrize(
    "metadata",
    [{}, {"creationTimestamp": None}, {"labels": {}}, {"labels": {"job-name": "it"}}],
    ids=["empty", "null", "no labels", "its name"],
)
def test_a_job_made_anew_is_shown_as_it_will_be(
    stack: Stack, minikube: TestCluster, namespace: str, metadata: Any
) -> None:
    stack.deploy("a", with_labels(job(), metadata))
    minikube.kubectl("patch", "job", "it", "-n", namespace, "-p", '{"spec": {"suspend": true}}')
    stack.write("a", with_labels(job("job:2"), metadata))
    plan, row = stack.plan(), row_of(stack, "it")
    assert (row.action, row.refused) == ("recreate", ())
    fields = [(field.path, field.old, field.new) for field in row.fields]
    assert fields == [
        ("spec.template.spec.containers[main].image", "job:1", "job:2"),
        ("spec.suspend", True, False),
    ]
    (drifted,) = find_drift(stack.target(), opener=stack.opener).objects
    assert [(field.path, field.live, field.wanted) for field in drifted.differences] == fields
    assert [field.cause for field in drifted.differences] == ["stale", "person"]
    assert "probe" not in repr((row, drifted))
    assert plan.changes.changes[0].digest == stack.plan().changes.changes[0].digest
    deploy.apply(plan, clock=stack.clock)
    assert stack.diff().ok


def test_what_the_server_chooses_for_an_object_made_anew_is_not_foretold(stack: Stack) -> None:
    selector = {"manualSelector": True, "selector": {"matchLabels": {"x": "y"}}}
    manual = with_labels(job(), {"labels": {"x": "y"}})
    service = an_object("v1", "Service", "svc", spec={"clusterIP": "None", "ports": [{"port": 80}]})
    stack.deploy("a", {**manual, "spec": {**manual["spec"], **selector}}, annotated(service, recreate="true"))
    opened = {**service, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}
    stack.write("a", manual, annotated(opened, recreate="true"))
    change = {field.path: field for field in row_of(stack, "it").fields}["spec.selector"]
    assert change.new == {"matchLabels": {"batch.kubernetes.io/controller-uid": "(UID of the new object)"}}
    fields = {field.path: (field.action, field.new) for field in row_of(stack, "svc").fields}
    assert fields == {"spec.clusterIP": ("removed", None), "spec.type": ("changed", "NodePort")}
    stack.apply()
    assert stack.diff().ok


# --- a StatefulSet and its claims ---------------------------------------------------------------------


@pytest.mark.parametrize("changed", ["claims", "service"])
def test_a_stateful_set_made_anew_keeps_claims_that_it_owns(
    stack: Stack, minikube: TestCluster, namespace: str, changed: str
) -> None:
    owning = {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"}}
    stack.deploy("a", stateful(**owning))
    disk = path(namespace, "persistentvolumeclaims", "data-it-0")
    first = minikube.wait_for(disk, lambda live: live["metadata"].get("ownerReferences"), what="owned claim")
    pod = minikube.wait_for(
        path(namespace, "pods", "it-0"), lambda pod: pod["status"].get("phase") == "Running"
    )
    then = stateful("2Gi", **owning) if changed == "claims" else stateful(serviceName="other", **owning)
    stack.write("a", annotated(then, recreate="true"))
    assert outcomes(stack.apply()) == {"it": "recreated"}
    minikube.wait_for(
        path(namespace, "statefulsets", "it"), lambda live: live["status"].get("readyReplicas") == 1
    )
    again = minikube.request("GET", disk)
    assert again["metadata"]["uid"] == first["metadata"]["uid"]
    assert "deletionTimestamp" not in again["metadata"]
    same_pod = (
        minikube.request("GET", path(namespace, "pods", "it-0"))["metadata"]["uid"] == pod["metadata"]["uid"]
    )
    assert same_pod is (changed == "claims")


# --- the lock -----------------------------------------------------------------------------------------


def test_of_applies_at_once_each_ends_whole(stack: Stack, namespace: str, kubeconfig: Path) -> None:
    """Each run writes both objects with its own word; whoever is last, both say the same in the end."""
    stacks = [
        Stack(stack.root.parent / f"app-{number}", namespace=namespace, opener=opener_of(kubeconfig))
        for number in range(4)
    ]
    for number, writer in enumerate(stacks):
        writer.write("a", *(config_map(f"c{index}", word=str(number)) for index in range(20)))
    failures: list[Exception] = []

    def run(number: int) -> None:
        try:
            stacks[number].apply(holder=Holder(name=f"person-{number}@laptop/{number}/x"))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(isinstance(error, ClusterError) for error in failures), failures
    assert len(failures) < 4
    cluster = stack.opener("minikube")
    words = {
        item["data"]["word"]
        for item in cluster.list("v1", "ConfigMap", namespace=namespace).items
        if item["metadata"]["name"].startswith("c")
    }
    assert len(words) == 1, failures
    assert cluster.list("coordination.k8s.io/v1", "Lease", namespace=namespace).items == ()


HOLD = """
import sys
from mlstack.cli.ports import SystemClock
from mlstack.cli.ports import holder
from mlstack.kube import api_server as kube
from mlstack.deploy import lock
from mlstack.app.environment import Environment

place = Environment(name="minikube", context="minikube", namespace=sys.argv[2])
cluster = kube.connect("minikube", kubeconfig=sys.argv[1])
who = holder("ada@laptop")
with lock.hold(cluster, place, "demo", holder=who, clock=SystemClock(), on_event=print):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holding(namespace: str, kubeconfig: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock."""
    words = [sys.executable, "-c", HOLD, str(kubeconfig), namespace]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ}
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_killed_run_of_this_machine_blocks_nobody(
    stack: Stack, namespace: str, minikube: TestCluster, holding: subprocess.Popen[str]
) -> None:
    holding.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, holding.pid, os.WEXITED | os.WNOWAIT)
    assert minikube.find(path(namespace, "leases", "mlstack-demo.minikube")) is not None
    stack.write("a", config_map())
    began = RealClock().now_s()
    assert outcomes(stack.apply(holder=holder("grace@laptop"), lock_timeout_s=0)) == {"settings": "created"}
    assert RealClock().now_s() - began < 25
    assert any("took over the lock of ada@laptop" in event.text for event in stack.events)


def test_a_run_of_another_machine_is_named_and_once_killed_blocks_for_seconds_alone(
    stack: Stack, holding: subprocess.Popen[str]
) -> None:
    stack.write("a", config_map())
    other = Holder(name="grace@elsewhere/1/x")
    with pytest.raises(LockedError, match=rf"held by ada@laptop \(pid {holding.pid}\) since .*, expires in"):
        stack.apply(holder=other, lock_timeout_s=0)
    holding.send_signal(signal.SIGKILL)
    began = RealClock().now_s()
    assert outcomes(stack.apply(holder=other)) == {"settings": "created"}
    assert 5 < RealClock().now_s() - began < 60


# --- rights -------------------------------------------------------------------------------------------


def test_the_commands_that_are_told_grant_what_is_missing(
    tmp_path: Path, namespace: str, minikube: TestCluster
) -> None:
    user = minikube.create_user(f"{namespace}-poor", [], namespace=namespace)
    config = minikube.write_kubeconfig(tmp_path / "poor", user)
    stack = Stack(tmp_path / "app", namespace=namespace, opener=opener_of(config))
    stack.write("web", deployment(), config_map(), stateful())
    for _ in range(3):
        try:
            result = stack.apply()
            break
        except ForbiddenError as refused:
            assert "missing for this run on environment `minikube`" in refused.message
            for line in (refused.hint or "").splitlines():
                if "kubectl create" in line:
                    minikube.kubectl(*shlex.split(line.strip().replace("USER", user.name))[1:])
    else:
        pytest.fail("never granted")
    assert outcomes(result) == {"settings": "created", "web": "created", "it": "created"}


def test_all_missing_rights_are_told_before_anything_is_written(
    tmp_path: Path, namespace: str, minikube: TestCluster
) -> None:
    rules = [
        {
            "apiGroups": ["", "apps"],
            "resources": ["configmaps", "deployments"],
            "verbs": ["get", "list", "patch"],
        },
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
    ]
    user = minikube.create_user(f"{namespace}-half", rules, namespace=namespace)
    config = minikube.write_kubeconfig(tmp_path / "half", user)
    stack = Stack(tmp_path / "app", namespace=namespace, opener=opener_of(config))
    stack.write("web", deployment(), config_map())
    with pytest.raises(ForbiddenError) as refused:
        stack.apply()
    assert refused.value.message.splitlines()[1:] == [
        f"  create deployments.apps in namespace {namespace}",
        f"  create, delete, get, update leases.coordination.k8s.io in namespace {namespace}",
    ]
    assert minikube.request("GET", path(namespace, "configmaps"))["items"][1:] == []
    stack.write("web", config_map())
    assert not stack.diff().ok  # looking needs less


# --- definitions --------------------------------------------------------------------------------------


@pytest.fixture
def group(namespace: str, minikube: TestCluster) -> Iterator[str]:
    """An API group of this test alone."""
    name = f"{namespace}.safety.example.com"
    yield name
    minikube.kubectl("delete", "crd", f"widgets.{name}", "--ignore-not-found", "--wait=false")


def definition(group: str, *fields: str, rules: Objects = (), **spec: Any) -> Data:
    data = crd(group=group)
    named = {name: {"type": "string"} for name in fields}
    inner = {
        "type": "object",
        "properties": named,
        **({"x-kubernetes-validations": list(rules)} if rules else {}),
    }
    schema = {"type": "object", "properties": {"spec": inner}}
    data["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    data["spec"] |= spec
    return data


def version(data: Data, name: str, *, storage: bool) -> Data:
    return {**data["spec"]["versions"][0], "name": name, "storage": storage}


@pytest.mark.parametrize("change", ["scope", "stored version"])
def test_what_the_server_refuses_of_a_definition_is_explained(
    stack: Stack, minikube: TestCluster, group: str, change: str
) -> None:
    stack.deploy("a", definition(group, "size"))
    minikube.wait_for(f"{DEFINITIONS}/widgets.{group}", is_established)
    then = definition(group, "size", scope="Cluster")
    reason = "`scope` would change from Namespaced to Cluster"
    if change == "stored version":
        then = definition(group, "size")
        then["spec"]["versions"] = [version(then, "v2", storage=True)]
        reason = "version `v1` would be removed, and objects are stored in it"
    for wanted in (then, annotated(then, recreate="true")):
        stack.write("a", wanted)
        with pytest.raises(InvalidError) as refused:
            stack.apply()
        assert reason in refused.value.message
        assert "never made anew" in (refused.value.hint or "")


def test_an_object_follows_to_a_version_that_its_definition_gets_in_the_same_run(
    stack: Stack, minikube: TestCluster, group: str
) -> None:
    first, second = (definition(group, "size", field) for field in ("old", "fresh"))
    widget = {"kind": "Widget", "metadata": {"name": "it"}}
    stack.deploy("a", first, {**widget, "apiVersion": f"{group}/v1", "spec": {"size": "1", "old": "x"}})
    both = [version(first, "v1", storage=False), version(second, "v2", storage=True)]
    wanted = {**widget, "apiVersion": f"{group}/v2", "spec": {"size": "1", "fresh": "y"}}
    stack.write("a", {**first, "spec": {**first["spec"], "versions": both}}, wanted)
    assert row_of(stack, "it").action == "update"
    assert outcomes(stack.apply())["it"] == "updated"
    live = minikube.request("GET", f"/apis/{group}/v2/namespaces/{stack.namespace}/widgets/it")
    assert live["spec"] == wanted["spec"]
    assert stack.diff().ok


def test_what_another_environment_makes_meanwhile_stays_with_it(stack: Stack, group: str) -> None:
    file = stack.root / "environments/minikube/environment.yaml"
    stack.write_text("environments/late/environment.yaml", file.read_text())
    widget = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "it"}}
    stack.write("a", definition(group, "size"), widget)
    late = stack.plan("late")
    stack.apply()
    with pytest.raises(ClusterError, match="since it was shown: it belongs to environment `minikube`"):
        deploy.apply(late, clock=stack.clock)


def test_a_rule_of_a_definition_about_changes_is_told_in_its_words(
    stack: Stack, minikube: TestCluster, group: str
) -> None:
    rule = {"rule": "self.mode == oldSelf.mode", "message": "the mode is chosen once"}
    widget = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "it"}}
    stack.write("a", definition(group, "mode", rules=[rule]))
    stack.deploy("b", {**widget, "spec": {"mode": "fast"}})
    stack.write("b", {**widget, "spec": {"mode": "slow"}})
    (message,) = row_of(stack, "it").refused
    assert message == "`spec.mode` cannot change while the object exists (the mode is chosen once)"
    stack.write("b", annotated({**widget, "spec": {"mode": "slow"}}, recreate="true"))
    assert outcomes(stack.apply())["it"] == "recreated"
