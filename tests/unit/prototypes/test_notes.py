"""What the shipped prototypes tell people who render them, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mlstack.errors import MlstackError
from mlstack.render import render
from tests.support import examples

CORE = "kubeflow/core/kubeflow-core"
TF_JOB, TF_CNN = "kubeflow/tf-job/tf-job", "kubeflow/tf-job/tf-cnn"
SERVING = "kubeflow/tf-serving/tf-serving"
TRITON, VLLM = "kubeflow/serving/triton", "kubeflow/serving/vllm"
PYTORCH, PADDLE = "kubeflow/training/pytorch-job", "kubeflow/training/paddlepaddle-job"
MPI = "kubeflow/training/mpi-job"
GROUP, QUEUE = "kubeflow/scheduling/pod-group", "kubeflow/scheduling/cluster-queue"
ELASTIC = {"elasticMinReplicas": 3, "elasticMaxReplicas": 2}
HUB = {"installCrds": False, "installOperator": False}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prototype", "params", "told"),
    [
        (CORE, {**HUB, "jupyterHubServiceType": "LoadBalancer"}, "the hub is open"),
        (CORE, {**HUB, "ingressHost": "hub.example.org"}, "the hub is open"),
        (CORE, {**HUB, "jupyterHubAuthenticator": "firstuse", "hubStorage": "1Gi"}, "nobody may log in"),
        (
            CORE,
            {**HUB, "jupyterHubAuthenticator": "native", "jupyterHubAdminUsers": "ada"},
            "passwords go with the hub's pod",
        ),
        (CORE, {**HUB, "notebookGpus": 1, "accelerator": "nvidia-l4"}, "`accelerator` is left out"),
        (TF_CNN, {"accelerator": "nvidia-l4", "cloud": "eks"}, "`cloud` is eks"),
    ],
)
def test_a_doubtful_choice_is_said(tmp_path: Path, prototype: str, params: dict[str, Any], told: str) -> None:
    (note,) = examples.render_one(tmp_path / "app", prototype, params).notes
    assert note.startswith("it: ")
    assert told in note


@pytest.mark.parametrize(
    ("prototype", "params"),
    [
        (CORE, HUB),
        (CORE, {**HUB, "jupyterHubServiceType": "LoadBalancer", "jupyterHubAllowedUsers": "ada"}),
        (TF_CNN, {"accelerator": "nvidia-l4", "cloud": "gke"}),
    ],
)
def test_an_ordinary_choice_is_not(tmp_path: Path, prototype: str, params: dict[str, Any]) -> None:
    assert examples.render_one(tmp_path / "app", prototype, params).notes == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prototype", "params", "message"),
    [
        (TF_JOB, {"image": "x", "num_masters": 0}, "`num_workers` must be at least 1 replica, got 0"),
        (
            TF_JOB,
            {"image": "x", "cpu": 2, "cpuLimit": "500m"},
            "`cpu` is 2, more than `cpuLimit`, which is 500m",
        ),
        (TF_JOB, {"image": "x", "memory": "2Gi", "memoryLimit": "2G"}, "`memory` is 2Gi, more than"),
        (TF_JOB, {"image": "x y"}, "`image` must match"),
        (TF_JOB, {"image": "x", "name": "Job"}, "`name` must match"),
        (TF_CNN, {"num_ps": 0}, "`num_ps` must be at least 1 replica, got 0"),
        (SERVING, {}, "`model_path` is required"),
        (SERVING, {"model_path": "ftp://x"}, "`model_path` must match"),
        (
            SERVING,
            {"model_path": "/mnt/x", "modelStorageType": "pvc"},
            "not be empty, because `modelStorageType` is pvc",
        ),
        (TRITON, {"modelRepositoryPath": "/m", "loadModels": "a"}, "because `loadModels` is set"),
        (VLLM, {"model": "m", "replicas": 2}, "`cachePvc` must not be empty, because `replicas` is 2"),
        (VLLM, {"model": "m", "tensorParallelSize": 4}, "`tensorParallelSize` is 4, more than `numGpus`"),
        (TRITON, {"modelRepositoryPath": "/m", "pvcName": "c"}, "not below `volumeMountPath`"),
        (
            SERVING,
            {"model_path": "/m/x", "modelStorageType": "pvc", "nfsPVC": "c"},
            "not below `volumeMountPath`",
        ),
        (
            SERVING,
            {"model_path": "gs://x", "deployHorizontalPodAutoscaler": True, "minReplicas": 9},
            "`minReplicas` is 9, more than `maxReplicas`, which is 8",
        ),
        (CORE, {"jupyterHubAuthenticator": "github"}, "`jupyterHubAuthSecret` must not be empty"),
        (CORE, {"jupyterHubAuthenticator": "iap"}, "`iapAudience` must not be empty"),
        (CORE, {"deploymentScope": "namespace"}, "`deploymentNamespace` must not be empty"),
        (CORE, {"jupyterHubNodePort": 30080}, "`jupyterHubServiceType` is ClusterIP, not NodePort"),
        (CORE, {"jobKinds": "tfjob,mpijob"}, "must be one of"),
        (CORE, {"num_gpu": 1}, "num_gpu"),
        (PYTORCH, {**ELASTIC}, "`elasticMinReplicas` is 3, more than `elasticMaxReplicas`, which is 2"),
        (PADDLE, {"image": "x", **ELASTIC}, "`elasticMinReplicas` is 3, more than `elasticMaxReplicas`"),
        (PYTORCH, {"elasticMaxReplicas": 2, "numWorkers": 0}, "an elastic job"),
        (PYTORCH, {"elasticMaxReplicas": 2, "numWorkers": 5}, "outside of"),
        (PYTORCH, {"maxRestarts": 2}, "`maxRestarts` counts restarts of an elastic job"),
        (PYTORCH, {"numMasters": 0, "numWorkers": 0}, "`numMasters` and `numWorkers` are 0"),
        (MPI, {"image": "x", "args": "a", "runAsUser": 1000}, "only root reads /root/.ssh"),
        ("kubeflow/training/mpi-job-simple", {"gpus": 9, "args": "a"}, "no multiple of it"),
        (GROUP, {"minMember": 2, "scheduler": "kubernetes", "queue": "a"}, "has no such field"),
        (GROUP, {"minMember": 2, "scheduleTimeoutSeconds": 5}, "`scheduler` is volcano"),
        (QUEUE, {"quotas": "cpu=1", "borrowing": "memory=1Gi", "cohort": "a"}, "which `quotas` does not"),
        (QUEUE, {"quotas": "cpu=1", "borrowing": "cpu=1"}, "`cohort` is not"),
        (QUEUE, {"quotas": "cpu=1", "nodeLabels": "a=b", "createFlavor": False}, "somebody else makes"),
        ("kubeflow/training/train-job", {"storageSecret": "a"}, "nothing else uses it"),
    ],
)
def test_values_that_do_not_go_together_are_refused(
    tmp_path: Path, prototype: str, params: dict[str, Any], message: str
) -> None:
    with pytest.raises(MlstackError) as refused:
        examples.render_one(tmp_path / "app", prototype, params)
    assert refused.value.exit_code == 3
    assert message in str(refused.value), str(refused.value)


def test_a_component_whose_name_is_no_objects_name_is_refused(tmp_path: Path) -> None:
    app = examples.write_app(tmp_path / "app", {"Cnn": (TF_CNN, {})})
    with pytest.raises(MlstackError, match="`Cnn` is no name for objects"):
        render.load(app, examples.PLAIN)


def test_a_launcher_without_a_program_is_said(tmp_path: Path) -> None:
    (note,) = examples.render_one(tmp_path / "app", MPI, {"image": "x"}).notes
    assert "set `program`" in note


def test_the_group_of_an_archived_scheduler_is_said(tmp_path: Path) -> None:
    params = {"minMember": 2, "scheduler": "kube-batch"}
    assert "archived" in examples.render_one(tmp_path / "app", GROUP, params).notes[0]


SEARCH: dict[str, Any] = {
    "image": "x",
    "objective": "loss",
    "parameters": [{"name": "lr", "type": "double", "min": 0, "max": 1}],
}


# kubeflow/katib v0.19.0, pkg/webhook/v1beta1/experiment/validator/validator.go
@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"parallelTrialCount": 13}, "more than `maxTrialCount`, which is 12"),
        ({"maxFailedTrialCount": 13}, "more than `maxTrialCount`, which is 12"),
        ({"additionalMetrics": "loss"}, "which is the objective"),
        ({"metricsCollector": "File"}, "because `metricsCollector` is File"),
        ({"metricsPath": "/tmp/a"}, "which reads no file"),
        ({"numWorkers": 2}, "which has one pod"),
        ({"name": "a" * 41}, "40"),
        ({"algorithm": "annealing"}, "algorithm"),
        ({"algorithm": "grid"}, "because `algorithm` is grid"),
        ({"parameters": [*SEARCH["parameters"], *SEARCH["parameters"]]}, "twice"),
        ({"parameters": [{"name": "a", "type": "int", "min": 1}]}, "because its type is int"),
        ({"parameters": [{"name": "a", "type": "int", "min": 2, "max": 1}]}, "more than `max`"),
        ({"parameters": [{"name": "a", "type": "categorical"}]}, "needs a `list`"),
        ({"parameters": []}, "parameters"),
    ],
)
def test_what_katib_refuses_is_refused(tmp_path: Path, params: dict[str, Any], told: str) -> None:
    with pytest.raises(MlstackError) as caught:
        examples.render_one(tmp_path / "app", "kubeflow/tuning/katib-experiment", {**SEARCH, **params})
    assert told in str(caught.value)
