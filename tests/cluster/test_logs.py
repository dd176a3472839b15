"""What crashed containers have written, on a real API server; its nodes run nothing, so a proxy answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlstack.errors import ClusterError, NotReadyError
from mlstack.kube.client import ObjectRef
from tests.support.cluster import TestCluster
from tests.support.deploying import Stack, opener_of, secret
from tests.support.fakeapi import Answer, status
from tests.support.troubled import Troubled

pytestmark = pytest.mark.cluster

LOG = "starting\nconnecting to db\npassword is hunter2-hunter2\nTraceback\nValueError: no such model\n"
SHOWN = "starting | connecting to db | password is ******** | Traceback | ValueError: no such model"


def job(name: str = "train") -> dict[str, Any]:
    template = {
        "metadata": {"annotations": {"mlstack.dev/test-exit": "3"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": template},
    }


@pytest.fixture
def proxy(minikube: TestCluster, namespace: str, tmp_path: Path) -> Iterator[Troubled]:
    """A proxy before the API server, which can answer for its kubelets."""
    troubled = Troubled(minikube.login(namespace=namespace))
    with troubled.running(tmp_path / "troubled-kubeconfig"):
        yield troubled


@pytest.fixture
def stack(tmp_path: Path, namespace: str, proxy: Troubled) -> Stack:
    """An app with a job that fails, and a secret that its log tells."""
    stack = Stack(tmp_path / "app", namespace=namespace, opener=opener_of(tmp_path / "troubled-kubeconfig"))
    stack.write("a", secret(password="hunter2-hunter2"), job())
    return stack


def failure(stack: Stack) -> str:
    with pytest.raises(NotReadyError) as caught:
        stack.apply(wait=True, timeout_s=60.0)
    return caught.value.message


def test_a_failed_job_ends_with_what_it_has_written(stack: Stack, proxy: Troubled) -> None:
    asked: list[str] = []

    def kubelet(method: str, path: str) -> Answer | None:
        if "/log?" not in path:
            return None
        asked.append(path)
        return Answer(body=LOG, content_type="text/plain")

    proxy.trouble = kubelet
    message = failure(stack)
    assert message.endswith(f"(container main: exit code 3: {SHOWN})")
    assert "hunter2" not in repr(stack.events)
    (path,) = asked
    assert "container=main&tailLines=5&limitBytes=16384" in path
    row = next(row for row in stack.status().components[0].objects if row.kind == "Job")
    assert SHOWN in row.reason
    assert SHOWN in row.pods[0].reason


@pytest.mark.parametrize("code", [403, 500])
def test_logs_that_cannot_be_read_are_not_missed(stack: Stack, proxy: Troubled, code: int) -> None:
    def kubelet(method: str, path: str) -> Answer | None:
        return status(code, "no logs", reason="Forbidden") if "/log?" in path else None

    proxy.trouble = kubelet
    assert failure(stack).endswith("(container main: exit code 3)")
    assert not any("logs" in event.text for event in stack.events)


def test_a_kubelet_that_is_silent_holds_nobody_up(stack: Stack, proxy: Troubled) -> None:
    waited: list[float] = []

    def kubelet(method: str, path: str) -> Answer | None:
        if "/log?" in path:
            waited.append(time.monotonic())
            time.sleep(40)
        return None

    proxy.trouble = kubelet
    assert failure(stack).endswith("(container main: exit code 3)")
    assert len(waited) == 1
    assert time.monotonic() - waited[0] < 30


def test_a_kubelet_that_the_api_server_cannot_reach_is_none_of_ours(
    stack: Stack, minikube: TestCluster, namespace: str, kubeconfig: Path
) -> None:
    begun_s = time.monotonic()
    stack.opener = opener_of(kubeconfig)
    assert failure(stack).endswith("(container main: exit code 3)")
    assert time.monotonic() - begun_s < 60
    pod = minikube.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"][0]["metadata"]["name"]
    with pytest.raises(ClusterError) as caught:
        stack.opener("minikube").logs(
            ObjectRef("v1", "Pod", namespace, pod), "main", lines=5, most_bytes=100, timeout_s=2.0
        )
    assert pod in caught.value.message
