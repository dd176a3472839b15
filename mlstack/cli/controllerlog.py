"""What the elastic controller says while it runs: lines with their time, on stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlstack.cli.output import say

if TYPE_CHECKING:
    from mlstack.elastic.controller.metrics import Metrics
    from mlstack.elastic.controller.reconciler import Pass

LEVELS = ("error", "info", "debug")


class Log:
    """Says on stderr what the controller does, one line with its time each, and hands on to the metrics."""

    def __init__(self, level: str, metrics: Metrics | None) -> None:
        self._level, self._metrics = LEVELS.index(level), metrics

    def say(self, text: str) -> None:
        """Say a line: whoever reads it later needs the time."""
        from datetime import UTC, datetime

        say(f"{datetime.now(UTC).strftime('%Y-%m-%dT%H:%M:%SZ')} {text}")

    def observe_loop(self, *, is_leading: bool, is_synced: bool) -> None:
        """Take note that the loop goes round."""
        if self._metrics is not None:
            self._metrics.observe_loop(is_leading=is_leading, is_synced=is_synced)

    def observe_pass(self, done: Pass, *, seconds: float) -> None:
        """Take note of a pass, and say what happened to jobs."""
        if self._metrics is not None:
            self._metrics.observe_pass(done, seconds=seconds)
        if self._level >= LEVELS.index("info"):
            for event in done.events:
                self.say(f"{event.job} {event.reason}: {event.text}")
        if self._level >= LEVELS.index("debug"):
            for action in done.actions:
                self.say(str(action))

    def observe_failure(self, error: Exception) -> None:
        """Take note of a pass that failed."""
        if self._metrics is not None:
            self._metrics.observe_failure(error)
