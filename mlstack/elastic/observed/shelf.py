"""Objects of one kind by name, each parsed once a version, deaf to what is older than what it knows."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from mlstack.elastic.observed.nodes import version
from mlstack.errors import ClusterError

# Watches that lag behind may tell of an object again for a while after it has gone.
_REMEMBERED = 20_000
_NEVER = sys.maxsize
ODD = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError)
"""What goes wrong with values of other types than an API promises."""


class Versioned(Protocol):
    """What is kept on a shelf: facts of one object in one version, as a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def uid(self) -> str:
        """Give the UID of the object."""
        ...

    @property
    def version(self) -> int:
        """Give the resource version."""
        ...


T = TypeVar("T", bound=Versioned)


class Shelf(Generic[T]):
    """Objects of one kind.

    News may come twice and late: from a watch, and before it from the answers to our own writes. The newest
    version wins, and what has gone stays gone, unless the selector of a watch lost sight of it for a while.

    Args:
        parse: reads an object.
    """

    def __init__(self, parse: Callable[[Mapping[str, Any]], T]) -> None:
        """Begin empty."""
        self._parse = parse
        self._items: dict[str, T] = {}
        self._gone: OrderedDict[str, int] = OrderedDict()

    def __iter__(self) -> Iterator[tuple[str, T]]:
        """Go through keys and facts, in no order that matters."""
        return iter(self._items.items())

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: str) -> T | None:
        """Give what is known under a key."""
        return self._items.get(key)

    def values(self) -> Iterable[T]:
        """Give all facts."""
        return self._items.values()

    def put(self, obj: Mapping[str, Any]) -> bool:
        """Take in an object as it is now; says whether that was news: heartbeats are none."""
        metadata = obj["metadata"]
        key, number = key_of(metadata), version(metadata)
        known = self._items.get(key)
        is_old = known is not None and 0 < number <= known.version
        if is_old or number <= self._gone.get(str(metadata.get("uid")), -1):
            return False
        try:
            item = self._items[key] = self._parse(obj)
        except ODD as error:
            said = f"{obj.get('kind', 'object')} {key}".strip()
            raise ClusterError(
                f"`{said}` cannot be judged: a field has another type than its API gives it"
            ) from error
        return known is None or replace(known, version=item.version) != item

    def drop(self, obj: Mapping[str, Any]) -> bool:
        """Take in that an object has gone; says whether that was news."""
        metadata = obj["metadata"]
        self._bury(str(metadata.get("uid") or ""), version(metadata) or _NEVER)
        known = self._items.get(key_of(metadata))
        if known is None or (metadata.get("uid") and known.uid != metadata["uid"]):
            return False
        del self._items[key_of(metadata)]
        return True

    def replace(self, objects: Iterable[Mapping[str, Any]], listed: int) -> bool:
        """Take in a list; what it lacks has gone, unless it is newer than the list.

        Args:
            objects: all there were.
            listed: resource version of the list.
        """
        found = {key_of(obj["metadata"]): obj for obj in objects}
        has_gone = self.keep(found.keys(), listed)
        return any([self.put(obj) for obj in found.values()]) or has_gone

    def keep(self, keys: Container[str], listed: int, *, namespace: str | None = None) -> bool:
        """Take in what there is; the rest has gone, unless it is newer than the list.

        Args:
            keys: of all there is.
            listed: resource version of the list.
            namespace: the one that was listed, None for all.
        """
        gone = [
            key
            for key, item in self._items.items()
            if key not in keys
            and item.version <= listed
            and (namespace is None or key.startswith(f"{namespace}/"))
        ]
        for key in gone:
            self._bury(self._items.pop(key).uid, listed)
        return bool(gone)

    def _bury(self, uid: str, gone: int) -> None:
        """Remember up to which version news of an object are late."""
        if uid:
            self._gone[uid] = max(gone, self._gone.get(uid, 0))
        while len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)


def key_of(metadata: Mapping[str, Any]) -> str:
    """Give `namespace/name`, or the name alone of what has no namespace."""
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])
