"""Watches in threads: what is told, in which order, whatever happens to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from mlstack.cluster.api import INITIAL_EVENTS_END, Source, WatchEvent
from mlstack.elastic.running.listening import Listed, Listener, News
from mlstack.errors import UnreachableError, WatchExpiredError
from tests.support.elastic import numbered, pod

PODS = Source("v1", "Pod")


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
    listener = Listener(cluster, (PODS,), time.monotonic)
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

    assert lists(found) == [Listed(source=PODS, keys=frozenset({"default/a", "default/b"}), version="5")]


def test_a_watch_that_ends_goes_on_where_it_was() -> None:
    script = Script([added("a", 1), listed(5), added("b", 6)], [added("c", 7)])

    gathered(script, lambda news: len(news) == 4)

    assert script.versions[:2] == ["", "6"]


def test_an_expired_watch_lists_again() -> None:
    script = Script([added("a", 1), listed(5)], [WatchExpiredError("gone")], [added("b", 9), listed(9)])

    found = gathered(script, lambda news: len(lists(news)) == 2)

    assert script.versions[:3] == ["", "5", ""]
    assert lists(found)[1].keys == frozenset({"default/b"})


def test_a_list_that_was_cut_off_begins_anew() -> None:
    script = Script([added("a", 1), UnreachableError("no answer")], [added("a", 1), listed(5)])

    gathered(script, lambda news: len(lists(news)) == 1)

    assert script.versions[:2] == ["", ""]


def test_an_error_is_kept_until_the_watch_goes_on() -> None:
    class Refusing(Script):
        def watch(self, *about: str, **options: Any) -> Iterator[WatchEvent]:
            raise UnreachableError("no answer")

    listener = Listener(Refusing(), (PODS,), time.monotonic)  # type: ignore[arg-type]
    listener.start()
    deadline = time.monotonic() + 10
    while not listener.errors() and time.monotonic() < deadline:
        list(listener.news(timeout_s=0.05))
    listener.stop()

    assert [str(error) for error in listener.errors()] == ["no answer"]
