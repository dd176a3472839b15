"""What `validate` tells of deprecated API versions and fields, in files and as applied."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from mlstack.objects.kube_object import KubeObject
from mlstack.validate.validate import deprecations
from tests.support.cli import Runner
from tests.support.registry import small_app

POD = (
    "{apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {%s}}, spec: {containers: [{name: a}], %s}}"
)
CLAIM = "{apiVersion: resource.k8s.io/v1beta1, kind: ResourceClaim, metadata: {name: a}}"
INGRESS = "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: a, annotations: {%s}}}"
SERVICE = "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {%s}}"
DISK = (
    "{apiVersion: v1, kind: PersistentVolume, metadata: {name: a}, spec: {persistentVolumeReclaimPolicy: %s}}"
)


def told(text: str, minor: int, *, is_live: bool = False) -> list[str]:
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
    faults = told(text, minor)
    assert (len(faults), says in faults[0]) == (1, True) if says else not faults, faults


def test_what_a_version_does_not_serve_is_told_of_what_is_applied() -> None:
    old = "{apiVersion: flowcontrol.apiserver.k8s.io/v1beta3, kind: FlowSchema, metadata: {name: a}}"
    assert told(old, 36) == []  # an error already, of files
    (fault,) = told(old, 36, is_live=True)
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
