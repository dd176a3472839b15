"""What the prototype `elastic-job` asks for reaches the pods of the job, or is refused with a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.elastic import pods, training_job
from mlstack.elastic.training_job import TrainingJob
from mlstack.errors import ParamError, TemplateError
from mlstack.render.trial import PrototypeTrial
from tests.support import examples

PROTOTYPE = examples.prototype("elastic-job")


def job(**params: Any) -> TrainingJob:
    example = PROTOTYPE.examples["offline"]
    objects = PrototypeTrial(PROTOTYPE).objects(example.params, params, example=example)
    [written] = [obj.data for obj in objects if obj.kind == "TrainingJob"]
    return training_job.parse(written)


def images(job: TrainingJob) -> list[str]:
    return [container["image"] for container in pods.pod_spec(job, "master")["containers"]]


def mounts(job: TrainingJob, role: Any) -> list[list[str]]:
    containers = pods.pod_spec(job, role)["containers"]
    return [[mount["mountPath"] for mount in container["volumeMounts"]] for container in containers]


def test_the_etcd_comes_from_where_it_is_said_to_come_from() -> None:
    assert images(job()) == [
        "registry.example.org/team/faces:1.3",
        "registry.example.org/mirror/etcd:v3.5.21",
    ]


def test_another_etcd_or_none_needs_no_image() -> None:
    outside = job(etcd="External", etcdEndpoint="http://etcd.example.org:2379")
    assert (outside.etcd_endpoint, len(images(outside))) == ("http://etcd.example.org:2379", 1)
    alone = job(etcd="None")
    assert (alone.etcd_endpoint, len(images(alone))) == ("", 1)


def test_claims_are_mounted_where_it_is_said() -> None:
    assert (mounts(job(), "pserver"), mounts(job(), "master")) == (
        [["/state"]],
        [["/state"], ["/var/lib/etcd"]],
    )
    unsaid = job(etcdMountPath=None, checkpointMountPath=None)
    assert mounts(unsaid, "pserver") == [["/checkpoint"]]
    assert mounts(unsaid, "master") == [["/var/lib/etcd"], ["/var/lib/etcd"]]


def test_trainers_get_the_time_that_they_are_given() -> None:
    pod = pods.pod_spec(job(), "trainer", 0)
    assert pod["terminationGracePeriodSeconds"] == 60
    assert {toleration["tolerationSeconds"] for toleration in pod["tolerations"]} == {300}


def test_a_job_has_its_priority_by_number_or_by_class() -> None:
    by_class = job(jobPriorityClassName="gold", priority=0)
    assert (by_class.priority_class, by_class.priority) == ("gold", 0)
    assert by_class.trainer.priority_class != "gold"
    by_number = job(priority=7)
    assert (by_number.priority_class, by_number.priority) == ("", 7)
    with pytest.raises(TemplateError, match="give one of them"):
        job(jobPriorityClassName="gold", priority=7)


def test_an_etcd_of_others_and_its_address_need_each_other() -> None:
    with pytest.raises(ParamError, match="etcdEndpoint"):
        job(etcd="External")
    with pytest.raises(TemplateError, match="only External uses it"):
        job(etcdEndpoint="http://etcd.example.org:2379")
