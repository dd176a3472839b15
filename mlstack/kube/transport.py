"""Requests to one API server: patience, streams, redirects, credentials renewed, faults as our errors."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import field, replace
from functools import partial
from itertools import accumulate
from typing import Any

import mlstack
from mlstack.addresses import quote
from mlstack.dataclass import Record
from mlstack.errors import ClusterError, InvalidError, TransientError, UnreachableError
from mlstack.http import (
    About,
    ConnectionPool,
    NoAnswerError,
    Response,
    Sent,
    lines_of,
    patiently,
    redirect_of,
)

AGENT = f"mlstack/{mlstack.__version__}"
READ_TIMEOUT_S = 60.0
_LONGEST_PAUSE_S = 10.0
_MOST_REDIRECTS = 10  # Go's

HINTS: Mapping[About, str] = {
    "address": "check `server` of the kubectl context, and that the cluster runs: kubectl cluster-info",
    "tls": "check certificate-authority, tls-server-name and client certificate of the kubectl context",
    "proxy": "check `proxy-url` of the context and HTTPS_PROXY",
    "load": "try again; the server may be overloaded",
    "credentials": "get them anew: a token is one line of plain letters and digits",
    "connection": "run the command again",
}
"""What to do when there is no answer."""

APPLY = "application/apply-patch+yaml"
Counted = Callable[[str, int | None], None]
"""Told of each request that is sent: its verb, and the HTTP status of its answer, None for no answer."""
CredentialSource = Callable[[Sent | None], Sent | None]
"""Gives the headers that say who we are, or others than those that a server refused; None without others."""

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Request(Record):
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
        credentials: CredentialSource,
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
        is_private = pool.address.is_secure or pool.address.is_here
        # Why the server is not told who we are, nothing if it may be told.
        unsafe = "nothing that shows who you are is sent over http://: let `server` begin with https://"
        self.why_nobody = "" if is_private else unsafe

    def send(self, request: Request) -> Response:
        """Send a request, again while the server asks for patience, and read the answer whatever its code."""
        answer = patiently(
            partial(self._answer, request, self._read_timeout_s, whole=True),
            sleep=self._sleep,
            clock=self._clock,
            longest_s=_LONGEST_PAUSE_S,
        )
        return self._decoded(answer)

    def text(self, request: Request, *, timeout_s: float) -> Response | str:
        """Send a request once and give its answer as text, or the answer if it is no 200."""
        answer = self._answer(request, timeout_s, whole=True)
        return answer.data.decode("utf-8", "replace") if answer.status == 200 else self._decoded(answer)

    def stream(self, request: Request, *, timeout_s: float) -> Response | Generator[bytes]:
        """Send a request and give the lines of its answer while it lasts, or the answer if it is no 200."""
        answer = self._answer(request, timeout_s, whole=False)
        return lines_of(answer.raw) if answer.status == 200 else self._decoded(answer)

    def _answer(self, request: Request, timeout_s: float, *, whole: bool) -> Response:
        """Get an answer: with newer credentials, on another connection, or from where it leads to."""
        headers, is_renewed, repeated = self._credentials(None) or {}, False, False
        content = {} if request.body is None else {"Content-Type": request.content_type}
        body = None if request.body is None else _encode(request.body)
        query = "&".join(f"{key}={quote(value)}" for key, value in request.query.items())
        path = first = f"{self._pool.address.path}{request.path}{f'?{query}' if query else ''}"
        redirects = 0
        while True:
            sent = {**headers, "Accept": request.accept, **content}
            try:
                answer = self._pool.send(
                    request.method, path, body=body, headers=sent, timeout_s=timeout_s, whole=whole
                )
            except NoAnswerError as error:
                self._counted(request.verb, None)
                # The server closed a kept connection just as we used it.
                if error.broken and request.is_idempotent and not repeated:
                    path, redirects, repeated = first, 0, True
                    continue
                kind = BrokenError if error.broken else UnreachableError
                text = f"no answer from the API server of {self.label} at {self.server}: {error.text}"
                raise kind(text, hint=HINTS[error.about]) from error
            self._counted(request.verb, answer.status)
            elsewhere = redirect_of(answer, self._pool.address) if request.method == "GET" else ""
            if elsewhere and redirects < _MOST_REDIRECTS:
                path, redirects = elsewhere, redirects + 1
                continue
            newer = self._credentials(headers) if answer.status == 401 and not is_renewed else None
            if newer is None:
                return replace(answer, repeated=repeated)
            headers, is_renewed, path, redirects, repeated = newer, True, first, 0, False

    def _decoded(self, answer: Response) -> Response:
        try:
            return replace(answer, body=decoded(answer.data))
        except ValueError:
            text = answer.data.decode("utf-8", "replace").strip()
        content_type = answer.content_type
        if answer.status >= 400 and "html" not in content_type:
            return replace(answer, body=text)
        if answer.status in (429, 502, 503, 504):
            raise TransientError(f"{self.label}: something before the API server answers {answer.status}")
        raise self.no_api(f"HTTP {answer.status}, {content_type or 'no content type'}")

    def no_api(self, why: str) -> ClusterError:
        """Give the fault that something else answers than an API server."""
        return ClusterError(
            f"what answers for {self.label} at {self.server} is no Kubernetes API server ({why})",
            hint="check `server` in the kubeconfig, and whether a proxy or login page stands in between",
        )


# --- JSON and paths ---


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse_constant)
_DEEPEST = 200
_STEPS = [1 if code in b"[{" else -1 for code in range(256)]
_NO_BRACKETS = bytes(code for code in range(256) if code not in b"[{]}")


def decoded(data: bytes) -> Any:
    """Read JSON as an API server means it, without halves of characters; a ValueError if it is none."""
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


def _encode(body: Any) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, TypeError) as error:
        raise InvalidError(f"the object cannot be written as JSON: {error}") from error


# --- objects as the API promises them ---


def object_fault(body: Mapping[str, Any], kind: str, *, named: bool = True) -> str:
    """Say what of an object's metadata or texts is not as the API promises; nothing if all is."""
    if kind in ("ConfigMap", "Secret") and not _are_texts(body.get("data") or {}):
        return "data is no map of texts"
    metadata = body.get("metadata")
    if not isinstance(metadata, Mapping):
        return "metadata is no map"
    if named and not (isinstance(metadata.get("name"), str) and metadata["name"]):
        return "metadata.name is missing"
    for name, fits in _METADATA_FIELDS.items():
        value = metadata.get(name)
        if value is not None and not fits(value):
            return f"metadata.{name} is of another type"
    return ""


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, [*value, *value.values()]))


def are_maps(value: Any) -> bool:
    """Tell whether a value is a list of maps."""
    return isinstance(value, list) and all(isinstance(part, Mapping) for part in value)


_TIME = re.compile(
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?"
    r"(Z|[+-][01][0-9]:[0-5][0-9])"
)


def _is_time(value: Any) -> bool:
    return isinstance(value, str) and _TIME.fullmatch(value) is not None


def _is_tree(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_tree, value.values()))


def _are_managed(value: Any) -> bool:
    texts = ("manager", "operation", "subresource", "apiVersion")
    return are_maps(value) and all(
        _is_tree(entry.get("fieldsV1") or {})
        and all(_is_text(entry.get(key, "")) for key in texts)
        and (entry.get("time") is None or _is_time(entry["time"]))
        for entry in value
    )


_METADATA_FIELDS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("namespace", "uid", "resourceVersion", "generateName"), _is_text),
    **dict.fromkeys(("labels", "annotations"), _are_texts),
    **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), _is_time),
    **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), lambda value: isinstance(value, int)),
    "finalizers": lambda value: isinstance(value, list) and all(map(_is_text, value)),
    "ownerReferences": lambda value: are_maps(value) and all(_is_text(owner.get("uid")) for owner in value),
    "managedFields": _are_managed,
}
