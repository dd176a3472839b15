"""When the controller looks again: soon after something happened, and now and then in any case."""

from __future__ import annotations

from dataclasses import dataclass

DEBOUNCE_MS = 1_000
TICK_MS = 5_000


@dataclass(kw_only=True)
class Pace:
    """Says when the next pass is due; the same rule on a real clock and on a simulated one.

    Attributes:
        debounce_ms: how long news are gathered, from the first of them.
        tick_ms: longest time between two passes.
    """

    debounce_ms: int = DEBOUNCE_MS
    tick_ms: int = TICK_MS
    _heard_ms: int | None = None
    _passed_ms: int | None = None
    _due_ms: int | None = None

    def heard(self, now_ms: int) -> None:
        """Note that something happened."""
        if self._heard_ms is None:
            self._heard_ms = now_ms

    def passed(self, now_ms: int, due_ms: int | None = None) -> None:
        """Note that a pass has begun, with all that was heard before it.

        Args:
            now_ms: when it began.
            due_ms: when something known by then falls due (a back-off, a limit of time), None for nothing.
        """
        self._heard_ms, self._passed_ms, self._due_ms = None, now_ms, due_ms

    def next_ms(self) -> int:
        """Give when the next pass is due: 0, which is at once, before the first."""
        if self._passed_ms is None:
            return 0
        due = [self._passed_ms + self.tick_ms]
        if self._heard_ms is not None:
            due.append(self._heard_ms + self.debounce_ms)
        if self._due_ms is not None:
            due.append(max(self._due_ms, self._passed_ms + 1))
        return min(due)

    def is_due(self, now_ms: int) -> bool:
        """Tell whether a pass is due."""
        return now_ms >= self.next_ms()
