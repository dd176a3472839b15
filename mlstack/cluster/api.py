"""The port to a Kubernetes cluster: a handful of verbs that a real server and the memory cluster share.

Objects are plain mappings as the API server writes them in JSON. Every method is safe to call from several
threads and raises only `mlstack.errors.ClusterError` and its branches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from mlstack.model.app import ClusterIdentity
from mlstack.model.kinds import Kinds
from mlstack.model.objects import MANAGER
from mlstack.model.rights import Right, Rights

INITIAL_EVENTS_END = "k8s.io/initial-events-end"

Propagation = Literal["Foreground", "Background", "Orphan"]
PatchKind = Literal["merge", "json"]
EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


@dataclass(frozen=True, order=True)
class ObjectRef:
    """The address of one object.

    Attributes:
        api_version: as in the object: `apps/v1`, `v1`.
        kind: as in the object: `Deployment`.
        namespace: empty for cluster-scoped kinds.
        name: name of the object.
    """

    api_version: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> ObjectRef:
        """Give the address of an object."""
        metadata = obj.get("metadata") or {}
        return cls(
            str(obj.get("apiVersion") or ""),
            str(obj.get("kind") or ""),
            str(metadata.get("namespace") or ""),
            str(metadata.get("name") or ""),
        )

    def __str__(self) -> str:
        """Write the object as people name it: `Deployment kubeflow/tf-hub`."""
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {place}{self.name}"


@dataclass(frozen=True, kw_only=True)
class Applied:
    """What a write gave.

    Attributes:
        object: the object as the server has it now (in a dry run: as it would have it).
        warnings: the server's remarks, as for deprecated versions.
        created: whether the object was not there before.
    """

    object: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    created: bool = False


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Objects of one kind at one moment.

    Attributes:
        items: the objects, each with apiVersion and kind; metadata alone where that was asked for.
        resource_version: where a watch goes on without missing anything.
    """

    items: tuple[Mapping[str, Any], ...]
    resource_version: str


@dataclass(frozen=True, kw_only=True)
class WatchEvent:
    """One change that a watch saw.

    Attributes:
        type: `ADDED`, `MODIFIED`, `DELETED` or `BOOKMARK`; an object that no longer matches the selector
            is `DELETED`.
        object: the object after the change, before it for `DELETED`; a bookmark's has only a version.
    """

    type: EventType
    object: Mapping[str, Any]

    @property
    def resource_version(self) -> str:
        """Give the version from which another watch would go on."""
        return str(self.object["metadata"].get("resourceVersion") or "")

    @property
    def is_initial_end(self) -> bool:
        """Say whether this bookmark ends the list of what was there when the watch began."""
        annotations = self.object["metadata"].get("annotations") or {}
        return self.type == "BOOKMARK" and annotations.get(INITIAL_EVENTS_END) == "true"


@dataclass(frozen=True)
class Source:
    """What one watch is about.

    Attributes:
        api_version: API version of the kind.
        kind: the kind.
        namespace: None for all.
        labels: label selector.
        metadata_only: whether metadata is all that matters.
    """

    api_version: str
    kind: str
    namespace: str | None = None
    labels: str = ""
    metadata_only: bool = False


class Cluster(Protocol):
    """What mlstack asks of a cluster.

    Errors of every method: UnreachableError (no answer), ForbiddenError (credentials, rights, quota,
    policy), TransientError (try the same again later), InvalidError (never try it again),
    ConflictError, ObjectNotFoundError.
    """

    def identity(self) -> ClusterIdentity:
        """Give what tells this cluster from others; the UID is None where it may not be read."""
        ...

    def kinds(self, *, refresh: bool = False) -> Kinds:
        """Give the kinds the server has; asks it once, and again with `refresh`."""
        ...

    def expect(self, requests: int) -> None:
        """Take note that so many requests will come at once: what they need is got ready meanwhile."""
        ...

    def may(self, right: Right) -> bool:
        """Tell whether we have a right: one SelfSubjectAccessReview."""
        ...

    def rights(self, namespace: str) -> Rights:
        """Give the rights we have in a namespace that the server can list: one SelfSubjectRulesReview.

        What is not among them may be allowed all the same; ask `may`.
        """
        ...

    def get(self, ref: ObjectRef) -> dict[str, Any] | None:
        """Read one object, None if it, its namespace or its kind is not there."""
        ...

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
        """List the objects of one kind.

        Args:
            api_version: API version of the kind.
            kind: the kind.
            namespace: None for all namespaces.
            labels: label selector as kubectl takes it.
            fields: field selector (`metadata.name=x`, `involvedObject.uid=…`).
            metadata_only: leave out all but metadata, which is much less to send.

        Raises:
            ObjectNotFoundError: the server has no such kind (`what` is `kind`).
        """
        ...

    def apply(
        self,
        obj: Mapping[str, Any],
        *,
        manager: str = MANAGER,
        force: bool = False,
        dry_run: bool = False,
    ) -> Applied:
        """Write what we want of an object by server-side apply; unknown fields are refused.

        `metadata.uid` in the object makes it an update of that very object, `metadata.resourceVersion` of
        that very version.

        Args:
            obj: the fields we want, and no others.
            manager: the field manager that will own them.
            force: take fields that others own.
            dry_run: change nothing, answer as if.

        Raises:
            ConflictError: others own fields, with all of them in `conflicts`; or the object moved.
            InvalidError: the object is wrong, or the change is not allowed (immutable fields).
            ObjectNotFoundError: namespace or kind are not there (`what` says which).
        """
        ...

    def create(self, obj: Mapping[str, Any], *, manager: str = MANAGER, dry_run: bool = False) -> Applied:
        """Create an object.

        Raises:
            ConflictError: it exists.
        """
        ...

    def replace(
        self, obj: Mapping[str, Any], *, manager: str = MANAGER, subresource: str = "", dry_run: bool = False
    ) -> Applied:
        """Put an object in place of the one that is there; a `resourceVersion` in it must be the live one.

        Raises:
            ConflictError: the live object has another version.
            ObjectNotFoundError: there is none.
        """
        ...

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
        """Change parts of an object: JSON merge patch (a mapping) or JSON patch (a list of operations).

        Args:
            ref: the object.
            patch: what to change.
            kind: `merge` or `json`.
            subresource: `status` or `scale`.
            manager: the field manager that will own what changes.
            dry_run: change nothing, answer as if.

        Raises:
            InvalidError: a `test` operation failed (without causes), or the result is wrong.
            ObjectNotFoundError: there is no such object.
        """
        ...

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
        """Delete an object.

        Args:
            ref: the object.
            propagation: what becomes of what it owns: it goes after them, before them, or they stay.
            uid: only this very object.
            resource_version: only in this version.
            grace_period_s: time its pods get to end, in seconds; None for their own.
            dry_run: change nothing, answer as if.

        Returns:
            The object while it waits for finalizers, None once it is gone.

        Raises:
            ConflictError: UID or version differ.
            ObjectNotFoundError: there is no such object.
        """
        ...

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
        """Watch the objects of one kind.

        Without a `resource_version` the watch begins with `ADDED` for everything there is and a `BOOKMARK`
        for which `is_initial_end` holds. It ends when the time is up or the connection breaks: watch again
        from the last version seen.

        Raises:
            WatchExpiredError: the server no longer has that version: list again.
        """
        ...

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
        """Give the last lines that a container has written; nobody is asked twice.

        Args:
            ref: the pod.
            container: name of the container.
            previous: what it wrote before it was started last.
            lines: how many lines.
            most_bytes: how much of them.
            timeout_s: how long its node may stay silent.

        Raises:
            ObjectNotFoundError: there is no such pod.
            InvalidError: it has no such container, or that has written nothing yet.
            TransientError: its node does not answer.
        """
        ...


Opener = Callable[[str], Cluster]
"""Gives the cluster of a kubectl context."""
