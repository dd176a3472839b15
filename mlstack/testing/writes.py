"""One write to one object of a memory cluster, from the request to the stored object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mlstack.dataclass import dataclass
from mlstack.errors import Cause, ClusterError, ConflictError
from mlstack.kube.api_errors import error_of
from mlstack.kube.client import Applied, ObjectRef, Propagation
from mlstack.objects.managed_fields import PatchFault, json_patch
from mlstack.testing import kinds, server_side_apply, store
from mlstack.testing.kinds import Served, name_faults, rule_faults, typed_faults, update_faults
from mlstack.testing.server_side_apply import Entries, FieldWriter, entries_of, same
from mlstack.testing.store import Key, Obj, ObjectStore


def merge_patch(value: Any, patch: Any) -> Any:
    """Lay a merge patch (RFC 7396) over a value: maps merge, null removes, the rest replaces."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(value) if isinstance(value, Mapping) else {}
    for name, inner in patch.items():
        if inner is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), inner)
    return merged


# What the server writes, whatever a request says of it.
_OF_SYSTEM = ("uid", "creationTimestamp", "generation", "resourceVersion", "deletionTimestamp")


@dataclass(frozen=True, kw_only=True)
class Write:
    """A write in progress."""

    store: ObjectStore
    key: Key
    # The object as the request names it.
    ref: ObjectRef
    served: Served
    writer: FieldWriter
    # The time, as the server writes it.
    now: str
    # Gives a UID that nothing had before.
    new_uid: Callable[[], str]

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
            entries = server_side_apply.update(
                before, new, self.served.shape, writer=self.writer, now=self.now, listed=listed
            )
        if not owns_replicas:
            replicas = {("f:spec", "f:replicas")}
            entries = tuple(
                replace(entry, paths=entry.paths - replicas) if entry.writer == self.writer else entry
                for entry in entries
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
            return {**kinds.custom_defaults(new, custom), "metadata": _without_nulls(new["metadata"])}
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
        namespace = self.store.get(Key("", "Namespace", "", self.ref.namespace))
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


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _without_system(metadata: Mapping[str, Any]) -> Obj:
    return {name: value for name, value in metadata.items() if name not in _OF_SYSTEM}


def _timeless(obj: Obj) -> Obj:
    """Give an object without what changes with each write: a write that changes no more is none."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "resourceVersion"}
    entries = [{**entry, "time": None} for entry in metadata.get("managedFields") or ()]
    return {**obj, "metadata": {**metadata, "managedFields": entries}}
