"""One write to one object of a memory cluster, from the request to the stored object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mlstack.cluster import defaults, garbage, managers, merge, patches, strategies, typecheck
from mlstack.cluster.answers import error_of
from mlstack.cluster.api import Applied, ObjectRef, Propagation
from mlstack.cluster.fields import NOTHING, Paths
from mlstack.cluster.managers import Entry, Writer
from mlstack.cluster.serving import Served
from mlstack.cluster.store import Key, Obj, Store
from mlstack.errors import Cause, ClusterError, ConflictError

_OF_SYSTEM = ("uid", "creationTimestamp", "generation", "resourceVersion", "deletionTimestamp")
_LINES = "\n  "
_REPLICAS: Paths = frozenset({("f:spec", "f:replicas")})


@dataclass(frozen=True, kw_only=True)
class Write:
    """A write in progress.

    Attributes:
        store: what is written to.
        key: the object.
        ref: the object as the request names it.
        served: its kind.
        writer: who writes.
        now: the time, as the server writes it.
        new_uid: gives a UID that nothing had before.
    """

    store: Store
    key: Key
    ref: ObjectRef
    served: Served
    writer: Writer
    now: str
    new_uid: Callable[[], str]

    @property
    def live(self) -> Obj | None:
        """Give the object as it is."""
        return self.store.get(self.key)

    def apply(self, wanted: Obj, *, force: bool) -> Applied:
        """Write by server-side apply."""
        metadata = wanted.get("metadata") or {}
        if metadata.get("managedFields") is not None:
            raise self._refusal(400, "metadata.managedFields must be nil", reason="BadRequest")
        self._check_types(wanted, "failed to create typed patch object")
        live = self.live
        self._check_identity(metadata, live)
        if live is None:
            self._check_namespace()
        if self.served.has_status:
            wanted.pop("status", None)
        metadata = {name: value for name, value in metadata.items() if name not in _OF_SYSTEM}
        before = None if live is None else {**live, "apiVersion": self.ref.api_version}
        try:
            new, entries = managers.apply(
                before,
                {**wanted, "metadata": metadata},
                self.served.shape,
                writer=self.writer,
                force=force,
                now=self.now,
            )
        except managers.OwnershipConflict as conflict:
            raise self._conflict(conflict) from conflict
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
        uid = obj["metadata"].get("uid")
        if uid not in (None, live["metadata"]["uid"]):
            raise self._refusal(409, "Precondition failed: UID in precondition", reason="Conflict")
        return self._update(obj)

    def patch(self, change: Callable[[Obj], Any]) -> Applied:
        """Write a changed copy of the object that is there."""
        live = {**self._required(), "apiVersion": self.ref.api_version}
        if self.writer.subresource == "scale":
            return self._scale(live, change)
        try:
            new = change(live)
        except patches.PatchFault as fault:
            raise self._refusal(
                422, "the server rejected our request due to an error in our request", reason="Invalid"
            ) from fault
        self._check_strictly(new)
        self._check_version(new["metadata"], live)
        return self._update(new)

    def delete(
        self, propagation: Propagation, *, uid: str | None, resource_version: str | None
    ) -> Obj | None:
        """Delete the object; gives it while something holds it."""
        live = self._required()
        given = {"uid": uid, "resourceVersion": resource_version}
        for name, value in given.items():
            if value not in (None, live["metadata"][name]):
                raise self._refusal(409, f"the {name} in the precondition does not match", reason="Conflict")
        wanted = {"Foreground": garbage.FOREGROUND, "Orphan": garbage.ORPHAN}.get(propagation, "")
        if self.served.key == ("", "Namespace"):
            going = garbage.mark_deleted(self.store, self.key, now=self.now)
            going["status"] = {**(live.get("status") or {}), "phase": "Terminating"}
        elif wanted or live["metadata"].get("finalizers"):
            going = garbage.mark_deleted(self.store, self.key, now=self.now, finalizer=wanted)
        else:
            self.store.remove(self.key)
            return None
        if merge.same(going, live):
            return self.served.shown(live)
        return self.served.shown(self.store.put(self.key, going))

    def _update(self, new: Obj, *, disowned: Paths = NOTHING) -> Applied:
        """Write a whole object; fields whose values change become the writer's, but for the disowned."""
        live = self.live
        if self.writer.subresource == "status" and live is not None:
            new = {**live, "status": new.get("status")}
        elif self.served.has_status:
            new = {name: value for name, value in new.items() if name != "status"}
            if live is not None and "status" in live:
                new["status"] = live["status"]
        metadata = {name: value for name, value in new["metadata"].items() if name not in _OF_SYSTEM}
        new = {**new, "metadata": metadata, "apiVersion": self.ref.api_version, "kind": self.ref.kind}
        given = new["metadata"].pop("managedFields", None)
        new = self._completed(new)
        if live is not None:
            before = {**_without_system(live), "apiVersion": self.ref.api_version}
        else:
            before = {"metadata": {}} if self.served.custom else defaults.skeleton(self.served.key)
        entries = managers.update(
            before,
            new,
            self.served.shape,
            writer=self.writer,
            now=self.now,
            listed=_trusted(given, live),
        )
        entries = tuple(
            replace(entry, paths=entry.paths - disowned) if entry.writer == self.writer else entry
            for entry in entries
        )
        return self._finish(new, entries)

    def _scale(self, live: Obj, change: Callable[[Obj], Any]) -> Applied:
        """Change the number of replicas alone.

        A scale to 0 leaves the number without an owner, on real servers too: there 0 is not written.
        """
        if not self.served.has_scale:
            raise error_of(404, "404 page not found", subject=f"`{self.ref}/scale`")
        wanted = change(_scale_of(live))["spec"].get("replicas") or 0
        spec = {**(live.get("spec") or {}), "replicas": wanted}
        applied = self._update({**live, "spec": spec}, disowned=NOTHING if wanted else _REPLICAS)
        return replace(applied, object=_scale_of(applied.object))

    def _finish(self, new: Obj, entries: tuple[Entry, ...]) -> Applied:
        """Fill in defaults, check, count the change and store it unless nothing changed."""
        live = self.live
        new = defaults.allocate(self._completed(new), self.served.key, taken_addresses=self._addresses)
        self._check_rules(live, new)
        new = {**new, "metadata": {**new["metadata"], **self._system_metadata(live, new)}}
        new = managers.with_entries(new, entries)
        if live is not None and merge.same(_timeless(live), _timeless(new)):
            return Applied(object=self.served.shown(live))
        return Applied(object=self.served.shown(self.store.put(self.key, new)), created=live is None)

    def _completed(self, new: Obj) -> Obj:
        custom = self.served.custom
        if custom is not None:
            return {**defaults.custom(new, custom), "metadata": _without_nulls(new["metadata"])}
        new = defaults.tidy(new, self.served.shape)
        if self.served.has_status:
            new.setdefault("status", {})
        return defaults.fill_in(new, self.served.key)

    def _addresses(self) -> set[str]:
        found = self.store.of_kind("", "Service")
        return {str(obj["spec"].get("clusterIP")) for key, obj in found if key != self.key}

    def _system_metadata(self, live: Obj | None, new: Obj) -> Obj:
        if live is None:
            generation = {"generation": 1} if self.served.counts_changes else {}
            return {"uid": self.new_uid(), "creationTimestamp": self.now} | generation
        kept = {name: live["metadata"][name] for name in _OF_SYSTEM if name in live["metadata"]}
        for name in ("deletionGracePeriodSeconds",):
            if name in live["metadata"]:
                kept[name] = live["metadata"][name]
        if "generation" in kept and not merge.same(self._counted(live), self._counted(new)):
            kept["generation"] += 1
        return kept

    def _counted(self, obj: Obj) -> Obj:
        """Give the part of an object whose changes count."""
        left_out = {"apiVersion", "kind", "metadata"} | ({"status"} if self.served.has_status else set())
        return {name: value for name, value in obj.items() if name not in left_out}

    def _check_types(self, obj: Mapping[str, Any], prefix: str) -> None:
        faults = list(typecheck.typed_faults(obj, self.served.shape))
        if faults:
            text = faults[0] if len(faults) == 1 else f"errors:{_LINES}" + _LINES.join(faults)
            place = f"{self.ref.namespace}/{self.ref.name}; {self.ref.api_version}, Kind={self.ref.kind}"
            raise self._refusal(500, f"{prefix} ({place}): {text}")

    def _check_strictly(self, obj: Any) -> None:
        """Refuse what a strict reading of a whole object refuses."""
        faults = list(typecheck.typed_faults(obj, self.served.shape))
        if faults:
            text = "; ".join(faults)
            raise self._refusal(400, f"strict decoding error: {text}", reason="BadRequest")

    def _check_identity(self, metadata: Mapping[str, Any], live: Obj | None) -> None:
        uid = metadata.get("uid")
        if live is None:
            if uid:
                raise self._refusal(409, "uid mismatch: no existing object was found", reason="Conflict")
            return
        if uid not in (None, live["metadata"]["uid"]):
            message = "Invalid value: field is immutable"
            raise self._invalid([Cause(field="metadata.uid", reason="FieldValueInvalid", message=message)])
        self._check_version(metadata, live)

    def _check_version(self, metadata: Mapping[str, Any], live: Obj) -> None:
        if metadata.get("resourceVersion") not in (None, "", live["metadata"]["resourceVersion"]):
            raise self._refusal(409, "the object has been modified", reason="Conflict")

    def _check_namespace(self) -> None:
        if not self.served.kind.namespaced:
            return
        namespace = self.store.get(Key("", "Namespace", "", self.ref.namespace))
        if namespace is None:
            details = {"name": self.ref.namespace, "kind": "namespaces"}
            raise self._refusal(404, "namespace not found", reason="NotFound", details=details)
        if garbage.is_going(namespace):
            causes = [{"reason": "NamespaceTerminating"}]
            raise self._refusal(403, "forbidden", reason="Forbidden", details={"causes": causes})

    def _check_rules(self, live: Obj | None, new: Obj) -> None:
        # The server writes the status of built-in kinds itself and holds nobody to its schema.
        left_out = set() if self.served.custom else {"status"}
        checked = {name: value for name, value in new.items() if name not in left_out}
        faults = list(typecheck.rule_faults(checked, self.served.shape))
        if live is None:
            faults += strategies.name_faults(self.served.key, self.ref.name)
        else:
            faults += strategies.update_faults(self.served.key, live, new)
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

    def _conflict(self, conflict: managers.OwnershipConflict) -> ClusterError:
        fields = ", ".join(f"`{found.path}` ({found.manager})" for found in conflict.conflicts)
        return ConflictError(
            f"`{self.ref}` has fields that others own: {fields}", conflicts=conflict.conflicts
        )

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


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _trusted(given: Any, live: Obj | None) -> tuple[Entry, ...] | None:
    """Give the entries that a write of a whole object goes on from, None where nothing is to be recorded.

    Entries in the request are taken at their word, none mean the live ones, one empty entry means none.
    Objects without managed fields stay without until the first apply.
    """
    if live is None:
        return managers.entries_of({"metadata": {"managedFields": given}})
    if given == [{}]:
        return None
    found = managers.entries_of({"metadata": {"managedFields": given}}) or managers.entries_of(live)
    return found or None


def _without_system(obj: Obj) -> Obj:
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _OF_SYSTEM}
    return {**obj, "metadata": metadata}


def _timeless(obj: Obj) -> Obj:
    """Give an object without what changes with each write: a write that changes no more is none."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
    entries = [{**entry, "time": None} for entry in metadata.get("managedFields") or ()]
    return {**obj, "metadata": {**metadata, "managedFields": entries}}
