"""Watches of many kinds at once, each in a thread of its own, as one stream of news.

A watch that breaks is taken up where it was; where the server no longer knows that place, what there is is
listed again and what has gone meanwhile is told. After a restart of an API server every watch ends like that.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Literal

from mlstack.cluster.api import Cluster, ObjectRef, Source, WatchEvent
from mlstack.errors import MlstackError, WatchExpiredError
from mlstack.model.readiness.relatives import Data

# How long the server keeps one watch open: then it is taken up again, so that no thread lives for ever.
WATCH_S = 30.0
# What is kept of each object, to tell that it is gone.
_WHO = ("apiVersion", "kind", "metadata")
# News that come together are told together.
_TOGETHER_S = 0.1


@dataclass(frozen=True)
class News:
    """One object that has changed.

    Attributes:
        source: where it was seen.
        what: `put` with the object as it is, `drop` with the object as it was.
        data: the object.
    """

    source: Source
    what: Literal["put", "drop"]
    data: Data


@dataclass
class _Stream:
    """One watch as it goes on; the thread writes, others read under the feed's lock."""

    source: Source
    version: str = ""
    known: dict[ObjectRef, Data] = field(default_factory=dict)
    synced: bool = False
    idle: bool = False
    error: MlstackError | None = None


class Feed:
    """News of a cluster.

    Args:
        cluster: what is watched.
    """

    def __init__(self, cluster: Cluster) -> None:
        """Watch nothing yet."""
        self._cluster = cluster
        self._streams: dict[Source, _Stream] = {}
        self._news: list[News] = []
        self._changed = Condition()
        self._closed = False

    def open(self, source: Source) -> None:
        """Begin to watch, unless that goes on already."""
        with self._changed:
            if source in self._streams or self._closed:
                return
            stream = self._streams[source] = _Stream(source)
        Thread(target=self._follow, args=(stream,), name=f"watch {source.kind}", daemon=True).start()

    def collect(self, *, timeout_s: float) -> list[News]:
        """Give what has happened; wait for it so long, or until no watch is open any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._news or self._all_idle(), timeout=timeout_s)
            self._changed.wait_for(self._all_idle, timeout=_TOGETHER_S)
            news, self._news = self._news, []
            return news

    @property
    def is_idle(self) -> bool:
        """Tell whether no watch is open: nothing can be heard before they are taken up again."""
        with self._changed:
            return self._all_idle()

    def resume(self) -> None:
        """Take up the watches that have ended."""
        with self._changed:
            for stream in self._streams.values():
                stream.idle = False
            self._changed.notify_all()

    def has_listed(self, source: Source) -> bool:
        """Tell whether everything there is has been told once."""
        with self._changed:
            found = self._streams.get(source)
            return found is not None and found.synced

    def error(self, source: Source) -> MlstackError | None:
        """Give what keeps a watch from going on."""
        with self._changed:
            found = self._streams.get(source)
            return found.error if found is not None else None

    def errors(self) -> list[MlstackError]:
        """Give what keeps watches from going on."""
        with self._changed:
            return [stream.error for stream in self._streams.values() if stream.error is not None]

    def close(self) -> None:
        """Hear nothing more; threads end with their watches."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _all_idle(self) -> bool:
        return all(stream.idle for stream in self._streams.values())

    def _follow(self, stream: _Stream) -> None:
        while not self._closed:
            error: MlstackError | None = None
            try:
                self._watch(stream)
            except WatchExpiredError:
                stream.version = ""
            except MlstackError as found:
                error = found
            except Exception as found:  # a fault of ours must not end in silence: a thread has no caller
                error = MlstackError(f"watch of {stream.source.kind}: {found!r}")
            self._rest(stream, error)

    def _watch(self, stream: _Stream) -> None:
        source, gone = stream.source, {} if stream.version else dict(stream.known)
        is_list = not stream.version
        events: Iterator[WatchEvent] = self._cluster.watch(
            source.api_version,
            source.kind,
            namespace=source.namespace,
            labels=source.labels,
            metadata_only=source.metadata_only,
            resource_version=stream.version,
            timeout_s=WATCH_S,
        )
        for event in events:
            if self._closed:
                return
            if event.type != "BOOKMARK":
                gone.pop(ObjectRef.of(event.object), None)
                self._tell(stream, event)
            elif event.is_initial_end:
                self._listed(stream, gone)
                is_list = False
            if not is_list:
                stream.version = event.resource_version or stream.version

    def _tell(self, stream: _Stream, event: WatchEvent) -> None:
        ref = ObjectRef.of(event.object)
        with self._changed:
            if event.type == "DELETED":
                stream.known.pop(ref, None)
            else:
                stream.known[ref] = {name: event.object.get(name) for name in _WHO}
            self._news.append(News(stream.source, "drop" if event.type == "DELETED" else "put", event.object))
            self._changed.notify_all()

    def _listed(self, stream: _Stream, gone: dict[ObjectRef, Data]) -> None:
        """Note that everything was told, and tell what is not there any more."""
        with self._changed:
            for ref, data in gone.items():
                stream.known.pop(ref, None)
                self._news.append(News(stream.source, "drop", data))
            stream.synced, stream.error = True, None
            self._changed.notify_all()

    def _rest(self, stream: _Stream, error: MlstackError | None) -> None:
        """Wait until somebody wants the watch to go on."""
        with self._changed:
            stream.idle, stream.error = True, error
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed or not stream.idle)
