"""What readiness rules look at: live objects, the pods that belong to them, events and nodes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlstack.cluster.api import Cluster, ObjectRef
from mlstack.engine import parallel
from mlstack.errors import ForbiddenError, MlstackError, ObjectNotFoundError
from mlstack.model.objects import KubeObject
from mlstack.model.readiness.assess import assess
from mlstack.model.readiness.base import Facts, Readiness

Data = Mapping[str, Any]

# What stands between a workload and its pods, and the pods themselves.
_OWNED = (("v1", "Pod"), ("apps/v1", "ReplicaSet"), ("batch/v1", "Job"))
_REVISION = "deployment.kubernetes.io/revision"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One wanted object as it is.

    Attributes:
        wanted: what the files say.
        live: what is there, None if nothing is.
        readiness: what the rule of its kind says.
        pods: its pods with what their rule says, by name.
    """

    wanted: KubeObject
    live: Data | None
    readiness: Readiness
    pods: tuple[tuple[Data, Readiness], ...] = ()


@dataclass
class _Place:
    """The pods, their owners and the events of one namespace."""

    children: dict[str, list[Data]] = field(default_factory=dict)
    pods: list[Data] = field(default_factory=list)
    events: list[Data] = field(default_factory=list)


def inspect(
    wanted: Sequence[KubeObject], cluster: Cluster, *, now_s: float, wait_for_load_balancer: bool
) -> tuple[tuple[Seen, ...], tuple[str, ...]]:
    """Look at every wanted object and judge it.

    Events and nodes are read only if something does not work: they are many, and only tell why.

    Args:
        wanted: the objects, as the files bring them.
        cluster: where to look.
        now_s: the time in seconds since 1970.
        wait_for_load_balancer: whether a Service of type LoadBalancer needs its address.

    Returns:
        What was seen of each object, and remarks on what could not be read.
    """
    notes: list[str] = []
    live = _results(parallel.run(lambda found: cluster.get(ObjectRef.of(found.data)), wanted))
    places = _places(cluster, _namespaces(wanted, live), notes)
    inspection = _Inspection(places, now_s, wait_for_load_balancer)
    pairs = list(zip(wanted, live, strict=True))
    seen = [inspection.judge(found, data) for found, data in pairs]
    if all(one.readiness.is_fine for one in seen):
        return tuple(seen), tuple(notes)
    troubled = {one.wanted.namespace for one in seen if not one.readiness.is_fine and one.live}
    for name in sorted(troubled & places.keys()):
        places[name].events = sorted(_list(cluster, "v1", "Event", name, notes), key=_event_time)
    inspection.nodes = _list(cluster, "v1", "Node", None, notes) if troubled else None
    return tuple(inspection.judge(found, data) for found, data in pairs), tuple(notes)


class _Inspection:
    def __init__(self, places: Mapping[str, _Place], now_s: float, wait_for_load_balancer: bool) -> None:
        self._places, self._now_s, self._balancer = places, now_s, wait_for_load_balancer
        self.nodes: Sequence[Data] | None = None

    def judge(self, wanted: KubeObject, live: Data | None) -> Seen:
        """Judge one object and its pods."""
        if live is None:
            return Seen(wanted=wanted, live=None, readiness=Readiness(state="missing", reason="not applied"))
        place = self._places.get(wanted.namespace) or _Place()
        pods = sorted(_pods_of(live, place), key=lambda pod: str(pod["metadata"]["name"]))
        shown = () if wanted.kind in ("Pod", "PersistentVolumeClaim") else pods
        return Seen(
            wanted=wanted,
            live=live,
            readiness=self._assess(live, pods, place),
            pods=tuple((pod, self._assess(pod, (), place)) for pod in shown),
        )

    def _assess(self, data: Data, pods: Sequence[Data], place: _Place) -> Readiness:
        return assess(
            Facts(
                data=data,
                pods=pods,
                events=[event for event in place.events if _about(event) in _uids(data, pods)],
                nodes=self.nodes,
                now_s=self._now_s,
                wait_for_load_balancer=self._balancer,
            )
        )


def _namespaces(wanted: Iterable[KubeObject], live: Iterable[Data | None]) -> list[str]:
    return sorted({one.namespace for one, data in zip(wanted, live, strict=True) if data and one.namespace})


def _places(cluster: Cluster, namespaces: Sequence[str], notes: list[str]) -> dict[str, _Place]:
    """Read pods and what owns them, a request a kind and namespace."""
    places = {name: _Place() for name in namespaces}
    wanted = [(name, *kind) for name in namespaces for kind in _OWNED]
    listed = _results(parallel.run(lambda one: _list(cluster, one[1], one[2], one[0], notes), wanted))
    for (name, _, kind), items in zip(wanted, listed, strict=True):
        for item in items:
            for owner in item["metadata"].get("ownerReferences") or ():
                places[name].children.setdefault(owner["uid"], []).append(item)
        if kind == "Pod":
            places[name].pods = list(items)
    return places


def _list(
    cluster: Cluster, api_version: str, kind: str, namespace: str | None, notes: list[str]
) -> Sequence[Data]:
    try:
        return cluster.list(api_version, kind, namespace=namespace).items
    except (ForbiddenError, ObjectNotFoundError) as error:
        note = f"reasons may be missing: {error.message}"
        if note not in notes:
            notes.append(note)
        return ()


def _pods_of(live: Data, place: _Place) -> Iterator[Data]:
    """Give the pods below an object: its own, or those that mount it."""
    if live["kind"] == "Pod":
        yield live
    elif live["kind"] == "PersistentVolumeClaim":
        yield from (pod for pod in place.pods if live["metadata"]["name"] in _claims(pod))
    else:
        yield from _below(live, place)


def _below(owner: Data, place: _Place) -> Iterator[Data]:
    children = place.children.get(owner["metadata"].get("uid", ""), [])
    yield from (child for child in children if child["kind"] == "Pod")
    sets = [child for child in children if child["kind"] == "ReplicaSet"]
    if sets:
        # Pods of an older revision are on their way out and say nothing about the newest one.
        yield from _below(max(sets, key=_revision), place)
    for job in (child for child in children if child["kind"] == "Job"):
        yield from _below(job, place)


def _revision(replica_set: Data) -> tuple[int, str]:
    metadata = replica_set["metadata"]
    number = str((metadata.get("annotations") or {}).get(_REVISION, "0"))
    return int(number) if number.isdigit() else 0, str(metadata.get("creationTimestamp", ""))


def _claims(pod: Data) -> set[str]:
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    return {str((volume.get("persistentVolumeClaim") or {}).get("claimName")) for volume in volumes}


def _about(event: Data) -> str:
    return str((event.get("involvedObject") or {}).get("uid"))


def _uids(data: Data, pods: Sequence[Data]) -> set[str]:
    return {str(one["metadata"].get("uid")) for one in (data, *pods)}


def _event_time(event: Data) -> str:
    series = event.get("series") or {}
    last = series.get("lastObservedTime") or event.get("eventTime") or event.get("lastTimestamp")
    return str(last or event["metadata"].get("creationTimestamp") or "")


def _results(results: Sequence[Any]) -> list[Any]:
    failures = [result for result in results if isinstance(result, MlstackError)]
    if failures:
        raise parallel.together(failures)
    return list(results)
