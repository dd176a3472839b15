"""`registry`, `pkg`, `prototype` and `component` with their commands, and `generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlstack.cli import options
from mlstack.cli.main import FreeOptionsCommand, family
from mlstack.cli.output import emit_objects, say, table_text, write
from mlstack.cli.ports import Session, code_store
from mlstack.errors import UsageError

top = family()
registry = family("Registries: where packages come from.")
pkg = family("Packages: prototypes under one version, pinned by digest.")
prototype = family("Prototypes: what components are made from.")
component = family("Components: prototypes used under a name, and plain manifests.")

# --- registry ---

RegistryName = Annotated[str, typer.Argument(metavar="NAME", help="The app's own name for the registry.")]


@registry.command(
    "add",
    examples=[
        "mlstack registry add kubeflow github.com/google/kubeflow/tree/master/kubeflow",
        "mlstack registry add ours ../our-registry",
    ],
)
def add_registry(
    session: Session,
    name: RegistryName,
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="A folder, a git URL or a GitHub tree address.")
    ],
) -> object:
    """Add a registry to the app, once it is known to answer."""
    from mlstack.operations import packages

    return packages.add_registry(session.app, name, address)


@registry.command("list", examples=["mlstack registry list"])
def list_registries(session: Session) -> object:
    """List the registries of the app."""
    from mlstack.operations import packages

    return packages.list_registries(session.app)


@registry.command("describe", examples=["mlstack registry describe kubeflow"])
def describe_registry(session: Session, name: RegistryName) -> object:
    """Show a registry and its packages."""
    from mlstack.operations import packages

    return packages.describe_registry(session.app, name)


@registry.command(takes="output", examples=["mlstack registry index registry/"])
def index(
    session: Session,
    place: Annotated[
        Path, typer.Argument(metavar="DIR", help="The registry's folder, the one with registry.yaml.")
    ],
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 if it is stale.")] = False,
) -> object:
    """Rewrite a registry's index from its package folders."""
    from mlstack.operations import packages

    return packages.index_registry(place, check=check)


# --- pkg ---

PackageName = Annotated[
    str,
    typer.Argument(
        metavar="REGISTRY/PACKAGE[@VERSION]",
        help="The package, as `kubeflow/core`.",
        autocompletion=options.packages,
    ),
]


@pkg.command(examples=["mlstack pkg install kubeflow/core"])
def install(
    session: Session,
    name: PackageName,
    force: Annotated[bool, typer.Option("--force", help="Fetch again what is there.")] = False,
) -> object:
    """Copy a package and what it requires into vendor/, pinned in mlstack.lock."""
    from mlstack.operations import packages

    return packages.install_package(session.app, name, force=force)


@pkg.command("list", examples=["mlstack pkg list --installed"])
def list_packages(
    session: Session,
    installed: Annotated[
        bool, typer.Option("--installed", help="Only installed packages; asks no registry.")
    ] = False,
) -> object:
    """List the packages that can be installed and those that are."""
    from mlstack.operations import packages

    return packages.list_packages(session.app, installed_only=installed)


@pkg.command("describe", examples=["mlstack pkg describe kubeflow/tf-job"])
def describe_package(session: Session, name: PackageName) -> object:
    """Show a package and its prototypes, installed or not."""
    from mlstack.operations import packages

    return packages.describe_package(session.app, name)


@pkg.command("rm", examples=["mlstack pkg rm kubeflow/tf-serving"])
def remove_package(session: Session, name: PackageName) -> object:
    """Remove a package that no component uses."""
    from mlstack.operations import packages

    return packages.remove_package(session.app, name)


# --- prototype and generate ---

PrototypeName = Annotated[
    str,
    typer.Argument(
        metavar="PROTOTYPE",
        help="Its name or a unique end of it.",
        autocompletion=options.prototypes,
    ),
]
Params = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PARAM=VALUE", help="A parameter; `--PARAM VALUE` means the same."),
]
ValuesFiles = Annotated[
    list[Path] | None,
    typer.Option("--values", "--values-file", metavar="FILE", help="A YAML file of parameters; repeatable."),
]


@prototype.command("list", examples=["mlstack prototype list", "mlstack prototype list tf-job"])
def list_prototypes(
    session: Session,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The one to show, with its parameters.")
    ] = None,
) -> object:
    """List the installed prototypes; with a name, the matching ones and their parameters."""
    from mlstack.operations import prototypes

    if name is None:
        return prototypes.list_prototypes(session.app)
    return prototypes.matching_prototypes(session.app, name)


@prototype.command(examples=["mlstack prototype search serving"])
def search(
    session: Session,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A part of a name or description.")],
) -> object:
    """Find prototypes by name and description, in every registry of the app."""
    from mlstack.operations import prototypes

    return prototypes.search_prototypes(session.app, text)


@prototype.command("describe", examples=["mlstack prototype describe tf-serving"])
def describe_prototype(session: Session, name: PrototypeName) -> object:
    """Show a prototype: what it is for and every parameter with type, default and unit."""
    from mlstack.operations import prototypes

    return prototypes.describe_prototype(session.app, name)


@prototype.command(
    cls=FreeOptionsCommand,
    takes="folder object_output",
    examples=["mlstack prototype preview tf-cnn cnn --num_gpus 1"],
)
def preview(
    session: Session,
    name: PrototypeName,
    component: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The name the component would have.")
    ] = None,
    params: Params = None,
    values: ValuesFiles = None,
    env: options.EnvOption = None,
) -> int:
    """Print the Kubernetes objects that a component of this prototype would bring."""
    from mlstack.app.draft import ComponentRequest
    from mlstack.operations import prototypes

    wanted = ComponentRequest(
        prototype=name, name=component, texts=_pairs(params), values_files=tuple(values or ())
    )
    environment = env or session.app.current_environment()
    state = prototypes.preview_prototype(session.app, wanted, environment=environment, store=code_store())
    return emit_objects(state, session.given["object_output"])


@top.command(
    cls=FreeOptionsCommand,
    add_help_option=False,
    examples=[
        "mlstack generate tf-cnn cnn --name=cnn",
        "mlstack generate tf-serving inception --model_path=gs://models/inception",
        "mlstack generate tf-cnn --help",
    ],
)
def generate(
    session: Session,
    prototype: Annotated[
        str | None,
        typer.Argument(metavar="PROTOTYPE", help="The prototype.", autocompletion=options.prototypes),
    ] = None,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The component's name.")] = None,
    params: Params = None,
    values: ValuesFiles = None,
    module: Annotated[
        str | None, typer.Option("--module", metavar="NAME", help="The module it goes to.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a component of that name.")] = False,
    show_help: Annotated[
        bool, typer.Option("--help", "-h", help="This message; behind a prototype, its parameters.")
    ] = False,
) -> object:
    """Make a component from a prototype; its parameters are options of this command."""
    from mlstack.app.draft import ComponentRequest
    from mlstack.operations import prototypes

    if show_help:
        write(session.ctx.get_help())
        if prototype is None:
            say("hint: mlstack generate PROTOTYPE --help lists the parameters of that prototype")
        else:
            write("\n" + table_text(prototypes.describe_prototype(session.app, prototype)))
        return 0
    if prototype is None:
        raise UsageError("which prototype?", hint="mlstack prototype list")
    wanted = ComponentRequest(
        prototype=prototype,
        name=name,
        module=module,
        texts=_pairs(params),
        values_files=tuple(values or ()),
    )
    return prototypes.generate(session.app, wanted, replace=force, store=code_store())


prototype.command(
    "use",
    cls=FreeOptionsCommand,
    add_help_option=False,
    examples=["mlstack prototype use tf-cnn cnn", "mlstack prototype use tf-cnn --help"],
)(generate)


def _pairs(words: list[str] | None) -> dict[str, str | None]:
    """Read `PARAM=VALUE` words; a word without `=` is a switch, which only a boolean parameter takes."""
    parts = [word.partition("=") for word in words or ()]
    return {name: text if equals else None for name, equals, text in parts}


# --- component ---


@component.command("list", examples=["mlstack component list"])
def list_components(session: Session) -> object:
    """List the components of the app."""
    from mlstack.operations import prototypes

    return prototypes.list_components(session.app)


@component.command("rm", examples=["mlstack component rm cnn"])
def remove_component(
    session: Session,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The component.", autocompletion=options.components)
    ],
) -> object:
    """Remove a component and what environments say about it; the cluster is not touched."""
    from mlstack.operations import prototypes

    return prototypes.remove_component(session.app, name)
