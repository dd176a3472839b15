"""Releases that the real helm has made on a real API server, taken over and kept from then on."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import write_tree
from tests.support.charts import PLATFORM
from tests.support.cluster import TestCluster
from tests.support.shell import Typed
from tests.support.tools import tool

pytestmark = pytest.mark.cluster

CHART = {path: str(text).replace(", namespace: ml", "") for path, text in PLATFORM.items()}
CHART["templates/widget.yaml"] = CHART["templates/widget.yaml"].replace("nothing: null", "nothing: {}")


class Helmed(Typed):
    """Runs command lines of the app, and of the real helm."""

    def __init__(self, capsys: pytest.CaptureFixture[str], kubeconfig: Path) -> None:
        super().__init__(capsys)
        self._kubeconfig = kubeconfig

    def helm(self, line: str, namespace: str) -> Any:
        """Run the real helm; give what it printed, read as JSON."""
        command = [tool("helm"), *line.split(), "-n", namespace, "-o", "json"]
        settings = {**os.environ, "KUBECONFIG": str(self._kubeconfig)}
        return json.loads(subprocess.run(command, env=settings, check=True, capture_output=True).stdout)


@pytest.fixture
def run(
    tmp_path: Path,
    namespace: str,
    kubeconfig: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Helmed:
    """An app beside a release `web` in the namespace of the test."""
    write_tree(tmp_path / "chart", CHART)
    run = Helmed(capsys, kubeconfig)
    monkeypatch.chdir(tmp_path)
    run.helm("install web ./chart --no-hooks --set global.zone=eu", namespace)
    run("init shop --skip-default-registries")
    monkeypatch.chdir(tmp_path / "shop")
    return run


def path(namespace: str, resource: str) -> str:
    group = "api/v1" if resource.startswith(("configmaps", "secrets")) else "apis/apps/v1"
    return f"/{group}/namespaces/{namespace}/{resource}"


def test_a_release_is_adopted_pruned_and_forgotten_by_helm(
    run: Helmed, minikube: TestCluster, namespace: str, tmp_path: Path
) -> None:
    before = minikube.request("GET", path(namespace, "deployments/web-web"))["metadata"]["uid"]
    run(f"env add dev --no-preset --context minikube -n {namespace}")
    imported = run("import helm --live web --env dev --adopt")
    assert imported["summary"] == "6 of 6 objects equal"
    notes = "\n".join(imported["notes"])
    assert "Job web-migrate (pre-install, pre-upgrade); --hooks keeps those of an install" in notes
    assert "helm keeps no definitions in a release: crds/" in notes
    changes = run("diff dev", code=1)["objects"]
    assert {change["action"] for change in changes} == {"update"}
    fields = {field["path"] for change in changes for field in change["fields"]}
    assert all(field.startswith("metadata.") for field in fields), fields

    assert run("apply dev --yes")["counts"] == {"updated": 6}
    live = minikube.request("GET", path(namespace, "deployments/web-web"))["metadata"]
    assert live["uid"] == before
    assert "meta.helm.sh/release-name" not in live["annotations"]
    assert {entry["manager"] for entry in live["managedFields"]} == {"mlstack", "kube-controller-manager"}
    assert len(minikube.request("GET", path(namespace, "replicasets"))["items"]) == 1
    assert run("apply dev")["counts"] == {"unchanged": 6}

    file = tmp_path / "shop/components/web.yaml"
    first, *rest = file.read_text().split("---\n")
    assert "name: web-cache" in first
    file.write_text("---\n".join(rest))
    assert run("apply dev --yes")["counts"] == {"unchanged": 5, "deleted": 1}
    assert minikube.find(path(namespace, "configmaps/web-cache")) is None

    assert [release["name"] for release in run.helm("list", namespace)] == ["web"]
    assert f"kubectl delete secret -n {namespace} -l owner=helm,name=web" in notes
    records = f"{path(namespace, 'secrets')}?labelSelector=owner%3Dhelm,name%3Dweb"
    minikube.request("DELETE", records)
    assert run.helm("list", namespace) == []
    assert run("apply dev")["counts"] == {"unchanged": 5}


def test_a_release_of_another_namespace_stays_there(
    run: Helmed, minikube: TestCluster, namespace: str
) -> None:
    run("env add dev --no-preset --context minikube -n default")
    run(f"import helm --live web --namespace {namespace} --env dev --adopt")
    assert run("apply dev --yes")["counts"] == {"updated": 6}
    assert minikube.find(path("default", "deployments/web-web")) is None
    run("delete dev --yes")
    assert minikube.find(path(namespace, "configmaps/web-config")) is None


def test_hooks_of_a_chart_run_before_its_objects_and_again_when_they_change(
    run: Helmed, minikube: TestCluster, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tool('helm').parent}{os.pathsep}{os.environ['PATH']}")
    ends = "annotations: {mlstack.dev/test-exit: '{{ .Values.exit }}'}"
    hooks = CHART["templates/hooks.yaml"].replace(
        "{template: {spec", f"{{template: {{metadata: {{{ends}}}, spec"
    )
    hooks = hooks.replace("spec: {template", "spec: {backoffLimit: 0, template")
    upgrade = hooks.partition("---")[0].replace("-migrate", "-late").replace("pre-install,pre", "post")
    files = {"templates/hooks.yaml": hooks, "templates/late.yaml": upgrade}
    write_tree(
        tmp_path / "charts/platform", {**CHART, **files, "crds/widgets.yaml": "", "templates/widget.yaml": ""}
    )
    run(f"env add dev --no-preset --context minikube -n {namespace}")
    run("registry add charts ../charts")
    run("pkg install charts/platform")
    run("generate platform api --exit 3")
    file = Path("components/api.yaml")
    file.write_text(f"{file.read_text()}hooks: apply\n")
    run("apply dev --yes", code=7)
    migrate = f"/apis/batch/v1/namespaces/{namespace}/jobs/api-migrate"
    assert minikube.find(path(namespace, "deployments/api-web")) is None
    run("param set api exit 0")
    counts = run("apply dev --yes")["counts"]
    assert counts["recreated"] == 1
    assert minikube.request("GET", migrate)["status"]["succeeded"] == 1
    assert minikube.find(migrate.replace("api-migrate", "api-late")) is None
    assert set(run("apply dev")["counts"]) == {"unchanged"}
