"""Parameters and files are checked against JSON Schema; what is wrong is told in plain words."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mlstack.app import document as documents
from mlstack.app.document import Origin
from mlstack.app.params import Layer, Resolved
from mlstack.app.prototype import Param, Prototype
from mlstack.app.schema import check_file, check_params, check_value, file_kinds, file_schema, is_checkable
from mlstack.errors import ParamError, SchemaError
from tests.support.builders import MemoryCache, layer, params, resolve


def prototype(declared: dict[str, Param], **more: Any) -> Prototype:
    schema = {
        "type": "object",
        "properties": {name: param.schema for name, param in declared.items()},
        "required": [name for name, param in declared.items() if param.required],
        "additionalProperties": False,
        **more,
    }
    return Prototype(name="tf-cnn", package="tf-job", registry="kubeflow", params=declared, schema=schema)


GKE = "environments/gke/params.yaml"


def gke(**values: Any) -> Layer:
    origins = {(name,): Origin(GKE, 12 + index) for index, name in enumerate(values)}
    return Layer("environment", values, origins, "--env=gke cnn")


def error(declared: dict[str, Param], values: Layer, **more: Any) -> str:
    with pytest.raises(ParamError) as caught:
        check_params(prototype(declared, **more), resolve(declared, [values]), component="cnn")
    return caught.value.describe()


def test_a_bound_is_told_with_place_and_the_command_that_mends_it() -> None:
    declared = params(num_workers={"type": "integer", "minimum": 1, "maximum": 64})
    assert error(declared, gke(num_workers=0)) == (
        "error: `num_workers` must be 1 to 64, got 0 (environments/gke/params.yaml:12)\n"
        "hint: mlstack param set --env=gke cnn num_workers 1"
    )


@pytest.mark.parametrize(
    ("schema", "value", "sentence", "hint"),
    [
        ({"type": "integer", "maximum": 64, "minimum": 1}, 65, "must be 1 to 64, got 65", "64"),
        ({"type": "integer", "minimum": 0, "unit": "GPUs"}, -1, "must be at least 0 GPUs, got -1", "0"),
        ({"type": "integer", "minimum": 0}, "many", 'must be an integer, got "many"', "0"),
        ({"type": "integer", "default": 3}, 2.5, "must be an integer, got 2.5", "3"),
        ({"type": "number", "exclusiveMinimum": 0}, 0, "must be more than 0, got 0", "VALUE"),
        ({"type": "string"}, 5, "must be a string, got 5: put it in quotes", "VALUE"),
        ({"type": "integer", "minimum": 1, "unit": "retries"}, 0, "must be at least 1 retry, got 0", "1"),
        ({"type": ["string", "number"]}, [1], "must be a string or a number, got a list", "VALUE"),
        ({"type": "boolean"}, "maybe", 'must be true or false, got "maybe"', "VALUE"),
        (
            {"enum": ["", "gke", "minikube"]},
            "gkee",
            'must be one of `""`, `gke`, `minikube`, got "gkee"',
            "gke",
        ),
        ({"type": "string", "minLength": 1}, "", "must not be empty", "VALUE"),
        ({"type": "string", "maxLength": 3}, "abcd", "must have at most 3 characters, got 4", "VALUE"),
        ({"type": "string", "pattern": "^a+$"}, "b", 'must match `^a+$`, got "b"', "VALUE"),
        (
            {"type": "string", "pattern": "^a+$", "examples": ["aaa"]},
            "b",
            'must match `^a+$`, got "b"',
            "aaa",
        ),
        ({"type": "array", "minItems": 2}, [1], "must have at least 2 entries, got 1", "VALUE"),
        ({"type": "array", "uniqueItems": True}, [1, 1], "must not hold anything twice, got [1, 1]", "VALUE"),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            [],
            "must be an integer or a string, got a list",
            "VALUE",
        ),
        ({"type": "string", "pattern": "^b"}, "a" * 100, 'must match `^b`, got "' + "a" * 58 + "…", "VALUE"),
    ],
)
def test_what_was_expected_and_what_was_seen(
    schema: dict[str, Any], value: Any, sentence: str, hint: str
) -> None:
    message = error(params(p=schema), gke(p=value))
    assert message == f"error: `p` {sentence} ({GKE}:12)\nhint: mlstack param set --env=gke cnn p {hint}"


def test_a_wrong_type_is_told_without_what_follows_from_it() -> None:
    declared = params(cloud={"type": "string", "enum": ["gke", "eks"], "minLength": 2})
    assert error(declared, gke(cloud=["gke"])).splitlines()[0] == (
        f"error: `cloud` must be a string, got a list ({GKE}:12)"
    )


def test_all_faults_are_told_together_each_with_its_place() -> None:
    declared = params(a={"type": "integer"}, b={"type": "integer", "minimum": 5}, c={"required": True})
    assert error(declared, gke(a="x", b=1)) == (
        "error: 3 parameters of `cnn` are wrong\n"
        "  `c` is required by `cnn` and not set\n"
        f'  `a` must be an integer, got "x" ({GKE}:12)\n'
        f"  `b` must be at least 5, got 1 ({GKE}:13)\n"
        "hint: mlstack param set cnn c VALUE\n"
        "      mlstack param set --env=gke cnn a VALUE\n"
        "      mlstack param set --env=gke cnn b 5"
    )


def test_all_missing_parameters_are_told_in_one_message() -> None:
    declared = params(a={"required": True}, b={"required": True}, c={"required": True})
    assert error(declared, gke()).splitlines() == [
        "error: `a`, `b` and `c` are required by `cnn` and not set",
        "hint: mlstack param set cnn a VALUE",
        "      mlstack param set cnn b VALUE",
        "      mlstack param set cnn c VALUE",
    ]


def test_a_required_parameter_set_to_null_is_missing() -> None:
    assert "`a` is required by `cnn`" in error(params(a={"required": True, "default": 1}), gke(a=None))


def test_a_place_inside_a_value_is_named() -> None:
    schema = {
        "type": "array",
        "items": {"properties": {"key": {"type": "string"}}, "additionalProperties": False},
    }
    values = Layer(
        "component", {"t": [{"key": 1}, {"kay": "x"}]}, {("t", 1, "kay"): Origin("c.yaml", 9)}, "cnn"
    )
    assert error(params(t=schema), values).splitlines()[1:3] == [
        "  `t[0].key` must be a string, got 1: put it in quotes (component)",
        "  `t[1].kay` is unknown; did you mean `key`? (c.yaml:9)",
    ]


def test_a_parameter_that_a_condition_forbids_is_named() -> None:
    declared = params(mode={"type": "string"}, canary={"type": "integer"})
    condition = {
        "if": {"properties": {"mode": {"const": "plain"}}},
        "then": {"properties": {"canary": False}},
    }
    message = error(declared, gke(mode="plain", canary=3), allOf=[condition])
    assert message.startswith("error: `canary` must not be set here, because `mode` is plain")


@pytest.mark.parametrize("keyword", ["additionalProperties", "unevaluatedProperties"])
def test_every_name_that_a_map_forbids_is_told(keyword: str) -> None:
    message = error(params(m={"type": "object", keyword: False}), gke(m={"a": 1, "b": 2}))
    assert re.findall(r"`(m\.\w)` is unknown", message) == ["m.a", "m.b"]


@pytest.mark.parametrize("pattern", [r"^x-[a-z]+$(?!\n)", r"\Ax-[a-z]+\Z"])
def test_a_pattern_of_names_means_the_same_as_a_pattern_of_values(pattern: str) -> None:
    schema = {
        "type": "object",
        "patternProperties": {pattern: {"type": "string"}},
        "additionalProperties": False,
    }
    message = error(params(m=schema), gke(m={"x-a": 1, "x-a\n": "text", "y": "text"}))
    assert "`m.x-a` must be a string" in message
    assert message.count("is unknown") == 2


def test_a_reference_to_elsewhere_is_refused_and_asks_nobody() -> None:
    declared = params(a={"$ref": "https://schemas.invalid/a.json"})
    assert not is_checkable(prototype(declared).schema)


def test_a_condition_between_parameters_names_the_missing_one() -> None:
    declared = params(a={"type": "string"}, b={"type": "string"})
    condition = {"if": {"required": ["a"]}, "then": {"required": ["b"]}}
    assert "`b` is required by `cnn` and not set" in error(declared, gke(a="x"), allOf=[condition])
    assert "`b` is required by `cnn` and not set" in error(
        declared, gke(a="x"), dependentRequired={"a": ["b"]}
    )


def test_a_secret_value_does_not_appear() -> None:
    declared = params(token={"type": "string", "pattern": "^x", "secret": True, "enum": ["xyz"]})
    message = error(declared, gke(token="hunter2"))
    assert "hunter2" not in message
    assert "`token` does not fit (its value is secret)" in message


def test_the_hint_of_a_value_from_the_command_line_is_the_option() -> None:
    message = error(params(n={"type": "integer", "minimum": 1}), layer("command line", n=0))
    assert message.endswith("hint: --set n=1")


def test_unset_values_are_not_checked() -> None:
    declared = params(a={"type": "string"})
    check_params(prototype(declared), resolve(declared, []))


def test_what_has_passed_is_not_checked_again_and_what_failed_is() -> None:
    declared = params(a={"type": "integer"})
    store = MemoryCache()
    good, bad = resolve(declared, [gke(a=1)]), resolve(declared, [gke(a="x")])
    check_params(prototype(declared), good, passed=store)
    for _ in range(2):
        with pytest.raises(ParamError):
            check_params(prototype(declared), bad, passed=store)
    assert len(store) == 1


def test_a_passed_set_needs_no_validator() -> None:
    code = """
import sys
from mlstack.app.schema import check_params
from mlstack.app.params import Resolved
from mlstack.app.prototype import Prototype
class Passed:
    def get(self, key): return b""
    def put(self, key, data): raise AssertionError
check_params(Prototype(name="p", package="p", registry="r"), Resolved({}, {}), passed=Passed())
print([name for name in ("jsonschema_rs", "yaml", "jinja2", "ruamel") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_schemas_and_values_are_told_apart() -> None:
    store = MemoryCache()
    numbers, texts = params(a={"type": "integer"}), params(a={"type": "string"})
    check_params(prototype(numbers), resolve(numbers, [gke(a=1)]), passed=store)
    with pytest.raises(ParamError):
        check_params(prototype(texts), Resolved({"a": 1}, {"a": ()}), passed=store)


def test_one_value_alone_can_be_checked() -> None:
    declared = params(n={"type": "integer", "maximum": 3, "unit": "GPUs"})["n"]
    assert check_value(declared, 4) == ["`n` must be at most 3 GPUs, got 4"]
    assert check_value(declared, None) == check_value(declared, 3) == []


def test_every_file_kind_has_a_sound_schema_with_a_stable_id() -> None:
    from jsonschema import Draft202012Validator

    assert {"App", "Lock", "Component", "Environment", "EnvironmentParams", "Prototype", "Registry"} <= set(
        file_kinds()
    )
    for kind in file_kinds():
        schema = file_schema(kind)
        Draft202012Validator.check_schema(schema)
        assert schema["$id"] == f"https://mlstack.dev/schemas/v1/{kind}.json"
        assert schema["properties"]["kind"] == {"const": kind}


def test_a_file_that_does_not_fit_lists_every_fault_with_its_line() -> None:
    text = b"apiVersion: mlstack.dev/v1\nkind: Environment\nnamespace: A\nprotekted: true\n"
    document = documents.read(text, file="e.yaml")
    with pytest.raises(SchemaError) as caught:
        check_file("Environment", document.value, source="e.yaml", document=document)
    assert str(caught.value).splitlines() == [
        "e.yaml is not a valid Environment",
        '  `namespace` must match `^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`, got "A" (e.yaml:3)',
        "  `protekted` is unknown; did you mean `protected`? (e.yaml:4)",
    ]


@pytest.mark.parametrize(
    "path", sorted(Path("mlstack/app/schemas").glob("*.json")), ids=lambda path: path.stem
)
def test_the_shipped_schemas_are_written_evenly(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n"


@pytest.mark.parametrize(
    "path", sorted(Path("tests/golden/schemas").glob("*.json")), ids=lambda path: path.stem
)
def test_schemas_of_declared_kinds_stay_as_they_are(path: Path) -> None:
    assert json.dumps(file_schema(path.stem), indent=2, ensure_ascii=False) + "\n" == path.read_text("utf-8")
