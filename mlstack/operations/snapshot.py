"""`env snapshot`: what an environment's cluster serves and has room for, kept in the app."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from mlstack.app import layout
from mlstack.app.snapshot import ClusterSnapshot, is_kept_label, read_snapshot
from mlstack.clock import Clock, timestamp
from mlstack.dataclass import dataclass
from mlstack.deploy import capacity
from mlstack.deploy import target as guard
from mlstack.deploy.target import Target
from mlstack.errors import ForbiddenError, ObjectNotFoundError
from mlstack.kube.client import Cluster, Opener
from mlstack.objects.resources import is_gpu
from mlstack.readiness.placement import NodeRoom, repelling

_UNINTERESTING = "attachable-volumes-"


@dataclass(frozen=True, kw_only=True)
class SnapshotTaken:
    """A snapshot of an environment's cluster."""

    ok: bool = True  # with `--check`: whether the file says what the cluster is now
    environment: str
    file: str  # below the app directory
    version: str  # of the API server
    kinds: int  # that it serves
    definitions: int  # CustomResourceDefinitions among them
    nodes: int  # how many nodes it has
    gpus: int  # of all nodes
    quotas: int  # in the environment's namespace
    changed: bool  # whether the file says something else now, or would
    notes: tuple[str, ...] = ()  # what could not be seen


def take_snapshot(target: Target, *, opener: Opener, clock: Clock, check: bool = False) -> SnapshotTaken:
    """Ask the cluster of an environment what it can do, and keep that in the app (not with `check`).

    Raises:
        ClusterError: it cannot be asked or is another one.
    """
    place = target.place()
    cluster = opener(place.context)
    guard.check_cluster(place, cluster)
    notes: list[str] = []
    live = capacity.read(cluster, namespaces=[place.namespace])
    notes += [f"{note}: the snapshot has none" for note in live.notes]
    nodes = live.nodes or ()
    snapshot = ClusterSnapshot(
        taken=timestamp(clock.now_s()),
        version=cluster.version(),
        apis=_apis(cluster),
        definitions=tuple(_definitions(cluster, notes)),
        nodes=tuple(_shapes(nodes)),
        quotas=tuple(_quotas(_list(cluster, "ResourceQuota", place.namespace, []))),
        limits=tuple(
            {"name": item["metadata"]["name"], "limits": (item.get("spec") or {}).get("limits") or []}
            for item in _list(cluster, "LimitRange", place.namespace, notes)
        ),
        room=None if live.pods is None else _room(live, place.namespace),
    )
    app = target.app
    file = f"{layout.ENVIRONMENTS}/{target.environment}/{layout.SNAPSHOT}"
    known = read_snapshot(app, target.environment) if app.files.bytes(file) is not None else None
    changed = known is None or _content(known) != _content(snapshot)
    if not check and (known is None or replace(known, taken="") != replace(snapshot, taken="")):
        with app.locked():
            app.write({file: snapshot.text()})
    return SnapshotTaken(
        ok=not (check and changed),
        environment=target.environment,
        file=file,
        version=snapshot.version,
        kinds=sum(map(len, snapshot.apis.values())),
        definitions=len(snapshot.definitions),
        nodes=sum(node["count"] for node in snapshot.nodes),
        gpus=sum(_gpus(node) for node in snapshot.nodes),
        quotas=len(snapshot.quotas),
        changed=changed,
        notes=tuple(notes),
    )


def _content(snapshot: ClusterSnapshot) -> Any:
    return json.loads(replace(snapshot, taken="", room=None).text())


def _apis(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    served: dict[str, set[str]] = defaultdict(set)
    for kind in cluster.kinds():
        served[kind.api_version].add(kind.kind)
    return {version: tuple(sorted(kinds)) for version, kinds in sorted(served.items())}


def _list(
    cluster: Cluster, kind: str, namespace: str | None, notes: list[str], version: str = "v1"
) -> Iterable[Mapping[str, Any]]:
    try:
        return cluster.list(version, kind, namespace=namespace).items
    except ForbiddenError:
        notes.append(f"no right to list {kind}: the snapshot has none")
    except ObjectNotFoundError:
        pass
    return ()


def _definitions(cluster: Cluster, notes: list[str]) -> Iterable[dict[str, Any]]:
    version, kind = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
    items = _list(cluster, kind, None, notes, version)
    for item in sorted(items, key=lambda item: str(item["metadata"]["name"])):
        spec = {key: value for key, value in (item.get("spec") or {}).items() if key != "conversion"}
        yield {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": item["metadata"]["name"]},
            "spec": spec,
        }


def _shapes(nodes: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    """Count nodes that are alike; names and addresses are nobody's business."""
    counts = Counter(map(_shape, nodes))
    return [{"count": count, **json.loads(shape)} for shape, count in sorted(counts.items())]


def _shape(node: Mapping[str, Any]) -> str:
    status, labels = node.get("status") or {}, node["metadata"].get("labels") or {}
    allocatable = {
        name: str(amount)
        for name, amount in sorted((status.get("allocatable") or {}).items())
        if not name.startswith(_UNINTERESTING)
    }
    taints = sorted(
        f"{taint.get('key')}={taint.get('value') or ''}:{taint.get('effect')}"
        for taint in (node.get("spec") or {}).get("taints") or ()
        if not str(taint.get("key")).startswith("node.kubernetes.io/")
    )
    kept = {name: labels[name] for name in sorted(labels) if is_kept_label(name)}
    return json.dumps({"allocatable": allocatable, "labels": kept, "taints": taints}, sort_keys=True)


def _room(live: capacity.Occupancy, namespace: str) -> dict[str, Any]:
    """Write down what pods leave of the nodes that take pods, and what else decides whether more fit."""
    shapes = sorted(set(map(_shape, live.nodes or ())))
    rooms = capacity.node_rooms(live)
    counts: Counter[str] = Counter()
    for node, room in zip(live.nodes or (), rooms, strict=True):
        if room.is_ready and not any(
            str(row.get("key")).startswith("node.kubernetes.io/") for row in room.place.taints
        ):
            counts[json.dumps([shapes.index(_shape(node)), _free(room)], sort_keys=True)] += 1
    rows = [(*json.loads(text), count) for text, count in sorted(counts.items())]
    terms = {
        json.dumps([pod["metadata"]["namespace"], term], sort_keys=True)
        for pod in live.pods or ()
        for term in repelling(pod["spec"])
    }
    return {
        "nodes": [{"shape": shape, "count": count, "free": free} for shape, free, count in rows],
        "waiting": sum(pods.count for pods in capacity.waiting(live)),
        "repelling": [json.loads(term) for term in sorted(terms)],
        "used": {
            quota.key.rpartition("/")[2]: dict(quota.used) for quota in live.quotas.get(namespace) or ()
        },
        "pools": [
            {
                "name": pool.name,
                "more": pool.more,
                "free": pool.node and _free(pool.node),
                "labels": pool.node and {n: v for n, v in pool.node.place.labels.items() if is_kept_label(n)},
                "taints": pool.node and list(pool.node.place.taints),
            }
            for pool in capacity.pools(live, rooms)
        ],
    }


def _free(room: NodeRoom) -> dict[str, int]:
    return {name: value for name, value in sorted(room.free.items()) if not name.startswith(_UNINTERESTING)}


def _quotas(items: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    for item in sorted(items, key=lambda item: str(item["metadata"]["name"])):
        spec = item.get("spec") or {}
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue  # it counts only some pods, and nobody knows which before they run
        hard = spec.get("hard") or {}
        yield {"name": item["metadata"]["name"], "hard": {name: str(hard[name]) for name in sorted(hard)}}


def _gpus(node: Mapping[str, Any]) -> int:
    amounts = (amount for name, amount in node["allocatable"].items() if is_gpu(name))
    return int(node["count"]) * sum(int(amount) for amount in amounts if str(amount).isdecimal())
