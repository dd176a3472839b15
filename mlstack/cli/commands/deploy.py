"""From the app to the cluster: `render`, `validate`, `diff`, `plan`, `apply`, `delete`, `status`, `rollback`.

And `history list, show, diff` and `unlock`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlstack.cli import options, page
from mlstack.cli.main import ListingGroup, family
from mlstack.cli.output import emit, emit_objects, is_terminal, object_files, say, write
from mlstack.cli.ports import Session, code_store
from mlstack.errors import MlstackError, UsageError

if TYPE_CHECKING:
    from mlstack.deploy.changes import ApplyOptions
    from mlstack.deploy.target import Target
    from mlstack.objects.kube_object import DesiredState
    from mlstack.operations.history import UnlockPlan

top = family()
history = family(
    "What was applied to an environment: `history [ENV]` lists, `show` prints one revision, `diff`"
    " compares two. `mlstack rollback` goes back to one.",
    cls=ListingGroup,
)

PLACE = "context namespace"
CLUSTER = "kubeconfig folder output"
CONFIRMED = "lock_timeout_s yes yes_i_mean"

# --- before anything is written ---


@top.command(
    takes="env components sets values out folder object_output",
    examples=["mlstack render gke -c cnn", "mlstack render gke --out manifests/"],
)
def render(
    session: Session,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write one file an object into a folder.")
    ] = None,
) -> int:
    """Print the Kubernetes objects of an environment; needs no cluster."""
    from mlstack.operations import render

    given = session.given
    state = render.render_environment(
        session.app,
        session.environment(given["env"]),
        components=given["components"] or (),
        overrides=session.overrides(),
        store=code_store(),
    )
    if out is None:
        return emit_objects(state, given["object_output"])
    return _write_objects(state, out, given["object_output"])


def _write_objects(state: DesiredState, out: Path, output_format: str) -> int:
    from mlstack.app import atomic

    if output_format == "name":
        raise UsageError("`--out` writes whole objects, `-o name` only names", hint="leave one of them out")
    files = object_files(state.objects, output_format)
    atomic.write_files(
        {out / path: content for path, (_, content) in files.items()},
        private=[out / path for path, (manifest, _) in files.items() if manifest.kind == "Secret"],
    )
    for note in state.notes:
        say(f"note: {note}")
    say(f"{len(files)} files in {out}")
    return 0


@top.command(takes="env components sets values folder output", examples=["mlstack validate gke"])
def validate(session: Session) -> object:
    """Check every object against the schemas of Kubernetes and its CRDs; needs no cluster."""
    from mlstack.operations import render

    return render.validate_environment(
        session.app,
        session.environment(session.given["env"]),
        components=session.given["components"] or (),
        overrides=session.overrides(),
        store=code_store(),
    )


@top.command(
    takes="env other live summary components sets values"
    f" {PLACE} prune adopt force_conflicts keep_foreign_fields {CLUSTER}",
    examples=[
        "mlstack diff gke -c cnn -o json",
        "mlstack diff gke --live",
        "mlstack diff local:minikube local:gke",
        "mlstack diff remote:minikube remote:gke --summary",
    ],
)
def diff(
    session: Session,
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
) -> int:
    """Show what apply would change; exits with 1 when there is anything."""
    from mlstack.deploy import compare
    from mlstack.operations import deploy, history

    env = session.given["env"]
    if other is not None:
        _refuse_beside_other(
            live=live, context=session.given["context"], namespace=session.given["namespace"]
        )
        left, right = compare.read_side(env or ""), compare.read_side(other)
        target = session.target(left.environment)
        with page.waiting(f"comparing {left} with {right}"):
            result: object = history.compare_environments(target, left, right, opener=session.opener())
        return _emit_diff(session, result, summary=summary)
    target = session.target(env if env is None else compare.read_side(env).environment)
    try:
        with page.waiting("comparing with the cluster"):
            if live:
                result = history.find_drift(target, opener=session.opener())
            else:
                how = session.apply_options(dry_run=True)
                result = deploy.diff(target, opener=session.opener(), options=how)
    except MlstackError as error:
        if error.partial is not None:  # all but what the server does not accept
            _emit_diff(session, error.partial, summary=summary)
        raise
    return _emit_diff(session, result, summary=summary)


def _refuse_beside_other(**given: object) -> None:
    """Refuse options that speak of one environment beside a second one."""
    named = next((name for name, value in given.items() if value), None)
    if named is not None:
        raise UsageError(
            f"`--{named}` is about one environment, and two are named", hint="mlstack diff local:A remote:B"
        )


def _emit_diff(session: Session, result: object, *, summary: bool) -> int:
    if not summary or session.given["output"] != "table":
        return emit(result, session.given["output"])
    from mlstack.cli import views, views_deploy

    page.show(views_deploy.names_alone(views.page(result)))
    return 0 if getattr(result, "ok", True) else 1


APPLY = "prune allow_large_prune adopt force_conflicts keep_foreign_fields allow_destructive"


@top.command(
    takes=f"env out components sets values {PLACE} create {APPLY} wait timeout_s wait_for_jobs {CLUSTER}",
    examples=["mlstack plan gke --out plan.json", "mlstack apply plan.json --dry-run"],
)
def plan(
    session: Session,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE.json", help="Write a plan file, for `mlstack apply FILE.json`."),
    ] = None,
) -> object:
    """Show what apply would do, and keep it in a file that apply takes in place of ENV."""
    from mlstack.operations import deploy

    if out is not None and out.suffix != ".json":
        raise UsageError(f"a plan file ends with `.json`, got `{out}`", hint=f"--out {out}.json")
    target = session.target(session.given["env"])
    how = session.apply_options(dry_run=True)
    with page.waiting("comparing with the cluster"):
        return deploy.plan(target, opener=session.opener(), clock=session.ports.clock, options=how, out=out)


# --- runs ---


@top.command(
    takes=f"env components sets values {PLACE} dry_run create {APPLY} on_failure wait timeout_s"
    f" wait_for_jobs {CONFIRMED} {CLUSTER}",
    examples=["mlstack apply minikube -c kubeflow-core", "mlstack apply gke-plan.json"],
)
def apply(session: Session) -> int:
    """Make the cluster match the app, or do what a plan file holds; asks before existing objects change."""
    from mlstack.cli import run_reporter
    from mlstack.operations import deploy

    env, clock = session.given["env"], session.ports.clock
    target = session.target(env)
    how = session.apply_options()
    file = _plan_file(env)
    if file is not None:
        _refuse_decided(target, how)
    with page.waiting("comparing with the cluster"):
        if file is None:
            plan = deploy.plan_apply(target, opener=session.opener(), options=how)
        else:
            plan = deploy.plan_approved(file, target, opener=session.opener(), options=how)
    # A plan file was approved when it was made; a protected environment wants its name all the same.
    is_sure = session.given["yes"] or file is not None
    if not how.dry_run and not run_reporter.confirmed(plan, "apply", session, yes=is_sure):
        return 1
    output = session.given["output"]
    with (
        run_reporter.going_back(plan, output, clock=clock) as going,
        run_reporter.reporting(plan.report, output) as on_event,
    ):
        result = deploy.apply(going, on_event=on_event, clock=clock)
    return run_reporter.finish(result, output)


def _plan_file(word: str | None) -> Path | None:
    """Tell a plan file from an environment: it ends with `.json` and exists, or has a folder before it."""
    if word is None or not word.endswith(".json"):
        return None
    return Path(word) if "/" in word or Path(word).is_file() else None


def _refuse_decided(target: Target, how: ApplyOptions) -> None:
    """Refuse options whose answer stands in the plan file."""
    from mlstack.deploy.changes import DECIDING, ApplyOptions

    usual = ApplyOptions()
    named = (name for name in DECIDING if getattr(how, name) != getattr(usual, name))
    given = [_SPELLED.get(name, f"--{name.replace('_', '-')}") for name in named]
    given += ["--component"] if target.components else []
    given += ["--namespace"] if target.namespace else []
    if given:
        raise UsageError(f"the plan file decides `{given[0]}`", hint="give it when the plan is made")


_SPELLED = {"create": "--no-create", "prune": "--no-prune", "allow_destructive": "--allow-destructive-crds"}


@top.command(
    takes=f"env components {PLACE} include_crds include_namespaces include_claims include_foreign"
    f" grace_period wait timeout_s dry_run {CONFIRMED} {CLUSTER}",
    examples=["mlstack delete minikube -c cnn", "mlstack delete minikube --yes"],
)
def delete(
    session: Session,
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
) -> int:
    """Remove an environment's objects from the cluster, in reverse order; always asks."""
    from mlstack.cli import run_reporter
    from mlstack.deploy.prune import KeepOptions
    from mlstack.operations import deploy

    given = session.given
    target = session.target(given["env"])
    if include_foreign and not include_namespaces:
        raise UsageError("`--foreign` is about what lies in a namespace that goes", hint="add --namespaces")
    keep = KeepOptions(
        definitions=not include_crds,
        namespaces=not include_namespaces,
        claims=not include_claims,
        foreign=not include_foreign,
    )
    with page.waiting("looking at the cluster"):
        plan = deploy.plan_delete(
            target,
            opener=session.opener(),
            spare=keep,
            grace_period_s=grace_period,
            wait=wait,
            dry_run=given["dry_run"],
            timeout_s=given["timeout_s"],
            lock_timeout_s=given["lock_timeout_s"],
        )
    if not given["dry_run"] and not run_reporter.confirmed(plan, "delete", session, always=True):
        return 1
    with run_reporter.reporting(plan.report, given["output"]) as on_event:
        result = deploy.delete(plan, on_event=on_event, clock=session.ports.clock)
    return run_reporter.finish(result, given["output"])


@top.command(
    takes=f"words {PLACE} dry_run prune allow_large_prune force_conflicts keep_foreign_fields"
    f" allow_destructive wait timeout_s wait_for_jobs {CONFIRMED} {CLUSTER}",
    examples=["mlstack rollback gke --dry-run", "mlstack rollback gke 3 --yes"],
)
def rollback(
    session: Session,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ENV] [N]",
            help="The environment, and the number of a revision. Default: the last one before the newest"
            " that worked.",
            autocompletion=options.environments,
        ),
    ] = None,
) -> int:
    """Apply an earlier revision again; what came later goes, but for volume claims.

    The files of the app stay as they are: the next apply brings back what they say.
    """
    from mlstack.cli import run_reporter
    from mlstack.operations import deploy

    env, numbers = split_words(words, most=1)
    target = session.target(env)
    how, clock = session.apply_options(), session.ports.clock
    with page.waiting("comparing with the cluster"):
        plan = deploy.plan_rollback(target, *numbers, opener=session.opener(), clock=clock, options=how)
    # A revision lies in Secrets that others may write: what it brings is always looked at by somebody.
    if not plan.report.ok:
        say(
            f"note: {plan.what} brings what Secrets of namespace `{plan.place.namespace}` say was applied;"
            " whoever may write those there could have written it"
        )
    if not how.dry_run and not run_reporter.confirmed(plan, "rollback", session, always=True):
        return 1
    with run_reporter.reporting(plan.report, session.given["output"]) as on_event:
        result = deploy.rollback(plan, on_event=on_event, clock=clock)
    return run_reporter.finish(result, session.given["output"])


# --- what became of it ---


@top.command(
    takes=f"env components context watch timeout {CLUSTER}",
    examples=["mlstack status gke", "mlstack status gke -c cnn -o json"],
)
def status(
    session: Session,
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
) -> object:
    """Tell whether what was applied works, and why not; exits with 1 when it does not."""
    from mlstack.operations import status

    target, clock = session.target(session.given["env"]), session.ports.clock
    if timeout is not None and not watch:
        raise UsageError("`--timeout` is how long `--watch` goes on", hint="add --watch")
    if not watch:
        with page.waiting("looking at the cluster"):
            return status.status(target, opener=session.opener(), clock=clock)
    from mlstack.cli import run_reporter, views_deploy

    output = session.given["output"]
    with run_reporter.showing(output) as show:
        result = status.watch(target, opener=session.opener(), clock=clock, on_change=show, timeout_s=timeout)
    if output == "table" and not is_terminal(sys.stdout):
        write(page.text(page.Page((views_deploy.verdict(result),))))
        return 0 if result.ok else 1
    return result


@history.command(
    "list",
    hidden=True,
    takes=f"env {PLACE} {CLUSTER}",
    examples=["mlstack history gke", "mlstack history gke -o json"],
)
def list_history(session: Session) -> object:
    """List what was applied to an environment: number, when, by whom, how it ended."""
    from mlstack.operations import history

    target = session.target(session.given["env"])
    with page.waiting("reading the history"):
        return history.list_history(target, opener=session.opener(), clock=session.ports.clock)


@history.command(
    "show",
    takes=f"words {PLACE} {CLUSTER}",
    examples=["mlstack history show gke 3", "mlstack history show gke 3 -o yaml"],
)
def show_revision(
    session: Session,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ENV] [N]",
            help="The environment, and the number of a revision. Default: the newest.",
            autocompletion=options.environments,
        ),
    ] = None,
) -> object:
    """Show one revision with its objects; secrets are masked in every format."""
    from mlstack.operations import history

    env, numbers = split_words(words, most=1)
    target = session.target(env)
    with page.waiting("reading the history"):
        return history.show_revision(target, *numbers, opener=session.opener(), clock=session.ports.clock)


@history.command(
    "diff",
    takes=f"words {PLACE} {CLUSTER}",
    examples=["mlstack history diff gke 3", "mlstack history diff gke 3 5"],
)
def diff_revisions(
    session: Session,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ENV] N [M]",
            help="The environment, and two revisions. Default of M: the newest.",
            autocompletion=options.environments,
        ),
    ] = None,
) -> object:
    """Show what changed from one revision to another; exits with 1 when anything did."""
    from mlstack.operations import history

    env, numbers = split_words(words, most=2)
    if not numbers:
        raise UsageError("which revision?", hint="mlstack history diff ENV N, or ENV N M")
    target = session.target(env)
    with page.waiting("reading the history"):
        return history.diff_revisions(target, *numbers, opener=session.opener(), clock=session.ports.clock)


def split_words(words: list[str] | None, *, most: int) -> tuple[str | None, list[int]]:
    """Take an environment and the numbers of revisions apart; numbers alone are of the chosen environment."""
    numbers = list(words or ())
    env = numbers.pop(0) if numbers and (not numbers[0].isdecimal() or len(numbers) > most) else None
    if len(numbers) > most:
        raise UsageError(f"too many words: `{' '.join(words or ())}`", hint="give ENV, then numbers")
    wrong = next((word for word in numbers if not word.isdecimal() or int(word) == 0), None)
    if wrong is not None:
        raise UsageError(
            f"a revision is a number from 1, got `{wrong}`", hint=f"mlstack history {env or 'ENV'}"
        )
    return env, [int(number) for number in numbers]


@top.command(
    takes=f"env {PLACE} yes yes_i_mean {CLUSTER}",
    examples=["mlstack unlock gke"],
)
def unlock(session: Session) -> object:
    """Free an environment that a dead run left locked; shows who holds it, and asks.

    A lock expires by itself within seconds of the end of its run. A run that still holds it stops before its
    next write.
    """
    from mlstack.operations import history

    target = session.target(session.given["env"])
    with page.waiting("looking at the lock"):
        plan = history.plan_unlock(target, opener=session.opener(), clock=session.ports.clock)
    if plan.term is not None and not _unlock_confirmed(plan, session):
        return 1
    return history.unlock(plan)


def _unlock_confirmed(plan: UnlockPlan, session: Session) -> bool:
    from mlstack.cli import run_reporter

    place, ports = plan.place, session.ports
    if run_reporter.is_meant(place.name, session):
        return True
    if place.protected:
        return run_reporter.name_typed(
            place.name,
            session,
            what=f"`unlock` would free it from {plan.holder}",
            action=f"free it from {plan.holder}",
        )
    if session.given["yes"]:
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
