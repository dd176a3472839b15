"""A cluster in memory: the one fake API server of tests and `mlstack demo`.

Writes mean what they mean on an API server (server-side apply with field managers, generations, finalizers,
watches); the controllers that every cluster has run at once. Which pods run is not decided here: see
`controllers`. One contract suite runs on this cluster and on a real one.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from threading import RLock
from typing import Any

from mlstack.app.environment import ClusterIdentity
from mlstack.errors import InvalidError, ObjectNotFoundError, WatchExpiredError
from mlstack.kube.api_errors import error_of
from mlstack.kube.client import Applied, Listing, ObjectRef, PatchKind, Propagation, Right, Rights, WatchEvent
from mlstack.objects.kube_object import MANAGER, Kinds, Schemas
from mlstack.testing import store
from mlstack.testing.kinds import Catalog, Served
from mlstack.testing.server_side_apply import FieldWriter
from mlstack.testing.store import Key, ObjectStore, StoreChange, copied
from mlstack.testing.writes import Write

NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class MemoryCluster:
    """A cluster in memory; see `mlstack.kube.client.Cluster` for the verbs.

    Args:
        schemas: the built-in kinds and their fields.
        name: what tells this cluster from others; UIDs depend on it.
        clock: gives the time in seconds since 1970.
        on_idle: called when a watch has nothing more to give; what it writes is given too. Simulated
            controllers go here.
        denies: tells which rights we do not have, when asked about them; writes are not held to it.
    """

    def __init__(
        self,
        schemas: Schemas,
        *,
        name: str = "memory",
        clock: Callable[[], float] = time.time,
        on_idle: Callable[[], object] = lambda: None,
        denies: Callable[[Right], bool] | None = None,
    ) -> None:
        self._name = name
        self._clock = clock
        self._lock, self._idling = RLock(), RLock()
        self._store = ObjectStore()
        self._schemas, self._catalog = schemas, Catalog(schemas)
        self._numbers = count(1)
        self.on_idle = on_idle
        # What containers have written, by namespace, pod and container.
        self.written: dict[tuple[str, str, str], str] = {}
        self._denies = denies
        for namespace in NAMESPACES:
            self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})

    def identity(self) -> ClusterIdentity:
        """Give what tells this cluster from others."""
        namespace = self.get(ObjectRef("v1", "Namespace", "", "kube-system"))
        digest = hashlib.sha256(self._name.encode()).hexdigest()
        uid = str(namespace["metadata"]["uid"]) if namespace else None
        return ClusterIdentity(uid=uid, ca=f"sha256:{digest}", server=f"memory://{self._name}")

    def version(self) -> str:
        """Give the version of the server."""
        return f"v{self._schemas.version}.0"

    def kinds(self, *, refresh: bool = False) -> Kinds:
        """Give the kinds there are, those of established definitions included."""
        with self._lock:
            return self._catalog.kinds(self._store)

    def expect(self, requests: int) -> None:
        """Do nothing: no connection has to be opened."""

    def may(self, right: Right) -> bool:
        """Tell whether we have a right."""
        return self._denies is None or not self._denies(right)

    def rights(self, namespace: str) -> Rights:
        """Give the rights we have in a namespace: all, or none that could be listed."""
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        return Rights(rules=(everything,) if self._denies is None else ())

    def get(self, ref: ObjectRef) -> dict[str, Any] | None:
        """Read one object, None if it, its namespace or its kind is not there."""
        with self._lock:
            served = self._catalog.find(self._store, ref.api_version, ref.kind)
            obj = self._store.get(_key(served, ref)) if served else None
            return served.shown(obj) if served and obj else None

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
        with self._lock:
            served = self._served(api_version, kind)
            matches = _selection(labels, fields)
            objects = self._store.of_kind(served.kind.group, kind, namespace)
            items = [served.shown(obj, metadata_only=metadata_only) for _, obj in objects if matches(obj)]
            return Listing(items=tuple(items), resource_version=str(self._store.version))

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
        with self._write(ref, manager, "Apply", dry_run=dry_run) as write:
            return write.apply(copied(dict(obj)), force=force)

    def create(self, obj: Mapping[str, Any], *, manager: str = MANAGER, dry_run: bool = False) -> Applied:
        """Create an object."""
        with self._write(ObjectRef.of(obj), manager, "Update", dry_run=dry_run) as write:
            return write.create(copied(dict(obj)))

    def replace(
        self, obj: Mapping[str, Any], *, manager: str = MANAGER, subresource: str = "", dry_run: bool = False
    ) -> Applied:
        """Put an object in place of the one that is there; a `resourceVersion` in it must be the live one."""
        ref = ObjectRef.of(obj)
        with self._write(ref, manager, "Update", subresource=subresource, dry_run=dry_run) as write:
            return write.replace(copied(dict(obj)))

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
        if isinstance(patch, Mapping) is not (kind == "merge"):
            raise InvalidError(f"`{ref}`: a {kind} patch must not be a {type(patch).__name__}")
        with self._write(ref, manager, "Update", subresource=subresource, dry_run=dry_run) as write:
            return write.patch(copied(dict(patch)) if isinstance(patch, Mapping) else patch)

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
        """Delete an object; gives it while it waits for finalizers, None once it is gone.

        Pods end at once, whatever their grace.
        """
        with self._write(ref, MANAGER, "Update", dry_run=dry_run) as write:
            return write.delete(propagation, uid=uid, resource_version=resource_version)

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
        """Give the last lines of a container: what `written` holds of it, before its last start or after."""
        pod = self.get(ref)
        if pod is None:
            raise ObjectNotFoundError(f"`{ref}` is not in the cluster")
        spec = pod.get("spec") or {}
        containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
        if container not in [part["name"] for part in containers]:
            raise InvalidError(f"`{ref}` is refused: it has no container {container}")
        text = self.written.get((ref.namespace, ref.name, container), "")
        return "\n".join(text.splitlines()[-lines:])[:most_bytes]

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
        """Watch the objects of one kind, until there is no more and `on_idle` adds nothing."""
        matches, served = _selection(labels, fields), self._served(api_version, kind)
        if not resource_version:
            chosen = {"labels": labels, "fields": fields}
            listing = self.list(api_version, kind, namespace=namespace, metadata_only=metadata_only, **chosen)
            resource_version = listing.resource_version
            yield from listing.events()
        position = int(resource_version)
        while True:
            with self._lock:
                oldest = self._store.oldest
                changes = [change for change in self._store.log if change.version > position]
            if position < oldest:
                text = f"the server no longer has version {position}, the oldest is {oldest}"
                raise WatchExpiredError(f"watch: {text}")
            for change in changes:
                position = change.version
                is_inside = namespace in (None, change.key.namespace)
                if is_inside and change.key.of_kind == (served.kind.group, kind):
                    yield from _events(change, matches, served, metadata_only=metadata_only)
            if not changes:
                with self._idling:  # others act, one watch at a time
                    if self._store.version <= position:
                        self.on_idle()
                if self._store.version <= position:
                    return

    def compact(self) -> None:
        """Forget what happened so far: a watch from before now raises WatchExpiredError."""
        with self._lock:
            self._store.compact()

    def _served(self, api_version: str, kind: str) -> Served:
        served = self._catalog.find(self._store, api_version, kind)
        if served is None:
            raise error_of(404, "404 page not found", subject=f"`{kind}` of `{api_version}`")
        return served

    @contextmanager
    def _write(
        self, ref: ObjectRef, manager: str, operation: str, *, subresource: str = "", dry_run: bool
    ) -> Iterator[Write]:
        """Give the one write to an object; what it stored is dropped again in a dry run."""
        with self._lock:
            served = self._served(ref.api_version, ref.kind)
            if served.kind.namespaced and not ref.namespace:
                raise InvalidError(f"`{ref}` needs a namespace")
            if not ref.name:
                raise InvalidError(f"a `{ref.kind}` has no name", hint="set metadata.name")
            target = self._store.copy() if dry_run else self._store
            first, time_s = target.version, self._clock()
            now = datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            yield Write(
                store=target,
                key=_key(served, ref),
                ref=ref,
                served=served,
                writer=FieldWriter(
                    manager=manager, operation=operation, api_version=ref.api_version, subresource=subresource
                ),
                now=now,
                new_uid=self._new_uid,
            )
            written = [change for change in target.log if change.version > first]
            if not dry_run and any(map(store.concerns_controllers, written)):
                store.run_controllers(target, now=now)

    def _new_uid(self) -> str:
        text = hashlib.sha256(f"{self._name} {next(self._numbers)}".encode()).hexdigest()
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:32]}"


def _key(served: Served, ref: ObjectRef) -> Key:
    namespace = ref.namespace if served.kind.namespaced else ""
    return Key(served.kind.group, served.kind.kind, namespace, ref.name)


def _selection(labels: str, fields: str) -> store.Matches:
    try:
        by_labels, by_fields = store.by_labels(labels), store.by_fields(fields)
    except ValueError as error:
        raise InvalidError(str(error)) from error
    return lambda obj: by_labels(obj) and by_fields(obj)


def _events(
    change: StoreChange, matches: store.Matches, served: Served, *, metadata_only: bool
) -> Iterator[WatchEvent]:
    """Say what a watch with a selector sees of a change."""
    was = change.old is not None and matches(change.old)
    if change.new is not None and matches(change.new):
        shown = served.shown(change.new, metadata_only=metadata_only)
        yield WatchEvent(type="MODIFIED" if was else "ADDED", object=shown)
    elif change.old is not None and was:
        gone = store.with_metadata(change.old, resourceVersion=str(change.version))
        yield WatchEvent(type="DELETED", object=served.shown(gone, metadata_only=metadata_only))
