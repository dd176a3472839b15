"""Requests over connections that are kept open, by the standard library alone.

A request costs half the processor time of urllib3's, which counts when 300 are sent at once beside an API
server on a small machine: 0.5 instead of 1.0 ms each. The import of a client library would take longer than
writing them all.
"""

from __future__ import annotations

import re
import ssl
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from http.client import HTTPException, HTTPResponse
from threading import Lock, Thread
from weakref import finalize

from mlstack.cluster.connection import Connection, Target, fault
from mlstack.cluster.wire import CONNECTIONS, FaultError, Received, Sent

_GZIP = 16 + zlib.MAX_WBITS
_ADDRESS = re.compile(
    r"(?P<scheme>https?)://([^/@\s]*@)?(\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s:/?#@\[\]]+))(:(?P<port>\d{1,5}))?"
    r"(?P<path>/[^\s?#]*)?",
    re.IGNORECASE,
)


class Connections:
    """Carries requests to one server, each over a connection that no other thread uses meanwhile.

    Args:
        server: its address.
        server_name: the name to verify, where it is not that of the address.
    """

    def __init__(self, server: str, *, server_name: str | None = None) -> None:
        """Read the address; nothing is sent.

        Raises:
            ValueError: it is none.
        """
        found = _ADDRESS.fullmatch(server)
        if found is None:
            raise ValueError(f"no address: {server}")
        is_secure = found["scheme"].lower() == "https"
        host = found["v6"] or found["name"]
        self._target = Target(
            host=host,
            port=int(found["port"] or (443 if is_secure else 80)),
            is_secure=is_secure,
            server_name=server_name or host,
        )
        self._prefix = (found["path"] or "").rstrip("/")
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
            coding = {"Accept-Encoding": "gzip" if whole else "identity"}
            response = connection.ask(
                method, f"{self._prefix}{path}", body, {**headers, **coding}, read_timeout_s=read_timeout_s
            )
            whole = whole or response.status != 200
            data = _decoded(response) if whole else b""
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
            close=connection.close if not whole else _nothing,
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
        except FaultError:  # the next request tells what is wrong
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
                connection.rest()
                if self._session is None:  # asking costs as much as a tenth of a request
                    self._session = connection.session
                self._idle.append(connection)
                return
        connection.close()


def _close(connections: Iterable[Connection]) -> None:
    for one in connections:
        one.close()


def _decoded(response: HTTPResponse) -> bytes:
    data = response.read()
    return zlib.decompress(data, _GZIP) if response.headers.get("Content-Encoding") == "gzip" else data


def _chunks(response: HTTPResponse, connection: Connection) -> Iterator[bytes]:
    try:
        while data := response.read1(1 << 16):
            yield data
    except (HTTPException, OSError, ValueError):
        # A stream ends in many ways (server restarted, a proxy's limit, silence): all mean "watch again".
        return
    finally:
        connection.close()


def _nothing() -> None:
    """Leave a connection open that others may use by now."""
