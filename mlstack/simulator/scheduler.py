"""The scheduler's queue: pods to be tried by priority and age, and those that wait for a change or a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Literal

from mlstack.elastic import facts, snapshot
from mlstack.elastic import facts as nodes
from mlstack.elastic.facts import Eligible, NodeFacts, NodePlace, PodFacts, is_eligible
from mlstack.kube.client import WatchEvent
from mlstack.simulator.engine import (
    Action,
    Kernel,
    Obj,
    SimulatedStore,
    changed,
    end,
    timestamp,
    with_condition,
)

# --- The scheduler's queue: pods to be tried by priority and age, and those that wait for a change
# or a time


@dataclass(kw_only=True)
class WaitingPod:
    """A pod in the queue."""

    pod: PodFacts
    queued_ms: int  # when it came
    attempts: int = 0  # how often no place was found
    tried_ms: int = 0  # when the last attempt was
    is_parked: bool = False  # whether it waits for something to change


class Queue:
    """Pods without a node, as kube-scheduler keeps them.

    Args:
        wake: is called when a pod becomes ready to be tried.
        backoff_ms: wait after the first failure; doubles with each.
        by_time: pods are tried again when their wait is over, at the end of the queue, whatever happens in
            between: the scheduler of Kubernetes 1.6. Otherwise they wait for something to change.
    """

    def __init__(
        self, kernel: Kernel, wake: Action, *, backoff_ms: int, longest_ms: int, by_time: bool = False
    ) -> None:
        self._by_time = by_time
        self._kernel = kernel
        self._wake = wake
        self._backoff_ms = backoff_ms
        self._longest_ms = longest_ms
        self._known: dict[str, WaitingPod] = {}
        self._ready: list[tuple[int, int, int, str]] = []
        self._backing: list[tuple[int, int, int, str]] = []
        self._count = 0

    def __len__(self) -> int:
        """Count the pods without a node."""
        return len(self._known)

    def put(self, pod: PodFacts) -> None:
        """Queue a pod, or take note of how it is now."""
        if pod.uid in self._known:
            self._known[pod.uid].pod = pod
            return
        self._known[pod.uid] = WaitingPod(pod=pod, queued_ms=self._kernel.now_ms)
        self._push(pod.uid)

    def drop(self, uid: str) -> None:
        """Forget a pod."""
        self._known.pop(uid, None)

    def pop(self) -> WaitingPod | None:
        """Give the pod to be tried next, None if there is none."""
        while self._ready:
            uid = heappop(self._ready)[3]
            if uid in self._known and not self._known[uid].is_parked:
                return self._known[uid]
        return self._pop_early()

    def _pop_early(self) -> WaitingPod | None:
        """Give the pod whose back-off ends next: a scheduler without other work does not wait for it.

        So since Kubernetes 1.33 (SchedulerPopFromBackoffQ); ends within a second are equal.
        """
        while self._backing:
            uid = heappop(self._backing)[3]
            if uid in self._known and not self._known[uid].is_parked:
                return self._known[uid]
        return None

    def failed(self, waiting: WaitingPod) -> None:
        """Put a pod aside until something changes."""
        waiting.attempts += 1
        waiting.tried_ms = self._kernel.now_ms
        waiting.is_parked = True
        if self._by_time:
            self._kernel.after(self._wait_ms(waiting), lambda: self._requeue(waiting))

    def _wait_ms(self, waiting: WaitingPod) -> int:
        return min(self._backoff_ms << min(waiting.attempts - 1, 10), self._longest_ms)

    def _requeue(self, waiting: WaitingPod) -> None:
        waiting.is_parked = False
        waiting.queued_ms = self._kernel.now_ms
        self._push(waiting.pod.uid)

    def stir(self) -> None:
        """Try all pods that were put aside again, each after its back-off."""
        for waiting in [] if self._by_time else [each for each in self._known.values() if each.is_parked]:
            waiting.is_parked = False
            self._release(waiting, waiting.tried_ms + self._wait_ms(waiting))

    def _release(self, waiting: WaitingPod, at_ms: int) -> None:
        uid, pod = waiting.pod.uid, waiting.pod
        if at_ms <= self._kernel.now_ms:
            self._push(uid)
        else:
            heappush(self._backing, (at_ms // 1000, -(pod.priority or 0), waiting.queued_ms, uid))
            self._wake()

    def _push(self, uid: str) -> None:
        waiting = self._known.get(uid)
        if waiting is None or waiting.is_parked:
            return
        self._count += 1
        heappush(self._ready, (-(waiting.pod.priority or 0), waiting.queued_ms, self._count, uid))
        self._wake()


# --- Room on nodes as the scheduler counts it: which pods hold what, who fits, and which node is
# best

Scoring = Literal["least-allocated", "most-allocated"]

AFFINITY_WEIGHT = 2
"""Weight of preferred node affinity beside the score of the room, as in the default profile."""

_SCORED = ("cpu", "memory")


class _Free(dict[str, int]):
    """What is left of a node: of what it does not name, one of each port and nothing else."""

    def __missing__(self, resource: str) -> int:
        return int(snapshot.is_key(resource))


class Room:
    """One node and what its pods hold.

    Attributes:
        facts: the node.
        free: what is left, by resource.
        pods: pods that hold room, by UID.
    """

    def __init__(self, facts: NodeFacts) -> None:
        self.facts = facts
        self.free = _Free(facts.allocatable)
        self.pods: dict[str, PodFacts] = {}

    def renew(self, facts: NodeFacts) -> None:
        """Take the node as it is now, with the pods that it has."""
        pods = list(self.pods.values())
        self.__init__(facts)  # type: ignore[misc]  # the same room, counted anew
        for pod in pods:
            self.add(pod)

    def add(self, pod: PodFacts) -> None:
        """Hold room for a pod; once, however often it is told."""
        if pod.uid not in self.pods:
            for name, amount in pod.requests.items():
                self.free[name] -= amount
        self.pods[pod.uid] = pod

    def drop(self, uid: str) -> bool:
        """Give back what a pod held, and tell whether it held any."""
        pod = self.pods.pop(uid, None)
        if pod is None:
            return False
        for name, amount in pod.requests.items():
            self.free[name] += amount
        return True

    def fits(self, requests: Mapping[str, int], more: Mapping[str, int] | None = None) -> bool:
        """Tell whether there is room, `more` free than it looks."""
        free = self.free
        if more is None:
            return all(free[name] >= amount for name, amount in requests.items())
        return all(free[name] + more.get(name, 0) >= amount for name, amount in requests.items())

    def score(self, requests: Mapping[str, int], scoring: Scoring) -> int:
        """Give how good the node is for a pod, 0 to 100, as NodeResourcesFit has it."""
        total = 0
        for name in _SCORED:
            whole = self.facts.allocatable.get(name, 0)
            if whole:
                left = max(0, self.free[name] - requests.get(name, 0)) * 100 // whole
                total += left if scoring == "least-allocated" else 100 - left
        return total // len(_SCORED)


def wishes(spec: Mapping[str, Any]) -> tuple[tuple[int, Mapping[str, Any]], ...]:
    """Give the preferred node affinity of a pod as weights and terms."""
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "preferredDuringSchedulingIgnoredDuringExecution"
    )
    return tuple((int(wish["weight"]), wish["preference"]) for wish in affinity or ())


def liking(terms: tuple[tuple[int, Mapping[str, Any]], ...], place: NodePlace) -> int:
    """Give the weight of the wishes that a node meets."""
    return sum(
        weight
        for weight, term in terms
        if is_eligible({"required": {"nodeSelectorTerms": [term]}}, NodePlace(place.name, place.labels))
    )


def sum_requests(pods: list[PodFacts]) -> dict[str, int]:
    """Add up what pods request."""
    total: dict[str, int] = {}
    for pod in pods:
        for name, amount in pod.requests.items():
            total[name] = total.get(name, 0) + amount
    return total


# --- Which pods the scheduler pushes aside for one of higher priority: DefaultPreemption, without
# extenders
# See "Pod Priority and Preemption" in Kubernetes' documentation. Disruption budgets are kept where there is a
# choice, and broken where there is none.

_Obj = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A PodDisruptionBudget with what it still allows."""

    pods: frozenset[str]  # UIDs of the pods it protects
    allowed: int  # how many of them may go


Guards = dict[str, list[Budget]]
"""The budgets that protect a pod, by its UID."""

Labelled = dict[tuple[str | None, str, str], list[_Obj]]
"""Pods by namespace, name and value of a label; without a label all of the namespace."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A node with the pods that would have to go."""

    room: Room  # the node
    victims: tuple[PodFacts, ...]  # the pods, most important first
    broken: int  # how many disruption budgets they break

    @property
    def badness(self) -> tuple[int, int, int, int, int, str]:
        """Give what the scheduler compares, the best first: budgets, priorities, number, age."""
        priorities = [pod.priority or 0 for pod in self.victims]
        youngest = -min(pod.created_ms for pod in self.victims)
        shifted = sum(priority + 2**31 for priority in priorities)
        return (self.broken, max(priorities), shifted, len(priorities), youngest, self.room.facts.place.name)


def choose(
    pod: PodFacts,
    rooms: Iterable[Room],
    budgets: Iterable[Budget],
    nominated: Mapping[str, list[PodFacts]],
) -> Candidate | None:
    """Find the node where a pod costs the least, None if pushing aside helps nowhere.

    Args:
        pod: the pod without a place.
        rooms: nodes that it may go to.
        budgets: what must not be disturbed if possible.
        nominated: pods for which room is being made, by node.
    """
    guards: Guards = {}
    for budget in budgets:
        for uid in budget.pods:
            guards.setdefault(uid, []).append(budget)
    found = [_on(pod, room, guards, nominated.get(room.facts.place.name, ())) for room in rooms]
    candidates = [candidate for candidate in found if candidate]
    return min(candidates, key=lambda candidate: candidate.badness, default=None)


def _on(pod: PodFacts, room: Room, guards: Guards, nominated: Iterable[PodFacts]) -> Candidate | None:
    priority = pod.priority or 0
    lower = [each for each in room.pods.values() if (each.priority or 0) < priority]
    if not lower:
        return None
    freed = sum_requests(lower)
    for other in nominated:
        if other.uid != pod.uid and (other.priority or 0) >= priority:
            freed = {name: amount - other.requests.get(name, 0) for name, amount in freed.items()}
    if not room.fits(pod.requests, freed):
        return None
    victims, broken = _reprieve(pod, room, lower, freed, guards)
    return Candidate(room=room, victims=victims, broken=broken) if victims else None


def _reprieve(
    pod: PodFacts, room: Room, lower: list[PodFacts], freed: dict[str, int], guards: Guards
) -> tuple[tuple[PodFacts, ...], int]:
    """Let stay who can, protected ones and important ones first."""
    important = sorted(lower, key=lambda each: (-(each.priority or 0), each.created_ms, each.key))
    protected = _protected(important, guards)
    victims: list[PodFacts] = []
    for each in sorted(important, key=lambda each: each.uid not in protected):
        without = {name: amount - each.requests.get(name, 0) for name, amount in freed.items()}
        if room.fits(pod.requests, without):
            freed = without
        else:
            victims.append(each)
    return tuple(victims), sum(each.uid in protected for each in victims)


def _protected(pods: list[PodFacts], guards: Guards) -> set[str]:
    """Give the pods whose going would break a budget, if those before them went."""
    taken: Counter[int] = Counter()
    protected: set[str] = set()
    for pod in pods:
        for budget in guards.get(pod.uid, ()):
            taken[id(budget)] += 1
            if taken[id(budget)] > budget.allowed:
                protected.add(pod.uid)
    return protected


def budgets_of(objects: Iterable[_Obj], pods: Iterable[_Obj]) -> list[Budget]:
    """Read disruption budgets; a share (`50%`) counts of the pods there are."""
    labelled: Labelled = {}
    for pod in pods:
        namespace = pod["metadata"].get("namespace")
        for pair in [("", ""), *(pod["metadata"].get("labels") or {}).items()]:
            labelled.setdefault((namespace, *pair), []).append(pod)
    return [_budget(obj["spec"], obj["metadata"].get("namespace"), labelled) for obj in objects]


def _budget(spec: _Obj, namespace: str | None, labelled: Labelled) -> Budget:
    wanted: Mapping[str, str] = (spec.get("selector") or {}).get("matchLabels") or {}
    pairs = [("", ""), *wanted.items()]
    fewest = min((labelled.get((namespace, *pair), []) for pair in pairs), key=len)
    found = [pod for pod in fewest if wanted.items() <= (pod["metadata"].get("labels") or {}).items()]
    healthy = sum(_is_healthy(pod) for pod in found)
    if "minAvailable" in spec:
        allowed = healthy - _count(spec["minAvailable"], len(found))
    else:
        allowed = _count(spec.get("maxUnavailable", 0), len(found)) - (len(found) - healthy)
    return Budget(pods=frozenset(pod["metadata"]["uid"] for pod in found), allowed=max(0, allowed))


def _count(value: int | str, of: int) -> int:
    if isinstance(value, int):
        return value
    return -(-of * int(value.rstrip("%")) // 100)


def _is_healthy(pod: _Obj) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return is_ready and "deletionTimestamp" not in pod["metadata"]


# --- A scheduler: default filters, scoring by allocation and node affinity, queue with back-off,
# preemption
# One pod at a time. What it knows of nodes and pods comes by watch, its own bindings it assumes at once.


@dataclass(frozen=True, kw_only=True)
class SchedulerSettings:
    """How the scheduler works."""

    scoring: Scoring = "least-allocated"  # which node is best among those with room
    bind_rate: int = 100  # bindings a second, at most
    failure_ms: int = 2  # how long an attempt takes that finds no place
    backoff_ms: int = 1_000  # wait of a pod after its first failure
    longest_backoff_ms: int = 10_000  # longest such wait
    retries_by_time: bool = False  # whether pods are tried again after that wait alone, as Kubernetes 1.6 did
    preempts: bool = True  # whether pods of higher priority push others aside


class Scheduler:
    """Gives pods their nodes."""

    def __init__(self, store: SimulatedStore, kernel: Kernel, settings: SchedulerSettings) -> None:
        self._store = store
        self._kernel = kernel
        self._settings = settings
        self._chance = kernel.generator("scheduler")
        self._rooms: dict[str, Room] = {}
        self._where: dict[str, str] = {}
        self._early: dict[str, PodFacts] = {}  # on nodes that were not heard of yet
        self._nominated: dict[str, tuple[str, PodFacts]] = {}
        self._hopeless: dict[tuple[Any, ...], int] = {}
        self._changes = 0
        self._is_busy = False
        self._eligible: Eligible | None = None
        self._queue = Queue(
            kernel,
            self._wake,
            backoff_ms=settings.backoff_ms,
            longest_ms=settings.longest_backoff_ms,
            by_time=settings.retries_by_time,
        )
        store.watch(["Pod", "Node"], self._hear, name="scheduler")

    def _hear(self, event: WatchEvent) -> None:
        if event.object["kind"] == "Node":
            self._hear_node(event)
        else:
            self._hear_pod(event)

    def _hear_node(self, event: WatchEvent) -> None:
        facts = nodes.parse_node(event.object)
        name = facts.place.name
        if event.type == "DELETED":
            self._rooms.pop(name, None)
        elif name in self._rooms:
            self._rooms[name].renew(facts)
        else:
            self._rooms[name] = Room(facts)
            for pod in [each for each in self._early.values() if each.node == name]:
                self._bound(pod)
        self._eligible = None
        self._freed()

    def _hear_pod(self, event: WatchEvent) -> None:
        pod = facts.parse_pod(event.object)
        if event.type == "DELETED" or pod.ending:
            self._forget(pod)
        elif pod.node:
            self._bound(pod)
        elif pod.gone_ms is None and pod.uid not in self._where:
            self._queue.put(pod)

    def _forget(self, pod: PodFacts) -> None:
        self._queue.drop(pod.uid)
        self._early.pop(pod.uid, None)
        is_nominee = self._nominated.pop(pod.uid, None) is not None
        room = self._rooms.get(self._where.pop(pod.uid, ""))
        if (room is not None and room.drop(pod.uid)) or is_nominee:
            self._freed()

    def _bound(self, pod: PodFacts) -> None:
        self._queue.drop(pod.uid)
        self._nominated.pop(pod.uid, None)
        if pod.node in self._rooms:
            self._early.pop(pod.uid, None)
            self._rooms[pod.node].add(pod)
            self._where[pod.uid] = pod.node
        else:
            self._early[pod.uid] = pod

    def _freed(self) -> None:
        """Take note that what found no place may find one now."""
        self._changes += 1
        self._hopeless.clear()
        self._queue.stir()

    def _wake(self) -> None:
        if not self._is_busy:
            self._is_busy = True
            self._kernel.after(1, self._work)

    def _work(self) -> None:
        """Try pods until one is bound; go on when the next binding is allowed."""
        while waiting := self._queue.pop():
            if self._is_known_hopeless(waiting.pod):
                self._queue.failed(waiting)
                pause = self._settings.failure_ms
            else:
                pause = self._try(waiting)
            self._kernel.after(pause, self._work)
            return
        self._is_busy = False

    def _is_known_hopeless(self, pod: PodFacts) -> bool:
        return self._hopeless.get(_shape(pod), -1) == self._changes and pod.uid not in self._nominated

    def _try(self, waiting: WaitingPod) -> int:
        """Bind a pod or put it aside, and give how long that took."""
        pod = waiting.pod
        live = self._store.get("Pod", pod.name, pod.namespace)
        if live is None or live["metadata"]["uid"] != pod.uid or "deletionTimestamp" in live["metadata"]:
            self._queue.drop(pod.uid)
            return 0
        rooms = [room for room in self._allowed(pod) if self._fits(pod, room)]
        if rooms:
            self._bind(live, pod, self._best(live, pod, rooms))
            return 1000 // self._settings.bind_rate
        self._queue.failed(waiting)
        self._say_unschedulable(live, self._make_room(pod))
        return self._settings.failure_ms

    def _allowed(self, pod: PodFacts) -> Iterator[Room]:
        """Give the nodes that a pod may go to, room aside."""
        if self._eligible is None:
            self._eligible = Eligible(
                room.facts.place for room in self._rooms.values() if room.facts.takes_pods
            )
        names = self._eligible.nodes(pod.shape)
        for name, room in self._rooms.items():
            if room.facts.takes_pods and (names is None or name in names):
                yield room

    def _fits(self, pod: PodFacts, room: Room) -> bool:
        if not room.fits(pod.requests):
            return False
        if not self._nominated:
            return True
        kept = self._kept_on(room.facts.place.name, pod)
        return not kept or room.fits(pod.requests, {name: -amount for name, amount in kept.items()})

    def _kept_on(self, node: str, pod: PodFacts) -> dict[str, int]:
        """Give what is kept on a node for others of the same or higher priority."""
        kept: dict[str, int] = {}
        for uid, (where, other) in self._nominated.items():
            if where == node and uid != pod.uid and (other.priority or 0) >= (pod.priority or 0):
                for name, amount in other.requests.items():
                    kept[name] = kept.get(name, 0) + amount
        return kept

    def _best(self, live: Mapping[str, Any], pod: PodFacts, rooms: list[Room]) -> Room:
        terms = wishes(live["spec"])
        likings = [liking(terms, room.facts.place) for room in rooms] if terms else [0] * len(rooms)
        most = max(likings) or 1
        scores = [
            room.score(pod.requests, self._settings.scoring) + AFFINITY_WEIGHT * 100 * liked // most
            for room, liked in zip(rooms, likings, strict=True)
        ]
        best = max(scores)
        return self._chance.choice([room for room, score in zip(rooms, scores, strict=True) if score == best])

    def _bind(self, live: Mapping[str, Any], pod: PodFacts, room: Room) -> None:
        node = room.facts.place.name
        self._queue.drop(pod.uid)
        self._nominated.pop(pod.uid, None)
        room.add(pod)
        self._where[pod.uid] = node
        scheduled = self._condition("True")
        self._store.write(
            changed(live, spec={"nodeName": node}, status={"conditions": with_condition(live, scheduled)})
        )

    def _say_unschedulable(self, live: Mapping[str, Any], nominated: str) -> None:
        known = [one for one in live["status"].get("conditions") or () if one["type"] == "PodScheduled"]
        if known and nominated == live["status"].get("nominatedNodeName", ""):
            return
        missing = f"0/{len(self._rooms)} nodes are available: Insufficient cpu."
        condition = {**self._condition("False"), "reason": "Unschedulable", "message": missing}
        status: Obj = {"conditions": with_condition(live, condition)}
        if nominated:
            status["nominatedNodeName"] = nominated
        self._store.write(changed(live, status=status))

    def _condition(self, status: str) -> Obj:
        now = timestamp(self._kernel.now_ms)
        return {"type": "PodScheduled", "status": status, "lastTransitionTime": now}

    def _make_room(self, pod: PodFacts) -> str:
        """Push others aside for a pod, and give the node where that happens, empty if it does not."""
        if not self._may_preempt(pod):
            self._hopeless[_shape(pod)] = self._changes
            return self._nominated[pod.uid][0] if pod.uid in self._nominated else ""
        nominated: dict[str, list[PodFacts]] = {}
        for node, other in self._nominated.values():
            nominated.setdefault(node, []).append(other)
        budgets = budgets_of(
            self._store.all("PodDisruptionBudget"),
            self._store.all("Pod") if self._store.all("PodDisruptionBudget") else (),
        )
        found = choose(pod, self._allowed(pod), budgets, nominated)
        if found is None:
            self._hopeless[_shape(pod)] = self._changes
            return ""
        self._nominated[pod.uid] = (found.room.facts.place.name, pod)
        for victim in found.victims:
            self._evict(victim)
        return found.room.facts.place.name

    def _may_preempt(self, pod: PodFacts) -> bool:
        """Tell whether a pod may push others aside: not if some are on their way out for it already."""
        live = self._store.get("Pod", pod.name, pod.namespace)
        if not self._settings.preempts or live is None or live["spec"].get("preemptionPolicy") == "Never":
            return False
        room = self._rooms.get(self._nominated.get(pod.uid, ("",))[0])
        return room is None or not any(
            each.gone_ms is not None and (each.priority or 0) < (pod.priority or 0)
            for each in room.pods.values()
        )

    def _evict(self, victim: PodFacts) -> None:
        live = self._store.get("Pod", victim.name, victim.namespace)
        if live is None or live["metadata"]["uid"] != victim.uid:
            return
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        told = changed(live, status={"conditions": with_condition(live, condition)})
        end(self._store, self._store.write(told), now_ms=self._kernel.now_ms)


def _shape(pod: PodFacts) -> tuple[Any, ...]:
    """Give what decides whether a pod finds a place: equal for pods that fare alike."""
    return (pod.shape, pod.priority, tuple(sorted(pod.requests.items())))
