"""Stand between a client and a server, and let everything take a while: `python -m tests.bench.delay …`.

Bytes are passed on as they are, TLS included, each a fixed time after it came; later bytes do not wait for
earlier ones to be delivered, as on a long line.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.processes import Program, answers, free_port
from tests.support.waiting import wait_until

_CHUNK = 1 << 16


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

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_reader, other_writer = await asyncio.open_connection(host, int(number))
        pumps = (_pump(reader, other_writer, delay_s), _pump(other_reader, writer, delay_s))
        await asyncio.gather(*pumps)

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    await server.serve_forever()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
    sender = asyncio.create_task(_send(queue, writer))
    clock = asyncio.get_running_loop().time
    data = b"begin"
    while data:
        try:
            data = await reader.read(_CHUNK)
        except OSError:
            data = b""
        queue.put_nowait((clock() + delay_s, data))
    await sender


async def _send(queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
    clock = asyncio.get_running_loop().time
    with suppress(OSError):
        while True:
            due_s, data = await queue.get()
            await asyncio.sleep(max(0.0, due_s - clock()))
            if not data:
                break
            writer.write(data)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
