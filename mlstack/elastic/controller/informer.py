"""Watches in threads of their own; their events end up in one queue, for the one thread that reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Empty, Queue
from threading import Event, Thread

from mlstack.elastic.controller.cache import key_of
from mlstack.errors import MlstackError, WatchExpiredError
from mlstack.kube.client import Cluster, ClusterSource, WatchEvent

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


@dataclass(frozen=True, kw_only=True)
class Listed:
    """Word that everything there is has been told."""

    source: ClusterSource  # of what
    keys: frozenset[str]  # `namespace/name` of all there is
    version: str  # of the list


News = WatchEvent | Listed


class Informer:
    """Follows some kinds of objects.

    A watch that breaks goes on where it was, after a pause that doubles up to 10 s; where the server no
    longer has that version, and every ten minutes, everything is listed again.
    """

    def __init__(
        self, cluster: Cluster, sources: tuple[ClusterSource, ...], monotonic_s: Callable[[], float]
    ) -> None:
        self._cluster, self._sources, self._monotonic_s = cluster, sources, monotonic_s
        self._queue: Queue[News] = Queue(_QUEUED)
        self._closed = Event()
        self._errors: dict[ClusterSource, MlstackError] = {}
        self._broken: dict[ClusterSource, float | None] = {}

    def start(self) -> None:
        """Begin."""
        for source in self._sources:
            name = f"watch {source.kind}"
            Thread(target=self._follow, args=(source,), name=name, daemon=True).start()

    def stop(self) -> None:
        """Hear nothing more; threads end with their watches."""
        self._closed.set()

    @property
    def sources(self) -> tuple[ClusterSource, ...]:
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

    def _follow(self, source: ClusterSource) -> None:
        version, listed_s, pause_s = "", self._monotonic_s(), _FIRST_PAUSE_S
        while not self._closed.is_set():
            if not version or self._monotonic_s() - listed_s >= RESYNC_S:
                version, listed_s = "", self._monotonic_s()
            begun_s = self._monotonic_s()
            if source in self._broken and version:
                self._broken[source] = begun_s
            try:
                for reached in self._watch(source, version):
                    version = reached
                    pause_s = _FIRST_PAUSE_S
                    self._errors.pop(source, None)
                    if reached:
                        self._broken.pop(source, None)
            except WatchExpiredError:
                version, self._broken[source] = "", None
            except MlstackError as error:
                self._errors[source], self._broken[source] = error, None
            except Exception as error:  # a fault of ours must not end in silence: a thread has no caller
                self._errors[source] = MlstackError(f"watch of {source.kind}: {error!r}")
                self._broken[source] = None
            if self._monotonic_s() - begun_s < _LONGEST_PAUSE_S:
                self._closed.wait(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _watch(self, source: ClusterSource, version: str) -> Iterator[str]:
        """Watch from a version on, or list first; gives the version reached after each event."""
        keys: set[str] | None = None if version else set()
        events = self._cluster.watch(
            source.api_version,
            source.kind,
            namespace=source.namespace,
            labels=source.labels,
            metadata_only=source.metadata_only,
            resource_version=version,
            timeout_s=WATCH_S,
        )
        for event in events:
            if self._closed.is_set():
                return
            if event.type != "BOOKMARK":
                self._queue.put(event)
                if keys is not None:
                    keys.add(key_of(event.object["metadata"]))
            elif event.is_initial_end and keys is not None:
                found = frozenset(keys)
                self._queue.put(Listed(source=source, keys=found, version=event.resource_version))
                keys = None
            # Before its end a list has no version from which a watch could go on.
            yield "" if keys is not None else event.resource_version or version
