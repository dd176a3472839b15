"""The time, as whoever waits is handed it, and as Kubernetes writes its finer times."""

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time and lets it pass."""

    def now_s(self) -> float:
        """Give the time in seconds since 1970."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return when so many seconds have passed."""
        ...


def micro_time(seconds: float) -> str:
    """Write a time since 1970 as leases and events have it (MicroTime): with exactly six decimals."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
