"""Check a value against a schema: of a built-in kind or of a CustomResourceDefinition.

The two differ in small things. In built-in kinds null means absent and an empty string means unset. In custom
resources null must be allowed, and a part may be open (`x-kubernetes-preserve-unknown-fields`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mlstack.model.names import nearest
from mlstack.model.schemas import Schema, Schemas, list_type_of
from mlstack.model.validation import formats
from mlstack.model.validation.base import Field, Problems, shown
from mlstack.model.validation.patterns import matches

_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "array": (list,),
    "object": (Mapping,),
    "integer": (int, float),
    "number": (int, float),
}
_ARTICLES = {"string": "a string", "boolean": "true or false", "array": "a list", "object": "a map"}
_ARTICLES |= {"integer": "a whole number", "number": "a number"}
# A port that names no protocol has TCP: the merge keys of lists of ports count it so.
_KEY_DEFAULTS = {"protocol": "TCP"}
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


class Structure:
    """A walk through a value beside its schema.

    Args:
        schemas: the built-in definitions, for references and for the metadata of custom resources.
        custom: whether the schema is of a CustomResourceDefinition.
    """

    def __init__(self, schemas: Schemas, *, custom: bool) -> None:
        """Take what the walk needs."""
        self._schemas = schemas
        self._custom = custom

    def check(self, schema: Schema, field: Field) -> Problems:
        """Find what does not fit the schema."""
        if self._custom:
            root = {**schema, "x-kubernetes-embedded-resource": True}
            yield from self._value(root, field, closed=True)
        else:
            yield from self._value(schema, field, closed=True)

    def _value(self, schema: Schema, field: Field, *, closed: bool) -> Problems:
        schema = self._schemas.resolve(schema)
        if field.value is None:
            yield from self._null(schema, field)
            return
        wrong = _wrong_type(schema, field.value)
        if wrong:
            yield field.says(f"must be {wrong}, got {_described(field.value)}")
            return
        yield from self._enum(schema, field)
        if isinstance(field.value, str):
            yield from _text(schema, field)
        elif isinstance(field.value, list):
            yield from self._list(schema, field, closed=closed)
        elif isinstance(field.value, Mapping):
            yield from self._map(schema, field, closed=closed)
        elif not isinstance(field.value, bool):
            yield from _number(schema, field)
        if self._custom:
            yield from self._combined(schema, field)

    def _null(self, schema: Schema, field: Field) -> Problems:
        if self._custom and not schema.get("nullable"):
            expected = _expected(schema)
            if expected:
                yield field.says(f"must be {expected}, got null")

    def _enum(self, schema: Schema, field: Field) -> Problems:
        allowed = schema.get("enum")
        if allowed is None or field.value in allowed or (field.value == "" and not self._custom):
            return
        near = nearest(field.text, [one for one in allowed if isinstance(one, str)]) if field.text else None
        hint = f", did you mean `{near}`?" if near else ""
        yield field.says(f"must be one of {_listed(allowed)}, got {shown(field.value)}{hint}")

    def _list(self, schema: Schema, field: Field, *, closed: bool) -> Problems:
        yield from _sized(schema, field, "Items", "items")
        inner = schema.get("items")
        if isinstance(inner, Mapping):
            for item in field.items:
                yield from self._value(inner, item, closed=closed)
        if list_type_of(schema).type == "map":
            yield from (item.says("must be a map, got null") for item in field.items if not item)
        elif isinstance(inner, Mapping) and "enum" in inner and not self._custom:
            empty = (item for item in field.items if item.value in (None, ""))
            yield from (item.says(f"must be one of {_listed(inner['enum'])}, got nothing") for item in empty)
        yield from _duplicates(schema, field)

    def _map(self, schema: Schema, field: Field, *, closed: bool) -> Problems:
        yield from _sized(schema, field, "Properties", "entries")
        properties: Mapping[str, Schema] = schema.get("properties", {})
        embedded = bool(schema.get("x-kubernetes-embedded-resource"))
        for name in self._required(schema, embedded=embedded):
            given, declared = field.value.get(name), properties.get(name, {})
            if given is None and self._custom and name in field.value and declared.get("nullable"):
                continue
            if given is None or (given == "" and "enum" in declared):
                yield field.at(name).says("is required")
        others = schema.get("additionalProperties")
        for name, inner in field.entries:
            if embedded and name == "metadata":
                yield from self._metadata(inner)
            elif name in properties:
                if inner or not _is_dropped(properties[name]):
                    yield from self._value(properties[name], inner, closed=closed)
            elif isinstance(others, Mapping):
                yield from self._value(others, inner, closed=closed)
            elif closed and self._is_closed(schema) and not (embedded and name in ("apiVersion", "kind")):
                yield inner.says(_unknown(name, properties))

    def _required(self, schema: Schema, *, embedded: bool) -> tuple[str, ...]:
        needed = tuple(schema.get("required", ()))
        return (*needed, *({"apiVersion", "kind"} - {*needed})) if embedded else needed

    def _metadata(self, field: Field) -> Problems:
        """Check the metadata of a custom resource, which is typed whatever its schema says."""
        meta = self._schemas.definition(_OBJECT_META)
        yield from Structure(self._schemas, custom=False)._value(meta, field, closed=True)

    def _is_closed(self, schema: Schema) -> bool:
        if schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("additionalProperties") is True:
            return False
        return self._custom or "properties" in schema

    def _combined(self, schema: Schema, field: Field) -> Problems:
        """Check the logical combinations; they say nothing about which fields there are."""
        for part in schema.get("allOf", ()):
            yield from self._value(part, field, closed=False)
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
        return next(self._value(schema, field, closed=False), None) is None


def _expected(schema: Schema) -> str | None:
    """Say which type a schema asks for, None where it takes any."""
    if schema.get("x-kubernetes-int-or-string"):
        return "a whole number or a string"
    return _ARTICLES.get(schema.get("type", ""))


def _wrong_type(schema: Schema, value: Any) -> str | None:
    """Say which type is expected, None where the value has it."""
    if schema.get("format") == "quantity":
        return formats.wrong_quantity(value)
    names = ("integer", "string") if schema.get("x-kubernetes-int-or-string") else (schema.get("type"),)
    if None in names or any(name and _has_type(name, value) for name in (*names, schema.get("or"))):
        return None
    return _expected(schema)


def _has_type(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float) and not value.is_integer():
        return False
    return isinstance(value, _KINDS[name])


def _described(value: Any) -> str:
    if isinstance(value, str):
        return f"the string {shown(value)}"
    if isinstance(value, list | Mapping):
        return "a list" if isinstance(value, list) else "a map"
    return shown(value)


def _text(schema: Schema, field: Field) -> Problems:
    expected = formats.wrong_text(field.value, str(schema.get("format", "")))
    if expected and not (field.value == "" and schema.get("format") == "byte"):
        yield field.says(f"must be {expected}, got {shown(field.value)}")
    length = len(field.value)
    if length < schema.get("minLength", 0):
        few = schema["minLength"]
        yield field.says(
            "must not be empty" if few == 1 else f"must have at least {few} characters, got {length}"
        )
    if length > schema.get("maxLength", length):
        yield field.says(f"must have at most {schema['maxLength']} characters, got {length}")
    if "pattern" in schema and matches(schema["pattern"], field.value) is False:
        yield field.says(f"must match `{schema['pattern']}`, got {shown(field.value)}")


def _number(schema: Schema, field: Field) -> Problems:
    value = field.value
    expected = formats.wrong_integer(int(value), str(schema.get("format", "")))
    if expected:
        yield field.says(f"must be {expected}, got {value}")
    low, high = schema.get("minimum"), schema.get("maximum")
    above = schema.get("exclusiveMinimum") is True
    below = schema.get("exclusiveMaximum") is True
    if low is not None and (value < low or (above and value == low)):
        yield field.says(f"must be {'above' if above else 'at least'} {low}, got {value}")
    if high is not None and (value > high or (below and value == high)):
        yield field.says(f"must be {'below' if below else 'at most'} {high}, got {value}")
    step = schema.get("multipleOf")
    if step and not _is_multiple(value, step):
        yield field.says(f"must be a multiple of {step}, got {value}")


def _is_multiple(value: float, step: float) -> bool:
    """Divide as the API server does: 0.3 is three times 0.1."""
    times = value * (1 / step) if step < 1 else value / step
    return abs(times - round(times)) <= 1e-9 * max(1.0, abs(times))


def _sized(schema: Schema, field: Field, name: str, what: str) -> Problems:
    size = len(field.value)
    if size < schema.get(f"min{name}", 0):
        yield field.says(f"must have at least {schema[f'min{name}']} {what}, got {size}")
    if size > schema.get(f"max{name}", size):
        yield field.says(f"must have at most {schema[f'max{name}']} {what}, got {size}")


def _duplicates(schema: Schema, field: Field) -> Problems:
    """Find items that server-side apply could not tell apart."""
    found = list_type_of(schema)
    if found.type == "atomic" and not schema.get("uniqueItems"):
        return
    seen: dict[str, int] = {}
    for index, item in enumerate(field.items):
        named = _named(item, found.keys) if found.type == "map" else item.value
        if named is None:
            continue
        first = seen.setdefault(json.dumps(named, sort_keys=True, default=str), index)
        if first != index:
            what = (
                ", ".join(f"{key} {shown(value)}" for key, value in named.items())
                if found.type == "map"
                else ""
            )
            yield item.says(f"is the same as item {first}: {what or shown(item.value)} stands twice")


def _named(item: Field, keys: tuple[str, ...]) -> dict[str, Any] | None:
    if not isinstance(item.value, Mapping):
        return None
    named = {key: item.value.get(key, _KEY_DEFAULTS.get(key)) for key in keys}
    return {key: value for key, value in named.items() if value is not None} or None


def _is_dropped(schema: Schema) -> bool:
    """Say whether a null here only means that the default is wanted."""
    return "default" in schema and not schema.get("nullable")


def _unknown(name: str, properties: Mapping[str, Schema]) -> str:
    near = nearest(name, properties)
    return f"unknown field `{name}`" + (f", did you mean `{near}`?" if near else "")


def _listed(values: list[Any]) -> str:
    return ", ".join(f"`{value}`" if value != "" else "an empty string" for value in values)


def _forms(schemas: list[Schema]) -> str:
    return shown(json.dumps(schemas, sort_keys=True))
