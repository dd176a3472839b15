"""Metrics and probes of the controller."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from mlstack.elastic.health import Metrics
from mlstack.elastic.probes import HealthServer
from mlstack.elastic.room import jain
from tests.support.elastic import pod, training_job
from tests.support.stage import Stage


@dataclass
class Time:
    """A time that a test moves."""

    seconds: float = 100.0

    def __call__(self) -> float:
        return self.seconds


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_metrics_tell_of_jobs_and_writes() -> None:
    stage, metrics = Stage("n1"), Metrics(Time())
    stage.put(training_job(minimum=1, maximum=2, cpu="2"))
    stage.put(pod("huge", cpu="64", priority=7))

    metrics.passed(stage.step(), seconds=0.01)

    text = metrics.text().decode()
    for line in (
        'mlstack_elastic_job_desired{job="train",namespace="default"} 2.0',
        'mlstack_elastic_jobs{phase="Admitted"} 1.0',
        'mlstack_elastic_scale_operations_total{direction="up",reason="admitted"} 1.0',
        'mlstack_elastic_api_requests_total{code="ok",verb="create"}',
        'mlstack_elastic_foreign_pods_pending{priority="7"} 1.0',
        "mlstack_elastic_plan_seconds_count 1.0",
    ):
        assert line in text


def test_waits_are_told_once_they_are_over() -> None:
    stage, metrics = Stage("n1"), Metrics(Time())
    stage.put(training_job(minimum=1, maximum=2, cpu="2", pservers=1))

    for _ in range(8):
        metrics.passed(stage.step(seconds=3), seconds=0.01)
        stage.run_sets()
        stage.run_pods()

    text = metrics.text().decode()
    assert 'mlstack_elastic_wait_seconds_count{until="trainer"} 1.0' in text
    assert 'mlstack_elastic_wait_seconds_count{until="gang"} 1.0' in text
    assert 'mlstack_elastic_jobs{phase="Running"} 1.0' in text


def test_room_is_told_as_shares() -> None:
    stage, metrics = Stage("n1", cpu="8"), Metrics(Time())
    stage.put(pod("web", node="n1", cpu="2", phase="Running"))

    metrics.passed(stage.step(), seconds=0.01)

    assert 'mlstack_elastic_cluster_requested_ratio{resource="cpu"} 0.25' in metrics.text().decode()


@pytest.mark.parametrize(("counts", "index"), [([], 1.0), ([3, 3], 1.0), ([4, 0], 0.5)])
def test_jain_index(counts: list[int], index: float) -> None:
    assert jain(counts) == index


def test_probes_follow_the_loop() -> None:
    time = Time()
    metrics = Metrics(time)
    server = HealthServer(metrics, address="127.0.0.1", port=0)
    server.start()
    try:
        assert get(server.port, "/healthz") == (200, "ok\n")
        assert get(server.port, "/readyz") == (503, "not yet\n")
        metrics.looked(is_leading=True, is_synced=True)
        assert get(server.port, "/readyz") == (200, "ok\n")
        time.seconds += 61
        assert get(server.port, "/healthz") == (503, "not yet\n")
        assert "mlstack_elastic_leader 1.0" in get(server.port, "/metrics")[1]
        assert get(server.port, "/")[0] == 404
    finally:
        server.stop()
