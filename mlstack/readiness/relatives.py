"""Who belongs to whom around the objects of a run: pods, what stands between, and events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mlstack.readiness.rule import key_of

Data = Mapping[str, Any]

Kind = tuple[str, str]

_SET: Kind = ("apps/v1", "ReplicaSet")
_JOB: Kind = ("batch/v1", "Job")
_ANY: tuple[Kind, ...] = (_SET, _JOB, ("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"))

# What stands between objects of a kind, or of a group, and their pods; other custom resources may have
# workloads of any kind below them.
_BETWEEN: Mapping[str, tuple[Kind, ...]] = {
    "apps/Deployment": (_SET,),
    "apps/StatefulSet": (),
    "apps/DaemonSet": (),
    "apps/ReplicaSet": (),
    "batch/Job": (),
    "ReplicationController": (),
    "Pod": (),
    "PersistentVolumeClaim": (),
    "argoproj.io/Rollout": (_SET,),
    "argoproj.io": (),
    "kubeflow.org/Notebook": (("apps/v1", "StatefulSet"),),
    "kubeflow.org": (_JOB,),
    "batch.volcano.sh": (),
    "jobset.x-k8s.io": (_JOB,),
    "leaderworkerset.x-k8s.io": (("apps/v1", "StatefulSet"),),
    "ray.io": (("ray.io/v1", "RayCluster"), _JOB),
    "sparkoperator.k8s.io": (),
    "trainer.kubeflow.org": (("jobset.x-k8s.io/v1alpha2", "JobSet"), _JOB),
}


def kinds_below(objects: Iterable[Data]) -> tuple[Kind, ...]:
    """Give API version and kind of what has to be read to find the pods of objects, pods included."""
    kinds: set[Kind] = set()
    for obj in filter(has_pods, objects):
        key = key_of(obj)
        kinds |= {("v1", "Pod"), *_BETWEEN.get(key, _BETWEEN.get(key.partition("/")[0], _ANY))}
    return tuple(sorted(kinds))


def has_pods(data: Data) -> bool:
    """Tell whether pods may belong to an object: workloads, claims, and any custom resource."""
    group = key_of(data).rpartition("/")[0]
    return key_of(data) in _BETWEEN or group in _BETWEEN or ("." in group and not group.endswith(".k8s.io"))


class Relatives:
    """Pods, their owners and events, kept as they come and found by whom they belong to."""

    def __init__(self, objects: Iterable[Data] = ()) -> None:
        self._children: defaultdict[str, dict[str, Data]] = defaultdict(dict)  # by the UID of their owner
        self._pods: defaultdict[str, dict[str, Data]] = defaultdict(dict)  # by namespace
        self._events: defaultdict[str, dict[str, Data]] = defaultdict(dict)  # by what they are about
        self._owners: dict[str, tuple[str, ...]] = {}
        for obj in objects:
            self.put(obj)

    def put(self, data: Data) -> None:
        """Take a pod, an owner of pods or an event as it is now."""
        uid = _uid(data)
        if data.get("kind") == "Event":
            about = data.get("involvedObject")
            self._events[str(about.get("uid")) if isinstance(about, Mapping) else ""][uid] = data
            return
        self.drop(data)
        self._owners[uid] = tuple(
            str(owner["uid"]) for owner in data["metadata"].get("ownerReferences") or ()
        )
        for owner in self._owners[uid]:
            self._children[owner][uid] = data
        if data.get("kind") == "Pod":
            self._pods[str(data["metadata"].get("namespace", ""))][uid] = data

    def drop(self, data: Data) -> None:
        """Forget what is gone; events outlive their expiry, as what they said was true."""
        uid = _uid(data)
        for owner in self._owners.pop(uid, ()):
            self._children[owner].pop(uid, None)
        self._pods[str(data["metadata"].get("namespace", ""))].pop(uid, None)

    def pods_of(self, live: Data) -> list[Data]:
        """Give the pods below an object by name: its own, or those that mount it."""
        metadata = live["metadata"]
        if live.get("kind") == "Pod":
            return [live]
        if live.get("kind") == "PersistentVolumeClaim":
            near = self._pods[str(metadata.get("namespace", ""))].values()
            pods = [pod for pod in near if metadata["name"] in _claims(pod)]
        else:
            pods = list(self._below(live))
        generation = (metadata.get("annotations") or {}).get("deprecated.daemonset.template.generation")
        if live.get("kind") == "DaemonSet" and generation is not None:
            # Pods that a rolling update is about to replace.
            labels = [pod["metadata"].get("labels") or {} for pod in pods]
            own = [label.get("pod-template-generation", generation) == generation for label in labels]
            pods = [pod for pod, is_new in zip(pods, own, strict=True) if is_new]
        return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))

    def events_of(self, objects: Iterable[Data]) -> list[Data]:
        """Give the events about any of these objects, oldest first."""
        events = [event for obj in objects for event in self._events[_uid(obj)].values()]
        return sorted(events, key=_event_time)

    def _below(self, owner: Data) -> Iterator[Data]:
        children = list(self._children[_uid(owner)].values())
        if sets := [child for child in children if child["kind"] == "ReplicaSet"]:
            # Pods of an older revision are on their way out and say nothing about the newest one.
            yield from self._below(max(sets, key=_revision))
        for child in children:
            if child["kind"] == "Pod":
                yield child
            elif child["kind"] != "ReplicaSet":
                yield from self._below(child)


def _revision(replica_set: Data) -> tuple[int, str]:
    metadata = replica_set["metadata"]
    number = str((metadata.get("annotations") or {}).get("deployment.kubernetes.io/revision", "0"))
    return int(number) if number.isdigit() else 0, str(metadata.get("creationTimestamp", ""))


def _claims(pod: Data) -> set[str]:
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    return {str((volume.get("persistentVolumeClaim") or {}).get("claimName")) for volume in volumes}


def _uid(data: Data) -> str:
    return str(data["metadata"].get("uid"))


def _event_time(event: Data) -> str:
    series = event.get("series") or {}
    last = series.get("lastObservedTime") or event.get("eventTime") or event.get("lastTimestamp")
    return str(last or event["metadata"].get("creationTimestamp") or "")
