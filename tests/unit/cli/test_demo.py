"""The demo plays to its end, needs nothing, leaves nothing, and is the same every time."""

import contextlib
import io
import os
import signal
from pathlib import Path

import pytest

import mlstack.cli.main as boundary
from mlstack.cli.commands import program
from mlstack.cli.main import main

pytestmark = pytest.mark.slow


def play() -> str:
    printed, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        assert main(["demo"]) == 0
    assert errors.getvalue() == ""
    return printed.getvalue()


def test_demo_is_the_same_every_time_needs_nothing_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = play()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    assert play() == played
    assert (list(tmp_path.iterdir()), Path.cwd()) == ([], tmp_path)
    lines = [line.partition("  # ")[0] for line in program.SCRIPT.splitlines() if not line.startswith("#")]
    commands = [line for line in played.splitlines() if line.startswith("$ mlstack ")]
    assert commands == [f"$ mlstack {line}" for line in lines]
    # It shows what runs, and why something does not.
    runs, _, waits = played.partition("$ mlstack status gke")
    assert "ready    pod tf-hub-0" in runs and "workers 1 of 1, PS 1 of 1" in runs
    assert "no node of this cluster has nvidia.com/gpu" in " ".join(waits.split())
    assert "internal fault" not in played


def test_a_step_that_ends_otherwise_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "SCRIPT", f"init {program.APP}\nenv list  # gives 5\n")
    with contextlib.suppress(SystemExit):
        assert main(["demo"]) == 70
    assert "gave 0, not 5" in capsys.readouterr().err


def test_an_interruption_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "SCRIPT", "version\n")
    monkeypatch.setattr(boundary, "emit", lambda *args: signal.raise_signal(signal.SIGINT))
    assert main(["demo"]) == 130
    assert "".join(capsys.readouterr()).count("interrupted") == 1
