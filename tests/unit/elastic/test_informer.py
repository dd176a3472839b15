"""Watches in threads: what is told, in which order, whatever happens to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import pytest

from mlstack.elastic.controller.informer import Informer, News
from mlstack.errors import UnreachableError, WatchExpiredError
from mlstack.kube.client import INITIAL_EVENTS_END, ObjectRef, WatchEvent
from mlstack.kube.watch import Listed, WatchSource
from tests.support.elastic import numbered, pod
from tests.support.waiting import wait_until

PODS = WatchSource("v1", "Pod")


def added(name: str, version: int) -> WatchEvent:
    return WatchEvent(type="ADDED", object=numbered(pod(name), version))


def listed(version: int) -> WatchEvent:
    annotations = {INITIAL_EVENTS_END: "true"}
    metadata = {"resourceVersion": str(version), "annotations": annotations}
    return WatchEvent(type="BOOKMARK", object={"metadata": metadata})


class Script:
    """A cluster whose watches are written down: each a list of events, or of errors to raise."""

    def __init__(self, *watches: list[WatchEvent | Exception]) -> None:
        self._watches = iter(watches)
        self.versions: list[str] = []

    def watch(self, *about: str, resource_version: str = "", **options: Any) -> Iterator[WatchEvent]:
        self.versions.append(resource_version)
        for one in next(self._watches, []):
            if isinstance(one, Exception):
                raise one
            yield one


def gathered(cluster: Any, until: Callable[[list[News]], bool]) -> list[News]:
    listener = Informer(cluster, (PODS,), time.monotonic)
    listener.start()
    found: list[News] = []
    deadline = time.monotonic() + 10
    while not until(found) and time.monotonic() < deadline:
        found += listener.news(timeout_s=0.1)
    listener.stop()
    assert until(found), found
    return found


def lists(news: list[News]) -> list[Listed]:
    return [one for one in news if isinstance(one, Listed)]


def test_a_list_is_told_with_its_end() -> None:
    script = Script([added("a", 1), added("b", 2), listed(5), added("c", 6)])

    found = gathered(script, lambda news: len(news) == 4)

    refs = frozenset(ObjectRef("v1", "Pod", "default", name) for name in "ab")
    assert lists(found) == [Listed(source=PODS, refs=refs, version="5")]


def test_a_watch_that_ends_goes_on_where_it_was() -> None:
    script = Script([added("a", 1), listed(5), added("b", 6)], [added("c", 7)])

    gathered(script, lambda news: len(news) == 4)

    assert script.versions[:2] == ["", "6"]


def test_an_expired_watch_lists_again() -> None:
    script = Script([added("a", 1), listed(5)], [WatchExpiredError("gone")], [added("b", 9), listed(9)])

    found = gathered(script, lambda news: len(lists(news)) == 2)

    assert script.versions[:3] == ["", "5", ""]
    assert [ref.name for ref in lists(found)[1].refs] == ["b"]


def test_a_list_that_was_cut_off_begins_anew() -> None:
    script = Script([added("a", 1), UnreachableError("no answer")], [added("a", 1), listed(5)])

    gathered(script, lambda news: len(lists(news)) == 1)

    assert script.versions[:2] == ["", ""]


@pytest.mark.parametrize("trouble", [UnreachableError("no answer"), WatchExpiredError("gone")])
def test_a_watch_that_broke_off_is_not_heard_until_it_is_back(trouble: Exception) -> None:
    held = Event()

    class Held(Script):
        def watch(self, *about: str, resource_version: str = "", **options: Any) -> Iterator[WatchEvent]:
            if len(self.versions) >= 2:
                held.wait(10)
            yield from super().watch(*about, resource_version=resource_version, **options)

    listener = Informer(Held([listed(5)], [trouble], [listed(9)]), (PODS,), Moments())  # type: ignore[arg-type]
    assert not listener.is_deaf
    listener.start()
    until(lambda: listener.is_deaf)
    held.set()
    until(lambda: not listener.is_deaf)
    listener.stop()


def test_a_watch_that_goes_on_in_silence_has_nothing_to_tell() -> None:
    over = Event()

    class Silent(Script):
        def watch(self, *about: str, resource_version: str = "", **options: Any) -> Iterator[WatchEvent]:
            yield from super().watch(*about, resource_version=resource_version, **options)
            if len(self.versions) > 2:
                over.wait(10)

    moments, silent = Moments(), Silent([listed(5)], [UnreachableError("no")])
    listener = Informer(silent, (PODS,), moments)  # type: ignore[arg-type]
    listener.start()
    until(lambda: len(silent.versions) > 2)
    assert listener.is_deaf
    moments.now_s += 2
    until(lambda: not listener.is_deaf)
    over.set()
    listener.stop()


class Moments:
    """A time that stands still until a test moves it."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def until(claim: Callable[[], bool]) -> None:
    wait_until(claim, what="the claim", timeout_s=10, interval_s=0.01)


def test_an_error_is_kept_until_the_watch_goes_on() -> None:
    class Refusing(Script):
        def watch(self, *about: str, **options: Any) -> Iterator[WatchEvent]:
            raise UnreachableError("no answer")

    listener = Informer(Refusing(), (PODS,), time.monotonic)  # type: ignore[arg-type]
    listener.start()
    deadline = time.monotonic() + 10
    while not listener.errors() and time.monotonic() < deadline:
        list(listener.news(timeout_s=0.05))
    listener.stop()

    assert [str(error) for error in listener.errors()] == ["no answer"]
