"""What is said of objects: sound, odd and broken ones, kinds, versions, places, training jobs.

The API server's word on each variant is in `tests/cluster/test_validation_agrees.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlstack.objects.kube_object import KubeObject, Source
from mlstack.objects.resources import limits_in
from mlstack.validate.formats import Fault, Field, path_of, shown
from mlstack.validate.validate import deprecations, load_schemas, over_quota, validate_objects
from mlstack.yaml.read import read_documents
from tests.generate.crds import FOLDER
from tests.support.cli import Runner
from tests.support.registry import small_app
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


# --- quotas of a namespace, as a snapshot keeps them ---


OBJECTS = """\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: ml}
spec:
  replicas: 3
  template:
    spec:
      containers:
      - name: main
        resources:
          requests: {cpu: 500m, memory: 1Gi, nvidia.com/gpu: 1}
          limits: {cpu: 2, memory: 2Gi, nvidia.com/gpu: 1}
  volumeClaimTemplates:
  - metadata: {name: a}
    spec: {storageClassName: fast, resources: {requests: {storage: 10Gi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: ml}
spec: {resources: {requests: {storage: 5Gi}}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: ml}
spec: {type: LoadBalancer, ports: [{port: 80}, {port: 81}]}
---
apiVersion: v1
kind: Secret
metadata: {name: other, namespace: elsewhere}
"""


@pytest.mark.parametrize(
    ("name", "enough", "too_little", "reason"),
    [
        ("cpu", "1500m", "1", "ask for 1.5 cpu"),
        ("requests.memory", "3Gi", "2Gi", "ask for 3Gi memory"),
        ("limits.cpu", "6", "5", "ask for 6 cpu"),
        ("limits.memory", "6Gi", "5Gi", "ask for 6Gi memory"),
        ("requests.nvidia.com/gpu", "3", "2", "ask for 3 nvidia.com/gpu"),
        ("pods", "3", "2", "are 3 pods"),
        ("requests.storage", "35Gi", "34Gi", "ask for 35Gi storage"),
        ("fast.storageclass.storage.k8s.io/requests.storage", "30Gi", "29Gi", "ask for 30Gi storage"),
        ("fast.storageclass.storage.k8s.io/persistentvolumeclaims", "3", "2", "are 3 "),
        ("persistentvolumeclaims", "4", "3", "are 4 persistentvolumeclaims"),
        ("count/statefulsets.apps", "1", "0", "are 1 count/statefulsets.apps"),
        ("count/services", "1", "0", "are 1 count/services"),
        ("services", "1", "0", "are 1 services"),
        ("services.loadbalancers", "1", "0", "are 1 services.loadbalancers"),
        ("services.nodeports", "2", "1", "are 2 services.nodeports"),
        ("secrets", "0", "-1", "are 0 secrets"),
    ],
)
def test_each_thing_that_a_quota_counts(name: str, enough: str, too_little: str, reason: str) -> None:
    documents = read_documents(OBJECTS, source="objects")
    objects = [KubeObject(data=document.value) for document in documents]

    def faults(hard: Any) -> list[str]:
        metadata, spec = {"name": "q", "namespace": "ml"}, {"hard": {name: hard}}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec}
        return [fault.message for fault in over_quota(objects, {"ml": limits_in("ml", [quota])})]

    assert faults(enough) == []
    (message,) = faults(too_little)
    assert reason in message and f"the quota gives {too_little}" in message


# --- deprecated API versions and fields, in files and as applied ---


POD = (
    "{apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {%s}}, spec: {containers: [{name: a}], %s}}"
)
CLAIM = "{apiVersion: resource.k8s.io/v1beta1, kind: ResourceClaim, metadata: {name: a}}"
INGRESS = "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: a, annotations: {%s}}}"
SERVICE = "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {%s}}"
DISK = (
    "{apiVersion: v1, kind: PersistentVolume, metadata: {name: a}, spec: {persistentVolumeReclaimPolicy: %s}}"
)


def warnings(text: str, minor: int, *, is_live: bool = False) -> list[str]:
    obj = KubeObject(data=yaml.safe_load(text), component="it")
    return [f"{fault.path}: {fault.message}" for fault in deprecations([obj], minor, is_live=is_live)]


@pytest.mark.parametrize(
    ("text", "minor", "says"),
    [
        # The API server's own warnings, and the lifecycle of k8s.io/api.
        ("{apiVersion: v1, kind: Endpoints, metadata: {name: a}}", 33, "since Kubernetes 1.33: use Endpoint"),
        ("{apiVersion: v1, kind: Endpoints, metadata: {name: a}}", 32, "from Kubernetes 1.33 on"),
        ("{apiVersion: v1, kind: Endpoints, metadata: {name: a}}", 31, ""),
        (CLAIM, 35, "use `resource.k8s.io/v1`"),
        (CLAIM, 33, ""),
        (
            POD % ("", "volumes: [{name: a, gitRepo: {repository: x}}]"),
            33,
            "does nothing since Kubernetes 1.33",
        ),
        (POD % ("", "volumes: [{name: a, gitRepo: {repository: x}}]"), 31, "is deprecated"),
        (POD % ("", "volumes: [{name: a, rbd: {image: x}}]"), 36, "does nothing since Kubernetes 1.31"),
        (POD % ("", "volumes: [{name: a, emptyDir: {}}]"), 37, ""),
        (POD % ("", "nodeSelector: {beta.kubernetes.io/arch: amd64}"), 36, "use `kubernetes.io/arch`"),
        (POD % ("", "nodeSelector: {kubernetes.io/arch: amd64}"), 36, ""),
        (POD % ("", "serviceAccount: a"), 36, "use `serviceAccountName`"),
        (POD % ("", "serviceAccountName: a"), 36, ""),
        (POD % ("seccomp.security.alpha.kubernetes.io/pod: x", ""), 36, "the field `seccompProfile`"),
        (POD % ("container.apparmor.security.beta.kubernetes.io/a: x", ""), 36, "`appArmorProfile`"),
        (POD % ("example.org/apparmor: x", ""), 36, ""),
        (INGRESS % "kubernetes.io/ingress.class: nginx", 36, "use `ingressClassName`"),
        (DISK % "Recycle", 36, "use `Delete`"),
        (DISK % "Retain", 36, ""),
        (SERVICE % "externalIPs: [10.0.0.1]", 36, "a load balancer or a Gateway"),
        (SERVICE % "externalIPs: [10.0.0.1]", 34, ""),
        (SERVICE % "trafficDistribution: PreferClose", 36, "use `PreferSameZone`"),
        (SERVICE % "trafficDistribution: PreferSameZone", 36, ""),
    ],
)
def test_what_is_deprecated_is_told_from_the_version_before_on(text: str, minor: int, says: str) -> None:
    faults = warnings(text, minor)
    assert (len(faults), says in faults[0]) == (1, True) if says else not faults, faults


def test_what_a_version_does_not_serve_is_told_of_what_is_applied() -> None:
    old = "{apiVersion: flowcontrol.apiserver.k8s.io/v1beta3, kind: FlowSchema, metadata: {name: a}}"
    assert warnings(old, 36) == []  # an error already, of files
    (fault,) = warnings(old, 36, is_live=True)
    assert "not served since Kubernetes 1.32: use `flowcontrol.apiserver.k8s.io/v1`" in fault


@pytest.fixture
def app(tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An app, applied with Endpoints that its files have no more."""
    small_app(tmp_path)
    monkeypatch.chdir(tmp_path / "demo")
    run.ok("env add prod --context minikube --no-preset")
    old = tmp_path / "demo/components/old.yaml"
    old.parent.mkdir(exist_ok=True)
    old.write_text("{apiVersion: v1, kind: Endpoints, metadata: {name: old}}\n")
    run.ok("apply prod --no-wait")
    old.write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: old}}\n")
    return tmp_path / "demo"


def test_live_looks_at_the_set_that_was_last_applied(app: Path, run: Runner) -> None:
    assert run("validate prod").err == ""
    live = run("validate prod --live")
    assert (live.code, "Endpoints of `v1` is deprecated" in live.out) == (0, True)
    assert "(in revision 1)" in live.out
    assert "revision 1, the last applied, was looked at too" in live.err
    (result,) = json.loads(run("validate prod --live -o sarif").out)["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert place == "environments/prod/environment.yaml"  # no other file has it


def test_live_says_where_nothing_was_applied(app: Path, run: Runner) -> None:
    run.ok("env add fresh --context gke --no-preset")
    assert "has no history in its cluster" in run("validate fresh --live").err


def test_another_version_is_asked_by_an_option(app: Path, run: Runner) -> None:
    old = app / "components/old.yaml"
    old.write_text("{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {externalIPs: [10.0.0.1]}}\n")
    assert "externalIPs" in run("validate prod --kubernetes-version 1.36").out
    assert "externalIPs" not in run("validate prod --kubernetes-version v1.34.2").out
    refused = run("validate prod --kubernetes-version 1.99")
    assert refused.code == 2
    assert refused.err.splitlines() == [
        "error: `--kubernetes-version` must be 1.30 to 1.37, got `1.99`",
        "hint: mlstack validate prod --kubernetes-version 1.37",
    ]
