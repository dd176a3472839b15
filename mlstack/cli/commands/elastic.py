"""`elastic run, plan, status, simulate`: the controller, what it would do, how jobs stand, simulations."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mlstack.cli import options, page
from mlstack.cli.main import Family
from mlstack.cli.options import NAMES, offered, option
from mlstack.cli.output import say, write
from mlstack.cli.ports import Session, own_namespace, read_text
from mlstack.cli.ports import holder as holder_of
from mlstack.clock import timestamp
from mlstack.errors import ClusterError, NotFoundError, UsageError
from mlstack.names import check_namespace, check_object_name

if TYPE_CHECKING:
    from mlstack.elastic.controller import Controller, ControllerSettings
    from mlstack.elastic.metrics import Metrics
    from mlstack.elastic.snapshot import PolicyConfig, PriorityGrants
    from mlstack.kube.client import Cluster
    from mlstack.simulator.report import SimulationReport
    from mlstack.simulator.scenario import Scenario

_GOALS = ("case1", "case2", "case2-roomy", "jct", "validation")

commands = Family("elastic", "Training jobs that grow and shrink with the room there is.")

CONTEXT = option(
    "--context NAME", "The kubectl context. Default: the current one; in a pod, its service account."
)
NAMESPACES = option("--namespace -n NAME", "Only jobs in this namespace; repeatable.")
POLICY = option(
    "--policy NAME", f"How room is shared out{NAMES}.", offered("elastic.inspect.policies"), default="fair"
)
HEADROOM = option(
    "--headroom PERCENT",
    "Room that growth leaves free. Default: 0; 3 with policy edl, as EDL had it.",
    min=0,
    max=90,
)
MOVES = option("--moves COUNT", "Trainers moved for fairness alone in 10 s, at the most.", default=15, min=0)
MAX_PRIORITY = option(
    "--max-priority [NAMESPACE=]NUMBER",
    "Highest priority that jobs may have, in all namespaces or in one; repeatable. A PriorityClass "
    "that a ResourceQuota of a namespace names is granted too. Default: 0.",
)


def _tick_ms(text: str | float) -> int:
    tick = options.duration(text)
    if tick < 0.1:
        raise UsageError("`--tick` must be at least 100 ms", hint="5s is the default")
    return round(tick * 1000)


def _print_example(value: bool) -> None:
    if value:
        from mlstack.simulator import scenario

        write((scenario.FOLDER / "example.yaml").read_text("utf-8"))
        raise typer.Exit


TICK = option("--tick DURATION", "Longest time between two passes.", default=5.0, parser=_tick_ms)
LISTEN = option(
    "--listen ADDRESS:PORT",
    "Answer /metrics, /healthz and /readyz here, `:8080` by IPv4 and IPv6. Default: nowhere.",
)
LEASE_NAMESPACE = option(
    "--lease-namespace NAME",
    "Where the Lease is by which one controller leads. Default: that of the pod; outside of one "
    "where the Lease is already, else that of the context.",
)
LEASE = option(
    "--lease-name NAME",
    "Name of that Lease, for a controller that works beside others, with namespaces of its own. "
    "Default: mlstack-elastic.",
)
LEVEL = option(
    "--log-level LEVEL",
    "What is said: error, info (what changes) or debug (every write).",
    callback=options.one_of(("error", "info", "debug"), "no log level `{}`", "use error, info, debug"),
    default="info",
)
SNAPSHOT = option("--snapshot FILE", "Plan with a saved moment, without a cluster.")
SAVE = option("--save FILE", "Keep this moment in a file.")
CSV = option("--csv FILE", "Do one run and write a row a second.")
PLOT = option("--plot FILE", "Do one run and draw it as SVG (`mlstack[plot]`).")

SCENARIO = options.word(
    "SCENARIO",
    "case1, case2, case2-roomy, jct or validation, or a YAML or JSON file with nodes, jobs, "
    "services and events.",
)

ANY_POLICY = option(
    "--policy NAME",
    f"How room is shared out{NAMES}; or EDL's own way of 2017: edl-v010, off (rigid jobs).",
    offered("elastic.inspect.policies"),
    default="fair",
)
PREEMPTION = option(
    "--preemption/--no-preemption",
    "Whether the scheduler pushes trainers aside for pods of services, or leaves it to the "
    "controller. Default: as the scenario has it; case2 does, case2-roomy does not.",
)
EXAMPLE = option("--example", "Print a scenario with every field.", is_eager=True, callback=_print_example)


@commands.command(takes="kubeconfig", examples=["--context gke --dry-run", "--listen :8080"])
def run(
    session: Session,
    context: str | None = CONTEXT,
    namespaces: Sequence[str] = NAMESPACES,
    once: bool = option("--once", "Do one pass, then end."),
    is_dry: bool = option("--dry-run", "Say what would be done; write nothing."),
    policy: str = POLICY,
    tick_ms: int = TICK,
    headroom: int | None = HEADROOM,
    moves: int = MOVES,
    max_priority: Sequence[str] = MAX_PRIORITY,
    listen: str = LISTEN,
    lease_namespace: str = LEASE_NAMESPACE,
    lease_name: str = LEASE,
    log_level: str = LEVEL,
    identity: str = option("--identity NAME", "Name of this controller in the Lease."),
) -> int:
    """Look after training jobs until stopped; of several controllers one leads, the others stand by.

    SIGTERM and Ctrl-C free the Lease, so that the next one leads at once, and end with 143 and 130.
    """
    from mlstack.elastic.controller import Controller, find_lease_namespace

    settings = _settings(session, _policy(policy, headroom, moves), _grants(max_priority))
    metrics, stop = _listening(listen)
    counted = metrics.answered if metrics is not None else lambda verb, status: None
    cluster = session.ports.connect_once(context or "", session.options.kubeconfig, counted)
    if not (lease_namespace or is_dry or (os.environ.get("POD_NAMESPACE") and not context)):
        # Stand for election where others do: the namespace of a context says nothing about them.
        default = settings.lease_namespace
        place = find_lease_namespace(cluster, settings.lease_name, default=default, log=_log)
        settings = replace(settings, lease_namespace=place)
    controller = Controller(cluster, settings, log=_log, metrics=metrics)
    try:
        look = _do_one_pass if once else _look_after
        return look(cluster, controller, settings)
    finally:
        stop()


def _settings(session: Session, config: PolicyConfig, grants: PriorityGrants) -> ControllerSettings:
    """Give the settings of a controller as the options have them."""
    from mlstack.elastic.controller import LEASE_NAME, ControllerSettings

    given, holder = session.arguments, holder_of(session.ports.who())
    if given["lease_namespace"]:
        check_namespace(given["lease_namespace"])
    # A container that is started again in its pod leads again at once: the process before it is gone.
    in_pod = os.environ.get("POD_NAME", "") if os.getpid() == 1 else ""
    usual = own_namespace(session, given["context"], session.options.kubeconfig)
    return session.filled(
        ControllerSettings,
        policy=config,
        grants=grants,
        identity=given["identity"] or in_pod or holder.name,
        is_gone=holder.is_gone,
        lease_namespace=given["lease_namespace"] or usual,
        lease_name=check_object_name(given["lease_name"] or LEASE_NAME),
    )


def _look_after(cluster: Cluster, controller: Controller, settings: ControllerSettings) -> int:
    from mlstack.elastic import inspect

    _log(f"{settings.identity} begins, policy `{settings.policy.mode}`")
    with suppress(ClusterError):  # of a dead server the watches tell
        if missing := inspect.missing_namespaces(cluster, settings.namespaces):
            _log(f"the cluster has no {missing} yet: jobs are looked after there once it does")
    controller.run()
    return 0


def _do_one_pass(cluster: Cluster, controller: Controller, settings: ControllerSettings) -> int:
    from mlstack.elastic import inspect

    inspect.check_namespaces(cluster, settings.namespaces)
    done = controller.once()
    for line in (*done.actions, *(f"{action} refused: {error}" for action, error in done.refused)):
        write(str(line))
    if not done.actions:
        say("nothing to do")
    return 1 if done.refused else 0


def _log(text: str) -> None:
    """Say a line on stderr: whoever reads it later needs the time."""
    say(f"{timestamp(time.time())} {text}")


@commands.command(
    takes="kubeconfig output",
    examples=[
        "",
        "--explain train/bert",
        "--save before.json",
        "--snapshot before.json --policy throughput -o json",
    ],
)
def plan(
    session: Session,
    context: str | None = CONTEXT,
    namespace: Sequence[str] = NAMESPACES,
    snapshot: Path | None = SNAPSHOT,
    save: Path | None = SAVE,
    explain: str | None = option("--explain JOB", "Tell everything about one job."),
    policy: str = POLICY,
    headroom: int | None = HEADROOM,
    moves: int = MOVES,
    max_priority: Sequence[str] = MAX_PRIORITY,
) -> object:
    """Show what the controller would do now, and why; writes nothing to the cluster."""
    from mlstack.app.edit import write_files
    from mlstack.elastic import inspect
    from mlstack.elastic import snapshot as snapshots

    config = _policy(policy, headroom, moves)
    if snapshot is not None and (context or namespace or max_priority):
        hint = "leave --context, --namespace and --max-priority away"
        raise UsageError("`--snapshot` needs no cluster", hint=hint)
    grants = _grants(max_priority)
    if snapshot is not None:
        moment = snapshots.read(read_text(snapshot), where=str(snapshot))
    else:
        with page.waiting("reading nodes, pods and jobs"):
            cluster = session.ports.connect(context or "", session.options.kubeconfig)
            now_ms = round(session.ports.clock.now_s() * 1000)
            moment = inspect.read_snapshot(cluster, now_ms, namespace, grants)
    if save is not None:
        write_files({save: snapshots.write(moment)})
    decided = inspect.decide(moment, config)
    return inspect.explain_job(decided, explain) if explain else decided


@commands.command(takes="kubeconfig output", examples=["", "-n train -o json"])
def status(session: Session, context: str | None = CONTEXT, namespace: Sequence[str] = NAMESPACES) -> object:
    """Show how the training jobs stand: phase, trainers ready and told, and why one waits."""
    from mlstack.elastic import inspect

    with page.waiting("reading the training jobs"):
        cluster = session.ports.connect(context or "", session.options.kubeconfig)
        return inspect.job_statuses(cluster, namespace)


@commands.command(
    takes="output",
    examples=[
        "case1 --seeds 3",
        "case1 --seeds 20 --first-seed 100",
        "case2 --csv case2.csv --plot case2.svg",
        "my-cluster.yaml --policy throughput --seed 7",
        "--example > my-cluster.yaml",
        "my-cluster.yaml --headroom 10 --moves 5 --tick 2s",
    ],
)
def simulate(
    session: Session,
    scenario: str = SCENARIO,
    seeds: int = option("--seeds COUNT", "How many runs are judged by the goals.", min=1, default=10),
    first_seed: int = option("--first-seed NUMBER", "The first of these seeds.", min=0, default=0),
    seed: int | None = option("--seed NUMBER", "Do one run with this seed. Default: 0."),
    policy: str = ANY_POLICY,
    headroom: int | None = HEADROOM,
    moves: int = MOVES,
    tick_ms: int = TICK,
    preemption: bool | None = PREEMPTION,
    csv: Path | None = CSV,
    plot: Path | None = PLOT,
    example: bool = EXAMPLE,
) -> object:
    """Run the controller in a simulated cluster, without any other.

    A case is run with many seeds and judged by its goals: exit code 1 when one is missed. A file, or a case
    with --seed, --csv or --plot, is run once and summed up.
    """
    from mlstack.simulator import scenario as scenarios

    config = _simulated_policy(session, scenario, policy, headroom, moves)
    if preemption is not None and (scenario in ("jct", "validation") or not _scenario(scenario).services):
        why = f"`{scenario}` has no services whose pods could preempt"
        raise UsageError(why, hint="leave --preemption away")
    has_goals = scenario in _GOALS
    if has_goals and seed is None and csv is None and plot is None:
        from mlstack.simulator import experiments

        judge = partial(experiments.judge, scenario, tuple(range(first_seed, first_seed + seeds)), config)
        with page.waiting(f"simulating {scenario}"):
            return judge(tick_ms=tick_ms, is_preempting=preemption, workers=os.cpu_count() or 1)
    if many := _typed(session, "seeds", "first_seed"):
        why = "one run is done" if has_goals else f"`{scenario}` is run once: it has no goals to be judged by"
        raise UsageError(why, hint=f"leave {', '.join(many)} away; see --seed")
    _check_places(csv, plot)
    single = _scenario(scenario)
    single = single if preemption is None else scenarios.with_preemption(single, is_preempting=preemption)
    return _simulate_once(single, config, seed or 0, tick_ms, csv, plot)


def _typed(session: Session, *names: str) -> list[str]:
    """Give those of some options that were typed."""
    sources = {name: session.ctx.get_parameter_source(name) for name in names}
    typed = [name for name, source in sources.items() if source is not None and source.name != "DEFAULT"]
    return [f"--{name.removesuffix('_ms').replace('_', '-')}" for name in typed]


def _simulated_policy(
    session: Session, scenario: str, policy: str, headroom: int | None, moves: int
) -> PolicyConfig:
    """Read the policy of a simulation; some take no settings."""
    from mlstack.elastic.snapshot import PolicyConfig
    from mlstack.simulator.run import BASELINES

    settings = _typed(session, "headroom", "moves", "tick_ms")
    leave = f"leave {', '.join(settings)} away"
    if settings and scenario in ("jct", "validation"):
        raise UsageError(f"the settings of `{scenario}` are fixed", hint=leave)
    if policy not in BASELINES:
        return _policy(policy, headroom, moves, also=BASELINES)
    if settings:
        why = f"policy `{policy}` runs without the controller that has such settings"
        raise UsageError(why, hint=leave)
    return PolicyConfig(mode=policy)


def _simulate_once(
    scenario: Scenario, config: PolicyConfig, seed: int, tick_ms: int, rows: Path | None, plot: Path | None
) -> SimulationReport:
    """Run one simulation, and write its rows and its plot where that is wanted."""
    from mlstack.simulator import report
    from mlstack.simulator.run import simulate

    with page.waiting(f"simulating {scenario.name}"):
        outcome = simulate(scenario, config, seed=seed, tick_ms=tick_ms)
    if rows is not None:
        rows.write_text(report.to_csv(outcome.samples), encoding="utf-8")
    if plot is not None:
        title = f"{outcome.scenario.name}, policy {outcome.policy}, seed {outcome.seed}"
        plot.write_text(report.draw(outcome.samples, title), encoding="utf-8")
    return report.summary(outcome)


def _scenario(name: str) -> Scenario:
    from mlstack.simulator import scenario

    if name in scenario.CASES:
        return scenario.published(name)
    if name in _GOALS:
        raise UsageError(f"`{name}` is no single simulation", hint="leave --csv, --plot and --seed away")
    file = Path(name)
    if not file.exists():
        hint = f"one of {', '.join(_GOALS)}, or a file that describes one"
        raise NotFoundError(f"no scenario `{name}`", hint=hint)
    return scenario.load(read_text(file), where=name)


def _check_places(rows: Path | None, plot: Path | None) -> None:
    """Refuse what cannot be drawn or written before the work is done that it is to hold."""
    if plot is not None:
        from mlstack.simulator import report

        report.library()
    for file in filter(None, (rows, plot)):
        if not file.parent.is_dir():
            raise NotFoundError(f"no folder `{file.parent}`", hint=f"mkdir -p {file.parent}")
        if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
            raise UsageError(f"cannot write `{file}`", hint="check the path and its rights")


# --- what options mean ---


def _policy(name: str, headroom: int | None, moves: int, *, also: Sequence[str] = ()) -> PolicyConfig:
    from mlstack.elastic import inspect
    from mlstack.elastic.snapshot import PolicyConfig

    inspect.check_policy(name, also=also)
    load = {} if headroom is None else {"headroom_pct": headroom, "max_load_pct": 100 - headroom}
    return PolicyConfig(mode=name, moves=moves, **load)


def _grants(texts: Sequence[str]) -> PriorityGrants:
    """Read which priorities are granted: `10` everywhere, `research=100` in one namespace."""
    from mlstack.elastic.snapshot import PriorityGrants

    granted: dict[str, int] = {}
    for text in texts:
        namespace, has_namespace, number = text.rpartition("=")
        digits = number.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) < 1 << 31):
            raise UsageError(
                f"`--max-priority {text}` ends in no whole number",
                hint="--max-priority 10 --max-priority research=100",
            )
        if has_namespace:
            check_namespace(namespace)
        if namespace in granted:
            whom = f"namespace `{namespace}`" if namespace else "all namespaces"
            raise UsageError(f"`--max-priority` is given twice for {whom}", hint="give it once for each")
        granted[namespace] = int(number)
    return PriorityGrants(everywhere=granted.pop("", 0), namespaces=granted)


def _listening(listen: str) -> tuple[Metrics | None, Callable[[], None]]:
    """Begin to answer probes, where that is wanted; gives what is told, and how to end it."""
    if not listen:
        return None, lambda: None
    from mlstack.elastic.metrics import HealthServer, Metrics

    address, _, port = listen.rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise UsageError(f"`--listen {listen}` has no port from 0 to 65535", hint="--listen :8080")
    in_brackets = address.startswith("[") and address.endswith("]")
    if ":" in address and not in_brackets:
        raise UsageError(
            f"`--listen {listen}`: an IPv6 address stands in brackets", hint=f"--listen '[{address}]:{port}'"
        )
    metrics = Metrics(time.monotonic)
    try:
        server = HealthServer(metrics, address=address[1:-1] if in_brackets else address, port=int(port))
    except OSError as error:
        why = str(error.strerror or error).partition(" (while")[0].lower()  # Python names the address again
        raise UsageError(
            f"cannot listen at `{listen}`: {why}", hint="--listen takes a free port of this machine"
        ) from error
    server.start()
    return metrics, server.stop
