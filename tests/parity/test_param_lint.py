"""`param lint`: what could go from an app's parameters and patches."""

from pathlib import Path

import pytest

from tests.support.builders import write_tree
from tests.support.cli import Runner
from tests.support.registry import small_app


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Runner) -> Path:
    """An app with the components `web`, `shop.cart` and two environments."""
    root = small_app(tmp_path).root
    monkeypatch.chdir(root)
    for line in (
        "generate web web --image nginx",
        "generate web shop.cart --image nginx",
        "env add gke --no-preset",
        "env add minikube --no-preset",
    ):
        assert run(line).code == 0
    return root


def findings(run: Runner, *words: str) -> list[tuple[str, str, str, str]]:
    ran = run("param", "lint", "-o", "json", *words)
    assert ran.code == (0 if ran.json["ok"] else 1), ran.err
    rows = ran.json["findings"]
    return [(row["kind"], row["component"], row["name"], row["where"].partition(":")[0]) for row in rows]


def test_a_sound_app_has_no_findings(app: Path, run: Runner) -> None:
    for words in ("--env gke color green", "--env gke web replicas 3", "shop.cart color green"):
        run(f"param set {words}")
    assert findings(run) == []
    assert run("param lint").out == "every value and patch has an effect in 2 environments\n"


def test_what_says_the_same_as_the_layer_below(app: Path, run: Runner) -> None:
    run("param set web replicas 1")
    run("param set --env gke web image nginx")
    assert findings(run) == [
        ("same", "web", "replicas", "components/web.yaml"),
        ("same", "web", "image", "environments/gke/params.yaml"),
    ]
    assert [row[2] for row in findings(run, "-c", "shop")] == []
    table = run("param lint")
    assert (table.code, "components/web.yaml:6" in table.out) == (1, True)


def test_what_other_values_hide_everywhere(app: Path, run: Runner) -> None:
    run("param set web replicas 2")
    for environment in ("gke", "minikube"):
        run(f"param set --env {environment} web replicas 3")
    assert findings(run) == [("hidden", "web", "replicas", "components/web.yaml")]


def test_what_reaches_no_object(app: Path, run: Runner) -> None:
    run("param set web debug true")  # no template looks at it
    assert findings(run) == [("no effect", "web", "debug", "components/web.yaml")]


def test_what_nobody_takes(app: Path, run: Runner) -> None:
    run("env set gke --target shop")
    run("param set --env gke web replicas 3")
    file = app / "app.yaml"
    file.write_text(file.read_text() + "params: {colour: red}\n")
    assert findings(run) == [
        ("unused", "", "colour", "app.yaml"),
        ("unused", "web", "replicas", "environments/gke/params.yaml"),
    ]


def test_patches_without_effect(app: Path, run: Runner) -> None:
    run("env set gke --target shop")
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME}\n"
    write_tree(
        app,
        {
            "environments/gke/patches/web.yaml": head.replace("NAME", "web") + "data: {a: b}\n",
            "environments/gke/patches/shop.cart.yaml": head.replace("NAME", "cart") + "data: {color: red}\n",
            "environments/minikube/patches/web.yaml": head.replace("NAME", "web") + "data: {a: b}\n",
        },
    )
    assert findings(run) == [
        ("patch", "shop.cart", "ConfigMap cart", "environments/gke/patches/shop.cart.yaml"),
        ("patch", "web", "ConfigMap web", "environments/gke/patches/web.yaml"),
    ]


def test_a_line_that_one_of_two_spellings_needs_and_those_of_presets_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Runner
) -> None:
    monkeypatch.chdir(tmp_path)
    run.ok("init real")
    monkeypatch.chdir(tmp_path / "real")
    for line in (
        "pkg install kubeflow/tf-job kubeflow/tf-serving",
        "generate tf-cnn cnn --num_gpus 2",
        "generate tf-serving served --model_path gs://a/b",  # calls it `numGpus`, and has none anyhow
        "env add minikube --no-preset",
        "param set --env minikube num_gpus 0",
        "env add gke",
    ):
        run.ok(line)
    assert findings(run) == []
