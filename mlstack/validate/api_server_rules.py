"""What the API server demands of objects beyond their schema, where `api_server.rules` needs a function.

Each has a line there, which says for what.
"""

from __future__ import annotations

import base64
import ipaddress
from contextlib import suppress
from functools import cache
from typing import Any

from mlstack.disk_cache import from_json
from mlstack.objects.resources import quantity
from mlstack.validate.formats import (
    Field,
    Problems,
    address,
    config_key,
    env_name,
    label,
    label_1035,
    path_segment,
    qualified_name,
    relative_path,
    shown,
    subdomain,
    time_zones,
)
from mlstack.validate.rules import (
    COMPUTE,
    RULES,
    FieldRule,
    at,
    check,
    fits,
    joined,
    load,
    needed,
    not_negative,
    selects,
    syntax,
)
from mlstack.validate.schema import suggestion

_TABLE = "api_server.rules"


@cache
def rules_for(kind: str) -> tuple[FieldRule, ...]:
    """Give the rules for objects of a kind (`apps/Deployment`, `Service`)."""
    return tuple(rule for row in load(_TABLE) if kind in row.kinds or "*" in row.kinds for rule in row.rules)


def pod_rule() -> FieldRule:
    """Give the rule of the specification of pods."""
    load(_TABLE)
    return RULES["pod"]


# --- what every object carries ---


@check
def _object_name(field: Field) -> Problems:
    kind, syntax = field.subject.kind, subdomain
    if kind == "Namespace":
        syntax = label
    elif kind.startswith("rbac.authorization.k8s.io/"):
        syntax = path_segment
    elif kind == "Service":  # from 1.36 on one may start with a digit
        syntax = label if field.subject.minor >= 36 else label_1035
    yield from at("", needed, fits(syntax))(field)


@check
def _annotations(annotations: Field) -> Problems:
    for key, value in annotations.entries:
        if wrong := qualified_name(key.lower()):
            yield value.says(f"key {wrong}")
    size = sum(len(key.encode()) + len(value.text.encode()) for key, value in annotations.entries)
    yield from _too_many_bytes(annotations, size, 256 * 1024, " together")


def _too_many_bytes(field: Field, size: int, limit: int, what: str) -> Problems:
    if size > limit:
        yield field.says(f"must have at most {limit} bytes{what}, got {size}")


# --- ConfigMaps, Secrets, quotas and priorities ---

_MAX_DATA_BYTES = 1024 * 1024
# Types of Secret and the keys without which they are refused.
_SECRET_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_QUOTA = frozenset(
    {*COMPUTE, *(f"limits.{name}" for name in COMPUTE), *(f"requests.{name}" for name in COMPUTE)}
    | {"requests.storage", "pods", "resourcequotas", "services", "replicationcontrollers", "secrets"}
    | {"persistentvolumeclaims", "configmaps", "services.nodeports", "services.loadbalancers"}
)


@check
def _data_keys(field: Field) -> Problems:
    for key, value in field.entries:
        if wrong := config_key(key) if key else "is required":
            yield value.says(f"key {wrong}")


@check
def _config_map(root: Field) -> Problems:
    data, binary = root.at("data"), root.at("binaryData")
    for key, value in data.entries:
        if key in binary.names:
            yield value.says("stands in `binaryData` too")
    size = sum(len(value.text.encode()) for _, value in data.entries)
    size += sum(len(_decoded(value)) for _, value in binary.entries)
    yield from _too_many_bytes(root, size, _MAX_DATA_BYTES, " of data")


@check
def _secret(root: Field) -> Problems:
    data, texts, kind = root.at("data"), root.at("stringData"), root.at("type").text
    content = {key: _decoded(value) for key, value in data.entries}
    content |= {key: value.text.encode() for key, value in texts.entries}
    yield from _too_many_bytes(data, sum(map(len, content.values())), _MAX_DATA_BYTES, "")
    for key in _SECRET_KEYS.get(kind, ()):
        if key not in content:
            yield data.at(key).says(f"is required with `type: {kind}`")
        elif key.startswith(".docker") and from_json(content[key], dict) is None:
            yield data.at(key).says("must hold a map in JSON")


def _decoded(field: Field) -> bytes:
    """Decode base64; what is none is a fault of the structure and counts nothing here."""
    with suppress(ValueError):
        return base64.b64decode(field.text)
    return b""


@check
def _quota(hard: Field) -> Problems:
    for resource, amount in hard.entries:
        if wrong := qualified_name(resource):
            yield amount.says(f"name of a resource {wrong}")
        elif "/" not in resource and resource not in _QUOTA and "hugepages-" not in resource:
            yield amount.says(f"must be a resource that quotas count, got `{resource}`")
        yield from not_negative(amount)


# --- definitions and webhooks ---


@syntax
def _lower_label(text: str) -> str | None:
    return label_1035(text.lower())


@check
def _list_keys(schema: Field) -> Problems:
    keys = [key.text for key in schema.at("x-kubernetes-list-map-keys").items]
    if (schema.at("x-kubernetes-list-type").text == "map") != bool(keys):
        yield schema.at("x-kubernetes-list-map-keys").says("go together with `x-kubernetes-list-type: map`")
    items = schema.at("items")
    required = [key.text for key in items.at("required").items]
    for key in keys:
        described = items.at("properties", key)
        if not described:
            yield described.says("is a key of the list and must be described")
        elif key not in required and not described.at("default"):
            yield items.at("required").says(f"must hold `{key}`, a key of the list without a default")


# --- Ingresses, NetworkPolicies and Services ---


def _network_of(field: Field) -> Any:
    """Read a network; None where it is none. From 1.36 on no bits may be set beyond its prefix."""
    with suppress(ValueError):
        if field.text.strip().rpartition("/")[2].isdecimal():
            return ipaddress.ip_network(field.text.strip(), strict=field.subject.minor >= 36)
    return None


@check
def _network(field: Field) -> Problems:
    if _network_of(field) is None:
        yield field.not_as("a network such as `10.0.0.0/8`")


@check
def _excepted(block: Field) -> Problems:
    """What is excepted from a block of addresses lies within it, and is not all of it."""
    whole = _network_of(block.at("cidr"))
    for inner in block.at("except").items:
        part = _network_of(inner)
        if whole and part and (part.version != whole.version or part == whole or not part.subnet_of(whole)):
            yield inner.not_as("a smaller network within `cidr`")


@check
def _host(host: Field) -> Problems:
    if host.text and address(host.text) is None:
        yield host.not_as("a DNS name, not an address")
    else:
        yield from fits(lambda text: subdomain(text.removeprefix("*.")))(host)


@syntax
def _external_name(text: str) -> str | None:
    return subdomain(text.removesuffix("."))


# --- storage ---

# What stands in a volume beside its source.
_NO_SOURCE = frozenset(
    {"accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity", "persistentVolumeReclaimPolicy"}
    | {"storageClassName", "volumeAttributesClassName", "volumeMode"}
)


@syntax
def _lower_qualified_name(text: str) -> str | None:
    return qualified_name(text.lower())


@check
def _volume(spec: Field) -> Problems:
    """A volume has one source."""
    sources = [source for source in spec.names if source not in _NO_SOURCE]
    if len(sources) != 1:
        yield spec.says(f"must have one source, got {joined(sources, ' and ') or 'none'}")


@check
def _storage(storage: Field) -> Problems:
    amount = quantity(storage.value)
    if amount is not None and amount <= 0:
        yield storage.says(f"must be above 0, got {shown(storage.value)}")


# --- containers ---


@check
def _variable_name(field: Field) -> Problems:
    yield from fits(lambda text: env_name(text, minor=field.subject.minor))(field)


@check
def _resources(resources: Field) -> Problems:
    for amounts in resources.all("limits|requests"):
        for resource, amount in amounts.entries:
            yield from _resource_name(resource, amount)
            yield from not_negative(amount)
            number = quantity(amount.value)
            if number is not None and 0 <= number != int(number) and _is_extended(resource):
                yield amount.says(f"must be a whole number, got {shown(amount.value)}")
    for resource, request in resources.at("requests").entries:
        yield from _within_limit(resource, request, resources.at("limits", resource))


def _resource_name(resource: str, amount: Field) -> Problems:
    if wrong := qualified_name(resource):
        yield amount.says(f"name of a resource {wrong}")
    elif "/" not in resource and resource not in COMPUTE and not resource.startswith("hugepages-"):
        listed = ", ".join(f"`{name}`" for name in COMPUTE)
        yield amount.says(
            f"must be a resource of Kubernetes ({listed}) or have a prefix, as `nvidia.com/gpu`"
        )
    elif resource.startswith("requests."):
        yield amount.says("must not start with `requests.`")


def _is_extended(resource: str) -> bool:
    return "/" in resource and not resource.rpartition("/")[0].endswith("kubernetes.io")


def _within_limit(resource: str, request: Field, limit: Field) -> Problems:
    requested, allowed = quantity(request.value), quantity(limit.value)
    if requested is None:
        return
    if _is_extended(resource) or resource.startswith("hugepages-"):
        if allowed is None and not limit:
            yield request.says(f"needs a limit of the same amount: write `limits` only for `{resource}`")
        elif allowed is not None and requested != allowed:
            yield request.says(f"must equal the limit {shown(limit.value)}, got {shown(request.value)}")
    elif allowed is not None and requested > allowed:
        yield request.says(f"must not be above the limit {shown(limit.value)}, got {shown(request.value)}")


# --- pods ---

_CONTAINERS = "initContainers|containers[]"


@check
def _volume_source(volume: Field) -> Problems:
    """A volume comes from one place; from none means an empty directory."""
    given = [name for name in volume.names if name != "name"]
    if len(given) > 1:
        listed = " and ".join(f"`{name}`" for name in given)
        yield volume.says(f"must have one source, got {len(given)}: {listed}")


@check
def _file_mode(mode: Field) -> Problems:
    if mode.number is not None and not 0 <= mode.number <= 0o777:
        yield mode.says(f"must be a file mode from 0 to 0777 ({0o777} in decimal), got {mode.number}")


@syntax
def _inner_path(path: str) -> str | None:
    return f"must not start with `..`, got {shown(path)}" if path.startswith("..") else relative_path(path)


@check
def _mounts(pod: Field) -> Problems:
    """A mount names a volume of the pod, and has a place of its own in its container."""
    volumes = pod.all("volumes[].name") + pod.all("/spec.volumeClaimTemplates[].metadata.name")
    names = {volume.text for volume in volumes}
    for mounted in pod.all(f"{_CONTAINERS}.volumeMounts|volumeDevices[].name"):
        if mounted.text and mounted.text not in names:
            hint = suggestion(mounted.text, names)
            yield mounted.says(f"no volume {shown(mounted.text)} in this pod{hint}")


# --- what makes pods, and what scales it ---


@check
def _chooses_template(spec: Field) -> Problems:
    """What makes pods must recognise them: its selector is not empty and matches the template's labels."""
    chosen, offered = spec.at("selector"), spec.at("template", "metadata", "labels")
    if not chosen:
        return
    if not chosen.at("matchLabels").names and not chosen.at("matchExpressions").items:
        yield chosen.says("must not be empty")
        return
    given = offered.value if isinstance(offered.value, dict) else {}
    if not selects(chosen, given):
        yield offered.says(f"must match the selector {shown(chosen.value)}, got {shown(given)}")


@check
def _deployment(spec: Field) -> Problems:
    """A rolling update has its deadline after a pod is counted as ready."""
    deadline, ready = spec.at("progressDeadlineSeconds"), spec.at("minReadySeconds").number or 0
    limit = 600 if deadline.number is None else deadline.number
    if limit <= ready:
        yield deadline.says(f"must be above `minReadySeconds` ({ready}), got {limit}")


@check
def _time_zone(zone: Field) -> Problems:
    if zone and zone.text not in time_zones():
        hint = suggestion(zone.text, time_zones())
        yield zone.says(f"must be a time zone such as `Europe/Berlin`, got {shown(zone.value)}{hint}")
