"""Parsing TrainingJobs: EDL's fields and defaults, ours, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.elastic import training_job
from tests.support.trainingjobs import edl_job, in_camel_case, small_job


def with_trainer(**fields: Any) -> dict[str, Any]:
    data = edl_job()
    data["spec"]["trainer"] |= {name.replace("_", "-"): value for name, value in fields.items()}
    return data


def with_fields(role: str, **fields: Any) -> dict[str, Any]:
    data = edl_job()
    data["spec"][role] |= fields
    return data


def faults_of(data: dict[str, Any]) -> str:
    with pytest.raises(training_job.SpecError) as caught:
        training_job.parse(data)
    return "\n".join(caught.value.faults)


def test_a_job_of_edl_is_read_as_edl_read_it() -> None:
    job = training_job.parse(edl_job())
    assert (job.key, job.minimum, job.maximum) == ("default/example", 2, 10)
    assert job.trainer.resources.requests == {"cpu": 200, "memory": 200 * 2**20}
    assert (job.pserver.count, job.pserver.resources.requests["cpu"]) == (2, 500)
    assert (job.master.count, job.etcd) == (1, "Sidecar")
    assert (job.port, job.ports_num, job.ports_num_for_sparse, job.passes) == (7164, 1, 1, 1)


def test_what_is_left_out_has_edls_defaults() -> None:
    job = training_job.parse(small_job(image=""))
    assert job.image == "paddlepaddle/paddlecloud-job"
    assert (job.port, job.ports_num, job.ports_num_for_sparse, job.passes) == (7164, 1, 1, 1)
    assert (job.pserver.count, job.host_network, job.volumes) == (0, False, ())
    assert job.image_pull_policy == "Always"
    assert training_job.parse(small_job(fault_tolerant=True)).is_fault_tolerant


def test_master_without_resources_has_those_of_edls_controller() -> None:
    job = training_job.parse(small_job(master={}))
    assert job.master.resources.container["requests"] == {"cpu": "1", "memory": "500Mi"}


def test_fields_are_read_in_camel_case_too() -> None:
    full = edl_job(
        ports_num=3,
        ports_num_for_sparse=4,
        volumes=[{"name": "data"}],
        VolumeMounts=[{"name": "data"}],
        NodeSelector={"pool": "a"},
    )
    full["spec"]["master"] |= {"etcd": "External", "etcd-endpoint": "http://etcd:2379"}
    written = in_camel_case(full)
    assert training_job.parse(written) == training_job.parse(full)
    assert written["spec"].keys() >= {"portsNum", "portsNumForSparse", "faultTolerant", "volumeMounts"}
    assert written["spec"]["trainer"].keys() >= {"minInstance", "maxInstance"}


def test_a_spelling_that_nobody_had_is_ignored_with_a_warning() -> None:
    job = training_job.parse(with_fields("trainer", min_instance=7))
    assert job.minimum == 2
    assert "spec.trainer: `min_instance` is no field of a TrainingJob and is ignored" in job.warnings


@pytest.mark.parametrize("written", ["hostNetwork", "host_network"])
def test_both_of_edls_spellings_of_the_host_network_are_read(written: str) -> None:
    assert training_job.parse(edl_job(**{written: True})).host_network


@pytest.mark.parametrize("written", ["VolumeMounts", "volumeMounts"])
def test_volume_mounts_are_read_with_their_capital(written: str) -> None:
    mount = {"name": "data", "mountPath": "/data"}
    data = edl_job(volumes=[{"name": "data"}], **{written: [mount]})
    assert training_job.parse(data).volume_mounts == (mount,)


@pytest.mark.parametrize("value", [2, 3], ids=["the-same", "another"])
def test_two_spellings_of_one_field_are_refused_once(value: int) -> None:
    (fault,) = faults_of(with_fields("trainer", minInstance=value)).splitlines()
    assert fault == (
        "spec.trainer: `min-instance` and `minInstance` are two spellings of one field: give one of them"
    )


MOUNT = {"name": "data", "mountPath": "/data"}


@pytest.mark.parametrize(("old", "new"), [(None, [MOUNT]), ([MOUNT], None)], ids=["old", "new"])
def test_null_is_no_second_spelling(old: object, new: object) -> None:
    data = edl_job(volumes=[{"name": "data"}], VolumeMounts=old, volumeMounts=new)
    assert training_job.parse(data).volume_mounts == (MOUNT,)


def test_the_old_name_of_gpus_is_read_as_todays() -> None:
    limits = {"alpha.kubernetes.io/nvidia-gpu": 2, "cpu": 1}
    job = training_job.parse(with_trainer(resources={"limits": limits}))
    assert job.trainer.resources.container == {"limits": {"nvidia.com/gpu": "2", "cpu": "1"}}
    assert job.trainer.resources.gpus == 2
    assert any("nvidia.com/gpu" in warning for warning in job.warnings)


def test_passes_under_trainer_are_ignored_with_a_warning() -> None:
    job = training_job.parse(edl_job())
    assert job.passes == 1
    assert any("`passes`" in warning for warning in job.warnings)


def test_unknown_fields_are_named_in_warnings() -> None:
    warnings = training_job.parse(edl_job(colour="blue")).warnings
    assert "spec: `colour` is no field of a TrainingJob and is ignored" in warnings


def test_what_edl_never_used_is_ignored_with_a_warning() -> None:
    data = edl_job(master={"etcd-endpoint": "http://etcd:2379"})
    assert any("`etcd-endpoint` is ignored" in warning for warning in training_job.parse(data).warnings)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(
            with_trainer(min_instance=3, max_instance=2), "must be at least `min-instance`", id="range"
        ),
        pytest.param(with_trainer(min_instance=-1), "`min-instance` must be at least 0", id="negative"),
        pytest.param(with_trainer(min_instance=0, max_instance=0), "must be at least 1", id="none"),
        pytest.param(edl_job(fault_tolerant=False), "`fault_tolerant` must be true", id="rigid"),
        pytest.param(with_trainer(resources={}), "must name a cpu above 0", id="requests"),
        pytest.param(
            with_trainer(resources={"requests": {"cpu": "much"}}), "must be a quantity", id="quantity"
        ),
        pytest.param(edl_job("x" * 53), "at most 52 characters", id="long"),
        pytest.param(edl_job("Example"), "lower-case letters", id="letters"),
        pytest.param(edl_job("1x"), "starting with a letter", id="digit"),
        pytest.param(edl_job(passes="many"), "`passes` must be a whole number", id="passes"),
        pytest.param(edl_job(scaling="Maybe"), "one of `Auto`, `Manual`", id="scaling"),
        pytest.param(edl_job(speed="amdahl:2"), "no speed model `amdahl:2`", id="speed"),
        pytest.param(edl_job(volumes={}), "`volumes` must be a list of maps", id="volumes"),
        pytest.param(edl_job(trainer=3), "spec.trainer: must be a map", id="level"),
        pytest.param(edl_job(master={"etcd": "External"}), "needs `etcd-endpoint`", id="etcd"),
        pytest.param(edl_job(master={"storage": {"size": "0"}}), "quantity above 0", id="storage"),
        pytest.param({**edl_job(), "kind": "TFJob"}, "not a `paddlepaddle.org/v1` `TrainingJob`", id="kind"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(data: dict[str, Any], expected: str) -> None:
    assert expected in faults_of(data)


def needing(requests: dict[str, Any], limits: dict[str, Any] | None = None) -> dict[str, Any]:
    return with_trainer(resources={"requests": {"cpu": 1, **requests}, "limits": limits or {}})


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(edl_job(ports_num=2**31 - 1), "`ports_num` must be at most 100", id="ports"),
        pytest.param(edl_job(ports_num_for_sparse=101), "must be at most 100", id="sparse-ports"),
        pytest.param(with_trainer(max_instance=2**31 - 1), "must be at most 10000", id="trainers"),
        pytest.param(with_fields("pserver", **{"min-instance": 257}), "must be at most 256", id="servers"),
        pytest.param(edl_job(port=65535), "its ports end above 65535", id="last-port"),
        pytest.param(edl_job(port=2**31), "`port` must be at most 65535", id="first-port"),
        pytest.param(
            edl_job(host_network=True, port=29399), "must leave out 29400", id="port-of-the-rendezvous"
        ),
        pytest.param(needing({}, {"cpu": "900m"}), "cpu` is 1, more than its limit, 900m", id="limit"),
        pytest.param(needing({"nvidia.com/gpu": 1}), "`resources.limits` must name the same", id="no-limit"),
        pytest.param(
            needing({"example.org/fpga": 1}, {"example.org/fpga": 2}), "must name the same", id="device"
        ),
        pytest.param(needing({"hugepages-2Mi": "4Mi"}), "must name the same", id="huge-pages"),
        pytest.param(needing({}, {"nvidia.com/gpu": "500m"}), "must be a whole number", id="fraction"),
        pytest.param(
            needing({}, {"alpha.kubernetes.io/nvidia-gpu": 0.5}), "must be a whole number", id="old-fraction"
        ),
        pytest.param(edl_job(VolumeMounts=[MOUNT]), "there is no volume `data` in `volumes`", id="mount"),
        pytest.param(edl_job(image="train:1 "), "without blanks", id="image"),
        pytest.param(edl_job(master={"etcdImage": "etcd\n"}), "without blanks", id="etcd-image"),
    ],
)
def test_what_would_be_multiplied_or_refused_as_a_pod_is_refused_as_a_job(
    data: dict[str, Any], expected: str
) -> None:
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
    training_job.parse(data)


def test_all_faults_are_told_together() -> None:
    data = edl_job("Example", fault_tolerant=False, passes="many")
    assert len(faults_of(data).splitlines()) == 3


def test_a_job_scaled_by_hand_has_exactly_its_maximum() -> None:
    job = training_job.parse(small_job(minimum=1, maximum=4, scaling="Manual"))
    assert (job.minimum, job.maximum) == (4, 4)


def test_a_claim_has_a_place_of_its_role() -> None:
    job = training_job.parse(edl_job(pserver={"min-instance": 0, "storage": {"size": "1Gi"}}))
    assert job.pserver.storage is not None
    assert (job.pserver.storage.path, job.pserver.storage.when_deleted) == ("/checkpoint", "Retain")
