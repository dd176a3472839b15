"""What may change in place."""

from typing import Any

import pytest

from mlstack.deploy.replacement import needs_new_run
from mlstack.objects.kube_object import KubeObject
from mlstack.objects.managed_fields import FieldChange


def job(kind: str = "TFJob", condition: str = "Running", **spec: Any) -> KubeObject:
    status = {"conditions": [{"type": condition, "status": "True"}]}
    data = {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": "cnn"}}
    return KubeObject(data={**data, "spec": spec, "status": status})


def changed(path: str, old: Any = 1, new: Any = 3) -> FieldChange:
    return FieldChange(path=path, action="changed", old=old, new=new)


WORKERS = changed("spec.tfReplicaSpecs.Worker.replicas")


def test_a_running_job_with_other_workers_needs_a_new_run() -> None:
    assert needs_new_run(job(), [WORKERS]) == (
        "cnn: workers 1 -> 3 needs a new run: the training operator does not change a running job."
    )


def test_a_finished_job_needs_a_new_run_too() -> None:
    assert "a finished job" in (needs_new_run(job(condition="Succeeded"), [WORKERS]) or "")


def test_run_policy_and_metadata_change_in_place() -> None:
    in_place = [changed("spec.runPolicy.suspend"), changed('metadata.labels["a/b"]')]
    assert needs_new_run(job(), in_place) is None
    assert needs_new_run(job(), [*in_place, WORKERS]) is not None


def test_a_suspended_job_changes_in_place() -> None:
    assert needs_new_run(job(condition="Suspended"), [WORKERS]) is None


def elastic_job() -> KubeObject:
    data = {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "metadata": {"name": "words"}}
    return KubeObject(data=data)


@pytest.mark.parametrize(
    "path",
    [
        "spec.trainer.max-instance",
        "spec.trainer.maxInstance",
        "spec.suspend",
        "spec.scaling",
        "spec.imagePullPolicy",
        "metadata.labels",
    ],
)
def test_the_range_of_an_elastic_job_changes_in_place(path: str) -> None:
    assert needs_new_run(elastic_job(), [changed(path)]) is None


@pytest.mark.parametrize(
    "path",
    [
        *("spec.image", "spec.trainer.resources.requests.cpu"),
        *("spec.pserver.min-instance", "spec.pserver.minInstance", "spec.ports_num", "spec.portsNum"),
    ],
)
def test_what_an_elastic_job_cannot_follow_needs_a_new_run(path: str) -> None:
    assert "words: " in (needs_new_run(elastic_job(), [changed(path)]) or "")


def test_kinds_without_a_rule_change_in_place() -> None:
    deployment = KubeObject(data={"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}})
    assert needs_new_run(deployment, [changed("spec.replicas")]) is None


def test_an_elastic_pytorch_job_scales_in_place() -> None:
    scaled = [changed("spec.pytorchReplicaSpecs.Worker.replicas")]
    assert needs_new_run(job("PyTorchJob", elasticPolicy={"minReplicas": 1}), scaled) is None
    assert needs_new_run(job("PyTorchJob"), scaled) is not None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            changed("spec.tfReplicaSpecs.PS.template.spec.containers[tensorflow].image", "a", "b"),
            "containers[tensorflow].image a -> b",
        ),
        (FieldChange(path="spec.tfReplicaSpecs.PS", action="added", new={}), "parameter servers added"),
        (changed("spec.successPolicy", "", "AllWorkers"), 'successPolicy "" -> AllWorkers'),
        (
            changed("spec.tfReplicaSpecs.Worker.template.spec.containers[tensorflow].args", ["a"], ["b"]),
            "containers[tensorflow].args changed",
        ),
    ],
)
def test_changes_are_named_in_words(change: FieldChange, words: str) -> None:
    assert (needs_new_run(job(), [change]) or "").startswith(f"cnn: {words} needs a new run")


def test_many_changes_are_counted() -> None:
    many = [changed(f"spec.tfReplicaSpecs.{role}.replicas") for role in ("Worker", "PS", "Chief", "Master")]
    assert "and 1 more" in (needs_new_run(job(), many) or "")


@pytest.mark.parametrize(("version", "operator"), [("v1", "training operator"), ("v2beta1", "MPI operator")])
def test_an_mpi_job_names_the_operator_of_its_version(version: str, operator: str) -> None:
    live = {"apiVersion": f"kubeflow.org/{version}", "kind": "MPIJob", "metadata": {"name": "a"}, "spec": {}}
    change = changed("spec.mpiReplicaSpecs.Worker.replicas")
    assert f"the {operator} does not change a running job" in str(
        needs_new_run(KubeObject(data=live), [change])
    )
