"""What `elastic simulate` does: a table of goals over seeds, or one simulation with its rows and plot."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from mlstack.cli import page
from mlstack.cli.ports import read_text
from mlstack.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlstack.elastic.snapshot import PolicyConfig
    from mlstack.simulator.experiments import GoalTable
    from mlstack.simulator.report import SimulationReport
    from mlstack.simulator.run import SimulationOutcome
    from mlstack.simulator.scenario import Scenario

GOALS = ("case1", "case2", "case2-roomy", "jct", "validation")
_FIXED = ("jct", "validation")
"""Those whose policies and settings are part of what is judged."""


def check_settings(name: str, policy: str, typed: Sequence[str]) -> None:
    """Refuse settings of the controller where they are fixed, or where there is no controller.

    Raises:
        UsageError: they would change nothing.
    """
    hint = f"leave {', '.join(f'--{each}' for each in typed)} away"
    if typed and name in _FIXED:
        raise UsageError(f"the settings of `{name}` are fixed", hint=hint)
    if typed and baseline(policy) is not None:
        raise UsageError(f"policy `{policy}` runs without the controller that has such settings", hint=hint)


def check_seeds(name: str, typed: Sequence[str]) -> None:
    """Refuse the seeds of many runs where one is done.

    Raises:
        UsageError: they would change nothing.
    """
    if typed:
        why = "one run is done" if name in GOALS else f"`{name}` is run once: it has no goals to be judged by"
        raise UsageError(why, hint=f"leave {', '.join(f'--{each}' for each in typed)} away; see --seed")


def baseline(policy: str) -> PolicyConfig | None:
    """Give what stands for EDL's own way to scale jobs, None for a policy of the controller."""
    from mlstack.elastic.snapshot import PolicyConfig

    return PolicyConfig(mode=policy) if policy in baselines() else None


def baselines() -> tuple[str, ...]:
    """Give the names that stand for EDL's own way."""
    from mlstack.simulator.run import BASELINES

    return BASELINES


def table(
    case: str,
    seeds: int,
    config: PolicyConfig,
    *,
    tick_ms: int,
    first_seed: int,
    is_preempting: bool | None,
) -> GoalTable:
    """Run a case with so many seeds from the first on, and judge it by its goals."""
    from mlstack.simulator import experiments, scenario
    from mlstack.simulator.experiments import GoalTable, SeedTrial, run_all

    if is_preempting is not None:
        _check_services(case, scenario.CASES[case]() if case in scenario.CASES else None)
    chosen = tuple(range(first_seed, first_seed + seeds))
    workers = os.cpu_count() or 1
    with page.waiting(f"simulating {case}"):
        if case == "jct":
            from mlstack.simulator import experiments

            rows = experiments.judge_jct(experiments.run_trials(chosen, workers=workers))
            return GoalTable(case=case, policy="fair, throughput", seeds=chosen, rows=rows)
        if case == "validation":
            made = experiments.trials(chosen)
            rows = experiments.judge_validation(made, run_all(made, workers=workers))
            return GoalTable(case=case, policy="edl-v010, off", seeds=chosen, rows=rows)
        trials = [
            SeedTrial(
                case=case,
                policy=config.mode,
                seed=seed,
                is_preempting=is_preempting,
                config=config,
                tick_ms=tick_ms,
            )
            for seed in chosen
        ]
        found = run_all(trials, workers=workers)
    return GoalTable(
        case=case,
        policy=config.mode,
        seeds=chosen,
        rows=experiments.judge_case(case, found),
        violations=tuple(f"seed {one.seed}, {text}" for one in found for text in one.violations),
    )


def single(
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
    from mlstack.simulator import scenario as cases
    from mlstack.simulator.run import simulate_with

    if plot is not None:
        from mlstack.simulator.measures import library

        library()
    for file in (rows, plot):
        if file is not None:
            _check_place(file)
    scenario = _scenario(name)
    if is_preempting is not None:
        _check_services(name, scenario)
        scenario = cases.with_preemption(scenario, is_preempting=is_preempting)
    with page.waiting(f"simulating {scenario.name}"):
        outcome = simulate_with(scenario, config, seed=seed, tick_ms=tick_ms)
    if rows is not None:
        _write(rows, report.rows(outcome.samples))
    if plot is not None:
        _write(plot, _drawn(outcome))
    return report.summary(outcome)


def _check_services(name: str, scenario: Scenario | None) -> None:
    if scenario is None or not scenario.services:
        raise UsageError(f"`{name}` has no services whose pods could preempt", hint="leave --preemption away")


def _scenario(name: str) -> Scenario:
    from mlstack.simulator import scenario
    from mlstack.simulator.scenario import CASES
    from mlstack.yaml.read import read_document

    if name in CASES:
        return CASES[name]()
    if name in GOALS:
        raise UsageError(f"`{name}` is no single simulation", hint="leave --csv, --plot and --seed away")
    file = Path(name)
    if not file.exists():
        raise NotFoundError(
            f"no scenario `{name}`", hint=f"one of {', '.join(GOALS)}, or a file that describes one"
        )
    document = read_document(read_text(file), source=name, is_yaml_1_2=True)
    return scenario.read(document.value, where=name)


def _drawn(outcome: SimulationOutcome) -> str:
    from mlstack.simulator.measures import draw

    return draw(outcome.samples, f"{outcome.scenario.name}, policy {outcome.policy}, seed {outcome.seed}")


def _check_place(file: Path) -> None:
    """Refuse a file that cannot be written before the work is done that it is to hold."""
    if not file.parent.is_dir():
        raise NotFoundError(f"no folder `{file.parent}`", hint=f"mkdir -p {file.parent}")
    if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        raise UsageError(f"cannot write `{file}`", hint="check the path and its rights")


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
