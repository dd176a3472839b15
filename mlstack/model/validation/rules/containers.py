"""Rules on the containers of a pod."""

from __future__ import annotations

from mlstack.model.validation import formats, syntax
from mlstack.model.validation.base import Field, Problems, shown
from mlstack.model.validation.rules.shared import MAX_PORT, fits, needed_name, one_of, port, unique
from mlstack.model.validation.rules.table import PodSubject, Subject, pod_rule, rule

_RESTART_POLICIES = 34
"""From 1.34 on any container may have a restart policy of its own."""
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS = ("exec", "grpc", "httpGet", "tcpSocket")
_HOOKS = ("exec", "httpGet", "sleep", "tcpSocket")
_STANDARD = ("cpu", "memory", "ephemeral-storage")
_ENV_SOURCES = ("configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef")


@pod_rule
def containers_are_named(pod: PodSubject) -> Problems:
    """A container has a DNS label as name, and an image."""
    for container in pod.containers:
        yield from needed_name(container.at("name"), syntax.label)
        yield from container.at("image").needed()


@rule("Pod")
def images_are_bare(subject: Subject) -> Problems:
    """The image of a Pod has no space around it (in templates it may)."""
    for name in ("initContainers", "containers"):
        for container in subject.spec.at(name).items:
            image = container.at("image")
            if image.text != image.text.strip():
                yield image.says(f"must have no space around it, got {shown(image.value)}")


@pod_rule
def ports_fit(pod: PodSubject) -> Problems:
    """Ports are 1 to 65535; names of ports differ within a container."""
    for container in pod.containers:
        ports = container.at("ports").items
        for one in ports:
            yield from one.at("containerPort").between(1, MAX_PORT)
            yield from one.at("hostPort").between(0, MAX_PORT)
            yield from fits(one.at("name"), syntax.port_name)
        yield from unique((one.at("name") for one in ports), what="port name")


@pod_rule
def variables_fit(pod: PodSubject) -> Problems:
    """A variable has a name, and either a value or one source."""
    for container in pod.containers:
        for variable in container.at("env").items:
            yield from needed_name(variable.at("name"), lambda text: syntax.env_name(text, minor=pod.minor))
            source = variable.at("valueFrom")
            if not source:
                continue
            if variable.at("value").text:
                yield source.says("must not be set together with a `value`")
            yield from one_of(source, _ENV_SOURCES, what="source")
            yield from _references(source)


def _references(source: Field) -> Problems:
    for name in ("configMapKeyRef", "secretKeyRef"):
        reference = source.at(name)
        if reference:
            yield from needed_name(reference.at("name"), syntax.subdomain)
            yield from needed_name(reference.at("key"), syntax.config_key)
    path = source.at("fieldRef", "fieldPath")
    if source.at("fieldRef"):
        yield from path.needed()
    if path.text and not _is_pod_field(path.text):
        yield path.says(f"is no field that a variable can hold, got {shown(path.text)}")
    resource = source.at("resourceFieldRef", "resource")
    if resource.text and not resource.text.startswith(("limits.", "requests.")):
        yield resource.says(f"must start with `limits.` or `requests.`, got {shown(resource.text)}")


def _is_pod_field(path: str) -> bool:
    if path.startswith(("metadata.annotations['", "metadata.labels['")):
        return path.endswith("']")
    return path in (
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    )


@pod_rule
def variable_files_fit(pod: PodSubject) -> Problems:
    """All variables of a ConfigMap or Secret come from one that is named."""
    for container in pod.containers:
        for source in container.at("envFrom").items:
            yield from one_of(source, ("configMapRef", "secretRef"), what="source")
            for name in ("configMapRef", "secretRef"):
                if source.at(name):
                    yield from needed_name(source.at(name, "name"), syntax.subdomain)
            yield from fits(source.at("prefix"), lambda text: syntax.env_name(text, minor=pod.minor))


@pod_rule
def probes_fit(pod: PodSubject) -> Problems:
    """A probe asks in one way; times are not negative; only readiness may need several successes."""
    for container in pod.containers:
        for name in _PROBES:
            probe = container.at(name)
            if not probe:
                continue
            yield from one_of(probe, _HANDLERS, what="handler")
            yield from _handler(probe)
            for number in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "failureThreshold"):
                yield from probe.at(number).between(0)
            yield from _thresholds(probe, name)


def _thresholds(probe: Field, name: str) -> Problems:
    successes, grace = probe.at("successThreshold"), probe.at("terminationGracePeriodSeconds")
    if name == "readinessProbe":
        yield from successes.between(0)
        if grace:
            yield grace.says("must not be set for a readiness probe")
        return
    yield from grace.between(1)
    if successes.number not in (None, 0, 1):
        yield successes.says(f"must be 1 for this probe, got {successes.number}")


def _handler(handler: Field) -> Problems:
    if handler.at("exec"):
        yield from handler.at("exec", "command").needed()
    for name in ("httpGet", "tcpSocket"):
        if handler.at(name):
            yield from handler.at(name, "port").needed()
            yield from port(handler.at(name, "port"))
    yield from handler.at("grpc", "port").between(1, MAX_PORT)
    for header in handler.at("httpGet", "httpHeaders").items:
        yield from header.at("name").needed()


@pod_rule
def hooks_fit(pod: PodSubject) -> Problems:
    """A hook acts in one way."""
    for container in pod.containers:
        for name in ("postStart", "preStop"):
            hook = container.at("lifecycle", name)
            if hook:
                yield from one_of(hook, _HOOKS, what="handler")
                yield from _handler(hook)


@pod_rule
def initial_containers_end(pod: PodSubject) -> Problems:
    """An initial container that ends has no probes and no hooks; one that stays has `Always`."""
    for container in pod.spec.at("initContainers").items:
        policy = container.at("restartPolicy")
        if pod.minor < _RESTART_POLICIES and policy.text not in ("", "Always"):
            yield policy.says(f"must be `Always` or unset, got {shown(policy.value)}")
        if policy.text == "Always":
            continue
        for name in (*_PROBES, "lifecycle"):
            if container.at(name):
                yield container.at(name).says("needs `restartPolicy: Always` on this initial container")


@pod_rule
def restart_policies_fit(pod: PodSubject) -> Problems:
    """Containers have restart policies of their own only in newer versions."""
    for container in pod.spec.at("containers").items:
        policy = container.at("restartPolicy")
        if policy and pod.minor < _RESTART_POLICIES:
            yield policy.says("can only be set on an initial container in this Kubernetes version")
    for container in pod.containers:
        policy = container.at("restartPolicy")
        if policy and policy.text not in ("Always", "OnFailure", "Never"):
            yield policy.says(f"must be one of `Always`, `OnFailure`, `Never`, got {shown(policy.value)}")


@pod_rule
def resources_fit(pod: PodSubject) -> Problems:
    """Resources have known names and amounts of zero and up; requests stay within limits."""
    for container in pod.containers:
        resources = container.at("resources")
        for name in ("limits", "requests"):
            for resource, quantity in resources.at(name).entries:
                yield from _resource_name(resource, quantity)
                yield from _resource_amount(resource, quantity)
        for resource, quantity in resources.at("requests").entries:
            yield from _within_limit(resource, quantity, resources.at("limits", resource))


def _resource_name(name: str, quantity: Field) -> Problems:
    wrong = syntax.qualified_name(name)
    if wrong:
        yield quantity.says(f"name of a resource {wrong}")
    elif "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
        listed = ", ".join(f"`{one}`" for one in _STANDARD)
        yield quantity.says(
            f"must be a resource of Kubernetes ({listed}) or have a prefix, as `nvidia.com/gpu`"
        )
    elif name.startswith("requests."):
        yield quantity.says("must not start with `requests.`")


def _resource_amount(name: str, quantity: Field) -> Problems:
    found = formats.quantity(quantity.value)
    if found is None:
        return
    if found < 0:
        yield quantity.says(f"must not be negative, got {shown(quantity.value)}")
    elif _is_extended(name) and found != int(found):
        yield quantity.says(f"must be a whole number, got {shown(quantity.value)}")


def _is_extended(name: str) -> bool:
    return "/" in name and not name.rpartition("/")[0].endswith("kubernetes.io")


def _within_limit(name: str, request: Field, limit: Field) -> Problems:
    asked, allowed = formats.quantity(request.value), formats.quantity(limit.value)
    if asked is None:
        return
    if _is_extended(name) or name.startswith("hugepages-"):
        if allowed is None and not limit:
            yield request.says(f"needs a limit of the same amount: write `limits` only for `{name}`")
        elif allowed is not None and asked != allowed:
            yield request.says(f"must equal the limit {shown(limit.value)}, got {shown(request.value)}")
    elif allowed is not None and asked > allowed:
        yield request.says(f"must not be above the limit {shown(limit.value)}, got {shown(request.value)}")


@pod_rule
def privileges_do_not_contradict(pod: PodSubject) -> Problems:
    """What forbids gaining privileges cannot stand beside what gives them."""
    for container in pod.containers:
        context = container.at("securityContext")
        escalation = context.at("allowPrivilegeEscalation")
        if escalation.value is not False:
            continue
        added = [capability.text for capability in context.at("capabilities", "add").items]
        if context.at("privileged").value is True:
            yield escalation.says("must not be false with `privileged: true`")
        if "CAP_SYS_ADMIN" in added:
            yield escalation.says("must not be false with capability `CAP_SYS_ADMIN`")
