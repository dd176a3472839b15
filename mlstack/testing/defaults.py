"""What an API server fills in: the defaults that people meet in their diffs, for the memory cluster."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterator, Mapping
from ipaddress import IPv4Address
from itertools import count
from typing import Any

from mlstack.testing.server_side_apply import OPEN, Shape
from mlstack.testing.store import Obj

_FIRST_SERVICE_ADDRESS = IPv4Address("10.96.0.10")
_WORKLOADS = frozenset(
    {("apps", "DaemonSet"), ("apps", "Deployment"), ("apps", "StatefulSet"), ("batch", "Job")}
)
_ROLES = frozenset({("rbac.authorization.k8s.io", "ClusterRole"), ("rbac.authorization.k8s.io", "Role")})


def skeleton(key: tuple[str, str]) -> Obj:
    """Give what an object of a built-in kind consists of when it says nothing: such fields are never new."""
    spec: Obj = {"containers": None} if key == ("", "Pod") else {}
    if key in _WORKLOADS:
        template = {"metadata": {}, "spec": {"containers": None}}
        spec = {"selector": None, "serviceName": "", "template": template}
    return {"metadata": {}, "spec": spec, "status": {}}


def fill_in(obj: Mapping[str, Any], key: tuple[str, str]) -> Obj:
    """Give an object with the API server's defaults, which a writer owns as if it had sent them."""
    filled = dict(obj)
    if key in _WORKLOADS:
        filled["spec"] = _workload(dict(filled.get("spec") or {}), key)
    elif key == ("", "Pod"):
        filled["spec"] = _pod(filled.get("spec") or {})
        filled["status"] = {"phase": "Pending", **(filled.get("status") or {})}
    elif key == ("batch", "CronJob"):
        filled["spec"] = _cron_job(dict(filled.get("spec") or {}))
    elif key == ("", "Service"):
        filled["spec"] = _service(filled.get("spec") or {})
    elif key == ("", "Secret"):
        filled = _secret(filled)
    elif key in _ROLES:
        filled.setdefault("rules", None)
    elif key == ("", "PersistentVolumeClaim"):
        filled["spec"] = {"volumeMode": "Filesystem", **(filled.get("spec") or {})}
        filled["status"] = {"phase": "Pending", **(filled.get("status") or {})}
    elif key == ("", "Namespace"):
        filled = _namespace(filled)
    elif key == ("apiextensions.k8s.io", "CustomResourceDefinition"):
        filled["spec"] = _definition(filled.get("spec") or {})
    return filled


def tidy(value: Any, shape: Shape) -> Any:
    """Give a built-in value as the server writes it: without nulls, empty maps and empty lists.

    An empty struct stays: it says something (`emptyDir: {}`).
    """
    if isinstance(value, Mapping):
        if _is_text_map(shape):
            return {name: "" if text is None else text for name, text in value.items()}
        inside = ((name, shape.at(name) or OPEN, inner) for name, inner in value.items())
        return {name: tidy(inner, at) for name, at, inner in inside if not _says_nothing(inner, at)}
    if isinstance(value, list):
        return [tidy(item, shape.items) for item in value]
    return value


def _is_text_map(shape: Shape) -> bool:
    values = shape.schema.get("additionalProperties")
    return isinstance(values, Mapping) and values.get("type") == "string"


def _says_nothing(value: Any, shape: Shape) -> bool:
    is_container = shape.schema.get("type") == "array" or "additionalProperties" in shape.schema
    return value is None or (is_container and value in ({}, []))


def custom(value: Any, schema: Mapping[str, Any]) -> Any:
    """Give a custom resource's value with the defaults of its schema; null stays only where it may."""
    if isinstance(value, Mapping):
        return dict(_custom_fields(value, schema))
    if isinstance(value, list):
        return [custom(item, schema.get("items") or {}) for item in value]
    return value


def _custom_fields(value: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    properties = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    for name, inner in value.items():
        declared = properties.get(name) or (extra if isinstance(extra, Mapping) else {})
        if inner is None and not declared.get("nullable") and "default" in declared:
            continue
        yield name, custom(inner, declared)
    for name, declared in properties.items():
        missing = value.get(name) is None and not (name in value and declared.get("nullable"))
        if missing and "default" in declared:
            yield name, custom(declared["default"], declared)


def _workload(spec: Obj, key: tuple[str, str]) -> Obj:
    spec = {**_WORKLOAD_DEFAULTS[key[1]], **spec}
    for name in ("strategy", "updateStrategy"):
        if name in spec:
            limits = _WORKLOAD_DEFAULTS[key[1]][name]["rollingUpdate"]
            spec[name] = _rolling(spec[name] or {}, limits, is_set=key[1] == "StatefulSet")
    if key[1] == "Job" and "completions" not in spec and "parallelism" not in spec:
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


def _rolling(strategy: Mapping[str, Any], limits: Mapping[str, Any], *, is_set: bool) -> Obj:
    filled = {"type": "RollingUpdate", **strategy}
    # Who names the type of a StatefulSet's strategy gets no limits with it.
    named_alone = is_set and "type" in strategy and not strategy.get("rollingUpdate")
    if filled["type"] == "RollingUpdate" and not named_alone:
        filled["rollingUpdate"] = {**limits, **(filled.get("rollingUpdate") or {})}
    return filled


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
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(name):
            filled[name] = _probe(container[name])
    return filled


def _probe(probe: Mapping[str, Any]) -> Obj:
    filled = {"periodSeconds": 10, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3, **probe}
    if probe.get("httpGet"):
        filled["httpGet"] = {"path": "/", "scheme": "HTTP", **probe["httpGet"]}
    return filled


def _cron_job(spec: Obj) -> Obj:
    spec = {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
        **spec,
    }
    inner = (spec.get("jobTemplate") or {}).get("spec") or {}
    if "template" in inner:
        job = {**inner, "template": _template(inner["template"] or {})}
        spec["jobTemplate"] = {**spec["jobTemplate"], "spec": job}
    return spec


def _service(spec: Mapping[str, Any]) -> Obj:
    filled = {"type": "ClusterIP", "sessionAffinity": "None", **spec}
    if filled["type"] != "ExternalName":
        filled.setdefault("internalTrafficPolicy", "Cluster")
    if spec.get("ports"):
        filled["ports"] = [_service_port(port) for port in spec["ports"]]
    return filled


def allocate(obj: Obj, taken: Collection[str]) -> Obj:
    """Give a Service with what the API server allots to it and nobody owns: an address that is not taken."""
    if obj["spec"]["type"] == "ExternalName":
        return obj
    spec = dict(obj["spec"])
    if not spec.get("clusterIP"):
        spec["clusterIP"] = next(
            text for number in count() if (text := str(_FIRST_SERVICE_ADDRESS + number)) not in taken
        )
    # A headless Service without a selector may get addresses of both families.
    both = spec["clusterIP"] == "None" and not spec.get("selector")
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if both else ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if both else "SingleStack")
    return {**obj, "spec": spec}


def _service_port(port: Mapping[str, Any]) -> Obj:
    return {"protocol": "TCP", **port, "targetPort": port.get("targetPort", port.get("port"))}


def _secret(obj: Obj) -> Obj:
    given = obj.pop("stringData", None) or {}
    encoded = {name: base64.b64encode(str(text).encode()).decode() for name, text in given.items()}
    if encoded:
        obj["data"] = {**(obj.get("data") or {}), **encoded}
    return {"type": "Opaque", **obj}


def _namespace(obj: Obj) -> Obj:
    metadata = obj["metadata"]
    labels = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    return {
        **obj,
        "metadata": {**metadata, "labels": labels},
        "spec": {"finalizers": ["kubernetes"], **(obj.get("spec") or {})},
        "status": {"phase": "Active", **(obj.get("status") or {})},
    }


def _definition(spec: Mapping[str, Any]) -> Obj:
    names = dict(spec.get("names") or {})
    kind = str(names.get("kind") or "")
    names = {"singular": kind.lower(), "listKind": f"{kind}List", **names}
    return {"conversion": {"strategy": "None"}, **spec, "names": names}
