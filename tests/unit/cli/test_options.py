"""What Tab offers, in every shell; hostile names are never offered."""

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.completion import get_completion_script  # type: ignore[attr-defined]

from mlstack.app.app_dir import AppDir
from mlstack.cli.main import main
from mlstack.operations import app
from tests.support.builders import write_tree
from tests.support.kubectl import KUBECONFIG
from tests.support.registry import generate, small_app

pytestmark = pytest.mark.slow

SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
BEFORE = {"bash": "PS1='> '", "zsh": "PS1='> '; autoload -Uz compinit; compinit -u -D", "fish": ":"}
HOSTILE = (
    "$(touch pwned)",
    "`touch pwned`",
    "'$(touch pwned)'",
    '"$(touch pwned)"',
    "\\$(touch pwned)",
    "\\\\$(touch pwned)",
    "a\\",
    "x'$(touch pwned)'y",
    'x"`touch pwned`"y',
    "(touch pwned)",
    "{touch,pwned}",
    ";touch pwned;",
    "new\n$(touch pwned)\nline",
    "tab\t$(touch pwned)",
    "*",
    "~",
    "=touch",
    "a b",
    "-rf",
    "\x1b[2J",
    "))'; touch pwned; '((",
)
ANSWER = 'exec "{}" -m mlstack "$@"'
RECORDING = """#!/bin/sh
if [ -n "$_MLSTACK_COMPLETE" ]; then {answer}; fi
printf '%s\\n' "$@" > "{folder}/typed.new" && mv "{folder}/typed.new" "{folder}/typed"
"""


class Terminal:
    """A shell at a terminal, in which somebody types."""

    def __init__(self, shell: str, folder: Path) -> None:
        """Start the shell, with a `mlstack` that answers Tab and else writes down how it was called."""
        program = folder / "bin/mlstack"
        program.parent.mkdir()
        program.write_text(RECORDING.format(answer=ANSWER.format(sys.executable), folder=folder))
        program.chmod(0o755)
        self._program = program
        self._folder, self.shell = folder, shell
        environ = {
            **os.environ,
            "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "TERM": "xterm",
            "KUBECONFIG": "touch pwned",
        }
        self._pid, self._screen = pty.fork()
        if self._pid == 0:  # pragma: no cover
            os.chdir(folder / "demo")
            os.execvpe(SHELLS[shell][0], SHELLS[shell], environ)
        self._seen = b""

    def answer(self, lines: str) -> None:
        """Let the program offer these lines instead of what is so."""
        (self._folder / "lines").write_text(lines)
        self._program.write_text(
            RECORDING.format(answer=f"cat {self._folder}/lines; exit", folder=self._folder)
        )

    def load(self, script: str) -> None:
        """Read a completion script."""
        file = self._folder / "script"
        file.write_text(script)
        self.type(f"{BEFORE[self.shell]}; source {file}; echo loaded-$(echo it)\n")
        self._read_until(b"loaded-it")

    def type(self, keys: str) -> None:
        """Type keys."""
        os.write(self._screen, keys.encode())

    def run(self, keys: str) -> list[str]:
        """Type a line and give the words that `mlstack` got in the end."""
        typed = self._folder / "typed"
        typed.unlink(missing_ok=True)
        self.type(f"{keys}\n")
        self._read_until(b"", typed)
        return typed.read_text().splitlines()

    def close(self) -> None:
        """End the shell."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._screen)

    def _read_until(self, text: bytes, file: Path | None = None) -> None:
        end = time.monotonic() + 30
        while (file is None or not file.exists()) and (file is not None or text not in self._seen):
            assert time.monotonic() < end, self._seen.decode(errors="replace")
            if select.select([self._screen], [], [], 0.02)[0]:
                self._seen += os.read(self._screen, 65536)


def script_of(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Give the completion script that is installed for a shell."""
    capsys.readouterr()
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def older_script(shell: str) -> str:
    """Give the script that an earlier installation may have left, which trusts what it gets."""
    return get_completion_script(prog_name="mlstack", complete_var="_MLSTACK_COMPLETE", shell=shell)


@pytest.fixture(params=SHELLS)
def terminal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Terminal]:
    """Give a terminal with a shell, beside an app whose folders and packages have hostile names."""
    if shutil.which(request.param) is None:
        pytest.skip(f"there is no {request.param}")
    app_dir = small_app(tmp_path)
    for name in ("gke", "us/east"):
        app.add_environment(app_dir, name, kubeconfig=KUBECONFIG, use_preset=False)
    generate(app_dir)
    generate(app_dir, "shop.cart")
    usual = "apiVersion: mlstack.dev/v1\nkind: Environment\n"
    for name in HOSTILE:
        write_tree(
            app_dir.root,
            {
                f"environments/{name}/environment.yaml": usual,
                f"components/{name}.yaml": "",
                f"components/{name}/x.yaml": "",
                f"vendor/ours/{name}@1/package.yaml": "",
                f"vendor/{name}/tools@1/package.yaml": "",
                f"vendor/ours/tools@1.2.0/{name}/prototype.yaml": "",
            },
        )
    terminal = Terminal(request.param, tmp_path)
    yield terminal
    terminal.close()


@pytest.mark.parametrize("script", ["ours", "earlier"])
def test_tab_offers_names_alone_and_runs_nothing(
    terminal: Terminal, tmp_path: Path, capsys: pytest.CaptureFixture[str], script: str
) -> None:
    terminal.load(script_of(terminal.shell, capsys) if script == "ours" else older_script(terminal.shell))
    assert terminal.run("mlstack apply g\t") == ["apply", "gke"]
    assert terminal.run("mlstack component rm s\t") == ["component", "rm", "shop.cart"]
    assert terminal.run("mlstack pkg rm \t") == ["pkg", "rm", "ours/"]
    assert terminal.run("mlstack generate \t") == ["generate", "web"]
    assert terminal.run("mlstack apply --kub\tx") == ["apply", "--kubeconfig", "x"]
    assert terminal.run("mlstack status -c '$(touch pwned)',fr\t")[:2] == ["status", "-c"]
    assert not [path for path in tmp_path.rglob("pwned*") if path.name == "pwned"]


@pytest.mark.parametrize("name", ["$(touch pwned)", "`touch pwned`", "a\\b'c\"d", "; touch pwned", "*"])
def test_scripts_quote_what_should_never_reach_them(
    terminal: Terminal, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    terminal.load(script_of(terminal.shell, capsys))
    terminal.answer(f"{name}\t$(touch pwned) `touch pwned`\n" if terminal.shell != "bash" else f"{name}\n")
    assert terminal.run("mlstack apply \t") == ["apply", name]
    assert not [path for path in tmp_path.rglob("pwned*") if path.name == "pwned"]


@pytest.fixture
def app_dir(tmp_path: Path) -> AppDir:
    """Make an app with two environments and two components."""
    app_dir = small_app(tmp_path)
    for name in ("gke", "us/east"):
        app.add_environment(app_dir, name, kubeconfig=KUBECONFIG, use_preset=False)
    generate(app_dir)
    generate(app_dir, "shop.cart")
    return app_dir


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
        ("mlstack generate web back --re", ["--replicas"]),
        ("mlstack prototype preview web --im", ["--image"]),
        ("mlstack generate web back --image nginx --col", ["--color"]),
        ("mlstack generate nothing --fo", ["--force"]),
        ("mlstack env r", ["rename", "rm"]),
        ("mlstack param s", ["set"]),
        ("mlstack param set fr", ["front"]),
        ("mlstack param set front re", ["replicas"]),
        ("mlstack param unset --env gke front re", ["replicas"]),
        ("mlstack param explain shop.cart re", ["replicas"]),
        ("mlstack param set nothing re", []),
        ("mlstack status -o j", ["json"]),
        ("mlstack render -o ", ["yaml", "json", "name"]),
        ("mlstack validate -o s", ["sarif"]),
        ("mlstack registry add other x --type d", ["directory"]),
        ("mlstack elastic run --policy f", ["fair"]),
        ("mlstack init x --stack t", ["training"]),
        ("mlstack component rm s", ["shop.cart"]),
        ("mlstack pkg rm ours/t", ["ours/tools"]),
        ("mlstack env add m", ["minikube"]),
        ("mlstack env current --set u", ["us/east"]),
        ("mlstack history ", ["show", "diff", "gke", "us/east"]),
        ("mlstack history s", ["show"]),
        ("mlstack history u", ["us/east"]),
        ("mlstack history show g", ["gke"]),
        ("mlstack rollback g", ["gke"]),
        ("mlstack rollback gke ", []),
        ("mlstack history show gke ", []),
        ("mlstack pkg install ours/", ["ours/base", "ours/tools"]),
    ],
)
def test_names_are_offered(
    app_dir: AppDir,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    offered: list[str],
) -> None:
    monkeypatch.chdir(app_dir.root / "components")
    for name, value in asking(line).items():
        monkeypatch.setenv(name, value)
    assert main([]) == 0
    assert capsys.readouterr().out.split() == offered


@pytest.mark.parametrize("line", ["mlstack --dir {} apply g", "mlstack apply --dir={} g"])
def test_names_are_those_of_the_app_that_is_asked_for(
    app_dir: AppDir,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in asking(line.format(app_dir.root)).items():
        monkeypatch.setenv(name, value)
    assert main([]) == 0
    assert capsys.readouterr().out.split() == ["gke"]


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
    app_dir: AppDir, tmp_path: Path, words: list[str], offered: list[str]
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
        cwd=app_dir.root / "components",
        env={**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == (offered, "")


def asking(line: str) -> dict[str, str]:
    """Give the environment by which bash asks for the words that may follow a line."""
    return {"_MLSTACK_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
