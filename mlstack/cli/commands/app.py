"""`init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlstack.cli import options
from mlstack.cli.main import family
from mlstack.cli.output import emit
from mlstack.cli.ports import Session

commands = family("The app directory.")


@commands.command(epilog=options.example("mlstack init my-kubeflow && cd my-kubeflow"))
def init(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The app's name, and that of its new folder.")],
    folder: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="The folder to make. Default: NAME, here.")
    ] = None,
    skip_default_registries: Annotated[
        bool, typer.Option("--skip-default-registries", help="Name no registry, not even the bundled one.")
    ] = False,
    output: options.Output = "table",
) -> int:
    """Create an app directory; needs no network and no cluster."""
    from mlstack.operations import app

    session: Session = ctx.obj
    place = folder or (session.folder or Path()) / name
    return emit(app.init(place, name, default_registry=not skip_default_registries), output)
