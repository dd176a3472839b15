"""Which nodes a pod may go to, as the scheduler reads selectors, affinity, taints and tolerations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_BLOCKING = ("NoSchedule", "NoExecute")


@dataclass(frozen=True)
class Place:
    """What a node tells pods that look for a place.

    Attributes:
        name: of the node.
        labels: of the node.
        taints: that keep pods away, as the node has them.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, Any], ...] = ()


class Eligible:
    """Answers which nodes a pod may go to, once for each shape of pods.

    Args:
        places: the nodes that take pods.
    """

    def __init__(self, places: Iterable[Place]) -> None:
        """Hold the nodes; nothing is worked out yet."""
        self._places = tuple(places)
        self._known: dict[str, frozenset[str] | None] = {}

    def nodes(self, shape: str) -> frozenset[str] | None:
        """Give the names of the nodes for pods of this shape, None for all."""
        if shape not in self._known:
            spec = json.loads(shape)
            found = frozenset(place.name for place in self._places if is_eligible(spec, place))
            self._known[shape] = None if len(found) == len(self._places) else found
        return self._known[shape]


def shape(spec: Mapping[str, Any]) -> str:
    """Give what of a pod's spec decides where it may go; equal for pods that may go to the same nodes."""
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    found = {
        "nodeSelector": spec.get("nodeSelector") or {},
        "required": affinity,
        "tolerations": spec.get("tolerations") or [],
    }
    return json.dumps(found, sort_keys=True)


def is_eligible(spec: Mapping[str, Any], place: Place) -> bool:
    """Tell whether a pod may go to a node, room aside.

    Args:
        spec: `nodeSelector`, `tolerations` and `required` (the node selector of its required affinity).
        place: the node.
    """
    selector: Mapping[str, str] = spec.get("nodeSelector") or {}
    return (
        all(place.labels.get(name) == value for name, value in selector.items())
        and _is_wanted(spec.get("required"), place)
        and all(_is_tolerated(taint, spec.get("tolerations") or ()) for taint in place.taints)
    )


def blocking(taints: Iterable[Mapping[str, Any]] | None) -> tuple[Mapping[str, Any], ...]:
    """Give the taints that keep pods away; others are wishes."""
    return tuple(taint for taint in taints or () if taint.get("effect") in _BLOCKING)


def _is_wanted(required: Mapping[str, Any] | None, place: Place) -> bool:
    if not required:
        return True
    return any(_matches(term, place) for term in required.get("nodeSelectorTerms") or ())


def _matches(term: Mapping[str, Any], place: Place) -> bool:
    """Tell whether a node fits one term; a term without any expression fits none."""
    labels: Sequence[Mapping[str, Any]] = term.get("matchExpressions") or ()
    fields: Sequence[Mapping[str, Any]] = term.get("matchFields") or ()
    name = {"metadata.name": place.name}
    return bool(labels or fields) and (
        all(_holds(one, place.labels) for one in labels) and all(_holds(one, name) for one in fields)
    )


def _holds(expression: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    key, operator = str(expression.get("key")), expression.get("operator")
    wanted: Sequence[str] = expression.get("values") or ()
    found = values.get(key)
    match operator:
        case "In":
            return found in wanted
        case "NotIn":
            return found not in wanted
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt" | "Lt":
            return _compares(found, wanted, is_greater=operator == "Gt")
    return False


def _compares(found: str | None, wanted: Sequence[str], *, is_greater: bool) -> bool:
    try:
        one, other = int(found or ""), int(wanted[0])
    except (ValueError, IndexError):
        return False
    return one > other if is_greater else one < other


def _is_tolerated(taint: Mapping[str, Any], tolerations: Iterable[Mapping[str, Any]]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Tell whether a toleration is for a taint; without a key it is for all of them."""
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    key = toleration.get("key")
    if key and key != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")
