"""The status of a TrainingJob, made from its pods and what was decided for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import mlstack.elastic
from mlstack.app import files
from mlstack.clock import micro_time, timestamp
from mlstack.elastic.facts import PodFacts, parse_job, parse_pod
from mlstack.elastic.snapshot import Decision, Priority, Reason
from mlstack.elastic.state import JobContext, JobRecord, Lifecycle
from mlstack.elastic.status import build_status
from mlstack.readiness.evaluate import assess
from mlstack.readiness.rule import Facts
from tests.support.elastic import pod, time, training_job

NOW = 1_800_000_000_000
LATER = NOW + 60_000
WAITING = Reason(cause="waiting", text="no room for 2 cores")
GROWTH = Reason(cause="growth", text="free room on n1")
READY = [{"type": "Ready", "status": "True"}]


def member(name: str, role: str, **fields: Any) -> PodFacts:
    labels = {"mlstack.dev/training-job": "small", "mlstack.dev/role": role}
    return parse_pod(pod(f"small-{role}-{name}", labels=labels, **fields))


@dataclass(frozen=True)
class Standing:
    """How a job stands; without a number of trainers it has no pods at all."""

    desired: int = 4
    live: int = 4
    bound: int = 4
    ready: int = 4
    succeeded: int = 0
    has_pserver: bool = True
    moves: int = 0
    failed: int = 0
    reason: Reason = GROWTH
    life: Lifecycle = field(default_factory=Lifecycle)
    spec: dict[str, Any] = field(default_factory=dict)

    def pods(self) -> list[PodFacts]:
        trainers = [
            member(
                str(index),
                "trainer",
                node="n1" if index < self.bound else "",
                conditions=READY if index < self.ready else [],
            )
            for index in range(self.live)
        ]
        ended = [
            member(str(9 + index), "trainer", node="n1", phase="Succeeded") for index in range(self.succeeded)
        ]
        pserver = member("0", "pserver", node="n1", conditions=READY if self.has_pserver else [])
        servers = [member("0", "master", node="n1", conditions=READY), pserver]
        return [*trainers, *ended, *(servers if self.live else [])]

    def status(self, before: dict[str, Any] | None = None, *, now_ms: int = NOW) -> dict[str, Any]:
        bounds = {"minimum": 2, "maximum": 6, **self.spec}
        obj = training_job("small", pservers=1, with_master=True, **bounds)
        obj["metadata"] |= {"generation": 2, "creationTimestamp": time(NOW - 9_000)}
        job = parse_job(obj | {"status": before or {}})
        decision = Decision(
            job=job.key,
            target=self.desired,
            is_admitted=self.desired > 0,
            hints={},
            reasons=(self.reason,),
            moves=self.moves,
        )
        record = JobRecord("uid", failed=self.failed)
        context = JobContext(job=job, pods=self.pods(), record=record, life=self.life)
        is_planned = not self.life.outcome and not self.spec.get("suspend")
        return build_status(context, decision if is_planned else None, Priority(), now_ms)


def lasting(outcome: Any, reason: str, message: str) -> Standing:
    return Standing(life=Lifecycle(outcome=outcome, reason=reason, message=message))


WHOLE = Standing()
OUTSIDE = Standing(0, 0, reason=WAITING)
STARTING = Standing(ready=1, has_pserver=False)
SHORT = Standing(ready=1)
ENDING = Standing(4, 1, 1, 1, succeeded=3)
ENDED = lasting("Succeeded", "Completed", "4 trainers found no work left")
BROKEN = lasting("Failed", "AllTrainersFailed", "all 4 trainers failed")
WRONG = replace(OUTSIDE, spec={"minimum": 3, "maximum": 1})
FAULT = "spec.trainer: `max-instance` must be at least `min-instance`, which is 3, got 1"


def condition(status: dict[str, Any], name: str) -> dict[str, Any]:
    return next(condition for condition in status["conditions"] if condition["type"] == name)


@pytest.mark.parametrize(
    ("value", "before", "expected"),
    [
        pytest.param(OUTSIDE, {}, "Pending", id="waits"),
        pytest.param(WRONG, {}, "Pending", id="wrong"),
        pytest.param(STARTING, {}, "Admitted", id="starts"),
        pytest.param(WHOLE, {}, "Running", id="runs"),
        pytest.param(Standing(6), WHOLE.status(), "Scaling", id="grows"),
        pytest.param(Standing(3), WHOLE.status(), "Scaling", id="shrinks"),
        pytest.param(SHORT, WHOLE.status(), "Scaling", id="lost-trainers"),
        pytest.param(Standing(3, 3, 3, 3, succeeded=1), {}, "Completing", id="finishes"),
        pytest.param(ENDED, {}, "Succeeded", id="succeeded"),
        pytest.param(BROKEN, {}, "Failed", id="failed"),
        pytest.param(Standing(spec={"suspend": True}), {}, "Suspended", id="suspended"),
    ],
)
def test_phase(value: Standing, before: dict[str, Any], expected: str) -> None:
    assert value.status(before)["phase"] == expected


def test_nothing_changes_while_nothing_happens() -> None:
    for value in (WHOLE, OUTSIDE, STARTING, ENDED, Standing(spec={"unknown": 1})):
        first = value.status()
        assert value.status(first, now_ms=LATER) == first


def test_a_condition_keeps_its_time_until_it_changes_sides() -> None:
    second = WHOLE.status(STARTING.status(), now_ms=LATER)
    assert condition(second, "Admitted")["lastTransitionTime"] == timestamp(NOW / 1000)
    assert condition(second, "GangReady")["lastTransitionTime"] == timestamp(LATER / 1000)


@pytest.mark.parametrize(
    ("value", "name", "expected"),
    [
        (OUTSIDE, "Admitted", ("False", "WaitingForCapacity", "no room for 2 cores")),
        (WHOLE, "Admitted", ("True", "Admitted", "there is room for the whole gang")),
        (WRONG, "Admitted", ("False", "InvalidSpec", FAULT)),
        (WRONG, "Degraded", ("True", "InvalidSpec", FAULT)),
        (STARTING, "GangReady", ("False", "PodsNotReady", "ready: 0 of 1 parameter server, 1 of 2 trainers")),
        (WHOLE, "GangReady", ("True", "AllReady", "the whole gang is ready")),
        (Standing(bound=3, ready=3), "Progressing", ("True", "Binding", "1 of 4 trainers wait for a node")),
        (WHOLE, "Progressing", ("False", "Steady", "all trainers that it was given are ready")),
        (BROKEN, "Degraded", ("True", "AllTrainersFailed", "all 4 trainers failed")),
        (WHOLE, "Scaled", ("True", "RoomFree", "trainers 0 -> 4: free room on n1")),
        (ENDING, "Scaled", ("True", "RoomFree", "trainers 0 -> 4: free room on n1")),
        (OUTSIDE, "Scaled", ("False", "NeverScaled", "it was given no trainers yet")),
    ],
)
def test_conditions_say_why(value: Standing, name: str, expected: tuple[str, str, str]) -> None:
    claim = condition(value.status(), name)
    assert (claim["status"], claim["reason"], claim["message"]) == expected
    assert claim["observedGeneration"] == 2


def test_a_running_job_that_loses_its_minimum_is_degraded() -> None:
    assert condition(SHORT.status(), "Degraded")["status"] == "False"
    assert condition(SHORT.status(WHOLE.status()), "Degraded")["reason"] == "MinimumLost"


def test_counts_stand_for_every_role() -> None:
    status = Standing(5, failed=2).status()
    counts = {"desired": 5, "replicas": 4, "bound": 4, "ready": 4, "failed": 2, "succeeded": 0}
    assert status["trainer"] == {**counts, "fulfilment": "75%"}
    assert status["pserver"] == {"desired": 1, "bound": 1, "ready": 1, "failed": 0}
    assert status["selector"] == "mlstack.dev/training-job=small,mlstack.dev/role=trainer"


def test_every_change_of_the_number_of_trainers_is_recorded_with_its_cause_and_moves() -> None:
    why = {"cause": "growth", "reason": "free room on n1"}
    status = Standing(3, moves=2).status(WHOLE.status(), now_ms=LATER)
    assert status["scaleRecords"] == [
        {"time": micro_time(NOW / 1000), "from": 0, "to": 4, **why},
        {"time": micro_time(LATER / 1000), "from": 4, "to": 3, **why, "moves": 2},
    ]


def test_only_the_last_ten_changes_are_kept() -> None:
    status: dict[str, Any] = {}
    for number in range(1, 15):
        status = Standing(number).status(status)
    assert [record["to"] for record in status["scaleRecords"]] == list(range(5, 15))


def test_the_wait_for_the_whole_gang_is_told_once() -> None:
    started = WHOLE.status()
    assert (started["waitingSeconds"], started["startTime"]) == (9, timestamp(NOW / 1000))
    queued = OUTSIDE.status(started, now_ms=LATER)
    assert "startTime" not in queued
    again = WHOLE.status(queued, now_ms=LATER)
    assert (again["waitingSeconds"], again["startTime"]) == (9, timestamp(LATER / 1000))


def test_the_end_has_its_time() -> None:
    status = ENDED.status(WHOLE.status(), now_ms=LATER)
    assert (status["startTime"], status["completionTime"]) == (timestamp(NOW / 1000), timestamp(LATER / 1000))


def test_what_the_job_reports_stays() -> None:
    curve = {"curve": [[2, 10], [4, 18]]}
    assert WHOLE.status({"throughput": curve})["throughput"] == curve


@pytest.mark.parametrize(
    ("value", "state", "text"),
    [
        pytest.param(OUTSIDE, "waiting", "no room for 2 cores", id="waits"),
        pytest.param(STARTING, "waiting", "0 of 1 parameter server", id="starts"),
        pytest.param(WHOLE, "ready", "running", id="runs"),
        pytest.param(ENDED, "done", "", id="succeeded"),
        pytest.param(BROKEN, "failed", "all 4 trainers failed", id="failed"),
        pytest.param(WRONG, "failed", FAULT, id="wrong"),
    ],
)
def test_apply_and_status_read_it(value: Standing, state: str, text: str) -> None:
    job = training_job("small") | {"status": value.status()}
    job["metadata"] |= {"generation": 2}
    verdict = assess(Facts(data=job, now_s=NOW / 1000))
    assert verdict.state == state
    assert text in verdict.reason


def test_a_gang_without_a_minimum_still_needs_one_trainer() -> None:
    alone = Standing(1, 1, 1, 0, spec={"minimum": 0})
    assert "ready: 0 of 1 trainer" in condition(alone.status(), "GangReady")["message"]


# --- The table of reasons in the package's README is about the reasons that the controller tells ---


README = files.folder("prototypes") / "elastic" / "README.md"
CODE = Path(mlstack.elastic.__file__).parent
TELLING = ("status.py", "state.py")
CONDITIONS = {"Admitted", "GangReady", "Progressing", "Degraded", "Scaled", "PriorityGranted"}
# Words of these modules that are no reasons: what the controller did, fields of an Event, outcomes.
OTHERS = {
    *("Admit", "Finish", "Observe", "Scale", "Suspend", "Wait"),
    *("Event", "TrainingJob", "Normal", "Warning", "True", "False", "Succeeded", "Pending", "Running"),
    *("Scaling", "StatefulSet", "Service", "PodDisruptionBudget", "Retries", "RetryTime"),
    *("RetryGeneration", "Refusal"),
}
WORD = re.compile(r"[A-Z][a-z]+([A-Z][a-z]+)*")


def words() -> Iterator[str]:
    """Give the words in CamelCase of the modules that give reasons, and of notes and priorities elsewhere."""
    for file in sorted(CODE.rglob("*.py")):
        is_telling = file.relative_to(CODE).as_posix() in TELLING
        for part in ast.walk(ast.parse(file.read_text())):
            if is_telling and isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value
            elif isinstance(part, ast.Call) and getattr(part.func, "id", "") in ("JobEvent", "Priority"):
                reasons = [*part.args[1:2], *(word.value for word in part.keywords if word.arg == "reason")]
                for node in (node for reason in reasons for node in ast.walk(reason)):
                    if isinstance(node, ast.Constant):
                        yield str(node.value)


def table() -> list[list[str]]:
    text = README.read_text()
    assert "| reason | told by |" in text
    rows = text.partition("| reason | told by |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_every_reason_is_explained_and_every_explained_one_is_told() -> None:
    used = {word for word in words() if WORD.fullmatch(word)} - OTHERS - (CONDITIONS - {"Admitted", "Scaled"})
    assert set(re.findall(r"`(\w+)`", " ".join(row[0] for row in table()))) == used


def test_who_tells_a_reason_is_an_event_or_a_condition() -> None:
    tellers = {who for row in table() for who in re.split(r"[,;] ", row[1])}
    assert tellers == {"event", *CONDITIONS}
