"""Rules on ConfigMaps, Secrets, ServiceAccounts, quotas and namespaces."""

from __future__ import annotations

import base64
import binascii
import json

from mlstack.model.validation import formats, syntax
from mlstack.model.validation.base import Field, Problems, shown
from mlstack.model.validation.rules.shared import needed_name
from mlstack.model.validation.rules.table import Subject, rule

_MAX_BYTES = 1024 * 1024
# Types of Secret and the keys without which they are refused.
_SECRET_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_QUOTA = frozenset(
    {*_COMPUTE, *(f"limits.{name}" for name in _COMPUTE), *(f"requests.{name}" for name in _COMPUTE)}
    | {"requests.storage", "pods", "resourcequotas", "services", "replicationcontrollers", "secrets"}
    | {"persistentvolumeclaims", "configmaps", "services.nodeports", "services.loadbalancers"}
)
_ACCOUNT = "kubernetes.io/service-account.name"


@rule("ConfigMap")
def config_map_fits(subject: Subject) -> Problems:
    """Keys can be file names and stand once; all together stay below 1 MiB."""
    data, binary = subject.root.at("data"), subject.root.at("binaryData")
    yield from _keys(data)
    yield from _keys(binary)
    for key, value in data.entries:
        if key in binary.names:
            yield value.says("stands in `binaryData` too")
    size = sum(len(value.text.encode()) for _, value in data.entries)
    size += sum(len(_decoded(value)) for _, value in binary.entries)
    if size > _MAX_BYTES:
        yield subject.root.says(f"must have at most {_MAX_BYTES} bytes of data, got {size}")


@rule("Secret")
def secret_fits(subject: Subject) -> Problems:
    """Keys can be file names; all together stay below 1 MiB; the type's own keys are there."""
    data, texts = subject.root.at("data"), subject.root.at("stringData")
    yield from _keys(data)
    yield from _keys(texts)
    given = {key: _decoded(value) for key, value in data.entries}
    given |= {key: value.text.encode() for key, value in texts.entries}
    size = sum(len(value) for value in given.values())
    if size > _MAX_BYTES:
        yield data.says(f"must have at most {_MAX_BYTES} bytes, got {size}")
    kind = subject.root.at("type").text
    for key in _SECRET_KEYS.get(kind, ()):
        if key not in given:
            yield data.at(key).says(f"is required with `type: {kind}`")
        elif key.startswith(".docker") and not _is_json_map(given[key]):
            yield data.at(key).says("must hold a map in JSON")
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & given.keys():
        yield data.says(f"needs `username` or `password` with `type: {kind}`")
    if kind == "kubernetes.io/service-account-token":
        yield from subject.metadata.at("annotations", _ACCOUNT).needed()


def _keys(field: Field) -> Problems:
    for key, value in field.entries:
        wrong = syntax.config_key(key) if key else "is required"
        if wrong:
            yield value.says(f"key {wrong}")


def _decoded(field: Field) -> bytes:
    """Decode base64; what is none is a fault of the structure and counts nothing here."""
    try:
        return base64.b64decode(field.text)
    except (binascii.Error, ValueError):
        return b""


def _is_json_map(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


@rule("ServiceAccount")
def account_fits(subject: Subject) -> Problems:
    """Secrets that an account names have names."""
    for secret in subject.root.at("imagePullSecrets").items:
        yield from needed_name(secret.at("name"), syntax.subdomain)


@rule("ResourceQuota")
def quota_fits(subject: Subject) -> Problems:
    """A quota counts known resources, 0 and up."""
    for name, quantity in subject.spec.at("hard").entries:
        wrong = syntax.qualified_name(name)
        if wrong:
            yield quantity.says(f"name of a resource {wrong}")
        elif "/" not in name and name not in _QUOTA and "hugepages-" not in name:
            yield quantity.says(f"must be a resource that quotas count, got `{name}`")
        found = formats.quantity(quantity.value)
        if found is not None and found < 0:
            yield quantity.says(f"must not be negative, got {shown(quantity.value)}")


@rule("scheduling.k8s.io/PriorityClass")
def priority_is_not_the_systems(subject: Subject) -> Problems:
    """Names that start with `system-` and values above a thousand million are the system's."""
    name, value = subject.metadata.at("name"), subject.root.at("value")
    if name.text.startswith("system-") and name.text not in (
        "system-node-critical",
        "system-cluster-critical",
    ):
        yield name.says("must not start with `system-`")
    elif not name.text.startswith("system-") and (value.number or 0) > 10**9:
        yield value.says(f"must be at most 1000000000, got {value.number}")
