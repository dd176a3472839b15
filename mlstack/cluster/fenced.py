"""A cluster whose writes are checked first: whoever lost the right to write stops before the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mlstack.cluster.api import Applied, Cluster, Listing, ObjectRef, PatchKind, Propagation, WatchEvent
from mlstack.model.app import ClusterIdentity
from mlstack.model.kinds import Kinds
from mlstack.model.objects import MANAGER
from mlstack.model.rights import Right, Rights


class FencedCluster:
    """Another cluster, with a question before each write; dry runs and reading go straight through.

    Args:
        cluster: what is written to.
        check: called before each write; raises when there must be none.
        deleted: told what is about to be deleted, after the check.
    """

    def __init__(
        self, cluster: Cluster, check: Callable[[], None], deleted: Callable[[ObjectRef], None]
    ) -> None:
        """Hold the parts."""
        self._cluster, self._check, self._deleted = cluster, check, deleted

    def identity(self) -> ClusterIdentity:
        """Give what tells this cluster from others."""
        return self._cluster.identity()

    def kinds(self, *, refresh: bool = False) -> Kinds:
        """Give the kinds the server has."""
        return self._cluster.kinds(refresh=refresh)

    def may(self, right: Right) -> bool:
        """Tell whether we have a right."""
        return self._cluster.may(right)

    def rights(self, namespace: str) -> Rights:
        """Give the rights we have in a namespace."""
        return self._cluster.rights(namespace)

    def get(self, ref: ObjectRef) -> dict[str, Any] | None:
        """Read one object."""
        return self._cluster.get(ref)

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
        return self._cluster.list(
            api_version, kind, namespace=namespace, labels=labels, fields=fields, metadata_only=metadata_only
        )

    def apply(
        self, obj: Mapping[str, Any], *, manager: str = MANAGER, force: bool = False, dry_run: bool = False
    ) -> Applied:
        """Write by server-side apply."""
        self._ask(dry_run)
        return self._cluster.apply(obj, manager=manager, force=force, dry_run=dry_run)

    def create(self, obj: Mapping[str, Any], *, manager: str = MANAGER, dry_run: bool = False) -> Applied:
        """Create an object."""
        self._ask(dry_run)
        return self._cluster.create(obj, manager=manager, dry_run=dry_run)

    def replace(
        self, obj: Mapping[str, Any], *, manager: str = MANAGER, subresource: str = "", dry_run: bool = False
    ) -> Applied:
        """Put an object in place of the one that is there."""
        self._ask(dry_run)
        return self._cluster.replace(obj, manager=manager, subresource=subresource, dry_run=dry_run)

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
        self._ask(dry_run)
        return self._cluster.patch(
            ref, patch, kind=kind, subresource=subresource, manager=manager, dry_run=dry_run
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
        self._ask(dry_run)
        if not dry_run:
            self._deleted(ref)
        return self._cluster.delete(
            ref,
            propagation=propagation,
            uid=uid,
            resource_version=resource_version,
            grace_period_s=grace_period_s,
            dry_run=dry_run,
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
        return self._cluster.watch(
            api_version,
            kind,
            namespace=namespace,
            labels=labels,
            fields=fields,
            metadata_only=metadata_only,
            resource_version=resource_version,
            timeout_s=timeout_s,
        )

    def _ask(self, dry_run: bool) -> None:
        if not dry_run:
            self._check()
