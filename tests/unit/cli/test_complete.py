"""Tab offers names that exist."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlstack.cli.main import main
from mlstack.files.appdir import AppDir
from mlstack.operations import env
from tests.support.kubectl import KUBECONFIG
from tests.support.registry import generate, small_app


@pytest.fixture
def made(tmp_path: Path) -> AppDir:
    """Make an app with two environments and two components."""
    made = small_app(tmp_path)
    for name in ("gke", "us/east"):
        env.add(made, name, kubeconfig=KUBECONFIG, use_preset=False)
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
    with pytest.raises(SystemExit):
        main([])
    assert capsys.readouterr().out.split() == offered


def test_the_program_offers_names_too(made: AppDir) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mlstack"],
        cwd=made.root / "components",
        env={**os.environ, **asking("mlstack apply ")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["gke", "us/east"]


def asking(line: str) -> dict[str, str]:
    """Give the environment by which bash asks for the words that may follow a line."""
    return {"_MLSTACK_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
