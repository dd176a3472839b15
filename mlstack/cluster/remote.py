"""The cluster port on a real API server: each verb as the one request that does it.

Raw paths instead of the library's dynamic client: discovery takes two requests instead of one a group, and
a write costs half the time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

from mlstack.cluster import discovery
from mlstack.cluster.ahead import soon
from mlstack.cluster.answers import error_of, warnings_of
from mlstack.cluster.api import (
    INITIAL_EVENTS_END,
    Applied,
    Listing,
    ObjectRef,
    PatchKind,
    Propagation,
    WatchEvent,
)
from mlstack.cluster.transport import APPLY, Request, Response, Transport, quote
from mlstack.errors import (
    ClusterError,
    ForbiddenError,
    InvalidError,
    ObjectNotFoundError,
    TransientError,
    UnreachableError,
    WatchExpiredError,
)
from mlstack.model.app import ClusterIdentity
from mlstack.model.kinds import Kind, Kinds
from mlstack.model.objects import MANAGER
from mlstack.model.rights import Right, Rights

PAGE = 1000
SILENCE_S = 15.0
"""How much longer than asked a watch may stay open before its connection is given up."""

_KUBE_SYSTEM = ObjectRef("v1", "Namespace", "", "kube-system")
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_PATCH_TYPES = {"merge": "application/merge-patch+json", "json": "application/json-patch+json"}


class RemoteCluster:
    """A cluster behind an API server; see `mlstack.cluster.api.Cluster` for the verbs.

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
        return Rights(rules=tuple(status.get("resourceRules") or ()))

    def _review(self, kind: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask about ourselves; nothing is kept of the question, so asking twice does no harm."""
        request = Request(
            method="POST",
            path=f"/apis/authorization.k8s.io/v1/{kind.lower()}s",
            body={"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec},
            is_idempotent=True,
        )
        answer = self._ask(request, ObjectRef("authorization.k8s.io/v1", kind, "", "")).body
        return answer.get("status") or {}

    def get(self, ref: ObjectRef) -> dict[str, Any] | None:
        """Read one object, None if it, its namespace or its kind is not there."""
        try:
            path = self._path(ref.api_version, ref.kind, ref.namespace, ref.name)
        except (ObjectNotFoundError, InvalidError):  # nothing can be at such an address
            return None
        try:
            return dict(self._ask(Request(method="GET", path=path, is_idempotent=True), ref).body)
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
        while True:
            request = Request(method="GET", path=path, query=query, accept=accept, is_idempotent=True)
            try:
                page = self._ask(request, subject).body
            except WatchExpiredError:
                # The list changed too much between two pages: take it in one piece.
                items, query = [], _selection(labels, fields)
                continue
            items += (_named(item, api_version, kind) for item in page.get("items") or ())
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                version = metadata.get("resourceVersion") or ""  # lists of ComponentStatus have none
                return Listing(items=tuple(items), resource_version=str(version))
            query = query | {"continue": str(metadata["continue"])}

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
                is_idempotent="resourceVersion" not in (obj.get("metadata") or {}),
            ),
            ref,
        )

    def create(self, obj: Mapping[str, Any], *, manager: str = MANAGER, dry_run: bool = False) -> Applied:
        """Create an object."""
        ref = ObjectRef.of(obj)
        path = self._path(ref.api_version, ref.kind, ref.namespace, "")
        query = _writing(manager, dry_run=dry_run)
        return self._write(Request(method="POST", path=path, query=query, body=obj), ref)

    def replace(
        self, obj: Mapping[str, Any], *, manager: str = MANAGER, subresource: str = "", dry_run: bool = False
    ) -> Applied:
        """Put an object in place of the one that is there; a `resourceVersion` in it must be the live one."""
        ref = ObjectRef.of(obj)
        path = self._path(ref.api_version, ref.kind, ref.namespace, _name(ref), subresource)
        query = _writing(manager, dry_run=dry_run)
        return self._write(Request(method="PUT", path=path, query=query, body=obj), ref)

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
            ),
            ref,
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
        answer = self._ask(Request(method="DELETE", path=path, body=body), ref).body
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
            event = json.loads(line)
            kind, found = event["type"], event["object"]
        except (ValueError, KeyError, TypeError) as error:
            raise ClusterError(f"{subject}: a watch gave a line that is no event") from error
        if kind == "ERROR":
            raise error_of(int(found.get("code") or 500), found, subject=f"watch of {subject.kind}")
        return WatchEvent(type=kind, object=_named(found, subject.api_version, subject.kind))

    def _write(self, request: Request, ref: ObjectRef) -> Applied:
        response = self._ask(request, ref)
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
        response = self._transport.send(request)
        if response.code >= 300 or not isinstance(response.body, Mapping):
            raise self._error(response, ref)
        return response

    def _error(self, response: Response, ref: ObjectRef) -> ClusterError:
        subject = str(ref) if ref.name else ref.kind
        return error_of(
            response.code, response.body, subject=f"`{subject}`", namespace=ref.namespace, kind=ref.kind
        )

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
        others = soon(lambda: self._discovery("/apis"))
        core, groups = self._discovery("/api"), others()
        if discovery.is_aggregated(core.content_type) and discovery.is_aggregated(groups.content_type):
            for half in (core, groups):
                yield from discovery.aggregated_kinds(half.body)
            return
        for path in discovery.group_paths(core.body, groups.body):
            try:
                yield from discovery.listed_kinds(self._discovery(path).body)
            except (ObjectNotFoundError, TransientError):
                # One extension server that is down must not hide all the other kinds.
                continue

    def _discovery(self, path: str) -> Response:
        request = Request(method="GET", path=path, accept=discovery.AGGREGATED, is_idempotent=True)
        return self._ask(request, ObjectRef("", "list of kinds", "", ""))


def is_waiting(answer: Mapping[str, Any]) -> bool:
    """Say whether the answer to a deletion is an object that is still there."""
    metadata = answer.get("metadata") or {}
    if answer.get("kind") == "Status" or not metadata.get("deletionTimestamp"):
        return False
    grace = metadata.get("deletionGracePeriodSeconds") or 0
    return bool(metadata.get("finalizers") or grace or (answer.get("spec") or {}).get("finalizers"))


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
