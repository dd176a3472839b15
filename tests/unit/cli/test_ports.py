"""Who takes locks from here, and what operations are handed."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from mlstack.cli import ports
from mlstack.cli.ports import Session, holder

NEEDS_PROC = pytest.mark.skipif(not ports._PROC.joinpath("self/stat").exists(), reason="needs /proc")


def test_a_process_has_a_name_of_its_own() -> None:
    assert re.fullmatch(rf"ada@laptop/{os.getpid()}/\S+", holder("ada@laptop").name)
    assert not holder("ada@laptop").is_gone(holder("ada@laptop").name)


@pytest.mark.slow
@NEEDS_PROC
def test_a_killed_process_of_this_machine_is_gone() -> None:
    code = "import sys; from mlstack.cli.ports import holder"
    code += "; print(holder('ada@laptop').name, flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        name = child.stdout.readline().strip()
        assert not holder("grace@laptop").is_gone(name)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet buried
        assert holder("grace@laptop").is_gone(name)
    assert holder("grace@laptop").is_gone(name)


@NEEDS_PROC
def test_another_process_of_the_same_number_is_another() -> None:
    assert holder("ada@laptop").is_gone(f"{holder('ada@laptop').name}0")


@pytest.mark.parametrize(
    "name",
    ["ada@laptop/1/0123456789ab-77", "ada@laptop/4711/aabbccdd", "helm", "a@b/c/d-e", "ada@laptop/1"],
    ids=["other machine", "no machine", "no process", "no number", "no token"],
)
def test_nothing_is_said_of_others(name: str) -> None:
    assert not holder("ada@laptop").is_gone(name)


def test_without_proc_every_name_is_new(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(ports, "_PROC", tmp_path)
    assert holder("ada@laptop").name != holder("ada@laptop").name
    assert not holder("ada@laptop").is_gone(holder("ada@laptop").name)


def test_an_operation_gets_the_options_that_are_called_as_its_parameters() -> None:
    session = Session(arguments={"name": "web", "force": True})
    assert session.call(lambda name, clock, size=1: (name, clock, size)) == ("web", session.ports.clock, 1)
    assert session.call(lambda name, force: (name, force), name="other") == ("other", True)
