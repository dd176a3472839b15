"""Rules on autoscalers and disruption budgets."""

from __future__ import annotations

from mlstack.model.validation.base import Field, Problems, Severity, shown
from mlstack.model.validation.rules.shared import count_or_share, selector
from mlstack.model.validation.rules.table import Subject, rule

_SOURCES = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
_TARGETS = {
    "AverageValue": "averageValue",
    "Utilization": "averageUtilization",
    "Value": "value",
}
_STRICT_TARGETS = 36
"""Seen to refuse: 1.36."""
_MAX_WINDOW_S = 3600
_MAX_PERIOD_S = 1800


@rule("autoscaling/HorizontalPodAutoscaler")
def autoscaler_has_a_range(subject: Subject) -> Problems:
    """An autoscaler scales something, between a minimum and a maximum."""
    low, high = subject.spec.at("minReplicas"), subject.spec.at("maxReplicas")
    yield from low.between(1)
    yield from high.between(1)
    if low.number is not None and high.number is not None and 1 <= high.number < low.number:
        yield high.says(f"must be at least `minReplicas` ({low.number}), got {high.number}")
    for name in ("kind", "name"):
        yield from subject.spec.at("scaleTargetRef", name).needed()
    yield from subject.spec.at("targetCPUUtilizationPercentage").between(1)


@rule("autoscaling/HorizontalPodAutoscaler")
def autoscaler_names_the_group(subject: Subject) -> Problems:
    """What is scaled is found by its API group; older servers take an autoscaler that cannot find it."""
    version = subject.spec.at("scaleTargetRef", "apiVersion")
    group, slash, _ = version.text.partition("/")
    if not (group and slash):
        severity: Severity = "error" if subject.minor >= _STRICT_TARGETS else "warning"
        yield version.says(f"must have a group, as `apps/v1`, got {shown(version.text)}", severity)


@rule("autoscaling/HorizontalPodAutoscaler")
def metrics_fit(subject: Subject) -> Problems:
    """A metric has the source that its type names, and a target."""
    for metric in subject.spec.at("metrics").items:
        kind = metric.at("type")
        yield from kind.needed()
        source = _SOURCES.get(kind.text)
        if source is None:
            continue
        yield from metric.at(source).needed()
        for name in metric.names:
            if name not in ("type", source):
                yield metric.at(name).says(f"must not be set with `type: {kind.text}`")
        if metric.at(source):
            yield from _target(metric.at(source, "target"))
        if source in ("resource", "containerResource") and metric.at(source):
            yield from metric.at(source, "name").needed()


def _target(target: Field) -> Problems:
    kind = target.at("type")
    yield from kind.needed()
    yield from target.at("averageUtilization").between(1)
    if kind.text in _TARGETS:
        yield from target.at(_TARGETS[kind.text]).needed()


@rule("autoscaling/HorizontalPodAutoscaler")
def behaviour_fits(subject: Subject) -> Problems:
    """Windows last up to an hour; a policy moves at least one pod in up to half an hour."""
    for direction in ("scaleUp", "scaleDown"):
        rules = subject.spec.at("behavior", direction)
        yield from rules.at("stabilizationWindowSeconds").between(0, _MAX_WINDOW_S)
        if rules.at("policies").value == []:
            yield rules.at("policies").says("is required")
        for policy in rules.at("policies").items:
            yield from policy.at("type").needed()
            yield from policy.at("value").between(1)
            yield from policy.at("periodSeconds").between(1, _MAX_PERIOD_S)


@rule("policy/PodDisruptionBudget")
def budget_says_one_thing(subject: Subject) -> Problems:
    """A budget limits either the pods that are there or those that are not."""
    available, unavailable = subject.spec.at("minAvailable"), subject.spec.at("maxUnavailable")
    if available and unavailable:
        yield unavailable.says("must not be set together with `minAvailable`")
    yield from count_or_share(available)
    yield from count_or_share(unavailable)
    yield from selector(subject.spec.at("selector"))
