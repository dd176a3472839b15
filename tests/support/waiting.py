"""Wait for something to become true, with a limit and a message that says what was waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def wait_until(
    probe: Callable[[], Found | None],
    *,
    what: str,
    timeout_s: float = 30.0,
    interval_s: float = 0.1,
    details: Callable[[], object] | None = None,
) -> Found:
    """Give the first true answer of `probe`.

    Args:
        probe: asked again and again; anything false means not yet.
        what: completes "waited in vain for ..." in the message.
        timeout_s: seconds after which it is given up.
        interval_s: seconds between two questions.
        details: asked at the end for what the message should add.

    Raises:
        AssertionError: the time is up.
    """
    deadline = time.monotonic() + timeout_s
    while not (value := probe()):
        if time.monotonic() > deadline:
            added = f"\n{details()}" if details else ""
            raise AssertionError(f"waited {timeout_s:.0f} s in vain for {what}{added}")
        time.sleep(interval_s)
    return value
