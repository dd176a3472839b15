"""Rules on Services."""

from __future__ import annotations

from mlstack.model.validation import syntax
from mlstack.model.validation.base import Field, Problems, shown
from mlstack.model.validation.rules.shared import (
    MAX_PORT,
    address,
    fits,
    labels,
    needed_name,
    network,
    port,
    unique,
)
from mlstack.model.validation.rules.table import Subject, rule

_NODE_PORTS = (30000, 32767)
_EXTERNAL = ("NodePort", "LoadBalancer")
_DAY_S = 86400


@rule("Service")
def service_has_ports(subject: Subject) -> Problems:
    """A Service with an address of its own has ports."""
    if _is_headless(subject.spec) or _type(subject.spec) == "ExternalName":
        return
    yield from subject.spec.at("ports").needed()


def _type(spec: Field) -> str:
    return spec.at("type").text or "ClusterIP"


def _is_headless(spec: Field) -> bool:
    return spec.at("clusterIP").text == "None"


@rule("Service")
def service_ports_fit(subject: Subject) -> Problems:
    """Ports are 1 to 65535; where there are several, each has a name of its own."""
    ports = subject.spec.at("ports").items
    for one in ports:
        yield from one.at("port").between(1, MAX_PORT)
        if one.at("targetPort").value not in (0, ""):
            yield from port(one.at("targetPort"))
        yield from fits(one.at("name"), syntax.label)
        yield from fits(one.at("appProtocol"), syntax.qualified_name)
        if len(ports) > 1 and not one.at("name").text:
            yield one.at("name").says("is required where a Service has several ports")
    yield from unique((one.at("name") for one in ports), what="port name")


@rule("Service")
def node_ports_fit(subject: Subject) -> Problems:
    """Ports of the nodes are for NodePort and LoadBalancer, from the range that clusters give out."""
    seen: set[tuple[object, str]] = set()
    for one in subject.spec.at("ports").items:
        node_port = one.at("nodePort")
        if not node_port.number:
            continue
        if _type(subject.spec) not in _EXTERNAL:
            yield node_port.says(f"must not be set with `type: {_type(subject.spec)}`")
        else:
            yield from node_port.between(*_NODE_PORTS)
        key = (node_port.number, one.at("protocol").text or "TCP")
        if key in seen:
            yield node_port.says(f"port {node_port.number} of the nodes is used twice")
        seen.add(key)


@rule("Service")
def service_type_decides(subject: Subject) -> Problems:
    """What a Service may say beside its type."""
    spec, kind = subject.spec, _type(subject.spec)
    if kind == "ExternalName":
        yield from needed_name(spec.at("externalName"), lambda text: syntax.subdomain(text.removesuffix(".")))
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if spec.at(name).value:
                yield spec.at(name).says("must not be set with `type: ExternalName`")
    elif kind in _EXTERNAL and _is_headless(spec):
        yield spec.at("clusterIP").says(f"must not be `None` with `type: {kind}`")
    if kind not in _EXTERNAL and not spec.at("externalIPs").items and spec.at("externalTrafficPolicy").text:
        yield spec.at("externalTrafficPolicy").says(f"must not be set with `type: {kind}`")
    if kind == "LoadBalancer":
        return
    for name in ("allocateLoadBalancerNodePorts", "loadBalancerClass", "loadBalancerSourceRanges"):
        if spec.at(name).value not in (None, []):
            yield spec.at(name).says("must only be set with `type: LoadBalancer`")


@rule("Service")
def service_affinity_fits(subject: Subject) -> Problems:
    """Clients stay with a pod for up to a day."""
    if subject.spec.at("sessionAffinity").text == "ClientIP":
        yield from subject.spec.at("sessionAffinityConfig", "clientIP", "timeoutSeconds").between(1, _DAY_S)


@rule("Service")
def service_addresses_fit(subject: Subject) -> Problems:
    """Selectors are labels; addresses are addresses."""
    spec = subject.spec
    yield from labels(spec.at("selector"))
    if not _is_headless(spec):
        yield from address(spec.at("clusterIP"))
    first = spec.at("clusterIPs").items[:1]
    if first and first[0].value != spec.at("clusterIP").value:
        yield spec.at("clusterIPs").says(f"must start with `clusterIP`, got {shown(first[0].value)}")
    for one in spec.at("externalIPs").items:
        yield from address(one)
    for one in spec.at("loadBalancerSourceRanges").items:
        yield from network(one)


@rule("Service")
def traffic_distribution_fits(subject: Subject) -> Problems:
    """Traffic is spread in ways that the version knows."""
    spread = subject.spec.at("trafficDistribution")
    known = ("PreferClose", "PreferSameZone", "PreferSameNode")[: 3 if subject.minor >= 34 else 1]
    if spread.text and spread.text not in known:
        expected = ", ".join(f"`{one}`" for one in known)
        yield spread.says(f"must be one of {expected}, got {shown(spread.value)}")
