"""Whether one live object works: by the app's own rule, what holds for all kinds, or the rule of its kind."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mlstack.app.app import ConditionSign, FieldSign, ReadyRule, ReadyRules, Sign
from mlstack.objects.kube_object import group_of
from mlstack.objects.managed_fields import ANY, FieldChange
from mlstack.readiness import core, ml, platform, pods, workloads
from mlstack.readiness.rule import (
    NEW_RUN_RULES,
    REPLACEMENTS,
    RULES,
    UNSEEN,
    Facts,
    Readiness,
    Replacement,
    condition_text,
    done,
    failed,
    generation_of,
    key_of,
    ready,
    waiting,
)

# --- by a rule of the app ---

# Names by which people know an item of a list.
_KEYS = ("name", "type", "key")


def by_app_rule(rule: ReadyRule, facts: Facts) -> Readiness:
    """Say whether an object works: failed before done before ready, and everything else waits."""
    if rule.observed_generation and not _is_observed(rule, facts):
        return waiting(UNSEEN)
    if rule.failed is not None and _holds(rule.failed, facts):
        return failed(_found(rule.failed, facts))
    if rule.done is not None and _holds(rule.done, facts):
        return done()
    return ready() if _holds(rule.ready, facts) else waiting(_found(rule.ready, facts))


def _is_observed(rule: ReadyRule, facts: Facts) -> bool:
    """Tell whether the status is of the newest generation; some controllers say so in conditions alone."""
    generation = facts.metadata.get("generation")
    if not isinstance(generation, int) or facts.has_status is False:
        return True
    signs = (rule.ready, rule.failed, rule.done)
    named = (facts.condition(sign.condition) for sign in signs if isinstance(sign, ConditionSign))
    generations = [generation_of(part.get("observedGeneration")) for part in (facts.status, *named)]
    observed = [number for number in generations if number]
    return bool(observed) and all(number == generation for number in observed)


def _holds(sign: Sign, facts: Facts) -> bool:
    if isinstance(sign, FieldSign):
        return any(_is_same(wanted, value) for wanted in sign.values for value in _values(sign, facts))
    live = facts.condition(sign.condition)
    return live.get("status") == sign.status and sign.reason in ("", live.get("reason"))


def _is_same(wanted: object, value: object) -> bool:
    return isinstance(wanted, bool) == isinstance(value, bool) and wanted == value


def _found(sign: Sign, facts: Facts) -> str:
    """Say what the object shows where a sign looks."""
    if isinstance(sign, FieldSign):
        return _field_text(sign, facts)
    live = facts.condition(sign.condition)
    if not live:
        return f"has no condition `{sign.condition}` yet"
    return condition_text(live) or f"condition `{sign.condition}` is {live.get('status')}"


def _field_text(sign: FieldSign, facts: Facts) -> str:
    values = tuple(_values(sign, facts))
    if not values:
        return f"has no `{sign.path.text}` yet"
    shown = f"`{sign.path.text}` is {', '.join(_shown(value) for value in values)}"
    message = condition_text(facts.status)
    return f"{shown}: {message}" if message else shown


def _shown(value: object) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)


def _values(sign: FieldSign, facts: Facts) -> Iterator[Any]:
    return _at(facts.data, sign.path.steps)


def _at(data: Any, steps: Sequence[str]) -> Iterator[Any]:
    if not steps:
        yield data
        return
    for part in _below(data, steps[0]):
        yield from _at(part, steps[1:])


def _below(data: Any, step: str) -> Iterator[Any]:
    if isinstance(data, Mapping):
        yield from data.values() if step == ANY else (data[name] for name in (step,) if name in data)
    elif isinstance(data, list):
        yield from (item for at, item in enumerate(data) if step in (ANY, str(at)) or _is_called(item, step))


def _is_called(item: object, name: str) -> bool:
    return isinstance(item, Mapping) and any(item.get(key) == name for key in _KEYS)


# --- by what holds for every kind, then the rule of its kind ---

# The files of rules: importing one enters its rules into the table.
RULE_FILES = (core, workloads, platform, ml)

# A controller that is there writes a first status within this time.
STATUS_GRACE_S = 10.0

# Nobody is going to say of such an object that it works.
NO_STATUS = "its kind has no status to wait for"

ODD = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError)
"""What goes wrong with values of other types than an API promises."""

_CALLED = {Mapping: "map", list: "list", int: "number", str: "text"}
_TYPES = {
    **dict.fromkeys(("spec", "status", "spec.template", "spec.template.spec", "spec.selector"), Mapping),
    **dict.fromkeys(("involvedObject", "status.loadBalancer", "status.replicaStatuses"), Mapping),
    **dict.fromkeys(("status.conditions", "status.containerStatuses", "status.initContainerStatuses"), list),
    **dict.fromkeys(("spec.containers", "spec.initContainers", "spec.volumes", "spec.ports"), list),
    **dict.fromkeys(("spec.taints", "spec.tolerations", "spec.versions", "webhooks", "endpoints"), list),
    **dict.fromkeys(("status.loadBalancer.ingress",), list),
    **dict.fromkeys(("spec.replicas", "spec.completions", "spec.parallelism", "status.replicas"), int),
    **dict.fromkeys(("status.readyReplicas", "status.updatedReplicas", "status.availableReplicas"), int),
    **dict.fromkeys(("status.succeeded", "status.failed", "status.active", "status.desiredReplicas"), int),
    **dict.fromkeys(("status.phase", "status.reason", "status.message", "spec.nodeName", "spec.type"), str),
}

# Conditions that tell for which generation they were found, in APIs without an `observedGeneration`.
_DATED = ("Ready", "Programmed", "Accepted", "Available")


def assess(facts: Facts, rules: ReadyRules | None = None) -> Readiness:
    """Say whether an object works, and if not why.

    First match wins: it is being deleted; its newest version was not looked at yet; the app's rule for its
    kind; a condition Reconciling or Stalled; the built-in rule of its kind; a condition Ready; else it is
    ready.

    An object of another form than its API promises is not known to work. `rules` are the app's, by kind.
    """
    try:
        return _assess(facts, rules)
    except ODD:
        return unjudged(facts.data, *facts.pods, *facts.events, *(facts.nodes or ()))


def unjudged(*objects: object) -> Readiness:
    """Say that an object cannot be judged, and what is odd about it or what belongs to it."""
    fields = (field for obj in objects if (field := _odd_field(obj)))
    return waiting(f"cannot be judged: {next(fields, 'it has a form that its kind never has')}")


def _odd_field(obj: object) -> str:
    """Name the first field of another type than every kind gives it, nothing if there is none."""
    if not isinstance(obj, Mapping):
        return "it is no map"
    for path, wanted in _TYPES.items():
        value: object = obj
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is None:
            continue
        if not isinstance(value, wanted) or isinstance(value, bool):
            return f"{path} is no {_CALLED[wanted]}"
        if isinstance(value, list) and not all(isinstance(item, Mapping) for item in value):
            return f"{path} is no list of maps"
    return ""


def _assess(facts: Facts, rules: ReadyRules | None) -> Readiness:
    if facts.metadata.get("deletionTimestamp"):
        left = ", ".join(facts.metadata.get("finalizers") or ())
        return Readiness(state="terminating", reason=f"waits for finalizers: {left}" if left else "")
    own = (rules or {}).get(key_of(facts.data))
    if own is not None:
        return _unobserved(facts) or by_app_rule(own, facts)
    return _unobserved(facts) or _standard(facts) or _by_kind(facts)


def _unobserved(facts: Facts) -> Readiness | None:
    generation = facts.metadata.get("generation")
    # Where the status is no subresource, writing it makes a new generation that nobody will have observed.
    if not isinstance(generation, int) or facts.has_status is False:
        return None
    observed = generation_of(facts.status.get("observedGeneration"))
    if observed is not None and observed != generation:
        return waiting(UNSEEN)
    dated = (generation_of(facts.condition(name).get("observedGeneration")) for name in _DATED)
    return (
        waiting(UNSEEN)
        if any(observed_at is not None and 0 < observed_at < generation for observed_at in dated)
        else None
    )


def _standard(facts: Facts) -> Readiness | None:
    if facts.has("Reconciling"):
        return waiting(condition_text(facts.condition("Reconciling")))
    if facts.has("Stalled"):
        return failed(condition_text(facts.condition("Stalled")))
    return None


def _by_kind(facts: Facts) -> Readiness:
    rule = RULES.get(key_of(facts.data))
    if rule is not None:
        return rule(facts)
    condition = facts.condition("Ready")
    if condition:
        return (
            ready() if condition.get("status") == "True" else pods.because(facts, condition_text(condition))
        )
    if not facts.status and _has_controller(facts):
        # Just created and ready at once would be a lie: its controller has had no time to say anything.
        silent = "no controller has written a status"
        return waiting(f"{silent} yet") if facts.age_s < STATUS_GRACE_S else ready(silent)
    return ready(NO_STATUS if facts.has_status is False and not facts.status else "")


def _has_controller(facts: Facts) -> bool:
    """Tell whether somebody is to write a status: the definition says so, or nothing speaks against it."""
    if facts.has_status is not None:
        return facts.has_status
    group = group_of(str(facts.data.get("apiVersion", "")))
    return "." in group and not group.endswith(".k8s.io")


# --- what may change in place ---


def needs_new_run(live: Mapping[str, Any], changed: Sequence[FieldChange]) -> str | None:
    """Say why an object has to be made anew to take a change; None if it can change in place."""
    rule = NEW_RUN_RULES.get(key_of(live))
    return rule(live, changed) if rule else None


def replacement_of(data: Mapping[str, Any]) -> Replacement:
    """Give what becomes of an object if it cannot change in place."""
    return REPLACEMENTS.get(key_of(data)) or Replacement()
