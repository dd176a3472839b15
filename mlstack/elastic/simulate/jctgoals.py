"""The goals for the time that jobs take, over seeds and loads of the synthetic trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from mlstack.elastic.config import PolicyConfig
from mlstack.elastic.simulate.goals import Row, at_least
from mlstack.elastic.simulate.jct import Outcome, run_policy, run_rigid
from mlstack.elastic.simulate.trace import LOADS, draw

SEEDS = tuple(range(10))
"""The published seeds. What the trace looks like was chosen with other ones."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One trace under the rigid queue and both policies.

    Attributes:
        seed: of the trace.
        load: of the trace.
        rigid: first in, first out, every job at its maximum.
        fair: policy `fair`.
        throughput: policy `throughput`.
    """

    seed: int
    load: Fraction
    rigid: Outcome
    fair: Outcome
    throughput: Outcome


def try_out(seed: int, load: Fraction) -> Trial:
    """Run one trace three times."""
    trace = draw(seed, load)
    return Trial(
        seed=seed,
        load=load,
        rigid=run_rigid(trace),
        fair=run_policy(trace, PolicyConfig(mode="fair")),
        throughput=run_policy(trace, PolicyConfig(mode="throughput")),
    )


def run_trials(seeds: Sequence[int] = SEEDS, *, workers: int = 2) -> tuple[Trial, ...]:
    """Run the traces of all seeds at all loads, in so many processes."""
    cases = [(seed, load) for load in LOADS for seed in seeds]
    if workers <= 1:
        return tuple(try_out(*case) for case in cases)
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return tuple(pool.map(try_out, *zip(*cases, strict=True)))


def judge(trials: Sequence[Trial]) -> tuple[Row, ...]:
    """Give the rows of all goals, each at each load."""
    return tuple(
        row for load in LOADS for row in _judge_load(load, [each for each in trials if each.load == load])
    )


def _judge_load(load: Fraction, trials: Sequence[Trial]) -> tuple[Row, ...]:
    def row(name: str, saved: Callable[[Trial], float], bound: float) -> Row:
        return at_least(f"{name}, load {float(load):g} (%)", [saved(trial) for trial in trials], bound)

    return (
        row("fair: mean JCT below rigid FIFO", lambda each: _below(_mean, each.fair, each.rigid), 60),
        row("fair: makespan below rigid FIFO", lambda each: _below(_makespan, each.fair, each.rigid), 15),
        row("throughput: mean JCT below fair", lambda each: _below(_mean, each.throughput, each.fair), 7),
        row("throughput: p95 JCT below fair", lambda each: _below(_p95, each.throughput, each.fair), 0),
    )


def _below(measure: Callable[[Outcome], float], new: Outcome, old: Outcome) -> float:
    """Give by how many percent a measure fell, rounded to a hundredth."""
    return round(100 * (1 - measure(new) / measure(old)), 2)


def _mean(outcome: Outcome) -> float:
    return outcome.mean_jct_s


def _makespan(outcome: Outcome) -> float:
    return outcome.makespan_s


def _p95(outcome: Outcome) -> float:
    return outcome.p95_jct_s
