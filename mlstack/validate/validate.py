"""Check custom resources against the CustomResourceDefinition of their kind."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mlstack.errors import ConfigError
from mlstack.names import nearest
from mlstack.objects.kinds import CRD_GROUP, Kind, Kinds, Schema, Schemas, is_group
from mlstack.objects.kube_object import KubeObject
from mlstack.validate import cel, pod_rules, rules
from mlstack.validate.cel import UnsupportedError
from mlstack.validate.rules import POD_RULES, TEMPLATES, PodSubject, ValidationSubject, rules_for
from mlstack.validate.schema import Fault, Field, Problem, Problems, Structure, path_of, shown

# --- Check custom resources against the CustomResourceDefinition of their kind ---

_OPEN: Schema = {"x-kubernetes-preserve-unknown-fields": True}


@dataclass(frozen=True, kw_only=True)
class Definition:
    """What one version of a custom kind is checked against.

    Attributes:
        schema: the structural schema.
        replicas: where the subresource `scale` finds the number of replicas, empty without it.
    """

    schema: Schema
    replicas: tuple[str, ...] = ()


Definitions = Mapping[tuple[str, str, str], Definition]


def custom_definitions(crds: Iterable[Mapping[str, Any]], *, usable: bool = True) -> Definitions:
    """Collect the schemas of CustomResourceDefinitions by group, version and kind; later ones win.

    Args:
        crds: the definitions.
        usable: whether their schemas are sound; if not, their resources may hold anything.
    """
    found: dict[tuple[str, str, str], Definition] = {}
    for data in crds:
        spec = Field(data).at("spec")
        for version in spec.at("versions").items:
            key = (spec.at("group").text, version.at("name").text, spec.at("names", "kind").text)
            path = version.at("subresources", "scale", "specReplicasPath").text
            schema = _schema_of(version) if usable else _OPEN
            found[key] = Definition(schema=schema, replicas=tuple(path.split(".")[1:]))
    return found


def _schema_of(version: Field) -> Schema:
    """Give the schema of one version; a status that only the controller can set is not looked at."""
    schema = version.at("schema", "openAPIV3Schema").value
    if not isinstance(schema, Mapping):
        return _OPEN
    if not version.at("subresources", "status"):
        return schema
    return {**schema, "properties": {**schema.get("properties", {}), "status": _OPEN}}


def is_crd(data: Mapping[str, Any]) -> bool:
    """Say whether an object is a CustomResourceDefinition."""
    return data.get("kind") == "CustomResourceDefinition" and is_group(data, CRD_GROUP)


def check(definition: Definition, data: Mapping[str, Any], schemas: Schemas) -> Problems:
    """Find what does not fit; the rules in CEL are looked at only where the structure is right."""
    filled = Field(with_defaults(definition.schema, data))
    problems = list(Structure(schemas, custom=True).check(definition.schema, filled))
    problems += filled.at(*definition.replicas).between(0)
    yield from problems or rule_problems(definition.schema, filled, [cel.STEPS])


def with_defaults(schema: Schema, value: Any) -> Any:
    """Give the value with the defaults of its schema, as the API server fills them in first."""
    if isinstance(value, list):
        return [with_defaults(schema.get("items", {}), item) for item in value]
    if not isinstance(value, Mapping):
        return value
    properties: Mapping[str, Schema] = schema.get("properties", {})
    others = schema.get("additionalProperties")
    filled = {
        key: with_defaults(properties.get(key, others if isinstance(others, Mapping) else {}), item)
        for key, item in value.items()
    }
    for name, inner in properties.items():
        if "default" in inner and (
            name not in filled or (filled[name] is None and not inner.get("nullable"))
        ):
            filled[name] = with_defaults(inner, inner["default"])
    return filled


def rule_problems(schema: Schema, field: Field, steps: list[int]) -> Problems:
    """Evaluate the rules of a schema and of everything below it, while steps are left."""
    if field.value is None:
        return
    for rule in schema.get("x-kubernetes-validations", ()):
        yield from _broken(rule, Field(_typed(schema, field.value), field.keys), steps)
    for name, inner in field.entries:
        below = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
        if isinstance(below, Mapping):
            yield from rule_problems(below, inner, steps)
    if isinstance(schema.get("items"), Mapping):
        for item in field.items:
            yield from rule_problems(schema["items"], item, steps)


def _typed(schema: Schema, value: Any) -> Any:
    """Give a value as rules see it: whole numbers may be fractions by type, and texts times."""
    if value is None and schema.get("nullable"):
        return cel.Opaque()
    if isinstance(value, Mapping):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        below = others if isinstance(others, Mapping) else {}
        return {key: _typed(properties.get(key, below), item) for key, item in value.items()}
    if isinstance(value, list):
        return [_typed(schema.get("items") or {}, item) for item in value]
    if isinstance(value, str):
        return cel.Opaque() if str(schema.get("format", "")).replace("-", "") in _OPAQUE else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if schema.get("type") == "number":
        return float(value)
    return int(value) if value == int(value) else value


_OPAQUE = frozenset({"byte", "date", "datetime", "duration"})
_ABOUT_CHANGES = re.compile(r"\boldSelf\b")


def _broken(rule: Mapping[str, Any], field: Field, steps: list[int]) -> Problems:
    """Evaluate one rule; those on changes (`oldSelf`) and those in CEL not known here say nothing."""
    text = str(rule.get("rule", ""))
    if _ABOUT_CHANGES.search(text):
        return
    try:
        holds = cel.evaluate(text, {"self": field.value}, steps=steps)
    except UnsupportedError:
        return
    except cel.EvaluationError as error:
        yield _located(rule, field, f"rule {shown(text)} cannot be evaluated: {error}")
        return
    if holds is not True:
        yield _located(rule, field, str(rule.get("message") or f"fails the rule {shown(text)}").strip())


def _located(rule: Mapping[str, Any], field: Field, message: str) -> Problem:
    path = str(rule.get("fieldPath", "")).strip(".")
    plain = all(part.isidentifier() for part in path.split(".")) if path else False
    return (field.at(*path.split(".")) if plain else field).says(message)


def known_versions(found: Definitions, group: str, kind: str) -> Sequence[str]:
    """Give the versions of a custom kind that there are definitions of."""
    return sorted(version for (g, version, k) in found if (g, k) == (group, kind))


# --- Check whole sets of objects: the schema of each, then the rules of its kind ---

# The files of rules: importing one enters its rules into the table.
RULE_FILES = (
    rules,
    pod_rules,
    pod_rules,
    pod_rules,
    pod_rules,
    rules,
    rules,
    rules,
    rules,
    rules,
    rules,
    rules,
    rules,
)


def validate_objects(
    objects: Sequence[KubeObject], schemas: Schemas, *, crds: Sequence[Mapping[str, Any]] = ()
) -> list[Fault]:
    """Find what an API server of this version would refuse, and what it would take in vain.

    Args:
        objects: what is rendered; CustomResourceDefinitions among them count for the others.
        schemas: the built-in kinds of the environment's Kubernetes version.
        crds: further CustomResourceDefinitions, vendored with packages; those among `objects` win.

    Returns:
        The faults in the order of the objects; warnings among them carry that severity.
    """
    own = {id(found): found for found in objects if is_crd(found.data)}
    looked_at = {key: list(_problems(found, schemas, {})) for key, found in own.items()}
    sound = {key: not any("openAPIV3Schema" in each.keys for each in looked_at[key]) for key in own}
    definitions = {
        **custom_definitions(crds),
        **custom_definitions(found.data for key, found in own.items() if sound[key]),
        **custom_definitions((found.data for key, found in own.items() if not sound[key]), usable=False),
    }
    for found in objects:
        if id(found) not in looked_at:
            looked_at[id(found)] = list(_problems(found, schemas, definitions))
    return [_fault(found, problem) for found in objects for problem in dict.fromkeys(looked_at[id(found)])]


def _fault(found: KubeObject, problem: Problem) -> Fault:
    is_secret = found.kind == "Secret" and problem.keys[:1] in (("data",), ("stringData",))
    return Fault(
        component=found.component,
        object=str(found.identity),
        path=path_of(problem.keys),
        # What stands in a Secret is not for reading.
        message=problem.message.partition(", got ")[0] if is_secret else problem.message,
        where=str(found.source) if found.source else None,
        severity=problem.severity,
        keys=problem.keys,
    )


def _problems(found: KubeObject, schemas: Schemas, definitions: Definitions) -> Problems:
    definition = definitions.get((found.group, found.version, found.kind))
    root = schemas.root(found.group, found.version, found.kind)
    if root is not None:
        yield from Structure(schemas, custom=False).check(root, Field(found.data))
        yield from _rule_problems(_subject(found, schemas, built_in=True))
    elif definition is not None:
        yield from check(definition, found.data, schemas)
        yield from _rule_problems(_subject(found, schemas, built_in=False))
    else:
        yield _unknown_kind(found, schemas, definitions)


def _subject(found: KubeObject, schemas: Schemas, *, built_in: bool) -> ValidationSubject:
    kind = f"{found.group}/{found.kind}" if found.group else found.kind
    return ValidationSubject(root=Field(found.data), kind=kind, minor=schemas.minor, built_in=built_in)


def _rule_problems(subject: ValidationSubject) -> Problems:
    for rule in rules_for(subject.kind):
        yield from rule(subject)
    if subject.kind in TEMPLATES:
        yield from _pod_problems(subject, subject.template)
    for template in rules.job_templates(subject):
        for problem in _pod_problems(subject, template):
            message = f"{problem.message} (the job is taken, its pods are refused)"
            yield problem._replace(message=message, severity="warning")


def _pod_problems(subject: ValidationSubject, template: Field) -> Problems:
    templates = subject.spec.at("volumeClaimTemplates").items
    added = frozenset(template.at("metadata", "name").text for template in templates)
    pod = PodSubject(spec=template.at("spec"), claims=added, minor=subject.minor)
    for rule in POD_RULES:
        yield from rule(pod)


def _unknown_kind(found: KubeObject, schemas: Schemas, definitions: Definitions) -> Problem:
    """Say why there is no schema: another Kubernetes version, another API version, a missing CRD."""
    kinds = Kinds.builtin()
    field = Field(found.api_version, ("apiVersion",))
    if not found.api_version or not found.kind:
        missing = "apiVersion" if not found.api_version else "kind"
        return Field(None, (missing,)).says("is required")
    known = kinds.lookup(found.api_version, found.kind)
    if known is not None:
        return field.says(_other_release(known, schemas))
    versions = known_versions(definitions, found.group, found.kind)
    if versions:
        listed = ", ".join(f"`{found.group}/{version}`" for version in versions)
        return field.says(f"must be {listed} for kind `{found.kind}`, got {shown(found.api_version)}")
    if _is_built_in_group(found.group):
        return field.says(_no_such_kind(found, schemas))
    return field.says(
        f"no CustomResourceDefinition of {found.kind} in {shown(found.api_version)} is in reach:"
        " add it to this app as a manifest, or the package that brings it"
    )


def _other_release(known: Kind, schemas: Schemas) -> str:
    last = "" if known.last_minor == known.first_minor else f" to 1.{known.last_minor}"
    return (
        f"{known.kind} of `{known.api_version}` exists in Kubernetes 1.{known.first_minor}{last},"
        f" not in {schemas.version}{_served_instead(known, schemas)}"
    )


def _served_instead(known: Kind, schemas: Schemas) -> str:
    others = [
        kind.api_version
        for kind in Kinds.builtin().of_group(known.group)
        if kind.kind == known.kind and kind.is_served_by(schemas.minor)
    ]
    return f": use {' or '.join(f'`{other}`' for other in others)}" if others else ""


def _is_built_in_group(group: str) -> bool:
    """Say whether a group is one of Kubernetes; groups of others are domains, with a dot."""
    return bool(Kinds.builtin().of_group(group)) or "." not in group


def _no_such_kind(found: KubeObject, schemas: Schemas) -> str:
    served = [kind for kind in Kinds.builtin() if kind.is_served_by(schemas.minor)]
    same = [kind.api_version for kind in served if kind.kind == found.kind]
    if same:
        listed = " or ".join(f"`{version}`" for version in dict.fromkeys(same))
        return f"must be {listed} for kind `{found.kind}`, got {shown(found.api_version)}"
    near = nearest(found.kind, {kind.kind for kind in served})
    hint = f", did you mean `{near}`?" if near else ""
    return f"no kind `{found.kind}` in {shown(found.api_version)} of Kubernetes {schemas.version}{hint}"


# --- Read the schemas of the built-in kinds that mlstack ships ---

FIRST_MINOR = 30
LAST_MINOR = 37
_DEFINITIONS = Path(__file__).with_name("kubernetes.tsv.gz")


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
    major, _, rest = version.removeprefix("v").partition(".")
    minor = rest.partition(".")[0]
    if major != "1" or not minor.isdecimal() or not FIRST_MINOR <= int(minor) <= LAST_MINOR:
        raise ConfigError(
            f"`kubernetesVersion` must be 1.{FIRST_MINOR} to 1.{LAST_MINOR}, got `{version}`",
            where=where,
            hint=f"mlstack env set {environment} --kubernetes-version 1.36",
        )
    return f"1.{int(minor)}"


@cache
def _schemas(minor: int) -> Schemas:
    return Schemas(gzip.decompress(_DEFINITIONS.read_bytes()).decode(), minor=minor)
