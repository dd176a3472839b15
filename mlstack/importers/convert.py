"""Objects in API versions that no server serves any more, rewritten to those that are.

The rules are those of the deprecation guide of Kubernetes and, for training jobs, of the training operator.
What an old default meant is kept where it can be written (selectors, path types); each rule that was used is
named once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any

from mlstack.importers.plan import Data
from mlstack.objects.kube_object import Kinds, group_of

_Change = Callable[[dict[str, Any]], None]
_Known = tuple[str, "_Change | None"]


def converted(data: Data) -> tuple[Data, str]:
    """Give an object in a version that is served, and what was done; nothing is said of one that stays."""
    before, kind = str(data.get("apiVersion", "")), str(data.get("kind", ""))
    rule = _RULES.get((before, kind))
    if rule is None:
        return data, ""
    after, change = rule
    result = deepcopy(dict(data)) | {"apiVersion": after}
    if change is not None:
        try:
            change(result)
        except (AttributeError, KeyError, TypeError, ValueError):  # no object of that kind: validation says
            return data, ""
    return result, f"{before} {kind} is {after} now"


def is_served(data: Data) -> bool:
    """Tell whether a server of today serves the version of an object; of unknown groups that is assumed."""
    version, kind = str(data.get("apiVersion", "")), str(data.get("kind", ""))
    known = Kinds.builtin()
    if (version, kind) in _RULES or group_of(version) == "extensions":
        return False
    return known.lookup(version, kind) is not None or not known.of_group(group_of(version))


def told_unserved(objects: Iterable[Data], *, has_converted: bool) -> list[str]:
    """Name the versions that no server serves, with what to do; each once."""
    counts: dict[str, int] = {}
    for data in objects:
        if not is_served(data):
            name = f"{data['apiVersion']} {data['kind']}"
            counts[name] = counts.get(name, 0) + 1
    advice = "nothing takes its place: remove it" if has_converted else "--convert rewrites what can be"
    return [f"no server serves {name} any more ({count}): {advice}" for name, count in sorted(counts.items())]


# --- workloads ---

_WORKLOADS = ("Deployment", "DaemonSet", "ReplicaSet", "StatefulSet")


def _spec(data: dict[str, Any]) -> dict[str, Any]:
    spec = data.get("spec")
    return spec if isinstance(spec, dict) else {}


def _workload(data: dict[str, Any]) -> None:
    """Write the selector that the old versions took from the labels of the pods."""
    spec = _spec(data)
    for gone in ("rollbackTo", "templateGeneration"):
        spec.pop(gone, None)
    template = spec.get("template")
    if not isinstance(template, dict):
        return
    metadata = template.get("metadata")
    if not isinstance(metadata, dict):
        metadata = template["metadata"] = {}
    labels = metadata.get("labels") or {"app": (data.get("metadata") or {}).get("name", "")}
    metadata["labels"] = labels
    if not spec.get("selector"):
        spec["selector"] = {"matchLabels": dict(labels)}


# --- networks ---


def _ingress(data: dict[str, Any]) -> None:
    spec = _spec(data)
    if isinstance(backend := spec.pop("backend", None), Mapping):
        spec["defaultBackend"] = _backend(backend)
    annotations = (data.get("metadata") or {}).get("annotations") or {}
    if isinstance(name := annotations.get("kubernetes.io/ingress.class"), str) and name:
        spec.setdefault("ingressClassName", name)
        del annotations["kubernetes.io/ingress.class"]  # both at once are refused
    for rule in spec.get("rules") or ():
        for path in ((rule or {}).get("http") or {}).get("paths") or ():
            path.setdefault("pathType", "ImplementationSpecific")
            if isinstance(path.get("backend"), Mapping):
                path["backend"] = _backend(path["backend"])


def _backend(backend: Mapping[str, Any]) -> dict[str, Any]:
    if "serviceName" not in backend:
        return dict(backend)
    port = backend.get("servicePort")
    number = int(port) if isinstance(port, str) and port.isdigit() else port
    named = {"number": number} if isinstance(number, int) else {"name": number}
    rest = {key: value for key, value in backend.items() if key not in ("serviceName", "servicePort")}
    return {**rest, "service": {"name": backend["serviceName"], "port": named}}


# --- definitions, webhooks, rights, scaling ---


def _definition(data: dict[str, Any]) -> None:
    """Give each version its schema, columns and subresources; without a schema anything is kept."""
    spec = _spec(data)
    versions = spec.get("versions") or [{"name": spec.get("version"), "served": True, "storage": True}]
    spec.pop("version", None)
    keeps = spec.pop("preserveUnknownFields", True)
    validation, columns = spec.pop("validation", None), spec.pop("additionalPrinterColumns", None)
    subresources = spec.pop("subresources", None)
    for version in versions:
        schema = version.setdefault("schema", deepcopy(validation) or {"openAPIV3Schema": {}})
        top = schema.setdefault("openAPIV3Schema", {})
        top.setdefault("type", "object")
        _typed(top)
        if keeps:
            top["x-kubernetes-preserve-unknown-fields"] = True
        if columns and "additionalPrinterColumns" not in version:
            version["additionalPrinterColumns"] = deepcopy(columns)
        for column in version.get("additionalPrinterColumns") or ():
            if "JSONPath" in column:
                column["jsonPath"] = column.pop("JSONPath")
        if subresources and "subresources" not in version:
            version["subresources"] = deepcopy(subresources)
    spec["versions"] = versions
    spec.setdefault("scope", "Cluster")
    names = spec.get("names") or {}
    if names.get("kind"):
        names.setdefault("singular", str(names["kind"]).lower())
    if isinstance(conversion := spec.get("conversion"), dict) and "webhookClientConfig" in conversion:
        reviews = conversion.pop("conversionReviewVersions", ["v1beta1"])
        client = conversion.pop("webhookClientConfig")
        conversion["webhook"] = {"clientConfig": client, "conversionReviewVersions": reviews}


def _typed(schema: dict[str, Any]) -> None:
    """Write the types that the structural schemas of v1 want where old ones left them out."""
    if "properties" in schema:
        schema.setdefault("type", "object")
    if "items" in schema:
        schema.setdefault("type", "array")
    for inner in (schema.get("properties") or {}).values():
        if isinstance(inner, dict):
            _typed(inner)
            if "type" not in inner and "x-kubernetes-int-or-string" not in inner and "$ref" not in inner:
                inner["x-kubernetes-preserve-unknown-fields"] = True
    if isinstance(schema.get("items"), dict):
        _typed(schema["items"])


def _webhooks(data: dict[str, Any]) -> None:
    for webhook in data.get("webhooks") or ():
        webhook.setdefault("admissionReviewVersions", ["v1beta1"])
        if webhook.get("sideEffects") not in ("None", "NoneOnDryRun"):
            webhook["sideEffects"] = "None"
        webhook.setdefault("failurePolicy", "Ignore")  # the old default
        webhook.setdefault("matchPolicy", "Exact")


def _binding(data: dict[str, Any]) -> None:
    role = data.get("roleRef")
    if isinstance(role, dict):
        role["apiGroup"] = "rbac.authorization.k8s.io"
    for subject in data.get("subjects") or ():
        subject.pop("apiVersion", None)
        if subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = "rbac.authorization.k8s.io"


def _scaler(data: dict[str, Any]) -> None:
    """Write the targets of `autoscaling/v2beta1` as maps, and scale what is served."""
    scaled = _spec(data).get("scaleTargetRef")
    if isinstance(scaled, dict) and scaled.get("kind") in _WORKLOADS:
        scaled["apiVersion"] = "apps/v1"
    for metric in _spec(data).get("metrics") or ():
        source = metric.get(str(metric.get("type", "")).lower())
        if not isinstance(source, dict) or isinstance(source.get("target"), dict):
            continue
        for old, kind, new in (
            ("targetAverageUtilization", "Utilization", "averageUtilization"),
            ("targetAverageValue", "AverageValue", "averageValue"),
            ("targetValue", "Value", "value"),
        ):
            if old in source:
                source["target"] = {"type": kind, new: source.pop(old)}
        if "metricName" in source:
            source["metric"] = {"name": source.pop("metricName")}
            if "selector" in source:
                source["metric"]["selector"] = source.pop("selector")


# --- training jobs ---

_ROLES = {"MASTER": "Chief", "WORKER": "Worker", "PS": "PS", "EVALUATOR": "Evaluator"}


def _training_job(field: str, container: str, roles: Mapping[str, str]) -> _Change:
    def change(data: dict[str, Any]) -> None:
        """Name the replicas by role, and put what concerns the run under `runPolicy`."""
        spec = _spec(data)
        if isinstance(listed := spec.pop("replicaSpecs", None), list):
            spec[field] = {}
            for replica in listed:
                given = [replica.pop(key, "") for key in ("tfReplicaType", "replicaType")]
                role = str(next(filter(None, given), "MASTER")).upper()
                replica.pop("tfPort", None)
                replica.pop("masterPort", None)
                spec[field][roles.get(role, role.capitalize())] = replica
        for gone in ("terminationPolicy", "tfImage", "runtimeId", "RuntimeId"):
            spec.pop(gone, None)
        policy = {
            name: spec.pop(name)
            for name in ("cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")
            if name in spec
        }
        if policy:
            spec["runPolicy"] = policy | dict(spec.get("runPolicy") or {})
        for replica in (spec.get(field) or {}).values():
            pod = ((replica or {}).get("template") or {}).get("spec") or {}
            containers = pod.get("containers") or []
            if containers and all(entry.get("name") != container for entry in containers):
                containers[0]["name"] = container
            if pod.get("restartPolicy") and "restartPolicy" not in replica:
                replica["restartPolicy"] = pod.pop("restartPolicy")

    return change


_TFJOB = _training_job("tfReplicaSpecs", "tensorflow", _ROLES)
_PYTORCH = _training_job("pytorchReplicaSpecs", "pytorch", {**_ROLES, "MASTER": "Master"})
_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"

_RULES: dict[tuple[str, str], _Known] = {
    **{
        (version, kind): ("apps/v1", _workload)
        for version in ("extensions/v1beta1", "apps/v1beta1", "apps/v1beta2")
        for kind in _WORKLOADS
    },
    **{
        (version, "Ingress"): ("networking.k8s.io/v1", _ingress)
        for version in ("extensions/v1beta1", "networking.k8s.io/v1beta1")
    },
    ("extensions/v1beta1", "NetworkPolicy"): ("networking.k8s.io/v1", None),
    ("networking.k8s.io/v1beta1", "IngressClass"): ("networking.k8s.io/v1", None),
    ("policy/v1beta1", "PodDisruptionBudget"): ("policy/v1", None),
    **{
        (f"{_RBAC}/{version}", kind): (f"{_RBAC}/v1", _binding)
        for version in ("v1alpha1", "v1beta1")
        for kind in ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
    },
    **{(version, "CronJob"): ("batch/v1", None) for version in ("batch/v1beta1", "batch/v2alpha1")},
    **{
        (f"autoscaling/{version}", "HorizontalPodAutoscaler"): ("autoscaling/v2", _scaler)
        for version in ("v2beta1", "v2beta2")
    },
    ("apiextensions.k8s.io/v1beta1", "CustomResourceDefinition"): ("apiextensions.k8s.io/v1", _definition),
    **{
        (f"{_ADMISSION}/v1beta1", f"{kind}WebhookConfiguration"): (f"{_ADMISSION}/v1", _webhooks)
        for kind in ("Mutating", "Validating")
    },
    ("apiregistration.k8s.io/v1beta1", "APIService"): ("apiregistration.k8s.io/v1", None),
    ("storage.k8s.io/v1beta1", "StorageClass"): ("storage.k8s.io/v1", None),
    **{
        (f"scheduling.k8s.io/{version}", "PriorityClass"): ("scheduling.k8s.io/v1", None)
        for version in ("v1alpha1", "v1beta1")
    },
    ("coordination.k8s.io/v1beta1", "Lease"): ("coordination.k8s.io/v1", None),
    **{
        (f"kubeflow.org/{version}", "TFJob"): ("kubeflow.org/v1", _TFJOB)
        for version in ("v1alpha1", "v1alpha2", "v1beta1", "v1beta2")
    },
    **{
        (f"kubeflow.org/{version}", "PyTorchJob"): ("kubeflow.org/v1", _PYTORCH)
        for version in ("v1alpha1", "v1alpha2", "v1beta1", "v1beta2")
    },
}
