"""Kubernetes events about jobs: what is told when something changes, and a series where it is told again.

As client-go's broadcaster has it: what happens again within six minutes is the same event, and its series
counts it, so that `kubectl get events -o wide` and `kubectl describe` show how often it was. A series begins
at once and is then written once a minute at the most. What lasts rather than happens, such as waiting for
room, is not counted while it lasts; every half an hour its event is written again, since the server forgets
events after an hour. A new leader, who does not know that event, writes one of its own after that time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Literal

from mlstack.clock import micro_time
from mlstack.dataclass import dataclass
from mlstack.elastic.controller.cache import JobFacts
from mlstack.elastic.snapshot import Cause, Decision

API_VERSION = "events.k8s.io/v1"
CONTROLLER = "mlstack.dev/elastic"

SAME_MS = 360_000  # so long after the last time it is something new again
PAUSE_MS = 60_000  # a series that has begun is not written more often
REFRESH_MS = 1_800_000  # what lasts is written again so often
MOST = 50  # so many different events are remembered of one job
_LONGEST = 1024  # of a note, by the API

# Reasons whose texts differ while they mean the same.
_NUMBERED = frozenset({"WaitingForCapacity", "Refused"})
# What a decision is called that takes a job off.
_OFF: Mapping[Cause, str] = {
    "stuck": "StuckWithdrawn",
    "suspended": "PreemptedFor",
    "lost": "MinimumLost",
}
# What a decision is called when it changes the number of trainers: reason if it grows, reason if it shrinks.
_CHANGES: Mapping[Cause, tuple[str, str]] = {
    "fairness": ("Rebalanced", "Rebalanced"),
    "gang": ("ScaledUp", "PreemptedFor"),
    "yield": ("ScaledUp", "PreemptedFor"),
    "stuck": ("ScaledUp", "StuckWithdrawn"),
    "refused": ("ScaledUp", "Refused"),
}


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    """One thing that happened to a job."""

    job: str  # its key
    reason: str  # one word in CamelCase, as people select by it
    action: str  # what the controller did
    text: str  # one line for people
    type: Literal["Normal", "Warning"] = "Normal"  # whether somebody should look
    lasts: bool = False  # whether it is a state, told in every pass while it lasts

    @property
    def key(self) -> tuple[str, str]:
        """Give what makes it the same as another: of some reasons the numbers in the text do not matter.

        Why a whole gang is refused does: it is asked again after minutes or hours.
        """
        is_numbered = self.is_numbered and not (self.reason == "Refused" and self.lasts)
        return (self.reason, "" if is_numbered else self.text)

    @property
    def is_numbered(self) -> bool:
        """Tell whether only the numbers in it change: it is worth a line the first time alone."""
        return self.reason in _NUMBERED

    def manifest(self, job: JobFacts, now_ms: int, instance: str) -> dict[str, Any]:
        """Write it as an Event; its name tells the moment, so that no two meet."""
        mark = hashlib.sha256(f"{job.uid} {self.reason} {self.text} {now_ms} {instance}".encode()).hexdigest()
        return {
            "apiVersion": API_VERSION,
            "kind": "Event",
            "metadata": {"namespace": job.namespace, "name": f"{job.name}.{mark[:16]}"},
            "eventTime": micro_time(now_ms / 1000),
            "reportingController": CONTROLLER,
            "reportingInstance": instance[:128],
            "action": self.action,
            "reason": self.reason,
            "type": self.type,
            "note": self.text[:_LONGEST],
            "regarding": {
                "apiVersion": job.ref.api_version,
                "kind": job.ref.kind,
                "namespace": job.namespace,
                "name": job.name,
                "uid": job.uid,
            },
        }


def of_decision(job: JobFacts, decision: Decision) -> list[JobEvent]:
    """Give what there is to tell about a decision, nothing where nothing changes."""
    before, after, cause = job.target, decision.target, decision.reasons[0].cause
    text, key = decision.reasons[0].text, job.key
    if before == 0 and after > 0:
        return [JobEvent(job=key, reason="Admitted", action="Admit", text=f"{after} trainers: {text}")]
    if after == 0 and cause == "refused":
        return [JobEvent(job=key, reason="Refused", action="Admit", text=text, type="Warning", lasts=True)]
    if before > 0 and after == 0:
        reason = _OFF.get(cause, "Suspended")
        return [JobEvent(job=key, reason=reason, action="Suspend", text=text, type="Warning")]
    if before == 0:
        return [JobEvent(job=key, reason="WaitingForCapacity", action="Wait", text=text, lasts=True)]
    if after == before:
        return []
    reason = _CHANGES.get(cause, ("ScaledUp", "ScaledDown"))[after < before]
    return [JobEvent(job=key, reason=reason, action="Scale", text=f"trainers {before} -> {after}: {text}")]


def of_status(job: JobFacts, after: Mapping[str, Any]) -> list[JobEvent]:
    """Give what there is to tell about conditions that turn bad with a new status."""
    before, now = (
        {
            str(condition.get("reason")): str(condition.get("message") or "")
            for condition in reversed(status.get("conditions") or ())
            if condition.get("type") == "Degraded"
        }
        for status in (job.status, after)
    )
    return [
        JobEvent(job=job.key, reason=reason, action="Observe", text=now[reason], type="Warning")
        for reason in ("MinimumLost", "InvalidSpec", "Paused")
        if reason in now and reason not in before
    ]


@dataclass
class EventSeries:
    """How often the same was told."""

    event: str  # name of its event, empty for one of a leader before
    last_ms: int  # when it was told last
    sent_ms: int  # when it was written last
    count: int = 1  # how often it happened
    sent: int = 1  # how often it had happened when it was written last


@dataclass
class EventRecorder:
    """What was told of one job lately."""

    known: dict[tuple[str, str], EventSeries] = field(default_factory=dict)
    is_new: bool = True  # whether nothing was ever told by this leader

    def take_over(self, key: tuple[str, str], now_ms: int) -> None:
        """Take note of what a leader before has told; a new event tells it when it would be written again."""
        self.is_new = False
        self.known[key] = EventSeries("", last_ms=now_ms, sent_ms=now_ms)

    def record(self, key: tuple[str, str], event: str, now_ms: int, *, lasts: bool = False) -> bool:
        """Count what is told; gives whether it is new, so that an event of this name is to be written.

        What one pass says several times counts once, and so does what lasts, once in `REFRESH_MS`.
        """
        self.is_new = False
        self.known = {old: series for old, series in self.known.items() if now_ms - series.last_ms < SAME_MS}
        series = self.known.get(key)
        if series is not None and (series.event or now_ms - series.sent_ms < REFRESH_MS):
            if now_ms > series.last_ms and (not lasts or now_ms - series.sent_ms >= REFRESH_MS):
                series.count += 1
            series.last_ms = now_ms
            return False
        if len(self.known) >= MOST:
            del self.known[min(self.known, key=lambda old: self.known[old].last_ms)]
        self.known[key] = EventSeries(event, last_ms=now_ms, sent_ms=now_ms)
        return True

    def due(self, now_ms: int) -> Iterator[tuple[tuple[str, str], EventSeries]]:
        """Give the series that are to be written now; they count as written."""
        for key, series in self.known.items():
            is_time = series.sent == 1 or now_ms - series.sent_ms >= PAUSE_MS
            if series.count > series.sent and is_time:
                series.sent, series.sent_ms = series.count, now_ms
                yield key, series

    def forget(self, event: str) -> None:
        """Begin anew with an event that the server has forgotten."""
        self.known = {key: series for key, series in self.known.items() if series.event != event}
