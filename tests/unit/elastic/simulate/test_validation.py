"""EDL's rules in the simulator come near to what EDL measured (about half a minute of CPU)."""

import pytest

from mlstack.simulator import experiments
from mlstack.simulator.experiments import run_trial


@pytest.mark.slow
@pytest.mark.parametrize(("case", "rows"), [("case1", 8), ("case2", 7)])
def test_every_figure_is_within_its_tolerance_of_edls(case: str, rows: int) -> None:
    made = experiments.trials(range(3), [case])
    found = experiments.judge_validation(made, [run_trial(trial) for trial in made])
    assert len(found) == rows
    assert [f"{row.name}: {row.value:.4g}, not {row.goal}" for row in found if not row.is_met] == []
