"""Whatever happens to training jobs: plans keep the laws, gangs are whole or absent, and rest is rest."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlstack.elastic import facts
from mlstack.errors import UnreachableError
from tests.support.elastic_laws import check_plan
from tests.support.stage import JOBS, Stage
from tests.support.troubles import Troubles

Obj = dict[str, Any]

NAMES = Troubles(Stage(), Random(0)).names
PAUSES_S = (1, 5, 20)


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(st.sampled_from(NAMES), st.sampled_from(PAUSES_S), st.booleans()), min_size=15, max_size=25
    ),
    st.randoms(use_true_random=False),
)
def test_jobs_come_to_rest_whole_or_without_pods(events: list[tuple[str, int, bool]], random: Random) -> None:
    stage = Stage("n1", "n2", "n3")
    troubles = Troubles(stage, random)
    for name, pause_s, is_slow in [("submit", 1, False), *events]:
        troubles.happen(name)
        with suppress(UnreachableError):
            report = stage.step(seconds=pause_s)
            check_plan(report.snapshot, report.plan)
        if not is_slow:  # else the controller is ahead of the cluster
            stage.run_sets()
            stage.run_pods()

    troubles.end()
    come_to_rest(stage)

    assert stage.rest(seconds=15) == 0, "a cluster at rest is written to"
    for job in stage.all("TrainingJob", JOBS):
        check(stage, job)


def come_to_rest(stage: Stage) -> None:
    """Let back-offs and bars pass."""
    for _ in range(8):
        stage.clock.now_ms += 200_000
        stage.settle(most=60)


def check(stage: Stage, job: Obj) -> None:
    """Assert that a job at rest has what its status says."""
    name, trainers, status = job["metadata"]["name"], job["spec"]["trainer"], job["status"]
    live = [pod for pod in map(facts.parse_pod, stage.all("Pod")) if pod.job == name and pod.is_live]
    desired = status["trainer"]["desired"]
    if status["phase"] == "Running":
        assert sum(pod.role == "trainer" for pod in live) == desired
        assert trainers["min-instance"] <= desired <= trainers["max-instance"]
        assert all(pod.node for pod in live)
    elif status["phase"] != "Completing":
        assert status["phase"] in ("Pending", "Suspended", "Succeeded", "Failed"), status
        assert (live, desired) == ([], 0), status
