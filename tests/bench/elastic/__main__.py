"""Play EDL's experiments on a real control plane: `python -m tests.bench.elastic case1 --runs 3 --out DIR`.

With `--no-preemption` the scheduler pushes no trainer aside for nginx: the controller alone makes room. With
`--slow` pods start in 10 to 30 s and take a grace of 30 s, not in 2 to 5 s, and trainers 5 s.
With `--simulated` the same is done in the simulator, in a minute a run and with figures alone.

Each run leaves `CASE-N.csv` (one row a second), `CASE-N.svg` (drawn) and `CASE-N.json` (what was measured
and used) in the folder; at the end all runs of a case that are there are judged together, and the exit code
is 1 if a goal is missed.
What is kept stands in `measured/`; `python -m tests.bench.elastic.table` makes the README's table from it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path

from mlstack.simulator.measures import breaches_of_sample
from mlstack.simulator.run import SimulationOutcome, simulate
from mlstack.simulator.scenario import CASES, Scenario, published, with_preemption
from tests.bench.elastic.play import Played, play
from tests.bench.elastic.results import judged, write_figures, write_result
from tests.controlplane.recipes import obtain_all
from tests.support import isolation


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.elastic", description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--no-preemption", action="store_true", help="the controller alone makes room")
    parser.add_argument("--slow", action="store_true", help="pods take long to start and to end")
    parser.add_argument("--simulated", action="store_true", help="in the simulator, not on a control plane")
    parser.add_argument("--runs", type=int, default=3, help="how many more (default: 3)")
    parser.add_argument("--out", type=Path, default=Path("elastic-results"), help="folder of the results")
    asked = parser.parse_args()
    scenario, stem = published(asked.case), asked.case
    if asked.no_preemption:
        scenario, stem = with_preemption(scenario, is_preempting=False), f"{stem}-no-preemption"
    if asked.slow:
        scenario, stem = _with_slow_pods(scenario), f"{stem}-slow"
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.simulated:
        stem = f"{stem}-simulated"
        for _ in range(asked.runs):
            seed = _next(asked.out, stem)
            write_figures(asked.out / f"{stem}-{seed}", simulate(scenario, seed=seed), {})
    else:
        _play(scenario, stem, asked.runs, asked.out)
    rows = judged(asked.out, asked.case, stem=stem)
    print(json.dumps([asdict(row) for row in rows], indent=1))
    return 0 if all(row.is_met for row in rows) else 1


def _with_slow_pods(scenario: Scenario) -> Scenario:
    """Give a case with pods as they are where images are large and programs end slowly."""
    services = tuple(replace(service, grace_s=30) for service in scenario.services)
    return replace(scenario, services=services, grace_s=30, start_ms=(10_000, 30_000))


def _play(scenario: Scenario, stem: str, runs: int, out: Path) -> None:
    """Run a case on real control planes, one after the other."""
    programs = obtain_all(print)
    isolation.enter_network_namespace()
    for _ in range(runs):
        with tempfile.TemporaryDirectory(prefix="mlstack-experiment-") as folder:
            played = play(scenario, programs, Path(folder))
        outcome = SimulationOutcome(
            scenario=scenario,
            policy="fair",
            seed=_next(out, stem),
            samples=tuple(played.samples),
            violations=tuple(chain.from_iterable(map(breaches_of_sample, played.samples))),
            passes=0,
            calls={},
        )
        write_result(out / f"{stem}-{outcome.seed}", outcome, _circumstances(played))


def _next(out: Path, case: str) -> int:
    return 1 + max((int(path.stem.rpartition("-")[2]) for path in out.glob(f"{case}-[0-9]*.json")), default=0)


def _circumstances(played: Played) -> dict[str, object]:
    """Give what tells how far a run can be trusted: lateness and the use of the machine."""
    return {
        "latest sample, ms": max(played.late_ms),
        "latest happening, ms": max(played.off_ms),
        "usage": {name: asdict(usage) for name, usage in played.usage.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
