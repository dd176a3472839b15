"""A scheduler: default filters, scoring by allocation and node affinity, queue with back-off, preemption.

One pod at a time. What it knows of nodes and pods comes by watch, its own bindings it assumes at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mlstack.cluster.api import WatchEvent
from mlstack.elastic.observed import nodes, pods
from mlstack.elastic.observed.placement import Eligible
from mlstack.elastic.observed.pods import PodFacts
from mlstack.elastic.simulate import preemption
from mlstack.elastic.simulate.admission import end, with_condition
from mlstack.elastic.simulate.kernel import Kernel, timestamp
from mlstack.elastic.simulate.queue import Queue, Waiting
from mlstack.elastic.simulate.room import AFFINITY_WEIGHT, Room, Scoring, liking, wishes
from mlstack.elastic.simulate.store import Obj, Store, changed


@dataclass(frozen=True, kw_only=True)
class SchedulerSettings:
    """How the scheduler works.

    Attributes:
        scoring: which node is best among those with room.
        bind_rate: bindings a second, at most.
        failure_ms: how long an attempt takes that finds no place.
        backoff_ms: wait of a pod after its first failure.
        longest_backoff_ms: longest such wait.
        retries_by_time: whether pods are tried again after that wait alone, as Kubernetes 1.6 did.
        preempts: whether pods of higher priority push others aside.
    """

    scoring: Scoring = "least-allocated"
    bind_rate: int = 100
    failure_ms: int = 2
    backoff_ms: int = 1_000
    longest_backoff_ms: int = 10_000
    retries_by_time: bool = False
    preempts: bool = True


class Scheduler:
    """Gives pods their nodes.

    Args:
        store: the cluster's objects.
        kernel: the time.
        settings: how it works.
    """

    def __init__(self, store: Store, kernel: Kernel, settings: SchedulerSettings) -> None:
        """Begin to watch."""
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
        facts = nodes.parse(event.object)
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
        pod = pods.parse(event.object)
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

    def _try(self, waiting: Waiting) -> int:
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
        budgets = preemption.budgets_of(
            self._store.all("PodDisruptionBudget"),
            self._store.all("Pod") if self._store.all("PodDisruptionBudget") else (),
        )
        found = preemption.choose(pod, self._allowed(pod), budgets, nominated)
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
