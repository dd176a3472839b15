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


Places = list[tuple[Place | None, Place | None]]


def mark_of(file: str, line: int) -> str:
    """Write the mark of a line, to stand before its text."""
    return f"{_OPEN}{file}:{line}{_CLOSE}"


def unmarked(text: str, file: str) -> tuple[str, Places]:
    """Take the marks out of a text.

    Returns:
        The text; for each of its lines the place in `file`, and the place in whichever file.
    """
    lines: list[str] = []
    places: Places = []
    own: Place | None = None
    last: Place | None = None
    for marked in text.split("\n"):
        first, *parts = marked.split(_OPEN)
        line = first
        for part in parts:
            mark, _, rest = part.partition(_CLOSE)
            if not line.strip():  # what comes after the first visible character says nothing of the line
                name, _, number = mark.rpartition(":")
                last = Place(name, int(number)) if number.isdigit() else None
                own = last if last and last.file == file else own
            line += rest
        lines.append(line)
        places.append((own, last))
    return "\n".join(lines), places
