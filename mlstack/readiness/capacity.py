"""Whether a cluster has room for pods: what can be said for certain before kube-scheduler has tried.

"fits now" is said of a pod only if the others cannot take its place wherever they go, as `placement` argues.

- Pods that a rolling update replaces count as gone from their nodes; in their place stand as many as may run
  at once of old and new ones, with the larger requests of both, on the nodes of either.
- Pods of a DaemonSet that comes are on every node that they may go to, where others are to fit for certain.
- A pod of higher priority that finds no place may displace others: what fits beside it only may fit.
- "never" looks at empty nodes, "does not fit now" at the most that could be placed of the workload alone.
- Pods that an operator makes may get containers that no file names: for them it stays at "may fit".
- What decides about places and is not looked at (`unknown`) makes the answer "not known".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal, NamedTuple, get_args

from mlstack.dataclass import Record
from mlstack.errors import ODD
from mlstack.names import Table
from mlstack.objects.kube_object import Identity, KubeObject
from mlstack.objects.references import PodTemplate, scaled_workload, templates
from mlstack.objects.resources import (
    Amounts,
    amount,
    is_gpu,
    is_host_port,
    is_selected,
    limits,
    quantity,
    requests,
    required_affinity,
    total,
    untolerated,
    written,
)
from mlstack.readiness import placement
from mlstack.readiness.placement import OF_CONDITIONS, NodeRoom, PodSet
from mlstack.readiness.rule import key_of, number

Verdict = Literal[
    "fits now",
    "fits after autoscaling",
    "may fit",
    "not known",
    "does not fit now",
    "blocked by quota",
    "never",
]
ORDER: tuple[Verdict, ...] = get_args(Verdict)
"""From the best to the worst: a workload is as its worst pods are."""
NO_ROOM: frozenset[Verdict] = frozenset({"does not fit now", "blocked by quota", "never"})
"""What is known to be refused or to wait."""


class NodePool(Record):
    """Nodes that an autoscaler may add."""

    name: str
    node: NodeRoom | None  # what one is like, as far as anything tells
    more: int  # how many may be added


class Fit(Record):
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
    lowest: int = 0,
) -> tuple[Fit, ...]:
    """Judge the pods of every object, all of them together and beside those that wait already.

    `nodes` are without the pods that are replaced, `lowest` is the lowest priority of those that run.
    """
    rivals = [*wanted, *waiting]
    daemons = [pods for pods in wanted if pods.is_per_node]
    grown = [pool for pool in pools if pool.more > 0]
    clusters: dict[frozenset[str], _Cluster] = {}  # by the labels that part nodes for the pods
    verdicts = []
    for pods in rivals:
        keys = placement.topologies(pods, rivals)
        if keys not in clusters:
            bare = placement.node_groups(nodes, rivals, keys)
            beside = [placement.with_daemons(node, daemons) for node in bare]
            full = placement.node_groups(beside, rivals, keys) if daemons else bare
            clusters[keys] = _Cluster(bare, full, lowest)
        verdicts.append(_verdict(pods, rivals, clusters[keys], grown))
    rows: dict[str, list[tuple[PodSet, Verdict, str]]] = {}
    for pods, (verdict, reason) in zip(wanted, verdicts, strict=False):
        doubt = _doubt(pods, rivals, verdicts) if verdict in ("fits now", "fits after autoscaling") else ""
        rows.setdefault(pods.object, []).append((pods, "may fit" if doubt else verdict, doubt or reason))
    return tuple(_row(parts) for parts in rows.values())


def _doubt(pods: PodSet, rivals: Sequence[PodSet], verdicts: Sequence[tuple[Verdict, str]]) -> str:
    for rival, (verdict, _) in zip(rivals, verdicts, strict=True):
        if verdict != "fits now" and _may_displace(rival, pods):
            name = f"{rival.object} ({rival.role})" if rival.role else rival.object
            return f"{name} has a higher priority, and may displace its pods"
    if pods.maker:
        return f"there is room for what it says, and the operator of {pods.maker} may add to its pods"
    return ""


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


class _Cluster(NamedTuple):
    """The nodes of a cluster, those that are alike for the pods together."""

    bare: Sequence[NodeRoom]
    beside: Sequence[NodeRoom]  # with the new pods on each that every node gets
    lowest: int  # priority of a pod on them


def _verdict(
    pods: PodSet, rivals: Sequence[PodSet], cluster: _Cluster, pools: Sequence[NodePool]
) -> tuple[Verdict, str]:
    if pods.blocked:
        return "blocked by quota", pods.blocked
    nodes = cluster.bare
    is_short = bool(nodes) and not pods.is_per_node and placement.most_on_nodes(pods, nodes) < pods.count
    if pods.placed_by:
        return "not known", "; ".join((pods.placed_by, *([_ruled_out(pods, nodes)] if is_short else ())))
    unseen = ", ".join(pool.name for pool in pools if pool.node is None)
    if unseen:
        unseen = f"an autoscaler may add nodes of {unseen}, and nothing tells what they are like"
    if not nodes:
        return "not known", "; ".join(pods.doubts) or unseen or "the cluster has no nodes"
    if pods.is_per_node:
        return _verdict_per_node(pods, rivals, cluster)
    most = min(sum(rival.count for rival in rivals), 1000)
    added = [replace(pool.node, count=min(pool.more, most)) for pool in pools if pool.node is not None]
    if not any(placement.fits_empty(pods, node) for node in (*nodes, *added)):
        text = _ruled_out(pods, [placement.emptied(node) for node in nodes], "has")
        return ("not known", f"{text}; {unseen}") if unseen else ("never", text)
    if not (is_short or pods.doubts) and placement.always_fits(pods, rivals, cluster.beside):
        return "fits now", ""
    growth = "an autoscaler may add " + ", ".join(f"{pool.more} nodes to {pool.name}" for pool in pools)
    text = f"{_ruled_out(pods, nodes)}; {growth}" if is_short and added else growth
    # Into which domain a node comes that is not there yet is not known.
    is_told = added and not (pods.doubts or pods.spreading or pods.alone_in)
    new = [placement.with_daemons(node, (row for row in rivals if row.is_per_node)) for node in added]
    keys = placement.topologies(pods, rivals)
    more = placement.node_groups([*cluster.beside, *new], rivals, keys) if added else []
    if is_told and placement.always_fits(pods, rivals, more):
        return "fits after autoscaling", text
    is_certain = is_short and not unseen and not (pods.spreading and added)
    if is_certain and placement.most_on_nodes(pods, [*nodes, *added]) < pods.count:
        return _without_room(pods, cluster, _ruled_out(pods, nodes))
    doubts = (*pods.doubts, *([unseen] if is_short and unseen else ()))
    if doubts:
        return "not known", "; ".join(doubts)
    in_some = "there is room, but not in every order in which pods may be placed"
    return "may fit", text if is_short else in_some


def _without_room(pods: PodSet, cluster: _Cluster, text: str) -> tuple[Verdict, str]:
    name, value = pods.priority
    if (name or (value or 0) > min(0, cluster.lowest)) and pods.spec.get("preemptionPolicy") != "Never":
        return "not known", f"{text}; its priority may displace other pods"
    if pods.maker == "TrainingJob" and cluster.lowest < 0:
        return "not known", f"{text}; trainers of other jobs may go for it"
    return "does not fit now", text


def _verdict_per_node(pods: PodSet, rivals: Sequence[PodSet], cluster: _Cluster) -> tuple[Verdict, str]:
    """Judge pods of which every node that they may go to gets one."""
    eligible = [node for node in cluster.bare if placement.is_eligible(pods, node)]
    if full := [node for node in eligible if placement.most_on_node(pods, node) < 1]:
        return _without_room(pods, cluster, _ruled_out(pods, full))
    if pods.doubts:
        return "not known", "; ".join(pods.doubts)
    # What its own pods take is taken off already; the others may all come to one node.
    others = [rival for rival in rivals if not rival.is_per_node]
    for node in (node for node in cluster.beside if placement.is_eligible(pods, node)):
        own = {**node.free, **{name: node.left(name) + n for name, n in pods.asked.items()}}
        if not placement.always_fits(pods, others, [replace(node, free=own, count=1, takers=None)]):
            return "may fit", f"other pods may fill node {node.place.name} first"
    return "fits now", ""


def _may_displace(rival: PodSet, pods: PodSet) -> bool:
    (name, value), (own_name, own_value) = rival.priority, pods.priority
    if value is not None and own_value is not None:
        return value > own_value
    return bool(name) and name != own_name


# --- what limits it, as kube-scheduler says it ---


def _ruled_out(pods: PodSet, nodes: Sequence[NodeRoom], verb: str = "has left") -> str:
    """Say why no node takes another one, once as many are placed as there is room for."""
    reasons: Counter[str] = Counter()
    short: dict[str, int] = {}
    there, full = placement.most_on_nodes(pods, nodes), placement.skewed_domains(pods, nodes)
    for node in nodes:
        for reason, resource in _against(pods, node, full):
            reasons[reason] += node.count
            if resource:
                short[resource] = max(short.get(resource, 0), node.left(resource))
    words = ", ".join(
        f"{count} {reason}" for reason, count in sorted(reasons.items(), key=lambda row: (-row[1], row[0]))
    )
    text = f"0/{sum(node.count for node in nodes)} nodes are available: {words}"
    if 0 < there < pods.count:
        text = f"room for {there} of {pods.count} pods, then {text}"
    for resource, most in short.items():
        if not is_host_port(resource) and resource != "pods":
            asks, has = written(resource, pods.asked[resource]), written(resource, max(most, 0))
            text += f"; a pod asks for {asks} {resource}, no node {verb} more than {has}"
    return text


def _against(pods: PodSet, node: NodeRoom, full: Container[str]) -> Iterator[tuple[str, str]]:
    """Give why a node takes none, or no more than fit it: words, and the resource where it is one.

    `full` are domains to which no more of these pods are spread.
    """
    spec = placement.with_daemon_tolerations(pods)
    taint = untolerated(spec, node.place)
    if taint is not None and taint.get("key") == f"{OF_CONDITIONS}unschedulable":
        yield "node(s) were unschedulable", ""
    elif taint is not None:
        value = f": {taint['value']}" if taint.get("value") else ""
        yield f"node(s) had untolerated taint {{{taint.get('key')}{value}}}", ""
    elif not is_selected(spec, node.place):
        yield "node(s) didn't match Pod's node affinity/selector", ""
    elif not node.is_ready:
        yield "node(s) were not ready", ""
    elif node.place.name in pods.shut:
        yield "node(s) didn't match pod anti-affinity rules", ""
    elif pods.spreading and node.place.labels.get(str(pods.spreading.get("topologyKey"))) in full:
        yield "node(s) didn't match pod topology spread constraints", ""
    else:
        yield from _lacking(pods, node)


def _lacking(pods: PodSet, node: NodeRoom) -> Iterator[tuple[str, str]]:
    """Give what a node lacks for another one once it holds as many as it can."""
    placed = max(0, placement.most_on_node(pods, node))
    names = [name for name, amount in pods.asked.items() if node.left(name) < (placed + 1) * amount]
    if not names:
        yield "node(s) didn't match pod anti-affinity rules", ""
    for name in names:
        if is_host_port(name):
            yield "node(s) didn't have free ports for the requested pod ports", name
        elif name == "pods":
            yield "Too many pods", name
        else:
            yield f"Insufficient {name}", "" if placed else name


# --- what objects take ---

# Labels that say which GPU a pod asks for: of GKE, NVIDIA's feature discovery, Karpenter on AWS, AKS.
_PRODUCTS = (
    "cloud.google.com/gke-accelerator",
    "nvidia.com/gpu.product",
    "karpenter.k8s.aws/instance-gpu-name",
    "kubernetes.azure.com/accelerator",
)
_ANY = "any product"


class Footprint(Record):
    """What objects take: at first, and at least and at most where controllers scale them."""

    now: Amounts = field(default_factory=dict)
    least: Amounts = field(default_factory=dict)
    most: Amounts = field(default_factory=dict)
    per_node: Amounts = field(default_factory=dict)  # what comes on top for each node of the cluster
    uncounted: tuple[str, ...] = ()  # objects that make pods nobody can count beforehand

    def more_than(self, other: Footprint) -> dict[str, int]:
        """Give by how much it is more at first than another, by amount; what is the same is left out."""
        names = {**self.now, **other.now}
        change = {name: self.now.get(name, 0) - other.now.get(name, 0) for name in names}
        return {name: value for name, value in change.items() if value}


def footprint(objects: Sequence[KubeObject]) -> Footprint:
    """Add up what objects take together; odd ones, which the API server refuses, are not counted."""
    scaled = dict(scaled_between(objects))
    parts: dict[str, list[Amounts]] = {"now": [], "least": [], "most": [], "per_node": []}
    uncounted = []
    for obj in objects:
        try:
            rows = None if key_of(obj.data) in UNCOUNTED else list(_taken(obj, scaled.get(obj.identity)))
        except ODD:
            rows = None
        if rows is None:
            uncounted.append(str(obj.identity))
        for name, amounts in rows or ():
            parts[name].append(amounts)
    sums = {name: total(*rows) for name, rows in parts.items()}
    return Footprint(
        **{name: {key: value for key, value in row.items() if value} for name, row in sums.items()},
        uncounted=tuple(uncounted),
    )


def _taken(obj: KubeObject, scaled: tuple[int, int] | None) -> Iterator[tuple[str, Amounts]]:
    """Give what an object takes, each part under the field of a Footprint that it counts in."""
    own, claims = _others(obj), _claims(obj)
    yield from (("now", own), ("least", own), ("most", own))
    for template in pods_of(obj):
        pod = {**_of_pod(template.spec), **claims}
        if template.is_per_node:
            yield "per_node", pod
            continue
        first = template.replicas
        least = first if template.least is None else template.least
        most = first if template.most is None else template.most
        if scaled is not None:
            least, most = scaled
            first = min(max(first, least), most)
        for name, count in (("now", first), ("least", least), ("most", most)):
            yield name, {key: value * count for key, value in pod.items()}


def pods_of(obj: KubeObject) -> tuple[PodTemplate, ...]:
    """Give the pods that an object makes, by its kind's rule, else by the templates that stand in it."""
    rule = PODS.get(key_of(obj.data))
    return templates(obj) if rule is None else tuple(rule(obj.data.get("spec") or {}))


def _of_pod(spec: Mapping[str, Any]) -> dict[str, int]:
    asked = {name: value for name, value in requests(spec).items() if not is_host_port(name)}
    count = {"pods": asked.pop("pods")}
    gpus = sum(value for name, value in asked.items() if is_gpu(name))
    selectors = {**_required(spec), **(spec.get("nodeSelector") or {})}
    product = next((str(selectors[label]) for label in _PRODUCTS if label in selectors), _ANY)
    return {
        **count,
        **{f"requests.{name}": value for name, value in asked.items()},
        **{f"limits.{name}": value for name, value in limits(spec).items()},
        **({f"gpus.{product}": gpus} if gpus else {}),
    }


def _required(spec: Mapping[str, Any]) -> dict[str, str]:
    terms = (required_affinity(spec) or {}).get("nodeSelectorTerms") or ()
    rows = [row for term in terms[:1] for row in term.get("matchExpressions") or ()]
    return {
        str(row.get("key")): str(row["values"][0])
        for row in rows
        if row.get("operator") == "In" and len(row.get("values") or ()) == 1
    }


def _others(obj: KubeObject) -> dict[str, int]:
    spec = obj.data.get("spec") or {}
    if obj.group == "" and obj.kind == "PersistentVolumeClaim":
        return _claim(spec)
    if obj.group == "" and obj.kind == "Service" and spec.get("type") == "LoadBalancer":
        return {"loadbalancers": 1}
    return {}


def _claims(obj: KubeObject) -> dict[str, int]:
    if (obj.group, obj.kind) != ("apps", "StatefulSet"):
        return {}
    return total(
        *(_claim(row.get("spec") or {}) for row in obj.data["spec"].get("volumeClaimTemplates") or ())
    )


def _claim(spec: Mapping[str, Any]) -> dict[str, int]:
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    return {f"storage.{spec.get('storageClassName') or ''}": amount("storage", str(size))} if size else {}


def scaled_between(objects: Iterable[KubeObject]) -> Iterator[tuple[Identity, tuple[int, int]]]:
    """Give between which counts HorizontalPodAutoscalers of the objects hold which workloads."""
    for obj in objects:
        if obj.kind == "HorizontalPodAutoscaler" and (workload := scaled_workload(obj.data)) is not None:
            most = obj.data["spec"].get("maxReplicas")
            if isinstance(most, int):
                yield workload, (number(obj.data["spec"], "minReplicas", 1), most)


# --- the pods of kinds whose controller makes other ones than stand in them ---

UNCOUNTED = frozenset({"argoproj.io/Workflow", "argoproj.io/CronWorkflow", "argoproj.io/WorkflowTemplate"})
"""Kinds that make pods which nobody can count beforehand: which steps run at once shows while they run."""

PodsRule = Callable[[Mapping[str, Any]], Iterable[PodTemplate]]  # from the specification of an object

PODS: Table[PodsRule] = Table("rule of pods")
pods_rule = PODS.register


@pods_rule("sparkoperator.k8s.io/SparkApplication", "sparkoperator.k8s.io/ScheduledSparkApplication")
def pods_of_spark(spec: Mapping[str, Any]) -> Iterator[PodTemplate]:
    """A driver, and executors, between their bounds where Spark allocates them itself."""
    spec = spec.get("template") or spec
    share = 4 if spec.get("type") in ("Python", "R") else 1
    for role in ("driver", "executor"):
        part = spec.get(role) or {}
        asked = {"cpu": number(part, "cores", 1), "memory": _spark_memory(part, share)}
        if gpu := part.get("gpu"):
            asked[str(gpu.get("name"))] = number(gpu, "quantity")
        count = number(part, "instances", 1) if role == "executor" else 1
        row = PodTemplate(role, count, {**part, "containers": [{"resources": {"requests": asked}}]})
        allocation = spec.get("dynamicAllocation") or {}
        if role == "executor" and allocation.get("enabled"):
            least = number(allocation, "minExecutors")
            row = row._replace(least=least, most=number(allocation, "maxExecutors", max(least, count)))
        yield row


def _spark_memory(part: Mapping[str, Any], share: int) -> int:
    """Give the bytes of memory that Spark asks for: its heap, and a tenth on top (four of other languages).

    See spark.kubernetes.memoryOverheadFactor; the overhead is 384 MiB at least.
    """
    heap, overhead = (_spark_bytes(str(part.get(name) or "")) for name in ("memory", "memoryOverhead"))
    heap = heap or 2**30
    return heap + (overhead or max(heap * share // 10, 384 * 2**20))


def _spark_bytes(text: str) -> int:
    """Read an amount as Spark does: `2g` is 2 GiB, a number alone is MiB."""
    number_text = text.lower().removesuffix("b").removesuffix("i")
    units = {"k": "Ki", "m": "Mi", "g": "Gi", "t": "Ti"}
    unit = units.get(number_text[-1:])
    return int(quantity(f"{number_text[:-1]}{unit}" if unit else f"{number_text or 0}Mi") or 0)


@pods_rule("serving.kserve.io/InferenceService")
def pods_of_inference_service(spec: Mapping[str, Any]) -> Iterator[PodTemplate]:
    """Predictor, transformer and explainer, each between its bounds; a model is a container."""
    for role in ("predictor", "transformer", "explainer"):
        if part := spec.get(role):
            least = number(part, "minReplicas", 1)
            most = max(least, number(part, "maxReplicas", least))
            models = [model for model in part.values() if isinstance(model, Mapping) and "resources" in model]
            yield PodTemplate(
                role, least, {**part, "containers": part.get("containers") or models}, least, most
            )


@pods_rule("ray.io/RayCluster", "ray.io/RayJob", "ray.io/RayService")
def pods_of_ray(spec: Mapping[str, Any]) -> Iterator[PodTemplate]:
    """A head, and workers of each group, between their bounds where Ray's autoscaler runs beside the head."""
    spec = spec.get("rayClusterSpec") or spec.get("rayClusterConfig") or spec
    if head := (spec.get("headGroupSpec") or {}).get("template"):
        yield PodTemplate("head", 1, head.get("spec") or {})
    for group in spec.get("workerGroupSpecs") or ():
        hosts, pod = number(group, "numOfHosts", 1), (group.get("template") or {}).get("spec") or {}
        count, least = (number(group, name) for name in ("replicas", "minReplicas"))
        row = PodTemplate(str(group.get("groupName")), max(count, least) * hosts, pod)
        if spec.get("enableInTreeAutoscaling"):
            row = row._replace(least=least * hosts, most=number(group, "maxReplicas", count) * hosts)
        yield row


@pods_rule("leaderworkerset.x-k8s.io/LeaderWorkerSet")
def pods_of_leader_worker_set(spec: Mapping[str, Any]) -> Iterator[PodTemplate]:
    """Each group has one leader, by default a worker too, and as many workers as make up its size."""
    group = spec.get("leaderWorkerTemplate") or {}
    groups, worker = number(spec, "replicas", 1), group.get("workerTemplate") or {}
    leader = group.get("leaderTemplate") or worker
    yield PodTemplate("leader", groups, leader.get("spec") or {})
    yield PodTemplate("worker", groups * (number(group, "size", 1) - 1), worker.get("spec") or {})


@pods_rule("trainer.kubeflow.org/TrainJob")
def pods_of_train_job(spec: Mapping[str, Any]) -> Iterator[PodTemplate]:
    """As many nodes as it asks for; what it leaves to its runtime counts as one pod that asks for nothing."""
    trainer = spec.get("trainer") or {}
    container = {"name": "node", "resources": trainer.get("resourcesPerNode") or {}}
    yield PodTemplate("node", number(trainer, "numNodes", 1), {"containers": [container]})


@pods_rule("kubeflow.org/PyTorchJob")
def pods_of_pytorch_job(spec: Mapping[str, Any]) -> Iterator[PodTemplate]:
    """Workers of an elastic job come and go between its bounds."""
    elastic = spec.get("elasticPolicy") or {}
    for role, part in (spec.get("pytorchReplicaSpecs") or {}).items():
        count = number(part, "replicas", 1)
        row = PodTemplate(role, count, (part.get("template") or {}).get("spec") or {})
        if elastic and role == "Worker":
            least, most = (number(elastic, f"{end}Replicas", count) for end in ("min", "max"))
            row = row._replace(least=least, most=most)
        yield row


# What a TrainingJob says of all its pods as a pod does; and what its master asks for where it does not say.
_OF_ELASTIC_PODS = (
    "imagePullSecrets runtimeClassName schedulerName securityContext serviceAccountName tolerations volumes"
)
_ELASTIC_MASTER = {"requests": {"cpu": "1", "memory": "500Mi"}, "limits": {"cpu": "2", "memory": "1Gi"}}


@pods_rule("paddlepaddle.org/TrainingJob")
def pods_of_elastic_job(spec: Mapping[str, Any]) -> Iterator[PodTemplate]:
    """Trainers between their bounds, as many servers as are asked for, and a master unless it is off."""
    shared = {name: spec[name] for name in _OF_ELASTIC_PODS.split() if name in spec}
    selector = spec.get("NodeSelector") or spec.get("nodeSelector") or {}
    for role in ("trainer", "pserver", "master"):
        part = spec.get(role) or {}
        least, most = (
            number(part, f"{end}-instance", number(part, f"{end}Instance")) for end in ("min", "max")
        )
        if role == "master":
            least = int(part.get("enabled") is not False)
        if role == "trainer" and spec.get("scaling") == "Manual":
            least = most
        resources = part.get("resources") or (_ELASTIC_MASTER if role == "master" else {})
        image = spec.get("image") or "paddlepaddle/paddlecloud-job"
        pod = {
            **shared,
            "nodeSelector": {**selector, **(part.get("nodeSelector") or {})},
            "containers": [{"name": role, "image": image, "resources": resources}],
            **{name: part[name] for name in ("priorityClassName",) if name in part},
        }
        yield PodTemplate(role, least, pod, least, max(least, most) if role == "trainer" else least)
