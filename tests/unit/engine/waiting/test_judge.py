"""What a judge asks a cluster about objects that do not work, and how often."""

from typing import Any

import pytest

from mlstack.errors import ForbiddenError, UnreachableError
from mlstack.kube.client import ObjectRef
from mlstack.readiness.evaluate import FRESH_S, StatusEvaluator
from mlstack.readiness.relatives import Relatives
from tests.support.deploying import crd, deployment
from tests.support.watched import Watched

WIDGET = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "one"}, "spec": {}}


@pytest.fixture
def still() -> Watched:
    """A cluster in which nothing moves."""
    return Watched(gpus=None)


def judge(watched: Watched) -> StatusEvaluator:
    return StatusEvaluator(watched.cluster, Relatives(), wait_for_load_balancer=False)


def state(watched: Watched, judge: StatusEvaluator, wanted: Any) -> str:
    live = watched.cluster.get(ObjectRef.of(wanted.data))
    return judge.judge(wanted, live, now_s=watched.clock.now_s()).readiness.state


@pytest.mark.parametrize(("subresources", "expected"), [({"status": {}}, "waiting"), ({}, "ready")])
def test_only_a_kind_with_a_status_is_given_time_for_one(
    still: Watched, subresources: dict[str, Any], expected: str
) -> None:
    definition = crd(group="example.com")
    definition["spec"]["versions"][0]["subresources"] = subresources
    still.cluster.create(definition)
    assert state(still, judge(still), still.apply(WIDGET)) == expected


def test_whether_a_kind_has_a_status_is_known_to_who_may_not_read_definitions(
    still: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    still.cluster.create(crd(group="example.com"))
    wanted, one = still.apply(WIDGET), judge(still)
    live = still.cluster.get(ObjectRef.of(wanted.data))

    def refuse(ref: ObjectRef) -> Any:
        raise ForbiddenError("`ada` may not get definitions")

    monkeypatch.setattr(still.cluster, "get", refuse)
    assert one.judge(wanted, live, now_s=still.clock.now_s()).readiness.state == "ready"
    assert one.notes == []


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
    assert judge(still).judge(wanted, written, now_s=still.clock.now_s()).readiness.state == expected


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
    wanted, one = still.apply(webhook()), judge(still)
    assert state(still, one, wanted) == "waiting"
    endpoints = [{"addresses": ["10.0.0.1"], "conditions": {"ready": False}}]
    labels = {"kubernetes.io/service-name": "hook"}
    metadata = {"name": "hook-1", "namespace": "ml", "labels": labels}
    slices = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4"}
    still.cluster.apply({**slices, "metadata": metadata, "endpoints": endpoints})
    still.clock.sleep(FRESH_S)
    assert state(still, one, wanted) == "waiting"
    endpoints[0]["conditions"] = {"ready": True}
    still.cluster.apply({**slices, "metadata": metadata, "endpoints": endpoints})
    still.clock.sleep(FRESH_S)
    assert state(still, one, wanted) == "ready"


def test_a_claim_of_a_class_that_binds_late_is_ready(still: Watched) -> None:
    made = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "late"}}
    still.cluster.create({**made, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"})
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}
    for name, expected in (("late", "ready"), ("other", "waiting")):
        own = {**claim, "metadata": {"name": name}, "spec": {**spec, "storageClassName": name}}
        assert state(still, judge(still), still.apply(own)) == expected


def test_nodes_are_asked_for_once_in_a_while_and_not_while_the_server_is_away() -> None:
    watched = Watched()
    gpu = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    wanted = watched.apply(deployment(**gpu))
    for _ in range(5):
        watched.cluster.on_idle()
    asked: list[str] = []
    listed = watched.cluster.list

    def counting(api_version: str, kind: str, **options: Any) -> Any:
        asked.append(kind)
        if len(asked) > 1:
            raise UnreachableError("away")
        return listed(api_version, kind, **options)

    pods = listed("v1", "Pod", namespace="ml").items
    sets = listed("apps/v1", "ReplicaSet", namespace="ml").items
    one = StatusEvaluator(watched.cluster, Relatives([*pods, *sets]), wait_for_load_balancer=False)
    watched.cluster.list = counting  # type: ignore[method-assign]
    for _ in range(3):
        assert state(watched, one, wanted) == "waiting"
    assert asked == ["Node"]
    watched.clock.sleep(FRESH_S)
    live = watched.cluster.get(ObjectRef.of(wanted.data))
    found = one.judge(wanted, live, now_s=watched.clock.now_s()).readiness
    assert "no node of this cluster has nvidia.com/gpu" in found.reason
