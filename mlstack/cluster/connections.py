"""Requests over connections that are kept open, by the standard library alone.

A request costs half the processor time of urllib3's, which counts when 300 are sent at once beside an API
server on a small machine: 0.5 instead of 1.0 ms each. The import of a client library would take longer than
writing them all.
"""

from __future__ import annotations

import re
import select
import socket
import ssl
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from http.client import BadStatusLine, HTTPConnection, HTTPException, HTTPResponse, RemoteDisconnected
from threading import Lock, Thread
from typing import Any
from weakref import finalize

from mlstack.cluster import proxying, wire
from mlstack.cluster.proxying import Inner, Proxy
from mlstack.cluster.tls import socket_options
from mlstack.cluster.wire import CONNECT_TIMEOUT_S, CONNECTIONS, FaultError, Received, Sent

_GZIP = 16 + zlib.MAX_WBITS
_ADDRESS = re.compile(
    r"(?P<scheme>https?)://([^/@\s]*@)?(\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s:/?#@\[\]]+))(:(?P<port>\d{1,5}))?"
    r"(?P<path>/[^\s?#]*)?",
    re.IGNORECASE,
)


# No server closes a connection that was used a moment ago, unless it ends.
_SURE_S = 1.0


@dataclass(frozen=True, kw_only=True)
class _Target:
    """The server at the other end."""

    host: str
    port: int
    is_secure: bool
    server_name: str
    proxy: Proxy | None

    @property
    def url(self) -> str:
        """Give its address without TLS, for a proxy that asks it itself."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}" if self.port == 80 else f"http://{host}:{self.port}"


class Connections:
    """Carries requests to one server, each over a connection that no other thread uses meanwhile.

    Args:
        server: its address.
        server_name: the name to verify, where it is not that of the address.
        proxy: what stands in between, None without.
    """

    def __init__(self, server: str, *, server_name: str | None = None, proxy: Proxy | None = None) -> None:
        """Read the address; nothing is sent.

        Raises:
            ValueError: it is none.
        """
        found = _ADDRESS.fullmatch(server)
        if found is None:
            raise ValueError(f"no address: {server}")
        is_secure = found["scheme"].lower() == "https"
        host = found["v6"] or found["name"]
        self._target = _Target(
            host=host,
            port=int(found["port"] or (443 if is_secure else 80)),
            is_secure=is_secure,
            server_name=server_name or host,
            proxy=proxy,
        )
        self._prefix = (found["path"] or "").rstrip("/")
        self._tls: ssl.SSLContext | None = None
        self._lock = Lock()
        self._idle: list[_Connection] = []
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
            raise _fault(error) from (None if type(error) is ValueError else error)
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

    def _connection(self) -> _Connection:
        """Give a connection that nobody uses: the one used last, if the server has not closed it."""
        while True:
            with self._lock:
                kept = self._idle.pop() if self._idle else None
            if kept is None:
                return self._new()
            if kept.is_open():
                return kept
            kept.close()

    def _new(self) -> _Connection:
        """Give a connection that is to be opened; its greeting is short if the server knows us already."""
        with self._lock:
            return _Connection(self._target, tls=self._tls, session=self._session)

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

    def _keep(self, connection: _Connection) -> None:
        with self._lock:
            if connection.tls is self._tls and len(self._idle) < CONNECTIONS:
                connection.rest()
                if self._session is None:  # asking costs as much as a tenth of a request
                    self._session = connection.session
                self._idle.append(connection)
                return
        connection.close()


class _Connection(HTTPConnection):
    """One connection to the server."""

    def __init__(
        self, target: _Target, *, tls: ssl.SSLContext | None, session: ssl.SSLSession | None
    ) -> None:
        super().__init__(target.host, target.port, timeout=CONNECT_TIMEOUT_S)
        self._target, self.tls, self._session = target, tls, session
        self.default_port = 443 if target.is_secure else 80
        self._unsent: list[bytes] = []
        self._used_s = 0.0

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Sent,
        *,
        read_timeout_s: float,
    ) -> HTTPResponse:
        """Send a request and give the head of the answer.

        Header and body leave in one piece: each call into the system costs a turn among all threads.
        """
        if self.sock is None:
            self.connect()
        if self.sock.gettimeout() != read_timeout_s:
            self.sock.settimeout(read_timeout_s)
        if self._target.proxy is not None and not self._target.is_secure:
            path, headers = f"{self._target.url}{path}", {**headers, **self._target.proxy.headers}
        self.request(method, path, body, headers)  # type: ignore[arg-type] # see `putheader`
        super().send(b"".join(self._unsent))
        self._unsent.clear()
        return self.getresponse()

    def send(self, data: Any) -> None:
        """Keep a part of a request until all of it is there."""
        self._unsent.append(data)

    def putheader(self, header: str | bytes, *argument: Any) -> None:
        """Write a header, once for each of its values."""
        for value in argument:
            for one in value if isinstance(value, tuple) else (value,):
                super().putheader(header, one)

    def connect(self) -> None:
        """Connect and greet."""
        try:
            self.sock = self._reached()
            for option in socket_options():
                self.sock.setsockopt(*option)
            if self._target.is_secure:
                self._greet()
        except TimeoutError as error:
            raise wire.unconnected() from error
        except socket.gaierror as error:
            raise wire.unknown_name() from error
        except (ConnectionResetError, ssl.SSLEOFError) as error:
            raise wire.broken() from error
        except ssl.SSLError as error:
            raise wire.untrusted(str(error)) from error
        except OSError as error:
            raise wire.refused((error.strerror or type(error).__name__).lower()) from error

    def _reached(self) -> socket.socket:
        if self._target.proxy is not None:
            return proxying.reach(self._target.proxy, self.tls)
        return socket.create_connection((self.host, self.port), CONNECT_TIMEOUT_S)

    def _greet(self) -> None:
        if self._target.proxy is not None:
            proxying.tunnel(self.sock, self._target.proxy, self.host, self.port)
        if self.tls is None:
            raise ssl.SSLError("nobody is trusted yet")
        name = self._target.server_name
        self.sock = proxying.secured(self.sock, self.tls, name, session=self._session)

    @property
    def session(self) -> ssl.SSLSession | None:
        """Give what the server lets us greet it shortly with, once it has sent it."""
        return self.sock.session if isinstance(self.sock, ssl.SSLSocket | Inner) else None

    def rest(self) -> None:
        """Remember when it was used last."""
        self._used_s = time.monotonic()

    def is_open(self) -> bool:
        """Tell whether the server is still there: before a request there is nothing to read but its end."""
        if time.monotonic() - self._used_s < _SURE_S:
            return True
        try:
            readable, _, _ = select.select([self.sock], [], [], 0)
        except (OSError, ValueError):  # its number may be too high for `select`
            return False
        return not readable


def _close(connections: Iterable[_Connection]) -> None:
    for one in connections:
        one.close()


def _decoded(response: HTTPResponse) -> bytes:
    data = response.read()
    return zlib.decompress(data, _GZIP) if response.headers.get("Content-Encoding") == "gzip" else data


def _chunks(response: HTTPResponse, connection: _Connection) -> Iterator[bytes]:
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


def _fault(error: Exception) -> FaultError:
    """Say why there is no answer."""
    if isinstance(error, FaultError):
        return error
    if isinstance(error, TimeoutError):
        return wire.silent()
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return wire.untrusted(
            str(error)
        )  # servers tell only afterwards what they think of a client's certificate
    if isinstance(error, BadStatusLine) and not isinstance(error, RemoteDisconnected):
        return wire.no_http()
    return wire.unsendable() if isinstance(error, ValueError) else wire.broken()
