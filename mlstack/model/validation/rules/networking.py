"""Rules on Ingresses and NetworkPolicies."""

from __future__ import annotations

import ipaddress

from mlstack.model.validation import syntax
from mlstack.model.validation.base import Field, Problems, shown
from mlstack.model.validation.rules.shared import MAX_PORT, fits, needed_name, network, one_of, port, selector
from mlstack.model.validation.rules.table import Subject, rule

_BAD_PATH_PARTS = ("//", "/./", "/../", "%2f", "%2F")
_BAD_PATH_ENDS = ("/..", "/.")


@rule("networking.k8s.io/Ingress")
def ingress_leads_somewhere(subject: Subject) -> Problems:
    """An Ingress has rules or a default."""
    spec = subject.spec
    if not spec.at("rules").items and not spec.at("defaultBackend"):
        yield spec.says("needs `rules` or a `defaultBackend`")
    if spec.at("defaultBackend"):
        yield from _backend(spec.at("defaultBackend"))
    yield from fits(spec.at("ingressClassName"), syntax.subdomain)
    if spec.at("ingressClassName").value == "":
        yield spec.at("ingressClassName").says("must not be empty: leave it out for the cluster's default")


@rule("networking.k8s.io/Ingress")
def ingress_rules_fit(subject: Subject) -> Problems:
    """Hosts are DNS names; paths are absolute and lead to a port of a Service."""
    for one in subject.spec.at("rules").items:
        yield from _host(one.at("host"))
        if one.at("http"):
            yield from one.at("http", "paths").needed()
        for path in one.at("http", "paths").items:
            yield from _path(path)
            yield from _backend(path.at("backend"))
    for one in subject.spec.at("tls").items:
        for host in one.at("hosts").items:
            yield from host.needed()
            yield from _host(host)
        yield from fits(one.at("secretName"), syntax.subdomain)


def _host(host: Field) -> Problems:
    try:
        ipaddress.ip_address(host.text)
    except ValueError:
        yield from fits(host, lambda text: syntax.subdomain(text.removeprefix("*.")))
    else:
        yield host.says(f"must be a DNS name, not an address, got {shown(host.value)}")


def _path(path: Field) -> Problems:
    kind, text = path.at("pathType").text, path.at("path").text
    strict = kind in ("Exact", "Prefix")
    if (strict or text) and not text.startswith("/"):
        yield path.at("path").says(f"must start with `/`, got {shown(text)}")
    if strict:
        bad = [part for part in _BAD_PATH_PARTS if part in text]
        bad += [end for end in _BAD_PATH_ENDS if text.endswith(end)]
        for part in bad:
            yield path.at("path").says(f"must not contain `{part}`, got {shown(text)}")


def _backend(backend: Field) -> Problems:
    service = backend.at("service")
    yield from one_of(backend, ("service", "resource"), what="backend")
    if not service:
        return
    yield from needed_name(service.at("name"), syntax.label)
    name, number = service.at("port", "name"), service.at("port", "number")
    if name.text and number.number:
        yield service.at("port").says("must have a `name` or a `number`, got both")
    elif not name.text and not number.number:
        yield service.at("port").says("needs a `name` or a `number`")
    yield from fits(name, syntax.port_name)
    yield from number.between(0, MAX_PORT)


@rule("networking.k8s.io/NetworkPolicy")
def policy_fits(subject: Subject) -> Problems:
    """A policy selects pods, and peers by labels or by address."""
    yield from selector(subject.spec.at("podSelector"))
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for one in subject.spec.at(direction).items:
            for peer in one.at(peers).items:
                yield from _peer(peer)
            for each in one.at("ports").items:
                yield from _policy_port(each)


def _peer(peer: Field) -> Problems:
    if not peer.names:
        yield peer.says("must have a `podSelector`, `namespaceSelector` or `ipBlock`")
    block = peer.at("ipBlock")
    if block and len(peer.names) > 1:
        yield block.says("must not stand beside a selector")
    for name in ("podSelector", "namespaceSelector"):
        yield from selector(peer.at(name))
    if block:
        yield from network(block.at("cidr"))
        for one in block.at("except").items:
            yield from network(one)


def _policy_port(each: Field) -> Problems:
    start, end = each.at("port"), each.at("endPort")
    yield from port(start)
    if not end:
        return
    yield from end.between(1, MAX_PORT)
    if start.number is None:
        yield end.says("needs a `port` that is a number")
    elif end.number is not None and end.number < start.number:
        yield end.says(f"must be at least `port` ({start.number}), got {end.number}")
