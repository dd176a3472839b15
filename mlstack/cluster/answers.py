"""What an API server's refusal means: HTTP code and Status → one of our errors.

The table was read off a real API server (1.36). Two traps shape it: a wrong manifest is answered with 500 and
no `reason`, and messages of 422 repeat the refused value, a whole pod template at worst, secrets included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from mlstack.errors import (
    Cause,
    ClusterError,
    ConflictError,
    FieldConflict,
    ForbiddenError,
    InvalidError,
    ObjectNotFoundError,
    TransientError,
    VersionGoneError,
    WatchExpiredError,
)

MESSAGE_LIMIT = 400

_CONFLICT = re.compile(r'conflict with "(?P<manager>[^"]*)"(?: with subresource "(?P<subresource>[^"]*)")?')
_WEBHOOK = re.compile(r'(?:failed calling|admission) webhook "(?P<name>[^"]+)"')
_CONVERSION = re.compile(r"conversion webhook for (?P<name>\S+, Kind=\S+) failed: (?P<why>.*)", re.DOTALL)
_WARNING = re.compile(r'\b\d{3} \S+ "((?:[^"\\]|\\.)*)"')
_SHORT_VALUE = re.compile(
    r'("(?:[^"\\]|\\.){0,40}"|\["(?:[^"\\]|\\.){0,40}"\]|-?[\d.]{1,20}|null|true|false|\{\}|\[\]): (.*)',
    re.DOTALL,
)
_PLAIN_TEXT = re.compile(r"[A-Za-z]+(?:['-][a-z]+)* \S")  # no Go value has a blank after its first letters
_GO_VALUE = "got &value.valueUnstructured{Value:"
_TYPED = re.compile(r"failed to create typed \w+ object \([^)]*\): ")
_CONVERT = re.compile(r"failed to convert new object \([^)]*\) to proper version: ")
_VERSION_GONE = re.compile(r"request to convert CR (?:to|from) an invalid group/version")
_FIELD = re.compile(r"(?P<field>\.\S+): (?P<message>.*)", re.DOTALL)
# The request itself, and the server's way to write an empty path: the object as a whole.
_NO_FIELDS = ("patch", "[]")
_TOO_LONG, _BYTES = "FieldValueTooLong", re.compile(r"(?:may not be more than|must have at most) (\d+) bytes")
# Whoever breaks a limit of that size has put a file there.
_FILE_LIMIT = re.compile(r"\b\d{6,} bytes")
# What etcd says, and the API server when it does not even get so far as to ask it.
_OVER_LIMIT = re.compile(r"message larger than max|request is too large")
FILES_ELSEWHERE = "bring large files in an image or a volume, and name them in the object"
_GO_TYPES = (
    ('"', "a string"),
    ("map[", "a map"),
    ("[", "a list"),
    ("true", "a boolean"),
    ("false", "a boolean"),
    ("<nil>", "null"),
)


def error_of(code: int, body: Any, *, subject: str, namespace: str = "", kind: str = "") -> ClusterError:
    """Give the error that an answer of the API server means.

    Args:
        code: HTTP status.
        body: the decoded Status, or the text where the answer was no JSON.
        subject: what the request was about, as people name it: `Deployment kubeflow/tf-hub`.
        namespace: the namespace of the request.
        kind: the kind of the request.
    """
    status: Mapping[str, Any] = body if isinstance(body, Mapping) else {"message": str(body)}
    reader = _READERS.get(code)
    if reader is not None:
        return reader(_Answer(code, status, subject, namespace, kind, is_text=not isinstance(body, Mapping)))
    return ClusterError(f"{subject}: the API server answered {code}: {_short(_message(status))}")


def warnings_of(headers: Iterable[str]) -> tuple[str, ...]:
    """Give the texts of the answer's `Warning` headers, each once."""
    texts = (re.sub(r"\\(.)", r"\1", text) for header in headers for text in _WARNING.findall(header))
    return tuple(dict.fromkeys(texts))


class _Answer:
    """One refusal, taken apart as far as every reader needs it."""

    def __init__(
        self, code: int, status: Mapping[str, Any], subject: str, namespace: str, kind: str, *, is_text: bool
    ) -> None:
        self.code = code
        self.reason = str(status.get("reason") or "")
        self.message = _message(status)
        details = status.get("details")
        self.details: Mapping[str, Any] = details if isinstance(details, Mapping) else {}
        causes = self.details.get("causes")
        self.causes: list[Mapping[str, Any]] = [
            cause for cause in (causes if isinstance(causes, list) else ()) if isinstance(cause, Mapping)
        ]
        self.subject = subject
        self.namespace = namespace
        self.kind = kind
        self.is_text = is_text


def _message(status: Mapping[str, Any]) -> str:
    return str(status.get("message") or "no message")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MESSAGE_LIMIT else f"{line[:MESSAGE_LIMIT]} …"


def _bad_request(answer: _Answer) -> ClusterError:
    if "HTTP request to an HTTPS server" in answer.message:
        hint = "begin `server` of the kubectl context with https://"
        return ClusterError("the API server speaks HTTPS alone", hint=hint)
    return InvalidError(f"{answer.subject} is refused: {_short(_without_values(answer.message))}")


def _unauthorized(answer: _Answer) -> ClusterError:
    return ForbiddenError(
        "the API server does not accept the credentials of the kubectl context: expired, or never valid",
        why="credentials",
        hint="log in to the cluster again; `kubectl auth whoami` shows whether that worked",
    )


def _forbidden(answer: _Answer) -> ClusterError:
    text = answer.message.partition(" is forbidden: ")[2] or answer.message
    said = f"{answer.subject}: {_short(_without_values(text))}"
    if "while custom resource definition is terminating" in text:
        return ForbiddenError(said, why="terminating", hint="try again when the definition is gone")
    if any(cause.get("reason") == "NamespaceTerminating" for cause in answer.causes):
        return ForbiddenError(
            f"{answer.subject}: namespace `{answer.namespace}` is being deleted",
            why="terminating",
            hint=f"wait until `kubectl get namespace {answer.namespace}` finds nothing, then try again",
        )
    if "exceeded quota" in text or "must specify limits" in text:
        hint = f"see `kubectl describe quota -n {answer.namespace}`"
        return ForbiddenError(said, why="quota", hint=hint)
    if "ValidatingAdmissionPolicy '" in text or _WEBHOOK.search(answer.message):
        return ForbiddenError(said, why="policy", hint="a policy of the cluster refuses it")
    if "attempting to grant RBAC permissions" in text:
        return ForbiddenError(
            f"{answer.subject} grants rights that you do not have yourself: {_short(text)}",
            why="escalation",
            hint="ask for these rights, or let a cluster administrator apply it",
        )
    if (
        text != answer.message and " cannot " not in text
    ):  # what an admission plugin says, as of a claim that cannot grow
        return ForbiddenError(said, why="policy", hint="the cluster refuses it, whoever asks")
    return ForbiddenError(said, why="rights", hint="ask a cluster administrator for this right")


def _not_found(answer: _Answer) -> ClusterError:
    named = answer.details.get("name")
    if answer.is_text or not named:
        return ObjectNotFoundError(
            f"{answer.subject}: the cluster does not know this kind",
            what="kind",
            hint="install what defines it first; `kubectl api-resources` lists what there is",
        )
    if answer.details.get("kind") == "namespaces" and answer.kind != "Namespace":
        return ObjectNotFoundError(
            f"{answer.subject}: there is no namespace `{named}`",
            what="namespace",
            hint=f"kubectl create namespace {named}",
        )
    return ObjectNotFoundError(f"{answer.subject} is not in the cluster")


def _conflict(answer: _Answer) -> ClusterError:
    conflicts = [_field_conflict(c) for c in answer.causes if c.get("reason") == "FieldManagerConflict"]
    if conflicts:
        fields = ", ".join(f"`{found.path}` ({found.manager})" for found in conflicts)
        return ConflictError(
            f"{answer.subject} has fields that others own: {_short(fields)}", conflicts=conflicts
        )
    if answer.reason == "AlreadyExists":
        return ConflictError(f"{answer.subject} already exists")
    return ConflictError(
        f"{answer.subject} changed or was replaced in the meantime", hint="run the command again"
    )


def _field_conflict(cause: Mapping[str, Any]) -> FieldConflict:
    found = _CONFLICT.search(str(cause.get("message") or ""))
    return FieldConflict(
        manager=found["manager"] if found else "",
        path=str(cause.get("field") or ""),
        subresource=(found["subresource"] or "") if found else "",
    )


def _gone(answer: _Answer) -> ClusterError:
    return WatchExpiredError(f"{answer.subject}: the server no longer has that version")


def _too_large(answer: _Answer) -> ClusterError:
    return InvalidError(
        f"{answer.subject} is too large for the API server: {_short(answer.message)}", hint=FILES_ELSEWHERE
    )


def _invalid(answer: _Answer) -> ClusterError:
    # The server may say the same twice; the field `patch` is the request itself.
    causes = list(
        dict.fromkeys(
            Cause(
                field="" if cause.get("field") in _NO_FIELDS else str(cause.get("field") or ""),
                reason=str(cause.get("reason") or ""),
                message=_short(
                    _too_long(cause, answer.kind)
                    or _readable(str(cause.get("message") or ""), secret=answer.kind == "Secret")
                ),
            )
            for cause in answer.causes
        )
    )
    if not causes and "rejected our request" in answer.message:
        # All the server says when a `test` of a JSON patch fails, or its path is not there.
        return InvalidError(f"{answer.subject}: the patch does not fit what is in the cluster")
    if not causes:
        return InvalidError(f"{answer.subject} is refused: {_short(_without_values(answer.message))}")
    is_file = any(cause.reason == _TOO_LONG and _FILE_LIMIT.search(cause.message) for cause in causes)
    hint = FILES_ELSEWHERE if is_file else None
    return InvalidError(f"{answer.subject} is refused: {_listed(causes)}", causes=causes, hint=hint)


def _too_long(cause: Mapping[str, Any], kind: str) -> str:
    """Say which limit an object breaks as a whole; empty if a cause is another one."""
    limit = _BYTES.search(str(cause.get("message") or ""))
    if cause.get("reason") != _TOO_LONG or limit is None:
        return ""
    if kind in ("ConfigMap", "Secret") and cause.get("field") in ("[]", "data"):
        return f"its values together take more than the {limit[1]} bytes that a {kind} may hold"
    return f"takes more than the {limit[1]} bytes that it may hold"


def _internal(answer: _Answer) -> ClusterError:
    webhook = _WEBHOOK.search(answer.message)
    if webhook:
        return TransientError(
            f"{answer.subject}: admission webhook `{webhook['name']}` does not answer: "
            f"{_short(answer.message.rpartition('failed to call webhook: ')[2])}",
            webhook=webhook["name"],
            hint="see that the service behind the webhook runs, then try again;"
            " if the webhook itself keeps it from starting, delete the webhook's configuration first",
        )
    conversion = _CONVERSION.search(answer.message)
    if conversion:
        return TransientError(
            f"{answer.subject}: the webhook that converts `{conversion['name']}` does not answer: "
            f"{_short(conversion['why'])}",
            webhook=conversion["name"],
            hint="see that the service behind the webhook runs, then try again",
        )
    if _VERSION_GONE.search(answer.message):
        return VersionGoneError(
            f"{answer.subject} was written in a version that its definition no longer has: "
            f"{_short(answer.message)}",
            hint="rewrite the object and its managed fields in a version that is served",
        )
    if _OVER_LIMIT.search(answer.message):
        return _too_large(answer)
    causes = _typed_causes(answer.message)
    if causes:
        return InvalidError(f"{answer.subject} is refused: {_listed(causes)}", causes=causes)
    if answer.reason in ("InternalError", "Timeout", "ServerTimeout"):
        return TransientError(f"{answer.subject}: {_short(answer.message)}")
    return ClusterError(f"{answer.subject}: the API server failed: {_short(_without_values(answer.message))}")


def _unavailable(answer: _Answer) -> ClusterError:
    asked = "too many requests" if answer.code == 429 else "the API server is not available"
    return TransientError(f"{answer.subject}: {asked}: {_short(answer.message)}", hint="try again later")


_READERS = {
    400: _bad_request,
    401: _unauthorized,
    403: _forbidden,
    404: _not_found,
    405: _bad_request,
    406: _bad_request,
    409: _conflict,
    410: _gone,
    413: _too_large,
    415: _bad_request,
    422: _invalid,
    429: _unavailable,
    500: _internal,
    502: _unavailable,
    503: _unavailable,
    504: _unavailable,
}


def _listed(causes: Iterable[Cause]) -> str:
    return "; ".join(f"`{cause.field}` {cause.message}" if cause.field else cause.message for cause in causes)


def _typed_causes(message: str) -> list[Cause]:
    """Take apart what the server says of an object that does not fit its schema (500 without reason)."""
    start = _TYPED.search(message) or _CONVERT.search(message)
    if start is None:
        return []
    lines = [line.strip() for line in message[start.end() :].removeprefix("errors:").splitlines()]
    return [_typed_cause(line) for line in lines if line]


def _typed_cause(line: str) -> Cause:
    text = _short(_without_go_value(line))
    found = _FIELD.fullmatch(text)
    return Cause(field=found["field"], message=found["message"]) if found else Cause(message=text)


def _without_go_value(line: str) -> str:
    """Put a type in the place of a value, which goes to the last brace; by search alone: servers may lie."""
    head, mark, rest = line.partition(_GO_VALUE)
    if not mark:
        return line
    tail = rest.rpartition("}")[2] if "}" in rest else ""
    return f"{head}got {_go_type(rest)}{tail.partition(_GO_VALUE)[0]}"


def _go_type(value: str) -> str:
    if value[:1] in "-0123456789":
        return "a number"
    return next((name for start, name in _GO_TYPES if value.startswith(start)), "another type")


def _readable(message: str, *, secret: bool) -> str:
    """Cut a refused value out of a message unless it is short, plain and no secret's."""
    head, found, rest = message.partition("Invalid value: ")
    if not found:
        return message
    short = _SHORT_VALUE.fullmatch(rest)
    if short and not secret:
        return f"{head}{short[1]}: {short[2]}"
    if _PLAIN_TEXT.match(rest):  # rules about changes are told without the value
        return f"{head}{rest}"
    tail = rest.rpartition("}: ")[2] if "}: " in rest else rest.rpartition('": ')[2]
    return f"{head}{tail}" if tail and tail != rest and len(tail) < MESSAGE_LIMIT else f"{head}invalid value"


def _without_values(message: str) -> str:
    """Cut a message before the first value that it would repeat."""
    return message.partition(": Invalid value:")[0]
