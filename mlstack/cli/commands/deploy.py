"""An environment and its cluster: from `diff`, `plan` and `apply` to `status`, `history` and `rollback`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlstack.cli import page, run_reporter, views_deploy
from mlstack.cli.main import Family, ListingGroup
from mlstack.cli.options import (
    CLUSTER,
    CONFIRMED,
    GIVEN,
    PLACE,
    duration,
    environment_first,
    environments,
    option,
    word,
)
from mlstack.cli.output import is_terminal, say, write
from mlstack.cli.page import emit, table_text
from mlstack.cli.ports import Session, is_pattern, operations
from mlstack.errors import MlstackError, NotReadyError, UsageError

if TYPE_CHECKING:
    from mlstack.deploy.plan import ApplyPlan
    from mlstack.operations.status import StatusResult, UnlockPlan

top = Family()

CHECK_IMAGES = option(
    "--check-images",
    "Ask the registries for each image, for the nodes' platforms, with the pods' pull secrets. Mirrors that"
    " nodes know are not asked.",
)
APPLY = "prune allow_large_prune adopt force_conflicts keep_foreign_fields allow_destructive"
PLAN_FILE = option("--out FILE.json", "Write a plan file, for `mlstack apply FILE.json`.")


@top.command(
    takes=f"words live summary every keep_going components {GIVEN}"
    f" {PLACE} prune adopt force_conflicts keep_foreign_fields {CLUSTER}",
    examples=[
        "gke -c cnn -o json",
        "gke --live",
        "local:minikube local:gke",
        "remote:minikube remote:gke --summary",
        "'us-*' --keep-going",
    ],
)
def diff(
    session: Session,
    words: Sequence[str] = word(
        "[ENV] [OTHER]",
        "The environment; with another one, the two side by side: `local:ENV` is its files, `remote:ENV` its"
        " cluster. Three and more, or a pattern, are told one after the other.",
        environments,
    ),
    live: bool = option("--live", "Tell of each live difference who made it, and when."),
    summary: bool = option("--summary", "Show the names of objects alone."),
) -> object:
    """Show what apply would change; exits with 1 when there is anything."""
    if len(words) == 2 and not any(map(is_pattern, words)):
        return _compared(session, words[0], words[1], live=live, summary=summary)
    if session.environments(words) is None:
        return _differing(session, words[0] if words else None, live=live, summary=summary)
    session.options.envs = words
    return session.each(
        lambda env: _difference(session, env, live=live),
        show=lambda result, _: _emit_diff(session, result, summary=summary),
    )


def _compared(session: Session, first: str, second: str, *, live: bool, summary: bool) -> int:
    from mlstack.deploy import compare

    options = session.options
    named = {"live": live, "context": options.context, "namespace": options.namespace}
    name = next((name for name, value in named.items() if value), None)
    if name is not None:
        raise UsageError(
            f"`--{name}` is about one environment, and two are named", hint="mlstack diff local:A remote:B"
        )
    sides = compare.read_side(first), compare.read_side(second)
    doing, env = f"comparing {sides[0]} with {sides[1]}", sides[0].environment
    result: object = session.from_cluster(
        operations.status.compare_environments, *sides, doing=doing, env=env
    )
    return _emit_diff(session, result, summary=summary)


def _differing(session: Session, env: str | None, *, live: bool, summary: bool) -> int:
    from mlstack.deploy import compare

    env = env and compare.read_side(env).environment
    try:
        result = _difference(session, env, live=live)
    except MlstackError as error:
        if error.partial is not None:  # all but what the server does not accept
            _emit_diff(session, error.partial, summary=summary)
        raise
    return _emit_diff(session, result, summary=summary)


def _difference(session: Session, env: str | None, *, live: bool) -> object:
    if live:
        return session.from_cluster(operations.status.find_drift, env=env)
    return session.from_cluster(operations.deploy.diff, env=env, options=session.apply_options(dry_run=True))


def _emit_diff(session: Session, result: object, *, summary: bool) -> int:
    if not summary or session.options.output != "table":
        return emit(result, session.options.output)
    page.show(views_deploy.names_alone(page.page_of(result)))
    return 0 if getattr(result, "ok", True) else 1


@top.command(
    takes=f"envs every keep_going out components {GIVEN} {PLACE} create {APPLY} check_capacity wait timeout_s"
    f" wait_for_jobs {CLUSTER}",
    examples=["gke --out plan.json", "mlstack apply plan.json --dry-run", "gke --check-capacity"],
)
def plan(session: Session, out: Path | None = PLAN_FILE, check_images: bool = CHECK_IMAGES) -> object:
    """Show what apply would do, and keep it in a file that apply takes in place of ENV.

    With `--check-capacity` it exits with 1 when some pods are known to find no room.
    """
    if out is not None and out.suffix != ".json":
        raise UsageError(f"a plan file ends with `.json`, got `{out}`", hint=f"--out {out}.json")
    if out is not None and session.environments() is not None:
        raise UsageError("a plan file is about one environment", hint="mlstack plan ENV --out ENV.json")
    how = session.apply_options(dry_run=True)
    return session.each(lambda env: session.from_cluster(operations.deploy.plan, options=how, env=env))


# --- runs ---


@top.command(
    takes=f"envs every keep_going components {GIVEN} {PLACE} dry_run create {APPLY} check_capacity"
    f" allow_dirty on_failure fail_fast wait timeout_s wait_for_jobs {CONFIRMED} {CLUSTER}",
    examples=["minikube -c kubeflow-core", "gke-plan.json", "gke --check-capacity", "'us-*' --keep-going"],
)
def apply(session: Session, check_images: bool = CHECK_IMAGES) -> int:
    """Make the cluster match the app, or do what a plan file holds; asks before existing objects change."""
    options, clock, how = session.options, session.ports.clock, session.apply_options()
    names = session.environments()
    if names is not None:
        plan_one = partial(session.from_cluster, operations.deploy.plan_apply, options=how)
        sound = operations.deploy.refuse_images if check_images else lambda plan: plan
        return _run_several(session, names, lambda env: sound(plan_one(env=env)), "apply")
    # A plan file ends with `.json` and exists, or has a folder before it.
    env = session.only_environment
    file = Path(env) if env and env.endswith(".json") and ("/" in env or Path(env).is_file()) else None
    if file is None:
        plan = session.from_cluster(operations.deploy.plan_apply, options=how, env=env)
    else:
        _refuse_decided(session)
        plan = session.from_cluster(operations.deploy.plan_approved, file, options=how, env=env)
    if check_images:
        plan = operations.deploy.refuse_images(plan)
    # A plan file was approved when it was made; a protected environment wants its name all the same.
    is_sure = options.yes or file is not None
    if not how.dry_run and not run_reporter.confirmed(plan, "apply", session, yes=is_sure):
        return 1
    with run_reporter.going_back(plan, options.output, clock=clock) as going:
        return int(not run_reporter.carry_out(going, options.output, clock=clock).ok)


def _run_several(
    session: Session, names: list[str], plan_one: Callable[..., ApplyPlan], verb: str, *, always: bool = False
) -> int:
    """Plan a run for each of several environments, ask once, then carry them out in their order."""
    plans: list[ApplyPlan] = []
    results = run_reporter.Results(session)
    for name in names:
        with results.of(name, quiet=True):
            plans.append(plan_one(env=name))
    is_trial = session.options.dry_run
    if not is_trial and not run_reporter.all_confirmed(plans, verb, session, always=always):
        return 1
    clock, output = session.ports.clock, "table" if results.prints else run_reporter.LISTED
    for plan in plans:
        with results.of(plan.place.name), run_reporter.going_back(plan, output, clock=clock) as going:
            results.add(run_reporter.carry_out(going, output, clock=clock), show=None)
    return results.end()


def _refuse_decided(session: Session) -> None:
    """Refuse options whose answer stands in the plan file."""
    from mlstack.deploy.changes import DECIDING, ApplyOptions

    spelled = {"create": "no-create", "prune": "no-prune", "allow_destructive": "allow-destructive-crds"}
    options, usual = session.apply_options(), ApplyOptions()
    named = [name for name in DECIDING if getattr(options, name) != getattr(usual, name)]
    words = [spelled.get(name, name.replace("_", "-")) for name in named]
    words += ["component"] if session.options.components else []
    words += ["namespace"] if session.options.namespace else []
    if words:
        raise UsageError(f"the plan file decides `--{words[0]}`", hint="give it when the plan is made")


@top.command(
    takes=f"envs every expired keep_going components {PLACE} include_crds include_namespaces include_claims"
    f" include_foreign grace_period_s wait timeout_s dry_run {CONFIRMED} {CLUSTER}",
    examples=["minikube -c cnn", "minikube --yes", "--expired --keep-going"],
)
def delete(
    session: Session,
    include_crds: bool = option("--crds", "Delete CRDs too, and with them every object of their kinds."),
    include_namespaces: bool = option("--namespaces", "Delete namespaces too, and with them all they hold."),
    include_claims: bool = option("--claims", "Delete volume claims too, and with them their data."),
    include_foreign: bool = option(
        "--foreign", "With `--namespaces`: also what others made in them, and what annotations keep."
    ),
    grace_period_s: int | None = option("--grace-period SECONDS", "Time for pods to end.", min=0),
    wait: bool = option("--wait/--no-wait", "Whether to go on until everything is gone.", default=True),
    expired: bool = option("--expired", "All environments that are over (`env add --ttl`)."),
) -> int:
    """Remove an environment's objects from the cluster, in reverse order; always asks.

    What `--all` and patterns name goes in reverse order too: the last that `apply` does is the first to go.
    """
    from mlstack.deploy.prune import KeepOptions

    if include_foreign and not include_namespaces:
        raise UsageError("`--foreign` is about what lies in a namespace that goes", hint="add --namespaces")
    spare = KeepOptions(
        definitions=not include_crds,
        namespaces=not include_namespaces,
        claims=not include_claims,
        foreign=not include_foreign,
    )
    how: dict[str, Any] = {"doing": "looking at the cluster", "spare": spare}
    how["options"] = session.apply_options()
    plan_one = partial(session.from_cluster, operations.deploy.plan_delete, **how)
    names = _expired(session) if expired else session.environments(reverse=True)
    if names is not None:
        code = _run_several(session, names, plan_one, "delete", always=True)
        if expired and names and code == 0 and not session.options.dry_run:
            say(*(f"next: mlstack env rm {name}" for name in names))
        return code
    return _run_asked(session, plan_one(env=session.only_environment), "delete")


def _run_asked(session: Session, plan: ApplyPlan, verb: str) -> int:
    """Carry out a plan of which somebody is asked whatever it holds."""
    if not session.options.dry_run and not run_reporter.confirmed(plan, verb, session, always=True):
        return 1
    return int(not run_reporter.carry_out(plan, session.options.output, clock=session.ports.clock).ok)


def _expired(session: Session) -> list[str]:
    if session.options.envs or session.options.every:
        raise UsageError("`--expired` says which environments", hint="leave out names and --all")
    over = [row.name for row in session.call(operations.app.expired_environments).environments]
    if not over:
        say("no environment has expired")
    return over[::-1]


# --- what became of it ---

history = Family(
    "history",
    "What was applied to an environment: `history [ENV]` lists, `show` prints one revision, `diff`"
    " compares two. `mlstack rollback` goes back to one.",
    cls=ListingGroup,
)


@top.command(
    takes=f"envs every keep_going components context watch timeout_s {CLUSTER}",
    examples=["gke", "gke -c cnn -o json", "--all"],
)
def status(
    session: Session,
    watch: bool = option("--watch -w", "Go on until everything works, showing what changes."),
    timeout_s: float | None = option(
        "--timeout DURATION",
        "End `--watch` after this time (90s, 5m, 1h).",
        parser=duration,
        show_default=False,
    ),
) -> object:
    """Tell whether what was applied works, and why not; exits with 1 when it does not."""
    if timeout_s is not None and not watch:
        raise UsageError("`--timeout` is how long `--watch` goes on", hint="add --watch")
    if not watch:
        return session.each(lambda env: _status(session, env))
    if session.environments() is not None:
        raise UsageError("`--watch` is about one environment", hint="mlstack status ENV --watch")
    output = session.options.output
    target = session.target(session.only_environment)
    with run_reporter.showing(output) as show:
        result = session.call(operations.status.watch, target=target, on_change=show)
    if output == "table" and not is_terminal(sys.stdout):
        write(page.text(page.Page((views_deploy.verdict(result),))))
        return 0 if result.ok else 1
    return result


@top.command(
    takes=f"only dry_run allow_not_ready components context namespace yes {CLUSTER}",
    examples=["staging prod --dry-run", "staging prod --only images,versions"],
)
def promote(
    session: Session,
    source: str = word("FROM", "The environment that is followed.", environments),
    target: str = word("TO", "The environment whose files change.", environments),
    only: Sequence[str] = option("--only WHAT", "Only some of images, versions, params; repeatable."),
    dry_run: bool = option("--dry-run", "Show what would change, and write nothing."),
    allow_not_ready: bool = option(
        "--allow-not-ready", "Follow FROM whatever its cluster says; it is not asked."
    ),
) -> object:
    """Bring what an environment sets for components, images and package versions to another one's files."""
    options = session.options
    kinds = [kind.strip() for words in only for kind in words.split(",")]
    plan = session.call(operations.params.plan_promotion, only=kinds)
    if not allow_not_ready and plan.changes and not dry_run:
        _refuse_unproven(session, source)
    if dry_run or not plan.changes:
        return plan
    if not options.yes and session.ports.interactive():
        say(table_text(plan))
    refusal, hint = f"`promote` changes files of `{target}`", "look with --dry-run, then --yes"
    if not run_reporter.agreed(session, f"Change {', '.join(plan.files)}?", refusal, hint):
        return 1
    return session.call(operations.params.promote, plan=plan, only=kinds)


def _status(session: Session, env: str | None) -> StatusResult:
    return session.from_cluster(operations.status.status, doing="looking at the cluster", env=env)


def _refuse_unproven(session: Session, environment: str) -> None:
    """Refuse to follow an environment that does not work, or whose files its cluster has not tried."""
    if not _status(session, environment).ok:
        fault, look = "is not ready", f"mlstack status {environment} says why"
    elif not session.from_cluster(operations.deploy.diff, env=environment).ok:
        fault, look = "has not been applied as its files are", f"mlstack diff {environment}"
    else:
        return
    message = f"`{environment}` {fault}, so nothing of it is promoted"
    raise NotReadyError(message, hint=f"{look}; --allow-not-ready promotes all the same")


# --- revisions ---

_READING = "reading the history"


@history.command(
    "list",
    hidden=True,
    takes=f"env {PLACE} {CLUSTER}",
    examples=["mlstack history gke", "mlstack history gke -o json"],
)
def list_history(session: Session) -> object:
    """List what was applied to an environment: number, when, by whom, how it ended."""
    return session.from_cluster(operations.status.list_history, doing=_READING)


@history.command("show", takes=f"words {PLACE} {CLUSTER}", examples=["gke 3", "gke 3 -o yaml"])
def show_revision(
    session: Session,
    words: Sequence[str] = word(
        "[ENV] [N]", "The environment, and the number of a revision. Default: the newest.", environment_first
    ),
) -> object:
    """Show one revision with its objects; secrets are masked in every format."""
    env, numbers = split_words(words, most=1)
    return session.from_cluster(operations.status.show_revision, *numbers, env=env, doing=_READING)


@history.command("diff", takes=f"words {PLACE} {CLUSTER}", examples=["gke 3", "gke 3 5"])
def diff_revisions(
    session: Session,
    words: Sequence[str] = word(
        "[ENV] N [M]", "The environment, and two revisions. Default of M: the newest.", environment_first
    ),
) -> object:
    """Show what changed from one revision to another; exits with 1 when anything did."""
    env, numbers = split_words(words, most=2)
    if not numbers:
        raise UsageError("which revision?", hint="mlstack history diff ENV N, or ENV N M")
    return session.from_cluster(operations.status.diff_revisions, *numbers, env=env, doing=_READING)


def split_words(words: Sequence[str], *, most: int) -> tuple[str | None, list[int]]:
    """Take an environment and the numbers of revisions apart; numbers alone are of the chosen environment."""
    numbers = list(words)
    env = numbers.pop(0) if numbers and (not numbers[0].isdecimal() or len(numbers) > most) else None
    if len(numbers) > most:
        raise UsageError(f"too many words: `{' '.join(words)}`", hint="give ENV, then numbers")
    for number in numbers:
        if not number.isdecimal() or int(number) == 0:
            hint = f"mlstack history {env or 'ENV'}"
            raise UsageError(f"a revision is a number from 1, got `{number}`", hint=hint)
    return env, [int(number) for number in numbers]


@top.command(
    takes=f"words {PLACE} dry_run prune allow_large_prune force_conflicts keep_foreign_fields"
    f" allow_destructive check_capacity wait timeout_s wait_for_jobs fail_fast {CONFIRMED} {CLUSTER}",
    examples=["gke --dry-run", "gke 3 --check-capacity --yes"],
)
def rollback(
    session: Session,
    words: Sequence[str] = word(
        "[ENV] [N]",
        "The environment, and the number of a revision. Default: the last one before the newest that worked.",
        environment_first,
    ),
) -> int:
    """Apply an earlier revision again; what came later goes, but for volume claims.

    The files of the app stay as they are: the next apply brings back what they say.
    """
    env, numbers = split_words(words, most=1)
    how = session.apply_options()
    plan = session.from_cluster(operations.deploy.plan_rollback, *numbers, env=env, options=how)
    # A revision lies in Secrets that others may write: what it brings is always looked at by somebody.
    if plan.changes.visible:
        say(
            f"note: {plan.what} brings what Secrets of namespace `{plan.place.namespace}` say was applied;"
            " whoever may write those there could have written it"
        )
    return _run_asked(session, plan, "rollback")


@top.command(takes=f"env {PLACE} yes yes_i_mean {CLUSTER}", examples=["gke"])
def unlock(session: Session) -> object:
    """Free an environment that a dead run left locked; shows who holds it, and asks.

    A lock expires by itself within seconds of the end of its run. A run that still holds it stops before its
    next write.
    """
    plan = session.from_cluster(operations.status.plan_unlock, doing="looking at the lock")
    if plan.term is not None and not _may_unlock(plan, session):
        return 1
    return operations.status.unlock(plan)


def _may_unlock(plan: UnlockPlan, session: Session) -> bool:
    place, holder = plan.place, plan.holder
    if run_reporter.is_meant(place.name, session):
        return True
    if place.protected:
        action = f"free it from {holder}"
        return run_reporter.name_typed(place.name, session, f"`unlock` would {action}", action)
    where = f"`{place.name}` (context {place.context}, namespace {place.namespace})"
    return run_reporter.agreed(
        session,
        f"Free {where} from {holder}?",
        f"`{place.name}` is held by {holder}, and nobody is here to confirm that it is to be freed",
        "nothing was done; if that run is dead, repeat with --yes",
    )
