"""Rules on fields: what they are made of, and those that several kinds share.

A rule takes a field and gives its problems; `at` lays rules on the fields below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from mlstack.objects.resources import quantity
from mlstack.validate.formats import (
    Field,
    Problems,
    Severity,
    Syntax,
    label_value,
    port_name,
    qualified_name,
    shown,
)

Rule = Callable[[Field], Problems]
Table = tuple[tuple[tuple[str, ...], tuple[Rule, ...]], ...]
"""Rules by the kinds that they are for."""


class OperatorRules(NamedTuple):
    """What an operator refuses of kinds of its own, in a webhook or before it starts to work."""

    operator: str  # with its version, as messages name it
    source: str  # where the rules were read: repository, version, file
    kinds: tuple[str, ...]
    rules: tuple[Rule, ...]


MAX_PORT = 65535
MAX_INT32 = 2**31 - 1
COMPUTE = ("cpu", "memory", "ephemeral-storage")
_VALUELESS = ("Exists", "DoesNotExist")
_VALUED = ("In", "NotIn")
_OPERATORS = (*_VALUED, *_VALUELESS)


# --- rules that make rules ---


def at(path: str, *rules: Rule) -> Rule:
    """Lay rules on every field on a path below."""

    def check(field: Field) -> Problems:
        for inner in field.all(path):
            for rule in rules:
                yield from rule(inner)

    return check


def says(message: str, severity: Severity = "error") -> Rule:
    """Say this of a field that is there."""

    def check(field: Field) -> Problems:
        if field:
            yield field.says(message, severity)

    return check


def between(low: int, high: int = MAX_INT32) -> Rule:
    """Demand a number in a range, where there is a number."""

    def check(field: Field) -> Problems:
        number = field.number
        if number is not None and not low <= number <= high:
            expected = f"at least {low}" if high == MAX_INT32 and number < low else f"{low} to {high}"
            expected = str(low) if low == high else expected
            yield field.says(f"must be {expected}, got {number}")

    return check


def fits(syntax: Syntax) -> Rule:
    """Check the syntax of a string, where there is one that is not empty."""

    def check(field: Field) -> Problems:
        wrong = syntax(field.text) if field.text else None
        if wrong:
            yield field.says(wrong)

    return check


def name(syntax: Syntax) -> Rule:
    """Demand a string of this syntax."""
    return at("", needed, fits(syntax))


def choice(*allowed: str, unset: bool = False) -> Rule:
    """Demand one of some values; nothing or an empty string only where that means unset."""
    listed = [f"`{value}`" for value in allowed]
    expected = " or ".join(listed) if len(listed) < 3 else f"one of {', '.join(listed)}"

    def check(field: Field) -> Problems:
        if field.text not in allowed and (field.text or not unset):
            yield field.not_as(expected)

    return check


def one_of(what: str, *allowed: str) -> Rule:
    """Demand exactly one of some fields."""

    def check(field: Field) -> Problems:
        given = [name for name in allowed if field.at(name)]
        if len(given) > 1:
            yield field.says(f"must have one {what}, got {len(given)}: {joined(given, ' and ')}")
        elif not given:
            yield field.says(f"needs one {what}: one of {joined(allowed)}")

    return check


def unique(what: str, path: str = "") -> Rule:
    """Demand that the strings or numbers on a path differ; empty ones do not count."""

    def check(field: Field) -> Problems:
        values: set[object] = set()
        for inner in field.all(path):
            if inner.value in (None, "") or isinstance(inner.value, list | Mapping):
                continue
            if inner.value in values:
                yield inner.says(f"{what} {shown(inner.value)} is used twice")
            values.add(inner.value)

    return check


def joined(names: Iterable[str], separator: str = ", ") -> str:
    """List names for a message."""
    return separator.join(f"`{name}`" for name in names)


# --- rules that several kinds share ---


def needed(field: Field) -> Problems:
    """Demand that there is a value, and not the empty one."""
    if field.value is None or field.value in ("", [], {}):
        yield field.says("is required")


def port(field: Field) -> Problems:
    """Check a port: its number, or its name."""
    yield from between(1, MAX_PORT)(field)
    if isinstance(field.value, str) and (wrong := port_name(field.value)):
        yield field.says(wrong)


def labels(field: Field) -> Problems:
    """Check labels: keys and values."""
    for key, value in field.entries:
        if wrong := qualified_name(key):
            yield value.says(f"key {wrong}")
        yield from fits(label_value)(value)


def requirement(*operators: str) -> Rule:
    """Check one requirement of a selector: key, operator and whether there are values."""

    def check(field: Field) -> Problems:
        yield from name(qualified_name)(field.at("key"))
        operator, values = field.at("operator"), field.at("values")
        if operator.text not in operators:
            yield operator.not_as(f"one of {joined(operators)}")
        elif operator.text in _VALUED and not values.items:
            yield values.says(f"is required with operator `{operator.text}`")
        elif operator.text in _VALUELESS and values.items:
            yield values.says(f"must not be set with operator `{operator.text}`")
        for value in values.items:
            yield from fits(label_value)(value)

    return check


selector = at("", at("matchLabels", labels), at("matchExpressions[]", requirement(*_OPERATORS)))


def selects(chosen: Field, offered: Mapping[str, object]) -> bool:
    """Say whether a selector chooses something with these labels."""
    return all(offered.get(key) == value.value for key, value in chosen.at("matchLabels").entries) and all(
        _meets(expression, offered) for expression in chosen.at("matchExpressions").items
    )


def _meets(expression: Field, offered: Mapping[str, object]) -> bool:
    value = offered.get(expression.at("key").text)
    values = [value.value for value in expression.at("values").items]
    match expression.at("operator").text:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return True


def _percent(field: Field) -> int | None:
    digits = field.text.removesuffix("%")
    return int(digits) if field.text.endswith("%") and digits.isascii() and digits.isdigit() else None


def amount_of(field: Field) -> int | None:
    """Give a number of pods, or the percents of a share; None where there is neither."""
    return _percent(field) if field.text else field.number


def pod_count(most: int | None = 100) -> Rule:
    """Check a number of pods or a share of them: 0 and up, or `0%` to `100%`."""

    def check(field: Field) -> Problems:
        yield from between(0)(field)
        if isinstance(field.value, str):
            percent = _percent(field)
            if percent is None:
                yield field.not_as("a number or a share such as `25%`")
            elif most is not None and percent > most:
                yield field.not_as("at most `100%`")

    return check


def not_negative(field: Field) -> Problems:
    """Demand that a quantity is zero or more."""
    if (quantity(field.value) or 0) < 0:
        yield field.says(f"must not be negative, got {shown(field.value)}")


def absolute_path(text: str) -> str | None:
    """Check a path that starts at the root."""
    return None if text.startswith("/") else f"must be an absolute path, got {shown(text)}"
