"""When the controller looks again."""

from mlstack.elastic.controller.requeue import RequeuePolicy


def test_the_first_pass_is_due_at_once() -> None:
    assert RequeuePolicy().is_due(0)


def test_without_news_a_pass_comes_with_the_tick() -> None:
    requeue = RequeuePolicy()
    requeue.started(1000)

    assert not requeue.is_due(5999)
    assert requeue.is_due(6000)


def test_news_are_gathered_for_a_second_from_the_first_on() -> None:
    requeue = RequeuePolicy()
    requeue.started(1000)
    requeue.changed(2000)
    requeue.changed(2900)

    assert requeue.next_ms() == 3000


def test_a_known_time_is_kept() -> None:
    requeue = RequeuePolicy()
    requeue.started(1000, due_ms=2500)

    assert requeue.next_ms() == 2500


def test_what_was_due_already_does_not_make_a_busy_loop() -> None:
    requeue = RequeuePolicy()
    requeue.started(1000, due_ms=500)

    assert requeue.next_ms() > 1000
