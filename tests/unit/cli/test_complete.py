"""Tab offers names that exist."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.cli.main import main
from mlstack.operations import app
from tests.support.kubectl import KUBECONFIG
from tests.support.registry import generate, small_app


@pytest.fixture
def made(tmp_path: Path) -> AppDir:
    """Make an app with two environments and two components."""
    made = small_app(tmp_path)
    for name in ("gke", "us/east"):
        app.add_environment(made, name, kubeconfig=KUBECONFIG, use_preset=False)
    generate(made)
    generate(made, "shop.cart")
    return made


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("mlstack apply ", ["gke", "us/east"]),
        ("mlstack apply g", ["gke"]),
        ("mlstack apply gke -c ", ["front", "shop.cart"]),
        ("mlstack apply gke -c front,s", ["front,shop.cart"]),
        ("mlstack param set --env u", ["us/east"]),
        ("mlstack param list f", ["front"]),
        ("mlstack generate w", ["web"]),
        ("mlstack env r", ["rm"]),
        ("mlstack param s", ["set"]),
        ("mlstack param set fr", ["front"]),
        ("mlstack param set front re", ["replicas"]),
        ("mlstack param unset --env gke front re", ["replicas"]),
        ("mlstack param explain shop.cart re", ["replicas"]),
        ("mlstack param set nothing re", []),
        ("mlstack status -o j", ["json"]),
        ("mlstack component rm s", ["shop.cart"]),
        ("mlstack pkg rm ours/t", ["ours/tools"]),
        ("mlstack env add m", ["minikube"]),
        ("mlstack env current --set u", ["us/east"]),
        ("mlstack history ", ["show", "diff", "gke", "us/east"]),
        ("mlstack history s", ["show"]),
        ("mlstack history u", ["us/east"]),
        ("mlstack history show g", ["gke"]),
        ("mlstack rollback g", ["gke"]),
    ],
)
def test_names_are_offered(
    made: AppDir,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    offered: list[str],
) -> None:
    monkeypatch.chdir(made.root / "components")
    for name, value in asking(line).items():
        monkeypatch.setenv(name, value)
    assert main([]) == 0
    assert capsys.readouterr().out.split() == offered


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["mlstack", "apply", "g"], ["gke"]),
        (["mlstack", "param", "set", "--env", "=", "g"], ["gke"]),
        (["mlstack", "param", "set", "--env", "="], ["gke", "us/east"]),
        (["mlstack", "param", "set", "--env", "=", "gke", "front", "re"], ["replicas"]),
    ],
    ids=" ".join,
)
def test_bash_completes_by_its_script(
    made: AppDir, tmp_path: Path, words: list[str], offered: list[str]
) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    program = tmp_path / "bin/mlstack"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mlstack "$@"\n')
    program.chmod(0o755)
    script = """
    eval "$(mlstack completion bash)"
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    $(complete -p mlstack | sed 's/.*-F \\([^ ]*\\) .*/\\1/') mlstack
    printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        [bash, "--norc", "-c", script, "bash", *words],
        cwd=made.root / "components",
        env={**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == (offered, "")


def asking(line: str) -> dict[str, str]:
    """Give the environment by which bash asks for the words that may follow a line."""
    return {"_MLSTACK_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
