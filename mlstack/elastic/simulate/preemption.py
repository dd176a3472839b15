"""Which pods the scheduler pushes aside for one of higher priority: DefaultPreemption, without extenders.

See "Pod Priority and Preemption" in Kubernetes' documentation. Disruption budgets are kept where there is a
choice, and broken where there is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mlstack.elastic.observed.pods import PodFacts
from mlstack.elastic.simulate.room import Room, sum_requests

Obj = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A PodDisruptionBudget with what it still allows.

    Attributes:
        pods: UIDs of the pods it protects.
        allowed: how many of them may go.
    """

    pods: frozenset[str]
    allowed: int


Guards = dict[str, list[Budget]]
"""The budgets that protect a pod, by its UID."""

Labelled = dict[tuple[str | None, str, str], list[Obj]]
"""Pods by namespace, name and value of a label; without a label all of the namespace."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A node with the pods that would have to go.

    Attributes:
        room: the node.
        victims: the pods, most important first.
        broken: how many disruption budgets they break.
    """

    room: Room
    victims: tuple[PodFacts, ...]
    broken: int

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


def budgets_of(objects: Iterable[Obj], pods: Iterable[Obj]) -> list[Budget]:
    """Read disruption budgets; a share (`50%`) counts of the pods there are."""
    labelled: Labelled = {}
    for pod in pods:
        namespace = pod["metadata"].get("namespace")
        for pair in [("", ""), *(pod["metadata"].get("labels") or {}).items()]:
            labelled.setdefault((namespace, *pair), []).append(pod)
    return [_budget(obj["spec"], obj["metadata"].get("namespace"), labelled) for obj in objects]


def _budget(spec: Obj, namespace: str | None, labelled: Labelled) -> Budget:
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


def _is_healthy(pod: Obj) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return is_ready and "deletionTimestamp" not in pod["metadata"]
