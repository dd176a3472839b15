"""Run a case with many seeds, each in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlstack.elastic.config import PolicyConfig
from mlstack.elastic.pace import TICK_MS
from mlstack.elastic.simulate import cases
from mlstack.elastic.simulate.figures import Figures, figures
from mlstack.elastic.simulate.run import simulate, simulate_with


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One run to be made.

    Attributes:
        case: name of the case.
        policy: how jobs are scaled.
        seed: of chance.
        is_as_measured: whether on a cluster of EDL's time, with submissions as far apart as they really were.
        is_preempting: whether the scheduler pushes trainers aside for services; None for as the case has it.
        config: all settings of the policy; None for its own.
        tick_ms: longest time between two passes of the controller.
    """

    case: str
    policy: str
    seed: int
    is_as_measured: bool = False
    is_preempting: bool | None = None
    config: PolicyConfig | None = None
    tick_ms: int = TICK_MS


MEASURED_SPACING_MS = 12_500
"""What became of 10 s between submissions in EDL's runs."""


def run_trial(trial: Trial) -> Figures:
    """Make one run and measure it."""
    if not trial.is_as_measured:
        scenario = cases.named(trial.case, is_preempting=trial.is_preempting)
        config = trial.config or PolicyConfig(mode=trial.policy)
        return figures(simulate_with(scenario, config, seed=trial.seed, tick_ms=trial.tick_ms))
    is_first = trial.case == "case1"
    scenario = cases.case1(spacing_ms=MEASURED_SPACING_MS) if is_first else cases.CASES[trial.case]()
    return figures(simulate(cases.as_measured(scenario), trial.policy, seed=trial.seed))


def run_all(
    trials: Sequence[Trial], *, workers: int = 2, done: Callable[[Trial], None] = lambda trial: None
) -> list[Figures]:
    """Make all runs, in so many processes, and give what they came to in the same order.

    Args:
        trials: the runs.
        workers: how many processes; 1 for none but this.
        done: is called after each.
    """
    found = []
    if workers <= 1 or len(trials) <= 1:
        for trial in trials:
            found.append(run_trial(trial))
            done(trial)
        return found
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(min(workers, len(trials)), mp_context=get_context("spawn")) as pool:
        for trial, figure in zip(trials, pool.map(run_trial, trials), strict=True):
            found.append(figure)
            done(trial)
    return found
