"""A hundred jobs on five hundred nodes: the laws hold, and everybody has a whole gang soon."""

import pytest

from mlstack.simulator import measures, scenario
from mlstack.simulator.run import simulate
from mlstack.simulator.scenario import Scenario


def large(*, jobs: int = 100, nodes: int = 500, every: float = 0.5, seconds: int = 200) -> Scenario:
    """Give a cluster of the calibrated mix and jobs that come quickly one after the other."""
    sizes = {12: nodes * 52 // 100, 24: nodes * 45 // 100, 20: nodes * 3 // 100}
    data = {
        "seconds": seconds,
        "nodes": [
            {
                "name": f"c{cores}",
                "count": count,
                "cpu": cores,
                "memory": f"{4 * cores}Gi",
                "background": {"cpu": "380m"},
            }
            for cores, count in sizes.items()
        ],
        "jobs": [
            {
                "name": "j",
                "count": jobs,
                "every": every,
                "at": 5,
                "min": 2,
                "max": 60,
                "trainer": {"cpu": 2, "memory": "4Gi"},
                "pservers": {"count": 4, "cpu": 2},
                "master": {"cpu": 1},
            }
        ],
        "services": [{"name": "web", "replicas": 300, "cpu": 3}],
        "events": [{"at": 150, "what": "scale", "name": "web", "count": 600}],
        "scheduler": {"bindRate": 300},
    }
    return scenario.read(data, where="large.yaml")


@pytest.mark.slow
def test_a_hundred_jobs_on_five_hundred_nodes_are_whole_and_break_no_law() -> None:
    outcome = simulate(large())
    last = outcome.samples[-1]
    assert outcome.violations == ()
    assert measures.complete(last) == 100
    assert last.services[0].running == 600
    assert measures.waits_for_gang(outcome.samples).percentile(95) <= 25
