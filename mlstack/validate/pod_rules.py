"""Rules on storage: claims, volumes and classes."""

from __future__ import annotations

from mlstack.names import nearest
from mlstack.validate import schema
from mlstack.validate.rules import (
    MAX_PORT,
    PodSubject,
    ValidationSubject,
    address,
    fits,
    labels,
    needed_name,
    one_of,
    pod_rule,
    port,
    requirement,
    rule,
    selector,
    unique,
)
from mlstack.validate.schema import Field, Problems, shown

# --- Rules on storage: claims, volumes and classes ---

_NO_SOURCE = frozenset(
    {
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    }
)


@rule("PersistentVolumeClaim")
def claim_fits(subject: ValidationSubject) -> Problems:
    """A claim says how it is accessed and how much it needs."""
    yield from claim_spec_fits(subject.spec)


@rule("apps/StatefulSet")
def claim_templates_fit(subject: ValidationSubject) -> Problems:
    """The claims of a StatefulSet are claims; older versions leave that to the claim itself."""
    for template in subject.spec.at("volumeClaimTemplates").items:
        yield from claim_spec_fits(template.at("spec"))


def claim_spec_fits(spec: Field) -> Problems:
    """Check the specification of a claim."""
    yield from _access_modes(spec)
    yield from selector(spec.at("selector"))
    yield from fits(spec.at("storageClassName"), schema.subdomain)
    storage = spec.at("resources", "requests", "storage")
    if not storage:
        yield storage.says("is required")
    yield from _positive(storage)


def _access_modes(spec: Field) -> Problems:
    modes = spec.at("accessModes")
    yield from modes.needed()
    if len(modes.items) > 1 and "ReadWriteOncePod" in [mode.text for mode in modes.items]:
        yield modes.says("must not have `ReadWriteOncePod` together with another mode")


def _positive(quantity: Field) -> Problems:
    found = schema.quantity(quantity.value)
    if found is not None and found <= 0:
        yield quantity.says(f"must be above 0, got {shown(quantity.value)}")


@rule("PersistentVolume")
def volume_fits(subject: ValidationSubject) -> Problems:
    """A volume has a size, access modes and one source."""
    yield from subject.spec.at("capacity").needed()
    if subject.spec.at("capacity").names:
        storage = subject.spec.at("capacity", "storage")
        if not storage:
            yield storage.says("is required")
        yield from _positive(storage)
        for name, other in subject.spec.at("capacity").entries:
            if name != "storage":
                yield other.says("must be `storage`, the only resource of a volume")
    yield from _access_modes(subject.spec)
    yield from fits(subject.spec.at("storageClassName"), schema.subdomain)
    sources = [name for name in subject.spec.names if name not in _NO_SOURCE]
    if len(sources) != 1:
        listed = " and ".join(f"`{name}`" for name in sources) or "none"
        yield subject.spec.says(f"must have one source, got {listed}")
    if "nfs" in sources:
        yield from subject.spec.at("nfs", "server").needed()
        path = subject.spec.at("nfs", "path")
        yield from path.needed()
        if path.text and not path.text.startswith("/"):
            yield path.says(f"must be an absolute path, got {shown(path.value)}")


@rule("storage.k8s.io/StorageClass")
def class_has_a_provisioner(subject: ValidationSubject) -> Problems:
    """A class names who makes the volumes."""
    yield from needed_name(subject.root.at("provisioner"), lambda text: schema.qualified_name(text.lower()))


# --- Rules on the containers of a pod ---

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
        yield from needed_name(container.at("name"), schema.label)
        yield from container.at("image").needed()


@rule("Pod")
def images_are_bare(subject: ValidationSubject) -> Problems:
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
            yield from fits(one.at("name"), schema.port_name)
        yield from unique((one.at("name") for one in ports), what="port name")


@pod_rule
def variables_fit(pod: PodSubject) -> Problems:
    """A variable has a name, and either a value or one source."""
    for container in pod.containers:
        for variable in container.at("env").items:
            yield from needed_name(variable.at("name"), lambda text: schema.env_name(text, minor=pod.minor))
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
            yield from needed_name(reference.at("name"), schema.subdomain)
            yield from needed_name(reference.at("key"), schema.config_key)
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
                    yield from needed_name(source.at(name, "name"), schema.subdomain)
            yield from fits(source.at("prefix"), lambda text: schema.env_name(text, minor=pod.minor))


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
    wrong = schema.qualified_name(name)
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
    found = schema.quantity(quantity.value)
    if found is None:
        return
    if found < 0:
        yield quantity.says(f"must not be negative, got {shown(quantity.value)}")
    elif _is_extended(name) and found != int(found):
        yield quantity.says(f"must be a whole number, got {shown(quantity.value)}")


def _is_extended(name: str) -> bool:
    return "/" in name and not name.rpartition("/")[0].endswith("kubernetes.io")


def _within_limit(name: str, request: Field, limit: Field) -> Problems:
    asked, allowed = schema.quantity(request.value), schema.quantity(limit.value)
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


# --- Rules on pods as a whole: containers' names, volumes, scheduling, network ---

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
        for declared in container.at("ports").items:
            host_port = declared.at("hostPort")
            if not host_port.number:
                continue
            key = (host_port.number, declared.at("protocol").text or "TCP", declared.at("hostIP").text)
            if key in seen:
                yield host_port.says(f"port {host_port.number} of the node is taken twice")
            seen.add(key)


@pod_rule
def host_network_keeps_port_numbers(pod: PodSubject) -> Problems:
    """On the node's network a port is the node's port."""
    if pod.spec.at("hostNetwork").value is not True:
        return
    for container in pod.containers:
        for declared in container.at("ports").items:
            host_port, number = declared.at("hostPort"), declared.at("containerPort").number
            if host_port.number and host_port.number != number:
                yield host_port.says(f"must be {number} like `containerPort`, because of `hostNetwork`")


@pod_rule
def names_of_others_fit(pod: PodSubject) -> Problems:
    """Names of accounts, classes, Secrets and hosts have the syntax of those."""
    for name in ("serviceAccountName", "priorityClassName", "runtimeClassName", "nodeName"):
        yield from fits(pod.spec.at(name), schema.subdomain)
    for name in ("hostname", "subdomain"):
        yield from fits(pod.spec.at(name), schema.label)


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
        yield from fits(key, schema.qualified_name)
        if not key.text and operator.text != "Exists":
            yield operator.says("must be `Exists` where there is no `key`")
        if operator.text == "Exists" and value.text:
            yield value.says("must not be set with operator `Exists`")
        elif operator.text in ("", "Equal"):
            yield from fits(value, schema.label_value)
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
            yield from needed_name(term.at("topologyKey"), schema.qualified_name)
            for name in ("labelSelector", "namespaceSelector"):
                yield from selector(term.at(name))
            for namespace in term.at("namespaces").items:
                yield from needed_name(namespace, schema.label)


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
            yield from needed_name(name, schema.subdomain)


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
        yield from needed_name(gate.at("name"), schema.qualified_name)
    for gate in pod.spec.at("readinessGates").items:
        yield from needed_name(gate.at("conditionType"), schema.qualified_name)
    for _, quantity in pod.spec.at("overhead").entries:
        found = schema.quantity(quantity.value)
        if found is not None and found < 0:
            yield quantity.says(f"must not be negative, got {shown(quantity.value)}")


# --- Rules on the volumes of a pod and where containers mount them ---

_MAX_MODE = 0o777
_MIN_TOKEN_S = 600
_PROJECTED = (
    "clusterTrustBundle",
    "configMap",
    "downwardAPI",
    "podCertificate",
    "secret",
    "serviceAccountToken",
)
_NEEDED = {
    "configMap": ("name",),
    "csi": ("driver",),
    "hostPath": ("path",),
    "nfs": ("server", "path"),
    "persistentVolumeClaim": ("claimName",),
    "secret": ("secretName",),
}


@pod_rule
def volumes_are_named(pod: PodSubject) -> Problems:
    """A volume has a DNS label of its own as name."""
    volumes = pod.spec.at("volumes").items
    for volume in volumes:
        yield from needed_name(volume.at("name"), schema.label)
    yield from unique((volume.at("name") for volume in volumes), what="volume")


@pod_rule
def volumes_have_one_source(pod: PodSubject) -> Problems:
    """A volume comes from one place; from none means an empty directory."""
    for volume in pod.spec.at("volumes").items:
        given = [name for name in volume.names if name != "name"]
        if len(given) > 1:
            yield volume.says(
                f"must have one source, got {len(given)}: {' and '.join(f'`{one}`' for one in given)}"
            )
        for name in given:
            for field in _NEEDED.get(name, ()):
                yield from volume.at(name, field).needed()


@pod_rule
def volume_sources_fit(pod: PodSubject) -> Problems:
    """Sources have paths that stay inside, modes up to 0777, sizes of zero and up."""
    for volume in pod.spec.at("volumes").items:
        yield from fits(volume.at("hostPath", "path"), schema.no_parent)
        yield from _absolute(volume.at("nfs", "path"))
        size = volume.at("emptyDir", "sizeLimit")
        found = schema.quantity(size.value)
        if found is not None and found < 0:
            yield size.says(f"must not be negative, got {shown(size.value)}")
        for name in ("configMap", "downwardAPI", "projected", "secret"):
            yield from _mode(volume.at(name, "defaultMode"))
        for name in ("configMap", "secret"):
            yield from _files(volume.at(name, "items"))
        yield from _projected(volume.at("projected"))
        template = volume.at("ephemeral", "volumeClaimTemplate")
        if volume.at("ephemeral"):
            yield from template.needed()
        if template:
            yield from claim_spec_fits(template.at("spec"))


def _absolute(path: Field) -> Problems:
    if path.text and not path.text.startswith("/"):
        yield path.says(f"must be an absolute path, got {shown(path.value)}")


def _mode(mode: Field) -> Problems:
    if mode.number is not None and not 0 <= mode.number <= _MAX_MODE:
        yield mode.says(f"must be a file mode from 0 to 0777 ({_MAX_MODE} in decimal), got {mode.number}")


def _files(items: Field) -> Problems:
    for item in items.items:
        yield from item.at("key").needed()
        yield from item.at("path").needed()
        yield from fits(item.at("path"), _inside)
        yield from _mode(item.at("mode"))


def _inside(path: str) -> str | None:
    return (
        f"must not start with `..`, got {shown(path)}"
        if path.startswith("..")
        else schema.relative_path(path)
    )


def _projected(projected: Field) -> Problems:
    paths: list[Field] = []
    for source in projected.at("sources").items:
        if len(source.names) > 1:
            yield from one_of(source, _PROJECTED, what="source")
        for name in ("configMap", "secret"):
            if source.at(name):
                yield from source.at(name, "name").needed()
                yield from _files(source.at(name, "items"))
                paths += [item.at("path") for item in source.at(name, "items").items]
        token = source.at("serviceAccountToken")
        if token:
            yield from token.at("path").needed()
            yield from fits(token.at("path"), _inside)
            yield from token.at("expirationSeconds").between(_MIN_TOKEN_S, 2**32)
    yield from unique(paths, what="path")


@pod_rule
def mounts_lead_to_volumes(pod: PodSubject) -> Problems:
    """A mount names a volume of the pod."""
    known = {volume.at("name").text for volume in pod.spec.at("volumes").items} | pod.claims
    for container in pod.containers:
        for list_name in ("volumeMounts", "volumeDevices"):
            for mount in container.at(list_name).items:
                name = mount.at("name")
                if name.text and name.text not in known:
                    near = nearest(name.text, known)
                    hint = f", did you mean `{near}`?" if near else ""
                    yield name.says(f"no volume {shown(name.text)} in this pod{hint}")
                yield from name.needed()


@pod_rule
def mounts_have_places(pod: PodSubject) -> Problems:
    """A mount has a place of its own in its container, and a path inside the volume."""
    for container in pod.containers:
        mounts = container.at("volumeMounts").items
        for mount in mounts:
            yield from mount.at("mountPath").needed()
            for name in ("subPath", "subPathExpr"):
                yield from fits(mount.at(name), schema.relative_path)
            if mount.at("subPath").text and mount.at("subPathExpr").text:
                yield mount.at("subPathExpr").says("must not be set together with `subPath`")
            if (
                mount.at("recursiveReadOnly").text in ("Enabled", "IfPossible")
                and not mount.at("readOnly").value
            ):
                yield mount.at("recursiveReadOnly").says("needs `readOnly: true`")
        devices = container.at("volumeDevices").items
        places = [*(one.at("mountPath") for one in mounts), *(one.at("devicePath") for one in devices)]
        yield from unique(places, what="path")
