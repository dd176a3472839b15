"""A file of the app while it is edited: values set and removed in turn, then written as a whole."""

from collections.abc import Sequence
from typing import Any

from mlstack.errors import YamlError
from mlstack.files import yamledit
from mlstack.files.document import decode
from mlstack.files.yamlread import read_document
from mlstack.model import emit
from mlstack.model.values import Path


class EditedFile:
    """The text of a file, and what became of it.

    Args:
        file: its place below the app directory.
        text: what it holds now; for a new file what it starts with.
    """

    def __init__(self, file: str, text: str) -> None:
        """Hold the text."""
        self.file = file
        self.text = text
        self._before = text
        self._value: Any = None
        self._value_of: str | None = None

    @classmethod
    def of(cls, file: str, data: bytes) -> "EditedFile":
        """Begin with the bytes of an existing file.

        Raises:
            YamlError: they are not UTF-8.
        """
        return cls(file, decode(data, file=file))

    @property
    def changed(self) -> bool:
        """Tell whether the text is another than the file's."""
        return self.text != self._before

    @property
    def content(self) -> bytes:
        """Give the bytes to write."""
        return self.text.encode()

    @property
    def value(self) -> Any:
        """Give the whole value as it is now."""
        if self._value_of != self.text:
            self._value = read_document(self.text, source=self.file, with_positions=False).value
            self._value_of = self.text
        return self._value

    def at(self, path: Path) -> Any:
        """Give the value at a path; None where nothing stands."""
        value = self.value
        for part in path:
            if isinstance(value, dict):
                value = value.get(part)
            elif isinstance(value, list) and isinstance(part, int) and -len(value) <= part < len(value):
                value = value[part]
            else:
                return None
        return value

    def actual_path(self, path: Sequence[str | int]) -> Path:
        """Give a path as typed with the keys that stand for places of a list as numbers."""
        found: list[str | int] = []
        for part in path:
            is_place = isinstance(part, str) and part.isdigit() and isinstance(self.at(tuple(found)), list)
            found.append(int(part) if is_place else part)
        return tuple(found)

    def set(self, path: Path, value: Any) -> None:
        """Set a value; missing maps around it are made.

        Raises:
            ConfigError: a parent is no map, or something else would change with it.
        """
        self.text = yamledit.set_value(self.text, path, value, source=self.file)

    def unset(self, path: Path) -> bool:
        """Remove a value with its key; tell whether it was there.

        Raises:
            ConfigError: something else would change with it.
        """
        if not yamledit.has_value(self.text, path, source=self.file):
            return False
        self.text = yamledit.unset_value(self.text, path, source=self.file)
        return True

    def append(self, path: Path, item: Any) -> None:
        """Add an item to a list; comments between its items stay where the list is written in lines."""
        before = self.at(path) or []
        wanted = [*before, item]
        if before:
            lines, first, last = self._item_lines((*path, len(before) - 1))
            indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
            added = [f"{indent}{line}" for line in emit.to_yaml([item]).splitlines(keepends=True)]
            ending = [] if lines[last - 1].endswith("\n") else ["\n"]
            if self._keep("".join([*lines[:last], *ending, *added, *lines[last:]]), path, wanted):
                return
        self.set(path, wanted)

    def remove(self, path: Path, index: int) -> None:
        """Take an item out of a list; comments between the others stay where it is written in lines."""
        before = self.at(path)
        wanted = [*before[:index], *before[index + 1 :]]
        if wanted:
            lines, first, last = self._item_lines((*path, index))
            if self._keep("".join([*lines[:first], *lines[last:]]), path, wanted):
                return
        self.set(path, wanted)

    def _item_lines(self, path: Path) -> tuple[list[str], int, int]:
        """Give the text's lines, and the first line of an item and the one behind its last, from 0."""
        document = read_document(self.text, source=self.file)
        lines = self.text.splitlines(keepends=True)
        first = document.position(path).line - 1
        inside = [
            position.line for found, position in document.positions.items() if found[: len(path)] == path
        ]
        behind = [
            position.line - 1 for position in document.positions.values() if position.line > max(inside)
        ]
        last = min([*behind, len(lines)])
        while last > first + 1 and lines[last - 1].lstrip()[:1] in ("", "#"):
            last -= 1
        return lines, first, last

    def _keep(self, text: str, path: Path, wanted: list[Any]) -> bool:
        """Take a text over if it reads as wanted and everything else in it as before."""
        after = EditedFile(self.file, text)
        try:
            if after.at(path) != wanted or _without(after.value, path) != _without(self.value, path):
                return False
        except YamlError:
            return False
        self.text = text
        return True


def _without(value: Any, path: Path) -> Any:
    """Give a value with nothing at a path."""
    if not path:
        return None
    if isinstance(value, dict) and path[0] in value:
        return {**value, path[0]: _without(value[path[0]], path[1:])}
    return value
