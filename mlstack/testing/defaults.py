"""What an API server fills in: the defaults that people meet in their diffs, for the memory cluster."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping
from ipaddress import IPv4Address
from itertools import count
from typing import Any

from mlstack.testing.server_side_apply import OPEN, Shape
from mlstack.testing.store import Obj

_FIRST_SERVICE_ADDRESS = IPv4Address("10.96.0.10")
_WORKLOADS = frozenset(
    {("apps", "DaemonSet"), ("apps", "Deployment"), ("apps", "StatefulSet"), ("batch", "Job")}
)


def skeleton(key: tuple[str, str]) -> Obj:
    """Give what an object of a built-in kind consists of when it says nothing: such fields are never new."""
    spec: Obj = {"containers": None} if key == ("", "Pod") else {}
    if key in _WORKLOADS:
        template = {"metadata": {}, "spec": {"containers": None}}
        spec = {"selector": None, "serviceName": "", "template": template}
    return {"metadata": {}, "spec": spec, "status": {}}


def fill_in(obj: Mapping[str, Any], key: tuple[str, str]) -> Obj:
    """Give an object with the API server's defaults, which a writer owns as if it had sent them."""
    filled, spec, metadata = dict(obj), dict(obj.get("spec") or {}), obj["metadata"]
    if key in _WORKLOADS:
        filled["spec"] = _workload(spec, key[1])
    elif key == ("batch", "CronJob"):
        filled["spec"] = {**_CRON_JOB, **spec}
        job = (spec.get("jobTemplate") or {}).get("spec") or {}
        if "template" in job:
            inner = {**job, "template": _template(job["template"] or {})}
            filled["spec"]["jobTemplate"] = {**spec["jobTemplate"], "spec": inner}
    elif key == ("", "Service"):
        filled["spec"] = _service(spec)
    elif key == ("", "Secret"):
        texts = filled.pop("stringData", None) or {}
        encoded = {name: base64.b64encode(str(text).encode()).decode() for name, text in texts.items()}
        filled |= {"data": {**(obj.get("data") or {}), **encoded}} if encoded else {}
        filled.setdefault("type", "Opaque")
    elif key[0] == "rbac.authorization.k8s.io" and key[1] in ("ClusterRole", "Role"):
        filled.setdefault("rules", None)
    elif key == ("", "Namespace"):
        labels = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
        filled["metadata"] = {**metadata, "labels": labels}
        filled["spec"] = {"finalizers": ["kubernetes"], **spec}
    elif key == ("apiextensions.k8s.io", "CustomResourceDefinition"):
        kind = str((spec.get("names") or {}).get("kind") or "")
        names = {"singular": kind.lower(), "listKind": f"{kind}List", **(spec.get("names") or {})}
        filled["spec"] = {"conversion": {"strategy": "None"}, **spec, "names": names}
    elif key == ("", "Pod"):
        filled["spec"] = _pod(spec)
    elif key == ("", "PersistentVolumeClaim"):
        filled["spec"] = {"volumeMode": "Filesystem", **spec}
    phases = {"Pod": "Pending", "PersistentVolumeClaim": "Pending", "Namespace": "Active"}
    if not key[0] and key[1] in phases:
        filled["status"] = {"phase": phases[key[1]], **(obj.get("status") or {})}
    return filled


def tidy(value: Any, shape: Shape) -> Any:
    """Give a built-in value as the server writes it: without nulls, empty maps and empty lists.

    An empty struct stays: it says something (`emptyDir: {}`).
    """
    if isinstance(value, list):
        return [tidy(item, shape.items) for item in value]
    if not isinstance(value, Mapping):
        return value
    texts, kept = shape.schema.get("additionalProperties"), {}
    if isinstance(texts, Mapping) and texts.get("type") == "string":
        return {name: "" if text is None else text for name, text in value.items()}
    for name, inner in value.items():
        below = shape.at(name) or OPEN
        is_container = below.schema.get("type") == "array" or "additionalProperties" in below.schema
        if inner is not None and not (is_container and inner in ({}, [])):
            kept[name] = tidy(inner, below)
    return kept


def custom(value: Any, schema: Mapping[str, Any]) -> Any:
    """Give a custom resource's value with the defaults of its schema; null stays only where it may."""
    if isinstance(value, list):
        return [custom(item, schema.get("items") or {}) for item in value]
    if not isinstance(value, Mapping):
        return value
    properties, extra, filled = schema.get("properties") or {}, schema.get("additionalProperties"), {}
    for name, inner in value.items():
        declared = properties.get(name) or (extra if isinstance(extra, Mapping) else {})
        if inner is not None or declared.get("nullable") or "default" not in declared:
            filled[name] = custom(inner, declared)
    for name, declared in properties.items():
        missing = value.get(name) is None and not (name in value and declared.get("nullable"))
        if missing and "default" in declared:
            filled[name] = custom(declared["default"], declared)
    return filled


def _workload(spec: Obj, kind: str) -> Obj:
    spec = {**_WORKLOAD_DEFAULTS[kind], **spec}
    for name in ("strategy", "updateStrategy"):
        if name in spec:
            strategy = spec[name] or {}
            filled = spec[name] = {"type": "RollingUpdate", **strategy}
            # Who names the type of a StatefulSet's strategy gets no limits with it.
            is_named = kind == "StatefulSet" and "type" in strategy and not strategy.get("rollingUpdate")
            if filled["type"] == "RollingUpdate" and not is_named:
                limits = _WORKLOAD_DEFAULTS[kind][name]["rollingUpdate"]
                filled["rollingUpdate"] = {**limits, **(filled.get("rollingUpdate") or {})}
    if kind == "Job" and "completions" not in spec and "parallelism" not in spec:
        spec |= {"completions": 1, "parallelism": 1}
    if "template" in spec:
        spec["template"] = _template(spec["template"] or {})
    return spec


_WORKLOAD_DEFAULTS: Mapping[str, Obj] = {
    "DaemonSet": {
        "revisionHistoryLimit": 10,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
    },
    "Deployment": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
    },
    "Job": {"backoffLimit": 6, "completionMode": "NonIndexed", "suspend": False},
    "StatefulSet": {
        "replicas": 1,
        "serviceName": "",
        "revisionHistoryLimit": 10,
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    },
}


_CRON_JOB = {
    "concurrencyPolicy": "Allow",
    "suspend": False,
    "successfulJobsHistoryLimit": 3,
    "failedJobsHistoryLimit": 1,
}


def _service(spec: Obj) -> Obj:
    spec = {"type": "ClusterIP", "sessionAffinity": "None", **spec}
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if ports := spec.get("ports"):
        targets = [port.get("targetPort", port.get("port")) for port in ports]
        pairs = zip(ports, targets, strict=True)
        spec["ports"] = [{"protocol": "TCP", **port, "targetPort": target} for port, target in pairs]
    return spec


def _template(template: Mapping[str, Any]) -> Obj:
    return {**template, "spec": _pod(template.get("spec") or {})}


def _pod(spec: Mapping[str, Any]) -> Obj:
    filled = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        **spec,
    }
    if spec.get("serviceAccountName"):
        filled["serviceAccount"] = spec["serviceAccountName"]
    for name in ("containers", "initContainers"):
        if spec.get(name):
            filled[name] = [_container(container) for container in spec[name]]
    return filled


def _container(container: Mapping[str, Any]) -> Obj:
    image = str(container.get("image") or "")
    tag = image.rpartition("/")[2].partition(":")[2]
    filled = {
        "imagePullPolicy": "Always" if "@" not in image and tag in ("", "latest") else "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "resources": {},
        **container,
    }
    if container.get("ports"):
        filled["ports"] = [{"protocol": "TCP", **port} for port in container["ports"]]
    times = {"periodSeconds": 10, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3}
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe := container.get(name):
            get = probe.get("httpGet")
            filled[name] = {**times, **probe}
            filled[name] |= {"httpGet": {"path": "/", "scheme": "HTTP", **get}} if get else {}
    return filled


def allocate(obj: Obj, taken: Collection[str]) -> Obj:
    """Give a Service with what the API server allots to it and nobody owns: an address that is not taken."""
    if obj["spec"]["type"] == "ExternalName":
        return obj
    spec = dict(obj["spec"])
    if not spec.get("clusterIP"):
        addresses = (str(_FIRST_SERVICE_ADDRESS + number) for number in count())
        spec["clusterIP"] = next(address for address in addresses if address not in taken)
    # A headless Service without a selector may get addresses of both families.
    both = spec["clusterIP"] == "None" and not spec.get("selector")
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if both else ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if both else "SingleStack")
    return {**obj, "spec": spec}
