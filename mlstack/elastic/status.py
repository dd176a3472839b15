"""The status of a training job: what a person, `mlstack status` and the next leader read.

Nothing in it changes while nothing happens, so that a steady job costs no write.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from mlstack.elastic import childnames, conditions, setbacks
from mlstack.elastic.observed.amounts import time_ms
from mlstack.elastic.standing import Counts, Standing
from mlstack.model.clock import micro_time

Phase = Literal[
    "Pending", "Admitted", "Running", "Scaling", "Completing", "Paused", "Succeeded", "Failed", "Suspended"
]

MAX_RECORDS = 10


def build(standing: Standing, before: Mapping[str, Any], *, now_ms: int) -> dict[str, Any]:
    """Give the whole status of a job.

    Args:
        standing: how it stands.
        before: its status up to now; what the job reports itself (`throughput`) stays in it.
        now_ms: the time of what changes now, milliseconds since 1970.
    """
    now = timestamp(now_ms)
    records = _records(standing, before, now_ms)
    said = conditions.build(standing, before, records, now)
    found: dict[str, Any] = {
        "observedGeneration": standing.generation,
        "phase": phase(standing, before),
        "reason": _reason(standing, said),
        "conditions": said,
        "trainer": _trainers(standing),
        "pserver": _servers(standing.pserver),
        "master": _servers(standing.master),
        "priority": standing.priority.value or None,
        "selector": childnames.selector_text(standing.name),
        "scaleRecords": records,
        "setbacks": setbacks.write(standing.setbacks),
        **_times(standing, before, now_ms),
        "throughput": before.get("throughput"),
    }
    return {name: value for name, value in found.items() if value not in (None, "", [], {})}


def phase(standing: Standing, before: Mapping[str, Any]) -> Phase:
    """Give the phase: one word for where a job is between its creation and its end."""
    if standing.outcome:
        return standing.outcome
    if standing.faults:
        return "Pending"
    if standing.is_suspended:
        return "Suspended"
    if not standing.is_admitted:
        return "Pending"
    if standing.is_finishing:
        return "Completing"
    if standing.is_paused:
        return "Paused"
    if standing.missing and not before.get("startTime"):
        return "Admitted"
    trainer = standing.trainer
    return "Running" if trainer.ready == trainer.live == trainer.desired else "Scaling"


def timestamp(moment_ms: int) -> str:
    """Write a time as Kubernetes does."""
    return datetime.fromtimestamp(moment_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _reason(standing: Standing, said: list[dict[str, Any]]) -> str:
    """Give the one line that explains a job that does not run as it should."""
    if standing.outcome:
        return standing.outcome_message
    admitted, gang, _, degraded, *_ = said
    doubtful = next((each for each in (admitted, gang) if each["status"] == "False"), None)
    if degraded["status"] == "True":
        doubtful = degraded
    return str(doubtful["message"]) if doubtful else ""


def _trainers(standing: Standing) -> dict[str, Any]:
    """Count trainers; `replicas` is what the scale subresource reports."""
    counts = standing.trainer
    found = {
        **_servers(counts),
        "replicas": counts.live,
        "succeeded": counts.succeeded,
        "fulfilment": fulfilment(counts.desired, standing.minimum, standing.maximum),
    }
    return found if standing.is_admitted else {**found, "fulfilment": "0%"}


def fulfilment(desired: int, minimum: int, maximum: int) -> str:
    """Say how much of its elastic range a job was given, as EDL counted it: 100% for a rigid job."""
    if maximum <= minimum:
        return "100%"
    return f"{100 * (min(desired, maximum) - minimum) // (maximum - minimum)}%"


def _servers(counts: Counts) -> dict[str, Any]:
    return {
        "desired": counts.desired,
        "bound": counts.bound,
        "ready": counts.ready,
        "failed": counts.failed,
    }


def _records(standing: Standing, before: Mapping[str, Any], now_ms: int) -> list[dict[str, Any]]:
    """Give the last changes of the number of trainers, the latest at the end.

    Their times are exact: a new leader reads from them which moves are still to be counted.
    """
    known = [dict(record) for record in before.get("scaleRecords") or ()]
    earlier = int((before.get("trainer") or {}).get("desired") or 0)
    if standing.trainer.desired == earlier:
        return known[-MAX_RECORDS:]
    found: dict[str, Any] = {
        "time": micro_time(now_ms / 1000),
        "from": earlier,
        "to": standing.trainer.desired,
        "cause": _cause(standing),
        "reason": standing.reason.text if standing.reason else standing.outcome_message,
        **({"moves": standing.moves} if standing.moves else {}),
    }
    return [*known, found][-MAX_RECORDS:]


def _cause(standing: Standing) -> str:
    if standing.outcome:
        return "finished"
    if standing.is_suspended:
        return "suspended"
    return standing.reason.cause if standing.reason else "unknown"


def _times(standing: Standing, before: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """Give when it was admitted, whole and done; one that is queued again begins anew.

    How long it waited for its whole gang is told once, for the first time.
    """
    waited = before.get("waitingSeconds")
    if not standing.is_admitted and not standing.outcome:
        return {"waitingSeconds": waited}
    found = {name: before.get(name) for name in ("admittedTime", "startTime", "completionTime")}
    if standing.is_admitted and not standing.outcome:
        found["admittedTime"] = found["admittedTime"] or timestamp(now_ms)
        if not standing.missing and not found["startTime"]:
            found["startTime"] = timestamp(now_ms)
            waited = max(0, now_ms - standing.created_ms) // 1000 if waited is None else waited
    if standing.outcome:
        found["completionTime"] = found["completionTime"] or timestamp(now_ms)
    return {**found, "waitingSeconds": waited}


def ended_ms(status: Mapping[str, Any]) -> int | None:
    """Give when a job ended, milliseconds since 1970; None while it goes on."""
    return time_ms(str(status.get("completionTime") or "")) or None
