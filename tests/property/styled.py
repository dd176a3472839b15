"""YAML files as people write them: every indentation, quote, bracket, comment and line end."""

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from mlstack.yaml.write import needs_quotes, write_double_quoted

KEYS = ("a", "b", "c", "on", "some key", "x-y", "012", "é")
WORDS = (
    "x",
    "it's",
    "yes",
    "two words",
    "12",
    "a: b",
    "# no",
    "ü",
    "",
    "multi\nline",
    "end\n",
    "kept\n\n",
    "{{ t }}",
)


@dataclass
class Styled:
    """A file.

    Attributes:
        text: as it stands on the disk.
        value: what it holds.
        comments: every comment in it.
    """

    text: str
    value: Any
    comments: list[str]


class Writer:
    """Writes a value with every choice drawn."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.comments: list[str] = []
        self.in_block = False  # a comment that stands deep enough would be content of a block scalar

    def one_of(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def comment(self) -> str:
        self.comments.append(f"# c{len(self.comments)}.")
        return self.comments[-1]

    def trailing(self) -> str:
        return self.one_of("", "", "", "  ", f" {self.comment()}" if self.one_of(0, 0, 1) else "")

    def between(self, column: int) -> list[str]:
        """Lines without content, before an entry: blank ones, comments at any column."""
        lines = []
        for _ in range(self.one_of(0, 0, 0, 1, 2)):
            deep = 0 if self.in_block else self.one_of(0, column, column + 3)
            lines.append(self.one_of("", " " * deep + self.comment()))
        return lines

    def key(self, key: str) -> str:
        plain = key if not needs_quotes(key) else write_double_quoted(key)
        return str(self.one_of(plain, plain, write_double_quoted(key), f"'{key}'"))

    def flow(self, value: Any) -> str:
        gap = self.one_of("", " ", "  ")
        comma = self.one_of(", ", ",", " , ")
        if isinstance(value, dict):
            items = [f"{self.key(key)}: {self.flow(item)}" for key, item in value.items()]
            return f"{{{gap}{comma.join(items)}{gap}}}"
        if isinstance(value, list):
            return f"[{gap}{comma.join(map(self.flow, value))}{gap}]"
        return self.scalar(value)

    def scalar(self, value: Any) -> str:
        if value is None:
            return str(self.one_of("~", "null"))
        if isinstance(value, bool):
            return str(self.one_of("true", "on") if value else self.one_of("false", "No"))
        if isinstance(value, int):
            return str(self.one_of(str(value), hex(value)))
        forms = [write_double_quoted(value)]
        if not needs_quotes(value):
            forms += [value, value]
        if "\n" not in value:
            forms += ["'" + value.replace("'", "''") + "'"]
        return str(self.one_of(*forms))

    def inline(self, value: Any) -> str | None:
        """Text behind `key:`, or None when the value must stand below."""
        if isinstance(value, dict | list) and value and self.one_of(0, 0, 1):
            return None
        if value is None and self.one_of(0, 1):
            return ""
        return self.one_of(" ", " ", "   ") + self.flow(value)

    def block_scalar(self, value: str, column: int) -> list[str] | None:
        body = value.rstrip("\n")
        ends = len(value) - len(body)
        if not body or body != body.strip() or self.one_of(0, 1):
            return None
        mark = "|" + ("-" if ends == 0 else "" if ends == 1 else "+") + self.trailing()
        indent = " " * (column + self.one_of(1, 2, 4))
        lines = [indent + line if line else "" for line in body.split("\n")] + [""] * (ends - 1)
        blank = [""] * self.one_of(0, 0, 2) if ends < 2 else []
        return [mark, *lines, *blank]

    def mapping(self, value: dict[str, Any], column: int) -> list[str]:
        """Lines of a block mapping; the first without its indentation."""
        lines: list[str] = []
        for key, item in value.items():
            if lines:
                lines += self.between(column)
            head = (" " * column if lines else "") + self.key(key) + self.one_of(":", ":", " :")
            block = self.block_scalar(item, column) if isinstance(item, str) else None
            self.in_block = bool(block)
            if block:
                lines += [f"{head} {block[0]}", *block[1:]]
            elif (text := self.inline(item)) is not None:
                lines.append(head + text + self.trailing())
            else:
                lines.append(head + self.trailing())
                lines += self.between(column + 1)
                deeper = column + self.one_of(1, 2, 2, 4)
                if isinstance(item, list):
                    deeper = self.one_of(column, deeper)
                inner = self.below(item, deeper)
                lines += [" " * deeper + inner[0], *inner[1:]]
        return lines

    def sequence(self, value: list[Any], column: int) -> list[str]:
        lines: list[str] = []
        for item in value:
            if lines:
                lines += self.between(column)
            self.in_block = False
            head = (" " * column if lines else "") + "-"
            text = self.inline(item)
            if text is not None:
                lines.append(head + text + self.trailing())
            else:
                gap = self.one_of(1, 1, 3)
                inner = self.below(item, column + 1 + gap)
                lines += [head + " " * gap + inner[0], *inner[1:]]
        return lines

    def below(self, value: Any, column: int) -> list[str]:
        return self.mapping(value, column) if isinstance(value, dict) else self.sequence(value, column)

    def document(self, value: Any) -> str:
        lines = self.between(0)
        if self.one_of(0, 0, 1):
            lines += ["---" + self.trailing(), *self.between(0)]
        if value:
            flow = self.one_of(0, 0, 0, 0, 1)
            lines += [self.flow(value) + self.trailing()] if flow else self.below(value, 0)
        lines += self.between(0)
        newline = self.one_of("\n", "\n", "\r\n")
        # A block scalar that the file ends in has the line end that the file has.
        ended = self.in_block or self.one_of(True, True, False)
        text = newline.join(lines) + (newline if ended and lines else "")
        return str(self.one_of("", "", "\ufeff")) + text


scalars = st.one_of(st.none(), st.booleans(), st.integers(0, 99), st.sampled_from(WORDS))
keys = st.sampled_from(KEYS)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)),
    max_leaves=8,
)
roots = st.dictionaries(keys, values, max_size=4)


@st.composite
def files(draw: Any) -> Styled:
    """Draw a file in any style."""
    writer = Writer(draw)
    value = draw(roots)
    text = writer.document(value)
    return Styled(text, value or None, [comment for comment in writer.comments if comment in text])
