"""What a start costs: small commands beside a bare interpreter."""

import os
import sys
from pathlib import Path

import pytest

from tests.bench.apps import MLSTACK, serving_app
from tests.bench.measure import Command, run_in_turn, show

pytestmark = pytest.mark.bench

ROUNDS = 15


def test_start_up_beside_a_bare_interpreter(tmp_path: Path) -> None:
    app = serving_app(tmp_path / "app", components=1, environments=1)
    libraries = "import typer, jinja2\nfrom yaml import CSafeLoader"
    commands = [
        Command(name="python -c pass", argv=[sys.executable, "-c", "pass"]),
        Command(name="import typer, jinja2, libyaml", argv=[sys.executable, "-c", libraries]),
        Command(name="mlstack --version", argv=[*MLSTACK, "--version"]),
        Command(name="mlstack --help", argv=[*MLSTACK, "--help"]),
        Command(name="mlstack render, 1 component", argv=[*MLSTACK, "render", "e0"], cwd=app),
        Command(
            name="  the same, nothing stored",
            argv=[*MLSTACK, "render", "e0"],
            cwd=app,
            environ=_nothing_stored(),
        ),
    ]
    show("start-up", run_in_turn(commands, rounds=ROUNDS), unit="import typer, jinja2, libyaml")


def _nothing_stored() -> dict[str, str]:
    # A cache directory that cannot be made: every look-up is a miss.
    return {"XDG_CACHE_HOME": os.devnull}
