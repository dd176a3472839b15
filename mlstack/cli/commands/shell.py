"""`completion`, `schema` and `version`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

from mlstack import __version__
from mlstack.cli.main import family
from mlstack.cli.options import SCRIPTS, word
from mlstack.cli.output import write
from mlstack.cli.ports import Session

top = family()

LIBRARIES = ("typer", "jinja2", "PyYAML", "jsonschema", "google-re2", "urllib3", "rich")

Shell = Literal["bash", "zsh", "fish", "powershell"]


@dataclass(frozen=True, kw_only=True)
class Versions:
    """The versions of the program, of Python and of the libraries in use."""

    mlstack: str
    python: str
    libraries: dict[str, str]


@top.command(
    takes="",
    examples=["mlstack completion bash > ~/.mlstack-completion && . ~/.mlstack-completion"],
    shell=word("SHELL", "bash, zsh, fish or powershell."),
)
def completion(session: Session, shell: Shell) -> int:
    """Print the completion script of a shell."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = SCRIPTS.get(shell) or get_completion_script(
        prog_name="mlstack", complete_var="_MLSTACK_COMPLETE", shell=shell
    )
    write(script.strip())
    return 0


@top.command(
    takes="output",
    examples=["mlstack schema", "mlstack schema DiffResult"],
    name=word("[NAME]", "The `kind` of a file or result. Default: list all."),
)
def schema(session: Session, name: str | None = None) -> object:
    """Print the JSON Schema of a file or of what `-o json` prints; without NAME, list them."""
    from mlstack.operations import app

    return app.list_schemas() if name is None else app.find_schema(name)


@top.command(takes="output", examples=["mlstack version -o json"])
def version(session: Session) -> object:
    """Print the versions of mlstack and its libraries."""
    from importlib.metadata import version as version_of

    libraries = {name: version_of(name) for name in LIBRARIES}
    python = ".".join(str(part) for part in sys.version_info[:3])
    return Versions(mlstack=__version__, python=python, libraries=libraries)
