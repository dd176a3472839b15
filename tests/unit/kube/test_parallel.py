"""The same thing done to many."""

import threading

import pytest

from mlstack.errors import ClusterError, ForbiddenError, InvalidError, MlstackError, UnreachableError
from mlstack.kube import parallel


def test_results_keep_the_order_of_the_items() -> None:
    assert parallel.run(lambda number: number * 2, list(range(50))) == [number * 2 for number in range(50)]


def test_errors_take_the_place_of_results() -> None:
    def work(number: int) -> int:
        if number == 1:
            raise InvalidError("no")
        return number

    results = parallel.run(work, [0, 1, 2])
    assert (results[0], results[2]) == (0, 2)
    assert isinstance(results[1], InvalidError)


def test_many_work_at_once() -> None:
    meeting = threading.Barrier(parallel.WORKERS, timeout=10)
    parallel.run(lambda _: meeting.wait(), list(range(parallel.WORKERS)))


def test_a_silent_server_stops_everything() -> None:
    begun: list[int] = []

    def work(number: int) -> None:
        begun.append(number)
        raise UnreachableError("no answer")

    with pytest.raises(UnreachableError):
        parallel.run(work, list(range(1000)))
    assert len(begun) < 1000


def test_faults_of_ours_are_not_hidden() -> None:
    def work(number: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        parallel.run(work, [1, 2])


def test_one_error_stays_itself_and_several_are_listed() -> None:
    first, other = ForbiddenError("first", hint="a"), ForbiddenError("second", hint="b")
    assert parallel.together([first]) is first
    both = parallel.together([first, other])
    assert isinstance(both, ForbiddenError)
    assert both.message == "2 objects were refused\n  first\n  second"
    assert both.hint == "a\n      b"
    assert str(both) == both.message
    assert first.message == "first"
    assert isinstance(both, MlstackError)


def test_a_fault_of_many_objects_is_told_once() -> None:
    same = [ForbiddenError(f"`Pod a/{number}`: the namespace goes") for number in range(5)]
    message = parallel.together([*same, ForbiddenError("`Pod b/x`: no right")]).message
    assert message.splitlines() == [
        "6 objects were refused",
        "  `Pod a/0`, `Pod a/1`, `Pod a/2` and 2 more: the namespace goes",
        "  `Pod b/x`: no right",
    ]


def test_an_interruption_waits_for_what_is_under_way_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent, ended = threading.Event(), []

    def work(number: int) -> None:
        if number == 0:
            raise KeyboardInterrupt
        if number == 1:
            ended.append(number)
        else:
            silent.wait(60)

    monkeypatch.setattr(parallel, "GRACE_S", 0.2)
    with pytest.raises(KeyboardInterrupt):
        parallel.run(work, [1, 0, 2, 3])
    silent.set()
    assert ended == [1]


def test_work_goes_on_while_nobody_waits() -> None:
    begun, go = threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        go.wait(10)
        return "done"

    answer = parallel.prefetch(work)
    assert begun.wait(10)
    go.set()
    assert answer() == "done"


def test_whoever_waits_gets_the_error() -> None:
    def work() -> None:
        raise ClusterError("no")

    with pytest.raises(ClusterError, match="no"):
        parallel.prefetch(work)()
