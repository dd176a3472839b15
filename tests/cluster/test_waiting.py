"""Waiting after an apply, on real API servers: reasons, ends, and what comes between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from mlstack.deploy.changes import RunEvent, RunResult
from mlstack.errors import MlstackError, NotReadyError
from mlstack.kube.api_server import connect
from mlstack.operations.deploy import apply
from tests.support.cluster import TestCluster
from tests.support.deploying import FastClock, Stack, config_map, crd, deployment, is_established, tfjob
from tests.support.training_operator import TrainingOperator
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
SMALL = {"resources": {"requests": {"cpu": "10m"}}}


class Background:
    """An apply in a thread: what it told, and how it ends."""

    def __init__(self, stack: Stack, **options: Any) -> None:
        """Start it."""
        self.begun_s = time.monotonic()
        self.events_s: list[tuple[float, RunEvent]] = []
        self.error: MlstackError | None = None
        self.result: RunResult | None = None
        plan = stack.plan(wait=True, **options)
        self._thread = Thread(target=self._run, args=(plan, stack.clock), daemon=True)
        self._thread.start()

    def _run(self, plan: Any, clock: Any) -> None:
        try:
            self.result = apply(plan, clock=clock, on_event=self._hear)
        except MlstackError as error:
            self.error = error

    def _hear(self, event: RunEvent) -> None:
        self.events_s.append((time.monotonic() - self.begun_s, event))

    def when(self, text: str) -> float:
        """Give the second at which something was told, waiting for it."""

        def look() -> float | None:
            return next((at for at, event in self.events_s if text in event.text), None)

        return wait_until(look, what=f"`{text}` to be told", timeout_s=40, details=lambda: self.events_s)

    def end(self, timeout_s: float = 120) -> RunResult:
        """Give the result once it is there."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), self.events_s
        assert self.error is None, self.error
        assert self.result is not None
        return self.result

    def failure(self, timeout_s: float = 120) -> NotReadyError:
        """Give the error that ended it."""
        self._thread.join(timeout_s)
        assert isinstance(self.error, NotReadyError), (self.error, self.result, self.events_s)
        return self.error


def states(result: object) -> dict[str, str]:
    assert isinstance(result, RunResult)
    return {row.name: row.state for row in result.objects}


def annotated(data: dict[str, Any], **annotations: str) -> dict[str, Any]:
    """Give a workload whose pods carry annotations."""
    template = data["spec"]["template"]
    names = {f"mlstack.dev/test-{name}": value for name, value in annotations.items()}
    metadata = {**template["metadata"], "annotations": names}
    return {**data, "spec": {**data["spec"], "template": {**template, "metadata": metadata}}}


def claim(name: str = "data", **spec: Any) -> dict[str, Any]:
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": asked}


def test_apply_ends_when_pods_run(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    stack.write("web", deployment(replicas=3, **SMALL), config_map(), claim())
    result = stack.apply(wait=True)
    assert states(result) == {"web": "ready", "settings": "ready", "data": "ready"}
    live = minikube.request("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments/web")
    assert live["status"]["readyReplicas"] == 3


def test_a_pod_without_gpu_is_told_soon(stack: Stack) -> None:
    stack.write("web", deployment(**GPU))
    run = Background(stack, timeout_s=8)
    reason = "no node of this cluster has nvidia.com/gpu (0/1 nodes: Insufficient nvidia.com/gpu)"
    run.when(reason)
    error = run.failure()
    assert error.reasons == (f"Deployment {stack.namespace}/web: 0 of 1 pods ready: {reason}",)
    assert states(error.partial) == {"web": "waiting"}


def test_a_rollout_says_what_its_new_pod_waits_for(stack: Stack) -> None:
    stack.write("web", deployment(**SMALL))
    assert states(stack.apply(wait=True)) == {"web": "ready"}
    stack.write("web", deployment(**GPU))
    run = Background(stack, timeout_s=7)
    why = "0 of 1 new pods ready: no node of this cluster has nvidia.com/gpu (0/1 nodes: Insufficient"
    run.when(why)
    row = stack.status().components[0].objects[0]
    assert (row.state, row.reason.startswith(why)) == ("waiting", True)
    assert row.reason in run.failure().message
    assert not [event for _, event in run.events_s if "ending" in event.text]


@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet", "Job"])
def test_a_probe_that_fails_is_told_while_waiting(
    stack: Stack, minikube: TestCluster, namespace: str, kind: str
) -> None:
    probe = {"httpGet": {"path": "/healthz", "port": 8080}}
    stack.write("web", unready(kind, readinessProbe=probe))
    run = Background(stack, timeout_s=8, wait_for_jobs=True)
    run.when("container main runs, but its readiness probe (GET /healthz on port 8080) has not succeeded yet")
    message = "Readiness probe failed: HTTP probe failed with statuscode: 503"
    say_unhealthy(minikube, namespace, message)
    run.when(f"container main: {message}")
    assert f"0 of 1 pods ready: container main: {message}" in stack.status().components[0].objects[0].reason
    assert message in run.failure().message


def unready(kind: str, **container: Any) -> dict[str, Any]:
    """Give a workload of any kind whose container runs and is never ready."""
    base = annotated(deployment(**SMALL, **container), unready="")
    names = ("template",) if kind == "Job" else ("selector", "template")
    spec = {name: base["spec"][name] for name in names}
    if kind == "Job":
        spec["template"]["spec"]["restartPolicy"] = "Never"
    group = "batch/v1" if kind == "Job" else "apps/v1"
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "web"}, "spec": spec}


def say_unhealthy(cluster: TestCluster, namespace: str, message: str) -> None:
    """Send the event of a kubelet about a probe of the only pod."""
    (pod,) = cluster.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    about = {name: pod["metadata"][name] for name in ("name", "namespace", "uid")}
    event = {
        "metadata": {"generateName": "probe-"},
        "type": "Warning",
        "reason": "Unhealthy",
        "message": message,
        "involvedObject": {**about, "apiVersion": "v1", "kind": "Pod", "fieldPath": "spec.containers{main}"},
        "lastTimestamp": pod["metadata"]["creationTimestamp"],
    }
    cluster.request("POST", f"/api/v1/namespaces/{namespace}/events", event)


def test_a_quota_is_told_as_what_it_is(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus"},
        "spec": {"hard": {"pods": 1}},
    }
    minikube.request("POST", f"/api/v1/namespaces/{namespace}/resourcequotas", quota)
    minikube.wait_for(
        f"/api/v1/namespaces/{namespace}/resourcequotas/gpus", lambda quota: quota["status"].get("used")
    )
    stack.write("web", deployment(replicas=2, **SMALL))
    run = Background(stack, timeout_s=8)
    run.when("1 of 2 pods ready: waiting for quota: exceeded quota: gpus")
    assert "waiting for quota" in run.failure().message


def test_an_image_that_cannot_be_pulled_ends_the_wait(stack: Stack) -> None:
    stack.clock = FastClock(times=5)
    begun_s = stack.clock.now_s()
    stack.write("web", annotated(deployment(**SMALL), waiting="ImagePullBackOff"))
    run = Background(stack)
    run.when("container main: ImagePullBackOff")
    error = run.failure()
    assert "failed: 0 of 1 pods ready: container main: ImagePullBackOff" in error.message
    assert stack.clock.now_s() - begun_s > 25


def test_a_claim_that_is_never_bound_tells_why(stack: Stack) -> None:
    stack.write("a", claim(storageClassName="no-such-class"))
    run = Background(stack, timeout_s=6)
    assert (
        'ProvisioningFailed: storageclass.storage.k8s.io "no-such-class" not found' in run.failure().message
    )


def test_a_claim_that_binds_late_is_not_waited_for(stack: Stack) -> None:
    stack.write("a", claim())
    result = stack.apply("gke", wait=True, timeout_s=10)
    assert result.objects[-1].state == "ready"
    assert result.objects[-1].reason == "is bound when its first pod starts"


def test_what_is_broken_and_unchanged_fails_as_well_until_it_is_mended(stack: Stack) -> None:
    broken = annotated(deployment(**SMALL), waiting="InvalidImageName")
    stack.deploy("web", broken)
    with pytest.raises(NotReadyError, match="InvalidImageName"):
        stack.apply(wait=True)
    with pytest.raises(NotReadyError) as caught:
        stack.apply(wait=True)
    assert caught.value.partial is not None
    stack.write("web", deployment(**SMALL))
    assert states(stack.apply(wait=True)) == {"web": "ready"}


def test_a_broken_stateful_and_daemon_set_can_be_mended(stack: Stack) -> None:
    def workloads(**annotations: str) -> list[dict[str, Any]]:
        base = annotated(deployment("all", **SMALL), **annotations)
        spec = {name: base["spec"][name] for name in ("selector", "template")}
        return [{"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "all"}, "spec": spec}]

    stack.write("a", *workloads(waiting="InvalidImageName"))
    with pytest.raises(NotReadyError, match="InvalidImageName"):
        stack.apply(wait=True)
    stack.write("a", *workloads())
    assert states(stack.apply(wait=True, timeout_s=60)) == {"all": "ready"}


def test_a_stateful_set_that_is_stuck_says_what_to_do(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    def workload(**annotations: str) -> dict[str, Any]:
        base = annotated(deployment("db", **SMALL), **annotations)
        spec = {name: base["spec"][name] for name in ("selector", "template")}
        metadata = {"name": "db"}
        return {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": metadata,
            "spec": {**spec, "serviceName": "db"},
        }

    stack.write("a", workload(waiting="InvalidImageName"))
    with pytest.raises(NotReadyError, match="InvalidImageName"):
        stack.apply(wait=True)
    stack.write("a", workload())
    run = Background(stack, timeout_s=60)
    run.when(f"does not replace such a pod by itself: kubectl delete pod db-0 -n {namespace}")
    minikube.kubectl("delete", "pod", "db-0", "-n", namespace)
    assert states(run.end()) == {"db": "ready"}


def test_a_job_without_operator_goes_on_by_itself(stack: Stack, definitions: None) -> None:
    stack.write("a", tfjob())
    begun_s = time.monotonic()
    result = stack.apply(wait=True)
    assert result.ok
    assert time.monotonic() - begun_s > 9
    assert "not waited for: no training operator has picked it up" in stack.notes[-1]
    assert stack.apply(wait=True).ok


def test_a_job_is_waited_for_when_asked(
    stack: Stack, definitions: None, minikube: TestCluster, training_operator: Callable[..., TrainingOperator]
) -> None:
    training_operator(minikube, "tfjob")
    stack.write("a", tfjob(workers=2))
    assert states(stack.apply(wait=True, wait_for_jobs=True)) == {"cnn": "ready"}


def test_a_wait_outlives_a_restart_of_the_api_server(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.write("web", deployment(replicas=2, **GPU))
    run = Background(stack, timeout_s=120)
    run.when("Insufficient nvidia.com/gpu")
    minikube.machinery.kill_apiserver()
    run.when("the API server does not answer")
    minikube.machinery.start_apiserver()
    run.when("the API server answers again")
    remove = [{"op": "remove", "path": "/spec/template/spec/containers/0/resources"}]
    wait_until(lambda: _patched(minikube, namespace, remove), what="the server to take a patch", timeout_s=40)
    assert states(run.end()) == {"web": "ready"}


def _patched(cluster: TestCluster, namespace: str, patch: list[dict[str, str]]) -> bool:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"
    try:
        cluster.request("PATCH", path, patch, content_type="application/json-patch+json")
    except Exception:  # whatever a server that starts answers, it is asked again
        return False
    return True


def test_an_object_that_somebody_makes_anew_ends_the_wait(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.write("web", deployment(**GPU))
    run = Background(stack, timeout_s=60)
    run.when("Insufficient nvidia.com/gpu")
    minikube.kubectl("delete", "deployment", "web", "-n", namespace, "--wait=true")
    minikube.kubectl("create", "deployment", "web", "--image=a", "-n", namespace)
    assert "somebody deleted it and made it anew" in run.failure(30).message


def test_an_object_that_somebody_deletes_ends_the_wait(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    stack.write("web", deployment(**GPU))
    run = Background(stack, timeout_s=60)
    run.when("Insufficient nvidia.com/gpu")
    minikube.kubectl("delete", "deployment", "web", "-n", namespace, "--wait=true")
    assert "somebody deleted it while it was waited for" in run.failure(30).message


def test_who_may_not_watch_pods_still_gets_an_answer(
    stack: Stack, minikube: TestCluster, namespace: str, kubeconfig: Path, control_plane: Any
) -> None:
    rules = [
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "patch", "create"]},
        {
            "apiGroups": ["", "coordination.k8s.io"],
            "resources": ["configmaps", "secrets", "leases", "persistentvolumeclaims"],
            "verbs": ["*"],
        },
    ]
    user = minikube.create_user("deployer", rules, namespace=namespace)
    stack.opener = lambda context: connect(
        context, kubeconfig=str(minikube.write_kubeconfig(kubeconfig.parent / "deployer", user))
    )
    stack.write("web", deployment(**SMALL))
    assert states(stack.apply(wait=True, timeout_s=60)) == {"web": "ready"}
    assert not any("reasons may be missing" in note for note in stack.notes)
    stack.write("web", deployment(replicas=2, **GPU))
    with pytest.raises(NotReadyError, match=r"pods ready|old pods"):
        stack.apply(wait=True, timeout_s=5)
    assert any("reasons may be missing" in note for note in stack.notes)


def test_forty_workloads_in_eight_namespaces(stack: Stack, minikube: TestCluster, namespace: str) -> None:
    spaces = [f"{namespace}-{number}" for number in range(8)]
    for name in spaces:
        minikube.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    manifests = []
    for name in spaces:
        for number in range(5):
            manifest = deployment(f"web-{number}", resources={"requests": {"cpu": "1m"}})
            manifests.append({**manifest, "metadata": {**manifest["metadata"], "namespace": name}})
    stack.write("web", *manifests)
    try:
        result = stack.apply(wait=True, timeout_s=120)
        assert {row.state for row in result.objects} == {"ready"}
    finally:
        for name in spaces:
            minikube.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def widgets(minikube: TestCluster) -> Iterator[None]:
    """A kind with a status that nobody but the test writes, for one test."""
    group = "readyrules.example.com"
    definition = crd(group=group)
    version = definition["spec"]["versions"][0]
    version["subresources"] = {"status": {}}
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version["schema"]["openAPIV3Schema"]["properties"]["status"] = status
    minikube.request("POST", DEFINITIONS, definition)
    minikube.wait_for(f"{DEFINITIONS}/widgets.{group}", is_established)
    yield
    minikube.kubectl("delete", "crd", f"widgets.{group}", "--ignore-not-found", "--wait=true")


def test_a_rule_of_the_app_says_when_its_kind_works(
    stack: Stack, minikube: TestCluster, namespace: str, widgets: None
) -> None:
    group = "readyrules.example.com"
    path = f"/apis/{group}/v1/namespaces/{namespace}/widgets/w/status"

    def tell(**status: Any) -> None:
        minikube.request("PATCH", path, {"status": status})

    def usable(status: str, message: str) -> dict[str, str]:
        return {"type": "Usable", "status": status, "reason": "Told", "message": message}

    app = (stack.root / "app.yaml").read_text()
    rule = f"""\
readiness:
- kind: {group}/Widget
  ready: {{condition: Usable}}
  failed: {{field: status.phase, values: [Broken, Lost]}}
  observedGeneration: true
"""
    (stack.root / "app.yaml").write_text(app + rule)
    widget = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"parts": 9}}
    stack.write("machine", widget)
    run = Background(stack, timeout_s=60)
    run.when("its controller has not seen the newest version yet")
    tell(observedGeneration=1, conditions=[usable("False", "7 of 9 parts")])
    run.when("7 of 9 parts")
    tell(observedGeneration=1, conditions=[usable("True", "")])
    assert states(run.end()) == {"w": "ready"}
    assert stack.status().ok
    stack.write("machine", {**widget, "spec": {"parts": 10}})
    run = Background(stack, timeout_s=60)
    run.when("its controller has not seen the newest version yet")
    tell(observedGeneration=2, phase="Lost", message="at sea", conditions=[usable("False", "")])
    assert "`status.phase` is Lost: at sea" in run.failure(30).message
    assert not stack.status().ok


def test_a_kind_without_a_status_is_not_waited_for(
    stack: Stack, minikube: TestCluster, namespace: str
) -> None:
    group = "silent.example.com"
    definition = crd(group=group)
    properties = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    properties["status"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    widget = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}}
    stack.write("a", definition, widget)
    try:
        begun_s = time.monotonic()
        result = stack.apply(wait=True, timeout_s=90)
        assert time.monotonic() - begun_s < 80
        assert result.objects[-1].reason == "its kind has no status to wait for"
        path = f"/apis/{group}/v1/namespaces/{namespace}/widgets/w"
        status = {"status": {"observedGeneration": 1}}
        minikube.request("PATCH", path, status)
        assert stack.apply(wait=True, timeout_s=8).ok
        assert stack.status().ok
    finally:
        minikube.kubectl("delete", "crd", f"widgets.{group}", "--wait=false")
