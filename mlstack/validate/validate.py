"""Check whole sets of objects: the schema of each, the rules of its kind, what is deprecated or too large."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from mlstack.errors import ODD, ConfigError
from mlstack.objects import resources
from mlstack.objects.kube_object import CRD_GROUP, Kind, Kinds, KubeObject, Schemas, is_group, plural_of
from mlstack.objects.references import PodTemplate, templates
from mlstack.objects.resources import (
    Amounts,
    NamespaceLimits,
    QuotaFacts,
    amounts,
    is_host_port,
    usage_in,
    written,
)
from mlstack.validate.api_server_rules import pod_rule, rules_for
from mlstack.validate.formats import Fault, Field, Problem, Problems, Subject, fault_of, shown
from mlstack.validate.operator_rules import operator_rules_for
from mlstack.validate.rules import load, when
from mlstack.validate.schema import Definitions, SchemaCheck, check_custom, custom_definitions, suggestion

FIRST_MINOR = 30
LAST_MINOR = 37
VERSIONS = f"1.{FIRST_MINOR} to 1.{LAST_MINOR}"
_SCHEMAS = Path(__file__).with_name("kubernetes.tsv.gz")


class Validation(NamedTuple):
    """What is wrong with a set of objects, and how much was not checked."""

    faults: list[Fault]  # in the order of the objects; some are warnings
    unchecked: Mapping[str, int]  # kind → rules in CEL that are left to the API server


def validate_objects(
    objects: Sequence[KubeObject],
    schemas: Schemas,
    *,
    crds: Sequence[Mapping[str, Any]] = (),
    needed: Collection[str] = (),
) -> Validation:
    """Find what an API server of this version would refuse, and what it would take in vain.

    Args:
        objects: what is rendered; CustomResourceDefinitions among them count for the others.
        schemas: the built-in kinds of the environment's Kubernetes version.
        crds: further CustomResourceDefinitions, vendored with packages; those among `objects` win.
        needed: kinds, as `apiVersion/kind`, that the cluster is to have: without a definition only the rules
            of their operators are looked at.
    """
    own = [obj for obj in objects if obj.kind == "CustomResourceDefinition" and is_group(obj.data, CRD_GROUP)]
    problems = {id(obj): list(_problems(obj, schemas, {}, needed)) for obj in own}
    definitions = dict(custom_definitions(crds))
    for crd in own:
        is_sound = not any("openAPIV3Schema" in problem.keys for problem in problems[id(crd)])
        definitions |= custom_definitions([crd.data], usable=is_sound)
    for obj in objects:
        if id(obj) not in problems:
            problems[id(obj)] = list(_problems(obj, schemas, definitions, needed))
    listed = [(obj, problem) for obj in objects for problem in dict.fromkeys(problems[id(obj)])]
    unchecked = Counter(obj.kind for obj, problem in listed if problem.severity == "unchecked")
    return Validation([_fault(*fault) for fault in listed if fault[1].severity != "unchecked"], unchecked)


def _fault(obj: KubeObject, problem: Problem) -> Fault:
    is_secret = obj.kind == "Secret" and problem.keys[:1] in (("data",), ("stringData",))
    # What stands in a Secret is not for reading.
    message = problem.message.partition(", got ")[0] if is_secret else problem.message
    return fault_of(obj, problem.keys, message, problem.severity)


def _problems(
    obj: KubeObject, schemas: Schemas, definitions: Definitions, needed: Collection[str]
) -> Problems:
    definition = definitions.get((obj.group, obj.version, obj.kind))
    root = schemas.root(obj.group, obj.version, obj.kind)
    problems: list[Problem] = []
    if root is not None:
        problems.extend(SchemaCheck(schemas=schemas, custom=False).check(root, Field(obj.data)))
    elif definition is not None:
        try:
            problems.extend(check_custom(definition, obj.data, schemas))
        except ODD:  # of a snapshot, a package, a cluster
            yield Field(None, ("kind",)).says("is not checked: its definition is broken", "warning")
    elif f"{obj.api_version}/{obj.kind}" not in needed:
        yield _unknown_kind(obj, schemas, definitions)
        return
    kind = f"{obj.group}/{obj.kind}" if obj.group else obj.kind
    field = Field(obj.data, (), Subject(kind, schemas.minor, obj.data))
    problems.extend(_rule_problems(field))
    yield from problems
    # Operators are asked last, as the API server does it.
    if not any(problem.severity == "error" for problem in problems):
        yield from _operator_problems(field)


_JOB_TEMPLATES = (
    "spec.jaxReplicaSpecs|paddleReplicaSpecs|pytorchReplicaSpecs|tfReplicaSpecs|xgbReplicaSpecs.*.template"
)


def _rule_problems(root: Field) -> Problems:
    for rule in rules_for(root.subject.kind):
        yield from rule(root)
    for template in root.all(_JOB_TEMPLATES) if root.subject.kind.startswith("kubeflow.org/") else ():
        for problem in pod_rule()(template.at("spec")):
            message = f"{problem.message} (the job is taken, its pods are refused)"
            yield problem._replace(message=message, severity="warning")


def _operator_problems(root: Field) -> Problems:
    for rules in operator_rules_for(root.subject.kind):
        for rule in rules.rules:
            for problem in rule(root):
                is_refusal = problem.severity == "error"
                said = f"{problem.message} (rule of {rules.operator})" if is_refusal else problem.message
                yield problem._replace(message=said)


def _unknown_kind(obj: KubeObject, schemas: Schemas, definitions: Definitions) -> Problem:
    """Say why there is no schema: another Kubernetes version, another API version, a missing CRD."""
    kinds, field = Kinds.builtin(), Field(obj.api_version, ("apiVersion",))
    if not obj.api_version or not obj.kind:
        return Field(None, ("kind" if obj.api_version else "apiVersion",)).says("is required")
    if known := kinds.lookup(obj.api_version, obj.kind):
        return field.says(_other_release(known, schemas))
    versions = sorted(
        version for (group, version, kind) in definitions if (group, kind) == (obj.group, obj.kind)
    )
    if versions:
        listed = ", ".join(f"`{obj.group}/{version}`" for version in versions)
        return field.not_as(f"{listed} for kind `{obj.kind}`")
    # Groups of others are domains, with a dot.
    if kinds.of_group(obj.group) or "." not in obj.group:
        return field.says(_no_such_kind(obj, schemas))
    return field.says(
        f"no CustomResourceDefinition of {obj.kind} in {shown(obj.api_version)} is in reach:"
        " add it to this app as a manifest, or the package that brings it"
    )


def _other_release(known: Kind, schemas: Schemas) -> str:
    last = "" if known.last_minor == known.first_minor else f" to 1.{known.last_minor}"
    served = _served(
        [kind for kind in Kinds.builtin().of_group(known.group) if kind.kind == known.kind], schemas
    )
    return (
        f"{known.kind} of `{known.api_version}` exists in Kubernetes 1.{known.first_minor}{last},"
        f" not in {schemas.version}{f': use {served}' if served else ''}"
    )


def _served(kinds: Sequence[Kind], schemas: Schemas) -> str:
    versions = [kind.api_version for kind in kinds if kind.is_served_by(schemas.minor)]
    return " or ".join(f"`{version}`" for version in dict.fromkeys(versions))


def _no_such_kind(obj: KubeObject, schemas: Schemas) -> str:
    served = _served([kind for kind in Kinds.builtin() if kind.kind == obj.kind], schemas)
    if served:
        return f"must be {served} for kind `{obj.kind}`, got {shown(obj.api_version)}"
    known = {kind.kind for kind in Kinds.builtin() if kind.is_served_by(schemas.minor)}
    version = f"{shown(obj.api_version)} of Kubernetes {schemas.version}"
    return f"no kind `{obj.kind}` in {version}{suggestion(obj.kind, known)}"


# --- the schemas of the built-in kinds that mlstack ships ---


def load_schemas(version: str) -> Schemas:
    """Give the schemas of one Kubernetes version, in a form that `check_version` reads.

    Raises:
        ConfigError: mlstack has no schemas of that version.
    """
    return _schemas(int(check_version(version).removeprefix("1.")))


def check_version(version: str, *, where: str | None = None, environment: str = "ENV") -> str:
    """Give a Kubernetes version as `1.36`.

    Args:
        version: `1.30` to `1.37`; `v1.36.3` is read as 1.36.
        where: its place, for messages.
        environment: whose version it is, for messages.

    Raises:
        ConfigError: mlstack has no schemas of that version.
    """
    if known := known_version(version):
        return known
    hint = f"mlstack env set {environment} --kubernetes-version 1.36"
    raise ConfigError(f"`kubernetesVersion` must be {VERSIONS}, got `{version}`", where=where, hint=hint)


def known_version(version: str) -> str:
    """Give a Kubernetes version as `1.36`, and nothing for one that has no schemas here."""
    major, _, rest = version.removeprefix("v").partition(".")
    minor = rest.partition(".")[0]
    is_known = major == "1" and minor.isdecimal() and FIRST_MINOR <= int(minor) <= LAST_MINOR
    return f"1.{int(minor)}" if is_known else ""


@cache
def _schemas(minor: int) -> Schemas:
    return Schemas(gzip.decompress(_SCHEMAS.read_bytes()).decode(), minor=minor)


# --- deprecated API versions and fields, and what Kubernetes serves no more in the version after ---


_OTHER_KINDS = {"Endpoints": "EndpointSlice of `discovery.k8s.io/v1`"}


@cache
def _deprecated_since() -> Mapping[tuple[str, str], int]:
    lines = Path(__file__).with_name("deprecations.txt").read_text("utf-8").splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return {(version, kind): int(minor) for version, kinds, minor in rows for kind in kinds.split(",")}


def deprecations(
    objects: Iterable[KubeObject],
    minor: int,
    *,
    definitions: Sequence[Mapping[str, Any]] = (),
    is_live: bool = False,
) -> Iterator[Fault]:
    """Warn of what Kubernetes 1.`minor` has deprecated, and of what the version after it has no more.

    Args:
        objects: what is rendered, or was applied.
        minor: of the version.
        definitions: CustomResourceDefinitions, which say of their versions whether they are deprecated.
        is_live: whether the objects are in a cluster already: then what this version does not serve is told
            of too, which is an error of what is rendered.
    """
    custom = dict(_deprecated_versions(definitions))
    for obj in objects:
        for problem in (*_api_version(obj, minor, custom, is_live=is_live), *_deprecated_fields(obj, minor)):
            yield fault_of(obj, problem.keys, problem.message)


def _api_version(
    obj: KubeObject, minor: int, custom: Mapping[tuple[str, str], str], *, is_live: bool
) -> Problems:
    field = Field(obj.api_version, ("apiVersion",))
    if (obj.api_version, obj.kind) in custom:
        yield field.says(custom[obj.api_version, obj.kind])
        return
    kind = Kinds.builtin().lookup(obj.api_version, obj.kind)
    if kind is None or (not kind.is_served_by(minor) and not is_live):
        return
    use = _replacement(kind, minor)
    newest = max(builtin.last_minor for builtin in Kinds.builtin())
    since = _deprecated_since().get((obj.api_version, obj.kind))
    if kind.last_minor < min(minor + 1, newest):
        gone = when(kind.last_minor + 1, minor)
        yield field.says(f"{kind.kind} of `{obj.api_version}` is not served {gone}{use}")
    elif since is not None and since <= minor + 1:
        yield field.says(f"{kind.kind} of `{obj.api_version}` is deprecated {when(since, minor)}{use}")


def _replacement(kind: Kind, minor: int) -> str:
    if kind.kind in _OTHER_KINDS:
        return f": use {_OTHER_KINDS[kind.kind]}"
    others = [
        other.api_version
        for other in Kinds.builtin().of_group(kind.group)
        if other.kind == kind.kind and other.last_minor > kind.last_minor and other.first_minor <= minor + 1
    ] or [
        other.api_version
        for other in Kinds.builtin().of_group(kind.group)
        if other.kind == kind.kind and other.version == "v1" != kind.version
    ]
    return f": use `{others[0]}`" if others else ""


def _deprecated_fields(obj: KubeObject, minor: int) -> Problems:
    kind = f"{obj.group}/{obj.kind}".lstrip("/")
    root = Field(obj.data, (), Subject(kind, minor, obj.data))
    pods = [template.keys for template in templates(obj)]
    for row in load("deprecations.rules"):
        bases = [root] if kind in row.kinds else []
        bases += [root.below(keys) for keys in pods if "pods" in row.kinds]
        bases += [root.below(keys[:-1]) for keys in pods if "templates" in row.kinds]
        for base in bases:
            for rule in row.rules:
                yield from rule(base)


def _deprecated_versions(definitions: Sequence[Mapping[str, Any]]) -> Iterator[tuple[tuple[str, str], str]]:
    """Give what definitions say of their deprecated versions, by API version and kind."""
    for definition in definitions:
        spec = Field(definition).at("spec")
        kind, group = spec.at("names", "kind").text, spec.at("group").text
        for version in spec.at("versions").items:
            if version.at("deprecated").value is True:
                api_version = f"{group}/{version.at('name').text}"
                said = version.at("deprecationWarning").text or f"{kind} of `{api_version}` is deprecated"
                yield (api_version, kind), said


# --- whether nodes and quotas of a cluster have room for what is rendered, as a snapshot of it says ---


def too_large(objects: Sequence[KubeObject], nodes: Sequence[Mapping[str, Any]]) -> Iterator[Fault]:
    """Warn of pods that no node has room for, even an empty one; `nodes` are what each shape can give."""
    if not nodes:
        return
    shapes = [amounts(node) for node in nodes]
    for obj in objects:
        for template in templates(obj):
            asked = _asked(template)
            if any(all(value <= shape.get(name, 0) for name, value in asked.items()) for shape in shapes):
                continue
            for resource, value in sorted(asked.items()):
                most = max(shape.get(resource, 0) for shape in shapes)
                if value > most:
                    more, less = written(resource, value), written(resource, most)
                    text = f"a pod asks for {more} {resource}, no node has more than {less}"
                    yield _warning(obj, template, text)
                    break
            else:
                what = ", ".join(f"{written(name, value)} {name}" for name, value in sorted(asked.items()))
                yield _warning(obj, template, f"a pod asks for {what}, which no node has together")


def over_quota(objects: Sequence[KubeObject], limits: Mapping[str, NamespaceLimits]) -> Iterator[Fault]:
    """Warn of pods that a LimitRange refuses, or a quota as they do not say what they take.

    And where all objects of a namespace together are or ask for more than a quota gives.

    Requests and limits of pods, storage (of each class too), and counts of objects, in the words of
    https://kubernetes.io/docs/concepts/policy/resource-quotas/.
    """
    for namespace in sorted(limits):
        pods: list[tuple[Mapping[str, Any], int]] = []
        others: Counter[str] = Counter()
        for obj in objects:
            if obj.namespace == namespace:
                others.update(_counts(obj))
                for template in templates(obj):
                    spec, refusals = limits[namespace].admitted(template.spec)
                    pods.append((spec, template.replicas))
                    yield from (_warning(obj, template, text) for text in refusals)
        for quota in limits[namespace].quotas:
            yield from _excesses(quota, usage_in(quota, pods, others))


def _excesses(quota: QuotaFacts, asked: Amounts) -> Iterator[Fault]:
    """Warn of each entry of a quota that all objects together exceed."""
    for name, hard in sorted(quota.hard.items()):
        if (count := asked.get(name, 0)) > hard:
            resource = name.rpartition("requests.")[2].removeprefix("limits.")
            is_asked = resource != name or f"requests.{name}" in asked
            what = f"{'ask for' if is_asked else 'are'} {written(resource, count)} {resource}"
            yield Fault(
                component="",
                object=f"ResourceQuota {quota.namespace}/{quota.name}",
                path=f"spec.hard.{name}",
                message=f"all together {what}, the quota gives {written(resource, hard)}",
                severity="warning",
            )


def _counts(obj: KubeObject) -> Counter[str]:
    """Give how much of what quotas count an object is, and asks for with its claims; pods aside."""
    plural, spec = plural_of(obj.kind), obj.data.get("spec") or {}
    names = [f"count/{plural}.{obj.group}".rstrip("."), *([] if obj.group else [plural])]
    counts = Counter(names if names[-1] != "pods" else ())
    if (obj.group, obj.kind) == ("", "Service") and spec.get("type") in ("NodePort", "LoadBalancer"):
        counts["services.loadbalancers"] += spec["type"] == "LoadBalancer"
        counts["services.nodeports"] += len(spec.get("ports") or ())
    claims = [spec] if (obj.group, obj.kind) == ("", "PersistentVolumeClaim") else []
    claims += [claim.get("spec") or {} for claim in spec.get("volumeClaimTemplates") or ()]
    replicas = next((template.replicas for template in templates(obj)), 1)
    for claim in claims:
        asked = amounts((claim.get("resources") or {}).get("requests")).get("storage", 0) * replicas
        of_class = f"{claim.get('storageClassName')}.storageclass.storage.k8s.io/"
        for prefix in ("", of_class):
            counts[f"{prefix}requests.storage"] += asked
            if prefix or obj.kind == "StatefulSet":
                counts[f"{prefix}persistentvolumeclaims"] += replicas
    return counts


def _asked(template: PodTemplate) -> Amounts:
    """Give what a pod asks of its node; every empty node has room for its ports."""
    return {
        name: value
        for name, value in resources.requests(template.spec).items()
        if name != "pods" and not is_host_port(name)
    }


def _warning(obj: KubeObject, template: PodTemplate, message: str) -> Fault:
    role = f" ({template.role})" if template.role else ""
    return fault_of(obj, (), f"{message}{role}")
