"""Room on nodes as the scheduler counts it: which pods hold what, who fits, and which node is best."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from mlstack.elastic import hostports
from mlstack.elastic.observed.nodes import NodeFacts
from mlstack.elastic.observed.placement import Place, is_eligible
from mlstack.elastic.observed.pods import PodFacts

Scoring = Literal["least-allocated", "most-allocated"]

AFFINITY_WEIGHT = 2
"""Weight of preferred node affinity beside the score of the room, as in the default profile."""

_SCORED = ("cpu", "memory")


class _Free(dict[str, int]):
    """What is left of a node: of what it does not name, one of each port and nothing else."""

    def __missing__(self, resource: str) -> int:
        return int(hostports.is_key(resource))


class Room:
    """One node and what its pods hold.

    Attributes:
        facts: the node.
        free: what is left, by resource.
        pods: pods that hold room, by UID.
    """

    def __init__(self, facts: NodeFacts) -> None:
        """Start empty."""
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


def liking(terms: tuple[tuple[int, Mapping[str, Any]], ...], place: Place) -> int:
    """Give the weight of the wishes that a node meets."""
    return sum(
        weight
        for weight, term in terms
        if is_eligible({"required": {"nodeSelectorTerms": [term]}}, Place(place.name, place.labels))
    )


def sum_requests(pods: list[PodFacts]) -> dict[str, int]:
    """Add up what pods request."""
    total: dict[str, int] = {}
    for pod in pods:
        for name, amount in pod.requests.items():
            total[name] = total.get(name, 0) + amount
    return total
