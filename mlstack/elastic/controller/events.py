"""What is told about a job: Kubernetes events, each when something changes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mlstack.clock import micro_time
from mlstack.elastic.controller.job_reconciler import Life
from mlstack.elastic.controller.jobs import JobFacts
from mlstack.elastic.controller.memory import Key
from mlstack.elastic.snapshot import Cause, Decision

API_VERSION = "events.k8s.io/v1"
CONTROLLER = "mlstack.dev/elastic"

_LONGEST = 1024  # of a note, by the API

NoteType = Literal["Normal", "Warning"]


@dataclass(frozen=True, kw_only=True)
class EventNote:
    """One thing that happened to a job."""

    reason: str  # one word in CamelCase, as people select by it
    action: str  # what the controller did
    text: str
    type: NoteType = "Normal"  # whether somebody should look
    lasts: bool = False  # whether it is a state, told in every pass while it lasts

    @property
    def key(self) -> Key:
        """Give what makes it the same as another: of some reasons the numbers in the text do not matter.

        Why a whole gang is refused does: it is asked again after minutes or hours.
        """
        is_numbered = self.reason in _NUMBERED and not (self.reason == "Refused" and self.lasts)
        return (self.reason, "" if is_numbered else self.text)

    @property
    def is_loud(self) -> bool:
        """Tell whether it is worth a line each time, not only the first."""
        return self.reason not in _NUMBERED


# Reasons whose texts differ while they mean the same.
_NUMBERED = frozenset({"WaitingForCapacity", "Refused"})
# Reasons of a condition that people should hear of.
_BAD = ("MinimumLost", "InvalidSpec", "Paused")

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


def of_decision(before: int, decision: Decision) -> EventNote | None:
    """Give what there is to tell about a decision, None where nothing changes."""
    reason = decision.reasons[0]
    if before == 0 and decision.target > 0:
        return EventNote(reason="Admitted", action="Admit", text=f"{decision.target} trainers: {reason.text}")
    if decision.target == 0 and reason.cause == "refused":
        return EventNote(reason="Refused", action="Admit", text=reason.text, type="Warning", lasts=True)
    if before > 0 and decision.target == 0:
        word = _OFF.get(reason.cause, "Suspended")
        return EventNote(reason=word, action="Suspend", text=reason.text, type="Warning")
    if before == 0:
        return EventNote(reason="WaitingForCapacity", action="Wait", text=reason.text, lasts=True)
    if decision.target == before:
        return None
    grown, shrunk = _CHANGES.get(reason.cause, ("ScaledUp", "ScaledDown"))
    text = f"trainers {before} -> {decision.target}: {reason.text}"
    return EventNote(reason=grown if decision.target > before else shrunk, action="Scale", text=text)


def of_end(life: Life) -> EventNote:
    """Give what there is to tell about the end of a job."""
    if life.outcome == "Succeeded":
        return EventNote(reason="Completed", action="Finish", text=life.message)
    return EventNote(reason="Failed", action="Finish", text=f"{life.reason}: {life.message}", type="Warning")


def of_suspension(job: JobFacts) -> list[EventNote]:
    """Give what there is to tell about a job that its user takes off."""
    if job.spec is None or not job.spec.is_suspended or not job.target or job.has_ended:
        return []
    return [EventNote(reason="Suspended", action="Suspend", text="spec.suspend is true")]


def of_status(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[EventNote]:
    """Give what there is to tell about conditions that turned bad."""
    found = []
    for reason in _BAD:
        message = _said(after, reason)
        if message is not None and _said(before, reason) is None:
            found.append(EventNote(reason=reason, action="Observe", text=message, type="Warning"))
    return found


def _said(found: Mapping[str, Any], reason: str) -> str | None:
    """Give the message of the condition with this reason, None where there is none."""
    for condition in found.get("conditions") or ():
        if condition.get("type") == "Degraded" and condition.get("reason") == reason:
            return str(condition.get("message") or "")
    return None


def event(job: JobFacts, note: EventNote, now_ms: int, instance: str) -> dict[str, Any]:
    """Write a note as an Event; its name tells the moment, so that no two meet."""
    mark = hashlib.sha256(f"{job.uid} {note.reason} {note.text} {now_ms} {instance}".encode()).hexdigest()
    return {
        "apiVersion": API_VERSION,
        "kind": "Event",
        "metadata": {"namespace": job.namespace, "name": f"{job.name}.{mark[:16]}"},
        "eventTime": micro_time(now_ms / 1000),
        "reportingController": CONTROLLER,
        "reportingInstance": instance[:128],
        "action": note.action,
        "reason": note.reason,
        "type": note.type,
        "note": note.text[:_LONGEST],
        "regarding": {
            "apiVersion": "paddlepaddle.org/v1",
            "kind": "TrainingJob",
            "namespace": job.namespace,
            "name": job.name,
            "uid": job.uid,
        },
    }
