"""Kubelets: pods start a few seconds after they are bound and go when their grace is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mlstack.elastic.facts import NodePlace, is_eligible, time_ms
from mlstack.kube.client import WatchEvent
from mlstack.simulator.engine import (
    ENDED,
    Kernel,
    Obj,
    SimulatedStore,
    admit,
    changed,
    end,
    is_live,
    is_owned,
    timestamp,
    with_condition,
)

# --- Kubelets: pods start a few seconds after they are bound and go when their grace is over ---


@dataclass(frozen=True, kw_only=True)
class KubeletSettings:
    """How long pods take."""

    start_ms: tuple[int, int] = (2_000, 5_000)  # shortest and longest time from being bound to running


class Kubelets:
    """The kubelets of all nodes."""

    def __init__(self, store: SimulatedStore, kernel: Kernel, settings: KubeletSettings) -> None:
        self._store = store
        self._kernel = kernel
        self._settings = settings
        self._chance = kernel.generator("kubelet")
        self._starting: set[str] = set()
        self._ending: set[str] = set()
        self._dead: set[str] = set()
        store.watch(["Pod"], self._hear, name="kubelet")

    def stop(self, node: str) -> None:
        """Let a kubelet, and all that runs on its node, fall silent."""
        self._dead.add(node)

    def resume(self, node: str) -> None:
        """Let a kubelet go on; pods deleted meanwhile end now."""
        self._dead.discard(node)
        for pod in self._store.all("Pod"):
            if pod["spec"].get("nodeName") == node:
                self._look(pod)

    def exit(self, pod: Mapping[str, Any], code: int) -> None:
        """Let the containers of a pod end by themselves, for good."""
        live = self._store.current(pod)
        if live is None or live["status"].get("phase") != "Running":
            return
        self._finish(live, "Succeeded" if code == 0 else "Failed", code)

    def _finish(self, live: Mapping[str, Any], phase: str, code: int) -> None:
        now = timestamp(self._kernel.now_ms)
        ready = {"type": "Ready", "status": "False", "lastTransitionTime": now}
        containers = [
            {
                "name": each["name"],
                "ready": False,
                "restartCount": 0,
                "state": {"terminated": {"exitCode": code, "finishedAt": now}},
            }
            for each in live["spec"].get("containers") or ()
        ]
        status = {
            "phase": phase,
            "conditions": with_condition(live, ready),
            "containerStatuses": containers,
        }
        self._store.write(changed(live, status=status))

    def _hear(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            self._starting.discard(event.object["metadata"]["uid"])
            self._ending.discard(event.object["metadata"]["uid"])
        else:
            self._look(event.object)

    def _look(self, pod: Mapping[str, Any]) -> None:
        node, metadata = pod["spec"].get("nodeName"), pod["metadata"]
        if not node or node in self._dead:
            return
        if "deletionTimestamp" in metadata:
            self._end(pod)
        elif pod["status"].get("phase") == "Pending" and metadata["uid"] not in self._starting:
            self._starting.add(metadata["uid"])
            self._kernel.after(self._chance.randint(*self._settings.start_ms), lambda: self._start(pod))

    def _start(self, pod: Mapping[str, Any]) -> None:
        live = self._store.current(pod)
        if live is None or live["spec"]["nodeName"] in self._dead:
            self._starting.discard(pod["metadata"]["uid"])
            return
        if "deletionTimestamp" in live["metadata"] or live["status"].get("phase") != "Pending":
            return
        now = timestamp(self._kernel.now_ms)
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
        status = {"phase": "Running", "startTime": now, "conditions": with_condition(live, ready)}
        self._store.write(changed(live, status=status))

    def _end(self, pod: Mapping[str, Any]) -> None:
        """Take a pod away when its grace is over; what ended before is gone at once."""
        uid = pod["metadata"]["uid"]
        if uid in self._ending:
            return
        self._ending.add(uid)
        has_ended = pod["status"].get("phase") in ENDED
        grace_s = 0 if has_ended else pod["metadata"]["deletionGracePeriodSeconds"]
        self._kernel.after(grace_s * 1000, lambda: self._remove(pod))

    def _remove(self, pod: Mapping[str, Any]) -> None:
        live = self._store.current(pod)
        if live is not None and live["spec"]["nodeName"] not in self._dead:
            self._store.remove(live)
        self._ending.discard(pod["metadata"]["uid"])


# --- What the control plane does about nodes: evicts from those that are silent, cleans up after
# others

SILENT_MS = 40_000
"""How long a node may be silent before the control plane gives it up (node-monitor-grace-period)."""

_COLLECT_MS = 20_000
_UNREACHABLE = "node.kubernetes.io/unreachable"


class NodeLifecycle:
    """Makes nodes fail and heal, with all that follows.

    Args:
        kubelets: what runs on the nodes.
        silent_ms: how long a node may be silent.
    """

    def __init__(
        self, store: SimulatedStore, kernel: Kernel, kubelets: Kubelets, *, silent_ms: int = SILENT_MS
    ) -> None:
        self._store = store
        self._kernel = kernel
        self._kubelets = kubelets
        self._silent_ms = silent_ms
        self._down: set[str] = set()
        store.watch(["Node"], self._hear, name="nodes")

    def fail(self, node: str) -> None:
        """Let a node fall silent."""
        self._down.add(node)
        self._kubelets.stop(node)
        self._kernel.after(self._silent_ms, lambda: self._give_up(node))

    def heal(self, node: str) -> None:
        """Let a node come back."""
        self._down.discard(node)
        live = self._store.get("Node", node)
        if live is not None:
            self._store.write(
                changed(live, spec={"taints": []}, status={"conditions": self._ready(live, "True")})
            )
        self._kubelets.resume(node)

    def cordon(self, node: str, *, is_closed: bool) -> None:
        """Keep new pods away from a node, or let them come again."""
        live = self._store.get("Node", node)
        if live is not None:
            self._store.write(changed(live, spec={"unschedulable": is_closed}))

    def remove(self, node: str) -> None:
        """Take a node away for good, with its machine."""
        self._kubelets.stop(node)
        live = self._store.get("Node", node)
        if live is not None:
            self._store.remove(live)

    def _ready(self, live: Mapping[str, Any], status: str) -> list[Mapping[str, Any]]:
        now = timestamp(self._kernel.now_ms)
        return with_condition(live, {"type": "Ready", "status": status, "lastTransitionTime": now})

    def _give_up(self, node: str) -> None:
        live = self._store.get("Node", node)
        if live is None or node not in self._down:
            return
        taints = [{"key": _UNREACHABLE, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
        self._store.write(
            changed(live, spec={"taints": taints}, status={"conditions": self._ready(live, "Unknown")})
        )
        for pod in self._on(node):
            self._kernel.after(_patience_ms(pod["spec"]), lambda pod=pod: self._evict(node, pod))  # type: ignore[misc]  # bound now

    def _on(self, node: str) -> list[dict[str, Any]]:
        return [pod for pod in self._store.all("Pod") if pod["spec"].get("nodeName") == node]

    def _evict(self, node: str, pod: Mapping[str, Any]) -> None:
        live = self._store.current(pod)
        if live is None or node not in self._down or "deletionTimestamp" in live["metadata"]:
            return
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
        told = self._store.write(changed(live, status={"conditions": with_condition(live, condition)}))
        end(self._store, told, now_ms=self._kernel.now_ms)

    def _hear(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            node = event.object["metadata"]["name"]
            self._kernel.after(_COLLECT_MS, lambda: self._collect(node))

    def _collect(self, node: str) -> None:
        """Take away the pods of a node that is not there any more."""
        if self._store.get("Node", node) is None:
            for pod in self._on(node):
                end(self._store, pod, now_ms=self._kernel.now_ms, grace_s=0)


def _patience_ms(spec: Mapping[str, Any]) -> int:
    """Give how long a pod stays on a node that does not answer; five minutes unless it says otherwise."""
    silent = NodePlace("", {}, ({"key": _UNREACHABLE, "effect": "NoExecute"},))
    found = [one for one in spec.get("tolerations") or () if is_eligible({"tolerations": [one]}, silent)]
    seconds = [one.get("tolerationSeconds") for one in found]
    if not found:
        return 300_000
    limited = [int(each) for each in seconds if each is not None]
    return min(limited) * 1000 if limited else 10**12


# --- Controllers of Deployments, Jobs (as EDL used them) and StatefulSets: so many pods of a
# template
# Deployments make their pods themselves, without a ReplicaSet between. All of them share one limit of
# requests a second, as in kube-controller-manager.

KINDS = ("Deployment", "Job", "StatefulSet")

_SYNC_MS = 10


@dataclass(frozen=True, kw_only=True)
class WorkloadSettings:
    """How quick the controllers are."""

    rate: int = 20  # requests a second, over a longer time
    burst: int = 30  # requests at once
    # whether pods of nodes with several of them go first, and those of about one age in no order (since
    # Kubernetes 1.21)
    spreads_removal: bool = True


class Allowance:
    """A bucket of requests that fills again.

    Args:
        settings: its size and how quickly it fills.
    """

    def __init__(self, kernel: Kernel, settings: WorkloadSettings) -> None:
        self._kernel = kernel
        self._pause_ms = 1000 // settings.rate
        self._span_ms = self._pause_ms * settings.burst
        self._full_ms = 0

    def take(self) -> bool:
        """Take one request if there is one."""
        full_ms = max(self._full_ms, self._kernel.now_ms) + self._pause_ms
        if full_ms - self._kernel.now_ms > self._span_ms:
            return False
        self._full_ms = full_ms
        return True

    @property
    def pause_ms(self) -> int:
        """Give after how long there is another one."""
        return self._pause_ms


class Workloads:
    """The controllers."""

    def __init__(self, store: SimulatedStore, kernel: Kernel, settings: WorkloadSettings) -> None:
        self._store = store
        self._kernel = kernel
        self._settings = settings
        self._allowance = Allowance(kernel, settings)
        self._names = kernel.generator("workloads")
        self._owned: dict[str, dict[str, Obj]] = {}
        self._chosen: dict[str, set[str]] = {}
        self._due: set[tuple[str, str, str]] = set()
        store.watch(["Pod"], self._keep)
        store.watch([*KINDS, "Pod"], self._hear, name="workloads")

    def _keep(self, event: WatchEvent) -> None:
        """Remember the pods of each owner."""
        pod = event.object
        for owner in pod["metadata"].get("ownerReferences") or ():
            pods = self._owned.setdefault(owner["uid"], {})
            if event.type == "DELETED":
                pods.pop(pod["metadata"]["uid"], None)
            else:
                pods[pod["metadata"]["uid"]] = dict(pod)

    def _hear(self, event: WatchEvent) -> None:
        metadata = event.object["metadata"]
        namespace = metadata.get("namespace") or ""
        if event.object["kind"] != "Pod":
            if event.type != "DELETED":
                self._soon(event.object["kind"], metadata["name"], namespace, _SYNC_MS)
            return
        for owner in metadata.get("ownerReferences") or ():
            if owner["kind"] in KINDS:
                self._soon(owner["kind"], owner["name"], namespace, _SYNC_MS)

    def _soon(self, kind: str, name: str, namespace: str, delay_ms: int) -> None:
        key = (kind, name, namespace)
        if key not in self._due:
            self._due.add(key)
            self._kernel.after(delay_ms, lambda: self._sync(key))

    def _sync(self, key: tuple[str, str, str]) -> None:
        self._due.discard(key)
        kind, name, namespace = key
        owner = self._store.get(kind, name, namespace)
        if owner is None or "deletionTimestamp" in owner["metadata"]:
            return
        pods = list(self._owned.get(owner["metadata"]["uid"], {}).values())
        steps = self._ordinal(owner, pods) if kind == "StatefulSet" else self._replicas(owner, pods)
        for step in steps:
            if not self._allowance.take():
                self._soon(*key, self._allowance.pause_ms)
                break
            step()
        if kind == "StatefulSet":
            self._report(owner)

    def _replicas(self, owner: Obj, pods: list[Obj]) -> Iterator[Callable[[], object]]:
        """Give the steps to so many pods, no matter which.

        Work of a Job that names no number of completions is over with the first success: it makes no more.
        """
        if owner["kind"] == "Job" and any(pod["status"].get("phase") == "Succeeded" for pod in pods):
            return
        live = [pod for pod in pods if is_live(pod)]
        if going := self._going(owner, live):
            yield from (self._ending(pod) for pod in going)
            return
        for _ in range(_wanted(owner) - len(live)):
            yield lambda: self._make(owner, f"{owner['metadata']['name']}-{self._names.randrange(16**8):08x}")

    def _going(self, owner: Obj, live: list[Obj]) -> list[Obj]:
        """Give the pods that have to go: chosen once, and nothing else is done until all of them are going.

        That is how a ReplicaSet's controller does it, so pods of full nodes go without regard to how many of
        their neighbours go with them.
        """
        uid = owner["metadata"]["uid"]
        chosen = self._chosen.get(uid, set())
        if going := [pod for pod in live if pod["metadata"]["uid"] in chosen]:
            return going
        surplus = max(0, len(live) - _wanted(owner))
        going = sorted(live, key=self._worth_beside(live))[:surplus]
        self._chosen[uid] = {pod["metadata"]["uid"] for pod in going}
        return going

    def _worth_beside(self, live: list[Obj]) -> Callable[[Obj], tuple[Any, ...]]:
        """Give the order in which pods go: what runs on fuller nodes first, then what is younger."""
        if not self._settings.spreads_removal:
            return lambda pod: (*_standing(pod), -int(pod["metadata"]["uid"].replace("-", ""), 16))
        together = Counter(pod["spec"].get("nodeName", "") for pod in live)
        now_ms = self._kernel.now_ms

        def worth(pod: Obj) -> tuple[Any, ...]:
            node, metadata = pod["spec"].get("nodeName", ""), pod["metadata"]
            age = (now_ms - time_ms(metadata["creationTimestamp"])).bit_length()
            return (*_standing(pod), -together[node], age, metadata["name"])

        return worth

    def _ordinal(self, owner: Obj, pods: list[Obj]) -> Iterator[Callable[[], object]]:
        """Give the steps to pods of the ordinals from 0; one that failed makes way for another."""
        name, known = owner["metadata"]["name"], {pod["metadata"]["name"]: pod for pod in pods}
        wanted = [f"{name}-{ordinal}" for ordinal in range(_wanted(owner))]
        for each in wanted:
            pod = known.get(each)
            if pod is None:
                yield lambda each=each: self._make(owner, each)  # type: ignore[misc]  # bound now
            elif pod["status"].get("phase") in ENDED:
                yield self._ending(pod)
        surplus = sorted(known.keys() - set(wanted), reverse=True)
        yield from (self._ending(known[each]) for each in surplus if is_live(known[each]))

    def _ending(self, pod: Obj) -> Callable[[], object]:
        return lambda: end(self._store, pod, now_ms=self._kernel.now_ms)

    def _make(self, owner: Obj, name: str) -> None:
        template = owner["spec"]["template"]
        metadata = owner["metadata"]
        reference = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **(template.get("metadata") or {}),
                "name": name,
                "namespace": metadata.get("namespace"),
                "ownerReferences": [reference],
            },
            "spec": template["spec"],
        }
        self._store.write(admit(self._store, pod))

    def _report(self, owner: Obj) -> None:
        """Write how many pods of a StatefulSet there are."""
        pods = [pod for pod in self._owned.get(owner["metadata"]["uid"], {}).values() if is_live(pod)]
        ready = sum(_is_ready(pod) for pod in pods)
        status = {
            "observedGeneration": owner["metadata"].get("generation", 1),
            "replicas": len(pods),
            "readyReplicas": ready,
            "availableReplicas": ready,
        }
        live = self._store.current(owner)
        if live is not None:
            self._store.write(changed(live, status=status))


class Collector:
    """The garbage collector: what was owned goes after its owner."""

    _OWNED = (*KINDS, "Pod", "Service", "PodDisruptionBudget")

    def __init__(self, store: SimulatedStore, kernel: Kernel) -> None:
        self._store = store
        self._kernel = kernel
        store.watch(["TrainingJob", *KINDS], self._hear, name="collector")

    def _hear(self, event: WatchEvent) -> None:
        if event.type != "DELETED":
            return
        uid = event.object["metadata"]["uid"]
        for kind in self._OWNED:
            for obj in [each for each in self._store.all(kind) if is_owned(each, uid)]:
                if kind == "Pod":
                    end(self._store, obj, now_ms=self._kernel.now_ms)
                else:
                    self._store.remove(obj)


def _wanted(owner: Mapping[str, Any]) -> int:
    field = "parallelism" if owner["kind"] == "Job" else "replicas"
    return int(owner["spec"].get(field, 1))


def _standing(pod: Obj) -> tuple[bool, bool, bool]:
    """Give how far a pod has come; what has come least goes first."""
    is_running = pod["status"].get("phase") == "Running"
    return (bool(pod["spec"].get("nodeName", "")), is_running, _is_ready(pod))


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
