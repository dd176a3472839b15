"""Stand between a client and a server, and let everything take a while: `python -m tests.bench.delay …`.

Bytes are passed on as they are, TLS included, each a fixed time after it came; later bytes do not wait for
earlier ones to be delivered, as on a long line.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import Program, answers, free_port
from tests.support.waiting import wait_until


@contextmanager
def delayed(server: str, delay_s: float, *, log: Path) -> Iterator[str]:
    """Give the address of a server whose bytes take `delay_s` longer, each way.

    Args:
        server: `https://127.0.0.1:6443`.
        delay_s: seconds.
        log: what the program in between prints.
    """
    scheme, _, address = server.partition("://")
    port = free_port()
    command = [sys.executable, "-m", "tests.bench.delay", str(port), address, str(delay_s)]
    program = Program("delay", command, log=log, cwd=Path(__file__).parents[2])
    program.start()
    try:
        wait_until(lambda: answers(port), timeout_s=30, what="the delaying proxy")
        yield f"{scheme}://127.0.0.1:{port}"
    finally:
        program.kill()


async def serve(port: int, address: str, delay_s: float) -> None:
    """Take connections until the process ends."""
    host, _, number = address.rpartition(":")
    loop = asyncio.get_running_loop()

    async def joined(near: _End) -> None:
        _, far = await loop.create_connection(lambda: _End(delay_s), host, int(number))
        near.meet(far)
        far.meet(near)

    def taken() -> _End:
        near = _End(delay_s)
        tasks.add(task := loop.create_task(joined(near)))
        task.add_done_callback(tasks.discard)
        return near

    tasks: set[asyncio.Task[None]] = set()
    server = await loop.create_server(taken, "127.0.0.1", port)
    await server.serve_forever()


class _End(asyncio.Protocol):
    """One end of a line: what it hears, the other end says a while later.

    Protocols and timers, no streams and tasks: on a small machine this program must not be what is measured.
    """

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._loop = asyncio.get_running_loop()
        self._heard: deque[bytes] = deque()
        self._wire: asyncio.Transport | None = None
        self._other: _End | None = None

    def meet(self, other: _End) -> None:
        """Begin to hand on."""
        self._other = other
        for _ in range(len(self._heard)):
            self._loop.call_later(self._delay_s, self._hand_on)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take note of the wire."""
        assert isinstance(transport, asyncio.Transport)
        self._wire = transport

    def data_received(self, data: bytes) -> None:
        """Keep what was heard until it is due."""
        self._heard.append(data)
        if self._other is not None:
            self._loop.call_later(self._delay_s, self._hand_on)

    def connection_lost(self, error: Exception | None) -> None:
        """Let the other end hear the end of it."""
        self.data_received(b"")

    def _hand_on(self) -> None:
        # Timers that are due at the same moment come in any order; what was heard does not.
        data, wire = self._heard.popleft(), self._other._wire if self._other else None
        if wire is None or wire.is_closing():
            return
        if data:
            wire.write(data)
        else:
            wire.close()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
