"""What is said, and waited for, when a webhook stands before what mlstack keeps of an environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mlstack.deploy.lock import WEBHOOK_S
from mlstack.errors import ClusterError, ForbiddenError, InvalidError, TransientError
from mlstack.kube.client import Applied, ClientWrapper, Cluster
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.deploying import Stack, VirtualClock, config_map

NAME = "mlstack-demo.minikube"
WEBHOOK = "a.example.com"
EXEMPT = "let it pass what has the label app.kubernetes.io/managed-by=mlstack (objectSelector)"


def configuration(**labels: str) -> dict[str, Any]:
    webhook = {
        "name": WEBHOOK,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": "default", "name": "web"}},
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "gate", "labels": labels},
        "webhooks": [webhook],
    }


class Gated(ClientWrapper):
    """A cluster that refuses some kinds of records."""

    def __init__(self, cluster: Cluster, kind: str, refusal: Callable[[str], ClusterError | None]) -> None:
        super().__init__(cluster)
        self._kind, self._refusal = kind, refusal

    def apply(self, obj: Mapping[str, Any], **how: Any) -> Applied:
        """Apply, unless it is refused."""
        self._gate(obj)
        return super().apply(obj, **how)

    def create(self, obj: Mapping[str, Any], **how: Any) -> Applied:
        """Create, unless it is refused."""
        self._gate(obj)
        return super().create(obj, **how)

    def _gate(self, obj: Mapping[str, Any]) -> None:
        if (obj["kind"], obj["metadata"]["name"]) == (self._kind, NAME):
            error = self._refusal(f"`{self._kind} default/{NAME}`")
            if error is not None:
                raise error


def denied(subject: str) -> ClusterError:
    return ForbiddenError(
        f'{subject}: admission webhook "{WEBHOOK}" denied the request: no team', why="policy"
    )


def silent(subject: str) -> ClusterError:
    text = f"{subject}: admission webhook `{WEBHOOK}` does not answer: connection refused"
    return TransientError(text, webhook=WEBHOOK)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def stack(tmp_path: Path, clock: VirtualClock) -> Stack:
    cluster = MemoryCluster(load_schemas("1.36"), clock=clock)
    made = Stack(tmp_path / "app", namespace="default", opener=lambda context: cluster, clock=clock)
    made.write("web", config_map(a="1"))
    return made


def gate(stack: Stack, refusal: Callable[[str], ClusterError | None], kind: str = "ConfigMap") -> Cluster:
    """Put a gate before the cluster of the app; gives the cluster behind it."""
    cluster = stack.opener("minikube")
    stack.opener = lambda context: Gated(cluster, kind, refusal)
    return cluster


def refused(stack: Stack) -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        stack.apply()
    return caught.value


def test_a_refused_inventory_is_named_with_its_webhook_and_what_to_do(stack: Stack) -> None:
    cluster = gate(stack, denied)
    cluster.create(configuration())
    error = refused(stack)
    assert error.message == (
        f"the inventory of environment `minikube`, `ConfigMap default/{NAME}`, is refused by"
        f" admission webhook `{WEBHOOK}` (ValidatingWebhookConfiguration `gate`): no team;"
        " nothing was written"
    )
    assert error.hint == f"{EXEMPT}, then run the command again"
    assert [one["metadata"]["name"] for one in cluster.list("v1", "ConfigMap").items] == []


def test_a_webhook_of_the_environment_itself_may_be_taken_away(stack: Stack) -> None:
    labels = {"mlstack.dev/app": "demo", "mlstack.dev/environment": "minikube"}
    gate(stack, denied).create(configuration(**labels))
    assert "kubectl delete validatingwebhookconfiguration gate; the next apply sets it up" in str(
        refused(stack).hint
    )


def test_an_inventory_refused_at_the_end_takes_nothing_back(stack: Stack) -> None:
    seen: list[str] = []

    def later(subject: str) -> ClusterError | None:
        seen.append(subject)
        return denied(subject) if len(seen) > 1 else None

    cluster = gate(stack, later)
    assert refused(stack).message.endswith(": no team; all the rest of this run is done")
    assert any(one["metadata"]["name"] == "settings" for one in cluster.list("v1", "ConfigMap").items)


def test_a_refused_lock_is_named_too(stack: Stack) -> None:
    gate(stack, denied, "Lease")
    message = refused(stack).message
    assert message.startswith(f"the lock of environment `minikube`, `Lease default/{NAME}`, is refused by")
    assert message.endswith("nothing was written")


@pytest.mark.parametrize("kind", ["ConfigMap", "Lease"])
def test_a_webhook_that_starts_is_waited_for(stack: Stack, clock: VirtualClock, kind: str) -> None:
    begun_s = clock.now_s()
    gate(stack, lambda subject: silent(subject) if clock.now_s() - begun_s < 60 else None, kind)
    assert stack.apply().ok
    waits = [event.text for event in stack.events if event.kind == "waiting"]
    assert waits == [
        f"`{kind} default/{NAME}`: admission webhook `{WEBHOOK}` does not answer: connection refused"
    ]


def test_a_webhook_that_never_answers_is_given_up(stack: Stack, clock: VirtualClock) -> None:
    gate(stack, silent)
    begun_s = clock.now_s()
    error = refused(stack)
    assert WEBHOOK_S <= clock.now_s() - begun_s < WEBHOOK_S + 10
    assert f"cannot be written: admission webhook `{WEBHOOK}` does not answer: connection" in error.message
    assert str(error.hint).startswith("see that the service behind the webhook runs")


@pytest.mark.parametrize(
    "error",
    [
        ForbiddenError(
            "`x`: ValidatingAdmissionPolicy 'P' with binding 'B' denied request: no", why="policy"
        ),
        InvalidError("`x` is refused: ValidatingAdmissionPolicy 'P' with binding 'B' denied request: no"),
    ],
    ids=["forbidden", "invalid"],
)
def test_a_policy_is_named_as_well(stack: Stack, error: ClusterError) -> None:
    gate(stack, lambda subject: error)
    found = refused(stack)
    assert found.message.startswith("the inventory of environment `minikube`")
    assert "ValidatingAdmissionPolicy 'P'" in found.message


def test_other_refusals_stay_what_they_are(stack: Stack) -> None:
    gate(stack, lambda subject: ForbiddenError(f"{subject}: exceeded quota", why="quota"))
    assert refused(stack).message == f"`ConfigMap default/{NAME}`: exceeded quota"
