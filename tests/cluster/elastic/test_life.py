"""A made-up life of training jobs on a real cluster: no law is broken, and all comes to rest."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from mlstack.kube.api_server import connect
from mlstack.simulator.measures import Sample, breaches_of_sample, stale_pods
from tests.bench.elastic.spectator import Spectator
from tests.support.api import ApiRefusedError
from tests.support.cluster import TestCluster
from tests.support.elastic import training_job
from tests.support.elastic_controller import Jobs, Start

pytestmark = pytest.mark.cluster

Obj = dict[str, Any]

SEEDS = [int(seed) for seed in os.environ.get("MLSTACK_LIFE_SEEDS", "1").split(",")]
STEPS, STEP_S = 30, 1.0


class Life:
    """What happens to a cluster, one thing after the other, as a seed has it."""

    def __init__(self, jobs: Jobs, start: Start, seed: int) -> None:
        self.jobs, self.random, self._start = jobs, Random(seed), start
        self.names: list[str] = []
        self.steps: list[str] = []
        self._number = 0
        self._cordoned = ""
        self._controllers = [start(f"begin-{index}", is_named=False) for index in range(2)]
        self.jobs.create(web())

    def step(self) -> None:
        """Let one thing happen."""
        actions = [self.submit] * 3 + [self.bound, self.serve, self.delete, self.lose, self.suspend]
        action = self.random.choice([*actions, self.cordon, self.kill])
        self._number += 1
        self.steps.append(action.__name__)
        action()

    def submit(self) -> None:
        """Submit a job of some shape, at most six."""
        if len(self.names) >= 6:
            return
        random, name = self.random, f"job-{self._number}"
        minimum = random.randint(1, 3)
        job = training_job(
            name,
            minimum=minimum,
            maximum=minimum + random.randint(0, 8),
            cpu=random.choice(["1", "2", "5"]),
            pservers=random.randint(0, 2),
            with_master=random.random() < 0.3,
            priority=random.choice([0, 0, 5]),
        )
        if random.random() < 0.3:
            job["spec"]["trainer"]["resources"]["limits"] = {"nvidia.com/gpu": random.choice(["1", "2"])}
        self.jobs.create(job)
        self.names.append(name)

    def bound(self) -> None:
        """Set the most trainers of a job."""
        if self.names:
            job = self.jobs.cluster.request("GET", self.jobs.path(self.random.choice(self.names)))
            most = job["spec"]["trainer"]["min-instance"] + self.random.randint(0, 9)
            self._patch(job["metadata"]["name"], {"trainer": {"max-instance": most}})

    def suspend(self) -> None:
        """Suspend a job, or let it go on."""
        if self.names:
            self._patch(self.random.choice(self.names), {"suspend": self.random.random() < 0.4})

    def delete(self) -> None:
        """Delete a job."""
        if len(self.names) > 2:
            self.jobs.cluster.request("DELETE", self.jobs.path(self.names.pop(0)))

    def serve(self) -> None:
        """Ask for more or fewer web pods."""
        self.jobs.scale("web", self.random.randint(0, 8), "deployments")

    def lose(self) -> None:
        """Delete a pod of a job."""
        pods = [pod["metadata"]["name"] for name in self.names for pod in self.jobs.pods(name)]
        if pods:
            with suppress(ApiRefusedError):  # it is gone already
                self.jobs.lose(self.random.choice(pods))

    def cordon(self) -> None:
        """Close a node, and open the one that was closed."""
        self.uncordon()
        self._cordoned = f"gke-gpu-{self.random.randint(0, 2)}"
        self.jobs.cordon(self._cordoned)

    def uncordon(self) -> None:
        """Open the node that was closed."""
        if self._cordoned:
            self.jobs.cordon(self._cordoned, False)
            self._cordoned = ""

    def kill(self) -> None:
        """Kill a controller and start another."""
        killed = self._controllers.pop(self.random.randint(0, 1))
        killed.program.kill()
        self._controllers.append(self._start(f"again-{self._number}", is_named=False))

    def end(self) -> None:
        """Let there be room for all, and nothing be suspended."""
        self.uncordon()
        self.jobs.scale("web", 0, "deployments")
        for name in self.names:
            self._patch(name, {"suspend": False})

    def _patch(self, name: str, spec: Obj) -> None:
        self.jobs.cluster.request("PATCH", self.jobs.path(name), {"spec": spec})


@pytest.mark.parametrize("seed", SEEDS)
def test_a_life_breaks_no_law_and_comes_to_rest(
    start: Start, jobs: Jobs, gke: TestCluster, seed: int
) -> None:
    life = Life(jobs, start, seed)
    spectator = Spectator(connect(gke.context, kubeconfig=str(gke.kubeconfig)))
    spectator.start(time.monotonic())
    try:
        for _ in range(STEPS):
            life.step()
            time.sleep(STEP_S)
    finally:
        life.end()

    def is_at_rest() -> bool:
        statuses = [jobs.status(name) for name in life.names]
        return all(status.get("phase") == "Running" or is_waiting(status) for status in statuses) and all(
            pod["spec"].get("nodeName") and pod["status"]["phase"] == "Running" for pod in jobs.pods()
        )

    jobs.wait_for(is_at_rest, what=f"rest after {life.steps}", timeout_s=60)
    spectator.stop()
    assert list(breaches(spectator.samples)) == [], life.steps
    owned = {pod["metadata"]["labels"].get("mlstack.dev/training-job") for pod in jobs.pods()}
    assert owned <= {*life.names, None}


def is_waiting(status: Obj) -> bool:
    """Tell whether a job waits, has no trainers and says why."""
    return (
        status.get("phase") == "Pending" and bool(status.get("reason")) and not status["trainer"]["replicas"]
    )


def breaches(samples: list[Sample]) -> Iterator[str]:
    for sample in samples:
        yield from breaches_of_sample(sample)
    yield from stale_pods(samples, allowed=20)


def web() -> Obj:
    container = {"name": "main", "image": "registry.example.org/web:1"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{**container, "resources": {"requests": {"cpu": "3"}}}]},
            },
        },
    }
