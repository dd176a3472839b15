"""The only door to rich: tables, colours and progress, used when a person watches a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mlstack.cli.page import Line, Page, Table, fold, layout
from mlstack.cli.streams import raw

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


def _lines(line: Line, width: int) -> Iterator[Line]:
    yield from (Line(text, line.style) for text in fold(line, width=min(width, WIDEST_PROSE)))


def _rows(table: Table, width: int) -> Iterator[Line]:
    """Lay a table out as elsewhere: rich would rather break a place in a file than cut a long value."""
    head, *rows = layout(table, width=width)
    yield Line(head, "head")
    yield from (Line(row) for row in rows)


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


def _laid_out(block: Line | Table, width: int) -> Iterator[Line]:
    return _rows(block, width) if isinstance(block, Table) else _lines(block, width)
