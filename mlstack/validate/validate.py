"""Check whole sets of objects: the schema of each, then the rules of its kind."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from mlstack.errors import ConfigError
from mlstack.names import nearest
from mlstack.objects.kube_object import CRD_GROUP, Kind, Kinds, KubeObject, Schemas, is_group
from mlstack.validate.formats import Fault, Field, Problem, Problems, Subject, fault_of, shown
from mlstack.validate.operator_rules import job_templates, operator_rules_for
from mlstack.validate.rules import pod_rule, rules_for
from mlstack.validate.schema import Definitions, SchemaCheck, check_custom, custom_definitions

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
    sound = [not any("openAPIV3Schema" in problem.keys for problem in problems[id(obj)]) for obj in own]
    definitions = {
        **custom_definitions(crds),
        **custom_definitions(crd.data for crd, usable in zip(own, sound, strict=True) if usable),
        **custom_definitions(
            (crd.data for crd, usable in zip(own, sound, strict=True) if not usable), usable=False
        ),
    }
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
        problems.extend(check_custom(definition, obj.data, schemas))
    elif f"{obj.api_version}/{obj.kind}" not in needed:
        yield _unknown_kind(obj, schemas, definitions)
        return
    kind = f"{obj.group}/{obj.kind}" if obj.group else obj.kind
    templates = Field(obj.data).all("spec.volumeClaimTemplates[].metadata.name")
    claims = frozenset(template.text for template in templates)
    field = Field(obj.data, (), Subject(kind, schemas.minor, claims))
    problems.extend(_rule_problems(field))
    yield from problems
    # Operators are asked last, as the API server does it.
    if not any(problem.severity == "error" for problem in problems):
        yield from _operator_problems(field)


def _rule_problems(root: Field) -> Problems:
    for rule in rules_for(root.subject.kind):
        yield from rule(root)
    for template in job_templates(root):
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
    near = nearest(obj.kind, {kind.kind for kind in Kinds.builtin() if kind.is_served_by(schemas.minor)})
    hint = f", did you mean `{near}`?" if near else ""
    return f"no kind `{obj.kind}` in {shown(obj.api_version)} of Kubernetes {schemas.version}{hint}"


# --- the schemas of the built-in kinds that mlstack ships ---


def load_schemas(version: str) -> Schemas:
    """Give the schemas of one Kubernetes version.

    Args:
        version: `1.30` to `1.37`; `v1.36.3` is read as 1.36.

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
    known = known_version(version)
    if not known:
        raise ConfigError(
            f"`kubernetesVersion` must be {VERSIONS}, got `{version}`",
            where=where,
            hint=f"mlstack env set {environment} --kubernetes-version 1.36",
        )
    return known


def known_version(version: str) -> str:
    """Give a Kubernetes version as `1.36`, and nothing for one that has no schemas here."""
    major, _, rest = version.removeprefix("v").partition(".")
    minor = rest.partition(".")[0]
    is_known = major == "1" and minor.isdecimal() and FIRST_MINOR <= int(minor) <= LAST_MINOR
    return f"1.{int(minor)}" if is_known else ""


@cache
def _schemas(minor: int) -> Schemas:
    return Schemas(gzip.decompress(_SCHEMAS.read_bytes()).decode(), minor=minor)
