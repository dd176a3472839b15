"""Reasons end with what a crashed container has written, if that can be read."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from mlstack.errors import ClusterError, ForbiddenError, TransientError
from mlstack.kube.client import ObjectRef
from mlstack.objects import masking
from mlstack.objects.kube_object import KubeObject
from mlstack.readiness import evaluate
from mlstack.readiness.evaluate import Logs, StatusEvaluator, hidden
from mlstack.readiness.relatives import Relatives
from tests.support.deploying import deployment, secret
from tests.support.watched import Watched

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "main", "image": "i"}]},
}
CRASH = {"exitCode": 1, "reason": "Error", "startedAt": None, "finishedAt": None}


def ended(*, previous: bool = True, message: str = "") -> dict[str, Any]:
    """Build the status of a pod whose container crashed: and is started again, or not."""
    end = {"terminated": {**CRASH, "message": message}}
    loop = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": end}
    state = loop if previous else {"state": end}
    container = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 3, **state}
    return {"phase": "Running" if previous else "Failed", "containerStatuses": [container]}


class Crashing:
    """A cluster with a pod that crashes."""

    def __init__(self) -> None:
        self.watched = Watched(gpus=None)
        self.cluster = self.watched.cluster
        self.asked: list[tuple[str, bool]] = []
        self.error: ClusterError | None = None
        self.answers = threading.Event()
        self.answers.set()
        read = self.cluster.logs

        def reading(ref: ObjectRef, container: str, *, previous: bool = False, **how: Any) -> str:
            self.asked.append((f"{ref.name}/{container}", previous))
            self.answers.wait(10)
            if self.error is not None:
                raise self.error
            return read(ref, container, previous=previous, **how)

        self.cluster.logs = reading  # type: ignore[method-assign]

    def pod(self, name: str = "p", text: str = "", **how: Any) -> KubeObject:
        """Make a pod that crashes, and has written a text."""
        self.cluster.written["ml", name, "main"] = text
        wanted = self.watched.apply({**POD, "metadata": {"name": name}})
        self.cluster.patch(ObjectRef.of(wanted.data), {"status": ended(**how)}, subresource="status")
        return wanted

    def judge(self, *secrets: str) -> StatusEvaluator:
        """Give a judge who reads logs."""
        made = Logs(self.cluster, secrets)
        return StatusEvaluator(self.cluster, Relatives(), wait_for_load_balancer=False, logs=made)

    def reason(self, wanted: KubeObject, judge: StatusEvaluator | None = None) -> str:
        """Give why an object does not work."""
        live = self.cluster.get(ObjectRef.of(wanted.data))
        seen = (judge or self.judge()).judge(wanted, live, now_s=self.watched.clock.now_s())
        return seen.readiness.reason


@pytest.fixture
def crashing() -> Crashing:
    return Crashing()


@pytest.mark.parametrize("previous", [True, False], ids=["started again", "ended"])
def test_a_reason_ends_with_the_last_five_lines(crashing: Crashing, previous: bool) -> None:
    wanted = crashing.pod(text="\n".join(f"line {number}" for number in range(9)), previous=previous)
    said = "exit code 1: line 4 | line 5 | line 6 | line 7 | line 8"
    how = "CrashLoopBackOff: " if previous else ""
    assert crashing.reason(wanted) == f"container main: {how}{said}"
    assert crashing.asked == [("p/main", previous)]


def test_the_message_that_a_container_left_is_enough(crashing: Crashing) -> None:
    wanted = crashing.pod(text="noise", message="no such model")
    assert crashing.reason(wanted) == "container main: CrashLoopBackOff: exit code 1: no such model"
    assert crashing.asked == []


def test_secrets_and_what_terminals_obey_are_not_shown(crashing: Crashing) -> None:
    wanted = crashing.pod(text=f"\x1b[31mhunter2\x1b[0m\x07 or x\r\n\n{'long ' * 100}")
    said = crashing.reason(wanted, crashing.judge("hunter2")).partition("exit code 1: ")[2]
    assert said.startswith("******** or x | long long")
    assert said.endswith("long …")
    assert len(said) < 250


def test_what_secrets_hold_is_masked_however_it_stands_there() -> None:
    one = KubeObject(data=secret(token="hunter2", file="first line\nsecond line", short="abc"))
    found = hidden([one, KubeObject(data=deployment())], ["of a parameter"])
    said = "hunter2, aHVudGVyMg==, first line, second line, of a parameter, abc"
    assert masking.mask_text(said, found) == "********, ********, ********, ********, ********, abc"
    encoded = {"apiVersion": "v1", "kind": "Secret", "data": {"token": "aHVudGVyMg==", "odd": "%"}}
    assert "hunter2" in hidden([KubeObject(data=encoded)], ())


def test_a_log_is_read_once_however_often_it_crashes(crashing: Crashing) -> None:
    wanted, judge = crashing.pod(text="bye"), crashing.judge()
    assert [crashing.reason(wanted, judge).endswith(": bye") for _ in range(3)] == [True] * 3
    crashing.cluster.written["ml", "p", "main"] = "12:00:01 bye"
    assert crashing.reason(wanted, judge).endswith(": bye")
    assert len(crashing.asked) == 1


def test_who_may_not_read_logs_is_told_nothing_of_it(crashing: Crashing) -> None:
    crashing.error = ForbiddenError("`ada` may not get pods/log")
    judge = crashing.judge()
    for name in ("p", "q"):
        reason = crashing.reason(crashing.pod(name), judge)
        assert reason == "container main: CrashLoopBackOff: exit code 1"
    assert len(crashing.asked) == 1
    assert judge.notes == []


def test_a_node_that_is_away_takes_nothing_from_the_reason(crashing: Crashing) -> None:
    crashing.error = TransientError("`Pod ml/p`: dial tcp: network is unreachable")
    assert crashing.reason(crashing.pod()) == "container main: CrashLoopBackOff: exit code 1"


def test_a_silent_node_is_waited_for_once(crashing: Crashing, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float | None] = []
    wait = threading.Event.wait

    def noted(event: threading.Event, timeout: float | None = None) -> bool:
        if timeout == evaluate.PATIENCE_S:
            waits.append(timeout)
            return wait(event, 0.01)
        return wait(event, timeout)

    monkeypatch.setattr(threading.Event, "wait", noted)
    crashing.answers.clear()
    judge, wanted = crashing.judge(), [crashing.pod(name, text="bye") for name in ("p", "q", "r")]
    assert [crashing.reason(one, judge).endswith("exit code 1") for one in wanted] == [True] * 3
    assert len(waits) == 1
    crashing.answers.set()
    readers = [one for one in threading.enumerate() if one.name == "mlstack-logs"]
    for reader in readers:
        reader.join(10)
    assert [crashing.reason(one, judge).endswith(": bye") for one in wanted] == [True] * 3


def test_without_a_reader_nothing_is_asked(crashing: Crashing) -> None:
    judge = StatusEvaluator(crashing.cluster, Relatives(), wait_for_load_balancer=False)
    assert crashing.reason(crashing.pod(text="bye"), judge).endswith("exit code 1")
    assert crashing.asked == []
