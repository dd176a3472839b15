"""Messages between the processes: one line of JSON there, one back, over a connection of its own.

Whoever calls, waits: a master or parameter server that is being replaced is back under the same name within
minutes, and nothing is lost by waiting.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from settings import Address

Message = dict[str, Any]
TERMINATED = 128 + signal.SIGTERM
"""Exit code of a process that was told to go: never 0, which says that no work is left."""


class Stopped(Exception):
    """This process was told to go (SIGTERM)."""


def stop_on_sigterm() -> None:
    """Raise `Stopped` in the main thread, wherever it is, when the process is told to go."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Stopped

    signal.signal(signal.SIGTERM, stop)


def call(where: Address, message: Message, *, patience_s: float = 600) -> Message:
    """Send a message and give the answer; try again until somebody answers.

    Raises:
        ConnectionError: nobody answered within `patience_s`.
    """
    end, pause = time.monotonic() + patience_s, 0.02
    while True:
        try:
            return _ask(where, message)
        except (OSError, ValueError) as error:
            if time.monotonic() + pause > end:
                raise ConnectionError(f"no answer from {where[0]}:{where[1]}") from error
        time.sleep(pause)
        pause = min(2.0, pause * 2)


def _ask(where: Address, message: Message) -> Message:
    with socket.create_connection(where, timeout=10) as connection, connection.makefile("rw") as stream:
        stream.write(json.dumps(message) + "\n")
        stream.flush()
        answer: Message = json.loads(stream.readline())
        return answer


def serve(where: Address, answer: Callable[[Message], Message]) -> None:
    """Answer messages, one at a time, until the process is told to go (SIGTERM).

    An empty host is every address, IPv4 and IPv6: pods of some clusters have IPv6 alone.
    """
    turn = threading.Lock()
    told: list[int] = []

    class Connection(socketserver.StreamRequestHandler):
        timeout = 10

        def handle(self) -> None:
            with contextlib.suppress(OSError, ValueError):
                message = json.loads(self.rfile.readline())
                with turn:
                    reply = answer(message)
                self.wfile.write(json.dumps(reply).encode() + b"\n")

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True
        address_family = socket.AF_INET6 if _is_ipv6(where[0]) else socket.AF_INET

        def server_bind(self) -> None:
            if self.address_family == socket.AF_INET6:
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            super().server_bind()

        def service_actions(self) -> None:
            if told:  # not raised by the signal itself: the server would take it for a fault of a connection
                raise Stopped

    signal.signal(signal.SIGTERM, lambda number, _frame: told.append(number))
    with Server(where, Connection) as server, contextlib.suppress(Stopped):
        server.serve_forever(poll_interval=0.1)


def _is_ipv6(host: str) -> bool:
    return ":" in host if host else socket.has_dualstack_ipv6()


def save(file: Path, state: Message) -> None:
    """Replace a file as a whole: whoever reads it sees the old state or the new one, also after a crash."""
    draft = file.with_suffix(".new")
    with draft.open("w") as stream:
        json.dump(state, stream)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(file)
    _sync(file.parent)


def _sync(folder: Path) -> None:
    """Put the names in a folder on disk: after a crash of the node a renaming would be undone."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def load(file: Path) -> Message | None:
    """Give the state that was saved last, None if there is none."""
    if not file.exists():
        return None
    state: Message = json.loads(file.read_text())
    return state
