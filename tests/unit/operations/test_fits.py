"""`footprint ENV --fits`: whether the cluster of a snapshot had room."""

from __future__ import annotations

import io
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


def warnings(run: Runner) -> list[str]:
    return [fault["message"] for fault in run("validate dev -o json").json["faults"]]


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


@pytest.mark.parametrize("entry", ["pods", "count/pods", "requests.cpu", "count/pods and cpu"])
def test_a_quota_counts_the_pods_of_workloads(run: Runner, app: Path, entry: str) -> None:
    run.ok("env snapshot dev")
    file = app / "environments/dev/cluster.json"
    content = json.loads(file.read_text())
    hard = {"requests.cpu": {"requests.cpu": "5"}, "count/pods and cpu": {"count/pods": "1", "cpu": "6"}}
    file.write_text(json.dumps({**content, "quotas": [{"name": "q", "hard": hard.get(entry, {entry: "1"})}]}))
    row, short = verdict(run, code=1), entry.partition(" ")[0]
    lacking = "6 more, 0 of 5 used" if short == "requests.cpu" else "2 more, 0 of 1 used"
    assert row["verdict"] == "blocked by quota"
    assert row["reason"] == f"exceeded quota: q, for all its pods: {short}: {lacking}"


def test_a_quota_wants_every_container_to_say_what_it_takes(run: Runner, app: Path) -> None:
    run.ok("env snapshot dev")
    file = app / "environments/dev/cluster.json"
    quota = {"name": "q", "hard": {"requests.cpu": "9", "limits.cpu": "9", "memory": "9Gi", "pods": "9"}}
    file.write_text(json.dumps({**json.loads(file.read_text()), "quotas": [quota]}))
    row = verdict(run, code=1)
    assert (row["verdict"], row["reason"]) == (
        "blocked by quota",
        "failed quota: q: must specify limits.cpu for: main; memory for: main",
    )
    assert "failed quota: q: must specify limits.cpu for: main; memory for: main" in warnings(run)
    limits = {"name": "l", "limits": [{"type": "Container", "default": {"cpu": "4", "memory": "1Gi"}}]}
    file.write_text(json.dumps({**json.loads(file.read_text()), "limits": [limits]}))
    assert warnings(run) == []
    limits["limits"] = [{"type": "Container", "default": {"memory": "1Gi"}, "max": {"cpu": "2"}}]
    file.write_text(json.dumps({**json.loads(file.read_text()), "limits": [limits]}))
    assert "maximum cpu usage per Container is 2, but request is 3" in warnings(run)
    # What the app brings itself takes the place of what the cluster has under that name.
    spec = {"limits": [{"type": "Container", "default": {"cpu": "4", "memory": "1Gi"}}]}
    own = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": spec}
    write_tree(app, {"components/limits.json": json.dumps(own)})
    assert (warnings(run), verdict(run, code=1)["verdict"]) == ([], "never")  # no node has memory


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
    for odd in ({"nodes": [[]]}, {"nodes": [{"allocatable": 7}]}, {"limits": [{"name": "l", "limits": -1}]}):
        file.write_text(json.dumps({**content, **odd}))
        assert "mlstack env snapshot dev" in run("validate dev").err
    file.write_text("{}")
    assert run("footprint dev --fits environments/dev/cluster.json").code == 3


def test_what_it_cannot_know_is_not_claimed(run: Runner, app: Path) -> None:
    run.ok("env snapshot dev")
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    for field, value, reason in (
        ("schedulerName", "volcano", "scheduler volcano places it"),
        ("runtimeClassName", "gvisor", "its runtime class may add to what it asks for"),
        ("nodeSelector", {"kubernetes.io/hostname": "n1"}, "which the snapshot does not hold"),
        ("volumes", [claim], "claim data may be bound"),
    ):
        write_tree(app, {"components/web.json": with_pod(1, **{field: value})})
        row = verdict(run, code=0)
        assert row["verdict"] == "not known" and reason in row["reason"]


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


def with_pod(count: int, cpu: str = "1", **spec: Any) -> str:
    body = json.loads(deployment(count, cpu=cpu))
    body["spec"]["template"]["spec"] |= spec
    return json.dumps(body)


def planned(run: Runner, *, code: int = 0) -> list[dict[str, Any]]:
    ran = run("plan dev --check-capacity -o json")
    assert ran.code == code, ran
    return list(ran.json["capacity"])


def apart(label: str = "web", key: str = "kubernetes.io/hostname") -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": label}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.fixture
def dev(run: Runner, app: Path) -> Runner:
    """The app, and its namespace in the cluster."""
    run.cluster("minikube").create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dev"}})
    return run


def test_pods_that_keep_each_other_away_need_a_node_each(dev: Runner, app: Path) -> None:
    write_tree(app, {"components/web.json": with_pod(2, affinity=apart())})
    assert [row["verdict"] for row in planned(dev)] == ["fits now"]
    write_tree(app, {"components/web.json": with_pod(3, affinity=apart())})
    (row,) = planned(dev, code=1)
    assert (row["verdict"], row["reason"]) == (
        "does not fit now",
        "room for 2 of 3 pods, then 0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules",
    )
    write_tree(app, {"components/web.json": with_pod(2, affinity=apart("old"))})
    spec = {"nodeName": "n2", "containers": [{"name": "a"}]}
    metadata = {"name": "old", "namespace": "dev", "labels": {"app": "old"}}
    dev.cluster("minikube").create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    assert planned(dev)[0]["verdict"] == "fits now"  # both on the other node
    write_tree(app, {"components/web.json": with_pod(2, cpu="3", affinity=apart("old"))})
    assert "1 node(s) didn't match pod anti-affinity rules" in planned(dev, code=1)[0]["reason"]


def test_pods_that_are_spread_need_room_in_every_domain(dev: Runner, app: Path) -> None:
    rule = {
        "topologyKey": "kubernetes.io/hostname",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    write_tree(app, {"components/web.json": with_pod(8, topologySpreadConstraints=[rule])})
    assert planned(dev)[0]["verdict"] == "fits now"
    spec = {"nodeName": "n2", "containers": [{"name": "a", "resources": {"requests": {"cpu": "3"}}}]}
    metadata = {"name": "old", "namespace": "dev"}
    dev.cluster("minikube").create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    write_tree(app, {"components/web.json": with_pod(4, topologySpreadConstraints=[rule])})
    (row,) = planned(dev, code=1)
    assert row["reason"].startswith("room for 3 of 4 pods, then 0/2 nodes are available: ")
    assert "1 node(s) didn't match pod topology spread constraints" in row["reason"]


def test_limit_ranges_fill_in_and_refuse(run: Runner, app: Path) -> None:
    rules = [{"type": "Container", "defaultRequest": {"cpu": "3"}, "max": {"cpu": "3"}}]
    ranges = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "team", "namespace": "dev"}}
    run.cluster("minikube").create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dev"}})
    run.cluster("minikube").create({**ranges, "spec": {"limits": rules}})
    run.ok("env snapshot dev")
    write_tree(app, {"components/web.json": deployment(3)})
    row = verdict(run, code=1)
    assert (row["verdict"], "room for 2 of 3 pods" in row["reason"]) == ("does not fit now", True)
    body = json.loads(deployment(1))
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "4"}}
    write_tree(app, {"components/web.json": json.dumps(body)})
    row = verdict(run, code=1)
    assert (row["verdict"], row["reason"]) == (
        "blocked by quota",
        "maximum cpu usage per Container is 3, but limit is 4",
    )


def test_karpenter_may_add_nodes_of_any_size(dev: Runner, app: Path) -> None:
    write_tree(app, {"components/web.json": deployment(1, cpu="16")})
    assert planned(dev, code=1)[0]["verdict"] == "never"
    names = {"plural": "nodepools", "singular": "nodepool", "kind": "NodePool"}
    version = {"name": "v1", "served": True, "storage": True}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    spec = {"group": "karpenter.sh", "scope": "Cluster", "names": names}
    dev.cluster("minikube").create(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "nodepools.karpenter.sh"},
            "spec": {**spec, "versions": [{**version, "schema": schema}]},
        }
    )
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "gpus"}, "spec": {}}
    dev.cluster("minikube").create(pool)
    (row,) = planned(dev)
    assert (row["verdict"], "nodes of Karpenter's gpus" in row["reason"]) == ("not known", True)
    ref = ObjectRef("karpenter.sh/v1", "NodePool", "", "gpus")
    full = {"spec": {"limits": {"cpu": "8"}}, "status": {"resources": {"cpu": "8"}}}
    dev.cluster("minikube").patch(ref, full)
    assert planned(dev, code=1)[0]["verdict"] == "never"


def test_what_an_operator_makes_is_never_promised(run: Runner, app: Path) -> None:
    template = json.loads(deployment(1, cpu="1"))["spec"]["template"]
    replicas = {"Worker": {"replicas": 2, "template": template}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "train"}}
    write_tree(app, {"components/web.json": json.dumps({**job, "spec": {"tfReplicaSpecs": replicas}})})
    run.ok("env snapshot dev")
    row = verdict(run, code=0)
    assert (row["verdict"], row["pods"]) == ("may fit", 2)
    replicas["Worker"]["replicas"] = 9  # a gang: all or nothing
    replicas["Worker"]["template"]["spec"]["schedulerName"] = "volcano"
    write_tree(app, {"components/web.json": json.dumps({**job, "spec": {"tfReplicaSpecs": replicas}})})
    row = verdict(run, code=0)
    assert (row["verdict"], "room for 8 of 9 pods" in row["reason"]) == ("not known", True)


def test_a_snapshot_may_come_from_a_pipe(run: Runner, app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run.ok("env snapshot dev")
    text = (app / "environments/dev/cluster.json").read_text()
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    ran = run("footprint dev --fits - -o json")
    assert (ran.code, ran.json["workloads"][0]["verdict"]) == (0, "fits now")
    monkeypatch.setattr("sys.stdin", io.StringIO("{}"))
    ran = run("footprint dev --fits -")
    assert (ran.code, "stdin" in ran.err) == (3, True), ran


def test_a_rollback_is_judged_too(dev: Runner, app: Path) -> None:
    dev.ok("apply dev --no-wait --yes")
    write_tree(app, {"components/web.json": deployment(1, cpu="1")})
    dev.ok("apply dev --no-wait --yes")
    node = {"status": {"allocatable": {"cpu": "2", "pods": "10"}}}
    for name in ("n1", "n2"):
        dev.cluster("minikube").patch(ObjectRef("v1", "Node", "", name), node, subresource="status")
    ran = dev("rollback dev --check-capacity --no-wait --yes")
    assert (ran.code, "never" in ran.err, "nothing was written" in ran.err) == (6, True, True), ran
