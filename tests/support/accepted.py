"""Schemas of a custom kind with values that an API server takes: offline, nothing may be said of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TEXT = {"type": "string", "maxLength": 60}
NUMBER = {"type": "number"}
FLAG = {"type": "boolean"}


def ruled(rule: str, **fields: Any) -> dict[str, Any]:
    """Give the schema of a map with a rule in CEL."""
    return {"type": "object", "properties": fields, "x-kubernetes-validations": [{"rule": rule}]}


def mapped(values: Mapping[str, Any], **others: Any) -> dict[str, Any]:
    """Give the schema of a map whose values have a schema."""
    return {"type": "object", "additionalProperties": values, "maxProperties": 5, **others}


ACCEPTED: Mapping[str, tuple[Mapping[str, Any], Any]] = {
    "a flag as text": (ruled("string(self.a) == 'true'", a=FLAG), {"a": True}),
    "a whole number in a field of numbers": (
        ruled("self.a / self.b == 0.5", a=NUMBER, b=NUMBER),
        {"a": 1, "b": 2},
    ),
    "the type of a whole number there": (ruled("type(self.a) == double", a=NUMBER), {"a": 1}),
    "a number without fraction as an integer": (ruled("self.a / 2 == 1", a={"type": "integer"}), {"a": 3.0}),
    "a tenth": ({**NUMBER, "multipleOf": 0.1}, 0.3),
    "a map that may be null": (mapped(TEXT, nullable=True), None),
    "values of a map that may be null": (mapped({**TEXT, "nullable": True}), {"a": None}),
    "a field that must be there and may be null": (
        {"type": "object", "required": ["a"], "properties": {"a": mapped(TEXT, nullable=True)}},
        {"a": None},
    ),
    "a rule about what may be null": (
        ruled("!has(self.a) || size(self.a) > 1", a=mapped(TEXT, nullable=True)),
        {"a": None},
    ),
    "a list that may be null": (
        ruled("!has(self.a)", a={"type": "array", "items": TEXT, "nullable": True, "maxItems": 3}),
        {"a": None},
    ),
    "times": (
        ruled("self.a < self.b", a={**TEXT, "format": "date-time"}, b={**TEXT, "format": "date-time"}),
        {"a": "2026-01-01T12:00:00+02:00", "b": "2026-01-01T11:00:00Z"},
    ),
    "durations": (
        ruled("self.a < self.b", a={**TEXT, "format": "duration"}, b={**TEXT, "format": "duration"}),
        {"a": "9s", "b": "10s"},
    ),
    "a duration in words": ({**TEXT, "format": "duration"}, "2 weeks"),
    "a set in another order": (
        ruled(
            "self.a == ['b', 'a']",
            a={"type": "array", "items": TEXT, "x-kubernetes-list-type": "set", "maxItems": 3},
        ),
        {"a": ["a", "b"]},
    ),
    "a rule about changes": (ruled("self.a == 'b' && self.a == oldSelf.a", a=TEXT), {"a": "a"}),
    "a number or a text": (
        ruled("type(self.a) == int ? self.a > 1 : self.a == '50%'", a={"x-kubernetes-int-or-string": True}),
        {"a": "50%"},
    ),
    "what is open": (
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": TEXT}},
        {"a": "a", "b": [None, {"c": 1.5}]},
    ),
    "optional fields": (ruled("self.?a.orValue('x') == 'x'", a=TEXT, b=TEXT), {"b": "b"}),
    "functions of lists": (
        ruled(
            "self.a.isSorted() && self.a.sum() == 3",
            a={"type": "array", "items": {"type": "integer"}, "maxItems": 3},
        ),
        {"a": [1, 2]},
    ),
    "two variables": (ruled("self.a.all(k, v, k == v)", a=mapped(TEXT)), {"a": {"x": "x"}}),
    "an address": (ruled("isIP(self.a) && ip(self.a).family() == 4", a=TEXT), {"a": "10.0.0.1"}),
    "a pattern of Go": ({**TEXT, "pattern": r"^[[:alpha:]]+\z"}, "abc"),
    "letters": ({**TEXT, "pattern": r"^\p{L}+$"}, "Größe"),
    "a text of two bytes a letter": ({"type": "string", "maxLength": 3}, "äöü"),
}


def definition(schema: Mapping[str, Any], name: str = "") -> dict[str, Any]:
    """Give a CustomResourceDefinition whose `spec.x` has the schema.

    Args:
        schema: of the field.
        name: sets it apart from others in a cluster.
    """
    plural = f"oddities{name}"
    whole = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": schema}}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": f"oddity{name}", "kind": f"Oddity{name}"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": whole}}
            ],
        },
    }


def resource(value: Any, name: str = "") -> dict[str, Any]:
    """Give an object of that kind."""
    metadata = {"name": "odd", "namespace": "default"}
    return {
        "apiVersion": "example.org/v1",
        "kind": f"Oddity{name}",
        "metadata": metadata,
        "spec": {"x": value},
    }
