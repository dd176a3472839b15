"""When the controller looks again."""

from mlstack.elastic.controller.controller import RequeuePolicy


def test_the_first_pass_is_due_at_once() -> None:
    assert RequeuePolicy().is_due(0)


def test_without_news_a_pass_comes_with_the_tick() -> None:
    pace = RequeuePolicy()
    pace.passed(1000)

    assert not pace.is_due(5999)
    assert pace.is_due(6000)


def test_news_are_gathered_for_a_second_from_the_first_on() -> None:
    pace = RequeuePolicy()
    pace.passed(1000)
    pace.heard(2000)
    pace.heard(2900)

    assert pace.next_ms() == 3000


def test_a_known_time_is_kept() -> None:
    pace = RequeuePolicy()
    pace.passed(1000, due_ms=2500)

    assert pace.next_ms() == 2500


def test_what_was_due_already_does_not_make_a_busy_loop() -> None:
    pace = RequeuePolicy()
    pace.passed(1000, due_ms=500)

    assert pace.next_ms() > 1000
