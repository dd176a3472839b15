"""Make the table of the README from results of experiments: `python -m tests.bench.elastic.table [DIR]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

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
    """Give the lines of the table: what EDL measured too."""
    yield "| what | EDL 2017 | mlstack | goal |"
    yield "|---|---|---|---|"
    for case, title in CASES.items():
        for row in judged(folder, case):
            if row.name in EDL:
                met = "" if row.is_met else ", missed"
                yield f"| {title}: {row.name} | {EDL[row.name]} | {row.value:.3g} | {row.goal}{met} |"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in table(*map(Path, sys.argv[1:])))
