"""The kinds that a memory cluster serves: their shape, what is refused and how, what is filled in."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterator, Mapping
from ipaddress import IPv4Address
from itertools import count
from typing import Any

from mlstack.dataclass import Record
from mlstack.errors import Cause
from mlstack.objects.kube_object import Kind, Kinds, Schema, Schemas, kinds_of_crd
from mlstack.objects.managed_fields import FieldPath
from mlstack.testing.server_side_apply import OPEN, KeyFault, Shape, custom_root, field_of, spell
from mlstack.testing.store import CRD, Obj, ObjectStore, copied
from mlstack.yaml.write import same

GroupKind = tuple[str, str]

_RBAC = "rbac.authorization.k8s.io"
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

# The built-in kinds that count their changes; custom resources always do.
_WITH_GENERATION: Mapping[str, str] = {
    "": "Pod ReplicationController",
    "apps": "DaemonSet Deployment ReplicaSet StatefulSet",
    "batch": "CronJob Job",
    "apiextensions.k8s.io": "CustomResourceDefinition",
    "admissionregistration.k8s.io": "MutatingWebhookConfiguration ValidatingWebhookConfiguration "
    "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding",
    "discovery.k8s.io": "EndpointSlice",
    "networking.k8s.io": "Ingress IngressClass NetworkPolicy",
    "policy": "PodDisruptionBudget",
    "scheduling.k8s.io": "PriorityClass",
}
_SCALABLE: frozenset[GroupKind] = frozenset(
    {("", "ReplicationController"), ("apps", "Deployment"), ("apps", "ReplicaSet"), ("apps", "StatefulSet")}
)


class Served(Record):
    """One kind in one version."""

    kind: Kind
    shape: Shape
    has_status: bool  # whether `status` is a subresource: other writes leave it alone
    has_scale: bool
    counts_changes: bool  # whether it has a generation
    custom: Schema | None = None  # the schema of a custom resource, None for built-in kinds

    @property
    def key(self) -> GroupKind:
        """Give group and kind."""
        return self.kind.group, self.kind.kind

    def shown(self, obj: Mapping[str, Any], *, metadata_only: bool = False) -> Obj:
        """Give an object in this version, apart from the stored one."""
        names = {"apiVersion": self.kind.api_version, "kind": self.kind.kind}
        shown: Obj = copied({**({"metadata": obj["metadata"]} if metadata_only else obj), **names})
        return shown


class Catalog:
    """Finds kinds: the built-in ones of a Kubernetes version, and those of the definitions in a store."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._builtin = Kinds(kind for kind in Kinds.builtin() if kind.is_served_by(schemas.minor))

    def kinds(self, store: ObjectStore) -> Kinds:
        """Give all kinds."""
        return self._builtin.with_crds(_established(store))

    def find(self, store: ObjectStore, api_version: str, kind: str) -> Served | None:
        """Find a kind, None where it is not served."""
        builtin = self._builtin.lookup(api_version, kind)
        if builtin:
            return self._built_in(builtin)
        for crd in _established(store):
            for custom in kinds_of_crd(crd):
                if (custom.api_version, custom.kind) == (api_version, kind):
                    return self._custom(crd, custom)
        return None

    def _built_in(self, kind: Kind) -> Served:
        schema = self._schemas.root(kind.group, kind.version, kind.kind) or {}
        return Served(
            kind=kind,
            shape=Shape(schema, self._schemas.resolve),
            has_status="status" in (schema.get("properties") or {}),
            has_scale=(kind.group, kind.kind) in _SCALABLE,
            counts_changes=kind.kind in _WITH_GENERATION.get(kind.group, "").split(),
        )

    def _custom(self, crd: Mapping[str, Any], kind: Kind) -> Served:
        version = next(row for row in crd["spec"]["versions"] if row["name"] == kind.version)
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        subresources = version.get("subresources") or {}
        metadata = Shape(self._schemas.definition(_OBJECT_META), self._schemas.resolve)
        return Served(
            kind=kind,
            shape=custom_root(schema, metadata),
            has_status="status" in subresources,
            has_scale="scale" in subresources,
            counts_changes=True,
            custom=schema,
        )


def _established(store: ObjectStore) -> Iterator[Obj]:
    for _, crd in store.of_kind(*CRD):
        rows = (crd.get("status") or {}).get("conditions") or ()
        if any(row["type"] == "Established" and row["status"] == "True" for row in rows):
            yield crd


# --- whether a value fits its schema, and the faults in the API server's words ---

# Required in the published schemas because the server always writes them; nobody has to give them.
_ALWAYS_WRITTEN = frozenset({"rules", "serviceName"})


def typed_faults(value: Any, shape: Shape, path: FieldPath = ()) -> Iterator[str]:
    """Say what server-side apply cannot read: unknown fields, wrong types, nameless or double items."""
    if value is None or shape.is_open:
        return
    kind = shape.schema.get("type") or ("object" if shape.has_fields else "")
    expected = ""
    if shape.is_int_or_string:
        expected = "string" if isinstance(value, bool | Mapping | list) else ""
    elif kind == "object" and isinstance(value, Mapping):
        for name, inner in value.items():
            below, inner_shape = (*path, field_of(name)), shape.at(name)
            if inner_shape is None:
                yield f"{spell(below)}: field not declared in schema"
            else:
                yield from typed_faults(inner, inner_shape, below)
    elif kind == "array" and isinstance(value, list):
        yield from _list_faults(value, shape, path)
    elif kind in ("object", "array"):
        expected = "map" if kind == "object" else "list"
    elif kind == "string" and not isinstance(value, str):
        expected = "string"
    elif kind == "boolean" and not isinstance(value, bool):
        expected = "boolean"
    elif kind in ("integer", "number") and (isinstance(value, bool) or not isinstance(value, int | float)):
        expected = "numeric (int or float)"
    if expected:
        yield f"{spell(path)}: expected {expected}, got &value.valueUnstructured{{Value:{value}}}"


def _list_faults(items: list[Any], shape: Shape, path: FieldPath) -> Iterator[str]:
    elements: set[str] = set()
    for index, item in enumerate(items):
        element = f"i:{index}"
        if shape.is_keyed:
            try:
                element = shape.element_of(item)
            except KeyFault as fault:
                yield f"{spell((*path, element))}: element {index}: {fault}"
                continue
            if element in elements:
                yield f"{spell(path)}: duplicate entries for key {spell((element,))}"
            elements.add(element)
        yield from typed_faults(item, shape.items, (*path, element))


def rule_faults(value: Any, shape: Shape, path: str = "") -> Iterator[Cause]:
    """Say what validation refuses: missing fields, nulls, values out of range; CEL is not evaluated."""
    prefix = f"{path}." if path else ""
    if isinstance(value, Mapping):
        for name in shape.schema.get("required") or ():
            if value.get(name) is None and name not in _ALWAYS_WRITTEN:
                yield Cause(field=f"{prefix}{name}", reason="FieldValueRequired", message="Required value")
        for name, inner in value.items():
            if name not in _ALWAYS_WRITTEN:
                yield from rule_faults(inner, shape.at(name) or OPEN, f"{prefix}{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from rule_faults(item, shape.items, f"{path}[{index}]")
    elif value is None and not (shape.is_open or shape.schema.get("nullable")):
        kind = shape.schema.get("type") or "object"
        yield Cause(field=path, reason="FieldValueTypeInvalid", message=f'must be of type {kind}: "null"')
        return
    for message in _value_faults(value, shape.schema):
        yield Cause(field=path, reason="FieldValueInvalid", message=message)


def _value_faults(value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield "Unsupported value: supported values: " + ", ".join(f'"{item}"' for item in schema["enum"])
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            yield f"should be greater than or equal to {schema['minimum']}"
        if value > schema.get("maximum", value):
            yield f"should be less than or equal to {schema['maximum']}"
    if isinstance(value, str):
        if not re.search(schema.get("pattern", ""), value):
            yield f"should match '{schema['pattern']}'"
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            yield "has a length that is not allowed"
    elif isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            yield "has a number of items that is not allowed"


# --- fields that cannot change ---


class Frozen(Record):
    """Fields of a kind that cannot change."""

    fields: tuple[str, ...] = ()  # their names below `at`; all but `free` where empty
    at: str = "spec"
    free: tuple[str, ...] = ()
    message: str = "field is immutable"
    forbidden: bool = False  # whether the server calls that forbidden, not invalid, and names `at` alone


_SELECTOR = Frozen(fields=("selector",))
_ROLE_REF = Frozen(fields=("roleRef",), at="", message="cannot change roleRef")
_FROZEN: Mapping[GroupKind, Frozen] = {
    ("apps", "Deployment"): _SELECTOR,
    ("apps", "DaemonSet"): _SELECTOR,
    ("apps", "ReplicaSet"): _SELECTOR,
    ("apps", "StatefulSet"): Frozen(
        free=(
            *("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit"),
            *("persistentVolumeClaimRetentionPolicy", "minReadySeconds"),
        ),
        message="updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
        "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
        "'minReadySeconds' are forbidden",
        forbidden=True,
    ),
    ("batch", "Job"): Frozen(fields=("template", "completions", "selector", "completionMode")),
    ("", "PersistentVolumeClaim"): Frozen(
        free=("resources", "volumeName", "volumeAttributesClassName"),
        message="spec is immutable after creation except resources.requests and volumeAttributesClassName "
        "for bound claims",
        forbidden=True,
    ),
    ("", "Secret"): Frozen(fields=("type",), at=""),
    ("", "Service"): Frozen(fields=("clusterIP",), message="may not change once set"),
    (_RBAC, "ClusterRoleBinding"): _ROLE_REF,
    (_RBAC, "RoleBinding"): _ROLE_REF,
    ("storage.k8s.io", "StorageClass"): Frozen(
        fields=("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"), at=""
    ),
    ("scheduling.k8s.io", "PriorityClass"): Frozen(
        fields=("value",), at="", message="may not be changed in an update.", forbidden=True
    ),
    ("networking.k8s.io", "IngressClass"): Frozen(fields=("controller",)),
    CRD: Frozen(fields=("group", "scope")),
}
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAMED_AS_LABEL = frozenset({("", "Namespace"), ("", "Service")})


def update_faults(key: GroupKind, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Cause]:
    """Say which changes the API server would refuse because a field is immutable."""
    if key in (("", "ConfigMap"), ("", "Secret")) and old.get("immutable"):
        for name in ("immutable", "data", "binaryData"):
            if not same(old.get(name), new.get(name)):
                message = "Forbidden: field is immutable when `immutable` is set"
                yield Cause(field=name, reason="FieldValueForbidden", message=message)
    frozen = _FROZEN.get(key)
    if frozen is None:
        return
    before, after = (obj.get(frozen.at) or {} if frozen.at else obj for obj in (old, new))
    for name in frozen.fields or sorted({*before, *after} - set(frozen.free)):
        is_unset = key == ("", "Service") and not before.get(name)
        if is_unset or same(before.get(name), after.get(name)):
            continue
        if frozen.forbidden:
            message = f"Forbidden: {frozen.message}"
            yield Cause(field=frozen.at or name, reason="FieldValueForbidden", message=message)
            return
        field = f"{frozen.at}.{name}" if frozen.at else name
        yield Cause(field=field, reason="FieldValueInvalid", message=frozen.message)


def name_faults(key: GroupKind, name: str) -> Iterator[Cause]:
    """Say whether a name is none: most kinds want a DNS subdomain, RBAC takes any path segment."""
    if key[0] == _RBAC:
        return
    limit, pattern = (63, _LABEL) if key in _NAMED_AS_LABEL else (253, rf"{_LABEL}(\.{_LABEL})*")
    if len(name) > limit or not re.fullmatch(pattern, name):
        message = (
            f'Invalid value: "{name}": must consist of at most {limit} lower case letters, digits and `-`'
        )
        yield Cause(field="metadata.name", reason="FieldValueInvalid", message=message)


# --- what an API server fills in: the defaults that people meet in their diffs ---

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
    """Give a built-in value without nulls, empty maps and lists; an empty struct stays (`emptyDir: {}`)."""
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


def custom_defaults(value: Any, schema: Mapping[str, Any]) -> Any:
    """Give a custom resource's value with the defaults of its schema; null stays only where it may."""
    if isinstance(value, list):
        return [custom_defaults(item, schema.get("items") or {}) for item in value]
    if not isinstance(value, Mapping):
        return value
    properties, extra, filled = schema.get("properties") or {}, schema.get("additionalProperties"), {}
    for name, inner in value.items():
        declared = properties.get(name) or (extra if isinstance(extra, Mapping) else {})
        if inner is not None or declared.get("nullable") or "default" not in declared:
            filled[name] = custom_defaults(inner, declared)
    for name, declared in properties.items():
        missing = value.get(name) is None and not (name in value and declared.get("nullable"))
        if missing and "default" in declared:
            filled[name] = custom_defaults(declared["default"], declared)
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
