"""When the next pass is due: soon after a change, when something falls due, and now and then anyway."""

from __future__ import annotations

from dataclasses import dataclass

DEBOUNCE_MS = 1_000
TICK_MS = 5_000


@dataclass(kw_only=True)
class RequeuePolicy:
    """Says when the next pass is due; the same rule on a real clock and on a simulated one."""

    debounce_ms: int = DEBOUNCE_MS  # how long changes are gathered, from the first of them
    tick_ms: int = TICK_MS  # longest time between two passes
    _changed_ms: int | None = None
    _started_ms: int | None = None
    _due_ms: int | None = None

    def changed(self, now_ms: int) -> None:
        """Note that something happened."""
        if self._changed_ms is None:
            self._changed_ms = now_ms

    def started(self, now_ms: int, due_ms: int | None = None) -> None:
        """Note that a pass has begun, with all that changed before it.

        `due_ms` is when something known by then falls due (a back-off, a limit of time), None for nothing.
        """
        self._changed_ms, self._started_ms, self._due_ms = None, now_ms, due_ms

    def next_ms(self) -> int:
        """Give when the next pass is due: 0, which is at once, before the first."""
        if self._started_ms is None:
            return 0
        due = [self._started_ms + self.tick_ms]
        if self._changed_ms is not None:
            due.append(self._changed_ms + self.debounce_ms)
        if self._due_ms is not None:
            due.append(max(self._due_ms, self._started_ms + 1))
        return min(due)

    def is_due(self, now_ms: int) -> bool:
        """Tell whether a pass is due."""
        return now_ms >= self.next_ms()
