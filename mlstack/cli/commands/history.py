"""What became of an environment: `status`, `promote`, `history list, show, diff`, `rollback`, `unlock`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from mlstack.cli import page, several
from mlstack.cli.main import ListingGroup, family
from mlstack.cli.options import CLUSTER, CONFIRMED, PLACE, duration, environments, option, word
from mlstack.cli.output import is_terminal, say, table_text, write
from mlstack.cli.ports import Session
from mlstack.errors import NotReadyError, UsageError

if TYPE_CHECKING:
    from mlstack.deploy.result import ChangeReport, StatusResult
    from mlstack.operations.history import UnlockPlan

Result = TypeVar("Result")
LOOKING = "looking at the cluster"

top = family()
history = family(
    "What was applied to an environment: `history [ENV]` lists, `show` prints one revision, `diff`"
    " compares two. `mlstack rollback` goes back to one.",
    cls=ListingGroup,
)


@top.command(
    takes=f"envs every keep_going components context watch timeout {CLUSTER}",
    examples=["mlstack status gke", "mlstack status gke -c cnn -o json", "mlstack status --all"],
    watch=option("--watch -w", "Go on until everything works, showing what changes."),
    timeout=option(
        "--timeout DURATION",
        "End `--watch` after this time (90s, 5m, 1h).",
        parser=duration,
        show_default=False,
    ),
)
def status(session: Session, watch: bool = False, timeout: float | None = None) -> object:
    """Tell whether what was applied works, and why not; exits with 1 when it does not."""
    from mlstack.operations import status

    clock = session.ports.clock
    if timeout is not None and not watch:
        raise UsageError("`--timeout` is how long `--watch` goes on", hint="add --watch")
    if not watch:
        look = partial(
            several.from_cluster, session, status.status, doing="looking at the cluster", clock=clock
        )
        return several.each(session, lambda env: look(env=env))
    if several.environments(session) is not None:
        raise UsageError("`--watch` is about one environment", hint="mlstack status ENV --watch")
    from mlstack.cli import run_reporter, views_deploy

    output = session.options["output"]
    target, opener = session.target(several.only(session)), session.opener()
    with run_reporter.showing(output) as show:
        result = status.watch(target, opener=opener, clock=clock, on_change=show, timeout_s=timeout)
    if output == "table" and not is_terminal(sys.stdout):
        write(page.text(page.Page((views_deploy.verdict(result),))))
        return 0 if result.ok else 1
    return result


@top.command(
    takes=f"only dry_run allow_not_ready components context namespace yes {CLUSTER}",
    examples=[
        "mlstack promote staging prod --dry-run",
        "mlstack promote staging prod --only images,versions",
    ],
    source=word("FROM", "The environment that is followed.", environments),
    target=word("TO", "The environment whose files change.", environments),
    only=option("--only WHAT", "Only some of images, versions, params; repeatable."),
    dry_run=option("--dry-run", "Show what would change, and write nothing."),
    allow_not_ready=option("--allow-not-ready", "Follow FROM whatever its cluster says; it is not asked."),
)
def promote(
    session: Session,
    source: str,
    target: str,
    only: list[str] | None = None,
    dry_run: bool = False,
    allow_not_ready: bool = False,
) -> object:
    """Bring what an environment sets for components, images and package versions to another one's files."""
    from mlstack.operations import deploy, params, status

    options = session.options
    kinds = [kind.strip() for words in only or () for kind in words.split(",")]
    plan = params.plan_promotion(session.app, source, target, components=options["components"], only=kinds)
    if not allow_not_ready and plan.changes and not dry_run:
        look = partial(status.status, clock=session.ports.clock)
        refuse_unready(
            source, several.from_cluster(session, look, env=source, doing="looking at the cluster")
        )
        refuse_unapplied(source, several.from_cluster(session, deploy.diff, env=source))
    if dry_run or not plan.changes:
        return plan
    if not options["yes"]:
        if not session.ports.interactive():
            raise UsageError(f"`promote` changes files of `{target}`", hint="look with --dry-run, then --yes")
        say(table_text(plan))
        if not session.ports.ask(f"Change {', '.join(plan.files)}?"):
            say("nothing was done")
            return 1
    return params.promote(session.app, plan, components=options["components"], only=kinds)


def refuse_unready(environment: str, result: StatusResult) -> None:
    """Refuse to follow an environment of which something does not work.

    Raises:
        NotReadyError: it is not ready.
    """
    if not result.ok:
        raise NotReadyError(
            f"`{environment}` is not ready, so nothing of it is promoted",
            hint=f"mlstack status {environment} says why; --allow-not-ready promotes all the same",
        )


def refuse_unapplied(environment: str, report: ChangeReport) -> None:
    """Refuse to follow an environment whose files say what its cluster has not tried.

    Raises:
        NotReadyError: an apply would change something.
    """
    if not report.ok:
        raise NotReadyError(
            f"`{environment}` has not been applied as its files are, so nothing of it is promoted",
            hint=f"mlstack diff {environment}; --allow-not-ready promotes all the same",
        )


# --- revisions ---


@history.command(
    "list",
    hidden=True,
    takes=f"env {PLACE} {CLUSTER}",
    examples=["mlstack history gke", "mlstack history gke -o json"],
)
def list_history(session: Session) -> object:
    """List what was applied to an environment: number, when, by whom, how it ended."""
    from mlstack.operations import history

    return _from_history(session, history.list_history)


@history.command(
    "show",
    takes=f"words {PLACE} {CLUSTER}",
    examples=["mlstack history show gke 3", "mlstack history show gke 3 -o yaml"],
    words=word(
        "[ENV] [N]", "The environment, and the number of a revision. Default: the newest.", environments
    ),
)
def show_revision(session: Session, words: list[str] | None = None) -> object:
    """Show one revision with its objects; secrets are masked in every format."""
    from mlstack.operations import history

    env, numbers = split_words(words, most=1)
    return _from_history(session, history.show_revision, *numbers, env=env)


@history.command(
    "diff",
    takes=f"words {PLACE} {CLUSTER}",
    examples=["mlstack history diff gke 3", "mlstack history diff gke 3 5"],
    words=word("[ENV] N [M]", "The environment, and two revisions. Default of M: the newest.", environments),
)
def diff_revisions(session: Session, words: list[str] | None = None) -> object:
    """Show what changed from one revision to another; exits with 1 when anything did."""
    from mlstack.operations import history

    env, numbers = split_words(words, most=2)
    if not numbers:
        raise UsageError("which revision?", hint="mlstack history diff ENV N, or ENV N M")
    return _from_history(session, history.diff_revisions, *numbers, env=env)


def _from_history(
    session: Session, read: Callable[..., Result], *numbers: int, env: str | None = None
) -> Result:
    clock = session.ports.clock
    return several.from_cluster(session, read, *numbers, env=env, doing="reading the history", clock=clock)


def split_words(words: list[str] | None, *, most: int) -> tuple[str | None, list[int]]:
    """Take an environment and the numbers of revisions apart; numbers alone are of the chosen environment."""
    numbers = list(words or ())
    env = numbers.pop(0) if numbers and (not numbers[0].isdecimal() or len(numbers) > most) else None
    if len(numbers) > most:
        raise UsageError(f"too many words: `{' '.join(words or ())}`", hint="give ENV, then numbers")
    for number in numbers:
        if not number.isdecimal() or int(number) == 0:
            hint = f"mlstack history {env or 'ENV'}"
            raise UsageError(f"a revision is a number from 1, got `{number}`", hint=hint)
    return env, [int(number) for number in numbers]


@top.command(
    takes=f"words {PLACE} dry_run prune allow_large_prune force_conflicts keep_foreign_fields"
    f" allow_destructive check_capacity wait timeout_s wait_for_jobs fail_fast {CONFIRMED} {CLUSTER}",
    examples=["mlstack rollback gke --dry-run", "mlstack rollback gke 3 --check-capacity --yes"],
    words=word(
        "[ENV] [N]",
        "The environment, and the number of a revision. Default: the last one before the newest that worked.",
        environments,
    ),
)
def rollback(session: Session, words: list[str] | None = None) -> int:
    """Apply an earlier revision again; what came later goes, but for volume claims.

    The files of the app stay as they are: the next apply brings back what they say.
    """
    from mlstack.cli import run_reporter
    from mlstack.operations import deploy

    env, numbers = split_words(words, most=1)
    how, clock = session.apply_options(), session.ports.clock
    plan = several.from_cluster(session, deploy.plan_rollback, *numbers, env=env, clock=clock, options=how)
    # A revision lies in Secrets that others may write: what it brings is always looked at by somebody.
    if not plan.report.ok:
        say(
            f"note: {plan.what} brings what Secrets of namespace `{plan.place.namespace}` say was applied;"
            " whoever may write those there could have written it"
        )
    if not how.dry_run and not run_reporter.confirmed(plan, "rollback", session, always=True):
        return 1
    return run_reporter.carry_out(session, plan)


@top.command(takes=f"env {PLACE} yes yes_i_mean {CLUSTER}", examples=["mlstack unlock gke"])
def unlock(session: Session) -> object:
    """Free an environment that a dead run left locked; shows who holds it, and asks.

    A lock expires by itself within seconds of the end of its run. A run that still holds it stops before its
    next write.
    """
    from mlstack.operations import history

    clock = session.ports.clock
    plan = several.from_cluster(session, history.plan_unlock, doing="looking at the lock", clock=clock)
    if plan.term is not None and not _may_unlock(plan, session):
        return 1
    return history.unlock(plan)


def _may_unlock(plan: UnlockPlan, session: Session) -> bool:
    from mlstack.cli import run_reporter

    place, holder = plan.place, plan.holder
    if run_reporter.is_meant(place.name, session):
        return True
    if place.protected:
        what, action = f"`unlock` would free it from {holder}", f"free it from {holder}"
        return run_reporter.name_typed(place.name, session, what=what, action=action)
    if session.options["yes"]:
        return True
    if not session.ports.interactive():
        raise UsageError(
            f"`{place.name}` is held by {holder}, and nobody is here to confirm that it is to be freed",
            hint="nothing was done; if that run is dead, repeat with --yes",
        )
    where = f"`{place.name}` (context {place.context}, namespace {place.namespace})"
    if session.ports.ask(f"Free {where} from {holder}?"):
        return True
    say("nothing was done")
    return False
