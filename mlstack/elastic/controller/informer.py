"""Watches in threads of their own; their events end up in one queue, for the one thread that reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import Empty, Queue
from threading import Event, Thread

from mlstack.errors import MlstackError
from mlstack.kube.client import Cluster, WatchEvent
from mlstack.kube.retrying import backoff
from mlstack.kube.watch import Listed, Reflector, WatchSource

RESYNC_S = 600.0
"""So often everything is listed anew: what was missed costs no more than this."""

WATCH_S = 120.0
"""How long the server keeps one watch open."""

# A watch that goes on where it was, and of which nothing is heard for so long, has nothing to tell.
_QUIET_S = 1.0
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0
# A list of many pods must not stand in memory as a whole: the watch waits for the reader.
_QUEUED = 2_000


News = WatchEvent | Listed


class Informer:
    """Follows some kinds of objects.

    A watch that breaks goes on where it was, after a pause that doubles up to 10 s; where the server no
    longer has that version, and every ten minutes, everything is listed again.
    """

    def __init__(
        self, cluster: Cluster, sources: tuple[WatchSource, ...], monotonic_s: Callable[[], float]
    ) -> None:
        self._cluster, self._sources, self._monotonic_s = cluster, sources, monotonic_s
        self._queue: Queue[News] = Queue(_QUEUED)
        self._closed = Event()
        self._errors: dict[WatchSource, MlstackError] = {}
        self._broken: dict[WatchSource, float | None] = {}

    def start(self) -> None:
        """Begin."""
        for source in self._sources:
            name = f"watch {source.kind}"
            Thread(target=self._follow, args=(source,), name=name, daemon=True).start()

    def stop(self) -> None:
        """Hear nothing more; threads end with their watches."""
        self._closed.set()

    @property
    def sources(self) -> tuple[WatchSource, ...]:
        """Give what is watched."""
        return self._sources

    def errors(self) -> list[MlstackError]:
        """Give what keeps watches from going on."""
        return list(self._errors.values())

    @property
    def is_deaf(self) -> bool:
        """Tell whether something may have happened that was not heard: a watch broke off and is not back."""
        now_s = self._monotonic_s()
        return any(
            resumed_s is None or now_s - resumed_s < _QUIET_S for resumed_s in list(self._broken.values())
        )

    def news(self, *, timeout_s: float) -> Iterator[News]:
        """Give what came, once something has or the time is up; all that is there, in its order."""
        try:
            yield self._queue.get(timeout=max(0.0, timeout_s))
            while True:
                yield self._queue.get_nowait()
        except Empty:
            return

    def _follow(self, source: WatchSource) -> None:
        reflector, listed_s, pauses = Reflector(self._cluster, source), self._monotonic_s(), _pauses()
        while not self._closed.is_set():
            begun_s = self._monotonic_s()
            if not reflector.version or begun_s - listed_s >= RESYNC_S:
                reflector.version, listed_s = "", begun_s
            elif source in self._broken:
                self._broken[source] = begun_s
            try:
                for event in reflector.watch(WATCH_S):
                    if self._closed.is_set():
                        return
                    if isinstance(event, Listed) or event.type != "BOOKMARK":
                        self._queue.put(event)
                    pauses = _pauses()
                    self._errors.pop(source, None)
                    if reflector.version:
                        self._broken.pop(source, None)
                if not reflector.version:  # it was forgotten, or the list was cut off
                    self._broken[source] = None
            except MlstackError as error:
                self._errors[source], self._broken[source] = error, None
            except Exception as error:  # a fault of ours must not end in silence: a thread has no caller
                self._errors[source] = MlstackError(f"watch of {source.kind}: {error!r}")
                self._broken[source] = None
            if self._monotonic_s() - begun_s < _LONGEST_PAUSE_S:
                self._closed.wait(next(pauses))


def _pauses() -> Iterator[float]:
    return backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
