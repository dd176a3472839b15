"""The client of a real API server: each verb as the one request that does it.

Raw paths instead of a dynamic client: discovery takes two requests instead of one a group, and a write costs
half the time.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from threading import Lock
from typing import Any

from mlstack.addresses import quote
from mlstack.app.environment import ClusterIdentity
from mlstack.clock import limit_s
from mlstack.errors import (
    ClusterError,
    ForbiddenError,
    InvalidError,
    ObjectNotFoundError,
    TransientError,
    UnreachableError,
    WatchExpiredError,
)
from mlstack.http import ConnectionPool, NoAnswerError, Response, fingerprint
from mlstack.kube.client import (
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
from mlstack.kube.kubeconfig import LOOK
from mlstack.kube.login import LoginCredentials, find
from mlstack.kube.parallel import prefetch
from mlstack.kube.transport import (
    APPLY,
    FILES_ELSEWHERE,
    READ_TIMEOUT_S,
    UNKNOWN_KIND,
    BrokenError,
    Counted,
    Request,
    Transport,
    are_maps,
    decoded,
    error_of,
    object_fault,
    warnings_of,
)
from mlstack.objects.kube_object import MANAGER, Kind, Kinds

PAGE = 1000
MOST_PAGES = 1000
SILENCE_S = 15.0
"""How much longer than asked a watch may stay open before its connection is given up."""

# The default of API servers, which hang up on what is larger.
_MOST_BYTES = 3 * 1024 * 1024
_KUBE_SYSTEM = ObjectRef("v1", "Namespace", "", "kube-system")
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
# HTTP method and type of the body, by what is written.
_WRITES = {
    "apply": ("PATCH", APPLY),
    "create": ("POST", "application/json"),
    "replace": ("PUT", "application/json"),
    "merge": ("PATCH", "application/merge-patch+json"),
    "json": ("PATCH", "application/json-patch+json"),
}


def connect(
    context: str = "", *, kubeconfig: str | None = None, counted: Counted = lambda verb, status: None
) -> ApiServerClient:
    """Prepare to speak to the cluster of a kubectl context; nothing is sent to it yet.

    One answer may take a minute, or what MLSTACK_REQUEST_TIMEOUT says.

    Args:
        context: name of the context; empty for the current one, or, without any kubeconfig, for the service
            account of the pod this runs in.
        kubeconfig: what `--kubeconfig` says; None for what kubectl takes without it.
        counted: told of each request, from any thread.

    Raises:
        NotFoundError: no kubeconfig, or no such context in it.
        ForbiddenError: a credential plug-in fails, or an id-token cannot be renewed.
        UsageError: MLSTACK_REQUEST_TIMEOUT is no duration.
        ClusterError: the kubeconfig or a file it names, a certificate, a key or a proxy cannot be used.
    """
    read_timeout_s = limit_s("MLSTACK_REQUEST_TIMEOUT", READ_TIMEOUT_S, os.environ)
    resolved = find(context, kubeconfig, os.environ)
    login = resolved.login
    try:
        pool = ConnectionPool(login)
    except NoAnswerError as error:
        raise ClusterError(error.text, hint="set `proxy-url` of its cluster, or HTTPS_PROXY") from None
    transport = Transport(
        pool,
        login.server,
        label=login.label,
        credentials=LoginCredentials(resolved, pool),
        read_timeout_s=read_timeout_s,
        counted=counted,
    )
    try:
        ca = fingerprint(login.ca_pem) if login.ca_pem and login.verify else None
    except ValueError:
        raise ClusterError(f"the CA certificate of {login.label} cannot be read", hint=LOOK) from None
    return ApiServerClient(transport, ca=ca)


class ApiServerClient:
    """A cluster behind an API server; `ca` is the hash of what it is verified with, None for public ones."""

    def __init__(self, transport: Transport, *, ca: str | None) -> None:
        self._transport, self._ca = transport, ca
        self._served: Kinds | None = None
        self._defined = Kinds(())
        self._lock = Lock()

    def identity(self) -> ClusterIdentity:
        """Give what tells this cluster from others; the UID is None where it may not be read."""
        try:
            namespace = self.get(_KUBE_SYSTEM)
        except ForbiddenError as error:
            if error.why == "credentials":
                raise
            namespace = None
        if namespace is not None and not namespace["metadata"].get("uid"):
            raise self._transport.no_api("namespace kube-system has no uid")
        uid = str(namespace["metadata"]["uid"]) if namespace else None
        return ClusterIdentity(uid=uid, ca=self._ca, server=self._transport.server)

    def version(self) -> str:
        """Give the version of the server, as `v1.36.2`."""
        request = Request(method="GET", path="/version", is_idempotent=True)
        version = self._ask(request, ObjectRef("", "version", "", "")).body.get("gitVersion")
        if not isinstance(version, str):
            raise self._transport.no_api("it does not say its version")
        return version

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
        attributes = {key: value for key, value in asdict(right).items() if value}
        status = self._review("SelfSubjectAccessReview", {"resourceAttributes": attributes})
        return bool(status.get("allowed"))

    def rights(self, namespace: str) -> Rights:
        """Give the rights we have in a namespace that the server can list: one SelfSubjectRulesReview."""
        rules = self._review("SelfSubjectRulesReview", {"namespace": namespace}).get("resourceRules") or []
        if not are_maps(rules) or any(
            not isinstance(v, list | None) for rule in rules for v in rule.values()
        ):
            raise self._transport.no_api("rules of other types than promised")
        return Rights(rules=tuple(rules))

    def _review(self, kind: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask about ourselves; nothing is kept of the question, so asking twice does no harm."""
        group = "authorization.k8s.io/v1"
        body = {"apiVersion": group, "kind": kind, "spec": spec}
        request = Request(method="POST", path=f"/apis/{group}/{kind.lower()}s", body=body, is_idempotent=True)
        status = self._ask(request, ObjectRef(group, kind, "", "")).body.get("status")
        if not isinstance(status, Mapping):
            raise self._transport.no_api(f"{kind} without status")
        return status

    def get(self, ref: ObjectRef) -> dict[str, Any] | None:
        """Read one object, None if it, its namespace or its kind is not there."""
        try:
            path = self._path(ref)
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
        path = self._path(subject, in_all=namespace is None)
        selection = _selection(labels, fields)
        query = selection | {"limit": str(PAGE)}
        accept = f"{_METADATA_LIST},application/json" if metadata_only else "application/json"
        items: list[Mapping[str, Any]] = []
        for _ in range(MOST_PAGES):
            request = Request(method="GET", path=path, query=query, accept=accept, is_idempotent=True)
            try:
                page = self._ask(request, subject).body
            except WatchExpiredError:
                if "continue" not in query:
                    raise
                # The list changed too much between two pages: take it in one piece.
                items, query = [], selection
                continue
            objects, metadata = page.get("items") or [], page.get("metadata")
            if "items" not in page or not isinstance(objects, list) or not isinstance(metadata, Mapping):
                raise self._transport.no_api(f"a list of {kind} without items or metadata")
            items += (_typed(self._object(item, subject), subject) for item in objects)
            if not metadata.get("continue"):
                version = metadata.get("resourceVersion") or ""  # lists of ComponentStatus have none
                return Listing(items=tuple(items), resource_version=str(version))
            query = query | {"continue": str(metadata["continue"])}
        raise self._transport.no_api(f"a list of {kind} without end")

    def apply(
        self, obj: Mapping[str, Any], *, manager: str = MANAGER, force: bool = False, dry_run: bool = False
    ) -> Applied:
        """Write what we want of an object by server-side apply; unknown fields are refused."""
        query = _writing(manager, dry_run=dry_run) | {"force": str(force).lower()}
        return self._write("apply", ObjectRef.of(obj), obj, query)

    def create(self, obj: Mapping[str, Any], *, manager: str = MANAGER, dry_run: bool = False) -> Applied:
        """Create an object."""
        return self._write("create", ObjectRef.of(obj), obj, _writing(manager, dry_run=dry_run))

    def replace(
        self, obj: Mapping[str, Any], *, manager: str = MANAGER, subresource: str = "", dry_run: bool = False
    ) -> Applied:
        """Put an object in place of the one that is there; a `resourceVersion` in it must be the live one."""
        return self._write("replace", ObjectRef.of(obj), obj, _writing(manager, dry_run=dry_run), subresource)

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
        return self._write(kind, ref, patch, _writing(manager, dry_run=dry_run), subresource)

    def _write(
        self, how: str, ref: ObjectRef, body: Any, query: Mapping[str, str], subresource: str = ""
    ) -> Applied:
        method, content_type = _WRITES[how]
        request = Request(
            method=method,
            path=self._path(replace(ref, name="") if how == "create" else _check_name(ref), subresource),
            query=query,
            body=body,
            content_type=content_type,
            # A second `create` finds the object of the first by its name; without a name there would be two.
            is_idempotent=bool(ref.name) if how == "create" else how != "json",
        )
        try:
            response = self._transport.send(request)
        except BrokenError as error:
            size_bytes = len(json.dumps(body))
            if size_bytes <= _MOST_BYTES:
                raise
            text = f"{size_bytes} bytes, where it takes {_MOST_BYTES} at most"
            message = f"`{ref}` is too large for the API server: {text}"
            raise InvalidError(message, hint=FILES_ELSEWHERE) from error
        if response.repeated and response.status == 409 and "dryRun" not in query:
            live = written(self, ref, body, subresource)
            if live is not None:
                return Applied(object=live, created=how == "create")
        obj = self._object(self._checked(response, ref).body, ref)
        if ref.kind == "CustomResourceDefinition":
            # Discovery shows a new kind a moment after it can be used.
            with self._lock:
                self._defined = self._defined.with_crds([obj])
        warnings = warnings_of(response.headers.getlist("Warning"))
        return Applied(object=obj, warnings=warnings, created=response.status == 201)

    def delete(
        self,
        ref: ObjectRef,
        *,
        propagation: Propagation = "Foreground",
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_s: int | None = None,
    ) -> dict[str, Any] | None:
        """Delete an object; gives it while it waits for finalizers, None once it is gone."""
        ids = {"uid": uid, "resourceVersion": resource_version}
        options = {
            "gracePeriodSeconds": grace_period_s,
            "preconditions": {key: value for key, value in ids.items() if value is not None} or None,
        }
        # A body replaces all query options: everything stands in the body.
        body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        body |= {key: value for key, value in options.items() if value is not None}
        path = self._path(_check_name(ref))
        request = Request(method="DELETE", path=path, body=body, is_idempotent=uid is not None)
        response = self._transport.send(request)
        if response.repeated and response.status == 404:
            return None
        answer = self._checked(response, ref).body
        if answer.get("kind") == "Status":
            return None
        answer = self._object(answer, ref)
        metadata = answer["metadata"]
        holds = metadata.get("finalizers") or (answer.get("spec") or {}).get("finalizers")
        is_held = metadata.get("deletionTimestamp") and (holds or metadata.get("deletionGracePeriodSeconds"))
        return _typed(answer, ref) if is_held else None

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
        query = {**_selection(labels, fields), "watch": "true", "allowWatchBookmarks": "true"}
        query["timeoutSeconds"] = str(max(1, math.ceil(timeout_s)))
        initial = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        request = Request(
            method="GET",
            path=self._path(subject, in_all=namespace is None),
            query={**query, "resourceVersion": resource_version, **({} if resource_version else initial)},
            accept=f"{_METADATA},application/json" if metadata_only else "application/json",
            is_idempotent=True,
        )
        lines = self._transport.stream(request, timeout_s=timeout_s + SILENCE_S)
        if isinstance(lines, Response) and not resource_version and lines.status in (400, 422):
            # Servers before 1.32 do not stream what there is: list, then watch from there.
            selection = {"namespace": namespace, "labels": labels, "fields": fields}
            listing = self.list(api_version, kind, metadata_only=metadata_only, **selection)  # type: ignore[arg-type] # a map of both
            yield from listing.events()
            query["resourceVersion"] = listing.resource_version
            lines = self._transport.stream(replace(request, query=query), timeout_s=timeout_s + SILENCE_S)
        if isinstance(lines, Response):
            raise self._error(lines, subject)
        with closing(lines):  # an error of an event would keep its connection until the garbage is collected
            for line in lines:
                yield self._event(line, subject)

    def _event(self, line: bytes, subject: ObjectRef) -> WatchEvent:
        odd = ClusterError(f"{subject}: a watch gave a line that is no event")
        try:
            event = decoded(line)
            kind, obj = event["type"], event["object"]
        except (ValueError, KeyError, TypeError) as error:
            raise odd from error
        if kind == "ERROR" and isinstance(obj, Mapping):
            code = obj.get("code")
            code = code if isinstance(code, int) else 500
            raise error_of(code, obj, subject=f"watch of {subject.kind}")
        if kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
            raise odd
        obj = self._object(obj, subject, named=kind != "BOOKMARK")
        return WatchEvent(type=kind, object=_typed(obj, subject))

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
        query |= {"previous": "true"} if previous else {}
        request = Request(method="GET", path=self._path(ref, "log"), query=query, accept="*/*")
        try:
            answer = self._transport.text(request, timeout_s=timeout_s)
        except UnreachableError as error:
            raise TransientError(f"`{ref}`: its node does not give its logs") from error
        if isinstance(answer, Response):
            raise self._error(answer, ref)
        return answer

    # --- requests and answers ---

    def _ask(self, request: Request, ref: ObjectRef) -> Response:
        return self._checked(self._transport.send(request), ref)

    def _checked(self, response: Response, ref: ObjectRef) -> Response:
        if response.status >= 300:
            raise self._error(response, ref)
        if not isinstance(response.body, Mapping):
            raise self._transport.no_api("its answer is no map")
        return response

    def _object(self, body: Any, ref: ObjectRef, *, named: bool = True) -> Mapping[str, Any]:
        """Give an answer that is an object, whose metadata are what the API promises of every kind."""
        fault = "it is no map" if not isinstance(body, Mapping) else object_fault(body, ref.kind, named=named)
        if fault:
            raise self._transport.no_api(f"an answer for {ref} is no object: {fault}")
        return body  # type: ignore[no-any-return] # a map without a fault

    def _error(self, response: Response, ref: ObjectRef) -> ClusterError:
        subject, body = f"`{ref if ref.name else ref.kind}`", response.body
        error = error_of(response.status, body, subject=subject, namespace=ref.namespace, kind=ref.kind)
        if isinstance(error, ForbiddenError) and error.why in ("credentials", "rights"):
            error.hint = self._transport.why_nobody or error.hint
            if error.why == "credentials":
                error.where = self._transport.label
        return error

    def _path(self, ref: ObjectRef, subresource: str = "", *, in_all: bool = False) -> str:
        """Give the path of an object, or of all objects of a kind where it has no name."""
        kind = self._kind(ref.api_version, ref.kind)
        parts = ["apis", *ref.api_version.split("/")] if kind.group else ["api", ref.api_version]
        if kind.namespaced and ref.namespace:
            parts += ["namespaces", ref.namespace]
        elif kind.namespaced and not in_all:
            raise InvalidError(f"`{ref.kind} {ref.name}` needs a namespace")
        parts += [part for part in (kind.plural, ref.name, subresource) if part]
        if unfit := [part for part in parts if part in ("", ".", "..")]:
            raise InvalidError(f"`{ref.kind} {ref.name}`: `{unfit[0]}` cannot stand in the path of an object")
        return "/" + "/".join(quote(part) for part in parts)

    def _kind(self, api_version: str, kind: str) -> Kind:
        """Find a kind: built-in and just defined ones without asking, others from the server, twice."""
        served = (
            Kinds.builtin().lookup(api_version, kind)
            or self._defined.lookup(api_version, kind)
            or self.kinds().lookup(api_version, kind)
            or self.kinds(refresh=True).lookup(api_version, kind)
        )
        if served is None:
            text = f"the cluster does not know the kind `{kind}` of `{api_version}`"
            raise ObjectNotFoundError(text, what="kind", hint=UNKNOWN_KIND)
        return served

    # --- discovery: aggregated, and the older one by group ---

    def _discover(self) -> Iterator[Kind]:
        others = prefetch(lambda: self._discovery("/apis"))
        core, groups = self._discovery("/api"), others()
        try:
            if all(_AGGREGATED in half.content_type.replace(" ", "") for half in (core, groups)):
                yield from _aggregated_kinds(core.body)
                yield from _aggregated_kinds(groups.body)
                return
            paths = [f"/api/{version}" for version in core.body.get("versions") or ()]
            for group in groups.body.get("groups") or ():
                paths += [f"/apis/{version['groupVersion']}" for version in group.get("versions") or ()]
            for path in paths:
                try:
                    yield from _listed_kinds(self._discovery(path).body)
                except (ObjectNotFoundError, TransientError):
                    # One extension server that is down must not hide all the other kinds.
                    continue
        except (AttributeError, KeyError, TypeError):  # what came has another form than any server gives it
            raise self._transport.no_api("its list of kinds has another form") from None

    def _discovery(self, path: str) -> Response:
        versions = (
            f"application/json;g=apidiscovery.k8s.io;v={version};{_AGGREGATED}"
            for version in ("v2", "v2beta1")
        )
        accept = ",".join((*versions, "application/json"))
        request = Request(method="GET", path=path, accept=accept, is_idempotent=True)
        answer = self._ask(request, ObjectRef("", "list of kinds", "", ""))
        if not {"items", "groups", "versions", "resources"} & answer.body.keys():
            raise self._transport.no_api(f"no list of kinds at {path}")
        return answer


_AGGREGATED = "as=APIGroupDiscoveryList"


def _aggregated_kinds(body: Mapping[str, Any]) -> Iterator[Kind]:
    """Give the kinds of one `APIGroupDiscoveryList`, which servers before 1.26 do not give."""
    for group in body.get("items") or ():
        name = str((group.get("metadata") or {}).get("name") or "")
        for version in group.get("versions") or ():
            for resource in version.get("resources") or ():
                subresources = [part.get("subresource") for part in resource.get("subresources") or ()]
                yield Kind(
                    group=name,
                    version=str(version["version"]),
                    kind=str((resource.get("responseKind") or {}).get("kind") or ""),
                    plural=str(resource["resource"]),
                    namespaced=resource.get("scope") == "Namespaced",
                    has_status="status" in subresources,
                )


def _listed_kinds(body: Mapping[str, Any]) -> Iterator[Kind]:
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


def _selection(labels: str, fields: str) -> dict[str, str]:
    selectors = {"labelSelector": labels, "fieldSelector": fields}
    return {key: value for key, value in selectors.items() if value}


def _writing(manager: str, *, dry_run: bool) -> dict[str, str]:
    query = {"fieldManager": manager, "fieldValidation": "Strict"}
    return query | {"dryRun": "All"} if dry_run else query


def _check_name(ref: ObjectRef) -> ObjectRef:
    if not ref.name:
        raise InvalidError(f"a `{ref.kind}` has no name", hint="set metadata.name")
    return ref


def _typed(item: Mapping[str, Any], ref: ObjectRef) -> dict[str, Any]:
    """Give an item of a list its apiVersion and kind, which servers leave out or replace."""
    return {**item, "apiVersion": ref.api_version, "kind": ref.kind}
