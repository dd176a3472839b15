"""`diff` and `plan`: what an apply would do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlstack.cli import options, progress
from mlstack.cli.adapters import opener, target_of
from mlstack.cli.output import emit
from mlstack.cli.parsing import family
from mlstack.errors import UsageError

commands = family("Before anything is written.")

_SUFFIX = ".json"


@commands.command(epilog=options.example("mlstack diff gke", "mlstack diff gke -c cnn -o json"))
def diff(
    ctx: typer.Context,
    env: options.EnvArgument = None,
    components: options.Components = None,
    sets: options.SetValues = None,
    values: options.ValuesFiles = None,
    context: options.Context = None,
    namespace: options.Namespace = None,
    prune: options.Prune = True,
    kubeconfig: options.Kubeconfig = None,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Show what apply would change; exits with 1 when there is anything."""
    from mlstack.operations import diff as operation

    target = target_of(ctx.obj, folder, env, components, sets, values, context=context, namespace=namespace)
    with progress.waiting("comparing with the cluster"):
        result = operation.diff(target, opener=opener(ctx.obj, kubeconfig), prune=prune)
    return emit(result, output)


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
    allow_destructive: options.AllowDestructive = False,
    kubeconfig: options.Kubeconfig = None,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Show what apply would do, and keep it in a file that apply takes in place of ENV."""
    from mlstack.model.options import ApplyOptions
    from mlstack.operations import plan as operation

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
        allow_destructive=allow_destructive,
    )
    with progress.waiting("comparing with the cluster"):
        result = operation.plan(
            target, opener=opener(ctx.obj, kubeconfig), clock=ctx.obj.ports.clock, options=how, out=out
        )
    return emit(result, output)
