"""The forms that a value takes when it is put into a person's YAML file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mlstack.files.yamlnodes import Node
from mlstack.model import emit
from mlstack.model.scalars import write_double_quoted, write_string


def nested(made: Sequence[str | int], value: Any) -> Any:
    """Put mappings with one key each around a value."""
    for key in reversed(made):
        value = {key: value}
    return value


def blocks(path: Sequence[str | int], value: Any) -> Iterator[list[str]]:
    """Give the lines of mappings around a value, at first in block style, then with the value on one line."""
    yield _lines(nested(path, value))
    keys = [f"{'  ' * depth}{write_string(str(key))}:" for depth, key in enumerate(path)]
    yield [*keys[:-1], f"{keys[-1]} {emit.to_flow(value)}"]


def shapes(value: Any, old: Node) -> Iterator[tuple[str, list[str], int]]:
    """Give forms of a value: text for the key's line, further lines, and how much deeper these stand."""
    if isinstance(value, dict) and value:
        yield "", _lines(value), 2
    elif isinstance(value, list) and value:
        yield "", _lines(value), 0
    elif isinstance(value, str) and "\n" in value and old.style in ("", "|", ">"):
        head, *body = _lines(value)
        yield head, body, 0
    yield inline(value, old), [], 0


def is_alike(value: Any, old: Node) -> bool:
    """Tell whether the old value shows where the new one should stand."""
    kind = "mapping" if isinstance(value, dict) else "sequence" if isinstance(value, list) else ""
    return old.is_block and not old.tagged and old.kind == kind


def _lines(value: Any) -> list[str]:
    return emit.to_yaml(value).removesuffix("\n").split("\n")


def inline(value: Any, old: Node) -> str:
    """Write a value on one line, a string with the quotes of the one before."""
    if isinstance(value, str) and old.style == '"':
        return write_double_quoted(value)
    if isinstance(value, str) and old.style == "'" and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    return emit.to_flow(value)
