"""The only door to RE2: patterns as Go reads them, which is how the API server does.

Patterns come with packages and definitions, and Python's `re` lets one of them take longer than the universe
lasts. RE2's time grows with the text alone. (`regex` has a time limit for matching, but none for compiling:
`((((a{100}){100}){100}){100})` took it 35 s and 4 GB.) It is imported on first use, which takes 20 ms.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

LONGEST = 4096
"""Characters of a pattern."""
# What a JSON Schema may say and RE2 writes otherwise. `$` is the end of a text, never the place before a last
# line break: patterns made for Python's `re` say so in these ways.
_WRITTEN_OTHERWISE = re.compile(r"\$\(\?!\\n\)|\\Z|\\u([0-9a-fA-F]{4})|\\(?s:.)")


def matches(pattern: str, text: str) -> bool | None:
    """Tell whether a pattern occurs in a text; None where the pattern is none that RE2 can read."""
    compiled = _compiled(pattern)
    if compiled is None:
        return None
    try:
        return compiled.search(text) is not None
    except UnicodeError:  # half a surrogate pair
        return None


def is_readable(pattern: str) -> bool:
    """Tell whether RE2 reads a pattern: neither too large, nor with look-around or back references."""
    return _compiled(pattern) is not None


@cache
def _compiled(pattern: str) -> Any:
    import re2

    if len(pattern) > LONGEST:
        return None
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        return re2.compile(_WRITTEN_OTHERWISE.sub(_as_re2, pattern), options)
    except (re2.error, UnicodeError):
        return None


def _as_re2(found: re.Match[str]) -> str:
    if found[1]:
        return rf"\x{{{found[1]}}}"
    return {r"$(?!\n)": "$", r"\Z": r"\z"}.get(found[0], found[0])
