"""A cluster that remembers what was asked of it."""

from __future__ import annotations

from collections import Counter
from threading import Lock
from typing import Any

from mlstack.kube.client import Cluster


class Counted:
    """Passes everything on to a cluster and counts the verbs.

    Args:
        cluster: who answers.

    Attributes:
        asked: number of calls of each verb; dry runs are `dry run`, metadata lists `metadata`.
        written: names of the objects that were written.
    """

    def __init__(self, cluster: Cluster) -> None:
        """Begin with nothing asked."""
        self._cluster, self._lock = cluster, Lock()
        self.asked: Counter[str] = Counter()
        self.written: list[str] = []

    def __getattr__(self, verb: str) -> Any:
        """Give a verb of the cluster, counted."""
        real = getattr(self._cluster, verb)
        if not callable(real) or verb == "expect":  # which asks nothing
            return real

        def counted(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                self._count(verb, args, kwargs)
            return real(*args, **kwargs)

        return counted

    def _count(self, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if kwargs.get("dry_run"):
            self.asked["dry run"] += 1
        elif kwargs.get("metadata_only"):
            self.asked["metadata"] += 1
        else:
            self.asked[verb] += 1
            if verb in ("apply", "patch", "create", "replace", "delete"):
                self.written.append(_name(args[0]))

    @property
    def total(self) -> int:
        """Give how often the cluster was asked anything."""
        return sum(self.asked.values())


def _name(target: Any) -> str:
    return str(target["metadata"]["name"]) if isinstance(target, dict) else str(target.name)
