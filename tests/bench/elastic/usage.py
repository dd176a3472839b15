"""What a process has used so far, as the kernel counts it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a process has used.

    Attributes:
        cpu_s: processor time, in seconds.
        peak_mib: the most memory it held, in MiB.
    """

    cpu_s: float
    peak_mib: int


def usage_of(pid: int) -> Usage:
    """Read what a running process of this machine has used."""
    folder = Path(f"/proc/{pid}")
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    lines = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    return Usage(cpu_s=ticks / os.sysconf("SC_CLK_TCK"), peak_mib=int(lines["VmHWM"].split()[0]) // 1024)
