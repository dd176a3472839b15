"""A cluster that rides out what passes: an API server that restarts, or that is too busy for a while.

Every request of the port may be sent again: reading changes nothing, server-side apply and deletion by UID do
the same thing twice, and what must happen once carries a resourceVersion or fails with "already exists".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock
from typing import TypeVar

from mlstack.cluster.api import Cluster, WatchEvent
from mlstack.cluster.view import ClusterView
from mlstack.errors import ForbiddenError, MlstackError, ObjectNotFoundError, TransientError, UnreachableError
from mlstack.model.clock import Clock

T = TypeVar("T")

# An API server that is restarted is back in 4 to 40 s.
OUTAGE_S = 60.0
# How long a server may ask for patience before one request fails.
BUSY_S = 120.0
# Right after its start a server does not know all rights and kinds yet.
WARMING_UP_S = 5.0

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0


class PatientCluster(ClusterView):
    """Another cluster, asked again while it does not answer; the first answer ever must come at once.

    Args:
        cluster: what is asked.
        clock: for pauses.
        told: told in one sentence when waiting begins and when it ends.
        answered: whether the server is known to have answered already.
        webhook_s: how long a webhook may fail to answer.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        clock: Clock,
        told: Callable[[str], None],
        answered: bool = False,
        webhook_s: float = 0.0,
    ) -> None:
        """Hold the parts; nothing is asked."""
        super().__init__(cluster)
        self._webhook_s, self._clock, self._told = webhook_s, clock, told
        self._lock = Lock()
        self._answered = answered
        self._silent_since: float | None = None
        self._noticed_s = 0.0
        self._back_since: float | None = None
        self._busy = False

    def _asked(self, ask: Callable[[], T]) -> T:
        begun, pause = self._clock.now_s(), _FIRST_PAUSE_S
        while True:
            asked_s = self._clock.now_s()
            try:
                answer = ask()
            except UnreachableError as error:
                self._rides_out(error, asked_s)
            except TransientError as error:
                self._heard(asked_s)
                if self._clock.now_s() - begun >= (self._webhook_s if error.webhook else BUSY_S):
                    raise
                self._say_busy(error)
            except (ForbiddenError, ObjectNotFoundError) as error:
                self._heard(asked_s)
                if not (_may_be_early(error) and self._is_warming_up()):
                    raise
            except MlstackError:
                self._heard(asked_s)
                raise
            else:
                self._heard(asked_s)
                return answer
            self._clock.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _rides_out(self, error: UnreachableError, asked_s: float) -> None:
        """Return when it is worth to ask again."""
        with self._lock:
            if not self._answered:
                raise error
            first = self._silent_since is None
            if self._silent_since is None:
                self._silent_since, self._noticed_s = asked_s, self._clock.now_s()
            silent_s = self._clock.now_s() - self._silent_since
        if silent_s >= OUTAGE_S:
            raise error
        if first:
            self._told(f"the API server does not answer; trying again for {OUTAGE_S:.0f} s")

    def _heard(self, asked_s: float) -> None:
        """Take note of an answer; a late one, to what was asked before the silence, does not end it."""
        with self._lock:
            self._answered = True
            if self._silent_since is not None and asked_s < self._noticed_s:
                return
            was_silent, self._silent_since = self._silent_since is not None, None
            if was_silent:
                self._back_since = self._clock.now_s()
        if was_silent:
            self._told("the API server answers again")

    def _is_warming_up(self) -> bool:
        with self._lock:
            back = self._back_since
            return back is not None and self._clock.now_s() - back < WARMING_UP_S

    def _say_busy(self, error: TransientError) -> None:
        with self._lock:
            first, self._busy = not self._busy, True
        if first:
            self._told(error.message if error.webhook else f"the API server is busy: {error.message}")

    def _watched(self, begin: Callable[[], Iterator[WatchEvent]]) -> Iterator[WatchEvent]:
        """Hand events on; a watch that breaks ends, one that cannot begin is begun again."""

        def begun() -> tuple[WatchEvent | None, Iterator[WatchEvent]]:
            events = begin()
            return next(events, None), events

        first, rest = self._asked(begun)
        if first is not None:
            yield first
            yield from rest


def _may_be_early(error: ForbiddenError | ObjectNotFoundError) -> bool:
    """Tell whether a server that has just started may say this of something that is right."""
    if isinstance(error, ForbiddenError):
        return error.why in ("rights", "credentials")
    return error.what == "kind"
