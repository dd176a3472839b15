"""The status of a training job: what a person, `mlstack status` and the next leader read.

Nothing in it changes while nothing happens, so that a steady job costs no write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from mlstack.clock import micro_time, timestamp
from mlstack.elastic import training_job
from mlstack.elastic.facts import PodFacts, conditions_of
from mlstack.elastic.snapshot import Decision, Priority
from mlstack.elastic.state import JobContext, shortened
from mlstack.errors import ConflictError

_MOST_RECORDS = 10

# --- how a job stands: what was seen of its pods, and what was decided for it ---


class _Counts(NamedTuple):
    desired: int
    live: int  # how many neither ended nor are going
    bound: int  # how many of these have a node
    ready: int  # how many of these are ready

    @classmethod
    def of(cls, pods: Sequence[PodFacts], role: str, desired: int) -> _Counts:
        live = [pod for pod in pods if pod.role == role and pod.is_live]
        return cls(desired, len(live), sum(bool(pod.node) for pod in live), sum(pod.is_ready for pod in live))


class _Standing:
    """All that a status is made from; without a decision the job takes no part in the plan."""

    def __init__(self, context: JobContext, decision: Decision | None, now_ms: int) -> None:
        job, pods, life = context.job, context.pods, context.life
        self.job, self.pods, self.life, self.record = job, pods, life, context.record
        self.before, self.now_ms = job.status, now_ms
        self.reason = decision.reasons[0] if decision else None
        self.is_suspended = bool(job.spec and job.spec.is_suspended)
        target = decision.target if decision is not None else job.target
        if life.outcome or job.has_ended or (decision is None and self.is_suspended):
            target = 0
        servers = {role.role: role.count for role in job.servers if target}
        self.trainer = _Counts.of(pods, "trainer", target)
        self.pserver = _Counts.of(pods, "pserver", servers.get("pserver", 0))
        self.master = _Counts.of(pods, "master", servers.get("master", 0))
        self.moves = decision.moves if decision is not None and target < job.target else 0
        succeeded = sum(pod.role == "trainer" and pod.ending == "succeeded" for pod in pods)
        self.succeeded = max(succeeded, int((job.status.get("trainer") or {}).get("succeeded") or 0))
        self.minimum = job.spec.minimum if job.spec else 0
        self.missing = self._missing(context, self.minimum)
        # Whether it is too few to go on with: a job may be told to have more, and then it has lost nothing.
        self.is_short = bool(job.spec and self._missing(context, job.spec.trainer.minimum))
        held_up = next((pod for pod in pods if pod.is_live and pod.held_up), None)
        self.held_up = f"; `{held_up.name}`: {held_up.held_up}" if held_up else ""

    @property
    def is_admitted(self) -> bool:
        return self.trainer.desired > 0

    @property
    def is_finishing(self) -> bool:
        return not self.life.outcome and self.succeeded > 0

    @property
    def is_there(self) -> bool:
        """Whether it has just the trainers that it is to have, all of them ready."""
        return self.trainer.ready == self.trainer.live == self.trainer.desired

    def _missing(self, context: JobContext, fewest: int) -> tuple[str, ...]:
        """Say what of a gang is not ready: `1 of 2 parameter servers`; empty for a whole one."""
        needs = [
            ("master", self.master.ready, self.master.desired),
            ("parameter server", self.pserver.ready, self.pserver.desired),
            ("trainer", self.trainer.ready, max(fewest, 1)),
        ]
        short = [f"{ready} of {n} {role}{'s' * (n > 1)}" for role, ready, n in needs if ready < n]
        ready, rendezvous = {pod.name for pod in context.trainers if pod.is_ready}, self.job.rendezvous
        if rendezvous and ready and rendezvous not in ready:
            short.append("not trainer 0, at which the others meet")
        return tuple(short)

    def hindrance(self) -> str:
        if self.record.refusal:
            return f"; refused: {shortened(self.record.refusal)}"
        if self.life.message and not self.life.outcome:
            return f"; {self.life.message}"
        # Nobody makes these anew before they have ended, since two of a name could be at work.
        needed = [pod for pod in self.pods if pod.role != "trainer" or pod.name == self.job.rendezvous]
        names = ", ".join(f"`{pod.name}`" for pod in needed if pod.is_overdue(self.now_ms))
        text = f"; {names} should have ended: if the node is gone, delete it, or the pod by force"
        return text if names else ""

    def unready(self) -> str:
        return f"ready: {', '.join(self.missing)}{self.held_up}{self.hindrance()}"


# --- conditions of a training job: what holds, what does not, and why ---

Claim = tuple[bool, str, str]
"""Whether a condition holds, the reason in one word, and in one line."""

# Why a job has no pods, by the cause of the decision.
_OUTSIDE: Mapping[str, str] = {
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


def says_waiting(status: Mapping[str, Any], text: str) -> bool:
    """Tell whether a status says already that the job waits, and for just this."""
    admitted = conditions_of(status).get("Admitted", {})
    reason, message = admitted.get("reason"), str(admitted.get("message") or "")
    if reason in ("WaitingForCapacity", "Refused"):
        return message == text
    return reason in _LASTING and message.endswith(f"{_SINCE}{text}")


def _conditions(
    standing: _Standing, priority: Priority, records: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Give the conditions; the time of a transition stays where nothing changed sides."""
    before, now = conditions_of(standing.before), timestamp(standing.now_ms // 1000)
    claims: dict[str, Claim] = {
        "Admitted": _admitted(standing, before.get("Admitted", {})),
        "GangReady": _gang_ready(standing),
        "Progressing": _progressing(standing),
        "Degraded": _degraded(standing),
        "Scaled": _scaled(standing, records),
    }
    if priority.reason:
        claims["PriorityGranted"] = (priority.is_granted, priority.reason, priority.message)
    conditions = []
    for kind, (holds, reason, message) in claims.items():
        status, earlier = "True" if holds else "False", before.get(kind, {})
        since = earlier.get("lastTransitionTime", now) if earlier.get("status") == status else now
        conditions.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "observedGeneration": standing.job.generation,
                "lastTransitionTime": since,
            }
        )
    return conditions


def _admitted(standing: _Standing, before: Mapping[str, Any]) -> Claim:
    if standing.job.faults:
        return False, "InvalidSpec", "; ".join(standing.job.faults)
    if standing.life.outcome:
        return False, "Finished", standing.life.message
    if standing.is_suspended:
        return False, "Suspended", "spec.suspend is true"
    if standing.is_admitted:
        return True, "Admitted", "there is room for the whole gang"
    if standing.reason is None:
        return False, "NotPlanned", "no plan was made yet"
    reason, message = _OUTSIDE.get(standing.reason.cause, "WaitingForCapacity"), standing.reason.text
    if reason != "WaitingForCapacity" or before.get("reason") not in _LASTING:
        return False, reason, message
    why = str(before.get("message") or "").partition(_SINCE)[0]  # it was taken off, and waits since then
    return False, str(before["reason"]), f"{why}{_SINCE}{message}"


def _absent(standing: _Standing) -> Claim | None:
    if standing.life.outcome:
        return False, "Finished", standing.life.message
    return None if standing.is_admitted else (False, "NotAdmitted", "the job has no pods")


def _gang_ready(standing: _Standing) -> Claim:
    if absent := _absent(standing):
        return absent
    if standing.missing:
        return False, "PodsNotReady", standing.unready()
    return True, "AllReady", "the whole gang is ready"


def _progressing(standing: _Standing) -> Claim:
    trainer = standing.trainer
    if standing.is_finishing:
        done = "1 trainer" if standing.succeeded == 1 else f"{standing.succeeded} trainers"
        return True, "Completing", f"{done} found no work left, {trainer.live} still at work"
    if absent := _absent(standing):
        return absent
    if trainer.live > trainer.bound:
        return True, "Binding", f"{trainer.live - trainer.bound} of {trainer.live} trainers wait for a node"
    if trainer.ready != trainer.desired or standing.missing:
        refused = standing.hindrance() if trainer.live < trainer.desired else ""
        text = f"{trainer.ready} of {trainer.desired} trainers are ready{standing.held_up}{refused}"
        return True, "Starting", text
    return False, "Steady", "all trainers that it was given are ready"


def _degraded(standing: _Standing) -> Claim:
    job, record, now_ms = standing.job, standing.record, standing.now_ms
    if standing.job.faults:
        return True, "InvalidSpec", "; ".join(standing.job.faults)
    if standing.life.outcome == "Failed":
        return True, standing.life.reason or "Failed", standing.life.message
    if not standing.is_admitted and standing.reason and standing.reason.cause == "refused":
        return True, "Refused", standing.reason.text
    if standing.is_admitted and not standing.life.outcome and not standing.is_finishing:
        if job.is_paused(standing.pods, now_ms):
            text = f"the room of its trainers is lent till all servers are back{standing.hindrance()}"
            return True, "Paused", text
        is_given_all = standing.trainer.desired >= standing.minimum
        if standing.before.get("startTime") and (standing.is_short or not is_given_all):
            why = "the gang is not whole any more" if standing.is_short else "there is no room for all"
            return True, "MinimumLost", f"{why}; {standing.unready()}"
        errors = sorted([error for error in record.unwritten.values() if error is not None], key=str)
        if names := [str(error) for error in errors if isinstance(error, ConflictError)]:
            return True, "NameTaken", shortened("; ".join(names))
        refusals = [record.growth_refused(job.generation, now_ms), record.kept, *map(str, errors)]
        if refusal := next(filter(None, [*refusals, record.refusal if standing.missing else ""]), ""):
            return True, "Refused", shortened(refusal)
    if job.spec and job.spec.warnings:
        return False, "Warnings", "; ".join(job.spec.warnings)
    return False, "AsExpected", ""


def _scaled(standing: _Standing, records: Sequence[Mapping[str, Any]]) -> Claim:
    if not records:
        return False, "NeverScaled", "it was given no trainers yet"
    last = records[-1]
    reason = _SCALES.get(str(last.get("cause")), "Scaled")
    text = f"trainers {last.get('from')} -> {last.get('to')}: {last.get('reason')}"
    return standing.is_there or standing.is_finishing or bool(standing.life.outcome), reason, text


# --- the status as a whole ---

Phase = Literal[
    "Pending", "Admitted", "Running", "Scaling", "Completing", "Paused", "Succeeded", "Failed", "Suspended"
]


def build_status(
    context: JobContext, decision: Decision | None, priority: Priority, now_ms: int
) -> dict[str, Any]:
    """Give the whole status of a job; `decision` is None where it takes no part in the plan."""
    standing, job, record = _Standing(context, decision, now_ms), context.job, context.record
    before, trainer = job.status, standing.trainer
    records = _records(standing)
    conditions = _conditions(standing, priority, records)
    selector = training_job.selector(job.name, "trainer")
    still_failed = sum(pod.ending == "failed" and pod.uid in record.counted for pod in context.pods)
    status: dict[str, Any] = {
        "observedGeneration": job.generation,
        "phase": _phase(standing),
        "reason": _reason(standing, conditions),
        "conditions": conditions,
        "trainer": {
            **_counts(trainer, record.failed),
            "replicas": trainer.live,  # what the scale subresource reports
            "succeeded": standing.succeeded,
            "fulfilment": f"{_fulfilment_pct(standing)}%",
        },
        "pserver": _counts(standing.pserver),
        "master": _counts(standing.master),
        "priority": priority.value or None,
        "selector": ",".join(f"{name}={value}" for name, value in selector.items()),
        "scaleRecords": records,
        "setbacks": record.setbacks(0 if context.life.outcome else still_failed),
        **_times(standing),
        "throughput": before.get("throughput"),
    }
    return {name: value for name, value in status.items() if value not in (None, "", [], {})}


def _phase(standing: _Standing) -> Phase:
    if standing.life.outcome:
        return standing.life.outcome
    is_paused = standing.job.is_paused(standing.pods, standing.now_ms)
    phases: tuple[tuple[bool, Phase], ...] = (
        (bool(standing.job.faults), "Pending"),
        (standing.is_suspended, "Suspended"),
        (not standing.is_admitted, "Pending"),
        (standing.is_finishing, "Completing"),
        (is_paused, "Paused"),
        (bool(standing.missing) and not standing.before.get("startTime"), "Admitted"),
        (standing.is_there, "Running"),
    )
    return next((phase for holds, phase in phases if holds), "Scaling")


def _reason(standing: _Standing, conditions: Sequence[Mapping[str, Any]]) -> str:
    """Give the one line that explains a job that does not run as it should."""
    if standing.life.outcome:
        return standing.life.message
    admitted, gang, _, degraded, *_ = conditions
    doubtful = [degraded] if degraded["status"] == "True" else []
    doubtful += [condition for condition in (admitted, gang) if condition["status"] == "False"]
    return str(doubtful[0]["message"]) if doubtful else ""


def _fulfilment_pct(standing: _Standing) -> int:
    """Say how much of its elastic range a job was given, as EDL counted it: 100 for a rigid job."""
    minimum, maximum = standing.minimum, standing.job.spec.maximum if standing.job.spec else 0
    if not standing.is_admitted:
        return 0
    if maximum <= minimum:
        return 100
    return 100 * (min(standing.trainer.desired, maximum) - minimum) // (maximum - minimum)


def _counts(counts: _Counts, failed: int = 0) -> dict[str, Any]:
    return {"desired": counts.desired, "bound": counts.bound, "ready": counts.ready, "failed": failed}


def _records(standing: _Standing) -> list[dict[str, Any]]:
    """Give the last changes of the number of trainers; a new leader reads which moves still count."""
    records = [dict(record) for record in standing.before.get("scaleRecords") or ()]
    earlier = standing.job.target
    if standing.trainer.desired != earlier:
        cause: str = standing.reason.cause if standing.reason else "unknown"
        if standing.life.outcome or standing.is_suspended:
            cause = "finished" if standing.life.outcome else "suspended"
        records.append(
            {
                "time": micro_time(standing.now_ms / 1000),
                "from": earlier,
                "to": standing.trainer.desired,
                "cause": cause,
                "reason": standing.reason.text if standing.reason else standing.life.message,
                **({"moves": standing.moves} if standing.moves else {}),
            }
        )
    return records[-_MOST_RECORDS:]


def _times(standing: _Standing) -> dict[str, Any]:
    """Give when it was admitted, whole and done (anew once queued again), and how long it first waited."""
    before, now_ms = standing.before, standing.now_ms
    now, waited = timestamp(now_ms // 1000), before.get("waitingSeconds")
    created_ms = standing.job.spec.created_ms if standing.job.spec else 0
    if not standing.is_admitted and not standing.life.outcome:
        return {"waitingSeconds": waited}
    times = {name: before.get(name) for name in ("admittedTime", "startTime", "completionTime")}
    if standing.life.outcome:
        times["completionTime"] = times["completionTime"] or now
    else:
        times["admittedTime"] = times["admittedTime"] or now
        if not standing.missing and not times["startTime"]:
            times["startTime"] = now
            waited = max(0, now_ms - created_ms) // 1000 if waited is None else waited
    return {**times, "waitingSeconds": waited}
