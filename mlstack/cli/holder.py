"""Who takes locks from here, and whether another run of this machine is over."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from secrets import token_hex

from mlstack.model.holder import Holder

_PROC = Path("/proc")


def holder(who: str) -> Holder:
    """Name this process so that no other has the same name.

    Where `/proc` tells, the name says which machine (and container) and when the process began: a lock that
    a killed run left behind on this machine is then known to be nobody's.

    Args:
        who: `user@host`.
    """
    pid = os.getpid()
    machine, began = _machine(), _began(pid)
    token = f"{machine}-{began}" if machine and began else token_hex(8)
    return Holder(name=f"{who}/{pid}/{token}", is_gone=_is_gone)


def _is_gone(name: str) -> bool:
    _, _, rest = name.rpartition("@")
    parts = rest.split("/")
    if len(parts) != 3 or not parts[1].isdigit():
        return False
    machine, _, began = parts[2].partition("-")
    return bool(began) and machine == _machine() and _began(int(parts[1])) != began


def _machine() -> str:
    """Tell this machine, since it was booted, and this container on it from all others."""
    try:
        booted = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii")
        processes = (_PROC / "self/ns/pid").readlink()
    except OSError:
        return ""
    return hashlib.sha256(f"{booted.strip()} {processes}".encode()).hexdigest()[:12]


def _began(pid: int) -> str:
    """Give the tick of the clock at which a process began, empty if it does not run."""
    try:
        line = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = line.rpartition(")")[
        2
    ].split()  # the name before may hold anything; field 3, the state, is first
    return "" if fields[0] in "ZXx" else fields[19]
