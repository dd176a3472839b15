"""The table of views: what each result type looks like to a person, found by the type's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlstack.cli.page import Block, Page, TextLine
from mlstack.objects.masking import MASK
from mlstack.table import Table as Registered

# By name, so that showing one result imports no other use case.
VIEWS: Registered[Callable[[Any], Page]] = Registered("view")


def page(result: object) -> Page:
    """Give the view of a result; a type without one is shown as YAML."""
    from mlstack.cli import views_app, views_deploy, views_elastic  # noqa: F401 - each registers its views

    found = VIEWS.get(type(result).__name__)
    return found(result) if found is not None else _as_yaml(result)


# Longer than any text that people write on one line; the rest are files, keys and pictures.
LONGEST_LINE = 2000
_DIGITS = 12


def one_line_value(value: Any) -> str:
    """Write a value on one line, as a person would type it; what nobody could read by its size and digest."""
    from mlstack.yaml import write

    if value is None or value == MASK:
        return value or ""
    text = value if isinstance(value, str) else write.to_flow(value)
    return size_and_digest(text) if len(text) > LONGEST_LINE else write.to_flow(value)


def size_and_digest(text: str) -> str:
    """Tell a long text from others: `(921600 bytes, sha256:0123456789ab…)`."""
    from hashlib import sha256

    content = text.encode("utf-8", "surrogatepass")
    return f"({len(content)} bytes, sha256:{sha256(content).hexdigest()[:_DIGITS]}…)"


def _as_yaml(result: object) -> Page:
    from mlstack.cli.output import yaml_text

    return Page(tuple(TextLine(line) for line in yaml_text(result).splitlines()))


def facts(*rows: tuple[str, object]) -> list[Block]:
    """Write facts under each other, leaving out what is empty."""
    shown = [(name, str(value)) for name, value in rows if value not in (None, "", (), {})]
    width = max((len(name) for name, _ in shown), default=0) + 1
    return [TextLine(f"{name + ':':<{width}} {value}") for name, value in shown]


def yes(claim: bool) -> str:
    """Write a claim in a table: `yes`, or nothing."""
    return "yes" if claim else ""


def count(number: int, word: str) -> str:
    """Write a number of things in English."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def prose(text: str) -> list[Block]:
    """Write text of several lines in lines that fit; blank lines part paragraphs."""
    paragraphs = [" ".join(part.split()) for part in text.strip().split("\n\n") if part.strip()]
    return [line for part in paragraphs for line in (TextLine(""), TextLine(part, hang=0))]
