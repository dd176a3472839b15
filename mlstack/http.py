"""Connections to one server over urllib3: kept, with limits of time and size, every fault in a few words."""

from __future__ import annotations

import base64
import errno
import hashlib
import io
import math
import re
import socket
import ssl
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from email.utils import parsedate_to_datetime
from http.client import HTTPException, HTTPResponse, IncompleteRead, RemoteDisconnected
from itertools import islice
from threading import Lock, Thread
from typing import Any, Literal

from urllib3 import HTTPHeaderDict, PoolManager, ProxyManager, Timeout, disable_warnings
from urllib3 import exceptions as urllib3_errors
from urllib3.util import parse_url

from mlstack.addresses import Address, Endpoint, address, host_name, unquote
from mlstack.clock import backoff
from mlstack.dataclass import dataclass
from mlstack.objects import masking

CONNECT_TIMEOUT_S = 10.0
CONNECTIONS = 32
"""How many connections are kept for the next request: as many as ever write and wait at once."""
PATIENCE_S = 30.0
"""How long one request goes on when the server asks it to come again later."""
MOST_BYTES = 128 << 20
"""How much an answer may have, as it comes and unpacked: ten times of what a large cluster lists at once."""
MOST_HEAD_BYTES = 1 << 20
"""How much may come before the body of an answer."""
_LONGEST_LINE = 16 << 20
_PIECE = 1 << 16

Sent = Mapping[str, "str | tuple[str, ...]"]
"""Headers to send by name; those that have several values are sent several times."""

_ODD_LENGTH = "it does not speak HTTP: the Content-Length of its answer is no number"


About = Literal["address", "tls", "proxy", "load", "credentials", "connection"]
"""What is to be looked at when there is no answer."""


class NoAnswerError(Exception):
    """Raised when there is no answer: why in a few words, and what it is about.

    A connection that is `broken` ended after it was made: the server may or may not have seen the request.
    """

    def __init__(self, text: str, *, about: About = "address", broken: bool = False) -> None:
        super().__init__(text)
        self.text, self.about, self.broken = text, about, broken


# --- connections ---


class _AnswerSource(io.RawIOBase):
    """What a server sends of one answer: the time limit of its socket is that of all of it; it has a size."""

    def __init__(self, sock: Any) -> None:
        super().__init__()
        self._sock, self._raw = sock, sock.makefile("rb", buffering=0)
        self._timeout_s: float | None = sock.gettimeout()
        self._begun_s = time.monotonic()
        self._came = False
        self.is_endless = False  # the limit is one of silence alone: what it sends is handed on as it comes
        self.bytes_left: float = MOST_HEAD_BYTES

    def makefile(self, mode: str) -> io.BufferedReader:
        """Give it as the file that an HTTPResponse reads."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        passed_s = time.monotonic() - self._begun_s
        try:
            if self._timeout_s is not None and passed_s > 0.5:  # what comes at once needs no other limit
                if passed_s >= self._timeout_s:
                    raise TimeoutError
                self._sock.settimeout(self._timeout_s - passed_s)
            count = self._raw.readinto(buffer) or 0
        except TimeoutError as error:
            if self._came and error.errno is None:
                text = f"its answer did not end within {self._timeout_s or 0:g} s"
                raise NoAnswerError(text, about="load") from None
            raise
        self._came = True
        if self.is_endless:
            self._begun_s = time.monotonic()
        self.bytes_left -= count
        if self.bytes_left < 0:
            raise NoAnswerError(_too_long())
        return count

    def close(self) -> None:
        super().close()
        self._raw.close()


class _BoundedConnection:
    """What is laid over urllib3's connections: answers have bounds, and what the server ended is not kept."""

    sock: Any
    source: _AnswerSource

    def response_class(self, sock: Any, **named: Any) -> HTTPResponse:
        """Read an answer within its bounds; the body gets its own once the head is there."""
        self.source = _AnswerSource(sock)
        return HTTPResponse(self.source, **named)  # type: ignore[arg-type] # it wants the file alone

    def connect(self) -> None:
        try:
            super().connect()  # type: ignore[misc] # urllib3's
        except TimeoutError as error:  # of the greeting
            raise urllib3_errors.ConnectTimeoutError(self, "no greeting") from error

    @property
    def is_connected(self) -> bool:
        """Tell whether the server is still there: before a request there is nothing to read but its end.

        Over TLS 1.3 there may be session tickets too, which urllib3 would take for the end; reading takes
        them in.
        """
        if not isinstance(self.sock, ssl.SSLSocket):
            return bool(super().is_connected)  # type: ignore[misc] # urllib3's
        try:
            self.sock.settimeout(0)
            self.sock.recv(1)
        except ssl.SSLWantReadError:
            return True
        except OSError:
            return False
        return False  # its end, or what nobody asked for


def basic(user: str, password: str) -> str:
    """Give the header of a name and a password, which is masked from now on."""
    masking.note(password, f"{user}:{password}".encode())
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


@dataclass(frozen=True, kw_only=True)
class Response:
    """An answer; `raw` gives the rest of one that was not read `whole`."""

    status: int
    headers: HTTPHeaderDict
    data: bytes
    raw: Any
    body: Any = None  # its JSON, or the text where it is none
    repeated: bool = False  # the request was sent once before, and nobody knows what became of that

    @property
    def content_type(self) -> str:
        """Give the type of the body."""
        return str(self.headers.get("Content-Type") or "")


class ConnectionPool:
    """Connections to the server of a login, directly or through its proxy; safe for many threads.

    Raises:
        ValueError: the address of the server is none.
        NoAnswerError: the proxy is one that we cannot speak to.
    """

    def __init__(self, login: Endpoint) -> None:
        self.address = address(login.server)
        # Who we are stands in the headers: what the address says of it is nothing for a proxy.
        self._origin = replace(self.address, path="").url
        self._packed, self.is_proxied = login.packed, bool(login.proxy)
        self._server_name = host_name(login.server_name).removesuffix(".") if login.server_name else None
        self._new_manager = _manager_of(login)
        self._manager = self._new_manager()
        self._lock, self._opening = Lock(), 0
        if not login.verify:
            disable_warnings(urllib3_errors.InsecureRequestWarning)

    def use(self, tls: ssl.SSLContext) -> None:
        """Greet server and proxy in this way from now on: kubectl trusts both by the same authorities."""
        # Small writes go at once, and within two minutes at most it is noticed that the other is gone.
        options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
        numbers = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 30_000}
        for name, value in numbers.items():
            if hasattr(socket, name):
                options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
        names = {"server_hostname": self._server_name, "socket_options": options}
        manager = self._new_manager(ssl_context=tls, maxsize=CONNECTIONS, **names)
        pools: dict[str, Any] = dict(manager.pool_classes_by_scheme)
        for scheme, pool in pools.items():
            bounded = type("BoundedConnection", (_BoundedConnection, pool.ConnectionCls), {})
            pools[scheme] = type("BoundedPool", (pool,), {"ConnectionCls": bounded})
        manager.pool_classes_by_scheme = pools
        self._manager = manager

    def expect(self, requests: int) -> None:
        """Begin to connect, so that so many requests at once find connections that are open."""
        if self.is_proxied:
            return
        pool: Any = self._manager.connection_from_url(self._origin)
        with self._lock:
            is_open = [conn is not None and conn.sock is not None for conn in list(pool.pool.queue)]
            missing = min(requests, CONNECTIONS) - sum(is_open) - self._opening
            self._opening += max(0, missing)
        for _ in range(missing):
            Thread(target=self._open_ahead, args=(pool,), name="mlstack-connect", daemon=True).start()

    def _open_ahead(self, pool: Any) -> None:
        connection = pool._new_conn()  # urllib3 opens none before a request, and that costs round trips
        try:
            connection.timeout = CONNECT_TIMEOUT_S
            connection.connect()
        except (NoAnswerError, urllib3_errors.HTTPError, OSError, ValueError):  # the next request tells why
            connection.close()
            return
        finally:
            with self._lock:
                self._opening -= 1
        if (places := pool.pool) is not None:
            with places.mutex:  # a free place becomes an open connection
                free = [conn for conn in places.queue if conn is None or conn.sock is None]
                if free:
                    places.queue.remove(free[0])
                    places.queue.append(connection)
                    return
        connection.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        body: bytes | Iterable[bytes] | None,
        headers: Sent,
        timeout_s: float,
        whole: bool,
    ) -> Response:
        """Send a request and wait for the answer: to its end if it is wanted `whole`, or is no 200.

        A body that comes in pieces needs its `Content-Length` among the headers.

        Raises:
            NoAnswerError: there is none within `timeout_s`, or it breaks a limit.
        """
        fields = HTTPHeaderDict({"Accept-Encoding": "gzip" if whole and self._packed else "identity"})
        for name, value in headers.items():
            for text in value if isinstance(value, tuple) else (value,):
                fields.add(name, text)
        try:
            raw: Any = self._manager.urlopen(
                method,
                f"{self._origin}{path}",
                body=body,
                headers=fields,
                timeout=Timeout(connect=CONNECT_TIMEOUT_S, read=timeout_s),
                retries=False,
                redirect=False,
                preload_content=False,
            )
            whole = whole or raw.status != 200
            data = _body(raw, whole)
        except (NoAnswerError, urllib3_errors.HTTPError, OSError, ValueError) as error:
            # A server that ended one connection, as at a restart, has ended them all.
            self._manager.clear()
            # What is wrong with a header repeats it, a token included.
            raise _fault(error, self.is_proxied) from (None if isinstance(error, ValueError) else error)
        return Response(status=raw.status, headers=raw.headers, data=data, raw=raw)


def patiently(
    send: Callable[[], Response],
    *,
    sleep: Callable[[float], None],
    clock: Callable[[], float],
    busy: Collection[int] = (),
    longest_s: float = math.inf,
) -> Response:
    """Send a request, and again while the server asks to come later; give its last answer, whatever that is.

    Later is what `Retry-After` says, else after pauses that double, four times. `PATIENCE_S` bounds it all.

    Args:
        send: sends it once.
        sleep: pauses.
        clock: seconds that only go forward.
        busy: statuses that mean the same as a 429, or as a 500 or 503 that names a time.
        longest_s: after how long it is sent again in any case.
    """
    deadline_s, pauses = clock() + PATIENCE_S, islice(backoff(0.5, 4.0), 4)
    while True:
        answer = send()
        asked_s = retry_after_s(answer.headers)
        is_asked = asked_s is not None and answer.status in (500, 503)
        if not (answer.status == 429 or answer.status in busy or is_asked):
            return answer
        pause_s = min(next(pauses, math.inf) if asked_s is None else max(asked_s, 0.1), longest_s)
        if clock() + pause_s > deadline_s:
            return answer
        sleep(pause_s)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Give after how many seconds a server wants to be asked again (`Retry-After`), None where not."""
    text = headers.get("Retry-After") or ""
    try:
        return float(int(text))
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    return when.timestamp() - time.time()


def redirect_of(answer: Response, server: Address) -> str:
    """Give the path that an answer leads to on the same server; empty where it leads nowhere or elsewhere."""
    location = answer.raw.get_redirect_location()
    if not location:
        return ""
    try:
        url = parse_url(location)
        there = address(f"{url.scheme}://{url.netloc}") if url.host else server
    except (urllib3_errors.LocationParseError, ValueError):
        return ""
    is_same = (there.scheme, there.host, there.port) == (server.scheme, server.host, server.port)
    return url.request_uri if is_same else ""


def _manager_of(login: Endpoint) -> Callable[..., PoolManager]:
    """Give what makes the connections of a login."""
    if not login.proxy:
        return PoolManager
    try:
        url = parse_url(login.proxy)
        host_name((url.host or "").strip("[]"))
    except (urllib3_errors.LocationParseError, ValueError):
        url = parse_url("")
    name, _, password = unquote(url.auth or "").partition(":")
    place = url._replace(auth=None)
    if url.host and url.scheme in ("http", "https"):
        headers = {"Proxy-Authorization": basic(name, password)} if url.auth else {}
        return lambda **more: ProxyManager(
            place.url, proxy_headers=headers, proxy_ssl_context=more.get("ssl_context"), **more
        )
    if url.host and url.scheme in ("socks5", "socks5h"):
        from urllib3.contrib.socks import SOCKSProxyManager

        # The proxy looks up names, as with kubectl.
        far = place._replace(scheme="socks5h").url
        return lambda **more: SOCKSProxyManager(far, name or None, password or None, **more)
    text = "a proxy that mlstack does not speak to: only http://, https:// and socks5://"
    raise NoAnswerError(f"{login.label} is reached through {text}", about="proxy")


def _body(raw: Any, whole: bool) -> bytes:
    """Read an answer to its end, and unpack it; as much as it may have."""
    pieces: list[bytes] = []
    try:
        raw.connection.source.bytes_left = MOST_BYTES if whole else math.inf
        lengths = [] if raw.chunked else raw.headers.getlist("Content-Length")
        if lengths and (len(set(lengths)) > 1 or not re.fullmatch(r"[0-9]{1,15}", lengths[0])):
            raise NoAnswerError(_ODD_LENGTH)
        size = int(lengths[0]) if lengths else 0
        if size > MOST_BYTES:
            raise NoAnswerError(_too_long())
        size = 0
        for piece in raw.stream(_PIECE, decode_content=True) if whole else ():
            pieces.append(piece)
            size += len(piece)
            if size > MOST_BYTES:
                raise NoAnswerError(_too_long())
    except BaseException:  # a person interrupts: what is half read is of no use
        give_up(raw)
        raise
    return b"".join(pieces)


def lines_of(raw: Any) -> Generator[bytes]:
    """Give the lines of an answer that was not read whole, as they come; they end whatever ends it."""
    rest: list[bytes] = []
    size = 0
    try:
        for chunk in raw.stream(_PIECE, decode_content=True):
            *lines, last = chunk.split(b"\n")
            if lines:
                lines[0] = b"".join((*rest, lines[0]))
                yield from (line for line in lines if line)
                rest, size = [], 0
            rest.append(last)
            size += len(last)
            if size > _LONGEST_LINE:
                return
    except (NoAnswerError, urllib3_errors.HTTPError, OSError, ValueError):
        # A stream ends in many ways (server restarted, a proxy's limit, silence): all mean "watch again".
        return
    finally:
        give_up(raw)


def pieces_of(raw: Any) -> Iterator[bytes]:
    """Give an answer that was not read whole as it comes; a NoAnswerError if it breaks off."""
    try:
        raw.connection.source.is_endless = True
        yield from raw.stream(_PIECE, decode_content=False)
    except (NoAnswerError, urllib3_errors.HTTPError, OSError, ValueError) as error:
        raise _fault(error, is_proxied=False) from error
    finally:
        give_up(raw)


def give_up(raw: Any) -> None:
    """Close an answer that may not have been read to its end; its place is free for another connection."""
    raw.close()
    raw.release_conn()


def _too_long() -> str:
    return f"its answer is longer than {MOST_BYTES >> 20} MiB"


def _fault(error: Exception, is_proxied: bool) -> NoAnswerError:
    """Say why there is no answer."""
    text, cause = str(error), error.__cause__
    about: About = "address"
    unconnected = (urllib3_errors.NewConnectionError, urllib3_errors.ConnectTimeoutError)
    if isinstance(error, NoAnswerError):
        return error
    if is_proxied and isinstance(error, (urllib3_errors.ProxyError, *unconnected)):
        code = re.search(r"Tunnel connection failed: (\d{3})", text)
        text = f"the proxy does not connect{f' (HTTP {code[1]})' if code else ''}"
        return NoAnswerError(text, about="proxy")
    is_broken = False
    match error:
        case urllib3_errors.NameResolutionError():
            text = "its name is not known (DNS)"
        case urllib3_errors.NewConnectionError():
            reason = (getattr(cause, "strerror", None) or type(cause).__name__).lower()
            text = "connection refused" if "refused" in reason else reason
        case urllib3_errors.ConnectTimeoutError():
            text = f"no connection within {CONNECT_TIMEOUT_S:g} s"
        case urllib3_errors.SSLError():
            is_broken = isinstance(error.args[0], ssl.SSLEOFError | ssl.SSLZeroReturnError)
            text, about = f"TLS fails: {_reason(text)}", "tls"
        case urllib3_errors.ReadTimeoutError():
            is_broken = bool(getattr(cause, "errno", None))  # the system gave the connection up
            text, about = "it accepted the request and stayed silent", "load"
        case urllib3_errors.InvalidHeader():
            text = _ODD_LENGTH
        case urllib3_errors.ProtocolError():
            is_end = isinstance(error.args[-1], RemoteDisconnected | IncompleteRead)
            is_broken = is_end or not isinstance(error.args[-1], HTTPException)
            text = "it does not speak HTTP"
        case ValueError():
            text, about = "the credentials have characters that cannot be sent", "credentials"
        case _:
            is_broken = True
    if is_broken:
        return NoAnswerError("the connection broke", about="connection", broken=True)
    return NoAnswerError(text, about=about)


def _reason(text: str) -> str:
    """Give what OpenSSL says without its places."""
    if "WRONG_VERSION_NUMBER" in text or "record layer failure" in text:
        return "the server does not speak TLS"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return text.rpartition("certificate verify failed: ")[2].partition(" (_ssl")[0]
    if "doesn't match" in text:
        return "the certificate is for another name"
    return text.partition(" (_ssl")[0].rpartition("] ")[2] or text


# --- TLS and sockets ---


class _TlsSocket(ssl.SSLSocket):
    """A socket that `ssl` of Python 3.11 would leave open where its server resets it before the greeting."""

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        try:
            return super().recv(buflen, flags)
        except OSError:
            if self.version() is None:  # there is no TLS yet: `ssl` only looks whether it is connected
                self.close()
            raise


_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def tls_context(
    *, ca_pem: str | None, cert_file: str | None, key_file: str | None, verify: bool
) -> ssl.SSLContext:
    """Make the TLS context of one login; servers are verified unless `verify` is off.

    `ca_pem` are the certificates to trust, of CAs, of those below them or of the server itself, and whatever
    stands between them, None for those of the system; the files are those of the client certificate.

    Raises:
        OSError: a file cannot be read or is no certificate.
        ValueError: there is no certificate in `ca_pem`.
    """
    # Not `create_default_context`: its strict flag (Python 3.13) refuses CAs that kubectl and clusters use.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sslsocket_class = _TlsSocket
    # As Go: the common name is no name of a server, and a chain may end at any certificate that is trusted.
    context.hostname_checks_common_name = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca_pem is not None:
        context.load_verify_locations(cadata="\n".join(_CERTIFICATE.findall(ca_pem)))
    else:
        context.load_default_certs()
    if cert_file:
        context.load_cert_chain(cert_file, key_file, password=_refuse_password)
    return context


def _refuse_password() -> str:
    """Refuse to unlock a key: OpenSSL would ask on the terminal, in the middle of a run."""
    raise PermissionError(errno.EACCES, "the client key is encrypted")


def fingerprint(pem: str) -> str | None:
    """Hash CA certificates by their DER, so that order, comments and line ends do not count; None without."""
    ders = sorted({ssl.PEM_cert_to_DER_cert(certificate) for certificate in _CERTIFICATE.findall(pem)})
    return f"sha256:{hashlib.sha256(b''.join(ders)).hexdigest()}" if ders else None
