"""Several controllers in one cluster: one leads, whatever becomes of it, and nothing is done twice."""

from dataclasses import replace

import pytest

from mlstack.elastic.controller.leader import LeaderElector
from mlstack.simulator import measures
from mlstack.simulator.run import SimulationOutcome, simulate
from mlstack.simulator.scenario import Faults, Scenario, ScenarioEvent
from tests.support.simulated import small_scenario


def scenario(*events: ScenarioEvent, controllers: int = 2) -> Scenario:
    """Give the small cluster with five jobs and so many controllers."""
    return small_scenario(*events, jobs=5, controllers=controllers)


def facts(outcome: SimulationOutcome) -> tuple[object, ...]:
    """Give what must not depend on who leads: who has how many trainers, and what it took."""
    last = outcome.samples[-1]
    return measures.complete(last), sorted(measures.trainers(last)), last.created, last.deleted


def test_of_two_that_start_at_once_one_works() -> None:
    alone, both = simulate(scenario(controllers=1)), simulate(scenario())
    assert facts(both) == facts(alone)
    assert both.violations == ()
    assert both.passes == pytest.approx(alone.passes, abs=3)


@pytest.mark.parametrize(
    "event",
    [
        ScenarioEvent(at_ms=20_000, what="kill-controller", seconds=30, every_ms=40_000),
        ScenarioEvent(at_ms=20_000, what="kill-controller", seconds=3, every_ms=20_000),
        ScenarioEvent(at_ms=27_000, what="stop-controller", seconds=5, every_ms=20_000),
        ScenarioEvent(at_ms=24_000, what="freeze-controller", seconds=40, every_ms=50_000),
        ScenarioEvent(at_ms=24_000, what="isolate-controller", seconds=30, every_ms=50_000),
        ScenarioEvent(at_ms=24_000, what="break-watch", seconds=20, every_ms=50_000),
    ],
    ids=["killed for long", "killed often", "stopped", "frozen", "isolated", "deaf"],
)
@pytest.mark.parametrize(
    "faults",
    [Faults(), pytest.param(Faults(conflict_pct=5, error_pct=5), marks=pytest.mark.slow)],
    ids=["calm", "refused"],
)
def test_whatever_becomes_of_the_leader_jobs_end_up_whole(event: ScenarioEvent, faults: Faults) -> None:
    outcome = simulate(replace(scenario(event), faults=faults))
    last = outcome.samples[-1]
    assert outcome.violations == ()
    assert measures.complete(last) == 5
    assert measures.spread(measures.trainers(last)) <= 1


def test_a_leader_that_wakes_up_late_writes_nothing_more() -> None:
    frozen = ScenarioEvent(at_ms=24_500, what="freeze-controller", seconds=40)
    outcome = simulate(scenario(frozen))
    assert outcome.violations == ()
    assert measures.waits_for_gang(outcome.samples).percentile(100) <= 30


def test_a_lone_controller_goes_on_when_the_server_answers_again() -> None:
    outcome = simulate(
        scenario(ScenarioEvent(at_ms=24_000, what="isolate-controller", seconds=30), controllers=1)
    )
    assert outcome.violations == ()
    assert measures.complete(outcome.samples[-1]) == 5


def test_writing_without_the_lease_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaderElector, "check", lambda self: None)
    outcome = simulate(scenario(ScenarioEvent(at_ms=24_500, what="freeze-controller", seconds=40)))
    assert any("writes while controller-1 leads" in text for text in outcome.violations)


def test_a_lone_controller_needs_no_lease() -> None:
    assert "replace" not in simulate(scenario(controllers=1)).calls
