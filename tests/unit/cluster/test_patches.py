"""Patches do what their RFCs say, and leave the original alone."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.testing.writes import PatchFault, json_patch, merge_patch


@pytest.mark.parametrize(
    ("value", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ],
)
def test_merge_patches_of_the_rfc(value: Any, patch: Any, result: Any) -> None:
    assert merge_patch(value, patch) == result


@pytest.mark.parametrize(
    ("value", "operation", "result"),
    [
        ({"a": 1}, {"op": "add", "path": "/b", "value": 2}, {"a": 1, "b": 2}),
        ([1, 3], {"op": "add", "path": "/1", "value": 2}, [1, 2, 3]),
        ([1], {"op": "add", "path": "/-", "value": 2}, [1, 2]),
        ({"a": 1}, {"op": "remove", "path": "/a"}, {}),
        ({"a/b~c": 1}, {"op": "replace", "path": "/a~1b~0c", "value": 2}, {"a/b~c": 2}),
        ({"a": 1}, {"op": "replace", "path": "", "value": 2}, 2),
        ({"a": {"x": 1}}, {"op": "move", "from": "/a/x", "path": "/b"}, {"a": {}, "b": 1}),
        ({"a": [1]}, {"op": "copy", "from": "/a", "path": "/b"}, {"a": [1], "b": [1]}),
        ({"a": [1]}, {"op": "test", "path": "/a/0", "value": 1}, {"a": [1]}),
    ],
    ids=lambda value: value.get("op", "") if isinstance(value, dict) else "",
)
def test_operations_of_json_patches(value: Any, operation: dict[str, Any], result: Any) -> None:
    assert json_patch(value, [operation]) == result


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 2},
        {"op": "remove", "path": "/b"},
        {"op": "replace", "path": "/b", "value": 1},
        {"op": "add", "path": "/b/c", "value": 1},
        {"op": "add", "path": "/l/7", "value": 1},
        {"op": "add", "path": "a", "value": 1},
        {"op": "frob", "path": "/a"},
        {"op": "add", "path": "/a"},
    ],
)
def test_an_operation_that_does_not_fit_is_a_fault(operation: dict[str, Any]) -> None:
    with pytest.raises(PatchFault):
        json_patch({"a": 1, "l": []}, [operation])


def test_the_original_stays_as_it_is() -> None:
    value = {"a": {"b": [1]}}
    json_patch(value, [{"op": "add", "path": "/a/b/-", "value": 2}, {"op": "remove", "path": "/a/b/0"}])
    merge_patch(value, {"a": {"b": None}})
    assert value == {"a": {"b": [1]}}
