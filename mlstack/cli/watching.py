"""What `status --watch` shows: the whole tree again on a terminal, one line a change elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mlstack.cli import views_cluster
from mlstack.cli.output import is_terminal, page_of, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlstack.model.health import StatusResult

    Show = Callable[[StatusResult], None]


@contextmanager
def showing(output_format: str) -> Iterator[Show]:
    """Give what shows a state; formats for programs show nothing before the end.

    Args:
        output_format: as `-o` says.
    """
    if output_format != "table":
        yield lambda result: None
    elif is_terminal(sys.stdout):
        from mlstack.cli import progress

        with progress.redrawing() as redraw:
            yield lambda result: redraw(page_of(result))
    else:
        yield Lines()


class Lines:
    """Prints a line for every object whose state or reason is another than before."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        self._known: dict[str, tuple[str, str]] = {}

    def __call__(self, result: StatusResult) -> None:
        """Take the whole state."""
        for component in result.components:
            for row in component.objects:
                if self._known.get(row.object) != (row.state, row.reason):
                    self._known[row.object] = (row.state, row.reason)
                    write(views_cluster.state_text(row.state, row.object, row.reason))
