"""What a change of a definition would take away."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from mlstack.deploy.replacement import demands, is_allowed, losses, narrowed
from tests.support.deploying import crd

Obj = dict[str, Any]


def version(name: str = "v1", *, served: bool = True, storage: bool = True, **properties: Any) -> Obj:
    spec = {"type": "object", "properties": properties}
    schema = {"type": "object", "properties": {"spec": spec}}
    return {"name": name, "served": served, "storage": storage, "schema": {"openAPIV3Schema": schema}}


def definition(*versions: Obj, stored: tuple[str, ...] = ("v1",), **spec: Any) -> Obj:
    found = crd(group="example.com")
    found["spec"] |= {"versions": list(versions) or [version()], **spec}
    return {**found, "status": {"storedVersions": list(stored)}}


TEXT = {"type": "string"}


MANY = {f"f{number}": TEXT for number in range(9)}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ({"a": TEXT}, {"a": TEXT}, []),
        ({"a": TEXT, "b": TEXT}, {"b": TEXT}, ["field `spec.a` would be removed"]),
        (
            {"a": {"type": "array", "items": {"type": "object", "properties": {"x": TEXT}}}},
            {"a": {"type": "array", "items": {"type": "object", "properties": {}}}},
            ["field `spec.a[].x` would be removed"],
        ),
        (
            MANY,
            {},
            [*(f"field `spec.{name}` would be removed" for name in list(MANY)[:5]), "and 4 fields more"],
        ),
    ],
    ids=["the same", "a field", "in a list", "many are counted"],
)
def test_a_removed_field_is_a_loss(old: Obj, new: Obj, said: list[str]) -> None:
    texts = tuple(f"version `v1`: {text}" for text in said)
    assert losses(definition(version(**old)), definition(version(**new))) == texts


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"scope": "Cluster"}, "`scope` would change from Namespaced to Cluster"),
        ({"group": "other.com"}, "`group` would change from example.com to other.com"),
        (
            {"names": {"kind": "Gadget", "plural": "widgets"}},
            "`names.kind` would change from Widget to Gadget",
        ),
        ({"names": {"kind": "Widget", "plural": "wids"}}, "`names.plural` would change from widgets to wids"),
    ],
    ids=["scope", "group", "kind", "plural"],
)
def test_another_name_or_scope_is_a_loss(change: Obj, said: str) -> None:
    (found,) = losses(definition(), definition(**change))
    assert found.startswith(said)


def test_short_names_may_go() -> None:
    names = {"kind": "Widget", "plural": "widgets"}
    assert losses(definition(names={**names, "shortNames": ["w"]}), definition(names=names)) == ()


def test_a_removed_stored_version_is_a_loss_even_without_objects() -> None:
    live = definition(version("v1", storage=False), version("v2"), stored=("v1", "v2"))
    said = ("version `v1` would be removed, and objects are stored in it",)
    assert losses(live, definition(version("v2")), has_objects=False) == said
    assert losses(live, definition(version("v2"))) == said


@pytest.mark.parametrize(
    "rest", [(), (version("v1", served=False, storage=False),)], ids=["gone", "not served"]
)
def test_a_version_that_is_served_no_more_is_missed_by_objects_alone(rest: tuple[Obj, ...]) -> None:
    live = definition(version("v1", storage=False), version("v2"), stored=("v2",))
    wanted = definition(*rest, version("v2"))
    assert losses(live, wanted) == ("version `v1` would not be served any more",)
    assert losses(live, wanted, has_objects=False) == ()


def test_a_new_version_is_no_loss() -> None:
    assert losses(definition(), definition(version(storage=False), version("v2"))) == ()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (TEXT, {"type": "integer"}, "field `a` would be integer instead of string"),
        ({"type": "number"}, {"type": "integer"}, "field `a` would be integer instead of number"),
        ({**TEXT, "nullable": True}, TEXT, "field `a` would not be null any more"),
        ({**TEXT, "enum": ["x", "y"]}, {**TEXT, "enum": ["x"]}, "field `a` would not be `y` any more"),
        (TEXT, {**TEXT, "enum": ["x"]}, "field `a` would be one of `x` alone"),
        (TEXT, {**TEXT, "maxLength": 5}, "field `a` would have `maxLength` 5"),
        ({**TEXT, "minLength": 1}, {**TEXT, "minLength": 2}, "field `a` would have `minLength` 2, not 1"),
        (TEXT, {**TEXT, "pattern": "^x$"}, "field `a` would have to match `^x$`"),
        (
            {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            {"type": "object", "properties": {}},
            "field `a` would drop fields that the schema does not name",
        ),
        (
            {"type": "object", "additionalProperties": TEXT},
            {"type": "object", "additionalProperties": {"type": "integer"}},
            "field `a.*` would be integer instead of string",
        ),
        (
            {"type": "object", "properties": {"x": TEXT}},
            {"type": "object", "properties": {"x": TEXT}, "required": ["x"]},
            "field `a.x` would be required",
        ),
        ({"x-kubernetes-int-or-string": True}, TEXT, "field `a` would be string instead of int-or-string"),
    ],
)
def test_what_allows_less_is_said(old: Obj, new: Obj, said: str) -> None:
    assert list(narrowed(_around(old), _around(new))) == [said]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"type": "integer"}, {"type": "number"}),
        (TEXT, {"x-kubernetes-int-or-string": True}),
        ({**TEXT, "enum": ["x"]}, {**TEXT, "enum": ["x", "y"]}),
        ({**TEXT, "enum": ["x"]}, TEXT),
        ({**TEXT, "maxLength": 5}, {**TEXT, "maxLength": 6}),
        ({**TEXT, "pattern": "x"}, TEXT),
        (TEXT, {**TEXT, "nullable": True}),
        ({"type": "object", "properties": {"x": TEXT}}, {"x-kubernetes-preserve-unknown-fields": True}),
        (
            {"type": "object", "properties": {"x": TEXT}},
            {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        ),
        ({"type": "object", "properties": {"x": TEXT}}, {"type": "object", "additionalProperties": TEXT}),
        (
            {"type": "object", "properties": {"x": TEXT}},
            {"type": "object", "properties": {"x": {**TEXT, "default": "y"}}, "required": ["x"]},
        ),
        (TEXT, {**TEXT, "description": "a text"}),
    ],
)
def test_what_allows_more_is_no_loss(old: Obj, new: Obj) -> None:
    assert list(narrowed(_around(old), _around(new))) == []


def _around(schema: Mapping[str, Any]) -> Obj:
    return {"type": "object", "properties": {"a": deepcopy(dict(schema))}}


@pytest.mark.parametrize(("value", "allowed"), [("true", True), ("false", False), ("yes", False)])
def test_a_definition_may_say_itself_that_it_takes_things_away(value: str, allowed: bool) -> None:
    found = definition()
    found["metadata"]["annotations"] = {"mlstack.dev/allow-destructive": value}
    assert is_allowed(found) is allowed
    assert not is_allowed(definition())


RULE = {"rule": "self.size() > 2", "message": "too short"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (TEXT, {**TEXT, "x-kubernetes-validations": [RULE]}, "field `spec.a` has a new rule: too short"),
        (TEXT, {**TEXT, "x-kubernetes-validations": [{"rule": "self != ''"}]}, "has a new rule: self != ''"),
        (TEXT, {**TEXT, "format": "date-time"}, "field `spec.a` has another `format` `date-time`"),
        ({**TEXT, "pattern": "a"}, {**TEXT, "pattern": "b"}, "field `spec.a` has another `pattern` `b`"),
        (TEXT, {**TEXT, "anyOf": [{"minLength": 1}]}, "field `spec.a` has another `anyOf`"),
        (
            {"type": "array", "items": TEXT},
            {"type": "array", "items": {**TEXT, "format": "uri"}},
            "field `spec.a[]` has another `format` `uri`",
        ),
    ],
)
def test_what_nobody_can_compare_is_a_demand(old: Obj, new: Obj, said: str) -> None:
    before, after = definition(version(a=old)), definition(version(a=new))
    (found,) = demands(before, after)
    assert found.startswith("version `v1`: ") and said in found
    assert losses(before, after) == ()
    assert demands(after, after) == ()


@pytest.mark.parametrize(
    "new",
    [
        {**TEXT, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]},
        {**TEXT, "description": "new", "default": "x"},
    ],
)
def test_what_an_object_as_it_is_cannot_break_is_none(new: Obj) -> None:
    assert demands(definition(version(a=TEXT)), definition(version(a=new))) == ()


def test_a_wider_number_and_a_new_pattern_are_no_demands() -> None:
    number = {"type": "integer", "format": "int32"}
    wider = definition(version(a={**number, "format": "int64"}))
    assert demands(definition(version(a=number)), wider) == ()
    found = definition(version(a={**TEXT, "pattern": "b"}))
    assert demands(definition(version(a=TEXT)), found) == ()
    assert losses(definition(version(a=TEXT)), found)
