"""A whole simulated cluster: the store and all that works on it but the controller under test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mlstack.elastic.sampling import Observer, Sample
from mlstack.elastic.simulate import objects
from mlstack.elastic.simulate.kernel import START_MS, Kernel
from mlstack.elastic.simulate.kubelet import Kubelets
from mlstack.elastic.simulate.nodes import NodeLifecycle
from mlstack.elastic.simulate.scenario import NodeGroup, Scenario
from mlstack.elastic.simulate.scheduler import Scheduler
from mlstack.elastic.simulate.store import Store
from mlstack.elastic.simulate.workloads import Collector, Workloads

SAMPLE_MS = 1_000

_OBSERVED = ("Pod", "Node", "TrainingJob", "Deployment")


class Environment:
    """A cluster with its scheduler, kubelets and controllers.

    Attributes:
        scenario: what it is of.
        kernel: the time.
        store: the objects.
        kubelets: what runs on the nodes.
        lifecycle: makes nodes fail.
        samples: one a second, from the beginning of the scenario's window.

    Args:
        scenario: what happens.
        seed: of chance.
    """

    def __init__(self, scenario: Scenario, seed: int) -> None:
        """Make the nodes and everything that works on them."""
        self.scenario = scenario
        self.kernel = Kernel(seed)
        self.store = Store(self.kernel)
        self.samples: list[Sample] = []
        self._observer = Observer()
        self.store.watch(_OBSERVED, self._observer.hear)
        self.kubelets = Kubelets(self.store, self.kernel, scenario.kubelet)
        self.lifecycle = NodeLifecycle(self.store, self.kernel, self.kubelets)
        self._scheduler = Scheduler(self.store, self.kernel, scenario.scheduler)
        self._workloads = Workloads(self.store, self.kernel, scenario.workloads)
        self._collector = Collector(self.store, self.kernel)
        for priority_class in objects.classes():
            self.store.write(priority_class)
        for group in scenario.nodes:
            self.add_nodes(group)
        for service in scenario.services:
            self.later(service.at_ms, lambda service=service: self.store.write(objects.deployment(service)))  # type: ignore[misc]  # bound now

    def add_nodes(self, group: NodeGroup) -> None:
        """Add nodes, numbered on from those of the same group."""
        first = sum(node["metadata"]["name"].startswith(f"{group.name}-") for node in self.store.all("Node"))
        for node in objects.nodes(group, first):
            if group.background:  # it is there when the scheduler first hears of the node
                self.store.write(objects.background(node["metadata"]["name"], group.background))
            self.store.write(node)

    def more_nodes(self, name: str, count: int) -> None:
        """Add so many nodes like those of a group."""
        for group in self.scenario.nodes:
            if group.name == name:
                self.add_nodes(replace(group, count=count))

    def later(self, at_ms: int, action: Callable[[], object]) -> None:
        """Do something at a time of the scenario."""
        self.kernel.at(START_MS + at_ms, lambda: _without_result(action))

    def run(self) -> None:
        """Let the scenario happen, and take a sample every second."""
        self.later(self.scenario.begin_ms, self._sample)
        self.kernel.run(START_MS + self.scenario.end_ms)

    def _sample(self) -> None:
        self.samples.append(self._observer.sample(self.kernel.now_ms - START_MS - self.scenario.begin_ms))
        self.kernel.after(SAMPLE_MS, self._sample)


def _without_result(action: Callable[[], object]) -> None:
    action()
