"""What a person reads, as values: text, coloured lines and tables, and their plain layout."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal
from unicodedata import category, east_asian_width

from mlstack.cli.streams import raw, safe, scrubbed

# --- What a person reads, as values: text, coloured lines and tables, and their plain layout ---

Style = Literal["", "add", "remove", "change", "head", "dim"]
WIDTH = 80
GAP = "  "


@dataclass(frozen=True)
class TextLine:
    """One line of text with a meaning that a terminal may colour.

    Attributes:
        text: the line, readable without colour.
        style: what it says: added, removed, changed, a heading, or less important.
        hang: how many blanks stand before what does not fit on the first line; None breaks no line.
    """

    text: str
    style: Style = ""
    hang: int | None = None


@dataclass(frozen=True)
class TextTable:
    """Rows under headings.

    Attributes:
        columns: headings, upper case.
        rows: one cell a column.
        cut: column whose cells may be shortened when the table is too wide.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    cut: str | None = None


Block = TextLine | TextTable


@dataclass(frozen=True)
class Page:
    """What one result looks like to a person.

    Attributes:
        blocks: shown one below the other.
        names: what `-o name` prints, one a line.
        notes: said on stderr, as the next step.
    """

    blocks: tuple[Block, ...]
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def text_width(text: str) -> int:
    """Count the terminal columns that a text takes: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def shorten(text: str, width: int) -> str:
    """Cut a text to so many terminal columns, with `…` in the place of what is left out."""
    if text_width(text) <= width:
        return text
    kept = ""
    for character in text:
        if text_width(kept) + _columns(character) > width - 1:
            break
        kept += character
    return kept + "…"


def one_line(text: str) -> str:
    """Write a text as it may be printed: it tells no secret, breaks no table and moves no cursor."""
    return safe(text, kept="")


def fold(line: TextLine, *, width: int = WIDTH) -> Iterator[str]:
    """Write a line in as many as it needs to fit; a command that can be copied is never broken."""
    if line.hang is None:
        yield one_line(line.text)
        return
    text = one_line(" ".join(scrubbed(line.text).splitlines()))
    if text_width(text) <= width:
        yield text
        return
    indent = len(text) - len(text.lstrip(" "))
    words = _WHOLE.sub(lambda found: found[0].replace(" ", _BLANK), text[indent:]).split(" ")
    first, *others = _wrap(words, width - line.hang, first=width - indent)
    yield " " * indent + first.replace(_BLANK, " ")
    yield from (" " * line.hang + other.replace(_BLANK, " ") for other in others)


# What stands in backticks, and a command at the end.
_WHOLE = re.compile(r"`[^`]*`|(?:^|(?<=: ))mlstack [^`]*$")
_BLANK = "\0"  # no text holds one: control characters are written visibly


def layout(table: TextTable, *, width: int = WIDTH) -> Iterator[str]:
    """Write a table as aligned plain text that fits the width where its cells allow it.

    The column named `cut` is shortened first; the last one is wrapped at spaces, unless it is the one to cut.
    """
    rows = [tuple(one_line(cell) for cell in row) for row in table.rows]
    widths = _widths(table, rows, width)
    yield _join(table.columns, widths)
    for row in rows:
        yield from [_cut(row, widths)] if table.cut == table.columns[-1] else _row(row, widths)


def _columns(character: str) -> int:
    if category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def _widths(table: TextTable, rows: Sequence[Sequence[str]], width: int) -> list[int]:
    widths = [
        max(text_width(row[index]) for row in (table.columns, *rows)) for index in range(len(table.columns))
    ]
    room = width - len(GAP) * (len(widths) - 1)
    if table.cut is not None:
        index = table.columns.index(table.cut)
        spare = room - sum(widths) + widths[index]
        widths[index] = min(widths[index], max(spare, len(table.cut), 12))
    widths[-1] = max(min(widths[-1], room - sum(widths[:-1])), 20 if len(widths) > 1 else 1)
    return widths


def _cut(row: Sequence[str], widths: Sequence[int]) -> str:
    return _join([shorten(cell, width) for cell, width in zip(row, widths, strict=True)], widths)


def _row(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    cells = [shorten(cell, width) for cell, width in zip(row[:-1], widths[:-1], strict=True)]
    first, *others = _wrap(row[-1].split(" "), widths[-1])
    yield _join([*cells, first], widths)
    for other in others:
        yield _join([*("" for _ in cells), other], widths)


def _wrap(words: Sequence[str], width: int, *, first: int | None = None) -> list[str]:
    """Join words to lines; one that is wider than a line stays whole."""
    lines = [""]
    for word in words:
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        room = width if first is None or len(lines) > 1 else first
        if text_width(longer) <= room or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _join(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell + " " * (width - text_width(cell)) for cell, width in zip(cells, widths, strict=True))
    return GAP.join(padded).rstrip()


# --- The only door to rich: tables, colours and progress, used when a person watches a terminal ---

STYLES = {"": "", "add": "green", "remove": "red", "change": "yellow", "head": "bold", "dim": "dim"}
WIDEST_PROSE = 100


def show(page: Page, *, to_stderr: bool = False) -> None:
    """Print a page on a terminal, in colour unless `NO_COLOR` is set."""
    from rich.console import Console
    from rich.text import Text

    # The only writer of control sequences: its lines were made safe when they were laid out.
    stream = raw(sys.stderr if to_stderr else sys.stdout)
    console = Console(file=stream, highlight=False, emoji=False, markup=False)
    for block in page.blocks:
        for line in _laid_out(block, console.width):
            console.print(Text(line.text, style=STYLES[line.style]), soft_wrap=True)


def _lines(line: TextLine, width: int) -> Iterator[TextLine]:
    yield from (TextLine(text, line.style) for text in fold(line, width=min(width, WIDEST_PROSE)))


def _rows(table: TextTable, width: int) -> Iterator[TextLine]:
    """Lay a table out as elsewhere: rich would rather break a place in a file than cut a long value."""
    head, *rows = layout(table, width=width)
    yield TextLine(head, "head")
    yield from (TextLine(row) for row in rows)


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Show that something goes on, on stderr and on terminals only, until the block is left."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(file=raw(sys.stderr)).status(text):
        yield


@contextmanager
def redrawing() -> Iterator[Callable[[Page], None]]:
    """Give what shows a page on stdout in the place of the one before; the last one is taken away."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(file=raw(sys.stdout), highlight=False, emoji=False, markup=False)
    with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") as live:

        def draw(page: Page) -> None:
            lines = [line for block in page.blocks for line in _laid_out(block, console.width)]
            text = Text("\n").join(Text(line.text, style=STYLES[line.style]) for line in lines)
            live.update(text, refresh=True)

        yield draw


def _laid_out(block: TextLine | TextTable, width: int) -> Iterator[TextLine]:
    return _rows(block, width) if isinstance(block, TextTable) else _lines(block, width)
