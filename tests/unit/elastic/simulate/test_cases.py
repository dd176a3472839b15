"""The two published cases meet their goals; one seed here, ten by `mlstack elastic simulate`."""

import pytest

from mlstack.elastic.simulate import casegoals
from mlstack.elastic.simulate.many import Trial, run_trial


@pytest.mark.slow
@pytest.mark.parametrize("case", ["case1", "case2"])
def test_a_case_meets_its_goals(case: str) -> None:
    found = run_trial(Trial(case=case, policy="fair", seed=5))
    assert found.violations == ()
    rows = casegoals.judge(case, [found])
    assert [f"{row.name}: {row.value:.4g}, not {row.goal}" for row in rows if not row.is_met] == []


def test_the_goals_are_missed_without_a_controller() -> None:
    found = run_trial(Trial(case="case1", policy="off", seed=0))
    missed = {row.name for row in casegoals.judge("case1", [found]) if not row.is_met}
    assert {"complete jobs at 550 s, worst run", "mean wait, EDL's measure (s)"} <= missed
