"""The demo plays to its end, needs nothing, leaves nothing, and is the same every time."""

import contextlib
import io
import os
from pathlib import Path

import pytest

from mlstack.cli.commands import program
from mlstack.cli.main import main

pytestmark = pytest.mark.slow


def play() -> str:
    printed, told = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(told):
        assert main(["demo"]) == 0
    assert told.getvalue() == ""
    return printed.getvalue()


@pytest.fixture(scope="module")
def played(home: Path) -> str:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(home / "demo-cache"))
        return play()


def test_demo_is_the_same_every_time_needs_nothing_and_leaves_nothing(
    played: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    assert play() == played
    assert list(tmp_path.iterdir()) == []
    assert Path.cwd() == tmp_path


def test_demo_shows_every_command_line(played: str) -> None:
    lines = [line.partition("  # ")[0] for line in program.SCRIPT.splitlines() if not line.startswith("#")]
    assert [line for line in played.splitlines() if line.startswith("$ mlstack ")] == [
        f"$ mlstack {line}" for line in lines
    ]
    assert "internal fault" not in played


def test_demo_shows_what_runs_and_why_something_does_not(played: str) -> None:
    runs, _, waits = played.partition("$ mlstack status gke")
    assert "ready    pod tf-hub-0" in runs
    assert "workers 1 of 1, PS 1 of 1" in runs
    assert "no node of this cluster has nvidia.com/gpu" in " ".join(waits.split())


def test_a_step_that_ends_otherwise_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "SCRIPT", f"init {program.APP}\nenv list  # gives 5\n")
    with contextlib.suppress(SystemExit):
        assert main(["demo"]) == 70
    assert "gave 0, not 5" in capsys.readouterr().err
