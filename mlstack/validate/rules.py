"""What the API server demands of objects beyond their schema: a table of rules by kind."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
from functools import cache

from mlstack.validate.checks import (
    COMPUTE,
    MAX_PORT,
    OperatorRules,
    Rule,
    Table,
    at,
    between,
    choice,
    fits,
    joined,
    labels,
    name,
    needed,
    not_negative,
    one_of,
    port,
    selector,
    unique,
)
from mlstack.validate.formats import (
    Field,
    Problems,
    address,
    config_key,
    label,
    label_1035,
    path_segment,
    port_name,
    qualified_name,
    shown,
    subdomain,
)
from mlstack.validate.pipeline_rules import PIPELINE_RULES
from mlstack.validate.scheduling_rules import SCHEDULING_RULES
from mlstack.validate.serving_rules import SERVING_RULES
from mlstack.validate.training_rules import TRAINING_RULES
from mlstack.validate.workload_rules import WORKLOAD_RULES


def _network(field: Field) -> Problems:
    try:
        if "/" in field.text and ipaddress.ip_network(field.text.strip(), strict=False):
            return
    except ValueError:
        pass
    yield field.not_as("a network such as `10.0.0.0/8`")


def _too_many_bytes(field: Field, size: int, limit: int, what: str) -> Problems:
    if size > limit:
        yield field.says(f"must have at most {limit} bytes{what}, got {size}")


# --- what every object carries: name, namespace, labels, annotations ---

_RBAC = "rbac.authorization.k8s.io"
_ROLES = (f"{_RBAC}/Role", f"{_RBAC}/ClusterRole")
_BINDINGS = (f"{_RBAC}/RoleBinding", f"{_RBAC}/ClusterRoleBinding")
_RELAXED_SERVICE_NAMES = 36
"""From 1.36 on the name of a Service may start with a digit."""


def _object_name(field: Field) -> Problems:
    kind, syntax = field.subject.kind, subdomain
    if kind == "Namespace":
        syntax = label
    elif kind in (*_ROLES, *_BINDINGS):
        syntax = path_segment
    elif kind == "Service":
        syntax = label if field.subject.minor >= _RELAXED_SERVICE_NAMES else label_1035
    yield from name(syntax)(field)


def _annotations(annotations: Field) -> Problems:
    for key, value in annotations.entries:
        if wrong := qualified_name(key.lower()):
            yield value.says(f"key {wrong}")
    size = sum(len(key.encode()) + len(value.text.encode()) for key, value in annotations.entries)
    yield from _too_many_bytes(annotations, size, 256 * 1024, " together")


def _owners(owners: Field) -> Problems:
    if sum(owner.at("controller").value is True for owner in owners.items) > 1:
        yield owners.says("must have at most one owner with `controller`")


_METADATA = at(
    "metadata",
    at("name", _object_name),
    at("namespace", fits(label)),
    at("labels", labels),
    at("annotations", _annotations),
    at("finalizers[]", name(qualified_name)),
    at("ownerReferences[]", at("apiVersion|kind|name|uid", needed)),
    at("ownerReferences", _owners),
)


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
_ACCOUNT = "kubernetes.io/service-account.name"


def _data_keys(field: Field) -> Problems:
    for key, value in field.entries:
        if wrong := config_key(key) if key else "is required":
            yield value.says(f"key {wrong}")


def _config_map(root: Field) -> Problems:
    data, binary = root.at("data"), root.at("binaryData")
    for key, value in data.entries:
        if key in binary.names:
            yield value.says("stands in `binaryData` too")
    size = sum(len(value.text.encode()) for _, value in data.entries)
    size += sum(len(_decoded(value)) for _, value in binary.entries)
    yield from _too_many_bytes(root, size, _MAX_DATA_BYTES, " of data")


def _secret(root: Field) -> Problems:
    data, texts, kind = root.at("data"), root.at("stringData"), root.at("type").text
    content = {key: _decoded(value) for key, value in data.entries}
    content |= {key: value.text.encode() for key, value in texts.entries}
    yield from _too_many_bytes(data, sum(map(len, content.values())), _MAX_DATA_BYTES, "")
    for key in _SECRET_KEYS.get(kind, ()):
        if key not in content:
            yield data.at(key).says(f"is required with `type: {kind}`")
        elif key.startswith(".docker") and not _is_json_map(content[key]):
            yield data.at(key).says("must hold a map in JSON")
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & content.keys():
        yield data.says(f"needs `username` or `password` with `type: {kind}`")
    if kind == "kubernetes.io/service-account-token":
        yield from needed(root.at("metadata", "annotations", _ACCOUNT))


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


def _quota(hard: Field) -> Problems:
    for resource, amount in hard.entries:
        if wrong := qualified_name(resource):
            yield amount.says(f"name of a resource {wrong}")
        elif "/" not in resource and resource not in _QUOTA and "hugepages-" not in resource:
            yield amount.says(f"must be a resource that quotas count, got `{resource}`")
        yield from not_negative(amount)


def _priority(root: Field) -> Problems:
    """Names that start with `system-` and values above a thousand million are the system's."""
    own_name, value = root.at("metadata", "name"), root.at("value")
    if not own_name.text.startswith("system-"):
        if (value.number or 0) > 10**9:
            yield value.says(f"must be at most 1000000000, got {value.number}")
    elif own_name.text not in ("system-node-critical", "system-cluster-critical"):
        yield own_name.says("must not start with `system-`")


# --- CustomResourceDefinitions and webhooks ---

_TYPES = ("array", "boolean", "integer", "number", "object", "string")


def _lower_label(text: str) -> str | None:
    return label_1035(text.lower())


def _definition(root: Field) -> Problems:
    """A definition is called plural.group, its group is a domain, exactly one version is stored."""
    spec, own_name = root.at("spec"), root.at("metadata", "name")
    names, group, versions = spec.at("names"), spec.at("group"), spec.at("versions")
    expected = f"{names.at('plural').text}.{group.text}"
    if own_name.text != expected:
        yield own_name.not_as(f"`{expected}` (plural and group)")
    if names.at("listKind").text and names.at("listKind").text == names.at("kind").text:
        yield names.at("listKind").says("must differ from `kind`")
    if group.text and "." not in group.text:
        yield group.not_as("a domain with a dot")
    stored = [version for version in versions.items if version.at("storage").value is True]
    if len(stored) != 1:
        yield versions.says(f"must have exactly one version with `storage: true`, got {len(stored)}")


def _root_schema(schema: Field) -> Problems:
    if not schema:
        yield schema.says("is required")
        return
    if schema.at("type").text != "object":
        yield schema.at("type").not_as("`object` at the root")
    yield from _structural(schema)


def _structural(schema: Field) -> Problems:
    """Check what makes a schema structural: every part has a type and says what is in it."""
    kind = schema.at("type")
    is_open = any(
        schema.at(f"x-kubernetes-{what}").value is True
        for what in ("int-or-string", "preserve-unknown-fields")
    )
    if kind.text:
        yield from choice(*_TYPES)(kind)
    elif not is_open:
        yield kind.says("is required")
    if kind.text == "array" and not schema.at("items"):
        yield schema.at("items").says("is required with `type: array`")
    if schema.at("properties").names and schema.at("additionalProperties").names:
        yield schema.at("additionalProperties").says("must not stand beside `properties`")
    yield from _list_keys(schema)
    below = [inner for inner in schema.all("items|additionalProperties") if isinstance(inner.value, dict)]
    for inner in (*schema.all("properties.*"), *below):
        yield from _structural(inner)
    yield from _combinations(schema)


def _combinations(schema: Field) -> Problems:
    """Check that combinations only limit values: what there is stands outside them."""
    parts = schema.all("allOf|anyOf|oneOf[]")
    if schema.at("x-kubernetes-int-or-string").value is True:
        parts = [part for part in parts if part.names != ("type",)]
    for part in (*parts, schema.at("not")):
        for inner in part.all("additionalProperties|default|description|nullable|type"):
            if inner.value not in (None, "", False):
                yield inner.says("must stand outside `allOf`, `anyOf`, `oneOf` and `not`")


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


def _webhook(webhook: Field) -> Problems:
    own_name, url = webhook.at("name"), webhook.at("clientConfig", "url")
    if own_name.text.count(".") < 2:
        yield own_name.says(f"must have at least three parts between dots, got {shown(own_name.value)}")
    versions = webhook.at("admissionReviewVersions")
    if versions.items and not {"v1", "v1beta1"} & {version.text for version in versions.items}:
        yield versions.says(f"must hold `v1`, got {shown(versions.value)}")
    if url and not url.text.startswith("https://"):
        yield url.says(f"must start with `https://`, got {shown(url.value)}")


# --- Ingresses and NetworkPolicies ---


def _ingress(spec: Field) -> Problems:
    if not spec.at("rules").items and not spec.at("defaultBackend"):
        yield spec.says("needs `rules` or a `defaultBackend`")
    if spec.at("ingressClassName").value == "":
        yield spec.at("ingressClassName").says("must not be empty: leave it out for the cluster's default")


def _host(host: Field) -> Problems:
    if host.text and address(host.text) is None:
        yield host.not_as("a DNS name, not an address")
    else:
        yield from fits(lambda text: subdomain(text.removeprefix("*.")))(host)


def _ingress_path(rule: Field) -> Problems:
    path, is_strict = rule.at("path"), rule.at("pathType").text in ("Exact", "Prefix")
    text = path.text
    if (is_strict or text) and not text.startswith("/"):
        yield path.says(f"must start with `/`, got {shown(text)}")
    bad = [part for part in ("//", "/./", "/../", "%2f", "%2F") if part in text]
    bad += [end for end in ("/..", "/.") if text.endswith(end)]
    for part in bad if is_strict else ():
        yield path.says(f"must not contain `{part}`, got {shown(text)}")


def _service_port_of(port: Field) -> Problems:
    named, number = port.at("name").text, port.at("number").number
    if named and number:
        yield port.says("must have a `name` or a `number`, got both")
    elif not named and not number:
        yield port.says("needs a `name` or a `number`")


_BACKEND = at(
    "",
    one_of("backend", "service", "resource"),
    at(
        "service?",
        at("name", name(label)),
        at("port", _service_port_of, at("name", fits(port_name)), at("number", between(0, MAX_PORT))),
    ),
)


def _peer(peer: Field) -> Problems:
    block = peer.at("ipBlock")
    if not peer.names:
        yield peer.says("must have a `podSelector`, `namespaceSelector` or `ipBlock`")
    if block and len(peer.names) > 1:
        yield block.says("must not stand beside a selector")


def _last_port(ports: Field) -> Problems:
    start, end = ports.at("port").number, ports.at("endPort")
    if end and start is None:
        yield end.says("needs a `port` that is a number")
    elif start is not None and end.number is not None and end.number < start:
        yield end.says(f"must be at least `port` ({start}), got {end.number}")


# --- roles and their bindings ---


def _role_rule(rule: Field) -> Problems:
    """A rule allows verbs, on resources of groups or on addresses (those only cluster-wide)."""
    addresses = rule.at("nonResourceURLs")
    if not addresses.items:
        yield from at("apiGroups|resources", needed)(rule)
        return
    if rule.subject.kind.endswith("/Role"):
        yield addresses.says("must only be set in a ClusterRole")
    if any(inner.items for inner in rule.all("apiGroups|resources|resourceNames")):
        yield addresses.says("must not stand beside `resources`")


def _role_kind(kind: Field) -> Problems:
    is_cluster_wide = kind.subject.kind.endswith("/ClusterRoleBinding")
    yield from choice(*(["ClusterRole"] if is_cluster_wide else ["Role", "ClusterRole"]))(kind)


def _bound(account: Field) -> Problems:
    """Rights go to accounts (with their namespace), users or groups."""
    kind, group = account.at("kind"), account.at("apiGroup")
    if kind.text == "ServiceAccount":
        yield from name(subdomain)(account.at("name"))
        if group.text:
            yield group.not_as("empty for a ServiceAccount")
        if account.subject.kind.endswith("/ClusterRoleBinding"):
            yield from needed(account.at("namespace"))
    elif kind.text in ("User", "Group"):
        yield from choice(_RBAC, unset=True)(group)
    else:
        yield kind.not_as("`ServiceAccount`, `User` or `Group`")


# --- Services ---

_EXTERNAL = ("NodePort", "LoadBalancer")


def _service(spec: Field) -> Problems:
    kind = spec.at("type").text or "ClusterIP"
    is_headless = spec.at("clusterIP").text == "None"
    if not is_headless and kind != "ExternalName":
        yield from needed(spec.at("ports"))
    if kind == "ExternalName":
        yield from name(lambda text: subdomain(text.removesuffix(".")))(spec.at("externalName"))
        for field in spec.all("clusterIP|clusterIPs|ipFamilies|ipFamilyPolicy"):
            if field.value:
                yield field.says("must not be set with `type: ExternalName`")
    elif kind in _EXTERNAL and is_headless:
        yield spec.at("clusterIP").says(f"must not be `None` with `type: {kind}`")
    if kind not in _EXTERNAL and not spec.at("externalIPs").items and spec.at("externalTrafficPolicy").text:
        yield spec.at("externalTrafficPolicy").says(f"must not be set with `type: {kind}`")
    if kind != "LoadBalancer":
        for field in spec.all("allocateLoadBalancerNodePorts|loadBalancerClass|loadBalancerSourceRanges"):
            if field.value not in (None, []):
                yield field.says("must only be set with `type: LoadBalancer`")
    yield from _service_addresses(spec, is_headless=is_headless)
    yield from _node_ports(spec, kind)


def _service_addresses(spec: Field, *, is_headless: bool) -> Problems:
    if not is_headless:
        yield from fits(address)(spec.at("clusterIP"))
    first = spec.at("clusterIPs").items[:1]
    if first and first[0].value != spec.at("clusterIP").value:
        yield spec.at("clusterIPs").says(f"must start with `clusterIP`, got {shown(first[0].value)}")
    if spec.at("sessionAffinity").text == "ClientIP":
        # Clients stay with a pod for up to a day.
        yield from between(1, 86400)(spec.at("sessionAffinityConfig", "clientIP", "timeoutSeconds"))


def _node_ports(spec: Field, kind: str) -> Problems:
    """Ports of the nodes are for NodePort and LoadBalancer, from the range that clusters give out."""
    taken: set[tuple[object, str]] = set()
    for declared in spec.at("ports").items:
        node_port = declared.at("nodePort")
        if not node_port.number:
            continue
        if kind not in _EXTERNAL:
            yield node_port.says(f"must not be set with `type: {kind}`")
        else:
            yield from between(30000, 32767)(node_port)
        key = (node_port.number, declared.at("protocol").text or "TCP")
        if key in taken:
            yield node_port.says(f"port {node_port.number} of the nodes is used twice")
        taken.add(key)


def _service_ports(ports: Field) -> Problems:
    for declared in ports.items:
        if declared.at("targetPort").value not in (0, ""):
            yield from port(declared.at("targetPort"))
        if len(ports.items) > 1 and not declared.at("name").text:
            yield declared.at("name").says("is required where a Service has several ports")


def _traffic(spread: Field) -> Problems:
    known = ("PreferClose", "PreferSameZone", "PreferSameNode")[: 3 if spread.subject.minor >= 34 else 1]
    if spread.text and spread.text not in known:
        yield spread.not_as(f"one of {joined(known)}")


# --- the table ---

_WEBHOOKS = at(
    "",
    unique("webhook", "webhooks[].name"),
    at(
        "webhooks[]",
        at("name", name(subdomain)),
        _webhook,
        at("admissionReviewVersions", needed),
        at("admissionReviewVersions[]", name(label_1035)),
        at("clientConfig", one_of("place", "service", "url")),
        at("rules[]", at("apiGroups|apiVersions|operations|resources", needed)),
        at("rules[]", at("apiVersions|operations|resources[]", needed)),
        at("sideEffects", choice("None", "NoneOnDryRun")),
        at("timeoutSeconds", between(1, 30)),
        at("namespaceSelector|objectSelector", selector),
    ),
)
_RULES: Table = (
    (("ConfigMap",), (at("data|binaryData", _data_keys), _config_map)),
    (("Secret",), (at("data|stringData", _data_keys), _secret)),
    (("ServiceAccount",), (at("imagePullSecrets[].name", name(subdomain)),)),
    (("ResourceQuota",), (at("spec.hard", _quota),)),
    (("scheduling.k8s.io/PriorityClass",), (_priority,)),
    (
        ("apiextensions.k8s.io/CustomResourceDefinition",),
        (
            _definition,
            at("spec.names.plural|kind", name(_lower_label)),
            at("spec.names.singular|listKind", fits(_lower_label)),
            at("spec.names.shortNames|categories[]", name(label_1035)),
            at("spec.group", name(subdomain)),
            at("spec.scope", choice("Cluster", "Namespaced")),
            unique("version", "spec.versions[].name"),
            at("spec.versions[].name", name(label_1035)),
            at("spec.versions[].schema.openAPIV3Schema", _root_schema),
            at("spec.versions[].additionalPrinterColumns[].jsonPath", needed),
        ),
    ),
    (
        (
            "admissionregistration.k8s.io/MutatingWebhookConfiguration",
            "admissionregistration.k8s.io/ValidatingWebhookConfiguration",
        ),
        (_WEBHOOKS,),
    ),
    (
        ("networking.k8s.io/Ingress",),
        (
            at("spec", _ingress),
            at("spec.defaultBackend?", _BACKEND),
            at("spec.ingressClassName", fits(subdomain)),
            at("spec.rules[].host", _host),
            at("spec.rules[].http?.paths", needed),
            at("spec.rules[].http.paths[]", _ingress_path, at("backend", _BACKEND)),
            at("spec.tls[].hosts[]", needed, _host),
            at("spec.tls[].secretName", fits(subdomain)),
        ),
    ),
    (
        ("networking.k8s.io/NetworkPolicy",),
        (
            at("spec.podSelector", selector),
            *(
                at(peers, _peer, at("podSelector|namespaceSelector", selector))
                for peers in ("spec.ingress[].from[]", "spec.egress[].to[]")
            ),
            *(
                at(block, at("cidr", _network), at("except[]", _network))
                for block in ("spec.ingress[].from[].ipBlock?", "spec.egress[].to[].ipBlock?")
            ),
            at("spec.ingress|egress[].ports[]", at("port", port), at("endPort", between(1, MAX_PORT))),
            at("spec.ingress|egress[].ports[]", _last_port),
        ),
    ),
    (_ROLES, (at("rules[].verbs", needed), at("rules[]", _role_rule))),
    (
        (f"{_RBAC}/ClusterRole",),
        (
            at("aggregationRule?.clusterRoleSelectors", needed),
            at("aggregationRule.clusterRoleSelectors[]", selector),
        ),
    ),
    (
        _BINDINGS,
        (
            at("roleRef.apiGroup", choice(_RBAC, unset=True)),
            at("roleRef.kind", _role_kind),
            at("roleRef.name", name(path_segment)),
            at("subjects[].name", needed),
            at("subjects[]", _bound),
        ),
    ),
    (
        ("Service",),
        (
            at("spec", _service, at("selector", labels), at("trafficDistribution", _traffic)),
            at("spec.ports[]", at("port", between(1, MAX_PORT)), at("name", fits(label))),
            at("spec.ports[].appProtocol", fits(qualified_name)),
            at("spec", at("ports", _service_ports), unique("port name", "ports[].name")),
            at("spec.externalIPs[]", fits(address)),
            at("spec.loadBalancerSourceRanges[]", _network),
        ),
    ),
    *WORKLOAD_RULES,
)


@cache
def rules_for(kind: str) -> tuple[Rule, ...]:
    """Give the rules for objects of a kind (`apps/Deployment`, `Service`)."""
    own = [rule for kinds, rules in _RULES if kind in kinds for rule in rules]
    return (_METADATA, *own)


OPERATOR_RULES: tuple[OperatorRules, ...] = (
    *TRAINING_RULES,
    *SERVING_RULES,
    *PIPELINE_RULES,
    *SCHEDULING_RULES,
)


@cache
def operator_rules_for(kind: str) -> tuple[OperatorRules, ...]:
    """Give what the operators of a kind refuse beyond its definition."""
    return tuple(rules for rules in OPERATOR_RULES if kind in rules.kinds)
