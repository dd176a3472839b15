"""Read the readiness rules of `app.yaml`."""

import re

from mlstack.files.fields import Fields
from mlstack.files.wording import described
from mlstack.model import fieldpaths
from mlstack.model.readyrules import ConditionSign, FieldSign, ReadyRule, Scalar, Sign

_KIND = re.compile(r"([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Z][A-Za-z0-9]*")
_STATUSES = ("True", "False", "Unknown")
_SIGN = "write {condition: Ready} or {field: status.phase, value: Running}"


def read_rules(fields: Fields) -> tuple[ReadyRule, ...]:
    """Give the rules of an app in their order.

    Raises:
        SchemaError: one of them is wrong, or two are for one kind; with its place.
    """
    rules: dict[str, ReadyRule] = {}
    for entry in fields.each("readiness"):
        rule = _rule(entry)
        if rule.kind in rules:
            entry.refuse("kind", f"has a rule already: `{rule.kind}`", hint="one rule a kind: remove one")
        rules[rule.kind] = rule
    return tuple(rules.values())


def _rule(fields: Fields) -> ReadyRule:
    fields.only("kind", "ready", "failed", "done", "observedGeneration")
    kind = fields.text("kind")
    if not _KIND.fullmatch(kind):
        fields.refuse(
            "kind",
            f"is no kind: `{kind}`",
            hint="write group and kind: example.com/Widget; core ones as: Pod",
        )
    ready = fields.inner("ready")
    if ready is None:
        fields.refuse("ready", "is required: it says when an object works", hint=_SIGN)
    failed, done = fields.inner("failed"), fields.inner("done")
    return ReadyRule(
        kind=kind,
        ready=_sign(ready),
        failed=None if failed is None else _sign(failed),
        done=None if done is None else _sign(done),
        observed_generation=fields.flag("observedGeneration"),
    )


def _sign(fields: Fields) -> Sign:
    fields.only("condition", "status", "reason", "field", "value", "values")
    has_condition, has_field = fields.has("condition"), fields.has("field")
    if has_condition == has_field:
        what = "has both `condition` and `field`" if has_field else "needs `condition` or `field`"
        fields.refuse_all(what, hint=_SIGN)
    for name in ("value", "values") if has_condition else ("status", "reason"):
        if fields.has(name):
            fields.refuse(name, f"does not go with `{'condition' if has_condition else 'field'}`", hint=_SIGN)
    return _condition(fields) if has_condition else _field(fields)


def _condition(fields: Fields) -> ConditionSign:
    # YAML takes an unquoted True for a boolean, and everybody means the condition's status by it.
    status = fields.scalar("status") if fields.has("status") else "True"
    if str(status) not in _STATUSES:
        fields.refuse("status", f"must be one of {', '.join(_STATUSES)}, got `{status}`")
    return ConditionSign(
        condition=fields.text("condition"), status=str(status), reason=fields.text("reason", "")
    )


def _field(fields: Fields) -> FieldSign:
    text = fields.text("field")
    try:
        path = fieldpaths.read(text)
    except ValueError as error:
        fields.refuse("field", str(error).partition("` ")[2], hint="write it as a diff does: status.phase")
    if fields.has("value") == fields.has("values"):
        what = "needs `value` or `values`" if not fields.has("value") else "has both `value` and `values`"
        fields.refuse_all(what, hint=_SIGN)
    return FieldSign(path=path, values=_values(fields))


def _values(fields: Fields) -> tuple[Scalar, ...]:
    if fields.has("value"):
        return (fields.scalar("value"),)
    values = fields.scalars("values")
    if not values:
        fields.refuse("values", f"must hold at least one value, got {described([])}")
    return values
