"""The boundary: whatever happens, one clear message and the exit code that the brief tables."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
import typer

from mlstack import __version__
from mlstack.cli import fast
from mlstack.cli import main as boundary
from mlstack.cli.commands import program
from mlstack.cli.main import main
from mlstack.errors import ClusterError, ConfigError, NotFoundError, NotReadyError, RegistryError, UsageError
from mlstack.operations import app
from tests.support.cli import Runner
from tests.support.kubectl import KUBECONFIG
from tests.support.registry import generate, small_app

Fails = Callable[[BaseException], None]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Fails:
    """Let every command end with an error."""

    def fail_with(error: BaseException) -> None:
        def fails(*args: object) -> None:
            raise error

        monkeypatch.setattr(boundary, "emit", fails)

    return fail_with


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (ConfigError("x"), 3),
        (NotFoundError("x"), 4),
        (RegistryError("x"), 5),
        (ClusterError("x"), 6),
        (NotReadyError("x"), 7),
        (typer.BadParameter("x"), 2),
        (OSError(28, "No space left on device", "app.yaml"), 3),
        (ValueError("x"), 70),
        (KeyboardInterrupt(), 130),
        (typer.Abort(), 130),
        (BrokenPipeError(), 141),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_each_failure_has_its_exit_code(run: Runner, failing: Fails, error: BaseException, code: int) -> None:
    failing(error)
    ran = run("version")
    assert (ran.code, ran.out, "Traceback" in ran.err) == (code, "", False)


@pytest.mark.parametrize("words", ["-o json", "-ojson", "--output=json", "--output json", ""])
def test_message_place_and_hint_are_shown(run: Runner, failing: Fails, words: str) -> None:
    failing(ConfigError("bad value", where="app.yaml:3", hint="mend it"))
    ran = run(f"version {words}")
    facts = {"message": "bad value", "where": "app.yaml:3", "hint": "mend it", "exitCode": 3}
    plain = "error: bad value (app.yaml:3)\nhint: mend it\n"
    assert (ran.code, ran.out) == (3, "")
    assert ran.err == plain if not words else json.loads(ran.err) == {"error": facts}


def test_debug_shows_the_traceback_of_a_fault_of_ours(run: Runner, failing: Fails) -> None:
    failing(ValueError("odd"))
    run.play("""
        --debug version | 70 | Traceback (most recent call last)
        version | 70 | mlstack --debug version | !Traceback
    """)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("versoin", "did you mean `mlstack version`?"),
        ("version --outptu json", "did you mean `--output`?"),
        ("version -o jsno", "use `-o json`"),
        ("version extra", "mlstack version --help"),
        ("version --hlep", "did you mean `--help`?"),
        ("version --unheard-of", "mlstack version --help"),
        ("apply --env gke", "mlstack apply ENV"),
        ("deploy gke", "did you mean `mlstack apply`?"),
        ("install kubeflow/core", "did you mean `mlstack pkg install`?"),
        ("pkg instal kubeflow/core", "did you mean `mlstack pkg install`?"),
        ("help aply", "did you mean `mlstack apply`?"),
        ("delete gke --yes -c ''", "write `-c NAME`, or `-c NAME,NAME`"),
        ("apply gke --timeout", "mlstack apply --help"),
        ("env add pr --context", "mlstack env add --help"),
        ("render gke --set", "mlstack render --help"),
    ],
)
def test_wrong_words_are_usage_errors_with_a_next_step(run: Runner, words: str, hint: str) -> None:
    ran = run(words)
    assert (ran.code, ran.out, ran.err[:7]) == (2, "", "error: ")
    assert ran.err.splitlines()[-1] == f"hint: {hint}"


def test_version_and_help_are_options_and_words(run: Runner) -> None:
    assert run.ok("--version") == run.ok("--debug --version") == f"mlstack {__version__}\n"
    for words, same in {
        "help": "--help",
        "help apply": "apply --help",
        "help param set": "param set -h",
        "param help set": "param set --help",
    }.items():
        assert run.ok(words) == run.ok(same) != ""
    assert "table, yaml, json, name, sarif or junit." in " ".join(run.ok("validate --help").split())
    nothing = run()
    assert (nothing.code, nothing.out, "Commands:" in nothing.err) == (2, "", True)


def test_the_libraries_that_version_tells_come_with_mlstack() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    required = {re.split(r"[^\w.-]", requirement)[0] for requirement in project["dependencies"]}
    assert set(program.LIBRARIES) <= required


def mlstack(*words: str, **streams: Any) -> subprocess.CompletedProcess[Any]:
    """Run the program in a process of its own."""
    command = [sys.executable, "-m", "mlstack", *words]
    return subprocess.run(command, check=False, **{"stderr": subprocess.PIPE, **streams})


def test_closed_pipe_is_quiet() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        done = mlstack("version", stdout=closed)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.slow
@pytest.mark.parametrize("words", [["version"], ["render", "dev"]], ids=" ".join)
def test_full_disk_behind_stdout_is_reported(tmp_path: Path, words: list[str]) -> None:
    app_dir = small_app(tmp_path)
    app.add_environment(app_dir, "dev", kubeconfig=KUBECONFIG)
    generate(app_dir)
    with Path("/dev/full").open("w") as full:
        done = mlstack(*words, cwd=app_dir.root, stdout=full)
    assert done.returncode == 3
    assert done.stderr.startswith(b"error: cannot write the output: no space left on device\nhint: ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("version >&-", 0),
        ("--version >&-", 0),
        ("--help >&- 2>&- <&-", 0),
        ("versoin 2>&-", 2),
        ("versoin 2>/dev/full", 2),
        ("--version >/dev/full", 3),
        ("--help >/dev/full", 3),
        ("apply --help >/dev/full", 3),
    ],
)
def test_closed_or_full_streams_change_no_answer(line: str, code: int) -> None:
    command = f"{shlex.quote(sys.executable)} -m mlstack {line}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, "")
    assert "Traceback" not in done.stderr


def test_output_is_utf8_in_every_locale() -> None:
    environ = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    script = "from mlstack.cli import fast, output; fast.main(); output.write(chr(0x1F600))"
    done = subprocess.run(
        [sys.executable, "-c", script, "--version"], env=environ, capture_output=True, check=True
    )
    assert done.stdout.decode().splitlines()[-1] == "\U0001f600"


def test_error_that_a_library_makes_of_an_interruption_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(*args: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("could not import module") from None

    monkeypatch.setattr(boundary, "emit", load)
    assert main(["version"]) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


SIGNALS = [
    (signal.SIGINT, 130, "interrupted\n"),
    (signal.SIGTERM, 143, "terminated\n"),
    (signal.SIGHUP, 129, "hung up\n"),
]


@pytest.mark.parametrize(("number", "code", "message"), SIGNALS)
def test_a_signal_ends_a_command_in_order(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
    code: int,
    message: str,
) -> None:
    tidied: list[str] = []

    def signalled(*args: object) -> None:
        try:
            signal.raise_signal(number)
        finally:
            tidied.append("tidied")

    usual = signal.getsignal(number)
    monkeypatch.setattr(boundary, "emit", signalled)
    assert main(["version"]) == code
    assert capsys.readouterr().err == message
    assert tidied == ["tidied"]
    assert signal.getsignal(number) is usual


def test_a_signal_that_was_ignored_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundary, "emit", lambda *args: signal.raise_signal(signal.SIGHUP) or 0)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert main(["version"]) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def in_process(body: str) -> subprocess.CompletedProcess[str]:
    """Run the program with a body in place of its command."""
    script = (
        "import atexit, os, signal, sys, threading, time\n"
        "from mlstack.cli import fast\n"
        f"def run(words):\n{indent(body, '    ')}\n"
        "fast._run = run\n"
        "sys.exit(fast.main())\n"
    )
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )


def test_interruption_does_not_wait_for_threads_that_wait_for_a_server() -> None:
    done = in_process(
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "print('done so far')\n"
        "raise KeyboardInterrupt"
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "done so far\n", "interrupted\n")


@pytest.mark.parametrize(("number", "code", "message"), SIGNALS[:2])
def test_the_second_signal_ends_at_once(number: signal.Signals, code: int, message: str) -> None:
    done = in_process(
        "atexit.register(print, 'secrets removed', flush=True)\n"
        "try:\n"
        f"    signal.raise_signal({number:d})\n"
        "finally:\n"
        f"    signal.raise_signal({number:d})\n"
        "    print('never')"
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "secrets removed\n", message)


def test_a_closed_terminal_may_say_so_twice() -> None:
    done = in_process(
        "try:\n"
        "    signal.raise_signal(signal.SIGHUP)\n"
        "finally:\n"
        "    signal.raise_signal(signal.SIGHUP)\n"
        "    print('released')"
    )
    assert (done.returncode, done.stdout) == (129, "released\n")


def test_no_signal_meets_the_program_on_its_way_out() -> None:
    done = in_process(
        "def again():\n"
        "    for _ in range(100):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "atexit.register(again)\n"
        "signal.raise_signal(signal.SIGINT)"
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert set(done.stderr.splitlines()) == {"interrupted"}


def test_interruption_during_the_first_imports_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(fast, "_run", interrupted)
    monkeypatch.setattr(fast, "_leave", lambda code: None)  # threads of other tests may still run
    assert fast.main() == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_completion_answers_the_shell() -> None:
    asked = {"_MLSTACK_COMPLETE": "complete_bash", "COMP_WORDS": "mlstack comp", "COMP_CWORD": "1"}
    done = mlstack(env={**os.environ, **asked}, stdout=subprocess.PIPE)
    assert (done.stdout.split(), done.returncode) == ([b"component", b"completion"], 0)
