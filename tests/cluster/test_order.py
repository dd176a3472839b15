"""What comes after what on a real API server, and everything that goes wrong on the way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event as Flag
from threading import Timer
from typing import Any

import pytest

from mlstack.deploy.changes import RunEvent, RunResult
from mlstack.deploy.prune import KeepOptions
from mlstack.errors import (
    ClusterError,
    ConfigError,
    ForbiddenError,
    InvalidError,
    MlstackError,
    NotReadyError,
)
from mlstack.objects.order import DEPENDS_ON
from mlstack.operations import deploy
from tests.support.cluster import TestCluster
from tests.support.deploying import FastClock, Stack, config_map, crd, deployment, opener_of, path, secret
from tests.support.fakeapi import status
from tests.support.troubled import Troubled
from tests.support.waiting import wait_until
from tests.support.webhook import admission

pytestmark = pytest.mark.cluster

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TIMEOUT = "mlstack.dev/timeout"
EVERYTHING = KeepOptions(definitions=False)


def annotated(obj: dict[str, Any], **annotations: str) -> dict[str, Any]:
    keys = {"after": DEPENDS_ON, "timeout": TIMEOUT, "waiting": "mlstack.dev/test-waiting"}
    metadata = {**obj["metadata"], "annotations": {keys[key]: text for key, text in annotations.items()}}
    return {**obj, "metadata": metadata}


def stuck(name: str = "web", *, timeout: str = "4s", **container: Any) -> dict[str, Any]:
    """Build a Deployment whose image cannot be pulled."""
    manifest = annotated(deployment(name, **container), timeout=timeout)
    template = manifest["spec"]["template"]
    template["metadata"]["annotations"] = {"mlstack.dev/test-waiting": "ImagePullBackOff"}
    return manifest


def job(image: str = "i", *, exits: str = "0", text: str = "a") -> dict[str, Any]:
    container = {"name": "main", "image": image, "env": [{"name": "A", "value": text}]}
    pod = {"restartPolicy": "Never", "containers": [container]}
    template = {"metadata": {"annotations": {"mlstack.dev/test-exit": exits}}, "spec": pod}
    spec = {"backoffLimit": 0, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "migrate"}, "spec": spec}


def outcomes(result: object) -> dict[str, str]:
    assert isinstance(result, RunResult)
    return {row.name: row.outcome for row in result.objects}


def texts(result: object) -> dict[str, str]:
    assert isinstance(result, RunResult)
    return {row.name: row.text for row in result.objects}


def failed(stack: Stack, kind: type[MlstackError] = MlstackError, **options: Any) -> MlstackError:
    with pytest.raises(kind) as caught:
        stack.apply(**options)
    return caught.value


def applied(stack: Stack, on_event: Callable[[RunEvent], None]) -> RunResult:
    """Apply, telling what happens as it does."""
    return deploy.apply(stack.plan(), clock=stack.clock, on_event=on_event)


class After:
    """Does something once so many objects have ended."""

    def __init__(self, count: int, what: Callable[[], object]) -> None:
        self._left, self._what = count, what

    def __call__(self, event: RunEvent) -> None:
        if event.identity is not None:
            self._left -= 1
            if self._left == 0:
                self._what()


def many(count: int = 200) -> list[dict[str, Any]]:
    return [config_map(f"many-{number:03}", a="b") for number in range(count)]


# --- what people say -------------------------------------------------------------------------------


def test_an_annotation_waits_until_what_it_names_works(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    late = annotated(config_map("late"), after=f"apps/namespaces/{namespace}/Deployment/web")
    stack.write("a", late, deployment(replicas=2), config_map("early"))
    status: dict[str, Any] = {}

    def look(event: RunEvent) -> None:
        if event.identity is not None and event.identity.name == "late" and event.kind == "created":
            status.update(minikube.request("GET", path(namespace, "deployments", "web"))["status"])

    result = applied(stack, look)
    assert status["readyReplicas"] == 2
    assert list(outcomes(result)).index("late") > list(outcomes(result)).index("web")


def test_what_depends_on_something_that_does_not_work_is_skipped_and_the_rest_goes_on(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    late = annotated(config_map("late"), after="apps/Deployment/web")
    later = annotated(config_map("later"), after="/ConfigMap/late")
    stack.write("a", stuck(), late, later)
    stack.write("b", config_map("other"))
    error = failed(stack, NotReadyError)
    assert outcomes(error.partial) == {
        "web": "created",
        "late": "skipped",
        "later": "skipped",
        "other": "created",
    }
    assert "ImagePullBackOff" in error.message
    reasons = texts(error.partial)
    assert reasons["late"] == f"depends on `Deployment {namespace}/web`, which is not ready"
    assert reasons["later"] == f"depends on `ConfigMap {namespace}/late`, which was skipped"
    assert minikube.find(path(namespace, "configmaps", "late")) is None


def test_a_job_that_others_depend_on_has_to_end_well(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    late = annotated(config_map("late"), after="batch/Job/migrate")
    stack.write("a", job(), late)
    assert outcomes(stack.apply())["late"] == "created"
    live = minikube.request("GET", path(namespace, "jobs", "migrate"))
    assert live["status"]["succeeded"] == 1
    stack.delete()
    stack.write("a", job(exits="3"), late)
    error = failed(stack, NotReadyError)
    assert outcomes(error.partial)["late"] == "skipped"


def test_a_target_outside_the_run_has_to_be_there(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    late = annotated(config_map("late"), after=f"/namespaces/{namespace}/Secret/theirs")
    stack.write("a", late, config_map("other"))
    error = failed(stack, ConfigError)
    assert f"`ConfigMap {namespace}/late` depends on `Secret {namespace}/theirs`" in error.message
    assert minikube.find(path(namespace, "configmaps", "other")) is None
    minikube.kubectl("create", "secret", "generic", "theirs", "-n", namespace)
    assert outcomes(stack.apply()) == {"late": "created", "other": "created"}


def test_a_circle_is_refused_before_anything_is_written(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.write(
        "a",
        annotated(config_map("one"), after="/ConfigMap/two"),
        annotated(config_map("two"), after="/ConfigMap/one"),
        config_map("other"),
    )
    assert "in a circle: `ConfigMap" in failed(stack, ConfigError).message
    assert minikube.find(path(namespace, "configmaps", "other")) is None


# --- hooks of charts -------------------------------------------------------------------------------


def as_hook(obj: dict[str, Any], events: str, weight: int = 0, **policy: str) -> dict[str, Any]:
    annotations = {"helm.sh/hook": events, "helm.sh/hook-weight": str(weight)}
    annotations |= {"helm.sh/hook-delete-policy": policy["deleted"]} if policy else {}
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def named(name: str, obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "name": name}}


def test_hooks_of_a_chart_end_one_after_the_other_before_and_after_the_rest(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    migrate = as_hook(named("migrate", job()), "pre-install,pre-upgrade", 5)
    check = as_hook(named("check", job()), "pre-install", -5)
    report = as_hook(named("report", job()), "post-install,post-upgrade")
    script = as_hook(config_map("script"), "pre-install", -10)
    stack.write("a", deployment("web"), config_map("settings"), report, migrate, check, script)
    ended: list[tuple[str, list[str], int]] = []

    def look(event: RunEvent) -> None:
        if event.identity is not None and event.kind == "created":
            jobs = minikube.request("GET", path(namespace, "jobs"))["items"]
            succeeded = [item["metadata"]["name"] for item in jobs if item["status"].get("succeeded")]
            web = minikube.find(path(namespace, "deployments", "web")) or {}
            ready = web.get("status", {}).get("readyReplicas", 0)
            ended.append((event.identity.name, sorted(succeeded), ready))

    applied(stack, look)
    names = [name for name, _, _ in ended]
    assert names[:3] == ["script", "check", "migrate"]
    before = {name: (succeeded, ready) for name, succeeded, ready in ended}
    assert before["migrate"][0] == ["check"]
    assert before["settings"][0] == before["web"][0] == ["check", "migrate"]
    assert (names[-1], before["report"][1]) == ("report", 1)
    assert set(outcomes(stack.apply()).values()) == {"unchanged"}


@pytest.mark.parametrize("policy", ["", "before-hook-creation,hook-succeeded", "hook-failed"])
def test_a_hook_that_failed_runs_again_at_the_next_apply(
    stack: Stack, minikube: TestCluster, namespace: str, policy: str
) -> None:
    more = {"deleted": policy} if policy else {}
    stack.write("a", as_hook(job(exits="3"), "pre-install,pre-upgrade", **more), config_map())
    error = failed(stack, NotReadyError)
    assert outcomes(error.partial) == {"migrate": "created", "settings": "skipped"}
    first = minikube.request("GET", path(namespace, "jobs", "migrate"))["metadata"]["uid"]
    assert stack.diff().counts["recreate"] == 1
    error = failed(stack, NotReadyError)
    assert outcomes(error.partial) == {"migrate": "recreated", "settings": "skipped"}
    assert minikube.request("GET", path(namespace, "jobs", "migrate"))["metadata"]["uid"] != first
    stack.write("a", as_hook(job(), "pre-install,pre-upgrade", **more), config_map())
    assert outcomes(stack.apply()) == {"migrate": "recreated", "settings": "created"}
    assert set(outcomes(stack.apply()).values()) == {"unchanged"}


def test_a_failed_hook_stays_where_helm_would_leave_it_or_a_person_wants_it(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    migration = as_hook(job(exits="3"), "pre-install", deleted="hook-succeeded")
    never = as_hook(named("never", job(exits="3")), "pre-install")
    never["metadata"]["annotations"]["mlstack.dev/recreate"] = "never"
    stack.write("a", migration)
    stack.deploy("b", never)
    for name in ("migrate", "never"):
        minikube.wait_for(path(namespace, "jobs", name), lambda live: live.get("status", {}).get("failed"))
    assert set(outcomes(stack.apply()).values()) == {"unchanged"}


# --- what content needs ----------------------------------------------------------------------------


def test_definitions_and_many_objects_of_theirs_in_one_apply(stack: Stack, namespace: str) -> None:
    kinds = [("lamps", "Lamp"), ("fans", "Fan")]
    group = f"{namespace}.example.com"
    manifests = [
        {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": f"{plural}-{number}"}}
        for plural, kind in kinds
        for number in range(15)
    ]
    stack.write("jobs", *manifests)
    stack.write("definitions", *(crd(plural, kind, group=group) for plural, kind in kinds))
    assert set(outcomes(stack.apply()).values()) == {"created"}
    assert set(outcomes(stack.apply()).values()) == {"unchanged"}
    assert set(outcomes(stack.delete(spare=EVERYTHING)).values()) == {"deleted"}


@contextmanager
def released(cluster: TestCluster, path: str, after_s: float) -> Iterator[None]:
    """Take an object's finalizers away after a while."""
    timer = Timer(after_s, cluster.request, ("PATCH", path, {"metadata": {"finalizers": None}}))
    timer.start()
    try:
        yield
    finally:
        timer.join()


# --- what is being deleted -------------------------------------------------------------------------


def held(name: str = "settings") -> dict[str, Any]:
    manifest = config_map(name, a="1")
    return {**manifest, "metadata": {**manifest["metadata"], "finalizers": ["example.org/hold"]}}


def test_a_definition_and_objects_that_need_its_new_fields_change_in_one_run(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    group = f"{namespace}.example.com"

    def write(*properties: str, scope: str = "Namespaced", **spec: str) -> None:
        definition = crd("lamps", "Lamp", group=group, scope=scope)
        schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        types = {name: {"type": "string"} for name in properties}
        schema["properties"]["spec"] = {"type": "object", "properties": types}
        metadata = {"name": "one"}
        lamp = {"apiVersion": f"{group}/v1", "kind": "Lamp", "metadata": metadata, "spec": spec}
        stack.write("a", definition, lamp)

    write("size", size="large")
    stack.apply()
    write("size", "color", size="large", color="red")
    assert outcomes(stack.apply()) == {f"lamps.{group}": "updated", "one": "updated"}
    live = minikube.find(f"/apis/{group}/v1/namespaces/{namespace}/lamps/one")
    assert live is not None and live["spec"] == {"size": "large", "color": "red"}
    assert outcomes(stack.apply()) == {f"lamps.{group}": "unchanged", "one": "unchanged"}
    write("size", "color", size="large", color="red", scope="Cluster")
    with pytest.raises(InvalidError, match="scope"):
        stack.apply()
    minikube.kubectl("delete", "crd", f"lamps.{group}", "--wait=false")


def test_a_definition_that_is_being_deleted_is_waited_for(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    group = f"{namespace}.example.com"
    lamp = {"apiVersion": f"{group}/v1", "kind": "Lamp", "metadata": {"name": "one"}}
    stack.deploy("a", crd("lamps", "Lamp", group=group), lamp)
    address = f"/apis/{group}/v1/namespaces/{namespace}/lamps/one"
    finalizers = '{"metadata": {"finalizers": ["example.org/hold"]}}'
    minikube.kubectl("patch", f"lamps.{group}", "one", "-n", namespace, "--type=merge", "-p", finalizers)
    minikube.kubectl("delete", "crd", f"lamps.{group}", "--wait=false")
    with released(minikube, address, 0.7):
        assert outcomes(stack.apply()) == {f"lamps.{group}": "created", "one": "created"}
    assert minikube.find(address) is not None
    minikube.kubectl("delete", "crd", f"lamps.{group}", "--wait=false")


def test_a_namespace_that_is_being_deleted_is_made_anew(
    tmp_path: Path, kubeconfig: Path, minikube: TestCluster, namespace: str
) -> None:
    own = f"{namespace}-own"
    stack = Stack(tmp_path / "app", namespace=own, opener=opener_of(kubeconfig))
    stack.deploy("a", config_map("one"), config_map("two"))
    minikube.kubectl("apply", "-n", own, "-f", "-", input=json.dumps(held()))
    minikube.kubectl("delete", "namespace", own, "--wait=false")
    with released(minikube, path(own, "configmaps", "settings"), 0.7):
        result = stack.apply()
    assert outcomes(result) == {own: "created", "one": "created", "two": "created"}
    assert set(outcomes(stack.apply()).values()) == {"unchanged"}
    minikube.kubectl("delete", "namespace", own, "--wait=false")


def test_a_namespace_that_is_deleted_in_the_middle_is_told_and_the_next_apply_mends_it(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.write("a", *many())

    def drop() -> None:
        minikube.kubectl("delete", "namespace", namespace, "--wait=false")

    with pytest.raises(ClusterError, match=f"namespace `{namespace}`") as caught:
        applied(stack, After(20, drop))
    assert isinstance(caught.value.partial, RunResult)
    assert {"created", "failed"} >= set(outcomes(caught.value.partial).values())
    result = stack.apply()
    assert set(outcomes(result).values()) == {"created"}
    assert len(minikube.request("GET", f"/api/v1/namespaces/{namespace}/configmaps")["items"]) >= 200


# --- deleting --------------------------------------------------------------------------------------


def test_what_depends_on_something_is_gone_before_it_goes(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    web = deployment("web", replicas=2, envFrom=[{"configMapRef": {"name": "settings"}}])
    late = annotated(config_map("late"), after="apps/Deployment/web")
    stack.deploy("a", config_map(a="1"), web, late)
    order: list[str] = []
    left: list[bool] = []

    def look(event: RunEvent) -> None:
        if event.identity is not None and event.kind == "deleted":
            order.append(event.identity.name)
            pods = minikube.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
            left.append(bool(pods))

    deploy.apply(deploy.plan_delete(stack.target(), opener=stack.opener), clock=stack.clock, on_event=look)
    assert order == ["late", "web", "settings"]
    assert left == [True, False, False]


def test_a_definition_whose_object_does_not_go_says_so(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    group = f"{namespace}.example.com"
    stack.deploy("a", crd("lamps", "Lamp", group=group))
    metadata = {"name": "theirs", "namespace": namespace, "finalizers": ["example.org/hold"]}
    lamp = {"apiVersion": f"{group}/v1", "kind": "Lamp", "metadata": metadata}
    minikube.kubectl("apply", "-f", "-", input=json.dumps(lamp))
    stack.clock = FastClock(times=60)
    with (
        released(minikube, f"/apis/{group}/v1/namespaces/{namespace}/lamps/theirs", 4),
        pytest.raises(
            NotReadyError,
            match=rf"was not gone within 120 s; .*Lamp {namespace}/theirs \(example\.org/hold\)",
        ),
    ):
        stack.delete(spare=EVERYTHING)
    minikube.wait_until_gone(f"{DEFINITIONS}/lamps.{group}")


# --- webhooks --------------------------------------------------------------------------------------


def hook(
    name: str, client: Mapping[str, Any], *, namespace: str, resource: str, group: str = ""
) -> dict[str, Any]:
    webhook = {
        "name": "a.example.com",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 2,
        "clientConfig": dict(client),
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [
            {
                "apiGroups": [group],
                "apiVersions": ["v1"],
                "resources": [resource],
                "operations": ["CREATE", "UPDATE"],
            }
        ],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [webhook],
    }


def service(name: str = "web") -> dict[str, Any]:
    ports = [{"port": 443, "targetPort": 8443}]
    spec = {"selector": {"app": name}, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def own_hook(stack: Stack, minikube: TestCluster, namespace: str) -> Iterator[dict[str, Any]]:
    """A webhook configuration whose Service is part of the run."""
    client = {"service": {"namespace": namespace, "name": "web"}}
    yield annotated(
        hook(f"own-{namespace}", client, namespace=namespace, resource="deployments", group="apps"),
        timeout="5s",
    )
    minikube.kubectl("delete", "validatingwebhookconfiguration", f"own-{namespace}", "--ignore-not-found")


def test_a_webhook_is_set_up_once_its_service_answers(
    stack: Stack, minikube: TestCluster, namespace: str, own_hook: dict[str, Any]
) -> None:
    states: list[bool] = []

    def look(event: RunEvent) -> None:
        if event.identity is not None and event.identity.kind.startswith("Validating"):
            labels = "labelSelector=kubernetes.io%2Fservice-name%3Dweb"
            slices = minikube.request(
                "GET", f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?{labels}"
            )["items"]
            ready = [target["conditions"]["ready"] for part in slices for target in part["endpoints"] or ()]
            states.append(any(ready))

    stack.write("a", own_hook, service(), deployment("web"), config_map())
    result = applied(stack, look)
    assert states == [True]
    assert [row.name for row in result.objects][-1] == f"own-{namespace}"


def test_a_webhook_of_others_that_starts_is_waited_for(
    stack: Stack, minikube: TestCluster, namespace: str, tmp_path: Path
) -> None:
    name = f"theirs-{namespace}"
    stack.write("a", config_map("one", a="1"), secret("x"))
    begin, heard = Flag(), []

    def hear(event: RunEvent) -> None:
        if "admission webhook `a.example.com`" in event.text:
            heard.append(event)
            begin.set()

    def refuses() -> bool:
        tried = ("create", "secret", "generic", "tried", "-n", namespace, "--dry-run=server")
        return minikube.kubectl(*tried, check=False).returncode != 0

    with admission(tmp_path, begin=begin) as (port, authority):
        client = {"url": f"https://127.0.0.1:{port}/", "caBundle": authority}
        theirs = hook(name, client, namespace=namespace, resource="secrets")
        minikube.kubectl("apply", "-f", "-", input=json.dumps(theirs))
        wait_until(refuses, what="the API server to learn of the webhook")
        try:
            result = deploy.apply(stack.plan(), clock=stack.clock, on_event=hear)
        finally:
            minikube.kubectl("delete", "validatingwebhookconfiguration", name)
    assert outcomes(result) == {"one": "created", "x": "created"}
    assert heard


# --- what cannot change ----------------------------------------------------------------------------


def test_what_the_server_says_of_a_job_is_cut_before_its_template(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.deploy("a", job(text="very-secret-text"))
    changed = job(image="other", text="another-secret-text")
    changed["metadata"]["namespace"] = namespace
    with pytest.raises(InvalidError) as caught:
        stack.opener("minikube").apply(changed, force=True)
    message = str(caught.value)
    assert message.startswith(f"`Job {namespace}/migrate` is refused: `spec.template` ")
    assert "field is immutable" in message
    assert len(message) < 120
    assert "secret-text" not in message + repr(caught.value.causes)
    stack.write("a", changed)
    assert "secret-text" not in repr([change.reason for change in stack.plan().changes.changes])


# --- quota, credentials, servers that go -----------------------------------------------------------


def test_a_quota_fails_what_it_does_not_take_and_nothing_else(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    quotas = path(namespace, "resourcequotas", "none")
    none = {"metadata": {"name": "none"}, "spec": {"hard": {"count/secrets": "0"}}}
    minikube.request("POST", quotas.rpartition("/")[0], none)
    minikube.wait_for(quotas, lambda quota: quota.get("status", {}).get("hard"))
    stack.write("a", secret("x"), config_map())
    error = failed(stack, ForbiddenError)
    assert outcomes(error.partial) == {"x": "failed", "settings": "created"}
    assert "exceeded quota: none" in error.message
    assert f"kubectl describe quota -n {namespace}" in str(error.hint)
    stack.write("a", config_map(a="2"))
    assert stack.apply().ok
    assert any("exceeded quota" in note for note in stack.notes)  # there is no room for a revision either


def test_credentials_that_expire_in_the_middle_are_told_once(
    stack: Stack, minikube: TestCluster, namespace: str, tmp_path: Path
) -> None:
    stack.write("a", *many())
    directly, kubeconfig = stack.opener, tmp_path / "proxied"
    proxy = Troubled(minikube.login(namespace=namespace))
    with proxy.running(kubeconfig):
        stack.opener = opener_of(kubeconfig)
        plan = stack.plan()
        expired = status(401, "Unauthorized", reason="Unauthorized")
        proxy.trouble = lambda method, path: expired if proxy.passed["PATCH"] > 60 else None
        with pytest.raises(ForbiddenError, match="does not accept the credentials") as caught:
            deploy.apply(plan, clock=stack.clock)
    results = list(outcomes(caught.value.partial).values())
    assert 40 <= results.count("created") <= 62
    assert results.count("failed") <= 16
    assert "\n" not in caught.value.message
    stack.opener = directly
    assert set(outcomes(stack.apply()).values()) == {"created", "unchanged"}


def test_an_api_server_that_is_restarted_in_the_middle_is_ridden_out(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.write("a", *many(300))
    events: list[RunEvent] = []
    plan = stack.plan()
    with ThreadPoolExecutor(max_workers=1) as aside:
        running = aside.submit(deploy.apply, plan, clock=stack.clock, on_event=events.append)
        wait_until(lambda: len(events) > 30 or None, what="30 objects")
        minikube.restart_apiserver()
        result = running.result(timeout=90)
    assert set(outcomes(result).values()) == {"created"}
    assert [event.text for event in events if event.kind == "pending"] == [
        "the API server does not answer; trying again for 60 s",
        "the API server answers again",
    ]
    assert len(minikube.request("GET", f"/api/v1/namespaces/{namespace}/configmaps")["items"]) >= 300
    assert set(outcomes(stack.apply()).values()) == {"unchanged"}
