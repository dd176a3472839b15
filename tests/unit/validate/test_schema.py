"""Custom resources against the structural schema of their CustomResourceDefinition."""

from typing import Any

import pytest

from mlstack.objects.kube_object import KubeObject
from mlstack.validate.validate import load_schemas, validate_objects
from tests.support import accepted

SCHEMAS = load_schemas("1.36")
TEXT = {"type": "string"}


def crd(spec: dict[str, Any], **version: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "lamps.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"kind": "Lamp", "plural": "lamps"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    **version,
                }
            ],
        },
    }


def lamp(spec: Any, **others: Any) -> KubeObject:
    data = {"apiVersion": "example.org/v1", "kind": "Lamp", "metadata": {"name": "a"}, "spec": spec, **others}
    return KubeObject(data=data, component="lamps")


def faults(schema: dict[str, Any], spec: Any, **others: Any) -> list[tuple[str, str]]:
    refusals = validate_objects([lamp(spec, **others)], SCHEMAS, crds=[crd(schema)]).faults
    return [(fault.path, fault.message) for fault in refusals]


def with_fields(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields}


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        (TEXT, 1, "must be a string, got `1`"),
        ({"type": "integer"}, "1", "must be a whole number, got the string `1`"),
        ({"type": "integer"}, True, "must be a whole number, got `true`"),
        ({"type": "boolean"}, "true", "must be true or false, got the string `true`"),
        (TEXT, None, "must be a string, got null"),
        ({**TEXT, "enum": ["red"]}, "rad", "must be one of `red`, got `rad`, did you mean `red`?"),
        ({**TEXT, "pattern": "^[a-z]+$"}, "A", "must match `^[a-z]+$`, got `A`"),
        ({**TEXT, "pattern": "^a$"}, "a\n", None),
        ({**TEXT, "pattern": r"^\d$"}, "\u0663", None),
        ({**TEXT, "minLength": 1}, "", "must not be empty"),
        ({**TEXT, "maxLength": 2}, "abc", "must have at most 2 characters, got 3"),
        ({"type": "integer", "minimum": 1}, 0, "must be at least 1, got 0"),
        ({"type": "integer", "maximum": 1}, 2, "must be at most 1, got 2"),
        ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, 0, "must be above 0, got 0"),
        ({"type": "integer", "multipleOf": 2}, 3, "must be a multiple of 2, got 3"),
        ({"type": "array", "items": TEXT, "minItems": 1}, [], "must have at least 1 items, got 0"),
        ({"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"}, ["a", "a"], None),
        ({"x-kubernetes-int-or-string": True}, 1.5, "must be a whole number or a string, got `1.5`"),
        ({**TEXT, "format": "date-time"}, "now", "must be a time such as `2026-01-31T12:00:00Z`, got `now`"),
        ({**TEXT, "format": "cidr"}, "10.0.0.0", "must be a network such as `10.0.0.0/8`, got `10.0.0.0`"),
        ({**TEXT, "format": "byte"}, "YQ==\n", "must be text in base64, got `YQ==\n`"),
        ({"not": {"enum": ["a"]}, **TEXT}, "a", None),
        ({"oneOf": [{"minimum": 1}, {"maximum": 3}], "type": "integer"}, 2, None),
        ({"anyOf": [{"minimum": 3}, {"maximum": 1}], "type": "integer"}, 2, None),
        ({"allOf": [{"minimum": 3}], "type": "integer"}, 2, "must be at least 3, got 2"),
        ({"type": "object", "additionalProperties": TEXT, "maxProperties": 1}, {"a": "b", "c": "d"}, None),
    ],
    ids=str,
)  # fmt: skip
def test_values_that_do_not_fit(schema: dict[str, Any], value: Any, message: str | None) -> None:
    refusals = faults(with_fields(x=schema), {"x": value})
    assert refusals
    if message:
        assert message in [text for _, text in refusals]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, 1.0),
        ({**TEXT, "nullable": True}, None),
        ({**TEXT, "default": "a"}, None),
        ({"x-kubernetes-int-or-string": True}, "50%"),
        ({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, {"any": [1]}),
        ({"type": "array", "items": TEXT}, ["a", "a"]),
        ({"oneOf": [{"minimum": 1}, {"maximum": 0}], "type": "integer"}, 2),
        ({**TEXT, "format": "quantity"}, "no format of CRDs"),
        ({**TEXT, "format": "ipv4"}, "010.0.0.01"),
        ({**TEXT, "format": "ipv4"}, "::ffff:1.2.3.4"),
        ({**TEXT, "format": "cidr"}, "010.0.0.0/08"),
        ({**TEXT, "pattern": "^[]$^-]+$"}, "$]^"),
        ({**TEXT, "pattern": r"^\$\z"}, "$"),
        ({**TEXT, "pattern": r"^\p{L}+$"}, "Größe"),
        ({**TEXT, "pattern": r"^(?=a)$"}, "left to the server: no pattern of Go"),
        ({"type": "object", "additionalProperties": TEXT}, {"a": "b"}),
    ],
    ids=str,
)
def test_values_that_fit(schema: dict[str, Any], value: Any) -> None:
    assert faults(with_fields(x=schema), {"x": value}) == []


def test_unknown_fields_are_faults_with_the_nearest_known() -> None:
    assert faults(with_fields(colour=TEXT), {"color": "red"}) == [
        ("spec.color", "unknown field `color`, did you mean `colour`?")
    ]


def test_an_object_without_declared_fields_takes_none() -> None:
    assert faults({"type": "object"}, {"a": 1}) == [("spec.a", "unknown field `a`")]


def test_items_told_apart_by_keys_stand_once() -> None:
    item = {"type": "object", "properties": {"port": {"type": "integer"}, "protocol": TEXT}}
    ports = {
        "type": "array",
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["port", "protocol"],
    }
    same = [{"port": 1}, {"port": 1, "protocol": "TCP"}, {"port": 1, "protocol": "UDP"}]
    assert faults(with_fields(ports=ports), {"ports": same}) == [
        ("spec.ports[1]", "is the same as item 0: port `1`, protocol `TCP` stands twice")
    ]


def test_embedded_objects_need_their_type_and_sound_metadata() -> None:
    schema = {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    }
    refusals = faults(with_fields(child=schema), {"child": {"kind": "A", "metadata": {"lables": {}}}})
    assert [path for path, _ in refusals] == ["spec.child.apiVersion", "spec.child.metadata.lables"]


def test_metadata_is_typed_whatever_the_schema_says() -> None:
    refusals = faults({"type": "object"}, {}, metadata={"name": "a", "label": {}})
    assert refusals == [("metadata.label", "unknown field `label`, did you mean `labels`?")]


def test_rules_see_defaults() -> None:
    schema = with_fields(low={"type": "integer", "default": 5}, high={"type": "integer"})
    schema["x-kubernetes-validations"] = [{"rule": "self.low <= self.high", "message": "low above high"}]
    assert faults(schema, {"high": 4}) == [("spec", "low above high")]
    assert faults(schema, {"high": 5}) == []


def test_a_rule_points_to_its_field() -> None:
    schema = with_fields(low={"type": "integer"})
    schema["x-kubernetes-validations"] = [{"rule": "self.low > 1", "message": "too low", "fieldPath": ".low"}]
    assert faults(schema, {"low": 1}) == [("spec.low", "too low")]


def test_a_rule_without_a_value_is_a_fault() -> None:
    schema = {**with_fields(low={"type": "integer"}), "x-kubernetes-validations": [{"rule": "self.low > 1"}]}
    assert faults(schema, {}) == [("spec", "rule `self.low > 1` cannot be evaluated: no such key: low")]


@pytest.mark.parametrize(("rule", "unchecked"), [("self == oldSelf", 0), ("self.low.unheardOf()", 1)])
def test_rules_on_changes_say_nothing_and_unknown_ones_are_counted(rule: str, unchecked: int) -> None:
    schema = {**with_fields(low={"type": "integer"}), "x-kubernetes-validations": [{"rule": rule}]}
    verdict = validate_objects([lamp({"low": 1})], SCHEMAS, crds=[crd(schema)])
    assert (verdict.faults, verdict.unchecked.get("Lamp", 0)) == ([], unchecked)


def test_rules_wait_until_the_structure_is_right() -> None:
    schema = {**with_fields(low={"type": "integer"}), "x-kubernetes-validations": [{"rule": "self.low > 1"}]}
    assert faults(schema, {"low": "a"}) == [("spec.low", "must be a whole number, got the string `a`")]


@pytest.mark.parametrize(
    "spec",
    [
        [],
        "text",
        {"type": ["object"]},
        {"type": "object", "properties": ["on"]},
        {"type": "object", "properties": {"on": {"type": "integer", "enum": 5}}},
        {"type": "object", "properties": {"on": {"type": "integer", "minimum": "x"}}},
    ],
    ids=str,
)
def test_a_definition_that_is_wrong_itself_is_the_only_fault(spec: Any) -> None:
    wrong = KubeObject(data=crd(spec), component="lamps")
    faults = validate_objects([wrong, lamp({"on": 1})], SCHEMAS).faults
    assert {fault.object for fault in faults} == {"CustomResourceDefinition lamps.example.org"}


def test_the_status_is_the_controllers() -> None:
    definition = crd({"type": "object"}, subresources={"status": {}})
    assert validate_objects([lamp({}, status={"any": 1})], SCHEMAS, crds=[definition]).faults == []


def test_scaled_replicas_are_not_negative() -> None:
    definition = crd(
        with_fields(count={"type": "integer"}),
        subresources={"scale": {"specReplicasPath": ".spec.count", "statusReplicasPath": ".status.count"}},
    )
    (fault,) = validate_objects([lamp({"count": -1})], SCHEMAS, crds=[definition]).faults
    assert (fault.path, fault.message) == ("spec.count", "must be at least 0, got -1")


def test_the_definition_of_the_same_render_wins() -> None:
    own, vendored = crd(with_fields(colour=TEXT)), crd(with_fields(shade=TEXT))
    objects = [KubeObject(data=own), lamp({"colour": "red"})]
    assert validate_objects(objects, SCHEMAS, crds=[vendored]).faults == []


@pytest.mark.parametrize("case", accepted.ACCEPTED)
def test_nothing_is_said_of_what_the_server_takes(case: str) -> None:
    schema, value = accepted.ACCEPTED[case]
    refusals = validate_objects(
        [KubeObject(data=accepted.resource(value))], SCHEMAS, crds=[accepted.definition(schema)]
    ).faults
    assert refusals == []
