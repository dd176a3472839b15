"""A set that brings a webhook which guards ConfigMaps in its own namespace, those of mlstack included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Event as Flag
from typing import Any

import pytest

from mlstack.deploy.changes import RunEvent
from mlstack.errors import ClusterError, TransientError
from mlstack.operations import deploy
from tests.support import isolation
from tests.support.cluster import TestCluster
from tests.support.deploying import Stack, config_map, deployment
from tests.support.waiting import wait_until
from tests.support.webhook import admission, allow

pytestmark = pytest.mark.cluster

ADDRESSES = (f"10.96.77.{number}" for number in count(1))
INVENTORY = "mlstack-demo.minikube"


@dataclass
class Hook:
    """A webhook behind a cluster IP, which this process answers for.

    Attributes:
        namespace: of its Service.
        address: of its Service.
        port: of its Service.
        authority: who signed its certificate, in base64.
        answers: whether it takes connections.
        refuses: what it says of every ConfigMap of mlstack's own; empty lets it pass.
        asked: names of the ConfigMaps it was asked about.
    """

    namespace: str
    address: str
    port: int
    authority: str
    answers: Flag = field(default_factory=Flag)
    refuses: str = ""
    asked: list[str] = field(default_factory=list)

    @property
    def objects(self) -> tuple[dict[str, Any], ...]:
        """Give the set: the webhook's configuration, Service and Deployment, and a ConfigMap it guards."""
        return (self._configuration, self._service, deployment("web"), config_map(a="1"))

    @property
    def name(self) -> str:
        """Give the name of the configuration."""
        return f"own-{self.namespace}"

    @property
    def _service(self) -> dict[str, Any]:
        spec = {"clusterIP": self.address, "selector": {"app": "web"}, "ports": [{"port": self.port}]}
        return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}

    @property
    def _configuration(self) -> dict[str, Any]:
        service = {"namespace": self.namespace, "name": "web", "port": self.port}
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["configmaps"],
        }
        webhook = {
            "name": "guard.example.com",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 2,
            "failurePolicy": "Fail",
            "clientConfig": {"service": service, "caBundle": self.authority},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
            "rules": [rule],
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": self.name},
            "webhooks": [webhook],
        }

    def review(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Answer one question of the API server."""
        if not self.answers.is_set():
            return None
        self.asked.append(str(request["name"]))
        if self.refuses and request["name"] == INVENTORY:
            return {"uid": request["uid"], "allowed": False, "status": {"message": self.refuses}}
        return allow(request)


@pytest.fixture
def hook(namespace: str, minikube: TestCluster, tmp_path: Path) -> Iterator[Hook]:
    """The program behind the webhook, which runs and answers."""
    address = next(ADDRESSES)
    isolation.add_address(address)
    hook = Hook(namespace=namespace, address=address, port=0, authority="")
    with admission(tmp_path, hook.review, address=address, name=f"web.{namespace}.svc") as served:
        hook.port, hook.authority = served
        hook.answers.set()
        yield hook
        minikube.kubectl("delete", "validatingwebhookconfiguration", hook.name, "--ignore-not-found")


@pytest.fixture
def stack(stack: Stack, hook: Hook) -> Stack:
    """An app that deploys the webhook into the test's own namespace."""
    stack.write("a", *hook.objects)
    return stack


def is_asked(minikube: TestCluster, hook: Hook) -> None:
    """Wait until the API server asks the webhook."""

    def asked() -> bool:
        tried = ("create", "configmap", "tried", "-n", hook.namespace, "--dry-run=server")
        minikube.kubectl(*tried, check=False)
        return "tried" in hook.asked

    wait_until(asked, what="the API server to learn of the webhook")


def test_a_set_with_a_webhook_on_its_own_config_maps_converges(
    stack: Stack, minikube: TestCluster, hook: Hook, namespace: str
) -> None:
    assert stack.apply(wait=True).ok
    is_asked(minikube, hook)
    assert stack.apply().counts == {"unchanged": 4}
    stack.write("a", *hook.objects, config_map("more", a="2"))
    assert stack.apply(wait=True).counts == {"unchanged": 4, "created": 1}
    assert {INVENTORY, "more"} <= {*hook.asked}
    assert stack.delete().counts == {"deleted": 5}
    left = minikube.kubectl("get", "configmaps,leases,services", "-n", namespace, "-o", "name").stdout
    assert left.split() == ["configmap/kube-root-ca.crt"]


def test_its_webhook_that_starts_again_is_waited_for(stack: Stack, minikube: TestCluster, hook: Hook) -> None:
    stack.apply(wait=True)
    is_asked(minikube, hook)
    stack.write("a", *hook.objects, {**deployment("late"), "metadata": {"name": "late"}})
    plan = stack.plan()
    hook.answers.clear()
    heard: list[str] = []

    def hear(event: RunEvent) -> None:
        if "guard.example.com" in event.text:
            heard.append(event.text)
            hook.answers.set()

    assert deploy.apply(plan, clock=stack.clock, on_event=hear).counts == {"unchanged": 4, "created": 1}
    assert heard[0].startswith(f"`ConfigMap {hook.namespace}/{INVENTORY}`: admission webhook")


def test_a_refused_inventory_is_told_as_what_it_is(
    stack: Stack, minikube: TestCluster, hook: Hook, namespace: str
) -> None:
    stack.apply(wait=True)
    is_asked(minikube, hook)
    hook.refuses = "config maps need a team"
    stack.write("a", *hook.objects, {**deployment("late"), "metadata": {"name": "late"}})
    with pytest.raises(ClusterError) as caught:
        stack.apply()
    message = caught.value.message
    assert message.startswith(f"the inventory of environment `minikube`, `ConfigMap {namespace}/{INVENTORY}`")
    assert f"`guard.example.com` (ValidatingWebhookConfiguration `{hook.name}`)" in message
    assert message.endswith("config maps need a team; nothing was written")
    assert f"kubectl delete validatingwebhookconfiguration {hook.name}" in str(caught.value.hint)
    assert minikube.find(f"/apis/apps/v1/namespaces/{namespace}/deployments/late") is None


def test_a_webhook_whose_pods_are_gone_does_not_hold_up_its_deletion(
    stack: Stack, minikube: TestCluster, hook: Hook, namespace: str
) -> None:
    stack.apply(wait=True)
    is_asked(minikube, hook)
    hook.answers.clear()
    with pytest.raises(TransientError):
        stack.opener("minikube").apply({**config_map("x"), "metadata": {"name": "x", "namespace": namespace}})
    assert stack.delete().counts == {"deleted": 4}
    assert minikube.find(f"/api/v1/namespaces/{namespace}/configmaps/{INVENTORY}") is None
