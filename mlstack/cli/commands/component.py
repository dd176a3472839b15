"""`generate`, and `component list, rm`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlstack.cli import options
from mlstack.cli.main import FreeOptionsCommand, family
from mlstack.cli.output import emit, say, table_text, write
from mlstack.cli.ports import app_dir, code_store
from mlstack.errors import UsageError

if TYPE_CHECKING:
    from mlstack.app.app_dir import AppDir

commands = family("The app's components.")
component = family("Components: prototypes used under a name, and plain manifests.")

GENERATE_EXAMPLE = options.example(
    "mlstack generate tf-cnn cnn --name=cnn",
    "mlstack generate tf-serving inception --model_path=gs://models/inception",
    "mlstack generate tf-cnn --help",
)


@commands.command(cls=FreeOptionsCommand, add_help_option=False, epilog=GENERATE_EXAMPLE)
def generate(
    ctx: typer.Context,
    prototype: options.PrototypeName = None,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The component's name.")] = None,
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
    module: Annotated[
        str | None, typer.Option("--module", metavar="NAME", help="The module it goes to.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a component of that name.")] = False,
    show_help: Annotated[
        bool, typer.Option("--help", "-h", help="This message; behind a prototype, its parameters.")
    ] = False,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Make a component from a prototype; its parameters are options of this command."""
    from mlstack.app.draft import ComponentRequest
    from mlstack.operations import packages

    if show_help:
        return _show_help(ctx, prototype, folder)
    if prototype is None:
        raise UsageError("which prototype?", hint="mlstack prototype list")
    wanted = ComponentRequest(
        prototype=prototype,
        name=name,
        module=module,
        texts=pairs(params or []),
        values_files=tuple(values or ()),
    )
    result = packages.generate(app_dir(ctx.obj, folder), wanted, replace=force, store=code_store())
    return emit(result, output)


@component.command("list", epilog=options.example("mlstack component list"))
def list_(ctx: typer.Context, folder: options.Dir = None, output: options.Output = "table") -> int:
    """List the components of the app."""
    from mlstack.operations import packages

    return emit(packages.list_components(app_dir(ctx.obj, folder)), output)


@component.command(epilog=options.example("mlstack component rm cnn"))
def rm(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The component.", autocompletion=options.components)
    ],
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Remove a component and what environments say about it; the cluster is not touched."""
    from mlstack.operations import packages

    return emit(packages.remove_component(app_dir(ctx.obj, folder), name), output)


commands.add_typer(component, name="component")


def pairs(given: list[str]) -> dict[str, str | None]:
    """Read `PARAM=VALUE` words; a word without `=` is a switch, which only a boolean parameter takes."""
    found: dict[str, str | None] = {}
    for word in given:
        name, equals, text = word.partition("=")
        found[name] = text if equals else None
    return found


def _show_help(ctx: typer.Context, prototype: str | None, folder: Path | None) -> int:
    write(ctx.get_help())
    if prototype is not None:
        write("\n" + _parameters(app_dir(ctx.obj, folder), prototype))
    else:
        say("hint: mlstack generate PROTOTYPE --help lists the parameters of that prototype")
    return 0


def _parameters(app: AppDir, prototype: str) -> str:
    from mlstack.operations import packages

    return table_text(packages.describe_prototype(app, prototype))
