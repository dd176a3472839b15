"""What a typed text means by the declared type, and how values merge."""

from typing import Any

import pytest

from mlstack.app.params import coerce, inner_param, join_path, merge, parse_text, split_path
from tests.support.builders import param

INTEGER = param(type="integer")
NUMBER = param(type="number")
BOOLEAN = param(type="boolean")
STRING = param(type="string")
QUANTITY = param(type=["string", "number"])
ARRAY = param(type="array")
OBJECT = param(type="object")
CSV = param(type="array", format="csv")
KV = param(type="object", format="kv")
CLOUD = param(enum=["", "minikube", "gke"], value_aliases={"none": "", "gcp": "gke"})


@pytest.mark.parametrize(
    ("declared", "text", "value"),
    [
        (INTEGER, "5", 5),
        (INTEGER, "-3", -3),
        (INTEGER, "+3", 3),
        (INTEGER, "2.5", "2.5"),
        (INTEGER, "abc", "abc"),
        (INTEGER, "9" * 5000, "9" * 5000),
        (INTEGER, "null", None),
        (NUMBER, "2.5", 2.5),
        (NUMBER, "1e3", 1000.0),
        (NUMBER, ".5", 0.5),
        (NUMBER, "1e999", "1e999"),
        (NUMBER, "nan", "nan"),
        (BOOLEAN, "true", True),
        (BOOLEAN, "FALSE", False),
        (BOOLEAN, "tRue", True),
        (BOOLEAN, "yes", "yes"),
        (STRING, "5", "5"),
        (STRING, "true", "true"),
        (STRING, "", ""),
        (STRING, "--flag", "--flag"),
        (STRING, "1.10", "1.10"),
        (STRING, "{a: 1}", "{a: 1}"),
        (STRING, "null", None),
        (STRING, '"null"', "null"),
        (STRING, "'null'", "null"),
        (STRING, '"other"', '"other"'),
        (QUANTITY, "2", "2"),
        (ARRAY, '["a", 1]', ["a", 1]),
        (ARRAY, "a", "a"),
        (ARRAY, "null", None),
        (OBJECT, '{"a": 1}', {"a": 1}),
        (OBJECT, "{a", "{a"),
        (CSV, "a, b,,c", ["a", "b", "c"]),
        (CSV, "", []),
        (CSV, '["a,b"]', ["a,b"]),
        (KV, "a=1,b=x=y", {"a": "1", "b": "x=y"}),
        (KV, "a", "a"),
        (KV, '{"a": "1,2"}', {"a": "1,2"}),
        (CLOUD, "gcp", "gke"),
        (CLOUD, "none", ""),
        (CLOUD, "minikube", "minikube"),
    ],
)
def test_text_is_typed_by_the_declared_type(declared: Any, text: str, value: Any) -> None:
    parsed = parse_text(declared, text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "value"), [("5", 5), ("true", True), ("2.5", 2.5), ("abc", "abc"), ("", ""), ("null", None)]
)
def test_undeclared_text_goes_by_the_readers_rules(text: str, value: Any) -> None:
    assert parse_text(None, text) == value


@pytest.mark.parametrize("declared", [INTEGER, STRING, OBJECT, CSV, None])
def test_as_string_keeps_the_text(declared: Any) -> None:
    assert parse_text(declared, "5,6", as_string=True) == "5,6"


def test_structured_text_is_read_by_the_given_reader() -> None:
    assert parse_text(OBJECT, "a: 1") == {"a": 1}


@pytest.mark.parametrize("value", [5, 2.5, True, ["a"], {"a": 1}, None])
def test_typed_values_of_a_file_stay(value: Any) -> None:
    assert coerce(STRING, value) == value


@pytest.mark.parametrize("path", [("a",), ("a", "b"), ("a.b", "c"), ("cloud.google.com/pool",)])
def test_dotted_keys_read_back(path: tuple[str, ...]) -> None:
    assert split_path(join_path(path)) == path


def test_the_schema_inside_a_map_types_its_values() -> None:
    declared = param(
        type="object", properties={"n": {"type": "integer"}}, additionalProperties={"type": "string"}
    )
    assert parse_text(inner_param(declared, ("n",)), "5") == 5
    assert parse_text(inner_param(declared, ("other",)), "5") == "5"
    assert inner_param(declared, ("n", "deeper")) is None


def test_append_works_inside_maps() -> None:
    schema = {"properties": {"l": {"x-merge": "append"}}}
    assert merge({"l": [1]}, {"l": [2]}, schema) == {"l": [1, 2]}


def test_merging_leaves_both_sides_as_they_were() -> None:
    lower, upper = {"a": {"b": 1}}, {"a": {"c": 2}}
    merge(lower, upper)
    assert (lower, upper) == ({"a": {"b": 1}}, {"a": {"c": 2}})
