"""Check a value against a schema: of a built-in kind or of a CustomResourceDefinition."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from mlstack.app.schema import matches
from mlstack.dataclass import Record
from mlstack.names import did_you_mean
from mlstack.objects.kube_object import Schema, Schemas, list_type_of
from mlstack.objects.resources import quantity
from mlstack.validate import cel
from mlstack.validate.cel import UnsupportedError
from mlstack.validate.formats import KEY_DEFAULTS, Field, Problem, Problems, shown, wrong_text

_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "string": ((str,), "a string"),
    "boolean": ((bool,), "true or false"),
    "array": ((list,), "a list"),
    "object": ((Mapping,), "a map"),
    "integer": ((int, float), "a whole number"),
    "number": ((int, float), "a number"),
}
_BITS = {"int32": 31, "int64": 63}
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def suggestion(text: str, known: Iterable[str]) -> str:
    """Give the end of a message that names what is near, empty if nothing is."""
    hint = did_you_mean(text, known) if text else ""
    return f", {hint}" if hint else ""


class SchemaCheck(Record):
    """A walk through a value beside its schema.

    Built-in kinds and custom resources differ in small things: in built-in kinds null means absent and an
    empty string unset; in custom resources null must be allowed, and a part may be open
    (`x-kubernetes-preserve-unknown-fields`).
    """

    # The built-in definitions, for references and for the metadata of custom resources.
    schemas: Schemas
    custom: bool

    def check(self, schema: Schema, field: Field, *, closed: bool = True) -> Problems:
        """Find what does not fit the schema; fields that it does not know only if it is closed."""
        schema = self.schemas.resolve(schema)
        value = field.value
        if value is None:
            wrong = _expected(schema) if self.custom and not schema.get("nullable") else None
        else:
            wrong = _wrong_type(schema, value)
        if wrong:
            yield field.says(f"must be {wrong}, got {_described(value)}")
        if wrong or value is None:
            return
        yield from self._enum(schema, field)
        if isinstance(value, str):
            yield from _text(schema, field, custom=self.custom)
        elif isinstance(value, list):
            yield from self._list(schema, field, closed=closed)
        elif isinstance(value, Mapping):
            yield from self._map(schema, field, closed=closed)
        elif not isinstance(value, bool):
            yield from _number(schema, field)
        if self.custom:
            yield from self._combined(schema, field)

    def _enum(self, schema: Schema, field: Field) -> Problems:
        allowed = schema.get("enum")
        if allowed is None or field.value in allowed or (field.value == "" and not self.custom):
            return
        hint = suggestion(field.text, [value for value in allowed if isinstance(value, str)])
        yield field.says(f"must be one of {_listed(allowed)}, got {shown(field.value)}{hint}")

    def _list(self, schema: Schema, field: Field, *, closed: bool) -> Problems:
        yield from _sized(schema, field, "Items", "items")
        inner = schema.get("items")
        if isinstance(inner, Mapping):
            for item in field.items:
                yield from self.check(inner, item, closed=closed)
        if list_type_of(schema).type == "map":
            yield from (item.says("must be a map, got null") for item in field.items if not item)
        elif isinstance(inner, Mapping) and "enum" in inner and not self.custom:
            empty = (item for item in field.items if item.value in (None, ""))
            yield from (item.says(f"must be one of {_listed(inner['enum'])}, got nothing") for item in empty)
        yield from _duplicates(schema, field)

    def _map(self, schema: Schema, field: Field, *, closed: bool) -> Problems:
        yield from _sized(schema, field, "Properties", "entries")
        properties: Mapping[str, Schema] = schema.get("properties", {})
        embedded = bool(schema.get("x-kubernetes-embedded-resource"))
        required = [*schema.get("required", ())]
        for name in [*required, *({"apiVersion", "kind"} - {*required})] if embedded else required:
            given, declared = field.value.get(name), properties.get(name, {})
            if given is None and self.custom and name in field.value and declared.get("nullable"):
                continue
            if given is None or (given == "" and "enum" in declared):
                yield field.at(name).says("is required")
        others = schema.get("additionalProperties")
        for name, inner in field.entries:
            if embedded and name == "metadata":
                # It is typed whatever the custom resource's schema says.
                yield from replace(self, custom=False).check(self.schemas.definition(_OBJECT_META), inner)
            elif name in properties:
                # A null may only mean that the default is wanted.
                if inner or "default" not in properties[name] or properties[name].get("nullable"):
                    yield from self.check(properties[name], inner, closed=closed)
            elif isinstance(others, Mapping):
                yield from self.check(others, inner, closed=closed)
            elif closed and self._is_closed(schema) and not (embedded and name in ("apiVersion", "kind")):
                yield inner.says(f"unknown field `{name}`{suggestion(name, properties)}")

    def _is_closed(self, schema: Schema) -> bool:
        if schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("additionalProperties") is True:
            return False
        return self.custom or "properties" in schema

    def _combined(self, schema: Schema, field: Field) -> Problems:
        """Check the logical combinations; they say nothing about which fields there are."""
        for part in schema.get("allOf", ()):
            yield from self.check(part, field, closed=False)
        forms = [] if schema.get("x-kubernetes-int-or-string") else schema.get("anyOf", [])
        if forms and not any(self._fits(part, field) for part in forms):
            yield field.says(f"fits none of the {len(forms)} allowed forms: {_forms(forms)}")
        if "oneOf" in schema:
            fitting = sum(self._fits(part, field) for part in schema["oneOf"])
            if fitting != 1:
                yield field.says(f"must fit exactly one form, fits {fitting}: {_forms(schema['oneOf'])}")
        if "not" in schema and self._fits(schema["not"], field):
            yield field.says(f"must not have the form {_forms([schema['not']])}")

    def _fits(self, schema: Schema, field: Field) -> bool:
        return next(self.check(schema, field, closed=False), None) is None


def _expected(schema: Schema) -> str | None:
    if schema.get("x-kubernetes-int-or-string"):
        return "a whole number or a string"
    return _TYPES.get(schema.get("type", ""), ((), None))[1]


def _wrong_type(schema: Schema, value: Any) -> str | None:
    """Say which type is expected, None where the value has it or any will do."""
    if schema.get("format") == "quantity" and "type" not in schema:
        return None if quantity(value) is not None else "a quantity such as `500m`, `2` or `1.5Gi`"
    names = ("integer", "string") if schema.get("x-kubernetes-int-or-string") else (schema.get("type"),)
    if None in names or any(name and _has_type(name, value) for name in (*names, schema.get("or"))):
        return None
    return _expected(schema)


def _has_type(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float) and not value.is_integer():
        return False
    return isinstance(value, _TYPES[name][0])


def _described(value: Any) -> str:
    if isinstance(value, str):
        return f"the string {shown(value)}"
    if isinstance(value, list | Mapping):
        return "a list" if isinstance(value, list) else "a map"
    return "null" if value is None else shown(value)


def _text(schema: Schema, field: Field, *, custom: bool) -> Problems:
    text, name = field.value, str(schema.get("format", ""))
    if name == "byte" and not custom:  # Go reads over line breaks, and nothing is a value
        text = text.replace("\r", "").replace("\n", "")
        name = name if text else ""
    if expected := wrong_text(text, name):
        yield field.not_as(expected)
    if len(field.value) == 0 and schema.get("minLength") == 1:
        yield field.says("must not be empty")
    else:
        yield from _sized(schema, field, "Length", "characters")
    if "pattern" in schema and matches(schema["pattern"], field.value) is False:
        yield field.says(f"must match `{schema['pattern']}`, got {shown(field.value)}")


def _number(schema: Schema, field: Field) -> Problems:
    value = field.value
    bits = _BITS.get(str(schema.get("format", "")))
    if bits is not None and not -(2**bits) <= int(value) < 2**bits:
        yield field.says(f"must be a whole number of {bits + 1} bits, got {value}")
    low, high = schema.get("minimum"), schema.get("maximum")
    above = schema.get("exclusiveMinimum") is True
    below = schema.get("exclusiveMaximum") is True
    if low is not None and (value < low or (above and value == low)):
        yield field.says(f"must be {'above' if above else 'at least'} {low}, got {value}")
    if high is not None and (value > high or (below and value == high)):
        yield field.says(f"must be {'below' if below else 'at most'} {high}, got {value}")
    step = schema.get("multipleOf")
    if step:
        # As the API server divides: 0.3 is three times 0.1.
        times = value * (1 / step) if step < 1 else value / step
        if abs(times - round(times)) > 1e-9 * max(1.0, abs(times)):
            yield field.says(f"must be a multiple of {step}, got {value}")


def _sized(schema: Schema, field: Field, name: str, what: str) -> Problems:
    size = len(field.value)
    if size < schema.get(f"min{name}", 0):
        yield field.says(f"must have at least {schema[f'min{name}']} {what}, got {size}")
    if size > schema.get(f"max{name}", size):
        yield field.says(f"must have at most {schema[f'max{name}']} {what}, got {size}")


def _duplicates(schema: Schema, field: Field) -> Problems:
    """Find items that server-side apply could not tell apart."""
    list_type = list_type_of(schema)
    if list_type.type == "atomic" and not schema.get("uniqueItems"):
        return
    first_index: dict[str, int] = {}
    for index, item in enumerate(field.items):
        named = _merge_key(item, list_type.keys) if list_type.type == "map" else item.value
        if named is None:
            continue
        first = first_index.setdefault(json.dumps(named, sort_keys=True, default=str), index)
        if first != index:
            pairs = named.items() if list_type.type == "map" else ()
            what = ", ".join(f"{key} {shown(value)}" for key, value in pairs) or shown(item.value)
            yield item.says(f"is the same as item {first}: {what} stands twice")


def _merge_key(item: Field, keys: tuple[str, ...]) -> dict[str, Any] | None:
    if not isinstance(item.value, Mapping):
        return None
    named = {key: item.value.get(key, KEY_DEFAULTS.get(key)) for key in keys}
    return {key: value for key, value in named.items() if value is not None} or None


def _listed(values: list[Any]) -> str:
    return ", ".join(f"`{value}`" if value != "" else "an empty string" for value in values)


def _forms(schemas: list[Schema]) -> str:
    return shown(json.dumps(schemas, sort_keys=True))


# --- custom resources: the schema of their definition, its defaults, its rules in CEL ---

_OPEN: Schema = {"x-kubernetes-preserve-unknown-fields": True}
_OPAQUE = frozenset({"byte", "date", "datetime", "duration"})  # formats that CEL has types of its own for
_ABOUT_CHANGES = re.compile(r"\boldSelf\b")


class Definition(Record):
    """What one version of a custom kind is checked against."""

    schema: Schema
    # Where the subresource `scale` finds the number of replicas, empty without it.
    replicas: tuple[str, ...] = ()


Definitions = Mapping[tuple[str, str, str], Definition]  # by group, version and kind


def custom_definitions(crds: Iterable[Mapping[str, Any]], *, usable: bool = True) -> Definitions:
    """Collect the schemas of CustomResourceDefinitions by group, version and kind; later ones win.

    Args:
        crds: the definitions.
        usable: whether their schemas are sound; if not, their resources may hold anything.
    """
    definitions: dict[tuple[str, str, str], Definition] = {}
    for crd in crds:
        spec = Field(crd).at("spec")
        for version in spec.at("versions").items:
            key = (spec.at("group").text, version.at("name").text, spec.at("names", "kind").text)
            path = version.at("subresources", "scale", "specReplicasPath").text
            schema = _schema_of(version) if usable else _OPEN
            definitions[key] = Definition(schema=schema, replicas=tuple(path.split(".")[1:]))
    return definitions


def _schema_of(version: Field) -> Schema:
    """Give the schema of one version; a status that only the controller can set is not looked at."""
    schema = version.at("schema", "openAPIV3Schema").value
    if not isinstance(schema, Mapping):
        return _OPEN
    if not version.at("subresources", "status"):
        return schema
    return {**schema, "properties": {**schema.get("properties", {}), "status": _OPEN}}


def check_custom(definition: Definition, data: Mapping[str, Any], schemas: Schemas) -> Problems:
    """Find what does not fit; the rules in CEL are looked at only where the structure is right."""
    filled = Field(_with_defaults(definition.schema, data))
    root = {**definition.schema, "x-kubernetes-embedded-resource": True}
    problems = list(SchemaCheck(schemas=schemas, custom=True).check(root, filled))
    replicas = filled.at(*definition.replicas)
    if (replicas.number or 0) < 0:
        problems.append(replicas.says(f"must be at least 0, got {replicas.number}"))
    yield from problems or _cel_problems(definition.schema, filled, [cel.STEPS])


def _with_defaults(schema: Schema, value: Any) -> Any:
    """Give the value with the defaults of its schema, as the API server fills them in first."""
    if isinstance(value, list):
        return [_with_defaults(schema.get("items", {}), item) for item in value]
    if not isinstance(value, Mapping):
        return value
    properties: Mapping[str, Schema] = schema.get("properties", {})
    filled = {key: _with_defaults(_below(schema, key), item) for key, item in value.items()}
    for name, inner in properties.items():
        if "default" in inner and (
            name not in filled or (filled[name] is None and not inner.get("nullable"))
        ):
            filled[name] = _with_defaults(inner, inner["default"])
    return filled


def _below(schema: Schema, name: str) -> Schema:
    inner = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
    return inner if isinstance(inner, Mapping) else {}


def _cel_problems(schema: Schema, field: Field, steps: list[int]) -> Problems:
    """Evaluate the rules of a schema and of all below it; `steps` holds how many are left for all of them."""
    if field.value is None:
        return
    for rule in schema.get("x-kubernetes-validations", ()):
        yield from _broken(rule, Field(_typed(schema, field.value), field.keys), steps)
    for name, inner in field.entries:
        yield from _cel_problems(_below(schema, name), inner, steps)
    if isinstance(schema.get("items"), Mapping):
        for item in field.items:
            yield from _cel_problems(schema["items"], item, steps)


def _typed(schema: Schema, value: Any) -> Any:
    """Give a value as rules see it: whole numbers may be fractions by type, and texts times."""
    if value is None and schema.get("nullable"):
        return cel.Opaque()
    if isinstance(value, Mapping):
        return {key: _typed(_below(schema, key), item) for key, item in value.items()}
    if isinstance(value, list):
        return [_typed(schema.get("items") or {}, item) for item in value]
    if isinstance(value, str):
        return cel.Opaque() if str(schema.get("format", "")).replace("-", "") in _OPAQUE else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if schema.get("type") == "number":
        return float(value)
    return int(value) if value == int(value) else value


def _broken(rule: Mapping[str, Any], field: Field, steps: list[int]) -> Problems:
    """Evaluate one rule; those on changes (`oldSelf`) say nothing of one object."""
    text = str(rule.get("rule", ""))
    if _ABOUT_CHANGES.search(text):
        return
    try:
        holds = cel.evaluate(text, {"self": field.value}, steps=steps)
    except UnsupportedError:
        yield field.says(text, "unchecked")
        return
    except cel.EvaluationError as error:
        yield _located(rule, field, f"rule {shown(text)} cannot be evaluated: {error}")
        return
    if holds is not True:
        yield _located(rule, field, str(rule.get("message") or f"fails the rule {shown(text)}").strip())


def _located(rule: Mapping[str, Any], field: Field, message: str) -> Problem:
    names = str(rule.get("fieldPath", "")).strip(".").split(".")
    return (field.at(*names) if all(name.isidentifier() for name in names) else field).says(message)
