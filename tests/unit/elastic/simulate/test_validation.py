"""EDL's rules in the simulator come near to what EDL measured (about half a minute of CPU)."""

import pytest

from mlstack.elastic.simulate import validation
from mlstack.elastic.simulate.figures import Figures
from mlstack.elastic.simulate.goals import Row
from mlstack.elastic.simulate.many import Trial, run_trial

SEEDS = range(4)


@pytest.fixture(scope="module")
def found() -> dict[str, Row]:
    made: list[Trial] = validation.trials(SEEDS)
    figures: list[Figures] = [run_trial(trial) for trial in made]
    return {row.name: row for row in validation.judge(made, figures)}


def test_every_figure_is_within_its_tolerance_of_edls(found: dict[str, Row]) -> None:
    missed = [f"{row.name}: {row.value:.4g}, not {row.goal}" for row in found.values() if not row.is_met]
    assert missed == []


def test_every_figure_is_judged(found: dict[str, Row]) -> None:
    assert len(found) == len(validation.MEASURED)
