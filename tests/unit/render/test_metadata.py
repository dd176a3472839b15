"""Labels and annotations of app and environment, and the hash that restarts what reads a changed setting."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.errors import ConfigError, SchemaError
from mlstack.render import render
from tests.support.builders import MINIMAL_APP, write_tree

WEB = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {tier: own}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      imagePullSecrets: [{name: pull}]
      containers: [{name: c, image: nginx, envFrom: [{configMapRef: {name: conf}}, {secretRef: {name: key}}]}]
"""
CONF = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {level: info}
---
apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {password: hidden}
---
apiVersion: v1
kind: Secret
metadata: {name: pull}
stringData: {login: hidden}
"""
JOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: train}
spec:
  tfReplicaSpecs:
    Worker:
      template:
        spec:
          containers: [{name: tensorflow, image: tf, envFrom: [{configMapRef: {name: conf}}]}]
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    environment = "apiVersion: mlstack.dev/v1\nkind: Environment\ncontext: c\n"
    tree = {"app.yaml": MINIMAL_APP, "environments/dev/environment.yaml": environment}
    components = {"web": WEB, "conf": CONF, "train": JOB}
    return write_tree(
        tmp_path, {**tree, **{f"components/{name}.yaml": text for name, text in components.items()}}
    )


def add(root: Path, file: str, text: str) -> None:
    (root / file).write_text((root / file).read_text() + text)


def objects(root: Path, *components: str) -> dict[str, Mapping[str, Any]]:
    state = render.load(AppDir(root), "dev", components=components)
    return {f"{obj.kind}/{obj.name}": obj.data for obj in state.objects}


def config_hash(root: Path, name: str = "Deployment/web", *components: str) -> str | None:
    template = objects(root, *components)[name]["spec"]["template"]
    value = (template.get("metadata", {}).get("annotations") or {}).get("mlstack.dev/config-hash")
    return None if value is None else str(value)


def test_labels_and_annotations_reach_every_object_and_the_environment_wins(root: Path) -> None:
    add(root, "app.yaml", "labels: {team: app, tier: app, cost: a}\nannotations: {owner: app, note: app}\n")
    add(
        root,
        "environments/dev/environment.yaml",
        "labels: {team: dev, cost: null}\nannotations: {owner: dev}\n",
    )
    every = objects(root)
    for name, data in every.items():
        labels, annotations = data["metadata"]["labels"], data["metadata"]["annotations"]
        assert (labels["team"], annotations) == ("dev", {"owner": "dev", "note": "app"}), name
        assert "cost" not in labels
    assert (
        every["Deployment/web"]["metadata"]["labels"]["tier"] == "own"
    )  # the object's word is more specific
    assert every["ConfigMap/conf"]["metadata"]["labels"]["tier"] == "app"
    assert every["Deployment/web"]["spec"]["template"]["metadata"]["labels"] == {"app": "web"}


def test_pods_of_workloads_and_custom_resources_get_theirs_and_selectors_nothing(root: Path) -> None:
    add(root, "app.yaml", "podLabels: {team: ml, app: other}\npodAnnotations: {scrape: 'true'}\n")
    every = objects(root)
    web, train = every["Deployment/web"]["spec"], every["TFJob/train"]["spec"]["tfReplicaSpecs"]["Worker"]
    assert web["selector"] == {"matchLabels": {"app": "web"}}
    assert web["template"]["metadata"]["labels"] == {"team": "ml", "app": "web"}
    assert web["template"]["metadata"]["annotations"]["scrape"] == "true"
    assert train["template"]["metadata"] == {
        "labels": {"team": "ml", "app": "other"},
        "annotations": {"scrape": "true"},
    }
    assert "team" not in every["Deployment/web"]["metadata"]["labels"]


def test_an_environment_that_extends_another_adds_to_its_labels(root: Path) -> None:
    add(root, "environments/dev/environment.yaml", "labels: {a: dev, b: dev}\n")
    text = "apiVersion: mlstack.dev/v1\nkind: Environment\nextends: dev\nlabels: {b: child}\n"
    write_tree(root, {"environments/child/environment.yaml": text})
    state = render.load(AppDir(root), "child")
    assert {(obj.labels["a"], obj.labels["b"]) for obj in state.objects} == {("dev", "child")}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("labels: {team: a b}", "`labels.team` must match"),
        ("labels: {team: 5}", "`labels.team` must be a string"),
        ("labels: {a b: c}", "`labels` must match"),
        (f"labels: {{team: {'x' * 64}}}", "`labels.team` must have at most 63"),
        ("podLabels: {mlstack.dev/app: x}", r"`podLabels.mlstack\.dev/app` must not be"),
    ],
)
def test_what_cannot_be_a_label_is_refused_with_its_line(root: Path, line: str, message: str) -> None:
    add(root, "app.yaml", f"{line}\n")
    with pytest.raises(SchemaError) as caught:
        objects(root)
    assert message in caught.value.message
    number = (root / "app.yaml").read_text().count("\n")
    assert f"(app.yaml:{number})" in caught.value.message


@pytest.mark.parametrize(
    ("old", "new"), [("level: info", "level: debug"), ("password: hidden", "password: x")]
)
def test_a_changed_setting_changes_the_pods_that_read_it(root: Path, old: str, new: str) -> None:
    before = config_hash(root)
    assert before is not None
    assert config_hash(root) == before
    assert config_hash(root, "Deployment/web", "web") == before  # whatever else was asked for
    (root / "components/conf.yaml").write_text(CONF.replace(old, new))
    assert config_hash(root) not in (before, None)


def test_what_pods_do_not_read_changes_no_hash(root: Path) -> None:
    before = config_hash(root)
    (root / "components/conf.yaml").write_text(CONF.replace("login: hidden", "login: x"))
    add(root, "app.yaml", "labels: {a: b}\n")
    assert config_hash(root) == before
    (root / "components/conf.yaml").unlink()
    assert config_hash(root) is None


def test_a_running_job_is_left_as_it_is_and_so_is_what_asks_for_it(root: Path) -> None:
    assert "metadata" not in objects(root)["TFJob/train"]["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    text = WEB.replace("labels: {tier: own}", 'annotations: {mlstack.dev/restart-on-config: "false"}')
    (root / "components/web.yaml").write_text(text)
    assert config_hash(root) is None
    (root / "components/web.yaml").write_text(text.replace('"false"', '"no"'))
    with pytest.raises(ConfigError, match='must be "true" or "false", got "no"'):
        objects(root)


def test_a_broken_component_beside_does_not_matter(root: Path) -> None:
    before = config_hash(root, "Deployment/web", "web")
    (root / "components/broken.yaml").write_text("kind: [\n")
    assert config_hash(root, "Deployment/web", "web") == before
