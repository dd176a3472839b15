"""Evaluate CEL, of CustomResourceDefinitions and of an app's policies: as much as rules on objects use.

What is not known here raises `UnsupportedError`: such a rule is left to the API server; `check` finds it in a
policy before anything is evaluated. As in the CEL
specification, `&&`, `||`, `all` and `exists` absorb an error of one part if another decides. Rules come with
definitions of others, and the server bounds what they cost: so do `STEPS`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import cache
from typing import Any

from mlstack.app.schema import matches
from mlstack.names import did_you_mean
from mlstack.objects.resources import quantity
from mlstack.yaml.write import same

# --- read text into nested tuples: `self.a` is `("select", ("name", "self"), "a")` ---

SyntaxNode = Any

_TOKEN = re.compile(
    r'''\s*(?:
    (?P<string>[rR]?(?:"""(?s:.*?)"""|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'))
    |(?P<number>\d+\.\d+|\d+)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<mark>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]])
    )''',
    re.VERBOSE,
)
_LITERALS = {"true": True, "false": False, "null": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_MACROS = frozenset({"all", "exists", "exists_one", "filter", "map"})
_LEVELS = (("||",), ("&&",), ("==", "!=", "<=", ">=", "<", ">", "in"), ("+", "-"), ("*", "/", "%"))
_RESERVED_FIELD = re.compile(r"__(\w+?)__")


class UnsupportedError(Exception):
    """Raised when an expression uses what this reader does not know."""


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, position, text = [], 0, text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match or match.lastgroup is None:
            raise UnsupportedError(text[position:])
        tokens.append((match.lastgroup, match[match.lastgroup]))
        position = match.end()
    return [*tokens, ("end", "")]


def _unquoted(text: str) -> str:
    is_raw, text = text[0] in "rR", text.lstrip("rR")
    inner = text[3:-3] if text.startswith('"""') else text[1:-1]
    if is_raw:
        return inner
    if re.search(r"\\[^\\\"'ntr]", text):
        raise UnsupportedError(text)
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), inner)


class _Parser:
    """Recursive descent, one method a level of precedence."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._position = 0

    def parse(self) -> SyntaxNode:
        """Read the whole expression."""
        node = self._ternary()
        if self._tokens[self._position][0] != "end":
            raise UnsupportedError(self._tokens[self._position][1])
        return node

    def _take(self) -> tuple[str, str]:
        self._position += 1
        return self._tokens[self._position - 1]

    def _accept(self, *texts: str) -> str | None:
        kind, text = self._tokens[self._position]
        return self._take()[1] if kind in ("mark", "name") and text in texts else None

    def _expect(self, text: str) -> None:
        if self._accept(text) is None:
            raise UnsupportedError(f"expected {text}, found {self._tokens[self._position][1]}")

    def _name(self) -> str:
        kind, text = self._take()
        if kind != "name":
            raise UnsupportedError(text)
        return text

    def _ternary(self) -> SyntaxNode:
        condition = self._binary(0)
        if self._accept("?") is None:
            return condition
        yes = self._ternary()
        self._expect(":")
        return ("if", condition, yes, self._ternary())

    def _binary(self, level: int) -> SyntaxNode:
        if level == len(_LEVELS):
            return self._unary()
        node = self._binary(level + 1)
        while mark := self._accept(*_LEVELS[level]):
            node = ("call", mark, [node, self._binary(level + 1)])
        return node

    def _unary(self) -> SyntaxNode:
        mark = self._accept("!", "-")
        return ("call", mark, [self._unary()]) if mark else self._member(self._primary())

    def _member(self, node: SyntaxNode) -> SyntaxNode:
        while mark := self._accept(".", "["):
            if mark == "[":
                node = ("call", "[]", [node, self._ternary()])
                self._expect("]")
                continue
            name = self._name()
            node = self._method(name, node) if self._accept("(") else ("select", node, _field(name))
        return node

    def _method(self, name: str, target: SyntaxNode) -> SyntaxNode:
        if name not in _MACROS:
            return ("call", name, [target, *self._arguments(")")])
        variable = self._name()
        self._expect(",")
        body = self._ternary()
        self._expect(")")
        return ("macro", name, target, variable, body)

    def _arguments(self, end: str) -> list[SyntaxNode]:
        arguments: list[SyntaxNode] = []
        while not self._accept(end):
            if arguments:
                self._expect(",")
            arguments.append(self._ternary())
        return arguments

    def _primary(self) -> SyntaxNode:
        kind, text = self._take()
        if kind == "number":
            return ("literal", float(text) if "." in text else int(text))
        if kind == "string":
            return ("literal", _unquoted(text))
        if kind == "name":
            return self._named(text)
        if text == "[":
            return ("list", self._arguments("]"))
        if text != "(":
            raise UnsupportedError(text)
        node = self._ternary()
        self._expect(")")
        return node

    def _named(self, name: str) -> SyntaxNode:
        if name in _LITERALS:
            return ("literal", _LITERALS[name])
        if not self._accept("("):
            return ("name", name)
        arguments = self._arguments(")")
        if name != "has":
            return ("call", name, arguments)
        if len(arguments) != 1 or arguments[0][0] != "select":
            raise UnsupportedError("has")
        return ("has", *arguments[0][1:])


def _field(name: str) -> str:
    """Undo the escaping of field names that are words of CEL: `__namespace__` is `namespace`."""
    escaped = {"dot": ".", "dash": "-", "slash": "/", "underscores": "__"}
    return _RESERVED_FIELD.sub(lambda match: escaped.get(match[1], match[1]), name)


# --- evaluate ---

Env = Mapping[str, Any]
STEPS = 200_000
"""Steps that all rules on one object may take; what takes more is left to the server."""
_STEPS_LEFT, _IS_PLAIN = " ", "="  # no names of CEL


class EvaluationError(Exception):
    """Raised when an expression has no value: a field is missing, or types do not fit."""


class Opaque:
    """A value that is not known here, as a time or a null that is one: what asks for it is the server's."""


def evaluate(expression: str, env: Env, *, steps: list[int] | None = None, is_plain: bool = False) -> Any:
    """Give the value of an expression.

    Args:
        expression: CEL text.
        env: the variables, as `self`.
        steps: how many are left, in its only item; `STEPS` unless given.
        is_plain: whether lists are compared and joined as they stand: no schema makes sets or maps of them.

    Raises:
        UnsupportedError: the expression uses what is not known here.
        EvaluationError: it has no value for these variables.
    """
    try:
        return _value(_parsed(expression), {**env, _STEPS_LEFT: steps or [STEPS], _IS_PLAIN: is_plain})
    except RecursionError:
        raise UnsupportedError("nested too deeply") from None


def check(expression: str, names: Iterable[str]) -> None:
    """Check that an expression uses only what is known here, and the variables `names`.

    Raises:
        UnsupportedError: it does not; the message says what.
    """
    try:
        _check(_parsed(expression), frozenset(names))
    except RecursionError:
        raise UnsupportedError("it is nested too deeply") from None


def _check(node: SyntaxNode, names: frozenset[str]) -> None:
    match node:
        case ("name", name) if name not in names and name not in _TYPES:
            meant = did_you_mean(name, names, f"there are {', '.join(sorted(names))}")
            raise UnsupportedError(f"there is no variable `{name}`: {meant}")
        case ("list", items):
            inner = items
        case ("select" | "has", target, _):
            inner = [target]
        case ("if", *parts):
            inner = parts
        case ("macro", _, target, variable, body):
            _check(body, names | {variable})
            inner = [target]
        case ("call", name, inner):
            is_known = name in ("&&", "||") or (name, len(inner)) in _FUNCTIONS
            if not is_known:
                raise UnsupportedError(f"the function `{name}` is not known with {len(inner)} arguments")
            if name == "matches" and inner[1][0] == "literal" and matches(str(inner[1][1]), "") is None:
                raise UnsupportedError(f"`{inner[1][1]}` is no pattern that RE2 can read")
        case _:
            return
    for part in inner:
        _check(part, names)


@cache
def _parsed(expression: str) -> SyntaxNode:
    return _Parser(_tokens(expression)).parse()


def _value(node: SyntaxNode, env: Env) -> Any:
    left = env[_STEPS_LEFT]
    left[0] -= 1
    if left[0] < 0:
        raise UnsupportedError("too many steps")
    value = _evaluated(node, env)
    if isinstance(value, Opaque):
        raise UnsupportedError("a value of another type")
    return value


def _evaluated(node: SyntaxNode, env: Env) -> Any:
    match node:
        case ("literal", value):
            return value
        case ("name", name) if name in env or name in _TYPES:
            return env[name] if name in env else _TYPES[name]
        case ("list", items):
            return [_value(item, env) for item in items]
        case ("select", target, field):
            return _indexed(_value(target, env), field)
        case ("has", target, field):
            container = _value(target, env)
            value = container.get(field) if isinstance(container, Mapping) else None
            if isinstance(value, Opaque):
                raise UnsupportedError("has")
            return value is not None
        case ("if", condition, yes, no):
            return _value(yes if _boolean(_value(condition, env)) else no, env)
        case ("call", "&&" | "||", parts):
            return _decided(((part, env) for part in parts), by=node[1] == "||")
        case ("macro", name, target, variable, body):
            container = _value(target, env)
            if not isinstance(container, list | Mapping):
                raise UnsupportedError("a macro on neither list nor map")
            return _macro(name, [(item, (body, {**env, variable: item})) for item in container])
        case ("call", name, arguments):
            return _called(name, [_value(argument, env) for argument in arguments], is_plain=env[_IS_PLAIN])
    raise UnsupportedError(str(node))


def _decided(parts: Iterable[tuple[SyntaxNode, Env]], *, by: bool) -> bool:
    """Give `by` if one part is so, whatever the others; an error counts only if no part decides."""
    error: EvaluationError | None = None
    for node, env in parts:
        try:
            if _boolean(_value(node, env)) is by:
                return by
        except EvaluationError as caught:
            error = caught
    if error is not None:
        raise error
    return not by


def _macro(name: str, items: list[tuple[Any, tuple[SyntaxNode, Env]]]) -> Any:
    if name in ("all", "exists"):
        return _decided((part for _, part in items), by=name == "exists")
    if name == "exists_one":
        return sum(_boolean(_value(*part)) for _, part in items) == 1
    if name == "filter":
        return [item for item, part in items if _boolean(_value(*part))]
    return [_value(*part) for _, part in items]


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise EvaluationError(f"not true or false: {value!r}")
    return value


def _indexed(target: Any, key: Any) -> Any:
    if isinstance(target, Mapping) and isinstance(key, str) and target.get(key) is not None:
        return target[key]
    if isinstance(target, list) and isinstance(key, int) and 0 <= key < len(target):
        return target[key]
    raise EvaluationError(f"no such key: {key}")


def _called(name: str, arguments: list[Any], *, is_plain: bool) -> Any:
    plain = _PLAIN_FUNCTIONS.get(name) if is_plain and len(arguments) == 2 else None
    function = plain or _FUNCTIONS.get((name, len(arguments)))
    if function is None:
        raise UnsupportedError(name)
    try:
        return function(*arguments)
    except (TypeError, AttributeError) as error:
        if name in _COMPARING:
            raise EvaluationError(f"{name}: {error}") from error
        raise UnsupportedError(name) from error  # the server may know more forms of it
    except (ValueError, ArithmeticError) as error:
        raise EvaluationError(f"{name}: {error}") from error


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, list | Mapping) and isinstance(right, list | Mapping) and left != right:
        # Lists that are sets or maps have no order, and their parts may be opaque.
        raise UnsupportedError("==")
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _in(item: Any, container: Any) -> bool:
    return any(_equal(item, member) for member in container)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int):
        raise UnsupportedError("string")
    return str(value)


def _integer(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, str) and not _INTEGER.fullmatch(value)):
        raise UnsupportedError("int")
    return int(value)


def _added(left: Any, right: Any) -> Any:
    if isinstance(left, list | bool):
        raise UnsupportedError("+")
    return left + right


def _divided(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    return left / right


def _matches(text: str, pattern: str) -> bool:
    is_match = matches(pattern, text)
    if is_match is None:
        raise UnsupportedError(pattern)
    return is_match


def _quantity(text: str) -> Any:
    value = quantity(text)
    if value is None:
        raise ValueError(f"not a quantity: {text}")
    return value


_UNITS = {"ns": -9, "us": -6, "µs": -6, "μs": -6, "ms": -3}
_DURATION = r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)"


def _duration(text: str) -> Decimal:
    if not re.fullmatch(rf"[+-]?((?:{_DURATION})+|0)", text, re.ASCII):
        raise ValueError(f"not a duration: {text}")
    seconds = Decimal(0)
    for number, unit in re.findall(_DURATION, text, re.ASCII):
        factor = {"s": 1, "m": 60, "h": 3600}.get(unit)
        seconds += Decimal(number) * factor if factor else Decimal(number).scaleb(_UNITS[unit])
    return -seconds if text.startswith("-") else seconds


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if not 0 <= start <= end <= len(text):
        raise ValueError(f"no such part of a text: {start} to {end}")
    return text[start:end]


_COMPARING = frozenset({"<", "<=", ">", ">="})
_INTEGER = re.compile(r"[+-]?[0-9]+")
_TYPES: Mapping[str, type] = {"bool": bool, "double": float, "int": int, "string": str}

_PLAIN_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "==": same,
    "!=": lambda left, right: not same(left, right),
    "in": lambda item, container: any(same(item, member) for member in container),
    "+": lambda left, right: left + right if isinstance(left, list) else _added(left, right),
}

_FUNCTIONS: Mapping[tuple[str, int], Callable[..., Any]] = {
    ("==", 2): _equal,
    ("!=", 2): lambda left, right: not _equal(left, right),
    ("<", 2): operator.lt,
    ("<=", 2): operator.le,
    (">", 2): operator.gt,
    (">=", 2): operator.ge,
    ("in", 2): _in,
    ("+", 2): _added,
    ("-", 2): operator.sub,
    ("*", 2): operator.mul,
    ("/", 2): _divided,
    ("%", 2): lambda left, right: left - right * _divided(left, right),
    ("!", 1): lambda value: not _boolean(value),
    ("-", 1): operator.neg,
    ("[]", 2): _indexed,
    ("size", 1): len,
    ("int", 1): _integer,
    ("double", 1): float,
    ("type", 1): type,
    ("string", 1): _text,
    ("matches", 2): _matches,
    ("startsWith", 2): str.startswith,
    ("endsWith", 2): str.endswith,
    ("contains", 2): operator.contains,
    ("lowerAscii", 1): lambda text: "".join(c.lower() if c.isascii() else c for c in text),
    ("split", 2): lambda text, separator: text.split(separator) if separator else list(text),
    ("substring", 2): _substring,
    ("substring", 3): _substring,
    ("duration", 1): _duration,
    ("quantity", 1): _quantity,
    ("isQuantity", 1): lambda text: quantity(text) is not None,
    ("isInteger", 1): lambda value: value % 1 == 0,
    ("isLessThan", 2): operator.lt,
    ("isGreaterThan", 2): operator.gt,
    ("compareTo", 2): lambda left, right: (left > right) - (left < right),
}
