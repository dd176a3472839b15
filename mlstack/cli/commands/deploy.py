"""From the app to the cluster: `diff`, `plan`, `apply`, `delete`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mlstack.cli import page, several
from mlstack.cli.main import family
from mlstack.cli.options import CLUSTER, CONFIRMED, GIVEN, PLACE, environments, option, word
from mlstack.cli.output import emit, say
from mlstack.cli.ports import Session
from mlstack.errors import MlstackError, UsageError

if TYPE_CHECKING:
    from mlstack.deploy.plan import ApplyPlan

top = family()

CHECK_IMAGES = option(
    "--check-images",
    "Ask the registries for each image, for the nodes' platforms, with the pods' pull secrets. Mirrors that"
    " nodes know are not asked.",
)
APPLY = "prune allow_large_prune adopt force_conflicts keep_foreign_fields allow_destructive"


@top.command(
    takes=f"words live summary every keep_going components {GIVEN}"
    f" {PLACE} prune adopt force_conflicts keep_foreign_fields {CLUSTER}",
    examples=[
        "mlstack diff gke -c cnn -o json",
        "mlstack diff gke --live",
        "mlstack diff local:minikube local:gke",
        "mlstack diff remote:minikube remote:gke --summary",
        "mlstack diff 'us-*' --keep-going",
    ],
    words=word(
        "[ENV] [OTHER]",
        "The environment; with another one, the two side by side: `local:ENV` is its files, `remote:ENV` its"
        " cluster. Three and more, or a pattern, are told one after the other.",
        environments,
    ),
    live=option("--live", "Tell of each live difference who made it, and when."),
    summary=option("--summary", "Show the names of objects alone."),
)
def diff(
    session: Session, words: list[str] | None = None, live: bool = False, summary: bool = False
) -> object:
    """Show what apply would change; exits with 1 when there is anything."""
    words = words or []
    if len(words) == 2 and not any(mark in name for name in words for mark in "*?["):
        return _compared(session, words[0], words[1], live=live, summary=summary)
    if several.environments(session, words) is None:
        return _differing(session, words[0] if words else None, live=live, summary=summary)
    session.options = {**session.options, "envs": words}
    return several.each(session, lambda env: _difference(session, env, live=live))


def _compared(session: Session, first: str, second: str, *, live: bool, summary: bool) -> int:
    from mlstack.deploy import compare
    from mlstack.operations import history

    options = session.options
    named = {"live": live, "context": options["context"], "namespace": options["namespace"]}
    name = next((name for name, value in named.items() if value), None)
    if name is not None:
        raise UsageError(
            f"`--{name}` is about one environment, and two are named", hint="mlstack diff local:A remote:B"
        )
    sides = compare.read_side(first), compare.read_side(second)
    doing, env = f"comparing {sides[0]} with {sides[1]}", sides[0].environment
    result: object = several.from_cluster(session, history.compare_environments, *sides, doing=doing, env=env)
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
    from mlstack.operations import deploy, history

    if live:
        return several.from_cluster(session, history.find_drift, env=env)
    how = session.apply_options(dry_run=True)
    return several.from_cluster(session, deploy.diff, env=env, options=how)


def _emit_diff(session: Session, result: object, *, summary: bool) -> int:
    if not summary or session.options["output"] != "table":
        return emit(result, session.options["output"])
    from mlstack.cli import views_deploy

    page.show(views_deploy.names_alone(page.page_of(result)))
    return 0 if getattr(result, "ok", True) else 1


@top.command(
    takes=f"envs every keep_going out components {GIVEN} {PLACE} create {APPLY} check_capacity wait timeout_s"
    f" wait_for_jobs {CLUSTER}",
    examples=[
        "mlstack plan gke --out plan.json",
        "mlstack apply plan.json --dry-run",
        "mlstack plan gke --check-capacity",
    ],
    out=option("--out FILE.json", "Write a plan file, for `mlstack apply FILE.json`."),
    check_images=CHECK_IMAGES,
)
def plan(session: Session, out: Path | None = None, check_images: bool = False) -> object:
    """Show what apply would do, and keep it in a file that apply takes in place of ENV.

    With `--check-capacity` it exits with 1 when some pods are known to find no room.
    """
    from mlstack.operations import deploy

    if out is not None and out.suffix != ".json":
        raise UsageError(f"a plan file ends with `.json`, got `{out}`", hint=f"--out {out}.json")
    if out is not None and several.environments(session) is not None:
        raise UsageError("a plan file is about one environment", hint="mlstack plan ENV --out ENV.json")
    how, clock = session.apply_options(dry_run=True), session.ports.clock
    return several.each(
        session,
        lambda env: several.from_cluster(
            session, deploy.plan, clock=clock, options=how, out=out, check_images=check_images, env=env
        ),
    )


# --- runs ---


@top.command(
    takes=f"envs every keep_going components {GIVEN} {PLACE} dry_run create {APPLY} check_capacity"
    f" allow_dirty on_failure fail_fast wait timeout_s wait_for_jobs {CONFIRMED} {CLUSTER}",
    examples=[
        "mlstack apply minikube -c kubeflow-core",
        "mlstack apply gke-plan.json",
        "mlstack apply gke --check-capacity",
        "mlstack apply 'us-*' --keep-going",
    ],
    check_images=CHECK_IMAGES,
)
def apply(session: Session, check_images: bool = False) -> int:
    """Make the cluster match the app, or do what a plan file holds; asks before existing objects change."""
    from mlstack.cli import run_reporter
    from mlstack.operations import deploy

    options, clock, how = session.options, session.ports.clock, session.apply_options()
    names = several.environments(session)
    if names is not None:
        plan_one = partial(several.from_cluster, session, deploy.plan_apply, options=how)
        sound = deploy.refuse_images if check_images else lambda plan: plan
        return _run_several(session, names, lambda name: sound(plan_one(env=name)), "apply")
    # A plan file ends with `.json` and exists, or has a folder before it.
    env = several.only(session) or ""
    file = Path(env) if env.endswith(".json") and ("/" in env or Path(env).is_file()) else None
    if file is None:
        plan = several.from_cluster(session, deploy.plan_apply, options=how, env=env or None)
    else:
        _refuse_decided(session)
        plan = several.from_cluster(session, partial(deploy.plan_approved, file), options=how, env=env)
    if check_images:
        plan = deploy.refuse_images(plan)
    # A plan file was approved when it was made; a protected environment wants its name all the same.
    is_sure = options["yes"] or file is not None
    if not how.dry_run and not run_reporter.confirmed(plan, "apply", session, yes=is_sure):
        return 1
    with run_reporter.going_back(plan, options["output"], clock=clock) as going:
        return run_reporter.carry_out(session, going)


def _run_several(
    session: Session,
    names: list[str],
    plan_one: Callable[[str], ApplyPlan],
    verb: str,
    *,
    always: bool = False,
) -> int:
    """Plan a run for each of several environments, ask once, then carry them out in their order."""
    from mlstack.cli import run_reporter
    from mlstack.operations import deploy

    results, plans = several.Results(session), []
    for name in names:
        with results.of(name, quiet=True):
            plans.append(plan_one(name))
    is_trial = session.options["dry_run"]
    if not is_trial and not run_reporter.all_confirmed(plans, verb, session, always=always):
        return 1
    clock, output = session.ports.clock, "table" if results.prints else run_reporter.LISTED
    for plan in plans:
        with (
            results.of(plan.place.name),
            run_reporter.going_back(plan, output, clock=clock) as going,
            run_reporter.reporting(plan.report, output) as on_event,
        ):
            result = deploy.apply(going, on_event=on_event, clock=clock)
            results.add(result, run_reporter.sum_up if results.prints else None)
    return results.end()


def _refuse_decided(session: Session) -> None:
    """Refuse options whose answer stands in the plan file."""
    from mlstack.deploy.changes import DECIDING, ApplyOptions

    spelled = {"create": "no-create", "prune": "no-prune", "allow_destructive": "allow-destructive-crds"}
    options, usual = session.apply_options(), ApplyOptions()
    named = [name for name in DECIDING if getattr(options, name) != getattr(usual, name)]
    words = [spelled.get(name, name.replace("_", "-")) for name in named]
    words += ["component"] if session.options["components"] else []
    words += ["namespace"] if session.options["namespace"] else []
    if words:
        raise UsageError(f"the plan file decides `--{words[0]}`", hint="give it when the plan is made")


@top.command(
    takes=f"envs every expired keep_going components {PLACE} include_crds include_namespaces include_claims"
    f" include_foreign grace_period wait timeout_s dry_run {CONFIRMED} {CLUSTER}",
    examples=[
        "mlstack delete minikube -c cnn",
        "mlstack delete minikube --yes",
        "mlstack delete --expired --keep-going",
    ],
    expired=option("--expired", "All environments that are over (`env add --ttl`)."),
    include_crds=option("--crds", "Delete CRDs too, and with them every object of their kinds."),
    include_namespaces=option("--namespaces", "Delete namespaces too, and with them all they hold."),
    include_claims=option("--claims", "Delete volume claims too, and with them their data."),
    include_foreign=option(
        "--foreign", "With `--namespaces`: also what others made in them, and what annotations keep."
    ),
    grace_period=option("--grace-period SECONDS", "Time for pods to end.", min=0),
    wait=option("--wait/--no-wait", "Whether to go on until everything is gone."),
)
def delete(
    session: Session,
    include_crds: bool = False,
    include_namespaces: bool = False,
    include_claims: bool = False,
    include_foreign: bool = False,
    grace_period: int | None = None,
    wait: bool = True,
    expired: bool = False,
) -> int:
    """Remove an environment's objects from the cluster, in reverse order; always asks."""
    from mlstack.cli import run_reporter
    from mlstack.deploy.prune import KeepOptions
    from mlstack.operations import deploy

    options = session.options
    if include_foreign and not include_namespaces:
        raise UsageError("`--foreign` is about what lies in a namespace that goes", hint="add --namespaces")
    keep = KeepOptions(
        definitions=not include_crds,
        namespaces=not include_namespaces,
        claims=not include_claims,
        foreign=not include_foreign,
    )
    plan_one = partial(
        several.from_cluster,
        session,
        deploy.plan_delete,
        doing="looking at the cluster",
        spare=keep,
        grace_period_s=grace_period,
        wait=wait,
        dry_run=options["dry_run"],
        timeout_s=options["timeout_s"],
        lock_timeout_s=options["lock_timeout_s"],
    )
    names = _expired(session) if expired else several.environments(session)
    if names is not None:
        code = _run_several(session, names, lambda name: plan_one(env=name), "delete", always=True)
        if expired and names and code == 0 and not options["dry_run"]:
            say(*(f"next: mlstack env rm {name}" for name in names))
        return code
    plan = plan_one(env=several.only(session))
    if not options["dry_run"] and not run_reporter.confirmed(plan, "delete", session, always=True):
        return 1
    return run_reporter.carry_out(session, plan)


def _expired(session: Session) -> list[str]:
    from mlstack.operations import app

    if session.options["envs"] or session.options["every"]:
        raise UsageError("`--expired` says which environments", hint="leave out names and --all")
    over = [row.name for row in app.expired_environments(session.app, clock=session.ports.clock).environments]
    if not over:
        say("no environment is over")
    return over
