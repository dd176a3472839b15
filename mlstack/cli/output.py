"""Where a result leaves the program: data on stdout in the asked format, talk on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, TextIO

from mlstack.cli.page import Page, TextTable, fold, layout, one_line
from mlstack.cli.streams import escaped, json_escaped, say, write
from mlstack.table import Table as Registered

FORMATS: Registered[Callable[[Any], str]] = Registered("output format")


def emit(result: object, output_format: str) -> int:
    """Print a result on stdout and give the exit code that its answer stands for.

    Returns:
        1 for a truthful no (`result.ok` is false), else 0.
    """
    if output_format == "table":
        page = page_of(result)
        show(page)
        for note in page.notes:
            say(note)
    else:
        write(FORMATS.find(output_format)(result), exact=True)
    return 0 if getattr(result, "ok", True) else 1


def show(page: Page, *, to_stderr: bool = False) -> None:
    """Print a page: in colour on a terminal, as plain text elsewhere."""
    if is_terminal(sys.stderr if to_stderr else sys.stdout):
        from mlstack.cli import page as progress

        progress.show(page, to_stderr=to_stderr)
    elif to_stderr:
        say(*page_text(page).split("\n"))
    else:
        write(page_text(page))


def page_text(page: Page) -> str:
    """Write a page as plain text."""
    lines: list[str] = []
    for block in page.blocks:
        lines += layout(block) if isinstance(block, TextTable) else fold(block)
    return "\n".join(lines)


def is_terminal(stream: TextIO) -> bool:
    """Tell whether a person reads the stream and its terminal can move the cursor."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def page_of(result: object) -> Page:
    """Give the human view of a result."""
    from mlstack.cli import views

    return views.page(result)


@FORMATS.register("table")
def table_text(result: object) -> str:
    """Write the human view as plain text."""
    return page_text(page_of(result))


@FORMATS.register("yaml")
def yaml_text(result: object) -> str:
    """Write the whole result as YAML."""
    from mlstack.objects import masking
    from mlstack.yaml import write

    return write.to_yaml(_carried(masking.scrubbed_value(plain(result))))


def _carried(value: Any) -> Any:
    """Give plain data without the characters that YAML cannot carry, which are written visibly."""
    if isinstance(value, str):
        return escaped(value) if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value) else value
    if isinstance(value, Mapping):
        return {_carried(key): _carried(inner) for key, inner in value.items()}
    return [_carried(inner) for inner in value] if isinstance(value, list) else value


@FORMATS.register("json")
def json_text(result: object) -> str:
    """Write the whole result as JSON, types kept."""
    import json

    from mlstack.objects import masking

    return json_escaped(json.dumps(masking.scrubbed_value(plain(result)), indent=2, ensure_ascii=False))


@FORMATS.register("name")
def name_text(result: object) -> str:
    """Write the names alone, one a line, for other programs."""
    return "\n".join(map(one_line, page_of(result).names))


def plain(value: Any) -> Any:
    """Turn a result into mappings, lists and scalars, with the keys that files use (camelCase)."""
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return _plain_dataclass(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _plain_dataclass(value: Any) -> Any:
    if "__str__" in type(value).__dict__:
        return str(value)
    found = {camel(field.name): plain(getattr(value, field.name)) for field in fields(value)}
    if "ok" not in found and hasattr(value, "ok"):
        found = {"ok": value.ok, **found}
    return found


def camel(name: str) -> str:
    """Write the name of a field as files do."""
    first, *rest = name.strip("_").split("_")
    return first + "".join(word.capitalize() for word in rest)
