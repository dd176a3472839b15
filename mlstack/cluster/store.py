"""The objects of a memory cluster, their versions, and what happened to them in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Obj = dict[str, Any]


def copied(value: Any) -> Any:
    """Copy a plain value all the way down; `copy.deepcopy`, which takes any, needs five times as long."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


@dataclass(frozen=True, order=True)
class Key:
    """What makes an object itself; the version of its API is no part of it."""

    group: str
    kind: str
    namespace: str
    name: str

    @property
    def of_kind(self) -> tuple[str, str]:
        """Give group and kind."""
        return self.group, self.kind


@dataclass(frozen=True, kw_only=True)
class Change:
    """One write: the object before and after, None where it was not or is no more."""

    version: int
    key: Key
    old: Obj | None
    new: Obj | None


@dataclass
class Store:
    """Objects by key; every write gets the next version.

    Attributes:
        objects: what there is; never changed in place.
        version: of the last write.
        log: the writes since `oldest`.
        oldest: a watch can go on from this version or a later one.
    """

    objects: dict[Key, Obj] = field(default_factory=dict)
    version: int = 0
    log: list[Change] = field(default_factory=list)
    oldest: int = 0

    def copy(self) -> Store:
        """Give a store that can be written to without changing this one; its log begins now."""
        return replace(self, objects=dict(self.objects), log=[])

    def get(self, key: Key) -> Obj | None:
        """Give an object, None where there is none."""
        return self.objects.get(key)

    def of_kind(self, group: str, kind: str, namespace: str | None = None) -> Iterator[tuple[Key, Obj]]:
        """Go through the objects of a kind in the order of their names."""
        found = (key for key in self.objects if key.of_kind == (group, kind))
        for key in sorted(key for key in found if namespace in (None, key.namespace)):
            yield key, self.objects[key]

    def put(self, key: Key, obj: Mapping[str, Any]) -> Obj:
        """Store an object under the next version and give it."""
        self.version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self.version)}
        new: Obj = copied({**obj, "metadata": metadata})
        self.log.append(Change(version=self.version, key=key, old=self.objects.get(key), new=new))
        self.objects[key] = new
        return new

    def remove(self, key: Key) -> Obj:
        """Remove an object and give it as it was, under the next version."""
        self.version += 1
        old = self.objects.pop(key)
        gone = {**old, "metadata": {**old["metadata"], "resourceVersion": str(self.version)}}
        self.log.append(Change(version=self.version, key=key, old=gone, new=None))
        return gone

    def compact(self) -> None:
        """Forget what happened so far: watches from before now have expired."""
        self.log.clear()
        self.oldest = self.version
