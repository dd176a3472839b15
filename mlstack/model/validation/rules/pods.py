"""Rules on pods as a whole: containers' names, volumes, scheduling, network."""

from __future__ import annotations

from mlstack.model.validation import formats, syntax
from mlstack.model.validation.base import Field, Problems, shown
from mlstack.model.validation.rules.shared import (
    address,
    fits,
    labels,
    needed_name,
    requirement,
    selector,
    unique,
)
from mlstack.model.validation.rules.table import PodSubject, pod_rule

_MAX_ID = 2**31 - 1
_NODE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


@pod_rule
def has_containers(pod: PodSubject) -> Problems:
    """A pod has at least one container."""
    yield from pod.spec.at("containers").needed()


@pod_rule
def container_names_differ(pod: PodSubject) -> Problems:
    """Containers, initial ones too, have names of their own."""
    yield from unique((container.at("name") for container in pod.containers), what="name")


@pod_rule
def host_ports_differ(pod: PodSubject) -> Problems:
    """A port of the node can be taken once."""
    seen: set[tuple[object, ...]] = set()
    for container in pod.spec.at("containers").items:
        for port in container.at("ports").items:
            host_port = port.at("hostPort")
            if not host_port.number:
                continue
            key = (host_port.number, port.at("protocol").text or "TCP", port.at("hostIP").text)
            if key in seen:
                yield host_port.says(f"port {host_port.number} of the node is taken twice")
            seen.add(key)


@pod_rule
def host_network_keeps_port_numbers(pod: PodSubject) -> Problems:
    """On the node's network a port is the node's port."""
    if pod.spec.at("hostNetwork").value is not True:
        return
    for container in pod.containers:
        for port in container.at("ports").items:
            host_port, number = port.at("hostPort"), port.at("containerPort").number
            if host_port.number and host_port.number != number:
                yield host_port.says(f"must be {number} like `containerPort`, because of `hostNetwork`")


@pod_rule
def names_of_others_fit(pod: PodSubject) -> Problems:
    """Names of accounts, classes, Secrets and hosts have the syntax of those."""
    for name in ("serviceAccountName", "priorityClassName", "runtimeClassName", "nodeName"):
        yield from fits(pod.spec.at(name), syntax.subdomain)
    for name in ("hostname", "subdomain"):
        yield from fits(pod.spec.at(name), syntax.label)


@pod_rule
def times_are_in_range(pod: PodSubject) -> Problems:
    """A deadline is at least a second, a grace not negative."""
    yield from pod.spec.at("activeDeadlineSeconds").between(1)
    yield from pod.spec.at("terminationGracePeriodSeconds").between(0)


@pod_rule
def node_selector_fits(pod: PodSubject) -> Problems:
    """A node selector consists of labels."""
    yield from labels(pod.spec.at("nodeSelector"))


@pod_rule
def tolerations_are_complete(pod: PodSubject) -> Problems:
    """A toleration's operator decides whether it has a key and a value."""
    for toleration in pod.spec.at("tolerations").items:
        key, operator, value = (toleration.at(name) for name in ("key", "operator", "value"))
        yield from fits(key, syntax.qualified_name)
        if not key.text and operator.text != "Exists":
            yield operator.says("must be `Exists` where there is no `key`")
        if operator.text == "Exists" and value.text:
            yield value.says("must not be set with operator `Exists`")
        elif operator.text in ("", "Equal"):
            yield from fits(value, syntax.label_value)
        if toleration.at("tolerationSeconds") and toleration.at("effect").text != "NoExecute":
            yield toleration.at("effect").says("must be `NoExecute` with `tolerationSeconds`")


@pod_rule
def node_affinity_is_complete(pod: PodSubject) -> Problems:
    """Required terms exist; each has requirements that make sense; weights are 1 to 100."""
    affinity = pod.spec.at("affinity", "nodeAffinity")
    required = affinity.at("requiredDuringSchedulingIgnoredDuringExecution")
    if required:
        yield from required.at("nodeSelectorTerms").needed()
    terms = list(required.at("nodeSelectorTerms").items)
    for preferred in affinity.at("preferredDuringSchedulingIgnoredDuringExecution").items:
        yield from _weight(preferred)
        terms.append(preferred.at("preference"))
    for term in terms:
        for name in ("matchExpressions", "matchFields"):
            for expression in term.at(name).items:
                yield from requirement(expression, _NODE_OPERATORS)
                yield from _one_number(expression)


def _one_number(expression: Field) -> Problems:
    if expression.at("operator").text in ("Gt", "Lt") and len(expression.at("values").items) != 1:
        yield expression.at("values").says(f"must have one value with `{expression.at('operator').text}`")


def _weight(preferred: Field) -> Problems:
    weight = preferred.at("weight")
    yield from (weight if weight.number is not None else Field(0, weight.keys)).between(1, 100)


@pod_rule
def pod_affinity_is_complete(pod: PodSubject) -> Problems:
    """Every term names a topology and selects by proper labels."""
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = pod.spec.at("affinity", kind)
        terms = list(affinity.at("requiredDuringSchedulingIgnoredDuringExecution").items)
        for preferred in affinity.at("preferredDuringSchedulingIgnoredDuringExecution").items:
            yield from _weight(preferred)
            terms.append(preferred.at("podAffinityTerm"))
        for term in terms:
            yield from needed_name(term.at("topologyKey"), syntax.qualified_name)
            for name in ("labelSelector", "namespaceSelector"):
                yield from selector(term.at(name))
            for namespace in term.at("namespaces").items:
                yield from needed_name(namespace, syntax.label)


@pod_rule
def spread_is_complete(pod: PodSubject) -> Problems:
    """A spread constraint has a positive skew and a topology."""
    for constraint in pod.spec.at("topologySpreadConstraints").items:
        yield from constraint.at("maxSkew").between(1)
        yield from constraint.at("minDomains").between(1)
        for name in ("topologyKey", "whenUnsatisfiable"):
            yield from constraint.at(name).needed()
        yield from selector(constraint.at("labelSelector"))
        if constraint.at("minDomains") and constraint.at("whenUnsatisfiable").text != "DoNotSchedule":
            yield constraint.at("minDomains").says("needs `whenUnsatisfiable: DoNotSchedule`")


@pod_rule
def host_aliases_fit(pod: PodSubject) -> Problems:
    """A host alias maps an address to DNS names."""
    for alias in pod.spec.at("hostAliases").items:
        yield from alias.at("ip").needed()
        yield from address(alias.at("ip"))
        for name in alias.at("hostnames").items:
            yield from needed_name(name, syntax.subdomain)


@pod_rule
def dns_config_fits(pod: PodSubject) -> Problems:
    """Without cluster DNS a pod names its servers, at most three."""
    config = pod.spec.at("dnsConfig")
    servers = config.at("nameservers")
    if pod.spec.at("dnsPolicy").text == "None" and not servers.items:
        yield servers.says("is required with `dnsPolicy: None`")
    if len(servers.items) > 3:
        yield servers.says(f"must have at most 3 items, got {len(servers.items)}")
    for server in servers.items:
        yield from address(server)


@pod_rule
def security_ids_are_in_range(pod: PodSubject) -> Problems:
    """User and group ids are 0 to 2^31-1; a seccomp profile is named only when it is local."""
    contexts = [pod.spec.at("securityContext"), *(one.at("securityContext") for one in pod.containers)]
    for context in contexts:
        groups = context.at("supplementalGroups").items
        for number in (context.at("runAsUser"), context.at("runAsGroup"), context.at("fsGroup"), *groups):
            yield from number.between(0, _MAX_ID)
        for name in ("seccompProfile", "appArmorProfile"):
            profile = context.at(name)
            if not profile:
                continue
            yield from profile.at("type").needed()
            local, is_local = profile.at("localhostProfile"), profile.at("type").text == "Localhost"
            if is_local:
                yield from local.needed()
            elif local:
                yield local.says("must only be set with `type: Localhost`")


@pod_rule
def overhead_and_gates_fit(pod: PodSubject) -> Problems:
    """Scheduling gates and readiness gates are qualified names; overhead is not negative."""
    for gate in pod.spec.at("schedulingGates").items:
        yield from needed_name(gate.at("name"), syntax.qualified_name)
    for gate in pod.spec.at("readinessGates").items:
        yield from needed_name(gate.at("conditionType"), syntax.qualified_name)
    for _, quantity in pod.spec.at("overhead").entries:
        found = formats.quantity(quantity.value)
        if found is not None and found < 0:
            yield quantity.says(f"must not be negative, got {shown(quantity.value)}")
