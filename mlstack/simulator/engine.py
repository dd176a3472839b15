"""The heart of the simulator: actions on a heap, integer milliseconds, generators of chance from one seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from heapq import heappop, heappush
from random import Random
from typing import Any

from mlstack.app.app import ClusterIdentity
from mlstack.errors import ConflictError, InvalidError, ObjectNotFoundError
from mlstack.kube.client import (
    INITIAL_EVENTS_END,
    Applied,
    EventType,
    Listing,
    ObjectRef,
    PatchKind,
    Propagation,
    Right,
    Rights,
    WatchEvent,
)
from mlstack.objects.kinds import Kind, Kinds
from mlstack.objects.kube_object import MANAGER
from mlstack.testing.store import by_fields, by_labels
from mlstack.testing.writes import PatchFault, json_patch, merge_patch

# --- The heart of the simulator: actions on a heap, integer milliseconds, generators of chance from
# one seed

Action = Callable[[], None]

START_MS = 1_000_000_000_000
"""When every simulation begins; any whole second that is not 1970 will do."""


class Kernel:
    """Virtual time: it jumps from one action to the next.

    Attributes:
        now_ms: the moment, in milliseconds since 1970.

    Args:
        seed: of everything that is left to chance.
    """

    def __init__(self, seed: int = 0) -> None:
        self.now_ms = START_MS
        self._seed = seed
        self._heap: list[tuple[int, int, Action]] = []
        self._count = 0

    @property
    def elapsed_ms(self) -> int:
        """Give the time since the start."""
        return self.now_ms - START_MS

    def generator(self, name: str) -> Random:
        """Give a generator of its own for a part of the simulator: its draws disturb no other part's."""
        return Random(f"{self._seed}/{name}")

    def at(self, time_ms: int, action: Action) -> None:
        """Do something at a moment, now if that has passed; what is due together keeps its order."""
        self._count += 1
        heappush(self._heap, (max(time_ms, self.now_ms), self._count, action))

    def after(self, delay_ms: int, action: Action) -> None:
        """Do something in a while."""
        self.at(self.now_ms + delay_ms, action)

    def run(self, until_ms: int) -> None:
        """Do all that is due up to and including a moment, and end there."""
        while self._heap and self._heap[0][0] <= until_ms:
            self.now_ms, _, action = heappop(self._heap)
            action()
        self.now_ms = max(self.now_ms, until_ms)


def timestamp(time_ms: int) -> str:
    """Write a time as the API server does: whole seconds."""
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- The objects of a simulated cluster, with resource versions, and the events that others hear a
# moment later
# Objects are never changed in place: a write makes a new one, so that whoever holds an older one keeps that.

Obj = dict[str, Any]
Name = tuple[str, str]
Hear = Callable[[WatchEvent], None]

LAG_MS, JITTER_MS = 50, 20


class EventFeed:
    """What one watcher hears, in order, each event after a delay of its own.

    Args:
        kinds: kinds of object that it hears of.
        hear: is called with each event.
        chance: jitter of the delay; None for no delay at all.
    """

    def __init__(self, kernel: Kernel, kinds: Sequence[str], hear: Hear, chance: Random | None) -> None:
        self._kernel = kernel
        self._kinds = frozenset(kinds)
        self._hear = hear
        self._chance = chance
        self._last_ms = 0
        self.is_open = True

    def close(self) -> None:
        """Hear no more, not even of what is on its way."""
        self.is_open = False

    def send(self, kind: str, event: WatchEvent) -> None:
        """Put an event on its way."""
        if kind not in self._kinds or not self.is_open:
            return
        if self._chance is None:
            self._hear(event)
            return
        delay = LAG_MS + self._chance.randint(-JITTER_MS, JITTER_MS)
        self._last_ms = max(self._last_ms, self._kernel.now_ms + delay)
        self._kernel.at(self._last_ms, lambda: self._arrive(event))

    def _arrive(self, event: WatchEvent) -> None:
        if self.is_open:
            self._hear(event)


class SimulatedStore:
    """Objects by kind, namespace and name."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._objects: dict[str, dict[Name, Obj]] = {}
        self._feeds: list[EventFeed] = []
        self.version = 0

    def get(self, kind: str, name: str, namespace: str = "") -> Obj | None:
        """Give one object, None if it is not there."""
        return self._objects.get(kind, {}).get((namespace, name))

    def all(self, kind: str) -> list[Obj]:
        """Give all objects of a kind, in the order in which they were made."""
        return list(self._objects.get(kind, {}).values())

    def current(self, obj: Mapping[str, Any]) -> Obj | None:
        """Give an object as it is now, None if it is gone or another one has its name."""
        found = self.get(obj["kind"], *_name(obj)[::-1])
        return found if found and found["metadata"]["uid"] == obj["metadata"]["uid"] else None

    def write(self, obj: Mapping[str, Any]) -> Obj:
        """Make an object, or put it in place of the one of its name; the same one again changes nothing."""
        kind, name = str(obj["kind"]), _name(obj)
        known = self._objects.setdefault(kind, {})
        old = known.get(name)
        if old is not None and _is_same(old, obj):
            return old
        self.version += 1
        metadata = {
            **(_birth(old) if old else self._born()),
            **obj["metadata"],
            "resourceVersion": str(self.version),
        }
        known[name] = {**obj, "metadata": metadata}
        self._tell("MODIFIED" if old else "ADDED", known[name])
        return known[name]

    def remove(self, obj: Mapping[str, Any]) -> None:
        """Take an object away; nothing happens if it is gone already."""
        gone = self._objects.get(str(obj["kind"]), {}).pop(_name(obj), None)
        if gone is not None:
            self.version += 1
            metadata = {**gone["metadata"], "resourceVersion": str(self.version)}
            self._tell("DELETED", {**gone, "metadata": metadata})

    def watch(self, kinds: Sequence[str], hear: Hear, *, name: str = "") -> EventFeed:
        """Hear of everything there is, then of every change.

        Args:
            hear: is called with each event.
            name: of the watcher, for the jitter of its delay; without one there is no delay.
        """
        chance = self._kernel.generator(f"watch/{name}") if name else None
        feed = EventFeed(self._kernel, kinds, hear, chance)
        self._feeds = [each for each in self._feeds if each.is_open]
        self._feeds.append(feed)
        for kind in kinds:
            for obj in self.all(kind):
                feed.send(kind, WatchEvent(type="ADDED", object=obj))
        return feed

    def _born(self) -> Obj:
        uid = f"00000000-0000-4000-8000-{self.version:012d}"
        return {"uid": uid, "creationTimestamp": timestamp(self._kernel.now_ms)}

    def _tell(self, change: EventType, obj: Obj) -> None:
        event = WatchEvent(type=change, object=obj)
        for feed in self._feeds:
            feed.send(obj["kind"], event)


def _name(obj: Mapping[str, Any]) -> Name:
    metadata = obj["metadata"]
    return (metadata.get("namespace") or "", metadata["name"])


def _birth(old: Obj) -> Obj:
    return {name: old["metadata"][name] for name in ("uid", "creationTimestamp")}


def _is_same(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    rest = {name: value for name, value in new.items() if name != "metadata"}
    if any(old.get(name) != value for name, value in rest.items()) or len(rest) != len(old) - 1:
        return False
    one, other = dict(old["metadata"]), dict(new["metadata"])
    for volatile in ("resourceVersion", "uid", "creationTimestamp"):
        one.pop(volatile, None)
        other.pop(volatile, None)
    return one == other


def changed(obj: Mapping[str, Any], **parts: Mapping[str, Any]) -> Obj:
    """Give an object with some fields of its metadata, spec or status replaced."""
    return {**obj, **{part: {**(obj.get(part) or {}), **fields} for part, fields in parts.items()}}


# --- What the API server does to pods: priority and phase when they are new, an end when they are
# deleted

ENDED = ("Succeeded", "Failed")
DEFAULT_GRACE_S = 30


def admit(store: SimulatedStore, pod: Mapping[str, Any]) -> Obj:
    """Give a pod as it is stored: with its priority and as Pending."""
    spec = pod["spec"]
    found = store.get("PriorityClass", str(spec.get("priorityClassName") or ""))
    admitted = changed(
        pod,
        spec={
            "priority": (found or {}).get("value", spec.get("priority", 0)),
            "preemptionPolicy": (found or spec).get("preemptionPolicy", "PreemptLowerPriority"),
            "terminationGracePeriodSeconds": spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_S),
        },
        status={"phase": "Pending"},
    )
    return admitted


def end(
    store: SimulatedStore, pod: Mapping[str, Any], *, now_ms: int, grace_s: int | None = None
) -> Obj | None:
    """Delete a pod: at once if it has no node or has ended, else the kubelet ends it after its grace.

    Returns:
        The pod while it goes, None once it is gone.
    """
    live = store.current(pod)
    if live is None:
        return None
    if "nodeName" not in live["spec"] or live["status"].get("phase") in ENDED or grace_s == 0:
        store.remove(live)
        return None
    if "deletionTimestamp" in live["metadata"]:
        return live
    grace = live["spec"]["terminationGracePeriodSeconds"] if grace_s is None else grace_s
    going = {"deletionTimestamp": timestamp(now_ms + grace * 1000), "deletionGracePeriodSeconds": grace}
    return store.write(changed(live, metadata=going))


def is_live(pod: Mapping[str, Any]) -> bool:
    """Tell whether a pod neither ended nor is going."""
    return "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") not in ENDED


def with_condition(pod: Mapping[str, Any], condition: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Give the conditions of an object with one of them set."""
    others = [one for one in pod["status"].get("conditions") or () if one["type"] != condition["type"]]
    return [*others, condition]


def is_owned(obj: Mapping[str, Any], uid: str) -> bool:
    """Tell whether an object has an owner of that UID."""
    return any(owner.get("uid") == uid for owner in obj["metadata"].get("ownerReferences") or ())


# --- The simulated cluster behind the Cluster Protocol, as far as the controller asks, with faults
# on demand

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
    """

    def __init__(self, store: SimulatedStore, kernel: Kernel, refuse: Refuse = _allow) -> None:
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
        return Kinds([*Kinds.builtin(), _TRAINING_JOB])

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
