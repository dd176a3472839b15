"""Where pods may go, and how many of them for certain: an argument in place of kube-scheduler's trial.

The scheduler places one pod after the other, in an order and by scores that nobody foresees, and moves none
again: pods that could all be placed side by side may be placed so that the last finds no node. So a pod fits
for certain only if the others cannot take its place *wherever* they go.

Let `p` be the pod, `N` the nodes that it may go to and has room on while all others are away, and `Q` the
others: what else comes with it, and every pod that waits in the cluster already. A node `n` is lost to `p`
once the pods of `Q` on it ask for more of some resource `r` than is left beside `p`: for `b(n, r)` or more.
The weight `w(q, n)` of a pod is the largest part of a `b(n, r)` that it asks for, 0 where it may not go and 1
where anti-affinity keeps the two apart: on a lost node weights add up to 1 or more. Give nodes any values
`y(n) >= 0`: to lose all of `N`, pods have to bring `sum over n of y(n)`, and as a pod is on one node alone,
they bring at most `sum over q of max over n of y(n) * w(q, n)`; one that is kept apart by zone brings its
whole zone. Where that is less, some node is left for `p`, in every order. Any choice of `y` proves it, so
some are tried. Requests of `Q` add up to multiples of what divides them all, so `b` is rounded up to one; of
pods that are all alike the bound is then exact: the scheduler places as many as there is room for.

Pods that are spread may go to a domain that has the fewest of them, whatever the skew. With `D` domains and
`E` such pods there, the emptiest has `(E + count - 1) / D` at the most when the last one comes: if a node is
left in *every* domain beside so many of its own, it finds one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from math import gcd
from operator import mul
from typing import Any

from mlstack.dataclass import Record
from mlstack.objects.resources import (
    Amounts,
    NodePlace,
    amounts,
    is_host_port,
    is_node_ready,
    is_selected,
    larger,
    node_place,
    requests,
    required_affinity,
    selects,
    untolerated,
)

HOST = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OF_CONDITIONS = "node.kubernetes.io/"  # taints that come and go with the state of a node
_LOCAL_VOLUMES = frozenset(
    {"configMap", "downwardAPI", "emptyDir", "hostPath", "image", "nfs", "projected", "secret"}
)
# What the DaemonSet controller gives its pods (pkg/controller/daemon/util).
_OF_DAEMONS = "not-ready unreachable disk-pressure memory-pressure pid-pressure unschedulable"
_DAEMON_TOLERATIONS = tuple(
    {"key": f"{OF_CONDITIONS}{name}", "operator": "Exists"} for name in _OF_DAEMONS.split()
)


class NodeRoom(Record):
    """Nodes that are alike, and what the pods on each leave."""

    place: NodePlace  # of one of them
    allocatable: Amounts
    free: Amounts  # of what it does not name it has one of each port, and nothing else
    is_ready: bool = True
    count: int = 1
    # `id` of the pods that may go to it, and of those that may be on it now; None where nobody has looked yet
    open_to: frozenset[int] | None = None
    takers: frozenset[int] | None = None

    def left(self, name: str) -> int:
        """Give what is free of a resource."""
        return self.free.get(name, int(is_host_port(name)))


class PodSet(Record):
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
    shut: frozenset[str] = frozenset()  # nodes from which pods keep them away that run
    alike: Mapping[str, int] = field(default_factory=dict)  # running ones that its spread counts, by domain
    maker: str = ""  # the kind whose operator makes them, and may add to them
    placed_by: str = ""  # what else than the scheduler decides about their place
    doubts: tuple[str, ...] = ()  # why it is not known whether they fit
    blocked: str = ""  # what refuses them before any node is looked for

    @cached_property
    def takes(self) -> Amounts:
        """Give the most that one takes of a node, be it an old one or a new one."""
        return larger(self.asked, self.replaced)

    @property
    def priority(self) -> tuple[str, int | None]:
        """Give the name and the value of its priority, as far as it is known."""
        return str(self.spec.get("priorityClassName") or ""), self.spec.get("priority")

    @cached_property
    def alone_in(self) -> frozenset[str]:
        """Give the topologies in whose domains there is one of them at the most."""
        return frozenset() if any(map(is_unclear, anti_terms(self.spec))) else separate_domains(self, self)

    @cached_property
    def spreading(self) -> Mapping[str, Any] | None:
        """Give the constraint that spreads them over domains, None where none does (see `unknown`)."""
        return next(_spread_hard(self.spec), None)


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
        placed_by=other_scheduler(spec),
        doubts=tuple(unknown_constraints(spec, labels)),
        **{"new": count, **facts},
    )


def spread(pods: PodSet, nodes: Iterable[NodeRoom]) -> PodSet:
    """Give pods of which every node gets one with their number."""
    count = sum(node.count for node in nodes if is_eligible(pods, node))
    return replace(pods, count=count, new=count) if pods.is_per_node else pods


def parse_node(obj: Mapping[str, Any], taken: Iterable[Amounts]) -> NodeRoom:
    """Read a Node of which the pods on it have taken so much."""
    place, status = node_place(obj), obj.get("status") or {}
    cordon = {"key": f"{OF_CONDITIONS}unschedulable", "effect": "NoSchedule"}
    is_cordoned = (obj.get("spec") or {}).get("unschedulable")
    if is_cordoned and not any(taint.get("key") == cordon["key"] for taint in place.taints):
        place = replace(place, taints=(*place.taints, cordon))
    allocatable = amounts(status.get("allocatable") or status.get("capacity"))
    free = _without(allocatable, *taken)
    return NodeRoom(place=place, allocatable=allocatable, free=free, is_ready=is_node_ready(obj))


def other_scheduler(spec: Mapping[str, Any], devices: Iterable[str] = ()) -> str:
    """Say what places a pod in the scheduler's stead; `devices` are resources that DRA brings."""
    name = spec.get("schedulerName") or "default-scheduler"
    if name != "default-scheduler":
        return f"scheduler {name} places it"
    if spec.get("nodeName"):
        return "it names its node"
    if spec.get("resourceClaims") or set(devices) & requests(spec).keys():
        return "devices are allocated to it (DRA)"
    return ""


def unknown_constraints(spec: Mapping[str, Any], labels: Mapping[str, Any]) -> Iterator[str]:
    """Say what of a pod the scheduler asks besides that is not looked at here."""
    if spec.get("schedulingGates"):
        yield "it has scheduling gates"
    rules = list(_spread_hard(spec))
    if len(rules) > 1 or any(
        is_unclear(row) or not selects(row.get("labelSelector"), labels) for row in rules
    ):
        yield "it has topology spread constraints of an involved kind"
    if ((spec.get("affinity") or {}).get("podAffinity") or {}).get(_REQUIRED):
        yield "it has required pod affinity"
    if any(is_unclear(term) for term in anti_terms(spec)):
        yield "it has pod anti-affinity of an involved kind"
    if "kueue.x-k8s.io/queue-name" in labels:
        yield "Kueue decides when it starts"
    for volume in spec.get("volumes") or ():
        kinds = {key for key, value in volume.items() if key != "name" and value is not None} - _LOCAL_VOLUMES
        if kinds:
            claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            what = f"claim {claim}" if claim else f"volume {volume.get('name')}"
            yield f"{what} may be bound to a zone or a node"


def allocated(pod: Mapping[str, Any]) -> dict[str, int]:
    """Give what a running pod holds of its node: while it is resized, the larger of old and new."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    now = {
        row.get("name"): row.get("allocatedResources") or (row.get("resources") or {}).get("requests") or {}
        for row in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ()))
    }

    def resized(container: Mapping[str, Any]) -> Mapping[str, Any]:
        resources = container.get("resources") or {}
        asked = now.get(container.get("name")) or resources.get("requests")
        return {**container, "resources": {**resources, "requests": asked}}

    lists = {name: list(map(resized, spec.get(name) or ())) for name in ("initContainers", "containers")}
    return larger(requests(spec), requests({**spec, **lists}))


# --- what keeps pods apart ---


def anti_terms(spec: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Give the terms by which a pod keeps others away from its node or zone."""
    affinity = (spec.get("affinity") or {}).get("podAntiAffinity") or {}
    return tuple(affinity.get(_REQUIRED) or ())


def matches(term: Mapping[str, Any], namespace: str, labels: Mapping[str, Any], of: str) -> bool:
    """Tell whether a term of a pod of a namespace is about pods with such labels of the namespace `of`."""
    is_near = term.get("namespaceSelector") is not None or of in (term.get("namespaces") or [namespace])
    return is_near and selects(term.get("labelSelector"), labels)


def separate_domains(one: PodSet, other: PodSet) -> frozenset[str]:
    """Give the topologies in whose domains two pods cannot be together."""
    pairs = ((one, other), (other, one))
    return frozenset(
        str(term.get("topologyKey"))
        for holder, pods in pairs
        for term in anti_terms(holder.spec)
        if matches(term, holder.namespace, pods.labels, pods.namespace)
    )


def _spread_hard(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for row in spec.get("topologySpreadConstraints") or ():
        if row.get("whenUnsatisfiable") != "ScheduleAnyway":
            yield row


def is_unclear(term: Mapping[str, Any]) -> bool:
    """Tell whether a term or constraint depends on what only the scheduler sees."""
    names = ("matchLabelKeys", "mismatchLabelKeys", "minDomains")
    return any(term.get(name) for name in names) or term.get("namespaceSelector") is not None


def _domains(pods: PodSet, rule: Mapping[str, Any], nodes: Iterable[NodeRoom]) -> dict[str, list[NodeRoom]]:
    by_value: dict[str, list[NodeRoom]] = defaultdict(list)
    key = str(rule.get("topologyKey"))
    for node in nodes:
        is_counted = rule.get("nodeAffinityPolicy") == "Ignore" or is_selected(pods.spec, node.place)
        if rule.get("nodeTaintsPolicy") == "Honor":
            is_counted = is_counted and untolerated(pods.spec, node.place) is None
        if is_counted and key in node.place.labels:
            by_value[node.place.labels[key]].append(node)
    return by_value


# --- one pod and one node ---


def with_daemon_tolerations(pods: PodSet) -> Mapping[str, Any]:
    """Give the specification of pods with the tolerations that those of a DaemonSet get."""
    if not pods.is_per_node:
        return pods.spec
    return {**pods.spec, "tolerations": [*(pods.spec.get("tolerations") or ()), *_DAEMON_TOLERATIONS]}


def is_eligible(pods: PodSet, node: NodeRoom) -> bool:
    """Tell whether selectors, affinity and taints let pods onto a node."""
    if node.open_to is not None:
        return id(pods) in node.open_to
    spec = with_daemon_tolerations(pods)
    return is_selected(spec, node.place) and untolerated(spec, node.place) is None


def fits_empty(pods: PodSet, node: NodeRoom) -> bool:
    """Tell whether a node could ever hold one, when it is empty and well."""
    bare = emptied(node)
    return is_eligible(pods, bare) and _fitting(pods, bare) >= 1


def emptied(node: NodeRoom) -> NodeRoom:
    """Give a node without pods, and well."""
    taints = [taint for taint in node.place.taints if not str(taint.get("key")).startswith(OF_CONDITIONS)]
    place = replace(node.place, taints=tuple(taints))
    return replace(node, place=place, free=node.allocatable, is_ready=True, open_to=None, takers=None)


def with_daemons(node: NodeRoom, wanted: Iterable[PodSet]) -> NodeRoom:
    """Give a node with the pods on it that every node gets."""
    taken = [
        pods.takes
        for pods in wanted
        if pods.is_per_node and (is_eligible(pods, node) or node.place.name in pods.also_on)
    ]
    return replace(node, free=_without(node.free, *taken))


def _without(free: Amounts, *taken: Amounts) -> dict[str, int]:
    """Give what is left of a node; of what it does not name it has one of each port."""
    left = dict(free)
    for asked in taken:
        for name, value in asked.items():
            left[name] = left.get(name, int(is_host_port(name))) - value
    return left


def most_on_node(pods: PodSet, node: NodeRoom) -> int:
    """Give how many fit a node that they may go to, with nothing beside them."""
    if node.place.name in pods.shut:
        return 0
    is_alone = HOST in pods.alone_in and HOST in node.place.labels
    return min(_fitting(pods, node), 1) if is_alone else _fitting(pods, node)


def _fitting(pods: PodSet, node: NodeRoom) -> int:
    return min(node.left(name) // value for name, value in pods.asked.items())


def most_on_nodes(pods: PodSet, nodes: Sequence[NodeRoom]) -> int:
    """Give how many there is room for at the most, with nothing beside them."""
    wide = next(iter(sorted(pods.alone_in - {HOST})), "")
    sums = {id(node): _sum(pods, node) for node in nodes}
    by_domain: dict[str, int] = defaultdict(int)
    for node in nodes:
        by_domain[node.place.labels.get(wide, "")] += sums[id(node)]
    most = sum(sums.values())
    if wide:
        most = sum(min(count, 1) if value else count for value, count in by_domain.items())
    rows = _spread_rooms(pods, nodes, sums)
    return min(most, sum(min(there, cap) for _, there, cap in rows)) if rows else most


def skewed_domains(pods: PodSet, nodes: Sequence[NodeRoom]) -> frozenset[str]:
    """Give the domains that have room for more than the spread of these pods lets in."""
    sums = {id(node): _sum(pods, node) for node in nodes}
    return frozenset(value for value, there, cap in _spread_rooms(pods, nodes, sums) if there > cap)


def _sum(pods: PodSet, node: NodeRoom) -> int:
    return max(0, most_on_node(pods, node)) * node.count if node.is_ready and is_eligible(pods, node) else 0


def _spread_rooms(
    pods: PodSet, nodes: Sequence[NodeRoom], sums: Mapping[int, int]
) -> list[tuple[str, int, int]]:
    """Give each domain with the room in it, and how many its skew lets in once all others are full."""
    rule = pods.spreading
    if rule is None or pods.also_on or is_unclear(rule):
        return []
    there = pods.alike
    rooms = {
        value: sum(sums[id(node)] for node in rows) for value, rows in _domains(pods, rule, nodes).items()
    }
    least = min((there.get(value, 0) + count for value, count in rooms.items()), default=0)
    most = least + (rule.get("maxSkew") or 1)
    return [(value, count, max(0, most - there.get(value, 0))) for value, count in rooms.items()]


# --- many nodes at once ---


def node_groups(nodes: Sequence[NodeRoom], rivals: Sequence[PodSet], keys: Iterable[str]) -> list[NodeRoom]:
    """Put together the nodes that are alike for these pods; labels of these `keys` tell them apart too."""
    kept = {*keys, *(key for pods in rivals for key in _asked_of_nodes(pods.spec))}
    names = [names for pods in rivals for names in (pods.also_on, pods.shut) if names]
    by_name = any(term.get("matchFields") for pods in rivals for term in _terms(pods.spec))
    resources = sorted({name for pods in rivals for name in pods.takes})
    open_to: dict[Any, frozenset[int]] = {}
    rows: dict[Any, tuple[NodeRoom, int]] = {}
    for node in nodes:
        place = node.place
        where = (
            tuple((key, place.labels[key]) for key in sorted(kept & place.labels.keys())),
            HOST in place.labels,
            repr(place.taints) if place.taints else "",
            tuple(place.name in listed for listed in names),
            place.name if by_name else "",
        )
        if where not in open_to:
            open_to[where] = frozenset(id(pods) for pods in rivals if is_eligible(pods, node))
        what = (
            where,
            node.is_ready,
            tuple(map(node.left, resources)),
            tuple(node.allocatable.get(name) for name in resources),
        )
        first, count = rows.get(what, (replace(node, open_to=open_to[where], takers=None), 0))
        rows[what] = (first, count + node.count)
    return [
        replace(node, count=n, takers=frozenset(id(pods) for pods in rivals if may_be_on(pods, node)))
        for node, n in rows.values()
    ]


def _terms(spec: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return (required_affinity(spec) or {}).get("nodeSelectorTerms") or ()


def _asked_of_nodes(spec: Mapping[str, Any]) -> Iterator[str]:
    yield from spec.get("nodeSelector") or ()
    for term in _terms(spec):
        yield from (str(row.get("key")) for row in term.get("matchExpressions") or ())


def topologies(pods: PodSet, rivals: Iterable[PodSet]) -> frozenset[str]:
    """Give the labels of nodes by which these pods are spread or kept apart, but for the node itself."""
    keys = frozenset[str]().union(*(separate_domains(pods, rival) for rival in rivals)) - {HOST}
    rule = pods.spreading
    return keys | ({str(rule.get("topologyKey"))} if rule else frozenset())


# --- the bound ---


class _Lost(Record):
    """What of some nodes each of the others takes, one row of weights for each."""

    nodes: Sequence[NodeRoom]
    needed: Sequence[Amounts]  # by node: what loses it, by resource
    weights: Sequence[Sequence[float]]
    counts: Sequence[int]
    zones: Sequence[Sequence[Sequence[int]]]  # of each: groups of nodes that one of them loses at once


def always_fits(pods: PodSet, rivals: Sequence[PodSet], nodes: Sequence[NodeRoom]) -> bool:
    """Tell whether one of these finds a node wherever all the others go: see the top of this module.

    `rivals` are all that look for a place, these among them; what every node gets is taken off `nodes`.
    """
    rule, own = pods.spreading, pods.count - 1
    if rule is None:
        return _is_left(pods, rivals, nodes, own)
    others = [row for row in rivals if row is not pods and row.namespace == pods.namespace]
    if any(selects(rule.get("labelSelector"), row.labels) for row in others):
        return False
    domains, keys = _domains(pods, rule, nodes), topologies(pods, rivals)
    there = sum(pods.alike.get(value, 0) for value in domains)
    tried: dict[Any, bool] = {}
    for value, members in domains.items():
        alike = (there + own) // len(domains) - pods.alike.get(value, 0)
        if alike < 0:
            continue  # it never has the fewest
        form: Any = value
        if len(members) == 1:  # a node each: most are like another
            (node,) = members
            takers = tuple(may_be_on(rival, node) for rival in rivals)
            labels = tuple(key in node.place.labels for key in keys)
            form = (alike, node.is_ready, tuple(map(node.left, pods.takes)), takers, labels)
        if form not in tried:
            tried[form] = _is_left(pods, rivals, members, alike)
        if not tried[form]:
            return False
    return bool(domains)


def may_be_on(rival: PodSet, node: NodeRoom) -> bool:
    """Tell whether one may come to stand on a node, or stands on it until it is replaced."""
    if node.takers is not None:
        return id(rival) in node.takers
    return node.place.name in rival.also_on or (is_eligible(rival, node) and most_on_node(rival, node) >= 1)


def _is_left(pods: PodSet, rivals: Sequence[PodSet], nodes: Sequence[NodeRoom], own: int) -> bool:
    """Tell whether no others can lose all of these nodes to a pod."""
    open_nodes = [node for node in nodes if _sum(pods, node) > 0]
    kept_apart = [(rival, keys) for rival in rivals if (keys := separate_domains(pods, rival))]
    if not open_nodes or len(frozenset().union(*(keys for _, keys in kept_apart)) - {HOST}) > 1:
        return False
    if any(rival.is_per_node and rival is not pods for rival, _ in kept_apart):
        return False
    others = [(rival, own if rival is pods else rival.count) for rival in rivals if not rival.is_per_node]
    lost = _lost(pods, [(rival, count) for rival, count in others if count > 0], open_nodes)
    return any(_proves(values, lost) for values in _values(lost))


def _lost(pods: PodSet, others: Sequence[tuple[PodSet, int]], nodes: Sequence[NodeRoom]) -> _Lost:
    units = {name: gcd(*(rival.takes.get(name, 0) for rival, _ in others)) for name in pods.asked}
    needed = []
    for node in nodes:
        left = {name: node.left(name) - value + 1 for name, value in pods.asked.items() if units[name]}
        needed.append({name: -(-value // units[name]) * units[name] for name, value in left.items()})
    parts = {name: [1 / row[name] for row in needed] for name in units if units[name]}
    weights, zones = [], []
    for rival, _ in others:
        keys = separate_domains(pods, rival)
        row = [0.0] * len(nodes)
        for name in parts.keys() & rival.takes.keys():
            row = list(map(max, row, map(float(rival.takes[name]).__mul__, parts[name])))
        by_zone: dict[str, list[int]] = defaultdict(list)
        for key in keys - {HOST}:
            for at, node in enumerate(nodes):
                if key in node.place.labels:
                    by_zone[node.place.labels[key]].append(at)
        weights.append(
            [
                (1.0 if HOST in keys else weight) if may_be_on(rival, node) else 0.0
                for node, weight in zip(nodes, row, strict=True)
            ]
        )
        zones.append(list(by_zone.values()))
    return _Lost(
        nodes=nodes, needed=needed, weights=weights, counts=[count for _, count in others], zones=zones
    )


def _values(lost: _Lost) -> Iterator[Sequence[float]]:
    """Give values of nodes that are worth a try, as how many pods of one kind it takes to lose each."""
    yield [1.0] * len(lost.nodes)
    for row in lost.weights:
        most = max((1 / weight for weight in row if weight), default=1.0)
        yield [1 / weight if weight else most for weight in row]
        yield [float(not weight) for weight in row]
    for name in {name: None for row in lost.needed for name in row}:
        yield [float(row.get(name, 0)) for row in lost.needed]
    if lost.weights:
        yield [1 / max(column) if max(column) else 1.0 for column in zip(*lost.weights, strict=True)]
    for groups in lost.zones:
        if groups:
            sizes = {at: sum(lost.nodes[n].count for n in group) for group in groups for at in group}
            yield [1 / sizes.get(at, 1) for at in range(len(lost.nodes))]


def _proves(values: Sequence[float], lost: _Lost) -> bool:
    worth = [value * node.count for value, node in zip(values, lost.nodes, strict=True)]
    brought = 0.0
    for row, count, groups in zip(lost.weights, lost.counts, lost.zones, strict=True):
        of_zone = max((sum(worth[at] for at in group) for group in groups), default=0.0)
        brought += count * (max(map(mul, values, row)) + of_zone)
    return brought < sum(worth) * (1 - 1e-9)
