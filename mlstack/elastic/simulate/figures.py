"""The figures of one simulated run of a case, small enough to be handed between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlstack.elastic import measures, service_measures
from mlstack.elastic.measures import Samples, over_time, window
from mlstack.elastic.simulate.cases import SERVICE
from mlstack.elastic.simulate.run import Outcome

WINDOW_S = 550
STEADY_S = 400
"""From here on nothing is submitted in case 1."""

OFF_PEAK_S = (300, 370)
CALM_S = 120


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What was measured of one run.

    Attributes:
        seed: of the run.
        values: by name.
        violations: breaches of the laws of plans and samples.
    """

    seed: int
    values: Mapping[str, float]
    violations: tuple[str, ...]


def figures(outcome: Outcome) -> Figures:
    """Measure a run."""
    samples = outcome.samples
    values = {
        **_of_jobs(samples),
        **_of_room(samples),
        **_of_changes(outcome),
        **(_of_service(outcome) if outcome.scenario.services else {}),
        "violations": float(len(outcome.violations)),
    }
    return Figures(seed=outcome.seed, values=values, violations=outcome.violations)


def _of_jobs(samples: Samples) -> dict[str, float]:
    seen = window(samples, 0, WINDOW_S)
    last = seen[-1]
    first, gang = measures.waits_for_trainer(seen), measures.waits_for_gang(seen)
    return {
        "complete": measures.complete(last),
        "pending": measures.pending(last),
        "pending max": max(map(measures.pending, seen)),
        "wait": first.mean,
        "gang wait": gang.mean,
        "gang wait p95": gang.percentile(95),
        "trainers": sum(measures.trainers(last)),
        "jain": measures.jain(measures.trainers(last)),
        "spread": measures.spread(measures.trainers(last)),
        "below minimum": len(measures.below_minimum(samples)),
    }


def _of_room(samples: Samples) -> dict[str, float]:
    seen = window(samples, 0, WINDOW_S)
    steady = window(samples, STEADY_S, WINDOW_S)
    return {
        "utilisation": over_time(seen, measures.utilisation),
        "utilisation of samples": measures.mean(map(measures.utilisation, seen)),
        "steady": over_time(steady, measures.utilisation),
        "final": measures.utilisation(seen[-1]),
        "useful": over_time(steady, measures.useful),
        "off-peak": over_time(window(samples, *OFF_PEAK_S), measures.utilisation),
        "time at 88 %": measures.time_at(seen, measures.utilisation, 88),
    }


def _of_changes(outcome: Outcome) -> dict[str, float]:
    samples, scenario = outcome.samples, outcome.scenario
    submitted_s = max((job.at_ms for job in scenario.jobs), default=0) / 1000 - scenario.begin_ms / 1000
    settled_s = submitted_s + 90
    return {
        "deletions": samples[-1].deleted,
        "settled": max(0.0, measures.last_change_s(samples) - submitted_s),
        "operations after": measures.operations(window(samples, settled_s, settled_s + CALM_S)),
    }


def _of_service(outcome: Outcome) -> dict[str, float]:
    samples, scenario = outcome.samples, outcome.scenario
    first_s = min((job.at_ms for job in scenario.jobs), default=0) / 1000 - scenario.begin_ms / 1000
    plateaus = service_measures.plateaus(window(samples, first_s + 45), SERVICE)
    ends = [measures.trainers(plateau.samples[-1]) for plateau in plateaus]
    return {
        "served": max(service_measures.served_after_s(samples, SERVICE), default=0.0),
        "shortfall": service_measures.shortfall(samples, SERVICE),
        "restored": max(service_measures.restored_after_s(samples, SERVICE), default=0.0),
        "complete later": min(map(measures.complete, window(samples, first_s + 45)), default=0),
        "jain of plateaus": min(map(measures.jain, ends), default=1.0),
        **{
            f"serving at end of step {index}": _serving(plateau.samples)
            for index, plateau in enumerate(plateaus)
        },
    }


def _serving(samples: Samples) -> float:
    found = service_measures.service_of(samples[-1], SERVICE)
    return float(found.running) if found else 0.0
