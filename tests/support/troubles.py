"""What can happen to training jobs: users, failures, nodes that come and go, an API server that refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from mlstack.elastic import facts
from mlstack.elastic.facts import PodFacts
from mlstack.errors import TransientError, UnreachableError
from mlstack.kube.client import ObjectRef
from tests.support.elastic import node, pod, training_job
from tests.support.stage import JOBS, Stage

Obj = dict[str, Any]


class Troubles:
    """Happenings on a stage, each by its name; `random` decides where chance does."""

    def __init__(self, stage: Stage, random: Random) -> None:
        """Hold the parts."""
        self._stage, self._random, self._number = stage, random, 0
        self._kinds: dict[str, Callable[[], object]] = {
            "submit": self._submit,
            "serve": self._serve,
            "kill": self._kill,
            "succeed": lambda: self._end("Succeeded"),
            "fail": lambda: self._end("Failed"),
            "evict": lambda: self._end("Failed", reason="Evicted"),
            "delete": self._delete,
            "add node": self._add_node,
            "lose node": self._lose_node,
            "restart": stage.restart,
            "refuse": self._refuse,
            "suspend": lambda: self._change({"suspend": random.random() < 0.5}),
            "bound": self._bound,
        }

    @property
    def names(self) -> Sequence[str]:
        """Give what can happen."""
        return tuple(self._kinds)

    def happen(self, name: str) -> None:
        """Let it happen."""
        self._kinds[name]()

    def end(self) -> None:
        """Let nothing be refused any more."""
        self._stage.cluster.refuses = lambda: None

    def _new(self) -> int:
        self._number += 1
        return self._number

    def _jobs(self) -> list[Obj]:
        return self._stage.all("TrainingJob", JOBS)

    def _pods(self) -> list[PodFacts]:
        return [facts.parse_pod(obj) for obj in self._stage.all("Pod")]

    def _submit(self) -> None:
        if len(self._jobs()) >= 5:
            return
        random, minimum = self._random, self._random.randint(1, 3)
        self._stage.put(
            training_job(
                f"job-{self._new()}",
                minimum=minimum,
                maximum=minimum + random.randint(0, 4),
                cpu=str(random.randint(1, 4)),
                pservers=random.randint(0, 2),
                fault_tolerant=random.random() < 0.8,
                priority=random.randint(0, 1),
            )
        )

    def _serve(self) -> None:
        self._stage.put(pod(f"web-{self._new()}", cpu=str(self._random.randint(1, 4)), priority=1000))

    def _kill(self) -> None:
        pods = self._pods()
        if pods:
            self._stage.delete("Pod", self._random.choice(pods).name)

    def _end(self, phase: str, **status: str) -> None:
        live = [pod for pod in self._pods() if pod.role == "trainer" and pod.is_live and pod.node]
        if live:
            self._stage.end(self._random.choice(live).name, phase=phase, **status)

    def _delete(self) -> None:
        jobs = self._jobs()
        if jobs:
            self._stage.delete("TrainingJob", self._random.choice(jobs)["metadata"]["name"], JOBS)

    def _add_node(self) -> None:
        self._stage.put(node(f"node-{self._new()}", cpu="6"))

    def _lose_node(self) -> None:
        nodes = self._stage.all("Node")
        if len(nodes) < 2:
            return
        name = self._random.choice(nodes)["metadata"]["name"]
        self._stage.delete("Node", name)
        for lost in self._pods():
            if lost.node == name:
                self._stage.delete("Pod", lost.name)

    def _refuse(self) -> None:
        def refuse() -> None:
            if self._random.random() < 0.1:
                raise self._random.choice([TransientError("busy"), UnreachableError("no answer")])

        self._stage.cluster.refuses = refuse

    def _bound(self) -> None:
        elastic = [job for job in self._jobs() if job["spec"]["fault_tolerant"]]
        if elastic:
            job = self._random.choice(elastic)
            most = job["spec"]["trainer"]["min-instance"] + self._random.randint(0, 5)
            self._change({"trainer": {"max-instance": most}}, job)

    def _change(self, spec: Obj, job: Obj | None = None) -> None:
        jobs = self._jobs()
        if jobs:
            ref = ObjectRef.of(job or self._random.choice(jobs))
            self._stage.memory.patch(ref, {"spec": spec})
