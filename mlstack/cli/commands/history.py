"""`history`, `history show, diff`."""

from __future__ import annotations

from typing import Annotated

import typer

from mlstack.cli import options, page
from mlstack.cli.main import ListingGroup, family
from mlstack.cli.output import emit
from mlstack.cli.ports import opener, target_of
from mlstack.errors import UsageError

commands = family(
    "What was applied to an environment: `history [ENV]` lists, `show` prints one revision, `diff`"
    " compares two. `mlstack rollback` goes back to one.",
    cls=ListingGroup,
)

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ENV] [N]",
        help="The environment, and the number of a revision. Default: the newest.",
        autocompletion=options.environments,
    ),
]
TwoWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ENV] N [M]",
        help="The environment, and two revisions. Default of M: the newest.",
        autocompletion=options.environments,
    ),
]


@commands.command(
    "list", hidden=True, epilog=options.example("mlstack history gke", "mlstack history gke -o json")
)
def list_(
    ctx: typer.Context,
    env: options.EnvArgument = None,
    context: options.Context = None,
    namespace: options.Namespace = None,
    kubeconfig: options.Kubeconfig = None,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """List what was applied to an environment: number, when, by whom, how it ended."""
    from mlstack.operations import deploy

    target = target_of(ctx.obj, folder, env, context=context, namespace=namespace)
    with page.waiting("reading the history"):
        result = deploy.list_history(target, opener=opener(ctx.obj, kubeconfig), clock=ctx.obj.ports.clock)
    return emit(result, output)


@commands.command(epilog=options.example("mlstack history show gke 3", "mlstack history show gke 3 -o yaml"))
def show(
    ctx: typer.Context,
    words: Words = None,
    context: options.Context = None,
    namespace: options.Namespace = None,
    kubeconfig: options.Kubeconfig = None,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Show one revision with its objects; secrets are masked in every format."""
    from mlstack.operations import deploy

    env, numbers = split_words(words, most=1)
    target = target_of(ctx.obj, folder, env, context=context, namespace=namespace)
    with page.waiting("reading the history"):
        result = deploy.show_revision(
            target, *numbers, opener=opener(ctx.obj, kubeconfig), clock=ctx.obj.ports.clock
        )
    return emit(result, output)


@commands.command(epilog=options.example("mlstack history diff gke 3", "mlstack history diff gke 3 5"))
def diff(
    ctx: typer.Context,
    words: TwoWords = None,
    context: options.Context = None,
    namespace: options.Namespace = None,
    kubeconfig: options.Kubeconfig = None,
    folder: options.Dir = None,
    output: options.Output = "table",
) -> int:
    """Show what changed from one revision to another; exits with 1 when anything did."""
    from mlstack.operations import deploy

    env, numbers = split_words(words, most=2)
    if not numbers:
        raise UsageError("which revision?", hint="mlstack history diff ENV N, or ENV N M")
    target = target_of(ctx.obj, folder, env, context=context, namespace=namespace)
    with page.waiting("reading the history"):
        result = deploy.diff_revisions(
            target, *numbers, opener=opener(ctx.obj, kubeconfig), clock=ctx.obj.ports.clock
        )
    return emit(result, output)


def split_words(words: list[str] | None, *, most: int) -> tuple[str | None, list[int]]:
    """Take an environment and the numbers of revisions apart; numbers alone are of the chosen environment.

    Raises:
        UsageError: a number is none, or there are too many words.
    """
    given = list(words or ())
    env = given.pop(0) if given and (not given[0].isdecimal() or len(given) > most) else None
    if len(given) > most:
        raise UsageError(f"too many words: `{' '.join(words or ())}`", hint="give ENV, then numbers")
    wrong = next((word for word in given if not word.isdecimal() or int(word) == 0), None)
    if wrong is not None:
        raise UsageError(
            f"a revision is a number from 1, got `{wrong}`", hint=f"mlstack history {env or 'ENV'}"
        )
    return env, [int(word) for word in given]
