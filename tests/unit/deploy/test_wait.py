"""Waiting for definitions and barriers, what is told meanwhile, and what holds objects that do not go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mlstack.deploy import wait
from mlstack.deploy.changes import OnEvent, RunEvent, silent
from mlstack.deploy.wait import Barriers, obstacles
from mlstack.errors import ForbiddenError, NotReadyError
from mlstack.kube.client import Listing, ObjectRef
from mlstack.objects.kube_object import Identity, KubeObject
from mlstack.readiness.evaluate import ResourceStatus
from mlstack.readiness.rule import Terms, ready, waiting
from mlstack.testing.cluster import MemoryCluster
from mlstack.testing.controllers import Simulation
from mlstack.validate.validate import load_schemas
from tests.support.deploying import VirtualClock, deployment, existing

REF = ObjectRef("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "widgets.example.com")


class Cluster:
    """Gives one answer after the other, the last one for ever."""

    def __init__(self, *answers: dict[str, Any] | None) -> None:
        self._answers = list(answers)

    def get(self, ref: ObjectRef) -> dict[str, Any] | None:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def definition(**states: str) -> dict[str, Any]:
    conditions = [{"type": name, "status": status, "reason": "R"} for name, status in states.items()]
    return {"apiVersion": REF.api_version, "kind": REF.kind, "status": {"conditions": conditions}}


def until_established(*answers: dict[str, Any], clock: VirtualClock, on_event: OnEvent = silent) -> None:
    wait.until_established(Cluster(*answers), REF, clock=clock, timeout_s=60, on_event=on_event)


def test_a_definition_is_waited_for() -> None:
    clock = VirtualClock(0)
    fresh: dict[str, Any] = {**definition(), "status": {"conditions": None}}
    until_established(fresh, definition(), definition(Established="True"), clock=clock)
    assert 0 < clock.now_s() < 1


def test_a_refused_definition_ends_the_wait() -> None:
    clock = VirtualClock(0)
    with pytest.raises(NotReadyError, match="cannot be served"):
        until_established(definition(NamesAccepted="False"), clock=clock)
    assert clock.now_s() == 0


def test_a_definition_that_never_comes_is_told_and_ends_the_wait() -> None:
    clock, times = VirtualClock(0), list[float]()
    with pytest.raises(NotReadyError, match="not served within 60 s"):
        until_established(definition(), clock=clock, on_event=lambda event: times.append(clock.now_s()))
    assert times == [pytest.approx(30, abs=1)]


def live(*finalizers: str, **conditions: str) -> dict[str, Any]:
    entries = [{"type": name, "status": "True", "message": text} for name, text in conditions.items()]
    return {"metadata": {"finalizers": list(finalizers)}, "status": {"conditions": entries}}


@pytest.mark.parametrize(
    ("live", "reason"),
    [
        ({}, ""),
        (live(), ""),
        (live("example.org/hold"), "its finalizers are still there: example.org/hold"),
        (live("foregroundDeletion"), "what it owns is still there"),
        (live("foregroundDeletion", "a/b"), "its finalizers are still there: a/b"),
        (live("kubernetes"), ""),
        (
            live("kubernetes", NamespaceContentRemaining="Some resources\n  are remaining"),
            "Some resources are remaining",
        ),
        (live(Ready="all is well"), ""),
        ({"status": {"conditions": None}, "metadata": {"finalizers": None}}, ""),
    ],
    ids=["none", "nothing", "finalizer", "owned", "both", "own", "namespace", "other", "null"],
)
def test_what_holds_an_object_is_said(live: dict[str, Any], reason: str) -> None:
    assert obstacles(live) == reason


# --- when a reason is told: soon, once, and not for what only passes ---

WEB = KubeObject(data={"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}})


class Reasons:
    """A watcher of an object that waits for one reason a second, and then works."""

    notes = ()

    def __init__(self, clock: VirtualClock, reasons: list[str]) -> None:
        self._clock, self._reasons = clock, reasons

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...

    def outage(self) -> None: ...

    def rounds(self) -> Iterator[list[ResourceStatus]]:
        for readiness in [*map(waiting, self._reasons), ready()]:
            yield [ResourceStatus(desired=WEB, live=None, readiness=readiness)]
            self._clock.sleep(1)


def reports(*reasons: str) -> list[tuple[float, str]]:
    """Give what is told, and after how many seconds."""
    clock, lines = VirtualClock(0), list[tuple[float, str]]()
    watcher: Any = Reasons(clock, list(reasons))
    wait.until_ready(
        watcher,
        {WEB.identity: Terms()},
        clock=clock,
        on_event=lambda event: lines.append((clock.now_s(), event.text)),
    )
    return lines


def test_a_reason_that_stays_is_told_soon_and_once() -> None:
    assert reports(*["no GPU"] * 30) == [(2, "no GPU")]


def test_what_changes_all_the_time_is_told_every_ten_seconds() -> None:
    assert len(reports(*[f"{number} of 40 pods ready" for number in range(35)])) == 3


@pytest.mark.parametrize(
    ("reasons", "lines"),
    [
        (["is not scheduled yet", "is being started", "no GPU", "no GPU", "no GPU"], ["no GPU"]),
        ([*["a"] * 3, *["b"] * 3, *["a"] * 3], ["a", "b", "a"]),
    ],
    ids=["what passes is not told", "what comes back is told again"],
)
def test_reasons_are_told_once_they_stayed(reasons: list[str], lines: list[str]) -> None:
    assert [line for _, line in reports(*reasons)] == lines


# --- barriers ---

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
        obj = KubeObject(data={**data, "metadata": {**data["metadata"], "namespace": "ml"}})
        self.cluster.apply(obj.data)
        return obj

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
    live = existing(world.cluster, ObjectRef.of(web.data))
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
    migration = world.make(job())
    world.gates.ready("`migrate`", [migration])
    live = existing(world.cluster, ObjectRef.of(migration.data))
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
