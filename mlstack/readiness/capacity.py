"""Whether a cluster has room for pods: what can be said for certain before kube-scheduler has tried.

The scheduler places one pod after the other, in an order and by scores that nobody foresees, and moves none
again: pods that could all be placed side by side may be placed so that the last finds no node. So "fits now"
is said of a pod only if the others cannot take its place *wherever* they go.

Let `p` be the pod, `N` the nodes that it may go to and has room on while all others are away, and `Q` the
others: what else comes with it, and every pod that waits in the cluster already. A node `n` is lost to `p`
once the pods of `Q` on it ask for more of some resource `r` than is left beside `p`: for `b(n, r)` or more.
The weight `w(q, n)` of a pod is the largest part of a `b(n, r)` that it asks for, 0 where it may not go: on a
lost node weights add up to 1 or more. Give nodes any values `y(n) >= 0`: to lose all of `N`, pods have to
bring `sum over n of y(n)`, and as a pod is on one node alone, they bring at most `sum over q of max over n of
y(n) * w(q, n)`. Where that is less, some node is left for `p`, in every order. Any choice of `y` proves it,
so some are tried. Requests of `Q` add up to multiples of what divides them all, so `b` is rounded up to one;
of pods that are all alike the bound is then exact: the scheduler places as many as there is room for.

- Pods that a rolling update replaces count as gone from their nodes, and as many as may run at once of old
  and new ones as `Q`, with the larger requests of both, on the nodes of either.
- Pods of a DaemonSet that comes are on every node that they may go to, for the others.
- A pod of higher priority that finds no place may displace others: what fits beside it only may fit.
- "never" looks at empty nodes, "does not fit now" at the most that could be placed of the workload alone.
- What decides about places and is not looked at (`unknown`) makes the answer "not known".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Any, Literal

from mlstack.objects.nodes import NodePlace, is_selected, untolerated
from mlstack.objects.resources import Amounts, amounts, is_host_port, requests, written

Verdict = Literal[
    "fits now",
    "fits after autoscaling",
    "may fit",
    "not known",
    "does not fit now",
    "blocked by quota",
    "never",
]
ORDER: tuple[Verdict, ...] = (
    "fits now",
    "fits after autoscaling",
    "may fit",
    "not known",
    "does not fit now",
    "blocked by quota",
    "never",
)
"""From the best to the worst: a workload is as its worst pods are."""
NO_ROOM: frozenset[Verdict] = frozenset({"does not fit now", "blocked by quota", "never"})
"""What is known to be refused or to wait."""

_OF_CONDITIONS = "node.kubernetes.io/"  # taints that come and go with the state of a node
_LOCAL_VOLUMES = frozenset(
    {"configMap", "downwardAPI", "emptyDir", "hostPath", "image", "nfs", "projected", "secret"}
)
# What the DaemonSet controller gives its pods (pkg/controller/daemon/util).
_DAEMON_TOLERATIONS = tuple(
    {"key": f"{_OF_CONDITIONS}{name}", "operator": "Exists"}
    for name in (
        "not-ready",
        "unreachable",
        "disk-pressure",
        "memory-pressure",
        "pid-pressure",
        "unschedulable",
    )
)


@dataclass(frozen=True, kw_only=True)
class NodeRoom:
    """A node, and what the pods on it leave."""

    place: NodePlace
    allocatable: Amounts
    free: Amounts  # of what it does not name it has one of each port, and nothing else
    is_ready: bool = True


@dataclass(frozen=True, kw_only=True)
class PodSet:
    """Pods that are alike and look for a place."""

    object: str  # the object that brings them, as people name it
    component: str = ""
    role: str = ""  # among the pods of the object
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any]
    count: int  # how many there are at once at the most, those that they replace included
    new: int  # how many are made
    is_per_node: bool = False
    asked: Amounts  # what one requests
    replaced: Amounts = field(default_factory=dict)  # the most that one of those requests that they replace
    also_on: frozenset[str] = frozenset()  # nodes of the pods that they replace
    placed_by: str = ""  # what else than the scheduler decides about their place
    doubts: tuple[str, ...] = ()  # why it is not known whether they fit
    blocked: str = ""  # what refuses them before any node is looked for

    @property
    def takes(self) -> dict[str, int]:
        """Give the most that one takes of a node, be it an old one or a new one."""
        return larger(self.asked, self.replaced)

    @property
    def priority(self) -> tuple[str, int | None]:
        """Give the name and the value of its priority, as far as it is known."""
        return str(self.spec.get("priorityClassName") or ""), self.spec.get("priority")


@dataclass(frozen=True, kw_only=True)
class NodePool:
    """Nodes that an autoscaler may add."""

    name: str
    node: NodeRoom | None  # what one is like, as far as anything tells
    more: int  # how many may be added


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Whether there is room for the pods of one object."""

    object: str  # as people name it
    component: str  # full name of the component that brings it
    pods: int  # how many it makes
    verdict: Verdict  # how they stand; only `never`, `blocked by quota` and `does not fit now` are a no
    reason: str = ""  # what limits it, in the words of kube-scheduler as far as it has some


def fits(
    wanted: Sequence[PodSet],
    nodes: Sequence[NodeRoom],
    *,
    waiting: Sequence[PodSet] = (),
    pools: Sequence[NodePool] = (),
) -> tuple[Fit, ...]:
    """Judge the pods of every object, all of them together and beside those that wait already.

    `nodes` are without the pods that are replaced. The argument stands at the top of this module.
    """
    rivals = [*wanted, *waiting]
    beside = [_beside_daemons(node, wanted) for node in nodes]
    verdicts = [_verdict(pods, rivals, beside, pools) for pods in rivals]
    rows: dict[str, list[tuple[PodSet, Verdict, str]]] = {}
    for pods, (verdict, reason) in zip(wanted, verdicts, strict=False):
        if verdict in ("fits now", "fits after autoscaling"):
            displacing = next(
                (
                    rival
                    for rival, (other, _) in zip(rivals, verdicts, strict=True)
                    if other != "fits now" and _may_displace(rival, pods)
                ),
                None,
            )
            if displacing is not None:
                verdict = "may fit"
                reason = f"{_name(displacing)} has a higher priority, and may displace its pods"
        rows.setdefault(pods.object, []).append((pods, verdict, reason))
    return tuple(_row(parts) for parts in rows.values())


def _row(parts: Sequence[tuple[PodSet, Verdict, str]]) -> Fit:
    first, verdict, _ = max(parts, key=lambda part: ORDER.index(part[1]))
    reasons = [
        f"{pods.role}: {reason}" if pods.role and len(parts) > 1 else reason
        for pods, other, reason in parts
        if other == verdict and reason
    ]
    return Fit(
        object=first.object,
        component=first.component,
        pods=sum(pods.new for pods, *_ in parts),
        verdict=verdict,
        reason="; ".join(dict.fromkeys(reasons)),
    )


def _verdict(
    pods: PodSet, rivals: Sequence[PodSet], nodes: Sequence[NodeRoom], pools: Sequence[NodePool]
) -> tuple[Verdict, str]:
    if pods.blocked:
        return "blocked by quota", pods.blocked
    if pods.placed_by:
        return "not known", pods.placed_by
    if not nodes:
        return "not known", "; ".join(pods.doubts) or "the cluster has no nodes"
    if pods.is_per_node:
        return _verdict_per_node(pods, rivals, nodes)
    grown = [pool for pool in pools if pool.more > 0]
    unseen = ", ".join(pool.name for pool in grown if pool.node is None)
    unseen = (
        f"an autoscaler may add nodes of {unseen}, and nothing tells what they are like" if unseen else ""
    )
    if not any(_could_hold(pods, node) for node in nodes):
        text = _ruled_out(pods, [_empty(node) for node in nodes], "has")
        return ("not known", f"{text}; {unseen}") if unseen else ("never", text)
    is_short = _room(pods, nodes) < pods.count
    if not (is_short or pods.doubts) and _always_fits(pods, rivals, nodes):
        return "fits now", ""
    more = min(sum(rival.count for rival in rivals), 1000)
    added = [pool.node for pool in grown for _ in range(min(pool.more, more)) if pool.node is not None]
    growth = "an autoscaler may add " + ", ".join(f"{pool.more} nodes to {pool.name}" for pool in grown)
    text = f"{_ruled_out(pods, nodes)}; {growth}" if is_short and added else growth
    if added and not pods.doubts and _always_fits(pods, rivals, [*nodes, *added]):
        return "fits after autoscaling", text
    if is_short and not unseen and _room(pods, [*nodes, *added]) < pods.count:
        return _without_room(pods, _ruled_out(pods, nodes))
    if pods.doubts or (is_short and unseen):
        return "not known", "; ".join((*pods.doubts, *([unseen] if is_short and unseen else ())))
    return (
        "may fit",
        text if is_short else "there is room, but not in every order in which pods may be placed",
    )


def _without_room(pods: PodSet, text: str) -> tuple[Verdict, str]:
    name, value = pods.priority
    if (name or (value or 0) > 0) and pods.spec.get("preemptionPolicy") != "Never":
        return "not known", f"{text}; its priority may displace other pods"
    return "does not fit now", text


def _verdict_per_node(
    pods: PodSet, rivals: Sequence[PodSet], nodes: Sequence[NodeRoom]
) -> tuple[Verdict, str]:
    """Judge pods of which every node that they may go to gets one."""
    eligible = [node for node in nodes if _is_eligible(pods, node)]
    full = [node for node in eligible if min(_left(node, name) for name in pods.asked) < 0]
    if full:
        return _without_room(pods, _ruled_out(pods, full))
    if pods.doubts:
        return "not known", "; ".join(pods.doubts)
    # What its own pods take is taken off already; the others may all come to one node.
    others = [rival for rival in rivals if not rival.is_per_node]
    for node in eligible:
        own = replace(
            node, free={**node.free, **{name: _left(node, name) + n for name, n in pods.asked.items()}}
        )
        if not _always_fits(pods, others, [own], own=False):
            return "may fit", f"other pods may fill node {node.place.name} first"
    return "fits now", ""


# --- one pod and one node ---


def spread(pods: PodSet, nodes: Iterable[NodeRoom]) -> PodSet:
    """Give pods of which every node gets one with their number."""
    count = sum(_is_eligible(pods, node) for node in nodes)
    return replace(pods, count=count, new=count) if pods.is_per_node else pods


def parse_node(obj: Mapping[str, Any], taken: Iterable[Amounts]) -> NodeRoom:
    """Read a Node of which the pods on it have taken so much."""
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    taints = [row for row in spec.get("taints") or () if row.get("effect") in ("NoSchedule", "NoExecute")]
    cordon = {"key": f"{_OF_CONDITIONS}unschedulable", "effect": "NoSchedule"}
    if spec.get("unschedulable") and not any(row.get("key") == cordon["key"] for row in taints):
        taints.append(cordon)
    allocatable = amounts(status.get("allocatable") or status.get("capacity"))
    free = dict(allocatable)
    for asked in taken:
        for name, value in asked.items():
            free[name] = free.get(name, int(is_host_port(name))) - value
    conditions = status.get("conditions") or ()
    is_ready = any(row.get("type") == "Ready" and row.get("status") == "True" for row in conditions)
    place = NodePlace(str(metadata["name"]), metadata.get("labels") or {}, tuple(taints))
    is_ready = is_ready and not metadata.get("deletionTimestamp")
    return NodeRoom(place=place, allocatable=allocatable, free=free, is_ready=is_ready)


def placed_by(spec: Mapping[str, Any], devices: Iterable[str] = ()) -> str:
    """Say what places a pod in the scheduler's stead; `devices` are resources that DRA brings."""
    name = spec.get("schedulerName") or "default-scheduler"
    if name != "default-scheduler":
        return f"scheduler {name} places it"
    if spec.get("nodeName"):
        return "it names its node"
    if spec.get("resourceClaims") or set(devices) & requests(spec).keys():
        return "devices are allocated to it (DRA)"
    return ""


def unknown(spec: Mapping[str, Any], labels: Mapping[str, Any]) -> Iterator[str]:
    """Say what of a pod the scheduler asks besides that is not looked at here."""
    if spec.get("schedulingGates"):
        yield "it has scheduling gates"
    if any(
        row.get("whenUnsatisfiable") != "ScheduleAnyway"
        for row in spec.get("topologySpreadConstraints") or ()
    ):
        yield "it has topology spread constraints"
    affinity = spec.get("affinity") or {}
    for kind, words in (("podAffinity", "pod affinity"), ("podAntiAffinity", "pod anti-affinity")):
        if (affinity.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution"):
            yield f"it has required {words}"
    if "kueue.x-k8s.io/queue-name" in labels:
        yield "Kueue decides when it starts"
    for volume in spec.get("volumes") or ():
        kinds = {key for key, value in volume.items() if key != "name" and value is not None} - _LOCAL_VOLUMES
        if kinds:
            claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            what = f"claim {claim}" if claim else f"volume {volume.get('name')}"
            yield f"{what} may be bound to a zone or a node"


def repelling(spec: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Give the terms by which a pod keeps others away from its node or zone."""
    affinity = (spec.get("affinity") or {}).get("podAntiAffinity") or {}
    return tuple(affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ())


def repels(term: Mapping[str, Any], namespace: str, pods: PodSet) -> bool:
    """Tell whether a term of a pod of that namespace may be about these pods."""
    selector = term.get("labelSelector") or {}
    elsewhere = term.get("namespaceSelector") is not None or pods.namespace in (term.get("namespaces") or ())
    wanted = (selector.get("matchLabels") or {}).items()
    return (elsewhere or namespace == pods.namespace) and wanted <= pods.labels.items()


def held(pod: Mapping[str, Any]) -> dict[str, int]:
    """Give what a running pod holds of its node: while it is resized, the larger of old and new."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    now = {
        row.get("name"): row.get("allocatedResources") or (row.get("resources") or {}).get("requests") or {}
        for row in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ()))
    }

    def resized(container: Mapping[str, Any]) -> Mapping[str, Any]:
        resources = container.get("resources") or {}
        return {
            **container,
            "resources": {
                **resources,
                "requests": now.get(container.get("name")) or resources.get("requests"),
            },
        }

    lists = {
        name: [resized(row) for row in spec.get(name) or ()] for name in ("initContainers", "containers")
    }
    return larger(requests(spec), requests({**spec, **lists}))


def larger(one: Amounts, other: Amounts) -> dict[str, int]:
    """Give of each resource the larger amount."""
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def pod_set(
    name: str, spec: Mapping[str, Any], *, count: int, metadata: Mapping[str, Any], **facts: Any
) -> PodSet:
    """Give pods of an object by their specification and metadata, with what is to be known of them."""
    labels = {str(key): str(value) for key, value in (metadata.get("labels") or {}).items()}
    return PodSet(
        object=name,
        spec=spec,
        labels=labels,
        count=count,
        asked={name: value for name, value in requests(spec).items() if value > 0},
        placed_by=placed_by(spec),
        doubts=tuple(unknown(spec, labels)),
        **{"new": count, **facts},
    )


def _tolerating(pods: PodSet) -> Mapping[str, Any]:
    if not pods.is_per_node:
        return pods.spec
    return {**pods.spec, "tolerations": [*(pods.spec.get("tolerations") or ()), *_DAEMON_TOLERATIONS]}


def _is_eligible(pods: PodSet, node: NodeRoom) -> bool:
    spec = _tolerating(pods)
    return is_selected(spec, node.place) and untolerated(spec, node.place) is None


def _could_hold(pods: PodSet, node: NodeRoom) -> bool:
    """Tell whether a node could ever hold one, when it is empty and well."""
    empty = _empty(node)
    return _is_eligible(pods, empty) and _pieces(pods, empty) >= 1


def _empty(node: NodeRoom) -> NodeRoom:
    taints = [taint for taint in node.place.taints if not str(taint.get("key")).startswith(_OF_CONDITIONS)]
    place = replace(node.place, taints=tuple(taints))
    return replace(node, place=place, free=node.allocatable, is_ready=True)


def _beside_daemons(node: NodeRoom, wanted: Iterable[PodSet]) -> NodeRoom:
    """Give a node with the pods on it that every node gets."""
    free = dict(node.free)
    for pods in wanted:
        if pods.is_per_node and (_is_eligible(pods, node) or node.place.name in pods.also_on):
            for name, value in pods.takes.items():
                free[name] = free.get(name, int(is_host_port(name))) - value
    return replace(node, free=free)


def _left(node: NodeRoom, name: str) -> int:
    return node.free.get(name, int(is_host_port(name)))


def _pieces(pods: PodSet, node: NodeRoom) -> int:
    """Give how many fit a node that they may go to, with nothing beside them."""
    return min(_left(node, name) // value for name, value in pods.asked.items())


def _room(pods: PodSet, nodes: Iterable[NodeRoom]) -> int:
    """Give how many there is room for, with nothing beside them."""
    rows = (_pieces(pods, node) for node in nodes if node.is_ready and _is_eligible(pods, node))
    return sum(max(0, pieces) for pieces in rows)


# --- the bound ---


def _always_fits(
    pods: PodSet, rivals: Sequence[PodSet], nodes: Sequence[NodeRoom], *, own: bool = True
) -> bool:
    """Tell whether one of these finds a node wherever all the others go: see the top of this module."""
    open_nodes = [
        node for node in nodes if node.is_ready and _is_eligible(pods, node) and _pieces(pods, node) >= 1
    ]
    others = [
        (rival, rival.count - (rival is pods))
        for rival in rivals
        if not rival.is_per_node and (own or rival is not pods)
    ]
    others = [(rival, count) for rival, count in others if count > 0]
    if not open_nodes:
        return False
    units = {name: gcd(*(rival.takes.get(name, 0) for rival, _ in others)) for name in pods.asked}
    needed = []
    for node in open_nodes:
        left = {name: _left(node, name) - value + 1 for name, value in pods.asked.items() if units[name]}
        needed.append({name: -(-value // units[name]) * units[name] for name, value in left.items()})
    weights = [
        [
            max((rival.takes.get(name, 0) / value for name, value in row.items()), default=0.0)
            if _may_be_on(rival, node)
            else 0.0
            for node, row in zip(open_nodes, needed, strict=True)
        ]
        for rival, _ in others
    ]
    counts = [count for _, count in others]
    return any(_proves(values, weights, counts) for values in _values(weights, needed))


def _may_be_on(rival: PodSet, node: NodeRoom) -> bool:
    return node.place.name in rival.also_on or (_is_eligible(rival, node) and _pieces(rival, node) >= 1)


def _values(weights: Sequence[Sequence[float]], needed: Sequence[Amounts]) -> Iterator[Sequence[float]]:
    """Give values of nodes that are worth a try, as how many pods of one kind it takes to lose each."""
    yield [1.0] * len(needed)
    for row in weights:
        most = max((1 / weight for weight in row if weight), default=1.0)
        yield [1 / weight if weight else most for weight in row]
        yield [float(not weight) for weight in row]
    for name in {name: None for row in needed for name in row}:
        yield [float(row.get(name, 0)) for row in needed]
    if weights:
        yield [1 / max(column) if max(column) else 1.0 for column in zip(*weights, strict=True)]


def _proves(values: Sequence[float], weights: Sequence[Sequence[float]], counts: Sequence[int]) -> bool:
    brought = sum(
        count * max(value * weight for value, weight in zip(values, row, strict=True))
        for row, count in zip(weights, counts, strict=True)
    )
    return brought < sum(values) * (1 - 1e-9)


def _may_displace(rival: PodSet, pods: PodSet) -> bool:
    (name, value), (own_name, own_value) = rival.priority, pods.priority
    if value is not None and own_value is not None:
        return value > own_value
    return bool(name) and name != own_name


def _name(pods: PodSet) -> str:
    return f"{pods.object} ({pods.role})" if pods.role else pods.object


# --- what limits it, as kube-scheduler says it ---


def _ruled_out(pods: PodSet, nodes: Sequence[NodeRoom], verb: str = "has left") -> str:
    """Say why no node takes another one, once as many are placed as there is room for."""
    reasons: Counter[str] = Counter()
    short: dict[str, int] = {}
    room = _room(pods, nodes)
    for node in nodes:
        for reason, resource in _against(pods, node):
            reasons[reason] += 1
            if resource:
                short[resource] = max(short.get(resource, 0), _left(node, resource))
    words = ", ".join(
        f"{count} {reason}" for reason, count in sorted(reasons.items(), key=lambda row: (-row[1], row[0]))
    )
    text = f"0/{len(nodes)} nodes are available: {words}"
    if 0 < room < pods.count:
        text = f"room for {room} of {pods.count} pods, then {text}"
    for resource, most in short.items():
        if not is_host_port(resource) and resource != "pods":
            asks, has = written(resource, pods.asked[resource]), written(resource, max(most, 0))
            text += f"; a pod asks for {asks} {resource}, no node {verb} more than {has}"
    return text


def _against(pods: PodSet, node: NodeRoom) -> Iterator[tuple[str, str]]:
    """Give why a node takes none, or no more than fit it: words, and the resource where it is one."""
    spec = _tolerating(pods)
    taint = untolerated(spec, node.place)
    if taint is not None and taint.get("key") == f"{_OF_CONDITIONS}unschedulable":
        yield "node(s) were unschedulable", ""
    elif taint is not None:
        value = f": {taint['value']}" if taint.get("value") else ""
        yield f"node(s) had untolerated taint {{{taint.get('key')}{value}}}", ""
    elif not is_selected(spec, node.place):
        yield "node(s) didn't match Pod's node affinity/selector", ""
    elif not node.is_ready:
        yield "node(s) were not ready", ""
    else:
        placed = max(0, _pieces(pods, node))
        for name, amount in pods.asked.items():
            if _left(node, name) - placed * amount >= amount:
                continue
            if is_host_port(name):
                yield "node(s) didn't have free ports for the requested pod ports", name
            elif name == "pods":
                yield "Too many pods", name
            else:
                yield f"Insufficient {name}", "" if placed else name
