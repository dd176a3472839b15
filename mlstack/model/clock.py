"""The time, as whoever waits is handed it."""

from typing import Protocol


class Clock(Protocol):
    """Tells the time and lets it pass."""

    def now_s(self) -> float:
        """Give the time in seconds since 1970."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return when so many seconds have passed."""
        ...
