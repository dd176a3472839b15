"""Training jobs against the CustomResourceDefinitions that mlstack ships."""

from typing import Any

import pytest
import yaml

from mlstack.objects.kube_object import KubeObject
from mlstack.validate.formats import Fault
from mlstack.validate.validate import load_schemas, validate_objects
from tests.generate.crds import FOLDER
from tests.support.jobs import JOB_VARIANTS, JOBS
from tests.support.variants import Variant

SCHEMAS = load_schemas("1.36")
CRDS = [yaml.load(path.read_text("utf-8"), yaml.CSafeLoader) for path in sorted(FOLDER.glob("*.yaml"))]


def faults(data: dict[str, Any]) -> list[Fault]:
    return validate_objects([KubeObject(data=data, component="c")], SCHEMAS, crds=CRDS)


def errors(data: dict[str, Any]) -> list[str]:
    return [fault.message for fault in faults(data) if fault.severity == "error"]


@pytest.mark.parametrize("name", sorted(JOBS))
def test_sound_jobs_have_no_faults(name: str) -> None:
    assert errors(JOBS[name]) == []


@pytest.mark.parametrize("variant", JOB_VARIANTS, ids=lambda one: one.id)
def test_verdicts_are_those_of_the_api_server(variant: Variant) -> None:
    assert bool(errors(variant.build(JOBS))) == variant.refused


def test_rules_speak_their_own_words() -> None:
    broken = Variant("TFJob", "spec.tfReplicaSpecs.Worker.replicas", 0, refused=True)
    message = "without a Chief at least one Worker is needed: with 0 the job counts as succeeded at once"
    assert errors(broken.build(JOBS)) == [message]


def test_a_misspelt_field_names_the_nearest() -> None:
    path = "spec.tfReplicaSpecs.Worker.template.spec.containers[0].comand"
    (fault,) = faults(Variant("TFJob", path, ["a"], refused=True).build(JOBS))
    assert (fault.path, fault.message) == (path, "unknown field `comand`, did you mean `command`?")


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("spec.tfReplicaSpecs.Worker.restartPolicy", "ExitCode", "retries without end"),
        ("spec.runPolicy.activeDeadlineSeconds", 60, "may be passed"),
        ("spec.tfReplicaSpecs.Worker.template.spec.restartPolicy", "Never", "is overridden"),
        (
            "spec.tfReplicaSpecs.Worker.template.spec.containers[0].resources.requests.memory",
            "2Gi",
            "must not be above the limit `1.5Gi`, got `2Gi` (the job is taken, its pods are refused)",
        ),
    ],
    ids=["exit code", "deadline", "template's policy", "pods that are refused"],
)
def test_what_is_taken_in_vain_is_warned_of(path: str, value: Any, words: str) -> None:
    data = Variant("TFJob", path, value, refused=False).build(JOBS)
    (fault,) = faults(data)
    assert fault.severity == "warning"
    assert words in fault.message
