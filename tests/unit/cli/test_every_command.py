"""Every command where things are otherwise: from a subdirectory, read-only, as another user, on a full disk.

The command lines are the examples of the help, so that a new command is tried without a new test. What they
do is held to what they do in an ordinary place; nothing here has a network.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.support.trial import SITUATIONS, TOLD

pytestmark = pytest.mark.slow

DOCUMENTED = range(8)
CLOSED_OUTPUT, INTERRUPTED = 141, 130
Trial = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """Give a function that tries all lines in a situation, once; one process builds the app for all."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not on PATH")
    folder = tmp_path_factory.mktemp("trial")
    folder.chmod(0o755)
    rights = () if os.geteuid() == 0 else ("--map-root-user",)
    command = ["unshare", "--net", "--mount", *rights, sys.executable, "-m", "tests.support.trial"]
    homes = {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "COLUMNS": "200"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}

    def outcomes(situation: str) -> dict[str, Any]:
        told = folder / f"{situation}.json"
        if not told.exists():
            with suppress(BrokenPipeError):
                process.stdin.write(f"{situation}\n")
                process.stdin.flush()
            if f"{TOLD}\n" not in process.stdout:
                fault = (folder / "stderr").read_text()
                if "unshare failed" in fault or "mount: " in fault:
                    pytest.skip(f"no namespaces here: {fault.strip()}")
                pytest.fail(fault)
        result: dict[str, Any] = json.loads(told.read_text())
        return result

    with (
        (folder / "stderr").open("w") as errors,
        subprocess.Popen([*command, folder], env={**os.environ, **homes}, stderr=errors, **pipes) as process,
    ):
        yield outcomes


@pytest.mark.parametrize("situation", SITUATIONS)
def test_no_command_breaks(trial: Trial, situation: str) -> None:
    if situation == "stranger" and os.geteuid() != 0:
        pytest.skip("only root may become another user")
    usual = trial("plain")
    broken = {
        line: (fault, outcome)
        for line, outcome in trial(situation).items()
        for fault in _faults(situation, outcome, usual[line])
    }
    assert not broken


def _faults(situation: str, outcome: dict[str, Any], usual: dict[str, Any]) -> Iterator[str]:
    code, changed = outcome["code"], outcome["changed"]
    if any(words in outcome["err"] for words in ("Traceback", "internal fault", "left the program")):
        yield "a fault of ours"
    if code not in (*DOCUMENTED, CLOSED_OUTPUT, INTERRUPTED):
        yield "an exit code that stands nowhere"
    if 2 <= code < 6 and (changed or not outcome["err"].startswith(("error: ", "note: ", "warning: ", "{"))):
        yield "it failed, but changed something, or does not say why"
    if outcome["names_path"] and situation in ("subdirectory", "dir"):
        return
    if changed and situation in ("readonly", "stranger"):
        yield "it wrote"
    expected = {
        "readonly": (3,) if usual["changed"] else (),
        "stranger": (3, 5),  # plan files are private; the evaluator of Jsonnet may be out of reach
        "closed": (CLOSED_OUTPUT,),
        "full": (3,),
        "interrupted": (INTERRUPTED,),
    }.get(situation, ())
    if code not in (usual["code"], *expected):
        yield f"exit code {usual['code']} elsewhere"
    if changed and situation not in ("subdirectory", "dir") and changed != usual["changed"]:
        yield f"it changed {usual['changed']} elsewhere"
