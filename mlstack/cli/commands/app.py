"""`init`, and `env add, list, describe, set, rm, current`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlstack.cli import options
from mlstack.cli.main import family
from mlstack.cli.ports import Session

top = family()
env = family("Environments: kubectl contexts and namespaces that components are deployed to.")

Context = Annotated[
    str | None,
    typer.Option("--context", metavar="NAME", help="The kubectl context. Default: the current one."),
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAME", help="The namespace to deploy to.")
]


@top.command(takes="output", examples=["mlstack init my-kubeflow && cd my-kubeflow"])
def init(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The app's name, and that of its new folder.")],
    folder: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="The folder to make. Default: NAME, here.")
    ] = None,
    skip_default_registries: Annotated[
        bool, typer.Option("--skip-default-registries", help="Name no registry, not even the bundled one.")
    ] = False,
) -> object:
    """Create an app directory; needs no network and no cluster."""
    from mlstack.operations import app

    place = folder or (session.folder or Path()) / name
    return app.init(place, name, default_registry=not skip_default_registries)


@env.command(
    takes="kubeconfig folder output",
    examples=["mlstack env add minikube", "mlstack env add staging --context gke-staging -n ml"],
)
def add(
    session: Session,
    name: Annotated[
        str,
        typer.Argument(metavar="ENV", help="Its name, and that of a preset.", autocompletion=options.presets),
    ],
    context: Context = None,
    namespace: Namespace = None,
    extends: Annotated[
        str | None,
        typer.Option(
            "--extends",
            metavar="ENV",
            help="The environment whose values lie below.",
            autocompletion=options.environments,
        ),
    ] = None,
    no_preset: Annotated[
        bool, typer.Option("--no-preset", help="Take no values from the preset of that name.")
    ] = False,
) -> object:
    """Add an environment from a kubectl context; the cluster is not contacted."""
    from mlstack.operations import app

    return app.add_environment(
        session.app,
        name,
        kubeconfig=session.ports.kubeconfig(session.given["kubeconfig"]),
        context=context,
        namespace=namespace,
        extends=extends,
        use_preset=not no_preset,
    )


@env.command("list", examples=["mlstack env list -o json"])
def list_(session: Session) -> object:
    """List the environments of the app."""
    from mlstack.operations import app

    return app.list_environments(session.app)


@env.command(examples=["mlstack env describe gke"])
def describe(session: Session, name: options.EnvName) -> object:
    """Show one environment, with what it inherits and the parameters it sets."""
    from mlstack.operations import app

    return app.describe_environment(session.app, name)


@env.command(
    "set",
    takes="kubeconfig folder output",
    examples=[
        "mlstack env set gke --namespace kubeflow",
        "mlstack env set gke --target kubeflow-core --protected",
    ],
)
def set_(
    session: Session,
    name: options.EnvName,
    context: Context = None,
    namespace: Namespace = None,
    kubernetes_version: Annotated[
        str | None,
        typer.Option("--kubernetes-version", metavar="X.Y", help="The version to validate against."),
    ] = None,
    targets: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            metavar="NAME",
            help="Deploy only this component or module; repeatable.",
            autocompletion=options.components,
        ),
    ] = None,
    all_targets: Annotated[bool, typer.Option("--all-targets", help="Deploy every component again.")] = False,
    protected: Annotated[
        bool | None,
        typer.Option("--protected/--unprotected", help="Whether every change wants the name typed."),
    ] = None,
    allowed_namespaces: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-namespace", metavar="NAME", help="Write to this one and its own alone; repeatable."
        ),
    ] = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", help="Write to any namespace again.")
    ] = False,
    cluster_scoped: Annotated[
        bool | None,
        typer.Option(
            "--cluster-scoped/--no-cluster-scoped", help="Whether objects outside namespaces are allowed."
        ),
    ] = None,
    load_balancers: Annotated[
        bool | None,
        typer.Option(
            "--wait-for-load-balancer/--no-wait-for-load-balancer",
            help="Whether load balancers must get an address.",
        ),
    ] = None,
    forget_cluster: Annotated[
        bool, typer.Option("--forget-cluster", help="Bind the context to the cluster met next.")
    ] = False,
    new_name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Rename the environment.")
    ] = None,
) -> object:
    """Change an environment."""
    from mlstack.operations import app

    settings = app.EnvironmentSettings(
        name=new_name,
        context=context,
        namespace=namespace,
        kubernetes_version=kubernetes_version,
        targets=() if all_targets else tuple(targets or ()) or None,
        protected=protected,
        allowed_namespaces=() if all_namespaces else tuple(allowed_namespaces or ()) or None,
        cluster_scoped=None if cluster_scoped is None else "allowed" if cluster_scoped else "refused",
        wait_for_load_balancer=load_balancers,
        forget_cluster=forget_cluster,
    )
    file = session.given["kubeconfig"]
    kubeconfig = session.ports.kubeconfig(file) if context is not None else None
    return app.change_environment(session.app, name, settings, kubeconfig=kubeconfig)


@env.command(examples=["mlstack env rm staging"])
def rm(session: Session, name: options.EnvName) -> object:
    """Remove an environment from the app; the cluster is not touched."""
    from mlstack.operations import app

    return app.remove_environment(session.app, name)


@env.command(examples=["mlstack env current --set gke", "mlstack env current --unset"])
def current(
    session: Session,
    chosen: Annotated[
        str | None,
        typer.Option(
            "--set",
            metavar="ENV",
            help="Take this one when a command names none.",
            autocompletion=options.environments,
        ),
    ] = None,
    unset: Annotated[bool, typer.Option("--unset", help="Choose none.")] = False,
) -> object:
    """Print or choose the environment that commands take when they name none."""
    from mlstack.operations import app

    return app.current_environment(session.app, chosen=chosen, unset=unset)
