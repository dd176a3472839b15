"""`env add, list, describe, set, rm, current`."""

from __future__ import annotations

from typing import Annotated

import typer

from mlstack.cli import options
from mlstack.cli.main import family
from mlstack.cli.output import emit
from mlstack.cli.ports import app_dir

commands = family("Environments: kubectl contexts and namespaces that components are deployed to.")

Context = Annotated[
    str | None,
    typer.Option("--context", metavar="NAME", help="The kubectl context. Default: the current one."),
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAME", help="The namespace to deploy to.")
]
Extends = Annotated[
    str | None,
    typer.Option(
        "--extends",
        metavar="ENV",
        help="The environment whose values lie below.",
        autocompletion=options.environments,
    ),
]


@commands.command(
    epilog=options.example("mlstack env add minikube", "mlstack env add staging --context gke-staging -n ml")
)
def add(
    ctx: typer.Context,
    name: Annotated[
        str,
        typer.Argument(metavar="ENV", help="Its name, and that of a preset.", autocompletion=options.presets),
    ],
    context: Context = None,
    namespace: Namespace = None,
    extends: Extends = None,
    no_preset: Annotated[
        bool, typer.Option("--no-preset", help="Take no values from the preset of that name.")
    ] = False,
    kubeconfig_file: options.Kubeconfig = None,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Add an environment from a kubectl context; the cluster is not contacted."""
    from mlstack.operations import app

    result = app.add_environment(
        app_dir(ctx.obj, folder),
        name,
        kubeconfig=ctx.obj.ports.kubeconfig(kubeconfig_file),
        context=context,
        namespace=namespace,
        extends=extends,
        use_preset=not no_preset,
    )
    return emit(result, output)


@commands.command("list", epilog=options.example("mlstack env list -o json"))
def list_(ctx: typer.Context, folder: options.Dir = None, output: options.Output = "table") -> int:
    """List the environments of the app."""
    from mlstack.operations import app

    return emit(app.list_environments(app_dir(ctx.obj, folder)), output)


@commands.command(epilog=options.example("mlstack env describe gke"))
def describe(
    ctx: typer.Context,
    name: options.EnvName,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Show one environment, with what it inherits and the parameters it sets."""
    from mlstack.operations import app

    return emit(app.describe_environment(app_dir(ctx.obj, folder), name), output)


@commands.command(
    "set",
    epilog=options.example(
        "mlstack env set gke --namespace kubeflow", "mlstack env set gke --target kubeflow-core --protected"
    ),
)
def set_(
    ctx: typer.Context,
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
    kubeconfig_file: options.Kubeconfig = None,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Change an environment."""
    from mlstack.operations import app

    wanted = app.EnvironmentSettings(
        name=new_name,
        context=context,
        namespace=namespace,
        kubernetes_version=kubernetes_version,
        targets=() if all_targets else tuple(targets) if targets else None,
        protected=protected,
        allowed_namespaces=()
        if all_namespaces
        else tuple(allowed_namespaces)
        if allowed_namespaces
        else None,
        cluster_scoped=None if cluster_scoped is None else "allowed" if cluster_scoped else "refused",
        wait_for_load_balancer=load_balancers,
        forget_cluster=forget_cluster,
    )
    known = ctx.obj.ports.kubeconfig(kubeconfig_file) if context is not None else None
    return emit(app.change_environment(app_dir(ctx.obj, folder), name, wanted, kubeconfig=known), output)


@commands.command(epilog=options.example("mlstack env rm staging"))
def rm(
    ctx: typer.Context,
    name: options.EnvName,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Remove an environment from the app; the cluster is not touched."""
    from mlstack.operations import app

    return emit(app.remove_environment(app_dir(ctx.obj, folder), name), output)


@commands.command(epilog=options.example("mlstack env current --set gke", "mlstack env current --unset"))
def current(
    ctx: typer.Context,
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
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Print or choose the environment that commands take when they name none."""
    from mlstack.operations import app

    return emit(app.current_environment(app_dir(ctx.obj, folder), chosen=chosen, unset=unset), output)
