"""The arithmetic of server-side apply, against small schemas."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.testing import server_side_apply
from mlstack.testing.server_side_apply import OPEN, Shape

TEXT = {"type": "string"}
ITEM = {"type": "object", "properties": {"id": TEXT, "n": {"type": "integer"}}}
SCHEMA = {
    "type": "object",
    "properties": {
        "map": {"type": "object", "additionalProperties": TEXT},
        "whole": {"type": "object", "additionalProperties": TEXT, "x-kubernetes-map-type": "atomic"},
        "items": {
            "type": "array",
            "items": ITEM,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["id"],
        },
        "set": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
        "list": {"type": "array", "items": TEXT},
        "struct": {"type": "object", "properties": {"a": TEXT, "b": TEXT}},
        "text": TEXT,
    },
}
SHAPE = Shape(SCHEMA, lambda schema: schema)
A, B, C = {"id": "a", "n": 1}, {"id": "b", "n": 2}, {"id": "c", "n": 3}


def ids(items: str) -> list[dict[str, Any]]:
    return [{"id": name} for name in items]


def test_the_fields_of_a_value() -> None:
    value = {"map": {"k": "v"}, "whole": {"k": "v"}, "items": [A], "set": ["x"], "list": ["y"], "struct": {}}
    assert server_side_apply.field_set(value, SHAPE) == {
        ("f:map", "f:k"),
        ("f:whole",),
        ("f:items", 'k:{"id":"a"}'),
        ("f:items", 'k:{"id":"a"}', "f:id"),
        ("f:items", 'k:{"id":"a"}', "f:n"),
        ("f:set", 'v:"x"'),
        ("f:list",),
        ("f:struct",),
    }


@pytest.mark.parametrize(
    ("live", "wanted", "merged"),
    [
        ({"map": {"a": "1", "b": "2"}}, {"map": {"a": "9"}}, {"map": {"a": "9", "b": "2"}}),
        ({"whole": {"a": "1"}}, {"whole": {"b": "2"}}, {"whole": {"b": "2"}}),
        ({"list": ["a"]}, {"list": ["b"]}, {"list": ["b"]}),
        ({"set": ["a", "b"]}, {"set": ["c", "b"]}, {"set": ["a", "c", "b"]}),
        ({"items": [A, B]}, {"items": [{"id": "b", "n": 9}]}, {"items": [A, {"id": "b", "n": 9}]}),
        ({"text": "a"}, {"text": None}, {"text": None}),
        ({"map": {"a": "1"}}, {"map": None}, {"map": {"a": "1"}}),
    ],
    ids=["map", "atomic map", "list", "set", "keyed", "null", "null map"],
)
def test_what_is_wanted_lies_over_what_is_there(live: Any, wanted: Any, merged: Any) -> None:
    assert server_side_apply.merge(live, wanted, SHAPE) == merged


@pytest.mark.parametrize(
    ("live", "wanted", "merged"),
    [
        ("abcd", "dcba", "dcba"),
        ("abcd", "b", "abcd"),
        ("ab", "xayb", "xayb"),
        ("tu", "m", "tum"),
        ("abc", "ca", "cab"),
        ("", "ab", "ab"),
        ("ab", "", "ab"),
    ],
)
def test_the_wanted_order_wins_and_the_others_keep_their_neighbours(
    live: str, wanted: str, merged: str
) -> None:
    found = server_side_apply.merge({"items": ids(live)}, {"items": ids(wanted)}, SHAPE)
    assert sorted(item["id"] for item in found["items"]) == sorted(merged)
    order = [item["id"] for item in found["items"] if item["id"] in wanted]
    assert "".join(order) == wanted


def test_a_comparison_names_every_difference() -> None:
    old = {"map": {"a": "1", "b": "2"}, "items": [A, B], "list": ["x"], "text": "t"}
    new = {"map": {"a": "9", "c": "3"}, "items": [B, C], "list": ["y"], "struct": {"a": "1"}}
    found = server_side_apply.compare(old, new, SHAPE)
    assert found.modified == {("f:map", "f:a"), ("f:list",)}
    assert found.added == {
        ("f:map", "f:c"),
        ("f:items", 'k:{"id":"c"}'),
        ("f:items", 'k:{"id":"c"}', "f:id"),
        ("f:items", 'k:{"id":"c"}', "f:n"),
        ("f:struct",),
        ("f:struct", "f:a"),
    }
    assert found.removed == {
        ("f:map", "f:b"),
        ("f:items", 'k:{"id":"a"}'),
        ("f:items", 'k:{"id":"a"}', "f:id"),
        ("f:items", 'k:{"id":"a"}', "f:n"),
        ("f:text",),
    }


def test_what_was_dropped_goes_and_what_others_keep_stays() -> None:
    value = {"map": {"a": "1", "b": "2"}, "items": [A, B], "struct": {"a": "1", "b": "2"}}
    dropped = server_side_apply.field_set(value, SHAPE)
    kept = server_side_apply.field_set({"map": {"b": "2"}, "items": [B], "struct": {"a": "1"}}, SHAPE)
    assert server_side_apply.prune(value, SHAPE, dropped, kept) == {
        "map": {"b": "2"},
        "items": [B],
        "struct": {"a": "1"},
    }


def test_an_item_goes_with_what_others_own_inside_it() -> None:
    dropped = server_side_apply.field_set({"items": [{"id": "a"}]}, SHAPE)
    kept = frozenset({("f:items", 'k:{"id":"a"}', "f:n")})
    assert server_side_apply.prune({"items": [A, B]}, SHAPE, dropped, kept) == {"items": [B]}


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        ("1", 1, False),
        (None, {}, False),
        ([1, 2], [2, 1], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
    ],
)
def test_values_are_the_same_as_json(one: Any, other: Any, equal: bool) -> None:
    assert server_side_apply.same(one, other) is equal


def test_an_item_without_its_key_is_a_fault() -> None:
    with pytest.raises(server_side_apply.KeyFault, match='omits key field "id"'):
        server_side_apply.field_set({"items": [{"n": 1}]}, SHAPE)


def test_values_without_a_schema_show_their_shape() -> None:
    assert server_side_apply.merge({"a": {"b": 1}}, {"a": {"c": [1]}}, OPEN) == {"a": {"b": 1, "c": [1]}}
    assert server_side_apply.field_set({"a": {"b": [1]}}, OPEN) == {("f:a",), ("f:a", "f:b")}
