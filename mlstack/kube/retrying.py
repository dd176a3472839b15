"""The one back-off, and what stands around a client: one that retries, and one whose writes are fenced.

Every request may be sent again: reading changes nothing, server-side apply and deletion by UID do the same
thing twice, and what must happen once carries a resourceVersion or fails with "already exists".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from threading import Lock
from typing import Any

from mlstack.clock import Clock
from mlstack.errors import (
    ConflictError,
    ForbiddenError,
    MlstackError,
    ObjectNotFoundError,
    TransientError,
    UnreachableError,
)
from mlstack.events import STILL_S
from mlstack.kube.client import WRITES, Applied, ClientWrapper, Cluster, ObjectRef, WatchEvent, written

# An API server that is restarted is back in 4 to 40 s.
OUTAGE_S = 60.0
# How long a server may ask for patience before one request fails.
BUSY_S = 120.0
# Right after its start a server does not know all rights and kinds yet.
WARMING_UP_S = 5.0


def backoff(first_s: float, longest_s: float) -> Iterator[float]:
    """Give pauses without end, in seconds: each twice as long as the one before, up to the longest."""
    pause_s = first_s
    while True:
        yield pause_s
        pause_s = min(pause_s * 2, longest_s)


class RetryingClient(ClientWrapper):
    """Another client, asked again while it does not answer; the first answer ever must come at once.

    Args:
        cluster: what is asked.
        clock: for pauses.
        notify: told in one sentence when waiting begins and when it ends.
        answered: whether the server is known to have answered already.
        webhook_s: how long a webhook may fail to answer.
        timeout_s: how long anything at all is waited for at most.
        remind: told every `STILL_S` what is waited for.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        clock: Clock,
        notify: Callable[[str], None],
        answered: bool = False,
        webhook_s: float = 0.0,
        timeout_s: float = inf,
        remind: Callable[[str], None] = lambda text: None,
    ) -> None:
        super().__init__(cluster)
        self._outage_s, self._busy_s = min(OUTAGE_S, timeout_s), min(BUSY_S, timeout_s)
        self._webhook_s, self._clock, self._notify = min(webhook_s, timeout_s), clock, notify
        self._lock = Lock()
        self._remind, self._reminded_s = remind, -inf
        self._has_answered, self._is_busy = answered, False
        self._silent_since: float | None = None
        self._noticed_s, self._back_s = 0.0, -inf

    def _call(self, verb: str, *args: Any, first: Callable[[], Any] | None = None, **named: Any) -> Any:
        """Ask until there is an answer; what is there because an earlier try was heard is created."""
        ask = first or partial(getattr(self._cluster, verb), *args, **named)
        if verb in ("expect", "logs"):  # logs are not worth any patience
            return ask()
        if verb == "watch" and first is None:
            return self._watch(ask)
        begun_s, was_silent = self._clock.now_s(), False
        for pause_s in backoff(0.1, 1.0):
            asked_s = self._clock.now_s()
            try:
                answer = ask()
            except UnreachableError as error:
                was_silent = True
                self._ride_out(error, asked_s)
            except TransientError as error:
                self._note_answer(asked_s)
                if self._clock.now_s() - begun_s >= (self._webhook_s if error.webhook else self._busy_s):
                    raise
                self._say_busy(error)
            except MlstackError as error:
                self._note_answer(asked_s)
                if (
                    verb == "create"
                    and not named.get("dry_run")
                    and was_silent
                    and isinstance(error, ConflictError)
                ):
                    live = written(self._cluster, ObjectRef.of(args[0]), args[0])
                    if live is not None:
                        return Applied(object=live, created=True)
                if not self._may_be_early(error):
                    raise
            else:
                self._note_answer(asked_s)
                return answer
            self._remind_of_waiting(begun_s)
            self._clock.sleep(pause_s)
        return None  # pragma: no cover # pauses have no end

    def _watch(self, begin: Callable[[], Iterator[WatchEvent]]) -> Iterator[WatchEvent]:
        """Hand events on; a watch that breaks ends, one that cannot begin is begun again."""

        def first_event() -> tuple[WatchEvent | None, Iterator[WatchEvent]]:
            events = begin()
            return next(events, None), events

        event, rest = self._call("watch", first=first_event)
        if event is not None:
            yield event
            yield from rest

    def _ride_out(self, error: UnreachableError, asked_s: float) -> None:
        """Return when it is worth to ask again."""
        with self._lock:
            if not self._has_answered:
                raise error
            is_new = self._silent_since is None
            if self._silent_since is None:
                self._silent_since, self._noticed_s = asked_s, self._clock.now_s()
            silent_s = self._clock.now_s() - self._silent_since
        if silent_s >= self._outage_s:
            raise error
        if is_new:
            self._notify(f"the API server does not answer; trying again for {self._outage_s:.0f} s")

    def _say_busy(self, error: TransientError) -> None:
        with self._lock:
            is_new, self._is_busy = not self._is_busy, True
        if is_new:
            self._notify(error.message if error.webhook else f"the API server is busy: {error.message}")

    def _remind_of_waiting(self, begun_s: float) -> None:
        """Say again what is waited for if nobody has for long; once for all that wait."""
        with self._lock:
            now_s = self._clock.now_s()
            is_due = now_s - max(self._reminded_s, begun_s) >= STILL_S
            if is_due:
                self._reminded_s = now_s
            away = self._silent_since is not None
        if is_due:
            self._remind(f"until the API server {'answers' if away else 'or a webhook is ready'}")

    def _note_answer(self, asked_s: float) -> None:
        """Take note of an answer; a late one, to what was asked before the silence, does not end it."""
        with self._lock:
            self._has_answered = True
            if self._silent_since is None or asked_s < self._noticed_s:
                return
            self._silent_since, self._back_s = None, self._clock.now_s()
        self._notify("the API server answers again")

    def _may_be_early(self, error: MlstackError) -> bool:
        """Tell whether a server that has just started may say this of something that is right."""
        if self._clock.now_s() - self._back_s >= WARMING_UP_S:
            return False
        if isinstance(error, ForbiddenError):
            return error.why in ("rights", "credentials")
        return isinstance(error, ObjectNotFoundError) and error.what == "kind"


class FencedClient(ClientWrapper):
    """Another client; before each write `check` may raise, and `deleted` hears what will be deleted."""

    def __init__(
        self, cluster: Cluster, check: Callable[[], None], deleted: Callable[[ObjectRef], None]
    ) -> None:
        super().__init__(cluster)
        self._check, self._deleted = check, deleted

    def _call(self, verb: str, *args: Any, **named: Any) -> Any:
        if verb in WRITES and not named.get("dry_run"):
            self._check()
            if verb == "delete":
                self._deleted(args[0])
        return getattr(self._cluster, verb)(*args, **named)
