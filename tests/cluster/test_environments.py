"""Renamed components, several environments and those that are over, on real API servers."""

import json
from pathlib import Path

import pytest

from tests.support.builders import write_tree
from tests.support.cluster import TestCluster
from tests.support.imports import modules, own
from tests.support.registry import small_app
from tests.support.shell import Typed

pytestmark = pytest.mark.cluster


@pytest.fixture
def run(
    tmp_path: Path,
    namespace: str,
    kubeconfig: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Typed:
    app = small_app(tmp_path)
    monkeypatch.chdir(app.root)
    run = Typed(capsys)
    run("generate web front --image nginx")
    run("generate web back --image nginx")
    for context in ("minikube", "gke"):
        run(f"env add {context} --no-preset --context {context} -n {namespace}")
    return run


def test_a_snapshot_tells_version_kinds_and_nodes(run: Typed, gke: TestCluster, namespace: str) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}}
    gke.request("POST", f"/api/v1/namespaces/{namespace}/resourcequotas", quota)
    taken = run("env snapshot gke")
    assert (taken["version"].startswith("v1."), taken["gpus"] >= 6, taken["quotas"]) == (True, True, 1)
    snapshot = json.loads(Path("environments/gke/cluster.json").read_text())
    assert "Deployment" in snapshot["apis"]["apps/v1"]
    assert run("env snapshot gke --check")["ok"]
    assert run("validate gke")["ok"]
    run("doctor gke")


WORKLOAD = """\
apiVersion: apps/v1
kind: {kind}
metadata: {{name: {name}{annotations}}}
spec:
  {more}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers:
      - {{name: main, image: nginx, envFrom: [{{{reads}}}]}}
---
"""
LEFT_OUT = ', annotations: {mlstack.dev/restart-on-config: "false"}'
CONFIG_MAP, SECRET = "configMapRef: {name: settings}", "secretRef: {name: keys}"
ROWS = {  # name: kind, what it has besides, what it reads
    "reader": ("Deployment", "", CONFIG_MAP),
    "stateful": ("StatefulSet", "", CONFIG_MAP),
    "other": ("Deployment", "", SECRET),
    "left-out": ("Deployment", LEFT_OUT, CONFIG_MAP),
}


def configured(app: Path, level: str, key: str) -> None:
    """Write a component of workloads with the settings that they read."""
    text = "".join(
        WORKLOAD.format(
            kind=kind,
            name=name,
            annotations=more,
            reads=reads,
            more="serviceName: none" if kind == "StatefulSet" else "replicas: 1",
        )
        for name, (kind, more, reads) in ROWS.items()
    )
    text += f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings}}\ndata: {{LEVEL: {level}}}\n---\n"
    text += f"apiVersion: v1\nkind: Secret\nmetadata: {{name: keys}}\nstringData: {{KEY: {key}}}\n"
    write_tree(app, {"components/work.yaml": text})


def generations(cluster: TestCluster, namespace: str) -> dict[str, int]:
    """Give how often the specification of each workload has changed."""
    numbers = {}
    for name, (kind, _, _) in ROWS.items():
        path = f"/apis/apps/v1/namespaces/{namespace}/{kind.lower()}s/{name}"
        numbers[name] = cluster.find(path)["metadata"]["generation"]
    return numbers


def test_a_changed_setting_restarts_exactly_what_reads_it(
    run: Typed, minikube: TestCluster, namespace: str
) -> None:
    configured(Path(), "info", "one")
    run("apply minikube -c work --no-wait")
    before = generations(minikube, namespace)
    configured(Path(), "debug", "one")
    run("apply minikube -c work --no-wait --yes")
    after = generations(minikube, namespace)
    assert {name for name in ROWS if after[name] > before[name]} == {"reader", "stateful"}
    configured(Path(), "debug", "two")
    run("apply minikube -c work --no-wait --yes")
    last = generations(minikube, namespace)
    assert {name for name in ROWS if last[name] > after[name]} == {"other"}


def test_labels_of_later_change_nothing_that_is_immutable(
    run: Typed, minikube: TestCluster, namespace: str
) -> None:
    configured(Path(), "info", "one")
    job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: once}\nspec:\n  template:\n    spec:\n"
    job += "      restartPolicy: Never\n      containers: [{name: main, image: nginx}]\n"
    write_tree(Path(), {"components/job.yaml": job})
    run("apply minikube -c work -c job --no-wait")
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/reader"
    uid = minikube.find(path)["metadata"]["uid"]
    run("app set --label team=core --annotation x.io/owner=ml")
    run("env set minikube --label cost=1")
    assert set(run("apply minikube -c work -c job --no-wait")["counts"]) == {"updated"}
    run("env set minikube --pod-label app=stolen --pod-label zone=eu")
    assert set(run("apply minikube -c work --no-wait")["counts"]) == {"updated", "unchanged"}
    run("apply minikube -c job --no-wait", code=2)  # pods of a job that is there: a new job, which is asked
    live = minikube.find(path)
    assert (live["metadata"]["uid"], live["metadata"]["labels"]["team"]) == (uid, "core")
    assert live["spec"]["selector"] == {"matchLabels": {"app": "reader"}}
    assert live["spec"]["template"]["metadata"]["labels"] == {"app": "reader", "zone": "eu"}


def test_two_applies_and_a_status_load_few_modules(run: Typed) -> None:
    lines = ("apply minikube --yes", "apply minikube --yes", "status minikube")
    assert [own(modules(Path(), *line.split())) for line in lines] == [75, 73, 70]
