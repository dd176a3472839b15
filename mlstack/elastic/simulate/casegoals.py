"""The goals of the two cases: what has to be reached, and what the runs with all seeds came to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from mlstack.elastic.simulate.figures import Figures
from mlstack.elastic.simulate.goals import Row, at_least, at_most

Over = Callable[[Sequence[float]], float]


@dataclass(frozen=True)
class Goal:
    """A bound for one figure.

    Attributes:
        name: what is measured, with its unit.
        figure: its name among the figures.
        bound: what has to be reached, or not exceeded.
        over: how the seeds become one value.
        is_least: whether the bound is the least that will do, not the most.
    """

    name: str
    figure: str
    bound: float
    over: Over = fmean
    is_least: bool = False

    def judge(self, runs: Sequence[Figures]) -> Row:
        """Give the row of this goal."""
        values = [run.values[self.figure] for run in runs]
        judge = at_least if self.is_least else at_most
        return judge(self.name, values, self.bound, over=self.over)


def _least(name: str, figure: str, bound: float, over: Over = fmean) -> Goal:
    return Goal(name, figure, bound, over, is_least=True)


_LAWS = Goal("breaches of I1-I4 and I8 in plans and samples, worst run", "violations", 0, max)

_SERVICE = (
    Goal("nginx at 99 % of a raised target, slowest step and run (s)", "served", 25, max),
    Goal("mean nginx shortfall while growing (pods)", "shortfall", 16),
)

GOALS: dict[str, tuple[Goal, ...]] = {
    "case1": (
        _least("complete jobs at 550 s, worst run", "complete", 20, min),
        Goal("pending jobs at 550 s (EDL's measure), worst run", "pending", 0, max),
        Goal("most pending jobs (EDL's measure), worst run", "pending max", 2, max),
        Goal("mean wait, EDL's measure (s)", "wait", 12),
        Goal("mean wait to complete gang (s)", "gang wait", 15),
        Goal("p95 wait to complete gang (s)", "gang wait p95", 25),
        _least("utilisation, steady (%)", "steady", 90.0),
        _least("useful utilisation without background (%)", "useful", 87.5),
        _least("Jain index at 550 s, worst run", "jain", 0.98, min),
        Goal("spread of trainers at 550 s, worst run", "spread", 2, max),
        Goal("moments of a job below its minimum, worst run", "below minimum", 0, max),
        Goal("last change after the last submission, worst run (s)", "settled", 90, max),
        Goal("operations in the 120 s after that, worst run", "operations after", 0, max),
        Goal("trainer deletions, worst run", "deletions", 320, max),
        _LAWS,
    ),
    "case2": (
        *_SERVICE,
        _least("mean utilisation, time-weighted (%)", "utilisation", 86.0),
        _least("mean utilisation, of samples as EDL (%)", "utilisation of samples", 86.0),
        _least("off-peak utilisation, mean of runs (%)", "off-peak", 84.0),
        Goal("utilisation restored after an nginx drop, slowest step and run (s)", "restored", 15, max),
        _least("complete jobs from 45 s after the first submission, worst moment", "complete later", 6, min),
        _least("Jain index at each plateau, worst", "jain of plateaus", 0.98, min),
        Goal("moments of a job below its minimum, worst run", "below minimum", 0, max),
        _LAWS,
    ),
    "case2-roomy": (
        _least("mean utilisation, time-weighted (%)", "utilisation", 91.0),
        _least("share of time at 88 % or more (%)", "time at 88 %", 85),
        *_SERVICE,
        _LAWS,
    ),
}


def judge(case: str, runs: Sequence[Figures]) -> tuple[Row, ...]:
    """Give the rows of all goals of a case."""
    return tuple(goal.judge(runs) for goal in GOALS[case])
