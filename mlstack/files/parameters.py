"""A prototype's parameters from its schema: blocks joined, `$ref: package#/name` inlined."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from mlstack.model.names import is_parameter_name
from mlstack.model.prototype import Param

Definition = Callable[[str, str], Any]
Refuse = Callable[[str, str], NoReturn]

LARGEST_SCHEMA = 20_000
"""Values in the parameters of a prototype with everything inlined: references could ask for billions."""
_DEEPEST_REFERENCES = 50
# Keywords whose value maps names to schemas, and those whose value is data.
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
_DATA = frozenset({"default", "const", "enum", "examples", "x-value-aliases"})
# What would be looked up elsewhere, or changes what the other keywords mean.
_FOREIGN = ("$dynamicRef", "$recursiveRef", "$schema")
# jsonschema looks for the one by the patterns of the other with Python's `re`.
_NEVER_BOTH = frozenset({"unevaluatedProperties", "patternProperties"})


def joined_schema(
    own: Mapping[str, Any], blocks: Iterable[Mapping[str, Any]], definition: Definition, *, refuse: Refuse
) -> Mapping[str, Any]:
    """Join a prototype's own parameters and its blocks'; the own words of a shared one lie on top.

    Args:
        own: `parameters` of the prototype.
        blocks: contents of the blocks' files, in order.
        definition: (package, name) → schema, None where there is none.
        refuse: raises the error about `parameters`.
    """
    properties: dict[str, Any] = {
        name: _mapping(schema) for name, schema in own.get("properties", {}).items()
    }
    conditions = list(own.get("allOf", ()))
    for block in blocks:
        for name, schema in block.get("properties", {}).items():
            properties[name] = {**_mapping(schema), **properties.get(name, {})}
        conditions += block.get("allOf", ())
    schema = {**own, "type": "object", "properties": properties, "additionalProperties": False}
    if conditions:
        schema["allOf"] = conditions
    inlined: Mapping[str, Any] = _Inliner(definition, refuse).schema(schema)
    _check_names(inlined, refuse)
    return inlined


def params_of(schema: Mapping[str, Any]) -> dict[str, Param]:
    """Give the parameters that a joined schema declares, in order.

    One that the schema requires although it has a default cannot be removed, but need not be given.
    """
    must_be = set(schema.get("required", ()))
    return {
        name: _param(name, each, required=name in must_be and "default" not in each)
        for name, each in schema["properties"].items()
    }


def _mapping(schema: Any) -> Mapping[str, Any]:
    return schema if isinstance(schema, Mapping) else {}


class _Inliner:
    """Replaces references by what they mean; words beside a reference lie on top of it."""

    def __init__(self, definition: Definition, refuse: Refuse) -> None:
        self._definition = definition
        self._refuse = refuse
        self._left = LARGEST_SCHEMA
        self._keywords: set[str] = set()

    def schema(self, schema: Any, inside: tuple[str, ...] = ()) -> Any:
        self._left -= 1
        if self._left < 0:
            self._refuse("parameters", f"hold more than {LARGEST_SCHEMA:,} values with references followed")
        if isinstance(schema, list):
            return [self.schema(entry, inside) for entry in schema]
        if not isinstance(schema, Mapping):
            return schema
        for keyword in _FOREIGN:
            if isinstance(schema.get(keyword), str):
                self._refuse(
                    "parameters", f"use `{keyword}: {schema[keyword]}`, which mlstack does not follow"
                )
        self._keywords |= _NEVER_BOTH & schema.keys()
        if len(self._keywords) > 1:
            self._refuse(
                "parameters", f"use both {' and '.join(f'`{name}`' for name in sorted(_NEVER_BOTH))}"
            )
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return {key: self._keyword(key, value, inside) for key, value in schema.items()}
        target = self._target(reference, inside)
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return {**self.schema(target, (*inside, reference)), **self.schema(beside, inside)}

    def _keyword(self, keyword: str, value: Any, inside: tuple[str, ...]) -> Any:
        if keyword in _DATA:
            return value
        if keyword in _NAMED and isinstance(value, Mapping):
            return {name: self.schema(entry, inside) for name, entry in value.items()}
        return self.schema(value, inside)

    def _target(self, reference: str, inside: Sequence[str]) -> Mapping[str, Any]:
        if len(inside) > _DEEPEST_REFERENCES:
            self._refuse(
                "parameters", f"follow more than {_DEEPEST_REFERENCES} references, one into the next"
            )
        if reference in inside:
            self._refuse("parameters", f"refer to each other in a circle: {' → '.join([*inside, reference])}")
        package, separator, name = reference.partition("#/")
        target = self._definition(package, name) if separator else None
        if not isinstance(target, Mapping):
            self._refuse(
                "parameters", f"refer to `{reference}`, which is no definition of a required package"
            )
        return target


def _param(name: str, schema: Mapping[str, Any], *, required: bool) -> Param:
    return Param(
        name=name,
        schema=schema,
        default=schema.get("default"),
        has_default="default" in schema,
        required=required,
        unit=schema.get("unit", ""),
        description=schema.get("description", ""),
        aliases=tuple(schema.get("aliases", ())),
        secret=bool(schema.get("x-secret", False)),
        deprecated=schema.get("x-deprecated"),
        format=schema.get("x-format"),
        value_aliases=schema.get("x-value-aliases", {}),
        examples=tuple(schema.get("examples", ())),
    )


def _check_names(schema: Mapping[str, Any], refuse: Refuse) -> None:
    owners: dict[str, str] = {}
    for name, each in schema["properties"].items():
        for spelling in (name, *each.get("aliases", ())):
            if not is_parameter_name(spelling):
                refuse("parameters", f"name `{spelling}`, which must be letters, digits, `_` and `-`")
            if spelling in owners:
                refuse("parameters", f"use the name `{spelling}` for both `{owners[spelling]}` and `{name}`")
            owners[spelling] = name
    for name in schema.get("required", ()):
        if name not in schema["properties"]:
            refuse("parameters", f"require `{name}`, which is not declared")
