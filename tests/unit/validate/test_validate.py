"""What is said of objects: sound, odd and broken ones, kinds, versions, places, training jobs.

The API server's word on each variant is in `tests/cluster/test_validation_agrees.py`.
"""

from typing import Any

import pytest
import yaml

from mlstack.objects.kube_object import KubeObject, Source
from mlstack.validate.formats import Fault, Field, path_of, shown
from mlstack.validate.validate import load_schemas, validate_objects
from tests.generate.crds import FOLDER
from tests.support.variants import JOB_VARIANTS, JOBS, MANIFESTS, VARIANTS, Variant

CRDS = [yaml.load(path.read_text("utf-8"), yaml.CSafeLoader) for path in sorted(FOLDER.glob("*.yaml"))]


def faults(data: dict[str, Any], version: str = "1.36") -> list[Fault]:
    crds = CRDS if data.get("apiVersion") == "kubeflow.org/v1" else []
    return validate_objects([KubeObject(data=data, component="c")], load_schemas(version), crds=crds).faults


def errors(data: dict[str, Any]) -> list[str]:
    return [fault.message for fault in faults(data) if fault.severity == "error"]


@pytest.mark.parametrize("name", sorted({**MANIFESTS, **JOBS}))
def test_sound_objects_have_no_faults(name: str) -> None:
    assert errors({**MANIFESTS, **JOBS}[name]) == []


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.id)
def test_verdicts_are_those_of_the_api_server(variant: Variant) -> None:
    assert bool(errors(variant.build())) == variant.refused


@pytest.mark.parametrize("variant", JOB_VARIANTS, ids=lambda variant: variant.id)
def test_verdicts_on_jobs_are_those_of_the_api_server(variant: Variant) -> None:
    assert bool(errors(variant.build(JOBS))) == variant.refused


def test_the_set_of_variants_is_large_enough() -> None:
    assert sum(variant.refused for variant in VARIANTS) >= 200


def message(api_version: str, kind: str, version: str = "1.36") -> str:
    (fault,) = faults({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}}, version)
    return fault.message


def test_a_fault_names_component_object_field_and_place() -> None:
    data = Variant("Service", "spec.ports[0].port", 0, refused=True).build()
    source = Source(component="web", file="templates/service.yaml.j2", line=3)
    (fault,) = validate_objects(
        [KubeObject(data=data, component="web", source=source)], load_schemas("1.36")
    ).faults
    assert fault == Fault(
        component="web",
        object="Service web",
        path="spec.ports[0].port",
        message="must be 1 to 65535, got 0",
        where="templates/service.yaml.j2:3",
        keys=("spec", "ports", 0, "port"),
    )


def test_a_version_that_went_names_where_it_was_and_what_to_use() -> None:
    assert message("flowcontrol.apiserver.k8s.io/v1beta3", "FlowSchema") == (
        "FlowSchema of `flowcontrol.apiserver.k8s.io/v1beta3` exists in Kubernetes 1.30 to 1.31, not in 1.36:"
        " use `flowcontrol.apiserver.k8s.io/v1`"
    )


def test_a_kind_that_came_later_names_when() -> None:
    assert message("resource.k8s.io/v1", "ResourceClaim", "1.31") == (
        "ResourceClaim of `resource.k8s.io/v1` exists in Kubernetes 1.34 to 1.37, not in 1.31:"
        " use `resource.k8s.io/v1alpha3`"
    )


@pytest.mark.parametrize(
    ("api_version", "kind", "words"),
    [
        ("extensions/v1beta1", "Ingress", "must be `networking.k8s.io/v1` for kind `Ingress`"),
        ("v1", "Deployment", "must be `apps/v1` for kind `Deployment`, got `v1`"),
        ("apps/v1beta2", "Deployment", "must be `apps/v1` for kind `Deployment`, got `apps/v1beta2`"),
        ("v1", "Sevice", "no kind `Sevice` in `v1` of Kubernetes 1.36, did you mean `Service`?"),
        ("example.org/v1", "Lamp", "no CustomResourceDefinition of Lamp in `example.org/v1` is in reach"),
        ("", "Pod", "is required"),
        ("v1", "", "is required"),
    ],
)
def test_kinds_that_are_not_there_say_what_to_do(api_version: str, kind: str, words: str) -> None:
    assert words in message(api_version, kind)


def test_a_wrong_version_of_a_custom_kind_names_the_right_ones() -> None:
    objects = [
        KubeObject(data=MANIFESTS["CRD"]),
        KubeObject(data={"apiVersion": "example.org/v2", "kind": "Lamp", "metadata": {"name": "a"}}),
    ]
    (fault,) = validate_objects(objects, load_schemas("1.36")).faults
    assert fault.message == "must be `example.org/v1` for kind `Lamp`, got `example.org/v2`"


@pytest.mark.parametrize(
    ("base", "path", "value", "old", "new"),
    [
        ("Service", "metadata.name", "1web", "1.35", "1.36"),
        ("Pod", "spec.containers[0].env[0].name", "A B", "1.31", "1.32"),
        ("Pod", "spec.containers[0].restartPolicy", "Never", "1.33", "1.34"),
        ("Deployment", "spec.template.spec.hostnameOverride", "a", "1.33", "1.34"),
    ],
)
def test_rules_follow_the_version(base: str, path: str, value: Any, old: str, new: str) -> None:
    data = Variant(base, path, value, refused=False).build()
    assert faults(data, old)
    assert faults(data, new) == []


@pytest.mark.parametrize("minor", range(30, 38))
def test_plain_objects_are_sound_in_every_version(minor: int) -> None:
    for data in MANIFESTS.values():
        assert faults(data, f"1.{minor}") == []


@pytest.mark.parametrize("name", sorted(MANIFESTS))
def test_no_shape_of_an_object_breaks_the_check(name: str) -> None:
    """Whatever stands in a field, there are faults or none, but no exception."""
    for place in ("metadata", "spec", "data", "rules", "webhooks"):
        for value in (None, 1, "text", [], {}, [None], {"a": None}, True):
            assert isinstance(faults({**MANIFESTS[name], place: value}), list)


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        (("spec", "ports", 0, "name"), "spec.ports[0].name"),
        (("metadata", "labels", "example.org/x"), "metadata.labels[example.org/x]"),
        (("data", "a.conf"), "data[a.conf]"),
        (("data", "a-b_c"), "data.a-b_c"),
        ((), ""),
    ],
)
def test_paths_read_as_people_write_them(keys: tuple[str | int, ...], path: str) -> None:
    assert path_of(keys) == path


def test_values_are_shown_short() -> None:
    assert shown("x" * 100) == "`" + "x" * 60 + "…`"
    assert shown("") == "an empty string"
    assert shown({"a": 1}) == '`{"a": 1}`'


def test_a_field_that_is_missing_reads_as_empty() -> None:
    field = Field({"a": [1]}).at("a", "b", "c")
    assert (bool(field), field.text, field.number, field.items, field.entries) == (False, "", None, (), ())


@pytest.mark.parametrize("name", ["a/b", "a%b", "..", ""])
def test_names_of_roles_fit_into_an_address(name: str) -> None:
    assert faults({**MANIFESTS["Role"], "metadata": {"name": name}})


@pytest.mark.parametrize(("path", "value"), [("data.b", "pass word"), ("stringData", {"a": 4711})])
def test_what_stands_in_a_secret_is_not_told(path: str, value: Any) -> None:
    (fault,) = faults(Variant("Secret", path, value, refused=True).build())
    assert "pass word" not in fault.message
    assert "4711" not in fault.message


def test_a_time_zone_names_the_nearest() -> None:
    (fault,) = faults(Variant("CronJob", "spec.timeZone", "Europe/Berln", refused=True).build())
    assert fault.message.endswith("got `Europe/Berln`, did you mean `Europe/Berlin`?")


# --- training jobs ---


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
