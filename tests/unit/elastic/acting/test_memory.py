"""How long the controller waits after something went wrong."""

from __future__ import annotations

from mlstack.elastic.controller.state import CALM_MS, WRITE_MS, Backoff, JobRecord


def waits(pause: Backoff, now_ms: int, *, is_passing: bool = False) -> int:
    pause.fail(now_ms, is_passing=is_passing)
    return pause.until_ms - now_ms


def test_the_wait_doubles_up_to_its_longest() -> None:
    pause = Backoff(*WRITE_MS)
    found = [waits(pause, 100_000 * number) for number in range(1, 9)]
    assert found == [2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]


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
