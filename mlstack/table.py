"""The small decorated table behind protocols, readiness rules and output formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from mlstack.errors import NotFoundError
from mlstack.names import nearest

T = TypeVar("T")


class Table(Generic[T]):
    """Things registered under one or more names, where they are written."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._rows: dict[str, T] = {}

    def register(self, *names: str) -> Callable[[T], T]:
        """Give a decorator that enters a thing under `names` and returns it unchanged."""

        def enter(thing: T) -> T:
            for name in names:
                if name in self._rows:
                    raise ValueError(f"two entries claim the {self._what} `{name}`")
                self._rows[name] = thing
            return thing

        return enter

    def get(self, name: str) -> T | None:
        """Give the thing of that name, or nothing."""
        return self._rows.get(name)

    def find(self, name: str) -> T:
        """Give the thing of that name.

        Raises:
            NotFoundError: there is none; carries the nearest known name.
        """
        if name not in self._rows:
            known = ", ".join(f"`{known_name}`" for known_name in self.names())
            raise NotFoundError(f"no {self._what} `{name}`; known: {known}", near=nearest(name, self._rows))
        return self._rows[name]

    def names(self) -> tuple[str, ...]:
        """Give all names, sorted."""
        return tuple(sorted(self._rows))

    def __iter__(self) -> Iterator[tuple[str, T]]:
        return iter(sorted(self._rows.items(), key=lambda row: row[0]))

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __len__(self) -> int:
        return len(self._rows)
