"""Read the schedule of a CronJob: five fields, or a name such as `@daily`."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from mlstack.names import nearest
from mlstack.validate import schema
from mlstack.validate import schema as syntax
from mlstack.validate.schema import Field, Keys, Problems, Severity, shown

# --- Read the schedule of a CronJob: five fields, or a name such as `@daily` ---

_NAMED = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
_EVERY = re.compile(r"@every\s+(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 6, _DAYS),
)
_RANGE = re.compile(r"(?P<low>\*|\?|\w+)(-(?P<high>\w+))?(/(?P<step>\d+))?")


def wrong_schedule(text: str) -> str | None:
    """Say what is wrong with a schedule, None if nothing."""
    if "TZ" in text:
        return "must not name a time zone: use `timeZone`"
    if text.startswith("@"):
        if text in _NAMED or _EVERY.fullmatch(text):
            return None
        return f"must be five fields or one of {', '.join(sorted(_NAMED))}, got `{text}`"
    fields = text.split()
    if len(fields) != len(_FIELDS):
        return f"must have 5 fields (minute hour day month weekday), got {len(fields)}: `{text}`"
    for field, (name, low, high, names) in zip(fields, _FIELDS, strict=True):
        if not all(_fits(part, low, high, names) for part in field.split(",")):
            return f"{name} must be {low} to {high}, got `{field}`"
    return None


def _fits(part: str, low: int, high: int, names: tuple[str, ...]) -> bool:
    match = _RANGE.fullmatch(part)
    if not match or match["step"] == "0":
        return False
    if match["low"] in "*?":
        return match["high"] is None
    first = _number(match["low"], low, names)
    last = _number(match["high"], low, names) if match["high"] else high if match["step"] else first
    return first is not None and last is not None and low <= first <= last <= high


def _number(text: str, low: int, names: tuple[str, ...]) -> int | None:
    if text.isdecimal():
        return int(text)
    return names.index(text.lower()) + low if text.lower() in names else None


# --- Checks that several rules share: names, selectors, numbers or shares ---

MAX_PORT = 65535
_PERCENT = re.compile(r"[0-9]+%")
_VALUED = ("In", "NotIn")
_OPERATORS = (*_VALUED, "Exists", "DoesNotExist")


def fits(field: Field, check: Callable[[str], str | None]) -> Problems:
    """Check the syntax of a string, where there is one that is not empty."""
    wrong = check(field.text) if field.text else None
    if wrong:
        yield field.says(wrong)


def needed_name(field: Field, check: Callable[[str], str | None]) -> Problems:
    """Demand a string of this syntax."""
    yield from field.needed()
    yield from fits(field, check)


def port(field: Field) -> Problems:
    """Check a port: its number, or its name."""
    if field.number is not None:
        yield from field.between(1, MAX_PORT)
    elif isinstance(field.value, str):
        wrong = schema.port_name(field.value)
        if wrong:
            yield field.says(wrong)


def labels(field: Field) -> Problems:
    """Check labels: keys and values."""
    for key, value in field.entries:
        wrong = schema.qualified_name(key)
        if wrong:
            yield value.says(f"key {wrong}")
        yield from fits(value, schema.label_value)


def selector(field: Field) -> Problems:
    """Check a selector of labels."""
    yield from labels(field.at("matchLabels"))
    for expression in field.at("matchExpressions").items:
        yield from requirement(expression, _OPERATORS)


def requirement(field: Field, operators: Iterable[str]) -> Problems:
    """Check one requirement of a selector: key, operator and whether there are values."""
    yield from needed_name(field.at("key"), schema.qualified_name)
    operator, values = field.at("operator"), field.at("values")
    if operator.text not in operators:
        expected = ", ".join(f"`{one}`" for one in operators)
        yield operator.says(f"must be one of {expected}, got {shown(operator.value)}")
    elif operator.text in _VALUED and not values.items:
        yield values.says(f"is required with operator `{operator.text}`")
    elif operator.text in ("Exists", "DoesNotExist") and values.items:
        yield values.says(f"must not be set with operator `{operator.text}`")
    for value in values.items:
        yield from fits(value, schema.label_value)


def selects(chosen: Field, offered: Mapping[str, object]) -> bool:
    """Say whether a selector chooses something with these labels."""
    for key, value in chosen.at("matchLabels").entries:
        if offered.get(key) != value.value:
            return False
    return all(_meets(expression, offered) for expression in chosen.at("matchExpressions").items)


def _meets(expression: Field, offered: Mapping[str, object]) -> bool:
    found = offered.get(expression.at("key").text)
    values = [value.value for value in expression.at("values").items]
    match expression.at("operator").text:
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
    return True


def count_or_share(field: Field, *, at_most_all: bool = True) -> Problems:
    """Check a number of pods or a share of them: 0 and up, or `0%` to `100%`."""
    if field.number is not None:
        yield from field.between(0)
    elif isinstance(field.value, str):
        if not _PERCENT.fullmatch(field.value):
            yield field.says(f"must be a number or a share such as `25%`, got {shown(field.value)}")
        elif at_most_all and int(field.value[:-1]) > 100:
            yield field.says(f"must be at most `100%`, got {shown(field.value)}")


def amount(field: Field) -> int | None:
    """Give a number of pods, or the percents of a share; None where there is neither."""
    if isinstance(field.value, str) and _PERCENT.fullmatch(field.value):
        return int(field.value[:-1])
    return field.number


def address(field: Field) -> Problems:
    """Check an IP address."""
    if not field.text:
        return
    try:
        ipaddress.ip_address(field.text)
    except ValueError:
        yield field.says(f"must be an IP address, got {shown(field.value)}")


def network(field: Field) -> Problems:
    """Check a network of IP addresses."""
    try:
        if "/" in field.text and ipaddress.ip_network(field.text.strip(), strict=False):
            return
    except ValueError:
        pass
    yield field.says(f"must be a network such as `10.0.0.0/8`, got {shown(field.value)}")


def one_of(field: Field, names: Iterable[str], *, what: str) -> Problems:
    """Demand exactly one of some fields."""
    allowed = tuple(names)
    given = [name for name in allowed if field.at(name)]
    if len(given) > 1:
        listed = " and ".join(f"`{name}`" for name in given)
        yield field.says(f"must have one {what}, got {len(given)}: {listed}")
    elif not given:
        listed = ", ".join(f"`{name}`" for name in allowed)
        yield field.says(f"needs one {what}: one of {listed}")


def unique(fields: Iterable[Field], *, what: str) -> Problems:
    """Demand that strings or numbers differ; empty ones do not count."""
    seen: set[object] = set()
    for field in fields:
        if field.value in (None, "") or isinstance(field.value, list | Mapping):
            continue
        if field.value in seen:
            yield field.says(f"{what} {shown(field.value)} is used twice")
        seen.add(field.value)


# --- The table of rules, and what a rule looks at ---

ANY = "*"
"""In place of a kind: the rule looks at every object."""

# Where the kinds that make pods keep the template of a pod; a Pod is one itself.
TEMPLATES: dict[str, Keys] = {
    "Pod": (),
    "PodTemplate": ("template",),
    "ReplicationController": ("spec", "template"),
    "apps/DaemonSet": ("spec", "template"),
    "apps/Deployment": ("spec", "template"),
    "apps/ReplicaSet": ("spec", "template"),
    "apps/StatefulSet": ("spec", "template"),
    "batch/CronJob": ("spec", "jobTemplate", "spec", "template"),
    "batch/Job": ("spec", "template"),
}


@dataclass(frozen=True, kw_only=True)
class ValidationSubject:
    """One object under a rule.

    Attributes:
        root: the whole object.
        kind: `group/Kind`, or the kind alone in the core group.
        minor: the Kubernetes version, 36 for 1.36.
        built_in: whether Kubernetes itself serves the kind.
    """

    root: Field
    kind: str
    minor: int
    built_in: bool = True

    @property
    def spec(self) -> Field:
        """Give the specification."""
        return self.root.at("spec")

    @property
    def metadata(self) -> Field:
        """Give the metadata."""
        return self.root.at("metadata")

    @property
    def template(self) -> Field:
        """Give the template of the pods that the object makes, itself for a Pod."""
        keys = TEMPLATES.get(self.kind)
        return Field(None) if keys is None else self.root.at(*(str(key) for key in keys))


@dataclass(frozen=True, kw_only=True)
class PodSubject:
    """One pod, or the template of one, under a rule.

    Attributes:
        spec: the pod's specification.
        claims: volumes that are added from outside the template (a StatefulSet's claims).
        minor: the Kubernetes version, 36 for 1.36.
    """

    spec: Field
    claims: frozenset[str] = frozenset()
    minor: int

    @property
    def containers(self) -> tuple[Field, ...]:
        """Give all containers, initial ones first."""
        return (*self.spec.at("initContainers").items, *self.spec.at("containers").items)


Rule = Callable[[ValidationSubject], Problems]
PodRule = Callable[[PodSubject], Problems]

RULES: dict[str, list[Rule]] = {}
POD_RULES: list[PodRule] = []


def rule(*kinds: str) -> Callable[[Rule], Rule]:
    """Enter a rule for objects of these kinds (`apps/Deployment`, `Service`, or `ANY`)."""

    def enter(function: Rule) -> Rule:
        for kind in kinds:
            RULES.setdefault(kind, []).append(function)
        return function

    return enter


def pod_rule(function: PodRule) -> PodRule:
    """Enter a rule for the pods that objects of any kind make."""
    POD_RULES.append(function)
    return function


def rules_for(kind: str) -> Iterator[Rule]:
    """Give the rules for objects of a kind."""
    yield from RULES.get(ANY, ())
    yield from RULES.get(kind, ())


# --- Rules on ConfigMaps, Secrets, ServiceAccounts, quotas and namespaces ---

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
def config_map_fits(subject: ValidationSubject) -> Problems:
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
def secret_fits(subject: ValidationSubject) -> Problems:
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
        wrong = schema.config_key(key) if key else "is required"
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
def account_fits(subject: ValidationSubject) -> Problems:
    """Secrets that an account names have names."""
    for secret in subject.root.at("imagePullSecrets").items:
        yield from needed_name(secret.at("name"), schema.subdomain)


@rule("ResourceQuota")
def quota_fits(subject: ValidationSubject) -> Problems:
    """A quota counts known resources, 0 and up."""
    for name, quantity in subject.spec.at("hard").entries:
        wrong = schema.qualified_name(name)
        if wrong:
            yield quantity.says(f"name of a resource {wrong}")
        elif "/" not in name and name not in _QUOTA and "hugepages-" not in name:
            yield quantity.says(f"must be a resource that quotas count, got `{name}`")
        found = schema.quantity(quantity.value)
        if found is not None and found < 0:
            yield quantity.says(f"must not be negative, got {shown(quantity.value)}")


@rule("scheduling.k8s.io/PriorityClass")
def priority_is_not_the_systems(subject: ValidationSubject) -> Problems:
    """Names that start with `system-` and values above a thousand million are the system's."""
    name, value = subject.metadata.at("name"), subject.root.at("value")
    if name.text.startswith("system-") and name.text not in (
        "system-node-critical",
        "system-cluster-critical",
    ):
        yield name.says("must not start with `system-`")
    elif not name.text.startswith("system-") and (value.number or 0) > 10**9:
        yield value.says(f"must be at most 1000000000, got {value.number}")


# --- Rules on what extends the API: CustomResourceDefinitions and webhooks ---

_CRD = "apiextensions.k8s.io/CustomResourceDefinition"
_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_WEBHOOKS = (
    "admissionregistration.k8s.io/MutatingWebhookConfiguration",
    "admissionregistration.k8s.io/ValidatingWebhookConfiguration",
)


@rule(_CRD)
def definition_is_named_after_its_kind(subject: ValidationSubject) -> Problems:
    """A definition is called plural.group, and all its names are DNS labels."""
    names, group = subject.spec.at("names"), subject.spec.at("group")
    expected = f"{names.at('plural').text}.{group.text}"
    name = subject.metadata.at("name")
    if name.text != expected:
        yield name.says(f"must be `{expected}` (plural and group), got {shown(name.value)}")
    for field in ("plural", "kind"):
        yield from needed_name(names.at(field), lambda text: syntax.label_1035(text.lower()))
    for field in ("singular", "listKind"):
        if names.at(field).text:
            yield from needed_name(names.at(field), lambda text: syntax.label_1035(text.lower()))
    if names.at("listKind").text and names.at("listKind").text == names.at("kind").text:
        yield names.at("listKind").says("must differ from `kind`")
    for field in ("shortNames", "categories"):
        for one in names.at(field).items:
            yield from needed_name(one, syntax.label_1035)


@rule(_CRD)
def definition_belongs_to_a_domain(subject: ValidationSubject) -> Problems:
    """The group is a domain, the scope one of two."""
    group, scope = subject.spec.at("group"), subject.spec.at("scope")
    yield from needed_name(group, syntax.subdomain)
    if group.text and "." not in group.text:
        yield group.says(f"must be a domain with a dot, got {shown(group.value)}")
    if scope.text not in ("Cluster", "Namespaced"):
        yield scope.says(f"must be `Cluster` or `Namespaced`, got {shown(scope.value)}")


@rule(_CRD)
def versions_fit(subject: ValidationSubject) -> Problems:
    """Exactly one version is stored; each has a name and a schema of its own."""
    versions = subject.spec.at("versions")
    stored = [one for one in versions.items if one.at("storage").value is True]
    if len(stored) != 1:
        yield versions.says(f"must have exactly one version with `storage: true`, got {len(stored)}")
    yield from unique((one.at("name") for one in versions.items), what="version")
    for one in versions.items:
        yield from needed_name(one.at("name"), syntax.label_1035)
        schema = one.at("schema", "openAPIV3Schema")
        if not schema:
            yield schema.says("is required")
        else:
            yield from _root_schema(schema)
        for column in one.at("additionalPrinterColumns").items:
            yield from column.at("jsonPath").needed()


def _root_schema(schema: Field) -> Problems:
    if schema.at("type").text != "object":
        yield schema.at("type").says(f"must be `object` at the root, got {shown(schema.at('type').value)}")
    yield from _structural(schema)


def _structural(schema: Field) -> Problems:
    """Check what makes a schema structural: every part has a type and says what is in it."""
    open_part = any(
        schema.at(name).value is True
        for name in ("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields")
    )
    kind = schema.at("type")
    if not kind.text and not open_part:
        yield kind.says("is required")
    elif kind.text and kind.text not in _TYPES:
        yield kind.says(f"must be one of {', '.join(f'`{one}`' for one in _TYPES)}, got {shown(kind.value)}")
    if schema.at("type").text == "array" and not schema.at("items"):
        yield schema.at("items").says("is required with `type: array`")
    if schema.at("properties").names and schema.at("additionalProperties").names:
        yield schema.at("additionalProperties").says("must not stand beside `properties`")
    yield from _list_keys(schema)
    for _, inner in schema.at("properties").entries:
        yield from _structural(inner)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.at(name).value, dict):
            yield from _structural(schema.at(name))
    yield from _combinations(schema)


def _combinations(schema: Field) -> Problems:
    """Check that combinations only limit values: what there is stands outside them."""
    parts = [one for name in ("allOf", "anyOf", "oneOf") for one in schema.at(name).items]
    if schema.at("x-kubernetes-int-or-string").value is True:
        parts = [one for one in parts if one.names != ("type",)]
    for part in (*parts, schema.at("not")):
        for name in ("additionalProperties", "default", "description", "nullable", "type"):
            if part.at(name).value not in (None, "", False):
                yield part.at(name).says("must stand outside `allOf`, `anyOf`, `oneOf` and `not`")


def _list_keys(schema: Field) -> Problems:
    keys = [key.text for key in schema.at("x-kubernetes-list-map-keys").items]
    is_map = schema.at("x-kubernetes-list-type").text == "map"
    if is_map != bool(keys):
        yield schema.at("x-kubernetes-list-map-keys").says("go together with `x-kubernetes-list-type: map`")
    items = schema.at("items")
    required = [one.text for one in items.at("required").items]
    for key in keys:
        described = items.at("properties", key)
        if not described:
            yield items.at("properties", key).says("is a key of the list and must be described")
        elif key not in required and not described.at("default"):
            yield items.at("required").says(f"must hold `{key}`, a key of the list without a default")


@rule(*_WEBHOOKS)
def webhooks_fit(subject: ValidationSubject) -> Problems:
    """A webhook has a name with a domain, a place, versions and no hidden effects."""
    webhooks = subject.root.at("webhooks").items
    yield from unique((one.at("name") for one in webhooks), what="webhook")
    for one in webhooks:
        name = one.at("name")
        yield from needed_name(name, syntax.subdomain)
        if name.text.count(".") < 2:
            yield name.says(f"must have at least three parts between dots, got {shown(name.value)}")
        yield from _review_versions(one.at("admissionReviewVersions"))
        yield from one_of(one.at("clientConfig"), ("service", "url"), what="place")
        url = one.at("clientConfig", "url")
        if url and not url.text.startswith("https://"):
            yield url.says(f"must start with `https://`, got {shown(url.value)}")
        for each in one.at("rules").items:
            yield from _matching(each)
        effects = one.at("sideEffects")
        if effects.text not in ("None", "NoneOnDryRun"):
            yield effects.says(f"must be `None` or `NoneOnDryRun`, got {shown(effects.value)}")
        if one.at("timeoutSeconds"):
            yield from one.at("timeoutSeconds").between(1, 30)
        for selecting in ("namespaceSelector", "objectSelector"):
            yield from selector(one.at(selecting))


def _review_versions(versions: Field) -> Problems:
    yield from versions.needed()
    if versions.items and not {"v1", "v1beta1"} & {one.text for one in versions.items}:
        yield versions.says(f"must hold `v1`, got {shown(versions.value)}")
    for one in versions.items:
        yield from needed_name(one, syntax.label_1035)


def _matching(each: Field) -> Problems:
    """Check what a webhook is asked about."""
    for name in ("apiGroups", "apiVersions", "operations", "resources"):
        yield from each.at(name).needed()
        if name != "apiGroups":
            for one in each.at(name).items:
                yield from one.needed()


# --- Remarks on training jobs: what the API server takes and the operator then does otherwise than
# expected

_REPLICAS = {
    "kubeflow.org/JAXJob": "jaxReplicaSpecs",
    "kubeflow.org/PaddleJob": "paddleReplicaSpecs",
    "kubeflow.org/PyTorchJob": "pytorchReplicaSpecs",
    "kubeflow.org/TFJob": "tfReplicaSpecs",
    "kubeflow.org/XGBoostJob": "xgbReplicaSpecs",
}


def job_templates(subject: ValidationSubject) -> tuple[Field, ...]:
    """Give the pod templates of a training job, none for other kinds."""
    name = _REPLICAS.get(subject.kind)
    roles = subject.spec.at(name).entries if name else ()
    return tuple(role.at("template") for _, role in roles)


@rule(*_REPLICAS)
def exit_codes_retry_for_ever(subject: ValidationSubject) -> Problems:
    """The operator does not count retries under ExitCode (seen with 1.8.1)."""
    for _, role in subject.spec.at(_REPLICAS[subject.kind]).entries:
        policy = role.at("restartPolicy")
        if policy.text == "ExitCode":
            yield policy.says(
                "`ExitCode` retries without end: the operator does not heed `backoffLimit`", "warning"
            )


@rule(*_REPLICAS)
def deadlines_come_late(subject: ValidationSubject) -> Problems:
    """The operator looks at a deadline only when something else wakes it (kubeflow/trainer#3358)."""
    deadline = subject.spec.at("runPolicy", "activeDeadlineSeconds")
    if deadline:
        yield deadline.says("may be passed: the operator looks at it only when a pod changes", "warning")


@rule(*_REPLICAS)
def template_policy_is_overridden(subject: ValidationSubject) -> Problems:
    """A role's restartPolicy overrides that of its template."""
    for template in job_templates(subject):
        policy = template.at("spec", "restartPolicy")
        if policy:
            yield policy.says("is overridden: give `restartPolicy` beside `template`", "warning")


# --- Rules on what every object carries: name, namespace, labels, annotations ---

_MAX_ANNOTATIONS_BYTES = 256 * 1024
_MAX_CRON_JOB = 52
_RELAXED_SERVICE_NAMES = 36
"""From 1.36 on the name of a Service may start with a digit."""
_SYNTAX: dict[str, Callable[[str], str | None]] = {
    "Namespace": schema.label,
    "rbac.authorization.k8s.io/ClusterRole": schema.path_segment,
    "rbac.authorization.k8s.io/ClusterRoleBinding": schema.path_segment,
    "rbac.authorization.k8s.io/Role": schema.path_segment,
    "rbac.authorization.k8s.io/RoleBinding": schema.path_segment,
}


@rule(ANY)
def name_fits(subject: ValidationSubject) -> Problems:
    """An object needs a name that its kind allows."""
    check = _SYNTAX.get(subject.kind, schema.subdomain)
    if subject.kind == "Service":
        check = schema.label if subject.minor >= _RELAXED_SERVICE_NAMES else schema.label_1035
    yield from needed_name(subject.metadata.at("name"), check)


@rule("batch/CronJob")
def name_leaves_room_for_jobs(subject: ValidationSubject) -> Problems:
    """A CronJob's Jobs append a time to its name."""
    name = subject.metadata.at("name")
    if len(name.text) > _MAX_CRON_JOB:
        yield name.says(f"must have at most {_MAX_CRON_JOB} characters, got {len(name.text)}")


@rule(ANY)
def namespace_is_a_label(subject: ValidationSubject) -> Problems:
    """A namespace is a DNS label."""
    namespace = subject.metadata.at("namespace")
    if namespace.text:
        yield from needed_name(namespace, schema.label)


@rule(ANY)
def labels_fit(subject: ValidationSubject) -> Problems:
    """Labels have qualified keys and short values."""
    yield from labels(subject.metadata.at("labels"))


@rule(ANY)
def annotations_fit(subject: ValidationSubject) -> Problems:
    """Annotations have qualified keys and stay below 256 KiB together."""
    annotations = subject.metadata.at("annotations")
    total = 0
    for key, value in annotations.entries:
        wrong = schema.qualified_name(key.lower())
        if wrong:
            yield value.says(f"key {wrong}")
        total += len(key.encode()) + len(value.text.encode())
    if total > _MAX_ANNOTATIONS_BYTES:
        yield annotations.says(f"must have at most {_MAX_ANNOTATIONS_BYTES} bytes together, got {total}")


@rule(ANY)
def finalizers_are_qualified(subject: ValidationSubject) -> Problems:
    """A finalizer is a qualified name."""
    for finalizer in subject.metadata.at("finalizers").items:
        yield from needed_name(finalizer, schema.qualified_name)


@rule(ANY)
def owners_are_named(subject: ValidationSubject) -> Problems:
    """A reference to an owner names it fully, and at most one owner controls."""
    owners = subject.metadata.at("ownerReferences").items
    for owner in owners:
        for name in ("apiVersion", "kind", "name", "uid"):
            yield from owner.at(name).needed()
    if sum(owner.at("controller").value is True for owner in owners) > 1:
        yield subject.metadata.at("ownerReferences").says("must have at most one owner with `controller`")


# --- Rules on Ingresses and NetworkPolicies ---

_BAD_PATH_PARTS = ("//", "/./", "/../", "%2f", "%2F")
_BAD_PATH_ENDS = ("/..", "/.")


@rule("networking.k8s.io/Ingress")
def ingress_leads_somewhere(subject: ValidationSubject) -> Problems:
    """An Ingress has rules or a default."""
    spec = subject.spec
    if not spec.at("rules").items and not spec.at("defaultBackend"):
        yield spec.says("needs `rules` or a `defaultBackend`")
    if spec.at("defaultBackend"):
        yield from _backend(spec.at("defaultBackend"))
    yield from fits(spec.at("ingressClassName"), schema.subdomain)
    if spec.at("ingressClassName").value == "":
        yield spec.at("ingressClassName").says("must not be empty: leave it out for the cluster's default")


@rule("networking.k8s.io/Ingress")
def ingress_rules_fit(subject: ValidationSubject) -> Problems:
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
        yield from fits(one.at("secretName"), schema.subdomain)


def _host(host: Field) -> Problems:
    try:
        ipaddress.ip_address(host.text)
    except ValueError:
        yield from fits(host, lambda text: schema.subdomain(text.removeprefix("*.")))
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
    yield from needed_name(service.at("name"), schema.label)
    name, number = service.at("port", "name"), service.at("port", "number")
    if name.text and number.number:
        yield service.at("port").says("must have a `name` or a `number`, got both")
    elif not name.text and not number.number:
        yield service.at("port").says("needs a `name` or a `number`")
    yield from fits(name, schema.port_name)
    yield from number.between(0, MAX_PORT)


@rule("networking.k8s.io/NetworkPolicy")
def policy_fits(subject: ValidationSubject) -> Problems:
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


# --- Rules on roles and their bindings ---

_GROUP = "rbac.authorization.k8s.io"


@rule(f"{_GROUP}/Role", f"{_GROUP}/ClusterRole")
def rules_are_complete(subject: ValidationSubject) -> Problems:
    """A rule allows verbs, on resources of groups or on addresses (those only cluster-wide)."""
    for one in subject.root.at("rules").items:
        yield from one.at("verbs").needed()
        addresses = one.at("nonResourceURLs")
        if not addresses.items:
            yield from one.at("apiGroups").needed()
            yield from one.at("resources").needed()
            continue
        if subject.kind.endswith("/Role"):
            yield addresses.says("must only be set in a ClusterRole")
        if any(one.at(name).items for name in ("apiGroups", "resources", "resourceNames")):
            yield addresses.says("must not stand beside `resources`")


@rule(f"{_GROUP}/ClusterRole")
def aggregation_selects(subject: ValidationSubject) -> Problems:
    """A ClusterRole that gathers others says which."""
    aggregation = subject.root.at("aggregationRule")
    if aggregation:
        yield from aggregation.at("clusterRoleSelectors").needed()
    for one in aggregation.at("clusterRoleSelectors").items:
        yield from selector(one)


@rule(f"{_GROUP}/RoleBinding", f"{_GROUP}/ClusterRoleBinding")
def binding_names_a_role(subject: ValidationSubject) -> Problems:
    """A binding refers to a role; one for the whole cluster only to a ClusterRole."""
    role = subject.root.at("roleRef")
    allowed = ("ClusterRole",) if subject.kind.endswith("/ClusterRoleBinding") else ("Role", "ClusterRole")
    group = role.at("apiGroup")
    if group.text not in ("", _GROUP):
        yield group.says(f"must be `{_GROUP}`, got {shown(group.value)}")
    if role.at("kind").text not in allowed:
        expected = " or ".join(f"`{one}`" for one in allowed)
        yield role.at("kind").says(f"must be {expected}, got {shown(role.at('kind').value)}")
    yield from needed_name(role.at("name"), schema.path_segment)


@rule(f"{_GROUP}/RoleBinding", f"{_GROUP}/ClusterRoleBinding")
def subjects_are_complete(subject: ValidationSubject) -> Problems:
    """Rights go to accounts (with their namespace), users or groups."""
    for one in subject.root.at("subjects").items:
        yield from one.at("name").needed()
        yield from _subject(one, cluster_wide=subject.kind.endswith("/ClusterRoleBinding"))


def _subject(one: Field, *, cluster_wide: bool) -> Problems:
    kind, group = one.at("kind"), one.at("apiGroup")
    if kind.text == "ServiceAccount":
        yield from needed_name(one.at("name"), schema.subdomain)
        if group.text:
            yield group.says(f"must be empty for a ServiceAccount, got {shown(group.value)}")
        if cluster_wide:
            yield from one.at("namespace").needed()
    elif kind.text in ("User", "Group"):
        if group.text not in ("", _GROUP):
            yield group.says(f"must be `{_GROUP}`, got {shown(group.value)}")
    else:
        yield kind.says(f"must be `ServiceAccount`, `User` or `Group`, got {shown(kind.value)}")


# --- Rules on autoscalers and disruption budgets ---

_SOURCES = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
_TARGETS = {
    "AverageValue": "averageValue",
    "Utilization": "averageUtilization",
    "Value": "value",
}
_STRICT_TARGETS = 36
"""Seen to refuse: 1.36."""
_MAX_WINDOW_S = 3600
_MAX_PERIOD_S = 1800


@rule("autoscaling/HorizontalPodAutoscaler")
def autoscaler_has_a_range(subject: ValidationSubject) -> Problems:
    """An autoscaler scales something, between a minimum and a maximum."""
    low, high = subject.spec.at("minReplicas"), subject.spec.at("maxReplicas")
    yield from low.between(1)
    yield from high.between(1)
    if low.number is not None and high.number is not None and 1 <= high.number < low.number:
        yield high.says(f"must be at least `minReplicas` ({low.number}), got {high.number}")
    for name in ("kind", "name"):
        yield from subject.spec.at("scaleTargetRef", name).needed()
    yield from subject.spec.at("targetCPUUtilizationPercentage").between(1)


@rule("autoscaling/HorizontalPodAutoscaler")
def autoscaler_names_the_group(subject: ValidationSubject) -> Problems:
    """What is scaled is found by its API group; older servers take an autoscaler that cannot find it."""
    version = subject.spec.at("scaleTargetRef", "apiVersion")
    group, slash, _ = version.text.partition("/")
    if not (group and slash):
        severity: Severity = "error" if subject.minor >= _STRICT_TARGETS else "warning"
        yield version.says(f"must have a group, as `apps/v1`, got {shown(version.text)}", severity)


@rule("autoscaling/HorizontalPodAutoscaler")
def metrics_fit(subject: ValidationSubject) -> Problems:
    """A metric has the source that its type names, and a target."""
    for metric in subject.spec.at("metrics").items:
        kind = metric.at("type")
        yield from kind.needed()
        source = _SOURCES.get(kind.text)
        if source is None:
            continue
        yield from metric.at(source).needed()
        for name in metric.names:
            if name not in ("type", source):
                yield metric.at(name).says(f"must not be set with `type: {kind.text}`")
        if metric.at(source):
            yield from _target(metric.at(source, "target"))
        if source in ("resource", "containerResource") and metric.at(source):
            yield from metric.at(source, "name").needed()


def _target(target: Field) -> Problems:
    kind = target.at("type")
    yield from kind.needed()
    yield from target.at("averageUtilization").between(1)
    if kind.text in _TARGETS:
        yield from target.at(_TARGETS[kind.text]).needed()


@rule("autoscaling/HorizontalPodAutoscaler")
def behaviour_fits(subject: ValidationSubject) -> Problems:
    """Windows last up to an hour; a policy moves at least one pod in up to half an hour."""
    for direction in ("scaleUp", "scaleDown"):
        rules = subject.spec.at("behavior", direction)
        yield from rules.at("stabilizationWindowSeconds").between(0, _MAX_WINDOW_S)
        if rules.at("policies").value == []:
            yield rules.at("policies").says("is required")
        for policy in rules.at("policies").items:
            yield from policy.at("type").needed()
            yield from policy.at("value").between(1)
            yield from policy.at("periodSeconds").between(1, _MAX_PERIOD_S)


@rule("policy/PodDisruptionBudget")
def budget_says_one_thing(subject: ValidationSubject) -> Problems:
    """A budget limits either the pods that are there or those that are not."""
    available, unavailable = subject.spec.at("minAvailable"), subject.spec.at("maxUnavailable")
    if available and unavailable:
        yield unavailable.says("must not be set together with `minAvailable`")
    yield from count_or_share(available)
    yield from count_or_share(unavailable)
    yield from selector(subject.spec.at("selector"))


# --- Rules on Services ---

_NODE_PORTS = (30000, 32767)
_EXTERNAL = ("NodePort", "LoadBalancer")
_DAY_S = 86400


@rule("Service")
def service_has_ports(subject: ValidationSubject) -> Problems:
    """A Service with an address of its own has ports."""
    if _is_headless(subject.spec) or _type(subject.spec) == "ExternalName":
        return
    yield from subject.spec.at("ports").needed()


def _type(spec: Field) -> str:
    return spec.at("type").text or "ClusterIP"


def _is_headless(spec: Field) -> bool:
    return spec.at("clusterIP").text == "None"


@rule("Service")
def service_ports_fit(subject: ValidationSubject) -> Problems:
    """Ports are 1 to 65535; where there are several, each has a name of its own."""
    ports = subject.spec.at("ports").items
    for one in ports:
        yield from one.at("port").between(1, MAX_PORT)
        if one.at("targetPort").value not in (0, ""):
            yield from port(one.at("targetPort"))
        yield from fits(one.at("name"), schema.label)
        yield from fits(one.at("appProtocol"), schema.qualified_name)
        if len(ports) > 1 and not one.at("name").text:
            yield one.at("name").says("is required where a Service has several ports")
    yield from unique((one.at("name") for one in ports), what="port name")


@rule("Service")
def node_ports_fit(subject: ValidationSubject) -> Problems:
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
def service_type_decides(subject: ValidationSubject) -> Problems:
    """What a Service may say beside its type."""
    spec, kind = subject.spec, _type(subject.spec)
    if kind == "ExternalName":
        yield from needed_name(spec.at("externalName"), lambda text: schema.subdomain(text.removesuffix(".")))
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
def service_affinity_fits(subject: ValidationSubject) -> Problems:
    """Clients stay with a pod for up to a day."""
    if subject.spec.at("sessionAffinity").text == "ClientIP":
        yield from subject.spec.at("sessionAffinityConfig", "clientIP", "timeoutSeconds").between(1, _DAY_S)


@rule("Service")
def service_addresses_fit(subject: ValidationSubject) -> Problems:
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
def traffic_distribution_fits(subject: ValidationSubject) -> Problems:
    """Traffic is spread in ways that the version knows."""
    spread = subject.spec.at("trafficDistribution")
    known = ("PreferClose", "PreferSameZone", "PreferSameNode")[: 3 if subject.minor >= 34 else 1]
    if spread.text and spread.text not in known:
        expected = ", ".join(f"`{one}`" for one in known)
        yield spread.says(f"must be one of {expected}, got {shown(spread.value)}")


# --- The time zones of the IANA database, by tests/generate/timezones.py ---

_TEXT = """
Africa/Abidjan Africa/Accra Africa/Addis_Ababa Africa/Algiers Africa/Asmara Africa/Asmera Africa/Bamako
Africa/Bangui Africa/Banjul Africa/Bissau Africa/Blantyre Africa/Brazzaville Africa/Bujumbura Africa/Cairo
Africa/Casablanca Africa/Ceuta Africa/Conakry Africa/Dakar Africa/Dar_es_Salaam Africa/Djibouti Africa/Douala
Africa/El_Aaiun Africa/Freetown Africa/Gaborone Africa/Harare Africa/Johannesburg Africa/Juba Africa/Kampala
Africa/Khartoum Africa/Kigali Africa/Kinshasa Africa/Lagos Africa/Libreville Africa/Lome Africa/Luanda
Africa/Lubumbashi Africa/Lusaka Africa/Malabo Africa/Maputo Africa/Maseru Africa/Mbabane Africa/Mogadishu
Africa/Monrovia Africa/Nairobi Africa/Ndjamena Africa/Niamey Africa/Nouakchott Africa/Ouagadougou
Africa/Porto-Novo Africa/Sao_Tome Africa/Timbuktu Africa/Tripoli Africa/Tunis Africa/Windhoek America/Adak
America/Anchorage America/Anguilla America/Antigua America/Araguaina America/Argentina/Buenos_Aires
America/Argentina/Catamarca America/Argentina/ComodRivadavia America/Argentina/Cordoba America/Argentina/Jujuy
America/Argentina/La_Rioja America/Argentina/Mendoza America/Argentina/Rio_Gallegos America/Argentina/Salta
America/Argentina/San_Juan America/Argentina/San_Luis America/Argentina/Tucuman America/Argentina/Ushuaia
America/Aruba America/Asuncion America/Atikokan America/Atka America/Bahia America/Bahia_Banderas
America/Barbados America/Belem America/Belize America/Blanc-Sablon America/Boa_Vista America/Bogota
America/Boise America/Buenos_Aires America/Cambridge_Bay America/Campo_Grande America/Cancun America/Caracas
America/Catamarca America/Cayenne America/Cayman America/Chicago America/Chihuahua America/Ciudad_Juarez
America/Coral_Harbour America/Cordoba America/Costa_Rica America/Coyhaique America/Creston America/Cuiaba
America/Curacao America/Danmarkshavn America/Dawson America/Dawson_Creek America/Denver America/Detroit
America/Dominica America/Edmonton America/Eirunepe America/El_Salvador America/Ensenada America/Fort_Nelson
America/Fort_Wayne America/Fortaleza America/Glace_Bay America/Godthab America/Goose_Bay America/Grand_Turk
America/Grenada America/Guadeloupe America/Guatemala America/Guayaquil America/Guyana America/Halifax
America/Havana America/Hermosillo America/Indiana/Indianapolis America/Indiana/Knox America/Indiana/Marengo
America/Indiana/Petersburg America/Indiana/Tell_City America/Indiana/Vevay America/Indiana/Vincennes
America/Indiana/Winamac America/Indianapolis America/Inuvik America/Iqaluit America/Jamaica America/Jujuy
America/Juneau America/Kentucky/Louisville America/Kentucky/Monticello America/Knox_IN America/Kralendijk
America/La_Paz America/Lima America/Los_Angeles America/Louisville America/Lower_Princes America/Maceio
America/Managua America/Manaus America/Marigot America/Martinique America/Matamoros America/Mazatlan
America/Mendoza America/Menominee America/Merida America/Metlakatla America/Mexico_City America/Miquelon
America/Moncton America/Monterrey America/Montevideo America/Montreal America/Montserrat America/Nassau
America/New_York America/Nipigon America/Nome America/Noronha America/North_Dakota/Beulah
America/North_Dakota/Center America/North_Dakota/New_Salem America/Nuuk America/Ojinaga America/Panama
America/Pangnirtung America/Paramaribo America/Phoenix America/Port-au-Prince America/Port_of_Spain
America/Porto_Acre America/Porto_Velho America/Puerto_Rico America/Punta_Arenas America/Rainy_River
America/Rankin_Inlet America/Recife America/Regina America/Resolute America/Rio_Branco America/Rosario
America/Santa_Isabel America/Santarem America/Santiago America/Santo_Domingo America/Sao_Paulo
America/Scoresbysund America/Shiprock America/Sitka America/St_Barthelemy America/St_Johns America/St_Kitts
America/St_Lucia America/St_Thomas America/St_Vincent America/Swift_Current America/Tegucigalpa America/Thule
America/Thunder_Bay America/Tijuana America/Toronto America/Tortola America/Vancouver America/Virgin
America/Whitehorse America/Winnipeg America/Yakutat America/Yellowknife Antarctica/Casey Antarctica/Davis
Antarctica/DumontDUrville Antarctica/Macquarie Antarctica/Mawson Antarctica/McMurdo Antarctica/Palmer
Antarctica/Rothera Antarctica/South_Pole Antarctica/Syowa Antarctica/Troll Antarctica/Vostok
Arctic/Longyearbyen Asia/Aden Asia/Almaty Asia/Amman Asia/Anadyr Asia/Aqtau Asia/Aqtobe Asia/Ashgabat
Asia/Ashkhabad Asia/Atyrau Asia/Baghdad Asia/Bahrain Asia/Baku Asia/Bangkok Asia/Barnaul Asia/Beirut
Asia/Bishkek Asia/Brunei Asia/Calcutta Asia/Chita Asia/Choibalsan Asia/Chongqing Asia/Chungking Asia/Colombo
Asia/Dacca Asia/Damascus Asia/Dhaka Asia/Dili Asia/Dubai Asia/Dushanbe Asia/Famagusta Asia/Gaza Asia/Harbin
Asia/Hebron Asia/Ho_Chi_Minh Asia/Hong_Kong Asia/Hovd Asia/Irkutsk Asia/Istanbul Asia/Jakarta Asia/Jayapura
Asia/Jerusalem Asia/Kabul Asia/Kamchatka Asia/Karachi Asia/Kashgar Asia/Kathmandu Asia/Katmandu Asia/Khandyga
Asia/Kolkata Asia/Krasnoyarsk Asia/Kuala_Lumpur Asia/Kuching Asia/Kuwait Asia/Macao Asia/Macau Asia/Magadan
Asia/Makassar Asia/Manila Asia/Muscat Asia/Nicosia Asia/Novokuznetsk Asia/Novosibirsk Asia/Omsk Asia/Oral
Asia/Phnom_Penh Asia/Pontianak Asia/Pyongyang Asia/Qatar Asia/Qostanay Asia/Qyzylorda Asia/Rangoon Asia/Riyadh
Asia/Saigon Asia/Sakhalin Asia/Samarkand Asia/Seoul Asia/Shanghai Asia/Singapore Asia/Srednekolymsk
Asia/Taipei Asia/Tashkent Asia/Tbilisi Asia/Tehran Asia/Tel_Aviv Asia/Thimbu Asia/Thimphu Asia/Tokyo
Asia/Tomsk Asia/Ujung_Pandang Asia/Ulaanbaatar Asia/Ulan_Bator Asia/Urumqi Asia/Ust-Nera Asia/Vientiane
Asia/Vladivostok Asia/Yakutsk Asia/Yangon Asia/Yekaterinburg Asia/Yerevan Atlantic/Azores Atlantic/Bermuda
Atlantic/Canary Atlantic/Cape_Verde Atlantic/Faeroe Atlantic/Faroe Atlantic/Jan_Mayen Atlantic/Madeira
Atlantic/Reykjavik Atlantic/South_Georgia Atlantic/St_Helena Atlantic/Stanley Australia/ACT Australia/Adelaide
Australia/Brisbane Australia/Broken_Hill Australia/Canberra Australia/Currie Australia/Darwin Australia/Eucla
Australia/Hobart Australia/LHI Australia/Lindeman Australia/Lord_Howe Australia/Melbourne Australia/NSW
Australia/North Australia/Perth Australia/Queensland Australia/South Australia/Sydney Australia/Tasmania
Australia/Victoria Australia/West Australia/Yancowinna Brazil/Acre Brazil/DeNoronha Brazil/East Brazil/West
CET CST6CDT Canada/Atlantic Canada/Central Canada/Eastern Canada/Mountain Canada/Newfoundland Canada/Pacific
Canada/Saskatchewan Canada/Yukon Chile/Continental Chile/EasterIsland Cuba EET EST EST5EDT Egypt Eire Etc/GMT
Etc/GMT+0 Etc/GMT+1 Etc/GMT+10 Etc/GMT+11 Etc/GMT+12 Etc/GMT+2 Etc/GMT+3 Etc/GMT+4 Etc/GMT+5 Etc/GMT+6
Etc/GMT+7 Etc/GMT+8 Etc/GMT+9 Etc/GMT-0 Etc/GMT-1 Etc/GMT-10 Etc/GMT-11 Etc/GMT-12 Etc/GMT-13 Etc/GMT-14
Etc/GMT-2 Etc/GMT-3 Etc/GMT-4 Etc/GMT-5 Etc/GMT-6 Etc/GMT-7 Etc/GMT-8 Etc/GMT-9 Etc/GMT0 Etc/Greenwich Etc/UCT
Etc/UTC Etc/Universal Etc/Zulu Europe/Amsterdam Europe/Andorra Europe/Astrakhan Europe/Athens Europe/Belfast
Europe/Belgrade Europe/Berlin Europe/Bratislava Europe/Brussels Europe/Bucharest Europe/Budapest
Europe/Busingen Europe/Chisinau Europe/Copenhagen Europe/Dublin Europe/Gibraltar Europe/Guernsey
Europe/Helsinki Europe/Isle_of_Man Europe/Istanbul Europe/Jersey Europe/Kaliningrad Europe/Kiev Europe/Kirov
Europe/Kyiv Europe/Lisbon Europe/Ljubljana Europe/London Europe/Luxembourg Europe/Madrid Europe/Malta
Europe/Mariehamn Europe/Minsk Europe/Monaco Europe/Moscow Europe/Nicosia Europe/Oslo Europe/Paris
Europe/Podgorica Europe/Prague Europe/Riga Europe/Rome Europe/Samara Europe/San_Marino Europe/Sarajevo
Europe/Saratov Europe/Simferopol Europe/Skopje Europe/Sofia Europe/Stockholm Europe/Tallinn Europe/Tirane
Europe/Tiraspol Europe/Ulyanovsk Europe/Uzhgorod Europe/Vaduz Europe/Vatican Europe/Vienna Europe/Vilnius
Europe/Volgograd Europe/Warsaw Europe/Zagreb Europe/Zaporozhye Europe/Zurich Factory GB GB-Eire GMT GMT+0
GMT-0 GMT0 Greenwich HST Hongkong Iceland Indian/Antananarivo Indian/Chagos Indian/Christmas Indian/Cocos
Indian/Comoro Indian/Kerguelen Indian/Mahe Indian/Maldives Indian/Mauritius Indian/Mayotte Indian/Reunion Iran
Israel Jamaica Japan Kwajalein Libya MET MST MST7MDT Mexico/BajaNorte Mexico/BajaSur Mexico/General NZ NZ-CHAT
Navajo PRC PST8PDT Pacific/Apia Pacific/Auckland Pacific/Bougainville Pacific/Chatham Pacific/Chuuk
Pacific/Easter Pacific/Efate Pacific/Enderbury Pacific/Fakaofo Pacific/Fiji Pacific/Funafuti Pacific/Galapagos
Pacific/Gambier Pacific/Guadalcanal Pacific/Guam Pacific/Honolulu Pacific/Johnston Pacific/Kanton
Pacific/Kiritimati Pacific/Kosrae Pacific/Kwajalein Pacific/Majuro Pacific/Marquesas Pacific/Midway
Pacific/Nauru Pacific/Niue Pacific/Norfolk Pacific/Noumea Pacific/Pago_Pago Pacific/Palau Pacific/Pitcairn
Pacific/Pohnpei Pacific/Ponape Pacific/Port_Moresby Pacific/Rarotonga Pacific/Saipan Pacific/Samoa
Pacific/Tahiti Pacific/Tarawa Pacific/Tongatapu Pacific/Truk Pacific/Wake Pacific/Wallis Pacific/Yap Poland
Portugal ROC ROK Singapore Turkey UCT US/Alaska US/Aleutian US/Arizona US/Central US/East-Indiana US/Eastern
US/Hawaii US/Indiana-Starke US/Michigan US/Mountain US/Pacific US/Samoa UTC Universal W-SU WET Zulu
"""
TIME_ZONES = frozenset(_TEXT.split())


# --- Rules on what makes pods: Deployments, StatefulSets, DaemonSets, Jobs, CronJobs ---

_SELECTING = ("apps/DaemonSet", "apps/Deployment", "apps/ReplicaSet", "apps/StatefulSet")
_NOT_NEGATIVE = ("minReadySeconds", "replicas", "revisionHistoryLimit")
_JOB_NUMBERS = (
    "activeDeadlineSeconds",
    "backoffLimit",
    "backoffLimitPerIndex",
    "completions",
    "maxFailedIndexes",
    "parallelism",
    "ttlSecondsAfterFinished",
)
_STRICT_SERVICE_NAMES = 36
_MAX_INDEXED = 100_000


@rule(*_SELECTING)
def selector_chooses_the_template(subject: ValidationSubject) -> Problems:
    """What makes pods must recognise them: its selector is not empty and matches the template's labels."""
    chosen = subject.spec.at("selector")
    yield from selector(chosen)
    if not chosen:
        return
    if not chosen.at("matchLabels").names and not chosen.at("matchExpressions").items:
        yield chosen.says("must not be empty")
        return
    offered = subject.template.at("metadata", "labels")
    given = offered.value if isinstance(offered.value, dict) else {}
    if not selects(chosen, given):
        yield offered.says(f"must match the selector {shown(chosen.value)}, got {shown(given)}")


@rule(*(kind for kind in TEMPLATES if kind != "Pod"))
def template_labels_fit(subject: ValidationSubject) -> Problems:
    """Labels and annotations of the template have the syntax of labels and annotations."""
    yield from labels(subject.template.at("metadata", "labels"))


@rule(*_SELECTING)
def numbers_are_not_negative(subject: ValidationSubject) -> Problems:
    """Replicas, seconds and history are 0 and up."""
    for name in _NOT_NEGATIVE:
        yield from subject.spec.at(name).between(0)


@rule(*_SELECTING, "ReplicationController")
def pods_always_restart(subject: ValidationSubject) -> Problems:
    """Pods that are kept running restart always and have no deadline."""
    spec = subject.template.at("spec")
    policy = spec.at("restartPolicy")
    if policy.text not in ("", "Always"):
        yield policy.says(f"must be `Always` here, got {shown(policy.value)}")
    if spec.at("activeDeadlineSeconds"):
        yield spec.at("activeDeadlineSeconds").says("must not be set for pods that are kept running")


@rule("apps/Deployment")
def deployment_rolls(subject: ValidationSubject) -> Problems:
    """A rolling update can proceed, and its deadline comes after a pod is counted as ready."""
    strategy = subject.spec.at("strategy")
    rolling = strategy.at("rollingUpdate")
    surge, unavailable = rolling.at("maxSurge"), rolling.at("maxUnavailable")
    if strategy.at("type").text == "Recreate" and rolling:
        yield rolling.says("must not be set with `type: Recreate`")
    yield from count_or_share(surge, at_most_all=False)
    yield from count_or_share(unavailable)
    if amount(surge) == 0 and amount(unavailable) == 0:
        yield unavailable.says("must not be 0 when `maxSurge` is 0")
    deadline, ready = subject.spec.at("progressDeadlineSeconds"), subject.spec.at("minReadySeconds")
    yield from deadline.between(0)
    limit = 600 if deadline.number is None else deadline.number
    if limit <= (ready.number or 0):
        yield deadline.says(f"must be above `minReadySeconds` ({ready.number or 0}), got {limit}")


@rule("apps/DaemonSet")
def daemon_set_rolls(subject: ValidationSubject) -> Problems:
    """A rolling update replaces pods either before or after it stops them."""
    rolling = subject.spec.at("updateStrategy", "rollingUpdate")
    if subject.spec.at("updateStrategy", "type").text == "OnDelete":
        return
    surge, unavailable = rolling.at("maxSurge"), rolling.at("maxUnavailable")
    for field in (surge, unavailable):
        yield from count_or_share(field)
    surges = bool(amount(surge))
    stops = bool(amount(unavailable)) if unavailable else True
    if surges and stops:
        yield surge.says("must not be set unless `maxUnavailable` is 0")
    elif rolling and not surges and not stops:
        yield unavailable.says("must not be 0 when `maxSurge` is 0")


@rule("apps/StatefulSet")
def stateful_set_fits(subject: ValidationSubject) -> Problems:
    """A StatefulSet's Service is a DNS label, its updates have a partition of 0 and up."""
    name = subject.spec.at("serviceName")
    if subject.minor >= _STRICT_SERVICE_NAMES:
        yield from fits(name, schema.label)
    strategy = subject.spec.at("updateStrategy")
    if strategy.at("type").text == "OnDelete" and strategy.at("rollingUpdate"):
        yield strategy.at("rollingUpdate").says("must not be set with `type: OnDelete`")
    yield from strategy.at("rollingUpdate", "partition").between(0)
    yield from subject.spec.at("ordinals", "start").between(0)


@rule("batch/Job")
def job_fits(subject: ValidationSubject) -> Problems:
    """A Job's numbers are 0 and up, and its pods end."""
    yield from _job_spec(subject.spec)
    if subject.spec.at("selector") and subject.spec.at("manualSelector").value is not True:
        yield subject.spec.at("selector").says("is made by the server; leave it out")


def _job_spec(spec: Field) -> Problems:
    for name in _JOB_NUMBERS:
        yield from spec.at(name).between(0)
    policy = spec.at("template", "spec", "restartPolicy")
    allowed = ("Never",) if spec.at("podFailurePolicy") else ("OnFailure", "Never")
    if policy.text not in allowed:
        expected = " or ".join(f"`{one}`" for one in allowed)
        seen = f", got {shown(policy.value)}" if policy.text else ""
        yield policy.says(f"must be {expected} in a Job{seen}")
    yield from _indexed(spec)


def _indexed(spec: Field) -> Problems:
    if spec.at("completionMode").text == "Indexed":
        if spec.at("parallelism"):
            # With neither of both there is one of each.
            yield from spec.at("completions").needed()
        yield from spec.at("parallelism").between(0, _MAX_INDEXED)
        return
    for name in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
        if spec.at(name):
            yield spec.at(name).says("needs `completionMode: Indexed`")


@rule("batch/CronJob")
def cron_job_fits(subject: ValidationSubject) -> Problems:
    """A CronJob has a schedule that can be read, a known time zone and a Job that ends."""
    schedule, zone = subject.spec.at("schedule"), subject.spec.at("timeZone")
    yield from schedule.needed()
    wrong = wrong_schedule(schedule.text) if schedule.text else None
    if wrong:
        yield schedule.says(wrong)
    if zone and zone.text not in TIME_ZONES:
        near = nearest(zone.text, TIME_ZONES)
        hint = f", did you mean `{near}`?" if near else ""
        yield zone.says(f"must be a time zone such as `Europe/Berlin`, got {shown(zone.value)}{hint}")
    for name in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        yield from subject.spec.at(name).between(0)
    yield from _job_spec(subject.spec.at("jobTemplate", "spec"))
