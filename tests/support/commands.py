"""Command lines for an app with the component `front` and the environment `prod`, from `small_app`; all."""

from collections.abc import Iterator
from typing import Any

from mlstack.cli.commands import COMMANDS
from mlstack.cli.main import built_program


def every_command() -> Iterator[tuple[str, Any]]:
    """Give the words of every command and every group of them, with what parses it."""
    root = built_program()
    context = root.make_context("mlstack", ["version"])
    for name in COMMANDS:
        command = root.get_command(context, name)
        yield name, command
        for inner in getattr(command, "commands", ()):
            yield f"{name} {inner}", command.get_command(context, inner)


EDITS = (
    "registry add others ../registry",
    "pkg install ours/base",
    "pkg rm ours/tools",
    "generate web back --image nginx",
    "prototype use web back --image nginx",
    "component rm front",
    "param set front color green",
    "param set color green",
    "param set --env prod front replicas 3",
    "param unset --env prod front replicas",
    "env add gke",
    "env set prod --namespace other",
    "env set prod --name live",
    "env rm prod",
    "env current --set prod",
    "env current --unset",
    "apply prod",  # the first contact writes the cluster's identity
)
READS = (
    "registry list",
    "registry describe ours",
    "pkg list",
    "prototype preview web --image nginx",
    "component list",
    "param list",
    "param explain front image",
    "env list",
    "env describe prod",
    "env current",
    "render prod",
    "validate prod",
    "apply prod --dry-run",
)
