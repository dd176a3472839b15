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
from pathlib import Path
from typing import Any

import pytest

from tests.support.trial import SITUATIONS

pytestmark = pytest.mark.slow

DOCUMENTED = range(8)
CLOSED_OUTPUT, INTERRUPTED = 141, 130
Trial = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """Give a function that tries all lines in a situation, once."""
    tried: dict[str, dict[str, Any]] = {}

    def outcomes(situation: str) -> dict[str, Any]:
        if situation not in tried:
            tried[situation] = _tried(situation, tmp_path_factory.mktemp(situation))
        return tried[situation]

    return outcomes


def _tried(situation: str, folder: Path) -> dict[str, Any]:
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not on PATH")
    if situation == "stranger" and os.geteuid() != 0:
        pytest.skip("only root may become another user")
    folder.chmod(0o755)
    rights = () if os.geteuid() == 0 else ("--map-root-user",)
    command = ["unshare", "--net", "--mount", *rights, sys.executable, "-m", "tests.support.trial", situation]
    environment = {
        **os.environ,
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "COLUMNS": "200",
    }
    done = subprocess.run(
        [*command, str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    if "unshare failed" in done.stderr or "mount: " in done.stderr:
        pytest.skip(f"no namespaces here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads((folder / "outcomes.json").read_text())
    return result


@pytest.mark.parametrize("situation", SITUATIONS)
def test_no_command_breaks(trial: Trial, situation: str) -> None:
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
