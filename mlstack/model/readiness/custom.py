"""Judge an object by a rule that the app gives for its kind."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mlstack.model.fieldpaths import ANY
from mlstack.model.readiness.base import (
    UNSEEN,
    Facts,
    Readiness,
    condition_text,
    done,
    failed,
    generation_of,
    ready,
    waiting,
)
from mlstack.model.readyrules import ConditionSign, FieldSign, ReadyRule, Sign

# Names by which people know an item of a list.
_KEYS = ("name", "type", "key")


def judge(rule: ReadyRule, facts: Facts) -> Readiness:
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
    named = (facts.condition(one.condition) for one in signs if isinstance(one, ConditionSign))
    told = [generation_of(one.get("observedGeneration")) for one in (facts.status, *named)]
    seen = [one for one in told if one]
    return bool(seen) and all(one == generation for one in seen)


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
    said = condition_text(facts.status)
    return f"{shown}: {said}" if said else shown


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
        yield from (one for at, one in enumerate(data) if step in (ANY, str(at)) or _is_called(one, step))


def _is_called(item: object, name: str) -> bool:
    return isinstance(item, Mapping) and any(item.get(key) == name for key in _KEYS)
