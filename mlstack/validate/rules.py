"""Rules on fields, and the tables that lay them on kinds: the files `*.rules` here.

A rule takes a field and gives its problems. In a table stand, below the kinds, lines of a path and what is
checked of every field on it; how, the top of `api_server.rules` says.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from mlstack.objects.resources import quantity
from mlstack.validate import formats
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

FieldRule = Callable[[Field], Problems]

MAX_INT32 = 2**31 - 1
COMPUTE = ("cpu", "memory", "ephemeral-storage")

RULES: dict[str, FieldRule] = {}
"""Functions and parts of tables, by the name that tables have for them."""


def check(rule: FieldRule) -> FieldRule:
    """Let tables use a function, by its name."""
    RULES[rule.__name__.lstrip("_")] = rule
    return rule


def syntax(syntax: Syntax) -> Syntax:
    """Let tables use the syntax of a text, by its name."""
    RULES[syntax.__name__.lstrip("_")] = fits(syntax)
    return syntax


# --- rules that make rules ---


def at(path: str, *rules: FieldRule) -> FieldRule:
    """Lay rules on every field on a path below."""

    def check(field: Field) -> Problems:
        for inner in field.all(path):
            for rule in rules:
                yield from rule(inner)

    return check


def between(low: int, high: int = MAX_INT32) -> FieldRule:
    """Demand a number in a range, where there is a number."""

    def check(field: Field) -> Problems:
        number = field.number
        if number is not None and not low <= number <= high:
            expected = f"at least {low}" if high == MAX_INT32 and number < low else f"{low} to {high}"
            expected = str(low) if low == high else expected
            yield field.says(f"must be {expected}, got {number}")

    return check


def fits(syntax: Syntax) -> FieldRule:
    """Check the syntax of a string, where there is one that is not empty."""

    def check(field: Field) -> Problems:
        wrong = syntax(field.text) if field.text else None
        if wrong:
            yield field.says(wrong)

    return check


def choice(*allowed: str, unset: bool = False) -> FieldRule:
    """Demand one of some values; nothing or an empty string only where that means unset."""
    listed = [f"`{value}`" for value in allowed]
    expected = " or ".join(listed) if len(listed) < 3 else f"one of {', '.join(listed)}"

    def check(field: Field) -> Problems:
        if field.text not in allowed and (field.text or not unset):
            yield field.not_as(expected)

    return check


def one_of(what: str, *allowed: str) -> FieldRule:
    """Demand exactly one of some fields."""

    def check(field: Field) -> Problems:
        given = [name for name in allowed if field.at(name)]
        if len(given) > 1:
            yield field.says(f"must have one {what}, got {len(given)}: {joined(given, ' and ')}")
        elif not given:
            yield field.says(f"needs one {what}: one of {joined(allowed)}")

    return check


def unique(what: str, path: str, beside: str | None = None) -> FieldRule:
    """Demand that the strings or numbers on a path differ, or else what stands `beside` them."""
    names = (beside or "").split()
    holders, _, name = path.rpartition(".") if names else (path, "", "")
    same = f" with the same {' and '.join(names)}" if names else ""

    def check(field: Field) -> Problems:
        taken: set[tuple[object, ...]] = set()
        for holder in field.all(holders):
            inner = holder.at(name) if name else holder
            if not inner.value or isinstance(inner.value, list | Mapping):
                continue
            key = (
                inner.value,
                *(holder.at(other).word or formats.KEY_DEFAULTS.get(other) for other in names),
            )
            if key in taken:
                yield inner.says(f"{what} {shown(inner.value)} is used twice{same}")
            taken.add(key)

    return check


def among(paths: str, what: str, others: str) -> FieldRule:
    """Demand of what is on some paths that it stands among what is on another."""

    def check(field: Field) -> Problems:
        offered = [other.word for other in field.all(others)]
        for inner in field.all(paths):
            if inner and inner.word not in offered:
                yield inner.not_as(f"one of the {what} {joined(offered)}")

    return check


def keys(*allowed: str) -> FieldRule:
    """Demand that a map has no other keys."""

    def check(field: Field) -> Problems:
        for key, value in field.entries:
            if key not in allowed:
                yield value.says(f"must be {joined(allowed, ' or ')}")

    return check


def either(one: str, other: str) -> FieldRule:
    """Demand something on one of two paths, and on one alone."""
    names = [path.rstrip("[]+") for path in (one, other)]

    def check(field: Field) -> Problems:
        if any(field.all(one)) == any(field.all(other)):
            yield field.says(f"needs either {joined(names, ' or ')}")

    return check


def bounded(paths: str, bound: str, other: str) -> FieldRule:
    """Demand of quantities that they are `at least` or `at most` another one, or the one on a path."""
    is_given = quantity(other) is not None

    def check(field: Field) -> Problems:
        limit = Field(other) if is_given else field.all(other)[0]
        least = quantity(limit.value)
        for inner in field.all(paths):
            amount = quantity(inner.value)
            if amount is None or least is None:
                continue
            if amount < least if bound == "least" else amount > least:
                named = f"`{other}`" if is_given else f"`{other}` ({limit.value})"
                yield inner.says(f"must be at {bound} {named}, got {inner.value}")

    return check


def sized(limit: int, what: str, path: str | None = None) -> FieldRule:
    """Demand so many characters of a text, or items of a list or on a path, at the most."""

    def check(field: Field) -> Problems:
        size = len(field.all(path) if path else field.text if what == "characters" else field.items)
        if size > limit:
            yield field.says(f"must have at most {limit} {what}, got {size}")

    return check


def deprecated(since: str, gone: str | None, use: str) -> FieldRule:
    """Warn of a field that is deprecated since a minor version of Kubernetes, or does nothing from one on."""

    def check(field: Field) -> Problems:
        minor = field.subject.minor
        if gone is not None and int(gone) <= minor + 1:
            yield field.says(f"does nothing {when(int(gone), minor)}: use {use}", "warning")
        elif int(since) <= minor + 1:
            said = f"is deprecated {when(int(since), minor)}".strip()
            yield field.says(f"{said}: use {use}", "warning")

    return check


def when(since: int, minor: int) -> str:
    """Say of a minor version of Kubernetes that it was or will be, as seen from another; of 0 nothing."""
    return (
        f"from Kubernetes 1.{since} on" if since > minor else f"since Kubernetes 1.{since}" if since else ""
    )


def joined(names: Iterable[str], separator: str = ", ") -> str:
    """List names for a message."""
    return separator.join(f"`{name}`" for name in names)


# --- rules that several kinds share ---


@check
def needed(field: Field) -> Problems:
    """Demand that there is a value, and not the empty one."""
    if field.value is None or field.value in ("", [], {}):
        yield field.says("is required")


@check
def port(field: Field) -> Problems:
    """Check a port: its number, or its name."""
    yield from between(1, 65535)(field)
    if isinstance(field.value, str) and (wrong := port_name(field.value)):
        yield field.says(wrong)


@check
def labels(field: Field) -> Problems:
    """Check labels: keys and values."""
    for key, value in field.entries:
        if wrong := qualified_name(key):
            yield value.says(f"key {wrong}")
        yield from fits(label_value)(value)


def selects(chosen: Field, offered: Mapping[str, object]) -> bool:
    """Say whether a selector chooses something with these labels."""
    return all(offered.get(key) == value.value for key, value in chosen.at("matchLabels").entries) and all(
        _meets(expression, offered) for expression in chosen.at("matchExpressions").items
    )


def _meets(expression: Field, offered: Mapping[str, object]) -> bool:
    value = offered.get(expression.at("key").text)
    values = [value.value for value in expression.at("values").items]
    answers = {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }
    return answers.get(expression.at("operator").text, True)


def _percent(field: Field) -> int | None:
    digits = field.text.removesuffix("%")
    return int(digits) if field.text.endswith("%") and digits.isascii() and digits.isdigit() else None


def amount_of(field: Field) -> int | None:
    """Give a number of pods, or the percents of a share; None where there is neither."""
    return _percent(field) if field.text else field.number


@check
def pods_or_share(field: Field) -> Problems:
    """Check a number of pods or a share of them: 0 and up, or `0%` and up."""
    yield from between(0)(field)
    if isinstance(field.value, str) and _percent(field) is None:
        yield field.not_as("a number or a share such as `25%`")


@check
def pod_count(field: Field) -> Problems:
    """Check a number of pods or a share of them, `100%` at the most."""
    yield from pods_or_share(field)
    if isinstance(field.value, str) and (_percent(field) or 0) > 100:
        yield field.not_as("at most `100%`")


@check
def not_negative(field: Field) -> Problems:
    """Demand that a quantity is zero or more."""
    if (quantity(field.value) or 0) < 0:
        yield field.says(f"must not be negative, got {shown(field.value)}")


# --- tables ---


class KindRules(NamedTuple):
    """What is checked of some kinds: by the API server, or by the operator that they are of."""

    title: str  # what stands behind `@` above: `OPERATOR VERSION | SOURCE`, of policies all but their rules
    kinds: tuple[str, ...]
    rules: tuple[FieldRule, ...]

    @property
    def operator(self) -> str:
        """Give the operator with its version, as messages name it; empty for the API server."""
        return self.title.partition(" | ")[0]


@cache
def load(file: str) -> list[KindRules]:
    """Read a table of this folder; its parts (`let`) and the functions it names are in `RULES` then."""
    text = re.sub(r" \\\n +", "  ", Path(__file__).with_name(file).read_text("utf-8"))
    lines = deque(
        (len(line) - len(line.lstrip()), line.strip())
        for line in text.splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    )
    table, title = [], ""
    while lines:
        _, line = lines.popleft()
        if line.startswith("@ "):
            title = line[2:]
        elif line.startswith("let "):
            RULES[line[4:]] = _later(line[4:])  # a part may name itself
            RULES[line[4:]] = at("", *_block(lines, 0))
        else:
            table.append(KindRules(title, tuple(line.split()), _block(lines, 0)))
    return table


def _later(part: str) -> FieldRule:
    return lambda field: RULES[part](field)


def _block(lines: deque[tuple[int, str]], indent: int) -> tuple[FieldRule, ...]:
    rules: list[FieldRule] = []
    while lines and lines[0][0] > indent:
        depth, line = lines.popleft()
        path, colon, checks = line.partition(": ")
        if colon:
            checks, _, condition = checks.partition("  when ")
            rules.append(_line(path, checks, condition))
        elif line.startswith("when "):
            rules.append(_guarded(line[5:], _block(lines, depth)))
        else:
            rules.append(at(line, *_block(lines, depth)))
    return tuple(rules)


def _line(path: str, checks: str, condition: str) -> FieldRule:
    if checks[0] not in _SEVERITIES:
        rule = at(path, *map(_check, checks.split("; ")))
        return _guarded(condition, [rule]) if condition else rule
    message, severity = checks[2:], _SEVERITIES[checks[0]]

    def say(base: Field) -> Problems:
        for field in base.all(path):
            yield field.says(_filled(message, field, base), severity)

    return _guarded(condition, [say]) if condition else say


_SEVERITIES: Mapping[str, Severity] = {"!": "error", "~": "warning"}


def _filled(message: str, field: Field, base: Field) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] in ("", "."):
            return str(field.value) if match[1] else shown(field.value)
        return ", ".join(inner.word for inner in base.all(match[1]))

    return re.sub(r'\{([\w./"\[\]=-]*)\}', value, message)


_FORMS: tuple[tuple[str, Callable[..., FieldRule]], ...] = (
    (r"(\d+)\.\.(\d*)", lambda low, high: between(int(low), int(high or MAX_INT32))),
    (r"one of (.+)", lambda words: choice(*words.split())),
    (r"unset or (.+)", lambda words: choice(*words.split(), unset=True)),
    (r"unique (.+) in (\S+)(?: with (.+))?", unique),
    (r"(\S+) among (.+) in (\S+)", among),
    (r"keys (.+)", lambda words: keys(*words.split())),
    (r"one (\w+) of (.+)", lambda what, words: one_of(what, *words.split())),
    (r"either (\S+) or (\S+)", either),
    (r"at most (\d+) (\w+)(?: in (\S+))?", lambda limit, what, path: sized(int(limit), what, path)),
    (r"(\S+) at (least|most) (\S+)", bounded),
    (r"deprecated (\d+)(?:-(\d+))? (.+)", deprecated),
)


def _check(text: str) -> FieldRule:
    for pattern, make in _FORMS:
        if match := re.fullmatch(pattern, text):
            return make(*match.groups())
    if text not in RULES and not hasattr(formats, text):
        raise ValueError(f"`{text}` is no check: the top of api_server.rules lists them")
    return RULES.get(text) or fits(getattr(formats, text))


def _guarded(condition: str, rules: Iterable[FieldRule]) -> FieldRule:
    terms = [_term(text) for text in condition.split(" and ")]

    def check(field: Field) -> Problems:
        if all(term(field) for term in terms):
            for rule in rules:
                yield from rule(field)

    return check


_TERM = re.compile(r"(not )?(has )?(\S+)(?: (!?)([=~>]) (.+))?")


def _term(text: str) -> Callable[[Field], bool]:
    if match := re.fullmatch(r"(from|before) (\d+)", text):
        minor, is_later = int(match[2]), match[1] == "from"
        return lambda field: (field.subject.minor >= minor) is is_later
    match = _TERM.fullmatch(text)
    assert match is not None, text
    no, has, path, differs, operator, words = match.groups()
    expected = bool(no) is bool(differs)
    if operator == ">":
        return lambda field: sum(map(bool, field.all(path))) > int(words)
    if operator == "~":
        return lambda field: any(re.search(words, inner.word) for inner in field.all(path)) is expected
    if operator == "=":
        values = ["" if value == "unset" else value for value in words.split()]

        def is_one(field: Field) -> bool:
            filled = [_filled(value, field, field) for value in values]
            return any(inner.word in filled for inner in field.all(path)) is expected

        return is_one
    return lambda field: any(inner if has else inner.value for inner in field.all(path)) is expected
