"""`elastic run, plan, status, simulate`: the controller, what it would do, how jobs stand, simulations."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlstack.cli import options, page
from mlstack.cli.main import family
from mlstack.cli.output import say, write
from mlstack.cli.ports import Session, read_text
from mlstack.errors import ClusterError, NotFoundError, UsageError
from mlstack.names import check_namespace, check_object_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlstack.elastic.controller.controller import ControllerSettings
    from mlstack.elastic.controller.metrics import Metrics
    from mlstack.elastic.controller.reconciler import Pass
    from mlstack.elastic.snapshot import PolicyConfig, PriorityGrants, Snapshot
    from mlstack.kube.client import Cluster
    from mlstack.simulator.experiments import GoalTable
    from mlstack.simulator.report import SimulationReport
    from mlstack.simulator.scenario import Scenario

_LEVELS = ("error", "info", "debug")
_GOALS = ("case1", "case2", "case2-roomy", "jct", "validation")
_FIXED = ("jct", "validation")  # whose policies and settings are part of what is judged

commands = family("Training jobs that grow and shrink with the room there is.")

LeadContext = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        help="The kubectl context. Default: the current one; in a pod, its service account.",
    ),
]
Namespaces = Annotated[
    list[str] | None,
    typer.Option("--namespace", "-n", metavar="NAME", help="Only jobs in this namespace; repeatable."),
]
Policy = Annotated[str, typer.Option("--policy", metavar="NAME", help="fair, throughput or edl.")]
Headroom = Annotated[
    int | None,
    typer.Option(
        "--headroom",
        metavar="PERCENT",
        min=0,
        max=90,
        help="Room that growth leaves free. Default: 0; 3 with policy edl, as EDL had it.",
    ),
]
Moves = Annotated[
    int,
    typer.Option(
        "--moves", metavar="COUNT", min=0, help="Trainers moved for fairness alone in 10 s, at the most."
    ),
]
MaxPriority = Annotated[
    list[str] | None,
    typer.Option(
        "--max-priority",
        metavar="[NAMESPACE=]NUMBER",
        help="Highest priority that jobs may have, in all namespaces or in one; repeatable. A PriorityClass "
        "that a ResourceQuota of a namespace names is granted too. Default: 0.",
    ),
]
Tick = Annotated[
    float,
    typer.Option(
        "--tick", metavar="DURATION", parser=options.duration, help="Longest time between two passes."
    ),
]


def _level(value: str) -> str:
    if value in _LEVELS:
        return value
    raise UsageError(f"no log level `{value}`", hint=f"use {', '.join(_LEVELS)}")


@commands.command(
    takes="kubeconfig",
    examples=["mlstack elastic run --context gke --dry-run", "mlstack elastic run --listen :8080"],
)
def run(
    session: Session,
    context: LeadContext = None,
    namespace: Namespaces = None,
    once: Annotated[bool, typer.Option("--once", help="Do one pass, then end.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done; write nothing.")
    ] = False,
    policy: Policy = "fair",
    tick: Tick = 5.0,
    headroom: Headroom = None,
    moves: Moves = 15,
    max_priority: MaxPriority = None,
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="ADDRESS:PORT",
            help="Answer /metrics, /healthz and /readyz here, `:8080` by IPv4 and IPv6. Default: nowhere.",
        ),
    ] = "",
    lease_namespace: Annotated[
        str,
        typer.Option(
            "--lease-namespace",
            metavar="NAME",
            help="Where the Lease is by which one controller leads. Default: that of the pod; outside of one "
            "where the Lease is already, else that of the context.",
        ),
    ] = "",
    lease_name: Annotated[
        str,
        typer.Option(
            "--lease-name",
            metavar="NAME",
            help="Name of that Lease, for a controller that works beside others, with namespaces of its own. "
            "Default: mlstack-elastic.",
        ),
    ] = "",
    log_level: Annotated[
        str,
        typer.Option(
            "--log-level",
            metavar="LEVEL",
            callback=_level,
            help="What is said: error, info (what changes) or debug (every write).",
        ),
    ] = "info",
    identity: Annotated[
        str, typer.Option("--identity", metavar="NAME", help="Name of this controller in the Lease.")
    ] = "",
) -> int:
    """Look after training jobs until stopped; of several controllers one leads, the others stand by.

    SIGTERM and Ctrl-C free the Lease, so that the next one leads at once, and end with 143 and 130.
    """
    from mlstack.cli.ports import SystemClock
    from mlstack.elastic.controller import inspect
    from mlstack.elastic.controller.controller import Controller

    settings = _settings(
        session,
        context=context,
        kubeconfig=session.given["kubeconfig"],
        namespaces=namespace,
        policy=_policy(policy, headroom, moves),
        grants=_grants(max_priority),
        tick=tick,
        dry_run=dry_run,
        lease_namespace=lease_namespace,
        lease_name=lease_name,
        identity=identity,
    )
    metrics, stop = _listening(listen)
    log = _Log(log_level, metrics)
    counted = metrics.answered if metrics is not None else _uncounted
    cluster = session.ports.connect_once(context or "", session.given["kubeconfig"], counted)
    if not (lease_namespace or dry_run or (os.environ.get("POD_NAMESPACE") and not context)):
        settings = _with_the_lease_there_is(cluster, settings, log)
    controller = Controller(cluster, settings, clock=SystemClock(), log=log.say, observer=log)
    try:
        if not once:
            log.say(f"{settings.identity} begins, policy `{settings.policy.mode}`")
            _tell_missing(cluster, settings, log)
            controller.run()
            return 0
        inspect.check_namespaces(cluster, settings.namespaces)
        found = controller.once()
    finally:
        stop()
    for line in (*found.actions, *(f"{action} refused: {error}" for action, error in found.refused)):
        write(str(line))
    return 1 if found.refused else 0


@commands.command(
    takes="kubeconfig output",
    examples=[
        "mlstack elastic plan",
        "mlstack elastic plan --explain train/bert",
        "mlstack elastic plan --save before.json",
        "mlstack elastic plan --snapshot before.json --policy throughput -o json",
    ],
)
def plan(
    session: Session,
    context: LeadContext = None,
    namespace: Namespaces = None,
    snapshot: Annotated[
        Path | None,
        typer.Option("--snapshot", metavar="FILE", help="Plan with a saved moment, without a cluster."),
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="Keep this moment in a file.")
    ] = None,
    explain: Annotated[
        str | None, typer.Option("--explain", metavar="JOB", help="Tell everything about one job.")
    ] = None,
    policy: Policy = "fair",
    headroom: Headroom = None,
    moves: Moves = 15,
    max_priority: MaxPriority = None,
) -> object:
    """Show what the controller would do now, and why; writes nothing to the cluster."""
    from mlstack.elastic.controller import inspect

    config = _policy(policy, headroom, moves)
    if snapshot is not None and (context or namespace or max_priority):
        raise UsageError(
            "`--snapshot` needs no cluster", hint="leave --context, --namespace and --max-priority away"
        )
    grants = _grants(max_priority)
    moment = (
        _saved(snapshot)
        if snapshot is not None
        else _live(session, context, session.given["kubeconfig"], namespace, grants)
    )
    if save is not None:
        from mlstack.elastic import snapshot as saved

        save.write_text(saved.write(moment), encoding="utf-8")
    found = inspect.planned(moment, config)
    return inspect.explained(found, explain) if explain else found


@commands.command(
    takes="kubeconfig output",
    examples=["mlstack elastic status", "mlstack elastic status -n train -o json"],
)
def status(
    session: Session,
    context: LeadContext = None,
    namespace: Namespaces = None,
) -> object:
    """Show how the training jobs stand: phase, trainers ready and told, and why one waits."""
    from mlstack.elastic.controller import inspect

    with page.waiting("reading the training jobs"):
        cluster = session.ports.connect(context or "", session.given["kubeconfig"])
        found = inspect.standings(inspect.look_at_jobs(cluster, namespace or ()))
    return found


def _print_example(value: bool) -> None:
    if value:
        from mlstack.simulator import scenario

        write((scenario.FOLDER / "example.yaml").read_text("utf-8"))
        raise typer.Exit


@commands.command(
    takes="output",
    examples=[
        "mlstack elastic simulate case1 --seeds 3",
        "mlstack elastic simulate case1 --seeds 20 --first-seed 100",
        "mlstack elastic simulate case2 --csv case2.csv --plot case2.svg",
        "mlstack elastic simulate my-cluster.yaml --policy throughput --seed 7",
        "mlstack elastic simulate --example > my-cluster.yaml",
        "mlstack elastic simulate my-cluster.yaml --headroom 10 --moves 5 --tick 2s",
    ],
)
def simulate(
    session: Session,
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO",
            help="case1, case2, case2-roomy, jct or validation, or a YAML or JSON file with nodes, jobs, "
            "services and events.",
        ),
    ],
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="COUNT", min=1, help="How many runs are judged by the goals.")
    ] = 10,
    first_seed: Annotated[
        int, typer.Option("--first-seed", metavar="NUMBER", min=0, help="The first of these seeds.")
    ] = 0,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="NUMBER", help="Do one run with this seed. Default: 0.")
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="fair, throughput or edl; or EDL's own way of 2017: edl-v010, off (rigid jobs).",
        ),
    ] = "fair",
    headroom: Headroom = None,
    moves: Moves = 15,
    tick: Tick = 5.0,
    preemption: Annotated[
        bool | None,
        typer.Option(
            "--preemption/--no-preemption",
            help="Whether the scheduler pushes trainers aside for pods of services, or leaves it to the "
            "controller. Default: as the scenario has it; case2 does, case2-roomy does not.",
        ),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Do one run and write a row a second.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Do one run and draw it as SVG (`mlstack[plot]`)."),
    ] = None,
    example: Annotated[
        bool,
        typer.Option(
            "--example", is_eager=True, callback=_print_example, help="Print a scenario with every field."
        ),
    ] = False,
) -> object:
    """Run the controller in a simulated cluster, without any other.

    A case is run with many seeds and judged by its goals: exit code 1 when one is missed. A file, or a case
    with --seed, --csv or --plot, is run once and summed up.
    """
    from mlstack.elastic.snapshot import PolicyConfig
    from mlstack.simulator.run import BASELINES

    settings = [f"--{name}" for name in ("headroom", "moves", "tick") if _is_typed(session.ctx, name)]
    leave, is_baseline = f"leave {', '.join(settings)} away", policy in BASELINES
    if settings and scenario in _FIXED:
        raise UsageError(f"the settings of `{scenario}` are fixed", hint=leave)
    if settings and is_baseline:
        why = f"policy `{policy}` runs without the controller that has such settings"
        raise UsageError(why, hint=leave)
    config = PolicyConfig(mode=policy) if is_baseline else _policy(policy, headroom, moves, also=BASELINES)
    tick_ms, has_goals = _tick_ms(tick), scenario in _GOALS
    if has_goals and seed is None and csv is None and plot is None:
        chosen = tuple(range(first_seed, first_seed + seeds))
        return _judge(scenario, chosen, config, tick_ms=tick_ms, is_preempting=preemption)
    if many := [
        f"--{name.replace('_', '-')}" for name in ("seeds", "first_seed") if _is_typed(session.ctx, name)
    ]:
        why = "one run is done" if has_goals else f"`{scenario}` is run once: it has no goals to be judged by"
        raise UsageError(why, hint=f"leave {', '.join(many)} away; see --seed")
    return _simulate_once(
        scenario, config, seed or 0, tick_ms=tick_ms, is_preempting=preemption, rows=csv, plot=plot
    )


def _is_typed(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _live(
    session: Session,
    context: str | None,
    kubeconfig: str | None,
    namespaces: list[str] | None,
    grants: PriorityGrants,
) -> Snapshot:
    from mlstack.elastic.controller import inspect

    with page.waiting("reading nodes, pods and jobs"):
        cluster = session.ports.connect(context or "", kubeconfig)
        return inspect.look(cluster, round(session.ports.clock.now_s() * 1000), namespaces or (), grants)


def _saved(file: Path) -> Snapshot:
    from mlstack.elastic import snapshot

    return snapshot.read(read_text(file), where=str(file))


def _policy(name: str, headroom: int | None, moves: int, *, also: Sequence[str] = ()) -> PolicyConfig:
    from mlstack.elastic.controller import inspect
    from mlstack.elastic.snapshot import PolicyConfig

    inspect.check_policy(name, also=also)
    load = {} if headroom is None else {"headroom_pct": headroom, "max_load_pct": 100 - headroom}
    return PolicyConfig(mode=name, moves=moves, **load)


def _grants(texts: list[str] | None) -> PriorityGrants:
    """Read which priorities are granted: `10` everywhere, `research=100` in one namespace."""
    from mlstack.elastic.snapshot import PriorityGrants
    from mlstack.names import check_namespace

    found: dict[str, int] = {}
    for text in texts or ():
        namespace, has_namespace, number = text.rpartition("=")
        digits = number.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) < 1 << 31):
            raise UsageError(
                f"`--max-priority {text}` ends in no whole number",
                hint="--max-priority 10 --max-priority research=100",
            )
        if has_namespace:
            check_namespace(namespace)
        if namespace in found:
            whom = f"namespace `{namespace}`" if namespace else "all namespaces"
            raise UsageError(f"`--max-priority` is given twice for {whom}", hint="give it once for each")
        found[namespace] = int(number)
    return PriorityGrants(everywhere=found.pop("", 0), namespaces=found)


def _settings(
    session: Session,
    *,
    context: str | None,
    kubeconfig: str | None,
    namespaces: list[str] | None,
    policy: PolicyConfig,
    grants: PriorityGrants,
    tick: float,
    dry_run: bool,
    lease_namespace: str,
    lease_name: str,
    identity: str,
) -> ControllerSettings:
    from mlstack.cli.ports import own_namespace
    from mlstack.elastic.controller.controller import LEASE_NAME, ControllerSettings

    tick_ms = _tick_ms(tick)
    lease_name = check_object_name(lease_name or LEASE_NAME)
    if lease_namespace:
        check_namespace(lease_namespace)
    holder = session.lock_holder()
    # A container that is started again in its pod leads again at once: the process before it is gone.
    in_pod = os.environ.get("POD_NAME", "") if os.getpid() == 1 else ""
    return ControllerSettings(
        policy=policy,
        grants=grants,
        namespaces=tuple(namespaces or ()),
        identity=identity or in_pod or holder.name,
        is_gone=holder.is_gone,
        lease_namespace=lease_namespace or own_namespace(session, context, kubeconfig),
        lease_name=lease_name,
        tick_ms=tick_ms,
        is_dry=dry_run,
    )


def _tick_ms(tick: float) -> int:
    if tick < 0.1:
        raise UsageError("`--tick` must be at least 100 ms", hint="5s is the default")
    return round(tick * 1000)


def _uncounted(verb: str, status: int | None) -> None:
    """Count no request: nobody asks for metrics."""


def _with_the_lease_there_is(cluster: Cluster, settings: ControllerSettings, log: _Log) -> ControllerSettings:
    """Stand for election where others do: the namespace of a context says nothing about them."""
    from dataclasses import replace

    from mlstack.elastic.controller.leader import lease_namespace

    default, name = settings.lease_namespace, settings.lease_name
    return replace(settings, lease_namespace=lease_namespace(cluster, name, default=default, log=log.say))


def _tell_missing(cluster: Cluster, settings: ControllerSettings, log: _Log) -> None:
    """Say which namespaces are not there (yet); of a dead server the watches tell."""
    from mlstack.elastic.controller import inspect

    with suppress(ClusterError):
        if missing := inspect.missing_namespaces(cluster, settings.namespaces):
            log.say(f"the cluster has no {missing} yet: jobs are looked after there once it does")


def _listening(listen: str) -> tuple[Metrics | None, Callable[[], None]]:
    """Begin to answer probes, where that is wanted; gives what is told, and how to end it."""
    if not listen:
        return None, lambda: None
    from time import monotonic

    from mlstack.elastic.controller.metrics import HealthServer, Metrics

    address, _, port = listen.rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise UsageError(f"`--listen {listen}` has no port from 0 to 65535", hint="--listen :8080")
    in_brackets = address.startswith("[") and address.endswith("]")
    if ":" in address and not in_brackets:
        raise UsageError(
            f"`--listen {listen}`: an IPv6 address stands in brackets", hint=f"--listen '[{address}]:{port}'"
        )
    metrics = Metrics(monotonic)
    try:
        server = HealthServer(metrics, address=address[1:-1] if in_brackets else address, port=int(port))
    except OSError as error:
        raise UsageError(
            f"cannot listen at `{listen}`: {(error.strerror or str(error)).lower()}",
            hint="--listen takes a free port of this machine",
        ) from error
    server.start()
    return metrics, server.stop


class _Log:
    """Says on stderr what the controller does, one line with its time each, and hands on to the metrics."""

    def __init__(self, level: str, metrics: Metrics | None) -> None:
        self._level, self._metrics = _LEVELS.index(level), metrics

    def say(self, text: str) -> None:
        """Say a line: whoever reads it later needs the time."""
        from datetime import UTC, datetime

        say(f"{datetime.now(UTC).strftime('%Y-%m-%dT%H:%M:%SZ')} {text}")

    def observe_loop(self, *, is_leading: bool, is_synced: bool) -> None:
        """Take note that the loop goes round."""
        if self._metrics is not None:
            self._metrics.observe_loop(is_leading=is_leading, is_synced=is_synced)

    def observe_pass(self, done: Pass, *, seconds: float) -> None:
        """Take note of a pass, and say what happened to jobs."""
        if self._metrics is not None:
            self._metrics.observe_pass(done, seconds=seconds)
        if self._level >= _LEVELS.index("info"):
            for event in done.events:
                self.say(f"{event.job} {event.reason}: {event.text}")
        if self._level >= _LEVELS.index("debug"):
            for action in done.actions:
                self.say(str(action))

    def observe_failure(self, error: Exception) -> None:
        """Take note of a pass that failed."""
        if self._metrics is not None:
            self._metrics.observe_failure(error)


# --- simulations ---


def _judge(
    case: str, seeds: tuple[int, ...], config: PolicyConfig, *, tick_ms: int, is_preempting: bool | None
) -> GoalTable:
    """Run a case with so many seeds from the first on, and judge it by its goals."""
    from mlstack.simulator import experiments, scenario

    if is_preempting is not None:
        _check_services(case, scenario.published(case) if case in scenario.CASES else None)
    with page.waiting(f"simulating {case}"):
        return experiments.judge(
            case,
            seeds,
            config,
            tick_ms=tick_ms,
            is_preempting=is_preempting,
            workers=os.cpu_count() or 1,
        )


def _simulate_once(
    name: str,
    config: PolicyConfig,
    seed: int,
    *,
    tick_ms: int,
    is_preempting: bool | None,
    rows: Path | None,
    plot: Path | None,
) -> SimulationReport:
    """Run one simulation, and write its rows and its plot where that is wanted."""
    from mlstack.simulator import report
    from mlstack.simulator.run import simulate
    from mlstack.simulator.scenario import with_preemption

    if plot is not None:
        report.library()
    for file in (rows, plot):
        if file is not None:
            _check_place(file)
    scenario = _scenario(name)
    if is_preempting is not None:
        _check_services(name, scenario)
        scenario = with_preemption(scenario, is_preempting=is_preempting)
    with page.waiting(f"simulating {scenario.name}"):
        outcome = simulate(scenario, config, seed=seed, tick_ms=tick_ms)
    if rows is not None:
        _write(rows, report.rows(outcome.samples))
    if plot is not None:
        title = f"{outcome.scenario.name}, policy {outcome.policy}, seed {outcome.seed}"
        _write(plot, report.draw(outcome.samples, title))
    return report.summary(outcome)


def _check_services(name: str, scenario: Scenario | None) -> None:
    if scenario is None or not scenario.services:
        raise UsageError(f"`{name}` has no services whose pods could preempt", hint="leave --preemption away")


def _scenario(name: str) -> Scenario:
    from mlstack.simulator import scenario

    if name in scenario.CASES:
        return scenario.published(name)
    if name in _GOALS:
        raise UsageError(f"`{name}` is no single simulation", hint="leave --csv, --plot and --seed away")
    file = Path(name)
    if not file.exists():
        raise NotFoundError(
            f"no scenario `{name}`", hint=f"one of {', '.join(_GOALS)}, or a file that describes one"
        )
    return scenario.load(read_text(file), where=name)


def _check_place(file: Path) -> None:
    """Refuse a file that cannot be written before the work is done that it is to hold."""
    if not file.parent.is_dir():
        raise NotFoundError(f"no folder `{file.parent}`", hint=f"mkdir -p {file.parent}")
    if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        raise UsageError(f"cannot write `{file}`", hint="check the path and its rights")


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
