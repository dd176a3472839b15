"""Kubelets, and the controllers of nodes, workloads and garbage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from mlstack.clock import time_ms
from mlstack.dataclass import dataclass
from mlstack.kube.client import WatchEvent
from mlstack.objects.resources import NodePlace, is_eligible
from mlstack.simulator.engine import (
    ENDED,
    Action,
    Obj,
    SimulatedStore,
    is_live,
    is_ready,
    manifest,
    with_condition,
)

SILENT_MS = 40_000
"""How long a node may be silent before the control plane gives it up (node-monitor-grace-period)."""
_COLLECT_MS = 20_000
_UNREACHABLE = "node.kubernetes.io/unreachable"


class Kubelets:
    """The kubelets of all nodes, which may fail and heal, and the controllers that look after nodes.

    A pod runs a while after it is bound and goes when its grace is over. Pods are evicted from silent nodes,
    and collected after lost ones.
    """

    def __init__(self, store: SimulatedStore, start_ms: tuple[int, int]) -> None:
        self._store, self._kernel = store, store.kernel
        self._start_ms = start_ms
        self._chance = store.kernel.generator("kubelet")
        self._starting: set[str] = set()
        self._ending: set[str] = set()
        self._silent: set[str] = set()  # nodes whose kubelet, and all that runs on them, does nothing more
        self._failed: set[str] = set()  # those of them that are there
        store.watch(["Pod"], self._hear, name="kubelet")
        store.watch(["Node"], self._hear_node, name="nodes")

    def exit(self, pod: Mapping[str, Any], code: int) -> None:
        """Let the containers of a pod end by themselves, for good."""
        live = self._store.current(pod)
        if live is None or live["status"].get("phase") != "Running":
            return
        now = self._kernel.timestamp
        terminated = {"terminated": {"exitCode": code, "finishedAt": now}}
        containers = [
            {"name": container["name"], "ready": False, "restartCount": 0, "state": terminated}
            for container in live["spec"].get("containers") or ()
        ]
        conditions = with_condition(live, "Ready", "False", lastTransitionTime=now)
        phase = "Failed" if code else "Succeeded"
        status = {"phase": phase, "conditions": conditions, "containerStatuses": containers}
        self._store.update(live, status=status)

    def fail(self, node: str) -> None:
        """Let a node fall silent."""
        self._failed.add(node)
        self._silent.add(node)
        self._kernel.after(SILENT_MS, lambda: self._give_up(node))

    def heal(self, node: str) -> None:
        """Let a node come back; pods deleted meanwhile end now."""
        self._failed.discard(node)
        self._set_ready(node, "True", taints=[])
        self._silent.discard(node)
        for pod in self._pods_on(node):
            self._sync(pod)

    def cordon(self, node: str, *, is_closed: bool) -> None:
        """Keep new pods away from a node, or let them come again."""
        if live := self._store.get("Node", node):
            self._store.update(live, spec={"unschedulable": is_closed})

    def remove(self, node: str) -> None:
        """Take a node away for good, with its machine."""
        self._silent.add(node)
        if live := self._store.get("Node", node):
            self._store.remove(live)

    def _hear(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            self._starting.discard(event.object["metadata"]["uid"])
            self._ending.discard(event.object["metadata"]["uid"])
        else:
            self._sync(event.object)

    def _sync(self, pod: Mapping[str, Any]) -> None:
        node, metadata, phase = pod["spec"].get("nodeName"), pod["metadata"], pod["status"].get("phase")
        uid = metadata["uid"]
        if not node or node in self._silent:
            return
        if "deletionTimestamp" in metadata:
            if uid not in self._ending:
                self._ending.add(uid)
                grace_s = 0 if phase in ENDED else metadata["deletionGracePeriodSeconds"]
                self._kernel.after(grace_s * 1000, lambda: self._end(pod))
        elif phase == "Pending" and uid not in self._starting:
            self._starting.add(uid)
            self._kernel.after(self._chance.randint(*self._start_ms), lambda: self._start(pod))

    def _start(self, pod: Mapping[str, Any]) -> None:
        live = self._store.current(pod)
        if live is None or live["spec"]["nodeName"] in self._silent:
            self._starting.discard(pod["metadata"]["uid"])
        elif "deletionTimestamp" not in live["metadata"] and live["status"].get("phase") == "Pending":
            now = self._kernel.timestamp
            conditions = with_condition(live, "Ready", "True", lastTransitionTime=now)
            status = {"phase": "Running", "startTime": now, "conditions": conditions}
            self._store.update(live, status=status)

    def _end(self, pod: Mapping[str, Any]) -> None:
        live = self._store.current(pod)
        if live is not None and live["spec"]["nodeName"] not in self._silent:
            self._store.remove(live)
        self._ending.discard(pod["metadata"]["uid"])

    def _pods_on(self, node: str) -> list[Obj]:
        return [pod for pod in self._store.all("Pod") if pod["spec"].get("nodeName") == node]

    def _set_ready(self, node: str, status: str, taints: list[Obj]) -> None:
        if live := self._store.get("Node", node):
            now = self._kernel.timestamp
            conditions = with_condition(live, "Ready", status, lastTransitionTime=now)
            self._store.update(live, spec={"taints": taints}, status={"conditions": conditions})

    def _give_up(self, node: str) -> None:
        if node not in self._failed or self._store.get("Node", node) is None:
            return
        taints = [{"key": _UNREACHABLE, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
        self._set_ready(node, "Unknown", taints)
        for pod in self._pods_on(node):
            self._kernel.after(_tolerated_ms(pod["spec"]), partial(self._evict, node, pod))

    def _evict(self, node: str, pod: Mapping[str, Any]) -> None:
        live = self._store.current(pod)
        if live is not None and node in self._failed and "deletionTimestamp" not in live["metadata"]:
            self._store.evict(live, "DeletionByTaintManager")

    def _hear_node(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            self._kernel.after(_COLLECT_MS, partial(self._collect, event.object["metadata"]["name"]))

    def _collect(self, node: str) -> None:
        if self._store.get("Node", node) is None:
            for pod in self._pods_on(node):
                self._store.delete(pod, grace_s=0)


def _tolerated_ms(spec: Mapping[str, Any]) -> int:
    """Give how long a pod stays on a node that does not answer; five minutes unless it says otherwise."""
    silent = NodePlace("", {}, ({"key": _UNREACHABLE, "effect": "NoExecute"},))
    tolerations = spec.get("tolerations") or ()
    fitting = [item for item in tolerations if is_eligible({"tolerations": [item]}, silent)]
    limits = [int(item["tolerationSeconds"]) for item in fitting if item.get("tolerationSeconds") is not None]
    if not fitting:
        return 300_000
    return min(limits) * 1000 if limits else 10**12


KINDS = ("Deployment", "Job", "StatefulSet")
_SYNC_MS = 10


@dataclass(frozen=True, kw_only=True)
class WorkloadSettings:
    """How quick the controllers are; all of them share one limit, as in kube-controller-manager."""

    rate: int = 20  # requests a second, over a longer time
    burst: int = 30  # requests at once
    # whether pods of nodes with several of them go first, and those of about one age in no order (since
    # Kubernetes 1.21)
    spreads_removal: bool = True


class Workloads:
    """Controllers of Deployments, Jobs (as EDL used them) and StatefulSets: so many pods of a template.

    Deployments make their pods themselves, without a ReplicaSet between.
    """

    def __init__(self, store: SimulatedStore, settings: WorkloadSettings) -> None:
        self._store, self._kernel, self._settings = store, store.kernel, settings
        self._full_ms = 0  # when the bucket of requests will be full again
        self._names = store.kernel.generator("workloads")
        self._owned: dict[str, dict[str, Obj]] = {}
        self._doomed: dict[str, set[str]] = {}
        self._due: set[tuple[str, str, str]] = set()
        store.watch(["Pod"], self._track)
        store.watch([*KINDS, "Pod"], self._hear, name="workloads")

    def _track(self, event: WatchEvent) -> None:
        """Remember the pods of each owner."""
        pod = event.object
        for owner in pod["metadata"].get("ownerReferences") or ():
            pods = self._owned.setdefault(owner["uid"], {})
            if event.type == "DELETED":
                pods.pop(pod["metadata"]["uid"], None)
            else:
                pods[pod["metadata"]["uid"]] = dict(pod)

    def _hear(self, event: WatchEvent) -> None:
        kind, metadata = event.object["kind"], event.object["metadata"]
        namespace = metadata.get("namespace") or ""
        if kind == "Pod":
            for owner in metadata.get("ownerReferences") or ():
                if owner["kind"] in KINDS:
                    self._enqueue((owner["kind"], owner["name"], namespace), _SYNC_MS)
        elif event.type != "DELETED":
            self._enqueue((kind, metadata["name"], namespace), _SYNC_MS)

    def _enqueue(self, key: tuple[str, str, str], delay_ms: int) -> None:
        if key not in self._due:
            self._due.add(key)
            self._kernel.after(delay_ms, lambda: self._sync(key))

    def _sync(self, key: tuple[str, str, str]) -> None:
        self._due.discard(key)
        owner = self._store.get(*key)
        if owner is None or "deletionTimestamp" in owner["metadata"]:
            return
        pods = list(self._owned.get(owner["metadata"]["uid"], {}).values())
        is_set = key[0] == "StatefulSet"
        pause_ms = 1000 // self._settings.rate
        for step in self._ordinal_steps(owner, pods) if is_set else self._steps(owner, pods):
            full_ms = max(self._full_ms, self._kernel.now_ms) + pause_ms
            if full_ms - self._kernel.now_ms > pause_ms * self._settings.burst:
                self._enqueue(key, pause_ms)
                break
            self._full_ms = full_ms
            step()
        if is_set:
            self._report(owner)

    def _steps(self, owner: Obj, pods: list[Obj]) -> Iterator[Action]:
        """Give the steps to so many pods, no matter which.

        Work of a Job that names no number of completions is over with the first success: it makes no more.
        Pods that have to go are chosen once, and nothing else is done until all of them are going: so does a
        ReplicaSet's controller, and pods of full nodes go without regard to how many neighbours go with them.
        """
        if owner["kind"] == "Job" and any(pod["status"].get("phase") == "Succeeded" for pod in pods):
            return
        uid, count = owner["metadata"]["uid"], _replicas(owner)
        live = [pod for pod in pods if is_live(pod)]
        going = [pod for pod in live if pod["metadata"]["uid"] in self._doomed.get(uid, ())]
        if not going:
            going = sorted(live, key=self._removal_order(live))[: max(0, len(live) - count)]
            self._doomed[uid] = {pod["metadata"]["uid"] for pod in going}
        for pod in going:
            yield partial(self._store.delete, pod)
        for _ in range(0 if going else count - len(live)):
            yield partial(self._create, owner)

    def _removal_order(self, live: list[Obj]) -> Callable[[Obj], tuple[Any, ...]]:
        """Give the order in which pods go: what has come least far, runs on fuller nodes, then is younger."""
        together = Counter(pod["spec"].get("nodeName", "") for pod in live)

        def order(pod: Obj) -> tuple[Any, ...]:
            node, metadata = pod["spec"].get("nodeName", ""), pod["metadata"]
            progress = (bool(node), pod["status"].get("phase") == "Running", is_ready(pod))
            if not self._settings.spreads_removal:
                return (*progress, -int(metadata["uid"].replace("-", ""), 16))
            age = (self._kernel.now_ms - time_ms(metadata["creationTimestamp"])).bit_length()
            return (*progress, -together[node], age, metadata["name"])

        return order

    def _ordinal_steps(self, owner: Obj, pods: list[Obj]) -> Iterator[Action]:
        """Give the steps to pods of the ordinals from 0; one that failed makes way for another."""
        by_name = {pod["metadata"]["name"]: pod for pod in pods}
        names = [f"{owner['metadata']['name']}-{ordinal}" for ordinal in range(_replicas(owner))]
        for name in names:
            if name not in by_name:
                yield partial(self._create, owner, name)
            elif by_name[name]["status"].get("phase") in ENDED:
                yield partial(self._store.delete, by_name[name])
        for name in sorted(by_name.keys() - set(names), reverse=True):
            if is_live(by_name[name]):
                yield partial(self._store.delete, by_name[name])

    def _create(self, owner: Obj, name: str = "") -> None:
        template, metadata = owner["spec"]["template"], owner["metadata"]
        name = name or f"{metadata['name']}-{self._names.randrange(16**8):08x}"
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
        reference |= {"name": metadata["name"], "uid": metadata["uid"]}
        own = {**(template.get("metadata") or {}), "ownerReferences": [reference]}
        pod = manifest("v1", "Pod", name, metadata["namespace"], metadata=own, spec=template["spec"])
        self._store.write(self._store.admit(pod))

    def _report(self, owner: Obj) -> None:
        """Write how many pods of a StatefulSet there are."""
        pods = [pod for pod in self._owned.get(owner["metadata"]["uid"], {}).values() if is_live(pod)]
        ready = sum(map(is_ready, pods))
        generation = owner["metadata"].get("generation", 1)
        status = {"replicas": len(pods), "readyReplicas": ready, "availableReplicas": ready}
        if live := self._store.current(owner):
            self._store.update(live, status={"observedGeneration": generation, **status})


def _replicas(owner: Mapping[str, Any]) -> int:
    return int(owner["spec"].get("parallelism" if owner["kind"] == "Job" else "replicas", 1))


def collect_garbage(store: SimulatedStore) -> None:
    """Let what was owned go after its owner, from now on."""

    def hear(event: WatchEvent) -> None:
        uid = event.object["metadata"]["uid"]
        for kind in (*KINDS, "Pod", "Service", "PodDisruptionBudget") if event.type == "DELETED" else ():
            for obj in store.all(kind):
                if any(owner.get("uid") == uid for owner in obj["metadata"].get("ownerReferences") or ()):
                    store.delete(obj)

    store.watch(["TrainingJob", *KINDS], hear, name="collector")
