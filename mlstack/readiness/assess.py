"""Whether one live object works: by the app's own rule, what holds for all kinds, or the rule of its kind."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mlstack.app.app import ConditionSign, FieldSign, ReadyRule, ReadyRules, Sign
from mlstack.objects.kube_object import group_of
from mlstack.objects.managed_fields import ANY, FieldChange
from mlstack.readiness import core, ml, pods, training, workloads
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
    key_of,
    ready,
    waiting,
)

# The files of rules: importing one enters its rules into the table.
RULE_FILES = (core, workloads, training, ml)

# A controller that is there writes a first status within this time.
STATUS_GRACE_S = 10.0

# Nobody is going to say of such an object that it works.
NO_STATUS = "its kind has no status to wait for"

ODD = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError)
"""What goes wrong with values of other types than an API promises."""

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


def assess(facts: Facts, rules: ReadyRules | None = None) -> Readiness:
    """Say whether an object works, and if not why.

    First match wins: it is being deleted; its newest version was not looked at yet; the app's rule for its
    kind; a condition Reconciling or Stalled; the built-in rule of its kind; a condition Ready; else it is
    ready.

    An object of another form than its API promises is not known to work. `rules` are the app's, by kind.
    """
    try:
        if facts.metadata.get("deletionTimestamp"):
            left = ", ".join(facts.metadata.get("finalizers") or ())
            return Readiness("terminating", f"waits for finalizers: {left}" if left else "")
        if not _is_observed(facts):
            return waiting(UNSEEN)
        if own := (rules or {}).get(key_of(facts.data)):
            return _by_app_rule(own, facts)
        for name, state in (("Reconciling", waiting), ("Stalled", failed)):
            if facts.has(name):
                return state(facts.why(name))
        builtin = RULES.get(key_of(facts.data))
        return builtin(facts) if builtin is not None else _unknown_kind(facts)
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
    for path, expected in _TYPES.items():
        value: object = obj
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is None:
            continue
        if not isinstance(value, expected) or isinstance(value, bool):
            return f"{path} is no {({Mapping: 'map', list: 'list', int: 'number', str: 'text'})[expected]}"
        if isinstance(value, list) and not all(isinstance(item, Mapping) for item in value):
            return f"{path} is no list of maps"
    return ""


def _is_observed(facts: Facts) -> bool:
    """Tell whether nothing says that the controller has not looked at the newest version."""
    generation = facts.metadata.get("generation")
    # Where the status is no subresource, writing it makes a new generation that nobody will have observed.
    if not isinstance(generation, int) or facts.has_status is False:
        return True
    if _generation(facts.status) not in (None, generation):
        return False
    # Conditions that tell for which generation they were found, in APIs without an `observedGeneration`.
    dated = [_generation(facts.condition(name)) for name in ("Ready", "Programmed", "Accepted", "Available")]
    return not any(observed is not None and 0 < observed < generation for observed in dated)


def _generation(part: Mapping[str, Any]) -> int | None:
    """Read a generation; some controllers write it as text, others write a hash, which says nothing."""
    observed = part.get("observedGeneration")
    if isinstance(observed, str) and observed.isdigit():
        return int(observed)
    return observed if isinstance(observed, int) and not isinstance(observed, bool) else None


def _unknown_kind(facts: Facts) -> Readiness:
    condition = facts.condition("Ready")
    if condition:
        is_ready = condition.get("status") == "True"
        return ready() if is_ready else pods.because(facts, condition_text(condition))
    # Somebody is to write a status if the definition says so, or nothing speaks against it.
    group, has_controller = group_of(str(facts.data.get("apiVersion", ""))), facts.has_status
    if has_controller is None:
        has_controller = "." in group and not group.endswith(".k8s.io")
    if not facts.status and has_controller:
        # Just created and ready at once would be a lie: its controller has had no time to say anything.
        silent = "no controller has written a status"
        return waiting(f"{silent} yet") if facts.age_s < STATUS_GRACE_S else ready(silent)
    return ready(NO_STATUS if facts.has_status is False and not facts.status else "")


# --- by a rule of the app ---


def _by_app_rule(rule: ReadyRule, facts: Facts) -> Readiness:
    """Say whether an object works: failed before done before ready, and everything else waits."""
    generation = facts.metadata.get("generation")
    if rule.observed_generation and isinstance(generation, int) and facts.has_status is not False:
        # Some controllers say in conditions alone of which generation the status is.
        signs = (rule.ready, rule.failed, rule.done)
        named = (facts.condition(sign.condition) for sign in signs if isinstance(sign, ConditionSign))
        observed = [number for number in map(_generation, (facts.status, *named)) if number]
        if not observed or any(number != generation for number in observed):
            return waiting(UNSEEN)
    if rule.failed is not None and _holds(rule.failed, facts):
        return failed(_shown(rule.failed, facts))
    if rule.done is not None and _holds(rule.done, facts):
        return done()
    return ready() if _holds(rule.ready, facts) else waiting(_shown(rule.ready, facts))


def _holds(sign: Sign, facts: Facts) -> bool:
    if isinstance(sign, ConditionSign):
        live = facts.condition(sign.condition)
        return live.get("status") == sign.status and sign.reason in ("", live.get("reason"))
    values = list(_values(facts.data, sign.path.steps))
    return any(
        isinstance(expected, bool) == isinstance(value, bool) and expected == value
        for expected in sign.values
        for value in values
    )


def _shown(sign: Sign, facts: Facts) -> str:
    """Say what the object shows where a sign looks."""
    if isinstance(sign, FieldSign):
        values = list(_values(facts.data, sign.path.steps))
        texts = [value if isinstance(value, str) and value else json.dumps(value) for value in values]
        text = f"`{sign.path.text}` is {', '.join(texts)}"
        message = condition_text(facts.status)
        return f"has no `{sign.path.text}` yet" if not texts else f"{text}: {message}" if message else text
    live = facts.condition(sign.condition)
    if not live:
        return f"has no condition `{sign.condition}` yet"
    return condition_text(live) or f"condition `{sign.condition}` is {live.get('status')}"


def _values(data: Any, steps: Sequence[str]) -> Iterator[Any]:
    """Give what stands at a path; an item of a list is named by its place or the name people know it by."""
    if not steps:
        yield data
        return
    step, parts = steps[0], []
    if isinstance(data, Mapping):
        parts = list(data.values()) if step == ANY else [data[step]] if step in data else []
    elif isinstance(data, list):
        for place, item in enumerate(data):
            is_named = isinstance(item, Mapping) and step in [
                item.get(key) for key in ("name", "type", "key")
            ]
            parts += [item] if is_named or step in (ANY, str(place)) else []
    for part in parts:
        yield from _values(part, steps[1:])


# --- what may change in place ---


def needs_new_run(live: Mapping[str, Any], changed: Sequence[FieldChange]) -> str | None:
    """Say why an object has to be made anew to take a change; None if it can change in place."""
    rule = NEW_RUN_RULES.get(key_of(live))
    return rule(live, changed) if rule else None


def replacement_of(data: Mapping[str, Any]) -> Replacement:
    """Give what becomes of an object if it cannot change in place."""
    return REPLACEMENTS.get(key_of(data)) or Replacement()
