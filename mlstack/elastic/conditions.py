"""Conditions of a training job: what holds, what does not, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mlstack.elastic.scaleplan import Cause
from mlstack.elastic.standing import Standing

Condition = dict[str, Any]

_LONGEST = 300  # of what a server said: an admission webhook may say much

# Why a job has no pods, by the cause of the decision.
_OUTSIDE: Mapping[Cause, str] = {
    "waiting": "WaitingForCapacity",
    "suspended": "PreemptedFor",
    "lost": "MinimumLost",
    "stuck": "Unplaceable",
    "refused": "Refused",
}
# Of these the cause stays to be read while the job waits since then.
_LASTING = frozenset(_OUTSIDE.values()) - {"WaitingForCapacity", "Refused"}
_SINCE = "; since then: "
# Why the number of trainers is what it is.
_SCALES: Mapping[str, str] = {
    "admitted": "Admitted",
    "minimum": "MinimumRestored",
    "bounds": "BoundsChanged",
    "growth": "RoomFree",
    "yield": "PreemptedFor",
    "gang": "PreemptedFor",
    "fairness": "Rebalanced",
    "stuck": "Unplaceable",
    "refused": "Refused",
}


class Claim(NamedTuple):
    """What one condition says."""

    type: str
    holds: bool
    reason: str
    message: str


def build(
    standing: Standing, before: Mapping[str, Any], records: Sequence[Mapping[str, Any]], now: str
) -> list[Condition]:
    """Give the conditions; the time of a transition stays where nothing changed sides.

    Args:
        standing: how the job stands.
        before: the status as it stands.
        records: the scale records, the last one latest.
        now: the time as Kubernetes writes it.
    """
    has_started = bool(before.get("startTime"))
    known = {str(each.get("type")): each for each in before.get("conditions") or ()}
    claims = (
        _still(_admitted(standing), known.get("Admitted", {})),
        _gang_ready(standing),
        _progressing(standing),
        _degraded(standing, has_started=has_started),
        _scaled(standing, records),
        *([_priority(standing)] if standing.priority.reason else []),
    )
    return [_condition(claim, known.get(claim.type, {}), standing, now) for claim in claims]


def says_waiting(status: Mapping[str, Any], text: str) -> bool:
    """Tell whether a status says already that the job waits, and for just this."""
    said = {str(each.get("type")): each for each in status.get("conditions") or ()}.get("Admitted", {})
    reason, message = said.get("reason"), str(said.get("message") or "")
    if reason in ("WaitingForCapacity", "Refused"):
        return message == text
    return reason in _LASTING and message.endswith(f"{_SINCE}{text}")


def _condition(claim: Claim, before: Mapping[str, Any], standing: Standing, now: str) -> Condition:
    status = "True" if claim.holds else "False"
    is_same = before.get("status") == status
    return {
        "type": claim.type,
        "status": status,
        "reason": claim.reason,
        "message": claim.message,
        "observedGeneration": standing.generation,
        "lastTransitionTime": before.get("lastTransitionTime", now) if is_same else now,
    }


def _admitted(standing: Standing) -> Claim:
    def no(reason: str, message: str) -> Claim:
        return Claim("Admitted", False, reason, message)

    if standing.faults:
        return no("InvalidSpec", "; ".join(standing.faults))
    if standing.outcome:
        return no("Finished", standing.outcome_message)
    if standing.is_suspended:
        return no("Suspended", "spec.suspend is true")
    if standing.is_admitted:
        return Claim("Admitted", True, "Admitted", "there is room for the whole gang")
    if standing.reason is None:
        return no("NotPlanned", "no plan was made yet")
    return no(_OUTSIDE.get(standing.reason.cause, "WaitingForCapacity"), standing.reason.text)


def _still(claim: Claim, before: Condition) -> Claim:
    """Keep why a job was taken off while it waits since then."""
    if claim.reason != "WaitingForCapacity" or before.get("reason") not in _LASTING:
        return claim
    why = str(before.get("message") or "").partition(_SINCE)[0]
    return claim._replace(reason=str(before["reason"]), message=f"{why}{_SINCE}{claim.message}")


def _gang_ready(standing: Standing) -> Claim:
    if standing.outcome:
        return Claim("GangReady", False, "Finished", standing.outcome_message)
    if not standing.is_admitted:
        return Claim("GangReady", False, "NotAdmitted", "the job has no pods")
    if standing.missing:
        text = f"ready: {', '.join(standing.missing)}{_held_up(standing)}{_hindrance(standing)}"
        return Claim("GangReady", False, "PodsNotReady", text)
    return Claim("GangReady", True, "AllReady", "the whole gang is ready")


def _held_up(standing: Standing) -> str:
    """Say what keeps pods that were made from being ready."""
    return f"; {standing.held_up}" if standing.held_up else ""


def _hindrance(standing: Standing) -> str:
    """Say what keeps pods from being made."""
    if standing.refusal:
        return f"; refused: {standing.refusal[:_LONGEST]}"
    if standing.setback:
        return f"; {standing.setback}"
    if not standing.lingering:
        return ""
    names = ", ".join(f"`{name}`" for name in standing.lingering)
    return f"; {names} should have ended: if the node is gone, delete it, or the pod by force"


def _progressing(standing: Standing) -> Claim:
    trainer = standing.trainer
    if standing.outcome:
        return Claim("Progressing", False, "Finished", standing.outcome_message)
    if standing.is_finishing:
        done = "1 trainer" if trainer.succeeded == 1 else f"{trainer.succeeded} trainers"
        text = f"{done} found no work left, {trainer.live} still at work"
        return Claim("Progressing", True, "Completing", text)
    if not standing.is_admitted:
        return Claim("Progressing", False, "NotAdmitted", "the job has no pods")
    if trainer.live > trainer.bound:
        text = f"{trainer.live - trainer.bound} of {trainer.live} trainers wait for a node"
        return Claim("Progressing", True, "Binding", text)
    if trainer.ready != trainer.desired or standing.missing:
        refused = _hindrance(standing) if trainer.live < trainer.desired else ""
        text = f"{trainer.ready} of {trainer.desired} trainers are ready{_held_up(standing)}{refused}"
        return Claim("Progressing", True, "Starting", text)
    return Claim("Progressing", False, "Steady", "all trainers that it was given are ready")


def _degraded(standing: Standing, *, has_started: bool) -> Claim:
    if standing.faults:
        return Claim("Degraded", True, "InvalidSpec", "; ".join(standing.faults))
    if standing.outcome == "Failed":
        return Claim("Degraded", True, standing.outcome_reason or "Failed", standing.outcome_message)
    if not standing.is_admitted and standing.reason and standing.reason.cause == "refused":
        return Claim("Degraded", True, "Refused", standing.reason.text)
    is_running = standing.is_admitted and not standing.outcome and not standing.is_finishing
    if is_running and standing.is_paused:
        text = f"the room of its trainers is lent till all servers are back{_hindrance(standing)}"
        return Claim("Degraded", True, "Paused", text)
    if is_running and has_started and standing.missing:
        what = f"ready: {', '.join(standing.missing)}{_held_up(standing)}{_hindrance(standing)}"
        text = f"the gang is not whole any more; {what}"
        return Claim("Degraded", True, "MinimumLost", text)
    if is_running and standing.taken_names:
        return Claim("Degraded", True, "NameTaken", "; ".join(standing.taken_names)[:_LONGEST])
    refusal = standing.growth_refusal or (standing.missing and standing.refusal)
    if is_running and refusal:
        return Claim("Degraded", True, "Refused", refusal[:_LONGEST])
    if standing.warnings:
        return Claim("Degraded", False, "Warnings", "; ".join(standing.warnings))
    return Claim("Degraded", False, "AsExpected", "")


def _priority(standing: Standing) -> Claim:
    """Say whether a job counts with the priority that it asks for."""
    priority = standing.priority
    return Claim("PriorityGranted", priority.is_granted, priority.reason, priority.message)


def _scaled(standing: Standing, records: Sequence[Mapping[str, Any]]) -> Claim:
    if not records:
        return Claim("Scaled", False, "NeverScaled", "it was given no trainers yet")
    last = records[-1]
    reason = _SCALES.get(str(last.get("cause")), "Scaled")
    text = f"trainers {last.get('from')} -> {last.get('to')}: {last.get('reason')}"
    is_there = standing.trainer.ready == standing.trainer.live == standing.trainer.desired
    is_there = is_there or standing.is_finishing
    return Claim("Scaled", is_there or bool(standing.outcome), reason, text)
