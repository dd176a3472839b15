"""One connection to an API server: made, greeted, asked, and why it gave no answer."""

from __future__ import annotations

import io
import socket
import ssl
import time
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead, RemoteDisconnected
from typing import Any

from mlstack.cluster import wire
from mlstack.cluster.tls import socket_options
from mlstack.cluster.wire import CONNECT_TIMEOUT_S, MOST_HEAD_BYTES, FaultError, Sent

# An answer that comes at once needs no second look at the clock of its socket.
_UNHEEDED_S = 0.5


@dataclass(frozen=True, kw_only=True)
class Target:
    """The server at the other end.

    Attributes:
        host: its name or number.
        port: its port.
        is_secure: whether it is spoken to over TLS.
        server_name: the name that is verified.
    """

    host: str
    port: int
    is_secure: bool
    server_name: str


class _Bounded(io.RawIOBase):
    """What a server sends of one answer: the time limit of its socket is that of all of it; it has a size."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._sock, self._raw = sock, sock.makefile("rb", buffering=0)
        self._timeout_s = sock.gettimeout()
        self._begun_s = time.monotonic()
        self._came = False
        self.left = MOST_HEAD_BYTES

    def makefile(self, mode: str) -> io.BufferedReader:
        """Give it as the file that an HTTPResponse reads."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        passed_s = time.monotonic() - self._begun_s
        try:
            if self._timeout_s is not None and passed_s > _UNHEEDED_S:
                if passed_s >= self._timeout_s:
                    raise TimeoutError
                self._sock.settimeout(self._timeout_s - passed_s)
            count = self._raw.readinto(buffer) or 0
        except TimeoutError as error:
            if self._came and error.errno is None:
                raise wire.slow(self._timeout_s or 0.0) from None
            raise
        self._came = True
        self.left -= count
        if self.left < 0:
            raise wire.too_long()
        return count

    def close(self) -> None:
        super().close()
        self._raw.close()


class Response(HTTPResponse):
    """An answer that is read within its bounds."""

    def __init__(self, sock: socket.socket, *more: Any, **named: Any) -> None:
        self._source = _Bounded(sock)
        super().__init__(self._source, *more, **named)  # type: ignore[arg-type] # it wants the file alone

    def begin(self) -> None:
        """Read the head."""
        super().begin()
        if not self.chunked:
            wire.check_length(self.headers.get_all("Content-Length") or ())

    def _read_and_discard_trailer(self) -> None:
        self._source.left = MOST_HEAD_BYTES
        super()._read_and_discard_trailer()  # type: ignore[misc] # the library's own step
        self._source.left = wire.MOST_BYTES


class Connection(HTTPConnection):
    """One connection to a server.

    Args:
        target: the server.
        tls: how it is greeted; None only where it is not spoken to over TLS.
        session: what an earlier greeting left, to make this one short.
    """

    response_class = Response

    def __init__(self, target: Target, *, tls: ssl.SSLContext | None, session: ssl.SSLSession | None) -> None:
        super().__init__(target.host, target.port, timeout=CONNECT_TIMEOUT_S)
        self._target, self.tls, self._session = target, tls, session
        self.default_port = 443 if target.is_secure else 80
        self._unsent: list[bytes] = []

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Sent,
        *,
        read_timeout_s: float,
    ) -> HTTPResponse:
        """Send a request and give the head of the answer; all of that is to come within `read_timeout_s`.

        Header and body leave in one piece: each call into the system costs a turn among all threads.
        """
        if self.sock is None:
            self.connect()
        if self.sock.gettimeout() != read_timeout_s:
            self.sock.settimeout(read_timeout_s)
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
            self.sock = socket.create_connection((self.host, self.port), CONNECT_TIMEOUT_S)
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

    def _greet(self) -> None:
        if self.tls is None:
            raise ssl.SSLError("nobody is trusted yet")
        name = self._target.server_name
        _check_connected(self.sock)
        self.sock = self.tls.wrap_socket(self.sock, server_hostname=name, session=self._session)

    @property
    def session(self) -> ssl.SSLSession | None:
        """Give what the server lets us greet it shortly with; it sends it after the greeting."""
        session = self.sock.session if isinstance(self.sock, ssl.SSLSocket) else None
        return session if session is not None and session.has_ticket else None

    def is_open(self) -> bool:
        """Tell whether the server is still there: before a request there is nothing to read but its end.

        Over TLS there may be tickets to greet it shortly with; reading takes them in.
        """
        try:
            self.sock.settimeout(0)
            self.sock.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False  # its end, or what nobody asked for


def _check_connected(sock: socket.socket) -> None:
    """Return if the other end is there still: `ssl` of Python 3.11 leaves a reset socket open.

    Raises:
        ConnectionResetError: it is not.
    """
    try:
        sock.getpeername()
    except OSError as error:
        raise ConnectionResetError("ended before the greeting") from error


def fault(error: Exception) -> FaultError:
    """Say why there is no answer."""
    if isinstance(error, FaultError):
        return error
    if isinstance(error, TimeoutError) and error.errno is None:  # else the system gave the connection up
        return wire.silent()
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return wire.untrusted(
            str(error)
        )  # servers tell only afterwards what they think of a client's certificate
    if isinstance(error, HTTPException) and not isinstance(error, RemoteDisconnected | IncompleteRead):
        return wire.no_http()
    return wire.unsendable() if isinstance(error, ValueError) else wire.broken()
