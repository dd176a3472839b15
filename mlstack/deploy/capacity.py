"""Whether a cluster has room for what an apply brings: read as it is, judged by `readiness.capacity`.

What admission makes of a pod (defaults of a LimitRange, overhead of a RuntimeClass, the number of its
priority, sidecars of webhooks) is seen by creating one of each kind as a dry run. What the apply deletes, as
no file brings it any more, is gone only after the new pods work, so it gives no room.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import reduce
from typing import Any

from mlstack.app.environment import ClusterSnapshot
from mlstack.dataclass import Record
from mlstack.deploy.changes import Change
from mlstack.deploy.object_diff import budget
from mlstack.deploy.target import ResolvedTarget
from mlstack.errors import ODD, ClusterError, ForbiddenError, MlstackError, ObjectNotFoundError
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, Listing, ObjectRef
from mlstack.objects.kube_object import Data, Identity, KubeObject
from mlstack.objects.references import PodTemplate
from mlstack.objects.resources import (
    NamespaceLimits,
    QuotaFacts,
    amounts,
    exceeded,
    lack,
    larger,
    limits_in,
    parse_quota,
    requests,
    selects,
    usage_in,
)
from mlstack.readiness.capacity import NO_ROOM, UNCOUNTED, Fit, NodePool, fits, pods_of, scaled_between
from mlstack.readiness.placement import (
    NodeRoom,
    PodSet,
    allocated,
    anti_terms,
    is_unclear,
    matches,
    other_scheduler,
    parse_node,
    pod_set,
    spread,
    unknown_constraints,
)
from mlstack.readiness.rule import key_of, kinds_below, number
from mlstack.yaml.read import read_document

_AUTOSCALER = ObjectRef("v1", "ConfigMap", "kube-system", "cluster-autoscaler-status")
_List = tuple[str, str, str | None]  # API version and kind, and the namespace, None for all
_NODES: _List = ("v1", "Node", None)
_PODS: _List = ("v1", "Pod", None)
_CLASSES: _List = ("resource.k8s.io/v1", "DeviceClass", None)
_KARPENTER: _List = ("karpenter.sh/v1", "NodePool", None)
# Groups whose pods are as the object says, to the letter.
_OWN_PODS = ("", "apps", "batch", "paddlepaddle.org")
_ENDED = ("Succeeded", "Failed")
_POOL_LABELS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "kwok-nodegroup",
)


class Capacity(Record):
    """Whether a cluster has room for what an apply brings."""

    fits: tuple[Fit, ...]  # one an object whose pods are made, in the order of execution
    notes: tuple[str, ...] = ()  # what could not be read

    @property
    def ok(self) -> bool:
        """Tell whether nothing is known to find no room."""
        return not any(row.verdict in NO_ROOM for row in self.fits)


class Occupancy(Record):
    """What a cluster has now."""

    nodes: tuple[Data, ...] | None  # None where they may not be read, as the others
    pods: tuple[Data, ...] | None
    owners: Mapping[str, tuple[str, ...]]  # UIDs of the owners of pods and of what stands between, by UID
    quotas: Mapping[str, tuple[QuotaFacts, ...] | None]  # by namespace
    absent: frozenset[str]  # namespaces that are not there yet
    devices: tuple[str, ...]  # resources that are allocated by DRA
    autoscaler: str = ""  # what the cluster autoscaler says of itself
    node_pools: tuple[Data, ...] = ()  # Karpenter's
    notes: tuple[str, ...] = ()


@contextmanager
def judging() -> Iterator[None]:
    """Raise ClusterError where objects of a cluster have fields of other types than the API promises."""
    try:
        yield
    except ODD as error:
        text = "the room of the cluster cannot be judged: objects have fields of other types than their API"
        raise ClusterError(text) from error


@judging()
def check(resolved: ResolvedTarget, changes: Sequence[Change]) -> Capacity:
    """Judge the pods that an apply makes; nothing is written.

    Raises:
        ClusterError: the cluster cannot be asked.
    """
    making = [change for change in changes if change.action in ("create", "update", "recreate")]
    live = read(resolved.cluster, making)
    objects = [change.desired for change in changes if change.desired is not None]
    scaled = dict(scaled_between(objects))
    pod_sets: list[PodSet] = []
    unclear: list[Fit] = []
    gone: set[str] = set()
    for change in making:
        old = _pods_below(change.live_uid, live) if change.live_uid else []
        try:
            sets = list(_pod_sets(change, old, scaled))
        except ODD:
            sets = []
        if change.desired is not None and key_of(change.desired.data) in UNCOUNTED:
            unclear.append(_uncounted(change.desired))
        elif sets:
            pod_sets += sets
            # Of a workload that only grows, those that are there stay.
            goes = change.action == "recreate" or any(row.also_on for row in sets)
            gone |= {_uid(pod) for pod in old} if goes else set()
    quotas = [quota for of_space in live.quotas.values() for quota in of_space or ()]
    bodies = [obj.data for obj in objects]
    limits = {space: limits_in(space, bodies, quotas) for space in {pods.namespace for pods in pod_sets}}
    pod_sets = limited(_admitted(resolved.cluster, pod_sets, live), limits)
    nodes = node_rooms(live, gone)
    freed = [pod for pod in live.pods or () if _uid(pod) in gone]
    pod_sets = within_quotas([spread(pods, nodes) for pods in pod_sets], limits, freed)
    running = [pod for pod in live.pods or () if _uid(pod) not in gone]
    pod_sets = _beside(_unread(pod_sets, live), running, nodes)
    lowest = min((pod["spec"].get("priority") or 0 for pod in running), default=0)
    rows = fits(pod_sets, nodes, waiting=waiting(live, gone), pools=pools(live, nodes), lowest=lowest)
    return Capacity(fits=(*rows, *unclear), notes=live.notes)


def _uid(obj: Data) -> str:
    return str(obj["metadata"].get("uid"))


def _uncounted(obj: KubeObject) -> Fit:
    name, reason = str(obj.identity), "it decides by itself how many pods it makes"
    return Fit(object=name, component=obj.component, pods=0, verdict="not known", reason=reason)


def remarks(capacity: Capacity) -> Iterator[str]:
    """Say of what is not certain to fit how it stands.

    Raises:
        ClusterError: some pods are known to find no room; names each object with its verdict.
    """
    lines = [
        f"  `{row.object}`: {row.verdict}: {row.reason}" for row in capacity.fits if row.verdict in NO_ROOM
    ]
    if lines:
        raise ClusterError(
            "\n".join(("the cluster has no room for all pods of this run; nothing was written", *lines)),
            hint="make room, or ask for less; without --check-capacity the pods are made, and wait",
        )
    yield from (f"capacity: {note}" for note in capacity.notes)
    for row in capacity.fits:
        if row.verdict != "fits now":
            yield f"capacity: {row.object}: {row.verdict}" + (f": {row.reason}" if row.reason else "")


# --- what is there ---


def read(cluster: Cluster, making: Sequence[Change] = (), namespaces: Iterable[str] = ()) -> Occupancy:
    """Read nodes, pods, quotas and what an autoscaler says; what we may not read is None, and noted."""
    spaces = sorted({*namespaces, *(change.identity.namespace for change in making)} - {""})
    below = kinds_below([change.subject.data for change in making if change.live_uid])
    asked: list[_List] = [_NODES, _PODS, _CLASSES, _KARPENTER]
    asked += [("v1", "ResourceQuota", space) for space in spaces]
    asked += [(*kind, space) for kind in below if kind != _PODS[:2] for space in spaces]
    lists, notes = _lists(cluster, asked)
    pods, status = lists[_PODS], _unless_forbidden(cluster, _AUTOSCALER)
    between = [obj for row, rows in lists.items() if row[:2] in below for obj in rows or ()]
    running = (pod for pod in pods or () if (pod.get("status") or {}).get("phase") not in _ENDED)
    return Occupancy(
        nodes=lists[_NODES],
        pods=None if pods is None else tuple(running),
        owners={
            _uid(obj): tuple(str(owner.get("uid")) for owner in obj["metadata"].get("ownerReferences") or ())
            for obj in (*(pods or ()), *between)
        },
        quotas={
            space: None if rows is None else tuple(map(parse_quota, rows))
            for (_, kind, space), rows in lists.items()
            if kind == "ResourceQuota" and space
        },
        absent=frozenset(
            space
            for space in spaces
            if _unless_forbidden(cluster, ObjectRef("v1", "Namespace", "", space)) is None
        ),
        devices=tuple(str(row["spec"].get("extendedResourceName") or "") for row in lists[_CLASSES] or ()),
        node_pools=lists[_KARPENTER] or (),
        autoscaler=str(((status or {}).get("data") or {}).get("status") or ""),
        notes=notes,
    )


def _lists(
    cluster: Cluster, asked: Sequence[_List]
) -> tuple[dict[_List, tuple[Data, ...] | None], tuple[str, ...]]:
    """List kinds side by side, and say which may not be listed: they are None."""
    lists: dict[_List, tuple[Data, ...] | None] = {}
    notes: dict[str, None] = {}
    answers = parallel.run(lambda row: cluster.list(row[0], row[1], namespace=row[2]), asked)
    for row, answer in zip(asked, answers, strict=True):
        _, kind, space = row
        if isinstance(answer, Listing):
            lists[row] = answer.items
        elif isinstance(answer, ObjectNotFoundError):
            lists[row] = ()
        elif isinstance(answer, ForbiddenError):
            lists[row] = None
            where = f"namespace {space}" if space else "the whole cluster"
            if row != _KARPENTER:  # the server says so too where nobody has Karpenter
                notes[f"no right to list {kind} in {where}"] = None
        else:
            raise answer
    return lists, tuple(notes)


def _unless_forbidden(cluster: Cluster, ref: ObjectRef) -> Data | None:
    """Give an object, an empty one where it may not be read."""
    try:
        return cluster.get(ref)
    except ForbiddenError:
        return {}


def _pods_below(uid: str, live: Occupancy) -> list[Data]:
    def is_below(own: str, depth: int = 0) -> bool:
        owners = live.owners.get(own, ())
        return uid in owners or (depth < 8 and any(is_below(owner, depth + 1) for owner in owners))

    return [pod for pod in live.pods or () if is_below(_uid(pod))]


def node_rooms(live: Occupancy, gone: Container[str] = ()) -> list[NodeRoom]:
    """Give the nodes with what pods leave of them, but for those that go."""
    taken = defaultdict(list)
    for pod in live.pods or ():
        if _uid(pod) not in gone:
            taken[str(pod["spec"].get("nodeName") or "")].append(allocated(pod))
    return [parse_node(node, taken[str(node["metadata"]["name"])]) for node in live.nodes or ()]


def waiting(live: Occupancy, gone: Container[str] = ()) -> list[PodSet]:
    """Give the pods that look for a place already, those that are alike together."""
    alike = defaultdict(list)
    for pod in live.pods or ():
        metadata, spec = pod["metadata"], pod["spec"]
        if spec.get("nodeName") or _uid(pod) in gone or metadata.get("deletionTimestamp"):
            continue
        shape = {name: spec.get(name) for name in ("nodeSelector", "affinity", "tolerations", "priority")}
        shape |= {"labels": metadata.get("labels"), "namespace": metadata.get("namespace")}
        alike[json.dumps([shape, requests(spec)], sort_keys=True)].append(pod)
    return [
        pod_set(
            f"Pod {pods[0]['metadata'].get('namespace')}/{pods[0]['metadata']['name']}",
            pods[0]["spec"],
            count=len(pods),
            metadata=pods[0]["metadata"],
            namespace=str(pods[0]["metadata"].get("namespace")),
        )
        for pods in alike.values()
    ]


# --- what comes ---


def new_pods(objects: Sequence[KubeObject]) -> tuple[list[PodSet], list[Fit]]:
    """Give the pods of objects that are all new, and those objects that decide by themselves."""
    scaled = dict(scaled_between(objects))
    pod_sets: list[PodSet] = []
    for obj in objects:
        with suppress(*ODD):
            if key_of(obj.data) not in UNCOUNTED:
                least, _ = scaled.get(obj.identity, (0, 0))
                pod_sets += [_set(obj, row, max(row.replicas, least)) for row in pods_of(obj)]
    unclear = [_uncounted(obj) for obj in objects if key_of(obj.data) in UNCOUNTED]
    return [pods for pods in pod_sets if pods.count], unclear


def _pod_sets(
    change: Change, old: Sequence[Data], scaled: Mapping[Identity, tuple[int, int]]
) -> Iterator[PodSet]:
    """Give the pods that a change makes, and how many there are at once while it is carried out."""
    obj = change.desired
    if obj is None:
        return
    before = {pod.role: pod for pod in pods_of(change.live)} if change.live else {}
    for template in pods_of(obj):
        first = max(template.replicas, scaled.get(obj.identity, (0, 0))[0])
        earlier = before.get(template.role)
        if change.action != "update" or earlier is None:
            yield _set(obj, template, first)
        elif obj.group == "apps":
            yield from _updated(change, obj, template, old)
        elif requests(earlier.spec) == requests(template.spec):
            yield _set(obj, template, first - earlier.replicas)
        else:
            text = "whether its pods are replaced, and in which order, is its controller's"
            yield replace(_set(obj, template, first), placed_by=text)


def _updated(change: Change, obj: KubeObject, template: PodTemplate, old: Sequence[Data]) -> Iterator[PodSet]:
    """Give the new pods of a Deployment, StatefulSet or DaemonSet, as its controller makes them."""
    spec, live = obj.data["spec"], (change.live or obj).data.get("spec") or {}
    count = number(spec, "replicas", number(live, "replicas", 1))
    strategy = spec.get("strategy") or spec.get("updateStrategy") or {}
    is_new = any(row.path.startswith("spec.template.") for row in change.fields)
    if not is_new or strategy.get("type") == "OnDelete":
        if not template.is_per_node:
            yield _set(obj, template, count - min(len(old), number(live, "replicas", 1)))
        return
    extra = 0
    if obj.kind == "Deployment" and strategy.get("type") != "Recreate":
        missing, more = budget(strategy, count)
        extra = 0 if missing else more  # old ones give their place where some may be missing
    row = _set(obj, template, count)
    if template.is_per_node and (strategy.get("rollingUpdate") or {}).get("maxSurge"):
        yield row
        return
    yield replace(
        row,
        count=max(count, len(old)) + extra,
        replaced=reduce(larger, map(allocated, old), {}),
        also_on=frozenset(str(pod["spec"].get("nodeName") or "") for pod in old),
    )


def _set(obj: KubeObject, template: PodTemplate, count: int) -> PodSet:
    claims = obj.kind == "StatefulSet" and obj.data["spec"].get("volumeClaimTemplates")
    row = pod_set(
        str(obj.identity),
        template.spec,
        count=max(0, count),
        metadata=template.metadata,
        component=obj.component,
        role=template.role,
        namespace=obj.namespace,
        is_per_node=template.is_per_node,
        annotations=template.metadata.get("annotations") or {},
        maker="" if obj.group in _OWN_PODS else obj.kind,
    )
    doubts = list(row.doubts)
    doubts += ["its claims may be bound to a zone or a node"] if claims else []
    doubts += unknown_constraints({}, {str(name): "" for name in obj.labels})
    return replace(row, doubts=tuple(dict.fromkeys(doubts)))


def _admitted(cluster: Cluster, pod_sets: Sequence[PodSet], live: Occupancy) -> list[PodSet]:
    """Give pods as admission makes them, and those that it refuses with why."""

    def tried(pods: PodSet) -> PodSet:
        if pods.namespace in live.absent:
            more = ("runtime class adds to it",) if pods.spec.get("runtimeClassName") else ()
            return replace(pods, doubts=(*pods.doubts, *more))
        try:
            try:
                spec = _try(cluster, pods, pods.spec)
            except (ForbiddenError, ObjectNotFoundError) as error:
                if "serviceaccount" not in error.message.lower():
                    raise
                spec = _try(cluster, pods, {**pods.spec, "serviceAccountName": "default"})
        except ClusterError as error:
            if isinstance(error, ForbiddenError) and error.why == "quota":
                return replace(pods, blocked=error.message.partition(": ")[2] or error.message)
            doubt = f"what admission makes of its pods is not known: {error.message.splitlines()[0]}"
            return replace(pods, doubts=(*pods.doubts, doubt))
        admitted = pod_set(pods.object, spec, count=0, metadata={"labels": pods.labels})
        doubts = tuple(dict.fromkeys((*admitted.doubts, *pods.doubts)))
        return replace(
            pods,
            spec=spec,
            asked=admitted.asked,
            doubts=doubts,
            placed_by=pods.placed_by or admitted.placed_by,
        )

    rows = parallel.whole(parallel.run(tried, [pods for pods in pod_sets if pods.count or pods.is_per_node]))
    return [replace(row, placed_by=row.placed_by or other_scheduler(row.spec, live.devices)) for row in rows]


def _try(cluster: Cluster, pods: PodSet, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Create a pod as a dry run and give its specification; parts that its operator fills in are made up."""
    whole = {"name": "main", "image": "none"}
    lists = {
        name: [{**whole, "name": f"{name.lower()}-{at}", **row} for at, row in enumerate(spec[name])]
        for name in ("initContainers", "containers")
        if spec.get(name)
    }
    metadata = {
        "name": "mlstack-capacity-check",
        "namespace": pods.namespace,
        "labels": dict(pods.labels),
        "annotations": dict(pods.annotations),
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, **lists}}
    admitted: Mapping[str, Any] = cluster.create(pod, dry_run=True).object["spec"]
    return admitted


def _unread(pod_sets: Iterable[PodSet], live: Occupancy) -> Iterator[PodSet]:
    """Give pods with what may not be read."""
    for pods in pod_sets:
        doubts = [*pods.doubts]
        doubts += ["no right to list nodes"] if live.nodes is None else []
        doubts += ["no right to list the pods that run"] if live.pods is None else []
        doubts += ["no right to list quotas"] if live.quotas.get(pods.namespace, ()) is None else []
        yield replace(pods, doubts=tuple(doubts))


def _beside(pod_sets: Iterable[PodSet], running: Sequence[Data], nodes: Sequence[NodeRoom]) -> list[PodSet]:
    """Give pods with the nodes that running ones shut to them, and how many of those their spread counts."""
    by_name = {node.place.name: node.place.labels for node in nodes}
    apart = [pod for pod in running if anti_terms(pod["spec"])]
    rows = []
    for pods in pod_sets:
        own_terms, rule, doubts = anti_terms(pods.spec), pods.spreading, list(pods.doubts)
        shut: set[tuple[str, str]] = set()
        alike: dict[str, int] = defaultdict(int)
        for pod in running if own_terms or rule else apart:
            metadata, labels = pod["metadata"], pod["metadata"].get("labels") or {}
            space = str(metadata.get("namespace"))
            domains = by_name.get(str(pod["spec"].get("nodeName") or ""), {})
            terms = [row for row in own_terms if matches(row, pods.namespace, labels, space)]
            pod_terms = anti_terms(pod["spec"])
            terms += [row for row in pod_terms if matches(row, space, pods.labels, pods.namespace)]
            if any(map(is_unclear, terms)):
                doubts.append(f"Pod {space}/{metadata['name']} may keep it away (pod anti-affinity)")
            keys = [str(row.get("topologyKey")) for row in terms if not is_unclear(row)]
            shut.update((key, domains[key]) for key in keys if key in domains)
            if rule and space == pods.namespace and not metadata.get("deletionTimestamp"):
                alike[domains.get(str(rule.get("topologyKey")), "")] += selects(
                    rule.get("labelSelector"), labels
                )
        names = frozenset(name for name, labels in by_name.items() if shut and shut & labels.items())
        rows.append(replace(pods, shut=names, alike=alike, doubts=tuple(dict.fromkeys(doubts))))
    return rows


def limited(pod_sets: Iterable[PodSet], limits: Mapping[str, NamespaceLimits]) -> list[PodSet]:
    """Give pods with the defaults of their namespace, and those that it refuses with why."""
    rows = []
    for pods in pod_sets:
        spec, refusals = limits[pods.namespace].admitted(pods.spec)
        asked = {name: value for name, value in requests(spec).items() if value > 0}
        rows.append(replace(pods, spec=spec, asked=asked, blocked=pods.blocked or "".join(refusals[:1])))
    return rows


def limits_beside(
    snapshot: ClusterSnapshot, objects: Sequence[KubeObject], namespace: str
) -> dict[str, NamespaceLimits]:
    """Give by namespace what limits pods: among objects, and in the `namespace` of a snapshot."""

    def whole(kind: str, row: Mapping[str, Any]) -> dict[str, Any]:
        metadata = {"namespace": namespace, "name": row["name"]}
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": row}

    used = (snapshot.room or {}).get("used") or {}
    quotas = [parse_quota(whole("ResourceQuota", row)) for row in snapshot.quotas]
    quotas = [replace(quota, used=used.get(quota.name, {})) for quota in quotas]
    bodies = [*(whole("LimitRange", row) for row in snapshot.limits), *(obj.data for obj in objects)]
    return {space: limits_in(space, bodies, quotas) for space in {obj.namespace for obj in objects}}


def within_quotas(
    pod_sets: Sequence[PodSet], limits: Mapping[str, NamespaceLimits], freed_pods: Sequence[Data] = ()
) -> list[PodSet]:
    """Give pods with the quota that some of them, or all of them together, exceed.

    `freed_pods` go before others come.
    """
    rows = list(pod_sets)
    for space, of_space in limits.items():
        freed = [(pod["spec"], 1) for pod in freed_pods if pod["metadata"].get("namespace") == space]
        here = [at for at, pods in enumerate(rows) if pods.namespace == space]
        for quota in of_space.quotas:
            given_back = usage_in(quota, freed, {})
            left = replace(quota, used={name: n - given_back.get(name, 0) for name, n in quota.used.items()})
            rows = _within(rows, here, left)
    return rows


def _within(rows: list[PodSet], here: Sequence[int], quota: QuotaFacts) -> list[PodSet]:
    by_object: dict[str, list[tuple[Mapping[str, Any], int]]] = defaultdict(list)
    for at in here:
        by_object[rows[at].object].append((rows[at].spec, rows[at].count))
    together = usage_in(quota, [pod for pods in by_object.values() for pod in pods], {})
    for at in here:
        alone = usage_in(quota, by_object[rows[at].object], {})
        if exceeded(quota, alone):
            text = f"exceeded quota: {quota.name}, for all its pods: {lack(quota, alone)}"
            rows[at] = replace(rows[at], blocked=rows[at].blocked or text)
        elif any(alone.get(entry) for entry in exceeded(quota, together)):
            text = f"quota {quota.name} is too small for all workloads together: {lack(quota, together)}"
            rows[at] = replace(rows[at], doubts=(*rows[at].doubts, text))
    return rows


# --- nodes that an autoscaler adds ---


_NODES_OF_KARPENTER = 1000  # at the most, as far as anybody looks


def pools(live: Occupancy, nodes: Sequence[NodeRoom]) -> list[NodePool]:
    """Read which nodes autoscalers may add: the cluster autoscaler by its groups, Karpenter by its NodePools.

    A node of a group shows what all are like; those of Karpenter are of any size that its provider has. See
    https://github.com/kubernetes/autoscaler/tree/master/cluster-autoscaler/clusterstate/api and
    https://karpenter.sh/docs/concepts/nodepools/.
    """
    rows = [
        NodePool(name=f"Karpenter's {pool['metadata']['name']}", node=None, more=_NODES_OF_KARPENTER)
        for pool in live.node_pools
        if not _is_full(pool)
    ]
    if live.autoscaler:
        try:
            content = read_document(live.autoscaler, source="cluster-autoscaler-status").value
            rows += _groups(content["nodeGroups"], live, nodes)
        except (MlstackError, *ODD):  # older ones wrote prose
            rows.append(NodePool(name="the cluster autoscaler", node=None, more=1))
    return rows


def _is_full(pool: Data) -> bool:
    status = pool.get("status") or {}
    used, limits = amounts(status.get("resources")), amounts((pool.get("spec") or {}).get("limits"))
    is_ready = all(
        row.get("status") != "False" for row in status.get("conditions") or () if row.get("type") == "Ready"
    )
    return not is_ready or any(used.get(name, 0) >= most for name, most in limits.items())


def _groups(
    groups: Iterable[Mapping[str, Any]], live: Occupancy, nodes: Sequence[NodeRoom]
) -> Iterator[NodePool]:
    on_every_node = defaultdict(list)
    for pod in live.pods or ():
        owners = pod["metadata"].get("ownerReferences") or ()
        if any(owner.get("kind") == "DaemonSet" for owner in owners):
            on_every_node[pod["spec"].get("nodeName")].append(allocated(pod))
    for group in groups:
        health = group.get("health") or {}
        base = re.sub(r"-grp$", "", str(group.get("name")).rpartition("/")[2])
        members = [node for node in nodes if node.is_ready and _is_of_pool(node, base)]
        more = number(health, "maxSize") - number(health, "cloudProviderTarget")
        node = None
        if members:
            first = members[0]
            taken: dict[str, int] = {}
            for asked in on_every_node[first.place.name]:
                taken = {name: taken.get(name, 0) + asked.get(name, 0) for name in {**taken, **asked}}
            free = {name: n - taken.get(name, 0) for name, n in first.allocatable.items()}
            node = replace(first, free=free)
        yield NodePool(name=base, node=node, more=max(0, more))


def _is_of_pool(node: NodeRoom, base: str) -> bool:
    named = [node.place.labels[label] for label in _POOL_LABELS if label in node.place.labels]
    by_name = node.place.name.startswith(f"{base}-")
    return by_name or any(value == base or base.startswith(f"eks-{value}-") for value in named)
