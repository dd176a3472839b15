"""Where everything of a YAML text stands: the tree that edits by position work on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from mlstack.files.yamlread import Mark, read_marks
from mlstack.model.scalars import resolve_key

BREAK = re.compile(r"\r\n|\n|\r")
_BLOCK_HEADER = re.compile(r"[|>](?P<signs>[-+0-9]*)[ \t]*(?P<comment>#[^\r\n]*)?")
_EMPTY_LINE = re.compile(r"(?P<indent>[ \t]*)(?P<comment>#[^\r\n]*)?(?:\r\n|\n|\r|\Z)")
_TO_COLON = re.compile(r"(?:[ \t]*(?:#[^\r\n]*)?[\r\n])*[ \t]*:")


@dataclass
class Node:
    """One value in a text.

    Attributes:
        kind: `scalar`, `mapping`, `sequence` or `alias`.
        start: index of the first character, of its anchor or tag if it has one.
        end: index behind the last character; blank lines behind a block scalar belong to it only where they
            are content.
        style: of a scalar: empty, `'`, `"`, `|` or `>`; of a collection: `flow` or empty.
        tagged: whether an anchor or a tag stands before it.
        entries: of a mapping, in order.
        items: of a sequence, in order.
    """

    kind: str
    start: int
    end: int
    style: str
    tagged: bool
    entries: list[Entry] = field(default_factory=list)
    items: list[Node] = field(default_factory=list)

    @property
    def is_flow(self) -> bool:
        """Tell whether it is a collection in brackets."""
        return self.style == "flow"

    @property
    def is_block(self) -> bool:
        """Tell whether it is a collection without brackets."""
        return self.kind in ("mapping", "sequence") and not self.is_flow

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing stands there at all."""
        return self.kind == "scalar" and self.start == self.end

    def entry(self, name: str) -> Entry | None:
        """Give the entry of a key."""
        return next((entry for entry in self.entries if entry.name == name), None)


@dataclass
class Entry:
    """One key of a mapping and its value.

    Attributes:
        name: the key, as it is read.
        start: index of the key, or of the `?` before it.
        key: the key's node.
        colon: index behind the colon; of the key's end where there is none.
        value: the value's node.
    """

    name: str
    start: int
    key: Node
    colon: int
    value: Node

    @property
    def end(self) -> int:
        """Give the index behind the value, or behind the colon of an empty one."""
        return max(self.colon, self.value.end)


class Lines:
    """The lines of a text, by index into it."""

    def __init__(self, text: str) -> None:
        self.text = text
        found = BREAK.search(text)
        self.newline = found[0] if found else "\n"

    def start(self, index: int) -> int:
        """Give the index where the line of an index starts."""
        before = max(self.text.rfind("\n", 0, index), self.text.rfind("\r", 0, index)) + 1
        return 1 if before == 0 and self.text.startswith("\ufeff") else before

    def after(self, end: int) -> int:
        """Give the index where the line after something starts, or the end of the text."""
        if end and self.text[end - 1] in "\r\n":
            return end
        found = BREAK.search(self.text, end)
        return found.end() if found else len(self.text)

    def column(self, index: int) -> int:
        """Give the column of an index, from 0."""
        return index - self.start(index)

    def starts_its_line(self, index: int) -> bool:
        """Tell whether only blanks stand before something on its line."""
        return not self.text[self.start(index) : index].strip(" \t")

    def after_comments(self, index: int, column: int) -> int:
        """Skip comment lines that stand deeper than a column, with the blank lines between them."""
        last = index
        while index < len(self.text) and (line := _EMPTY_LINE.match(self.text, index)):
            if line["comment"] and len(line["indent"]) <= column:
                break
            index = line.end()
            last = index if line["comment"] else last
        return last


def read_nodes(text: str, *, source: str) -> list[Node | None]:
    """Give the root of every document of a text; None for a document without any.

    Raises:
        YamlError: the text is broken YAML.
    """
    marks = iter(read_marks(text, source=source))
    return [_node(next(marks), marks, text) for mark in marks if mark.kind == "document"]


def header_comment(text: str, node: Node) -> str:
    """Give the comment behind the `|` or `>` of a block scalar."""
    found = _BLOCK_HEADER.search(text, node.start)
    return (found["comment"] or "") if found else ""


def _node(mark: Mark, marks: Iterator[Mark], text: str) -> Node:
    node = Node(mark.kind, mark.start, mark.end, mark.style, mark.tagged)
    if mark.kind == "scalar" and mark.style in ("|", ">"):
        node.end = _block_end(text, node)
    elif mark.kind == "mapping":
        _fill_mapping(node, marks, text)
    elif mark.kind == "sequence":
        for inner in marks:
            if inner.kind == "end":
                node.end = inner.end if node.is_flow else max(item.end for item in node.items)
                break
            node.items.append(_node(inner, marks, text))
    return node


def _fill_mapping(node: Node, marks: Iterator[Mark], text: str) -> None:
    for inner in marks:
        if inner.kind == "end":
            node.end = inner.end if node.is_flow else max(entry.end for entry in node.entries)
            break
        key = _node(inner, marks, text)
        value = _node(next(marks), marks, text)
        colon = _TO_COLON.match(text, key.end)
        if value.is_empty and not (colon and colon.end() == value.start):
            value.start = value.end = key.end  # there is no colon, libyaml puts the value at what follows
            colon = None
        node.entries.append(
            Entry(_name(inner), _entry_start(text, key), key, colon.end() if colon else key.end, value)
        )
    if not node.is_flow and node.entries:
        node.start = min(node.start, node.entries[0].start)


def _name(mark: Mark) -> str:
    if mark.style or mark.tagged or mark.kind != "scalar":
        return mark.value
    return resolve_key(mark.value)


def _entry_start(text: str, key: Node) -> int:
    index = key.start
    while index and text[index - 1] in " \t":
        index -= 1
    return index - 1 if index and index < key.start and text[index - 1] == "?" else key.start


def _block_end(text: str, node: Node) -> int:
    header = _BLOCK_HEADER.search(text, node.start)
    if header and "+" in header["signs"]:
        return node.end
    return node.start + len(text[node.start : node.end].rstrip(" \t\r\n"))
