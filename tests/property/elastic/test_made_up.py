"""Made-up clusters, jobs and misfortunes: in every moment every law holds, and in the end all is done.

Each number is a scenario of its own; the same number is always the same one.
"""

from __future__ import annotations

import pytest

from mlstack.simulator.run import simulate
from tests.support.endings import undone
from tests.support.scenarios import made_up

FEW = range(24)
MANY = range(1_140, 1_200)
POLICIES = ("fair", "throughput", "edl")


def judge(number: int, policy: str) -> None:
    outcome = simulate(made_up(number), policy, seed=number)
    assert outcome.violations == ()
    # EDL's rules have no gangs: what they admit may wait for ever.
    assert policy == "edl" or undone(outcome) == []


@pytest.mark.parametrize("number", FEW)
def test_a_made_up_scenario_breaks_no_law(number: int) -> None:
    judge(number, POLICIES[number % 3])


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("number", MANY)
def test_many_made_up_scenarios_break_no_law(number: int, policy: str) -> None:
    judge(number, policy)
