"""`footprint ENV --fits`: whether the cluster of a snapshot had room."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlstack.kube.client import ObjectRef
from tests.support.builders import write_tree
from tests.support.cli import Runner

APP = {
    "app.yaml": "apiVersion: mlstack.dev/v1\nkind: App\nname: demo\n",
    "environments/dev/environment.yaml": "apiVersion: mlstack.dev/v1\nkind: Environment\ncontext: minikube\n"
    "namespace: dev\n",
}
NODE = {"apiVersion": "v1", "kind": "Node"}
READY = [{"type": "Ready", "status": "True"}]


def deployment(count: int, **requests: str) -> str:
    container = {"name": "main", "image": "a:1", "resources": {"requests": requests}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    body = {"replicas": count, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    web = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": body}
    return json.dumps(web)


@pytest.fixture
def app(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_tree(tmp_path, {**APP, "components/web.json": deployment(2, cpu="3")})
    monkeypatch.chdir(tmp_path)
    cluster = run.cluster("minikube")
    for name in ("n1", "n2"):
        labels = {"pool": "a", "kubernetes.io/hostname": name}
        cluster.create({**NODE, "metadata": {"name": name, "labels": labels}})
        status = {"allocatable": {"cpu": "4", "pods": "10"}, "conditions": READY}
        cluster.patch(ObjectRef("v1", "Node", "", name), {"status": status}, subresource="status")
    return tmp_path


def verdict(run: Runner, *, code: int) -> dict[str, Any]:
    ran = run("footprint dev --fits environments/dev/cluster.json -o json")
    assert ran.code == code
    (row,) = ran.json["workloads"]
    return dict(row)


def test_what_runs_and_what_quotas_leave_decide(run: Runner, app: Path) -> None:
    run.ok("env snapshot dev")
    assert verdict(run, code=0)["verdict"] == "fits now"
    spec = {"nodeName": "n2", "containers": [{"name": "a", "resources": {"requests": {"cpu": "2"}}}]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "old", "namespace": "default"},
        "spec": spec,
    }
    run.cluster("minikube").create(pod)
    assert run("env snapshot dev --check").code == 0  # what runs moves all the time
    run.ok("env snapshot dev")
    row = verdict(run, code=1)
    assert row["verdict"] == "does not fit now"
    assert row["reason"] == (
        "room for 1 of 2 pods, then 0/2 nodes are available: 2 Insufficient cpu;"
        " a pod asks for 3 cpu, no node has left more than 2"
    )
    write_tree(app, {"components/web.json": deployment(2, cpu="5")})
    row = verdict(run, code=1)
    assert row["verdict"] == "never"
    assert row["reason"].endswith("2 Insufficient cpu; a pod asks for 5 cpu, no node has more than 4")
    out = run("footprint dev --fits environments/dev/cluster.json").out
    assert "never: Deployment dev/web (web), 2 pods" in out and max(map(len, out.splitlines())) <= 80


def test_a_snapshot_without_pods_or_quota_says_so(run: Runner, app: Path) -> None:
    run.ok("env snapshot dev")
    file = app / "environments/dev/cluster.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "quotas": [{"name": "q", "hard": {"cpu": "5"}}]}))
    assert verdict(run, code=1)["reason"] == "exceeded quota: q, for all its pods: cpu: 6 more, 0 of 5 used"
    file.write_text(json.dumps({**content, "room": None}))
    row = verdict(run, code=0)
    assert (row["verdict"], row["reason"]) == ("not known", "the snapshot does not say what runs")
    assert run("footprint dev --fits nothing.json").code == 4
    for odd in ({"nodes": "many"}, {"nodes": [{"shape": 7, "count": 1, "free": {}}]}, [], {"pools": [{}]}):
        file.write_text(json.dumps({**content, "room": odd or ["odd"]}))
        ran = run("footprint dev --fits environments/dev/cluster.json")
        assert (ran.code, "mlstack env snapshot dev" in ran.err) == (3, True)
    file.write_text("{}")
    assert run("footprint dev --fits environments/dev/cluster.json").code == 3


def test_what_it_cannot_know_is_not_claimed(run: Runner, app: Path) -> None:
    run.ok("env snapshot dev")
    body = json.loads(deployment(1, cpu="1"))
    for field, words in {
        "schedulerName": ("volcano", "scheduler volcano places it"),
        "runtimeClassName": ("gvisor", "its runtime class may add to what it asks for"),
        "nodeSelector": ({"kubernetes.io/hostname": "n1"}, "which the snapshot does not hold"),
        "volumes": (
            [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
            "claim data may be bound",
        ),
    }.items():
        spec = {**body["spec"]["template"]["spec"], field: words[0]}
        template = {**body["spec"]["template"], "spec": spec}
        write_tree(
            app, {"components/web.json": json.dumps({**body, "spec": {**body["spec"], "template": template}})}
        )
        row = verdict(run, code=0)
        assert row["verdict"] == "not known" and words[1] in row["reason"]


def test_apply_and_plan_say_no_before_anything_is_written(run: Runner, app: Path) -> None:
    write_tree(app, {"components/web.json": deployment(3, cpu="3")})
    run.cluster("minikube").create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dev"}})
    ran = run("plan dev --check-capacity --out plan.json")
    assert (ran.code, (app / "plan.json").exists()) == (1, False)
    assert "does not fit now: Deployment dev/web (web), 3 pods" in ran.out
    ran = run("apply dev --check-capacity --no-wait")
    assert (ran.code, "nothing was written" in ran.err, "room for 2 of 3 pods" in ran.err) == (6, True, True)
    ref = ObjectRef("apps/v1", "Deployment", "dev", "web")
    assert run.cluster("minikube").get(ref) is None
    write_tree(app, {"components/web.json": deployment(2, cpu="3")})
    assert run("plan dev --check-capacity").code == 0
    assert run("apply dev --check-capacity --no-wait").code == 0
    assert run.cluster("minikube").get(ref) is not None
