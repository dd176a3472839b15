"""A cluster that is cut off after so many writes: to what is there, the same as the death of the client."""

from __future__ import annotations

from threading import RLock
from typing import Any

from mlstack.errors import UnreachableError
from mlstack.testing.cluster import MemoryCluster

WRITES = frozenset({"apply", "create", "replace", "patch", "delete"})


class CutCluster:
    """Another cluster until a number of writes; after that nothing gets through any more.

    Args:
        cluster: what is behind it.
        writes: how many writes get through.
        answered: whether the last of them is still answered.
    """

    def __init__(self, cluster: MemoryCluster, *, writes: int, answered: bool) -> None:
        """Begin connected."""
        self._cluster, self._left, self._answered = cluster, writes, answered
        self._lock = RLock()

    def __getattr__(self, name: str) -> Any:
        """Give a method that goes through while the line holds."""
        method = getattr(self._cluster, name)

        def ask(*args: Any, **how: Any) -> Any:
            with self._lock:
                if self._left < 0:
                    raise UnreachableError("cut off")
                if name in WRITES and not how.get("dry_run"):
                    return self._write(method, *args, **how)
                return method(*args, **how)

        return ask

    def _write(self, method: Any, *args: Any, **how: Any) -> Any:
        self._left -= 1
        if self._left < 0 and not self._answered:
            raise UnreachableError("cut off")
        done = method(*args, **how)
        if self._left < 0:
            raise UnreachableError("cut off")
        return done
