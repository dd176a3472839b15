"""Made-up clusters, jobs and misfortunes: in every moment every law holds, and in the end all is done.

Each number is a scenario of its own; the same number is always the same one. For the last `CALM_S` seconds
nothing happens any more, so that what remains undone then is never done.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from mlstack.simulator import measures, scenario
from mlstack.simulator.measures import JobSample
from mlstack.simulator.run import SimulationOutcome, simulate
from mlstack.simulator.scenario import EVENTS

FEW = range(24)
MANY = range(1_140, 1_200)
POLICIES = ("fair", "throughput", "edl")
EVENTFUL_S = 160
CALM_S = 140
"""A silent node is given up after 40 s, a gang without a place after 90 s."""
LONGEST_S = 110
"""So long a job may have been admitted without its whole gang: it is given up after 90 s."""
STEADY_S = 60
"""What a job was told to have for so long it has."""
GPU_TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}

Obj = dict[str, Any]


def judge(number: int, policy: str) -> None:
    data = _Maker(Random(f"scenario/{number}")).make()
    outcome = simulate(scenario.read(data, where=f"made-up-{number}.yaml"), policy, seed=number)
    assert outcome.violations == ()
    # EDL's rules have no gangs: what they admit may wait for ever.
    assert policy == "edl" or undone(outcome) == []


@pytest.mark.parametrize("number", FEW)
def test_a_made_up_scenario_breaks_no_law(number: int) -> None:
    judge(number, POLICIES[number % 3])


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("number", MANY)
def test_many_made_up_scenarios_break_no_law(number: int, policy: str) -> None:
    judge(number, policy)


def undone(outcome: SimulationOutcome) -> list[str]:
    """Give what should have come about by the end of a simulation and has not."""
    faults = []
    for key, history in measures.histories(outcome.samples).items():
        rows = [job for _, job in history]
        job = rows[-1]
        if history[-1][0] != outcome.samples[-1].at_ms:
            continue  # it was deleted
        if all(map(_is_partial, rows[-LONGEST_S:])):
            faults.append(f"{key} has not had its whole gang for {LONGEST_S} s")
        is_short = all(row.target == job.target and row.trainers != row.target for row in rows[-STEADY_S:])
        if job.target and is_short and not _is_ending(job):
            faults.append(f"{key} was told to have {job.target} trainers and has {job.trainers}")
        if job.target == 0 and all(row.target == 0 and row.pods for row in rows[-STEADY_S:]):
            faults.append(f"{key} is to have no pods and has {job.pods}")
    return faults


def _is_partial(job: JobSample) -> bool:
    return bool(job.target) and not job.is_complete and not _is_ending(job)


def _is_ending(job: JobSample) -> bool:
    return job.is_over or job.phase == "Completing"


class _Maker:
    """Makes one scenario up."""

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
            count = chance.randint(1, 5)
            group = {"name": f"c{index}", "count": count, "cpu": cores, "memory": f"{4 * cores}Gi"}
            yield group | ({"background": {"cpu": "380m"}} if chance.random() < 0.7 else {})
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
        job: Obj = {
            "name": f"j{index}",
            "at": chance.randint(0, 80),
            "min": minimum,
            "max": minimum if chance.random() < 0.15 else minimum + chance.choice([1, 4, 10, 40]),
            "trainer": {**trainer, **({"gpu": chance.choice([1, 1, 2])} if has_gpus else {})},
            "priority": chance.choice([0, 0, 0, 1, 5]),
            "weight": chance.choice([1, 1, 1, 3]),
        }
        if chance.random() < 0.6:
            job["pservers"] = {"count": chance.randint(1, 4), "cpu": chance.choice(["500m", 1, 2, 4])}
            job["master"] = {"cpu": "500m"}
        if chance.random() < 0.25:
            job["work"] = chance.choice([60, 300, 900])
        return {**job, "spec": self._spec(has_gpus=has_gpus)}

    def _spec(self, *, has_gpus: bool) -> Obj:
        chance = self.chance
        spec: Obj = {}
        if has_gpus:
            spec["tolerations"] = [{"key": GPU_TAINT["key"], "operator": "Exists"}]
        if chance.random() < 0.2:
            spec["scaleUpCooldownSeconds"] = 30
        if chance.random() < 0.4:
            spec["speed"] = chance.choice(["linear", "amdahl:0.9", "amdahl:0.99"])
        return spec

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
        most = next(entry["max"] for entry in self.jobs if entry["name"] == job)
        least = next(entry["min"] for entry in self.jobs if entry["name"] == job)
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
        whats = [what for what, target in EVENTS.items() if not target]
        return {"at": at, "what": self.chance.choice(whats), "seconds": self.chance.choice([1, 3, 20])}
