"""TrainingJobs: EDL's fields and defaults, ours, what is refused, and that the definition says the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mlstack.elastic.training_job import FIELDS, SpecError, parse, spellings
from mlstack.objects.kube_object import KubeObject
from mlstack.validate.validate import load_schemas, validate_objects
from tests.generate import crds, trainingjobs
from tests.support.trainingjobs import edl_job, in_camel_case, small_job

MOUNT = {"name": "data", "mountPath": "/data"}
VOLUMES = [{"name": "data"}]


def job_with(role: str, **fields: Any) -> dict[str, Any]:
    """Give EDL's job with other fields of a role; `_` stands for `-`."""
    data = edl_job()
    data["spec"][role] |= {name.replace("_", "-"): value for name, value in fields.items()}
    return data


def needing(requests: dict[str, Any], limits: dict[str, Any] | None = None) -> dict[str, Any]:
    return job_with("trainer", resources={"requests": {"cpu": 1, **requests}, "limits": limits or {}})


def faults_of(data: dict[str, Any]) -> str:
    with pytest.raises(SpecError) as caught:
        parse(data)
    return "\n".join(caught.value.faults)


def test_a_job_of_edl_is_read_as_edl_read_it() -> None:
    job = parse(edl_job())
    assert (job.name, job.minimum, job.maximum) == ("example", 2, 10)
    assert job.trainer.resources.requests == {"cpu": 200, "memory": 200 * 2**20}
    assert (job.pserver.count, job.pserver.resources.requests["cpu"]) == (2, 500)
    assert (job.master.count, job.etcd) == (1, "Sidecar")
    assert (job.port, job.ports_num, job.ports_num_for_sparse, job.passes) == (7164, 1, 1, 1)


def test_what_is_left_out_has_edls_defaults() -> None:
    job = parse(small_job(image="", master={}))
    assert (job.image, job.image_pull_policy) == ("paddlepaddle/paddlecloud-job", "Always")
    assert (job.port, job.ports_num, job.ports_num_for_sparse, job.passes) == (7164, 1, 1, 1)
    assert (job.pserver.count, job.host_network, job.volumes) == (0, False, ())
    assert job.master.resources.container["requests"] == {"cpu": "1", "memory": "500Mi"}
    assert parse(small_job(fault_tolerant=True)).is_fault_tolerant


def test_fields_are_read_in_camel_case_too() -> None:
    full = edl_job(
        ports_num=3, ports_num_for_sparse=4, volumes=VOLUMES, VolumeMounts=VOLUMES, NodeSelector={"pool": "a"}
    )
    full["spec"]["master"] |= {"etcd": "External", "etcd-endpoint": "http://etcd:2379"}
    written = in_camel_case(full)
    assert parse(written) == parse(full)
    assert written["spec"].keys() >= {"portsNum", "portsNumForSparse", "faultTolerant", "volumeMounts"}
    assert written["spec"]["trainer"].keys() >= {"minInstance", "maxInstance"}


@pytest.mark.parametrize("written", ["hostNetwork", "host_network"])
def test_both_of_edls_spellings_of_the_host_network_are_read(written: str) -> None:
    assert parse(edl_job(**{written: True})).host_network


@pytest.mark.parametrize(
    "mounts",
    [
        {"VolumeMounts": [MOUNT]},
        {"volumeMounts": [MOUNT]},
        {"VolumeMounts": None, "volumeMounts": [MOUNT]},
        {"VolumeMounts": [MOUNT], "volumeMounts": None},
    ],
    ids=["old", "new", "old-null", "new-null"],
)
def test_volume_mounts_are_read_with_their_capital_and_null_is_no_second_spelling(
    mounts: dict[str, Any],
) -> None:
    assert parse(edl_job(volumes=VOLUMES, **mounts)).volume_mounts == (MOUNT,)


@pytest.mark.parametrize("value", [2, 3], ids=["the-same", "another"])
def test_two_spellings_of_one_field_are_refused_once(value: int) -> None:
    fault = "`min-instance` and `minInstance` are two spellings of one field: give one of them"
    assert faults_of(job_with("trainer", minInstance=value)) == f"spec.trainer: {fault}"


def test_the_old_name_of_gpus_is_read_as_todays() -> None:
    limits = {"alpha.kubernetes.io/nvidia-gpu": 2, "cpu": 1}
    job = parse(job_with("trainer", resources={"limits": limits}))
    assert job.trainer.resources.container == {"limits": {"nvidia.com/gpu": "2", "cpu": "1"}}
    assert job.trainer.resources.gpus == 2
    assert any("nvidia.com/gpu" in warning for warning in job.warnings)


@pytest.mark.parametrize(
    ("data", "warning"),
    [
        (edl_job(), "`passes` is ignored here, as EDL did"),
        (edl_job(colour="blue"), "spec: `colour` is no field of a TrainingJob and is ignored"),
        (edl_job(master={"etcd-endpoint": "http://etcd:2379"}), "`etcd-endpoint` is ignored"),
    ],
    ids=["passes", "unknown", "etcd"],
)
def test_what_is_ignored_is_named_in_a_warning(data: dict[str, Any], warning: str) -> None:
    job = parse(data)
    assert warning in "\n".join(job.warnings)
    assert job.passes == 1


def test_a_spelling_that_nobody_had_is_ignored_with_a_warning() -> None:
    data = edl_job()
    data["spec"]["trainer"]["min_instance"] = 7
    job = parse(data)
    assert job.minimum == 2
    assert "spec.trainer: `min_instance` is no field of a TrainingJob and is ignored" in job.warnings


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (job_with("trainer", min_instance=3, max_instance=2), "must be at least `min-instance`"),
        (job_with("trainer", min_instance=-1), "`min-instance` must be at least 0"),
        (job_with("trainer", min_instance=0, max_instance=0), "must be at least 1"),
        (edl_job(fault_tolerant=False), "`fault_tolerant` must be true"),
        (job_with("trainer", resources={}), "must name a cpu above 0"),
        (job_with("trainer", resources={"requests": {"cpu": "much"}}), "must be a quantity"),
        (edl_job("x" * 53), "at most 52 characters"),
        (edl_job("Example"), "lower-case letters"),
        (edl_job("1x"), "starting with a letter"),
        (edl_job(passes="many"), "`passes` must be a whole number"),
        (edl_job(scaling="Maybe"), "one of `Auto`, `Manual`"),
        (edl_job(speed="amdahl:2"), "no speed model `amdahl:2`"),
        (edl_job(volumes={}), "`volumes` must be a list of maps"),
        (edl_job(trainer=3), "spec.trainer: must be a map"),
        (edl_job(master={"etcd": "External"}), "needs `etcd-endpoint`"),
        (edl_job(master={"storage": {"size": "0"}}), "quantity above 0"),
        ({**edl_job(), "kind": "TFJob"}, "not a `paddlepaddle.org/v1` `TrainingJob`"),
        # what would be multiplied, or refused as a pod
        (edl_job(ports_num=2**31 - 1), "`ports_num` must be at most 100"),
        (edl_job(ports_num_for_sparse=101), "must be at most 100"),
        (job_with("trainer", max_instance=2**31 - 1), "must be at most 10000"),
        (job_with("pserver", min_instance=257), "must be at most 256"),
        (edl_job(port=65535), "its ports end above 65535"),
        (edl_job(port=2**31), "`port` must be at most 65535"),
        (edl_job(host_network=True, port=29399), "must leave out 29400"),
        (needing({}, {"cpu": "900m"}), "cpu` is 1, more than its limit, 900m"),
        (needing({"nvidia.com/gpu": 1}), "`resources.limits` must name the same"),
        (needing({"example.org/fpga": 1}, {"example.org/fpga": 2}), "must name the same"),
        (needing({"hugepages-2Mi": "4Mi"}), "must name the same"),
        (needing({}, {"nvidia.com/gpu": "500m"}), "must be a whole number"),
        (needing({}, {"alpha.kubernetes.io/nvidia-gpu": 0.5}), "must be a whole number"),
        (edl_job(VolumeMounts=[MOUNT]), "there is no volume `data` in `volumes`"),
        (edl_job(image="train:1 "), "without blanks"),
        (edl_job(master={"etcdImage": "etcd\n"}), "without blanks"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(data: dict[str, Any], expected: str) -> None:
    assert expected in faults_of(data)


@pytest.mark.parametrize(
    "data",
    [
        edl_job(port=65334, ports_num=100, ports_num_for_sparse=100),
        edl_job(port=65535, ports_num=0, ports_num_for_sparse=0),
        edl_job(host_network=True, port=29398),
        edl_job(host_network=True, port=29401),
        edl_job(port=29400),
        needing({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": 1}),
        needing({"ephemeral-storage": "1Gi"}),
        needing({"cpu": "500m"}, {"cpu": 0.5}),
    ],
    ids=["last", "one-port", "below", "above", "own-network", "gpu", "storage", "equal"],
)
def test_what_just_fits_is_accepted(data: dict[str, Any]) -> None:
    parse(data)


def test_all_faults_are_told_together_and_each_once() -> None:
    assert len(faults_of(edl_job("Example", fault_tolerant=False, passes="many")).splitlines()) == 3
    assert faults_of(edl_job(trainer=3)).count("spec.trainer: must be a map") == 1


def test_a_job_scaled_by_hand_has_exactly_its_maximum() -> None:
    job = parse(small_job(minimum=1, maximum=4, scaling="Manual"))
    assert (job.minimum, job.maximum) == (4, 4)


def test_a_claim_has_a_place_of_its_role() -> None:
    storage = parse(edl_job(pserver={"min-instance": 0, "storage": {"size": "1Gi"}})).pserver.storage
    assert storage is not None
    assert (storage.path, storage.when_deleted) == ("/checkpoint", "Retain")


# --- the CustomResourceDefinition: what it declares and what is read are one ---

DEFINITION: Any = trainingjobs.definition(load_schemas(crds.KUBERNETES))
SCHEMA = DEFINITION["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]


def test_the_shipped_files_are_what_the_script_makes() -> None:
    for file in trainingjobs.FILES:
        assert yaml.load(file.read_text("utf-8"), yaml.CSafeLoader) == DEFINITION, file


def test_it_is_edls_kind() -> None:
    spec = DEFINITION["spec"]
    names = (spec["group"], spec["names"]["plural"], spec["names"]["shortNames"])
    assert names == ("paddlepaddle.org", "trainingjobs", ["tj"])


@pytest.mark.parametrize("level", FIELDS)
def test_every_declared_field_is_read_and_the_other_way_round(level: str) -> None:
    spec = SCHEMA["spec"]["properties"]
    declared = spec if level == "spec" else spec[level]["properties"]
    assert sorted(declared) == sorted(spelling for name in FIELDS[level] for spelling in spellings(name))


def fault_of(data: dict[str, Any]) -> str:
    data = {**data, "metadata": {**data["metadata"], "namespace": "default"}}
    data["metadata"].pop("uid", None)
    faults = validate_objects([KubeObject(data=data)], load_schemas("1.36"), crds=[DEFINITION]).faults
    return "\n".join(fault.message for fault in faults)


def test_validate_accepts_what_the_server_accepts() -> None:
    assert fault_of(edl_job()) == ""
    assert fault_of(small_job()) == ""
    assert fault_of(in_camel_case(edl_job())) == ""


def test_a_limit_counts_where_nothing_is_requested() -> None:
    for limits in ({"nvidia.com/gpu": 1}, {"cpu": "500m"}, {"alpha.kubernetes.io/nvidia-gpu": 1}):
        assert fault_of(small_job(trainer=asking(requests={"memory": "1Gi"}, limits=limits))) == ""
        assert fault_of(small_job(trainer=asking(limits=limits))) == ""
    refused = asking(requests={"cpu": 0}, limits={"cpu": 1})
    assert "must name a cpu above 0" in fault_of(small_job(trainer=refused))


def asking(**resources: Mapping[str, Any]) -> dict[str, Any]:
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


@pytest.mark.slow
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


@pytest.mark.slow
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
        parse(data)
    except SpecError:
        assert fault_of(data)
    else:
        assert fault_of(data) == ""


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
    assert reason in fault_of(data)
