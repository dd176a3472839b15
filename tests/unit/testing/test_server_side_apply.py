"""The arithmetic of server-side apply, against small schemas."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.testing import server_side_apply
from mlstack.testing.server_side_apply import OPEN, Shape

TEXT = {"type": "string"}
ITEMS = {
    "type": "array",
    "items": {"type": "object", "properties": {"id": TEXT, "n": {"type": "integer"}}},
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["id"],
}
SHAPE = Shape({"type": "object", "properties": {"items": ITEMS}}, lambda schema: schema)


def ids(items: str) -> list[dict[str, Any]]:
    return [{"id": name} for name in items]


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
    result = server_side_apply.merge({"items": ids(live)}, {"items": ids(wanted)}, SHAPE)
    assert sorted(item["id"] for item in result["items"]) == sorted(merged)
    order = [item["id"] for item in result["items"] if item["id"] in wanted]
    assert "".join(order) == wanted


def test_an_item_without_its_key_is_a_fault() -> None:
    with pytest.raises(server_side_apply.KeyFault, match='omits key field "id"'):
        server_side_apply.field_set({"items": [{"n": 1}]}, SHAPE)


def test_values_without_a_schema_show_their_shape() -> None:
    assert server_side_apply.merge({"a": {"b": 1}}, {"a": {"c": [1]}}, OPEN) == {"a": {"b": 1, "c": [1]}}
    assert server_side_apply.field_set({"a": {"b": [1]}}, OPEN) == {("f:a",), ("f:a", "f:b")}
