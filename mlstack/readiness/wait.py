"""When a person is told what objects wait for: soon, once, and not of what only passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from mlstack.clock import Clock
from mlstack.events import STILL_S, OnEvent, RunEvent, RunEventKind
from mlstack.objects.kube_object import Identity
from mlstack.readiness.rule import Readiness

# A reason that passes sooner is not worth a line.
SAY_AFTER_S = 2.0
# A reason that changes all the time, as a count does, is told so often all the same.
SAY_EVERY_S = 10.0
# So many objects with the same reason share a line.
TOGETHER = 3
_NAMED = 3


@dataclass
class WaitReporter:
    """Tells what objects wait for: once a reason has stayed for a moment, and only when it is a new one."""

    clock: Clock
    on_event: OnEvent
    _seen: dict[Identity, tuple[str, float]] = field(default_factory=dict)
    _told: dict[Identity, tuple[str, float]] = field(default_factory=dict)
    _told_s: float | None = None

    def say(self, text: str, kind: RunEventKind = "pending") -> None:
        """Tell something about the run as a whole."""
        self.on_event(RunEvent(kind, None, text))

    def tell(self, waiting: Mapping[Identity, Readiness]) -> None:
        """Take what waits now, and tell what is new and has stayed; all of it where nothing is for long."""
        due, now_s = list(self._due(waiting)), self.clock.now_s()
        self._tell_reasons(waiting, due, "pending")
        if self._told_s is None or due:
            self._told_s = now_s
        elif now_s - self._told_s >= STILL_S:
            self._told_s = now_s
            self._tell_reasons(waiting, waiting, "still")

    def _tell_reasons(
        self, waiting: Mapping[Identity, Readiness], due: Iterable[Identity], kind: RunEventKind
    ) -> None:
        reasons: dict[str, list[Identity]] = {}
        for who in due:
            reasons.setdefault(waiting[who].reason or waiting[who].state, []).append(who)
        for reason, names in reasons.items():
            if len(names) > TOGETHER:
                some = ", ".join(str(who) for who in names[:_NAMED])
                self.say(f"{len(names)} objects ({some} …): {reason}", kind)
                continue
            for who in names:
                self.on_event(RunEvent(kind, who, reason))

    def tell_left(self, left: Mapping[Identity, Readiness]) -> None:
        """Tell of what nobody waits for any longer."""
        for who, readiness in left.items():
            text = (
                "failed, but is optional" if readiness.state in ("failed", "missing") else "goes on by itself"
            )
            reason = f": {readiness.reason}" if readiness.reason else ""
            self.on_event(RunEvent("note", who, f"{text}{reason}"))

    def _due(self, waiting: Mapping[Identity, Readiness]) -> Iterator[Identity]:
        now_s = self.clock.now_s()
        for who, readiness in waiting.items():
            reason = readiness.reason or readiness.state
            if self._seen.get(who, ("", 0.0))[0] != reason:
                self._seen[who] = (reason, now_s)
            told, told_s = self._told.setdefault(who, ("", now_s))
            stayed = now_s - self._seen[who][1] >= SAY_AFTER_S
            if reason != told and (stayed or now_s - told_s >= SAY_EVERY_S):
                self._told[who] = (reason, now_s)
                yield who
