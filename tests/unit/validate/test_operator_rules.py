"""What operators refuse in webhooks is refused offline, what is just allowed is not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlstack.app import files
from mlstack.objects.kube_object import KubeObject
from mlstack.validate import rules
from mlstack.validate.operator_rules import operator_rules, operator_rules_for
from mlstack.validate.validate import load_schemas, validate_objects
from tests.support.variants import CASES, OBJECTS, Case


def errors(data: dict[str, Any]) -> list[str]:
    """Give what is said without a definition of the kind: its operator's rules alone."""
    needed = {f"{data['apiVersion']}/{data['kind']}"}
    verdict = validate_objects([KubeObject(data=data)], load_schemas("1.36"), needed=needed)
    return [f"{fault.path} {fault.message}" for fault in verdict.faults if fault.severity == "error"]


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_sound_objects_of_operators_have_no_fault(name: str) -> None:
    assert errors(OBJECTS[name]) == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_verdicts_are_those_of_the_operators(case: Case) -> None:
    messages = errors(case.build())
    if case.message is None:
        assert messages == []
    else:
        assert any(case.message in fault and "(rule of " in fault for fault in messages), messages


def test_every_set_of_rules_refuses_something_and_lets_something_by() -> None:
    for entry in operator_rules():
        verdicts = {case.message is not None for case in CASES if kind_of(OBJECTS[case.base]) in entry.kinds}
        assert verdicts == {True, False}, entry.title
        assert " v" in entry.title


def test_every_function_for_tables_stands_in_one() -> None:
    operator_rules()
    tables = "".join(file.read_text() for file in Path(rules.__file__).parent.glob("*.rules"))
    ends = r"(;|$|  when| \\$)"
    assert [name for name in rules.RULES if not re.search(f"[:;] {name}{ends}", tables, re.M)] == []


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


# --- rules that definitions of packages hold, as their operators have them ---


PACKAGES = {"MPIJob": "training/crds/mpijobs.yaml"}


@cache
def definition(kind: str) -> Mapping[str, Any]:
    text = (files.folder("prototypes") / PACKAGES[kind]).read_text("utf-8")
    return yaml.load(text, yaml.CSafeLoader)  # type: ignore[no-any-return]


def faults(data: Mapping[str, Any]) -> list[str]:
    crds = [definition(data["kind"])]
    verdict = validate_objects([KubeObject(data=data)], load_schemas("1.36"), crds=crds)
    assert not verdict.unchecked
    return [f"{fault.path} {fault.message}" for fault in verdict.faults if fault.severity == "error"]


def patched(data: Any, path: str, value: Any) -> Any:
    """Give a copy with another value at a dotted path; None takes it out."""
    head, _, rest = path.partition(".")
    inner = patched(data.get(head, {}), rest, value) if rest else value
    copy = {**data, head: inner}
    return {key: entry for key, entry in copy.items() if entry is not None}


def role(replicas: int, restart: str) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "mpi", "image": "x"}]}}
    return {"replicas": replicas, "restartPolicy": restart, "template": template}


MPI = {
    "apiVersion": "kubeflow.org/v2beta1",
    "kind": "MPIJob",
    "metadata": {"name": "pi", "namespace": "ml"},
    "spec": {
        "slotsPerWorker": 1,
        "runPolicy": {"cleanPodPolicy": "Running"},
        "mpiReplicaSpecs": {"Launcher": role(1, "OnFailure"), "Worker": role(2, "Never")},
    },
}
ROLES = "spec.mpiReplicaSpecs"


def test_a_sound_job_has_no_fault() -> None:
    assert faults(MPI) == []


# kubeflow/mpi-operator v0.8.0, pkg/apis/kubeflow/validation/validation.go
@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (f"{ROLES}.Launcher", None, "a Launcher is needed"),
        (f"{ROLES}.Launcher.replicas", 2, "Launcher has 1 replica"),
        (f"{ROLES}.Worker.replicas", 0, "Worker has at least 1 replica"),
        (f"{ROLES}.Worker.restartPolicy", "ExitCode", "restartPolicy"),
        (f"{ROLES}.Launcher.restartPolicy", "Always", "restartPolicy"),
        (f"{ROLES}.Master", role(1, "Never"), "mpiReplicaSpecs"),
        (f"{ROLES}.Worker.template.spec.containers", [], "containers"),
        ("spec.slotsPerWorker", -1, "slotsPerWorker"),
        ("spec.mpiImplementation", "LAM", "mpiImplementation"),
        ("spec.sshAuthMountPath", "", "sshAuthMountPath"),
        ("spec.runPolicy.cleanPodPolicy", "Some", "cleanPodPolicy"),
        ("spec.runPolicy.backoffLimit", -1, "backoffLimit"),
        ("spec.runPolicy.ttlSecondsAfterFinished", -1, "ttlSecondsAfterFinished"),
        ("spec.runPolicy.activeDeadlineSeconds", -1, "activeDeadlineSeconds"),
        ("spec.runPolicy.managedBy", "kubeflow.org/training-operator", "managedBy"),
        ("metadata.name", "a" * 55, "the last worker's name has more than 63 characters"),
        ("metadata.name", "1pi", "metadata.name"),
    ],
)
def test_what_the_mpi_operator_refuses_is_refused_offline(path: str, value: Any, message: str) -> None:
    (fault,) = faults(patched(MPI, path, value))
    assert message in fault
