"""What is asked of a cluster about objects that do not work, how often, and what crashed containers wrote."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from mlstack.errors import ClusterError, ForbiddenError, TransientError, UnreachableError
from mlstack.kube import parallel
from mlstack.kube.client import ObjectRef
from mlstack.objects import masking
from mlstack.objects.kube_object import KubeObject
from mlstack.readiness import evaluate
from mlstack.readiness.evaluate import FRESH_S, Logs, StatusEvaluator, hidden
from mlstack.readiness.rule import Relatives
from tests.support.deploying import crd, deployment, secret
from tests.support.waiting import wait_until
from tests.support.watched import Watched

WIDGET = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "one"}, "spec": {}}


@pytest.fixture
def still() -> Watched:
    """A cluster in which nothing moves."""
    return Watched(gpus=None)


def evaluator_of(watched: Watched) -> StatusEvaluator:
    return StatusEvaluator(watched.cluster, wait_for_load_balancer=False)


def state(watched: Watched, evaluator: StatusEvaluator, wanted: Any) -> str:
    live = watched.cluster.get(ObjectRef.of(wanted.data))
    return evaluator.evaluate(wanted, live, now_s=watched.clock.now_s()).readiness.state


@pytest.mark.parametrize(("subresources", "expected"), [({"status": {}}, "waiting"), ({}, "ready")])
def test_only_a_kind_with_a_status_is_given_time_for_one(
    still: Watched, subresources: dict[str, Any], expected: str
) -> None:
    definition = crd(group="example.com")
    definition["spec"]["versions"][0]["subresources"] = subresources
    still.cluster.create(definition)
    assert state(still, evaluator_of(still), still.apply(WIDGET)) == expected


def test_whether_a_kind_has_a_status_is_known_to_who_may_not_read_definitions(
    still: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    still.cluster.create(crd(group="example.com"))
    wanted, evaluator = still.apply(WIDGET), evaluator_of(still)
    live = still.cluster.get(ObjectRef.of(wanted.data))

    def refuse(ref: ObjectRef) -> Any:
        raise ForbiddenError("`ada` may not get definitions")

    monkeypatch.setattr(still.cluster, "get", refuse)
    assert evaluator.evaluate(wanted, live, now_s=still.clock.now_s()).readiness.state == "ready"
    assert evaluator.notes == []


@pytest.mark.parametrize(("subresources", "expected"), [({"status": {}}, "waiting"), ({}, "ready")])
def test_without_a_status_of_its_own_no_generation_is_ever_observed(
    still: Watched, subresources: dict[str, Any], expected: str
) -> None:
    definition = crd(group="example.com")
    definition["spec"]["versions"][0]["subresources"] = subresources
    still.cluster.create(definition)
    wanted = still.apply(WIDGET)
    live = still.cluster.get(ObjectRef.of(wanted.data)) or {}
    written = {**live, "metadata": {**live["metadata"], "generation": 2}, "status": {"observedGeneration": 1}}
    assert (
        evaluator_of(still).evaluate(wanted, written, now_s=still.clock.now_s()).readiness.state == expected
    )


def webhook() -> dict[str, Any]:
    service = {"name": "hook", "namespace": "ml", "path": "/"}
    client = {"service": service}
    hook = {
        "name": "a.example.com",
        "clientConfig": client,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "hook", "namespace": ""},
        "webhooks": [{**hook, "admissionReviewVersions": ["v1"]}],
    }


def test_a_webhook_is_ready_when_its_service_has_an_endpoint(still: Watched) -> None:
    wanted, evaluator = still.apply(webhook()), evaluator_of(still)
    assert state(still, evaluator, wanted) == "waiting"
    endpoints = [{"addresses": ["10.0.0.1"], "conditions": {"ready": False}}]
    labels = {"kubernetes.io/service-name": "hook"}
    metadata = {"name": "hook-1", "namespace": "ml", "labels": labels}
    slices = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4"}
    still.cluster.apply({**slices, "metadata": metadata, "endpoints": endpoints})
    still.clock.sleep(FRESH_S)
    assert state(still, evaluator, wanted) == "waiting"
    endpoints[0]["conditions"] = {"ready": True}
    still.cluster.apply({**slices, "metadata": metadata, "endpoints": endpoints})
    still.clock.sleep(FRESH_S)
    assert state(still, evaluator, wanted) == "ready"


def test_a_claim_of_a_class_that_binds_late_is_ready(still: Watched) -> None:
    storage_class = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "late"}}
    still.cluster.create({**storage_class, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"})
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}
    for name, expected in (("late", "ready"), ("other", "waiting")):
        own = {**claim, "metadata": {"name": name}, "spec": {**spec, "storageClassName": name}}
        assert state(still, evaluator_of(still), still.apply(own)) == expected


def test_nodes_are_asked_for_once_in_a_while_and_not_while_the_server_is_away() -> None:
    watched = Watched()
    gpu = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    wanted = watched.apply(deployment(**gpu))
    for _ in range(5):
        watched.cluster.on_idle()
    kinds: list[str] = []
    listed = watched.cluster.list

    def counting(api_version: str, kind: str, **options: Any) -> Any:
        kinds.append(kind)
        if len(kinds) > 1:
            raise UnreachableError("away")
        return listed(api_version, kind, **options)

    pods = listed("v1", "Pod", namespace="ml").items
    sets = listed("apps/v1", "ReplicaSet", namespace="ml").items
    evaluator = StatusEvaluator(watched.cluster, wait_for_load_balancer=False)
    evaluator.relatives = Relatives([*pods, *sets])
    watched.cluster.list = counting  # type: ignore[method-assign]
    for _ in range(3):
        assert state(watched, evaluator, wanted) == "waiting"
    assert kinds == ["Node"]
    watched.clock.sleep(FRESH_S)
    live = watched.cluster.get(ObjectRef.of(wanted.data))
    readiness = evaluator.evaluate(wanted, live, now_s=watched.clock.now_s()).readiness
    assert "no node of this cluster has nvidia.com/gpu" in readiness.reason


# --- logs ---

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "main", "image": "i"}]},
}
CRASH = {"exitCode": 1, "reason": "Error", "startedAt": None, "finishedAt": None}


def ended(*, previous: bool = True, message: str = "") -> dict[str, Any]:
    """Build the status of a pod whose container crashed: and is started again, or not."""
    end = {"terminated": {**CRASH, "message": message}}
    loop = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": end}
    state = loop if previous else {"state": end}
    container = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 3, **state}
    return {"phase": "Running" if previous else "Failed", "containerStatuses": [container]}


class Crashing:
    """A cluster with a pod that crashes."""

    def __init__(self) -> None:
        self.watched = Watched(gpus=None)
        self.cluster = self.watched.cluster
        self.asked: list[tuple[str, bool]] = []
        self.error: ClusterError | None = None
        self.answers = threading.Event()
        self.answers.set()
        read = self.cluster.logs

        def reading(ref: ObjectRef, container: str, *, previous: bool = False, **how: Any) -> str:
            self.asked.append((f"{ref.name}/{container}", previous))
            self.answers.wait(10)
            if self.error is not None:
                raise self.error
            return read(ref, container, previous=previous, **how)

        self.cluster.logs = reading  # type: ignore[method-assign]

    def pod(self, name: str = "p", text: str = "", **how: Any) -> KubeObject:
        """Make a pod that crashes, and has written a text."""
        self.cluster.written["ml", name, "main"] = text
        wanted = self.watched.apply({**POD, "metadata": {"name": name}})
        self.cluster.patch(ObjectRef.of(wanted.data), {"status": ended(**how)}, subresource="status")
        return wanted

    def evaluator(self, *secrets: str) -> StatusEvaluator:
        """Give an evaluator that reads logs."""
        logs = Logs(self.cluster, secrets)
        return StatusEvaluator(self.cluster, wait_for_load_balancer=False, logs=logs)

    def reason(self, wanted: KubeObject, evaluator: StatusEvaluator | None = None) -> str:
        """Give why an object does not work."""
        live = self.cluster.get(ObjectRef.of(wanted.data))
        status = (evaluator or self.evaluator()).evaluate(wanted, live, now_s=self.watched.clock.now_s())
        return status.readiness.reason


@pytest.fixture
def crashing() -> Crashing:
    return Crashing()


@pytest.mark.parametrize("previous", [True, False], ids=["started again", "ended"])
def test_a_reason_ends_with_the_last_five_lines(crashing: Crashing, previous: bool) -> None:
    wanted = crashing.pod(text="\n".join(f"line {number}" for number in range(9)), previous=previous)
    tail = "exit code 1: line 4 | line 5 | line 6 | line 7 | line 8"
    how = "CrashLoopBackOff: " if previous else ""
    assert crashing.reason(wanted) == f"container main: {how}{tail}"
    assert crashing.asked == [("p/main", previous)]


def test_the_message_that_a_container_left_is_enough(crashing: Crashing) -> None:
    wanted = crashing.pod(text="noise", message="no such model")
    assert crashing.reason(wanted) == "container main: CrashLoopBackOff: exit code 1: no such model"
    assert crashing.asked == []


def test_secrets_and_what_terminals_obey_are_not_shown(crashing: Crashing) -> None:
    wanted = crashing.pod(text=f"\x1b[31mhunter2\x1b[0m\x07 or x\r\n\n{'long ' * 100}")
    tail = crashing.reason(wanted, crashing.evaluator("hunter2")).partition("exit code 1: ")[2]
    assert tail.startswith("******** or x | long long")
    assert tail.endswith("long …")
    assert len(tail) < 250


def test_what_secrets_hold_is_masked_however_it_stands_there() -> None:
    obj = KubeObject(data=secret(token="hunter2", file="first line\nsecond line", short="abc"))
    secrets = hidden([obj, KubeObject(data=deployment())], ["of a parameter"])
    text = "hunter2, aHVudGVyMg==, first line, second line, of a parameter, abc"
    assert masking.mask_text(text, secrets) == "********, ********, ********, ********, ********, abc"
    encoded = {"apiVersion": "v1", "kind": "Secret", "data": {"token": "aHVudGVyMg==", "odd": "%"}}
    assert "hunter2" in hidden([KubeObject(data=encoded)], ())


def test_a_log_is_read_once_however_often_it_crashes(crashing: Crashing) -> None:
    wanted, evaluator = crashing.pod(text="bye"), crashing.evaluator()
    assert [crashing.reason(wanted, evaluator).endswith(": bye") for _ in range(3)] == [True] * 3
    crashing.cluster.written["ml", "p", "main"] = "12:00:01 bye"
    assert crashing.reason(wanted, evaluator).endswith(": bye")
    assert len(crashing.asked) == 1


def test_who_may_not_read_logs_is_told_nothing_of_it(crashing: Crashing) -> None:
    crashing.error = ForbiddenError("`ada` may not get pods/log")
    evaluator = crashing.evaluator()
    for name in ("p", "q"):
        reason = crashing.reason(crashing.pod(name), evaluator)
        assert reason == "container main: CrashLoopBackOff: exit code 1"
    assert len(crashing.asked) == 1
    assert evaluator.notes == []


def test_a_node_that_is_away_takes_nothing_from_the_reason(crashing: Crashing) -> None:
    crashing.error = TransientError("`Pod ml/p`: dial tcp: network is unreachable")
    assert crashing.reason(crashing.pod()) == "container main: CrashLoopBackOff: exit code 1"


def test_a_silent_node_is_waited_for_once(crashing: Crashing, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, prefetch = [], parallel.prefetch

    def counted(work: Callable[[], Any]) -> Callable[[float], Any]:
        result = prefetch(work)

        def wait(timeout: float) -> Any:
            waits.append(timeout)
            return result(min(timeout, 0.01))

        return wait

    monkeypatch.setattr(parallel, "prefetch", counted)
    crashing.answers.clear()
    evaluator, wanted = crashing.evaluator(), [crashing.pod(name, text="bye") for name in ("p", "q", "r")]
    assert [crashing.reason(obj, evaluator).endswith("exit code 1") for obj in wanted] == [True] * 3
    assert [timeout for timeout in waits if timeout] == [evaluate.PATIENCE_S]
    crashing.answers.set()
    wait_until(
        lambda: all(crashing.reason(obj, evaluator).endswith(": bye") for obj in wanted), what="the logs"
    )


def test_without_a_reader_nothing_is_asked(crashing: Crashing) -> None:
    evaluator = StatusEvaluator(crashing.cluster, wait_for_load_balancer=False)
    assert crashing.reason(crashing.pod(text="bye"), evaluator).endswith("exit code 1")
    assert crashing.asked == []
