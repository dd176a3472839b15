"""Programs run without a shell, within their time, and say what went wrong."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlstack.programs import ProgramError, ProgramMissingError, ask, find, run


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_output_input_and_folder(tmp_path: Path) -> None:
    statements = "print(sys.stdin.read(), pathlib.Path.cwd().name); print('talk', file=sys.stderr)"
    code = f"import sys, pathlib; {statements}"
    done = run(python(code), cwd=tmp_path, stdin=b"given")
    assert done.stdout.decode() == f"given {tmp_path.name}\n"
    assert done.stderr == "talk\n"


def test_a_missing_program_is_named() -> None:
    with pytest.raises(ProgramError, match="`no-such-program` is needed and is not installed") as caught:
        find("no-such-program")
    assert caught.value.hint == "install no-such-program and make sure it is on the PATH"


def test_a_failure_gives_the_status_and_the_last_words() -> None:
    with pytest.raises(ProgramError, match="failed: no luck") as caught:
        run(python("import sys; print('no luck', file=sys.stderr); sys.exit(3)"))
    assert caught.value.status == 3


def test_a_silent_failure_says_so() -> None:
    with pytest.raises(ProgramError, match="it gave no reason"):
        run(python("raise SystemExit(1)"))


def test_credentials_of_an_address_do_not_reach_the_message() -> None:
    code = "import sys; sys.exit('cannot read https://me:hunter2@example.org/x')"
    with pytest.raises(ProgramError) as caught:
        run([*python(code), "https://me:hunter2@example.org/x"])
    assert "hunter2" not in str(caught.value)
    assert "https://example.org/x" in str(caught.value)


@pytest.mark.slow
def test_a_program_out_of_time_is_ended_with_its_children() -> None:
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    with pytest.raises(ProgramError, match=r"took more than 0\.5 seconds"):
        run(python(child), timeout_s=0.5)


def test_no_shell_reads_the_arguments() -> None:
    done = run([*python("import sys; print(sys.argv[1])"), "$(echo x); `y` *"])
    assert done.stdout == b"$(echo x); `y` *\n"


def test_one_that_is_asked_and_missing_is_another_fault_than_one_that_fails() -> None:
    with pytest.raises(ProgramMissingError):
        ask("no-such-program", [], settings={}, reads_terminal=False)
    with pytest.raises(ProgramError) as caught:
        ask(sys.executable, ["-c", "raise SystemExit(4)"], settings={}, reads_terminal=False)
    assert (type(caught.value), caught.value.status) == (ProgramError, 4)


def test_what_cannot_be_given_to_a_program_is_told_without_it() -> None:
    with pytest.raises(ProgramError, match="an argument cannot be given") as caught:
        ask(sys.executable, ["hush\0"], settings={}, reads_terminal=False)
    assert "hush" not in str(caught.value)


def test_one_that_nobody_waits_for_any_more_ends_with_us(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "started")
    asked = f"import time; open({str(tmp_path / 'started')!r}, 'w').close(); time.sleep(600)"
    code = f"""
import sys, threading
from mlstack.programs import ask
given = {{"settings": {{}}, "reads_terminal": False}}
threading.Thread(target=ask, args=(sys.executable, ["-c", {asked!r}]), kwargs=given, daemon=True).start()
open({str(tmp_path / "started")!r}).read()
"""
    # Both hold this standard error: it ends once both have ended.
    done = subprocess.run(python(code), stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
