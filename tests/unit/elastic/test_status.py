"""The status of a TrainingJob, made from how the job stands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mlstack.clock import micro_time
from mlstack.elastic import status
from mlstack.elastic.snapshot import Reason
from mlstack.elastic.status import Counts, StatusClaims
from mlstack.readiness.evaluate import assess
from mlstack.readiness.rule import Facts
from tests.support.trainingjobs import small_job

NOW = 1_800_000_000_000
LATER = NOW + 60_000
WAITING = Reason(cause="waiting", text="no room for 2 cores")
GROWTH = Reason(cause="growth", text="free room on n1")


def counts(number: int, **other: int) -> Counts:
    return Counts(**{"desired": number, "live": number, "bound": number, "ready": number, **other})


def standing(**fields: Any) -> StatusClaims:
    whole = StatusClaims(
        name="small",
        generation=2,
        created_ms=NOW - 9_000,
        minimum=2,
        maximum=6,
        reason=GROWTH,
        trainer=counts(4),
        pserver=counts(1),
        master=counts(1),
    )
    return replace(whole, **fields)


WHOLE = standing()
OUTSIDE = standing(reason=WAITING, trainer=Counts(), pserver=Counts(), master=Counts())
STARTING = standing(trainer=counts(4, ready=1), pserver=counts(1, ready=0))
SHORT = standing(trainer=counts(4, ready=1))
ENDING = standing(trainer=counts(1, desired=4, succeeded=3))
ENDED = standing(
    outcome="Succeeded", outcome_reason="Completed", outcome_message="4 trainers found no work left"
)
BROKEN = standing(
    outcome="Failed", outcome_reason="AllTrainersFailed", outcome_message="all 4 trainers failed"
)


def of(value: StatusClaims, before: dict[str, Any] | None = None, *, now_ms: int = NOW) -> dict[str, Any]:
    return status.build_status(value, before or {}, now_ms=now_ms)


def condition(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in found["conditions"] if each["type"] == name)


@pytest.mark.parametrize(
    ("value", "before", "expected"),
    [
        pytest.param(OUTSIDE, {}, "Pending", id="waits"),
        pytest.param(standing(faults=("x",)), {}, "Pending", id="wrong"),
        pytest.param(STARTING, {}, "Admitted", id="starts"),
        pytest.param(WHOLE, {}, "Running", id="runs"),
        pytest.param(standing(trainer=counts(4, desired=6)), of(WHOLE), "Scaling", id="grows"),
        pytest.param(standing(trainer=counts(4, desired=3)), of(WHOLE), "Scaling", id="shrinks"),
        pytest.param(SHORT, of(WHOLE), "Scaling", id="lost-trainers"),
        pytest.param(standing(trainer=counts(3, succeeded=1)), {}, "Completing", id="finishes"),
        pytest.param(ENDED, {}, "Succeeded", id="succeeded"),
        pytest.param(BROKEN, {}, "Failed", id="failed"),
        pytest.param(standing(is_suspended=True), {}, "Suspended", id="suspended"),
    ],
)
def test_phase(value: StatusClaims, before: dict[str, Any], expected: str) -> None:
    assert of(value, before)["phase"] == expected


def test_nothing_changes_while_nothing_happens() -> None:
    for value in (WHOLE, OUTSIDE, STARTING, ENDED, standing(warnings=("`x` is ignored",))):
        first = of(value)
        assert of(value, first, now_ms=LATER) == first


def test_a_condition_keeps_its_time_until_it_changes_sides() -> None:
    first = of(STARTING)
    second = of(WHOLE, first, now_ms=LATER)
    assert condition(second, "Admitted")["lastTransitionTime"] == status.timestamp(NOW)
    assert condition(second, "GangReady")["lastTransitionTime"] == status.timestamp(LATER)


@pytest.mark.parametrize(
    ("value", "name", "expected"),
    [
        (OUTSIDE, "Admitted", ("False", "WaitingForCapacity", "no room for 2 cores")),
        (WHOLE, "Admitted", ("True", "Admitted", "there is room for the whole gang")),
        (standing(faults=("spec: bad",)), "Admitted", ("False", "InvalidSpec", "spec: bad")),
        (standing(faults=("spec: bad",)), "Degraded", ("True", "InvalidSpec", "spec: bad")),
        (
            STARTING,
            "GangReady",
            ("False", "PodsNotReady", "ready: 0 of 1 parameter server, 1 of 2 trainers"),
        ),
        (WHOLE, "GangReady", ("True", "AllReady", "the whole gang is ready")),
        (
            standing(trainer=counts(4, bound=3, ready=3)),
            "Progressing",
            ("True", "Binding", "1 of 4 trainers wait for a node"),
        ),
        (WHOLE, "Progressing", ("False", "Steady", "all trainers that it was given are ready")),
        (BROKEN, "Degraded", ("True", "AllTrainersFailed", "all 4 trainers failed")),
        (WHOLE, "Scaled", ("True", "RoomFree", "trainers 0 -> 4: free room on n1")),
        (ENDING, "Scaled", ("True", "RoomFree", "trainers 0 -> 4: free room on n1")),
        (OUTSIDE, "Scaled", ("False", "NeverScaled", "it was given no trainers yet")),
    ],
)
def test_conditions_say_why(value: StatusClaims, name: str, expected: tuple[str, str, str]) -> None:
    found = condition(of(value), name)
    assert (found["status"], found["reason"], found["message"]) == expected
    assert found["observedGeneration"] == 2


def test_a_running_job_that_loses_its_minimum_is_degraded() -> None:
    assert condition(of(SHORT), "Degraded")["status"] == "False"
    assert condition(of(SHORT, of(WHOLE)), "Degraded")["reason"] == "MinimumLost"


def test_counts_stand_for_every_role() -> None:
    found = of(standing(trainer=counts(4, desired=5, failed=2)))
    assert found["trainer"] == {
        "desired": 5,
        "replicas": 4,
        "bound": 4,
        "ready": 4,
        "failed": 2,
        "succeeded": 0,
        "fulfilment": "75%",
    }
    assert found["pserver"] == {"desired": 1, "bound": 1, "ready": 1, "failed": 0}
    assert found["selector"] == "mlstack.dev/training-job=small,mlstack.dev/role=trainer"


def test_every_change_of_the_number_of_trainers_is_recorded_with_its_cause() -> None:
    found = of(standing(trainer=counts(4, desired=6)), of(WHOLE), now_ms=LATER)
    first, second = micro_time(NOW / 1000), micro_time(LATER / 1000)
    assert found["scaleRecords"] == [
        {"time": first, "from": 0, "to": 4, "cause": "growth", "reason": "free room on n1"},
        {
            "time": second,
            "from": 4,
            "to": 6,
            "cause": "growth",
            "reason": "free room on n1",
        },
    ]


def test_a_record_tells_the_moves_for_fairness() -> None:
    found = of(standing(trainer=counts(3), moves=2), of(WHOLE), now_ms=LATER)
    assert [record.get("moves") for record in found["scaleRecords"]] == [None, 2]


def test_only_the_last_ten_changes_are_kept() -> None:
    found: dict[str, Any] = {}
    for number in range(1, 15):
        found = of(standing(trainer=counts(number)), found)
    assert [record["to"] for record in found["scaleRecords"]] == list(range(5, 15))


def test_the_wait_for_the_whole_gang_is_told_once() -> None:
    started = of(WHOLE)
    assert (started["waitingSeconds"], started["startTime"]) == (9, status.timestamp(NOW))
    queued = of(OUTSIDE, started, now_ms=LATER)
    assert "startTime" not in queued
    again = of(WHOLE, queued, now_ms=LATER)
    assert (again["waitingSeconds"], again["startTime"]) == (9, status.timestamp(LATER))


def test_the_end_has_its_time() -> None:
    found = of(ENDED, of(WHOLE), now_ms=LATER)
    assert (found["startTime"], found["completionTime"]) == (status.timestamp(NOW), status.timestamp(LATER))
    assert status.ended_ms(found) == LATER
    assert status.ended_ms(of(WHOLE)) is None


def test_what_the_job_reports_stays() -> None:
    curve = {"curve": [[2, 10], [4, 18]]}
    assert of(WHOLE, {"throughput": curve})["throughput"] == curve


@pytest.mark.parametrize(
    ("value", "state", "text"),
    [
        pytest.param(OUTSIDE, "waiting", "no room for 2 cores", id="waits"),
        pytest.param(STARTING, "waiting", "0 of 1 parameter server", id="starts"),
        pytest.param(WHOLE, "ready", "running", id="runs"),
        pytest.param(ENDED, "done", "", id="succeeded"),
        pytest.param(BROKEN, "failed", "all 4 trainers failed", id="failed"),
        pytest.param(standing(faults=("spec: bad",)), "failed", "spec: bad", id="wrong"),
    ],
)
def test_apply_and_status_read_it(value: StatusClaims, state: str, text: str) -> None:
    job = small_job() | {"status": of(value)}
    job["metadata"] |= {"generation": 2}
    found = assess(Facts(data=job, now_s=NOW / 1000))
    assert found.state == state
    assert text in found.reason


def test_a_gang_without_a_minimum_still_needs_one_trainer() -> None:
    alone = standing(minimum=0, trainer=counts(1, ready=0))
    assert alone.missing == ("0 of 1 trainer",)
