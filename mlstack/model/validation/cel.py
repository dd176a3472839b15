"""Evaluate the rules of CustomResourceDefinitions: as much of CEL as rules on objects use.

What the reader does not know raises `UnsupportedError`: such a rule is left to the API server. As in the CEL
specification, `&&`, `||`, `all` and `exists` absorb an error of one part if another decides.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from mlstack.model.validation import formats
from mlstack.model.validation.celparse import Node, UnsupportedError, parse
from mlstack.model.validation.patterns import compiled

Env = Mapping[str, Any]


class EvaluationError(Exception):
    """Raised when an expression has no value: a field is missing, or types do not fit."""


def evaluate(expression: str, env: Env) -> Any:
    """Give the value of an expression.

    Args:
        expression: CEL text.
        env: the variables, as `self`.

    Raises:
        UnsupportedError: the expression uses what is not known here.
        EvaluationError: it has no value for these variables.
    """
    return _value(_parsed(expression), env)


@cache
def _parsed(expression: str) -> Node:
    return parse(expression)


def _value(node: Node, env: Env) -> Any:
    match node:
        case ("literal", value):
            return value
        case ("name", name):
            return _named(name, env)
        case ("list", items):
            return [_value(item, env) for item in items]
        case ("select", target, field):
            return _indexed(_value(target, env), field)
        case ("has", target, field):
            found = _value(target, env)
            return isinstance(found, Mapping) and found.get(field) is not None
        case ("if", condition, yes, no):
            return _value(yes if _boolean(_value(condition, env)) else no, env)
        case ("and" | "or", left, right):
            return _decided((left, right), lambda part: _value(part, env), by=node[0] == "or")
        case ("macro", name, target, variable, body):
            items = list(_value(target, env))
            return _macro(name, items, lambda item: _value(body, {**env, variable: item}))
        case ("call", name, arguments):
            return _called(name, [_value(argument, env) for argument in arguments])
    raise UnsupportedError(str(node))


def _named(name: str, env: Env) -> Any:
    if name not in env and name not in _TYPES:
        raise UnsupportedError(name)
    return env[name] if name in env else _TYPES[name]


def _decided(parts: Any, holds: Callable[[Any], Any], *, by: bool) -> bool:
    """Give `by` if one part is so, whatever the others; an error counts only if no part decides."""
    error: EvaluationError | None = None
    for part in parts:
        try:
            if _boolean(holds(part)) is by:
                return by
        except EvaluationError as caught:
            error = caught
    if error is not None:
        raise error
    return not by


def _macro(name: str, items: list[Any], body: Callable[[Any], Any]) -> Any:
    if name in ("all", "exists"):
        return _decided(items, body, by=name == "exists")
    if name == "exists_one":
        return sum(_boolean(body(item)) for item in items) == 1
    if name == "filter":
        return [item for item in items if _boolean(body(item))]
    return [body(item) for item in items]


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError(f"not true or false: {value!r}")
    return value


def _indexed(target: Any, key: Any) -> Any:
    if isinstance(target, Mapping) and target.get(key) is not None:
        return target[key]
    if isinstance(target, list) and isinstance(key, int) and 0 <= key < len(target):
        return target[key]
    raise EvaluationError(f"no such key: {key}")


def _called(name: str, arguments: list[Any]) -> Any:
    function = _FUNCTIONS.get((name, len(arguments)))
    if function is None:
        raise UnsupportedError(name)
    try:
        return function(*arguments)
    except (TypeError, ValueError, ZeroDivisionError, ArithmeticError) as error:
        raise EvaluationError(f"{name}: {error}") from error


def _equal(left: Any, right: Any) -> bool:
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _in(item: Any, container: Any) -> bool:
    return any(_equal(item, one) for one in container)


def _divided(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    return left / right


def _matches(text: str, pattern: str) -> bool:
    found = compiled(pattern)
    if found is None:
        raise UnsupportedError(pattern)
    return found.search(text) is not None


def _quantity(text: str) -> Any:
    found = formats.quantity(text)
    if found is None:
        raise ValueError(f"not a quantity: {text}")
    return found


_TYPES: Mapping[str, type] = {"bool": bool, "double": float, "int": int, "string": str}

_FUNCTIONS: Mapping[tuple[str, int], Callable[..., Any]] = {
    ("==", 2): _equal,
    ("!=", 2): lambda left, right: not _equal(left, right),
    ("<", 2): operator.lt,
    ("<=", 2): operator.le,
    (">", 2): operator.gt,
    (">=", 2): operator.ge,
    ("in", 2): _in,
    ("+", 2): operator.add,
    ("-", 2): operator.sub,
    ("*", 2): operator.mul,
    ("/", 2): _divided,
    ("%", 2): lambda left, right: left - right * _divided(left, right),
    ("!", 1): lambda value: not _boolean(value),
    ("-", 1): operator.neg,
    ("[]", 2): _indexed,
    ("size", 1): len,
    ("int", 1): int,
    ("double", 1): float,
    ("type", 1): type,
    ("string", 1): str,
    ("matches", 2): _matches,
    ("startsWith", 2): str.startswith,
    ("endsWith", 2): str.endswith,
    ("contains", 2): operator.contains,
    ("lowerAscii", 1): str.lower,
    ("split", 2): str.split,
    ("quantity", 1): _quantity,
    ("isQuantity", 1): lambda text: formats.quantity(text) is not None,
    ("isLessThan", 2): operator.lt,
    ("isGreaterThan", 2): operator.gt,
    ("compareTo", 2): lambda left, right: (left > right) - (left < right),
}
