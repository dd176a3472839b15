"""The heart of the simulator: actions on a heap, integer milliseconds, generators of chance from one seed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from heapq import heappop, heappush
from random import Random

Action = Callable[[], None]

START_MS = 1_000_000_000_000
"""When every simulation begins; any whole second that is not 1970 will do."""


class Kernel:
    """Virtual time: it jumps from one action to the next.

    Attributes:
        now_ms: the moment, in milliseconds since 1970.

    Args:
        seed: of everything that is left to chance.
    """

    def __init__(self, seed: int = 0) -> None:
        """Start at `START_MS` with nothing to do."""
        self.now_ms = START_MS
        self._seed = seed
        self._heap: list[tuple[int, int, Action]] = []
        self._count = 0

    @property
    def elapsed_ms(self) -> int:
        """Give the time since the start."""
        return self.now_ms - START_MS

    def generator(self, name: str) -> Random:
        """Give a generator of its own for a part of the simulator: its draws disturb no other part's."""
        return Random(f"{self._seed}/{name}")

    def at(self, time_ms: int, action: Action) -> None:
        """Do something at a moment, now if that has passed; what is due together keeps its order."""
        self._count += 1
        heappush(self._heap, (max(time_ms, self.now_ms), self._count, action))

    def after(self, delay_ms: int, action: Action) -> None:
        """Do something in a while."""
        self.at(self.now_ms + delay_ms, action)

    def run(self, until_ms: int) -> None:
        """Do all that is due up to and including a moment, and end there."""
        while self._heap and self._heap[0][0] <= until_ms:
            self.now_ms, _, action = heappop(self._heap)
            action()
        self.now_ms = max(self.now_ms, until_ms)


def timestamp(time_ms: int) -> str:
    """Write a time as the API server does: whole seconds."""
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
