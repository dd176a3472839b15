"""Read what an API server says of the kinds it has: aggregated discovery, and the older one by group."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

from mlstack.app.app import ClusterIdentity
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
from mlstack.kube.client import (
    INITIAL_EVENTS_END,
    Applied,
    Listing,
    ObjectRef,
    PatchKind,
    Propagation,
    Right,
    Rights,
    WatchEvent,
    written,
)
from mlstack.kube.http import APPLY, BrokenError, Request, Response, Transport, decoded, quote
from mlstack.kube.parallel import prefetch
from mlstack.objects.kinds import Kind, Kinds
from mlstack.objects.kube_object import MANAGER

# --- Read what an API server says of the kinds it has: aggregated discovery, and the older one by
# group

AGGREGATED = ",".join(
    (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        "application/json",
    )
)


PARTS = frozenset({"items", "groups", "versions", "resources"})
"""What answers with kinds hold, each one of them."""


def is_aggregated(content_type: str) -> bool:
    """Say whether an answer is the aggregated form: servers before 1.26 give the older one."""
    return "as=APIGroupDiscoveryList" in content_type.replace(" ", "")


def aggregated_kinds(body: Mapping[str, Any]) -> Iterator[Kind]:
    """Give the kinds of one `APIGroupDiscoveryList`."""
    for group in body.get("items") or ():
        name = str((group.get("metadata") or {}).get("name") or "")
        for version in group.get("versions") or ():
            for resource in version.get("resources") or ():
                yield Kind(
                    group=name,
                    version=str(version["version"]),
                    kind=str((resource.get("responseKind") or {}).get("kind") or ""),
                    plural=str(resource["resource"]),
                    namespaced=resource.get("scope") == "Namespaced",
                    has_status=any(
                        one.get("subresource") == "status" for one in resource.get("subresources") or ()
                    ),
                )


def group_paths(core: Mapping[str, Any], groups: Mapping[str, Any]) -> list[str]:
    """Give the path of every group and version that the older `/api` and `/apis` answers name."""
    return [f"/api/{version}" for version in core.get("versions") or ()] + [
        f"/apis/{version['groupVersion']}"
        for group in groups.get("groups") or ()
        for version in group.get("versions") or ()
    ]


def listed_kinds(body: Mapping[str, Any]) -> Iterator[Kind]:
    """Give the kinds of one `APIResourceList`; subresources are no kinds."""
    group, _, version = str(body.get("groupVersion") or "").rpartition("/")
    names = {str(resource["name"]) for resource in body.get("resources") or ()}
    for resource in body.get("resources") or ():
        if "/" not in resource["name"]:
            yield Kind(
                group=group,
                version=version,
                kind=str(resource["kind"]),
                plural=str(resource["name"]),
                namespaced=bool(resource.get("namespaced")),
                has_status=f"{resource['name']}/status" in names,
            )


# --- What an API server's refusal means: HTTP code and Status → one of our errors ---
# The table was read off a real API server (1.36). Two traps shape it: a wrong manifest is answered with 500
# and no `reason`, and messages of 422 repeat the refused value, a whole pod template at worst, secrets
# included.

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


# --- The cluster port on a real API server: each verb as the one request that does it ---
# Raw paths instead of the library's dynamic client: discovery takes two requests instead of one a group, and
# a write costs half the time.

PAGE = 1000
MOST_PAGES = 1000
SILENCE_S = 15.0
"""How much longer than asked a watch may stay open before its connection is given up."""

# The default of API servers, which hang up on what is larger.
_MOST_BYTES = 3 * 1024 * 1024
_KUBE_SYSTEM = ObjectRef("v1", "Namespace", "", "kube-system")
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_TIME = re.compile(
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?"
    r"(Z|[+-][01][0-9]:[0-5][0-9])"
)
_KEEP_TEXTS = ("ConfigMap", "Secret")
_PATCH_TYPES = {"merge": "application/merge-patch+json", "json": "application/json-patch+json"}


class ApiServerClient:
    """A cluster behind an API server; see `mlstack.kube.client.Cluster` for the verbs.

    Args:
        transport: sends the requests.
        ca: `sha256:…` of the CA certificates the server is verified with, None for public ones.
    """

    def __init__(self, transport: Transport, *, ca: str | None) -> None:
        """Hold the parts; nothing is sent."""
        self._transport = transport
        self._ca = ca
        self._served: Kinds | None = None
        self._defined = Kinds(())
        self._lock = Lock()

    def identity(self) -> ClusterIdentity:
        """Give what tells this cluster from others; the UID is None where it may not be read."""
        try:
            found = self.get(_KUBE_SYSTEM)
        except ForbiddenError as error:
            if error.why == "credentials":
                raise
            found = None
        if found is not None and not found["metadata"].get("uid"):
            raise self._transport.no_api("namespace kube-system has no uid")
        uid = str(found["metadata"]["uid"]) if found else None
        return ClusterIdentity(uid=uid, ca=self._ca, server=self._transport.server)

    def kinds(self, *, refresh: bool = False) -> Kinds:
        """Give the kinds the server has; asks it once, and again with `refresh`."""
        with self._lock:
            if self._served is None or refresh:
                self._served = Kinds(self._discover())
            return self._served

    def expect(self, requests: int) -> None:
        """Take note that so many requests will come at once: connections are opened meanwhile."""
        self._transport.expect(requests)

    def may(self, right: Right) -> bool:
        """Tell whether we have a right: one SelfSubjectAccessReview."""
        wanted = {
            "group": right.group,
            "resource": right.resource,
            "namespace": right.namespace,
            "verb": right.verb,
            "name": right.name,
        }
        given = {key: value for key, value in wanted.items() if value}
        return bool(self._review("SelfSubjectAccessReview", {"resourceAttributes": given}).get("allowed"))

    def rights(self, namespace: str) -> Rights:
        """Give the rights we have in a namespace that the server can list: one SelfSubjectRulesReview."""
        status = self._review("SelfSubjectRulesReview", {"namespace": namespace})
        rules = status.get("resourceRules") or []
        if not (_are_maps(rules) and all(_are_lists(rule) for rule in rules)):
            raise self._transport.no_api("rules of other types than promised")
        return Rights(rules=tuple(rules))

    def _review(self, kind: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask about ourselves; nothing is kept of the question, so asking twice does no harm."""
        request = Request(
            method="POST",
            path=f"/apis/authorization.k8s.io/v1/{kind.lower()}s",
            body={"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec},
            is_idempotent=True,
        )
        answer = self._ask(request, ObjectRef("authorization.k8s.io/v1", kind, "", "")).body
        status = answer.get("status")
        if not isinstance(status, Mapping):
            raise self._transport.no_api(f"{kind} without status")
        return status

    def get(self, ref: ObjectRef) -> dict[str, Any] | None:
        """Read one object, None if it, its namespace or its kind is not there."""
        try:
            path = self._path(ref.api_version, ref.kind, ref.namespace, ref.name)
        except (ObjectNotFoundError, InvalidError):  # nothing can be at such an address
            return None
        try:
            answer = self._ask(Request(method="GET", path=path, is_idempotent=True), ref)
            return dict(self._object(answer.body, ref))
        except ObjectNotFoundError:
            return None

    def list(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
    ) -> Listing:
        """List the objects of one kind, in pages where there are many."""
        subject = ObjectRef(api_version, kind, namespace or "", "")
        path = self._path(api_version, kind, namespace, "")
        query = _selection(labels, fields) | {"limit": str(PAGE)}
        accept = _METADATA_LIST if metadata_only else "application/json"
        items: list[Mapping[str, Any]] = []
        for _ in range(MOST_PAGES):
            request = Request(method="GET", path=path, query=query, accept=accept, is_idempotent=True)
            try:
                page = self._ask(request, subject).body
            except WatchExpiredError:
                if "continue" not in query:
                    raise
                # The list changed too much between two pages: take it in one piece.
                items, query = [], _selection(labels, fields)
                continue
            found, metadata = page.get("items") or [], page.get("metadata")
            if "items" not in page or not isinstance(found, list) or not isinstance(metadata, Mapping):
                raise self._transport.no_api(f"a list of {kind} without items or metadata")
            items += (_named(self._object(item, subject), api_version, kind) for item in found)
            if not metadata.get("continue"):
                version = metadata.get("resourceVersion") or ""  # lists of ComponentStatus have none
                return Listing(items=tuple(items), resource_version=str(version))
            query = query | {"continue": str(metadata["continue"])}
        raise self._transport.no_api(f"a list of {kind} without end")

    def apply(
        self,
        obj: Mapping[str, Any],
        *,
        manager: str = MANAGER,
        force: bool = False,
        dry_run: bool = False,
    ) -> Applied:
        """Write what we want of an object by server-side apply; unknown fields are refused."""
        ref = ObjectRef.of(obj)
        query = _writing(manager, dry_run=dry_run) | {"force": str(force).lower()}
        return self._write(
            Request(
                method="PATCH",
                path=self._path(ref.api_version, ref.kind, ref.namespace, _name(ref)),
                query=query,
                body=obj,
                content_type=APPLY,
                is_idempotent=True,
            ),
            ref,
            dry_run=dry_run,
        )

    def create(self, obj: Mapping[str, Any], *, manager: str = MANAGER, dry_run: bool = False) -> Applied:
        """Create an object."""
        ref = ObjectRef.of(obj)
        path = self._path(ref.api_version, ref.kind, ref.namespace, "")
        query = _writing(manager, dry_run=dry_run)
        # A second request finds the object of the first by its name; without a name there would be two.
        request = Request(method="POST", path=path, query=query, body=obj, is_idempotent=bool(ref.name))
        return self._write(request, ref, dry_run=dry_run)

    def replace(
        self, obj: Mapping[str, Any], *, manager: str = MANAGER, subresource: str = "", dry_run: bool = False
    ) -> Applied:
        """Put an object in place of the one that is there; a `resourceVersion` in it must be the live one."""
        ref = ObjectRef.of(obj)
        path = self._path(ref.api_version, ref.kind, ref.namespace, _name(ref), subresource)
        query = _writing(manager, dry_run=dry_run)
        request = Request(method="PUT", path=path, query=query, body=obj, is_idempotent=True)
        return self._write(request, ref, subresource, dry_run=dry_run)

    def patch(
        self,
        ref: ObjectRef,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        kind: PatchKind = "merge",
        subresource: str = "",
        manager: str = MANAGER,
        dry_run: bool = False,
    ) -> Applied:
        """Change parts of an object: JSON merge patch (a mapping) or JSON patch (a list of operations)."""
        return self._write(
            Request(
                method="PATCH",
                path=self._path(ref.api_version, ref.kind, ref.namespace, _name(ref), subresource),
                query=_writing(manager, dry_run=dry_run),
                body=patch,
                content_type=_PATCH_TYPES[kind],
                is_idempotent=kind == "merge",
            ),
            ref,
            subresource,
            dry_run=dry_run,
        )

    def delete(
        self,
        ref: ObjectRef,
        *,
        propagation: Propagation = "Foreground",
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_s: int | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any] | None:
        """Delete an object; gives it while it waits for finalizers, None once it is gone."""
        # A body replaces all query options, `dryRun` too: everything stands in the body.
        body: dict[str, Any] = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": propagation,
            **({"dryRun": ["All"]} if dry_run else {}),
            **({"gracePeriodSeconds": grace_period_s} if grace_period_s is not None else {}),
        }
        given = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {key: value for key, value in given.items() if value is not None}
        if preconditions:
            body["preconditions"] = preconditions
        path = self._path(ref.api_version, ref.kind, ref.namespace, _name(ref))
        request = Request(method="DELETE", path=path, body=body, is_idempotent=uid is not None)
        response = self._transport.send(request)
        if response.repeated and response.code == 404 and not dry_run:
            return None
        answer = self._answered(response, ref).body
        if answer.get("kind") != "Status":
            answer = self._object(answer, ref)
        return _named(answer, ref.api_version, ref.kind) if is_waiting(answer) else None

    def watch(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        resource_version: str = "",
        timeout_s: float,
    ) -> Iterator[WatchEvent]:
        """Watch the objects of one kind; begins with what there is unless a version is given."""
        subject = ObjectRef(api_version, kind, namespace or "", "")
        request = Request(
            method="GET",
            path=self._path(api_version, kind, namespace, ""),
            query=_selection(labels, fields) | _watching(resource_version, timeout_s),
            accept=_METADATA if metadata_only else "application/json",
            is_idempotent=True,
        )
        silence_s = timeout_s + SILENCE_S
        lines = self._transport.stream(request, timeout_s=silence_s)
        if isinstance(lines, Response) and not resource_version and lines.code in (400, 422):
            # Servers before 1.32 do not stream what there is: list, then watch from there.
            listing = self.list(
                api_version,
                kind,
                namespace=namespace,
                labels=labels,
                fields=fields,
                metadata_only=metadata_only,
            )
            yield from _initial(listing)
            query = _selection(labels, fields) | _watching(listing.resource_version, timeout_s)
            lines = self._transport.stream(replace(request, query=query), timeout_s=silence_s)
        if isinstance(lines, Response):
            raise self._error(lines, subject)
        for line in lines:
            yield self._event(line, subject)

    def logs(
        self,
        ref: ObjectRef,
        container: str,
        *,
        previous: bool = False,
        lines: int,
        most_bytes: int,
        timeout_s: float,
    ) -> str:
        """Give the last lines that a container has written; its node, not the API server, may stay silent."""
        query = {"container": container, "tailLines": str(lines), "limitBytes": str(most_bytes)}
        request = Request(
            method="GET",
            path=self._path(ref.api_version, ref.kind, ref.namespace, ref.name, "log"),
            query=query | ({"previous": "true"} if previous else {}),
            accept="*/*",
        )
        try:
            answer = self._transport.text(request, timeout_s=timeout_s)
        except UnreachableError as error:
            raise TransientError(f"`{ref}`: its node does not give its logs") from error
        if isinstance(answer, Response):
            raise self._error(answer, ref)
        return answer

    def _event(self, line: bytes, subject: ObjectRef) -> WatchEvent:
        try:
            event = decoded(line)
            kind, found = event["type"], event["object"]
        except (ValueError, KeyError, TypeError) as error:
            raise ClusterError(f"{subject}: a watch gave a line that is no event") from error
        if kind == "ERROR" and isinstance(found, Mapping):
            code = found.get("code")
            code = code if isinstance(code, int) else 500
            raise error_of(code, found, subject=f"watch of {subject.kind}")
        if kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
            raise ClusterError(f"{subject}: a watch gave a line that is no event")
        found = self._object(found, subject, named=kind != "BOOKMARK")
        return WatchEvent(type=kind, object=_named(found, subject.api_version, subject.kind))

    def _write(self, request: Request, ref: ObjectRef, subresource: str = "", *, dry_run: bool) -> Applied:
        try:
            response = self._transport.send(request)
        except BrokenError as error:
            size_bytes = len(json.dumps(request.body))
            if size_bytes <= _MOST_BYTES:
                raise
            said = f"{size_bytes} bytes, where it takes {_MOST_BYTES} at most"
            raise InvalidError(
                f"`{ref}` is too large for the API server: {said}", hint=FILES_ELSEWHERE
            ) from error
        if response.repeated and response.code == 409 and not dry_run:
            live = written(self, ref, request.body, subresource)
            if live is not None:
                return Applied(object=live, warnings=(), created=request.method == "POST")
        response = self._answered(response, ref)
        self._object(response.body, ref)
        if ref.kind == "CustomResourceDefinition":
            # Discovery shows a new kind a moment after it can be used.
            with self._lock:
                self._defined = self._defined.with_crds([response.body])
        return Applied(
            object=response.body,
            warnings=warnings_of(response.warnings),
            created=response.code == 201,
        )

    def _ask(self, request: Request, ref: ObjectRef) -> Response:
        return self._answered(self._transport.send(request), ref)

    def _answered(self, response: Response, ref: ObjectRef) -> Response:
        if response.code >= 300:
            raise self._error(response, ref)
        if not isinstance(response.body, Mapping):
            raise self._transport.no_api("its answer is no map")
        return response

    def _object(self, body: Any, ref: ObjectRef, *, named: bool = True) -> Mapping[str, Any]:
        """Give an answer that is an object, whose metadata are what the API promises of every kind.

        Raises:
            ClusterError: it is none.
        """
        fault = "it is no map" if not isinstance(body, Mapping) else object_fault(body, ref.kind, named=named)
        if fault:
            raise self._transport.no_api(f"an answer for {ref} is no object: {fault}")
        return body  # type: ignore[no-any-return] # a map without a fault

    def _error(self, response: Response, ref: ObjectRef) -> ClusterError:
        subject = str(ref) if ref.name else ref.kind
        error = error_of(
            response.code, response.body, subject=f"`{subject}`", namespace=ref.namespace, kind=ref.kind
        )
        if isinstance(error, ForbiddenError) and error.why in ("credentials", "rights"):
            error.hint = self._transport.why_nobody or error.hint
        return error

    def _path(
        self, api_version: str, kind: str, namespace: str | None, name: str, subresource: str = ""
    ) -> str:
        """Give the path of an object, or of all objects of a kind where `name` is empty."""
        found = self._kind(api_version, kind)
        parts = ["apis", *api_version.split("/")] if found.group else ["api", api_version]
        if found.namespaced and namespace:
            parts += ["namespaces", namespace]
        elif found.namespaced and (name or namespace is not None):
            raise InvalidError(f"`{kind} {name}` needs a namespace")
        parts += [part for part in (found.plural, name, subresource) if part]
        if unfit := [part for part in parts if part in ("", ".", "..")]:
            raise InvalidError(f"`{kind} {name}`: `{unfit[0]}` cannot stand in the path of an object")
        return "/" + "/".join(quote(part) for part in parts)

    def _kind(self, api_version: str, kind: str) -> Kind:
        """Find a kind: built-in and just defined ones without asking, others from the server, twice."""
        found = Kinds.builtin().lookup(api_version, kind) or self._defined.lookup(api_version, kind)
        found = found or self.kinds().lookup(api_version, kind)
        found = found or self.kinds(refresh=True).lookup(api_version, kind)
        if found is None:
            raise ObjectNotFoundError(
                f"the cluster does not know the kind `{kind}` of `{api_version}`",
                what="kind",
                hint="install what defines it first; `kubectl api-resources` lists what there is",
            )
        return found

    def _discover(self) -> Iterator[Kind]:
        others = prefetch(lambda: self._discovery("/apis"))
        core, groups = self._discovery("/api"), others()
        try:
            yield from self._found_kinds(core, groups)
        except (AttributeError, KeyError, TypeError):  # what came has another form than any server gives it
            raise self._transport.no_api("its list of kinds has another form") from None

    def _found_kinds(self, core: Response, groups: Response) -> Iterator[Kind]:
        if is_aggregated(core.content_type) and is_aggregated(groups.content_type):
            for half in (core, groups):
                yield from aggregated_kinds(half.body)
            return
        for path in group_paths(core.body, groups.body):
            try:
                yield from listed_kinds(self._discovery(path).body)
            except (ObjectNotFoundError, TransientError):
                # One extension server that is down must not hide all the other kinds.
                continue

    def _discovery(self, path: str) -> Response:
        request = Request(method="GET", path=path, accept=AGGREGATED, is_idempotent=True)
        answer = self._ask(request, ObjectRef("", "list of kinds", "", ""))
        if not PARTS & answer.body.keys():
            raise self._transport.no_api(f"no list of kinds at {path}")
        return answer


def is_waiting(answer: Mapping[str, Any]) -> bool:
    """Say whether the answer to a deletion is an object that is still there."""
    metadata = answer.get("metadata") or {}
    if answer.get("kind") == "Status" or not metadata.get("deletionTimestamp"):
        return False
    grace = metadata.get("deletionGracePeriodSeconds") or 0
    return bool(metadata.get("finalizers") or grace or (answer.get("spec") or {}).get("finalizers"))


def object_fault(body: Mapping[str, Any], kind: str, *, named: bool = True) -> str:
    """Say what of an object's metadata, or of what texts it keeps, is not as the API promises it.

    Args:
        body: the object.
        kind: its kind.
        named: whether it must have a name.

    Returns:
        The fault, nothing if there is none.
    """
    if kind in _KEEP_TEXTS and not _are_texts(body.get("data") or {}):
        return "data is no map of texts"
    metadata = body.get("metadata")
    if not isinstance(metadata, Mapping):
        return "metadata is no map"
    if named and not (isinstance(metadata.get("name"), str) and metadata["name"]):
        return "metadata.name is missing"
    for field, fits in _METADATA_FIELDS.items():
        value = metadata.get(field)
        if value is not None and not fits(value):
            return f"metadata.{field} is of another type"
    return ""


def _are_texts(value: Any) -> bool:
    parts = [*value, *value.values()] if isinstance(value, Mapping) else ()
    return isinstance(value, Mapping) and all(isinstance(part, str) for part in parts)


def _are_maps(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(part, Mapping) for part in value)


def _are_lists(rule: Mapping[str, Any]) -> bool:
    return all(isinstance(words, list | None) for words in rule.values())


def _are_managed(value: Any) -> bool:
    return _are_maps(value) and all(
        _is_tree(entry.get("fieldsV1") or {})
        and all(
            isinstance(entry.get(key, ""), str)
            for key in ("manager", "operation", "subresource", "apiVersion")
        )
        and (entry.get("time") is None or _is_time(entry["time"]))
        for entry in value
    )


def _is_tree(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_tree, value.values()))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_time(value: Any) -> bool:
    return isinstance(value, str) and _TIME.fullmatch(value) is not None


_METADATA_FIELDS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("namespace", "uid", "resourceVersion", "generateName"), _is_text),
    **dict.fromkeys(("labels", "annotations"), _are_texts),
    **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), _is_time),
    "finalizers": lambda value: isinstance(value, list) and all(map(_is_text, value)),
    "ownerReferences": lambda value: _are_maps(value) and all(_is_text(owner.get("uid")) for owner in value),
    "managedFields": _are_managed,
    "generation": lambda value: isinstance(value, int),
    "deletionGracePeriodSeconds": lambda value: isinstance(value, int),
}


def _selection(labels: str, fields: str) -> dict[str, str]:
    given = {"labelSelector": labels, "fieldSelector": fields}
    return {key: value for key, value in given.items() if value}


def _watching(resource_version: str, timeout_s: float) -> dict[str, str]:
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(max(1, math.ceil(timeout_s))),
        "resourceVersion": resource_version,
    }
    if resource_version:
        return query
    return query | {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}


def _writing(manager: str, *, dry_run: bool) -> dict[str, str]:
    query = {"fieldManager": manager, "fieldValidation": "Strict"}
    return query | {"dryRun": "All"} if dry_run else query


def _name(ref: ObjectRef) -> str:
    if not ref.name:
        raise InvalidError(f"a `{ref.kind}` has no name", hint="set metadata.name")
    return ref.name


def _named(item: Mapping[str, Any], api_version: str, kind: str) -> dict[str, Any]:
    """Give an item of a list its apiVersion and kind, which servers leave out or replace."""
    return {**item, "apiVersion": api_version, "kind": kind}


def _initial(listing: Listing) -> Iterator[WatchEvent]:
    """Give a list in the form in which newer servers begin a watch."""
    for item in listing.items:
        yield WatchEvent(type="ADDED", object=item)
    metadata = {
        "resourceVersion": listing.resource_version,
        "annotations": {INITIAL_EVENTS_END: "true"},
    }
    yield WatchEvent(type="BOOKMARK", object={"metadata": metadata})
