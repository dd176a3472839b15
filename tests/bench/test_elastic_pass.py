"""How long one pass of the controller takes of a processor, writes aside, and each event that it hears."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from statistics import median
from time import process_time
from typing import Any
from unittest.mock import patch

import pytest

from mlstack.elastic import reconciler
from mlstack.elastic.actions import Action
from mlstack.elastic.cache import ClusterCache
from mlstack.elastic.pods import PLANNED
from mlstack.elastic.reconciler import Reconciler
from mlstack.kube.client import WatchEvent
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.trainingjobs import small_job

pytestmark = pytest.mark.bench

Obj = dict[str, Any]

NOW_MS = 1_700_000_000_000
CREATED = "2023-11-14T22:00:00Z"
READY = {"type": "Ready", "status": "True"}
SIZES = (12, 20, 24)


class Scene:
    """A cluster that does at once what a dry pass asks for.

    Args:
        nodes: how many.
        jobs: how many.
    """

    def __init__(self, nodes: int, jobs: int) -> None:
        self.cache = ClusterCache()
        self.now_ms = NOW_MS
        self.pods: dict[str, Obj] = {}
        self._jobs: dict[str, Obj] = {}
        self._version = 1
        self._cluster = MemoryCluster(load_schemas("1.36"))
        for index in range(nodes):
            self.hear(_node(f"n{index:04}", SIZES[index % 3]))
            self.hear(_pod(f"agent-{index}", "kube-system", f"n{index:04}", cpu="380m"))
        for index in range(jobs):
            self.hear(_job(f"job-{index:03}", index))

    def hear(self, obj: Obj, *, is_gone: bool = False) -> bool:
        """Let the world hear of an object in a new version."""
        self._version += 1
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(self._version)
        metadata.setdefault("uid", f"{obj['kind']}-{metadata['name']}")
        metadata.setdefault("creationTimestamp", CREATED)
        metadata.setdefault("generation", 1)
        if obj["kind"] == "TrainingJob":
            self._jobs[metadata["name"]] = obj
        if obj["kind"] == "Pod":
            self.pods[metadata["name"]] = obj
        return self.cache.handle(WatchEvent(type="DELETED" if is_gone else "MODIFIED", object=obj))

    def reconciler(self) -> Reconciler:
        """Give a controller that remembers nothing and writes nothing."""
        return Reconciler(self._cluster, self.cache, is_dry=True)

    def settle(self) -> None:
        """Carry out passes until there are no more pods to be made."""
        for _ in range(10):
            self.now_ms += 5_000
            with patch.object(reconciler, "MOST_CREATIONS", 100_000):
                report = self.reconciler().reconcile(self.now_ms)
            for action in report.actions:
                self._carry_out(action)
            if not any(action.ref.kind in ("Pod", "StatefulSet") for action in report.actions):
                return
        raise AssertionError("it does not come to rest")

    def _carry_out(self, action: Action) -> None:
        body: Obj = deepcopy(dict(action.body or {}))
        if action.verb == "status":
            job = self._jobs[action.ref.name]
            self.hear({**job, "status": _merged(job.get("status") or {}, body)})
        elif action.verb == "delete" and action.ref.kind == "Pod":
            self.lose(self.pods[action.ref.name])
        elif action.ref.kind == "Pod":
            self._bind(body, str(body["metadata"]["annotations"][PLANNED]))
        elif action.ref.kind == "StatefulSet":
            self.hear(body)
            for index, node in enumerate(_held_to(body)):
                self._bind(_of_set(body, index), node)
        elif action.ref.kind in ("Service", "PodDisruptionBudget"):
            self.hear(body)

    def _bind(self, pod: Obj, node: str) -> None:
        pod["spec"]["nodeName"] = node
        self.hear({**pod, "status": {"phase": "Running", "conditions": [READY]}})

    def lose(self, pod: Obj) -> None:
        """Let a pod be gone."""
        self.hear(pod, is_gone=True)
        self.pods.pop(pod["metadata"]["name"])


def _merged(before: Obj, patch: Obj) -> Obj:
    merged = {name: value for name, value in before.items() if name not in patch}
    for name, value in patch.items():
        if isinstance(value, dict):
            merged[name] = _merged(before.get(name) or {}, value)
        elif value is not None:
            merged[name] = value
    return merged


def _held_to(stateful_set: Obj) -> list[str]:
    """Give a node for each pod of a set, of those that it is held to; none when it is let go again."""
    affinity = stateful_set["spec"]["template"]["spec"].get("affinity") or {}
    required = (affinity.get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return []
    terms = required["nodeSelectorTerms"]
    names = [name for term in terms for rule in term["matchExpressions"] for name in rule["values"]]
    return [names[index % len(names)] for index in range(stateful_set["spec"]["replicas"])]


def _of_set(stateful_set: Obj, index: int) -> Obj:
    template = deepcopy(stateful_set["spec"]["template"])
    metadata = stateful_set["metadata"]
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "controller": True, "name": metadata["name"]}
    template["metadata"] |= {
        "name": f"{metadata['name']}-{index}",
        "namespace": metadata["namespace"],
        "ownerReferences": [{**owner, "uid": metadata["uid"]}],
    }
    template["spec"].pop("affinity", None)
    return {"apiVersion": "v1", "kind": "Pod", **template}


def _node(name: str, cores: int) -> Obj:
    labels = {"kubernetes.io/hostname": name}
    allocatable = {"cpu": str(cores), "memory": f"{4 * cores}Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": allocatable, "conditions": [READY]},
    }


def _pod(name: str, namespace: str, node: str, *, cpu: str) -> Obj:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "500Mi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container], "nodeName": node},
        "status": {"phase": "Running", "conditions": [READY]},
    }


def _job(name: str, index: int) -> Obj:
    server = {"requests": {"cpu": f"{1000 + 20 * (index % 10)}m", "memory": "1Gi"}}
    job = small_job(name, minimum=2, maximum=60)
    job["spec"]["trainer"]["resources"] = {
        "requests": {"cpu": f"{1200 + 30 * (index % 10)}m", "memory": "1Gi"}
    }
    job["spec"]["pserver"] = {"min-instance": 10, "max-instance": 10, "resources": server}
    job["spec"]["master"] = {"resources": server}
    job["metadata"]["uid"] = f"uid-{name}"
    return job


def milliseconds(runs: Iterable[Callable[[], object]]) -> tuple[float, float]:
    """Give median and maximum of what runs take of a processor."""
    taken = []
    for run in runs:
        begin = process_time()
        run()
        taken.append(1000 * (process_time() - begin))
    return median(taken), max(taken)


@pytest.mark.parametrize(("nodes", "jobs"), [(133, 20), (1000, 200)])
def test_time_of_one_pass(nodes: int, jobs: int) -> None:
    scene = Scene(nodes, jobs)
    cold = milliseconds([lambda: scene.reconciler().reconcile(scene.now_ms)])
    scene.settle()
    settled = scene.reconciler()
    print(f"\n{jobs} jobs, {nodes} nodes, {len(scene.pods)} pods")
    print(f"  first pass, all jobs wait        {cold[0]:8.1f} ms")
    steady = milliseconds([lambda: settled.reconcile(scene.now_ms)] * 6)
    print(f"  nothing to do               p50 {steady[0]:8.1f}   most {steady[1]:8.1f} ms")
    pods = [deepcopy(pod) for pod in list(scene.pods.values())[:2000]]
    for pod in pods:
        pod["status"]["conditions"] = [{**READY, "status": "False"}]
    events = milliseconds([lambda pod=pod: scene.hear(pod) for pod in pods])  # type: ignore[misc]
    print(f"  one event of a pod          p50 {events[0]:8.3f}   most {events[1]:8.3f} ms")
    dead = {f"n{index:04}" for index in range(0, nodes, 5)}
    for pod in [pod for pod in scene.pods.values() if pod["spec"]["nodeName"] in dead]:
        scene.lose(pod)
    for name in dead:
        scene.hear({**_node(name, 12), "spec": {"unschedulable": True}})
    lost = milliseconds([lambda: settled.reconcile(scene.now_ms)] * 3)
    print(f"  a fifth of the nodes gone   p50 {lost[0]:8.1f}   most {lost[1]:8.1f} ms")
