"""The tokens of Jsonnet: to rewrite what old go-jsonnet took and today's does not, and to read literals.

Rewritten are `import("x")` and `importstr("x")`, which lose their parentheses, and a `+` where a value
begins (`a: +{…}`, `x + +y`), which goes. Every other character stays, so that places in messages are right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<blank>\s+|//[^\n]*|\#[^\n]*|/\*.*?\*/)
  | (?P<block>\|\|\|-?[\ \t\r]*\n.*?\n[\ \t]*\|\|\|)
  | (?P<string>@"(?:[^"]|"")*"|@'(?:[^']|'')*'|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
  | (?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*|\$)
  | (?P<operator>[!:~+\-&|^=<>*/%]+)
  | (?P<open>["'].*)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
# Words behind which a value begins.
_LEADING = frozenset({"assert", "else", "error", "if", "in", "local", "then"})


class Token(NamedTuple):
    """A token, and where it begins in the text."""

    kind: str  # string, block, number, word, operator, open or other
    text: str
    start: int


def tokens(text: str) -> Iterator[Token]:
    """Give the tokens of a text; what follows a quote without its end is one."""
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:  # cannot be: any character is a token
            return
        kind, token = str(match.lastgroup), match.group()
        if kind == "operator":
            token = _operator(token)
        if kind != "blank":
            yield Token(kind, token, position)
        position += len(token)


def _operator(token: str) -> str:
    """Cut a row of symbols where Jsonnet does: before a comment or block, and no `+ - ~ !` behind another."""
    for mark in ("//", "/*", "|||"):
        place = token.find(mark)
        token = token[:place] if place > 0 else token
    while len(token) > 1 and token[-1] in "+-~!":
        token = token[:-1]
    return token


def modern(text: str) -> str:
    """Rewrite what today's Jsonnet does not take any more; a text without it is given back as it is."""
    if "import" not in text and "+" not in text:
        return text
    blanked: list[tuple[int, int]] = []
    before: Token | None = None
    listed = [*tokens(text)]
    for index, token in enumerate(listed):
        after = [follower.text for follower in listed[index + 1 : index + 4]]
        if token.text in ("import", "importstr") and token.kind == "word":
            is_string = len(after) == 3 and listed[index + 2].kind == "string"
            if is_string and after[0] == "(" and after[2] == ")":
                blanked += [(listed[index + 1].start, 1), (listed[index + 3].start, 1)]
        if token.kind == "operator" and token.text == "+" and _begins_value(before):
            blanked.append((token.start, 1))
            continue
        before = token
    if not blanked:
        return text
    characters = list(text)
    for start, length in blanked:
        characters[start : start + length] = " " * length
    return "".join(characters)


def as_printed(text: str) -> str:
    """Give code as ks printed it before it was evaluated: a text block ends with one more line break."""
    if "|||" not in text:
        return text
    parts, position = [], 0
    for token in tokens(text):
        if token.kind == "block":
            parts += [text[position : token.start], "(", token.text, ' + "\\n")']
            position = token.start + len(token.text)
    return "".join([*parts, text[position:]])


def _begins_value(before: Token | None) -> bool:
    """Tell whether what follows a token is the beginning of a value."""
    if before is None or before.kind == "operator":
        return True
    return before.text in _LEADING if before.kind == "word" else before.text in ("(", "[", "{", ",", ";")


# --- literals, which need no evaluation ---


class NotLiteralError(Exception):
    """Raised when a text is more than a literal: it needs to be evaluated."""


def literal(text: str) -> Any:
    """Give the value of a text that is a literal: objects, lists, texts, numbers, true, false and null.

    Raises:
        NotLiteralError: it is more than that.
    """
    reader = _LiteralReader([*tokens(text)])
    value = reader.value()
    if reader.position != len(reader.tokens):
        raise NotLiteralError
    return value


_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


def text_of(token: Token) -> str:
    """Give what a string says; raises NotLiteralError for a block."""
    if token.kind == "block":
        raise NotLiteralError  # its indentation is Jsonnet's to take away
    if token.text[0] == "@":
        return token.text[2:-1].replace(token.text[1] * 2, token.text[1])
    if token.text[0] == "'":
        inner = _ESCAPE.sub(lambda m: "'" if m[1] == "'" else m[0], token.text[1:-1])
        text = '"' + re.sub(r'(?<!\\)((?:\\\\)*)"', r'\1\\"', inner) + '"'
    else:
        text = token.text.replace("\\'", "'")
    try:
        return str(json.loads(text, strict=False))
    except ValueError as error:
        raise NotLiteralError from error


class _LiteralReader:
    def __init__(self, listed: list[Token]) -> None:
        self.tokens = listed
        self.position = 0

    def value(self) -> Any:
        token = self._next()
        if token.text == "{":
            return self._object()
        if token.text == "[":
            return self._list()
        if token.kind in ("string", "block"):
            return text_of(token)
        if token.kind == "word" and token.text in ("true", "false", "null"):
            return {"true": True, "false": False, "null": None}[token.text]
        sign = ""
        if token.text == "-":
            sign, token = "-", self._next()
        if token.kind != "number":
            raise NotLiteralError
        return json.loads(sign + token.text)

    def _object(self) -> dict[str, Any]:
        result: dict[str, Any] = {}
        while not self._takes("}"):
            token = self._next()
            key = text_of(token) if token.kind == "string" else token.text
            if token.kind not in ("string", "word") or not self._takes(":", "+:"):
                raise NotLiteralError
            result[key] = self.value()
            if not self._takes(","):
                if not self._takes("}"):
                    raise NotLiteralError
                break
        return result

    def _list(self) -> list[Any]:
        result: list[Any] = []
        while not self._takes("]"):
            result.append(self.value())
            if not self._takes(","):
                if not self._takes("]"):
                    raise NotLiteralError
                break
        return result

    def _next(self) -> Token:
        if self.position >= len(self.tokens):
            raise NotLiteralError
        self.position += 1
        return self.tokens[self.position - 1]

    def _takes(self, *texts: str) -> bool:
        if self.position < len(self.tokens) and self.tokens[self.position].text in texts:
            self.position += 1
            return True
        return False
