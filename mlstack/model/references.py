"""Which other objects an object names in its content: what must be there before it can work."""

from collections.abc import Iterator, Mapping
from typing import Any

from mlstack.model.objects import Identity, KubeObject, group_of

Data = Mapping[str, Any]

_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"


def references(found: KubeObject) -> Iterator[Identity]:
    """Give what an object names, whether or not it exists."""
    namespace = found.namespace
    if namespace:
        yield Identity("", "Namespace", "", namespace)
    reader = _READERS.get((found.group, found.kind))
    if reader is not None:
        yield from reader(found.data, namespace)
    for spec in pod_specs(found.data):
        yield from _of_pod(spec, namespace)


def pod_specs(content: Any) -> Iterator[Data]:
    """Give every part of an object that says how a pod is made: workloads and training jobs alike."""
    if isinstance(content, Mapping):
        containers = content.get("containers")
        if isinstance(containers, list) and containers and isinstance(containers[0], Mapping):
            yield content
        else:
            for part in content.values():
                yield from pod_specs(part)
    elif isinstance(content, list):
        for part in content:
            yield from pod_specs(part)


def pod_labels(content: Any) -> Iterator[Mapping[str, str]]:
    """Give the labels of every pod an object makes."""
    if isinstance(content, Mapping):
        spec, metadata = content.get("spec"), content.get("metadata")
        if isinstance(spec, Mapping) and isinstance(metadata, Mapping) and spec.get("containers"):
            yield metadata.get("labels") or {}
        else:
            for part in content.values():
                yield from pod_labels(part)
    elif isinstance(content, list):
        for part in content:
            yield from pod_labels(part)


def _of_pod(spec: Data, namespace: str) -> Iterator[Identity]:
    if spec.get("serviceAccountName"):
        yield Identity("", "ServiceAccount", namespace, str(spec["serviceAccountName"]))
    if spec.get("priorityClassName"):
        yield Identity("scheduling.k8s.io", "PriorityClass", "", str(spec["priorityClassName"]))
    if spec.get("runtimeClassName"):
        yield Identity("node.k8s.io", "RuntimeClass", "", str(spec["runtimeClassName"]))
    for one in _maps(spec, "imagePullSecrets"):
        yield Identity("", "Secret", namespace, str(one.get("name")))
    for volume in _maps(spec, "volumes"):
        yield from _of_volume(volume, namespace)
        for source in _maps(_map(volume, "projected"), "sources"):
            yield from _of_volume(source, namespace)
    for part in ("initContainers", "containers", "ephemeralContainers"):
        for container in _maps(spec, part):
            yield from _of_container(container, namespace)


def _of_volume(volume: Data, namespace: str) -> Iterator[Identity]:
    named = (
        ("ConfigMap", _map(volume, "configMap").get("name")),
        ("Secret", _map(volume, "secret").get("secretName") or _map(volume, "secret").get("name")),
        ("PersistentVolumeClaim", _map(volume, "persistentVolumeClaim").get("claimName")),
    )
    yield from (Identity("", kind, namespace, str(name)) for kind, name in named if name)


def _of_container(container: Data, namespace: str) -> Iterator[Identity]:
    for source in _maps(container, "envFrom"):
        yield from _named(source, namespace, configMapRef="ConfigMap", secretRef="Secret")
    for variable in _maps(container, "env"):
        found = _map(variable, "valueFrom")
        yield from _named(found, namespace, configMapKeyRef="ConfigMap", secretKeyRef="Secret")


def _named(source: Data, namespace: str, **kinds: str) -> Iterator[Identity]:
    for key, kind in kinds.items():
        name = _map(source, key).get("name")
        if name:
            yield Identity("", kind, namespace, str(name))


def _of_binding(data: Data, namespace: str) -> Iterator[Identity]:
    role = _map(data, "roleRef")
    kind = str(role.get("kind"))
    yield Identity(_RBAC, kind, namespace if kind == "Role" else "", str(role.get("name")))
    for subject in _maps(data, "subjects"):
        if subject.get("kind") == "ServiceAccount":
            where = str(subject.get("namespace") or namespace)
            yield Identity("", "ServiceAccount", where, str(subject.get("name")))


def _of_claim(data: Data, namespace: str) -> Iterator[Identity]:
    spec = _map(data, "spec")
    if spec.get("storageClassName"):
        yield Identity("storage.k8s.io", "StorageClass", "", str(spec["storageClassName"]))
    if spec.get("volumeName"):
        yield Identity("", "PersistentVolume", "", str(spec["volumeName"]))


def _of_stateful_set(data: Data, namespace: str) -> Iterator[Identity]:
    spec = _map(data, "spec")
    if spec.get("serviceName"):
        yield Identity("", "Service", namespace, str(spec["serviceName"]))
    for template in _maps(spec, "volumeClaimTemplates"):
        yield from _of_claim(template, namespace)


def _of_autoscaler(data: Data, namespace: str) -> Iterator[Identity]:
    target = _map(_map(data, "spec"), "scaleTargetRef")
    group = group_of(str(target.get("apiVersion") or ""))
    yield Identity(group, str(target.get("kind")), namespace, str(target.get("name")))


def _of_ingress(data: Data, namespace: str) -> Iterator[Identity]:
    name = _map(data, "spec").get("ingressClassName")
    if name:
        yield Identity("networking.k8s.io", "IngressClass", "", str(name))


def _of_secret(data: Data, namespace: str) -> Iterator[Identity]:
    annotations = _map(_map(data, "metadata"), "annotations")
    name = annotations.get("kubernetes.io/service-account.name")
    if name:
        yield Identity("", "ServiceAccount", namespace, str(name))


def _of_policy_binding(data: Data, namespace: str) -> Iterator[Identity]:
    name = str(_map(data, "spec").get("policyName"))
    yield Identity(_ADMISSION, "ValidatingAdmissionPolicy", "", name)


def _of_extension(data: Data, namespace: str) -> Iterator[Identity]:
    service = _map(_map(data, "spec"), "service")
    if service:
        yield Identity("", "Service", str(service.get("namespace")), str(service.get("name")))


_READERS = {
    (_RBAC, "RoleBinding"): _of_binding,
    (_RBAC, "ClusterRoleBinding"): _of_binding,
    ("", "PersistentVolumeClaim"): _of_claim,
    ("", "PersistentVolume"): _of_claim,
    ("", "Secret"): _of_secret,
    ("apps", "StatefulSet"): _of_stateful_set,
    ("autoscaling", "HorizontalPodAutoscaler"): _of_autoscaler,
    ("networking.k8s.io", "Ingress"): _of_ingress,
    ("apiregistration.k8s.io", "APIService"): _of_extension,
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): _of_policy_binding,
}


def _map(data: Data, key: str) -> Data:
    found = data.get(key)
    return found if isinstance(found, Mapping) else {}


def _maps(data: Data, key: str) -> Iterator[Data]:
    found = data.get(key)
    yield from (one for one in (found if isinstance(found, list) else ()) if isinstance(one, Mapping))
