"""Which nodes a pod may go to, room aside: selectors, affinity and taints, as kube-scheduler filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlstack.dataclass import dataclass


@dataclass(frozen=True)
class NodePlace:
    """What a node tells pods that look for a place."""

    name: str  # of the node
    labels: Mapping[str, str]  # of the node
    taints: tuple[Mapping[str, Any], ...] = ()  # that keep pods away, as the node has them


def is_eligible(spec: Mapping[str, Any], place: NodePlace) -> bool:
    """Tell whether a pod may go to a node, room aside; `required` is its required node affinity."""
    return is_selected(spec, place) and untolerated(spec, place) is None


def is_selected(spec: Mapping[str, Any], place: NodePlace) -> bool:
    """Tell whether a node has what a pod's selector and required affinity ask for."""
    selector: Mapping[str, str] = spec.get("nodeSelector") or {}
    required = spec.get("required") or required_affinity(spec)
    return all(place.labels.get(name) == value for name, value in selector.items()) and (
        not required or any(_matches(term, place) for term in required.get("nodeSelectorTerms") or ())
    )


def required_affinity(spec: Mapping[str, Any]) -> Any:
    """Give the node affinity that a pod insists on."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return affinity.get("requiredDuringSchedulingIgnoredDuringExecution")


def untolerated(spec: Mapping[str, Any], place: NodePlace) -> Mapping[str, Any] | None:
    """Give the first taint of a node that keeps a pod away, None where none does."""
    tolerations = spec.get("tolerations") or ()
    return next(
        (
            taint
            for taint in place.taints
            if not any(_tolerates(toleration, taint) for toleration in tolerations)
        ),
        None,
    )


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, Any]) -> bool:
    """Tell whether a label selector is about something with these labels; without one it is about nothing."""
    if selector is None:
        return False
    rows: Sequence[Mapping[str, Any]] = selector.get("matchExpressions") or ()
    return (selector.get("matchLabels") or {}).items() <= labels.items() and all(
        _holds(row, labels) for row in rows
    )


def _matches(term: Mapping[str, Any], place: NodePlace) -> bool:
    """Tell whether a node fits one term; a term without any expression fits none."""
    labels: Sequence[Mapping[str, Any]] = term.get("matchExpressions") or ()
    fields: Sequence[Mapping[str, Any]] = term.get("matchFields") or ()
    pairs = [(expression, place.labels) for expression in labels]
    pairs += [(expression, {"metadata.name": place.name}) for expression in fields]
    return bool(pairs) and all(_holds(expression, values) for expression, values in pairs)


def _holds(expression: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    value, operator = values.get(str(expression.get("key"))), expression.get("operator")
    choices: Sequence[str] = expression.get("values") or ()
    match operator:
        case "In":
            return value in choices
        case "NotIn":
            return value not in choices
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            try:
                difference = int(value or "") - int(choices[0])
            except (ValueError, IndexError):
                return False
            return difference > 0 if operator == "Gt" else difference < 0
    return False


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
