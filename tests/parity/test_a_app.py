"""Rows A: `init`, the app directory, `version`, completion."""

import json
from pathlib import Path

import pytest

from tests.support.builders import kubeconfig, read_tree, write_tree
from tests.support.cli import Runner


def test_a2_init_refuses_to_overwrite_an_app(run: Runner) -> None:
    run.ok("init app1")
    before = read_tree(Path("app1"))
    for line in ("init app1", "init other --dir app1"):
        refused = run(line)
        assert (refused.code, "there is an app at `app1` already" in refused.err) == (2, True)
    assert read_tree(Path("app1")) == before


def test_a2_init_takes_a_folder_as_git_does(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path / "shop")
    run.play(
        """
        init . | 0 | created app `shop` in .
        init . | 2 | there is an app at `.` already
        init ../deep/other --stack training | 0 | created app `other` in ../deep/other
        init ../a!b | 2 | `a!b` cannot be an app name
        """
    )
    assert sorted(path.parent.name for path in tmp_path.rglob("app.yaml")) == ["other", "shop"]


@pytest.mark.parametrize("value", [None, "/nonexistent"])
def test_a3_init_needs_no_network_and_no_cluster(
    run: Runner, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    if value:
        monkeypatch.setenv("KUBECONFIG", value)
    run.ok("init app1")
    assert (Path("app1/app.yaml").is_file(), run.clusters) == (True, {})


def test_a6_a_kubeconfig_file_is_honoured(
    demo: Path, tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlstack.cli.ports import Ports
    from mlstack.cli.ports import kubeconfig as real_kubeconfig

    write_tree(tmp_path, {"kc2": kubeconfig("other"), "kc3": kubeconfig("third")})
    plain = run.ports
    run.ports = lambda: Ports(**{**vars(plain()), "kubeconfig": real_kubeconfig})  # type: ignore[method-assign]
    run.ok(f"env add viakc --kubeconfig {tmp_path}/kc2")
    assert "context: other" in (demo / "environments/viakc/environment.yaml").read_text()
    missing = "there is no kubeconfig at /nowhere"
    run.play(f"env add none --kubeconfig /nowhere | 4 | {missing}")
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    run.play(
        f"env add none | 4 | {missing} | --offline\nenv add none --context own | 4 | {missing} | --offline"
    )


def test_a7_init_names_the_default_registry_unless_told_not_to(run: Runner) -> None:
    run.ok("init with")
    run.ok("init without --skip-default-registries")
    assert "address: bundled" in Path("with/app.yaml").read_text()
    assert "bundled" not in Path("without/app.yaml").read_text()
    again = "registry add kubeflow github.com/google/kubeflow/tree/master/kubeflow --dir with"
    assert "is in the app already" in run.ok(again)
    assert run(f"{again} -o json").json["bundled"]


LINES = ("component list", "env list", "param list", "render minikube", "validate minikube", "registry list")


@pytest.mark.parametrize("line", LINES)
def test_a9_commands_work_from_any_folder(
    demo: Path, tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    expected = run.ok(line)
    below = demo / "components/sub/x"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert run.ok(line) == expected
    monkeypatch.chdir(tmp_path)
    assert run.ok(f"{line} --dir demo") == run.ok(f"--dir demo {line}") == expected
    outside = run(line)
    assert (outside.code, "no app directory" in outside.err) == (4, True)
    assert "hint: mlstack init NAME makes one" in outside.err


ODD = """\
# Ours.
apiVersion: mlstack.dev/v1
kind:   App   # the kind
name: demo
registries:
    - {name: ours, address: ../registry,   protocol: directory}
packages: [ours/tools]   # one
params:
    # of all
    color:    red  # why
"""


@pytest.mark.parametrize("style", ["plain", "crlf", "bom"])
def test_a12_edits_keep_comments_order_and_line_ends(demo: Path, run: Runner, style: str) -> None:
    text = {"plain": ODD, "crlf": ODD.replace("\n", "\r\n"), "bom": f"\ufeff{ODD}"}[style]
    (demo / "app.yaml").write_bytes(text.encode())
    run.ok("param set color green")
    assert (demo / "app.yaml").read_bytes() == text.replace("red", "green").encode()


def test_a15_version_tells_tool_and_libraries(run: Runner) -> None:
    versions = json.loads(run.ok("version -o json"))
    assert {"mlstack", "python", "libraries"} <= set(versions)
    assert {"jinja2", "typer"} <= set(versions["libraries"])
    assert run.ok("version -o name").startswith("mlstack ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_a16_completion_scripts(run: Runner, shell: str) -> None:
    assert "_MLSTACK_COMPLETE" in run.ok(f"completion {shell}")


@pytest.mark.parametrize("line", ["plugin", "plugin list", "plugin install x"])
def test_a17_plugins_are_no_command(run: Runner, line: str) -> None:
    refused = run(line)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("error: no command `mlstack plugin`\nhint: ")
