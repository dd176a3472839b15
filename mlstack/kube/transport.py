"""Requests to one API server: patience, streams, redirects, credentials renewed, refusals as our errors."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import field, replace
from functools import partial
from itertools import accumulate
from typing import Any

import mlstack
from mlstack.addresses import quote
from mlstack.dataclass import Record
from mlstack.errors import (
    Cause,
    ClusterError,
    ConflictError,
    FieldConflict,
    ForbiddenError,
    InvalidError,
    ObjectNotFoundError,
    TransientError,
    UnreachableError,
    VersionGoneError,
    WatchExpiredError,
)
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
        is_private = pool.address.is_secure or (pool.address.is_here and not pool.is_proxied)
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


# --- what a refusal means: HTTP code and Status become one of our errors ---
# The table was read off a real API server (1.36). Two traps shape it: a wrong manifest is answered with 500
# and no `reason`, and messages of 422 repeat the refused value, a whole pod template at worst, with secrets.

MESSAGE_LIMIT = 400
FILES_ELSEWHERE = "bring large files in an image or a volume, and name them in the object"
UNKNOWN_KIND = "install what defines it first; `kubectl api-resources` lists what there is"

_CONFLICT = r'conflict with "(?P<manager>[^"]*)"(?: with subresource "(?P<subresource>[^"]*)")?'
_WEBHOOK = r'(?:failed calling|admission) webhook "(?P<name>[^"]+)"'
_LIMIT_RANGE = r"(usage|max limit to request ratio) per (Container|Pod|PersistentVolumeClaim) is "
_CONVERSION = re.compile(r"conversion webhook for (?P<name>\S+, Kind=\S+) failed: (?P<why>.*)", re.DOTALL)
_WARNING = r'\b\d{3} \S+ "((?:[^"\\]|\\.)*)"'
_SHORT_VALUE = re.compile(
    r'("(?:[^"\\]|\\.){0,40}"|\["(?:[^"\\]|\\.){0,40}"\]|-?[\d.]{1,20}|null|true|false|\{\}|\[\]): (.*)',
    re.DOTALL,
)
_PLAIN_TEXT = r"[A-Za-z]+(?:['-][a-z]+)* \S"  # no Go value has a blank after its first letters
_GO_VALUE = "got &value.valueUnstructured{Value:"
_UNTYPED = re.compile(
    r"failed to (?:create typed \w+ object \([^)]*\)|convert new object \([^)]*\) to proper version): "
)
_VERSION_GONE = re.compile(
    r"request to convert CR (?:to|from) an invalid group/version"
    r"|failed to convert merged object to last applied version"
)
_FIELD = re.compile(r"(?P<field>\.\S+): (?P<message>.*)", re.DOTALL)
# The request itself, and the server's way to write an empty path: the object as a whole.
_NO_FIELDS = ("patch", "[]")
_TOO_LONG, _BYTES = "FieldValueTooLong", re.compile(r"(?:may not be more than|must have at most) (\d+) bytes")
# Whoever breaks a limit of that size has put a file there.
_FILE_LIMIT = re.compile(r"\b\d{6,} bytes")
# What etcd says, and the API server when it does not even get so far as to ask it.
_OVER_LIMIT = re.compile(r"message larger than max|request is too large")
_GO_TYPES = {
    '"': "a string",
    "map[": "a map",
    "[": "a list",
    "true": "a boolean",
    "false": "a boolean",
    "<nil>": "null",
}


class _Refusal(Record):
    """One answer, taken apart as far as every reader needs it."""

    reason: str
    message: str
    details: Mapping[str, Any]
    subject: str
    namespace: str
    kind: str

    @property
    def causes(self) -> list[Mapping[str, Any]]:
        causes = self.details.get("causes")
        return [cause for cause in causes if isinstance(cause, Mapping)] if isinstance(causes, list) else []


def error_of(code: int, body: Any, *, subject: str, namespace: str = "", kind: str = "") -> ClusterError:
    """Give the error that an answer means: its HTTP status, the decoded Status or the text.

    `subject` names what the request was about as people do: `Deployment kubeflow/tf-hub`.
    """
    status: Mapping[str, Any] = body if isinstance(body, Mapping) else {"message": str(body)}
    message, details = str(status.get("message") or "no message"), status.get("details")
    answer = _Refusal(
        reason=str(status.get("reason") or ""),
        message=message,
        details=details if isinstance(details, Mapping) else {},
        subject=subject,
        namespace=namespace,
        kind=kind,
    )
    if code in _READERS:
        return _READERS[code](answer)
    if code in (400, 405, 406, 415) and "HTTP request to an HTTPS server" in message:
        hint = "begin `server` of the kubectl context with https://"
        return ClusterError("the API server speaks HTTPS alone", hint=hint)
    if code in (400, 405, 406, 415):
        return InvalidError(f"{subject} is refused: {_plain(message)}")
    if code == 410:
        return WatchExpiredError(f"{subject}: the server no longer has that version")
    if code in (429, 502, 503, 504):
        fault = "too many requests" if code == 429 else "the API server is not available"
        return TransientError(f"{subject}: {fault}: {_short(message)}", hint="try again later")
    return ClusterError(f"{subject}: the API server answered {code}: {_short(message)}")


def warnings_of(headers: Iterable[str]) -> tuple[str, ...]:
    """Give the texts of the answer's `Warning` headers, each once."""
    texts = (re.sub(r"\\(.)", r"\1", text) for header in headers for text in re.findall(_WARNING, header))
    return tuple(dict.fromkeys(texts))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MESSAGE_LIMIT else f"{line[:MESSAGE_LIMIT]} …"


def _plain(message: str) -> str:
    """Cut a message before the first value that it would repeat."""
    return _short(message.partition(": Invalid value:")[0])


def _unauthorized(answer: _Refusal) -> ClusterError:
    text = "the API server does not accept the credentials: expired, or never valid"
    hint = "log in to the cluster again; `kubectl auth whoami` shows whether that worked"
    return ForbiddenError(text, why="credentials", hint=hint)


def _forbidden(answer: _Refusal) -> ClusterError:
    subject, namespace = answer.subject, answer.namespace
    text = answer.message.partition(" is forbidden: ")[2] or answer.message
    message, why = f"{subject}: {_plain(text)}", "rights"
    hint = "ask a cluster administrator for this right"
    if "while custom resource definition is terminating" in text:
        why, hint = "terminating", "try again when the definition is gone"
    elif any(cause.get("reason") == "NamespaceTerminating" for cause in answer.causes):
        why, message = "terminating", f"{subject}: namespace `{namespace}` is being deleted"
        hint = f"wait until `kubectl get namespace {namespace}` finds nothing, then try again"
    elif "exceeded quota" in text or "failed quota" in text:
        why, hint = "quota", f"see `kubectl describe quota -n {namespace}`"
    elif re.search(_LIMIT_RANGE, text):
        why, hint = "quota", f"see `kubectl describe limitrange -n {namespace}`"
    elif "ValidatingAdmissionPolicy '" in text or re.search(_WEBHOOK, answer.message):
        why, hint = "policy", "a policy of the cluster refuses it"
    elif "attempting to grant RBAC permissions" in text:
        why, message = "escalation", f"{subject} grants rights that you do not have yourself: {_short(text)}"
        hint = "ask for these rights, or let a cluster administrator apply it"
    elif text != answer.message and " cannot " not in text:  # an admission plugin: a claim that cannot grow
        why, hint = "policy", "the cluster refuses it, whoever asks"
    return ForbiddenError(message, why=why, hint=hint)


def _not_found(answer: _Refusal) -> ClusterError:
    subject, name = answer.subject, answer.details.get("name")
    if not name:
        text = f"{subject}: the cluster does not know this kind"
        return ObjectNotFoundError(text, what="kind", hint=UNKNOWN_KIND)
    if answer.details.get("kind") == "namespaces" and answer.kind != "Namespace":
        text, hint = f"{subject}: there is no namespace `{name}`", f"kubectl create namespace {name}"
        return ObjectNotFoundError(text, what="namespace", hint=hint)
    return ObjectNotFoundError(f"{subject} is not in the cluster")


def _conflict(answer: _Refusal) -> ClusterError:
    conflicts = []
    for cause in answer.causes:
        if cause.get("reason") == "FieldManagerConflict":
            parts = re.search(_CONFLICT, str(cause.get("message") or ""))
            manager, subresource = parts.group("manager", "subresource") if parts else ("", "")
            path = str(cause.get("field") or "")
            conflicts.append(FieldConflict(manager=manager, path=path, subresource=subresource or ""))
    if conflicts:
        fields = _short(", ".join(f"`{conflict.path}` ({conflict.manager})" for conflict in conflicts))
        return ConflictError(f"{answer.subject} has fields that others own: {fields}", conflicts=conflicts)
    if answer.reason == "AlreadyExists":
        return ConflictError(f"{answer.subject} already exists")
    text = f"{answer.subject} changed or was replaced in the meantime"
    return ConflictError(text, hint="run the command again")


def _too_large(answer: _Refusal) -> ClusterError:
    text = f"{answer.subject} is too large for the API server: {_short(answer.message)}"
    return InvalidError(text, hint=FILES_ELSEWHERE)


def _invalid(answer: _Refusal) -> ClusterError:
    causes = list(dict.fromkeys(_cause(cause, answer.kind) for cause in answer.causes))  # some are said twice
    if not causes and "rejected our request" in answer.message:
        # All the server says when a `test` of a JSON patch fails, or its path is not there.
        return InvalidError(f"{answer.subject}: the patch does not fit what is in the cluster")
    if not causes:
        return InvalidError(f"{answer.subject} is refused: {_plain(answer.message)}")
    is_file = any(cause.reason == _TOO_LONG and _FILE_LIMIT.search(cause.message) for cause in causes)
    hint = FILES_ELSEWHERE if is_file else None
    return InvalidError(
        f"{answer.subject} is refused: {'; '.join(map(str, causes))}", causes=causes, hint=hint
    )


def _cause(cause: Mapping[str, Any], kind: str) -> Cause:
    field, reason, message = (str(cause.get(key) or "") for key in ("field", "reason", "message"))
    limit = _BYTES.search(message)
    if reason != _TOO_LONG or limit is None:
        message = _readable(message, secret=kind == "Secret")
    elif kind in ("ConfigMap", "Secret") and field in ("[]", "data"):
        message = f"its values together take more than the {limit[1]} bytes that a {kind} may hold"
    else:
        message = f"takes more than the {limit[1]} bytes that it may hold"
    return Cause(field="" if field in _NO_FIELDS else field, reason=reason, message=_short(message))


def _internal(answer: _Refusal) -> ClusterError:
    subject, message = answer.subject, answer.message
    hint = "see that the service behind the webhook runs, then try again"
    if webhook := re.search(_WEBHOOK, message):
        why = _short(message.rpartition("failed to call webhook: ")[2])
        text = f"{subject}: admission webhook `{webhook['name']}` does not answer: {why}"
        more = "if the webhook itself keeps it from starting, delete the webhook's configuration first"
        return TransientError(text, webhook=webhook["name"], hint=f"{hint}; {more}")
    if conversion := _CONVERSION.search(message):
        name, why = conversion["name"], _short(conversion["why"])
        text = f"{subject}: the webhook that converts `{name}` does not answer: {why}"
        return TransientError(text, webhook=name, hint=hint)
    if _VERSION_GONE.search(message):
        return VersionGoneError(
            f"{subject} was written in another version of its definition: {_short(message)}",
            hint="rewrite the object and its managed fields in a version that is served",
        )
    if _OVER_LIMIT.search(message):
        return _too_large(answer)
    if causes := _schema_causes(message):
        return InvalidError(f"{subject} is refused: {'; '.join(map(str, causes))}", causes=causes)
    if answer.reason in ("InternalError", "Timeout", "ServerTimeout"):
        return TransientError(f"{subject}: {_short(message)}")
    return ClusterError(f"{subject}: the API server failed: {_plain(message)}")


_READERS: Mapping[int, Callable[[_Refusal], ClusterError]] = {
    401: _unauthorized,
    403: _forbidden,
    404: _not_found,
    409: _conflict,
    413: _too_large,
    422: _invalid,
    500: _internal,
}


def _schema_causes(message: str) -> list[Cause]:
    """Take apart what the server says of an object that does not fit its schema (500 without reason)."""
    start = _UNTYPED.search(message)
    lines = message[start.end() :].removeprefix("errors:").splitlines() if start else []
    texts = [_short(_without_go_value(line.strip())) for line in lines if line.strip()]
    parts = [(_FIELD.fullmatch(text), text) for text in texts]
    return [Cause(field=m["field"], message=m["message"]) if m else Cause(message=text) for m, text in parts]


def _without_go_value(line: str) -> str:
    """Put a type in the place of a value, which goes to the last brace; by search alone: servers may lie."""
    head, mark, rest = line.partition(_GO_VALUE)
    if not mark:
        return line
    tail = rest.rpartition("}")[2] if "}" in rest else ""
    names = (name for start, name in _GO_TYPES.items() if rest.startswith(start))
    name = "a number" if rest[:1] in "-0123456789" else next(names, "another type")
    return f"{head}got {name}{tail.partition(_GO_VALUE)[0]}"


def _readable(message: str, *, secret: bool) -> str:
    """Cut a refused value out of a message unless it is short, plain and no secret's."""
    head, mark, rest = message.partition("Invalid value: ")
    if not mark:
        return message
    short = _SHORT_VALUE.fullmatch(rest)
    if short and not secret:
        return f"{head}{short[1]}: {short[2]}"
    if re.match(_PLAIN_TEXT, rest):  # rules about changes are told without the value
        return f"{head}{rest}"
    tail = rest.rpartition("}: ")[2] if "}: " in rest else rest.rpartition('": ')[2]
    return f"{head}{tail}" if tail and tail != rest and len(tail) < MESSAGE_LIMIT else f"{head}invalid value"
