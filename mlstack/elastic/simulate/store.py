"""The objects of a simulated cluster, with resource versions, and the events that others hear a moment later.

Objects are never changed in place: a write makes a new one, so that whoever holds an older one keeps that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from mlstack.cluster.api import EventType, WatchEvent
from mlstack.elastic.simulate.kernel import Kernel, timestamp

Obj = dict[str, Any]
Name = tuple[str, str]
Hear = Callable[[WatchEvent], None]

LAG_MS, JITTER_MS = 50, 20


class Feed:
    """What one watcher hears, in order, each event after a delay of its own.

    Args:
        kernel: the time.
        kinds: kinds of object that it hears of.
        hear: is called with each event.
        chance: jitter of the delay; None for no delay at all.
    """

    def __init__(self, kernel: Kernel, kinds: Sequence[str], hear: Hear, chance: Random | None) -> None:
        """Hear nothing yet."""
        self._kernel = kernel
        self._kinds = frozenset(kinds)
        self._hear = hear
        self._chance = chance
        self._last_ms = 0
        self.is_open = True

    def close(self) -> None:
        """Hear no more, not even of what is on its way."""
        self.is_open = False

    def send(self, kind: str, event: WatchEvent) -> None:
        """Put an event on its way."""
        if kind not in self._kinds or not self.is_open:
            return
        if self._chance is None:
            self._hear(event)
            return
        delay = LAG_MS + self._chance.randint(-JITTER_MS, JITTER_MS)
        self._last_ms = max(self._last_ms, self._kernel.now_ms + delay)
        self._kernel.at(self._last_ms, lambda: self._arrive(event))

    def _arrive(self, event: WatchEvent) -> None:
        if self.is_open:
            self._hear(event)


class Store:
    """Objects by kind, namespace and name.

    Args:
        kernel: the time.
    """

    def __init__(self, kernel: Kernel) -> None:
        """Start empty."""
        self._kernel = kernel
        self._objects: dict[str, dict[Name, Obj]] = {}
        self._feeds: list[Feed] = []
        self.version = 0

    def get(self, kind: str, name: str, namespace: str = "") -> Obj | None:
        """Give one object, None if it is not there."""
        return self._objects.get(kind, {}).get((namespace, name))

    def all(self, kind: str) -> list[Obj]:
        """Give all objects of a kind, in the order in which they were made."""
        return list(self._objects.get(kind, {}).values())

    def current(self, obj: Mapping[str, Any]) -> Obj | None:
        """Give an object as it is now, None if it is gone or another one has its name."""
        found = self.get(obj["kind"], *_name(obj)[::-1])
        return found if found and found["metadata"]["uid"] == obj["metadata"]["uid"] else None

    def write(self, obj: Mapping[str, Any]) -> Obj:
        """Make an object, or put it in place of the one of its name; the same one again changes nothing."""
        kind, name = str(obj["kind"]), _name(obj)
        known = self._objects.setdefault(kind, {})
        old = known.get(name)
        if old is not None and _is_same(old, obj):
            return old
        self.version += 1
        metadata = {
            **(_birth(old) if old else self._born()),
            **obj["metadata"],
            "resourceVersion": str(self.version),
        }
        known[name] = {**obj, "metadata": metadata}
        self._tell("MODIFIED" if old else "ADDED", known[name])
        return known[name]

    def remove(self, obj: Mapping[str, Any]) -> None:
        """Take an object away; nothing happens if it is gone already."""
        gone = self._objects.get(str(obj["kind"]), {}).pop(_name(obj), None)
        if gone is not None:
            self.version += 1
            metadata = {**gone["metadata"], "resourceVersion": str(self.version)}
            self._tell("DELETED", {**gone, "metadata": metadata})

    def watch(self, kinds: Sequence[str], hear: Hear, *, name: str = "") -> Feed:
        """Hear of everything there is, then of every change.

        Args:
            kinds: kinds of object.
            hear: is called with each event.
            name: of the watcher, for the jitter of its delay; without one there is no delay.
        """
        chance = self._kernel.generator(f"watch/{name}") if name else None
        feed = Feed(self._kernel, kinds, hear, chance)
        self._feeds = [each for each in self._feeds if each.is_open]
        self._feeds.append(feed)
        for kind in kinds:
            for obj in self.all(kind):
                feed.send(kind, WatchEvent(type="ADDED", object=obj))
        return feed

    def _born(self) -> Obj:
        uid = f"00000000-0000-4000-8000-{self.version:012d}"
        return {"uid": uid, "creationTimestamp": timestamp(self._kernel.now_ms)}

    def _tell(self, change: EventType, obj: Obj) -> None:
        event = WatchEvent(type=change, object=obj)
        for feed in self._feeds:
            feed.send(obj["kind"], event)


def _name(obj: Mapping[str, Any]) -> Name:
    metadata = obj["metadata"]
    return (metadata.get("namespace") or "", metadata["name"])


def _birth(old: Obj) -> Obj:
    return {name: old["metadata"][name] for name in ("uid", "creationTimestamp")}


def _is_same(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    rest = {name: value for name, value in new.items() if name != "metadata"}
    if any(old.get(name) != value for name, value in rest.items()) or len(rest) != len(old) - 1:
        return False
    one, other = dict(old["metadata"]), dict(new["metadata"])
    for volatile in ("resourceVersion", "uid", "creationTimestamp"):
        one.pop(volatile, None)
        other.pop(volatile, None)
    return one == other


def changed(obj: Mapping[str, Any], **parts: Mapping[str, Any]) -> Obj:
    """Give an object with some fields of its metadata, spec or status replaced."""
    return {**obj, **{part: {**(obj.get(part) or {}), **fields} for part, fields in parts.items()}}
