"""What operators refuse in webhooks is refused offline, what is just allowed is not."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from mlstack.objects.kube_object import KubeObject
from mlstack.validate.operator_rules import operator_rules, operator_rules_for
from mlstack.validate.validate import load_schemas, validate_objects
from tests.support.variants import CASES, OBJECTS, Case


def errors(data: dict[str, Any]) -> list[str]:
    """Give what is said without a definition of the kind: its operator's rules alone."""
    needed = {f"{data['apiVersion']}/{data['kind']}"}
    found = validate_objects([KubeObject(data=data)], load_schemas("1.36"), needed=needed)
    return [f"{fault.path} {fault.message}" for fault in found.faults if fault.severity == "error"]


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_sound_objects_of_operators_have_no_fault(name: str) -> None:
    assert errors(OBJECTS[name]) == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_verdicts_are_those_of_the_operators(case: Case) -> None:
    found = errors(case.build())
    if case.said is None:
        assert found == []
    else:
        assert any(case.said in fault and "(rule of " in fault for fault in found), found


def test_every_set_of_rules_refuses_something_and_lets_something_by() -> None:
    for rules in operator_rules():
        verdicts = {case.said is not None for case in CASES if kind_of(OBJECTS[case.base]) in rules.kinds}
        assert verdicts == {True, False}, rules.source
        assert " v" in rules.source


def kind_of(data: dict[str, Any]) -> str:
    return f"{data['apiVersion'].rpartition('/')[0]}/{data['kind']}"


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_no_shape_of_a_field_breaks_the_rules(name: str) -> None:
    """Without a definition nothing is known of types: there are faults or none, but no exception."""
    for place, value in paths(OBJECTS[name]["spec"], ("spec",)):
        for odd in (None, 1, "text", [], {}, [None], [1], {"a": None}, True):
            if type(odd) is not type(value):
                assert isinstance(errors(replaced(OBJECTS[name], place, odd)), list)


def paths(value: Any, place: tuple[Any, ...]) -> list[tuple[tuple[Any, ...], Any]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(place, value), *(path for key, below in inner for path in paths(below, (*place, key)))]


def replaced(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    if not place:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = replaced(value[place[0]], place[1:], new)
    return copy


def test_a_refusal_waits_until_the_definition_is_met() -> None:
    """The API server asks webhooks last: one mistake is told once."""
    data = yaml.safe_load("{apiVersion: kubeflow.org/v1, kind: TFJob, metadata: {name: Cnn}, spec: {}}")
    assert [fault for fault in errors(data) if "rule of" in fault] == []
    assert operator_rules_for("kubeflow.org/TFJob")
