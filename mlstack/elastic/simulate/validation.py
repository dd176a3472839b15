"""Does the simulator do what EDL's cluster did? EDL's rules in the simulator beside EDL's measurements.

The measurements are means over ten runs, from EDL's raw logs of 2017. The mix of nodes was fitted to the runs
without elasticity, and how long attempts, retries and web pods take to all of them: see `cases.as_measured`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from mlstack.elastic.simulate.figures import Figures
from mlstack.elastic.simulate.goals import Row
from mlstack.elastic.simulate.many import Trial


@dataclass(frozen=True)
class Measured:
    """What EDL measured, and how near the simulator has to come.

    Attributes:
        case: name of the case.
        policy: `edl-v010`, or `off` for jobs that are not elastic.
        name: what was measured.
        figure: its name among the figures.
        value: what EDL measured.
        tolerance: largest difference.
    """

    case: str
    policy: str
    name: str
    figure: str
    value: float
    tolerance: float

    def judge(self, runs: Sequence[Figures]) -> Row:
        """Give the row of this measurement."""
        values = tuple(run.values[self.figure] for run in runs)
        value = fmean(values)
        return Row(
            name=f"{self.case} {'OFF' if self.policy == 'off' else 'ON'}: {self.name}",
            value=value,
            goal=f"{self.value:g} ± {self.tolerance:.3g}",
            is_met=abs(value - self.value) <= self.tolerance,
            per_seed=values,
        )


MEASURED = (
    Measured("case1", "off", "pending jobs at the end", "pending", 14, 0),
    Measured("case1", "off", "trainers at the end", "trainers", 347, 0.02 * 347),
    Measured("case1", "off", "utilisation at the end (%)", "final", 88.66, 1),
    Measured("case1", "edl-v010", "mean wait (s)", "wait", 47.2, 0.25 * 47.2),
    Measured("case1", "edl-v010", "utilisation at the end (%)", "final", 86.35, 2),
    Measured("case1", "edl-v010", "trainers at the end", "trainers", 253, 0.05 * 253),
    Measured("case1", "edl-v010", "Jain index at the end", "jain", 0.437, 0.06),
    Measured("case1", "edl-v010", "pending jobs at the end", "pending", 0.9, 1),
    Measured("case2", "off", "mean utilisation (%)", "utilisation", 62.9, 1),
    Measured("case2", "off", "off-peak utilisation (%)", "off-peak", 44.9, 1),
    Measured("case2", "edl-v010", "nginx shortfall while growing", "shortfall", 73.4, 0.15 * 73.4),
    Measured("case2", "edl-v010", "nginx at the end of 200", "serving at end of step 4", 187, 0.2 * 187),
    Measured("case2", "edl-v010", "nginx at the end of 300", "serving at end of step 5", 262, 0.2 * 262),
    Measured("case2", "edl-v010", "nginx at the end of 400", "serving at end of step 6", 332, 0.2 * 332),
    Measured("case2", "edl-v010", "mean utilisation (%)", "utilisation", 83.7, 4),
)


def trials(seeds: Sequence[int], cases: Sequence[str] = ("case1", "case2")) -> list[Trial]:
    """Give the runs that a validation takes; rigid jobs hardly differ between seeds, one will do."""
    return [
        Trial(case=case, policy=policy, seed=seed, is_as_measured=True)
        for case in cases
        for policy in ("off", "edl-v010")
        for seed in (seeds[:1] if policy == "off" else seeds)
    ]


def judge(made: Sequence[Trial], found: Sequence[Figures]) -> tuple[Row, ...]:
    """Give the rows of all measurements."""
    return tuple(
        row.judge(
            [
                figures
                for trial, figures in zip(made, found, strict=True)
                if (trial.case, trial.policy) == (row.case, row.policy)
            ]
        )
        for row in MEASURED
        if any(trial.case == row.case for trial in made)
    )
