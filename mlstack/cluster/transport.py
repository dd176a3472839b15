"""Requests to one API server: time limits, patience, streams, and every fault as one of our errors.

Knows HTTP, nothing of objects; what carries the requests is handed in by `direct`.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Protocol

import mlstack
from mlstack.cluster.wire import Carrier, FaultError, Headers, Received, Sent
from mlstack.errors import ClusterError, InvalidError, TransientError, UnreachableError
from mlstack.model.login import address

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
