"""What only a real API server can show: rights, quota, policies, webhooks, restarts, trust."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mlstack.errors import ForbiddenError, InvalidError, TransientError, UnreachableError, WatchExpiredError
from mlstack.kube import api_server as kube
from mlstack.kube.client import Cluster, ObjectRef
from tests.support.cluster import TestCluster, User
from tests.support.cluster_contract import config_map, eventually

pytestmark = pytest.mark.cluster

Connect = Callable[..., Cluster]


@pytest.fixture
def connect(minikube: TestCluster, tmp_path: Path) -> Connect:
    """Open the cluster `minikube` as some user."""

    def opened(user: User | None = None) -> Cluster:
        return kube.connect("minikube", kubeconfig=str(minikube.write_kubeconfig(tmp_path / "k", user)))

    return opened


def test_the_identity_of_a_cluster_needs_no_rights(connect: Connect, minikube: TestCluster) -> None:
    allowed, unknown = connect().identity(), connect(minikube.nobody).identity()
    assert allowed.uid is not None
    assert unknown.uid is None
    assert (allowed.ca, allowed.server) == (unknown.ca, unknown.server)


def config_maps(*operations: str) -> dict[str, Any]:
    places = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    return {**places, "operations": list(operations)}


def test_a_policy_is_told(connect: Connect, namespace: str) -> None:
    cluster = connect()
    name = f"no-maps-{namespace}"
    expression = (
        "(object == null ? oldObject : object).metadata.name != (object == null ? 'kept' : 'forbidden')"
    )
    group = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    matched = {"resourceRules": [config_maps("CREATE", "DELETE")]}
    rules = [{"expression": expression, "message": "not that name"}]
    spec = {"matchConstraints": matched, "validations": rules}
    policy = {**group, "kind": "ValidatingAdmissionPolicy", "spec": spec}
    matched = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    spec = {"policyName": name, "validationActions": ["Deny"], "matchResources": matched}
    binding = {**group, "kind": "ValidatingAdmissionPolicyBinding", "spec": spec}
    other = ObjectRef.of(cluster.apply(config_map(namespace, "kept", x="1")).object)
    for obj in (policy, binding):
        cluster.apply(obj)

    def error() -> Exception | None:
        try:
            cluster.apply(config_map(namespace, "forbidden", x="1"), dry_run=True)
        except (ForbiddenError, InvalidError) as error:
            return error
        return None

    refused = eventually(error)
    with pytest.raises((ForbiddenError, InvalidError), match="not that name"):
        cluster.delete(other)
    live = cluster.get(other)
    assert live is not None and "deletionTimestamp" not in live["metadata"]
    for obj in (binding, policy):
        cluster.delete(ObjectRef.of(obj), propagation="Background")
    assert isinstance(refused, InvalidError | ForbiddenError)
    assert "not that name" in refused.message


def test_a_webhook_that_does_not_answer_is_worth_another_try(connect: Connect, namespace: str) -> None:
    cluster = connect()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        hook = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": f"down-{namespace}"},
            "webhooks": [
                {
                    "name": "down.example.com",
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                    "clientConfig": {"url": f"https://127.0.0.1:{closed.getsockname()[1]}/"},
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                    "rules": [config_maps("*")],
                }
            ],
        }
        cluster.apply(hook)

        def error() -> TransientError | None:
            try:
                cluster.apply(config_map(namespace, "hooked", x="1"), dry_run=True)
            except TransientError as error:
                return error
            return None

        refused = eventually(error)
        cluster.delete(ObjectRef.of(hook), propagation="Background")
    assert refused.webhook == "down.example.com"
    assert "connection refused" in refused.message


def test_sixteen_writers_share_one_client(connect: Connect, namespace: str) -> None:
    cluster = connect()
    with ThreadPoolExecutor(16) as pool:
        written = list(pool.map(lambda n: cluster.apply(config_map(namespace, f"m{n}", x="1")), range(100)))
    assert all(applied.created for applied in written)
    assert len(cluster.list("v1", "ConfigMap", namespace=namespace, metadata_only=True).items) >= 100


def test_a_long_list_comes_in_pages(
    connect: Connect, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = connect()
    for number in range(7):
        cluster.apply(config_map(namespace, f"m{number}", x="1"))
    monkeypatch.setattr("mlstack.kube.api_server.PAGE", 3)
    names = [item["metadata"]["name"] for item in cluster.list("v1", "ConfigMap", namespace=namespace).items]
    assert [name for name in names if name.startswith("m")] == [f"m{number}" for number in range(7)]


def test_after_a_restart_a_watch_from_before_has_expired(gke: TestCluster, kubeconfig: Path) -> None:
    cluster = kube.connect("gke", kubeconfig=str(kubeconfig))
    before = cluster.list("v1", "ConfigMap").resource_version
    for number in range(3):
        cluster.apply(config_map("default", "restart", x=str(number)))
    gke.restart_apiserver()
    with pytest.raises(WatchExpiredError):
        list(cluster.watch("v1", "ConfigMap", resource_version=before, timeout_s=5))
    assert any(event.is_initial_end for event in cluster.watch("v1", "ConfigMap", timeout_s=1))


def test_a_watch_ends_when_the_server_dies(gke: TestCluster, kubeconfig: Path) -> None:
    cluster = kube.connect("gke", kubeconfig=str(kubeconfig))
    events = cluster.watch("v1", "ConfigMap", timeout_s=60)
    next(events)
    gke.machinery.kill_apiserver()
    assert all(event.type in ("ADDED", "BOOKMARK") for event in events)
    with pytest.raises(UnreachableError, match="connection refused"):
        cluster.list("v1", "ConfigMap")
    gke.machinery.start_apiserver()
    gke.machinery.wait_until_serving(gke.api)
    assert cluster.list("v1", "ConfigMap").items
