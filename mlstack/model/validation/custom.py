"""Check custom resources against the CustomResourceDefinition of their kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlstack.model.kinds import CRD_GROUP, is_group
from mlstack.model.schemas import Schema, Schemas
from mlstack.model.validation import cel
from mlstack.model.validation.base import Field, Problem, Problems, shown
from mlstack.model.validation.celparse import UnsupportedError
from mlstack.model.validation.structure import Structure

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


def definitions(crds: Iterable[Mapping[str, Any]], *, usable: bool = True) -> Definitions:
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
