"""A view of another cluster: hands every verb on, with one place each to act around reading and writing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from mlstack.cluster.api import Applied, Cluster, Listing, ObjectRef, PatchKind, Propagation, WatchEvent
from mlstack.model import masking
from mlstack.model.app import ClusterIdentity
from mlstack.model.kinds import Kinds
from mlstack.model.objects import MANAGER
from mlstack.model.rights import Right, Rights

T = TypeVar("T")


class ClusterView:
    """Another cluster as it is; views that do more say how they ask and how they write.

    Args:
        cluster: what is asked.
    """

    def __init__(self, cluster: Cluster) -> None:
        """Hold the cluster; nothing is asked."""
        self._cluster = cluster

    def _asked(self, ask: Callable[[], T]) -> T:
        """Send one request, whichever it is."""
        return ask()

    def _written(self, write: Callable[[], T], *, dry_run: bool, deletes: ObjectRef | None = None) -> T:
        """Send a request that changes something unless it is a dry run; `deletes` is what it takes away."""
        return self._asked(write)

    def _watched(self, begin: Callable[[], Iterator[WatchEvent]]) -> Iterator[WatchEvent]:
        """Begin a watch and hand its events on."""
        return begin()

    def identity(self) -> ClusterIdentity:
        """Give what tells this cluster from others."""
        return self._asked(self._cluster.identity)

    def kinds(self, *, refresh: bool = False) -> Kinds:
        """Give the kinds the server has."""
        return self._asked(lambda: self._cluster.kinds(refresh=refresh))

    def expect(self, requests: int) -> None:
        """Take note that so many requests will come at once."""
        self._cluster.expect(requests)

    def may(self, right: Right) -> bool:
        """Tell whether we have a right."""
        return self._asked(lambda: self._cluster.may(right))

    def rights(self, namespace: str) -> Rights:
        """Give the rights we have in a namespace."""
        return self._asked(lambda: self._cluster.rights(namespace))

    def get(self, ref: ObjectRef) -> dict[str, Any] | None:
        """Read one object."""
        return self._asked(lambda: self._cluster.get(ref))

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
        """List the objects of one kind."""
        return self._asked(
            lambda: self._cluster.list(
                api_version,
                kind,
                namespace=namespace,
                labels=labels,
                fields=fields,
                metadata_only=metadata_only,
            )
        )

    def apply(
        self, obj: Mapping[str, Any], *, manager: str = MANAGER, force: bool = False, dry_run: bool = False
    ) -> Applied:
        """Write by server-side apply."""
        return self._written(
            lambda: self._cluster.apply(obj, manager=manager, force=force, dry_run=dry_run), dry_run=dry_run
        )

    def create(self, obj: Mapping[str, Any], *, manager: str = MANAGER, dry_run: bool = False) -> Applied:
        """Create an object."""
        return self._written(
            lambda: self._cluster.create(obj, manager=manager, dry_run=dry_run), dry_run=dry_run
        )

    def replace(
        self, obj: Mapping[str, Any], *, manager: str = MANAGER, subresource: str = "", dry_run: bool = False
    ) -> Applied:
        """Put an object in place of the one that is there."""
        return self._written(
            lambda: self._cluster.replace(obj, manager=manager, subresource=subresource, dry_run=dry_run),
            dry_run=dry_run,
        )

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
        """Change parts of an object."""
        return self._written(
            lambda: self._cluster.patch(
                ref, patch, kind=kind, subresource=subresource, manager=manager, dry_run=dry_run
            ),
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
        """Delete an object."""
        return self._written(
            lambda: self._cluster.delete(
                ref,
                propagation=propagation,
                uid=uid,
                resource_version=resource_version,
                grace_period_s=grace_period_s,
                dry_run=dry_run,
            ),
            dry_run=dry_run,
            deletes=ref,
        )

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
        """Watch the objects of one kind."""
        return self._watched(
            lambda: self._cluster.watch(
                api_version,
                kind,
                namespace=namespace,
                labels=labels,
                fields=fields,
                metadata_only=metadata_only,
                resource_version=resource_version,
                timeout_s=timeout_s,
            )
        )

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
        """Give the last lines of a container, asked for once: logs are not worth any patience."""
        return self._cluster.logs(
            ref, container, previous=previous, lines=lines, most_bytes=most_bytes, timeout_s=timeout_s
        )


class SecretAware(ClusterView):
    """Another cluster, of whose Secrets the run takes note: it is to print their values nowhere."""

    def _asked(self, ask: Callable[[], T]) -> T:
        answer = ask()
        if isinstance(answer, Listing):
            for item in answer.items:
                masking.note_object(item)
        else:
            masking.note_object(answer.object if isinstance(answer, Applied) else answer)
        return answer

    def create(self, obj: Mapping[str, Any], *, manager: str = MANAGER, dry_run: bool = False) -> Applied:
        """Create an object."""
        masking.note_object(obj)
        return super().create(obj, manager=manager, dry_run=dry_run)

    def apply(
        self, obj: Mapping[str, Any], *, manager: str = MANAGER, force: bool = False, dry_run: bool = False
    ) -> Applied:
        """Write by server-side apply."""
        masking.note_object(obj)
        return super().apply(obj, manager=manager, force=force, dry_run=dry_run)

    def replace(
        self, obj: Mapping[str, Any], *, manager: str = MANAGER, subresource: str = "", dry_run: bool = False
    ) -> Applied:
        """Put an object in place of the one that is there."""
        masking.note_object(obj)
        return super().replace(obj, manager=manager, subresource=subresource, dry_run=dry_run)

    def _watched(self, begin: Callable[[], Iterator[WatchEvent]]) -> Iterator[WatchEvent]:
        for event in begin():
            masking.note_object(event.object)
            yield event
