"""The table of views, what each result looks like to a person, and what views are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, TypeVar

from mlstack.cli.page import Block, Page, TextLine, TextTable
from mlstack.objects.masking import MASK

View = TypeVar("View", bound=Callable[[Any], Page])

# By the name of the result's type, so that showing one result imports no other use case.
VIEWS: dict[str, Callable[[Any], Page]] = {}


def view(function: View) -> View:
    """Enter the view of a result: a function of `result`, whose type it is for."""
    VIEWS[function.__annotations__["result"].rpartition(".")[2]] = function
    return function


# Which module of views enters those of the results that a module of ours defines; one is enough to show one.
_ROOMS = (
    ("mlstack.deploy", "views_deploy"),
    ("mlstack.operations.deploy", "views_deploy"),
    ("mlstack.operations.history", "views_deploy"),
    ("mlstack.operations.render", "views_deploy"),
    ("mlstack.elastic", "views_elastic"),
    ("mlstack.simulator", "views_elastic"),
)


def page(result: object) -> Page:
    """Give the view of a result; a type without one is shown as YAML."""
    room = next(
        (views for prefix, views in _ROOMS if type(result).__module__.startswith(prefix)), "views_app"
    )
    import_module(f"mlstack.cli.{room}")
    known = VIEWS.get(type(result).__name__)
    if known is not None:
        return known(result)
    from mlstack.cli.output import yaml_text

    return Page(tuple(TextLine(line) for line in yaml_text(result).splitlines()))


def sentence(text: str, name: str, *notes: str) -> Page:
    """Show one sentence about one thing; `notes` say what is next."""
    return Page((TextLine(text),), (name,), notes)


def table(columns: str, rows: Iterable[tuple[str, ...]], *, cut: str | None = None) -> TextTable:
    """Make a table under headings of one word each."""
    return TextTable(tuple(columns.split()), tuple(rows), cut=cut)


def notes(result: Any) -> tuple[str, ...]:
    """Give the notes of a result as they are said."""
    return tuple(f"note: {note}" for note in result.notes)


def facts(*rows: tuple[str, object]) -> list[Block]:
    """Write facts under each other, leaving out what is empty."""
    shown = [(name, str(value)) for name, value in rows if value not in (None, "", (), {})]
    width = max((len(name) for name, _ in shown), default=0) + 1
    return [TextLine(f"{name + ':':<{width}} {value}") for name, value in shown]


def prose(text: str) -> list[Block]:
    """Write text of several lines in lines that fit; blank lines part paragraphs."""
    paragraphs = [" ".join(part.split()) for part in text.strip().split("\n\n") if part.strip()]
    return [line for part in paragraphs for line in (TextLine(""), TextLine(part, hang=0))]


def yes(claim: bool) -> str:
    """Write a claim in a table: `yes`, or nothing."""
    return "yes" if claim else ""


def count(number: int, word: str) -> str:
    """Write a number of things in English."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


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
