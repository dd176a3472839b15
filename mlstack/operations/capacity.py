"""What an environment takes of a cluster, and what has room: footprint, snapshots, what fits in one."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mlstack.app import layout
from mlstack.app.environment import ClusterSnapshot, Prices, is_kept_label, reading_snapshot
from mlstack.app.reader import AppReader
from mlstack.clock import Clock, timestamp
from mlstack.dataclass import Record
from mlstack.deploy import capacity
from mlstack.deploy import target as guard
from mlstack.deploy.target import Target
from mlstack.errors import ForbiddenError, ObjectNotFoundError
from mlstack.kube.client import Cluster, Opener
from mlstack.objects.kube_object import DesiredState
from mlstack.objects.resources import Amounts, NodePlace, amounts, is_gpu, required_affinity
from mlstack.readiness.capacity import NO_ROOM, Fit, NodePool, fits, footprint
from mlstack.readiness.placement import HOST, NodeRoom, PodSet, anti_terms, matches, spread
from mlstack.render import render

if TYPE_CHECKING:
    from mlstack.app.components import Overrides

# --- footprint: what an environment takes, component by component, and what that costs ---


_HOURS = 730  # of a month, as cloud providers count


class ComponentFootprint(Record):
    """What a component's objects take, by amount.

    Amounts are `pods`, `requests.cpu` (thousandths of a core), `requests.memory` (bytes) and so on by
    resource, the same of `limits`, `gpus.PRODUCT`, `storage.CLASS` (bytes; the cluster's own class has no
    name) and `loadbalancers`.
    """

    component: str  # full name; empty for all together
    takes: Amounts  # by amount
    monthly_cost: float | None = None  # in the currency of the prices; None without prices


class FootprintResult(Record):
    """What an environment takes of a cluster."""

    environment: str
    components: tuple[ComponentFootprint, ...]  # by name
    total: ComponentFootprint  # of all components together
    least: ComponentFootprint  # where controllers scale pods by themselves: the least
    most: ComponentFootprint  # and the most
    per_node: Amounts  # what comes on top for each node of the cluster
    currency: str = ""  # of the prices
    uncounted: tuple[str, ...] = ()  # objects that make pods which nobody can count beforehand
    notes: tuple[str, ...] = ()


def footprint_of(
    app: AppReader, environment: str, *, components: Sequence[str] = (), overrides: Overrides | None = None
) -> FootprintResult:
    """Add up what an environment takes; arguments as of `render.load`."""
    prices = app.prices(environment)
    state = render.load(app, environment, components=components, overrides=overrides, stand_ins=True)
    names = sorted({obj.component for obj in state.objects})
    amounts = {name: footprint([obj for obj in state.objects if obj.component == name]).now for name in names}
    # An autoscaler may stand in another component than what it scales: the sum is of all objects together.
    whole = footprint(state.objects)
    unknown = [name for name in sorted(whole.now) if prices and _price(name, prices) is None]
    notes = [f"no price for {', '.join(unknown)}"] if unknown else []
    return FootprintResult(
        environment=environment,
        components=tuple(_priced(name, takes, prices) for name, takes in amounts.items() if takes),
        total=_priced("", whole.now, prices),
        least=_priced("", whole.least, prices),
        most=_priced("", whole.most, prices),
        per_node=whole.per_node,
        currency=prices.currency if prices else "",
        uncounted=whole.uncounted,
        notes=(*state.notes, *notes),
    )


def _priced(component: str, takes: Amounts, prices: Prices | None) -> ComponentFootprint:
    costs = [(_price(name, prices) or 0) * value for name, value in takes.items()] if prices else []
    cost = round(sum(costs), 2) if prices else None
    return ComponentFootprint(component=component, takes=takes, monthly_cost=cost)


def _price(name: str, prices: Prices) -> float | None:
    """Give what one unit of an amount costs a month, None if the prices do not say."""
    kind, _, rest = name.partition(".")
    unit = {"cpu": 1 / 1000, "memory": 1 / 2**30, "ephemeral-storage": 1 / 2**30}.get(rest, 1)
    match kind:
        case "requests" if is_gpu(rest):
            return 0  # by product
        case "requests":
            price = prices.requests.get(rest)
            return None if price is None else price * unit * _HOURS
        case "gpus":
            price = prices.gpus.get(rest, prices.gpus.get("*"))
            return None if price is None else price * _HOURS
        case "storage":
            price = prices.storage.get(rest, prices.storage.get("*"))
            return None if price is None else price / 2**30
        case "loadbalancers":
            return prices.load_balancers
    return 0


# --- snapshots: what a cluster serves and has room for, kept in the app ---

_VOLUME_SLOTS = "attachable-volumes-"  # resources of nodes that no pod asks for


class SnapshotTaken(Record):
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
    """Ask the cluster of an environment what it can do, and keep that in the app (not with `check`)."""
    app, place = target.app, target.place()
    cluster = opener(place.context)
    guard.check_cluster(place, cluster)
    snapshot, notes = _snapshot_of(cluster, place.namespace, taken=timestamp(clock.now_s()))
    file = f"{layout.ENVIRONMENTS}/{target.environment}/{layout.SNAPSHOT}"
    stored = app.snapshot(target.environment) if app.files.bytes(file) is not None else None
    changed = stored is None or _content(stored) != _content(snapshot)
    if not check and (stored is None or replace(stored, taken="") != replace(snapshot, taken="")):
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
        gpus=sum(
            int(node["count"]) * int(amount)
            for node in snapshot.nodes
            for name, amount in node["allocatable"].items()
            if is_gpu(name) and str(amount).isdecimal()
        ),
        quotas=len(snapshot.quotas),
        changed=changed,
        notes=tuple(notes),
    )


@capacity.judging()
def _snapshot_of(cluster: Cluster, namespace: str, *, taken: str) -> tuple[ClusterSnapshot, list[str]]:
    """Ask a cluster what it serves and has room for; gives that, and what could not be seen."""
    live = capacity.read(cluster, namespaces=[namespace])
    notes = [f"{note}: the snapshot has none" for note in live.notes]
    shapes = Counter(map(_shape, live.nodes or ()))
    served: dict[str, set[str]] = defaultdict(set)
    for kind in cluster.kinds():
        served[kind.api_version].add(kind.kind)
    snapshot = ClusterSnapshot(
        taken=taken,
        version=cluster.version(),
        apis={version: tuple(sorted(kinds)) for version, kinds in sorted(served.items())},
        definitions=tuple(_definitions(cluster, notes)),
        # Nodes that are alike are counted; their names and addresses are nobody's business.
        nodes=tuple({"count": count, **json.loads(shape)} for shape, count in sorted(shapes.items())),
        quotas=tuple(_quotas(_list(cluster, "ResourceQuota", namespace, []))),
        limits=tuple(
            {"name": item["metadata"]["name"], "limits": (item.get("spec") or {}).get("limits") or []}
            for item in _list(cluster, "LimitRange", namespace, notes)
        ),
        room=None if live.pods is None else _room(live, namespace),
    )
    return snapshot, notes


def _content(snapshot: ClusterSnapshot) -> Any:
    return json.loads(replace(snapshot, taken="", room=None).text())


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
        metadata = {"name": item["metadata"]["name"]}
        yield {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _shape(node: Mapping[str, Any]) -> str:
    status, labels = node.get("status") or {}, node["metadata"].get("labels") or {}
    allocatable = {
        name: str(amount)
        for name, amount in sorted((status.get("allocatable") or {}).items())
        if not name.startswith(_VOLUME_SLOTS)
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
        keys = [str(taint.get("key")) for taint in room.place.taints]
        if room.is_ready and not any(key.startswith("node.kubernetes.io/") for key in keys):
            counts[json.dumps([shapes.index(_shape(node)), _free(room)], sort_keys=True)] += 1
    rows = [(*json.loads(text), count) for text, count in sorted(counts.items())]
    terms = {
        json.dumps([pod["metadata"]["namespace"], term], sort_keys=True)
        for pod in live.pods or ()
        for term in anti_terms(pod["spec"])
    }
    return {
        "nodes": [{"shape": shape, "count": count, "free": free} for shape, free, count in rows],
        "waiting": sum(pods.count for pods in capacity.waiting(live)),
        "repelling": [json.loads(term) for term in sorted(terms)],
        "used": {q.name: dict(q.used) for q in live.quotas.get(namespace) or ()},
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
    return {name: value for name, value in sorted(room.free.items()) if not name.startswith(_VOLUME_SLOTS)}


def _quotas(items: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    for item in sorted(items, key=lambda item: str(item["metadata"]["name"])):
        spec = item.get("spec") or {}
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue  # it counts only some pods, and nobody knows which before they run
        hard = spec.get("hard") or {}
        yield {"name": item["metadata"]["name"], "hard": {name: str(hard[name]) for name in sorted(hard)}}


# --- what fits in a snapshot ---


class FitsResult(Record):
    """Whether the cluster of a snapshot has room for an environment that is not deployed yet."""

    ok: bool  # false if something is known to find no room
    environment: str
    taken: str  # when the snapshot was taken
    nodes: int  # how many nodes took pods then
    workloads: tuple[Fit, ...]  # one an object that makes pods
    notes: tuple[str, ...] = ()


def fits_snapshot(
    app: AppReader,
    environment: str,
    snapshot: ClusterSnapshot,
    *,
    components: Sequence[str] = (),
    overrides: Overrides | None = None,
) -> FitsResult:
    """Judge whether a cluster had room for all that an environment brings; other arguments as above."""
    state = render.load(app, environment, components=components, overrides=overrides, stand_ins=True)
    with reading_snapshot(environment):
        return _fits(state, snapshot)


def _fits(state: DesiredState, snapshot: ClusterSnapshot) -> FitsResult:
    nodes, pools = _nodes(snapshot), _pools(snapshot)
    new_pods, unclear = capacity.new_pods(state.objects)
    limits = capacity.limits_beside(snapshot, state.objects, state.namespace)
    limited = capacity.limited(new_pods, limits)
    pod_sets = [_with_doubts(spread(pods, nodes), snapshot) for pods in limited]
    pod_sets = capacity.within_quotas(pod_sets, limits)
    rows = (*fits(pod_sets, nodes, pools=pools), *unclear)
    return FitsResult(
        ok=not any(row.verdict in NO_ROOM for row in rows),
        environment=state.environment,
        taken=snapshot.taken,
        nodes=sum(node.is_ready for node in nodes),
        workloads=rows,
        notes=(*state.notes, "what webhooks add to pods is not counted"),
    )


def _nodes(snapshot: ClusterSnapshot) -> list[NodeRoom]:
    """Give the nodes of a snapshot: those that took pods, and of others their shape."""
    rows: list[tuple[int, Amounts | None]] = []
    for alike in (snapshot.room or {}).get("nodes", ()):
        rows += [(alike["shape"], alike["free"])] * alike["count"]
    for shape, node in enumerate(snapshot.nodes):
        rows += [(shape, None)] * (int(node["count"]) - sum(row[0] == shape for row in rows))
    is_known = snapshot.room is not None
    return [
        _node(f"{at}", snapshot.nodes[shape], free, is_ready=free is not None or not is_known)
        for at, (shape, free) in enumerate(rows)
    ]


def _node(name: str, shape: Mapping[str, Any], free: Amounts | None, *, is_ready: bool) -> NodeRoom:
    taints = []
    for text in shape["taints"]:
        (key, _, rest), (_, _, effect) = text.partition("="), text.rpartition(":")
        if effect != "PreferNoSchedule":
            taints.append({"key": key, "value": rest.rpartition(":")[0], "effect": effect})
    place = NodePlace(name, {**shape["labels"], HOST: name}, tuple(taints))
    whole = amounts(shape["allocatable"])
    return NodeRoom(place=place, allocatable=whole, free=whole if free is None else free, is_ready=is_ready)


def _pools(snapshot: ClusterSnapshot) -> list[NodePool]:
    pools = []
    for pool in (snapshot.room or {}).get("pools", ()):
        place = NodePlace(pool["name"], pool["labels"] or {}, tuple(pool["taints"] or ()))
        node = NodeRoom(place=place, allocatable=pool["free"], free=pool["free"]) if pool["free"] else None
        pools.append(NodePool(name=pool["name"], node=node, more=pool["more"]))
    return pools


def _with_doubts(pods: PodSet, snapshot: ClusterSnapshot) -> PodSet:
    """Give pods with what a snapshot cannot tell of them."""
    room, doubts, placed_by = snapshot.room or {}, list(pods.doubts), pods.placed_by
    if snapshot.room is None:
        doubts.append("the snapshot does not say what runs")
    if room.get("waiting"):
        doubts.append(f"{room['waiting']} pods waited for a place already")
    if pods.spec.get("runtimeClassName"):
        doubts.append("its runtime class may add to what it asks for")
    if any(matches(term, space, pods.labels, pods.namespace) for space, term in room.get("repelling", ())):
        doubts.append("other pods may keep it away (pod anti-affinity)")
    if anti_terms(pods.spec) or pods.spreading:
        doubts.append("the snapshot does not say which pods run where (anti-affinity, topology spread)")
    required = (required_affinity(pods.spec) or {}).get("nodeSelectorTerms") or ()
    rows = [row for term in required for row in term.get("matchExpressions") or ()]
    keys = [*(pods.spec.get("nodeSelector") or {}), *(str(row.get("key")) for row in rows)]
    unkept = [key for key in keys if not is_kept_label(key)]
    unkept += ["metadata.name" for term in required if term.get("matchFields")]
    if unkept:
        placed_by = f"it asks for nodes by {unkept[0]}, which the snapshot does not hold"
    return replace(pods, doubts=tuple(doubts), placed_by=placed_by)
