"""Fields taken out of a payload and put into one."""

from typing import Any

import pytest

from mlstack.objects import managed_fields
from mlstack.objects.managed_fields import MISSING

MAIN = 'k:{"name":"main"}'
TCP = 'k:{"port":80,"protocol":"TCP"}'


@pytest.mark.parametrize(
    ("data", "path", "left"),
    [
        ({"a": 1, "b": 2}, ("f:a",), {"b": 2}),
        ({"a": {"b": 1, "c": 2}}, ("f:a", "f:b"), {"a": {"c": 2}}),
        ({"a": {"b": {"c": 1}}, "x": 1}, ("f:a", "f:b", "f:c"), {"x": 1}),
        ({"a": {}}, ("f:a", "f:b"), {"a": {}}),
        ({"l": [{"name": "main", "image": "x"}]}, ("f:l", MAIN, "f:image"), {"l": [{"name": "main"}]}),
        (
            {"l": [{"name": "main", "image": "x"}]},
            ("f:l", MAIN, "f:name"),
            {"l": [{"name": "main", "image": "x"}]},
        ),
        ({"l": [{"name": "main"}, {"name": "b"}]}, ("f:l", MAIN), {"l": [{"name": "b"}]}),
        ({"l": [{"name": "main"}]}, ("f:l", MAIN), {}),
        ({"l": [{"port": 80, "x": 1}]}, ("f:l", TCP, "f:x"), {"l": [{"port": 80}]}),
        (
            {"l": [{"port": 80, "protocol": "UDP", "x": 1}]},
            ("f:l", TCP, "f:x"),
            {"l": [{"port": 80, "protocol": "UDP", "x": 1}]},
        ),
        ({"l": ["a", "b"]}, ("f:l", 'v:"a"'), {"l": ["b"]}),
        ({"l": ["a", "b"]}, ("f:l", "i:1"), {"l": ["a"]}),
        ({"l": [1, 2]}, ("f:l",), {}),
        ({"a": "text"}, ("f:a", "f:b"), {"a": "text"}),
    ],
)
def test_cut(data: dict[str, Any], path: tuple[str, ...], left: dict[str, Any]) -> None:
    before = repr(data)
    assert managed_fields.cut(data, [path]) == left
    assert repr(data) == before


def test_the_item_that_says_all_its_keys_comes_first() -> None:
    vague, exact = {"port": 80, "x": 1}, {"port": 80, "protocol": "TCP", "x": 2}
    assert managed_fields.item_place([vague, exact], TCP) == 1


@pytest.mark.parametrize(
    ("data", "path", "made"),
    [
        ({}, ("f:a", "f:b"), {"a": {"b": 5}}),
        ({"a": {"b": 1}}, ("f:a", "f:b"), {"a": {"b": 5}}),
        ({"l": [{"name": "main"}]}, ("f:l", MAIN, "f:x"), {"l": [{"name": "main", "x": 5}]}),
        ({}, ("f:l", MAIN, "f:x"), {"l": [{"name": "main", "x": 5}]}),
    ],
)
def test_put(data: dict[str, Any], path: tuple[str, ...], made: dict[str, Any]) -> None:
    assert managed_fields.put(data, path, 5) == made
    assert managed_fields.value_at(made, path) == 5


def test_a_field_that_is_not_there_is_missing() -> None:
    assert managed_fields.value_at({"a": {"b": None}}, ("f:a", "f:b")) is None
    assert managed_fields.value_at({"a": {"b": None}}, ("f:a", "f:c")) is MISSING
