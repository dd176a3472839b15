"""The CustomResourceDefinition of TrainingJobs: what it declares and what the parser reads are one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mlstack.elastic import training_job
from mlstack.elastic.training_job import spellings
from mlstack.objects.kube_object import KubeObject
from mlstack.validate.validate import load_schemas, validate_objects
from tests.generate import crds, trainingjobs
from tests.support.trainingjobs import edl_job, in_camel_case, small_job

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


@pytest.mark.parametrize("level", training_job.FIELDS)
def test_every_declared_field_is_read_and_the_other_way_round(level: str) -> None:
    declared = FIELDS if level == "spec" else FIELDS[level]["properties"]
    assert sorted(declared) == sorted(each for name in training_job.FIELDS[level] for each in spellings(name))


def found_in(data: dict[str, Any]) -> str:
    data = {**data, "metadata": {**data["metadata"], "namespace": "default"}}
    data["metadata"].pop("uid", None)
    faults = validate_objects([KubeObject(data=data)], load_schemas("1.36"), crds=[DEFINITION]).faults
    return "\n".join(fault.message for fault in faults)


def test_validate_accepts_what_the_server_accepts() -> None:
    assert found_in(edl_job()) == ""
    assert found_in(small_job()) == ""
    assert found_in(in_camel_case(edl_job())) == ""


def test_a_limit_counts_where_nothing_is_requested() -> None:
    for limits in ({"nvidia.com/gpu": 1}, {"cpu": "500m"}, {"alpha.kubernetes.io/nvidia-gpu": 1}):
        assert found_in(small_job(trainer=needing(requests={"memory": "1Gi"}, limits=limits))) == ""
        assert found_in(small_job(trainer=needing(limits=limits))) == ""
    refused = needing(requests={"cpu": 0}, limits={"cpu": 1})
    assert "must name a cpu above 0" in found_in(small_job(trainer=refused))


def needing(**resources: Mapping[str, Any]) -> dict[str, Any]:
    """Give trainers that need that."""
    return {"min-instance": 1, "max-instance": 3, "resources": resources}


CPUS = st.sampled_from(
    [0, 1, 4, -1, "0", "0m", "+0", "0.0", ".0", "0e3", "00", "1", "0.5", ".5", "+10m", "2e-1", "-1"]
)
GPUS = st.sampled_from([0, 1, "0", "1", "8", -1, "1000m", "500m", "2k"])
MEMORY = st.sampled_from(["1Gi", "1G", 2**30])
# Under one of its two names: a job that gives both is read with today's.
DEVICES = ["nvidia.com/gpu", "alpha.kubernetes.io/nvidia-gpu", "amd.com/gpu", "hugepages-2Mi"]
AMOUNTS = st.sampled_from(DEVICES).flatmap(
    lambda gpu: st.fixed_dictionaries(
        {},
        optional={
            kind: st.fixed_dictionaries({}, optional={"cpu": CPUS, "memory": MEMORY, gpu: GPUS})
            for kind in ("requests", "limits")
        },
    )
)


@settings(max_examples=4 * settings().max_examples)
@given(AMOUNTS, st.sampled_from(["trainer", "pserver"]))
@example({"requests": {"nvidia.com/gpu": 0}, "limits": {"nvidia.com/gpu": 1}}, "trainer")
@example({"requests": {"cpu": 1, "nvidia.com/gpu": 1}}, "trainer")
@example({"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"memory": "1G"}}, "pserver")
@example({"requests": {"cpu": 1}, "limits": {"amd.com/gpu": "500m"}}, "trainer")
@example({"requests": {"cpu": "0e3"}}, "pserver")
def test_server_and_controller_agree_on_what_can_be_planned(resources: dict[str, Any], role: str) -> None:
    """What the server accepts the controller can use, and the other way round."""
    data = edl_job()
    data["spec"][role]["resources"] = resources
    check_same_verdict(data)


COUNTS = st.sampled_from([-1, 0, 1, 2, 100, 101, 256, 257, 10_000, 10_001])
MOUNTS = st.sampled_from([None, [], [{"name": "a", "mountPath": "/a"}], [{"name": "b", "mountPath": "/b"}]])
VALUES: Mapping[str, Mapping[str, st.SearchStrategy[Any]]] = {
    "": {
        "fault_tolerant": st.booleans(),
        "ports_num": COUNTS,
        "ports_num_for_sparse": COUNTS,
        "port": st.sampled_from([0, 1, 29299, 29399, 29400, 29401, 65335, 65534, 65535, 65536]),
        "image": st.sampled_from(["a", "", " a", "a b", "a\n", "\u00a0a"]),
        "volumes": st.sampled_from([None, [], [{"name": "a", "emptyDir": {}}]]),
        "VolumeMounts": MOUNTS,
        "host_network": st.booleans(),
        "NodeSelector": st.just({"a": "b"}),
    },
    "trainer": {"min-instance": COUNTS, "max-instance": COUNTS},
    "pserver": {"min-instance": COUNTS, "max-instance": COUNTS},
    "master": {"etcd-endpoint": st.sampled_from(["", "http://etcd:2379"])},
}
FIELD = st.sampled_from([(role, name) for role, names in VALUES.items() for name in names])
GIVEN = FIELD.flatmap(
    lambda field: st.tuples(st.just(field), st.sampled_from(spellings(field[1])), VALUES[field[0]][field[1]])
)
"""A field, one of its spellings, and a value."""


@settings(max_examples=4 * settings().max_examples)
@given(st.lists(GIVEN, max_size=6), st.booleans())
@example([(("trainer", "max-instance"), name, 2) for name in ("max-instance", "maxInstance")], False)
@example(
    [(("trainer", "max-instance"), "maxInstance", 2), (("", "fault_tolerant"), "faultTolerant", True)], False
)
@example([(("", "VolumeMounts"), "VolumeMounts", None), (("", "VolumeMounts"), "volumeMounts", [])], False)
@example([(("pserver", "min-instance"), "minInstance", 2)], False)
@example([(("", "volumes"), "volumes", None), (("", "VolumeMounts"), "volumeMounts", [{"name": "a"}])], False)
@example([(("", "host_network"), "hostNetwork", True), (("", "port"), "port", 29399)], False)
@example([(("master", "etcd-endpoint"), "etcdEndpoint", "")], True)
def test_server_and_controller_agree_in_every_spelling(
    fields: list[tuple[tuple[str, str], str, Any]], is_external: bool
) -> None:
    """What the server accepts the controller can use, and the other way round."""
    data = small_job(pserver={}, master={"etcd": "External"} if is_external else {})
    levels = {"": data["spec"], **{role: data["spec"][role] for role in ("trainer", "pserver", "master")}}
    for (role, name), _, _ in fields:
        levels[role].pop(name, None)
    for (role, _), spelling, value in fields:
        levels[role][spelling] = value
    check_same_verdict(data)


def check_same_verdict(data: dict[str, Any]) -> None:
    """Assert that definition and parser both take a job, or both refuse it."""
    try:
        training_job.parse(data)
    except training_job.SpecError:
        assert found_in(data)
    else:
        assert found_in(data) == ""


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(edl_job(fault_tolerant=False), "fault_tolerant must be true", id="rigid"),
        pytest.param(edl_job(trainer={"max-instance": 1}), "must name a cpu", id="requests"),
        pytest.param(edl_job("n" * 53), "at most 52 characters", id="name"),
        pytest.param(small_job(minimum=3, maximum=2), "must not exceed", id="range"),
        pytest.param(in_camel_case(small_job(minimum=3, maximum=2)), "must not exceed", id="camel-range"),
        pytest.param(in_camel_case(edl_job(fault_tolerant=False)), "fault_tolerant must", id="camel-rigid"),
        pytest.param(
            edl_job(faultTolerant=True),
            "fault_tolerant and faultTolerant are two spellings of one field",
            id="two-spellings",
        ),
    ],
)
def test_validate_refuses_what_the_server_refuses(data: dict[str, Any], reason: str) -> None:
    assert reason in found_in(data)
