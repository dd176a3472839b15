"""Change one value of a person's YAML file in place: every other byte stays as it is.

The value is replaced by its position in the text, so comments, order, quotes, line ends, indentation and
brackets of the rest cannot change, whatever style the file is written in (a library that loads and writes
the file again brings its own style with it). Afterwards the result is read: if anything but the edited value
differs, the edit is refused.
"""

from __future__ import annotations

import json
import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from operator import itemgetter
from typing import Any, NamedTuple

from mlstack.dataclass import dataclass
from mlstack.errors import ConfigError, YamlError
from mlstack.yaml import write
from mlstack.yaml.read import KeyPath, Mark, read_documents, read_marks
from mlstack.yaml.write import resolve_key, same, write_double_quoted, write_string

_BY_HAND = "edit the file by hand"
_NOTHING = object()


def set_value(text: str, path: KeyPath, value: Any, *, source: str) -> str:
    """Set one value; missing parents are made, lists are replaced whole.

    The path has keys of mappings and indices of lists from the root; it is not empty.

    Raises:
        YamlError: the text is broken or holds several documents.
        ConfigError: a parent is no mapping, or the edit would change something else.
        ValueError: the value cannot be written.
    """
    return set_values(text, {tuple(path): value}, source=source)


def set_values(text: str, values: Mapping[tuple[str | int, ...], Any], *, source: str) -> str:
    """Set values by path, as `set_value` does: at one reading where they stand apart, else in turn."""
    expected, edit = _read(text, source), _Edit(text, source)
    places: dict[KeyPath, dict[KeyPath, Any]] = {}
    for path, value in values.items():
        if not same(_value_at(expected, path), value):
            expected = _with(expected, path, value, text, source)
            there = len(edit.steps(path))  # what is missing is made once for all that goes into it
            places.setdefault(path[: there + 1], {})[path] = value
    alternatives = [edit.alternatives(place, own) for place, own in places.items()]
    try:
        texts = (_together(text, versions) for versions in zip(*alternatives, strict=False))
        return _checked(texts, expected, next(iter(values)), source) if places else text
    except ConfigError:
        if len(values) == 1:
            raise
    for path, value in values.items():
        text = set_value(text, path, value, source=source)
    return text


def _together(text: str, versions: Sequence[str]) -> str:
    """Give a text with the changes of several versions of it, each at another place."""
    whole, end = "", 0
    for start, after, new in sorted((_change(text, version) for version in versions), key=itemgetter(0)):
        whole += text[end:start] + new
        end = after
    return whole + text[end:]


def _change(text: str, version: str) -> tuple[int, int, str]:
    """Give where a version begins and ends to differ from a text, and what it has there."""
    # Where two texts differ at some length they do at every greater one, so that halving finds the first.
    lengths = range(1, min(len(text), len(version)) + 1)
    start = bisect(lengths, False, key=lambda n: text[:n] != version[:n])
    behind = bisect(lengths[: len(lengths) - start], False, key=lambda n: text[-n:] != version[-n:])
    return start, len(text) - behind, version[start : len(version) - behind]


def unset_value(text: str, path: KeyPath, *, source: str) -> str:
    """Remove one value with its key, and the parents that it leaves empty; absent ones change nothing.

    The path has keys of mappings from the root; it is not empty.
    """
    before = _read(text, source)
    if _value_at(before, path) is _NOTHING:
        return text
    after, expected = _Edit(text, source).without(path, before)
    return _checked([after], expected, path, source)


def _checked(versions: Iterable[str], expected: Any, path: KeyPath, source: str) -> str:
    """Give the first version that reads as expected."""
    for version in versions:
        try:
            if same(_read(version, source), expected):
                return version
        except YamlError:
            continue
    message = f"`{'.'.join(map(str, path))}` cannot be changed without changing something else"
    raise ConfigError(message, where=source, hint=_BY_HAND)


def _read(text: str, source: str) -> Any:
    documents = read_documents(text, source=source)
    if len(documents) > 1:
        message = f"the file holds {len(documents)} documents, expected one"
        raise YamlError(message, where=f"{source}:{documents[1].line}")
    return documents[0].value if documents else None


def _value_at(value: Any, path: KeyPath) -> Any:
    """Give the part of a plain value that a path leads to, `_NOTHING` where nothing stands."""
    for step in path:
        is_list = isinstance(value, list)
        if not (is_list or isinstance(value, dict)) or step not in (range(len(value)) if is_list else value):
            return _NOTHING
        value = value[step]
    return value


def _with(before: Any, path: KeyPath, value: Any, text: str, source: str) -> Any:
    """Give what the file must read after a value was set."""
    if not path:
        raise ValueError("the path of a value is empty")

    def changed(part: Any, depth: int) -> Any:
        if depth == len(path):
            return value
        step = path[depth]
        if isinstance(step, str) and (part is None or isinstance(part, dict)):
            return {**(part or {}), step: changed((part or {}).get(step), depth + 1)}
        if isinstance(step, int) and isinstance(part, list) and 0 <= step < len(part):
            return [*part[:step], changed(part[step], depth + 1), *part[step + 1 :]]
        name = ".".join(map(str, path[:depth])) or "the file"
        documents = read_documents(text, source=source, with_positions=True)
        where = f"{source}:{documents[0].position(path[:depth]).line}" if documents else source
        raise ConfigError(f"`{name}` holds nothing to set `{step}` in", where=where, hint=_BY_HAND)

    return changed(before, 0)


# --- new texts of a file with one value changed, made by position --------------------------------------
# Setting a key that was absent and unsetting it again gives the file back byte for byte. Three marks in the
# text make that possible, since missing, empty and `{}` parents would look the same once they hold a key:
#
# - a parent that we made in block style goes with its last key,
# - one that stood empty (`params:`) is filled with an indentation of one space, and stays when it is emptied
#   (so does one with a comment beside it),
# - one that we made inside brackets has spaces inside its own (`{a: { b: 1 }}`), and goes with its last key;
#   a `{}` that stood there stays.

_DOCUMENT_END = re.compile(r"^\.\.\.\s", re.MULTILINE)


class _Step(NamedTuple):
    """One step of a path: the collection, and what stands in it."""

    holder: _Node
    entry: _Entry | None
    node: _Node


class _Edit:
    """Makes the new text; whether it reads as it should is looked at by the caller."""

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source
        self.lines = _Lines(text)
        marks = iter(read_marks(text, source=source))
        roots = [_node(next(marks), marks, text) for mark in marks if mark.kind == "document"]
        self.root = next((root for root in roots if root.kind != "scalar"), roots[0] if roots else None)
        self.is_json = False
        with suppress(ValueError, RecursionError):
            self.is_json = isinstance(json.loads(text.removeprefix("\ufeff")), dict)

    def steps(self, path: KeyPath) -> list[_Step]:
        """Follow a path as far as it stands in the text."""
        steps: list[_Step] = []
        node = self.root
        for step in path:
            if node and node.kind == "alias":
                name = self.text[node.start : node.end]
                where = f"{self.source}:{self.text.count(self.lines.newline, 0, node.start) + 1}"
                raise ConfigError(f"`{name}` stands for another part of the file", where=where, hint=_BY_HAND)
            entry = next((entry for entry in node.entries if entry.name == step), None) if node else None
            if node and entry:
                steps.append(_Step(node, entry, entry.value))
            elif node and isinstance(step, int) and step < len(node.items):
                steps.append(_Step(node, None, node.items[step]))
            else:
                break
            node = steps[-1].node
        return steps

    # --- setting ---

    def alternatives(self, place: KeyPath, values: Mapping[KeyPath, Any]) -> Iterator[str]:
        """Give texts with a value set, or with all that one place is to hold, the best looking first."""
        path, value = next(iter(values.items()))
        if len(values) > 1:
            path, value = place, None
            for full, own in values.items():
                value = _with(value, full[len(place) :], own, self.text, self.source)
        return self.versions(path, value)

    def versions(self, path: KeyPath, value: Any) -> Iterator[str]:
        """Give texts with a value set, the best looking first."""
        steps = self.steps(path)
        if len(steps) == len(path):
            yield from self._merged(steps[-1].node, path, value)
            yield from self._replaced(steps[-1], value)
            return
        parent = steps[-1].node if steps else self.root
        key, keys = str(path[len(steps)]), path[len(steps) + 1 :]
        if parent and parent.kind == "mapping":
            yield from self._inserted(parent, key, keys, value)
        elif not steps:
            yield from self._begun(key, keys, value)
        else:
            yield from self._filled(steps[-1], (key, *keys), value)

    def _merged(self, old: _Node, path: KeyPath, value: Any) -> Iterator[str]:
        """Set a mapping key by key, so that the comments in it stay."""
        if old.entries and isinstance(value, dict) and value:
            with suppress(ConfigError):
                own = {(*path, key): item for key, item in value.items()}
                edit = _Edit(set_values(self.text, own, source=self.source), self.source)
                text, holder = edit.text, edit.steps(path)[-1].node
                gone = [number for number, entry in enumerate(holder.entries) if entry.name not in value]
                for number in reversed(gone[1:]):
                    text = edit._cut(text, holder, number)
                for name in [holder.entries[number].name for number in gone[:1]]:
                    text = unset_value(text, (*path, name), source=self.source)
                yield text

    def _inserted(self, parent: _Node, key: str, keys: KeyPath, value: Any) -> Iterator[str]:
        """Set a key that a mapping does not have yet."""
        if parent.is_flow:
            pair = f"{self._flow_key(parent, key)}: {self._flow(parent, value, keys)}"
            if parent.entries:
                at, pair = parent.entries[-1].end, f", {pair}"
            else:
                at = self.text.index("{", parent.start) + 1
            yield self.text[:at] + pair + self.text[at:]
            return
        first = parent.entries[0].start
        column = self.lines.column(first)
        end = self.lines.after_comments(self.lines.after(parent.end), column)
        for block in _blocks([key, *keys], value):
            yield self._with_lines(end, block, column)
            body = self._indented(block, column).lstrip(" ")
            yield f"{self.text[:first]}{body}{self.lines.newline}{' ' * column}{self.text[first:]}"

    def _begun(self, key: str, keys: KeyPath, value: Any) -> Iterator[str]:
        """Set the first key of a file without any."""
        for block in _blocks([key, *keys], value):
            if self.root and not self.root.is_empty:
                body = self._indented(block, 0)
                yield self.text[: self.root.start] + body + self.text[self.root.end :]
            else:
                end = _DOCUMENT_END.search(self.text)
                yield self._with_lines(end.start() if end else len(self.text), block, 0)

    def _filled(self, step: _Step, keys: KeyPath, value: Any) -> Iterator[str]:
        """Set the first key of a parent that is null."""
        entry, node = step.entry, step.node
        if step.holder.is_flow or not entry:
            yield from self._replaced(step, _nested(keys, value))
            return
        cut = self.text[: entry.colon] + self.text[max(entry.colon, node.end) :]
        edit = _Edit(cut, self.source) if cut != self.text else self
        column = self.lines.column(entry.start)
        at = edit.lines.after(entry.colon)
        commented = cut[entry.colon : at].strip() or edit.lines.after_comments(at, column) > at
        for block in _blocks(keys, value):
            yield edit._with_lines(at, block, column + (2 if commented else 1))

    def _replaced(self, step: _Step, value: Any) -> Iterator[str]:
        """Put another value in the place of one."""
        is_list = isinstance(value, list) and step.node.items
        if step.holder.is_flow or (step.node.is_flow and (is_list or isinstance(value, dict))):
            quoted = isinstance(value, str) and step.node.style
            new = _inline_form(value, step.node) if quoted else self._flow(step.holder, value, ())
            yield self._spliced(step, new)
        elif step.entry:
            for inline, block, deeper in _shapes(value, step.node):
                column = self.lines.column(step.entry.start) + deeper
                kind = "mapping" if isinstance(value, dict) else "sequence" if isinstance(value, list) else ""
                if step.node.is_block and not step.node.tagged and step.node.kind == kind:
                    column = self.lines.column(step.node.start)  # the old value shows where
                yield self._under_key(step.entry, inline, block, column)
        else:
            column = self.lines.column(step.node.start) + (1 if step.node.is_empty else 0)
            for inline, block, _ in _shapes(value, step.node):
                lines = [inline, *block] if inline else block
                yield self._spliced(step, self._indented(lines, column).lstrip(" "))

    def _spliced(self, step: _Step, new: str) -> str:
        """Put text in the place of a value."""
        node, entry = step.node, step.entry
        if node.is_empty:
            at = entry.colon if entry else node.start
            return f"{self.text[:at]}{': ' if entry and at == entry.key.end else ' '}{new}{self.text[at:]}"
        ending = self.lines.newline if node.end > 0 and self.text[node.end - 1] in "\r\n" else ""
        new += _header_comment(self.text, node) + ending
        return self.text[: node.start] + new + self.text[node.end :]

    def _under_key(self, entry: _Entry, inline: str, block: list[str], column: int) -> str:
        """Put a value behind a key: `inline` on the key's line, `block` on lines of its own."""
        text, node, newline = self.text, entry.value, self.lines.newline
        below = not node.is_empty and self.lines.start(node.start) > entry.colon
        if not block and not (below and node.is_block):
            return self._spliced(_Step(node, entry, node), inline)
        after = self.lines.after(entry.end)
        ending = newline if after < len(text) or text.endswith(("\n", "\r")) else ""
        body = self._indented(block, column)
        if below:
            start = self.lines.start(node.start)
            head = text[: entry.colon] + (f" {inline}" if inline else "") + text[entry.colon : start]
            if not node.is_block and (comment := text[node.end : after].strip()):
                body = f"{' ' * column}{comment}{newline}{body}"
            if not block:
                head, ending = head if ending else head.removesuffix(newline), ""
            return head + body + ending + text[after:]
        is_literal = node.style in ("|", ">")
        rest = _header_comment(text, node) if is_literal else text[entry.end : after].rstrip("\r\n")
        head = text[: entry.colon] if not inline else f"{text[: entry.colon]} {inline}"
        return head + rest + newline + body + ending + text[after:]

    # --- unsetting ---

    def without(self, path: KeyPath, before: Any) -> tuple[str, Any]:
        """Give the text without a value, and what it must read."""
        steps = self.steps(path)
        if len(steps) < len(path) or not steps or not steps[-1].entry:
            message = f"`{'.'.join(map(str, path))}` does not stand where it could be removed"
            raise ConfigError(message, where=self.source, hint=_BY_HAND)
        while self._goes_with(steps):
            steps.pop()
        *parents, last = steps
        owner, holder = path[: len(parents)], last.holder
        text = self._cut(self.text, holder, [entry is last.entry for entry in holder.entries].index(True))
        rest: Any = {key: item for key, item in _value_at(before, owner).items() if key != path[len(parents)]}
        if not rest and not holder.is_flow:
            rest = None
            if parents and not parents[-1].entry:  # an item of a list
                text, rest = f"{self.text[: holder.start]}{{}}{self.text[holder.end :]}", {}
        return text, _with(before, owner, rest, text, self.source) if owner else rest

    def _goes_with(self, steps: list[_Step]) -> bool:
        """Tell whether the mapping of the last step goes with its only key."""
        holder = steps[-1].holder
        owner = steps[-2].entry if len(steps) > 1 else None
        if len(holder.entries) > 1 or not owner:
            return False
        if holder.is_flow:
            inner = self.text[holder.start : holder.end]
            entry = holder.entries[0]
            return inner == f"{{ {self.text[entry.start : entry.end]} }}"
        column = self.lines.column(owner.start)
        after = self.lines.after(holder.end)
        between = self.text[owner.colon : self.lines.start(holder.start)]
        alone = between == self.lines.newline and self.lines.after_comments(after, column) == after
        return alone and self.lines.column(holder.start) > column + 1

    def _cut(self, text: str, holder: _Node, index: int) -> str:
        """Cut an entry out of its mapping; if it is not the first, later ones may have been cut before."""
        lines, entries = self.lines, holder.entries
        start, end = entries[index].start, entries[index].end
        if holder.is_flow:
            if index:
                start = entries[index - 1].end
            elif len(entries) > 1:
                end = entries[1].start
            elif text[end:].lstrip().startswith(","):
                end = text.index(",", end) + 1
        elif not text[lines.start(start) : start].strip(" \t"):  # it begins its line
            start, end = lines.start(start), lines.after(end)
            if end == len(text) and not text.endswith(("\n", "\r")):
                start -= len(lines.newline) if text[:start].endswith(lines.newline) else 0
        else:  # the first key of a mapping in a list
            end = lines.after(end)
            end += len(text[end:]) - len(text[end:].lstrip(" \r\n"))
        return text[:start] + text[end:]

    # --- writing ---

    def _with_lines(self, at: int, block: list[str], column: int) -> str:
        body, newline = self._indented(block, column), self.lines.newline
        if at == len(self.text) and self.text.strip("\ufeff") and not self.text.endswith(("\n", "\r")):
            return f"{self.text}{newline}{body}"
        return f"{self.text[:at]}{body}{newline}{self.text[at:]}"

    def _indented(self, block: list[str], column: int) -> str:
        return self.lines.newline.join(" " * column + line if line else "" for line in block)

    def _flow_key(self, parent: _Node, key: str) -> str:
        quoted = any(entry.key.style == '"' for entry in parent.entries)
        return write_double_quoted(key) if quoted or self.is_json else write_string(key)

    def _flow(self, parent: _Node, value: Any, keys: KeyPath) -> str:
        """Write a value between brackets, in the mappings of `made`; their inner spaces mark them as ours."""
        nodes = [node for entry in parent.entries for node in (entry.value, *entry.value.items)]
        quoted = self.is_json or any(node.style == '"' for node in nodes)
        text = write.to_compact_json(value) if quoted else write.to_flow(value, plain=True)
        for key in reversed(keys):
            text = f"{{ {self._flow_key(parent, str(key))}: {text} }}"
        return text


# --- the forms that a value takes when it is put into a file -------------------------------------------


def _nested(keys: Sequence[str | int], value: Any) -> Any:
    """Put mappings with one key each around a value."""
    for key in reversed(keys):
        value = {key: value}
    return value


def _blocks(path: Sequence[str | int], value: Any) -> Iterator[list[str]]:
    """Give the lines of mappings around a value, at first in block style, then with the value on one line."""
    yield _written_lines(_nested(path, value))
    keys = [f"{'  ' * depth}{write_string(str(key))}:" for depth, key in enumerate(path)]
    yield [*keys[:-1], f"{keys[-1]} {write.to_flow(value)}"]


def _shapes(value: Any, old: _Node) -> Iterator[tuple[str, list[str], int]]:
    """Give forms of a value: text for the key's line, further lines, and how much deeper these stand."""
    if isinstance(value, dict) and value:
        yield "", _written_lines(value), 2
    elif isinstance(value, list) and value:
        yield "", _written_lines(value), 0
    elif isinstance(value, str) and "\n" in value and old.style in ("", "|", ">"):
        head, *body = _written_lines(value)
        yield head, body, 0
    yield _inline_form(value, old), [], 0


def _written_lines(value: Any) -> list[str]:
    return write.to_yaml(value).removesuffix("\n").split("\n")


def _inline_form(value: Any, old: _Node) -> str:
    """Write a value on one line, a string with the quotes of the one before."""
    if isinstance(value, str) and old.style == '"':
        return write_double_quoted(value)
    if isinstance(value, str) and old.style == "'" and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return write.to_flow(value)


# --- where everything of a text stands: the tree that edits by position work on ------------------------

_BREAK = re.compile(r"\r\n|\n|\r")
_BLOCK_HEADER = re.compile(r"[|>](?P<signs>[-+0-9]*)[ \t]*(?P<comment>#[^\r\n]*)?")
_EMPTY_LINE = re.compile(r"(?P<indent>[ \t]*)(?P<comment>#[^\r\n]*)?(?:\r\n|\n|\r|\Z)")
_TO_COLON = re.compile(r"(?:[ \t]*(?:#[^\r\n]*)?[\r\n])*[ \t]*:")


@dataclass
class _Node:
    kind: str  # `scalar`, `mapping`, `sequence` or `alias`
    start: int  # index of the first character, of its anchor or tag if it has one
    end: int  # index behind the last; blank lines behind a block scalar count only where they are content
    style: str  # of a scalar: empty, `'`, `"`, `|` or `>`; of a collection: `flow` or empty
    tagged: bool  # whether an anchor or a tag stands before it
    entries: list[_Entry] = field(default_factory=list)  # of a mapping, in order
    items: list[_Node] = field(default_factory=list)  # of a sequence, in order

    @property
    def is_flow(self) -> bool:
        return self.style == "flow"

    @property
    def is_block(self) -> bool:
        return self.kind in ("mapping", "sequence") and not self.is_flow

    @property
    def is_empty(self) -> bool:
        return self.kind == "scalar" and self.start == self.end


@dataclass
class _Entry:
    name: str  # the key, as it is read
    start: int  # index of the key, or of the `?` before it
    key: _Node  # the key's node
    colon: int  # index behind the colon; of the key's end where there is none
    value: _Node  # the value's node

    @property
    def end(self) -> int:
        return max(self.colon, self.value.end)


class _Lines:
    def __init__(self, text: str) -> None:
        self.text = text
        line_break = _BREAK.search(text)
        self.newline = line_break[0] if line_break else "\n"

    def start(self, index: int) -> int:
        """Give the index where the line of an index starts."""
        before = max(self.text.rfind("\n", 0, index), self.text.rfind("\r", 0, index)) + 1
        return 1 if before == 0 and self.text.startswith("\ufeff") else before

    def after(self, end: int) -> int:
        """Give the index where the line after something starts, or the end of the text."""
        if end and self.text[end - 1] in "\r\n":
            return end
        line_break = _BREAK.search(self.text, end)
        return line_break.end() if line_break else len(self.text)

    def column(self, index: int) -> int:
        return index - self.start(index)

    def after_comments(self, index: int, column: int) -> int:
        """Skip comment lines that stand deeper than a column, with the blank lines between them."""
        last = index
        while index < len(self.text) and (line := _EMPTY_LINE.match(self.text, index)):
            if line["comment"] and len(line["indent"]) <= column:
                break
            index = line.end()
            last = index if line["comment"] else last
        return last


def _header_comment(text: str, node: _Node) -> str:
    """Give the comment behind the `|` or `>` of a block scalar, with a blank before it."""
    header = _BLOCK_HEADER.search(text, node.start) if node.style in ("|", ">") else None
    return f" {header['comment']}" if header and header["comment"] else ""


def _node(mark: Mark, marks: Iterator[Mark], text: str) -> _Node:
    node = _Node(mark.kind, mark.start, mark.end, mark.style, mark.tagged)
    if mark.kind == "scalar" and mark.style in ("|", ">"):
        header = _BLOCK_HEADER.search(text, node.start)
        if not (header and "+" in header["signs"]):
            node.end = node.start + len(text[node.start : node.end].rstrip(" \t\r\n"))
    for inner in marks if mark.kind in ("mapping", "sequence") else ():
        if inner.kind == "end":
            ends = [*(entry.end for entry in node.entries), *(item.end for item in node.items)]
            node.end = inner.end if node.is_flow else max(ends)
            break
        if mark.kind == "mapping":
            node.entries.append(_entry(inner, marks, text))
        else:
            node.items.append(_node(inner, marks, text))
    if not node.is_flow and node.entries:
        node.start = min(node.start, node.entries[0].start)
    return node


def _entry(mark: Mark, marks: Iterator[Mark], text: str) -> _Entry:
    key = _node(mark, marks, text)
    value = _node(next(marks), marks, text)
    colon = _TO_COLON.match(text, key.end)
    if value.is_empty and not (colon and colon.end() == value.start):
        value.start = value.end = key.end  # there is no colon, libyaml puts the value at what follows
        colon = None
    is_plain = mark.kind == "scalar" and not mark.style and not mark.tagged
    name = resolve_key(mark.value) if is_plain else mark.value
    start = key.start
    while start and text[start - 1] in " \t":
        start -= 1
    start = start - 1 if 0 < start < key.start and text[start - 1] == "?" else key.start
    return _Entry(name, start, key, colon.end() if colon else key.end, value)
