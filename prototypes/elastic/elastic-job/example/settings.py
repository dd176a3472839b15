"""What the controller tells a process through its environment."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

Address = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where the others are, and how this job wants to be run.

    Attributes:
        master: address of the master.
        pservers: addresses of all parameter servers, in the order of their index.
        index: which parameter server this process is.
        bind: address to serve on.
        passes: how often every task is to be done.
        tasks: how many pieces the data has.
        lease_s: time that a trainer has for a task.
        failure_limit: failures of a task in one pass above which it is left out of the pass.
        folder: where state survives a restart.
        checkpoint_s: time between two checkpoints.
    """

    master: Address
    pservers: tuple[Address, ...]
    index: int
    bind: str
    passes: int
    tasks: int
    lease_s: float
    failure_limit: int
    folder: Path
    checkpoint_s: float


def read(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings; what has no default is set by the controller."""
    pservers = environ.get("MLSTACK_PSERVER_ADDRS", "")
    return Settings(
        master=address(environ["MLSTACK_MASTER_ADDR"]),
        pservers=tuple(address(each) for each in pservers.split(",") if each),
        index=int(environ.get("MLSTACK_INDEX") or ordinal(socket.gethostname())),
        bind=environ.get("MLSTACK_BIND", ""),
        passes=int(environ.get("MLSTACK_PASSES", "1")),
        tasks=int(environ.get("MLSTACK_TASKS", "64")),
        lease_s=float(environ.get("MLSTACK_LEASE_SECONDS", "16")),
        failure_limit=int(environ.get("MLSTACK_TASK_FAILURE_LIMIT", "3")),
        folder=Path(environ.get("MLSTACK_CHECKPOINT_DIR") or Path(tempfile.gettempdir()) / "checkpoint"),
        checkpoint_s=float(environ.get("MLSTACK_CHECKPOINT_SECONDS", "600")),
    )


def address(text: str) -> Address:
    """Read `host:port`."""
    host, _, port = text.strip().rpartition(":")
    return host, int(port)


def ordinal(name: str) -> int:
    """Give the index at the end of the name of a StatefulSet's pod, 0 if there is none."""
    _, _, last = name.split(".")[0].rpartition("-")
    return int(last) if last.isdigit() else 0
