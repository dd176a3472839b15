"""Rules that operators check in webhooks or while they work, held offline by the definitions of packages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
import yaml

from mlstack.app import files
from mlstack.objects.kube_object import KubeObject
from mlstack.validate.validate import load_schemas, validate_objects

PACKAGES = {"MPIJob": "training/crds/mpijobs.yaml"}


@cache
def definition(kind: str) -> Mapping[str, Any]:
    text = (files.folder("prototypes") / PACKAGES[kind]).read_text("utf-8")
    return yaml.load(text, yaml.CSafeLoader)  # type: ignore[no-any-return]


def faults(data: Mapping[str, Any]) -> list[str]:
    crds = [definition(data["kind"])]
    found = validate_objects([KubeObject(data=data)], load_schemas("1.36"), crds=crds)
    assert not found.unchecked
    return [f"{fault.path} {fault.message}" for fault in found.faults if fault.severity == "error"]


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
    ("path", "value", "said"),
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
def test_what_the_mpi_operator_refuses_is_refused_offline(path: str, value: Any, said: str) -> None:
    (fault,) = faults(patched(MPI, path, value))
    assert said in fault
