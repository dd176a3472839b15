"""Turn the definitions of built-in types into the structural schemas that a CRD wants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mlstack.objects.kube_object import Schema, Schemas

CORE = "io.k8s.api.core.v1"
META = "io.k8s.apimachinery.pkg.apis.meta.v1"
QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
INT_OR_STRING = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
STRING = {"type": "string"}
STRINGS = {"type": "object", "additionalProperties": STRING}
LABEL = {"maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
PORT = {"minimum": 1, "maximum": 65535}

# The metadata that a template can carry: the operator hands on labels and annotations.
TEMPLATE_METADATA = {
    "type": "object",
    "properties": {
        "annotations": STRINGS,
        "finalizers": {"type": "array", "items": STRING},
        "labels": STRINGS,
        "name": STRING,
        "namespace": STRING,
    },
}
# A rule is allowed only where the lists it goes through are bounded.
MAX_VOLUMES = 32
# Only a running pod has these.
LEFT_OUT = frozenset({(f"{CORE}.PodSpec", "ephemeralContainers")})
# What the API server checks by code when the operator creates the pod: said here, it is said at once.
TIGHTER: Mapping[tuple[str, str], dict[str, Any]] = {
    (f"{CORE}.PodSpec", "activeDeadlineSeconds"): {"minimum": 1},
    (f"{CORE}.PodSpec", "containers"): {"minItems": 1, "maxItems": 32},
    (f"{CORE}.PodSpec", "initContainers"): {"maxItems": 32},
    (f"{CORE}.PodSpec", "terminationGracePeriodSeconds"): {"minimum": 0},
    (f"{CORE}.Container", "name"): LABEL,
    (f"{CORE}.Container", "image"): {"minLength": 1},
    (f"{CORE}.ContainerPort", "containerPort"): PORT,
    (f"{CORE}.ContainerPort", "hostPort"): {"minimum": 0, "maximum": 65535},
    (f"{CORE}.ContainerPort", "protocol"): {"default": "TCP"},
    (f"{CORE}.EnvVar", "name"): {"minLength": 1},
    (f"{CORE}.Container", "volumeMounts"): {"maxItems": MAX_VOLUMES},
    (f"{CORE}.PodSpec", "volumes"): {"maxItems": MAX_VOLUMES},
    (f"{CORE}.Volume", "name"): LABEL,
    (f"{CORE}.VolumeMount", "mountPath"): {"minLength": 1},
    (f"{CORE}.VolumeMount", "name"): LABEL,
}
# Rules on a type as a whole.
RULES: Mapping[str, list[dict[str, str]]] = {
    f"{CORE}.PodSpec": [
        {
            "rule": f"!has(self.{name}) || self.{name}.all(c, !has(c.volumeMounts) || c.volumeMounts.all(m,"
            " has(self.volumes) && self.volumes.exists(v, v.name == m.name)))",
            "message": f"volumeMounts of {name} must name volumes of the pod",
        }
        for name in ("containers", "initContainers")
    ]
}
REQUIRED = {f"{CORE}.Container": ("image",), f"{CORE}.PodTemplateSpec": ("spec",)}


def typed(schemas: Schemas, name: str) -> dict[str, Any]:
    """Write a definition out with everything it refers to, as one structural schema."""
    if name == f"{META}.ObjectMeta":
        return dict(TEMPLATE_METADATA)
    definition = schemas.definition(name)
    if definition.get("format") == "quantity":
        return {**INT_OR_STRING, "pattern": QUANTITY}
    if definition.get("x-kubernetes-int-or-string"):
        return dict(INT_OR_STRING)
    return _expanded(schemas, definition, name)


def _expanded(schemas: Schemas, schema: Schema, name: str) -> dict[str, Any]:
    if "$ref" in schema:
        return typed(schemas, schema["$ref"])
    shape = {key: schema[key] for key in ("type", "format", "enum", "x-kubernetes-map-type") if key in schema}
    required = {*schema.get("required", ()), *REQUIRED.get(name, ())}
    if required:
        shape["required"] = sorted(required)
    if "properties" in schema:
        shape["properties"] = {
            field: _expanded(schemas, inner, "") | TIGHTER.get((name, field), {})
            for field, inner in schema["properties"].items()
            if (name, field) not in LEFT_OUT
        }
    if name in RULES:
        shape["x-kubernetes-validations"] = RULES[name]
    if "items" in schema:
        shape |= _list(schemas, schema)
    if "additionalProperties" in schema:
        shape["additionalProperties"] = _expanded(schemas, schema["additionalProperties"], "")
    return shape


def _list(schemas: Schemas, schema: Schema) -> dict[str, Any]:
    """Write a list; the keys that name its items must be required or have a default."""
    items = _expanded(schemas, schema["items"], "")
    keywords = {
        key: schema[key] for key in ("x-kubernetes-list-type", "x-kubernetes-list-map-keys") if key in schema
    }
    keys: Iterable[str] = schema.get("x-kubernetes-list-map-keys", ())
    needed = {key for key in keys if "default" not in items["properties"][key]}
    if needed:
        items["required"] = sorted({*items.get("required", ()), *needed})
    return {"items": items, **keywords}
