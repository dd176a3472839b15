"""`prototype list, search, describe, preview, use`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlstack.cli import options
from mlstack.cli.commands.component import generate, pairs
from mlstack.cli.main import FreeOptionsCommand, family
from mlstack.cli.output import emit, emit_objects
from mlstack.cli.ports import app_dir, code_store

commands = family("Prototypes: what components are made from.")

Name = Annotated[
    str,
    typer.Argument(
        metavar="PROTOTYPE",
        help="Its name or a unique end of it.",
        autocompletion=options.prototypes,
    ),
]


@commands.command("list", epilog=options.example("mlstack prototype list", "mlstack prototype list tf-job"))
def list_(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The one to show, with its parameters.")
    ] = None,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """List the installed prototypes; with a name, the matching ones and their parameters."""
    from mlstack.operations import packages

    app = app_dir(ctx.obj, folder)
    return emit(
        packages.list_prototypes(app) if name is None else packages.matching_prototypes(app, name), output
    )


@commands.command(epilog=options.example("mlstack prototype search serving"))
def search(
    ctx: typer.Context,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A part of a name or description.")],
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Find prototypes by name and description, in every registry of the app."""
    from mlstack.operations import packages

    return emit(packages.search_prototypes(app_dir(ctx.obj, folder), text), output)


@commands.command(epilog=options.example("mlstack prototype describe tf-serving"))
def describe(
    ctx: typer.Context, name: Name, folder: options.Dir = None, output: options.Output = "table"
) -> int:
    """Show a prototype: what it is for and every parameter with type, default and unit."""
    from mlstack.operations import packages

    return emit(packages.describe_prototype(app_dir(ctx.obj, folder), name), output)


@commands.command(
    cls=FreeOptionsCommand, epilog=options.example("mlstack prototype preview tf-cnn cnn --num_gpus 1")
)
def preview(
    ctx: typer.Context,
    name: Name,
    component: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The name the component would have.")
    ] = None,
    params: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PARAM=VALUE", help="A parameter; `--PARAM VALUE` means the same."),
    ] = None,
    values: Annotated[
        list[Path] | None,
        typer.Option(
            "--values", "--values-file", metavar="FILE", help="A YAML file of parameters; repeatable."
        ),
    ] = None,
    env: options.EnvOption = None,
    folder: options.Dir = None,
    output: options.ObjectOutput = "yaml",
) -> int:
    """Print the Kubernetes objects that a component of this prototype would bring."""
    from mlstack.app.draft import ComponentRequest
    from mlstack.operations import packages

    wanted = ComponentRequest(
        prototype=name, name=component, texts=pairs(params or []), values_files=tuple(values or ())
    )
    app = app_dir(ctx.obj, folder)
    state = packages.preview_prototype(
        app, wanted, environment=env or app.current_environment(), store=code_store()
    )
    return emit_objects(state, output)


commands.command(
    "use",
    cls=FreeOptionsCommand,
    add_help_option=False,
    epilog=options.example("mlstack prototype use tf-cnn cnn", "mlstack prototype use tf-cnn --help"),
)(generate)
