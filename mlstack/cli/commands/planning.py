"""`diff` and `plan`: what an apply would do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlstack.cli import options, page
from mlstack.cli.main import family
from mlstack.cli.output import emit
from mlstack.cli.ports import opener, target_of
from mlstack.errors import MlstackError, UsageError

if TYPE_CHECKING:
    from mlstack.deploy.changes import ApplyOptions
    from mlstack.deploy.compare import ComparedEnvironment
    from mlstack.deploy.target import Target
    from mlstack.kube.client import Opener

commands = family("Before anything is written.")

_SUFFIX = ".json"


@commands.command(
    epilog=options.example(
        "mlstack diff gke -c cnn -o json",
        "mlstack diff gke --live",
        "mlstack diff local:minikube local:gke",
        "mlstack diff remote:minikube remote:gke --summary",
    )
)
def diff(
    ctx: typer.Context,
    env: options.EnvArgument = None,
    other: Annotated[
        str | None,
        typer.Argument(
            metavar="[OTHER]",
            help="Compare with this environment: `local:ENV` is its files, `remote:ENV` its cluster.",
            autocompletion=options.environments,
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Tell of each live difference who made it, and when.")
    ] = False,
    summary: Annotated[bool, typer.Option("--summary", help="Show the names of objects alone.")] = False,
    components: options.Components = None,
    sets: options.SetValues = None,
    values: options.ValuesFiles = None,
    context: options.Context = None,
    namespace: options.Namespace = None,
    prune: options.Prune = True,
    adopt: options.Adopt = False,
    force_conflicts: options.ForceConflicts = False,
    keep_foreign_fields: options.KeepForeignFields = False,
    kubeconfig: options.Kubeconfig = None,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Show what apply would change; exits with 1 when there is anything."""
    from mlstack.deploy import compare
    from mlstack.deploy.changes import ApplyOptions

    if other is not None:
        _refuse_beside_other(live=live, context=context, namespace=namespace)
        left = compare.read_side(env or "")
        target = target_of(ctx.obj, folder, left.environment, components, sets, values)
        result = _compared(target, left, compare.read_side(other), opener(ctx.obj, kubeconfig))
        return _emit(result, output, summary=summary)
    name = env if env is None else compare.read_side(env).environment
    target = target_of(ctx.obj, folder, name, components, sets, values, context=context, namespace=namespace)
    try:
        with page.waiting("comparing with the cluster"):
            cluster = opener(ctx.obj, kubeconfig)
            if live:
                found = _drifted(target, cluster)
            else:
                how = ApplyOptions(
                    dry_run=True,
                    prune=prune,
                    adopt=adopt,
                    force_conflicts=force_conflicts,
                    keep_foreign_fields=keep_foreign_fields,
                )
                found = _differing(target, cluster, how)
    except MlstackError as error:
        if error.partial is not None:  # all but what the server does not accept
            _emit(error.partial, output, summary=summary)
        raise
    return _emit(found, output, summary=summary)


def _differing(target: Target, cluster: Opener, how: ApplyOptions) -> object:
    from mlstack.operations import deploy

    return deploy.diff(target, opener=cluster, options=how)


def _drifted(target: Target, cluster: Opener) -> object:
    from mlstack.operations import deploy

    return deploy.find_drift(target, opener=cluster)


def _compared(
    target: Target, left: ComparedEnvironment, right: ComparedEnvironment, cluster: Opener
) -> object:
    from mlstack.operations import deploy

    with page.waiting(f"comparing {left} with {right}"):
        return deploy.compare_environments(target, left, right, opener=cluster)


def _refuse_beside_other(**given: object) -> None:
    """Refuse options that speak of one environment.

    Raises:
        UsageError: one was given beside a second environment.
    """
    named = next((name for name, value in given.items() if value), None)
    if named is not None:
        raise UsageError(
            f"`--{named}` is about one environment, and two are named", hint="mlstack diff local:A remote:B"
        )


def _emit(result: object, output: str, *, summary: bool) -> int:
    if not summary or output != "table":
        return emit(result, output)
    from mlstack.cli import views
    from mlstack.cli.views_deploy import names_alone

    page.show(names_alone(views.page(result)))
    return 0 if getattr(result, "ok", True) else 1


@commands.command(
    epilog=options.example("mlstack plan gke --out plan.json", "mlstack apply plan.json --dry-run")
)
def plan(
    ctx: typer.Context,
    env: options.EnvArgument = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE.json", help="Write a plan file, for `mlstack apply FILE.json`."),
    ] = None,
    components: options.Components = None,
    sets: options.SetValues = None,
    values: options.ValuesFiles = None,
    context: options.Context = None,
    namespace: options.Namespace = None,
    create: options.Create = True,
    prune: options.Prune = True,
    allow_large_prune: options.AllowLargePrune = False,
    adopt: options.Adopt = False,
    force_conflicts: options.ForceConflicts = False,
    keep_foreign_fields: options.KeepForeignFields = False,
    allow_destructive: options.AllowDestructive = False,
    wait: options.Wait = True,
    timeout: options.Timeout = None,
    wait_for_jobs: options.WaitForJobs = False,
    kubeconfig: options.Kubeconfig = None,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Show what apply would do, and keep it in a file that apply takes in place of ENV."""
    from mlstack.deploy.changes import ApplyOptions
    from mlstack.operations import deploy

    if out is not None and out.suffix != _SUFFIX:
        raise UsageError(f"a plan file ends with `{_SUFFIX}`, got `{out}`", hint=f"--out {out}{_SUFFIX}")
    target = target_of(ctx.obj, folder, env, components, sets, values, context=context, namespace=namespace)
    how = ApplyOptions(
        dry_run=True,
        create=create,
        prune=prune,
        allow_large_prune=allow_large_prune,
        adopt=adopt,
        force_conflicts=force_conflicts,
        keep_foreign_fields=keep_foreign_fields,
        allow_destructive=allow_destructive,
        wait=wait,
        timeout_s=timeout,
        wait_for_jobs=wait_for_jobs,
    )
    with page.waiting("comparing with the cluster"):
        result = deploy.plan(
            target, opener=opener(ctx.obj, kubeconfig), clock=ctx.obj.ports.clock, options=how, out=out
        )
    return emit(result, output)
