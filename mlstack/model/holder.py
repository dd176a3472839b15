"""Who takes a lock, and what can be said of another who holds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def _never(name: str) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Somebody who takes locks.

    Attributes:
        name: `ada@laptop/4711/9f3c…`: user, machine, process, and what no other process has.
        is_gone: tells whether another name is that of a process of this machine that runs no more;
            false wherever that is not certain.
    """

    name: str = "mlstack"
    is_gone: Callable[[str], bool] = _never


def spoken(name: str) -> str:
    """Name a holder as people do: `ada@laptop (pid 4711)`; what has no such form stays as it is."""
    who, slash, rest = name.partition("/")
    pid = rest.partition("/")[0]
    return f"{who} (pid {pid})" if slash and pid.isdigit() else name
