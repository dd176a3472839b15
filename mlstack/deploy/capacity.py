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
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from mlstack.deploy.changes import Change
from mlstack.deploy.rollout import budget
from mlstack.deploy.target import ResolvedTarget
from mlstack.errors import ClusterError, ForbiddenError, MlstackError, ObjectNotFoundError
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, Listing, ObjectRef
from mlstack.objects.kube_object import Data, Identity, KubeObject
from mlstack.objects.pods import PodTemplate
from mlstack.objects.quotas import QuotaFacts, exceeded, lack, parse_quota, usage_in
from mlstack.objects.resources import requests
from mlstack.readiness.assess import ODD
from mlstack.readiness.capacity import (
    NO_ROOM,
    Fit,
    NodePool,
    NodeRoom,
    PodSet,
    fits,
    held,
    larger,
    parse_node,
    placed_by,
    pod_set,
    repelling,
    repels,
    spread,
    unknown,
)
from mlstack.readiness.footprint import pods_of, scaled_between
from mlstack.readiness.relatives import kinds_below
from mlstack.readiness.rule import UNCOUNTED, key_of, number

_AUTOSCALER = ObjectRef(
    api_version="v1", kind="ConfigMap", namespace="kube-system", name="cluster-autoscaler-status"
)
_POOL_LABELS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "kwok-nodegroup",
)


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Whether a cluster has room for what an apply brings."""

    fits: tuple[Fit, ...]  # one an object whose pods are made, in the order of execution
    notes: tuple[str, ...] = ()  # what could not be read

    @property
    def ok(self) -> bool:
        """Tell whether nothing is known to find no room."""
        return not any(row.verdict in NO_ROOM for row in self.fits)


@dataclass(frozen=True, kw_only=True)
class Occupancy:
    """What a cluster has now."""

    nodes: tuple[Data, ...] | None  # None where they may not be read, as the others
    pods: tuple[Data, ...] | None
    owners: Mapping[str, tuple[str, ...]]  # UIDs of the owners of pods and of what stands between, by UID
    quotas: Mapping[str, tuple[QuotaFacts, ...] | None]  # by namespace
    absent: frozenset[str]  # namespaces that are not there yet
    devices: tuple[str, ...]  # resources that are allocated by DRA
    autoscaler: str = ""  # what the cluster autoscaler says of itself
    notes: tuple[str, ...] = ()


def check(resolved: ResolvedTarget, changes: Sequence[Change]) -> Capacity:
    """Judge the pods that an apply makes; nothing is written.

    Raises:
        ClusterError: the cluster cannot be asked.
    """
    making = [change for change in changes if change.action in ("create", "update", "recreate")]
    live = read(resolved.cluster, making)
    objects = [change.desired for change in changes if change.desired is not None]
    scaled = dict(scaled_between(objects))
    wanted: list[PodSet] = []
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
            wanted += sets
            # Of a workload that only grows, those that are there stay.
            gone |= (
                {str(pod["metadata"]["uid"]) for pod in old} if any(row.also_on for row in sets) else set()
            )
            gone |= {str(pod["metadata"]["uid"]) for pod in old} if change.action == "recreate" else set()
    wanted = _admitted(resolved.cluster, wanted, live)
    nodes = node_rooms(live, gone)
    freed = [pod for pod in live.pods or () if str(pod["metadata"]["uid"]) in gone]
    wanted = within_quotas([spread(pods, nodes) for pods in wanted], live.quotas, objects, freed)
    wanted = [_beside(pods, wanted, live, gone) for pods in wanted]
    rows = fits(wanted, nodes, waiting=waiting(live, gone), pools=pools(live, nodes))
    return Capacity(fits=(*rows, *unclear), notes=live.notes)


def _uncounted(obj: KubeObject) -> Fit:
    name, reason = str(obj.identity), "it decides by itself how many pods it makes"
    return Fit(object=name, component=obj.component, pods=0, verdict="not known", reason=reason)


def refuse(capacity: Capacity) -> None:
    """Raise if some pods are known to find no room.

    Raises:
        ClusterError: naming each object with its verdict and what limits it.
    """
    if capacity.ok:
        return
    lines = [
        f"  `{row.object}`: {row.verdict}: {row.reason}" for row in capacity.fits if row.verdict in NO_ROOM
    ]
    raise ClusterError(
        "\n".join(("the cluster has no room for all pods of this run; nothing was written", *lines)),
        hint="make room, or ask for less; without --check-capacity the pods are made, and wait",
    )


def remarks(capacity: Capacity) -> Iterator[str]:
    """Say of what is not certain to fit how it stands."""
    yield from (f"capacity: {note}" for note in capacity.notes)
    for row in capacity.fits:
        if row.verdict != "fits now":
            yield f"capacity: {row.object}: {row.verdict}" + (f": {row.reason}" if row.reason else "")


# --- what is there ---


def read(cluster: Cluster, making: Sequence[Change] = (), namespaces: Iterable[str] = ()) -> Occupancy:
    """Read nodes, pods, quotas and what an autoscaler says; what we may not read is None, and noted."""
    spaces = sorted({*namespaces, *(change.identity.namespace for change in making)} - {""})
    below = kinds_below([change.subject.data for change in making if change.live_uid])
    asked: list[tuple[str, str, str | None]] = [("v1", "Node", None), ("v1", "Pod", None)]
    asked += [("resource.k8s.io/v1", "DeviceClass", None)]
    asked += [("v1", "ResourceQuota", space) for space in spaces]
    asked += [(*kind, space) for kind in below if kind != ("v1", "Pod") for space in spaces]
    notes: list[str] = []

    def items(answer: Listing | MlstackError, kind: str, space: str | None) -> tuple[Data, ...] | None:
        if isinstance(answer, Listing):
            return answer.items
        if isinstance(answer, ObjectNotFoundError):
            return ()
        if not isinstance(answer, ForbiddenError):
            raise answer
        notes.append(f"no right to list {kind} in {f'namespace {space}' if space else 'the whole cluster'}")
        return None

    answers = parallel.run(lambda row: cluster.list(row[0], row[1], namespace=row[2]), asked)
    lists = {row: items(answer, row[1], row[2]) for row, answer in zip(asked, answers, strict=True)}
    pods = lists["v1", "Pod", None]
    between = [obj for row, rows in lists.items() if row[:2] in below for obj in rows or ()]
    status = _read_alone(cluster, _AUTOSCALER)
    classes = lists["resource.k8s.io/v1", "DeviceClass", None] or ()
    return Occupancy(
        nodes=lists["v1", "Node", None],
        pods=None if pods is None else tuple(pod for pod in pods if not _has_ended(pod)),
        owners={
            str(obj["metadata"].get("uid")): tuple(
                str(owner.get("uid")) for owner in obj["metadata"].get("ownerReferences") or ()
            )
            for obj in (*(pods or ()), *between)
        },
        quotas={
            space: None if rows is None else tuple(map(parse_quota, rows))
            for (_, kind, space), rows in lists.items()
            if kind == "ResourceQuota" and space
        },
        absent=frozenset(space for space in spaces if not _has_namespace(cluster, space)),
        devices=tuple(str(row["spec"].get("extendedResourceName") or "") for row in classes),
        autoscaler=str(((status or {}).get("data") or {}).get("status") or ""),
        notes=tuple(dict.fromkeys(notes)),
    )


def _read_alone(cluster: Cluster, ref: ObjectRef) -> Data | None:
    try:
        return cluster.get(ref)
    except ForbiddenError:
        return None


def _has_namespace(cluster: Cluster, name: str) -> bool:
    try:
        return cluster.get(ObjectRef(api_version="v1", kind="Namespace", namespace="", name=name)) is not None
    except ForbiddenError:
        return True


def _has_ended(pod: Data) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _pods_below(uid: str, live: Occupancy) -> list[Data]:
    """Give the pods that an object owns, over whatever stands between."""

    def is_below(own: str, depth: int = 0) -> bool:
        owners = live.owners.get(own, ())
        return uid in owners or (depth < 8 and any(is_below(owner, depth + 1) for owner in owners))

    return [pod for pod in live.pods or () if is_below(str(pod["metadata"].get("uid")))]


def node_rooms(live: Occupancy, gone: Container[str] = ()) -> list[NodeRoom]:
    """Give the nodes with what pods leave of them, but for those that go."""
    taken = defaultdict(list)
    for pod in live.pods or ():
        if str(pod["metadata"]["uid"]) not in gone:
            taken[str(pod["spec"].get("nodeName") or "")].append(held(pod))
    return [parse_node(node, taken[str(node["metadata"]["name"])]) for node in live.nodes or ()]


def waiting(live: Occupancy, gone: Container[str] = ()) -> list[PodSet]:
    """Give the pods that look for a place already, those that are alike together."""
    alike = defaultdict(list)
    for pod in live.pods or ():
        metadata, spec = pod["metadata"], pod["spec"]
        if spec.get("nodeName") or str(metadata["uid"]) in gone or metadata.get("deletionTimestamp"):
            continue
        shape = {name: spec.get(name) for name in ("nodeSelector", "affinity", "tolerations", "priority")}
        alike[json.dumps([shape, requests(spec)], sort_keys=True)].append(pod)
    return [
        pod_set(
            f"Pod {pods[0]['metadata'].get('namespace')}/{pods[0]['metadata']['name']}",
            pods[0]["spec"],
            count=len(pods),
            metadata=pods[0]["metadata"],
        )
        for pods in alike.values()
    ]


# --- what comes ---


def new_pods(objects: Sequence[KubeObject]) -> tuple[list[PodSet], list[Fit]]:
    """Give the pods of objects that are all new, and those objects that decide by themselves."""
    scaled = dict(scaled_between(objects))
    wanted: list[PodSet] = []
    for obj in objects:
        with suppress(*ODD):
            if key_of(obj.data) not in UNCOUNTED:
                least, _ = scaled.get(obj.identity, (0, 0))
                wanted += [_set(obj, row, max(row.replicas, least)) for row in pods_of(obj)]
    unclear = [_uncounted(obj) for obj in objects if key_of(obj.data) in UNCOUNTED]
    return [pods for pods in wanted if pods.count], unclear


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
        known = before.get(template.role)
        if change.action != "update" or known is None:
            yield _set(obj, template, first)
        elif obj.group == "apps":
            yield from _updated(change, obj, template, old)
        elif requests(known.spec) == requests(template.spec):
            yield _set(obj, template, first - known.replicas)
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
        replaced=reduce(larger, map(held, old), {}),
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
    )
    doubts = list(row.doubts)
    doubts += ["its claims may be bound to a zone or a node"] if claims else []
    doubts += unknown({}, {str(name): "" for name in obj.labels})
    return replace(row, doubts=tuple(dict.fromkeys(doubts)))


def _admitted(cluster: Cluster, wanted: Sequence[PodSet], live: Occupancy) -> list[PodSet]:
    """Give pods as admission makes them, and those that it refuses with why."""

    def tried(pods: PodSet) -> PodSet:
        if pods.namespace in live.absent:
            doubt = ("runtime class adds to it",) if pods.spec.get("runtimeClassName") else ()
            return replace(pods, doubts=(*pods.doubts, *doubt))
        try:
            try:
                spec = _try(cluster, pods, pods.spec)
            except (ForbiddenError, ObjectNotFoundError) as error:
                if "serviceaccount" not in error.message.lower():
                    raise
                spec = _try(cluster, pods, {**pods.spec, "serviceAccountName": "default"})
        except ForbiddenError as error:
            if error.why == "quota":
                return replace(pods, blocked=error.message.partition(": ")[2] or error.message)
            return _doubted(pods, error)
        except ClusterError as error:
            return _doubted(pods, error)
        known = pod_set(pods.object, spec, count=0, metadata={"labels": pods.labels})
        doubts = tuple(dict.fromkeys((*known.doubts, *pods.doubts)))
        return replace(
            pods, spec=spec, asked=known.asked, doubts=doubts, placed_by=pods.placed_by or known.placed_by
        )

    rows = parallel.whole(parallel.run(tried, [pods for pods in wanted if pods.count or pods.is_per_node]))
    return [replace(pods, placed_by=pods.placed_by or placed_by(pods.spec, live.devices)) for pods in rows]


def _doubted(pods: PodSet, error: MlstackError) -> PodSet:
    line = error.message.splitlines()[0]
    return replace(pods, doubts=(*pods.doubts, f"what admission makes of its pods is not known: {line}"))


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


def _beside(pods: PodSet, wanted: Sequence[PodSet], live: Occupancy, gone: set[str]) -> PodSet:
    """Give pods with what makes their place uncertain: pods that keep them away, and what may not be read."""
    doubts = []
    if live.nodes is None:
        doubts.append("no right to list nodes")
    if live.pods is None:
        doubts.append("no right to list the pods that run")
    if live.quotas.get(pods.namespace, ()) is None:
        doubts.append("no right to list quotas")
    others = [(row.object, row.namespace, row.spec) for row in wanted if row is not pods]
    others += [
        (
            f"Pod {pod['metadata'].get('namespace')}/{pod['metadata']['name']}",
            pod["metadata"]["namespace"],
            pod["spec"],
        )
        for pod in live.pods or ()
        if str(pod["metadata"]["uid"]) not in gone
    ]
    for name, namespace, spec in others:
        if any(repels(term, namespace, pods) for term in repelling(spec)):
            doubts.append(f"{name} may keep it away (pod anti-affinity)")
            break
    return replace(pods, doubts=(*pods.doubts, *doubts))


def within_quotas(
    wanted: Sequence[PodSet],
    quotas: Mapping[str, Sequence[QuotaFacts] | None],
    objects: Iterable[KubeObject],
    freed_pods: Sequence[Data] = (),
) -> list[PodSet]:
    """Give pods with the quota that refuses some of them, or that all of them together exceed.

    `quotas` are those of each namespace, `objects` may bring more, `freed_pods` go before others come.
    """
    coming = [parse_quota(obj.data) for obj in objects if obj.kind == "ResourceQuota" and not obj.group]
    rows = list(wanted)
    for space in sorted({pods.namespace for pods in wanted}):
        there = {quota.key: quota for quota in quotas.get(space) or ()}
        for quota in coming:
            if quota.namespace == space:
                used = there[quota.key].used if quota.key in there else {}
                there[quota.key] = replace(quota, used=used)
        freed = [(pod["spec"], 1) for pod in freed_pods if pod["metadata"].get("namespace") == space]
        here = [at for at, pods in enumerate(rows) if pods.namespace == space]
        for quota in there.values():
            given_back = usage_in(quota, freed, {})
            left = replace(quota, used={name: n - given_back.get(name, 0) for name, n in quota.used.items()})
            rows = _within(rows, here, left)
    return rows


def _within(rows: list[PodSet], here: Sequence[int], quota: QuotaFacts) -> list[PodSet]:
    name = quota.key.rpartition("/")[2]
    by_object: dict[str, list[tuple[Mapping[str, Any], int]]] = defaultdict(list)
    for at in here:
        by_object[rows[at].object].append((rows[at].spec, rows[at].count))
    together = usage_in(quota, [pod for pods in by_object.values() for pod in pods], {})
    for at in here:
        alone = usage_in(quota, by_object[rows[at].object], {})
        if exceeded(quota, alone):
            text = f"exceeded quota: {name}, for all its pods: {lack(quota, alone)}"
            rows[at] = replace(rows[at], blocked=rows[at].blocked or text)
        elif any(alone.get(entry) for entry in exceeded(quota, together)):
            text = f"quota {name} is too small for all workloads together: {lack(quota, together)}"
            rows[at] = replace(rows[at], doubts=(*rows[at].doubts, text))
    return rows


# --- nodes that an autoscaler adds ---


def pools(live: Occupancy, nodes: Sequence[NodeRoom]) -> list[NodePool]:
    """Read what the cluster autoscaler says of its node groups; a node of one shows what all are like.

    See https://github.com/kubernetes/autoscaler/tree/master/cluster-autoscaler/clusterstate/api.
    """
    if not live.autoscaler:
        return []
    from mlstack.yaml import read

    content = read.read_document(live.autoscaler, source="cluster-autoscaler-status").value
    groups = content.get("nodeGroups") if isinstance(content, Mapping) else None
    return list(_groups(groups or (), live, nodes))


def _groups(
    groups: Iterable[Mapping[str, Any]], live: Occupancy, nodes: Sequence[NodeRoom]
) -> Iterator[NodePool]:
    on_every_node = defaultdict(list)
    for pod in live.pods or ():
        owners = pod["metadata"].get("ownerReferences") or ()
        if any(owner.get("kind") == "DaemonSet" for owner in owners):
            on_every_node[pod["spec"].get("nodeName")].append(held(pod))
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
