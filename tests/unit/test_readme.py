"""The README is true: its commands run in their order, and every command of the program stands in it."""

import re
from pathlib import Path

import pytest

from tests.bench.elastic.table import table
from tests.support.cli import Runner
from tests.support.commands import every_command

README = Path(__file__).parents[2] / "README.md"
# A truthful no: a `diff` finds changes, and nothing runs on a cluster in memory.
MAY_SAY_NO = ("mlstack diff", "mlstack param lint", "mlstack history diff", "mlstack status")


def shell_lines() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def app_lines() -> list[str]:
    return [line for line in shell_lines() if line.startswith("mlstack ")]


def words_of_every_command() -> list[str]:
    commands = [(words, command) for words, command in every_command() if not command.hidden]
    return [words for words, command in commands if not hasattr(command, "commands")]


@pytest.mark.slow
def test_every_command_of_the_readme_runs_as_printed(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    for line in app_lines():
        command, _, then = line.partition(" && ")
        run.current = "gke" if command == "mlstack env add gke" else run.current
        ran = run(command.removeprefix("mlstack "))
        allowed = (0, 1) if command.startswith(MAY_SAY_NO) else (0,)
        assert ran.code in allowed, f"{command}: {ran.err or ran.out}"
        assert "internal fault" not in ran.err
        if then:
            monkeypatch.chdir(Path.cwd() / then.removeprefix("cd "))


def test_readme_has_the_two_commands_for_a_fresh_machine() -> None:
    setups = [line for line in shell_lines() if line.startswith("python3 -m venv")]
    assert [line.rpartition(" && ")[2] for line in setups] == [".venv/bin/mlstack demo", ".venv/bin/pytest"]


@pytest.mark.parametrize("words", [*words_of_every_command()])
def test_every_command_stands_in_the_readme(words: str) -> None:
    assert f"mlstack {words}" in README.read_text(encoding="utf-8")


def test_the_figures_of_the_readme_are_those_that_were_measured() -> None:
    assert "\n".join(table()) in README.read_text(encoding="utf-8")


def test_readme_is_short_and_plain() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 240
    assert max(len(line) for line in lines) <= 130
