"""What the API server's validation demands of pods and of the templates of pods: a table of rules."""

from __future__ import annotations

from mlstack.objects.resources import quantity
from mlstack.validate.checks import (
    COMPUTE,
    MAX_PORT,
    Rule,
    absolute_path,
    at,
    between,
    choice,
    fits,
    labels,
    name,
    needed,
    not_negative,
    one_of,
    port,
    requirement,
    says,
    selector,
    unique,
)
from mlstack.validate.formats import (
    Field,
    Problems,
    address,
    config_key,
    env_name,
    label,
    label_value,
    no_parent,
    port_name,
    qualified_name,
    relative_path,
    shown,
    subdomain,
)
from mlstack.validate.schema import did_you_mean
from mlstack.validate.workload_rules import CLAIM

_CONTAINERS = "initContainers|containers[]"

# --- one container ---

_RESTART_POLICIES = 34
"""From 1.34 on any container may have a restart policy of its own."""
_POD_FIELDS = frozenset(
    {f"metadata.{name}" for name in ("name", "namespace", "uid")}
    | {"spec.nodeName", "spec.serviceAccountName"}
    | {f"status.{name}" for name in ("hostIP", "hostIPs", "podIP", "podIPs")}
)


def _env_name(field: Field) -> Problems:
    yield from fits(lambda text: env_name(text, minor=field.subject.minor))(field)


def _not_beside_value(variable: Field) -> Problems:
    if variable.at("value").text:
        yield from says("must not be set together with a `value`")(variable.at("valueFrom"))


def _pod_field(path: str) -> str | None:
    is_entry = path.startswith(("metadata.annotations['", "metadata.labels['")) and path.endswith("']")
    if is_entry or path in _POD_FIELDS:
        return None
    return f"is no field that a variable can hold, got {shown(path)}"


def _resource_field(path: str) -> str | None:
    if path.startswith(("limits.", "requests.")):
        return None
    return f"must start with `limits.` or `requests.`, got {shown(path)}"


def _one_success(successes: Field) -> Problems:
    if successes.number not in (None, 0, 1):
        yield successes.says(f"must be 1 for this probe, got {successes.number}")


def _initial_container(container: Field) -> Problems:
    """An initial container that ends has no probes and no hooks; one that stays has `Always`."""
    policy = container.at("restartPolicy")
    if container.subject.minor < _RESTART_POLICIES and policy.text not in ("", "Always"):
        yield policy.says(f"must be `Always` or unset, got {shown(policy.value)}")
    if policy.text != "Always":
        rule = says("needs `restartPolicy: Always` on this initial container")
        yield from at("livenessProbe|readinessProbe|startupProbe|lifecycle", rule)(container)


def _restart_policy(policy: Field) -> Problems:
    if policy.subject.minor < _RESTART_POLICIES:
        wrong = "can only be set on an initial container in this Kubernetes version"
        yield from says(wrong)(policy)


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


def _escalation(context: Field) -> Problems:
    """What forbids gaining privileges cannot stand beside what gives them."""
    escalation = context.at("allowPrivilegeEscalation")
    if escalation.value is not False:
        return
    if context.at("privileged").value is True:
        yield escalation.says("must not be false with `privileged: true`")
    if "CAP_SYS_ADMIN" in [capability.text for capability in context.all("capabilities.add[]")]:
        yield escalation.says("must not be false with capability `CAP_SYS_ADMIN`")


def _mount(mount: Field) -> Problems:
    if mount.at("subPath").text and mount.at("subPathExpr").text:
        yield mount.at("subPathExpr").says("must not be set together with `subPath`")
    recursive = mount.at("recursiveReadOnly")
    if recursive.text in ("Enabled", "IfPossible") and not mount.at("readOnly").value:
        yield recursive.says("needs `readOnly: true`")


_HANDLER = at(
    "",
    at("exec?.command", needed),
    at("httpGet|tcpSocket?.port", needed, port),
    at("grpc.port", between(1, MAX_PORT)),
    at("httpGet.httpHeaders[].name", needed),
)
_PROBE = at(
    "",
    one_of("handler", "exec", "grpc", "httpGet", "tcpSocket"),
    _HANDLER,
    at("initialDelaySeconds|timeoutSeconds|periodSeconds|failureThreshold", between(0)),
)
_CONTAINER = at(
    _CONTAINERS,
    at("name", name(label)),
    at("image", needed),
    at("ports[].containerPort", between(1, MAX_PORT)),
    at("ports[].hostPort", between(0, MAX_PORT)),
    at("ports[].name", fits(port_name)),
    unique("port name", "ports[].name"),
    at("env[].name", needed, _env_name),
    at("env[]", _not_beside_value),
    at(
        "env[].valueFrom?",
        one_of("source", "configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef"),
        at("configMapKeyRef|secretKeyRef?", at("name", name(subdomain)), at("key", name(config_key))),
        at("fieldRef?.fieldPath", name(_pod_field)),
        at("resourceFieldRef.resource", fits(_resource_field)),
    ),
    at("envFrom[]", one_of("source", "configMapRef", "secretRef"), at("prefix", _env_name)),
    at("envFrom[].configMapRef|secretRef?.name", name(subdomain)),
    at("livenessProbe|readinessProbe|startupProbe?", _PROBE),
    at("readinessProbe.successThreshold", between(0)),
    at("readinessProbe.terminationGracePeriodSeconds", says("must not be set for a readiness probe")),
    at("livenessProbe|startupProbe.terminationGracePeriodSeconds", between(1)),
    at("livenessProbe|startupProbe.successThreshold", _one_success),
    at("lifecycle.postStart|preStop?", one_of("handler", "exec", "httpGet", "sleep", "tcpSocket"), _HANDLER),
    at("restartPolicy?", choice("Always", "OnFailure", "Never")),
    at("resources", _resources),
    at("securityContext", _escalation),
    at("volumeMounts|volumeDevices[].name", needed),
    at("volumeMounts[]", at("mountPath", needed), at("subPath|subPathExpr", fits(relative_path)), _mount),
)


# --- the pod as a whole ---

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _ports_of_node(pod: Field) -> Problems:
    """A port of the node can be taken once; on the node's network a port is the node's port."""
    taken: set[tuple[object, ...]] = set()
    for declared in pod.all("containers[].ports[]"):
        host_port = declared.at("hostPort")
        key = (host_port.number, declared.at("protocol").text or "TCP", declared.at("hostIP").text)
        if host_port.number and key in taken:
            yield host_port.says(f"port {host_port.number} of the node is taken twice")
        taken.add(key)
    for declared in pod.all(f"{_CONTAINERS}.ports[]") if pod.at("hostNetwork").value is True else ():
        host_port, number = declared.at("hostPort"), declared.at("containerPort").number
        if host_port.number and host_port.number != number:
            yield host_port.says(f"must be {number} like `containerPort`, because of `hostNetwork`")


def _toleration(toleration: Field) -> Problems:
    """A toleration's operator decides whether it has a key and a value."""
    key, operator, value = (toleration.at(name) for name in ("key", "operator", "value"))
    if not key.text and operator.text != "Exists":
        yield operator.says("must be `Exists` where there is no `key`")
    if operator.text == "Exists" and value.text:
        yield value.says("must not be set with operator `Exists`")
    elif operator.text in ("", "Equal"):
        yield from fits(label_value)(value)
    if toleration.at("tolerationSeconds") and toleration.at("effect").text != "NoExecute":
        yield toleration.at("effect").says("must be `NoExecute` with `tolerationSeconds`")


def _one_number(expression: Field) -> Problems:
    operator = expression.at("operator").text
    if operator in ("Gt", "Lt") and len(expression.at("values").items) != 1:
        yield expression.at("values").says(f"must have one value with `{operator}`")


def _weight(weight: Field) -> Problems:
    yield from between(1, 100)(weight if weight.number is not None else Field(0, weight.keys))


def _spread(constraint: Field) -> Problems:
    if constraint.at("minDomains") and constraint.at("whenUnsatisfiable").text != "DoNotSchedule":
        yield constraint.at("minDomains").says("needs `whenUnsatisfiable: DoNotSchedule`")


def _dns(pod: Field) -> Problems:
    servers = pod.at("dnsConfig", "nameservers")
    if pod.at("dnsPolicy").text == "None" and not servers.items:
        yield servers.says("is required with `dnsPolicy: None`")
    if len(servers.items) > 3:
        yield servers.says(f"must have at most 3 items, got {len(servers.items)}")


def _profile(profile: Field) -> Problems:
    """A profile is named only when it is local."""
    yield from needed(profile.at("type"))
    is_local = profile.at("type").text == "Localhost"
    yield from (needed if is_local else says("must only be set with `type: Localhost`"))(
        profile.at("localhostProfile")
    )


_NODE_TERM = at(
    "matchExpressions|matchFields[]",
    requirement("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
    _one_number,
)
_POD_TERM = at(
    "",
    at("topologyKey", name(qualified_name)),
    at("labelSelector|namespaceSelector", selector),
    at("namespaces[]", name(label)),
)


# --- volumes and where containers mount them ---

_SOURCE_NEEDS = {
    "configMap": "name",
    "csi": "driver",
    "hostPath": "path",
    "nfs": "server|path",
    "persistentVolumeClaim": "claimName",
    "secret": "secretName",
}
_PROJECTED = (
    "clusterTrustBundle",
    "configMap",
    "downwardAPI",
    "podCertificate",
    "secret",
    "serviceAccountToken",
)


def _volume_source(volume: Field) -> Problems:
    """A volume comes from one place; from none means an empty directory."""
    given = [name for name in volume.names if name != "name"]
    if len(given) > 1:
        listed = " and ".join(f"`{name}`" for name in given)
        yield volume.says(f"must have one source, got {len(given)}: {listed}")


def _mode(mode: Field) -> Problems:
    if mode.number is not None and not 0 <= mode.number <= 0o777:
        yield mode.says(f"must be a file mode from 0 to 0777 ({0o777} in decimal), got {mode.number}")


def _inside(path: str) -> str | None:
    return f"must not start with `..`, got {shown(path)}" if path.startswith("..") else relative_path(path)


def _projected_source(source: Field) -> Problems:
    if len(source.names) > 1:
        yield from one_of("source", *_PROJECTED)(source)


_FILE = at("items[]", at("key", needed), at("path", name(_inside)), at("mode", _mode))
_VOLUME = at(
    "volumes[]",
    at("name", name(label)),
    _volume_source,
    *(at(f"{source}?.{fields}", needed) for source, fields in _SOURCE_NEEDS.items()),
    at("hostPath.path", fits(no_parent)),
    at("nfs.path", fits(absolute_path)),
    at("emptyDir.sizeLimit", not_negative),
    at("configMap|downwardAPI|projected|secret.defaultMode", _mode),
    at("configMap|secret", _FILE),
    at("projected.sources[]", _projected_source),
    at("projected.sources[].configMap|secret?", at("name", needed), _FILE),
    at(
        "projected.sources[].serviceAccountToken?",
        at("path", name(_inside)),
        at("expirationSeconds", between(600, 2**32)),
    ),
    unique("path", "projected.sources[].configMap|secret.items[].path"),
    at("ephemeral?.volumeClaimTemplate", needed),
    at("ephemeral.volumeClaimTemplate?.spec", CLAIM),
)


def _mounts(pod: Field) -> Problems:
    """A mount names a volume of the pod, and has a place of its own in its container."""
    known = {volume.at("name").text for volume in pod.at("volumes").items} | pod.subject.claims
    for mounted in pod.all(f"{_CONTAINERS}.volumeMounts|volumeDevices[].name"):
        if mounted.text and mounted.text not in known:
            hint = did_you_mean(mounted.text, known)
            yield mounted.says(f"no volume {shown(mounted.text)} in this pod{hint}")


def _images(pod: Field) -> Problems:
    """The image of a Pod has no space around it (in templates it may)."""
    for image in pod.all(f"{_CONTAINERS}.image") if pod.subject.kind == "Pod" else ():
        if image.text != image.text.strip():
            yield image.says(f"must have no space around it, got {shown(image.value)}")


POD_RULES: tuple[Rule, ...] = (
    _CONTAINER,
    _images,
    at("initContainers[]", _initial_container),
    at("containers[].restartPolicy", _restart_policy),
    at("containers", needed),
    unique("name", f"{_CONTAINERS}.name"),
    _ports_of_node,
    at("serviceAccountName|priorityClassName|runtimeClassName|nodeName", fits(subdomain)),
    at("hostname|subdomain", fits(label)),
    at("activeDeadlineSeconds", between(1)),
    at("terminationGracePeriodSeconds", between(0)),
    at("nodeSelector", labels),
    at("tolerations[]", at("key", fits(qualified_name)), _toleration),
    at(f"affinity.nodeAffinity.{_REQUIRED}?.nodeSelectorTerms", needed),
    at(f"affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms[]", _NODE_TERM),
    at(f"affinity.nodeAffinity.{_PREFERRED}[]", at("weight", _weight), at("preference", _NODE_TERM)),
    at(f"affinity.podAffinity|podAntiAffinity.{_REQUIRED}[]", _POD_TERM),
    at(
        f"affinity.podAffinity|podAntiAffinity.{_PREFERRED}[]",
        at("weight", _weight),
        at("podAffinityTerm", _POD_TERM),
    ),
    at(
        "topologySpreadConstraints[]",
        at("maxSkew|minDomains", between(1)),
        at("topologyKey|whenUnsatisfiable", needed),
        at("labelSelector", selector),
        _spread,
    ),
    at("hostAliases[]", at("ip", name(address)), at("hostnames[]", name(subdomain))),
    _dns,
    at("dnsConfig.nameservers[]", fits(address)),
    *(
        at(
            path,
            at("runAsUser|runAsGroup|fsGroup", between(0)),
            at("supplementalGroups[]", between(0)),
            at("seccompProfile|appArmorProfile?", _profile),
        )
        for path in ("securityContext", f"{_CONTAINERS}.securityContext")
    ),
    at("schedulingGates[].name", name(qualified_name)),
    at("readinessGates[].conditionType", name(qualified_name)),
    at("overhead.*", not_negative),
    _VOLUME,
    unique("volume", "volumes[].name"),
    _mounts,
    at(_CONTAINERS, unique("path", "volumeMounts|volumeDevices[].mountPath|devicePath")),
)
