"""Check whole sets of objects: the schema of each, then the rules of its kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlstack.model.kinds import Kind, Kinds
from mlstack.model.names import nearest
from mlstack.model.objects import KubeObject
from mlstack.model.schemas import Schemas
from mlstack.model.validation import custom
from mlstack.model.validation.base import Fault, Field, Problem, Problems, path_of, shown
from mlstack.model.validation.rules import (
    claims,
    config,
    containers,
    extensions,
    jobs,
    metadata,
    networking,
    pods,
    rights,
    scaling,
    services,
    volumes,
    workloads,
)
from mlstack.model.validation.rules.table import POD_RULES, TEMPLATES, PodSubject, Subject, rules_for
from mlstack.model.validation.structure import Structure

# The files of rules: importing one enters its rules into the table.
RULE_FILES = (
    metadata,
    pods,
    containers,
    volumes,
    claims,
    workloads,
    services,
    config,
    rights,
    scaling,
    networking,
    extensions,
    jobs,
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
    own = {id(found): found for found in objects if custom.is_crd(found.data)}
    looked_at = {key: list(_problems(found, schemas, {})) for key, found in own.items()}
    sound = {key: not any("openAPIV3Schema" in each.keys for each in looked_at[key]) for key in own}
    definitions = {
        **custom.definitions(crds),
        **custom.definitions(found.data for key, found in own.items() if sound[key]),
        **custom.definitions((found.data for key, found in own.items() if not sound[key]), usable=False),
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


def _problems(found: KubeObject, schemas: Schemas, definitions: custom.Definitions) -> Problems:
    definition = definitions.get((found.group, found.version, found.kind))
    root = schemas.root(found.group, found.version, found.kind)
    if root is not None:
        yield from Structure(schemas, custom=False).check(root, Field(found.data))
        yield from _rule_problems(_subject(found, schemas, built_in=True))
    elif definition is not None:
        yield from custom.check(definition, found.data, schemas)
        yield from _rule_problems(_subject(found, schemas, built_in=False))
    else:
        yield _unknown_kind(found, schemas, definitions)


def _subject(found: KubeObject, schemas: Schemas, *, built_in: bool) -> Subject:
    kind = f"{found.group}/{found.kind}" if found.group else found.kind
    return Subject(root=Field(found.data), kind=kind, minor=schemas.minor, built_in=built_in)


def _rule_problems(subject: Subject) -> Problems:
    for rule in rules_for(subject.kind):
        yield from rule(subject)
    if subject.kind in TEMPLATES:
        yield from _pod_problems(subject, subject.template)
    for template in jobs.job_templates(subject):
        for problem in _pod_problems(subject, template):
            message = f"{problem.message} (the job is taken, its pods are refused)"
            yield problem._replace(message=message, severity="warning")


def _pod_problems(subject: Subject, template: Field) -> Problems:
    templates = subject.spec.at("volumeClaimTemplates").items
    added = frozenset(template.at("metadata", "name").text for template in templates)
    pod = PodSubject(spec=template.at("spec"), claims=added, minor=subject.minor)
    for rule in POD_RULES:
        yield from rule(pod)


def _unknown_kind(found: KubeObject, schemas: Schemas, definitions: custom.Definitions) -> Problem:
    """Say why there is no schema: another Kubernetes version, another API version, a missing CRD."""
    kinds = Kinds.builtin()
    field = Field(found.api_version, ("apiVersion",))
    if not found.api_version or not found.kind:
        missing = "apiVersion" if not found.api_version else "kind"
        return Field(None, (missing,)).says("is required")
    known = kinds.lookup(found.api_version, found.kind)
    if known is not None:
        return field.says(_other_release(known, schemas))
    versions = custom.known_versions(definitions, found.group, found.kind)
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
