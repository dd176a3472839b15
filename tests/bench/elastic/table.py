"""Make the table of the README from results of experiments: `python -m tests.bench.elastic.table [DIR]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from mlstack.simulator.experiments import GoalResult
from tests.bench.elastic.results import judged, stored_figures

MEASURED = Path(__file__).parent / "measured"
"""The results that are kept: of each run a row a second, a drawing, and the figures."""

CASES = {"case1": "20 jobs", "case2": "6 jobs beside nginx"}
EDL = {
    "complete jobs at 550 s, worst run": "12",
    "mean wait, EDL's measure (s)": "47.2",
    "utilisation, steady (%)": "86.4",
    "Jain index at 550 s, worst run": "0.437 (mean)",
    "utilisation as EDL published it: of all samples (%)": "76.3",
    "nginx at 99 % of a raised target, slowest step and run (s)": "not in 90",
    "mean nginx shortfall while growing (pods)": "73.4",
    "mean utilisation, time-weighted (%)": "83.7",
    "off-peak utilisation, mean of runs (%)": "79.2",
}
"""What EDL measured in 2017, from the raw logs of its repository (PaddlePaddle/edl)."""


def table(folder: Path = MEASURED) -> Iterator[str]:
    """Give the lines of the table: what EDL measured too, without preemption, and with slow pods."""
    yield "| what | EDL 2017 | mlstack | alone | slow pods | goal |"
    yield "|---|---|---|---|---|---|"
    for case, title in CASES.items():
        runs = [_rows(folder, case, stem) for stem in (case, f"{case}-no-preemption", _slow(case))]
        for name in EDL:
            if row := runs[0].get(name):
                values = [
                    _value(row),
                    *(f"{rows[name].value:.3g}" if name in rows else "-" for rows in runs[1:]),
                ]
                yield f"| {title}: {name} | {EDL[name]} | {' | '.join(values)} | {row.goal} |"


def _slow(case: str) -> str:
    return f"{case}-slow-simulated"


def _rows(folder: Path, case: str, stem: str) -> dict[str, GoalResult]:
    """Give the rows of one kind of run by name, those of the goals and what EDL published beside them."""
    figures = stored_figures(folder, stem)
    if not figures:
        return {}
    rows = {row.name: row for row in judged(folder, case, stem=stem)}
    if case == "case1":
        values = tuple(run.values["utilisation of samples"] for run in figures)
        name = next(name for name in EDL if name.startswith("utilisation as EDL published"))
        rows[name] = GoalResult(name=name, value=fmean(values), goal="-", is_met=True, per_seed=values)
    return rows


def _value(row: GoalResult) -> str:
    return f"{row.value:.3g}" + ("" if row.is_met else ", missed")


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in table(*map(Path, sys.argv[1:])))
