"""What stands in objects: the other objects that they name and need, their pod templates, how pods ended."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

from mlstack.objects.kube_object import Data, Identity, Kind, Kinds, KubeObject, group_of

RBAC = "rbac.authorization.k8s.io"
ADMISSION = "admissionregistration.k8s.io"
_WRITES = {"*", "CREATE", "UPDATE"}

# Group, kind and scope of what a field (`[]` stands for every item of a list) names.
_Named = tuple[str, str, bool]
_Row = tuple[str, *_Named]
_STORAGE_CLASS = ("storage.k8s.io", "StorageClass", False)
_SECRET = ("", "Secret", True)
_CONFIG_MAP = ("", "ConfigMap", True)

_LEAVES = frozenset((str, int, bool, float, type(None)))
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_OF_PODS: tuple[_Row, ...] = (
    ("serviceAccountName", "", "ServiceAccount", True),
    ("priorityClassName", "scheduling.k8s.io", "PriorityClass", False),
    ("runtimeClassName", "node.k8s.io", "RuntimeClass", False),
    ("imagePullSecrets[].name", *_SECRET),
    ("volumes[].configMap.name", *_CONFIG_MAP),
    ("volumes[].secret.secretName", *_SECRET),
    ("volumes[].persistentVolumeClaim.claimName", "", "PersistentVolumeClaim", True),
    ("volumes[].projected.sources[].configMap.name", *_CONFIG_MAP),
    ("volumes[].projected.sources[].secret.name", *_SECRET),
    *(
        (f"{containers}[].{field}.name", *kind)
        for containers in _CONTAINERS
        for field, kind in (
            ("envFrom[].configMapRef", _CONFIG_MAP),
            ("envFrom[].secretRef", _SECRET),
            ("env[].valueFrom.configMapKeyRef", _CONFIG_MAP),
            ("env[].valueFrom.secretKeyRef", _SECRET),
        )
    ),
)
_CONFIGS = tuple(row for row in _OF_PODS if row[1:] in (_SECRET, _CONFIG_MAP) and "PullSecrets" not in row[0])
_OF_CLAIMS: tuple[_Row, ...] = (
    ("spec.storageClassName", *_STORAGE_CLASS),
    ("spec.volumeName", "", "PersistentVolume", False),
)
_OF_KINDS: Mapping[tuple[str, str], tuple[_Row, ...]] = {
    ("", "PersistentVolumeClaim"): _OF_CLAIMS,
    ("", "PersistentVolume"): _OF_CLAIMS,
    ("apps", "StatefulSet"): (
        ("spec.serviceName", "", "Service", True),
        ("spec.volumeClaimTemplates[].spec.storageClassName", *_STORAGE_CLASS),
        ("spec.volumeClaimTemplates[].spec.volumeName", "", "PersistentVolume", False),
    ),
    ("networking.k8s.io", "Ingress"): (
        ("spec.ingressClassName", "networking.k8s.io", "IngressClass", False),
    ),
    (ADMISSION, "ValidatingAdmissionPolicyBinding"): (
        ("spec.policyName", ADMISSION, "ValidatingAdmissionPolicy", False),
    ),
}


def references(manifest: KubeObject) -> Iterator[Identity]:
    """Give what an object names, whether or not it exists."""
    namespace = manifest.namespace
    if namespace:
        yield Identity("", "Namespace", "", namespace)
    yield from _named(manifest.data, _OF_KINDS.get((manifest.group, manifest.kind), ()), namespace)
    yield from _named_otherwise(manifest, namespace)
    for spec in _pod_specs(manifest.data):
        yield from _named(spec, _OF_PODS, namespace)


def _named(data: Data, rows: tuple[_Row, ...], namespace: str) -> Iterator[Identity]:
    for name, (group, kind, is_namespaced) in _values(data, _by_step(rows)):
        yield Identity(group, kind, namespace if is_namespaced else "", name)


@functools.cache
def _by_step(rows: tuple[_Row, ...]) -> dict[str, Any]:
    """Give rows as a tree of the steps of their fields, so that each part of an object is looked at once."""
    tree: dict[str, Any] = {}
    for field, *named in rows:
        *steps, last = field.split(".")
        functools.reduce(lambda inner, step: inner.setdefault(step, {}), steps, tree)[last] = tuple(named)
    return tree


def _named_otherwise(manifest: KubeObject, namespace: str) -> Iterator[Identity]:
    """Give what is named by more than a name: with its kind, group or namespace, or in an annotation."""
    data = manifest.data
    match manifest.group, manifest.kind:
        case (group, "RoleBinding" | "ClusterRoleBinding") if group == RBAC:
            role = _map(data, "roleRef")
            kind = str(role.get("kind"))
            yield Identity(RBAC, kind, namespace if kind == "Role" else "", str(role.get("name")))
            for subject in _maps(data.get("subjects")):
                if subject.get("kind") == "ServiceAccount":
                    where = str(subject.get("namespace") or namespace)
                    yield Identity("", "ServiceAccount", where, str(subject.get("name")))
        case "", "Secret":
            name = manifest.annotations.get("kubernetes.io/service-account.name")
            if name:
                yield Identity("", "ServiceAccount", namespace, str(name))
        case "autoscaling", "HorizontalPodAutoscaler":
            target = _map(_map(data, "spec"), "scaleTargetRef")
            group = group_of(str(target.get("apiVersion") or ""))
            yield Identity(group, str(target.get("kind")), namespace, str(target.get("name")))
        case "apiregistration.k8s.io", "APIService":
            service = _map(_map(data, "spec"), "service")
            if service:
                yield Identity("", "Service", str(service.get("namespace")), str(service.get("name")))


def _pod_specs(content: Any) -> Iterator[Data]:
    """Give every part of an object that says how a pod is made: workloads and training jobs alike."""
    return (spec for spec, _ in _pods(content, {}))


def is_pod_spec(content: Any) -> bool:
    """Tell whether a part of an object says how a pod is made."""
    is_map = content.__class__ is dict or isinstance(content, Mapping)
    containers = content.get("containers") if is_map else None
    return isinstance(containers, list) and bool(containers) and isinstance(containers[0], Mapping)


def read_by_pods(manifest: KubeObject) -> Iterator[Identity]:
    """Give the ConfigMaps and Secrets that the pods of an object read, whether or not they exist."""
    for spec in _pod_specs(manifest.data):
        yield from _named(spec, _CONFIGS, manifest.namespace)


def read_once(manifest: KubeObject) -> Iterator[Identity]:
    """Give those of them that a pod reads when it starts alone: as variables, or as a file of a `subPath`."""
    for spec in _pod_specs(manifest.data):
        mounts = [
            mount
            for part in _CONTAINERS
            for row in spec.get(part) or ()
            for mount in row.get("volumeMounts") or ()
        ]
        fixed = {mount.get("name") for mount in mounts if mount.get("subPath") or mount.get("subPathExpr")}
        volumes = [volume for volume in spec.get("volumes") or () if volume.get("name") in fixed]
        yield from _named({**spec, "volumes": volumes}, _CONFIGS, manifest.namespace)


def pod_labels(content: Any) -> Iterator[Mapping[str, str]]:
    """Give the labels of every pod an object makes."""
    return (metadata.get("labels") or {} for _, metadata in _pods(content, {}) if metadata)


def _pods(content: Any, metadata: Data) -> Iterator[tuple[Data, Data]]:
    """Give every part that says how a pod is made, and the metadata beside it where it is a `spec`."""
    if isinstance(content, list):
        for part in content:
            if part.__class__ is not str:
                yield from _pods(part, {})
    elif content.__class__ is dict or isinstance(content, Mapping):
        if is_pod_spec(content):
            yield content, metadata
            return
        for key, part in content.items():
            if part.__class__ not in _LEAVES:
                yield from _pods(part, _map(content, "metadata") if key == "spec" else {})


def scaled_workload(data: Data) -> Identity | None:
    """Read what an object scales: a HorizontalPodAutoscaler, or a ScaledObject of KEDA; None for others.

    Deployment is what KEDA scales where the kind is not said.
    """
    kind, group = str(data.get("kind", "")), group_of(str(data.get("apiVersion", "")))
    if (group, kind) not in (("autoscaling", "HorizontalPodAutoscaler"), ("keda.sh", "ScaledObject")):
        return None
    spec = data.get("spec")
    target = spec.get("scaleTargetRef") if isinstance(spec, Mapping) else None
    if not isinstance(target, Mapping) or not target.get("name"):
        return None
    usual = ("apps/v1", "Deployment") if group == "keda.sh" else ("", "")
    return Identity(
        group_of(str(target.get("apiVersion") or usual[0])),
        str(target.get("kind") or usual[1]),
        str((data.get("metadata") or {}).get("namespace") or ""),
        str(target["name"]),
    )


# --- webhook configurations: which Services must answer, and for which objects the API server asks them


def is_webhook(identity: Identity) -> bool:
    """Tell whether an object makes the API server ask somebody else before it writes."""
    return identity.group == ADMISSION and identity.kind.endswith("WebhookConfiguration")


def services(webhooks: KubeObject) -> tuple[Identity, ...]:
    """Give the Services without which the API server refuses what a webhook configuration asks for.

    Webhooks that are named by address, and those whose failure is ignored, need none.
    """
    configs = (_map(_map(webhook, "clientConfig"), "service") for webhook in _strict(webhooks))
    named = (Identity("", "Service", str(to.get("namespace")), str(to.get("name"))) for to in configs if to)
    return tuple(dict.fromkeys(named))


def intercepts(webhooks: KubeObject, manifest: KubeObject, kinds: Kinds) -> bool:
    """Tell whether the API server asks one of some webhooks before it writes a custom resource of a run.

    Objects of built-in kinds are left out on purpose: what a webhook itself needs in order to start is
    made of them.
    """
    if is_webhook(manifest.identity) or Kinds.builtin().lookup(manifest.api_version, manifest.kind):
        return False
    kind = kinds.lookup(manifest.api_version, manifest.kind)
    if kind is None:
        return False
    for webhook in _strict(webhooks):
        labels = _map(webhook, "objectSelector").get("matchLabels") or {}
        if all(manifest.labels.get(key) == value for key, value in labels.items()) and any(
            _covers(rule, kind) for rule in _maps(webhook.get("rules"))
        ):
            return True
    return False


def _strict(webhooks: KubeObject) -> Iterator[Data]:
    listed = _maps(webhooks.data.get("webhooks")) if is_webhook(webhooks.identity) else ()
    return (webhook for webhook in listed if webhook.get("failurePolicy", "Fail") == "Fail")


def _covers(rule: Data, kind: Kind) -> bool:
    resources = {str(name) for name in rule.get("resources") or () if "/" not in str(name)}
    return bool(
        _WRITES & set(rule.get("operations") or ())
        and {"*", kind.group} & set(rule.get("apiGroups") or ())
        and {"*", kind.plural} & resources
    )


def _values(data: Any, tree: Mapping[str, Any]) -> Iterator[tuple[str, _Named]]:
    """Give the names at the fields of a tree of steps, of every item where a step ends with `[]`."""
    if data.__class__ is not dict and not isinstance(data, Mapping):
        return
    for step, below in tree.items():
        is_list = step[-2:] == "[]"
        inner = data.get(step[:-2] if is_list else step)
        if not inner:
            continue
        if below.__class__ is tuple:
            yield str(inner), below
        elif not is_list:
            yield from _values(inner, below)
        elif isinstance(inner, list):
            for item in inner:
                yield from _values(item, below)


def _map(data: Data, key: str) -> Data:
    inner = data.get(key)
    return inner if isinstance(inner, Mapping) else {}


def _maps(items: Any) -> Iterator[Data]:
    return (item for item in (items if isinstance(items, list) else ()) if isinstance(item, Mapping))


# --- the pod templates in objects of any kind: what runs, and how many times ---


_UNSAID = frozenset({"spec", "template", "jobTemplate"})  # parts of a path that tell nobody anything
_COUNTS = ("replicas", "parallelism", "size", "parallelTrialCount")
_NAMES = ("name", "groupName")


class PodTemplate(NamedTuple):
    """One template of pods in an object."""

    role: str  # where it stands, as far as that says anything: `Worker`; empty for the only one
    replicas: int  # at first; of each node where there is one a node
    spec: Mapping[str, Any]
    least: int | None = None  # where a controller scales it by itself: between these
    most: int | None = None
    is_per_node: bool = False
    metadata: Mapping[str, Any] = {}
    keys: tuple[str | int, ...] = ()  # the way to its spec in the object

    @property
    def containers(self) -> tuple[Mapping[str, Any], ...]:
        """Give its containers, those that start before the others first."""
        lists = (self.spec.get(name) or () for name in ("initContainers", "containers"))
        return tuple(container for listed in lists for container in listed if isinstance(container, Mapping))


def templates(obj: KubeObject) -> tuple[PodTemplate, ...]:
    """Give the pod templates of an object, in the order in which they stand.

    Of templates within templates, as the Jobs of a JobSet have, the counts are multiplied.
    """
    rows = list(_templates(obj.data, ()))
    rows = rows if len(rows) > 1 else [row._replace(role="") for row in rows]
    return tuple(row._replace(is_per_node=obj.kind == "DaemonSet") for row in rows)


def _templates(
    value: Any, path: tuple[str, ...], count: int = 1, keys: tuple[str | int, ...] = ()
) -> Iterator[PodTemplate]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            names = [item[name] for name in _NAMES if item.get(name)] if isinstance(item, Mapping) else []
            yield from _templates(item, (*path, *map(str, names[:1])), count, (*keys, index))
    if not isinstance(value, Mapping):
        return
    count *= _count(value)
    for key, inner in value.items():
        if key == "spec" and is_pod_spec(inner):
            said = [part for part in path if part not in _UNSAID]
            metadata = value.get("metadata")
            metadata = metadata if isinstance(metadata, Mapping) else {}
            yield PodTemplate(said[-1] if said else "", count, inner, metadata=metadata, keys=(*keys, key))
        else:
            yield from _templates(inner, (*path, str(key)), count, (*keys, str(key)))


def _count(value: Mapping[str, Any]) -> int:
    """Give how many there are at once of what stands below a part; a host of a Ray worker is a pod."""
    counts = [value[name] for name in _COUNTS if isinstance(value.get(name), int)][:1]
    if counts and isinstance(completions := value.get("completions"), int):
        counts = [min(counts[0], completions)]
    hosts = value.get("numOfHosts")
    return prod((*counts, hosts if isinstance(hosts, int) else 1))


# What a kubelet or the control plane writes as the reason of a pod that it ended or turned away, not the pod
# itself (kubernetes/pkg/kubelet: eviction, preemption, nodeshutdown, lifecycle, cm). What a kubelet refuses
# for the settings of the pod, as `SysctlForbidden`, is not among them: another try at once fares no better.
_ENDED_BY_OTHERS = (
    "Evicted InvalidNodeInfo NodeAffinity NodeLost NodeName NodePorts NodeShutdown NodeUnschedulable"
    " Preempted Preempting SMTAlignmentError Shutdown TaintToleration Terminated TopologyAffinityError"
    " UnexpectedAdmissionError UnexpectedPredicateFailureType UnknownReason VolumeAttachmentLimitExceeded"
)


def is_ended_by_others(reason: str) -> bool:
    """Tell by its reason whether a pod that failed is not at fault; `OutOfcpu`: its node is short of that."""
    return reason in _ENDED_BY_OTHERS.split() or reason.startswith("OutOf")
