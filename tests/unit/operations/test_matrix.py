"""Several environments side by side, and what a cluster is kept as."""

import json
from pathlib import Path

import pytest

from mlstack.kube.client import ObjectRef
from tests.support.builders import read_tree, write_tree
from tests.support.cli import Runner
from tests.support.registry import small_app

JOB = """\
    apiVersion: batch/v1
    kind: Job
    metadata: {name: train}
    spec:
      parallelism: 2
      template:
        spec:
          restartPolicy: Never
          containers:
          - name: main
            image: train:1
            resources: {limits: {nvidia.com/gpu: 4, memory: 1Gi}}
    """
PATCH = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: train}\nspec: {parallelism: 8}\n"


@pytest.fixture
def app(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    app_dir = small_app(tmp_path)
    monkeypatch.chdir(app_dir.root)
    run.ok("generate web front --image nginx --token s3cret")
    for name in ("dev", "prod", "test"):
        run.ok(f"env add {name} --no-preset -n {name}")
    return write_tree(
        app_dir.root, {"components/train.yaml": JOB, "environments/prod/patches/train.yaml": PATCH}
    )


def rows(run: Runner, words: str = "") -> dict[str, list[object]]:
    document = run(f"env matrix {words} -o json").json
    return {f"{row['section']} {row['subject']}": [*row["values"].values()] for row in document["rows"]}


def test_parameters_images_replicas_and_gpus_stand_side_by_side(run: Runner, app: Path) -> None:
    run.ok("param set --env=prod front replicas 3")
    run.ok("param set --env=test front token other")
    run.ok("param set --env=dev front replicas 7 --override")  # one person's, which is no difference of files
    table = rows(run)
    assert table == {
        "param front replicas": [1, 3, 1],
        "param front token": ["********", "********", "******** (another)"],
        "replicas train Job train": [2, 8, 2],
        "gpus train Job train": [8, 32, 8],
    }
    assert run("env matrix").code == 1
    assert rows(run, "dev test --same")["image train Job train main"] == ["train:1", "train:1"]
    assert (run("env matrix dev test -c train").code, rows(run, "dev test -c train")) == (0, {})


def test_approved_differences_are_no_fault(run: Runner, app: Path) -> None:
    run.ok("env matrix --approve 'production is larger'")
    assert run("env matrix").code == 0
    run.ok("param set --env=prod front color green")
    ran = run("env matrix -o json")
    assert (ran.code, [row["subject"] for row in ran.json["rows"] if not row["approved"]]) == (
        1,
        ["front color"],
    )
    text = (app / "environments/approved-differences.yaml").read_text()
    (app / "environments/approved-differences.yaml").write_text(text + "- subject: front *\n")
    assert run("env matrix").code == 0
    assert "production is larger" in run.ok("env matrix")


def test_one_environment_has_nothing_to_be_compared_with(run: Runner, app: Path) -> None:
    assert run("env matrix dev").code == 2
    assert run("env matrix dev nope").code == 4


def test_a_snapshot_serves_offline_validation(run: Runner, app: Path) -> None:
    cluster = run.cluster("minikube")
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    cluster.create(node)
    room = {"nvidia.com/gpu": "2", "memory": "8Gi", "cpu": "4"}
    cluster.patch(ObjectRef("v1", "Node", "", "n1"), {"status": {"allocatable": room}}, subresource="status")
    run.ok("env snapshot dev")
    snapshot = json.loads((app / "environments/dev/cluster.json").read_text())
    assert (snapshot["version"], snapshot["nodes"][0]["count"]) == ("v1.36.0", 1)
    assert "Deployment" in snapshot["apis"]["apps/v1"]
    ran = run("validate dev -o json")
    assert [fault["severity"] for fault in ran.json["faults"]] == ["warning"]
    assert "no node has more than 2" in ran.json["faults"][0]["message"]
    before = read_tree(app)
    assert run("env snapshot dev --check").code == 0
    cluster.create({**node, "metadata": {"name": "n2"}})
    assert (run("env snapshot dev --check").code, read_tree(app)) == (1, before)


def test_what_a_cluster_does_not_serve_is_a_fault(run: Runner, app: Path) -> None:
    run.ok("env snapshot dev")
    file = app / "environments/dev/cluster.json"
    content = json.loads(file.read_text())
    content["apis"]["batch/v1"] = ["CronJob"]
    content["quotas"] = [{"name": "q", "hard": {"requests.nvidia.com/gpu": "4"}}]
    file.write_text(json.dumps(content))
    faults = run("validate dev -o json").json["faults"]
    assert [(fault["object"], fault["severity"]) for fault in faults] == [
        ("Job dev/train", "error"),
        ("ResourceQuota dev/q", "warning"),
    ]
    assert "ResourceQuota dev/q: spec.hard" in run("validate dev").out  # of no component
    assert '"dev/ResourceQuota dev/q: spec.hard' in run("validate dev -o sarif").out
    file.write_text("{}")
    ran = run("validate dev")
    assert (ran.code, "mlstack env snapshot dev" in ran.err) == (3, True)


def test_definitions_of_a_snapshot_check_custom_resources(run: Runner, app: Path) -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": INT}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"}
    spec = {"group": "a.com", "scope": "Namespaced", "names": names, "versions": [version]}
    definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    run.cluster("minikube").create({**definition, "metadata": {"name": "widgets.a.com"}, "spec": spec})
    widget = "apiVersion: a.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: big}\n"
    write_tree(app, {"components/widget.yaml": widget})
    assert "no CustomResourceDefinition" in run("validate dev -c widget").out
    run.ok("env snapshot dev")
    ran = run("validate dev -c widget")
    assert (ran.code, "spec.size: must be a whole number" in ran.out) == (1, True)
    file = app / "environments/dev/cluster.json"
    file.write_text(file.read_text().replace('"type": "object"', '"type": 7'))
    assert "kind: is not checked: its definition is broken" in run.ok("validate dev -c widget")


INT = {"type": "integer"}
