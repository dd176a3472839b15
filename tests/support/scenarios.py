"""Scenarios made up from a number: mixed nodes, jobs of all shapes, and everything that can happen to them.

For the last `CALM_S` seconds nothing happens any more, so that what remains undone then is never done.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from mlstack.simulator import scenario
from mlstack.simulator.scenario import Scenario

EVENTFUL_S = 160
CALM_S = 140
"""A silent node is given up after 40 s, a gang without a place after 90 s."""

GPU_TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}

Obj = dict[str, Any]


def made_up(number: int) -> Scenario:
    """Give the scenario of a number."""
    return scenario.read(_Maker(Random(f"scenario/{number}")).make(), where=f"made-up-{number}.yaml")


class _Maker:
    """Makes one scenario up.

    Args:
        chance: decides.
    """

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.nodes = list(self._nodes())
        self.jobs = [self._job(index) for index in range(chance.randint(2, 7))]
        self.services = [self._service(index) for index in range(chance.randint(0, 2))]

    def make(self) -> Obj:
        """Give the scenario as its file would hold it."""
        chance = self.chance
        return {
            "seconds": EVENTFUL_S + CALM_S,
            "grace": chance.choice([1, 5, 5, 30]),
            "controllers": chance.choice([1, 1, 2]),
            "nodes": self.nodes,
            "jobs": self.jobs,
            "services": self.services,
            "events": [event for _ in range(chance.randint(0, 6)) for event in self._events()],
            "faults": chance.choice([{}, {}, {"conflicts": 5}, {"errors": 3}, {"conflicts": 5, "errors": 5}]),
            "scheduler": {"scoring": chance.choice(["least-allocated", "most-allocated"])},
        }

    def _nodes(self) -> Iterator[Obj]:
        chance = self.chance
        for index in range(chance.randint(1, 3)):
            cores = chance.choice([4, 8, 12, 16, 24, 32, 64])
            found = {
                "name": f"c{index}",
                "count": chance.randint(1, 5),
                "cpu": cores,
                "memory": f"{4 * cores}Gi",
            }
            yield {**found, **({"background": {"cpu": "380m"}} if chance.random() < 0.7 else {})}
        if chance.random() < 0.4:
            gpu = {"name": "g", "count": chance.randint(1, 3), "cpu": 32, "memory": "128Gi"}
            taints = {"taints": [GPU_TAINT]} if chance.random() < 0.5 else {}
            yield {**gpu, "gpu": chance.choice([1, 4, 8]), "labels": {"pool": "gpu"}, **taints}

    def _job(self, index: int) -> Obj:
        chance = self.chance
        minimum = chance.choice([1, 1, 2, 2, 3, 6])
        has_gpus = any("gpu" in group for group in self.nodes) and chance.random() < 0.5
        trainer = {
            "cpu": chance.choice(["500m", 1, 2, 3, 5]),
            "memory": chance.choice(["512Mi", "2Gi", "8Gi"]),
        }
        found: Obj = {
            "name": f"j{index}",
            "at": chance.randint(0, 80),
            "min": minimum,
            "max": minimum if chance.random() < 0.15 else minimum + chance.choice([1, 4, 10, 40]),
            "trainer": {**trainer, **({"gpu": chance.choice([1, 1, 2])} if has_gpus else {})},
            "priority": chance.choice([0, 0, 0, 1, 5]),
            "weight": chance.choice([1, 1, 1, 3]),
        }
        if chance.random() < 0.6:
            found["pservers"] = {"count": chance.randint(1, 4), "cpu": chance.choice(["500m", 1, 2, 4])}
            found["master"] = {"cpu": "500m"}
        if chance.random() < 0.25:
            found["work"] = chance.choice([60, 300, 900])
        return {**found, "spec": self._spec(has_gpus=has_gpus)}

    def _spec(self, *, has_gpus: bool) -> Obj:
        chance = self.chance
        found: Obj = {}
        if has_gpus:
            found["tolerations"] = [{"key": GPU_TAINT["key"], "operator": "Exists"}]
        if chance.random() < 0.2:
            found["scaleUpCooldownSeconds"] = 30
        if chance.random() < 0.4:
            found["speed"] = chance.choice(["linear", "amdahl:0.9", "amdahl:0.99"])
        return found

    def _service(self, index: int) -> Obj:
        chance = self.chance
        return {
            "name": f"s{index}",
            "at": chance.choice([0, 20]),
            "replicas": chance.randint(1, 6),
            "cpu": chance.choice(["500m", 1, 3]),
            "priority": chance.choice([1000, 1000, 0]),
        }

    def _events(self) -> Iterator[Obj]:
        """Give something that happens, and what puts an end to it."""
        chance, at = self.chance, self.chance.randint(15, EVENTFUL_S - 70)
        later = at + chance.randint(5, 70)
        job = chance.choice(self.jobs)["name"]
        group = chance.choice(self.nodes)
        node = f"{group['name']}-{chance.randrange(group['count'])}"
        kinds = ["job", "pods", "nodes", "controller", *(["service"] if self.services else [])]
        match chance.choice(kinds):
            case "service":
                name = chance.choice(self.services)["name"]
                yield {"at": at, "what": "scale", "name": name, "count": chance.randint(0, 15)}
            case "job":
                yield from self._of_job(job, at, later)
            case "pods":
                what = chance.choice(["crash-trainers", "delete-trainers"])
                yield {"at": at, "what": what, "name": job, "count": chance.randint(1, 4)}
            case "nodes":
                yield from self._of_nodes(node, group["name"], at, later)
            case _:
                yield self._of_controller(at)

    def _of_job(self, job: str, at: int, later: int) -> Iterator[Obj]:
        what = self.chance.choice(["delete-job", "suspend-job", "limit-job", "finish-job"])
        most = next(one["max"] for one in self.jobs if one["name"] == job)
        least = next(one["min"] for one in self.jobs if one["name"] == job)
        yield {"at": at, "what": what, "name": job, "count": self.chance.randint(least, most)}
        if what == "suspend-job":
            yield {"at": later, "what": "resume-job", "name": job}

    def _of_nodes(self, node: str, group: str, at: int, later: int) -> Iterator[Obj]:
        match self.chance.choice(["fail", "cordon", "remove", "add"]):
            case "fail":
                yield {"at": at, "what": "fail-node", "name": node}
                yield {"at": later, "what": self.chance.choice(["heal-node", "remove-node"]), "name": node}
            case "cordon":
                yield {"at": at, "what": "cordon-node", "name": node}
                yield {"at": later, "what": "uncordon-node", "name": node}
            case "remove":
                yield {"at": at, "what": "remove-node", "name": node}
            case _:
                yield {"at": at, "what": "add-nodes", "name": group, "count": self.chance.randint(1, 3)}

    def _of_controller(self, at: int) -> Obj:
        whats = [
            "kill-controller",
            "stop-controller",
            "freeze-controller",
            "isolate-controller",
            "break-watch",
        ]
        return {"at": at, "what": self.chance.choice(whats), "seconds": self.chance.choice([1, 3, 20])}
