"""A cluster that rides out what passes: an API server that restarts, or that is too busy for a while.

Every request of the port may be sent again: reading changes nothing, server-side apply and deletion by UID do
the same thing twice, and what must happen once carries a resourceVersion or fails with "already exists".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import inf
from threading import Lock
from typing import Any, TypeVar

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
from mlstack.kube.api_server import written
from mlstack.kube.client import Applied, ClientWrapper, Cluster, ObjectRef, WatchEvent
from mlstack.objects.kube_object import MANAGER

# --- A cluster that rides out what passes: an API server that restarts, or that is too busy for a
# while
# Every request of the port may be sent again: reading changes nothing, server-side apply and deletion by
# UID do the same thing twice, and what must happen once carries a resourceVersion or fails with "already
# exists".

# An API server that is restarted is back in 4 to 40 s.
OUTAGE_S = 60.0
# How long a server may ask for patience before one request fails.
BUSY_S = 120.0
# Right after its start a server does not know all rights and kinds yet.
WARMING_UP_S = 5.0

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0


class RetryingClient(ClientWrapper):
    """Another cluster, asked again while it does not answer; the first answer ever must come at once.

    Args:
        cluster: what is asked.
        clock: for pauses.
        told: told in one sentence when waiting begins and when it ends.
        answered: whether the server is known to have answered already.
        webhook_s: how long a webhook may fail to answer.
        timeout_s: how long anything at all is waited for at most.
        still: told every `STILL_S` what is waited for.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        clock: Clock,
        told: Callable[[str], None],
        answered: bool = False,
        webhook_s: float = 0.0,
        timeout_s: float = inf,
        still: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Hold the parts; nothing is asked."""
        super().__init__(cluster)
        self._outage_s, self._busy_s = min(OUTAGE_S, timeout_s), min(BUSY_S, timeout_s)
        self._webhook_s, self._clock, self._told = min(webhook_s, timeout_s), clock, told
        self._lock = Lock()
        self._still, self._still_s = still, -inf
        self._answered = answered
        self._silent_since: float | None = None
        self._noticed_s = 0.0
        self._back_since: float | None = None
        self._busy = False

    def create(self, obj: Mapping[str, Any], *, manager: str = MANAGER, dry_run: bool = False) -> Applied:
        """Create an object; what is there because an earlier try was heard is created."""
        was_silent = False

        def create() -> Applied:
            nonlocal was_silent
            try:
                return self._cluster.create(obj, manager=manager, dry_run=dry_run)
            except UnreachableError:
                was_silent = True
                raise
            except ConflictError:
                live = None if dry_run or not was_silent else written(self._cluster, ObjectRef.of(obj), obj)
                if live is None:
                    raise
                return Applied(object=live, warnings=(), created=True)

        return self._written(create, dry_run=dry_run)

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
                if self._clock.now_s() - begun >= (self._webhook_s if error.webhook else self._busy_s):
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
            self._say_still(begun)
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
        if silent_s >= self._outage_s:
            raise error
        if first:
            self._told(f"the API server does not answer; trying again for {self._outage_s:.0f} s")

    def _say_still(self, begun_s: float) -> None:
        """Say again what is waited for if nobody has for long; once for all that wait."""
        with self._lock:
            now_s = self._clock.now_s()
            is_due = now_s - max(self._still_s, begun_s) >= STILL_S
            if is_due:
                self._still_s = now_s
            away = self._silent_since is not None
        if is_due:
            self._still(
                "until the API server answers" if away else "until the API server or a webhook is ready"
            )

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


# --- A cluster whose writes are checked first: whoever lost the right to write stops before the
# next one

T = TypeVar("T")


class FencedClient(ClientWrapper):
    """Another cluster, with a question before each write; dry runs and reading go straight through.

    Args:
        cluster: what is written to.
        check: called before each write; raises when there must be none.
        deleted: told what is about to be deleted, after the check.
    """

    def __init__(
        self, cluster: Cluster, check: Callable[[], None], deleted: Callable[[ObjectRef], None]
    ) -> None:
        """Hold the parts."""
        super().__init__(cluster)
        self._check, self._deleted = check, deleted

    def _written(self, write: Callable[[], T], *, dry_run: bool, deletes: ObjectRef | None = None) -> T:
        if not dry_run:
            self._check()
            if deletes is not None:
                self._deleted(deletes)
        return super()._written(write, dry_run=dry_run, deletes=deletes)
