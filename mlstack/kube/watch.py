"""Following kinds: list, watch, go on where a watch broke off, list anew once that is forgotten.

After a restart of an API server every watch ends like that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from threading import Condition, Thread
from typing import Any

from mlstack.dataclass import Record, dataclass
from mlstack.errors import MlstackError, WatchExpiredError
from mlstack.kube.client import Cluster, ObjectRef, WatchEvent

# How long the server keeps one watch open: then it is taken up again, so that no thread lives for ever.
WATCH_S = 30.0
# Events that come together are given together.
_TOGETHER_S = 0.1


@dataclass(frozen=True)
class WatchSource:
    """What one watch is about: a kind, in one `namespace` or in all (None), narrowed by a label selector."""

    api_version: str
    kind: str
    namespace: str | None = None
    labels: str = ""
    metadata_only: bool = False


class Listed(Record):
    """Word that everything there is has been told: nothing but `refs` is left of what was told before."""

    source: WatchSource
    refs: frozenset[ObjectRef]
    version: str


class Reflector:
    """Follows a kind over many watches, none of which lasts for ever.

    `version` is the place from which the next watch goes on; empty where it begins with a list.
    """

    def __init__(self, cluster: Cluster, source: WatchSource) -> None:
        self._cluster, self._source = cluster, source
        self.version = ""

    def watch(self, timeout_s: float) -> Iterator[WatchEvent | Listed]:
        """Watch once, from where the last watch ended; lists first where that is nowhere or forgotten.

        Gives every event, and `Listed` in place of the bookmark that ends a list. The iterator ends when the
        time is up, the connection breaks or the server forgot the place: call it again, after a pause.

        Raises:
            ClusterError: the cluster does not answer or refuses.
        """
        refs: set[ObjectRef] | None = None if self.version else set()
        asked = vars(self._source)
        events = self._cluster.watch(**asked, resource_version=self.version, timeout_s=timeout_s)
        try:
            for event in events:
                if refs is not None and event.is_initial_end:
                    self.version = event.resource_version
                    yield Listed(source=self._source, refs=frozenset(refs), version=self.version)
                    refs = None
                    continue
                # Before its end a list has no version from which a watch could go on.
                if refs is None:
                    self.version = event.resource_version or self.version
                elif event.type != "BOOKMARK":
                    refs.add(ObjectRef.of(event.object))
                yield event
        except WatchExpiredError:
            self.version = ""


@dataclass
class _Stream:
    """One watch as it goes on; the thread writes, others read under its lock."""

    source: WatchSource
    # What is there, as far as it is needed to tell that it is gone.
    known: dict[ObjectRef, dict[str, Any]] = field(default_factory=dict)
    has_listed: bool = False
    is_idle: bool = False
    error: MlstackError | None = None


class ResourceWatcher:
    """Many watches, each in a thread, as one stream of events; those that end rest until they are resumed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._streams: dict[WatchSource, _Stream] = {}
        self._events: list[WatchEvent] = []
        self._changed = Condition()
        self._closed = False

    def open(self, source: WatchSource) -> None:
        """Begin to watch, unless that goes on already."""
        with self._changed:
            if source in self._streams or self._closed:
                return
            stream = self._streams[source] = _Stream(source)
        Thread(target=self._follow, args=(stream,), name=f"watch {source.kind}", daemon=True).start()

    def collect(self, *, timeout_s: float) -> list[WatchEvent]:
        """Give what has happened; wait for it so long, or until no watch is open any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._all_idle(), timeout=timeout_s)
            self._changed.wait_for(self._all_idle, timeout=_TOGETHER_S)
            events, self._events = self._events, []
            return events

    @property
    def is_idle(self) -> bool:
        """Tell whether no watch is open: nothing can be heard before they are taken up again."""
        with self._changed:
            return self._all_idle()

    def resume(self) -> None:
        """Take up the watches that have ended."""
        with self._changed:
            for stream in self._streams.values():
                stream.is_idle = False
            self._changed.notify_all()

    def has_listed(self, source: WatchSource) -> bool:
        """Tell whether everything there is has been told once."""
        with self._changed:
            return source in self._streams and self._streams[source].has_listed

    def error(self, source: WatchSource) -> MlstackError | None:
        """Give what keeps a watch from going on."""
        with self._changed:
            return self._streams[source].error if source in self._streams else None

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
        return all(stream.is_idle for stream in self._streams.values())

    def _follow(self, stream: _Stream) -> None:
        reflector = Reflector(self._cluster, stream.source)
        while True:
            error: MlstackError | None = None
            try:
                for event in reflector.watch(WATCH_S):
                    if self._closed:
                        return
                    self._take(stream, event)
            except MlstackError as fault:
                error = fault
            except Exception as fault:  # a fault of ours must not end in silence: a thread has no caller
                error = MlstackError(f"watch of {stream.source.kind}: {fault!r}")
            with self._changed:
                stream.is_idle, stream.error = True, error
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._closed or not stream.is_idle)
                if self._closed:
                    return

    def _take(self, stream: _Stream, event: WatchEvent | Listed) -> None:
        with self._changed:
            if isinstance(event, Listed):
                for ref in [ref for ref in stream.known if ref not in event.refs]:
                    self._events.append(WatchEvent(type="DELETED", object=stream.known.pop(ref)))
                stream.has_listed, stream.error = True, None
            elif event.type != "BOOKMARK":
                ref = ObjectRef.of(event.object)
                stream.known.pop(ref, None)
                if event.type != "DELETED":
                    stream.known[ref] = {
                        key: event.object.get(key) for key in ("apiVersion", "kind", "metadata")
                    }
                self._events.append(event)
            self._changed.notify_all()
