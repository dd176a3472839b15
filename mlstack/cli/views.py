"""The table of views, what each result looks like to a person, and what views are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from mlstack.cli.page import Block, Page, TextLine, TextTable
from mlstack.objects.masking import MASK

View = TypeVar("View", bound=Callable[[Any], Page])

# By the name of the result's type, so that showing one result imports no other use case.
VIEWS: dict[str, Callable[[Any], Page]] = {}
LISTINGS: dict[str, Listing] = {}


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
    name = type(result).__name__
    if name in VIEWS:
        return VIEWS[name](result)
    if name in LISTINGS:
        return listing(result, LISTINGS[name])
    from mlstack.cli.output import yaml_text

    return Page(tuple(TextLine(line) for line in yaml_text(result).splitlines()))


def sentence(text: str, name: str, *notes: str) -> Page:
    """Show one sentence about one thing; `notes` say what is next."""
    return Page((TextLine(text),), (name,), notes)


Columns = Mapping[str, str | Callable[[Any], Any]]


def table(rows: Iterable[Any], columns: Columns | str, *, cut: str | None = None) -> TextTable:
    """Make a table of rows: each column has its heading, and a field of the row or a function of it.

    Rows that are their cells already need headings alone, of one word each.
    """
    if isinstance(columns, str):
        return TextTable(tuple(columns.split()), tuple(rows), cut=cut)
    values = [
        [getattr(row, value) if isinstance(value, str) else value(row) for value in columns.values()]
        for row in rows
    ]
    return TextTable(tuple(columns), tuple(tuple(map(_cell, row)) for row in values), cut=cut)


def _cell(value: Any) -> str:
    """Write a value in a table: a claim as `yes` or nothing, names with commas between."""
    if isinstance(value, bool):
        return "yes" if value else ""
    return ", ".join(value) if isinstance(value, tuple) else "" if value is None else str(value)


class Listing(NamedTuple):
    """A view that is only a table: of the rows in a field of the result."""

    rows: str
    columns: Columns
    names: str | Callable[[Any], str] = "name"  # what `-o name` prints of a row
    cut: str | None = None  # the column that is shortened
    empty: str = ""  # what is next when there are no rows
    # a column that is left out when this is all its cells say
    spare: Mapping[str, Callable[[set[str]], bool]] = {}


def listing(result: Any, view: Listing) -> Page:
    """Show a result that is a table."""
    rows = getattr(result, view.rows)
    columns = dict(view.columns)
    for heading, is_spare in view.spare.items():
        if is_spare({row[0] for row in table(rows, {heading: columns[heading]}).rows}):
            del columns[heading]
    names = tuple(row[0] for row in table(rows, {"": view.names}).rows)
    hints = notes(result) or ((view.empty,) if view.empty and not rows else ())
    return Page((table(rows, columns, cut=view.cut),), names, hints)


def notes(result: Any) -> tuple[str, ...]:
    """Give the notes of a result, if it has any, as they are said."""
    return tuple(f"note: {note}" for note in getattr(result, "notes", ()))


def facts(*rows: tuple[str, object]) -> list[Block]:
    """Write facts under each other, leaving out what is empty."""
    shown = [(name, str(value)) for name, value in rows if value not in (None, "", (), {})]
    width = max((len(name) for name, _ in shown), default=0) + 1
    return [TextLine(f"{name + ':':<{width}} {value}") for name, value in shown]


def prose(text: str) -> list[Block]:
    """Write text of several lines in lines that fit; blank lines part paragraphs."""
    paragraphs = [" ".join(part.split()) for part in text.strip().split("\n\n") if part.strip()]
    return [line for part in paragraphs for line in (TextLine(""), TextLine(part, hang=0))]


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
