"""Clocks on which nobody waits any longer once a run is stopped."""

from threading import Event

from mlstack.errors import MlstackError
from mlstack.model.clock import Clock


class StoppedClock:
    """A clock on which nobody can wait any more once the run is stopped."""

    def __init__(self, clock: Clock, stopped: Event) -> None:
        self._clock, self._stopped = clock, stopped

    def now_s(self) -> float:
        """Give the time in seconds since 1970."""
        return self._clock.now_s()

    def sleep(self, seconds: float) -> None:
        """Let time pass, unless the run is stopped."""
        if self._stopped.is_set():
            raise MlstackError("stopped while waiting")
        self._clock.sleep(seconds)


class EndedClock(StoppedClock):
    """A clock that does not even tell the time once the run is stopped: it ends what only looks."""

    def now_s(self) -> float:
        """Give the time in seconds since 1970, unless the run is stopped."""
        if self._stopped.is_set():
            raise MlstackError("stopped while waiting")
        return super().now_s()
