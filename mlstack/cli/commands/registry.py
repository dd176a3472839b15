"""`registry add, list, describe, index`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlstack.cli import options
from mlstack.cli.main import family
from mlstack.cli.output import emit
from mlstack.cli.ports import app_dir

commands = family("Registries: where packages come from.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The app's own name for the registry.")]


@commands.command(
    epilog=options.example(
        "mlstack registry add kubeflow github.com/google/kubeflow/tree/master/kubeflow",
        "mlstack registry add ours ../our-registry",
    )
)
def add(
    ctx: typer.Context,
    name: Name,
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="A folder, a git URL or a GitHub tree address.")
    ],
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Add a registry to the app, once it is known to answer."""
    from mlstack.operations import packages

    return emit(packages.add_registry(app_dir(ctx.obj, folder), name, address), output)


@commands.command("list", epilog=options.example("mlstack registry list"))
def list_(ctx: typer.Context, folder: options.Dir = None, output: options.Output = "table") -> int:
    """List the registries of the app."""
    from mlstack.operations import packages

    return emit(packages.list_registries(app_dir(ctx.obj, folder)), output)


@commands.command(epilog=options.example("mlstack registry describe kubeflow"))
def describe(
    ctx: typer.Context, name: Name, folder: options.Dir = None, output: options.Output = "table"
) -> int:
    """Show a registry and its packages."""
    from mlstack.operations import packages

    return emit(packages.describe_registry(app_dir(ctx.obj, folder), name), output)


@commands.command(epilog=options.example("mlstack registry index registry/"))
def index(
    place: Annotated[
        Path, typer.Argument(metavar="DIR", help="The registry's folder, the one with registry.yaml.")
    ],
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if it is stale.")] = False,
    output: options.Output = "table",
) -> int:
    """Rewrite a registry's index from its package folders."""
    from mlstack.operations import packages

    return emit(packages.index_registry(place, check=check), output)
