"""`param set, unset, list, diff, explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlstack.cli import options
from mlstack.cli.main import DashedValueCommand, family
from mlstack.cli.output import emit
from mlstack.cli.ports import app_dir, code_store
from mlstack.errors import UsageError

commands = family("Parameters, at every level of an app.")

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[COMPONENT] KEY",
        help="Without a component, a value for all: of the app, a module or an environment.",
        autocompletion=options.component_and_parameter,
    ),
]
Env = Annotated[
    str | None,
    typer.Option(
        "--env", metavar="ENV", help="In this environment alone.", autocompletion=options.environments
    ),
]
Module = Annotated[
    str | None, typer.Option("--module", metavar="NAME", help="For all components of this module.")
]


@commands.command(
    "set",
    cls=DashedValueCommand,
    epilog=options.example(
        "mlstack param set --env=gke cnn num_gpus 1",
        "mlstack param set --env=gke accelerator nvidia-l4",
        "mlstack param set cnn extra_args --forward_only=true",
        "mlstack param set cnn labels.team vision",
    ),
)
def set_(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMPONENT] KEY VALUE",
            help="Dots reach into maps. Without a component, a value for all.",
            autocompletion=options.component_and_parameter,
        ),
    ] = None,
    env: Env = None,
    module: Module = None,
    as_string: Annotated[
        bool, typer.Option("--as-string", help="Store the text as it is, without reading a type.")
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="Read the value from a file; `-` is stdin."),
    ] = None,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Set a parameter; only the value changes in the file."""
    from mlstack.cli.ports import read_text
    from mlstack.operations import params

    given = [*(words or []), *([read_text(file)] if file is not None else [])]
    component, key, value = _three(given)
    scope = params.ParamPlace(component=component, environment=env, module=module)
    return emit(params.set_param(app_dir(ctx.obj, folder), scope, key, value, as_string=as_string), output)


@commands.command(
    "unset", epilog=options.example("mlstack param unset --env=gke cnn num_gpus", "mlstack param unset cloud")
)
def unset(
    ctx: typer.Context,
    words: Words = None,
    env: Env = None,
    module: Module = None,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Take a value back, so that the next lower level counts again."""
    from mlstack.operations import params

    component, key = _two(words or [])
    place = params.ParamPlace(component=component, environment=env, module=module)
    return emit(params.unset_param(app_dir(ctx.obj, folder), place, key), output)


commands.command("delete", hidden=True, epilog=options.example("mlstack param delete cnn num_gpus"))(unset)


@commands.command(
    "list", epilog=options.example("mlstack param list", "mlstack param list cnn --env gke -o json")
)
def list_(
    ctx: typer.Context,
    component: Annotated[
        str | None,
        typer.Argument(metavar="[COMPONENT]", help="Only this component.", autocompletion=options.components),
    ] = None,
    env: options.EnvOption = None,
    set_only: Annotated[
        bool, typer.Option("--set-only", "--without-modules", help="Leave out the defaults of prototypes.")
    ] = False,
    module: Annotated[
        str | None, typer.Option("--module", metavar="NAME", help="Only components of this module.")
    ] = None,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """List the values that a render would use, and where each one was set."""
    from mlstack.operations import params

    app = app_dir(ctx.obj, folder)
    result = params.list_params(app, component=component, environment=env, module=module, set_only=set_only)
    return emit(result, output)


@commands.command(epilog=options.example("mlstack param diff minikube gke -c cnn"))
def diff(
    ctx: typer.Context,
    first: Annotated[str, typer.Argument(metavar="ENV1", autocompletion=options.environments)],
    second: Annotated[str, typer.Argument(metavar="ENV2", autocompletion=options.environments)],
    component: options.Components = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 1 when something differs.")
    ] = False,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Show the parameters that differ between two environments."""
    from mlstack.operations import params

    result = params.diff_params(app_dir(ctx.obj, folder), first, second, components=component or ())
    emit(result, output)
    return 1 if exit_code and result.rows else 0


@commands.command(epilog=options.example("mlstack param explain cnn num_gpus --env gke"))
def explain(
    ctx: typer.Context,
    component: Annotated[
        str, typer.Argument(metavar="COMPONENT", autocompletion=options.components, help="The component.")
    ],
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[PARAM]",
            help="One parameter. Default: all that are set.",
            autocompletion=options.parameters,
        ),
    ] = None,
    env: options.EnvOption = None,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Show where a value comes from, level by level, and which fields of the objects it reaches."""
    from mlstack.operations import params

    app = app_dir(ctx.obj, folder)
    return emit(params.explain_param(app, component, name, environment=env, store=code_store()), output)


def _three(words: list[str]) -> tuple[str | None, str, str]:
    if len(words) == 3:
        return words[0], words[1], words[2]
    if len(words) == 2:
        return None, words[0], words[1]
    raise UsageError(
        f"`param set` takes [COMPONENT] KEY VALUE, got {_count(words)}",
        hint="mlstack param set cnn num_gpus 1",
    )


def _two(words: list[str]) -> tuple[str | None, str]:
    if len(words) == 2:
        return words[0], words[1]
    if len(words) == 1:
        return None, words[0]
    raise UsageError(
        f"`param unset` takes [COMPONENT] KEY, got {_count(words)}", hint="mlstack param unset cnn num_gpus"
    )


def _count(words: list[str]) -> str:
    return "1 word" if len(words) == 1 else f"{len(words)} words"
