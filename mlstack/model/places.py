"""Where lines of rendered text come from: marks that templates put before them, and their reading."""

from typing import NamedTuple

# Around file and line; private characters that no template writes itself.
_OPEN, _CLOSE = "\ue000", "\ue001"


class Place(NamedTuple):
    """A line of a template.

    Attributes:
        file: the template's file, as messages show it.
        line: line in it, from 1.
    """

    file: str
    line: int


def mark_of(file: str, line: int) -> str:
    """Write the mark of a line, to stand before its text."""
    return f"{_OPEN}{file}:{line}{_CLOSE}"


def unmarked(text: str) -> tuple[str, list[Place | None]]:
    """Take the marks out of a text.

    Returns:
        The text, and the place of each of its lines.
    """
    lines: list[str] = []
    places: list[Place | None] = []
    last: Place | None = None
    for marked in text.split("\n"):
        line, *parts = marked.split(_OPEN)
        for part in parts:
            mark, _, rest = part.partition(_CLOSE)
            if not line.strip():  # what comes after the first visible character says nothing of the line
                file, _, number = mark.rpartition(":")
                last = Place(file, int(number)) if number.isdigit() else None
            line += rest
        lines.append(line)
        places.append(last)
    return "\n".join(lines), places
