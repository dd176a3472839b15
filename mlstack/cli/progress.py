"""The only door to rich: tables, colours and progress, used when a person watches a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mlstack.cli.page import Line, Page, Table, one_line

if TYPE_CHECKING:
    from rich.table import Table as RichTable

STYLES = {"": "", "add": "green", "remove": "red", "change": "yellow", "head": "bold", "dim": "dim"}


def show(page: Page, *, to_stderr: bool = False) -> None:
    """Print a page on a terminal, in colour unless `NO_COLOR` is set."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=to_stderr, highlight=False, emoji=False, markup=False)
    for block in page.blocks:
        if isinstance(block, Line):
            console.print(Text(block.text, style=STYLES[block.style]), soft_wrap=True)
        else:
            console.print(_table(block))


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Show that something goes on, on stderr and on terminals only, until the block is left."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


def _table(table: Table) -> RichTable:
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in table.columns:
        cut = column == table.cut
        drawn.add_column(column, overflow="ellipsis" if cut else "fold", no_wrap=cut)
    for row in table.rows:
        drawn.add_row(*(Text(one_line(cell)) for cell in row))
    return drawn
