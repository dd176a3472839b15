"""Rows A10, A11 and C25: files of other versions, `upgrade`, and `import`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import Runner

COMMANDS = [
    "env list",
    "env add dev",
    "env describe dev",
    "env set dev --namespace x",
    "component list",
    "component rm x",
    "generate web x",
    "param set x a 1",
    "pkg list --installed",
    "registry list",
    "render dev",
    "validate dev",
    "init again --dir .",
    "import web.yaml",
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("head", "message", "hint"),
    [
        ("apiVersion: mlstack.dev/v2\nkind: App\n", "a newer mlstack wrote", ""),
        ("apiVersion: mlstack.dev/v1alpha1\nkind: App\n", "this mlstack reads", "mlstack upgrade"),
        ("apiVersion: 0.3.0\nkind: ksonnet.io/app\n", "an app of ksonnet", "mlstack import ksonnet-app"),
    ],
    ids=["newer", "older", "ksonnet"],
)
def test_a10_every_command_refuses_the_app_of_another(
    run: Runner, command: str, head: str, message: str, hint: str
) -> None:
    Path("app.yaml").write_text(f"{head}name: x\n")
    Path("web.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n")
    ran = run(command)
    is_init = command.startswith("init")
    assert ran.code == (2 if is_init else 3)
    if not is_init or "ksonnet" in head:
        assert message in ran.err
        assert hint in ran.err
    left = sorted(path.name for path in Path.cwd().rglob("*") if path.is_file())
    assert left == ["app.yaml", "web.yaml"]


def test_a11_upgrade_has_nothing_to_do_and_changes_nothing(run: Runner) -> None:
    run("init demo --dir .")
    before = {path: path.read_bytes() for path in Path.cwd().rglob("*") if path.is_file()}
    for command in ("upgrade", "upgrade --dry-run"):
        ran = run(command)
        assert (ran.code, "nothing to do" in ran.out) == (0, True)
    assert run("upgrade -o json").json["files"] == []
    assert {path: path.read_bytes() for path in Path.cwd().rglob("*") if path.is_file()} == before


def test_c25_import_gives_components_with_stable_names(run: Runner) -> None:
    run("init demo --dir .")
    Path("x").mkdir()
    for name in ("web", "db"):
        Path(f"x/{name}.yaml").write_text(f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n")
    assert run("import x -o name").out.split() == ["db", "web"]
    assert run("import x --split --module split -o name").out.split() == [
        "split.configmap-db",
        "split.configmap-web",
    ]
