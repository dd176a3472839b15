"""Laws of what a change of a definition takes away."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mlstack.deploy.replacement import losses

Obj = dict[str, Any]
NAMES = st.sampled_from(["a", "b", "c", "image", "size"])

LEAVES = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"x-kubernetes-int-or-string": True}),
    st.builds(lambda most: {"type": "string", "maxLength": most}, st.integers(1, 9)),
    st.builds(lambda values: {"type": "string", "enum": sorted(values)}, st.sets(NAMES, min_size=1)),
    st.builds(lambda low: {"type": "integer", "minimum": low, "nullable": True}, st.integers(-5, 5)),
)


def _object(fields: Obj) -> Obj:
    return {"type": "object", "properties": fields}


SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(NAMES, inner, max_size=3).map(_object),
        inner.map(lambda items: {"type": "array", "items": items}),
        inner.map(lambda values: {"type": "object", "additionalProperties": values}),
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(NAMES, SCHEMAS, min_size=1, max_size=4)


def definition(fields: Obj) -> Obj:
    schema = {"openAPIV3Schema": _object({"spec": _object(deepcopy(fields))})}
    return {
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
        "status": {"storedVersions": ["v1"]},
    }


@given(OBJECTS)
def test_a_definition_loses_nothing_to_itself(fields: Obj) -> None:
    assert losses(definition(fields), definition(fields)) == ()


@given(OBJECTS, SCHEMAS)
def test_a_new_field_is_no_loss(fields: Obj, new: Obj) -> None:
    assert losses(definition(fields), definition({**fields, "brandNew": new})) == ()


@given(OBJECTS, st.data())
def test_a_removed_field_is_named(fields: Obj, data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(sorted(fields)))
    rest = {name: schema for name, schema in fields.items() if name != gone}
    assert f"version `v1`: field `spec.{gone}` would be removed" in losses(
        definition(fields), definition(rest)
    )


@given(OBJECTS, OBJECTS)
def test_what_one_way_loses_a_field_the_other_way_does_not(first: Obj, second: Obj) -> None:
    """A field that goes in one direction comes in the other."""
    there = {text for text in losses(definition(first), definition(second)) if "removed" in text}
    back = {text for text in losses(definition(second), definition(first)) if "removed" in text}
    assert not there & back


@given(OBJECTS)
def test_an_open_schema_takes_everything(fields: Obj) -> None:
    wanted = definition(fields)
    inner = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    wanted["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = inner
    assert losses(definition(fields), wanted) == ()
