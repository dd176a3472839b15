"""Metrics and probes of the controller; every value is worked out by hand."""

from __future__ import annotations

import re
import socket
from collections.abc import Container
from dataclasses import dataclass
from typing import Any
from unittest.mock import Mock
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from mlstack.elastic import reconciler
from mlstack.elastic.metrics import HealthServer, Metrics
from mlstack.elastic.reconciler import Reconciler
from mlstack.elastic.snapshot import PolicyConfig, ScalePlan, Snapshot
from mlstack.errors import ConflictError, ForbiddenError, UnreachableError
from mlstack.kube.client import ClientWrapper, ObjectRef
from tests.support.elastic import pod, training_job
from tests.support.stage import JOBS, Stage

LINE = re.compile(r"mlstack_elastic_(?P<name>\w+)(\{(?P<labels>.*)\})? (?P<value>\S+)")


@dataclass
class Time:
    """A time that a test moves."""

    seconds: float = 100.0

    def __call__(self) -> float:
        return self.seconds


class Unwilling(ClientWrapper):
    """A cluster on which deletions go as a test says."""

    error: Exception | None = None
    is_late = False

    def delete(self, ref: ObjectRef, **options: Any) -> Any:
        if self.is_late:
            super().delete(ref, propagation="Background", grace_period_s=0)
        if self.error is not None:
            raise self.error
        return super().delete(ref, **options)


def values(metrics: Metrics, name: str) -> dict[str, float]:
    """Give the values of a metric by the values of its labels, in the order of the labels' names."""
    lines = filter(None, map(LINE.fullmatch, metrics.text().decode().splitlines()))
    return {
        " ".join(re.findall(r'"([^"]*)"', line["labels"] or "")): float(line["value"])
        for line in lines
        if line["name"] == name
    }


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def metrics_of(stage: Stage, **options: Any) -> Metrics:
    """Give the metrics after one more pass."""
    metrics = Metrics(Time())
    metrics.observe_pass(stage.step(**options), seconds=0.01)
    return metrics


@pytest.fixture
def crowded() -> Stage:
    """A cluster whose four trainers fill it, and a service that has to have half of it; one pass is due."""
    stage = Stage("n1")
    stage.put(training_job("my-trainer-x", minimum=1, maximum=4, cpu="2"))
    stage.settle()
    stage.put(pod("web", cpu="4", priority=1000))
    return stage


def test_trainers_of_a_job_are_told() -> None:
    stage = Stage("n1")
    stage.put(training_job("elastic", minimum=1, maximum=4, cpu="2"))
    stage.put(training_job("rigid", minimum=1, maximum=1, cpu="2"))
    stage.put(training_job("huge", minimum=9, maximum=9, cpu="2"))
    stage.settle()
    stage.memory.patch(
        ObjectRef("v1", "Pod", "default", "elastic-trainer-0"),
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
        subresource="status",
    )

    metrics = metrics_of(stage)

    # 8 cores: 3 trainers of `elastic` (two of the three beyond its minimum), 1 of `rigid`.
    jobs = ("elastic default", "rigid default", "huge default")
    names = ("desired", "bound", "ready", "min", "max", "fulfilment")
    assert {name: [values(metrics, f"job_{name}")[job] for job in jobs] for name in names} == {
        "desired": [3, 1, 0],
        "bound": [3, 1, 0],
        "ready": [2, 1, 0],
        "min": [1, 1, 9],
        "max": [4, 1, 9],
        "fulfilment": [pytest.approx(2 / 3), 1, 0],
    }
    assert values(metrics, "jain_index") == {"": 0.8}  # (3 + 1)² / (2 · (9 + 1))


def test_phases_and_changes_are_told() -> None:
    stage, metrics = Stage("n1"), Metrics(Time())
    stage.put(training_job(minimum=1, maximum=2, cpu="2"))
    stage.put(pod("big", cpu="64", priority=7))
    stage.put(pod("bigger", cpu="65", priority=7))

    for _ in range(2):
        metrics.observe_pass(stage.step(), seconds=0.01)

    assert values(metrics, "jobs") == {"Admitted": 1}
    assert values(metrics, "scale_operations_total") == {"up admitted": 1}
    assert values(metrics, "foreign_pods_pending") == {"7": 2}


def test_a_gang_that_is_given_up_counts_as_a_change_of_its_trainers() -> None:
    stage, metrics = Stage("n1"), Metrics(Time())
    stage.put(training_job(minimum=1, maximum=1, pservers=1))
    stage.step()
    stage.run_pods()
    stage.step()

    metrics.observe_pass(stage.step(seconds=91), seconds=0.01)  # no pod of its parameter servers ever came

    assert values(metrics, "scale_operations_total") == {"down stuck": 1}
    assert values(metrics, "job_desired") == {"train default": 0}


def test_pending_jobs_are_counted_in_both_ways() -> None:
    stage = Stage("n1", "n2")
    stage.put(training_job("whole", minimum=1, maximum=1))
    stage.settle()
    stage.put(training_job("huge", minimum=99, maximum=99))
    stage.put(training_job("bound", minimum=1, maximum=1))
    stage.step()
    stage.memory.patch(
        ObjectRef("v1", "Pod", "default", "bound-trainer-0"), {"spec": {"nodeName": "n1"}}
    )  # its container is not made yet

    assert values(metrics_of(stage), "pending_jobs") == {"": 2}
    assert values(metrics_of(stage), "incomplete_jobs") == {"": 2}

    stage.put(training_job("alone", minimum=1, maximum=1, pservers=1))
    stage.step()
    stage.run_pods()  # but no pod of its parameter servers is there

    assert values(metrics_of(stage), "pending_jobs") == {"": 1}
    assert values(metrics_of(stage), "incomplete_jobs") == {"": 2}

    stage.run_sets()
    stage.run_pods()

    assert values(metrics_of(stage), "incomplete_jobs") == {"": 1}


def test_a_job_with_fewer_trainers_than_its_minimum_is_incomplete() -> None:
    stage = Stage("n1")
    stage.put(training_job(minimum=2, maximum=2))
    stage.settle()
    assert values(metrics_of(stage), "incomplete_jobs") == {"": 0}
    stage.delete("Pod", "train-trainer-0")

    metrics = metrics_of(stage)

    assert (values(metrics, "incomplete_jobs"), values(metrics, "pending_jobs")) == ({"": 1}, {"": 0})


def test_a_job_that_is_suspended_or_done_is_not_pending() -> None:
    stage = Stage("n1")
    stage.put(training_job("done", minimum=2, maximum=2))
    stage.settle()
    stage.end("done-trainer-0", phase="Succeeded")
    stage.put(training_job("idle", suspend=True))

    metrics = metrics_of(stage)

    assert values(metrics, "jobs") == {"Completing": 1, "Suspended": 1}
    assert values(metrics, "incomplete_jobs") == {"": 0}


@pytest.mark.parametrize(
    ("is_dry", "error", "is_late", "counted"),
    [
        (False, None, False, 2),
        (True, None, False, 0),
        (False, ForbiddenError("no"), False, 0),
        (False, None, True, 0),
    ],
    ids=["deleted", "dry run", "refused", "somebody else was faster"],
)
def test_deletions_that_the_cluster_took_are_counted(
    crowded: Stage, is_dry: bool, error: Exception | None, is_late: bool, counted: int
) -> None:
    unwilling = Unwilling(crowded.memory)
    unwilling.error, unwilling.is_late = error, is_late
    crowded.reconciler = Reconciler(unwilling, crowded.cache, is_dry=is_dry)

    report = crowded.step()
    metrics = Metrics(Time())
    metrics.observe_pass(report, seconds=0.01)

    assert sum(action.verb == "delete" for action in report.actions) == 2
    assert values(metrics, "trainer_deletions_total") == {"": counted}
    assert values(metrics, "scale_operations_total") == ({} if is_dry else {"down yield": 1})


def test_deletions_of_a_pass_that_was_cut_short_are_counted_later(crowded: Stage) -> None:
    class Cut(ClientWrapper):
        left = 1

        def delete(self, ref: ObjectRef, **options: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise UnreachableError("no answer")
            return super().delete(ref, **options)

    cut = Cut(crowded.memory)
    crowded.reconciler = Reconciler(cut, crowded.cache)
    with pytest.raises(UnreachableError):
        crowded.step()
    cut.left = 9

    assert values(metrics_of(crowded, seconds=5), "trainer_deletions_total") == {"": 2}


def test_parameter_servers_and_ended_trainers_are_no_deleted_trainers() -> None:
    stage, metrics = Stage("n1"), Metrics(Time())
    stage.put(training_job("my-trainer-x", minimum=2, maximum=2, pservers=1))
    stage.step()
    stage.run_pods()
    stage.run_sets()
    stage.refuse_pods()
    report = stage.step(seconds=21)  # its parameter server found no place, and is made again
    metrics.observe_pass(report, seconds=0.01)
    assert [str(action.ref) for action in report.taken if action.verb == "delete"] == [
        "Pod default/my-trainer-x-pserver-0"
    ]
    stage.settle()
    stage.end("my-trainer-x-trainer-0", phase="Failed", reason="Evicted")

    report = stage.step()
    metrics.observe_pass(report, seconds=0.01)

    assert [str(action.ref) for action in report.taken if action.verb == "delete"] == [
        "Pod default/my-trainer-x-trainer-0"
    ]
    assert values(metrics, "trainer_deletions_total") == {"": 0}


def test_requests_are_counted_by_verb_and_code() -> None:
    metrics = Metrics(Time())

    for status in (201, 201, 409, None):
        metrics.answered("create", status)

    assert values(metrics, "api_requests_total") == {"201 create": 2, "409 create": 1, "<error> create": 1}


def test_the_time_of_the_plan_is_not_that_of_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, time = Stage("n1"), Time()

    def decide(snapshot: Snapshot, config: PolicyConfig) -> ScalePlan:
        time.seconds += 0.25
        return ScalePlan(decisions={}, steps=3)

    monkeypatch.setattr(reconciler, "decide", decide)
    stage.restart(monotonic_s=time)
    metrics = Metrics(time)
    metrics.observe_pass(stage.step(), seconds=4)

    assert values(metrics, "plan_steps") == {"": 3}
    assert values(metrics, "plan_seconds_sum") == {"": 0.25}
    assert values(metrics, "pass_seconds_sum") == {"": 4}
    assert values(metrics, "pass_seconds_bucket")["2.5"] == 0
    assert values(metrics, "pass_seconds_bucket")["5.0"] == 1


@pytest.mark.parametrize("late", [(), range(1, 12, 2)], ids=["taken", "every second pass in conflict"])
def test_waits_are_told_once_they_are_over(late: Container[int]) -> None:
    stage, metrics = Stage("n1"), Metrics(Time())
    stage.put(training_job(minimum=1, maximum=2, cpu="2", pservers=1))
    for turn in range(12):
        stage.cluster.refuses = Mock(side_effect=ConflictError("late") if turn in late else None)
        metrics.observe_pass(stage.step(seconds=3), seconds=0.01)
        stage.run_sets()
        stage.run_pods()

    assert values(metrics, "wait_seconds_count") == {"trainer": 1, "gang": 1}
    assert values(metrics, "jobs") == {"Running": 1}


def test_room_is_told_as_shares() -> None:
    stage = Stage("n1", "n2", cpu="8")
    stage.put(pod("web", node="n1", cpu="7", phase="Running"))
    stage.put(pod("db", node="n2", cpu="4", phase="Running"))
    stage.put(training_job(minimum=1, maximum=9, cpu="2"))

    metrics = metrics_of(stage)

    # Of 16 cores 11 are taken; of the 5 that are left 1 is too small for a trainer.
    assert values(metrics, "cluster_allocatable")["cpu"] == 16_000
    assert shares(metrics) == [11 / 16, 1 / 16, 4 / 16]
    stage.delete("TrainingJob", "train", JOBS)
    stage.settle()
    assert shares(metrics_of(stage)) == [11 / 16, 5 / 16, 0], "room that no job wants is stranded as a whole"
    for name in ("n1", "n2"):
        stage.delete("Node", name)
    assert values(metrics_of(stage), "cluster_requested_ratio") == {}


def shares(metrics: Metrics) -> list[float]:
    names = ("cluster_requested_ratio", "stranded_ratio", "cluster_placeable_ratio")
    return [values(metrics, name)["cpu"] for name in names]


def test_the_age_is_that_of_the_last_pass() -> None:
    stage, time = Stage("n1"), Time()
    metrics = Metrics(time)
    assert values(metrics, "snapshot_age_seconds") == {}
    metrics.observe_pass(stage.step(), seconds=0.01)
    time.seconds += 7

    assert values(metrics, "snapshot_age_seconds") == {"": 7}


def test_only_a_leader_tells_of_jobs(crowded: Stage) -> None:
    metrics = Metrics(Time())
    metrics.observe_loop(is_leading=True, is_synced=True)
    metrics.observe_pass(crowded.step(), seconds=0.01)
    assert values(metrics, "job_desired") == {"my-trainer-x default": 2}

    metrics.observe_loop(is_leading=False, is_synced=True)

    of_leader = ("job_desired", "jobs", "pending_jobs", "jain_index", "cluster_requested_ratio", "plan_steps")
    assert [values(metrics, name) for name in (*of_leader, "snapshot_age_seconds")] == [{}] * 7
    assert values(metrics, "leader") == {"": 0}
    assert values(metrics, "trainer_deletions_total") == {"": 2}, "counters go on"

    metrics.observe_loop(is_leading=True, is_synced=True)
    assert values(metrics, "job_desired") == {}, "what it knew before is out of date"


@pytest.mark.slow
def test_probes_follow_the_loop() -> None:
    time = Time()
    metrics = Metrics(time)
    server = HealthServer(metrics, address="127.0.0.1", port=0)
    server.start()
    try:
        assert get(server.port, "/healthz") == (200, "ok\n")
        assert get(server.port, "/readyz") == (503, "not yet\n")
        metrics.observe_loop(is_leading=True, is_synced=True)
        assert get(server.port, "/readyz") == (200, "ok\n")
        time.seconds += 61
        assert get(server.port, "/healthz") == (503, "not yet\n")
        assert "mlstack_elastic_leader 1.0" in get(server.port, "/metrics")[1]
        assert get(server.port, "/")[0] == 404
    finally:
        server.stop()


@pytest.mark.slow
@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize(
    ("address", "hosts"),
    [
        ("without IPv6", ["127.0.0.1"]),
        ("", ["127.0.0.1", "::1"]),
        ("::", ["127.0.0.1", "::1"]),
        ("::1", ["::1"]),
        ("0.0.0.0", ["127.0.0.1"]),
        ("localhost", ["localhost"]),
    ],
    ids=["switched off", "all", "all by IPv6", "IPv6", "IPv4", "by name"],
)
def test_probes_are_answered_by_either_family(
    monkeypatch: pytest.MonkeyPatch, address: str, hosts: list[str]
) -> None:
    if address == "without IPv6":
        monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
        address = ""
    server = HealthServer(Metrics(Time()), address=address, port=0)
    server.start()
    try:
        for host in hosts:
            with socket.create_connection((host, server.port), timeout=5) as connection:
                connection.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
                assert connection.makefile("rb").readline().startswith(b"HTTP/1.0 503")
    finally:
        server.stop()
