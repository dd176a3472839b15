"""The seam between requests and what carries them, and the faults that both speak of."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import re
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead, RemoteDisconnected
from itertools import accumulate
from threading import Lock, Thread
from typing import Any, Protocol
from weakref import finalize

import mlstack
from mlstack.errors import ClusterError, InvalidError, TransientError, UnreachableError
from mlstack.kube.kubeconfig import Login, address, basic, host_name

# --- The seam between requests and what carries them, and the faults that both speak of ---

CONNECT_TIMEOUT_S = 10.0
CONNECTIONS = 32
"""How many connections are kept for the next request: as many as ever write and wait at once."""

MOST_BYTES = 128 << 20
"""How much an answer may have, as it comes and unpacked: ten times of what a large cluster lists at once."""
MOST_HEAD_BYTES = 1 << 20
"""How much may come before the body of an answer."""

_LENGTH = re.compile(r"[0-9]{1,15}")
_KUBECONFIG = "check `server` of the kubectl context, and that the cluster runs: kubectl cluster-info"
_TLS = "check certificate-authority, tls-server-name and client certificate of the kubectl context"


Sent = Mapping[str, "str | tuple[str, ...]"]
"""Headers to send by name; those that have several values are sent several times."""


class Headers(Protocol):
    """The headers of an answer by name, in any case."""

    def get(self, name: str, /) -> str | None:
        """Give one, None if it is not there."""
        ...


@dataclass(frozen=True, kw_only=True)
class Received:
    """An answer as it came.

    Attributes:
        status: HTTP status.
        headers: by name; where one comes several times, one of them.
        warnings: all `Warning` headers.
        data: the body, empty if it was not to be read.
        chunks: the body as it comes, if it was not read; ends with it, whatever ends it.
        close: gives the connection up if the body was not read to its end.
        repeated: the request was sent once before, and nobody knows what became of that.
    """

    status: int
    headers: Headers
    warnings: Sequence[str]
    data: bytes
    chunks: Callable[[], Iterator[bytes]]
    close: Callable[[], None]
    repeated: bool = False


class FaultError(Exception):
    """Raised when there is no answer.

    Args:
        text: why, in a few words.
        hint: what to do.
        broken: the connection broke after it was made: the server may or may not have seen the request.
    """

    def __init__(self, text: str, *, hint: str = _KUBECONFIG, broken: bool = False) -> None:
        """Hold the facts."""
        super().__init__(text)
        self.text, self.hint, self.broken = text, hint, broken


class Carrier(Protocol):
    """Carries requests to one server; safe for many threads."""

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
        """Send a request and wait for the answer: to its end if it is wanted `whole`, or is no 200.

        Raises:
            FaultError: there is none.
        """
        ...

    def expect(self, requests: int) -> None:
        """Begin to connect, so that so many requests at once find connections that are open."""
        ...

    def use(self, tls: ssl.SSLContext) -> None:
        """Greet the server in this way from now on."""
        ...


def unknown_name() -> FaultError:
    """Give the fault of a server whose name leads nowhere."""
    return FaultError("its name is not known (DNS)")


def refused(text: str) -> FaultError:
    """Give the fault of a server that takes no connection, by the system's words."""
    return FaultError("connection refused" if "refused" in text else text)


def unconnected() -> FaultError:
    """Give the fault of a server that does not answer the connection."""
    return FaultError(f"no connection within {CONNECT_TIMEOUT_S:g} s")


def silent() -> FaultError:
    """Give the fault of a server that answers nothing."""
    hint = "try again; the server may be overloaded"
    return FaultError("it accepted the request and stayed silent", hint=hint)


def slow(timeout_s: float) -> FaultError:
    """Give the fault of a server whose answer does not end."""
    return FaultError(
        f"its answer did not end within {timeout_s:g} s", hint="try again; the server may be overloaded"
    )


def too_long() -> FaultError:
    """Give the fault of a server whose answer is larger than any that is meant."""
    return FaultError(f"its answer is longer than {MOST_BYTES >> 20} MiB")


def no_http() -> FaultError:
    """Give the fault of a server that speaks something else."""
    return FaultError("it does not speak HTTP")


def check_length(said: Sequence[str]) -> None:
    """Return if the lengths that an answer gives its body may be believed.

    Raises:
        FaultError: they are none, several, or too large.
    """
    if not said:
        return
    if len(set(said)) > 1 or not _LENGTH.fullmatch(said[0]):
        raise FaultError("it does not speak HTTP: the Content-Length of its answer is no number")
    if int(said[0]) > MOST_BYTES:
        raise too_long()


def broken() -> FaultError:
    """Give the fault of a connection that ended under a request."""
    return FaultError("the connection broke", hint="run the command again", broken=True)


def unsendable() -> FaultError:
    """Give the fault of credentials that no header takes; without them."""
    return FaultError(
        "the credentials of the kubeconfig have characters that cannot be sent",
        hint="get them anew: a token is one line of plain letters and digits",
    )


def untrusted(text: str) -> FaultError:
    """Give the fault of TLS, by OpenSSL's words."""
    return FaultError(f"TLS fails: {_reason(text)}", hint=_TLS)


def _reason(text: str) -> str:
    if "WRONG_VERSION_NUMBER" in text or "record layer failure" in text:
        return "the server does not speak TLS"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return text.rpartition("certificate verify failed: ")[2].partition(" (_ssl")[0]
    if "doesn't match" in text:
        return "the certificate is for another name"
    return text.partition(" (_ssl")[0].rpartition("] ")[2] or text


# --- Requests to one API server: time limits, patience, streams, and every fault as one of our
# errors
# Knows HTTP, nothing of objects; what carries the requests is handed in by `direct`.

AGENT = f"mlstack/{mlstack.__version__}"
READ_TIMEOUT_S = 60.0
PATIENCE_S = 30.0
"""How long one request goes on when the server asks it to come again later."""
LONGEST_PAUSE_S = 10.0
_SHORTEST_PAUSE_S = 0.1

Query = Mapping[str, str]

Counted = Callable[[str, int | None], None]
"""Told of each request that is sent: its verb, and the HTTP status of its answer, None for no answer."""

APPLY = "application/apply-patch+yaml"

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_LONGEST_LINE = 16 << 20
_DEEPEST = 200
_TOO_DEEP = "nested too deeply"
_OPENS, _CLOSES = b"[{", b"]}"
_STEPS = [1 if code in _OPENS else -1 for code in range(256)]
_NO_BRACKETS = bytes(code for code in range(256) if code not in _OPENS + _CLOSES)
_PLAIN = re.compile(r"[A-Za-z0-9._~:-]*")
_PERSON = re.compile(r"(?<=//)[^/@]*@")


class Credentials(Protocol):
    """Gives the headers that say who we are; safe for many threads."""

    def __call__(self, *, refused: Sent | None = None) -> Sent | None:
        """Give the headers, or others than those that a server refused; None if there are no others."""
        ...


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request.

    Attributes:
        method: HTTP method.
        path: path below the server's address, already quoted.
        query: query parameters.
        body: what to send as JSON, None for nothing.
        content_type: of the body.
        accept: media types wanted.
        is_idempotent: sending it twice does no harm, so a broken connection is tried again once; or whoever
            sends it looks at what is there when the answer says that it was `repeated`.
    """

    method: str
    path: str
    query: Query = field(default_factory=dict)
    body: Any = None
    content_type: str = "application/json"
    accept: str = "application/json"
    is_idempotent: bool = False

    @property
    def verb(self) -> str:
        """Say what is asked, as Kubernetes does, but `get` for lists too, and `apply` apart from `patch`."""
        if "watch" in self.query:
            return "watch"
        return "apply" if self.content_type == APPLY else _VERBS.get(self.method, "get")


@dataclass(frozen=True, kw_only=True)
class Response:
    """One answer, read to its end.

    Attributes:
        code: HTTP status.
        content_type: as the server says.
        warnings: raw `Warning` headers.
        body: decoded JSON, or the text where it is none.
        repeated: it is the answer to the second sending: the server may have done already what it was asked.
    """

    code: int
    content_type: str
    warnings: tuple[str, ...]
    body: Any
    repeated: bool = False


class Transport:
    """Sends requests to one server; safe for many threads.

    Args:
        carrier: has the connections.
        server: address of the server.
        label: how people call it: "context `minikube`".
        credentials: gives the headers that say who we are.
        read_timeout_s: how long the server may stay silent.
        sleep: pauses between tries.
        clock: seconds that only go forward.
        counted: told of each request, each try of one included; from any thread.
    """

    def __init__(
        self,
        carrier: Carrier,
        server: str,
        *,
        label: str,
        credentials: Credentials,
        read_timeout_s: float = READ_TIMEOUT_S,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        counted: Counted = lambda verb, status: None,
    ) -> None:
        """Hold the parts; nothing is sent."""
        self.server = _PERSON.sub("", server.rstrip("/"))  # a password is in no message
        self.label = label
        self._carrier = carrier
        self._credentials = credentials
        self._read_timeout_s = read_timeout_s
        self._sleep = sleep
        self._clock = clock
        self._counted = counted

    @property
    def why_nobody(self) -> str:
        """Say why the server is not told who we are, nothing if it may be told."""
        there = address(self.server)
        if there.is_secure or there.is_here:
            return ""
        return "nothing that shows who you are is sent over http://: let `server` begin with https://"

    def expect(self, requests: int) -> None:
        """Begin to connect for so many requests at once; that it fails is told by the requests."""
        self._carrier.expect(requests)

    def send(self, request: Request) -> Response:
        """Send a request and read the answer, whatever its code.

        A 429, and a 5xx that names a time, are tried again until `PATIENCE_S` is over; refused credentials
        are renewed once.

        Raises:
            UnreachableError: no answer.
            ClusterError: the answer is not Kubernetes'.
        """
        deadline = self._clock() + PATIENCE_S
        while True:
            raw = self._answer(request, read_timeout_s=self._read_timeout_s, preload=True)
            pause = _pause_s(raw.status, raw.headers)
            if pause is None or self._clock() + pause > deadline:
                return self._response(raw)
            self._sleep(pause)

    def text(self, request: Request, *, timeout_s: float) -> Response | str:
        """Send a request once and give its answer as text, or the answer if it is no 200.

        Raises:
            UnreachableError: no answer, or not all of it, within `timeout_s`.
        """
        raw = self._answer(request, read_timeout_s=timeout_s, preload=True)
        return raw.data.decode("utf-8", "replace") if raw.status == 200 else self._response(raw)

    def stream(self, request: Request, *, timeout_s: float) -> Response | Iterator[bytes]:
        """Send a request and give the lines of its answer as they come, or the answer if it is no 200.

        The lines end when the server ends them, the connection breaks, or nothing more came for `timeout_s`.

        Raises:
            UnreachableError: no answer at all.
        """
        raw = self._answer(request, read_timeout_s=timeout_s, preload=False)
        return _lines(raw) if raw.status == 200 else self._response(raw)

    def _answer(self, request: Request, *, read_timeout_s: float, preload: bool) -> Received:
        """Get an answer, with newer credentials if these are refused."""
        headers = self._credentials() or {}
        raw = self._open_again(request, headers, read_timeout_s, preload=preload)
        newer = self._credentials(refused=headers) if raw.status == 401 else None
        if newer is None:
            return raw
        raw.close()
        return self._open_again(request, newer, read_timeout_s, preload=preload)

    def _open_again(
        self, request: Request, headers: Sent, read_timeout_s: float, *, preload: bool
    ) -> Received:
        """Open, and once more if the server closed a kept connection just as we used it."""
        try:
            return self._open(request, headers, read_timeout_s, preload=preload)
        except BrokenError:
            if not request.is_idempotent:
                raise
        return replace(self._open(request, headers, read_timeout_s, preload=preload), repeated=True)

    def _open(self, request: Request, headers: Sent, read_timeout_s: float, *, preload: bool) -> Received:
        body = None if request.body is None else _encode(request.body)
        sent = {**headers, "Accept": request.accept}
        if body is not None:
            sent["Content-Type"] = request.content_type
        try:
            received = self._carrier.send(
                request.method,
                f"{request.path}{_query(request.query)}",
                body=body,
                headers=sent,
                read_timeout_s=read_timeout_s,
                whole=preload,
            )
        except FaultError as fault:
            self._counted(request.verb, None)
            raise self._unreachable(fault) from fault
        self._counted(request.verb, received.status)
        return received

    def _unreachable(self, fault: FaultError) -> UnreachableError:
        """Say in one line why there is no answer, and what to do."""
        kind = BrokenError if fault.broken else UnreachableError
        return kind(
            f"no answer from the API server of {self.label} at {self.server}: {fault.text}", hint=fault.hint
        )

    def _response(self, raw: Received) -> Response:
        content_type = str(raw.headers.get("Content-Type") or "")
        data = raw.data
        return Response(
            code=raw.status,
            content_type=content_type,
            warnings=tuple(raw.warnings),
            body=self._decoded(raw.status, content_type, data),
            repeated=raw.repeated,
        )

    def _decoded(self, code: int, content_type: str, data: bytes) -> Any:
        try:
            return decoded(data)
        except ValueError:
            text = data.decode("utf-8", "replace").strip()
        if code >= 400 and "html" not in content_type:
            return text
        if code in (429, 502, 503, 504):
            raise TransientError(f"{self.label}: something before the API server answers {code}")
        raise self.no_api(f"HTTP {code}, {content_type or 'no content type'}")

    def no_api(self, why: str) -> ClusterError:
        """Give the fault that something else answers than an API server."""
        return ClusterError(
            f"what answers for {self.label} at {self.server} is no Kubernetes API server ({why})",
            hint="check `server` in the kubeconfig, and whether a proxy or login page stands in between",
        )


class BrokenError(UnreachableError):
    """The connection broke after it was made: the server may or may not have seen the request."""


def _lines(raw: Received) -> Iterator[bytes]:
    rest: list[bytes] = []
    size = 0
    try:
        for chunk in raw.chunks():
            *lines, last = chunk.split(b"\n")
            if lines:
                lines[0] = b"".join((*rest, lines[0]))
                yield from (line for line in lines if line)
                rest, size = [], 0
            rest.append(last)
            size += len(last)
            if size > _LONGEST_LINE:
                return
    finally:
        raw.close()


def decoded(data: bytes) -> Any:
    """Read JSON as an API server means it: halves of characters are none.

    Raises:
        ValueError: it is none, or nested deeper than any object is.
    """
    text = data.decode("utf-8")
    try:
        value = _JSON.decode(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    brackets = data.translate(None, _NO_BRACKETS)  # those of texts too, so that only a hint is had cheaply
    is_suspect = len(brackets) > _DEEPEST and max(accumulate(map(_STEPS.__getitem__, brackets))) > _DEEPEST
    if is_suspect and _depth(value) > _DEEPEST:
        raise ValueError(_TOO_DEEP)
    return _whole(value) if "\\ud" in text or "\\uD" in text else value


def _depth(value: Any) -> int:
    depth, inside = 0, [value]
    while inside := [
        item
        for part in inside
        if isinstance(part, dict | list)
        for item in (part.values() if isinstance(part, dict) else part)
    ]:
        depth += 1
    return depth


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return {_whole(key): _whole(item) for key, item in value.items()} if isinstance(value, dict) else value


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


_JSON = json.JSONDecoder(parse_constant=_no_number)


def quote(text: str) -> str:
    """Quote one part of a path or query: all but letters, digits and `-._~:` as percent codes."""
    if _PLAIN.fullmatch(text):
        return text
    return "".join(c if _is_plain(c) else "".join(f"%{b:02X}" for b in c.encode()) for c in text)


def _is_plain(character: str) -> bool:
    return _PLAIN.fullmatch(character) is not None


def _query(query: Query) -> str:
    pairs = "&".join(f"{key}={quote(value)}" for key, value in query.items())
    return f"?{pairs}" if pairs else ""


def _encode(body: Any) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, TypeError) as error:
        raise InvalidError(f"the object cannot be written as JSON: {error}") from error


def _pause_s(code: int, headers: Headers) -> float | None:
    """Give the pause the server asks for, None if the request is not to be sent again."""
    asked = headers.get("Retry-After")
    if code != 429 and not (code in (500, 503) and asked):
        return None
    try:
        wanted = float(asked or 1)
    except ValueError:
        wanted = 1.0
    return min(max(wanted, _SHORTEST_PAUSE_S), LONGEST_PAUSE_S) if math.isfinite(wanted) else LONGEST_PAUSE_S


# --- TLS and sockets of the connections to an API server, and the fingerprint of whom they trust ---

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def tls_context(
    *,
    ca_pem: str | None,
    cert_file: str | None,
    key_file: str | None,
    verify: bool,
) -> ssl.SSLContext:
    """Make the TLS context of one login; servers are verified unless `verify` is off.

    Args:
        ca_pem: the certificates to trust, of CAs, of those below them or of the server itself, and whatever
            stands between them; None for those of the system.
        cert_file: PEM file of the client certificate, None without.
        key_file: PEM file of its key.
        verify: off only where a kubeconfig says insecure-skip-tls-verify.

    Raises:
        OSError: a file cannot be read or is no certificate.
        ValueError: there is no certificate in `ca_pem`.
    """
    # Not `create_default_context`: its strict flag (Python 3.13) refuses CAs that kubectl and clusters use.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
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
        context.load_cert_chain(cert_file, key_file, password=_no_password)
    return context


def _no_password() -> str:
    """Refuse to unlock a key: OpenSSL would ask on the terminal, in the middle of a run."""
    raise PermissionError(errno.EACCES, "the client key is encrypted")


def socket_options() -> list[tuple[int, int, int]]:
    """Send small writes at once, and notice within two minutes at most that the other is gone."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (
        ("TCP_KEEPIDLE", 30),
        ("TCP_KEEPINTVL", 15),
        ("TCP_KEEPCNT", 4),
        ("TCP_USER_TIMEOUT", 30_000),
    ):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def fingerprint(pem: str) -> str | None:
    """Hash CA certificates by their DER, so that order, comments and line ends do not count; None without."""
    found = sorted({ssl.PEM_cert_to_DER_cert(one) for one in _CERTIFICATE.findall(pem)})
    return f"sha256:{hashlib.sha256(b''.join(found)).hexdigest()}" if found else None


# --- One connection to an API server: made, greeted, asked, and why it gave no answer ---

# An answer that comes at once needs no second look at the clock of its socket.
_UNHEEDED_S = 0.5


@dataclass(frozen=True, kw_only=True)
class ServerAddress:
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
                raise slow(self._timeout_s or 0.0) from None
            raise
        self._came = True
        self.left -= count
        if self.left < 0:
            raise too_long()
        return count

    def close(self) -> None:
        super().close()
        self._raw.close()


class RawResponse(HTTPResponse):
    """An answer that is read within its bounds."""

    def __init__(self, sock: socket.socket, *more: Any, **named: Any) -> None:
        self._source = _Bounded(sock)
        super().__init__(self._source, *more, **named)  # type: ignore[arg-type] # it wants the file alone

    def begin(self) -> None:
        """Read the head."""
        super().begin()
        if not self.chunked:
            check_length(self.headers.get_all("Content-Length") or ())

    def _read_and_discard_trailer(self) -> None:
        self._source.left = MOST_HEAD_BYTES
        super()._read_and_discard_trailer()  # type: ignore[misc] # the library's own step
        self._source.left = MOST_BYTES


class Connection(HTTPConnection):
    """One connection to a server.

    Args:
        target: the server.
        tls: how it is greeted; None only where it is not spoken to over TLS.
        session: what an earlier greeting left, to make this one short.
    """

    response_class = RawResponse

    def __init__(
        self, target: ServerAddress, *, tls: ssl.SSLContext | None, session: ssl.SSLSession | None
    ) -> None:
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
            raise unconnected() from error
        except socket.gaierror as error:
            raise unknown_name() from error
        except (ConnectionResetError, ssl.SSLEOFError) as error:
            raise broken() from error
        except ssl.SSLError as error:
            raise untrusted(str(error)) from error
        except OSError as error:
            raise refused((error.strerror or type(error).__name__).lower()) from error

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
        return silent()
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return untrusted(str(error))  # servers tell only afterwards what they think of a client's certificate
    if isinstance(error, HTTPException) and not isinstance(error, RemoteDisconnected | IncompleteRead):
        return no_http()
    return unsendable() if isinstance(error, ValueError) else broken()


# --- Requests over connections that are kept open, by the standard library alone ---
# A request costs half the processor time of urllib3's, which counts when 300 are sent at once beside an API
# server on a small machine: 0.5 instead of 1.0 ms each. The import of a client library would take longer than
# writing them all.

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
        self._target = ServerAddress(
            host=there.host, port=there.port, is_secure=there.is_secure, server_name=name
        )
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


# --- Requests through a proxy, which is urllib3's to speak to: plain and over TLS, with TLS inside
# of TLS

_QUOTED = re.compile(rb"%([0-9A-Fa-f]{2})")
_TUNNEL = re.compile(r"Tunnel connection failed: (\d{3})")
_POOLED_PIECE = 1 << 16


class Pooled:
    """Carries requests to one server through the proxy of its login.

    Args:
        login: where the server is.
    """

    def __init__(self, login: Login) -> None:
        """Read the addresses; nothing is sent.

        Raises:
            ValueError: that of the server is none.
            ClusterError: the proxy is one that we cannot speak to.
        """
        from urllib3 import disable_warnings
        from urllib3.exceptions import InsecureRequestWarning

        # Who we are stands in the headers: what the address says of it is nothing for a proxy.
        self._server = address(login.server).url
        self._login, self._proxy = login, _proxy(login)
        self._pool: Any = None
        if not login.verify:
            disable_warnings(InsecureRequestWarning)

    def expect(self, requests: int) -> None:
        """Do nothing: it is connected when a request comes."""

    def use(self, tls: ssl.SSLContext) -> None:
        """Greet server and proxy in this way from now on: kubectl trusts both by the same authorities."""
        self._pool = self._proxy(
            tls,
            ssl_context=tls,
            server_hostname=self._login.server_name,
            maxsize=CONNECTIONS,
            socket_options=socket_options(),
        )
        self._pool.pool_classes_by_scheme = {
            scheme: _bounded(pool) for scheme, pool in self._pool.pool_classes_by_scheme.items()
        }

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
        from urllib3 import HTTPHeaderDict, Timeout
        from urllib3.exceptions import HTTPError

        fields = HTTPHeaderDict({"Accept-Encoding": "gzip" if whole and self._login.packed else "identity"})
        for name, value in headers.items():
            for one in value if isinstance(value, tuple) else (value,):
                fields.add(name, one)
        try:
            raw = self._pool.request(
                method,
                f"{self._server}{path}",
                body=body,
                headers=fields,
                timeout=Timeout(connect=CONNECT_TIMEOUT_S, read=read_timeout_s),
                retries=False,
                redirect=False,
                preload_content=False,
            )
            data = _pooled_body(raw) if whole or raw.status != 200 else b""
        except FaultError:
            raise
        except (HTTPError, OSError, ValueError) as error:
            # What is wrong with a header repeats it, a token included.
            raise _fault(error) from (None if isinstance(error, ValueError) else error)
        return Received(
            status=raw.status,
            headers=raw.headers,
            warnings=raw.headers.getlist("Warning"),
            data=data,
            chunks=partial(_pooled_chunks, raw),
            close=raw.close,
        )


def _proxy(login: Login) -> Callable[..., Any]:
    """Give what makes the pool of a proxy, by our TLS context for it and what else urllib3 wants to know.

    Raises:
        ClusterError: it is one that we cannot speak to.
    """
    from urllib3 import ProxyManager
    from urllib3.exceptions import LocationParseError
    from urllib3.util import parse_url

    try:
        url = parse_url(login.proxy or "")
        host_name((url.host or "").strip("[]"))
    except (LocationParseError, ValueError):
        url = parse_url("")
    name, _, password = _unquoted(url.auth or "").partition(":")
    place = url._replace(auth=None)
    if url.host and url.scheme in ("http", "https"):
        said = {"Proxy-Authorization": basic(name, password)} if url.auth else {}
        return lambda tls, **more: ProxyManager(place.url, proxy_headers=said, proxy_ssl_context=tls, **more)
    if url.host and url.scheme in ("socks5", "socks5h"):
        from urllib3.contrib.socks import SOCKSProxyManager

        # The proxy looks up names, as with kubectl.
        far = place._replace(scheme="socks5h").url
        return lambda tls, **more: SOCKSProxyManager(far, name or None, password or None, **more)
    raise ClusterError(
        f"{login.label} is reached through a proxy that mlstack does not speak to: "
        "only http://, https:// and socks5://",
        hint="set `proxy-url` of its cluster, or HTTPS_PROXY",
    )


def _unquoted(text: str) -> str:
    octets = _QUOTED.sub(lambda found: bytes.fromhex(found[1].decode()), text.encode())
    return octets.decode("utf-8", "replace")


def _bounded(pool: Any) -> Any:
    """Give a kind of pool whose answers are read within their bounds."""
    near = type("BoundedConnection", (pool.ConnectionCls,), {"response_class": RawResponse})
    return type("BoundedPool", (pool,), {"ConnectionCls": near})


def _pooled_body(raw: Any) -> bytes:
    """Read an answer to its end, and unpack it; as much as it may have."""
    kept, size = [], 0
    try:
        for piece in raw.stream(_POOLED_PIECE, decode_content=True):
            kept.append(piece)
            size += len(piece)
            if size > MOST_BYTES:
                raise too_long()
    except BaseException:
        raw.close()
        raise
    return b"".join(kept)


def _pooled_chunks(raw: Any) -> Iterator[bytes]:
    from urllib3.exceptions import HTTPError

    try:
        yield from raw.stream(_POOLED_PIECE, decode_content=True)
    except (FaultError, HTTPError, OSError):
        # A stream ends in many ways (server restarted, a proxy's limit, silence): all mean "watch again".
        return
    finally:
        raw.close()


def _fault(error: Exception) -> FaultError:
    """Say why there is no answer."""
    from urllib3 import exceptions as faults

    text = str(error)
    if isinstance(error, faults.ProxyError | faults.NewConnectionError | faults.ConnectTimeoutError):
        said = _TUNNEL.search(text)
        hint = "check `proxy-url` of the context and HTTPS_PROXY"
        return FaultError(f"the proxy does not connect{f' (HTTP {said[1]})' if said else ''}", hint=hint)
    if isinstance(error, faults.SSLError):
        return untrusted(text)
    if isinstance(error, faults.ReadTimeoutError):
        return silent()
    if isinstance(error, faults.ProtocolError | faults.DecodeError):
        return no_http() if "BadStatusLine" in text else broken()
    if isinstance(error, ValueError):
        return unsendable()
    return FaultError(type(error).__name__)
