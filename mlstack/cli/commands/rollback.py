"""`rollback`."""

from __future__ import annotations

from typing import Annotated

import typer

from mlstack.cli import options, page
from mlstack.cli.commands.history import split_words
from mlstack.cli.main import family
from mlstack.cli.output import say
from mlstack.cli.ports import opener, target_of

commands = family("Back to what was applied before.")

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ENV] [N]",
        help="The environment, and the number of a revision. Default: the last one before the newest"
        " that worked.",
        autocompletion=options.environments,
    ),
]


@commands.command(epilog=options.example("mlstack rollback gke --dry-run", "mlstack rollback gke 3 --yes"))
def rollback(
    ctx: typer.Context,
    words: Words = None,
    context: options.Context = None,
    namespace: options.Namespace = None,
    dry_run: options.DryRun = False,
    prune: options.Prune = True,
    allow_large_prune: options.AllowLargePrune = False,
    force_conflicts: options.ForceConflicts = False,
    keep_foreign_fields: options.KeepForeignFields = False,
    allow_destructive: options.AllowDestructive = False,
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
    """Apply an earlier revision again; what came later goes, but for volume claims.

    The files of the app stay as they are: the next apply brings back what they say.
    """
    from mlstack.cli import run_reporter
    from mlstack.deploy.changes import ApplyOptions
    from mlstack.operations import deploy

    env, numbers = split_words(words, most=1)
    target = target_of(ctx.obj, folder, env, context=context, namespace=namespace)
    chosen = ApplyOptions(
        dry_run=dry_run,
        prune=prune,
        allow_large_prune=allow_large_prune,
        force_conflicts=force_conflicts,
        keep_foreign_fields=keep_foreign_fields,
        allow_destructive=allow_destructive,
        wait=wait,
        timeout_s=timeout,
        wait_for_jobs=wait_for_jobs,
        lock_timeout_s=lock_timeout,
    )
    ports = ctx.obj.ports
    with page.waiting("comparing with the cluster"):
        plan = deploy.plan_rollback(
            target, *numbers, opener=opener(ctx.obj, kubeconfig), clock=ports.clock, options=chosen
        )
    # A revision lies in Secrets that others may write: what it brings is always looked at by somebody.
    if not plan.report.ok:
        say(
            f"note: {plan.what} brings what Secrets of namespace `{plan.place.namespace}` say was applied;"
            " whoever may write those there could have written it"
        )
    if not dry_run and not run_reporter.confirmed(
        plan, verb="rollback", ports=ports, yes=yes, yes_i_mean=yes_i_mean, always=True
    ):
        return 1
    with run_reporter.reporting(plan, output) as on_event:
        result = deploy.rollback(plan, on_event=on_event, clock=ports.clock)
    return run_reporter.finish(result, output)
