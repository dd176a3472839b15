"""A cold start imports no heavy library: they stand inside the functions of their one door."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("kubernetes", "jinja2", "ruamel", "yaml", "jsonschema", "pydantic", "requests", "urllib3", "rich")
PROGRAM = """
import sys
sys.argv = ["mlstack", *sys.argv[1:]]
from mlstack.cli.fast import main
try:
    code = main()
except SystemExit as stop:
    code = stop.code or 0
print("\\nMODULES", *sorted(sys.modules))
sys.exit(code)
"""


def modules(folder: Path, *words: str, **environ: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("\nMODULES ")[2].split())


def heavy(found: set[str]) -> list[str]:
    return [name for name in HEAVY if name in found]


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["version", "--help"],
        ["completion", "bash"],
        ["apply", "--help"],
        ["env", "--help"],
    ],
    ids=" ".join,
)
def test_help_and_completion_scripts_import_nothing_heavy(tmp_path: Path, words: list[str]) -> None:
    assert heavy(modules(tmp_path, *words)) == []


@pytest.mark.parametrize(
    ("line", "word"), [("mlstack ", 1), ("mlstack apply ", 2), ("mlstack param set ", 3)]
)
def test_completion_answers_without_anything_heavy(tmp_path: Path, line: str, word: int) -> None:
    asked = {"_MLSTACK_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(word)}
    assert heavy(modules(tmp_path, **asked)) == []


def test_version_imports_not_even_the_command_line_library(tmp_path: Path) -> None:
    found = modules(tmp_path, "--version")
    assert heavy(found) == []
    assert "typer" not in found
