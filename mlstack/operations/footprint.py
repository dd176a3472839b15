"""`footprint`: what an environment takes of a cluster, component by component, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mlstack.app.environment import Prices
from mlstack.app.params import Overrides
from mlstack.app.reader import AppReader
from mlstack.app.snapshot import ClusterSnapshot, is_kept_label
from mlstack.dataclass import dataclass
from mlstack.errors import SchemaError
from mlstack.objects.kube_object import DesiredState, KubeObject
from mlstack.objects.resources import Amounts, NodePlace, amounts, is_gpu, parse_quota, required_affinity
from mlstack.readiness.assess import ODD
from mlstack.readiness.capacity import Fit, NodePool
from mlstack.readiness.footprint import footprint
from mlstack.readiness.placement import HOST, NodeRoom, PodSet, repelling, repels, spread
from mlstack.render import render
from mlstack.render.template import CodeStore

_NO_OVERRIDES = Overrides()
_HOURS = 730  # of a month, as cloud providers count


@dataclass(frozen=True, kw_only=True)
class ComponentFootprint:
    """What a component's objects take, by amount.

    Amounts are `pods`, `requests.cpu` (thousandths of a core), `requests.memory` (bytes) and so on by
    resource, the same of `limits`, `gpus.PRODUCT`, `storage.CLASS` (bytes; the cluster's own class has no
    name) and `loadbalancers`.
    """

    component: str  # full name; empty for all together
    takes: Amounts  # by amount
    monthly_cost: float | None = None  # in the currency of the prices; None without prices


@dataclass(frozen=True, kw_only=True)
class FootprintResult:
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
    app: AppReader,
    environment: str,
    *,
    components: Sequence[str] = (),
    overrides: Overrides = _NO_OVERRIDES,
    store: CodeStore | None = None,
) -> FootprintResult:
    """Add up what an environment takes; arguments as of `render.load`.

    Raises:
        ConfigError: a file, parameter or template is wrong.
    """
    prices = app.prices(environment)
    state = render.load(
        app, environment, components=components, overrides=overrides, store=store, stand_ins=True
    )
    by_component: dict[str, list[KubeObject]] = {}
    for obj in state.objects:
        by_component.setdefault(obj.component, []).append(obj)
    # An autoscaler may stand in another component than what it scales: the sum is of all objects together.
    whole = footprint(state.objects)
    amounts = {name: footprint(by_component[name]).now for name in sorted(by_component)}
    unknown = [name for name in sorted(whole.now) if prices and _price(name, prices) is None]
    notes = [f"no price for {', '.join(unknown)}"] if unknown else []
    return FootprintResult(
        environment=environment,
        components=tuple(_row(name, takes, prices) for name, takes in amounts.items() if takes),
        total=_row("", whole.now, prices),
        least=_row("", whole.least, prices),
        most=_row("", whole.most, prices),
        per_node=whole.per_node,
        currency=prices.currency if prices else "",
        uncounted=whole.uncounted,
        notes=(*state.notes, *notes),
    )


@dataclass(frozen=True, kw_only=True)
class FitsResult:
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
    overrides: Overrides = _NO_OVERRIDES,
    store: CodeStore | None = None,
) -> FitsResult:
    """Judge whether a cluster had room for all that an environment brings; other arguments as above.

    Raises:
        ConfigError: a file, parameter or template is wrong, or the snapshot.
    """
    state = render.load(
        app, environment, components=components, overrides=overrides, store=store, stand_ins=True
    )
    try:
        return _judged(state, snapshot)
    except ODD as error:
        hint = f"take it anew: mlstack env snapshot {environment}"
        raise SchemaError("the snapshot of the cluster holds odd values", hint=hint) from error


def _judged(state: DesiredState, snapshot: ClusterSnapshot) -> FitsResult:
    from mlstack.deploy import capacity
    from mlstack.readiness.capacity import NO_ROOM, fits

    nodes, pools = _nodes(snapshot), _pools(snapshot)
    made, unclear = capacity.new_pods(state.objects)
    ranges = [
        {"metadata": {"namespace": state.namespace, "name": row["name"]}, "spec": {"limits": row["limits"]}}
        for row in snapshot.limits
    ]
    made = capacity.limited(made, state.objects, ranges)
    wanted = [_doubted(spread(pods, nodes), snapshot) for pods in made]
    used = (snapshot.room or {}).get("used") or {}
    quotas = [
        parse_quota(
            {
                "metadata": {"namespace": state.namespace, "name": quota["name"]},
                "spec": {"hard": quota["hard"]},
            }
        )
        for quota in snapshot.quotas
    ]
    quotas = [replace(quota, used=used.get(quota.key.rpartition("/")[2], {})) for quota in quotas]
    wanted = capacity.within_quotas(wanted, {state.namespace: quotas}, state.objects)
    rows = (*fits(wanted, nodes, pools=pools), *unclear)
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
    rows: list[tuple[int, Amounts | None]] = [
        (row["shape"], row["free"])
        for row in (snapshot.room or {}).get("nodes", ())
        for _ in range(row["count"])
    ]
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
        key, _, rest = text.partition("=")
        value, _, effect = rest.rpartition(":")
        taints += [{"key": key, "value": value, "effect": effect}] if effect != "PreferNoSchedule" else []
    place = NodePlace(name, {**shape["labels"], HOST: name}, tuple(taints))
    whole = amounts(shape["allocatable"])
    return NodeRoom(place=place, allocatable=whole, free=whole if free is None else free, is_ready=is_ready)


def _pools(snapshot: ClusterSnapshot) -> list[NodePool]:
    pools = []
    for row in (snapshot.room or {}).get("pools", ()):
        place = NodePlace(row["name"], row["labels"] or {}, tuple(row["taints"] or ()))
        node = NodeRoom(place=place, allocatable=row["free"], free=row["free"]) if row["free"] else None
        pools.append(NodePool(name=row["name"], node=node, more=row["more"]))
    return pools


def _doubted(pods: PodSet, snapshot: ClusterSnapshot) -> PodSet:
    """Give pods with what a snapshot cannot tell of them."""
    room, doubts, placed_by = snapshot.room or {}, list(pods.doubts), pods.placed_by
    if snapshot.room is None:
        doubts.append("the snapshot does not say what runs")
    if room.get("waiting"):
        doubts.append(f"{room['waiting']} pods waited for a place already")
    if pods.spec.get("runtimeClassName"):
        doubts.append("its runtime class may add to what it asks for")
    if any(repels(term, space, pods.labels, pods.namespace) for space, term in room.get("repelling", ())):
        doubts.append("other pods may keep it away (pod anti-affinity)")
    if repelling(pods.spec) or pods.spreading:
        doubts.append("the snapshot does not say which pods run where (anti-affinity, topology spread)")
    required = (required_affinity(pods.spec) or {}).get("nodeSelectorTerms") or ()
    keys = [*(pods.spec.get("nodeSelector") or {})]
    keys += [str(row.get("key")) for term in required for row in term.get("matchExpressions") or ()]
    unkept = [key for key in keys if not is_kept_label(key)]
    unkept += ["metadata.name" for term in required if term.get("matchFields")]
    if unkept:
        placed_by = f"it asks for nodes by {unkept[0]}, which the snapshot does not hold"
    return replace(pods, doubts=tuple(doubts), placed_by=placed_by)


def _row(component: str, takes: Amounts, prices: Prices | None) -> ComponentFootprint:
    cost = sum((_price(name, prices) or 0) * value for name, value in takes.items()) if prices else None
    return ComponentFootprint(
        component=component, takes=takes, monthly_cost=None if cost is None else round(cost, 2)
    )


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
