"""`param set, unset, list, diff, explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlstack.cli import options
from mlstack.cli.main import DashedValueCommand, family
from mlstack.cli.output import emit
from mlstack.cli.ports import Session, code_store, read_text
from mlstack.errors import UsageError

param = family("Parameters, at every level of an app.")

Env = Annotated[
    str | None,
    typer.Option(
        "--env", metavar="ENV", help="In this environment alone.", autocompletion=options.environments
    ),
]
Module = Annotated[
    str | None, typer.Option("--module", metavar="NAME", help="For all components of this module.")
]


@param.command(
    "set",
    cls=DashedValueCommand,
    examples=[
        "mlstack param set --env=gke cnn num_gpus 1",
        "mlstack param set --env=gke accelerator nvidia-l4",
        "mlstack param set cnn extra_args --forward_only=true",
        "mlstack param set cnn labels.team vision",
    ],
)
def set_(
    session: Session,
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
) -> object:
    """Set a parameter; only the value changes in the file."""
    from mlstack.operations import params

    given = [*(words or []), *([read_text(file)] if file is not None else [])]
    if len(given) not in (2, 3):
        raise UsageError(
            f"`param set` takes [COMPONENT] KEY VALUE, got {_count(given)}",
            hint="mlstack param set cnn num_gpus 1",
        )
    *component, key, value = given
    place = params.ParamPlace(component=next(iter(component), None), environment=env, module=module)
    return params.set_param(session.app, place, key, value, as_string=as_string)


@param.command("unset", examples=["mlstack param unset --env=gke cnn num_gpus", "mlstack param unset cloud"])
def unset(
    session: Session,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMPONENT] KEY",
            help="Without a component, a value for all: of the app, a module or an environment.",
            autocompletion=options.component_and_parameter,
        ),
    ] = None,
    env: Env = None,
    module: Module = None,
) -> object:
    """Take a value back, so that the next lower level counts again."""
    from mlstack.operations import params

    given = words or []
    if len(given) not in (1, 2):
        raise UsageError(
            f"`param unset` takes [COMPONENT] KEY, got {_count(given)}",
            hint="mlstack param unset cnn num_gpus",
        )
    *component, key = given
    place = params.ParamPlace(component=next(iter(component), None), environment=env, module=module)
    return params.unset_param(session.app, place, key)


param.command("delete", hidden=True, examples=["mlstack param delete cnn num_gpus"])(unset)


def _count(words: list[str]) -> str:
    return "1 word" if len(words) == 1 else f"{len(words)} words"


@param.command("list", examples=["mlstack param list", "mlstack param list cnn --env gke -o json"])
def list_(
    session: Session,
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
) -> object:
    """List the values that a render would use, and where each one was set."""
    from mlstack.operations import params

    return params.list_params(
        session.app, component=component, environment=env, module=module, set_only=set_only
    )


@param.command(
    takes="components exit_code folder output", examples=["mlstack param diff minikube gke -c cnn"]
)
def diff(
    session: Session,
    first: Annotated[str, typer.Argument(metavar="ENV1", autocompletion=options.environments)],
    second: Annotated[str, typer.Argument(metavar="ENV2", autocompletion=options.environments)],
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 1 when something differs.")
    ] = False,
) -> int:
    """Show the parameters that differ between two environments."""
    from mlstack.operations import params

    result = params.diff_params(session.app, first, second, components=session.given["components"] or ())
    emit(result, session.given["output"])
    return 1 if exit_code and result.rows else 0


@param.command(examples=["mlstack param explain cnn num_gpus --env gke"])
def explain(
    session: Session,
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
) -> object:
    """Show where a value comes from, level by level, and which fields of the objects it reaches."""
    from mlstack.operations.explain import explain_param

    return explain_param(session.app, component, name, environment=env, store=code_store())
