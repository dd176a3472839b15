"""`pkg install, list, describe, rm`."""

from __future__ import annotations

from typing import Annotated

import typer

from mlstack.cli import options
from mlstack.cli.main import family
from mlstack.cli.output import emit
from mlstack.cli.ports import app_dir

commands = family("Packages: prototypes under one version, pinned by digest.")

Name = Annotated[
    str,
    typer.Argument(
        metavar="REGISTRY/PACKAGE[@VERSION]",
        help="The package, as `kubeflow/core`.",
        autocompletion=options.packages,
    ),
]


@commands.command(epilog=options.example("mlstack pkg install kubeflow/core"))
def install(
    ctx: typer.Context,
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="Fetch again what is there.")] = False,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Copy a package and what it requires into vendor/, pinned in mlstack.lock."""
    from mlstack.operations import packages

    return emit(packages.install_package(app_dir(ctx.obj, folder), name, force=force), output)


@commands.command("list", epilog=options.example("mlstack pkg list --installed"))
def list_(
    ctx: typer.Context,
    installed: Annotated[
        bool, typer.Option("--installed", help="Only installed packages; asks no registry.")
    ] = False,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """List the packages that can be installed and those that are."""
    from mlstack.operations import packages

    return emit(packages.list_packages(app_dir(ctx.obj, folder), installed_only=installed), output)


@commands.command(epilog=options.example("mlstack pkg describe kubeflow/tf-job"))
def describe(
    ctx: typer.Context, name: Name, folder: options.Dir = None, output: options.Output = "table"
) -> int:
    """Show a package and its prototypes, installed or not."""
    from mlstack.operations import packages

    return emit(packages.describe_package(app_dir(ctx.obj, folder), name), output)


@commands.command(epilog=options.example("mlstack pkg rm kubeflow/tf-serving"))
def rm(ctx: typer.Context, name: Name, folder: options.Dir = None, output: options.Output = "table") -> int:
    """Remove a package that no component uses."""
    from mlstack.operations import packages

    return emit(packages.remove_package(app_dir(ctx.obj, folder), name), output)
