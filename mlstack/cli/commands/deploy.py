"""`render` (alias `show`), `validate`, `apply`, `delete`, `status`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlstack.cli import options, page
from mlstack.cli.main import family
from mlstack.cli.output import emit, emit_objects, is_terminal, object_files, say, write
from mlstack.cli.ports import app_dir, code_store, environment_name, opener, overrides, target_of
from mlstack.errors import UsageError

if TYPE_CHECKING:
    from mlstack.deploy.changes import ApplyOptions
    from mlstack.deploy.target import Target
    from mlstack.kube.client import Opener
    from mlstack.objects.kube_object import DesiredState

commands = family("From the app to the cluster.")


@commands.command(epilog=options.example("mlstack render gke -c cnn", "mlstack render gke --out manifests/"))
def render(
    ctx: typer.Context,
    env: options.EnvArgument = None,
    components: options.Components = None,
    sets: options.SetValues = None,
    values: options.ValuesFiles = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write one file an object into a folder.")
    ] = None,
    folder: options.Dir = None,
    output: options.ObjectOutput = "yaml",
) -> int:
    """Print the Kubernetes objects of an environment; needs no cluster."""
    from mlstack.operations import render

    app = app_dir(ctx.obj, folder)
    state = render.render_environment(
        app,
        environment_name(app, env),
        components=components or (),
        overrides=overrides(sets, values),
        store=code_store(),
    )
    return emit_objects(state, output) if out is None else _write(state, out, output)


@commands.command(epilog=options.example("mlstack validate gke"))
def validate(
    ctx: typer.Context,
    env: options.EnvArgument = None,
    components: options.Components = None,
    sets: options.SetValues = None,
    values: options.ValuesFiles = None,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Check every object against the schemas of Kubernetes and its CRDs; needs no cluster."""
    from mlstack.operations import render

    app = app_dir(ctx.obj, folder)
    result = render.validate_environment(
        app,
        environment_name(app, env),
        components=components or (),
        overrides=overrides(sets, values),
        store=code_store(),
    )
    return emit(result, output)


@commands.command(
    epilog=options.example("mlstack apply minikube -c kubeflow-core", "mlstack apply gke-plan.json")
)
def apply(
    ctx: typer.Context,
    env: options.EnvArgument = None,
    components: options.Components = None,
    sets: options.SetValues = None,
    values: options.ValuesFiles = None,
    context: options.Context = None,
    namespace: options.Namespace = None,
    dry_run: options.DryRun = False,
    create: options.Create = True,
    prune: options.Prune = True,
    allow_large_prune: options.AllowLargePrune = False,
    adopt: options.Adopt = False,
    force_conflicts: options.ForceConflicts = False,
    keep_foreign_fields: options.KeepForeignFields = False,
    allow_destructive: options.AllowDestructive = False,
    on_failure: options.OnFailure = "stop",
    wait: options.Wait = True,
    timeout: options.Timeout = None,
    wait_for_jobs: options.WaitForJobs = False,
    lock_timeout: options.LockTimeout = None,
    yes: options.Yes = False,
    yes_i_mean: options.YesIMean = None,
    kubeconfig: options.Kubeconfig = None,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Make the cluster match the app, or do what a plan file holds; asks before existing objects change."""
    from mlstack.cli import run_reporter
    from mlstack.deploy.changes import ApplyOptions
    from mlstack.operations import deploy

    target = target_of(ctx.obj, folder, env, components, sets, values, context=context, namespace=namespace)
    how = ApplyOptions(
        dry_run=dry_run,
        create=create,
        prune=prune,
        allow_large_prune=allow_large_prune,
        adopt=adopt,
        force_conflicts=force_conflicts,
        keep_foreign_fields=keep_foreign_fields,
        allow_destructive=allow_destructive,
        lock_timeout_s=lock_timeout,
        wait=wait,
        timeout_s=timeout,
        wait_for_jobs=wait_for_jobs,
        on_failure="rollback" if on_failure == "rollback" else "stop",
    )
    file = _plan_file(env)
    if file is not None:
        _refuse_decided(target, how)
    with page.waiting("comparing with the cluster"):
        cluster = opener(ctx.obj, kubeconfig)
        if file is None:
            plan = deploy.plan_apply(target, opener=cluster, options=how)
        else:
            plan = deploy.plan_approved(file, target, opener=cluster, options=how)
    # A plan file was approved when it was made; a protected environment wants its name all the same.
    sure = yes or file is not None
    if not dry_run and not run_reporter.confirmed(
        plan, verb="apply", ports=ctx.obj.ports, yes=sure, yes_i_mean=yes_i_mean
    ):
        return 1
    clock = ctx.obj.ports.clock
    with (
        run_reporter.going_back(plan, output, clock=clock) as going,
        run_reporter.reporting(plan, output) as on_event,
    ):
        result = deploy.apply(going, on_event=on_event, clock=clock)
    return run_reporter.finish(result, output)


@commands.command(epilog=options.example("mlstack delete minikube -c cnn", "mlstack delete minikube --yes"))
def delete(
    ctx: typer.Context,
    env: options.EnvArgument = None,
    components: options.Components = None,
    context: options.Context = None,
    namespace: options.Namespace = None,
    include_crds: Annotated[
        bool, typer.Option("--crds", help="Delete CRDs too, and with them every object of their kinds.")
    ] = False,
    include_namespaces: Annotated[
        bool, typer.Option("--namespaces", help="Delete namespaces too, and with them all they hold.")
    ] = False,
    include_claims: Annotated[
        bool, typer.Option("--claims", help="Delete volume claims too, and with them their data.")
    ] = False,
    include_foreign: Annotated[
        bool,
        typer.Option(
            "--foreign", help="With `--namespaces`: also what others made in them, and what annotations keep."
        ),
    ] = False,
    grace_period: Annotated[
        int | None, typer.Option("--grace-period", metavar="SECONDS", min=0, help="Time for pods to end.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Whether to go on until everything is gone.")
    ] = True,
    timeout: options.Timeout = None,
    dry_run: options.DryRun = False,
    lock_timeout: options.LockTimeout = None,
    yes: options.Yes = False,
    yes_i_mean: options.YesIMean = None,
    kubeconfig: options.Kubeconfig = None,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Remove an environment's objects from the cluster, in reverse order; always asks."""
    from mlstack.cli import run_reporter
    from mlstack.deploy.prune import KeepOptions
    from mlstack.operations import deploy

    target = target_of(ctx.obj, folder, env, components, context=context, namespace=namespace)
    if include_foreign and not include_namespaces:
        raise UsageError("`--foreign` is about what lies in a namespace that goes", hint="add --namespaces")
    spare = KeepOptions(
        definitions=not include_crds,
        namespaces=not include_namespaces,
        claims=not include_claims,
        foreign=not include_foreign,
    )
    with page.waiting("looking at the cluster"):
        plan = deploy.plan_delete(
            target,
            opener=opener(ctx.obj, kubeconfig),
            spare=spare,
            grace_period_s=grace_period,
            wait=wait,
            dry_run=dry_run,
            timeout_s=timeout,
            lock_timeout_s=lock_timeout,
        )
    if not dry_run and not run_reporter.confirmed(
        plan, verb="delete", ports=ctx.obj.ports, yes=yes, yes_i_mean=yes_i_mean, always=True
    ):
        return 1
    with run_reporter.reporting(plan, output) as on_event:
        result = deploy.delete(plan, on_event=on_event, clock=ctx.obj.ports.clock)
    return run_reporter.finish(result, output)


@commands.command(epilog=options.example("mlstack status gke", "mlstack status gke -c cnn -o json"))
def status(
    ctx: typer.Context,
    env: options.EnvArgument = None,
    components: options.Components = None,
    context: options.Context = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Go on until everything works, showing what changes.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="DURATION",
            parser=options.duration,
            help="End `--watch` after this time (90s, 5m, 1h).",
            show_default=False,
        ),
    ] = None,
    kubeconfig: options.Kubeconfig = None,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Tell whether what was applied works, and why not; exits with 1 when it does not."""
    from mlstack.operations import status

    target = target_of(ctx.obj, folder, env, components, context=context)
    if timeout is not None and not watch:
        raise UsageError("`--timeout` is how long `--watch` goes on", hint="add --watch")
    if watch:
        return _watch(ctx, target, opener(ctx.obj, kubeconfig), timeout, output)
    with page.waiting("looking at the cluster"):
        result = status.status(target, opener=opener(ctx.obj, kubeconfig), clock=ctx.obj.ports.clock)
    return emit(result, output)


def _plan_file(word: str | None) -> Path | None:
    """Tell a plan file from an environment: it ends with `.json` and exists, or has a folder before it."""
    if word is None or not word.endswith(".json"):
        return None
    return Path(word) if "/" in word or Path(word).is_file() else None


def _refuse_decided(target: Target, how: ApplyOptions) -> None:
    """Refuse options whose answer stands in the plan file.

    Raises:
        UsageError: one was given.
    """
    from mlstack.deploy.changes import DECIDING, ApplyOptions

    usual = ApplyOptions()
    named = (name for name in DECIDING if getattr(how, name) != getattr(usual, name))
    given = [_SPELLED.get(name, f"--{name.replace('_', '-')}") for name in named]
    given += ["--component"] if target.components else []
    given += ["--namespace"] if target.namespace else []
    if given:
        raise UsageError(f"the plan file decides `{given[0]}`", hint="give it when the plan is made")


_SPELLED = {"create": "--no-create", "prune": "--no-prune", "allow_destructive": "--allow-destructive-crds"}


def _watch(ctx: typer.Context, target: Target, opened: Opener, timeout_s: float | None, output: str) -> int:
    from mlstack.cli import run_reporter, views_deploy
    from mlstack.cli.page import Page
    from mlstack.operations import status

    with run_reporter.showing(output) as show:
        result = status.watch(
            target, opener=opened, clock=ctx.obj.ports.clock, on_change=show, timeout_s=timeout_s
        )
    if output == "table" and not is_terminal(sys.stdout):
        write(page.text(Page((views_deploy.verdict(result),))))
        return 0 if result.ok else 1
    return emit(result, output)


def _write(state: DesiredState, out: Path, output_format: str) -> int:
    from mlstack.app import atomic

    if output_format == "name":
        raise UsageError("`--out` writes whole objects, `-o name` only names", hint="leave one of them out")
    made = object_files(state.objects, output_format)
    atomic.write_files(
        {out / path: content for path, (_, content) in made.items()},
        private=[out / path for path, (found, _) in made.items() if found.kind == "Secret"],
    )
    for note in state.notes:
        say(f"note: {note}")
    say(f"{len(made)} files in {out}")
    return 0
