"""Patterns as Go reads them, which is how the API server does."""

from __future__ import annotations

import re
from functools import cache


@cache
def compiled(pattern: str) -> re.Pattern[str] | None:
    """Compile a pattern of Go; None where Python cannot read it.

    In Go `$` is the end of the text, never the place before a last line break, and digits are ASCII.
    """
    try:
        return re.compile(_translated(pattern), re.ASCII)
    except re.error:
        return None


def _translated(pattern: str) -> str:
    written, in_class, position = "", False, 0
    while position < len(pattern):
        step = 2 if pattern[position] == "\\" else 1
        part = pattern[position : position + step]
        if part == "\\z" or (part == "$" and not in_class):
            part = r"\Z"
        elif part == "[":
            # A bracket that comes first is one of the class: `[]a]`, `[^]a]`.
            lead = re.match(r"\[\^?\]?", pattern[position:]) if not in_class else None
            part, step = (lead[0], len(lead[0])) if lead else (part, step)
            in_class = True
        elif part == "]":
            in_class = False
        written += part
        position += step
    return written
