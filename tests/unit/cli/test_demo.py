"""The demo plays to its end, needs nothing, leaves nothing, and is the same every time."""

import contextlib
import os
from pathlib import Path

import pytest

from mlstack.cli.commands import demo
from mlstack.cli.main import main


def play(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["demo"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_demo_is_the_same_every_time_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    first = play(capsys)
    assert play(capsys) == first
    assert list(tmp_path.iterdir()) == []
    assert Path.cwd() == tmp_path


def test_demo_shows_every_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    text = play(capsys)
    assert all(f"$ mlstack {' '.join(step.words)}" in text for step in demo.SCRIPT)
    assert "internal fault" not in text


def test_demo_shows_what_runs_and_why_something_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    text = play(capsys)
    runs, _, waits = text.partition("$ mlstack status gke")
    assert "pod tf-hub-0 ready" in runs
    assert "workers 1 of 1, PS 1 of 1" in runs
    assert "no node of this cluster has nvidia.com/gpu" in " ".join(waits.split())


def test_demo_needs_no_kubeconfig_and_no_git(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    play(capsys)


def test_a_step_that_ends_otherwise_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "SCRIPT", (demo.SCRIPT[0], demo.Step("", ["env", "list"], code=5)))
    with contextlib.suppress(SystemExit):
        assert main(["demo"]) == 70
    assert "gave 0, not 5" in capsys.readouterr().err
