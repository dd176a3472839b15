"""Gates of a run are waited at for the sake of what is written behind them, and of nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlstack.kube.client import Cluster, ObjectRef
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.deploying import Stack, VirtualClock, config_map, deployment

SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 443}]},
}
HOOK = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "gate"},
    "webhooks": [
        {
            "name": "a.example.com",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "default", "name": "web"}},
        }
    ],
}
ENDPOINT = {
    "apiVersion": "discovery.k8s.io/v1",
    "kind": "EndpointSlice",
    "metadata": {
        "name": "web",
        "namespace": "default",
        "labels": {"kubernetes.io/service-name": "web"},
    },
    "addressType": "IPv4",
    "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}],
}


WEB = ObjectRef("apps/v1", "Deployment", "default", "web")
AVAILABLE = {"type": "Available", "status": "True"}


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(load_schemas("1.36"))


@pytest.fixture
def stack(tmp_path: Path, cluster: Cluster) -> Stack:
    return Stack(tmp_path / "app", namespace="default", opener=lambda context: cluster, clock=VirtualClock())


def after(obj: dict[str, Any], name: str) -> dict[str, Any]:
    annotations = {"config.kubernetes.io/depends-on": f"apps/namespaces/default/Deployment/{name}"}
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def test_a_webhook_that_is_there_is_not_set_up_again(stack: Stack, cluster: Cluster) -> None:
    cluster.create(ENDPOINT)
    stack.write("a", HOOK, SERVICE)
    assert stack.apply().counts == {"created": 2}
    assert stack.apply().counts == {"unchanged": 2}
    cluster.delete(ObjectRef("discovery.k8s.io/v1", "EndpointSlice", "default", "web"))
    stack.write("a", HOOK, SERVICE, config_map())
    begun_s = stack.clock.now_s()
    assert stack.apply().counts == {"unchanged": 2, "created": 1}
    assert stack.clock.now_s() == begun_s


def test_a_service_that_leads_out_of_the_cluster_has_no_endpoints(stack: Stack) -> None:
    outside = {"type": "ExternalName", "externalName": "hooks.example.com"}
    stack.write("a", HOOK, {**SERVICE, "spec": outside})
    begun_s = stack.clock.now_s()
    assert stack.apply(wait=True).counts == {"created": 2}
    assert stack.clock.now_s() == begun_s


def test_nobody_waits_for_what_an_unchanged_object_depends_on(stack: Stack, cluster: Cluster) -> None:
    def ready(replicas: int) -> None:
        counts = dict.fromkeys(
            ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), replicas
        )
        status = {"observedGeneration": 1, **counts, "conditions": [AVAILABLE] if replicas else []}
        cluster.patch(WEB, {"status": status}, subresource="status")

    bound = after(config_map("settings"), "web")
    stack.write("a", deployment())
    stack.apply()
    ready(1)
    stack.write("a", deployment(), bound)
    assert stack.apply().counts == {"unchanged": 1, "created": 1}
    ready(0)
    stack.write("a", deployment(), bound, config_map("other"))
    begun_s = stack.clock.now_s()
    assert stack.apply().counts == {"unchanged": 2, "created": 1}
    assert stack.clock.now_s() == begun_s
