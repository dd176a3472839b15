"""The simulated cluster behind the Cluster Protocol, as far as the controller asks, with faults on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mlstack.cluster.api import (
    INITIAL_EVENTS_END,
    Applied,
    Listing,
    ObjectRef,
    PatchKind,
    Propagation,
    WatchEvent,
)
from mlstack.cluster.patches import PatchFault, json_patch, merge_patch
from mlstack.cluster.selectors import by_fields, by_labels
from mlstack.elastic.simulate.admission import admit, end
from mlstack.elastic.simulate.kernel import Kernel
from mlstack.elastic.simulate.store import Obj, Store, changed
from mlstack.errors import ConflictError, InvalidError, ObjectNotFoundError
from mlstack.model.app import ClusterIdentity
from mlstack.model.kinds import Kind, Kinds
from mlstack.model.objects import MANAGER
from mlstack.model.rights import Right, Rights

Refuse = Callable[[str, ObjectRef], None]
"""Is asked before each write (`create`, `patch` …) and raises what the write is to fail with."""

_TRAINING_JOB = Kind(
    group="paddlepaddle.org", version="v1", kind="TrainingJob", plural="trainingjobs", namespaced=True
)


def _allow(verb: str, ref: ObjectRef) -> None:
    """Let every write pass."""


class SimulatedCluster:
    """The objects of a store, for a client: every right is given, nothing takes time.

    Attributes:
        calls: how many requests there were, by verb.

    Args:
        store: the objects.
        kernel: the time.
        refuse: decides which writes fail.
    """

    def __init__(self, store: Store, kernel: Kernel, refuse: Refuse = _allow) -> None:
        """Serve the store."""
        self._store = store
        self._kernel = kernel
        self._refuse = refuse
        self._generated = 0
        self._applied: dict[tuple[ObjectRef, str], Mapping[str, Any]] = {}
        self.calls: dict[str, int] = {}

    def identity(self) -> ClusterIdentity:
        """Give who this cluster is."""
        return ClusterIdentity(uid="simulated")

    def kinds(self, *, refresh: bool = False) -> Kinds:
        """Give the built-in kinds and TrainingJob."""
        return Kinds.builtin().with_kinds([_TRAINING_JOB])

    def expect(self, requests: int) -> None:
        """Do nothing: no connection has to be opened."""

    def may(self, right: Right) -> bool:
        """Tell that everything is allowed."""
        return True

    def rights(self, namespace: str) -> Rights:
        """Give all rights."""
        return Rights(rules=({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},))

    def get(self, ref: ObjectRef) -> Obj | None:
        """Read one object, None if it is not there."""
        self._count("get")
        return self._store.get(ref.kind, ref.name, ref.namespace)

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
        """List objects of one kind."""
        self._count("list")
        has_labels, has_fields = by_labels(labels), by_fields(fields)
        found = [
            obj
            for obj in self._store.all(kind)
            if namespace in (None, obj["metadata"].get("namespace")) and has_labels(obj) and has_fields(obj)
        ]
        return Listing(items=tuple(found), resource_version=str(self._store.version))

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
        """Give nothing: no container writes here."""
        return ""

    def apply(
        self, obj: Mapping[str, Any], *, manager: str = MANAGER, force: bool = False, dry_run: bool = False
    ) -> Applied:
        """Lay the fields of an object over the one that is there, or make it; fields applied before go."""
        ref = ObjectRef.of(obj)
        live = self._before("apply", ref)
        before = self._applied.get((ref, manager), {})
        if not dry_run:
            self._applied[ref, manager] = obj
        if live is None:
            return self._made(obj, dry_run=dry_run)
        self._check(live, obj["metadata"])
        wanted = {name: value for name, value in obj.items() if name != "status"}
        return self._put(live, merge_patch(_without(live, before, obj), wanted), dry_run=dry_run)

    def create(self, obj: Mapping[str, Any], *, manager: str = MANAGER, dry_run: bool = False) -> Applied:
        """Make an object."""
        named = self._named(obj)
        if self._before("create", ObjectRef.of(named)) is not None:
            raise ConflictError(f"{ObjectRef.of(named)} exists", where=str(ObjectRef.of(named)))
        return self._made(named, dry_run=dry_run)

    def replace(
        self, obj: Mapping[str, Any], *, manager: str = MANAGER, subresource: str = "", dry_run: bool = False
    ) -> Applied:
        """Put an object in place of the one that is there."""
        live = self._there("replace", ObjectRef.of(obj))
        self._check(live, obj["metadata"])
        new = {**live, "status": obj.get("status")} if subresource else {**obj, "status": live.get("status")}
        return self._put(live, _without_none(new), dry_run=dry_run)

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
        live = self._there("patch", ref)
        if isinstance(patch, Mapping):
            self._check(live, patch.get("metadata") or {})
        try:
            new = merge_patch(live, patch) if isinstance(patch, Mapping) else json_patch(live, patch)
        except PatchFault as fault:
            raise InvalidError(f"the patch does not fit: {fault}", where=str(ref)) from fault
        kept = "spec" if subresource == "status" else "status"
        return self._put(live, _without_none({**new, kept: live.get(kept)}), dry_run=dry_run)

    def delete(
        self,
        ref: ObjectRef,
        *,
        propagation: Propagation = "Foreground",
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_s: int | None = None,
        dry_run: bool = False,
    ) -> Obj | None:
        """Delete an object; what it owns goes after it."""
        live = self._there("delete", ref)
        self._check(live, {"uid": uid, "resourceVersion": resource_version})
        if dry_run:
            return None
        if ref.kind == "Pod":
            return end(self._store, live, now_ms=self._kernel.now_ms, grace_s=grace_period_s)
        self._store.remove(live)
        return None

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
        """Give what there is and end: time stands still while somebody reads, news come from the store."""
        listing = self.list(api_version, kind, namespace=namespace, labels=labels, fields=fields)
        if not resource_version:
            for obj in listing.items:
                yield WatchEvent(type="ADDED", object=obj)
        end_of_list = {
            "annotations": {INITIAL_EVENTS_END: "true"},
            "resourceVersion": listing.resource_version,
        }
        yield WatchEvent(type="BOOKMARK", object={"kind": kind, "metadata": end_of_list})

    def _count(self, verb: str) -> None:
        self.calls[verb] = self.calls.get(verb, 0) + 1

    def _before(self, verb: str, ref: ObjectRef) -> Obj | None:
        """Count a write, let it fail if it is to, and give what is there."""
        self._count(verb)
        self._refuse(verb, ref)
        return self._store.get(ref.kind, ref.name, ref.namespace)

    def _there(self, verb: str, ref: ObjectRef) -> Obj:
        live = self._before(verb, ref)
        if live is None:
            raise ObjectNotFoundError(f"{ref} is not there", where=str(ref))
        return live

    def _check(self, live: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        for name in ("uid", "resourceVersion"):
            if wanted.get(name) not in (None, "", live["metadata"][name]):
                ref = ObjectRef.of(live)
                raise ConflictError(f"{ref} has another {name} by now", where=str(ref))

    def _named(self, obj: Mapping[str, Any]) -> Mapping[str, Any]:
        if obj["metadata"].get("name"):
            return obj
        self._generated += 1
        return changed(
            obj, metadata={"name": f"{obj['metadata'].get('generateName', '')}{self._generated:06x}"}
        )

    def _made(self, obj: Mapping[str, Any], *, dry_run: bool) -> Applied:
        made = dict(obj) if obj["kind"] == "Pod" else {k: v for k, v in obj.items() if k != "status"}
        if obj["kind"] == "Pod":
            made = admit(self._store, made)
        elif "spec" in obj:
            made = changed(made, metadata={"generation": 1})
        return Applied(object=made if dry_run else self._store.write(made), created=True)

    def _put(self, live: Mapping[str, Any], new: Obj, *, dry_run: bool) -> Applied:
        if new.get("spec") != live.get("spec") and "generation" in live["metadata"]:
            new = changed(new, metadata={"generation": live["metadata"]["generation"] + 1})
        return Applied(object=new if dry_run else self._store.write(new))


def _without_none(obj: Mapping[str, Any]) -> Obj:
    return {name: value for name, value in obj.items() if value is not None}


def _without(live: Any, before: Any, wanted: Any) -> Any:
    """Leave out what was applied before and is not any more."""
    if not (isinstance(live, Mapping) and isinstance(before, Mapping) and isinstance(wanted, Mapping)):
        return live
    return {
        name: _without(value, before.get(name), wanted.get(name))
        for name, value in live.items()
        if name in wanted or name not in before
    }
