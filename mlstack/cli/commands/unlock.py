"""`unlock`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from mlstack.cli import options, page
from mlstack.cli.main import family
from mlstack.cli.output import emit, say
from mlstack.cli.ports import opener, target_of
from mlstack.errors import UsageError

if TYPE_CHECKING:
    from mlstack.cli.ports import Ports
    from mlstack.operations.deploy import UnlockPlan

commands = family("Free an environment that a dead run left locked.")


@commands.command(epilog=options.example("mlstack unlock gke"))
def unlock(
    ctx: typer.Context,
    env: options.EnvArgument = None,
    context: options.Context = None,
    namespace: options.Namespace = None,
    yes: options.Yes = False,
    yes_i_mean: options.YesIMean = None,
    kubeconfig: options.Kubeconfig = None,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Free an environment that a dead run left locked; shows who holds it, and asks.

    A lock expires by itself within seconds of the end of its run. A run that still holds it stops before its
    next write.
    """
    from mlstack.operations import deploy

    target = target_of(ctx.obj, folder, env, context=context, namespace=namespace)
    with page.waiting("looking at the lock"):
        plan = deploy.plan_unlock(target, opener=opener(ctx.obj, kubeconfig), clock=ctx.obj.ports.clock)
    if plan.term is not None and not _confirmed(plan, ctx.obj.ports, yes=yes, yes_i_mean=yes_i_mean):
        return 1
    return emit(deploy.unlock(plan), output)


def _confirmed(plan: UnlockPlan, ports: Ports, *, yes: bool, yes_i_mean: str | None) -> bool:
    from mlstack.cli import run_reporter

    place = plan.place
    run_reporter.check_meant(place.name, yes_i_mean)
    if yes_i_mean is not None:
        return True
    if place.protected:
        held = f"`unlock` would free it from {plan.holder}"
        return run_reporter.named(place.name, held, f"free it from {plan.holder}", ports=ports)
    if yes:
        return True
    if not ports.interactive():
        raise UsageError(
            f"`{place.name}` is held by {plan.holder}, and nobody is here to confirm that it is to be freed",
            hint="nothing was done; if that run is dead, repeat with --yes",
        )
    where = f"`{place.name}` (context {place.context}, namespace {place.namespace})"
    if ports.ask(f"Free {where} from {plan.holder}?"):
        return True
    say("nothing was done")
    return False
