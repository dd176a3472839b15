"""Which changes of a training job need a new run, and how a change is named."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.objects.managed_fields import FieldChange
from mlstack.readiness.evaluate import needs_new_run

Data = dict[str, Any]


def job(kind: str = "TFJob", condition: str = "Running", version: str = "v1", **spec: Any) -> Data:
    status = {"conditions": [{"type": condition, "status": "True"}]}
    metadata = {"name": "cnn"}
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def changed(path: str, old: Any = 1, new: Any = 3) -> FieldChange:
    return FieldChange(path=path, action="changed", old=old, new=new)


WORKERS = changed("spec.tfReplicaSpecs.Worker.replicas")
PYTORCH_WORKERS = changed("spec.pytorchReplicaSpecs.Worker.replicas")
IN_PLACE = [changed("spec.runPolicy.suspend"), changed('metadata.labels["a/b"]')]
ELASTIC = {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "metadata": {"name": "cnn"}}

ONCE = {
    kind: {"apiVersion": group, "kind": kind, "metadata": {"name": "cnn"}, "spec": {}, "status": {}}
    for group, kind in (
        ("ray.io/v1", "RayJob"),
        ("argoproj.io/v1alpha1", "Workflow"),
        ("trainer.kubeflow.org/v1alpha1", "TrainJob"),
        ("jobset.x-k8s.io/v1alpha2", "JobSet"),
        ("kubeflow.org/v1beta1", "Experiment"),
        ("batch.volcano.sh/v1alpha1", "Job"),
    )
}
FOLLOWED = {
    "Experiment": ("spec.maxTrialCount", "spec.parallelTrialCount"),
    "Job": ("spec.tasks[worker].replicas", "spec.minAvailable"),
    "JobSet": ("spec.suspend", "spec.ttlSecondsAfterFinished"),
}


@pytest.mark.parametrize("kind", ONCE)
def test_what_runs_once_can_be_held_and_ended(kind: str) -> None:
    paths = FOLLOWED.get(kind, ("spec.suspend", "spec.activeDeadlineSeconds"))
    assert needs_new_run(ONCE[kind], [changed(path) for path in paths]) is None


def test_a_suspended_ray_job_reads_what_is_new_when_it_resumes() -> None:
    live = {**ONCE["RayJob"], "status": {"jobDeploymentStatus": "Suspended"}}
    assert needs_new_run(live, [changed("spec.entrypoint", "a", "b")]) is None


@pytest.mark.parametrize(
    ("live", "change", "why"),
    [
        (
            job(),
            WORKERS,
            "workers 1 -> 3 needs a new run: the training operator does not change a running job.",
        ),
        (job(condition="Succeeded"), WORKERS, "a finished job"),
        (job(condition="Failed"), WORKERS, "a finished job"),
        (job("PyTorchJob"), PYTORCH_WORKERS, "workers 1 -> 3 needs a new run"),
        (job("MPIJob"), WORKERS, "the training operator does not change a running job"),
        (job("MPIJob", version="v2beta1"), WORKERS, "the MPI operator does not change a running job"),
        (ONCE["RayJob"], changed("spec.entrypoint", "a", "b"), "entrypoint a -> b needs a new run: the Ray"),
        (ONCE["Workflow"], changed("spec.entrypoint", "a", "b"), "the workflow controller runs one once"),
        (ONCE["TrainJob"], changed("spec.trainer.numNodes"), "numNodes 1 -> 3 needs a new run"),
        (ONCE["TrainJob"], changed("spec.suspendMore"), "needs a new run"),
        (ONCE["JobSet"], changed("spec.replicatedJobs[w].replicas"), "the JobSet controller runs one once"),
        (ONCE["Experiment"], changed("spec.objective.goal"), "the Katib controller changes how many trials"),
        (ONCE["Job"], changed("spec.tasks[w].template.spec.x"), "the Volcano controller changes how many"),
        *(
            (ELASTIC, changed(f"spec.{path}"), "needs a new run: a training job keeps its image")
            for path in (
                *("image", "trainer.resources.requests.cpu", "pserver.min-instance"),
                *("pserver.minInstance", "ports_num", "portsNum"),
            )
        ),
    ],
)
def test_what_a_job_cannot_follow_needs_a_new_run(live: Data, change: FieldChange, why: str) -> None:
    for changes in ([change], [*IN_PLACE, change]):
        reason = needs_new_run(live, changes) or ""
        assert reason.startswith("cnn: ") and why in reason


@pytest.mark.parametrize(
    ("live", "changes"),
    [
        (job(), IN_PLACE),
        (job(condition="Suspended"), [WORKERS]),
        (job("PyTorchJob", elasticPolicy={"minReplicas": 1}), [PYTORCH_WORKERS]),
        ({**ELASTIC, "apiVersion": "apps/v1", "kind": "Deployment"}, [changed("spec.replicas")]),
        *(
            (ELASTIC, [changed(path)])
            for path in (
                *("spec.trainer.max-instance", "spec.trainer.maxInstance", "spec.suspend", "spec.scaling"),
                *("spec.imagePullPolicy", "metadata.labels"),
            )
        ),
    ],
)
def test_what_a_controller_follows_changes_in_place(live: Data, changes: list[FieldChange]) -> None:
    assert needs_new_run(live, changes) is None


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
