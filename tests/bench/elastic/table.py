"""Make the table of the README from the results of experiments: `python -m tests.bench.elastic.table DIR`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.bench.elastic.results import judged

CASES = {"case1": "20 jobs, one every 10 s", "case2": "6 jobs beside nginx"}
EDL = {
    "complete jobs at 550 s, worst run": "12",
    "pending jobs at 550 s (EDL's measure), worst run": "3",
    "most pending jobs (EDL's measure), worst run": "9",
    "mean wait, EDL's measure (s)": "47.2",
    "mean wait to complete gang (s)": "127",
    "p95 wait to complete gang (s)": "435",
    "utilisation, steady (%)": "86.4",
    "useful utilisation without background (%)": "78.4",
    "Jain index at 550 s, worst run": "0.437 (mean)",
    "spread of trainers at 550 s, worst run": "38",
    "mean nginx shortfall while growing (pods)": "73.4",
    "mean utilisation, time-weighted (%)": "83.7",
    "mean utilisation, of samples as EDL (%)": "83.4",
    "off-peak utilisation, mean of runs (%)": "79.2",
}
"""What EDL measured in 2017, from the raw logs of its repository (PaddlePaddle/edl)."""


def table(folder: Path) -> Iterator[str]:
    """Give the lines of the table, one case after the other."""
    yield "| what | EDL 2017 | mlstack | goal |"
    yield "|---|---|---|---|"
    for case, title in CASES.items():
        runs = len(list(folder.glob(f"{case}-[0-9]*.json")))
        if not runs:
            continue
        yield f"| **{title}**, {runs} runs | | | |"
        for row in judged(folder, case):
            met = "" if row.is_met else ", missed"
            yield f"| {row.name} | {EDL.get(row.name, '')} | {row.value:.4g} | {row.goal}{met} |"
    yield from _usage(folder)


def _usage(folder: Path) -> Iterator[str]:
    used = [
        json.loads(path.read_text())["circumstances"]["usage"]["controller"]
        for path in folder.glob("case*-[0-9]*.json")
    ]
    if used:
        yield f"| controller: processor time a run, most (s) | | {max(row['cpu_s'] for row in used):.4g} | |"
        yield f"| controller: memory, most (MiB) | | {max(row['peak_mib'] for row in used)} | at most 150 |"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in table(Path(sys.argv[1])))
