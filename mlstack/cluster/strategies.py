"""What an API server does with each built-in kind beside storing it: generations, limits on changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mlstack.cluster.merge import same
from mlstack.errors import Cause

Key = tuple[str, str]

WITH_GENERATION: frozenset[Key] = frozenset(
    {
        ("", "Pod"),
        ("", "ReplicationController"),
        ("apps", "DaemonSet"),
        ("apps", "Deployment"),
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("batch", "CronJob"),
        ("batch", "Job"),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
        ("discovery.k8s.io", "EndpointSlice"),
        ("networking.k8s.io", "Ingress"),
        ("networking.k8s.io", "IngressClass"),
        ("networking.k8s.io", "NetworkPolicy"),
        ("policy", "PodDisruptionBudget"),
        ("scheduling.k8s.io", "PriorityClass"),
    }
)
"""The built-in kinds that count their changes; custom resources always do."""

SCALABLE: frozenset[Key] = frozenset(
    {("", "ReplicationController"), ("apps", "Deployment"), ("apps", "ReplicaSet"), ("apps", "StatefulSet")}
)
"""The built-in kinds with a `scale` subresource."""

IMMUTABLE = "field is immutable"


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """Fields of a kind that cannot change.

    Attributes:
        fields: their names below `at`; all but `free` where empty.
        at: the field they are in.
        free: the fields below `at` that may change.
        message: what the server says.
        forbidden: whether it calls that forbidden instead of invalid, and names `at` alone.
    """

    fields: tuple[str, ...] = ()
    at: str = "spec"
    free: tuple[str, ...] = ()
    message: str = IMMUTABLE
    forbidden: bool = False


FROZEN: Mapping[Key, Frozen] = {
    ("apps", "Deployment"): Frozen(fields=("selector",)),
    ("apps", "DaemonSet"): Frozen(fields=("selector",)),
    ("apps", "ReplicaSet"): Frozen(fields=("selector",)),
    ("apps", "StatefulSet"): Frozen(
        free=(
            "replicas",
            "ordinals",
            "template",
            "updateStrategy",
            "revisionHistoryLimit",
            "persistentVolumeClaimRetentionPolicy",
            "minReadySeconds",
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
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): Frozen(
        fields=("roleRef",), at="", message="cannot change roleRef"
    ),
    ("rbac.authorization.k8s.io", "RoleBinding"): Frozen(
        fields=("roleRef",), at="", message="cannot change roleRef"
    ),
    ("storage.k8s.io", "StorageClass"): Frozen(
        fields=("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"), at=""
    ),
    ("scheduling.k8s.io", "PriorityClass"): Frozen(
        fields=("value",), at="", message="may not be changed in an update.", forbidden=True
    ),
    ("networking.k8s.io", "IngressClass"): Frozen(fields=("controller",)),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): Frozen(fields=("group", "scope")),
}

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NAMED_AS_LABEL = frozenset({("", "Namespace"), ("", "Service")})


def update_faults(key: Key, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Cause]:
    """Say which changes the API server would refuse because a field is immutable."""
    if key in (("", "ConfigMap"), ("", "Secret")) and old.get("immutable"):
        yield from _immutable_data(old, new)
    rule = FROZEN.get(key)
    if rule is None:
        return
    before, after = (obj.get(rule.at) or {} if rule.at else obj for obj in (old, new))
    names = rule.fields or sorted({*before, *after} - set(rule.free))
    for name in names:
        unset = key == ("", "Service") and not before.get(name)
        if not unset and not same(before.get(name), after.get(name)):
            field = f"{rule.at}.{name}" if rule.at else name
            yield Cause(
                field=rule.at or name if rule.forbidden else field,
                reason="FieldValueForbidden" if rule.forbidden else "FieldValueInvalid",
                message=f"Forbidden: {rule.message}" if rule.forbidden else rule.message,
            )
            if rule.forbidden:
                return


def _immutable_data(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Cause]:
    for name in ("immutable", "data", "binaryData"):
        if not same(old.get(name), new.get(name)):
            message = "Forbidden: field is immutable when `immutable` is set"
            yield Cause(field=name, reason="FieldValueForbidden", message=message)


def name_faults(key: Key, name: str) -> Iterator[Cause]:
    """Say whether a name is none: most kinds want a DNS subdomain, RBAC takes any path segment."""
    if key[0] == "rbac.authorization.k8s.io":
        return
    limit, pattern = (63, _LABEL) if key in _NAMED_AS_LABEL else (253, _SUBDOMAIN)
    if len(name) > limit or not pattern.fullmatch(name):
        message = (
            f'Invalid value: "{name}": must consist of at most {limit} lower case letters, digits and `-`'
        )
        yield Cause(field="metadata.name", reason="FieldValueInvalid", message=message)
