"""Read CEL text into nested tuples: `self.a` is `("select", ("name", "self"), "a")`."""

from __future__ import annotations

import re
from typing import Any

Node = Any

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<string>[rR]?(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'))
    |(?P<number>\d+\.\d+|\d+)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<mark>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]])
    )""",
    re.VERBOSE,
)
_LITERALS = {"true": True, "false": False, "null": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_MACROS = frozenset({"all", "exists", "exists_one", "filter", "map"})
_LEVELS = (("==", "!=", "<=", ">=", "<", ">", "in"), ("+", "-"), ("*", "/", "%"))
_RESERVED_FIELD = re.compile(r"__(\w+?)__")


class UnsupportedError(Exception):
    """Raised when an expression uses what this reader does not know."""


def parse(expression: str) -> Node:
    """Read an expression.

    Raises:
        UnsupportedError: it uses what is not known here, or is no CEL.
    """
    return _Parser(_tokens(expression)).whole()


def _tokens(text: str) -> list[tuple[str, str]]:
    found, position, text = [], 0, text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match or match.lastgroup is None:
            raise UnsupportedError(text[position:])
        found.append((match.lastgroup, match[match.lastgroup]))
        position = match.end()
    return [*found, ("end", "")]


def _unquoted(text: str) -> str:
    if text[0] in "rR":
        return text[2:-1]
    if re.search(r"\\[^\\\"'ntr]", text):
        raise UnsupportedError(text)
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text[1:-1])


class _Parser:
    """Recursive descent, one method a level of precedence."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._position = 0

    def whole(self) -> Node:
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

    def _ternary(self) -> Node:
        condition = self._either()
        if self._accept("?") is None:
            return condition
        yes = self._ternary()
        self._expect(":")
        return ("if", condition, yes, self._ternary())

    def _either(self) -> Node:
        node = self._both()
        while self._accept("||"):
            node = ("or", node, self._both())
        return node

    def _both(self) -> Node:
        node = self._binary(0)
        while self._accept("&&"):
            node = ("and", node, self._binary(0))
        return node

    def _binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        node = self._binary(level + 1)
        while mark := self._accept(*_LEVELS[level]):
            node = ("call", mark, [node, self._binary(level + 1)])
        return node

    def _unary(self) -> Node:
        mark = self._accept("!", "-")
        return ("call", mark, [self._unary()]) if mark else self._member(self._primary())

    def _member(self, node: Node) -> Node:
        while mark := self._accept(".", "["):
            if mark == "[":
                node = ("call", "[]", [node, self._ternary()])
                self._expect("]")
                continue
            name = self._name()
            node = self._method(name, node) if self._accept("(") else ("select", node, _field(name))
        return node

    def _method(self, name: str, target: Node) -> Node:
        if name not in _MACROS:
            return ("call", name, [target, *self._arguments(")")])
        variable = self._name()
        self._expect(",")
        body = self._ternary()
        self._expect(")")
        return ("macro", name, target, variable, body)

    def _arguments(self, end: str) -> list[Node]:
        found: list[Node] = []
        while not self._accept(end):
            if found:
                self._expect(",")
            found.append(self._ternary())
        return found

    def _primary(self) -> Node:
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

    def _named(self, name: str) -> Node:
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
