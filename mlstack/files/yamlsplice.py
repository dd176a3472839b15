"""New texts of a YAML file with one value changed, made by position.

Setting a key that was absent and unsetting it again gives the file back byte for byte. Three marks in the
text make that possible, since missing, empty and `{}` parents would look the same once they hold a key:

- a parent that we made in block style goes with its last key,
- one that stood empty (`params:`) is filled with an indentation of one space, and stays when it is emptied
  (so does one with a comment beside it),
- one that we made inside brackets has spaces inside its own (`{a: { b: 1 }}`), and goes with its last key;
  a `{}` that stood there stays.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mlstack.errors import ConfigError
from mlstack.files import yamlforms
from mlstack.files.yamlnodes import Entry, Lines, Node, header_comment, read_nodes
from mlstack.model import emit
from mlstack.model.scalars import write_double_quoted, write_string

Path = Sequence[str | int]

BY_HAND = "edit the file by hand"
_DOCUMENT_END = re.compile(r"^\.\.\.\s", re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """One step of a path: the collection, and what stands in it."""

    holder: Node
    entry: Entry | None
    node: Node


class Edit:
    """Makes the new text; whether it reads as it should is looked at by the caller."""

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source
        self.lines = Lines(text)
        roots = [root for root in read_nodes(text, source=source) if root]
        self.root = next((root for root in roots if root.kind != "scalar"), roots[0] if roots else None)
        self.is_json = _is_json(text)

    def steps(self, path: Path) -> list[Step]:
        """Follow a path as far as it stands in the text."""
        found: list[Step] = []
        node = self.root
        for step in path:
            if node and node.kind == "alias":
                name = self.text[node.start : node.end]
                where = f"{self.source}:{self.text.count(self.lines.newline, 0, node.start) + 1}"
                raise ConfigError(f"`{name}` stands for another part of the file", where=where, hint=BY_HAND)
            entry = node.entry(step) if node and isinstance(step, str) else None
            if node and entry:
                found.append(Step(node, entry, entry.value))
            elif node and isinstance(step, int) and step < len(node.items):
                found.append(Step(node, None, node.items[step]))
            else:
                break
            node = found[-1].node
        return found

    # ---------------------------------------------------------------------------------------------- setting

    def versions(self, path: Path, value: Any) -> Iterator[str]:
        """Give texts with a value set, the best looking first."""
        steps = self.steps(path)
        if len(steps) == len(path):
            yield from self._replaced(steps[-1], value)
            return
        parent = steps[-1].node if steps else self.root
        key, made = str(path[len(steps)]), path[len(steps) + 1 :]
        if parent and parent.kind == "mapping":
            yield from self._inserted(parent, key, made, value)
        elif not steps:
            yield from self._begun(key, made, value)
        else:
            yield from self._filled(steps[-1], [key, *made], value)

    def _inserted(self, parent: Node, key: str, made: Path, value: Any) -> Iterator[str]:
        """Set a key that a mapping does not have yet."""
        if parent.is_flow:
            pair = f"{self._flow_key(parent, key)}: {self._flow(parent, value, made)}"
            if parent.entries:
                at, pair = parent.entries[-1].end, f", {pair}"
            else:
                at = self.text.index("{", parent.start) + 1
            yield self.text[:at] + pair + self.text[at:]
            return
        first = parent.entries[0].start
        column = self.lines.column(first)
        end = self.lines.after_comments(self.lines.after(parent.end), column)
        for block in yamlforms.blocks([key, *made], value):
            yield self._with_lines(end, block, column)
            body = self._indented(block, column).lstrip(" ")
            yield f"{self.text[:first]}{body}{self.lines.newline}{' ' * column}{self.text[first:]}"

    def _begun(self, key: str, made: Path, value: Any) -> Iterator[str]:
        """Set the first key of a file without any."""
        for block in yamlforms.blocks([key, *made], value):
            if self.root and not self.root.is_empty:
                body = self._indented(block, 0)
                yield self.text[: self.root.start] + body + self.text[self.root.end :]
            else:
                end = _DOCUMENT_END.search(self.text)
                yield self._with_lines(end.start() if end else len(self.text), block, 0)

    def _filled(self, step: Step, made: Path, value: Any) -> Iterator[str]:
        """Set the first key of a parent that is null."""
        entry, node = step.entry, step.node
        if step.holder.is_flow or not entry:
            yield from self._replaced(step, yamlforms.nested(made, value))
            return
        cut = self.text[: entry.colon] + self.text[max(entry.colon, node.end) :]
        edit = Edit(cut, self.source) if cut != self.text else self
        column = self.lines.column(entry.start)
        at = edit.lines.after(entry.colon)
        commented = cut[entry.colon : at].strip() or edit.lines.after_comments(at, column) > at
        for block in yamlforms.blocks(made, value):
            yield edit._with_lines(at, block, column + (2 if commented else 1))

    def _replaced(self, step: Step, value: Any) -> Iterator[str]:
        """Put another value in the place of one."""
        if step.holder.is_flow or (step.node.is_flow and isinstance(value, dict | list)):
            quoted = isinstance(value, str) and step.node.style
            new = yamlforms.inline(value, step.node) if quoted else self._flow(step.holder, value, ())
            yield self._spliced(step, new)
        elif step.entry:
            for inline, block, deeper in yamlforms.shapes(value, step.node):
                column = self.lines.column(step.entry.start) + deeper
                if yamlforms.is_alike(value, step.node):
                    column = self.lines.column(step.node.start)
                yield self._under_key(step.entry, inline, block, column)
        else:
            column = self.lines.column(step.node.start) + (1 if step.node.is_empty else 0)
            for inline, block, _ in yamlforms.shapes(value, step.node):
                lines = [inline, *block] if inline else block
                yield self._spliced(step, self._indented(lines, column).lstrip(" "))

    def _spliced(self, step: Step, new: str) -> str:
        """Put text in the place of a value."""
        node, entry = step.node, step.entry
        if node.is_empty:
            at = entry.colon if entry else node.start
            return f"{self.text[:at]}{': ' if entry and at == entry.key.end else ' '}{new}{self.text[at:]}"
        ends_line = node.end > 0 and self.text[node.end - 1] in "\r\n"
        comment = header_comment(self.text, node) if node.style in ("|", ">") else ""
        new = f"{new} {comment}" if comment else new
        return (
            self.text[: node.start] + new + (self.lines.newline if ends_line else "") + self.text[node.end :]
        )

    def _under_key(self, entry: Entry, inline: str, block: list[str], column: int) -> str:
        """Put a value behind a key: `inline` on the key's line, `block` on lines of its own."""
        text, node, newline = self.text, entry.value, self.lines.newline
        below = not node.is_empty and self.lines.start(node.start) > entry.colon
        if not block and not (below and node.is_block):
            return self._spliced(Step(node, entry, node), inline)
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
        rest = text[entry.end : after].rstrip("\r\n")
        if node.style in ("|", ">"):
            rest = f" {comment}" if (comment := header_comment(text, node)) else ""
        head = text[: entry.colon] if not inline else f"{text[: entry.colon]} {inline}"
        return head + rest + newline + body + ending + text[after:]

    # -------------------------------------------------------------------------------------------- unsetting

    def without(self, path: Path, before: Any) -> tuple[str, Any]:
        """Give the text without a value, and what it must read."""
        steps = self.steps(path)
        if len(steps) < len(path) or not steps or not steps[-1].entry:
            name = ".".join(map(str, path))
            raise ConfigError(
                f"`{name}` does not stand where it could be removed", where=self.source, hint=BY_HAND
            )
        while self._goes_with(steps):
            steps.pop()
        *parents, last = steps
        after = copy.deepcopy(before)
        del value_at(after, path[: len(parents)])[path[len(parents)]]
        if len(last.holder.entries) == 1 and not last.holder.is_flow:
            if not parents:
                after = None
            elif parents[-1].entry:
                value_at(after, path[: len(parents) - 1])[path[len(parents) - 1]] = None
            else:
                holder = last.holder
                return f"{self.text[: holder.start]}{{}}{self.text[holder.end :]}", after
        return self._cut(last), after

    def _goes_with(self, steps: list[Step]) -> bool:
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

    def _cut(self, step: Step) -> str:
        """Cut an entry out of its mapping."""
        text, lines = self.text, self.lines
        entries = step.holder.entries
        place = next(number for number, entry in enumerate(entries) if entry is step.entry)
        start, end = entries[place].start, entries[place].end
        if step.holder.is_flow:
            if place:
                start = entries[place - 1].end
            elif len(entries) > 1:
                end = entries[1].start
            elif text[end:].lstrip().startswith(","):
                end = text.index(",", end) + 1
        elif lines.starts_its_line(start):
            start, end = lines.start(start), lines.after(end)
            if end == len(text) and not text.endswith(("\n", "\r")):
                start -= len(lines.newline) if text[:start].endswith(lines.newline) else 0
        else:  # the first key of a mapping in a list
            end = lines.after(end)
            end += len(text[end:]) - len(text[end:].lstrip(" \r\n"))
        return text[:start] + text[end:]

    # ---------------------------------------------------------------------------------------------- writing

    def _with_lines(self, at: int, block: list[str], column: int) -> str:
        body, newline = self._indented(block, column), self.lines.newline
        if at == len(self.text) and self.text.strip("\ufeff") and not self.text.endswith(("\n", "\r")):
            return f"{self.text}{newline}{body}"
        return f"{self.text[:at]}{body}{newline}{self.text[at:]}"

    def _indented(self, block: list[str], column: int) -> str:
        return self.lines.newline.join(" " * column + line if line else "" for line in block)

    def _flow_key(self, parent: Node, key: str) -> str:
        quoted = any(entry.key.style == '"' for entry in parent.entries)
        return write_double_quoted(key) if quoted or self.is_json else write_string(key)

    def _flow(self, parent: Node, value: Any, made: Path) -> str:
        """Write a value between brackets, in the mappings of `made`; their inner spaces mark them as ours."""
        quoted = self.is_json or any(entry.value.style == '"' for entry in parent.entries)
        text = emit.to_compact_json(value) if quoted else emit.to_flow(value)
        for key in reversed(made):
            text = f"{{ {self._flow_key(parent, str(key))}: {text} }}"
        return text


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text.removeprefix("\ufeff")), dict)
    except (ValueError, RecursionError):
        return False


def value_at(value: Any, path: Path) -> Any:
    """Give the part of a plain value that a path leads to."""
    for step in path:
        value = value[step]
    return value
