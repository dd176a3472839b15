"""Clusters whose watches do what a test tells them, and what is seen of objects in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mlstack.deploy.changes import RunEvent
from mlstack.deploy.wait import ReadinessWatcher, until_ready
from mlstack.errors import MlstackError
from mlstack.kube.client import ObjectRef, WatchEvent
from mlstack.objects.kube_object import Identity, KubeObject
from mlstack.readiness.rule import Readiness, ReadinessState, Terms, terms_of
from mlstack.testing.cluster import MemoryCluster
from mlstack.testing.controllers import Simulation
from mlstack.validate.validate import load_schemas
from tests.support.deploying import VirtualClock

Fault = Callable[["FaultyCluster", str], None]


class FaultyCluster(MemoryCluster):
    """A cluster in memory whose next requests fail as a test wants.

    Attributes:
        faults: what the next watches meet before they begin; may raise or change the cluster.
        silent: raised by every request while it is set.
        watches: the kinds that were watched, in order.
        gets: the objects that were asked for.
    """

    def __init__(self, clock: VirtualClock) -> None:
        """Begin without faults."""
        self.faults: list[Fault] = []
        self.silent: MlstackError | None = None
        self.watches: list[str] = []
        self.gets: list[ObjectRef] = []
        super().__init__(load_schemas("1.36"), name="faulty", clock=clock)

    def get(self, ref: ObjectRef) -> dict[str, Any] | None:
        """Read one object, unless the cluster is silent."""
        self.gets.append(ref)
        if self.silent is not None:
            raise self.silent
        return super().get(ref)

    def watch(self, api_version: str, kind: str, **options: Any) -> Iterator[WatchEvent]:
        """Watch, and meet the next fault first."""
        self.watches.append(kind)
        if self.silent is not None:
            raise self.silent
        if self.faults:
            self.faults.pop(0)(self, kind)
        yield from super().watch(api_version, kind, **options)


class Watched:
    """A cluster in memory with what is wanted of it, and one wait for it.

    Args:
        gpus: GPUs of the one node; None plays no controllers at all.
    """

    def __init__(self, *, gpus: int | None = 0) -> None:
        """Make a cluster with a namespace `ml`."""
        self.clock = VirtualClock()
        self.cluster = FaultyCluster(self.clock)
        self.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
        if gpus is not None:
            simulation = Simulation(self.cluster, gpus=gpus, now=lambda: "2027-01-15T08:00:00Z")
            self.cluster.on_idle = simulation.step
        self.events: list[RunEvent] = []
        self.readiness: dict[Identity, Readiness] = {}
        self.uids: dict[Identity, str] = {}

    def apply(self, data: Mapping[str, Any], *, component: str = "a") -> KubeObject:
        """Write an object into namespace `ml` and give it as something wanted."""
        placed = {**data, "metadata": {"namespace": "ml", **data["metadata"]}}
        wanted = KubeObject(data=placed, component=component)
        self.uids[wanted.identity] = self.cluster.apply(placed).object["metadata"]["uid"]
        return wanted

    def lookout(self, wanted: Sequence[KubeObject], **options: Any) -> ReadinessWatcher:
        """Give the lookout of these objects."""
        return ReadinessWatcher(self.cluster, wanted, clock=self.clock, uids=self.uids, **options)

    def wait(self, *wanted: KubeObject, labels: str = "", balancer: bool = False, **how: Any) -> float:
        """Wait for objects and give the seconds that this took."""
        begun_s = self.clock.now_s()
        standings: dict[Identity, ReadinessState] = {}
        terms: dict[Identity, Terms] = {obj.identity: terms_of(obj, **how) for obj in wanted}
        try:
            until_ready(
                self.lookout(wanted, labels=labels, wait_for_load_balancer=balancer),
                terms,
                clock=self.clock,
                on_event=self.events.append,
                standings=standings,
            )
        finally:
            self.readiness = {who: state.readiness for who, state in standings.items()}
            self.waited_s = self.clock.now_s() - begun_s
        return self.waited_s

    @property
    def messages(self) -> list[tuple[str, str]]:
        """Give the messages: about whom, and what; not what was said again after a long time."""
        return [(str(event.identity or ""), event.text) for event in self.events if event.kind != "still"]
