"""Requests to one API server: patience, streams, redirects, credentials renewed, faults as our errors."""

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
from mlstack.errors import ClusterError, InvalidError, TransientError, UnreachableError
from mlstack.kube.http import ConnectionPool, NoAnswerError, Received, Sent, lines_of, redirect_of

AGENT = f"mlstack/{mlstack.__version__}"
READ_TIMEOUT_S = 60.0
PATIENCE_S = 30.0
"""How long one request goes on when the server asks it to come again later."""
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0
_MOST_REDIRECTS = 10  # Go's

APPLY = "application/apply-patch+yaml"
Counted = Callable[[str, int | None], None]
"""Told of each request that is sent: its verb, and the HTTP status of its answer, None for no answer."""


class Credentials(Protocol):
    """Gives the headers that say who we are; safe for many threads."""

    def __call__(self, *, refused: Sent | None = None) -> Sent | None:
        """Give the headers, or others than those that a server refused; None if there are no others."""
        ...


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request; `path` stands below the server's address and is quoted already, `body` is sent as JSON.

    Sending what `is_idempotent` twice does no harm, so a broken connection is tried again once; or whoever
    sends it looks at what is there when the answer says that it was `repeated`.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
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
    """One answer, read to its end: its JSON, or the text where it is none.

    Where it is `repeated`, the server may have done already what it was asked.
    """

    code: int
    content_type: str
    warnings: tuple[str, ...]
    body: Any
    repeated: bool = False


class BrokenError(UnreachableError):
    """The connection broke after it was made: the server may or may not have seen the request."""


class Transport:
    """Sends requests to one server; safe for many threads.

    Args:
        pool: the connections.
        server: address of the server.
        label: how people call it: "context `minikube`".
        credentials: gives the headers that say who we are.
        read_timeout_s: how long the server may take for one answer.
        sleep: pauses between tries.
        clock: seconds that only go forward.
        counted: told of each request, each try of one included; from any thread.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        server: str,
        *,
        label: str,
        credentials: Credentials,
        read_timeout_s: float = READ_TIMEOUT_S,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        counted: Counted = lambda verb, status: None,
    ) -> None:
        # A password or token is in no message.
        self.server = re.sub(r"(?<=//)[^/@]*@", "", server.partition("?")[0].rstrip("/"))
        self.label, self.expect = label, pool.expect
        self._pool, self._credentials, self._read_timeout_s = pool, credentials, read_timeout_s
        self._sleep, self._clock, self._counted = sleep, clock, counted

    @property
    def why_nobody(self) -> str:
        """Say why the server is not told who we are, nothing if it may be told."""
        if self._pool.address.is_secure or self._pool.address.is_here:
            return ""
        return "nothing that shows who you are is sent over http://: let `server` begin with https://"

    def send(self, request: Request) -> Response:
        """Send a request and read the answer, whatever its code.

        A 429, and a 5xx that names a time, are tried again until `PATIENCE_S` is over; refused credentials
        are renewed once.

        Raises:
            UnreachableError: no answer.
            ClusterError: the answer is not Kubernetes'.
        """
        deadline_s = self._clock() + PATIENCE_S
        while True:
            answer = self._answer(request, self._read_timeout_s, whole=True)
            pause_s = _pause_s(answer.status, answer.headers.get("Retry-After"))
            if pause_s is None or self._clock() + pause_s > deadline_s:
                return self._response(answer)
            self._sleep(pause_s)

    def text(self, request: Request, *, timeout_s: float) -> Response | str:
        """Send a request once and give its answer as text, or the answer if it is no 200.

        Raises:
            UnreachableError: no answer, or not all of it, within `timeout_s`.
        """
        answer = self._answer(request, timeout_s, whole=True)
        return answer.data.decode("utf-8", "replace") if answer.status == 200 else self._response(answer)

    def stream(self, request: Request, *, timeout_s: float) -> Response | Iterator[bytes]:
        """Send a request and give the lines of its answer as they come, or the answer if it is no 200.

        The lines end when the server ends them, the connection breaks, or `timeout_s` is over.

        Raises:
            UnreachableError: no answer at all.
        """
        answer = self._answer(request, timeout_s, whole=False)
        return lines_of(answer.raw) if answer.status == 200 else self._response(answer)

    def _answer(self, request: Request, timeout_s: float, *, whole: bool) -> Received:
        """Get an answer: with newer credentials if these are refused, on another connection if one broke."""
        headers, is_renewed, repeated = self._credentials() or {}, False, False
        while True:
            try:
                answer = self._follow(headers, request, timeout_s, whole=whole)
            except BrokenError:  # the server closed a kept connection just as we used it
                if repeated or not request.is_idempotent:
                    raise
                repeated = True
                continue
            is_refused = answer.status == 401 and not is_renewed
            newer = self._credentials(refused=headers) if is_refused else None
            if newer is None:
                return replace(answer, repeated=repeated)
            headers, is_renewed, repeated = newer, True, False

    def _follow(self, headers: Sent, request: Request, timeout_s: float, *, whole: bool) -> Received:
        """Send a request; where reading is led elsewhere on the same server, go there."""
        body = None if request.body is None else _encode(request.body)
        sent = {**headers, "Accept": request.accept}
        if body is not None:
            sent["Content-Type"] = request.content_type
        query = "&".join(f"{key}={quote(value)}" for key, value in request.query.items())
        path = f"{self._pool.address.path}{request.path}{f'?{query}' if query else ''}"
        for _ in range(1 + _MOST_REDIRECTS):
            try:
                answer = self._pool.send(
                    request.method, path, body=body, headers=sent, timeout_s=timeout_s, whole=whole
                )
            except NoAnswerError as error:
                self._counted(request.verb, None)
                kind = BrokenError if error.broken else UnreachableError
                text = f"no answer from the API server of {self.label} at {self.server}: {error.text}"
                raise kind(text, hint=error.hint) from error
            self._counted(request.verb, answer.status)
            path = redirect_of(answer, self._pool.address) if request.method == "GET" else ""
            if not path:
                break
        return answer

    def _response(self, answer: Received) -> Response:
        content_type = str(answer.headers.get("Content-Type") or "")
        return Response(
            code=answer.status,
            content_type=content_type,
            warnings=tuple(answer.headers.getlist("Warning")),
            body=self._decoded(answer.status, content_type, answer.data),
            repeated=answer.repeated,
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


def _pause_s(code: int, asked: str | None) -> float | None:
    """Give the pause the server asks for, None if the request is not to be sent again."""
    if code != 429 and not (code in (500, 503) and asked):
        return None
    try:
        pause_s = float(asked or 1)
    except ValueError:
        pause_s = 1.0
    if not math.isfinite(pause_s):
        return _LONGEST_PAUSE_S
    return min(max(pause_s, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)


# --- JSON and paths ---

_DEEPEST = 200
_STEPS = [1 if code in b"[{" else -1 for code in range(256)]
_NO_BRACKETS = bytes(code for code in range(256) if code not in b"[{]}")
_PLAIN = re.compile(r"[A-Za-z0-9._~:-]*")


def decoded(data: bytes) -> Any:
    """Read JSON as an API server means it: halves of characters are none.

    Raises:
        ValueError: it is none, or nested deeper than any object is.
    """
    text = data.decode("utf-8")
    try:
        value = _JSON.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    brackets = data.translate(None, _NO_BRACKETS)  # those of texts too, so that only a hint is had cheaply
    is_suspect = len(brackets) > _DEEPEST and max(accumulate(map(_STEPS.__getitem__, brackets))) > _DEEPEST
    if is_suspect and _depth(value) > _DEEPEST:
        raise ValueError("nested too deeply")
    return _without_halves(value) if "\\ud" in text or "\\uD" in text else value


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


def _without_halves(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_halves(item) for item in value]
    if isinstance(value, dict):
        return {_without_halves(key): _without_halves(item) for key, item in value.items()}
    return value


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse_constant)


def _encode(body: Any) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, TypeError) as error:
        raise InvalidError(f"the object cannot be written as JSON: {error}") from error


def quote(text: str) -> str:
    """Quote one part of a path or query: all but letters, digits and `-._~:` as percent codes."""
    if _PLAIN.fullmatch(text):
        return text
    return "".join(c if _PLAIN.fullmatch(c) else "".join(f"%{b:02X}" for b in c.encode()) for c in text)
