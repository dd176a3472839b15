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
from dataclasses import replace
from itertools import count
from threading import RLock
from typing import Any

from mlstack.app.environment import ClusterIdentity
from mlstack.clock import timestamp
from mlstack.dataclass import Record
from mlstack.errors import (
    Cause,
    ClusterError,
    ConflictError,
    InvalidError,
    ObjectNotFoundError,
    WatchExpiredError,
)
from mlstack.kube.client import Applied, Listing, ObjectRef, PatchKind, Propagation, Right, Rights, WatchEvent
from mlstack.kube.transport import error_of
from mlstack.objects.kube_object import MANAGER, Identity, Kinds, Schemas, without_nulls
from mlstack.objects.managed_fields import PatchFault, json_patch, merge_patch
from mlstack.testing import kinds, server_side_apply, store
from mlstack.testing.kinds import Catalog, Served, name_faults, rule_faults, typed_faults, update_faults
from mlstack.testing.server_side_apply import Entries, FieldWriter, entries_of
from mlstack.testing.store import Obj, ObjectStore, StoreChange, copied
from mlstack.yaml.write import same

NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class MemoryCluster:
    """A cluster in memory; see `mlstack.kube.client.Cluster` for the verbs.

    Args:
        schemas: the built-in kinds and their fields.
        name: what tells this cluster from others; UIDs depend on it.
        clock: gives the time in seconds since 1970.
        denies: tells which rights we do not have, when asked about them; writes are not held to it.
    """

    def __init__(
        self,
        schemas: Schemas,
        *,
        name: str = "memory",
        clock: Callable[[], float] = time.time,
        denies: Callable[[Right], bool] | None = None,
    ) -> None:
        self._name = name
        self._clock = clock
        self._lock, self._idling = RLock(), RLock()
        self._store = ObjectStore()
        self._schemas, self._catalog = schemas, Catalog(schemas)
        self._numbers = count(1)
        # Called when a watch has nothing more to give; what it writes is given too: simulated controllers.
        self.on_idle: Callable[[], object] = lambda: None
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
        self, obj: Mapping[str, Any], *, manager: str = MANAGER, force: bool = False, dry_run: bool = False
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
    ) -> dict[str, Any] | None:
        """Delete an object; gives it while it waits for finalizers, None once it is gone.

        Pods end at once, whatever their grace.
        """
        with self._write(ref, MANAGER, "Update", dry_run=False) as write:
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
                if is_inside and (change.key.group, change.key.kind) == (served.kind.group, kind):
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
            first, now = target.version, timestamp(self._clock())
            yield Write(
                store=target,
                key=_key(served, ref),
                ref=ref,
                served=served,
                writer=FieldWriter(manager, operation, ref.api_version, subresource),
                now=now,
                new_uid=self._new_uid,
            )
            written = [change for change in target.log if change.version > first]
            if not dry_run and any(map(store.concerns_controllers, written)):
                store.run_controllers(target, now=now)

    def _new_uid(self) -> str:
        text = hashlib.sha256(f"{self._name} {next(self._numbers)}".encode()).hexdigest()
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:32]}"


def _key(served: Served, ref: ObjectRef) -> Identity:
    namespace = ref.namespace if served.kind.namespaced else ""
    return Identity(served.kind.group, served.kind.kind, namespace, ref.name)


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


# --- one write to one object, from the request to the stored object ---

# What the server writes, whatever a request says of it.
_OF_SYSTEM = ("uid", "creationTimestamp", "generation", "resourceVersion", "deletionTimestamp")


class Write(Record):
    """A write in progress."""

    store: ObjectStore
    key: Identity
    ref: ObjectRef  # the object as the request names it
    served: Served
    writer: FieldWriter
    now: str  # the time, as the server writes it
    new_uid: Callable[[], str]  # gives a UID that nothing had before

    @property
    def live(self) -> Obj | None:
        """Give the object as it is."""
        return self.store.get(self.key)

    def apply(self, desired: Obj, *, force: bool) -> Applied:
        """Write by server-side apply."""
        metadata = desired.get("metadata") or {}
        if metadata.get("managedFields") is not None:
            raise self._refusal(400, "metadata.managedFields must be nil", reason="BadRequest")
        faults = list(typed_faults(desired, self.served.shape))
        if faults:
            text = faults[0] if len(faults) == 1 else "\n  ".join(("errors:", *faults))
            place = f"{self.ref.namespace}/{self.ref.name}; {self.ref.api_version}, Kind={self.ref.kind}"
            raise self._refusal(500, f"failed to create typed patch object ({place}): {text}")
        live, uid = self.live, metadata.get("uid")
        if live is None and uid:
            raise self._refusal(409, "uid mismatch: no existing object was found", reason="Conflict")
        if live is not None and uid not in (None, live["metadata"]["uid"]):
            message = "Invalid value: field is immutable"
            raise self._invalid([Cause(field="metadata.uid", reason="FieldValueInvalid", message=message)])
        if live is not None:
            self._check_version(metadata, live)
        else:
            self._check_namespace()
        if self.served.has_status:
            desired.pop("status", None)
        try:
            new, entries = server_side_apply.apply(
                None if live is None else {**live, "apiVersion": self.ref.api_version},
                {**desired, "metadata": _without_system(metadata)},
                self.served.shape,
                writer=self.writer,
                force=force,
                now=self.now,
            )
        except server_side_apply.OwnershipConflict as conflict:
            fields = ", ".join(f"`{field.path}` ({field.manager})" for field in conflict.conflicts)
            raise ConflictError(
                f"`{self.ref}` has fields that others own: {fields}", conflicts=conflict.conflicts
            ) from conflict
        return self._finish(new, entries)

    def create(self, obj: Obj) -> Applied:
        """Write a new object."""
        if self.live is not None:
            raise self._refusal(409, "already exists", reason="AlreadyExists")
        self._check_strictly(obj)
        self._check_namespace()
        return self._update(obj)

    def replace(self, obj: Obj) -> Applied:
        """Write in place of the object that is there."""
        live = self._required()
        self._check_strictly(obj)
        self._check_version(obj["metadata"], live)
        if obj["metadata"].get("uid") not in (None, live["metadata"]["uid"]):
            raise self._refusal(409, "Precondition failed: UID in precondition", reason="Conflict")
        return self._update(obj)

    def patch(self, patch: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Applied:
        """Write a changed copy of the object that is there: merge patch (a mapping) or JSON patch."""
        live = {**self._required(), "apiVersion": self.ref.api_version}
        is_scale = self.writer.subresource == "scale"
        if is_scale and not self.served.has_scale:
            raise error_of(404, "404 page not found", subject=f"`{self.ref}/scale`")
        before = _scale_of(live) if is_scale else live
        try:
            new = merge_patch(before, patch) if isinstance(patch, Mapping) else json_patch(before, patch)
        except PatchFault as fault:
            message = "the server rejected our request due to an error in our request"
            raise self._refusal(422, message, reason="Invalid") from fault
        if is_scale:
            replicas = new["spec"].get("replicas") or 0
            new = {**live, "spec": {**(live.get("spec") or {}), "replicas": replicas}}
            # A scale to 0 leaves the number without an owner, on real servers too: there 0 is not written.
            applied = self._update(new, owns_replicas=replicas != 0)
            return replace(applied, object=_scale_of(applied.object))
        self._check_strictly(new)
        self._check_version(new["metadata"], live)
        return self._update(new)

    def delete(
        self, propagation: Propagation, *, uid: str | None, resource_version: str | None
    ) -> Obj | None:
        """Delete the object; gives it while something holds it."""
        live = self._required()
        for name, value in {"uid": uid, "resourceVersion": resource_version}.items():
            if value not in (None, live["metadata"][name]):
                raise self._refusal(409, f"the {name} in the precondition does not match", reason="Conflict")
        finalizer = {"Foreground": store.FOREGROUND, "Orphan": store.ORPHAN}.get(propagation, "")
        if self.served.key == ("", "Namespace"):
            going = store.mark_deleted(live, now=self.now)
            going["status"] = {**(live.get("status") or {}), "phase": "Terminating"}
        elif finalizer or live["metadata"].get("finalizers"):
            going = store.mark_deleted(live, now=self.now, finalizer=finalizer)
        else:
            self.store.remove(self.key)
            return None
        return self.served.shown(live if same(going, live) else self.store.put(self.key, going))

    def _update(self, new: Obj, *, owns_replicas: bool = True) -> Applied:
        """Write a whole object; fields whose values change become the writer's."""
        live = self.live
        if self.writer.subresource == "status" and live is not None:
            new = {**live, "status": new.get("status")}
        elif self.served.has_status:
            status = {"status": live["status"]} if live is not None and "status" in live else {}
            new = {name: value for name, value in new.items() if name != "status"} | status
        metadata = _without_system(new["metadata"])
        managed_fields = metadata.pop("managedFields", None)
        names = {"apiVersion": self.ref.api_version, "kind": self.ref.kind}
        new = self._completed({**new, "metadata": metadata, **names})
        if live is not None:
            before = {**live, "metadata": _without_system(live["metadata"]), **names}
        else:
            before = {"metadata": {}} if self.served.custom else kinds.skeleton(self.served.key)
        # Entries in the request are taken at their word, none mean the live ones, one empty entry means none.
        # Objects without managed fields stay without until the first apply.
        listed = entries_of(managed_fields or ())
        if live is not None and managed_fields != [{}]:
            listed = listed or entries_of(live["metadata"].get("managedFields") or ())
        entries: Entries = ()
        if listed or live is None:
            unowned = set() if owns_replicas else {("f:spec", "f:replicas")}
            entries = tuple(
                replace(entry, paths=entry.paths - unowned) if entry.writer == self.writer else entry
                for entry in server_side_apply.update(
                    before, new, self.served.shape, writer=self.writer, now=self.now, listed=listed
                )
            )
        return self._finish(new, entries)

    def _finish(self, new: Obj, entries: Entries) -> Applied:
        """Fill in defaults, check, count the change and store it unless nothing changed."""
        live = self.live
        new = self._completed(new)
        if self.served.key == ("", "Service"):
            services = self.store.of_kind("", "Service")
            taken = {str(obj["spec"].get("clusterIP")) for key, obj in services if key != self.key}
            new = kinds.allocate(new, taken)
        self._check_rules(live, new)
        metadata = {**new["metadata"], **self._system_metadata(live, new)}
        managed_fields = server_side_apply.managed_fields_of(entries)
        metadata |= {"managedFields": managed_fields} if managed_fields else {}
        new = {**new, "metadata": metadata}
        if live is not None and same(_timeless(live), _timeless(new)):
            return Applied(object=self.served.shown(live))
        return Applied(object=self.served.shown(self.store.put(self.key, new)), created=live is None)

    def _completed(self, new: Obj) -> Obj:
        custom = self.served.custom
        if custom is not None:
            return {**kinds.custom_defaults(new, custom), "metadata": without_nulls(new["metadata"])}
        new = kinds.tidy(new, self.served.shape)
        if self.served.has_status:
            new.setdefault("status", {})
        return kinds.fill_in(new, self.served.key)

    def _system_metadata(self, live: Obj | None, new: Obj) -> Obj:
        if live is None:
            generation = {"generation": 1} if self.served.counts_changes else {}
            return {"uid": self.new_uid(), "creationTimestamp": self.now} | generation
        names = (*_OF_SYSTEM, "deletionGracePeriodSeconds")
        kept = {name: live["metadata"][name] for name in names if name in live["metadata"]}
        # Changes of other fields do not count.
        other = {"apiVersion", "kind", "metadata"} | ({"status"} if self.served.has_status else set())
        before, after = ({name: obj[name] for name in obj if name not in other} for obj in (live, new))
        if "generation" in kept and not same(before, after):
            kept["generation"] += 1
        return kept

    # --- what is refused ---

    def _check_strictly(self, obj: Any) -> None:
        """Refuse what a strict reading of a whole object refuses."""
        faults = list(typed_faults(obj, self.served.shape))
        if faults:
            raise self._refusal(400, f"strict decoding error: {'; '.join(faults)}", reason="BadRequest")

    def _check_version(self, metadata: Mapping[str, Any], live: Obj) -> None:
        if metadata.get("resourceVersion") not in (None, "", live["metadata"]["resourceVersion"]):
            raise self._refusal(409, "the object has been modified", reason="Conflict")

    def _check_namespace(self) -> None:
        if not self.served.kind.namespaced:
            return
        namespace = self.store.get(Identity("", "Namespace", "", self.ref.namespace))
        if namespace is None:
            details = {"name": self.ref.namespace, "kind": "namespaces"}
            raise self._refusal(404, "namespace not found", reason="NotFound", details=details)
        if store.is_going(namespace):
            causes = [{"reason": "NamespaceTerminating"}]
            raise self._refusal(403, "forbidden", reason="Forbidden", details={"causes": causes})

    def _check_rules(self, live: Obj | None, new: Obj) -> None:
        # The server writes the status of built-in kinds itself and holds nobody to its schema.
        is_held = self.served.custom is not None
        checked = {name: value for name, value in new.items() if is_held or name != "status"}
        faults = list(rule_faults(checked, self.served.shape))
        if live is None:
            faults += name_faults(self.served.key, self.ref.name)
        else:
            faults += update_faults(self.served.key, live, new)
        if faults:
            raise self._invalid(faults)

    def _required(self) -> Obj:
        live = self.live
        if live is None:
            details = {"name": self.ref.name, "kind": self.served.kind.plural}
            raise self._refusal(404, "not found", reason="NotFound", details=details)
        return live

    def _invalid(self, faults: list[Cause]) -> ClusterError:
        causes = [
            {"field": fault.field, "reason": fault.reason, "message": fault.message} for fault in faults
        ]
        return self._refusal(422, "is invalid", reason="Invalid", details={"causes": causes})

    def _refusal(
        self, code: int, message: str, *, reason: str = "", details: Mapping[str, Any] | None = None
    ) -> ClusterError:
        body = {"code": code, "message": message, "reason": reason, "details": details or {}}
        return error_of(code, body, subject=f"`{self.ref}`", namespace=self.ref.namespace, kind=self.ref.kind)


def _scale_of(obj: Mapping[str, Any]) -> Obj:
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    replicas = (obj.get("spec") or {}).get("replicas")
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {name: obj["metadata"][name] for name in names if name in obj["metadata"]},
        "spec": {"replicas": replicas} if replicas else {},
        "status": {"replicas": (obj.get("status") or {}).get("replicas", 0)},
    }


def _without_system(metadata: Mapping[str, Any]) -> Obj:
    return {name: value for name, value in metadata.items() if name not in _OF_SYSTEM}


def _timeless(obj: Obj) -> Obj:
    """Give an object without what changes with each write: a write that changes no more is none."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
    entries = [{**entry, "time": None} for entry in metadata.get("managedFields") or ()]
    return {**obj, "metadata": {**metadata, "managedFields": entries}}
