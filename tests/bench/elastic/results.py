"""Results of experiments as files: written by runs, read again to judge and to make tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from mlstack.simulator import report
from mlstack.simulator.experiments import Figures, GoalResult, compare_runs, figures
from mlstack.simulator.run import SimulationOutcome


def write_result(base: Path, outcome: SimulationOutcome, circumstances: Mapping[str, object]) -> None:
    """Write one run: `<base>.csv` (a row a second), `<base>.svg` (drawn), `<base>.json` (figures).

    `circumstances` tell how far it can be trusted.
    """
    base.with_suffix(".csv").write_text(report.to_csv(outcome.samples))
    base.with_suffix(".svg").write_text(report.draw(outcome.samples, base.name))
    write_figures(base, outcome, circumstances)


def write_figures(base: Path, outcome: SimulationOutcome, circumstances: Mapping[str, object]) -> None:
    """Write the figures of one run alone, as `<base>.json`."""
    measured = figures(outcome)
    base.with_suffix(".json").write_text(
        json.dumps({"figures": asdict(measured), "circumstances": circumstances}, indent=1) + "\n"
    )


def judged(folder: Path, case: str, *, stem: str = "") -> tuple[GoalResult, ...]:
    """Judge all runs of a case that a folder has, in files called `stem`, or as the case, and a number."""
    return compare_runs(case, stored_figures(folder, stem or case))


def stored_figures(folder: Path, stem: str) -> list[Figures]:
    """Read the figures of all runs whose files are called so before the number."""
    return [_figures(path) for path in sorted(folder.glob(f"{stem}-[0-9]*.json"))]


def _figures(path: Path) -> Figures:
    stored = json.loads(path.read_text())["figures"]
    return Figures(seed=stored["seed"], values=stored["values"], violations=tuple(stored["violations"]))
