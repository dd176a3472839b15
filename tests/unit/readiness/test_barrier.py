"""Waiting for what others depend on, on simulated controllers."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.deploy.wait import Barriers
from mlstack.errors import ForbiddenError, NotReadyError
from mlstack.events import RunEvent
from mlstack.kube.client import Listing, ObjectRef
from mlstack.objects.kube_object import Identity, KubeObject
from mlstack.testing.cluster import MemoryCluster
from mlstack.testing.controllers import Simulation
from mlstack.validate.validate import load_schemas
from tests.support.deploying import VirtualClock, deployment

SERVICE = Identity("", "Service", "ml", "front")


class Hidden(MemoryCluster):
    """A cluster that does not tell of endpoints."""

    def list(self, api_version: str, kind: str, **options: Any) -> Listing:
        if kind == "EndpointSlice":
            raise ForbiddenError("no right")
        return super().list(api_version, kind, **options)


class Moving(VirtualClock):
    """A clock whose passing lets the controllers work."""

    def __init__(self) -> None:
        super().__init__()
        self.simulation: Simulation | None = None

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.simulation is not None:
            self.simulation.step()


class World:
    """A cluster with a namespace, and gates before what is in it."""

    def __init__(self, kind: type[MemoryCluster] = MemoryCluster, *, moves: bool = True) -> None:
        self.clock = Moving()
        self.events: list[RunEvent] = []
        self.cluster = kind(load_schemas("1.36"), clock=self.clock)
        if moves:
            self.clock.simulation = Simulation(self.cluster)
        self.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
        self.gates = Barriers(
            cluster=self.cluster, clock=self.clock, on_event=self.events.append, timeout_s=20
        )

    def make(self, data: dict[str, Any]) -> KubeObject:
        found = KubeObject(data={**data, "metadata": {**data["metadata"], "namespace": "ml"}})
        self.cluster.apply(found.data)
        return found

    @property
    def waited_s(self) -> float:
        return self.clock.now_s() - VirtualClock().now_s()


def service() -> dict[str, Any]:
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "front"}, "spec": spec}


def job() -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}
    spec = {"template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "migrate"}, "spec": spec}


def test_a_gate_opens_when_what_is_behind_it_works() -> None:
    world = World()
    web = world.make(deployment())
    world.gates.ready("`web`", [web])
    live = world.cluster.get(ObjectRef.of(web.data))
    assert live is not None
    assert live["status"]["readyReplicas"] == 1


def test_a_gate_that_does_not_open_says_why() -> None:
    world = World(moves=False)
    web = world.make(deployment())
    with pytest.raises(
        NotReadyError, match=r"^`web` is not ready, and other objects depend on it: "
    ) as caught:
        world.gates.ready("`web`", [web])
    assert caught.value.reasons
    assert 20 <= world.waited_s < 25


def test_what_is_not_waited_for_opens_its_gate_at_once() -> None:
    world = World(moves=False)
    web = deployment()
    web["metadata"]["annotations"] = {"mlstack.dev/wait": "none"}
    world.gates.ready("`web`", [world.make(web)])
    assert world.waited_s < 3


def test_a_job_has_to_end() -> None:
    world = World()
    found = world.make(job())
    world.gates.ready("`migrate`", [found])
    live = world.cluster.get(ObjectRef.of(found.data))
    assert live is not None
    assert live["status"]["succeeded"] == 1


def test_a_webhook_waits_for_a_ready_pod_behind_its_service() -> None:
    world = World()
    hook = world.make(service())
    world.make(deployment())
    world.gates.endpoint(SERVICE, [hook])
    assert world.waited_s > 0


def test_a_service_that_nobody_answers_for_is_told() -> None:
    world = World()
    hook = world.make(service())
    with pytest.raises(NotReadyError, match="`Service ml/front` has no ready endpoint after 20 s") as caught:
        world.gates.endpoint(SERVICE, [hook])
    assert caught.value.hint == "kubectl get endpointslices -n ml -l kubernetes.io/service-name=front"
    assert [str(event.identity) for event in world.events] == ["Service ml/front"]


def test_whoever_may_not_see_endpoints_does_not_wait() -> None:
    world = World(Hidden)
    world.gates.endpoint(SERVICE, [world.make(service())])
    assert world.waited_s == 0
