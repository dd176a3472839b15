"""The same told about a job again: not a new event each time, but a series on the one that is there.

As client-go's broadcaster has it: what happens again within six minutes is the same event, and its series
counts it, so that `kubectl get events -o wide` and `kubectl describe` show how often it was. A series begins
at once and is then written once a minute at the most. What lasts rather than happens, such as waiting for
room, is not counted while it lasts; every half an hour its event is written again, since the server forgets
events after an hour. A new leader, who does not know that event, writes one of its own after that time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mlstack.model.clock import micro_time

SAME_MS = 360_000
"""So long after the last time it is something new again."""

PAUSE_MS = 60_000
"""A series that has begun is not written more often."""

REFRESH_MS = 1_800_000
"""What lasts is written again so often."""

MOST = 50
"""So many different things are remembered of one job."""

Key = tuple[str, str]
"""A reason, and the text where that matters."""


@dataclass
class Series:
    """How often the same was told.

    Attributes:
        event: name of its event, empty for one of a leader before.
        last_ms: when it was heard last.
        sent_ms: when it was written last.
        count: how often it happened.
        sent: how often it had happened when it was written last.
    """

    event: str
    last_ms: int
    sent_ms: int
    count: int = 1
    sent: int = 1

    @property
    def body(self) -> dict[str, Any]:
        """Give the merge patch of the event."""
        return {"series": {"count": self.count, "lastObservedTime": micro_time(self.last_ms / 1000)}}

    def hear(self, now_ms: int, *, lasts: bool) -> None:
        """Note that it is told again; what one pass says several times counts once."""
        if now_ms > self.last_ms and (not lasts or now_ms - self.sent_ms >= REFRESH_MS):
            self.count += 1
        self.last_ms = now_ms


@dataclass
class Told:
    """What was told of one job lately.

    Attributes:
        known: by what was told.
        is_new: whether nothing was ever told by this leader.
    """

    known: dict[Key, Series] = field(default_factory=dict)
    is_new: bool = True

    def take_over(self, key: Key, now_ms: int) -> None:
        """Take note of what a leader before has told; a new event tells it when it would be written again."""
        self.is_new = False
        self.known[key] = Series("", last_ms=now_ms, sent_ms=now_ms)

    def is_news(self, key: Key, event: str, now_ms: int, *, lasts: bool = False) -> bool:
        """Tell whether something was not told a short while ago, and take note of it.

        Args:
            key: what is told.
            event: name of the event that is written if it is news.
            now_ms: the time.
            lasts: whether this is a state, told again and again while it lasts.
        """
        self.is_new = False
        for old in [old for old, series in self.known.items() if now_ms - series.last_ms >= SAME_MS]:
            del self.known[old]
        series = self.known.get(key)
        if series is not None and (series.event or now_ms - series.sent_ms < REFRESH_MS):
            series.hear(now_ms, lasts=lasts)
            return False
        if len(self.known) >= MOST:
            del self.known[min(self.known, key=lambda each: self.known[each].last_ms)]
        self.known[key] = Series(event, last_ms=now_ms, sent_ms=now_ms)
        return True

    def due(self, now_ms: int) -> Iterator[tuple[Key, Series]]:
        """Give the series that are to be written now; they count as written."""
        for key, series in self.known.items():
            is_time = series.sent == 1 or now_ms - series.sent_ms >= PAUSE_MS
            if series.count > series.sent and is_time:
                series.sent, series.sent_ms = series.count, now_ms
                yield key, series

    def forget(self, event: str) -> None:
        """Begin anew with an event that the server has forgotten."""
        self.known = {key: series for key, series in self.known.items() if series.event != event}
