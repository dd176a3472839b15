"""Going through a graph when things end badly, and which barriers are waited at."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest

from mlstack.deploy.changes import silent
from mlstack.deploy.run import Schedule
from mlstack.deploy.write import DeletionWatcher, Steps
from mlstack.errors import ForbiddenError, LockedError, MlstackError, UnreachableError
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.kube.parallel import WORKERS
from mlstack.objects import order
from mlstack.objects.kube_object import KubeObject
from mlstack.objects.order import Barrier as Gate
from mlstack.objects.order import GraphNode
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.deploying import Stack, VirtualClock, config_map, deployment


def config_maps(count: int) -> list[KubeObject]:
    return [
        KubeObject(data={"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{number:03}"}})
        for number in range(count)
    ]


class Plain:
    """Work that waits for nothing to be gone."""

    binding = frozenset({"user", "needs"})

    def __init__(self, work: Callable[[GraphNode], None]) -> None:
        self._work = work

    def is_idle(self, node: GraphNode) -> bool:
        return isinstance(node, Gate)

    def steps(self, node: GraphNode) -> Steps:
        self._work(node)
        yield from ()

    def skip(self, node: GraphNode, why: str) -> None:
        pass

    def because(self, node: GraphNode, end: str, after: GraphNode) -> str:
        return end


def schedule(count: int, work: Callable[[GraphNode], None], stopped: Event | None = None) -> Schedule:
    watcher = DeletionWatcher(
        MemoryCluster(load_schemas("1.36")), clock=VirtualClock(), on_event=silent, timeout_s=None
    )
    return Schedule(order.graph(config_maps(count)), Plain(work), watcher, stopped or Event())


@pytest.mark.parametrize(
    "error",
    [UnreachableError("gone"), LockedError("lost"), ForbiddenError("expired", why="credentials")],
    ids=["server", "lock", "credentials"],
)
def test_what_ends_everything_is_raised_and_nothing_more_begun(error: MlstackError) -> None:
    begun: list[GraphNode] = []

    def work(node: GraphNode) -> None:
        begun.append(node)
        raise error

    stopped = Event()
    with pytest.raises(type(error)):
        schedule(500, work, stopped).run()
    assert stopped.is_set()
    assert len(begun) <= 2 * WORKERS


def test_other_errors_are_collected() -> None:
    def work(node: GraphNode) -> None:
        raise ForbiddenError(str(node), why="quota")

    run = schedule(50, work)
    run.run()
    assert len(run.failures) == 50


def test_as_many_are_done_at_once_as_there_are_writers() -> None:
    together = Barrier(WORKERS, timeout=10)
    schedule(WORKERS, lambda node: together.wait() and None).run()


def test_what_was_just_handed_over_when_a_person_interrupts_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, stopped, done = Event(), Event(), Event()
    submit = ThreadPoolExecutor.submit

    def interrupted(pool: ThreadPoolExecutor, *args: Any) -> None:
        submit(pool, *args)
        assert begun.wait(10)
        raise KeyboardInterrupt

    def work(node: GraphNode) -> None:
        begun.set()
        assert stopped.wait(10)
        done.set()

    monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        schedule(3, work, stopped).run()
    assert done.is_set()


def test_a_fault_of_ours_is_not_swallowed() -> None:
    def work(node: GraphNode) -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError, match="a bug"):
        schedule(5, work).run()


def test_nothing_is_nothing() -> None:
    schedule(0, lambda node: None).run()


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
    "metadata": {"name": "web", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
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
    stack.deploy("a", deployment())
    ready(1)
    stack.write("a", deployment(), bound)
    assert stack.apply().counts == {"unchanged": 1, "created": 1}
    ready(0)
    stack.write("a", deployment(), bound, config_map("other"))
    begun_s = stack.clock.now_s()
    assert stack.apply().counts == {"unchanged": 2, "created": 1}
    assert stack.clock.now_s() == begun_s
