"""The control plane: a kube-scheduler with preemption, and the controllers of workloads and garbage."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from heapq import heappop, heappush
from typing import Any, NamedTuple

from mlstack.clock import time_ms
from mlstack.dataclass import Record, dataclass
from mlstack.elastic import facts
from mlstack.elastic.facts import NodeFacts, PodFacts
from mlstack.kube.client import WatchEvent
from mlstack.objects import resources
from mlstack.objects.resources import is_eligible
from mlstack.simulator import engine
from mlstack.simulator.engine import ENDED, Callback, Kernel, SimulatedStore
from mlstack.testing.store import Obj

# Weight of preferred node affinity beside the score of the room, in percent, as in the default profile.
_AFFINITY_WEIGHT = 200
_EVERY_TAINT = [{"operator": "Exists"}]  # tolerated: taints do not count for what a pod prefers


class SchedulerSettings(Record):
    """How the scheduler works."""

    scoring: str = "least-allocated"  # which node is best among those with room, or `most-allocated`
    bind_rate: int = 100  # bindings a second, at most
    failure_ms: int = 2  # how long an attempt takes that finds no node
    backoff_ms: int = 1_000  # wait of a pod after its first failure; doubles with each
    longest_backoff_ms: int = 10_000  # longest such wait
    # whether pods are tried again after that wait alone, at the end of the queue, as Kubernetes 1.6 did;
    # otherwise they wait for something to change
    retries_by_time: bool = False
    preempts: bool = True  # whether pods of higher priority push others aside


@dataclass(kw_only=True)
class QueuedPod:
    """A pod in the queue."""

    pod: PodFacts
    queued_ms: int  # when it came
    attempts: int = 0  # how often no node was found
    tried_ms: int = 0  # when the last attempt was
    is_unschedulable: bool = False  # whether it waits for something to change


class SchedulingQueue:
    """Pods without a node, as kube-scheduler keeps them: to be tried, in back-off, unschedulable."""

    def __init__(self, kernel: Kernel, wake: Callback, settings: SchedulerSettings) -> None:
        self._kernel, self._wake, self._settings = kernel, wake, settings
        self._pods: dict[str, QueuedPod] = {}
        self._active: list[tuple[int, int, int, str]] = []
        self._backoff: list[tuple[int, int, int, str]] = []
        self._count = 0

    def put(self, pod: PodFacts) -> None:
        """Queue a pod, or take note of how it is now."""
        if pod.uid in self._pods:
            self._pods[pod.uid].pod = pod
        else:
            self._pods[pod.uid] = QueuedPod(pod=pod, queued_ms=self._kernel.now_ms)
            self._activate(self._pods[pod.uid])

    def drop(self, uid: str) -> None:
        """Forget a pod."""
        self._pods.pop(uid, None)

    def pop(self) -> QueuedPod | None:
        """Give the pod to be tried next, None if there is none.

        Without other work it does not wait for the end of a back-off (SchedulerPopFromBackoffQ of 1.33).
        """
        for heap in (self._active, self._backoff):
            while heap:
                queued = self._pods.get(heappop(heap)[-1])
                if queued is not None and not queued.is_unschedulable:
                    return queued
        return None

    def fail(self, queued: QueuedPod) -> None:
        """Put a pod aside until something changes."""
        queued.attempts += 1
        queued.tried_ms = self._kernel.now_ms
        queued.is_unschedulable = True
        if self._settings.retries_by_time:
            self._kernel.after(self._backoff_ms(queued), lambda: self._retry(queued))

    def move_all(self) -> None:
        """Try all pods that were put aside again, each after its back-off."""
        if self._settings.retries_by_time:
            return
        for queued in [queued for queued in self._pods.values() if queued.is_unschedulable]:
            queued.is_unschedulable = False
            due_ms = queued.tried_ms + self._backoff_ms(queued)
            if due_ms <= self._kernel.now_ms:
                self._activate(queued)
            else:
                priority = queued.pod.priority or 0
                heappush(self._backoff, (due_ms // 1000, -priority, queued.queued_ms, queued.pod.uid))
                self._wake()

    def _backoff_ms(self, queued: QueuedPod) -> int:
        doubled = self._settings.backoff_ms << min(queued.attempts - 1, 10)
        return min(doubled, self._settings.longest_backoff_ms)

    def _retry(self, queued: QueuedPod) -> None:
        queued.is_unschedulable = False
        queued.queued_ms = self._kernel.now_ms
        if queued.pod.uid in self._pods:
            self._activate(queued)

    def _activate(self, queued: QueuedPod) -> None:
        self._count += 1
        heappush(self._active, (-(queued.pod.priority or 0), queued.queued_ms, self._count, queued.pod.uid))
        self._wake()


class _Free(dict[str, int]):
    """What is left of a node: of what it does not name, one of each port and nothing else."""

    def __missing__(self, resource: str) -> int:
        return int(resources.is_host_port(resource))


class SchedulerNode:
    """One node and what its pods hold, as the scheduler counts it."""

    def __init__(self, node: NodeFacts, pods: dict[str, PodFacts]) -> None:
        self.place, self.takes_pods, self.allocatable = node.place, node.takes_pods, node.allocatable
        self.free = _Free(node.allocatable)
        # By what is requested, until the room changes.
        self._scores: dict[tuple[tuple[str, int], ...], int | None] = {}
        self.pods = pods  # that hold room, by UID
        for pod in pods.values():
            self._shift(pod, -1)

    def _shift(self, pod: PodFacts, sign: int) -> None:
        """Give room back that a pod held (1), or take it (-1)."""
        for name, amount in pod.requests.items():
            self.free[name] += sign * amount
        self._scores.clear()

    def add(self, pod: PodFacts) -> None:
        """Hold room for a pod; once, however often it is told."""
        if pod.uid not in self.pods:
            self._shift(pod, -1)
        self.pods[pod.uid] = pod

    def drop(self, uid: str) -> None:
        """Give back what a pod held."""
        if (pod := self.pods.pop(uid, None)) is not None:
            self._shift(pod, 1)

    def fits(self, requests: Mapping[str, int], more: Mapping[str, int] | None = None) -> bool:
        """Tell whether there is room, `more` free than it looks."""
        free, more = self.free, more or {}
        return all([free[name] + more.get(name, 0) >= amount for name, amount in requests.items()])

    def score(self, requests: tuple[tuple[str, int], ...], scoring: str) -> int | None:
        """Give how good the node is for a pod, 0 to 100, as NodeResourcesFit has it, None without room."""
        if requests not in self._scores:
            asked, rates = dict(requests), [0]
            for name in ("cpu", "memory"):
                if whole := self.allocatable.get(name, 0):
                    left = max(0, self.free[name] - asked.get(name, 0)) * 100 // whole
                    rates.append(left if scoring == "least-allocated" else 100 - left)
            self._scores[requests] = sum(rates) // 2 if self.fits(asked) else None
        return self._scores[requests]


# --- preemption, as DefaultPreemption without extenders: see "Pod Priority and Preemption" ---


class Candidate(NamedTuple):
    """The pods of a node that would have to go, and what the scheduler compares, the best first."""

    # disruption budgets that are broken, highest priority, sum of priorities, number, age, name of the node
    badness: tuple[int, int, int, int, int, str]
    victims: list[PodFacts]


Budgets = Mapping[str, list[tuple[str, int]]]
"""The disruption budgets of each pod, by its UID: their names, and how many pods may still go."""


def find_victims(
    pod: PodFacts, node: SchedulerNode, reserved: Mapping[str, int], budgets: Budgets
) -> Candidate | None:
    """Give who has to go from a node for a pod, None if that does not help.

    Budgets are broken where there is no choice; `reserved` is kept for other pods that were nominated.
    """
    priority = pod.priority or 0
    lower = [other for other in node.pods.values() if (other.priority or 0) < priority]
    requested = resources.total(*(other.requests for other in lower))
    freed = {name: amount - reserved.get(name, 0) for name, amount in requested.items()}
    if not lower or not node.fits(pod.requests, freed):
        return None
    important = sorted(lower, key=lambda other: (-(other.priority or 0), other.created_ms, other.key))
    gone: Counter[str] = Counter()
    protected = set()
    for other in important:
        for budget, allowed in budgets.get(other.uid, ()):
            gone[budget] += 1
            if gone[budget] > allowed:
                protected.add(other.uid)
    victims = []
    for other in sorted(important, key=lambda other: other.uid not in protected):
        without = {name: amount - other.requests.get(name, 0) for name, amount in freed.items()}
        if node.fits(pod.requests, without):
            freed = without
        else:
            victims.append(other)
    if not victims:
        return None
    priorities = [victim.priority or 0 for victim in victims]
    youngest = -min(victim.created_ms for victim in victims)
    shifted = sum(number + 2**31 for number in priorities)
    broken = sum(victim.uid in protected for victim in victims)
    badness = (broken, max(priorities), shifted, len(victims), youngest, node.place.name)
    return Candidate(badness, victims)


def disruption_budgets(store: SimulatedStore) -> Budgets:
    """Read what disruption budgets allow; a share (`50%`) counts of the pods there are."""
    budgets: dict[str, list[tuple[str, int]]] = {}
    objects = store.all("PodDisruptionBudget")
    by_label: dict[tuple[str, str, str], list[Obj]] = {}  # the pods; without a label all of the namespace
    for pod in store.all("Pod") if objects else ():
        for label in [("", ""), *(pod["metadata"].get("labels") or {}).items()]:
            by_label.setdefault((pod["metadata"].get("namespace"), *label), []).append(pod)
    for obj in objects:
        spec, namespace = obj["spec"], obj["metadata"].get("namespace")
        labels: Mapping[str, str] = (spec.get("selector") or {}).get("matchLabels") or {}
        groups = [by_label.get((namespace, *label), []) for label in [("", ""), *labels.items()]]
        fewest = min(groups, key=len)
        pods = [pod for pod in fewest if labels.items() <= (pod["metadata"].get("labels") or {}).items()]
        healthy = sum(engine.is_ready(pod) and "deletionTimestamp" not in pod["metadata"] for pod in pods)
        share = spec.get("minAvailable", spec.get("maxUnavailable", 0))
        count = share if isinstance(share, int) else -(-len(pods) * int(share.rstrip("%")) // 100)
        allowed = healthy - count if "minAvailable" in spec else count - (len(pods) - healthy)
        for pod in pods:
            name = f"{namespace}/{obj['metadata']['name']}"
            budgets.setdefault(pod["metadata"]["uid"], []).append((name, max(0, allowed)))
    return budgets


class Scheduler:
    """Gives pods their nodes, one at a time; its own bindings it assumes before its watch tells them."""

    def __init__(self, store: SimulatedStore, settings: SchedulerSettings) -> None:
        self._store, self._kernel, self._settings = store, store.kernel, settings
        self._chance = store.kernel.generator("scheduler")
        self._nodes: dict[str, SchedulerNode] = {}
        self._bound: dict[str, str] = {}  # the node of each pod
        # The pods of each node by UID, of nodes that were not heard of yet too.
        self._held: defaultdict[str, dict[str, PodFacts]] = defaultdict(dict)
        self._nominated: dict[str, tuple[str, PodFacts]] = {}
        self._hopeless: set[tuple[object, ...]] = set()  # shapes of pods for which no node was found
        self._is_busy = False
        self._eligible: dict[str, list[SchedulerNode]] = {}  # by shape of a pod, until nodes change
        self._queue = SchedulingQueue(store.kernel, self._wake, settings)
        store.watch(["Pod", "Node"], self._hear, name="scheduler")

    def _hear(self, event: WatchEvent) -> None:
        if event.object["kind"] == "Node":
            self._hear_node(facts.parse_node(event.object), is_gone=event.type == "DELETED")
            return
        pod = facts.parse_pod(event.object)
        if event.type == "DELETED" or pod.ending:
            self._queue.drop(pod.uid)
            was_nominated = self._nominated.pop(pod.uid, None) is not None
            name = self._bound.pop(pod.uid, "")
            if name in self._nodes:
                self._nodes[name].drop(pod.uid)
            self._held[name].pop(pod.uid, None)
            if name in self._nodes or was_nominated:
                self._retry_all()
        elif pod.node:
            self._assume(pod, pod.node)
        elif pod.gone_ms is None and pod.uid not in self._bound:
            self._queue.put(pod)

    def _hear_node(self, node: NodeFacts, *, is_gone: bool) -> None:
        if is_gone:
            self._nodes.pop(node.place.name, None)
        else:
            self._nodes[node.place.name] = SchedulerNode(node, self._held[node.place.name])
        self._eligible.clear()
        self._retry_all()

    def _assume(self, pod: PodFacts, node: str) -> None:
        self._queue.drop(pod.uid)
        self._nominated.pop(pod.uid, None)
        self._bound[pod.uid] = node
        if node in self._nodes:
            self._nodes[node].add(pod)
        else:
            self._held[node][pod.uid] = pod

    def _retry_all(self) -> None:
        """Take note that what found no node may find one now."""
        self._hopeless.clear()
        self._queue.move_all()

    def _wake(self) -> None:
        if not self._is_busy:
            self._is_busy = True
            self._kernel.after(1, self._schedule_one)

    def _schedule_one(self) -> None:
        """Try one pod; go on when the next binding is allowed."""
        queued = self._queue.pop()
        if queued is None:
            self._is_busy = False
            return
        pod, pause_ms = queued.pod, self._settings.failure_ms
        live = self._store.get("Pod", pod.name, pod.namespace)
        if _shape(pod) in self._hopeless and pod.uid not in self._nominated:
            self._queue.fail(queued)
        elif live is None or live["metadata"]["uid"] != pod.uid or "deletionTimestamp" in live["metadata"]:
            self._queue.drop(pod.uid)
            pause_ms = 0
        elif nodes := self._fitting(pod):
            self._bind(live, pod, self._best(live, nodes).place.name)
            pause_ms = 1000 // self._settings.bind_rate
        else:
            self._queue.fail(queued)
            self._set_unschedulable(live, self._preempt(live, pod))
        self._kernel.after(pause_ms, self._schedule_one)

    def _filter(self, shape: str) -> list[SchedulerNode]:
        """Give the nodes that pods of a shape may go to, room aside."""
        if shape not in self._eligible:
            spec, nodes = json.loads(shape), self._nodes.values()
            self._eligible[shape] = [n for n in nodes if n.takes_pods and is_eligible(spec, n.place)]
        return self._eligible[shape]

    def _fitting(self, pod: PodFacts) -> list[tuple[int, SchedulerNode]]:
        """Give the nodes that have room beside what they keep for nominated pods, with their scores."""
        requests, scoring = tuple(pod.requests.items()), self._settings.scoring
        scored = [(node.score(requests, scoring), node) for node in self._filter(pod.shape)]
        nodes = [(score, node) for score, node in scored if score is not None]
        for name, reserved in self._reserved(pod).items() if nodes else ():
            less = {resource: -amount for resource, amount in reserved.items()}
            nodes = [row for row in nodes if row[1].place.name != name or row[1].fits(pod.requests, less)]
        return nodes

    def _reserved(self, pod: PodFacts) -> dict[str, dict[str, int]]:
        """Give by node what it keeps for pods that were nominated and go before this one."""
        reserved: dict[str, dict[str, int]] = {}
        for uid, (name, other) in self._nominated.items():
            if uid != pod.uid and (other.priority or 0) >= (pod.priority or 0):
                reserved[name] = resources.total(reserved.get(name, {}), other.requests)
        return reserved

    def _best(self, live: Mapping[str, Any], rows: list[tuple[int, SchedulerNode]]) -> SchedulerNode:
        node_affinity = (live["spec"].get("affinity") or {}).get("nodeAffinity") or {}
        weights = Counter[str]()
        for term in node_affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            wish = {"required": {"nodeSelectorTerms": [term["preference"]]}, "tolerations": _EVERY_TAINT}
            for node in self._filter(json.dumps(wish)):
                weights[node.place.name] += int(term["weight"])
        most = max(weights[node.place.name] for _, node in rows) or 1
        scored = [(score + _AFFINITY_WEIGHT * weights[node.place.name] // most, node) for score, node in rows]
        best = max(score for score, _ in scored)
        return self._chance.choice([node for score, node in scored if score == best])

    def _bind(self, live: Mapping[str, Any], pod: PodFacts, node: str) -> None:
        self._assume(pod, node)
        scheduled = engine.with_condition(
            live, "PodScheduled", "True", lastTransitionTime=self._kernel.timestamp
        )
        self._store.update(live, spec={"nodeName": node}, status={"conditions": scheduled})

    def _set_unschedulable(self, live: Mapping[str, Any], nominated: str) -> None:
        is_known = any(item["type"] == "PodScheduled" for item in live["status"].get("conditions") or ())
        if is_known and nominated == live["status"].get("nominatedNodeName", ""):
            return
        message = f"0/{len(self._nodes)} nodes are available: Insufficient cpu."
        reason = {"lastTransitionTime": self._kernel.timestamp, "reason": "Unschedulable", "message": message}
        status: Obj = {"conditions": engine.with_condition(live, "PodScheduled", "False", **reason)}
        if nominated:
            status["nominatedNodeName"] = nominated
        self._store.update(live, status=status)

    def _preempt(self, live: Mapping[str, Any], pod: PodFacts) -> str:
        """Push others aside for a pod, and give the node where that happens, empty if it does not."""
        nominated = self._nominated.get(pod.uid, ("",))[0]
        if not self._may_preempt(live, pod):
            self._hopeless.add(_shape(pod))
            return nominated
        budgets, reserved = disruption_budgets(self._store), self._reserved(pod)
        candidates = [
            candidate
            for node in self._filter(pod.shape)
            if (candidate := find_victims(pod, node, reserved.get(node.place.name, {}), budgets))
        ]
        if not candidates:
            self._hopeless.add(_shape(pod))
            return ""
        badness, victims = min(candidates, key=lambda candidate: candidate.badness)
        self._nominated[pod.uid] = (badness[-1], pod)
        for victim in victims:
            doomed = self._store.get("Pod", victim.name, victim.namespace)
            if doomed is not None and doomed["metadata"]["uid"] == victim.uid:
                self._store.evict(doomed, "PreemptionByScheduler")
        return badness[-1]

    def _may_preempt(self, live: Mapping[str, Any], pod: PodFacts) -> bool:
        """Tell whether a pod may push others aside: not if some are on their way out for it already."""
        if not self._settings.preempts or live["spec"].get("preemptionPolicy") == "Never":
            return False
        node = self._nodes.get(self._nominated.get(pod.uid, ("",))[0])
        return node is None or not any(
            other.gone_ms is not None and (other.priority or 0) < (pod.priority or 0)
            for other in node.pods.values()
        )


def _shape(pod: PodFacts) -> tuple[object, ...]:
    """Give what decides whether a pod finds a node: equal for pods that fare alike."""
    return (pod.shape, pod.priority, tuple(sorted(pod.requests.items())))


# --- controllers of workloads and garbage ---

KINDS = ("Deployment", "Job", "StatefulSet")
_SYNC_MS = 10


class WorkloadSettings(Record):
    """How quick the controllers are; all of them share one limit, as in kube-controller-manager."""

    rate: int = 20  # requests a second, over a longer time
    burst: int = 30  # requests at once
    # whether pods of nodes with several of them go first, and those of about one age in no order (since
    # Kubernetes 1.21)
    spreads_removal: bool = True


class Workloads:
    """Controllers of Deployments (without ReplicaSets), Jobs (as EDL used them) and StatefulSets."""

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

    def _steps(self, owner: Obj, pods: list[Obj]) -> Iterator[Callback]:
        """Give the steps to so many pods, no matter which.

        Pods that have to go are chosen once, and nothing else is done until all of them are going: so does a
        ReplicaSet's controller, and pods of full nodes go without regard to how many neighbours go with them.
        """
        # Work of a Job that names no number of completions is over with the first success.
        if owner["kind"] == "Job" and any(pod["status"].get("phase") == "Succeeded" for pod in pods):
            return
        uid, count = owner["metadata"]["uid"], _replicas(owner)
        live = [pod for pod in pods if engine.is_live(pod)]
        going = [pod for pod in live if pod["metadata"]["uid"] in self._doomed.get(uid, ())]
        if not going and len(live) > count:
            going = sorted(live, key=self._removal_order(live))[: len(live) - count]
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
            progress = (bool(node), pod["status"].get("phase") == "Running", engine.is_ready(pod))
            if not self._settings.spreads_removal:
                return (*progress, -int(metadata["uid"].replace("-", ""), 16))
            age = (self._kernel.now_ms - time_ms(metadata["creationTimestamp"])).bit_length()
            return (*progress, -together[node], age, metadata["name"])

        return order

    def _ordinal_steps(self, owner: Obj, pods: list[Obj]) -> Iterator[Callback]:
        """Give the steps to pods of the ordinals from 0; one that failed makes way for another."""
        by_name = {pod["metadata"]["name"]: pod for pod in pods}
        names = [f"{owner['metadata']['name']}-{ordinal}" for ordinal in range(_replicas(owner))]
        for name in names:
            if name not in by_name:
                yield partial(self._create, owner, name)
            elif by_name[name]["status"].get("phase") in ENDED:
                yield partial(self._store.delete, by_name[name])
        for name in sorted(by_name.keys() - set(names), reverse=True):
            if engine.is_live(by_name[name]):
                yield partial(self._store.delete, by_name[name])

    def _create(self, owner: Obj, name: str = "") -> None:
        template, metadata = owner["spec"]["template"], owner["metadata"]
        name = name or f"{metadata['name']}-{self._names.randrange(16**8):08x}"
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
        reference |= {"name": metadata["name"], "uid": metadata["uid"]}
        merged = {**(template.get("metadata") or {}), "ownerReferences": [reference]}
        pod = engine.manifest(
            "v1", "Pod", name, metadata["namespace"], metadata=merged, spec=template["spec"]
        )
        self._store.write(self._store.admit(pod))

    def _report(self, owner: Obj) -> None:
        pods = [pod for pod in self._owned.get(owner["metadata"]["uid"], {}).values() if engine.is_live(pod)]
        ready = sum(map(engine.is_ready, pods))
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
