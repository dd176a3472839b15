"""What is told again: when it is news, when it is counted, when the count is written."""

from __future__ import annotations

from itertools import pairwise

import pytest

from mlstack.elastic.state import MOST, PAUSE_MS, REFRESH_MS, SAME_MS, EventRecorder

KEY = ("ScaledUp", "trainers 1 -> 2")


@pytest.fixture
def told() -> EventRecorder:
    found = EventRecorder()
    assert found.record(KEY, "first", 0)
    return found


def written(told: EventRecorder, now_ms: int) -> list[tuple[str, int]]:
    return [(series.event, series.count) for _, series in told.due(now_ms)]


def test_the_same_soon_is_counted_at_once_and_then_after_a_minute(told: EventRecorder) -> None:
    assert not told.record(KEY, "second", 10_000)
    assert written(told, 10_000) == [("first", 2)]
    assert not told.record(KEY, "third", 20_000)

    assert written(told, 10_000 + PAUSE_MS - 1) == []
    assert written(told, 10_000 + PAUSE_MS) == [("first", 3)]
    assert written(told, 10_000 + 2 * PAUSE_MS) == []


def test_a_series_is_written_once_a_minute_at_the_most(told: EventRecorder) -> None:
    times = []
    for now_ms in range(1_000, 600_000, 1_000):
        told.record(KEY, "again", now_ms)
        times += [now_ms] * len(written(told, now_ms))

    assert len(times) == 10
    assert all(later - earlier >= PAUSE_MS for earlier, later in pairwise(times))


def test_the_same_much_later_is_news(told: EventRecorder) -> None:
    assert not told.record(KEY, "second", SAME_MS - 1)
    assert told.record(KEY, "third", 2 * SAME_MS - 1)


def test_several_times_in_one_pass_are_once(told: EventRecorder) -> None:
    for _ in range(3):
        told.record(KEY, "second", 5_000)

    assert written(told, PAUSE_MS) == [("first", 2)]


def test_what_lasts_is_written_again_every_half_hour_and_not_before() -> None:
    told, times = EventRecorder(), []
    for now_ms in range(0, 2 * REFRESH_MS + 10_000, 5_000):
        assert told.record(KEY, "first", now_ms, lasts=True) == (now_ms == 0)
        times += [now_ms] * len(written(told, now_ms))

    assert times == [REFRESH_MS, 2 * REFRESH_MS]


def test_an_event_that_the_server_forgot_is_made_anew(told: EventRecorder) -> None:
    told.forget("first")

    assert told.record(KEY, "second", 1_000)


def test_only_so_much_is_remembered(told: EventRecorder) -> None:
    for number in range(MOST):
        assert told.record(("ScaledUp", str(number)), f"event-{number}", 1_000 + number)

    assert len(told.known) == MOST
    assert KEY not in told.known


def test_what_a_leader_before_told_is_told_anew_after_half_an_hour() -> None:
    told, times = EventRecorder(), []
    told.take_over(KEY, 0)
    for now_ms in range(0, 2 * REFRESH_MS, 5_000):
        times += [now_ms] * told.record(KEY, "mine", now_ms, lasts=True)
        assert written(told, now_ms) == []

    assert times == [REFRESH_MS]
    assert not told.record(KEY, "again", 2 * REFRESH_MS, lasts=True)
    assert written(told, 2 * REFRESH_MS) == [("mine", 2)]
