"""The way through a proxy to an API server: whom to call, what to say there, and TLS inside of TLS."""

from __future__ import annotations

import base64
import io
import re
import socket
import ssl
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from typing import Any

from mlstack.cluster import socks
from mlstack.cluster.wire import CONNECT_TIMEOUT_S, FaultError
from mlstack.errors import ClusterError
from mlstack.model.login import Login

_URL = re.compile(
    r"(?P<scheme>https?|socks5h?)://((?P<person>[^/@]*)@)?"
    r"(\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s:/?#@\[\]]+))(:(?P<port>\d{1,5}))?/?",
    re.IGNORECASE,
)
_QUOTED = re.compile(rb"%([0-9A-Fa-f]{2})")
_PIECE = 1 << 16
_PORTS = {"http": 80, "https": 443, "socks5": 1080}


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """A proxy.

    Attributes:
        scheme: how it is spoken to: `http`, `https` or `socks5`.
        host: its name or number.
        port: its port.
        person: our name and password there, a colon between them; None if it does not want to know.
    """

    scheme: str
    host: str
    port: int
    person: bytes | None = field(default=None, repr=False)

    @property
    def asks_itself(self) -> bool:
        """Tell whether it reads requests to servers without TLS, and sends them on."""
        return self.scheme != "socks5"

    @property
    def headers(self) -> dict[str, str]:
        """Give what a request to the proxy itself carries."""
        if self.person is None:
            return {}
        return {"Proxy-Authorization": f"Basic {base64.b64encode(self.person).decode()}"}


def read(login: Login) -> Proxy | None:
    """Read the proxy of a login; None if the server is reached directly.

    Raises:
        ClusterError: it is one that we cannot speak to.
    """
    if not login.proxy:
        return None
    found = _URL.fullmatch(login.proxy)
    if found is None:
        raise ClusterError(
            f"{login.label} is reached through a proxy that mlstack does not speak to: "
            "only http://, https:// and socks5://",
            hint="set `proxy-url` of its cluster, or HTTPS_PROXY",
        )
    scheme = found["scheme"].lower().removesuffix("h")  # names are looked up by the proxy in any case
    return Proxy(
        scheme=scheme,
        host=found["v6"] or found["name"],
        port=int(found["port"] or _PORTS[scheme]),
        person=None if found["person"] is None else _unquoted(found["person"]),
    )


def reach(proxy: Proxy, tls: ssl.SSLContext | None) -> socket.socket:
    """Connect to a proxy.

    Args:
        proxy: whom to call.
        tls: how it is verified over TLS: by those who vouch for the server, as with kubectl.

    Raises:
        FaultError: it does not answer.
    """
    try:
        found = socket.create_connection((proxy.host, proxy.port), CONNECT_TIMEOUT_S)
        if proxy.scheme != "https":
            return found
        context = tls or ssl.create_default_context()
        return context.wrap_socket(found, server_hostname=proxy.host)
    except (OSError, ValueError) as error:
        raise _fault() from error


def tunnel(found: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Ask a proxy to connect us to a server.

    Raises:
        FaultError: it does not.
    """
    try:
        if proxy.scheme == "socks5":
            socks.connect(found, host, port, person=proxy.person)
            return
        status = _connected(found, proxy, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    except (HTTPException, OSError, ValueError) as error:
        raise _fault() from error
    if status != 200:
        raise _fault(f" (HTTP {status})")


def _connected(found: socket.socket, proxy: Proxy, place: str) -> int:
    lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
    lines += [f"{name}: {value}" for name, value in proxy.headers.items()]
    found.sendall("\r\n".join([*lines, "", ""]).encode("ascii"))
    response = HTTPResponse(found, method="CONNECT")
    response.begin()
    response.close()
    return response.status


def secured(
    found: socket.socket, tls: ssl.SSLContext, server_name: str, *, session: ssl.SSLSession | None
) -> Any:
    """Greet the server at the other end of a connection, which may be inside TLS already.

    Raises:
        OSError: as `ssl` does.
    """
    if isinstance(found, ssl.SSLSocket):
        return Inner(found, tls, server_name, session=session)
    return tls.wrap_socket(found, server_hostname=server_name, session=session)


class Inner:
    """A TLS connection inside of another one: so much of a socket as `http.client` needs.

    Args:
        outer: the connection that carries it.
        tls: how the server is verified.
        server_name: the name that is verified.
        session: what an earlier greeting left, to make this one short.
    """

    def __init__(
        self, outer: ssl.SSLSocket, tls: ssl.SSLContext, server_name: str, *, session: ssl.SSLSession | None
    ) -> None:
        """Greet the server."""
        self._outer = outer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name, session=session)
        self._readers = 0
        self._is_closed = False
        self._until_done(self._tls.do_handshake)

    @property
    def session(self) -> ssl.SSLSession | None:
        """Give what makes the next greeting short."""
        return self._tls.session

    def sendall(self, data: bytes) -> None:
        """Send all of it."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._until_done(self._tls.write, rest[:_PIECE]) :]

    def recv_into(self, buffer: Any) -> int:
        """Read what is there, at least a byte unless the server has ended."""
        try:
            count: int = self._until_done(self._tls.read, len(buffer), buffer)
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return 0
        return count

    def makefile(self, mode: str) -> io.BufferedReader:
        """Give a file that reads from it."""
        self._readers += 1
        return io.BufferedReader(_Reader(self))

    def gettimeout(self) -> float | None:
        """Give how long is waited for the other side, in seconds."""
        return self._outer.gettimeout()

    def settimeout(self, timeout_s: float | None) -> None:
        """Say how long to wait for the other side."""
        self._outer.settimeout(timeout_s)

    def fileno(self) -> int:
        """Give the number by which the system knows it."""
        return self._outer.fileno()

    def close(self) -> None:
        """End it as soon as nobody reads any more."""
        self._is_closed = True
        if self._readers <= 0:
            self._outer.close()

    def unread(self) -> None:
        """Count one reader less."""
        self._readers -= 1
        if self._is_closed:
            self.close()

    def _until_done(self, step: Any, *arguments: Any) -> Any:
        """Take a step of TLS, and carry between both layers what it needs for that."""
        while True:
            try:
                result = step(*arguments)
            except ssl.SSLWantReadError:
                self._send()
                data = self._outer.recv(_PIECE)
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            else:
                self._send()
                return result

    def _send(self) -> None:
        if data := self._outgoing.read():
            self._outer.sendall(data)


class _Reader(io.RawIOBase):
    """Reads from an inner connection."""

    def __init__(self, inner: Inner) -> None:
        self._inner = inner

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._inner.recv_into(buffer)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._inner.unread()


def _unquoted(text: str) -> bytes:
    return _QUOTED.sub(lambda found: bytes.fromhex(found[1].decode()), text.encode())


def _fault(more: str = "") -> FaultError:
    hint = "check `proxy-url` of the context and HTTPS_PROXY"
    return FaultError(f"the proxy does not connect{more}", hint=hint)
