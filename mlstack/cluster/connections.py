"""Requests over connections that are kept open, by the standard library alone.

A request costs half the processor time of urllib3's, which counts when 300 are sent at once beside an API
server on a small machine: 0.5 instead of 1.0 ms each. The import of a client library would take longer than
writing them all.
"""

from __future__ import annotations

import ssl
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from http.client import HTTPException, HTTPResponse, IncompleteRead
from threading import Lock, Thread
from weakref import finalize

from mlstack.cluster.connection import Connection, Target, fault
from mlstack.cluster.wire import CONNECTIONS, MOST_BYTES, FaultError, Received, Sent, too_long
from mlstack.model.login import address, host_name

_GZIP = 16 + zlib.MAX_WBITS
_PIECE = 1 << 20


class Connections:
    """Carries requests to one server, each over a connection that no other thread uses meanwhile.

    Args:
        server: its address.
        server_name: the name to verify, where it is not that of the address.
        packed: whether answers may come packed.
    """

    def __init__(self, server: str, *, server_name: str | None = None, packed: bool = True) -> None:
        """Read the address; nothing is sent.

        Raises:
            ValueError: it is none.
        """
        there = address(server)
        name = host_name(server_name).removesuffix(".") if server_name else there.host.removesuffix(".")
        self._target = Target(host=there.host, port=there.port, is_secure=there.is_secure, server_name=name)
        self._prefix, self._packed = there.path, packed
        self._tls: ssl.SSLContext | None = None
        self._lock = Lock()
        self._idle: list[Connection] = []
        self._opening = 0
        self._session: ssl.SSLSession | None = None
        finalize(self, _close, self._idle)

    def expect(self, requests: int) -> None:
        """Begin to connect, so that so many requests at once find connections that are open."""
        with self._lock:
            missing = min(requests, CONNECTIONS) - len(self._idle) - self._opening
            self._opening += max(0, missing)
        for _ in range(missing):
            Thread(target=self._open_ahead, name="mlstack-connect", daemon=True).start()

    def use(self, tls: ssl.SSLContext) -> None:
        """Greet the server in this way from now on; what is kept of another way is given up."""
        with self._lock:
            self._tls, self._session = tls, None
        self._forget()

    def send(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None,
        headers: Sent,
        read_timeout_s: float,
        whole: bool,
    ) -> Received:
        """Send a request and wait for the answer."""
        connection = self._connection()
        try:
            coding = {"Accept-Encoding": "gzip" if whole and self._packed else "identity"}
            response = connection.ask(
                method, f"{self._prefix}{path}", body, {**headers, **coding}, read_timeout_s=read_timeout_s
            )
            whole = whole or response.status != 200
            try:
                data = _body(response) if whole else b""
            except BaseException:
                response.close()
                raise
        except (FaultError, HTTPException, OSError, ValueError, zlib.error) as error:
            connection.close()
            self._forget()
            # What is wrong with a header repeats it, a token included.
            raise fault(error) from (None if type(error) is ValueError else error)
        except BaseException:  # a person interrupts: what is half read is of no use
            connection.close()
            raise
        if whole and response.will_close:
            connection.close()
        elif whole:
            self._keep(connection)
        return Received(
            status=response.status,
            headers=response.headers,
            warnings=response.headers.get_all("Warning") or (),
            data=data,
            chunks=partial(_chunks, response, connection),
            close=partial(_end, response, connection) if not whole else _nothing,
        )

    def _connection(self) -> Connection:
        """Give a connection that nobody uses: the one used last, if the server has not closed it."""
        while True:
            with self._lock:
                kept = self._idle.pop() if self._idle else None
            if kept is None:
                return self._new()
            if kept.is_open():
                return kept
            kept.close()

    def _new(self) -> Connection:
        """Give a connection that is to be opened; its greeting is short if the server knows us already."""
        with self._lock:
            return Connection(self._target, tls=self._tls, session=self._session)

    def _open_ahead(self) -> None:
        connection = self._new()
        try:
            connection.connect()
        except (FaultError, OSError, ValueError):  # the next request tells what is wrong
            connection.close()
        else:
            self._keep(connection)
        finally:
            with self._lock:
                self._opening -= 1

    def _forget(self) -> None:
        """Give up what is kept: a server that ended one connection, as at a restart, has ended them all."""
        with self._lock:
            kept, self._idle[:] = list(self._idle), []
        _close(kept)

    def _keep(self, connection: Connection) -> None:
        with self._lock:
            if connection.tls is self._tls and len(self._idle) < CONNECTIONS:
                if self._session is None:  # asking costs as much as a tenth of a request
                    self._session = connection.session
                self._idle.append(connection)
                return
        connection.close()


def _close(connections: Iterable[Connection]) -> None:
    for one in connections:
        one.close()


def _body(response: HTTPResponse) -> bytes:
    """Read an answer to its end, and unpack it; as much as it may have."""
    pieces = _unpacked(response) if _is_packed(response) else _pieces(response)
    kept, size = [], 0
    for piece in pieces:
        kept.append(piece)
        size += len(piece)
        if size > MOST_BYTES:
            raise too_long()
    return kept[0] if len(kept) == 1 else b"".join(kept)


def _is_packed(response: HTTPResponse) -> bool:
    return (response.headers.get("Content-Encoding") or "").lower() == "gzip"


def _pieces(response: HTTPResponse) -> Iterator[bytes]:
    while piece := response.read(_PIECE):
        yield piece
    if response.length:
        raise IncompleteRead(b"", response.length)


def _unpacked(response: HTTPResponse) -> Iterator[bytes]:
    """Unpack an answer, which may be packed in parts, a piece at a time, however large it becomes."""
    part = zlib.decompressobj(_GZIP)
    for piece in _pieces(response):
        while piece:
            if part.eof:
                part = zlib.decompressobj(_GZIP)
            yield part.decompress(piece, _PIECE)
            piece = part.unconsumed_tail or part.unused_data
    if not part.eof:
        raise IncompleteRead(b"")


def _chunks(response: HTTPResponse, connection: Connection) -> Iterator[bytes]:
    try:
        while data := response.read1(1 << 16):
            yield data
    except (FaultError, HTTPException, OSError, ValueError):
        # A stream ends in many ways (server restarted, a proxy's limit, silence): all mean "watch again".
        return
    finally:
        _end(response, connection)


def _end(response: HTTPResponse, connection: Connection) -> None:
    """Close both: of an answer that is the last of its connection the connection knows no more."""
    connection.close()
    response.close()


def _nothing() -> None:
    """Leave a connection open that others may use by now."""
