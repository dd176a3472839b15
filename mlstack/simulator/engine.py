"""Virtual time, the objects of a simulated cluster, their API server, and the kubelets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import Any

from mlstack.clock import timestamp
from mlstack.errors import ConflictError, InvalidError, ObjectNotFoundError
from mlstack.kube.client import Applied, ClientWrapper, EventType, Listing, ObjectRef, WatchEvent
from mlstack.objects.managed_fields import PatchFault, merge_patch
from mlstack.objects.resources import NodePlace, is_eligible
from mlstack.testing.store import Obj, by_fields, by_labels

Callback = Callable[[], object]
Hear = Callable[[WatchEvent], None]

START_MS = 1_000_000_000_000
"""When every simulation begins; any whole second that is not 1970 will do."""
LAG_MS, JITTER_MS = 50, 20
DEFAULT_GRACE_S = 30
ENDED = ("Succeeded", "Failed")


class Kernel:
    """Virtual time in integer milliseconds: it jumps from one action to the next."""

    def __init__(self, seed: int = 0) -> None:
        self.now_ms = START_MS
        self._seed = seed
        self._heap: list[tuple[int, int, Callback]] = []
        self._count = 0

    @property
    def timestamp(self) -> str:
        """Write the time as the API server does."""
        return timestamp(self.now_ms // 1000)

    def generator(self, name: str) -> Random:
        """Give a generator of its own for a part of the simulator: its draws disturb no other part's."""
        return Random(f"{self._seed}/{name}")

    def at(self, time_ms: int, action: Callback) -> None:
        """Do something at a moment, now if that has passed; what is due together keeps its order."""
        self._count += 1
        heappush(self._heap, (max(time_ms, self.now_ms), self._count, action))

    def after(self, delay_ms: int, action: Callback) -> None:
        """Do something in a while."""
        self.at(self.now_ms + delay_ms, action)

    def run(self, until_ms: int) -> None:
        """Do all that is due up to and including a moment, and end there."""
        while self._heap and self._heap[0][0] <= until_ms:
            self.now_ms, _, action = heappop(self._heap)
            action()
        self.now_ms = max(self.now_ms, until_ms)


class SimulatedWatch:
    """What one watcher hears, in order, each event after a delay of its own; without `chance` at once."""

    def __init__(self, kernel: Kernel, kinds: Sequence[str], hear: Hear, chance: Random | None) -> None:
        self._kernel, self._kinds, self._hear, self._chance = kernel, frozenset(kinds), hear, chance
        self._last_ms = 0
        self.is_open = True  # once it is not, not even what is on its way is heard

    def send(self, event: WatchEvent) -> None:
        """Put an event on its way."""
        if event.object["kind"] not in self._kinds or not self.is_open:
            return
        if self._chance is None:
            self._hear(event)
            return
        delay_ms = LAG_MS + self._chance.randint(-JITTER_MS, JITTER_MS)
        self._last_ms = max(self._last_ms, self._kernel.now_ms + delay_ms)
        self._kernel.at(self._last_ms, lambda: self._hear(event) if self.is_open else None)


class SimulatedStore:
    """Objects by kind, namespace and name, as the API server keeps them; a write makes a new object.

    The memory cluster of `testing` holds objects to their schemas and keeps who owns which field: it takes
    0.4 to 0.7 ms a write, this 0.01, and an experiment writes 5,500 times in six seconds.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.version = 0
        self._objects: dict[str, dict[tuple[str, str], Obj]] = {}
        self._watches: list[SimulatedWatch] = []

    def get(self, kind: str, name: str, namespace: str = "") -> Obj | None:
        """Give one object, None if it is not there."""
        return self._objects.get(kind, {}).get((namespace, name))

    def all(self, kind: str) -> list[Obj]:
        """Give all objects of a kind, in the order in which they were made."""
        return list(self._objects.get(kind, {}).values())

    def current(self, obj: Mapping[str, Any]) -> Obj | None:
        """Give an object as it is now, None if it is gone or another one has its name."""
        live = self._objects.get(obj["kind"], {}).get(_key(obj))
        return live if live and live["metadata"]["uid"] == obj["metadata"]["uid"] else None

    def write(self, obj: Mapping[str, Any]) -> Obj:
        """Make an object, or put it in place of the one of its name; the same one again changes nothing."""
        key, objects = _key(obj), self._objects.setdefault(str(obj["kind"]), {})
        old, volatile = objects.get(key), dict.fromkeys(("resourceVersion", "uid", "creationTimestamp"))
        if old is not None and changed(old, metadata=volatile) == changed(obj, metadata=volatile):
            return old
        self.version += 1
        uid = f"00000000-0000-4000-8000-{self.version:012d}"
        birth = old["metadata"] if old else {"uid": uid, "creationTimestamp": self.kernel.timestamp}
        metadata = {name: birth[name] for name in ("uid", "creationTimestamp")}
        metadata |= {**obj["metadata"], "resourceVersion": str(self.version)}
        objects[key] = {**obj, "metadata": metadata}
        self._send("MODIFIED" if old else "ADDED", objects[key])
        return objects[key]

    def update(self, live: Mapping[str, Any], **parts: Mapping[str, Any]) -> Obj:
        """Write an object with some fields of its metadata, spec or status replaced."""
        return self.write(changed(live, **parts))

    def admit(self, pod: Mapping[str, Any]) -> Obj:
        """Give a new pod as it is stored: with its priority and as Pending."""
        spec = pod["spec"]
        priority_class = self.get("PriorityClass", str(spec.get("priorityClassName") or "")) or {}
        admitted = {
            "priority": priority_class.get("value", spec.get("priority", 0)),
            "preemptionPolicy": (priority_class or spec).get("preemptionPolicy", "PreemptLowerPriority"),
            "terminationGracePeriodSeconds": spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_S),
        }
        return changed(pod, spec=admitted, status={"phase": "Pending"})

    def delete(self, obj: Mapping[str, Any], *, grace_s: int | None = None) -> Obj | None:
        """Delete an object; gives a pod that its kubelet ends after its grace, others go at once."""
        live = self.current(obj)
        if live is None:
            return None
        is_bound = live["kind"] == "Pod" and "nodeName" in live["spec"]
        if not is_bound or live["status"].get("phase") in ENDED or grace_s == 0:
            self.remove(live)
            return None
        if "deletionTimestamp" in live["metadata"]:
            return live
        grace = live["spec"]["terminationGracePeriodSeconds"] if grace_s is None else grace_s
        end = timestamp(self.kernel.now_ms / 1000 + grace)
        return self.update(live, metadata={"deletionTimestamp": end, "deletionGracePeriodSeconds": grace})

    def evict(self, pod: Mapping[str, Any], reason: str) -> None:
        """Delete a pod that is there, and say in its status why."""
        target = with_condition(pod, "DisruptionTarget", "True", reason=reason)
        self.delete(self.update(pod, status={"conditions": target}))

    def remove(self, obj: Mapping[str, Any]) -> None:
        """Take an object away; nothing happens if it is gone already."""
        gone = self._objects.get(str(obj["kind"]), {}).pop(_key(obj), None)
        if gone is not None:
            self.version += 1
            self._send("DELETED", changed(gone, metadata={"resourceVersion": str(self.version)}))

    def watch(self, kinds: Sequence[str], hear: Hear, *, name: str = "") -> SimulatedWatch:
        """Hear of everything there is, then of every change; only a watch with a name has a delay."""
        chance = self.kernel.generator(f"watch/{name}") if name else None
        watch = SimulatedWatch(self.kernel, kinds, hear, chance)
        self._watches = [*(other for other in self._watches if other.is_open), watch]
        for kind in kinds:
            for obj in self.all(kind):
                watch.send(WatchEvent(type="ADDED", object=obj))
        return watch

    def _send(self, change: EventType, obj: Obj) -> None:
        event = WatchEvent(type=change, object=obj)
        for watch in self._watches:
            watch.send(event)


def _key(obj: Mapping[str, Any]) -> tuple[str, str]:
    metadata = obj["metadata"]
    return (metadata.get("namespace") or "", metadata["name"])


def manifest(api_version: str, kind: str, name: str, namespace: str = "", **parts: Any) -> Obj:
    """Write an object; its namespace is left out where it has none."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **parts.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}


def changed(obj: Mapping[str, Any], **parts: Mapping[str, Any]) -> Obj:
    """Give an object with some fields of its metadata, spec or status replaced."""
    return {**obj, **{part: {**(obj.get(part) or {}), **fields} for part, fields in parts.items()}}


def is_live(pod: Mapping[str, Any]) -> bool:
    """Tell whether a pod neither ended nor is going."""
    return "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") not in ENDED


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Tell whether a pod has the condition Ready."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def with_condition(obj: Mapping[str, Any], kind: str, status: str, **more: str) -> list[Mapping[str, Any]]:
    """Give the conditions of an object with one of them set."""
    others = [other for other in obj["status"].get("conditions") or () if other["type"] != kind]
    return [*others, {"type": kind, "status": status, **more}]


class SimulatedCluster(ClientWrapper):
    """The API server for the controller; before each write `refuse` may raise what it is to fail with."""

    def __init__(self, store: SimulatedStore, refuse: Callable[[str, ObjectRef], None] | None = None) -> None:
        self._store = store
        self._refuse = refuse or (lambda verb, ref: None)
        self._applied: dict[ObjectRef, Mapping[str, Any]] = {}
        self.calls: Counter[str] = Counter()  # how many requests there were, by verb

    def _call(self, verb: str, *args: Any, **named: Any) -> Any:
        self.calls[verb] += 1
        named.pop("manager", None)
        return getattr(self, f"_{verb}")(*args, **named)

    def _get(self, ref: ObjectRef) -> Obj | None:
        return self._store.get(ref.kind, ref.name, ref.namespace)

    def _list(
        self, api_version: str, kind: str, *, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> Listing:
        has_labels, has_fields = by_labels(labels), by_fields(fields)
        inside = (
            obj for obj in self._store.all(kind) if namespace in (None, obj["metadata"].get("namespace"))
        )
        items = tuple(obj for obj in inside if has_labels(obj) and has_fields(obj))
        return Listing(items=items, resource_version=str(self._store.version))

    def _apply(self, obj: Mapping[str, Any], *, force: bool, dry_run: bool = False) -> Applied:
        """Lay the fields of an object over the one that is there, or make it; fields applied before go."""
        ref = ObjectRef.of(obj)
        self._refuse("apply", ref)
        live, before = self._get(ref), self._applied.get(ref, {})
        if not dry_run:
            self._applied[ref] = obj
        if live is None:
            return self._add(obj, dry_run=dry_run)
        _check_version(live, obj["metadata"])
        intent = {name: value for name, value in obj.items() if name != "status"}
        return self._put(live, merge_patch(_without(live, before, obj), intent), dry_run=dry_run)

    def _create(self, obj: Mapping[str, Any], *, dry_run: bool = False) -> Applied:
        ref = ObjectRef.of(obj)
        self._refuse("create", ref)
        if self._get(ref) is not None:
            raise ConflictError(f"{ref} exists", where=str(ref))
        return self._add(obj, dry_run=dry_run)

    def _replace(self, obj: Mapping[str, Any], *, dry_run: bool = False) -> Applied:
        live = self._live("replace", ObjectRef.of(obj))
        _check_version(live, obj["metadata"])
        return self._put(live, {**obj, "status": live.get("status")}, dry_run=dry_run)

    def _patch(self, ref: ObjectRef, patch: Mapping[str, Any], *, subresource: str = "") -> Applied:
        live = self._live("patch", ref)
        _check_version(live, patch.get("metadata") or {})
        try:
            new = merge_patch(live, patch)
        except PatchFault as fault:
            raise InvalidError(f"the patch does not fit: {fault}", where=str(ref)) from fault
        untouched = "spec" if subresource == "status" else "status"
        return self._put(live, {**new, untouched: live.get(untouched)})

    def _delete(
        self, ref: ObjectRef, *, propagation: str, uid: str | None = None, grace_period_s: int | None = None
    ) -> Obj | None:
        live = self._live("delete", ref)
        _check_version(live, {"uid": uid})
        return self._store.delete(live, grace_s=grace_period_s)

    def _live(self, verb: str, ref: ObjectRef) -> Obj:
        self._refuse(verb, ref)
        live = self._get(ref)
        if live is None:
            raise ObjectNotFoundError(f"{ref} is not there", where=str(ref))
        return live

    def _add(self, obj: Mapping[str, Any], *, dry_run: bool) -> Applied:
        if obj["kind"] == "Pod":
            new = self._store.admit(obj)
        else:
            new = {name: value for name, value in obj.items() if name != "status"}
            new = changed(new, metadata={"generation": 1}) if "spec" in obj else new
        return Applied(object=new if dry_run else self._store.write(new), created=True)

    def _put(self, live: Mapping[str, Any], new: Obj, *, dry_run: bool = False) -> Applied:
        new = {name: value for name, value in new.items() if value is not None}
        if new.get("spec") != live.get("spec") and "generation" in live["metadata"]:
            new = changed(new, metadata={"generation": live["metadata"]["generation"] + 1})
        return Applied(object=new if dry_run else self._store.write(new))


def _check_version(live: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    for name in ("uid", "resourceVersion"):
        if expected.get(name) not in (None, "", live["metadata"][name]):
            ref = ObjectRef.of(live)
            raise ConflictError(f"{ref} has another {name} by now", where=str(ref))


def _without(live: Any, before: Any, intent: Any) -> Any:
    """Leave out what was applied before and is not any more."""
    if not (isinstance(live, Mapping) and isinstance(before, Mapping) and isinstance(intent, Mapping)):
        return live
    return {
        name: _without(value, before.get(name), intent.get(name))
        for name, value in live.items()
        if name in intent or name not in before
    }


# --- kubelets, and the controllers of nodes ---

# So long a node may be silent before the control plane gives it up (node-monitor-grace-period).
_SILENT_MS = 40_000
_COLLECT_MS = 20_000
_UNREACHABLE = "node.kubernetes.io/unreachable"


class Kubelets:
    """The kubelets of all nodes, which may fail and heal, and the controllers that look after nodes."""

    def __init__(self, store: SimulatedStore, start_ms: tuple[int, int]) -> None:
        self._store, self._kernel = store, store.kernel
        self._start_ms = start_ms
        self._chance = store.kernel.generator("kubelet")
        self._starting: set[str] = set()
        self._ending: set[str] = set()
        self._silent: set[str] = set()  # nodes whose kubelet, and all that runs on them, does nothing more
        store.watch(["Pod"], self._hear, name="kubelet")
        store.watch(["Node"], self._hear_node, name="nodes")

    def exit(self, pod: Mapping[str, Any], code: int) -> None:
        """Let the containers of a pod end by themselves, for good."""
        live = self._store.current(pod)
        if live is None or live["status"].get("phase") != "Running":
            return
        now = self._kernel.timestamp
        state = {"terminated": {"exitCode": code, "finishedAt": now}}
        ended = {"ready": False, "restartCount": 0, "state": state}
        containers = [{"name": row["name"], **ended} for row in live["spec"].get("containers") or ()]
        conditions = with_condition(live, "Ready", "False", lastTransitionTime=now)
        phase = "Failed" if code else "Succeeded"
        status = {"phase": phase, "conditions": conditions, "containerStatuses": containers}
        self._store.update(live, status=status)

    def fail(self, node: str) -> None:
        """Let a node fall silent."""
        self._silent.add(node)
        self._kernel.after(_SILENT_MS, lambda: self._give_up(node))

    def heal(self, node: str) -> None:
        """Let a node come back; pods deleted meanwhile end now."""
        self._set_ready(node, "True")
        self._silent.discard(node)
        for pod in self._pods_on(node):
            self._sync(pod)

    def cordon(self, node: str, *, is_closed: bool) -> None:
        """Keep new pods away from a node, or let them come again."""
        if live := self._store.get("Node", node):
            self._store.update(live, spec={"unschedulable": is_closed})

    def remove(self, node: str) -> None:
        """Take a node away for good, with its machine."""
        self._silent.add(node)
        if live := self._store.get("Node", node):
            self._store.remove(live)

    def _hear(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            self._starting.discard(event.object["metadata"]["uid"])
            self._ending.discard(event.object["metadata"]["uid"])
        else:
            self._sync(event.object)

    def _sync(self, pod: Mapping[str, Any]) -> None:
        node, metadata, phase = pod["spec"].get("nodeName"), pod["metadata"], pod["status"].get("phase")
        uid = metadata["uid"]
        if not node or node in self._silent:
            return
        if "deletionTimestamp" in metadata:
            if uid not in self._ending:
                self._ending.add(uid)
                grace_s = 0 if phase in ENDED else metadata["deletionGracePeriodSeconds"]
                self._kernel.after(grace_s * 1000, lambda: self._end(pod))
        elif phase == "Pending" and uid not in self._starting:
            self._starting.add(uid)
            self._kernel.after(self._chance.randint(*self._start_ms), lambda: self._start(pod))

    def _start(self, pod: Mapping[str, Any]) -> None:
        live = self._store.current(pod)
        if live is None or live["spec"]["nodeName"] in self._silent:
            self._starting.discard(pod["metadata"]["uid"])
        elif "deletionTimestamp" not in live["metadata"] and live["status"].get("phase") == "Pending":
            now = self._kernel.timestamp
            conditions = with_condition(live, "Ready", "True", lastTransitionTime=now)
            status = {"phase": "Running", "startTime": now, "conditions": conditions}
            self._store.update(live, status=status)

    def _end(self, pod: Mapping[str, Any]) -> None:
        live = self._store.current(pod)
        if live is not None and live["spec"]["nodeName"] not in self._silent:
            self._store.remove(live)
        self._ending.discard(pod["metadata"]["uid"])

    def _pods_on(self, node: str) -> list[Obj]:
        return [pod for pod in self._store.all("Pod") if pod["spec"].get("nodeName") == node]

    def _set_ready(self, node: str, status: str, *effects: str) -> None:
        if live := self._store.get("Node", node):
            taints = [taint for taint in live["spec"].get("taints") or () if taint.get("key") != _UNREACHABLE]
            taints += [{"key": _UNREACHABLE, "effect": effect} for effect in effects]
            now = self._kernel.timestamp
            conditions = with_condition(live, "Ready", status, lastTransitionTime=now)
            self._store.update(live, spec={"taints": taints}, status={"conditions": conditions})

    def _give_up(self, node: str) -> None:
        if node not in self._silent or self._store.get("Node", node) is None:
            return
        self._set_ready(node, "Unknown", "NoSchedule", "NoExecute")
        for pod in self._pods_on(node):
            self._kernel.after(_tolerated_ms(pod["spec"]), partial(self._evict, node, pod))

    def _evict(self, node: str, pod: Mapping[str, Any]) -> None:
        live = self._store.current(pod)
        if live is not None and node in self._silent and "deletionTimestamp" not in live["metadata"]:
            self._store.evict(live, "DeletionByTaintManager")

    def _hear_node(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            self._kernel.after(_COLLECT_MS, partial(self._collect, event.object["metadata"]["name"]))

    def _collect(self, node: str) -> None:
        if self._store.get("Node", node) is None:
            for pod in self._pods_on(node):
                self._store.delete(pod, grace_s=0)


def _tolerated_ms(spec: Mapping[str, Any]) -> int:
    """Give how long a pod stays on a node that does not answer; five minutes unless it says otherwise."""
    silent = NodePlace("", {}, ({"key": _UNREACHABLE, "effect": "NoExecute"},))
    tolerations = spec.get("tolerations") or ()
    fitting = [item for item in tolerations if is_eligible({"tolerations": [item]}, silent)]
    limits = [int(item["tolerationSeconds"]) for item in fitting if item.get("tolerationSeconds") is not None]
    if not fitting:
        return 300_000
    return min(limits) * 1000 if limits else 10**12
