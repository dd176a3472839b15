"""Make the table of the README from results of experiments: `python -m tests.bench.elastic.table [DIR]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from mlstack.elastic.simulate.goals import Row
from tests.bench.elastic.results import judged

MEASURED = Path(__file__).parent / "measured"
"""The results that are kept: of each run a row a second, a drawing, and the figures."""

CASES = {"case1": "20 jobs", "case2": "6 jobs beside nginx"}
EDL = {
    "complete jobs at 550 s, worst run": "12",
    "mean wait, EDL's measure (s)": "47.2",
    "utilisation, steady (%)": "86.4",
    "Jain index at 550 s, worst run": "0.437 (mean)",
    "nginx at 99 % of a raised target, slowest step and run (s)": "not in 90",
    "mean nginx shortfall while growing (pods)": "73.4",
    "mean utilisation, time-weighted (%)": "83.7",
    "off-peak utilisation, mean of runs (%)": "79.2",
}
"""What EDL measured in 2017, from the raw logs of its repository (PaddlePaddle/edl)."""


def table(folder: Path = MEASURED) -> Iterator[str]:
    """Give the lines of the table: what EDL measured too, and what becomes of it without preemption."""
    yield "| what | EDL 2017 | mlstack | alone | goal |"
    yield "|---|---|---|---|---|"
    for case, title in CASES.items():
        alone = {row.name: row for row in _alone(folder, case)}
        for row in judged(folder, case):
            if row.name in EDL:
                values = _value(row), _value(alone[row.name]) if alone else "-"
                yield f"| {title}: {row.name} | {EDL[row.name]} | {' | '.join(values)} | {row.goal} |"


def _alone(folder: Path, case: str) -> tuple[Row, ...]:
    kept = f"{case}-no-preemption"
    return judged(folder, case, kept=kept) if any(folder.glob(f"{kept}-[0-9]*.json")) else ()


def _value(row: Row) -> str:
    return f"{row.value:.3g}" + ("" if row.is_met else ", missed")


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in table(*map(Path, sys.argv[1:])))
