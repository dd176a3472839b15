"""Checks that several rules share: names, selectors, numbers or shares."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping

from mlstack.model.validation import syntax
from mlstack.model.validation.base import Field, Problems, shown

MAX_PORT = 65535
_PERCENT = re.compile(r"[0-9]+%")
_VALUED = ("In", "NotIn")
_OPERATORS = (*_VALUED, "Exists", "DoesNotExist")


def fits(field: Field, check: Callable[[str], str | None]) -> Problems:
    """Check the syntax of a string, where there is one that is not empty."""
    wrong = check(field.text) if field.text else None
    if wrong:
        yield field.says(wrong)


def needed_name(field: Field, check: Callable[[str], str | None]) -> Problems:
    """Demand a string of this syntax."""
    yield from field.needed()
    yield from fits(field, check)


def port(field: Field) -> Problems:
    """Check a port: its number, or its name."""
    if field.number is not None:
        yield from field.between(1, MAX_PORT)
    elif isinstance(field.value, str):
        wrong = syntax.port_name(field.value)
        if wrong:
            yield field.says(wrong)


def labels(field: Field) -> Problems:
    """Check labels: keys and values."""
    for key, value in field.entries:
        wrong = syntax.qualified_name(key)
        if wrong:
            yield value.says(f"key {wrong}")
        yield from fits(value, syntax.label_value)


def selector(field: Field) -> Problems:
    """Check a selector of labels."""
    yield from labels(field.at("matchLabels"))
    for expression in field.at("matchExpressions").items:
        yield from requirement(expression, _OPERATORS)


def requirement(field: Field, operators: Iterable[str]) -> Problems:
    """Check one requirement of a selector: key, operator and whether there are values."""
    yield from needed_name(field.at("key"), syntax.qualified_name)
    operator, values = field.at("operator"), field.at("values")
    if operator.text not in operators:
        expected = ", ".join(f"`{one}`" for one in operators)
        yield operator.says(f"must be one of {expected}, got {shown(operator.value)}")
    elif operator.text in _VALUED and not values.items:
        yield values.says(f"is required with operator `{operator.text}`")
    elif operator.text in ("Exists", "DoesNotExist") and values.items:
        yield values.says(f"must not be set with operator `{operator.text}`")
    for value in values.items:
        yield from fits(value, syntax.label_value)


def selects(chosen: Field, offered: Mapping[str, object]) -> bool:
    """Say whether a selector chooses something with these labels."""
    for key, value in chosen.at("matchLabels").entries:
        if offered.get(key) != value.value:
            return False
    return all(_meets(expression, offered) for expression in chosen.at("matchExpressions").items)


def _meets(expression: Field, offered: Mapping[str, object]) -> bool:
    found = offered.get(expression.at("key").text)
    values = [value.value for value in expression.at("values").items]
    match expression.at("operator").text:
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
    return True


def count_or_share(field: Field, *, at_most_all: bool = True) -> Problems:
    """Check a number of pods or a share of them: 0 and up, or `0%` to `100%`."""
    if field.number is not None:
        yield from field.between(0)
    elif isinstance(field.value, str):
        if not _PERCENT.fullmatch(field.value):
            yield field.says(f"must be a number or a share such as `25%`, got {shown(field.value)}")
        elif at_most_all and int(field.value[:-1]) > 100:
            yield field.says(f"must be at most `100%`, got {shown(field.value)}")


def amount(field: Field) -> int | None:
    """Give a number of pods, or the percents of a share; None where there is neither."""
    if isinstance(field.value, str) and _PERCENT.fullmatch(field.value):
        return int(field.value[:-1])
    return field.number


def address(field: Field) -> Problems:
    """Check an IP address."""
    if not field.text:
        return
    try:
        ipaddress.ip_address(field.text)
    except ValueError:
        yield field.says(f"must be an IP address, got {shown(field.value)}")


def network(field: Field) -> Problems:
    """Check a network of IP addresses."""
    try:
        if "/" in field.text and ipaddress.ip_network(field.text.strip(), strict=False):
            return
    except ValueError:
        pass
    yield field.says(f"must be a network such as `10.0.0.0/8`, got {shown(field.value)}")


def one_of(field: Field, names: Iterable[str], *, what: str) -> Problems:
    """Demand exactly one of some fields."""
    allowed = tuple(names)
    given = [name for name in allowed if field.at(name)]
    if len(given) > 1:
        listed = " and ".join(f"`{name}`" for name in given)
        yield field.says(f"must have one {what}, got {len(given)}: {listed}")
    elif not given:
        listed = ", ".join(f"`{name}`" for name in allowed)
        yield field.says(f"needs one {what}: one of {listed}")


def unique(fields: Iterable[Field], *, what: str) -> Problems:
    """Demand that strings or numbers differ; empty ones do not count."""
    seen: set[object] = set()
    for field in fields:
        if field.value in (None, "") or isinstance(field.value, list | Mapping):
            continue
        if field.value in seen:
            yield field.says(f"{what} {shown(field.value)} is used twice")
        seen.add(field.value)
