"""The CustomResourceDefinition of TrainingJobs: what it declares and what the parser reads are one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import yaml

from mlstack.elastic import spec
from mlstack.elastic.specfields import plain
from mlstack.files.kubernetes import load_schemas
from mlstack.model.objects import KubeObject
from mlstack.model.validation.check import validate_objects
from tests.generate import crds, trainingjobs
from tests.support.trainingjobs import edl_job, small_job

DEFINITION: Any = trainingjobs.definition(load_schemas(crds.KUBERNETES))
SCHEMA = DEFINITION["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
FIELDS: Mapping[str, Any] = SCHEMA["spec"]["properties"]


def test_the_shipped_files_are_what_the_script_makes() -> None:
    for file in trainingjobs.FILES:
        assert yaml.load(file.read_text("utf-8"), yaml.CSafeLoader) == DEFINITION, file


def test_it_is_edls_kind() -> None:
    found = DEFINITION["spec"]
    assert (found["group"], found["names"]["plural"], found["names"]["shortNames"]) == (
        "paddlepaddle.org",
        "trainingjobs",
        ["tj"],
    )


@pytest.mark.parametrize(
    ("declared", "read"),
    [
        pytest.param(FIELDS, spec.SPEC_FIELDS, id="spec"),
        pytest.param(FIELDS["trainer"]["properties"], spec.TRAINER_FIELDS, id="trainer"),
        pytest.param(FIELDS["pserver"]["properties"], spec.PSERVER_FIELDS, id="pserver"),
        pytest.param(FIELDS["master"]["properties"], spec.MASTER_FIELDS, id="master"),
    ],
)
def test_every_declared_field_is_read_and_the_other_way_round(
    declared: Mapping[str, Any], read: Sequence[str]
) -> None:
    assert {plain(name) for name in declared} == {plain(name) for name in read}


def found_in(data: dict[str, Any]) -> str:
    data = {**data, "metadata": {**data["metadata"], "namespace": "default"}}
    data["metadata"].pop("uid", None)
    faults = validate_objects([KubeObject(data=data)], load_schemas("1.36"), crds=[DEFINITION])
    return "\n".join(fault.message for fault in faults)


def test_validate_accepts_what_the_server_accepts() -> None:
    assert found_in(edl_job()) == ""
    assert found_in(small_job()) == ""


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(edl_job(fault_tolerant=False), "fault_tolerant must be true", id="rigid"),
        pytest.param(edl_job(trainer={"max-instance": 1}), "must name a cpu", id="requests"),
        pytest.param(edl_job("n" * 53), "at most 52 characters", id="name"),
        pytest.param(small_job(minimum=3, maximum=2), "must not exceed", id="range"),
    ],
)
def test_validate_refuses_what_the_server_refuses(data: dict[str, Any], reason: str) -> None:
    assert reason in found_in(data)
