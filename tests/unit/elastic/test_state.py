"""What the controller keeps of a job: how long it waits after a failure, what it told."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlstack.elastic.state import (
    CALM_MS,
    MOST,
    MOST_NODES,
    PAUSE_MS,
    REFRESH_MS,
    SAME_MS,
    WRITE_MS,
    Backoff,
    EventRecorder,
    JobRecord,
)


def waits(pause: Backoff, now_ms: int, *, is_passing: bool = False) -> int:
    pause.fail(now_ms, is_passing=is_passing)
    return pause.until_ms - now_ms


def test_the_wait_doubles_up_to_its_longest() -> None:
    pause = Backoff(*WRITE_MS)
    pauses_ms = [waits(pause, 100_000 * number) for number in range(1, 9)]
    assert pauses_ms == [2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]
    assert pause.is_waiting(800_000) and not pause.is_waiting(700_000)  # where the clock was set back


def test_after_a_calm_time_it_begins_anew() -> None:
    pause = Backoff(*WRITE_MS)
    assert [waits(pause, 0), waits(pause, 10_000), waits(pause, 20_000 + CALM_MS)] == [2_000, 4_000, 2_000]


def test_what_passes_by_itself_is_tried_again_soon_however_often() -> None:
    pause = Backoff(*WRITE_MS)
    assert {waits(pause, 10_000 * number, is_passing=True) for number in range(9)} == {WRITE_MS[0]}


def test_what_passes_by_itself_shortens_no_longer_wait() -> None:
    pause = Backoff(*WRITE_MS)
    for now_ms in (0, 10_000, 20_000):
        pause.fail(now_ms)
    pause.fail(20_001, is_passing=True)
    assert pause.until_ms == 28_000


def test_of_the_refusals_of_one_pass_the_same_is_kept_whatever_their_order() -> None:
    for texts in (("b", "a", "c"), ("c", "b", "a")):
        memory = JobRecord("uid")
        memory.refuse("0 of a pass before", 1_000)
        for text in texts:
            memory.refuse(text, 2_000)
        assert memory.refusal == "a"


NOW_MS = 1_700_000_000_123
GENERATION = 3
WORDS = "exceeded quota"


TIME = "2023-11-14T22:13:20.123000Z"


@pytest.mark.parametrize(
    "written",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"failedTrainers": 3, "trainerRetries": 2, "trainerRetryTime": TIME}, id="trainers"),
        pytest.param({"failedRounds": 2, "failedTrainer": "uid-1"}, id="rounds"),
        pytest.param({"gangRetries": 4, "gangRetryTime": TIME, "gangRetryGeneration": 7}, id="gang"),
        pytest.param(
            {
                "passedOver": [
                    {"nodes": ["n3"], "times": 2, "until": "2023-11-14T22:13:21.000000Z"},
                    {"nodes": ["n1", "n2"], "times": 1, "until": TIME},
                ]
            },
            id="nodes",
        ),
    ],
)
def test_a_status_says_what_went_wrong_and_nothing_else(written: dict[str, Any]) -> None:
    record = JobRecord("uid")
    record.resume(written)
    assert record.setbacks(written.get("failedTrainers", 0)) == written


def test_of_many_nodes_those_that_are_passed_over_longest_are_kept() -> None:
    record, again = JobRecord("uid"), JobRecord("uid")
    for number in range(MOST_NODES + 9):
        record.bar(f"n{number}", NOW_MS + number)

    again.resume(record.setbacks(0))

    assert set(again.bars) == {f"n{number}" for number in range(9, MOST_NODES + 9)}


@given(
    failures=st.integers(0, 9),
    falls=st.integers(0, 9),
    tries=st.integers(0, 9),
    bars=st.lists(st.sampled_from(["n1", "n2", "n3"]), max_size=9),
    step_ms=st.sampled_from([1, 61_003, 900_000]),
)
def test_the_next_leader_goes_on_as_the_one_before_would(
    failures: int, falls: int, tries: int, bars: list[str], step_ms: int
) -> None:
    """Writing and reading changes neither what is remembered nor what the next setback leads to."""
    first, now_ms = JobRecord("uid"), NOW_MS
    for _ in range(failures):
        first.retry.fail(now_ms)
        now_ms = now_ms + step_ms
    for number in range(falls):
        first.fail_round({f"a{number}", f"b{number}"}, ran_ms=0)
    for _ in range(tries):
        first.gang.refuse(GENERATION, now_ms, WORDS)
        now_ms = now_ms + step_ms
    for node in bars:
        first.bar(node, now_ms)
        now_ms = now_ms + step_ms

    failing = first.setbacks(failures)
    second = JobRecord("uid")
    second.resume(failing)

    assert second.setbacks(failures) == failing
    assert vars(second.gang) | {"last_ms": 0} == vars(first.gang) | {"last_ms": 0}
    for memory in (first, second):
        memory.retry.fail(now_ms)
        memory.fail_round({"c"}, ran_ms=0)
        memory.gang.refuse(GENERATION, now_ms, WORDS)
        memory.bar("n1", now_ms)
    assert second.setbacks(1) == first.setbacks(1)


# --- What is recorder again: when it is news, when it is counted, when the count is written ---


KEY = ("ScaledUp", "trainers 1 -> 2")


@pytest.fixture
def recorder() -> EventRecorder:
    recorder = EventRecorder()
    assert recorder.record(KEY, "first", 0)
    return recorder


def written(recorder: EventRecorder, now_ms: int) -> list[tuple[str, int]]:
    return [(series.event, series.count) for _, series in recorder.due(now_ms)]


def test_the_same_soon_is_counted_at_once_and_then_after_a_minute(recorder: EventRecorder) -> None:
    assert not recorder.record(KEY, "second", 10_000)
    assert written(recorder, 10_000) == [("first", 2)]
    assert not recorder.record(KEY, "third", 20_000)

    assert written(recorder, 10_000 + PAUSE_MS - 1) == []
    assert written(recorder, 10_000 + PAUSE_MS) == [("first", 3)]
    assert written(recorder, 10_000 + 2 * PAUSE_MS) == []


def test_a_series_is_written_once_a_minute_at_the_most(recorder: EventRecorder) -> None:
    times = []
    for now_ms in range(1_000, 600_000, 1_000):
        recorder.record(KEY, "again", now_ms)
        times += [now_ms] * len(written(recorder, now_ms))

    assert len(times) == 10
    assert all(later - earlier >= PAUSE_MS for earlier, later in pairwise(times))


def test_the_same_much_later_is_news(recorder: EventRecorder) -> None:
    assert not recorder.record(KEY, "second", SAME_MS - 1)
    assert recorder.record(KEY, "third", 2 * SAME_MS - 1)


def test_several_times_in_one_pass_are_once(recorder: EventRecorder) -> None:
    for _ in range(3):
        recorder.record(KEY, "second", 5_000)

    assert written(recorder, PAUSE_MS) == [("first", 2)]


def test_what_lasts_is_written_again_every_half_hour_and_not_before() -> None:
    recorder, times = EventRecorder(), []
    for now_ms in range(0, 2 * REFRESH_MS + 10_000, 5_000):
        assert recorder.record(KEY, "first", now_ms, lasts=True) == (now_ms == 0)
        times += [now_ms] * len(written(recorder, now_ms))

    assert times == [REFRESH_MS, 2 * REFRESH_MS]


def test_an_event_that_the_server_forgot_is_made_anew(recorder: EventRecorder) -> None:
    recorder.forget("first")

    assert recorder.record(KEY, "second", 1_000)


def test_only_so_much_is_remembered(recorder: EventRecorder) -> None:
    for number in range(MOST):
        assert recorder.record(("ScaledUp", str(number)), f"event-{number}", 1_000 + number)

    assert len(recorder.series) == MOST
    assert KEY not in recorder.series


def test_what_a_leader_before_told_is_told_anew_after_half_an_hour() -> None:
    recorder, times = EventRecorder(), []
    recorder.take_over(KEY, 0)
    for now_ms in range(0, 2 * REFRESH_MS, 5_000):
        times += [now_ms] * recorder.record(KEY, "mine", now_ms, lasts=True)
        assert written(recorder, now_ms) == []

    assert times == [REFRESH_MS]
    assert not recorder.record(KEY, "again", 2 * REFRESH_MS, lasts=True)
    assert written(recorder, 2 * REFRESH_MS) == [("mine", 2)]
